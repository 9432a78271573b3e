//! Between which values a column of a chunk lies: what a planner estimates the size of joins by. Of a large chunk samples are looked
//! at, so that who plans does not wait; values beyond them may be there.

use std::sync::OnceLock;

use arrow::array::{Array, ArrowPrimitiveType, AsArray};
use arrow::compute::{max, min};
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

/// Of a chunk with more rows than these samples have, so many are looked at, of so many rows each.
const SAMPLES: usize = 64;
const SAMPLE_ROWS: usize = 4_096;

/// The least and the greatest value, as the numbers that the column keeps.
pub type Range = (i64, i64);

/// Those of a chunk's columns, found out when somebody asks for the first time.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    columns: OnceLock<Box<[OnceLock<Option<Range>>]>>,
}

impl Bounds {
    /// Those of one of so many columns; `None`: it has no values.
    pub fn of(&self, column: usize, columns: usize, values: &dyn Array) -> Option<Range> {
        let known = self
            .columns
            .get_or_init(|| (0..columns).map(|_| OnceLock::new()).collect());
        *known[column].get_or_init(|| sampled(values))
    }
}

/// Whether a column of this type has bounds.
pub fn are_known(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _)
    )
}

fn sampled(values: &dyn Array) -> Option<Range> {
    let rows = values.len();
    if rows <= SAMPLES * SAMPLE_ROWS {
        return range(values);
    }
    // From the first row to the last.
    let begins = (0..SAMPLES).map(|sample| (rows - SAMPLE_ROWS) * sample / (SAMPLES - 1));
    let ranges = begins.filter_map(|begin| range(values.slice(begin, SAMPLE_ROWS).as_ref()));
    ranges.reduce(union)
}

/// The range of both.
pub fn union(one: Range, other: Range) -> Range {
    (one.0.min(other.0), one.1.max(other.1))
}

/// The range of all of these values; `None`: there are none, or they have no bounds.
pub fn range(values: &dyn Array) -> Option<Range> {
    fn of<T: ArrowPrimitiveType>(values: &dyn Array) -> Option<Range>
    where
        T::Native: Into<i64>,
    {
        let values = values.as_primitive::<T>();
        Some((min(values)?.into(), max(values)?.into()))
    }
    match values.data_type() {
        DataType::Int8 => of::<Int8Type>(values),
        DataType::Int16 => of::<Int16Type>(values),
        DataType::Int32 => of::<Int32Type>(values),
        DataType::Int64 => of::<Int64Type>(values),
        DataType::Date32 => of::<Date32Type>(values),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(values),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Date32Array, Int16Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn large_chunks_are_sampled_from_end_to_end() {
        let rows = 10_000_000;
        let ascending = Int64Array::from_iter_values(0..rows);
        assert_eq!(sampled(&ascending), Some((0, rows - 1)));
        let cyclic = Int64Array::from_iter_values((0..rows).map(|row| row * 7_919 % 200_000));
        let (least, greatest) = sampled(&cyclic).unwrap();
        assert!(least < 100 && greatest > 199_900, "{least} to {greatest}");
    }

    #[test]
    fn numbers_and_dates_have_bounds() {
        let columns: [(ArrayRef, Option<Range>); 5] = [
            (
                Arc::new(Int64Array::from(vec![Some(7), None, Some(-2)])),
                Some((-2, 7)),
            ),
            (Arc::new(Int16Array::from(vec![3, 3])), Some((3, 3))),
            (
                Arc::new(Date32Array::from(vec![9_000, 8_000])),
                Some((8_000, 9_000)),
            ),
            (Arc::new(Int64Array::from(vec![None::<i64>, None])), None),
            (Arc::new(StringArray::from(vec!["a"])), None),
        ];
        let bounds = Bounds::default();
        for (column, (values, expected)) in columns.iter().enumerate() {
            assert_eq!(bounds.of(column, columns.len(), values), *expected);
            // They are remembered.
            assert_eq!(
                bounds.of(column, columns.len(), &StringArray::from(vec!["b"])),
                *expected
            );
        }
    }
}
