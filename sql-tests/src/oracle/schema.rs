//! Random base relations and values, in Arrow for the engine and in SQL for scripts.

use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use chrono::{DateTime, Days, NaiveDate};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Digits of the decimal columns, and those after the point.
const DECIMAL: (u8, i8) = (12, 2);

/// The type of a column. Integers of both widths are one to the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    Int,
    BigInt,
    Float,
    Decimal,
    Text,
    Bool,
    Date,
    Timestamp,
    IntArray,
}

impl Type {
    const ALL: [Type; 9] = [
        Type::Int,
        Type::BigInt,
        Type::Float,
        Type::Decimal,
        Type::Text,
        Type::Bool,
        Type::Date,
        Type::Timestamp,
        Type::IntArray,
    ];

    fn arrow(self) -> DataType {
        match self {
            Type::Int => DataType::Int32,
            Type::BigInt => DataType::Int64,
            Type::Float => DataType::Float64,
            Type::Decimal => DataType::Decimal128(DECIMAL.0, DECIMAL.1),
            Type::Text => DataType::Utf8,
            Type::Bool => DataType::Boolean,
            Type::Date => DataType::Date32,
            Type::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Type::IntArray => DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true))),
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Type::Int => "INT",
            Type::BigInt => "BIGINT",
            Type::Float => "DOUBLE PRECISION",
            Type::Decimal => "NUMERIC(12, 2)",
            Type::Text => "TEXT",
            Type::Bool => "BOOLEAN",
            Type::Date => "DATE",
            Type::Timestamp => "TIMESTAMP",
            Type::IntArray => "INT[]",
        }
    }
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    /// A multiple of a half, so that sums are exact in any order.
    Float(f64),
    /// In hundredths.
    Decimal(i128),
    Text(&'static str),
    Bool(bool),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01.
    Timestamp(i64),
    IntArray(Vec<Option<i32>>),
}

/// 2028-02-27: a leap day and the end of a month are near. It is later than where the clock of `millrace test` starts.
const FIRST_DAY: i32 = 21_241;
/// Microseconds of an hour.
pub const HOUR: i64 = 3_600_000_000;
/// The first time that a value can be, in microseconds since 1970-01-01 00:00 UTC.
pub const FIRST_TIME: i64 = FIRST_DAY as i64 * 24 * HOUR;

impl Value {
    fn random(random: &mut StdRng, data_type: Type) -> Value {
        match data_type {
            Type::Int | Type::BigInt => Value::Int(random.random_range(-1..6)),
            Type::Float => Value::Float(f64::from(random.random_range(-4..8)) / 2.0),
            Type::Decimal => Value::Decimal(*[-150, 0, 25, 100, 199, 250].choose(random).unwrap_or(&0)),
            Type::Text => Value::Text(["", "a", "b", "ab", "b%"].choose(random).unwrap_or(&"")),
            Type::Bool => Value::Bool(random.random_bool(0.5)),
            Type::Date => Value::Date(FIRST_DAY + random.random_range(0..5)),
            Type::Timestamp => {
                let after = random.random_range(0..5) * 11 * HOUR;
                Value::Timestamp(FIRST_TIME + after + random.random_range(0..2) * 1_500_000)
            }
            Type::IntArray => {
                let length = random.random_range(0..4);
                let element =
                    |random: &mut StdRng| random.random_bool(0.85).then(|| random.random_range(-1..4));
                Value::IntArray((0..length).map(|_| element(random)).collect())
            }
        }
    }
}

