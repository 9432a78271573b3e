//! Quoted literals among expressions of which one is the value: in CASE, `coalesce`, `nullif`, `greatest` and `least`. They are of the
//! type of the others.
//!
//! Numbers and booleans are cast by the pass that gives these one type; here are the types whose inputs are PostgreSQL's own, and those
//! that texts hold, which would take any text.

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use millrace_postgres::types::{ANNOTATION, sql_name};

use crate::cast;
use crate::sql::comparisons::is_quoted;
use crate::sql::literal_inputs;

const GIVES: [&str; 5] = ["coalesce", "nvl", "nullif", "greatest", "least"];

/// The plan with these literals read.
///
/// # Errors
/// A literal is no input of the type.
pub fn read(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let read = expr.transform_up(|expr| one(expr, &schema))?;
            Ok(read.update_data(|expr| name.restore(expr)))
        })
    })
    .map(|transformed| transformed.data)
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
                | DataType::Date32
                | DataType::Time64(_)
                | DataType::Timestamp(..)
                | DataType::Interval(_)
        )
}
