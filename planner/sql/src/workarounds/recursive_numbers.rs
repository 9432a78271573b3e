//! Numerics in WITH RECURSIVE have one type, that of a column of `numeric`.
//!
//! DataFusion's planner gives the recursive term the types of the other one: `SELECT 1::numeric UNION ALL SELECT n * 2 ..` has one digit,
//! and the product of two numerics more digits than either. So each term becomes `SELECT * FROM "RECURSIVE TERM"((term))`, whose
//! numerics are cast.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    FunctionArg, ObjectName, Query, SetExpr, SetOperator, Statement, VisitorMut,
};
use datafusion::sql::sqlparser::parser::ParserError;
use millrace_parser::walk::Walk;

use crate::template::nothing;
use crate::workarounds::counted_sets::of_queries;
use crate::workarounds::counted_sets::relation::operands;

/// The relation that stands for its argument with numerics of one type.
const TERM: &str = "RECURSIVE TERM";
/// The type of a column of `numeric`.
const NUMERIC: DataType = DataType::Decimal128(38, 10);

/// Puts the terms of recursive queries into relations. Queries of WITH RECURSIVE that are not recursive are in parentheses by now.
///
/// # Errors
/// Those of the parser on a text of this crate's own.
pub(crate) fn as_relations(statement: &mut Statement) -> Result<()> {
    match statement.walk_mut(&mut Terms) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(DataFusionError::SQL(Box::new(error), None)),
    }
}

struct Terms;

impl VisitorMut for Terms {
    type Break = ParserError;

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        let with = query.with.iter_mut().filter(|with| with.recursive);
        for cte in with.flat_map(|with| &mut with.cte_tables) {
            let SetExpr::SetOperation {
                op: SetOperator::Union,
                left,
                right,
                ..
            } = cte.query.body.as_mut()
            else {
                continue;
            };
            for side in [left, right] {
                let term = std::mem::replace(side.as_mut(), nothing());
                match of_queries(TERM, [term]) {
                    Ok(relation) => **side = relation,
                    Err(error) => return ControlFlow::Break(error),
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether it is the name that stands for a term.
pub(crate) fn is_term(name: &ObjectName) -> bool {
    let [part] = name.0.as_slice() else {
        return false;
    };
    part.as_ident().is_some_and(|ident| ident.value == TERM)
}

/// The plan of a term.
///
/// # Errors
/// It cannot be planned.
pub(crate) fn plan(args: Vec<FunctionArg>, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let [term] = operands(args, context)?;
    let is_numeric = |field: &Field| matches!(field.data_type(), DataType::Decimal128(..));
    if !term.schema().fields().iter().any(|field| is_numeric(field)) {
        return Ok(term);
    }
    let columns: Vec<Expr> = term
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            let column = Expr::from((qualifier, field));
            if !is_numeric(field) {
                return column;
            }
            let numeric = Arc::new(Field::new(field.name(), NUMERIC, true));
            Expr::Cast(Cast::new_from_field(Box::new(column), numeric)).alias(field.name())
        })
        .collect();
    LogicalPlanBuilder::from(term).project(columns)?.build()
}
