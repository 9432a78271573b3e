//! Results: JavaScript's values, as the column that was declared.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{parse, type_name};
use rquickjs::{Ctx, Function, Object, Value};

use super::Kind;
use crate::fault::{Fault, Outcome};

const DAY_MS: f64 = 86_400_000.0;
/// 2^63.
const BIG_MAX: f64 = (1_u64 << 63) as f64;
/// Elements of one array that are taken.
const ELEMENTS_MAX: f64 = 1_000_000.0;

/// A value of a result.
#[derive(Debug, Clone)]
pub enum Made {
    Null,
    Boolean(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Made>),
}

/// How much results may take together, in bytes.
pub struct Budget {
    pub left: usize,
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Outcome<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Fault::Sql(SqlError::new(
                SqlState::ProgramLimitExceeded,
                "the results for a batch of rows are too large",
            ))),
        }
    }
}

fn mismatch(field: &Field, what: &str) -> Fault {
    let message = format!("{what} is not of type {}", type_name(field));
    Fault::Sql(SqlError::new(SqlState::InvalidTextRepresentation, message))
}

fn out_of_range(field: &Field) -> Fault {
    let message = format!("{} out of range", type_name(field));
    Fault::Sql(SqlError::new(SqlState::NumericValueOutOfRange, message))
}

/// What a value is called in an error.
fn described(value: &Value<'_>) -> &'static str {
    match () {
        () if value.is_promise() => "a promise",
        () if value.is_function() => "a function",
        () if value.is_array() => "an array",
        () if value.is_symbol() => "a symbol",
        () if value.is_bool() => "a boolean",
        () if value.is_number() => "a number",
        () if value.is_big_int() => "a BigInt",
        () if value.is_string() => "a string",
        () => "an object",
    }
}

/// A string of JavaScript, whose halves of characters are not alone.
pub fn string(value: &Value<'_>) -> Outcome<String> {
    let Some(text) = value.as_string() else {
        return Err(Fault::Js(rquickjs::Error::Unknown));
    };
    match text.to_string() {
        Ok(text) if text.contains('\0') => {
            let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
            Err(Fault::Sql(SqlError::new(
                SqlState::CharacterNotInRepertoire,
                message,
            )))
        }
        Ok(text) => Ok(text),
        Err(rquickjs::Error::Utf8(_)) => {
            let message = "the string has half of a surrogate pair, which no text of UTF-8 can hold";
            Err(Fault::Sql(SqlError::new(
                SqlState::CharacterNotInRepertoire,
                message,
            )))
        }
        Err(error) => Err(Fault::Js(error)),
    }
}

/// The digits of a BigInt.
pub fn digits(value: &Value<'_>) -> Outcome<String> {
    let ctx = value.ctx();
    let to_string: Function = ctx.globals().get("String")?;
    string(&to_string.call::<_, Value>((value.clone(),))?)
}

/// The milliseconds of a Date.
pub fn time<'js>(helpers: &Object<'js>, value: &Value<'js>) -> Outcome<Option<f64>> {
    if !value.is_object() {
        return Ok(None);
    }
    let made: Value = helpers.get::<_, Function>("time")?.call((value.clone(),))?;
    Ok(made.as_number())
}

/// The bytes of a Uint8Array.
pub fn bytes<'js>(helpers: &Object<'js>, value: &Value<'js>) -> Outcome<Option<Vec<u8>>> {
    if !value.is_object() {
        return Ok(None);
    }
    let made: Value = helpers.get::<_, Function>("bytes")?.call((value.clone(),))?;
    let Some(text) = made.as_string() else {
        return Ok(None);
    };
    // Each byte is a character below 256.
    Ok(Some(text.to_string()?.chars().map(|byte| byte as u8).collect()))
}

/// How many elements an array has.
pub fn length(value: &Value<'_>) -> Outcome<usize> {
    let length = match value.as_object() {
        Some(object) => object.get::<_, f64>("length")?,
        None => 0.0,
    };
    if length > ELEMENTS_MAX {
        let message = format!("the array has more than {ELEMENTS_MAX} elements");
        return Err(Fault::Sql(SqlError::new(SqlState::ProgramLimitExceeded, message)));
    }
    Ok(length as usize)
}

