//! Functions that are told by what they do with the values of one row: texts, bytes and numbers in, one of these out. All of them
//! are NULL where an argument is.
//!
//! | functions | file |
//! |---|---|
//! | `encode`, `decode` | [`encoded`] |
//! | `unistr`, `normalize`, `is_normalized` | [`unicode`] |
//! | `parse_ident` | [`identifiers`] |
//! | `pg_size_bytes` | [`sizes`] |
//! | `atan2d`, `chr`, `quote_ident` | here |

mod encoded;
mod identifiers;
mod sizes;
mod unicode;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder,
    StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_parser::quote_identifier;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::arguments::{no_such, on_arrays};

/// What an argument or a result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Bytes,
    Float,
    Boolean,
    /// Of 32 bits.
    Int,
    /// Of 64 bits.
    Long,
    Texts,
}

/// An argument's value.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Float(f64),
    Boolean(bool),
    Long(i64),
}

/// A result.
enum Made {
    Text(String),
    Bytes(Vec<u8>),
    Float(f64),
    Boolean(bool),
    Long(i64),
    Texts(Vec<String>),
}

/// A function: how many of its last arguments may be left out, and what it does.
struct Told {
    name: &'static str,
    arguments: &'static [Kind],
    optional: usize,
    result: Kind,
    apply: fn(&[Value]) -> SqlResult<Made>,
}

const FUNCTIONS: [Told; 10] = [
    Told {
        name: "encode",
        arguments: &[Kind::Bytes, Kind::Text],
        optional: 0,
        result: Kind::Text,
        apply: |row| encoded::encode(bytes(row, 0), text(row, 1)).map(Made::Text),
    },
    Told {
        name: "decode",
        arguments: &[Kind::Text, Kind::Text],
        optional: 0,
        result: Kind::Bytes,
        apply: |row| encoded::decode(text(row, 0), text(row, 1)).map(Made::Bytes),
    },
    Told {
        name: "unistr",
        arguments: &[Kind::Text],
        optional: 0,
        result: Kind::Text,
        apply: |row| unicode::unistr(text(row, 0)).map(Made::Text),
    },
    Told {
        name: "normalize",
        arguments: &[Kind::Text, Kind::Text],
        optional: 1,
        result: Kind::Text,
        apply: |row| unicode::normalize(text(row, 0), form(row)).map(Made::Text),
    },
    Told {
        name: "is_normalized",
        arguments: &[Kind::Text, Kind::Text],
        optional: 1,
        result: Kind::Boolean,
        apply: |row| {
            Ok(Made::Boolean(
                unicode::normalize(text(row, 0), form(row))? == text(row, 0),
            ))
        },
    },
    Told {
        name: "parse_ident",
        arguments: &[Kind::Text, Kind::Boolean],
        optional: 1,
        result: Kind::Texts,
        apply: |row| {
            let is_strict = !matches!(row.get(1), Some(Value::Boolean(false)));
            identifiers::parts(text(row, 0), is_strict).map(Made::Texts)
        },
    },
    Told {
        name: "atan2d",
        arguments: &[Kind::Float, Kind::Float],
        optional: 0,
        result: Kind::Float,
        apply: |row| {
            let degrees = float(row, 0).atan2(float(row, 1)) / 1_f64.atan() * 45.0;
            Ok(Made::Float(degrees))
        },
    },
    Told {
        name: "chr",
        arguments: &[Kind::Int],
        optional: 0,
        result: Kind::Text,
        apply: |row| character(integer(row, 0)).map(|character| Made::Text(character.into())),
    },
    Told {
        name: "quote_ident",
        arguments: &[Kind::Text],
        optional: 0,
        result: Kind::Text,
        apply: |row| Ok(Made::Text(quote_identifier(text(row, 0)))),
    },
    Told {
        name: "pg_size_bytes",
        arguments: &[Kind::Text],
        optional: 0,
        result: Kind::Long,
        apply: |row| sizes::bytes(text(row, 0)).map(Made::Long),
    },
];

/// The character of a code point.
fn character(code: i64) -> SqlResult<char> {
    let refused = |message: String| Err(SqlError::new(SqlState::ProgramLimitExceeded, message));
    match u32::try_from(code) {
        Err(_) => refused("character number must be positive".to_owned()),
        Ok(0) => refused("null character not permitted".to_owned()),
        Ok(code) => match char::from_u32(code) {
            Some(character) => Ok(character),
            None if code > u32::from(char::MAX) => {
                refused(format!("requested character too large for encoding: {code}"))
            }
            None => refused(format!("requested character not valid for encoding: {code}")),
        },
    }
}

fn text<'a>(row: &[Value<'a>], at: usize) -> &'a str {
    match row.get(at) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}

fn bytes<'a>(row: &[Value<'a>], at: usize) -> &'a [u8] {
    match row.get(at) {
        Some(Value::Bytes(bytes)) => bytes,
        _ => &[],
    }
}

