//! The JSON form of a value, for HTTP.
//!
//! Booleans, integers and floats are JSON's own; jsonb is embedded; arrays are arrays and records are objects.
//! Everything else is a string with PostgreSQL's text: among it decimals, which a JSON number might round, and the
//! floats that JSON does not have (`"NaN"`, `"Infinity"`).

use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};
use postgres_types::Type;

use super::{Column, Value, innermost};

impl Column<'_> {
    /// Writes the row's value as JSON, `null` for NULL.
    pub fn put_json(&self, row: usize, out: &mut BytesMut) {
        let is_json = matches!(innermost(&self.pg_type), Type::JSONB | Type::JSON);
        self.put_json_of(is_json, row, out);
    }

    /// The same; `is_json`: its texts, or those of its elements, are JSON already. An array has a type, and its elements may have none.
    fn put_json_of(&self, is_json: bool, row: usize, out: &mut BytesMut) {
        match self.value(row) {
            Value::Null => out.put_slice(b"null"),
            Value::Bool(value) => out.put_slice(if value { b"true" } else { b"false" }),
            Value::Int(_) => self.put_text(row, out),
            Value::Float32(value) if value.is_finite() => self.put_text(row, out),
            Value::Float64(value) if value.is_finite() => self.put_text(row, out),
            Value::Text(value) if is_json => put_on_one_line(value, out),
            Value::Text(value) => put_json_str(value, out),
            Value::Array(elements, start, end) => {
                out.put_u8(b'[');
                for row in start..end {
                    if row > start {
                        out.put_u8(b',');
                    }
                    elements.put_json_of(is_json, row, out);
                }
                out.put_u8(b']');
            }
            Value::Record(columns, row) => {
                out.put_u8(b'{');
                for (index, (name, column)) in columns.iter().enumerate() {
                    if index > 0 {
                        out.put_u8(b',');
                    }
                    put_json_str(name, out);
                    out.put_u8(b':');
                    column.put_json(row, out);
                }
                out.put_u8(b'}');
            }
            _ => {
                let mut text = BytesMut::new();
                self.put_text(row, &mut text);
                put_json_str(&String::from_utf8_lossy(&text), out);
            }
        }
    }
}

/// Writes a row as the members of an object, without its braces.
pub fn put_members(columns: &[Column<'_>], schema: &Schema, row: usize, out: &mut BytesMut) {
    for (index, (column, field)) in columns.iter().zip(schema.fields()).enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        put_json_str(field.name(), out);
        out.put_u8(b':');
        column.put_json(row, out);
    }
}

/// Writes a JSON document as it is, but for its line feeds: they stand between its values only, and a line may have to be one record.
fn put_on_one_line(document: &str, out: &mut BytesMut) {
    for (index, piece) in document.split(['\n', '\r']).enumerate() {
        if index > 0 {
            out.put_u8(b' ');
        }
        out.put_slice(piece.as_bytes());
    }
}

/// Writes a JSON string with its quotes.
pub fn put_json_str(value: &str, out: &mut BytesMut) {
    serde_json::to_writer(out.writer(), value).expect("a string has a JSON form, and a BytesMut grows");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn json(array: ArrayRef) -> String {
        let field = Field::new("c", array.data_type().clone(), true);
        let column = Column::new(&array, &field).unwrap();
        let mut out = BytesMut::new();
        for row in 0..array.len() {
            column.put_json(row, &mut out);
            out.put_u8(b' ');
        }
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn values_are_json() {
        assert_eq!(json(Arc::new(Int64Array::from(vec![Some(1), None]))), "1 null ");
        assert_eq!(
            json(Arc::new(Float64Array::from(vec![1e20, f64::NAN]))),
            "1e+20 \"NaN\" "
        );
        assert_eq!(json(Arc::new(StringArray::from(vec!["a\"\n"]))), "\"a\\\"\\n\" ");
        let decimal = Decimal128Array::from(vec![150])
            .with_precision_and_scale(5, 2)
            .unwrap();
        assert_eq!(json(Arc::new(decimal)), "\"1.50\" ");
    }

    #[test]
    fn documents_are_what_they_are_on_one_line() {
        let array: ArrayRef = Arc::new(StringArray::from(vec![
            Some("{\"a\":\r\n [\"b\\nc\"]}"),
            Some("null"),
            None,
        ]));
        let written = |array: &ArrayRef, field: &Field, row| {
            let mut out = BytesMut::new();
            Column::new(array, field).unwrap().put_json(row, &mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        let field = crate::types::SqlType::annotated(DataType::Utf8, "json").field("j", true);
        assert_eq!(written(&array, &field, 0), "{\"a\":   [\"b\\nc\"]}");
        // Elements of an array as well, although only the array says of what type they are.
        let element = Arc::new(Field::new("item", DataType::Utf8, true));
        let offsets = OffsetBuffer::from_lengths([3]);
        let list: ArrayRef = Arc::new(ListArray::new(Arc::clone(&element), offsets, array, None));
        let field = crate::types::SqlType::annotated(DataType::List(element), "jsonb[]").field("l", true);
        assert_eq!(written(&list, &field, 0), "[{\"a\":   [\"b\\nc\"]},null,null]");
    }
}
