//! PostgreSQL's binary form of a value. It depends on the announced type: a client reads exactly that many bytes.

use bytes::{BufMut, BytesMut};
use postgres_types::{Kind, Type};

use super::{Column, Value, innermost};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::forms::{datetime, number};

/// The version byte before a binary jsonb.
const JSONB_VERSION: u8 = 1;

impl Column<'_> {
    /// Writes the row's value in binary. A NULL writes nothing: the caller has its own sign for it.
    pub fn put_binary(&self, row: usize, out: &mut BytesMut) -> SqlResult<()> {
        match self.value(row) {
            Value::Null => {}
            Value::Bool(value) => out.put_u8(value.into()),
            Value::Int(value) => put_int(value, &self.pg_type, out)?,
            Value::Float32(value) if self.pg_type == Type::FLOAT8 => out.put_f64(value.into()),
            Value::Float32(value) => out.put_f32(value),
            Value::Float64(value) => out.put_f64(value),
            Value::Decimal(digits, scale) => number::put_numeric_binary(&digits, scale, out),
            Value::Text(value) => put_str(value, &self.pg_type, out)?,
            Value::Bytes(value) => out.put_slice(value),
            Value::Uuid(value) => out.put_slice(value.as_bytes()),
            Value::Date(days) => datetime::put_date_binary(days, out),
            Value::Time(micros) => out.put_i64(micros),
            Value::Timestamp(value) => value.put_binary(out),
            Value::Interval(value) => value.put_binary(out),
            Value::Array(elements, start, end) => put_array(elements, start, end, &self.pg_type, out)?,
            Value::Record(columns, row) => {
                out.put_i32(columns.len() as i32);
                for (_, column) in columns {
                    out.put_u32(column.pg_type.oid());
                    column.put_binary_sized(row, out)?;
                }
            }
            Value::Other(value) => out.put_slice(value.as_bytes()),
        }
        Ok(())
    }

    /// Writes the length and the value, or -1 for NULL.
    pub fn put_binary_sized(&self, row: usize, out: &mut BytesMut) -> SqlResult<()> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_i32(0);
        self.put_binary(row, out)?;
        patch_length(start, out)
    }

    /// Writes the length and the text, or -1 for NULL.
    pub fn put_text_sized(&self, row: usize, out: &mut BytesMut) -> SqlResult<()> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let start = out.len();
        out.put_i32(0);
        self.put_text(row, out);
        patch_length(start, out)
    }
}

