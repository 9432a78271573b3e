//! The members of JSON documents as columns.
//!
//! A text is read as the input function of its column's type reads it, so that a document says what COPY, CSV and a cast say
//! with the same text. A number is what INSERT makes of it: rounded to an integer or to the digits of a numeric. In a column of
//! type json or jsonb everything but null is what it is: a text is a JSON text.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};

use super::read_type;
use crate::error::input::shortened;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::composite::put_quoted;
use crate::types::json::Node;
use crate::types::parse::number::decimal;
use crate::types::parse::{self, CellError};
use crate::types::{ANNOTATION, type_name};

fn does_not_fit(target: &Field, node: &Node<'_>) -> SqlError {
    SqlError::new(
        SqlState::InvalidTextRepresentation,
        format!(
            "a JSON {} is not a value of type {}: {}",
            match node {
                Node::Array(_) => "array",
                Node::Object(_) => "object",
                _ => "value",
            },
            type_name(target),
            shortened(&node.written())
        ),
    )
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Interval(_)
    )
}

/// Whether values are documents themselves.
pub(super) fn is_json(field: &Field) -> bool {
    let annotation = field.metadata().get(ANNOTATION);
    annotation.is_some_and(|name| matches!(name.as_str(), "json" | "jsonb"))
}

fn is_number(token: &str) -> bool {
    token.starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

/// A number's text as that of an integer, halves rounded away from zero; as it is, if it is none or a large one.
pub(super) fn rounded(token: &str) -> Cow<'_, str> {
    if !is_number(token) || !token.contains(['.', 'e', 'E']) {
        return Cow::Borrowed(token);
    }
    match decimal(token, 38, 0) {
        Ok(value) => Cow::Owned(value.to_string()),
        Err(_) => Cow::Borrowed(token),
    }
}

/// The text that goes into the input of the column's type; `None`: NULL.
fn text<'a>(target: &Field, read: &DataType, node: &'a Node<'_>) -> SqlResult<Option<Cow<'a, str>>> {
    Ok(match node {
        Node::Plain(token) if token == "null" => None,
        _ if is_json(target) => Some(Cow::Owned(node.written())),
        Node::Plain(token) if read.is_integer() => Some(rounded(token)),
        Node::Plain(token) if is_time(target.data_type()) && is_number(token) => {
            let name = type_name(target);
            return Err(SqlError::new(
                SqlState::InvalidDatetimeFormat,
                format!("a number is not a value of type {name}: {token}"),
            )
            .with_hint(
                "Send it as text, such as \"2013-01-31 10:00:00Z\", or load it into a number column \
                        and convert it with to_timestamp().",
            ));
        }
        Node::Plain(token) => Some(Cow::Borrowed(token.as_ref())),
        Node::Text(text) => Some(Cow::Borrowed(text.as_str())),
        Node::Object(members) => match target.data_type() {
            DataType::Struct(fields) => Some(Cow::Owned(record(fields, members)?)),
            _ => return Err(does_not_fit(target, node)),
        },
        Node::Array(nodes) => match target.data_type() {
            DataType::List(item) => Some(Cow::Owned(array(item, nodes)?)),
            _ => return Err(does_not_fit(target, node)),
        },
    })
}

/// An object as the text of a row. Members that the type has not are passed over, as those of a document are that no column has.
fn record(fields: &Fields, members: &[(String, Node<'_>)]) -> SqlResult<String> {
    let mut out = String::from("(");
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let member = members.iter().find(|(name, _)| name == field.name());
        if let Some((_, node)) = member
            && let Some(value) = text(field, &read_type(field), node)?
        {
            put_quoted(&value, &mut out);
        }
    }
    out.push(')');
    Ok(out)
}

/// Elements as the text of an array.
fn array(item: &Field, nodes: &[Node<'_>]) -> SqlResult<String> {
    let mut out = String::from("{");
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match text(item, &read_type(item), node)? {
            None => out.push_str("NULL"),
            Some(value) if matches!(item.data_type(), DataType::List(_)) => out.push_str(&value),
            Some(value) => put_quoted(&value, &mut out),
        }
    }
    out.push('}');
    Ok(out)
}

/// The values of a column, one for each document, as the type that it is read as.
///
/// # Errors
/// The first value that is none of the column's type.
pub(super) fn column(
    target: &Field,
    read: &DataType,
    values: &[Option<&Node<'_>>],
) -> Result<ArrayRef, CellError> {
    let wrong = |row: usize, error: SqlError| CellError {
        row,
        error: Box::new(error),
    };
    if let (DataType::List(item), DataType::List(of)) = (read, target.data_type()) {
        let mut offsets = vec![0_i32];
        let mut elements = vec![];
        let mut rows = vec![];
        let mut valid = vec![];
        for (row, value) in values.iter().enumerate() {
            match value {
                Some(Node::Array(nodes)) => {
                    elements.extend(nodes.iter().map(Some));
                    rows.resize(elements.len(), row);
                    valid.push(true);
                }
                Some(node) if !node.is_null() => return Err(wrong(row, does_not_fit(target, node))),
                _ => valid.push(false),
            }
            offsets.push(i32::try_from(elements.len()).map_err(|_| {
                wrong(
                    row,
                    SqlError::new(SqlState::ProgramLimitExceeded, "too many array elements"),
                )
            })?);
        }
        let inner = column(of, item.data_type(), &elements).map_err(|cell| CellError {
            row: rows.get(cell.row).copied().unwrap_or_default(),
            error: cell.error,
        })?;
        let list = ListArray::try_new(
            Arc::clone(item),
            OffsetBuffer::new(offsets.into()),
            inner,
            Some(NullBuffer::from(valid)),
        );
        return match list {
            Ok(list) => Ok(Arc::new(list)),
            Err(error) => Err(wrong(0, SqlError::internal(error.to_string()))),
        };
    }
    let mut texts = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        texts.push(match value {
            Some(node) => text(target, read, node).map_err(|error| wrong(row, error))?,
            None => None,
        });
    }
    let texts: StringArray = texts.into_iter().collect();
    let read = Field::new(target.name(), read.clone(), true);
    match read.data_type() {
        DataType::Decimal128(..) => parse::column(target, &texts),
        _ if is_json(target) => parse::column(target, &texts),
        _ => parse::column(&read, &texts),
    }
}
