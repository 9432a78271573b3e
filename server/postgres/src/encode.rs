//! Arrow values as PostgreSQL prints them: text and binary for the wire, JSON for HTTP.
//!
//! A [`Column`] borrows one array of a batch, looks at its type once, and then writes single values. It knows nothing
//! of messages: `DataRow`, COPY and HTTP lines are put together by those who call it. The forms are those of
//! PostgreSQL 15 with `DateStyle = ISO`, `IntervalStyle = postgres`, `bytea_output = hex`; a timestamptz is shown in the zone of
//! its Arrow type.

pub mod binary;
pub mod json;
pub mod text;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal32Array, Decimal64Array,
    Decimal128Array, Decimal256Array, FixedSizeBinaryArray, Float16Array, Float32Array, Float64Array,
    IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Field, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalUnit, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use postgres_types::{Kind, Type};

use crate::error::{SqlError, SqlResult};
use crate::forms::datetime::{Interval, Timestamp};
use crate::forms::number;
use crate::types::zone::Zone;
use crate::types::{enumeration, is_any_numeric, padding, pg_type};

/// One array of a batch with its PostgreSQL type.
pub struct Column<'a> {
    data: Data<'a>,
    nulls: Option<NullBuffer>,
    pg_type: Type,
    /// Texts are held as those of an enum.
    is_enum: bool,
    /// A `numeric` without a declared scale: the scale that it is stored with is nothing that the user chose.
    any_scale: bool,
}