/// A value as one of the type that was declared.
///
/// # Errors
/// It is none, or looking at it fails.
pub fn read<'js>(
    ctx: &Ctx<'js>,
    helpers: &Object<'js>,
    value: &Value<'js>,
    kind: &Kind,
    field: &Field,
    budget: &mut Budget,
) -> Outcome<Made> {
    budget.take(size_of::<Made>())?;
    if value.is_null() || value.is_undefined() {
        return Ok(Made::Null);
    }
    let text = |budget: &mut Budget, text: String| {
        budget.take(text.len())?;
        Ok(Made::Text(text))
    };
    match kind {
        Kind::Boolean => match value.as_bool() {
            Some(value) => Ok(Made::Boolean(value)),
            None => Err(mismatch(field, described(value))),
        },
        Kind::Integer(..) | Kind::Big => {
            let (least, greatest) = match kind {
                Kind::Integer(least, greatest) => (*least, *greatest),
                _ => (i64::MIN, i64::MAX),
            };
            let whole = if let Some(number) = value.as_number() {
                if number.fract() != 0.0 {
                    return Err(mismatch(field, &format!("the number {number}")));
                }
                // What a double holds of a bigint: beyond 2^63 nothing.
                if !(-BIG_MAX..BIG_MAX).contains(&number) {
                    return Err(out_of_range(field));
                }
                number as i64
            } else if value.is_big_int() {
                digits(value)?.parse().map_err(|_| out_of_range(field))?
            } else {
                return Err(mismatch(field, described(value)));
            };
            match (least..=greatest).contains(&whole) {
                true => Ok(Made::Integer(whole)),
                false => Err(out_of_range(field)),
            }
        }
        Kind::Float => match value.as_number() {
            Some(number) => {
                let fits = *field.data_type() != DataType::Float32
                    || !number.is_finite()
                    || (number as f32).is_finite();
                if fits {
                    Ok(Made::Float(number))
                } else {
                    Err(out_of_range(field))
                }
            }
            None => Err(mismatch(field, described(value))),
        },
        Kind::Json => {
            let made: Value = helpers.get::<_, Function>("json")?.call((value.clone(),))?;
            match made.is_string() {
                true => text(budget, string(&made)?),
                false => Err(mismatch(field, described(value))),
            }
        }
        Kind::Bytes => match bytes(helpers, value)? {
            Some(bytes) => {
                budget.take(bytes.len())?;
                Ok(Made::Bytes(bytes))
            }
            None => Err(mismatch(field, described(value))),
        },
        Kind::Date | Kind::Timestamp => match time(helpers, value)? {
            Some(ms) if ms.is_nan() => Err(mismatch(field, "an invalid Date")),
            Some(ms) if matches!(kind, Kind::Date) => Ok(Made::Integer((ms / DAY_MS).floor() as i64)),
            Some(ms) => Ok(Made::Integer(ms as i64 * 1_000)),
            None if value.is_string() => text(budget, string(value)?),
            None => Err(mismatch(field, described(value))),
        },
        Kind::List(kind, item) => {
            let Some(array) = value.as_array() else {
                return Err(mismatch(field, described(value)));
            };
            let made = (0..length(value)?).map(|place| {
                let element: Value = array.get(place)?;
                read(ctx, helpers, &element, kind, item, budget)
            });
            Ok(Made::List(made.collect::<Outcome<_>>()?))
        }
        Kind::Record(columns) => {
            let Some(object) = value
                .as_object()
                .filter(|_| !value.is_array() && !value.is_function())
            else {
                return Err(Fault::Sql(SqlError::new(
                    SqlState::DatatypeMismatch,
                    format!(
                        "a row must be an object with the columns' names, not {}",
                        described(value)
                    ),
                )));
            };
            let made = columns.iter().map(|(kind, field)| {
                let value: Value = object.get(field.name().as_str())?;
                read(ctx, helpers, &value, kind, field, budget)
            });
            Ok(Made::List(made.collect::<Outcome<_>>()?))
        }
        Kind::Text | Kind::Other if value.is_string() => text(budget, string(value)?),
        Kind::Text | Kind::Other if value.is_big_int() => text(budget, digits(value)?),
        Kind::Text | Kind::Other if value.is_number() || value.is_bool() => {
            let to_string: Function = ctx.globals().get("String")?;
            text(budget, string(&to_string.call::<_, Value>((value.clone(),))?)?)
        }
        Kind::Text | Kind::Other => Err(mismatch(field, described(value))),
    }
}

