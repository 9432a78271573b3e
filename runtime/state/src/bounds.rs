//! Between which values a column of a chunk lies: what a planner estimates the size of joins by.

use std::sync::OnceLock;

use arrow::array::{Array, ArrowPrimitiveType, AsArray};
use arrow::compute::{max, min};
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};

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
        *known[column].get_or_init(|| range(values))
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

fn range(values: &dyn Array) -> Option<Range> {
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
