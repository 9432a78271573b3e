//! `WITH r AS (SELECT random() AS x) SELECT .. FROM r, r AS again`: a query of WITH is run once in PostgreSQL, however often it is named.
//!
//! DataFusion puts it in each place where it is named. That gives the same rows, unless the query has a function that gives another value
//! at each call: then it is refused where it is named more than once.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{Cte, Expr, ObjectName, ObjectNamePart, Query, Statement, Visitor};
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
            "WITH query \"{name}\" has a function that gives another value at each call, and is named more than once: this is not \
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
        let volatile = tables.filter(|table| is_volatile(table));
        let mut named = Named(volatile.map(|table| (folded(&table.alias.name), 0)).collect());
        if named.0.is_empty() {
            return ControlFlow::Continue(());
        }
        query.walk(&mut named)
    }
}

fn folded(name: &datafusion::sql::sqlparser::ast::Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}

fn is_volatile(table: &Cte) -> bool {
    let found = walk_expressions(table.query.as_ref(), |expr| match expr {
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) if VOLATILE.contains(&folded(name).as_str()) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// How often relations are named.
struct Named(BTreeMap<String, usize>);

impl Visitor for Named {
    type Break = String;

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Self::Break> {
        if let [ObjectNamePart::Identifier(name)] = relation.0.as_slice() {
            let name = folded(name);
            if let Some(times) = self.0.get_mut(&name) {
                *times += 1;
                if *times > 1 {
                    return ControlFlow::Break(name);
                }
            }
        }
        ControlFlow::Continue(())
    }
}