/// A column of results.
///
/// # Errors
/// A text is none of the type.
pub fn column(field: &Field, kind: &Kind, values: Vec<Made>) -> SqlResult<ArrayRef> {
    let integers = |values: &[Made]| -> Vec<Option<i64>> {
        let whole = values.iter().map(|value| match value {
            Made::Integer(value) => Some(*value),
            _ => None,
        });
        whole.collect()
    };
    let narrow = |value: Option<i64>| value.and_then(|value| i32::try_from(value).ok());
    let floats = |values: &[Made]| -> Vec<Option<f64>> {
        let all = values.iter().map(|value| match value {
            Made::Float(value) => Some(*value),
            _ => None,
        });
        all.collect()
    };
    Ok(match (kind, field.data_type()) {
        (Kind::Boolean, _) => {
            let all = values.iter().map(|value| match value {
                Made::Boolean(value) => Some(*value),
                _ => None,
            });
            Arc::new(all.collect::<BooleanArray>())
        }
        (Kind::Integer(..), DataType::Int16) => {
            let narrow = |value: Option<i64>| value.and_then(|value| i16::try_from(value).ok());
            Arc::new(integers(&values).into_iter().map(narrow).collect::<Int16Array>())
        }
        (Kind::Integer(..), _) => Arc::new(integers(&values).into_iter().map(narrow).collect::<Int32Array>()),
        (Kind::Big, _) => Arc::new(Int64Array::from(integers(&values))),
        (Kind::Float, DataType::Float32) => {
            let narrow = |value: Option<f64>| value.map(|value| value as f32);
            Arc::new(floats(&values).into_iter().map(narrow).collect::<Float32Array>())
        }
        (Kind::Float, _) => Arc::new(Float64Array::from(floats(&values))),
        (Kind::Bytes, _) => {
            let all = values.iter().map(|value| match value {
                Made::Bytes(value) => Some(value.as_slice()),
                _ => None,
            });
            Arc::new(all.collect::<BinaryArray>())
        }
        // A time may be written as well.
        (Kind::Date, _) if !has_texts(&values) => {
            Arc::new(integers(&values).into_iter().map(narrow).collect::<Date32Array>())
        }
        (Kind::Timestamp, DataType::Timestamp(_, zone)) if !has_texts(&values) => {
            Arc::new(TimestampMicrosecondArray::from(integers(&values)).with_timezone_opt(zone.clone()))
        }
        (Kind::Date | Kind::Timestamp, _) => {
            let each = values.into_iter().map(|value| match value {
                Made::Text(text) => parse::value(field, Some(&text)),
                value => column(field, kind, vec![value]),
            });
            let each = each.collect::<SqlResult<Vec<ArrayRef>>>()?;
            let each: Vec<&dyn arrow::array::Array> = each.iter().map(AsRef::as_ref).collect();
            arrow::compute::concat(&each).map_err(|error| SqlError::internal(error.to_string()))?
        }
        (Kind::List(kind, item), DataType::List(stored)) => {
            let valid: NullBuffer = values
                .iter()
                .map(|value| matches!(value, Made::List(_)))
                .collect();
            let lengths = values.iter().map(|value| match value {
                Made::List(items) => items.len(),
                _ => 0,
            });
            let offsets = OffsetBuffer::from_lengths(lengths);
            let items = values.into_iter().flat_map(|value| match value {
                Made::List(items) => items,
                _ => vec![],
            });
            let items = column(item, kind, items.collect())?;
            let made = ListArray::try_new(stored.clone(), offsets, items, Some(valid));
            Arc::new(made.map_err(|error| SqlError::internal(error.to_string()))?)
        }
        (Kind::Record(columns), _) => {
            let valid: NullBuffer = values
                .iter()
                .map(|value| matches!(value, Made::List(_)))
                .collect();
            let mut parts: Vec<Vec<Made>> =
                columns.iter().map(|_| Vec::with_capacity(values.len())).collect();
            for value in values {
                match value {
                    Made::List(items) => {
                        parts
                            .iter_mut()
                            .zip(items)
                            .for_each(|(part, item)| part.push(item));
                    }
                    _ => parts.iter_mut().for_each(|part| part.push(Made::Null)),
                }
            }
            let arrays = columns
                .iter()
                .zip(parts)
                .map(|((kind, field), part)| column(field, kind, part));
            let arrays = arrays.collect::<SqlResult<Vec<ArrayRef>>>()?;
            let fields: Fields = columns.iter().map(|(_, field)| field.clone()).collect();
            let made = StructArray::try_new(fields, arrays, Some(valid));
            Arc::new(made.map_err(|error| SqlError::internal(error.to_string()))?)
        }
        _ => {
            let all = values.iter().map(|value| match value {
                Made::Text(text) => Some(text.as_str()),
                _ => None,
            });
            let texts: StringArray = all.collect();
            parse::column(field, &texts).map_err(|cell| *cell.error)?
        }
    })
}

fn has_texts(values: &[Made]) -> bool {
    values.iter().any(|value| matches!(value, Made::Text(_)))
}
