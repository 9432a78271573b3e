//! Which relations a statement locks by FOR UPDATE and its like, wherever in it a query says so.
//!
//! As in PostgreSQL a query locks what is in its FROM: behind joins, and in the subqueries there; with OF only what is named. What is
//! in WITH locks by itself.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    LockClause, ObjectName, Query, SetExpr, TableAlias, TableFactor, TableWithJoins, Visitor,
};
use millrace_parser::walk::Walk;

use crate::names;

/// The names of what is locked.
pub(super) fn locked(node: &impl Walk) -> Vec<ObjectName> {
    let mut locked = Locked::default();
    let _ = node.walk(&mut locked);
    locked.found
}

#[derive(Default)]
struct Locked {
    found: Vec<ObjectName>,
    /// The queries around, from the outermost.
    around: Vec<Around>,
    /// Subqueries of which everything is locked, by where they are.
    whole: Vec<*const Query>,
}

/// A query, and what its WITH names.
struct Around {
    query: *const Query,
    /// Each table of its WITH: its name and its query.
    with: Vec<(String, *const Query)>,
    is_recursive: bool,
    /// So many of them may be named where the walk is.
    visible: usize,
}

impl Visitor for Locked {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let here: *const Query = query;
        // A table of WITH sees those before it: its own name is another's.
        if let Some(outer) = self.around.last_mut()
            && let Some(at) = outer.with.iter().position(|(_, table)| *table == here)
            && !outer.is_recursive
        {
            outer.visible = at;
        }
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let with: Vec<_> = tables
            .map(|table| {
                let name = millrace_parser::fold(&table.alias.name);
                (name, std::ptr::from_ref(table.query.as_ref()))
            })
            .collect();
        self.around.push(Around {
            query: here,
            visible: with.len(),
            with,
            is_recursive: query.with.as_ref().is_some_and(|with| with.recursive),
        });
        if self.whole.contains(&here) {
            self.all_of(&query.body, None);
        }
        for clause in &query.locks {
            self.all_of(&query.body, Some(clause));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        debug_assert!(
            self.around
                .last()
                .is_some_and(|around| std::ptr::eq(around.query, query)),
            "queries end in the order in which they begin, from the innermost"
        );
        self.around.pop();
        if let Some(outer) = self.around.last_mut() {
            outer.visible = outer.with.len();
        }
        ControlFlow::Continue(())
    }
}

impl Locked {
    /// What a body has in FROM. `clause`: the one that locks; none: everything is.
    fn all_of(&mut self, body: &SetExpr, clause: Option<&LockClause>) {
        match body {
            SetExpr::Select(select) => (select.from.iter()).for_each(|from| self.joined(from, clause)),
            SetExpr::Query(query) => self.whole.push(std::ptr::from_ref(query.as_ref())),
            SetExpr::SetOperation { left, right, .. } => {
                self.all_of(left, clause);
                self.all_of(right, clause);
            }
            _ => {}
        }
    }

    fn joined(&mut self, from: &TableWithJoins, clause: Option<&LockClause>) {
        self.one(&from.relation, clause);
        for join in &from.joins {
            self.one(&join.relation, clause);
        }
    }

    fn one(&mut self, table: &TableFactor, clause: Option<&LockClause>) {
        let only = clause.and_then(|clause| clause.of.as_ref());
        match table {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let is_meant = only.is_none_or(|only| is_called(only, name, alias.as_ref()));
                if is_meant && !self.is_of_with(name) {
                    self.found.push(name.clone());
                }
            }
            TableFactor::Derived { subquery, alias, .. } => {
                let is_named = |only: &ObjectName| {
                    (alias.as_ref())
                        .is_some_and(|alias| last(only) == Some(millrace_parser::fold(&alias.name)))
                };
                if only.is_none_or(is_named) {
                    self.whole.push(std::ptr::from_ref(subquery.as_ref()));
                }
            }
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(table_with_joins, clause),
            _ => {}
        }
    }

    /// Whether a name is one of a WITH around.
    fn is_of_with(&self, name: &ObjectName) -> bool {
        let Some(only) = last(name).filter(|_| name.0.len() == 1) else {
            return false;
        };
        (self.around.iter()).any(|around| {
            around.with[..around.visible]
                .iter()
                .any(|(name, _)| *name == only)
        })
    }
}

/// Whether OF names a table, by its alias if it has one.
fn is_called(only: &ObjectName, table: &ObjectName, alias: Option<&TableAlias>) -> bool {
    let called = match alias {
        Some(alias) => Some(millrace_parser::fold(&alias.name)),
        None => last(table),
    };
    last(only) == called
}

fn last(name: &ObjectName) -> Option<String> {
    Some(names::parts(name).ok()?.table().to_owned())
}
