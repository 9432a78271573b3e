//! `'now'::timestamp`, `date 'today'`, `timestamp 'yesterday 04:05'`, and `'now'` that is assigned to a column: words that need a clock.
//!
//! They are replaced in what runs at once. A definition would have another value whenever it is read again, so that the words stay
//! there, and are no inputs of these types.

use std::ops::ControlFlow;

use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::ast::{self, Expr, Value};
use millrace_parser::walk::{Walk, walk_expressions_mut};
use millrace_postgres::types::{from_sql, sql_name};

/// Replaces them by calls of the functions that say the same.
pub fn replace(node: &mut impl Walk) {
    let _ = walk_expressions_mut(node, |expr| {
        if let Some(new) = replaced(expr) {
            *expr = new;
        }
        ControlFlow::<()>::Continue(())
    });
}

/// What a quoted literal in the place of a value of a column says, if it is such a word.
pub fn in_column(expr: &Expr, column: &Field) -> Option<Expr> {
    let Expr::Value(value) = expr else { return None };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else {
        return None;
    };
    let now = said(text, column.data_type())?;
    let name = sql_name(column);
    millrace_parser::parse_expression(&format!("CAST({now} AS {name})")).ok()
}

fn replaced(expr: &Expr) -> Option<Expr> {
    let (text, data_type) = literal_cast(expr)?;
    let now = said(text, &from_sql(data_type).ok()?.data_type)?;
    millrace_parser::parse_expression(&format!("CAST({now} AS {data_type})")).ok()
}

/// The text and the type, if an expression is such a cast.
fn literal_cast(expr: &Expr) -> Option<(&str, &ast::DataType)> {
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
        Expr::TypedString(ast::TypedString { data_type, value, .. }) => (value, data_type),
        _ => return None,
    };
    match &value.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some((text, data_type)),
        _ => None,
    }
}

/// What a text says of the clock, as a value of this type.
fn said(text: &str, data_type: &DataType) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
    let day = match word {
        "now" if rest.is_empty() => {
            return match data_type {
                DataType::Date32 => Some("current_date".to_owned()),
                DataType::Time64(_) | DataType::Timestamp(..) => Some("now()".to_owned()),
                _ => None,
            };
        }
        "today" => "current_date",
        "tomorrow" => "(current_date + 1)",
        "yesterday" => "(current_date - 1)",
        _ => return None,
    };
    let is_time = !rest.is_empty()
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b":. apm".contains(&byte));
    match data_type {
        DataType::Date32 | DataType::Timestamp(..) if rest.is_empty() => Some(day.to_owned()),
        DataType::Timestamp(..) if is_time => Some(format!("({day} + time '{rest}')")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_calls() {
        for (written, expected) in [
            ("'now'::timestamp", Some("CAST(now() AS TIMESTAMP)")),
            ("date 'today'", Some("CAST(current_date AS DATE)")),
            (
                "CAST(' TOMORROW ' AS date)",
                Some("CAST((current_date + 1) AS DATE)"),
            ),
            (
                "timestamp 'yesterday 04:05'",
                Some("CAST(((current_date - 1) + TIME '04:05') AS TIMESTAMP)"),
            ),
            ("time 'now'", Some("CAST(now() AS TIME)")),
            ("'now'::text", None),
            ("time 'today'", None),
            ("date 'today x'", None),
            ("'today'", None),
        ] {
            let expr = millrace_parser::parse_expression(written).unwrap();
            let found = replaced(&expr).map(|expr| expr.to_string().to_uppercase());
            assert_eq!(found, expected.map(str::to_uppercase), "{written}");
        }
    }
}
