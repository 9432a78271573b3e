//! `'..'::type` and `type '..'`: what is cast is written in the statement.
//!
//! PostgreSQL reads such a text when the statement is written. Here it is read when the statement runs, where that comes to the
//! same; in a view that is maintained an expression that fails is NULL, so that a definition is checked when it is made.

use std::ops::ControlFlow;

use arrow::array::StringArray;
use arrow::datatypes::DataType as ArrowType;
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, TypedString, Value};
use millrace_parser::walk::{Walk, walk_expressions};
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::{from_sql, parse};

/// The text and the type, if an expression is such a cast.
pub(super) fn of(expr: &Expr) -> Option<(&str, &DataType)> {
    let (value, data_type) = match expr {
        Expr::Cast {
            kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
            expr: inner,
            data_type,
            ..
        } => match inner.as_ref() {
            Expr::Value(value) => (value, data_type),
            _ => return None,
        },
        Expr::TypedString(TypedString { data_type, value, .. }) => (value, data_type),
        _ => return None,
    };
    match &value.value {
        Value::SingleQuotedString(text) => Some((text, data_type)),
        _ => None,
    }
}

/// Refuses a definition with a text that is no input of the number, the time or the boolean that it is cast to.
///
/// # Errors
/// Those of the type's input.
pub fn check(node: &impl Walk) -> SqlResult<()> {
    let flow = walk_expressions(node, |expr| match of(expr).map(|(text, to)| read(text, to)) {
        Some(Err(error)) => ControlFlow::Break(error),
        _ => ControlFlow::Continue(()),
    });
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn read(text: &str, to: &DataType) -> SqlResult<()> {
    // Names of objects are looked up.
    let is_plain = !to.to_string().to_lowercase().contains("reg");
    let Some(known) = from_sql(to).ok().filter(|_| is_plain) else {
        return Ok(());
    };
    let is_checked = known.data_type.is_numeric()
        || matches!(
            known.data_type,
            ArrowType::Boolean
                | ArrowType::Date32
                | ArrowType::Time64(_)
                | ArrowType::Timestamp(..)
                | ArrowType::Interval(_)
        );
    if is_checked {
        parse::column(&known.field("", true), &StringArray::from(vec![text]))
            .map_err(|failed| *failed.error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_inputs_of_their_types() {
        let checked = |written: &str| check(&millrace_parser::parse_expression(written).unwrap());
        for written in [
            "'1'::int + ' 2.5 '::numeric",
            "date '2024-02-29'",
            "'t'::regclass",
            "'x'::text",
            "'happy'::mood",
            "x::int",
            "'1 day'::interval day",
        ] {
            checked(written).unwrap_or_else(|error| panic!("{written}: {error}"));
        }
        for written in [
            "1 + 'abc'::int",
            "date 'today'",
            "f(timestamp '2024-02-30')",
            "'1.5'::int",
            "'maybe'::bool",
        ] {
            checked(written).unwrap_err();
        }
    }
}
