//! Between columns and JavaScript's values.
//!
//! | SQL | JavaScript |
//! |---|---|
//! | boolean | boolean |
//! | smallint, integer, real, double precision | number |
//! | bigint | BigInt |
//! | text, varchar, char, enums | string |
//! | json, jsonb | what JSON has; whole numbers beyond 2^53 are BigInts |
//! | bytea | Uint8Array |
//! | date, timestamp, timestamptz | Date: milliseconds, smaller parts are cut off |
//! | arrays, rows | Array, object by the columns' names |
//! | all others (numeric, time, interval, uuid) | string: their text |
//!
//! NULL is `null`; `undefined` is NULL on the way back. What comes back is taken where nothing is lost: a number with a fraction is no
//! integer, and what is too large is refused.

mod given;
mod made;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use millrace_postgres::types::{ANNOTATION, element};

pub use given::Given;
pub use made::{Budget, Made, column, read};

/// What a column is in JavaScript.
#[derive(Debug, Clone)]
pub enum Kind {
    Boolean,
    /// With the least and the greatest.
    Integer(i64, i64),
    Big,
    Float,
    Text,
    Json,
    Bytes,
    Date,
    /// Microseconds.
    Timestamp,
    List(Box<Kind>, FieldRef),
    Record(Vec<(Kind, FieldRef)>),
    /// By its text.
    Other,
}

impl Kind {
    /// What a column of this type is.
    pub fn of(field: &Field) -> Kind {
        let annotation = field.metadata().get(ANNOTATION).map(String::as_str);
        match field.data_type() {
            DataType::Boolean => Kind::Boolean,
            DataType::Int16 => Kind::Integer(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => Kind::Integer(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => Kind::Big,
            DataType::Float32 | DataType::Float64 => Kind::Float,
            DataType::Utf8 if matches!(annotation, Some("json" | "jsonb")) => Kind::Json,
            DataType::Utf8 if annotation != Some("uuid") => Kind::Text,
            DataType::Binary => Kind::Bytes,
            DataType::Date32 => Kind::Date,
            DataType::Timestamp(TimeUnit::Microsecond, _) => Kind::Timestamp,
            DataType::List(item) => {
                let item = element(field).unwrap_or_else(|| item.clone());
                Kind::List(Box::new(Kind::of(&item)), item)
            }
            DataType::Struct(fields) => Kind::Record(
                fields
                    .iter()
                    .map(|field| (Kind::of(field), field.clone()))
                    .collect(),
            ),
            _ => Kind::Other,
        }
    }
}
