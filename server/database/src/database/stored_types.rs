//! The types of a view's columns over versions: a series of integers was `bigint` once, and is `integer`. A view that is there keeps its
//! rows, and so the type that they have.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use millrace_catalog::ColumnDef;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;

/// The plan whose integers are as wide as those of the columns that the view has.
///
/// # Errors
/// The plan cannot be put together, which would be a fault of it.
pub(super) fn kept(plan: LogicalPlan, columns: &[ColumnDef]) -> SqlResult<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    let is_wider = |field: &Field, column: &ColumnDef| {
        *field.data_type() == DataType::Int32 && *column.field.data_type() == DataType::Int64
    };
    let mut pairs = schema.fields().iter().zip(columns);
    if schema.fields().len() != columns.len() || !pairs.any(|(field, column)| is_wider(field, column)) {
        return Ok(plan);
    }
    let items = schema.iter().zip(columns).map(|((relation, field), column)| {
        let item = Expr::Column(Column::new(relation.cloned(), field.name()));
        match is_wider(field, column) {
            true => cast(item, DataType::Int64).alias(field.name()),
            false => item,
        }
    });
    let items: Vec<Expr> = items.collect();
    df(LogicalPlanBuilder::from(plan)
        .project(items)
        .and_then(LogicalPlanBuilder::build))
}