/// The values of an array, downcast once. Everything that PostgreSQL prints alike shares a variant.
enum Data<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int(Box<dyn Fn(usize) -> i128 + Send + Sync + 'a>),
    Float16(&'a Float16Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Decimal32(&'a Decimal32Array, i8),
    Decimal64(&'a Decimal64Array, i8),
    Decimal128(&'a Decimal128Array, i8),
    Decimal256(&'a Decimal256Array, i8),
    Text(&'a StringArray),
    /// char(n), with its length.
    Padded(&'a StringArray, usize),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Bytes(&'a BinaryArray),
    LargeBytes(&'a LargeBinaryArray),
    BytesView(&'a BinaryViewArray),
    FixedBytes(&'a FixedSizeBinaryArray),
    /// Days since 1970-01-01.
    Date(Box<dyn Fn(usize) -> i64 + Send + Sync + 'a>),
    /// Microseconds since midnight.
    Time(Box<dyn Fn(usize) -> i64 + Send + Sync + 'a>),
    /// Microseconds since 1970-01-01 00:00 UTC.
    /// With the zone in which it is shown, when it is a timestamptz.
    Timestamp(Box<dyn Fn(usize) -> i64 + Send + Sync + 'a>, Option<Zone>),
    Interval(Box<dyn Fn(usize) -> Interval + Send + Sync + 'a>),
    List(List<'a>),
    Record(Vec<(String, Column<'a>)>),
    Dictionary(Vec<usize>, Box<Column<'a>>),
    /// Whatever has no form in PostgreSQL: as Arrow shows it.
    Other(&'a ArrayRef),
}

/// A list array: where each row's elements begin and end, and the elements.
struct List<'a> {
    ranges: Box<dyn Fn(usize) -> (usize, usize) + Send + Sync + 'a>,
    elements: Box<Column<'a>>,
}

/// A value taken from a column, in the shape in which its forms are written.
enum Value<'v> {
    Null,
    Bool(bool),
    Int(i128),
    Float32(f32),
    Float64(f64),
    /// The digits of a decimal, with a sign when negative, and its scale.
    Decimal(String, i8),
    Text(&'v str),
    Bytes(&'v [u8]),
    Uuid(uuid::Uuid),
    Date(i64),
    Time(i64),
    Timestamp(Timestamp),
    Interval(Interval),
    Array(&'v Column<'v>, usize, usize),
    Record(&'v [(String, Column<'v>)], usize),
    Other(String),
}

/// Reads values of a primitive array through a conversion.
macro_rules! primitive {
    ($array:expr, $arrow:ty, |$value:ident| $convert:expr) => {{
        let values = $array.as_primitive::<$arrow>();
        Box::new(move |row| {
            let $value = values.value(row);
            $convert
        })
    }};
}

impl<'a> Column<'a> {
    /// Looks at the array's type once. The field tells what Arrow's type does not (uuid, jsonb, oid).
    pub fn new(array: &'a ArrayRef, field: &Field) -> SqlResult<Self> {
        let data = match array.data_type() {
            DataType::Null => Data::Null,
            DataType::Boolean => Data::Bool(array.as_boolean()),
            DataType::Int8 => Data::Int(primitive!(array, Int8Type, |value| value.into())),
            DataType::Int16 => Data::Int(primitive!(array, Int16Type, |value| value.into())),
            DataType::Int32 => Data::Int(primitive!(array, Int32Type, |value| value.into())),
            DataType::Int64 => Data::Int(primitive!(array, Int64Type, |value| value.into())),
            DataType::UInt8 => Data::Int(primitive!(array, UInt8Type, |value| value.into())),
            DataType::UInt16 => Data::Int(primitive!(array, UInt16Type, |value| value.into())),
            DataType::UInt32 => Data::Int(primitive!(array, UInt32Type, |value| value.into())),
            DataType::UInt64 => Data::Int(primitive!(array, UInt64Type, |value| value.into())),
            DataType::Float16 => Data::Float16(array.as_primitive()),
            DataType::Float32 => Data::Float32(array.as_primitive()),
            DataType::Float64 => Data::Float64(array.as_primitive()),
            DataType::Decimal32(_, scale) => Data::Decimal32(array.as_primitive(), *scale),
            DataType::Decimal64(_, scale) => Data::Decimal64(array.as_primitive(), *scale),
            DataType::Decimal128(_, scale) => Data::Decimal128(array.as_primitive(), *scale),
            DataType::Decimal256(_, scale) => Data::Decimal256(array.as_primitive(), *scale),
            DataType::Utf8 => match padding::length(field) {
                Some(length) => Data::Padded(array.as_string(), length),
                None => Data::Text(array.as_string()),
            },
            DataType::LargeUtf8 => Data::LargeText(array.as_string()),
            DataType::Utf8View => Data::TextView(array.as_string_view()),
            DataType::Binary => Data::Bytes(array.as_binary()),
            DataType::LargeBinary => Data::LargeBytes(array.as_binary()),
            DataType::BinaryView => Data::BytesView(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => Data::FixedBytes(array.as_fixed_size_binary()),
            DataType::Date32 => Data::Date(primitive!(array, Date32Type, |value| value.into())),
            DataType::Date64 => {
                Data::Date(primitive!(array, Date64Type, |value| value.div_euclid(86_400_000)))
            }
            DataType::Time32(_) | DataType::Time64(_) => time_data(array),
            DataType::Timestamp(unit, zone) => {
                let zone = zone.as_ref().map(|zone| Zone::parse(zone).unwrap_or(Zone::UTC));
                timestamp_data(array, *unit, zone)
            }
            DataType::Interval(unit) => interval_data(array, *unit),
            DataType::Duration(unit) => duration_data(array, *unit),
            DataType::List(element) => {
                let list = array.as_list::<i32>();
                let offsets = list.offsets();
                let ranges = Box::new(move |row: usize| (offsets[row] as usize, offsets[row + 1] as usize));
                list_data(ranges, list.values(), element)?
            }
            DataType::LargeList(element) => {
                let list = array.as_list::<i64>();
                let offsets = list.offsets();
                let ranges = Box::new(move |row: usize| (offsets[row] as usize, offsets[row + 1] as usize));
                list_data(ranges, list.values(), element)?
            }
            DataType::FixedSizeList(element, width) => {
                let list = array.as_fixed_size_list();
                let width = *width as usize;
                let ranges = Box::new(move |row: usize| {
                    let start = list.value_offset(row) as usize;
                    (start, start + width)
                });
                list_data(ranges, list.values(), element)?
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let columns =
                    columns.map(|(field, column)| Ok((field.name().clone(), Column::new(column, field)?)));
                Data::Record(columns.collect::<SqlResult<Vec<_>>>()?)
            }
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                if dictionary.values().is_empty() {
                    return Ok(Column {
                        data: Data::Null,
                        nulls: None,
                        pg_type: pg_type(field),
                        is_enum: false,
                        any_scale: false,
                    });
                }
                let value_field = Field::new(field.name(), dictionary.values().data_type().clone(), true)
                    .with_metadata(field.metadata().clone());
                let values = Column::new(dictionary.values(), &value_field)?;
                Data::Dictionary(dictionary.normalized_keys(), Box::new(values))
            }
            _ => {
                arrow_text(array, None).map_err(|error| {
                    SqlError::internal(format!("cannot show column \"{}\": {error}", field.name()))
                })?;
                Data::Other(array)
            }
        };
        let any_scale = is_any_numeric(field);
        Ok(Column {
            data,
            nulls: array.logical_nulls(),
            pg_type: pg_type(field),
            is_enum: enumeration::is_enum(field),
            any_scale,
        })
    }

    /// The PostgreSQL type that is announced for this column.
    pub fn pg_type(&self) -> &Type {
        &self.pg_type
    }

    /// Whether its arrays are written without braces, and begin with 0.
    fn is_vector(&self) -> bool {
        matches!(self.pg_type, Type::INT2_VECTOR | Type::OID_VECTOR)
    }

    /// Whether the row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        matches!(self.data, Data::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The row's value.
    fn value(&self, row: usize) -> Value<'_> {
        if self.is_null(row) {
            return Value::Null;
        }
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(values) => Value::Bool(values.value(row)),
            Data::Int(read) => Value::Int(read(row)),
            Data::Float16(values) => Value::Float32(values.value(row).to_f32()),
            Data::Float32(values) => Value::Float32(values.value(row)),
            Data::Float64(values) => Value::Float64(values.value(row)),
            Data::Decimal32(values, scale) => self.decimal(values.value(row).to_string(), *scale),
            Data::Decimal64(values, scale) => self.decimal(values.value(row).to_string(), *scale),
            Data::Decimal128(values, scale) => self.decimal(values.value(row).to_string(), *scale),
            Data::Decimal256(values, scale) => self.decimal(values.value(row).to_string(), *scale),
            Data::Text(values) => Value::Text(self.text(values.value(row))),
            Data::Padded(values, length) => Value::Other(padding::pad(values.value(row), *length)),
            Data::LargeText(values) => Value::Text(self.text(values.value(row))),
            Data::TextView(values) => Value::Text(self.text(values.value(row))),
            Data::Bytes(values) => self.bytes(values.value(row)),
            Data::LargeBytes(values) => self.bytes(values.value(row)),
            Data::BytesView(values) => self.bytes(values.value(row)),
            Data::FixedBytes(values) => self.bytes(values.value(row)),
            Data::Date(read) => Value::Date(read(row)),
            Data::Time(read) => Value::Time(read(row)),
            Data::Timestamp(read, zone) => {
                let micros = read(row);
                let offset = zone.map(|zone| zone.offset_at(micros));
                Value::Timestamp(Timestamp { micros, offset })
            }
            Data::Interval(read) => Value::Interval(read(row)),
            Data::List(list) => {
                let (start, end) = (list.ranges)(row);
                Value::Array(&list.elements, start, end)
            }
            Data::Record(columns) => Value::Record(columns, row),
            Data::Dictionary(keys, values) => values.value(keys[row]),
            Data::Other(array) => Value::Other(arrow_text(array, Some(row)).unwrap_or_default()),
        }
    }

    fn text<'v>(&self, held: &'v str) -> &'v str {
        match self.is_enum {
            true => enumeration::label(held),
            false => held,
        }
    }

    /// A decimal of no declared scale is shown with the digits that it needs.
    fn decimal(&self, digits: String, scale: i8) -> Value<'_> {
        let (digits, scale) = if self.any_scale {
            number::trimmed(digits, scale)
        } else {
            (digits, scale)
        };
        Value::Decimal(digits, scale)
    }

    /// Sixteen bytes are a uuid when the type says so.
    fn bytes<'v>(&self, bytes: &'v [u8]) -> Value<'v> {
        match uuid::Uuid::from_slice(bytes) {
            Ok(uuid) if self.pg_type == Type::UUID => Value::Uuid(uuid),
            _ => Value::Bytes(bytes),
        }
    }
}

/// A value as Arrow shows it; without a row, whether Arrow can show the array at all.
fn arrow_text(array: &ArrayRef, row: Option<usize>) -> Result<String, ArrowError> {
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    Ok(row
        .map(|row| formatter.value(row).to_string())
        .unwrap_or_default())
}

/// The type of an array's innermost elements: PostgreSQL has one array type for all numbers of dimensions.
fn innermost(pg_type: &Type) -> Type {
    match pg_type.kind() {
        Kind::Array(element) => innermost(element),
        _ => pg_type.clone(),
    }
}

fn list_data<'a>(
    ranges: Box<dyn Fn(usize) -> (usize, usize) + Send + Sync + 'a>,
    values: &'a ArrayRef,
    element: &Field,
) -> SqlResult<Data<'a>> {
    Ok(Data::List(List {
        ranges,
        elements: Box::new(Column::new(values, element)?),
    }))
}

fn time_data(array: &ArrayRef) -> Data<'_> {
    Data::Time(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            primitive!(array, Time32SecondType, |value| i64::from(value) * 1_000_000)
        }
        DataType::Time32(_) => primitive!(array, Time32MillisecondType, |value| i64::from(value) * 1_000),
        DataType::Time64(TimeUnit::Microsecond) => primitive!(array, Time64MicrosecondType, |value| value),
        _ => primitive!(array, Time64NanosecondType, |value| value / 1_000),
    })
}

fn timestamp_data(array: &ArrayRef, unit: TimeUnit, zone: Option<Zone>) -> Data<'_> {
    let read: Box<dyn Fn(usize) -> i64 + Send + Sync + '_> = match unit {
        TimeUnit::Second => primitive!(array, TimestampSecondType, |value| value
            .saturating_mul(1_000_000)),
        TimeUnit::Millisecond => primitive!(array, TimestampMillisecondType, |value| value
            .saturating_mul(1_000)),
        TimeUnit::Microsecond => primitive!(array, TimestampMicrosecondType, |value| value),
        TimeUnit::Nanosecond => primitive!(array, TimestampNanosecondType, |value| value.div_euclid(1_000)),
    };
    Data::Timestamp(read, zone)
}

