//! Quoted literals among expressions of which one is the value: in CASE, `coalesce`, `nullif`, `greatest`, `least`, `ARRAY[..]` and a column
//! of a UNION. They are of the type of the others.
//!
//! Numbers are cast by the pass that gives these one type; here are the types whose inputs are PostgreSQL's own, booleans among them, and
//! those that texts hold, which would take any text.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Union, lit};
use millrace_postgres::types::{ANNOTATION, sql_name};

use crate::cast;
use crate::sql::comparisons::is_quoted;
use crate::sql::literal_inputs;

const GIVES: [&str; 6] = ["coalesce", "nvl", "nullif", "greatest", "least", "make_array"];

/// The plan with these literals read.
///
/// # Errors
/// A literal is no input of the type.
pub fn read(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut has_new_types = false;
    plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Union(union) => {
                let read = in_branches(union)?;
                has_new_types |= read.transformed;
                read.data
            }
            other => other,
        };
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let read = expr.transform_up(|expr| one(expr, &schema))?;
            Ok(read.update_data(|expr| name.restore(expr)))
        })?;
        match has_new_types {
            true => node.map_data(LogicalPlan::recompute_schema),
            false => Ok(node),
        }
    })
    .map(|transformed| transformed.data)
}

/// A UNION whose quoted literals are of the types of the columns that they are in.
fn in_branches(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let mut changed = false;
    for index in 0..union.schema.fields().len() {
        let literal = |branch: &LogicalPlan| match branch {
            LogicalPlan::Projection(projection) => {
                let expr = projection.expr.get(index)?.clone().unalias();
                is_quoted(&expr).then_some(expr)
            }
            _ => None,
        };
        let others = union.inputs.iter().filter(|branch| literal(branch).is_none());
        let mut fields = others.map(|branch| Arc::clone(branch.schema().field(index)));
        let typed = fields.find(|field| !field.data_type().is_null());
        let Some(field) = typed.filter(|field| is_read(field)) else {
            continue;
        };
        for branch in &mut union.inputs {
            let (Some(text), LogicalPlan::Projection(projection)) = (literal(branch), branch.as_ref()) else {
                continue;
            };
            let value = cast::udf().call(vec![text, lit(sql_name(&field))]);
            literal_inputs::check(&value)?;
            let mut expressions = projection.expr.clone();
            expressions[index] = value.alias(projection.schema.field(index).name());
            let typed = Projection::try_new(expressions, Arc::clone(&projection.input))?;
            *branch = Arc::new(LogicalPlan::Projection(typed));
            changed = true;
        }
    }
    Ok(match changed {
        true => Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)),
        false => Transformed::no(LogicalPlan::Union(union)),
    })
}

fn one(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let values: Vec<&mut Expr> = match &mut expr {
        Expr::ScalarFunction(call) if GIVES.contains(&call.func.name()) => call.args.iter_mut().collect(),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            results.chain(case.else_expr.as_deref_mut()).collect()
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let changed = alike(values, schema)?;
    Ok(match changed {
        true => Transformed::yes(expr),
        false => Transformed::no(expr),
    })
}

fn alike(values: Vec<&mut Expr>, schema: &DFSchema) -> Result<bool> {
    if !values.iter().any(|value| is_quoted(value)) {
        return Ok(false);
    }
    let others = values.iter().filter(|value| !is_quoted(value));
    let mut fields = others.filter_map(|value| value.to_field(schema).ok());
    let typed = fields.find(|(_, field)| !field.data_type().is_null());
    let Some((_, field)) = typed.filter(|(_, field)| is_read(field)) else {
        return Ok(false);
    };
    for value in values {
        if is_quoted(value) {
            *value = cast::udf().call(vec![std::mem::take(value), lit(sql_name(&field))]);
            literal_inputs::check(value)?;
        }
    }
    Ok(true)
}

fn is_read(field: &Field) -> bool {
    let annotation = field.metadata().get(ANNOTATION).map(String::as_str);
    matches!(annotation, Some("uuid" | "json" | "jsonb"))
        || matches!(
            field.data_type(),
            DataType::List(_)
                | DataType::Binary
                | DataType::Boolean
                | DataType::Date32
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Interval(_)
        )
}
