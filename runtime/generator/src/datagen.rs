//! Rows whose columns are each made as their options say: numbered, random, chosen from a list, or by rank.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringBuilder,
    UInt64Array,
};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::Generator;
use crate::random::{Random, Zipf};

/// How the values of a column are made. Whole numbers stand for microseconds and for days where the column is a time.
#[derive(Debug, Clone)]
pub enum Values {
    /// `start`, and `step` more from row to row. After `end` it begins again. `jitter`: by how much a value may be less,
    /// which brings rows out of order.
    Sequence {
        start: i64,
        step: i64,
        end: Option<i64>,
        jitter: u64,
    },
    /// Any of the whole numbers from `min` to `max`.
    Whole { min: i64, max: i64 },
    /// From `min` up to, but without, `max`.
    Real { min: f64, max: f64 },
    /// True as often as false.
    Truth,
    /// So many letters.
    Letters(usize),
    /// One of these, each as often.
    OneOf(ArrayRef),
    /// One of these, the first the most often; the ranks themselves, from 1, if there are none.
    Ranked { zipf: Zipf, of: Option<ArrayRef> },
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Name and type. What is made is cast to it.
    pub field: Field,
    pub values: Values,
    pub seed: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Datagen {
    columns: Vec<Column>,
    schema: SchemaRef,
    rows_max: Option<u64>,
}

impl Datagen {
    /// Rows of these columns.
    pub fn new(columns: Vec<Column>, rows_max: Option<u64>) -> Self {
        let fields: Vec<Field> = columns.iter().map(|column| column.field.clone()).collect();
        Datagen {
            columns,
            schema: Arc::new(Schema::new(fields)),
            rows_max,
        }
    }
}

impl Generator for Datagen {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn rows_max(&self) -> Option<u64> {
        self.rows_max
    }