/// Fills in the four bytes at `start` with the number of bytes behind them.
fn patch_length(start: usize, out: &mut BytesMut) -> SqlResult<()> {
    let length = i32::try_from(out.len() - start - 4)
        .map_err(|_| SqlError::new(SqlState::ProgramLimitExceeded, "a value is longer than 2 GB"))?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn put_int(value: i128, pg_type: &Type, out: &mut BytesMut) -> SqlResult<()> {
    let overflow = || SqlError::internal(format!("{value} does not fit the announced type {pg_type}"));
    match *pg_type {
        Type::INT2 => out.put_i16(value.try_into().map_err(|_| overflow())?),
        Type::INT8 => out.put_i64(value.try_into().map_err(|_| overflow())?),
        Type::NUMERIC => number::put_numeric_binary(&value.to_string(), 0, out),
        Type::CHAR => out.put_i8(value.try_into().map_err(|_| overflow())?),
        Type::INT4 => out.put_i32(value.try_into().map_err(|_| overflow())?),
        // oid, regclass and their like are unsigned, but may be stored as Int32: the bits are the same.
        _ => match i32::try_from(value) {
            Ok(value) => out.put_i32(value),
            Err(_) => out.put_u32(value.try_into().map_err(|_| overflow())?),
        },
    }
    Ok(())
}

fn put_str(value: &str, pg_type: &Type, out: &mut BytesMut) -> SqlResult<()> {
    match *pg_type {
        Type::UUID => {
            let uuid = uuid::Uuid::parse_str(value)
                .map_err(|_| SqlError::internal(format!("a stored uuid is malformed: \"{value}\"")))?;
            out.put_slice(uuid.as_bytes());
        }
        Type::JSONB => {
            out.put_u8(JSONB_VERSION);
            out.put_slice(value.as_bytes());
        }
        // The internal one-byte type "char".
        Type::CHAR => out.put_u8(value.bytes().next().unwrap_or(0)),
        _ => out.put_slice(value.as_bytes()),
    }
    Ok(())
}

/// Dimensions, whether there are NULLs, the element's type, each dimension's length and lower bound, the elements.
fn put_array(
    elements: &Column<'_>,
    start: usize,
    end: usize,
    pg_type: &Type,
    out: &mut BytesMut,
) -> SqlResult<()> {
    let element_type = match pg_type.kind() {
        Kind::Array(element) => innermost(element),
        _ => innermost(&elements.pg_type),
    };
    let mut lengths = Vec::new();
    measure(elements, start, end, 0, &mut lengths)?;
    let empty = lengths.contains(&0);
    out.put_i32(if empty { 0 } else { lengths.len() as i32 });
    let has_nulls_at = out.len();
    out.put_i32(0);
    out.put_u32(element_type.oid());
    if empty {
        return Ok(());
    }
    let first = match *pg_type {
        Type::INT2_VECTOR | Type::OID_VECTOR => 0,
        _ => 1,
    };
    for length in &lengths {
        out.put_i32(*length as i32);
        out.put_i32(first);
    }
    let has_nulls = put_elements(elements, start, end, out)?;
    out[has_nulls_at..has_nulls_at + 4].copy_from_slice(&i32::from(has_nulls).to_be_bytes());
    Ok(())
}

/// Finds the length of every dimension; all inner arrays of one dimension must have the same.
fn measure(
    elements: &Column<'_>,
    start: usize,
    end: usize,
    depth: usize,
    lengths: &mut Vec<usize>,
) -> SqlResult<()> {
    match lengths.get(depth) {
        None => lengths.push(end - start),
        Some(length) if *length == end - start => {}
        Some(_) => {
            return Err(SqlError::new(
                SqlState::DataException,
                "an array whose inner arrays differ in length cannot be sent in binary format",
            )
            .with_hint("Request the column in text format, or cast it to text."));
        }
    }
    for row in start..end {
        if let Value::Array(inner, start, end) = elements.value(row) {
            measure(inner, start, end, depth + 1, lengths)?;
        }
    }
    Ok(())
}

fn put_elements(elements: &Column<'_>, start: usize, end: usize, out: &mut BytesMut) -> SqlResult<bool> {
    let mut has_nulls = false;
    for row in start..end {
        if let Value::Array(inner, start, end) = elements.value(row) {
            has_nulls |= put_elements(inner, start, end, out)?;
        } else {
            has_nulls |= elements.is_null(row);
            elements.put_binary_sized(row, out)?;
        }
    }
    Ok(has_nulls)
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Date32Array, Int64Array, ListArray, StringArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Field, Int32Type};
    use postgres_types::FromSql;

    use super::*;

    fn binary(array: ArrayRef) -> Vec<u8> {
        let field = Field::new("c", array.data_type().clone(), true);
        let column = Column::new(&array, &field).unwrap();
        let mut out = BytesMut::new();
        column.put_binary(0, &mut out).unwrap();
        out.to_vec()
    }

    #[test]
    fn a_driver_reads_what_is_written() -> Result<(), Box<dyn Error + Sync + Send>> {
        assert_eq!(
            i64::from_sql(&Type::INT8, &binary(Arc::new(Int64Array::from(vec![-7]))))?,
            -7
        );
        assert_eq!(
            <&str>::from_sql(&Type::TEXT, &binary(Arc::new(StringArray::from(vec!["ä"]))))?,
            "ä"
        );
        assert_eq!(
            binary(Arc::new(Date32Array::from(vec![10_957]))),
            0i32.to_be_bytes()
        );
        let stamp = binary(Arc::new(TimestampMicrosecondArray::from(vec![
            946_684_800_000_001,
        ])));
        assert_eq!(stamp, 1i64.to_be_bytes());
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None, Some(3)])]);
        let read = Vec::<Option<i32>>::from_sql(&Type::INT4_ARRAY, &binary(Arc::new(list)))?;
        assert_eq!(read, [Some(1), None, Some(3)]);
        let empty = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![])]);
        assert!(Vec::<i32>::from_sql(&Type::INT4_ARRAY, &binary(Arc::new(empty)))?.is_empty());
        Ok(())
    }
}
