//! `a EXCEPT ALL b` becomes `SELECT * FROM "EXCEPT ALL"((a), (b))`, INTERSECT likewise: DataFusion would plan an anti or
//! semi join, which keeps or drops all copies of a row (apache/datafusion#12955, #12956). What the relation of that name is:
//! see [`relation`].

pub(crate) mod relation;

use std::ops::ControlFlow;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, SetExpr, SetOperator, SetQuantifier,
    Statement, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::parser::ParserError;
use millrace_parser::walk::Walk;

use crate::template::{bare, nothing, parse};

/// The relation that stands for EXCEPT ALL of its two arguments.
pub(crate) const EXCEPT_ALL: &str = "EXCEPT ALL";
/// The relation that stands for INTERSECT ALL of its two arguments.
pub(crate) const INTERSECT_ALL: &str = "INTERSECT ALL";

/// Replaces EXCEPT ALL and INTERSECT ALL in a statement.
///
/// # Errors
/// Those of the parser on a text of this module's own.
pub(crate) fn as_relations(statement: &mut Statement) -> Result<()> {
    match statement.walk_mut(&mut CountedSets) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(DataFusionError::SQL(Box::new(error), None)),
    }
}

struct CountedSets;

impl VisitorMut for CountedSets {
    type Break = ParserError;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        match set_operation(&mut query.body) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Replaces the set operations that count copies, innermost first.
fn set_operation(body: &mut SetExpr) -> Result<(), ParserError> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return Ok(());
    };
    set_operation(left)?;
    set_operation(right)?;
    let name = match op {
        SetOperator::Except | SetOperator::Minus => EXCEPT_ALL,
        SetOperator::Intersect => INTERSECT_ALL,
        SetOperator::Union => return Ok(()),
    };
    if *set_quantifier != SetQuantifier::All {
        return Ok(());
    }
    let sides = [left, right];
    *body = of_queries(
        name,
        sides.map(|side| std::mem::replace(side.as_mut(), nothing())),
    )?;
    Ok(())
}

/// `SELECT * FROM "name"((query), ..)`.
pub(crate) fn of_queries<const N: usize>(name: &str, queries: [SetExpr; N]) -> Result<SetExpr, ParserError> {
    let argument = |query: SetExpr| {
        let query = match query {
            SetExpr::Query(query) => query,
            other => Box::new(bare(other)),
        };
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query)))
    };
    let mut query = parse("SELECT * FROM t")?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(from) = select.from.first_mut()
    {
        from.relation = TableFactor::Function {
            lateral: false,
            name: ObjectName::from(vec![Ident::with_quote('"', name)]),
            args: queries.map(argument).into(),
            with_ordinality: false,
            alias: None,
        };
    }
    Ok(*query.body)
}