fn float(row: &[Value], at: usize) -> f64 {
    match row.get(at) {
        Some(Value::Float(value)) => *value,
        _ => f64::NAN,
    }
}

fn integer(row: &[Value], at: usize) -> i64 {
    match row.get(at) {
        Some(Value::Long(value)) => *value,
        _ => 0,
    }
}

/// The form of Unicode that is named, NFC if none is.
fn form<'a>(row: &[Value<'a>]) -> &'a str {
    match row.get(1) {
        Some(Value::Text(form)) => form,
        _ => "NFC",
    }
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    (0..FUNCTIONS.len())
        .map(|index| {
            Arc::new(ScalarUDF::from(ByRow {
                index,
                signature: Signature::user_defined(Volatility::Immutable),
            }))
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ByRow {
    index: usize,
    signature: Signature,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Float => DataType::Float64,
            Kind::Boolean => DataType::Boolean,
            Kind::Int => DataType::Int32,
            Kind::Long => DataType::Int64,
            Kind::Texts => DataType::new_list(DataType::Utf8, true),
        }
    }

    fn takes(self, given: &DataType) -> bool {
        given.is_null()
            || match self {
                Kind::Text => given.is_string(),
                Kind::Bytes => given.is_binary(),
                Kind::Float => given.is_numeric(),
                Kind::Boolean => given == &DataType::Boolean,
                Kind::Int | Kind::Long => given.is_integer(),
                Kind::Texts => false,
            }
    }
}

impl ByRow {
    fn told(&self) -> &'static Told {
        &FUNCTIONS[self.index]
    }
}

impl ScalarUDFImpl for ByRow {
    fn name(&self) -> &str {
        self.told().name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let told = self.told();
        let counts = told.arguments.len() - told.optional..=told.arguments.len();
        let mut pairs = told.arguments.iter().zip(given);
        if counts.contains(&given.len()) && pairs.all(|(kind, given)| kind.takes(given)) {
            let kinds = told.arguments.iter().take(given.len());
            return Ok(kinds.map(|kind| kind.data_type()).collect());
        }
        Err(no_such(told.name, given).into())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.told().result.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let told = self.told();
        on_arrays(&args, |arrays, rows| {
            let columns = (arrays.iter().zip(told.arguments))
                .map(|(array, kind)| cast(array, &kind.data_type()))
                .collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
            let value = |column: usize, row: usize| {
                let array = &columns[column];
                match told.arguments[column] {
                    Kind::Text | Kind::Texts => Value::Text(array.as_string::<i32>().value(row)),
                    Kind::Bytes => Value::Bytes(array.as_binary::<i32>().value(row)),
                    Kind::Float => Value::Float(array.as_primitive::<Float64Type>().value(row)),
                    Kind::Boolean => Value::Boolean(array.as_boolean().value(row)),
                    Kind::Int => Value::Long(array.as_primitive::<Int32Type>().value(row).into()),
                    Kind::Long => Value::Long(array.as_primitive::<Int64Type>().value(row)),
                }
            };
            let made = (0..rows).map(|row| {
                let is_there = columns.iter().all(|column| column.is_valid(row));
                is_there
                    .then(|| {
                        let row: Vec<Value> = (0..columns.len()).map(|column| value(column, row)).collect();
                        (told.apply)(&row)
                    })
                    .transpose()
            });
            collected(told.result, made)
        })
    }
}

fn collected(kind: Kind, made: impl Iterator<Item = SqlResult<Option<Made>>>) -> Result<ArrayRef> {
    let mut texts = StringBuilder::new();
    let mut bytes = BinaryBuilder::new();
    let mut floats = Float64Builder::new();
    let mut booleans = BooleanBuilder::new();
    let mut longs = Int64Builder::new();
    let mut lists = ListBuilder::new(StringBuilder::new());
    for made in made {
        match (kind, made?) {
            (_, Some(Made::Text(text))) => texts.append_value(text),
            (_, Some(Made::Bytes(value))) => bytes.append_value(value),
            (_, Some(Made::Float(value))) => floats.append_value(value),
            (_, Some(Made::Boolean(value))) => booleans.append_value(value),
            (_, Some(Made::Long(value))) => longs.append_value(value),
            (_, Some(Made::Texts(parts))) => lists.append_value(parts.into_iter().map(Some)),
            (Kind::Text, None) => texts.append_null(),
            (Kind::Bytes, None) => bytes.append_null(),
            (Kind::Float, None) => floats.append_null(),
            (Kind::Boolean, None) => booleans.append_null(),
            (Kind::Int | Kind::Long, None) => longs.append_null(),
            (Kind::Texts, None) => lists.append_null(),
        }
    }
    Ok(match kind {
        Kind::Text => Arc::new(texts.finish()),
        Kind::Bytes => Arc::new(bytes.finish()),
        Kind::Float => Arc::new(floats.finish()),
        Kind::Boolean => Arc::new(booleans.finish()),
        Kind::Int | Kind::Long => Arc::new(longs.finish()),
        Kind::Texts => Arc::new(lists.finish()),
    })
}
