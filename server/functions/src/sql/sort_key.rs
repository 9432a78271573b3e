//! ORDER BY of types whose order is not that of what holds them.
//!
//! In a bound plan, [`by_value`] sorts jsonb and interval by the keys that compare as their values do.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};

use crate::datetime::{self, Function};
use crate::jsonb;

/// The plan with its ORDER BY by the keys.
///
/// # Errors
/// The plan cannot be put together again.
pub fn by_value(plan: LogicalPlan) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::Sort(mut sort) = plan else {
            return Ok(Transformed::no(plan));
        };
        let schema = sort.input.schema().as_ref().clone();
        let mut changed = false;
        for by in &mut sort.expr {
            if let Some(key) = key(&by.expr, &schema) {
                by.expr = key;
                changed = true;
            }
        }
        let sort = LogicalPlan::Sort(sort);
        Ok(if changed {
            Transformed::yes(sort)
        } else {
            Transformed::no(sort)
        })
    })?;
    Ok(replaced.data)
}

/// What an expression is sorted by; `None`: by itself.
fn key(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (_, field) = expr.to_field(schema).ok()?;
    let function = match field.data_type() {
        DataType::Interval(_) => datetime::udf(Function::SortKey),
        _ if jsonb::is_jsonb(&field) => jsonb::udf(jsonb::SORT_KEY),
        _ => return None,
    };
    Some(function.call(vec![expr.clone()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::logical_expr::col;
    use millrace_postgres::types::SqlType;

    #[test]
    fn only_what_needs_a_key_has_one() {
        let fields = vec![
            SqlType::annotated(DataType::Utf8, "jsonb").field("j", true),
            Field::new("t", DataType::Utf8, true),
        ];
        let schema = DFSchema::try_from(arrow::datatypes::Schema::new(fields)).unwrap();
        assert_eq!(key(&col("j"), &schema).unwrap().to_string(), "jsonb_sort_key(j)");
        assert!(key(&col("t"), &schema).is_none());
    }
}
