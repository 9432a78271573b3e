//! Functions and operators that are replaced in a bound plan, where the types are known.
//!
//! | what | by |
//! |---|---|
//! | DataFusion's functions of lists | [`crate::arrays`] |
//! | enums as arguments of functions | `enum_arguments` |
//! | char(n) in comparisons, LIKE and functions that see its padding | [`crate::padded`] |
//! | values of other types in `text || value` | their text |
//! | `-value` of integers | a difference that is checked |

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, binary_expr, lit};

use millrace_postgres::error::{SqlError, SqlState};

use crate::arithmetic::negative;
use crate::in_plans::in_expressions;
use crate::sql::enum_arguments;
use crate::{arrays, cast as pg_cast, padded};

/// The plan with what PostgreSQL has in the place of what DataFusion has.
///
/// # Errors
/// The plan cannot be put together again, or has what is not supported.
pub fn as_postgresql(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|plan| {
        if let LogicalPlan::Unnest(unnest) = &plan {
            arrays::check_unnest(unnest)?;
        }
        let plan = match plan {
            LogicalPlan::Values(mut values) => {
                enum_arguments::in_values(&mut values)?;
                LogicalPlan::Values(values)
            }
            plan => plan,
        };
        in_expressions(plan, |expr, schema| {
            check_window(&expr)?;
            check_aggregate(&expr, schema)?;
            enum_arguments::replaced(expr, schema)?
                .transform_data(|expr| Ok(arrays::replaced(expr, schema)))?
                .transform_data(|expr| Ok(padded::replaced(expr, schema)))?
                .transform_data(|expr| Ok(concatenated(expr, schema)))?
                .transform_data(|expr| negated(expr, schema))
        })
    })
    .map(|transformed| transformed.data)
}

/// Refuses numbers of rows and parts that there are none of, which DataFusion answers with NULL.
fn check_window(expr: &Expr) -> Result<()> {
    let Expr::WindowFunction(window) = expr else {
        return Ok(());
    };
    let (position, code) = match window.fun.name() {
        "nth_value" => (1, SqlState::InvalidArgumentForNthValue),
        "ntile" => (0, SqlState::InvalidArgumentForNtile),
        _ => return Ok(()),
    };
    let given = match window.params.args.get(position) {
        Some(Expr::Literal(value, _)) => value.cast_to(&DataType::Int64),
        Some(Expr::Negative(inner)) if matches!(inner.as_ref(), Expr::Literal(..)) => {
            Ok(ScalarValue::from(-1_i64))
        }
        _ => return Ok(()),
    };
    match given {
        Ok(ScalarValue::Int64(Some(..1))) => Err(SqlError::new(
            code,
            format!("argument of {} must be greater than zero", window.fun.name()),
        )
        .into()),
        _ => Ok(()),
    }
}

/// Refuses `string_agg` of bytes, which DataFusion takes for texts, and the least and greatest of arrays that it cannot compare.
fn check_aggregate(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::AggregateFunction(aggregate) = expr else {
        return Ok(());
    };
    let of_bytes = |argument: &Expr| matches!(argument.get_type(schema), Ok(DataType::Binary));
    let of_nested = |argument: &Expr| matches!(argument.get_type(schema), Ok(DataType::List(item)) if matches!(item.data_type(), DataType::List(_)));
    if matches!(aggregate.func.name(), "min" | "max") && aggregate.params.args.iter().any(of_nested) {
        let message = format!(
            "{} of arrays of several dimensions is not supported",
            aggregate.func.name()
        );
        return Err(SqlError::unsupported(message).into());
    }
    if aggregate.func.name() == "string_agg" && aggregate.params.args.iter().any(of_bytes) {
        return Err(SqlError::unsupported("string_agg of bytea is not supported").into());
    }
    Ok(())
}

/// `-value` of an integer that is no literal.
fn negated(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Negative(value) if !matches!(*value, Expr::Literal(..)) => match value.get_type(schema) {
            Ok(of) if of.is_signed_integer() => Ok(Transformed::yes(negative(*value, &of)?)),
            _ => Ok(Transformed::no(Expr::Negative(value))),
        },
        other => Ok(Transformed::no(other)),
    }
}

/// `text || value`, the value as its text.
fn concatenated(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::StringConcat,
        right,
    }) = &expr
    else {
        return Transformed::no(expr);
    };
    let (Ok(types), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Transformed::no(expr);
    };
    let as_text = |side: &Expr| pg_cast::udf().call(vec![side.clone(), lit("text")]);
    let (left, right) = match (types.is_string(), right_type.is_string()) {
        (true, false) if has_text(&right_type) => (left.as_ref().clone(), as_text(right)),
        (false, true) if has_text(&types) => (as_text(left), right.as_ref().clone()),
        _ => return Transformed::no(expr),
    };
    Transformed::yes(binary_expr(left, Operator::StringConcat, right))
}

fn has_text(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Time64(_)
                | DataType::Interval(_)
                | DataType::Duration(_)
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::col;

    #[test]
    fn values_are_written_as_their_types_write_them() {
        let fields = vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("f", DataType::Float64, true),
        ];
        let schema = DFSchema::try_from(Schema::new(fields)).unwrap();
        let joined = binary_expr(col("t"), Operator::StringConcat, col("f"));
        let shown = concatenated(joined, &schema).data.to_string();
        assert_eq!(shown, "t || pg_cast(f, Utf8(\"text\"))");
        let texts = binary_expr(col("t"), Operator::StringConcat, col("t"));
        assert!(!concatenated(texts, &schema).transformed);
    }
}
