//! Subqueries in the rows of VALUES, and VALUES as a subquery.
//!
//! DataFusion evaluates the rows of VALUES while it plans, and a scalar subquery fails then: "evaluated before the subquery was
//! executed". A row with a subquery becomes a SELECT without FROM, and rows without one stay together. (No issue was found.)
//!
//! `x IN (VALUES (1), (2))` fails with "single expression required": the plan of a subquery must have one expression, and this one has
//! that of each row; as a view's `SELECT (VALUES (1))` does. It gets a projection of its column. (No issue was found.)

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, Projection, Union, Values};

/// The plan without such rows and subqueries.
///
/// # Errors
/// The schemas do not fit, which would be a fault here.
pub(crate) fn as_selects(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Values(values) if values.values.iter().any(|row| has_subquery(row)) => {
            selects(values).map(Transformed::yes)
        }
        other => other.map_expressions(|expr| expr.transform_up(projected)),
    })?;
    Ok(changed.data)
}

/// An expression whose subquery, if it is VALUES, has a projection above it.
fn projected(mut expr: Expr) -> Result<Transformed<Expr>> {
    let subquery = match &mut expr {
        Expr::InSubquery(within) => &mut within.subquery,
        Expr::SetComparison(compared) => &mut compared.subquery,
        Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    let mut root = subquery.subquery.as_ref();
    while let LogicalPlan::Sort(_) | LogicalPlan::Limit(_) = root
        && let [input] = root.inputs()[..]
    {
        root = input;
    }
    if !matches!(root, LogicalPlan::Values(_)) {
        return Ok(Transformed::no(expr));
    }
    let columns = subquery.subquery.schema().iter().map(Expr::from).collect();
    let projection = Projection::try_new(columns, Arc::clone(&subquery.subquery))?;
    subquery.subquery = Arc::new(LogicalPlan::Projection(projection));
    Ok(Transformed::yes(expr))
}

fn has_subquery(row: &[Expr]) -> bool {
    let is_subquery = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        )
    };
    (row.iter()).any(|cell| cell.exists(|expr| Ok(is_subquery(expr))).unwrap_or(false))
}

fn selects(values: Values) -> Result<LogicalPlan> {
    let schema = values.schema;
    let mut parts: Vec<LogicalPlan> = vec![];
    let mut plain: Vec<Vec<Expr>> = vec![];
    for row in values.values {
        if has_subquery(&row) {
            parts.extend(together(&mut plain, &schema));
            parts.push(select(row, &schema)?);
        } else {
            plain.push(row);
        }
    }
    parts.extend(together(&mut plain, &schema));
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let inputs = parts.into_iter().map(Arc::new).collect();
    Ok(LogicalPlan::Union(Union { inputs, schema }))
}

/// The rows so far, which are none then.
fn together(rows: &mut Vec<Vec<Expr>>, schema: &DFSchemaRef) -> Option<LogicalPlan> {
    let values = std::mem::take(rows);
    let schema = Arc::clone(schema);
    (!values.is_empty()).then_some(LogicalPlan::Values(Values { schema, values }))
}

/// One row.
fn select(row: Vec<Expr>, schema: &DFSchemaRef) -> Result<LogicalPlan> {
    let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: true,
        schema: Arc::new(DFSchema::empty()),
    });
    let cells = row.into_iter().zip(schema.iter());
    let cells = cells.map(|(cell, (relation, field))| cell.alias_qualified(relation.cloned(), field.name()));
    let projection = Projection::try_new(cells.collect(), Arc::new(nothing))?;
    Ok(LogicalPlan::Projection(projection))
}
