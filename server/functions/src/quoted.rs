//! Quoted literals beside an operator: they have no type of their own, and take the one that the operator has there.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::Result;
use datafusion::common::metadata::FieldMetadata;
use datafusion::logical_expr::{Expr, lit};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::enumeration::is_enum;
use millrace_postgres::types::parse::number::exact_digits;
use millrace_postgres::types::{self, ANNOTATION, parse};

use crate::{arguments, cast};

/// An integer literal that fits an `integer`, as one.
pub(crate) fn narrowed(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), metadata) => match i32::try_from(value) {
            Ok(small) => Expr::Literal(ScalarValue::Int32(Some(small)), metadata),
            Err(_) => Expr::Literal(ScalarValue::Int64(Some(value)), metadata),
        },
        // A sign before a sign.
        Expr::Negative(inner) => match narrowed(*inner) {
            Expr::Literal(ScalarValue::Int32(Some(value)), metadata) if value != i32::MIN => {
                Expr::Literal(ScalarValue::Int32(Some(-value)), metadata)
            }
            inner => Expr::Negative(Box::new(inner)),
        },
        other => other,
    }
}

/// A quoted literal as a value of the type beside it, which is `integer` if that is a number that fits one.
///
/// # Errors
/// The text is no value of that type.
pub(crate) fn read_beside(text: &Expr, other: &mut Expr, field: &mut FieldRef) -> Result<Option<Expr>> {
    if written(text).is_some() {
        *other = narrowed(std::mem::take(other));
        if let Expr::Literal(value @ ScalarValue::Int32(_), _) = other {
            *field = Arc::new(field.as_ref().clone().with_data_type(value.data_type()));
        }
    }
    read_as(text, field)
}

/// The text of a quoted literal.
fn written(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), None) => Some(text),
        _ => None,
    }
}

/// The name of the type that an operator takes beside a date, a time or an interval, of what has no type of its own; none: it is none of
/// these. `is_left`: that stands on the left.
///
/// # Errors
/// There is more than one such operator.
pub(crate) fn beside_time(operator: &BinaryOperator, other: &Field, is_left: bool) -> Result<Option<String>> {
    use BinaryOperator::{Divide, Minus, Multiply, Plus};
    Ok(match (other.data_type(), operator) {
        (DataType::Date32, Plus) => {
            let name = types::plain_name(other);
            let (left, right) = match is_left {
                true => ("unknown", name.as_str()),
                false => (name.as_str(), "unknown"),
            };
            let message = format!("operator is not unique: {left} + {right}");
            return Err(SqlError::new(SqlState::AmbiguousFunction, message)
                .with_hint(
                    "Could not choose a best candidate operator. You might need to add explicit type casts.",
                )
                .into());
        }
        (DataType::Timestamp(..) | DataType::Time64(_), Plus) => Some("interval".to_owned()),
        (DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_), Minus) => {
            Some(types::sql_name(other))
        }
        (DataType::Interval(_), Plus | Minus) => Some("interval".to_owned()),
        (DataType::Interval(_) | DataType::Time64(_), Multiply) => Some("float8".to_owned()),
        (DataType::Interval(_) | DataType::Time64(_), Divide) if !is_left => Some("float8".to_owned()),
        _ => None,
    })
}

/// A quoted literal as a value of the type on the other side, where DataFusion would take the other side for a text or
/// compare texts that mean the same and are not equal.
pub(crate) fn read_as(expr: &Expr, other: &Field) -> Result<Option<Expr>> {
    let Some(text) = written(expr) else {
        return Ok(None);
    };
    let annotation = other.metadata().get(ANNOTATION).map(String::as_str);
    let by_type = is_number(other.data_type())
        || matches!(
            other.data_type(),
            DataType::Boolean | DataType::Binary | DataType::List(_)
        );
    let read = |field: &Field| parse::value(field, Some(text)).map_err(|error| error.of_literal(text));
    if is_enum(other) {
        let held = arguments::constant(&read(other)?)?;
        return Ok(Some(Expr::Literal(
            held,
            Some(FieldMetadata::from(other.metadata())),
        )));
    }
    // Arrow reads a time by way of nanoseconds, which end in the year 2262.
    if matches!(
        other.data_type(),
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Interval(_)
    ) {
        read(other)?;
        let target = lit(types::sql_name(other));
        return Ok(Some(cast::udf().call(vec![expr.clone(), target])));
    }
    if annotation != Some("uuid") && !by_type {
        return Ok(None);
    }
    let value = if matches!(other.data_type(), DataType::Decimal128(..)) {
        // The digits that are written, not those of the other side.
        match exact_digits(text) {
            Some((precision, scale)) => {
                let exact = Field::new("", DataType::Decimal128(precision, scale), true);
                read(&exact)?
            }
            None => read(other)?,
        }
    } else {
        read(other)?
    };
    Ok(Some(Expr::Literal(arguments::constant(&value)?, None)))
}

pub(crate) fn is_number(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
    )
}