    fn generate(&self, first: u64, rows: usize) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().enumerate();
        let columns = columns.map(|(place, column)| column.values(place as u64, first, rows));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

impl Column {
    fn values(&self, place: u64, first: u64, rows: usize) -> Result<ArrayRef, ArrowError> {
        let range = first..first + rows as u64;
        let random = |row: u64| Random::at(self.seed, place + 1, row);
        let chosen = |of: &ArrayRef, choose: &dyn Fn(u64) -> u64| {
            let positions = UInt64Array::from_iter_values(range.clone().map(choose));
            take(of, &positions, None)
        };
        let values: ArrayRef = match &self.values {
            Values::Sequence {
                start,
                step,
                end,
                jitter,
            } => {
                let value = |row: u64| {
                    let number = numbered(*start, *step, *end, row);
                    let less = if *jitter > 0 {
                        random(row).below(jitter + 1)
                    } else {
                        0
                    };
                    number.saturating_sub(i64::try_from(less).unwrap_or(i64::MAX))
                };
                Arc::new(Int64Array::from_iter_values(range.map(value)))
            }
            Values::Whole { min, max } => {
                let many = max.abs_diff(*min).saturating_add(1);
                let value = |row| min.wrapping_add_unsigned(random(row).below(many));
                Arc::new(Int64Array::from_iter_values(range.map(value)))
            }
            Values::Real { min, max } => {
                let value = |row| min + random(row).fraction() * (max - min);
                Arc::new(Float64Array::from_iter_values(range.map(value)))
            }
            Values::Truth => Arc::new(
                range
                    .map(|row| Some(random(row).below(2) == 1))
                    .collect::<BooleanArray>(),
            ),
            Values::Letters(length) => {
                let mut texts = StringBuilder::with_capacity(rows, rows * length);
                for row in range {
                    let mut random = random(row);
                    let text: String = (0..*length)
                        .map(|_| char::from(b'a' + random.below(26) as u8))
                        .collect();
                    texts.append_value(text);
                }
                Arc::new(texts.finish())
            }
            Values::OneOf(of) => chosen(of, &|row| random(row).below(of.len() as u64))?,
            Values::Ranked { zipf, of: Some(of) } => chosen(of, &|row| zipf.rank(&mut random(row)) - 1)?,
            Values::Ranked { zipf, of: None } => {
                let value = |row| zipf.rank(&mut random(row)).cast_signed();
                Arc::new(Int64Array::from_iter_values(range.map(value)))
            }
        };
        as_type(&values, self.field.data_type())
    }
}

/// Row `row` of a sequence, which begins again after `end`. What would not fit stays at the limit.
fn numbered(start: i64, step: i64, end: Option<i64>, row: u64) -> i64 {
    let row = match end {
        Some(end) if step != 0 => {
            let many = (i128::from(end) - i128::from(start)) / i128::from(step) + 1;
            (i128::from(row)).rem_euclid(many.max(1))
        }
        _ => i128::from(row),
    };
    let value = i128::from(start) + i128::from(step).saturating_mul(row);
    value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// What does not fit is an error.
fn as_type(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    // Days are counted in 32 bits, which Arrow does not make of 64 by itself.
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    if matches!(data_type, DataType::Date32) && values.data_type() == &DataType::Int64 {
        let days = cast_with_options(values, &DataType::Int32, &options)?;
        return cast_with_options(&days, data_type, &options);
    }
    cast_with_options(values, data_type, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::{Float64Type, Int32Type, Int64Type, TimeUnit};

    fn column(data_type: DataType, values: Values) -> Column {
        Column {
            field: Field::new("c", data_type, true),
            values,
            seed: 3,
        }
    }

    fn made(data_type: DataType, values: Values, rows: usize) -> ArrayRef {
        let datagen = Datagen::new(vec![column(data_type, values)], None);
        let rows = datagen.generate(0, rows).unwrap();
        Arc::clone(rows.column(0))
    }

    #[test]
    fn sequences_begin_again_and_may_be_out_of_order() {
        let sequence = |end, jitter| Values::Sequence {
            start: 10,
            step: 5,
            end,
            jitter,
        };
        let values = made(DataType::Int32, sequence(Some(22), 0), 7);
        assert_eq!(
            values.as_primitive::<Int32Type>().values(),
            &[10, 15, 20, 10, 15, 20, 10]
        );
        let times = made(
            DataType::Timestamp(TimeUnit::Microsecond, None),
            sequence(None, 12),
            500,
        );
        let times = cast(&times, &DataType::Int64).unwrap();
        let times = times.as_primitive::<Int64Type>().values();
        assert!(times.iter().enumerate().all(|(row, time)| {
            let latest = 10 + 5 * row as i64;
            (latest - 12..=latest).contains(time)
        }));
        assert!(times.windows(2).any(|pair| pair[0] > pair[1]));
        assert_eq!(numbered(i64::MAX - 1, 2, None, 5), i64::MAX);
        assert_eq!(numbered(5, -2, Some(1), 3), 5);
    }

    #[test]
    fn values_are_in_their_range_and_reach_its_ends() {
        let whole = made(DataType::Int64, Values::Whole { min: -2, max: 3 }, 1_000);
        let different: std::collections::BTreeSet<i64> = whole
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .copied()
            .collect();
        assert_eq!(different, (-2..=3).collect());
        let widest = made(
            DataType::Int64,
            Values::Whole {
                min: i64::MIN,
                max: i64::MAX,
            },
            100,
        );
        assert!(
            widest
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .any(|value| *value < 0)
        );
        let real = made(DataType::Float64, Values::Real { min: -1.0, max: 1.0 }, 1_000);
        assert!(
            real.as_primitive::<Float64Type>()
                .values()
                .iter()
                .all(|value| (-1.0..1.0).contains(value))
        );
        let days = made(DataType::Date32, Values::Whole { min: 0, max: 9 }, 50);
        assert_eq!(days.data_type(), &DataType::Date32);
        let letters = made(DataType::Utf8, Values::Letters(4), 10);
        assert!(
            letters
                .as_string::<i32>()
                .iter()
                .all(|text| text.is_some_and(|text| text.len() == 4))
        );
        let truth = made(DataType::Boolean, Values::Truth, 100);
        assert!((20..80).contains(&truth.as_boolean().true_count()));
    }

    #[test]
    fn the_first_of_a_list_comes_most_often_by_rank_and_all_as_often_without() {
        let list: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let count = |values: Values| {
            let made = made(DataType::Utf8, values, 3_000);
            let made = made.as_string::<i32>();
            ["a", "b", "c"].map(|text| made.iter().filter(|value| *value == Some(text)).count())
        };
        assert!(
            count(Values::OneOf(Arc::clone(&list)))
                .iter()
                .all(|count| (850..1_150).contains(count))
        );
        let zipf = Zipf::new(3, 1.0);
        let [first, second, third] = count(Values::Ranked { zipf, of: Some(list) });
        assert!(
            first > second && second > third && third > 300,
            "{first} {second} {third}"
        );
    }
}