impl fmt::Display for Value {
    /// As an SQL literal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => write!(f, "NULL"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Decimal(value) => write!(f, "{:.2}", *value as f64 / 100.0),
            Value::Text(value) => write!(f, "'{value}'"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Date(days) => {
                let days = Days::new(u64::try_from(*days).unwrap_or_default());
                write!(
                    f,
                    "'{}'",
                    NaiveDate::default().checked_add_days(days).unwrap_or_default()
                )
            }
            Value::Timestamp(micros) => {
                let time = DateTime::from_timestamp_micros(*micros).unwrap_or_default();
                write!(f, "'{}'", time.format("%Y-%m-%d %H:%M:%S%.f"))
            }
            Value::IntArray(elements) => {
                let texts = elements
                    .iter()
                    .map(|e| e.map_or("NULL".to_owned(), |e| e.to_string()));
                write!(f, "'{{{}}}'", texts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A row of a base relation.
pub type Row = Vec<Value>;

/// A column of a base relation.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub data_type: Type,
    pub nullable: bool,
}

/// A stream or table.
#[derive(Debug, Clone)]
pub struct Relation {
    pub name: String,
    pub columns: Vec<Column>,
    /// `None` for a stream, empty for a table without a key.
    pub key: Option<Vec<usize>>,
}

impl Relation {
    /// A relation with a column `k` to join by and some others, which often have names and types in common with those of
    /// other relations.
    pub fn random(random: &mut StdRng, name: &str) -> Relation {
        let mut columns = vec![];
        let key = match random.random_range(0..10) {
            0..=2 => None,
            3 | 4 => Some(vec![]),
            // A composite key.
            5 => Some(vec![0, 1]),
            _ => Some(vec![0]),
        };
        let in_key = key.as_ref().map_or(0, Vec::len);
        if in_key > 0 {
            columns.push(Column {
                name: "id".to_owned(),
                data_type: *[Type::Int, Type::BigInt].choose(random).unwrap_or(&Type::Int),
                nullable: false,
            });
        }
        columns.push(Column {
            name: "k".to_owned(),
            data_type: *[Type::Int, Type::Int, Type::BigInt]
                .choose(random)
                .unwrap_or(&Type::Int),
            nullable: in_key < 2 && random.random_bool(0.8),
        });
        for (index, data_type) in Type::ALL.into_iter().enumerate() {
            // The first of a type has the same name everywhere: NATURAL and USING need that.
            if random.random_bool(0.45) {
                let shared = ["v", "w", "f", "d", "t", "b", "day", "at", "arr"][index];
                columns.push(Column {
                    name: shared.to_owned(),
                    data_type,
                    nullable: random.random_bool(0.8),
                });
            }
        }
        Relation {
            name: name.to_owned(),
            columns,
            key,
        }
    }

    /// Whether rows can be deleted.
    pub fn is_table(&self) -> bool {
        self.key.is_some()
    }

    /// A random row.
    pub fn row(&self, random: &mut StdRng) -> Row {
        let in_key = self.key.as_deref().unwrap_or_default();
        let columns = self.columns.iter().enumerate();
        columns
            .map(|(index, column)| {
                if column.nullable && random.random_bool(0.15) {
                    Value::Null
                } else if in_key == [index] {
                    // Few rows would have space in the small range that other columns have.
                    Value::Int(random.random_range(0..24))
                } else {
                    Value::random(random, column.data_type)
                }
            })
            .collect()
    }

    /// The Arrow schema.
    pub fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter();
        let fields = fields.map(|c| Field::new(&c.name, c.data_type.arrow(), c.nullable));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Rows as a batch.
    ///
    /// # Errors
    /// A value is not of its column's type.
    pub fn batch(&self, rows: &[&Row]) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().enumerate();
        let columns = columns
            .map(|(index, column)| array(column.data_type, rows.iter().map(|row| &row[index])))
            .collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema(), columns, &options)
    }

    /// The statement that makes it.
    pub fn create(&self) -> String {
        let kind = if self.is_table() { "TABLE" } else { "STREAM" };
        let mut text = format!("CREATE {kind} {} (", self.name);
        for (index, column) in self.columns.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let null = if column.nullable { "" } else { " NOT NULL" };
            let _ = write!(text, "{comma}{} {}{null}", column.name, column.data_type.sql());
        }
        if let Some(key) = self.key.as_ref().filter(|key| !key.is_empty()) {
            let names: Vec<&str> = key
                .iter()
                .map(|index| self.columns[*index].name.as_str())
                .collect();
            let _ = write!(text, ", PRIMARY KEY ({})", names.join(", "));
        }
        text + ")"
    }

    /// The condition that holds for copies of this row only.
    pub fn is_row(&self, row: &Row) -> String {
        let conditions = self.columns.iter().zip(row).map(|(column, value)| match value {
            Value::Null => format!("{} IS NULL", column.name),
            value => format!("{} = {value}", column.name),
        });
        conditions.collect::<Vec<_>>().join(" AND ")
    }
}

fn array<'a>(data_type: Type, values: impl Iterator<Item = &'a Value>) -> Result<ArrayRef, ArrowError> {
    macro_rules! pick {
        ($variant:ident) => {
            values.map(|value| match value {
                Value::$variant(value) => Some(value.clone()),
                _ => None,
            })
        };
    }
    Ok(match data_type {
        Type::Int => {
            let values = pick!(Int);
            Arc::new(Int32Array::from_iter(
                values.map(|v| v.and_then(|v| i32::try_from(v).ok())),
            ))
        }
        Type::BigInt => Arc::new(Int64Array::from_iter(pick!(Int))),
        Type::Float => Arc::new(Float64Array::from_iter(pick!(Float))),
        Type::Decimal => {
            let values = Decimal128Array::from_iter(pick!(Decimal));
            Arc::new(values.with_precision_and_scale(DECIMAL.0, DECIMAL.1)?)
        }
        Type::Text => Arc::new(StringArray::from_iter(pick!(Text))),
        Type::Bool => Arc::new(BooleanArray::from_iter(pick!(Bool))),
        Type::Date => Arc::new(Date32Array::from_iter(pick!(Date))),
        Type::Timestamp => Arc::new(TimestampMicrosecondArray::from_iter(pick!(Timestamp))),
        Type::IntArray => Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(pick!(IntArray))),
    })
}
