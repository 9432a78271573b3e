//! PostgreSQL's text form of a value, with the quoting of arrays and records.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};

use super::{Column, Value};
use crate::forms::{datetime, number};

impl Column<'_> {
    /// Writes the row's value as text. A NULL writes nothing: the caller has its own sign for it.
    pub fn put_text(&self, row: usize, out: &mut BytesMut) {
        // Writing into a BytesMut grows it, so `write!` cannot fail here or below.
        match self.value(row) {
            Value::Null => {}
            Value::Bool(value) => out.put_u8(if value { b't' } else { b'f' }),
            Value::Int(value) => put_int(value, out),
            Value::Float32(value) => number::put_float32(value, out),
            Value::Float64(value) => number::put_float64(value, out),
            Value::Decimal(digits, scale) => number::put_decimal(&digits, scale, out),
            Value::Text(value) => out.put_slice(value.as_bytes()),
            Value::Bytes(value) => put_hex(value, out),
            Value::Uuid(value) => {
                let _ = write!(out, "{value}");
            }
            Value::Date(days) => datetime::put_date(days, out),
            Value::Time(micros) => datetime::put_time(micros, out),
            Value::Timestamp(value) => value.put_text(out),
            Value::Interval(value) => value.put_text(out),
            Value::Array(elements, start, end) if self.is_vector() => put_vector(elements, start, end, out),
            Value::Array(elements, start, end) => put_array(elements, start, end, out),
            Value::Record(columns, row) => put_record(columns, row, out),
            Value::Other(value) => out.put_slice(value.as_bytes()),
        }
    }
}

fn put_int(value: i128, out: &mut BytesMut) {
    // Formatting an i64 is several times faster than an i128, and only UInt64 can need more.
    let _ = match i64::try_from(value) {
        Ok(value) => write!(out, "{value}"),
        Err(_) => write!(out, "{value}"),
    };
}

fn put_hex(bytes: &[u8], out: &mut BytesMut) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + 2 * bytes.len());
    out.put_slice(b"\\x");
    for byte in bytes {
        out.put_u8(DIGITS[usize::from(byte >> 4)]);
        out.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

/// The elements with blanks between them, as int2vector and oidvector are written.
fn put_vector(elements: &Column<'_>, start: usize, end: usize, out: &mut BytesMut) {
    for row in start..end {
        if row > start {
            out.put_u8(b' ');
        }
        elements.put_text(row, out);
    }
}

fn put_array(elements: &Column<'_>, start: usize, end: usize, out: &mut BytesMut) {
    let mut scratch = BytesMut::new();
    out.put_u8(b'{');
    for row in start..end {
        if row > start {
            out.put_u8(b',');
        }
        if elements.is_null(row) {
            out.put_slice(b"NULL");
            continue;
        }
        scratch.clear();
        elements.put_text(row, &mut scratch);
        // The braces of an inner array are not quoted; those inside a text are.
        if !matches!(elements.value(row), Value::Array(..)) && element_needs_quotes(&scratch) {
            put_quoted(&scratch, b"\\\"", b"\\\\", out);
        } else {
            out.put_slice(&scratch);
        }
    }
    out.put_u8(b'}');
}

fn put_record(columns: &[(String, Column<'_>)], row: usize, out: &mut BytesMut) {
    let mut scratch = BytesMut::new();
    out.put_u8(b'(');
    for (index, (_, column)) in columns.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        if column.is_null(row) {
            continue;
        }
        scratch.clear();
        column.put_text(row, &mut scratch);
        if field_needs_quotes(&scratch) {
            put_quoted(&scratch, b"\"\"", b"\\\\", out);
        } else {
            out.put_slice(&scratch);
        }
    }
    out.put_u8(b')');
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn element_needs_quotes(text: &[u8]) -> bool {
    let special = |byte: &u8| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || is_space(*byte);
    text.is_empty() || text.iter().any(special) || text.eq_ignore_ascii_case(b"null")
}

fn field_needs_quotes(text: &[u8]) -> bool {
    let special = |byte: &u8| matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || is_space(*byte);
    text.is_empty() || text.iter().any(special)
}

fn put_quoted(text: &[u8], quote: &[u8], backslash: &[u8], out: &mut BytesMut) {
    out.put_u8(b'"');
    for byte in text {
        match byte {
            b'"' => out.put_slice(quote),
            b'\\' => out.put_slice(backslash),
            byte => out.put_u8(*byte),
        }
    }
    out.put_u8(b'"');
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Int32Array, ListArray, StringArray,
        StructArray, TimestampNanosecondArray, UInt64Array,
    };
    use arrow::datatypes::{DataType, Field, Int32Type};

    use super::*;

    fn texts(array: ArrayRef) -> Vec<Option<String>> {
        let field = Field::new("c", array.data_type().clone(), true);
        let column = Column::new(&array, &field).unwrap();
        let text = |row| {
            let mut out = BytesMut::new();
            column.put_text(row, &mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        (0..array.len())
            .map(|row| (!column.is_null(row)).then(|| text(row)))
            .collect()
    }

    #[test]
    fn scalars_look_as_in_postgresql() {
        assert_eq!(
            texts(Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
            [Some("t".into()), Some("f".into()), None]
        );
        assert_eq!(
            texts(Arc::new(UInt64Array::from(vec![u64::MAX]))),
            [Some("18446744073709551615".into())]
        );
        assert_eq!(
            texts(Arc::new(BinaryArray::from(vec![&b"\x00\xffA"[..]]))),
            [Some("\\x00ff41".into())]
        );
        assert_eq!(
            texts(Arc::new(TimestampNanosecondArray::from(vec![
                1_357_017_300_000_001_999
            ]))),
            [Some("2013-01-01 05:15:00.000001".into())]
        );
    }

    #[test]
    fn dictionaries_show_their_values() {
        let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
        assert_eq!(
            texts(Arc::new(dictionary)),
            [Some("a".into()), None, Some("a".into())]
        );
    }

    #[test]
    fn an_array_quotes_what_would_be_misread() {
        let list =
            ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2), None]), None]);
        assert_eq!(texts(Arc::new(list)), [Some("{1,2,NULL}".into()), None]);

        let words = StringArray::from(vec!["", "a b", "null", "x\"y\\z", "plain", "{}"]);
        let list = ListArray::new(
            Arc::new(Field::new("item", DataType::Utf8, true)),
            arrow::buffer::OffsetBuffer::from_lengths([6]),
            Arc::new(words),
            None,
        );
        assert_eq!(
            texts(Arc::new(list)),
            [Some(r#"{"","a b","null","x\"y\\z",plain,"{}"}"#.into())]
        );
    }

    #[test]
    fn a_record_quotes_its_fields() {
        let fields = vec![
            (
                Arc::new(Field::new("a", DataType::Int32, true)),
                Arc::new(Int32Array::from(vec![None, Some(7)])) as _,
            ),
            (
                Arc::new(Field::new("b", DataType::Utf8, true)),
                Arc::new(StringArray::from(vec!["x,\"", "y"])) as _,
            ),
        ];
        let record = StructArray::from(fields);
        assert_eq!(
            texts(Arc::new(record)),
            [Some(r#"(,"x,""")"#.into()), Some("(7,y)".into())]
        );
    }
}
