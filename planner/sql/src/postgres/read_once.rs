//! `WITH r AS (SELECT random() AS x) SELECT .. FROM r, r AS again`: a query of WITH is run once in PostgreSQL, however often it is named.
//!
//! DataFusion puts it in each place where it is named. That gives the same rows, unless the query has a function that gives another value
//! at each call: then it is refused where it is named more than once.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Cte, Expr, ObjectName, ObjectNamePart, Query, Statement, Visitor};
use millrace_parser::fold;
use millrace_parser::walk::{Walk, walk_expressions};

/// Functions that give another value at each call.
const VOLATILE: [&str; 5] = ["random", "random_normal", "uuid", "gen_random_uuid", "nextval"];

/// Refuses a statement in which a query of WITH that has such a function is named twice.
///
/// # Errors
/// There is one.
pub(crate) fn check(statement: &Statement) -> Result<()> {
    match statement.walk(&mut Queries) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(name) => Err(DataFusionError::NotImplemented(format!(
            "WITH query \"{name}\" calls a volatile function and is used more than once: this is not \
             supported"
        ))),
    }
}

/// Looks at the WITH of each query.
struct Queries;

impl Visitor for Queries {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let volatile: Vec<&Cte> = tables.filter(|table| is_volatile(table)).collect();
        if volatile.is_empty() {
            return ControlFlow::Continue(());
        }
        let mut everywhere = Named::default();
        let _ = query.walk(&mut everywhere);
        let again = volatile.into_iter().find(|table| {
            // A recursive one names itself, and is run once all the same.
            let mut within = Named::default();
            let _ = table.query.walk(&mut within);
            let name = fold(&table.alias.name);
            everywhere.times(&name) > within.times(&name) + 1
        });
        match again {
            Some(table) => ControlFlow::Break(fold(&table.alias.name)),
            None => ControlFlow::Continue(()),
        }
    }
}

fn is_volatile(table: &Cte) -> bool {
    let found = walk_expressions(table.query.as_ref(), |expr| match expr {
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) if VOLATILE.contains(&fold(name).as_str()) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// How often relations are named.
#[derive(Default)]
struct Named(HashMap<String, usize>);

impl Named {
    fn times(&self, name: &str) -> usize {
        self.0.get(name).copied().unwrap_or_default()
    }
}

impl Visitor for Named {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Self::Break> {
        if let [ObjectNamePart::Identifier(name)] = relation.0.as_slice() {
            *self.0.entry(fold(name)).or_default() += 1;
        }
        ControlFlow::Continue(())
    }
}
