//! Comparisons of uuid, json, jsonb and enums with texts, which PostgreSQL refuses.
//!
//! These types are held as texts, and what some expressions make of them is known as a text only (a CASE, say). So a text
//! counts as one where it is stored as a text, or was cast to one.

use arrow::datatypes::Field;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::datasource::TableType;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use millrace_postgres::types::ANNOTATION;
use millrace_postgres::types::enumeration::is_enum;

use crate::cast;
use crate::sql::type_check::{no_operator, typed};

/// Refuses such a comparison in an expression of a node.
///
/// # Errors
/// 42883: there is no such operator.
pub fn not_compared(expr: &Expr, schema: &DFSchema, node: &LogicalPlan) -> Result<()> {
    let inputs = node.inputs();
    expr.apply(|expr| {
        let (left, operator, right, from) = match expr {
            Expr::BinaryExpr(binary) => {
                let operator = match binary.op {
                    Operator::NotEq => "<>".to_string(),
                    Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                        binary.op.to_string()
                    }
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                let right = typed(&binary.right, schema);
                let from = text(&binary.right, &inputs);
                (binary.left.as_ref(), operator, right, from)
            }
            Expr::InSubquery(InSubquery { expr, subquery, .. }) => {
                let plan = subquery.subquery.as_ref();
                let column = plan.schema().columns().into_iter().next();
                let right = plan.schema().fields().first().cloned();
                let from = column.is_some_and(|column| is_stored(plan, &column));
                (expr.as_ref(), "=".to_string(), right, from)
            }
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let (Some(of_left), Some(of_right)) = (typed(left, schema), right) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if is_named(&of_left) && is_plain(&of_right) && from
            || is_plain(&of_left) && is_named(&of_right) && text(left, &inputs)
        {
            return Err(no_operator(&of_left, &operator, &of_right).into());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map(|_| ())
}

fn is_named(field: &Field) -> bool {
    let name = field.metadata().get(ANNOTATION).map(String::as_str);
    matches!(name, Some("uuid" | "json" | "jsonb")) || is_enum(field)
}

fn is_plain(field: &Field) -> bool {
    field.data_type().is_string() && !is_named(field)
}

/// Whether an expression over these plans is known to be a text.
fn text(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    match expr {
        Expr::Alias(alias) => text(&alias.expr, inputs),
        Expr::Column(column) => inputs.iter().any(|input| is_stored(input, column)),
        Expr::ScalarFunction(function) => function.func.name() == cast::NAME,
        _ => false,
    }
}

/// Whether a column of a plan is one of a stored relation, or was cast.
fn is_stored(plan: &LogicalPlan, column: &Column) -> bool {
    let Ok(index) = plan.schema().index_of_column(column) else {
        return false;
    };
    match plan {
        LogicalPlan::TableScan(scan) => scan.source.table_type() == TableType::Base,
        LogicalPlan::Projection(projection) => {
            let inputs = [projection.input.as_ref()];
            projection.expr.get(index).is_some_and(|expr| text(expr, &inputs))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = Column::from(alias.input.schema().qualified_field(index));
            is_stored(&alias.input, &inner)
        }
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Join(_) => {
            plan.inputs().iter().any(|input| is_stored(input, column))
        }
        _ => false,
    }
}