fn interval_data(array: &ArrayRef, unit: IntervalUnit) -> Data<'_> {
    Data::Interval(match unit {
        IntervalUnit::YearMonth => {
            let values: &IntervalYearMonthArray = array.as_primitive();
            Box::new(|row| Interval {
                months: values.value(row),
                days: 0,
                micros: 0,
            })
        }
        IntervalUnit::DayTime => {
            let values: &IntervalDayTimeArray = array.as_primitive();
            Box::new(|row| {
                let value = values.value(row);
                Interval {
                    months: 0,
                    days: value.days,
                    micros: i64::from(value.milliseconds) * 1_000,
                }
            })
        }
        IntervalUnit::MonthDayNano => {
            let values: &IntervalMonthDayNanoArray = array.as_primitive();
            Box::new(|row| {
                let value = values.value(row);
                Interval {
                    months: value.months,
                    days: value.days,
                    micros: value.nanoseconds / 1_000,
                }
            })
        }
    })
}

/// A duration is an interval of days and hours, as the difference of two timestamps is in PostgreSQL.
fn duration_data(array: &ArrayRef, unit: TimeUnit) -> Data<'_> {
    let read: Box<dyn Fn(usize) -> i64 + Send + Sync + '_> = match unit {
        TimeUnit::Second => primitive!(array, DurationSecondType, |value| value.saturating_mul(1_000_000)),
        TimeUnit::Millisecond => primitive!(array, DurationMillisecondType, |value| value
            .saturating_mul(1_000)),
        TimeUnit::Microsecond => primitive!(array, DurationMicrosecondType, |value| value),
        TimeUnit::Nanosecond => primitive!(array, DurationNanosecondType, |value| value / 1_000),
    };
    Data::Interval(Box::new(move |row| Interval::from_micros(read(row))))
}
