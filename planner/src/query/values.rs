//! How many values a column may have: by that a planner knows how many groups there will be.
//!
//! Of whole numbers and dates there are no more than fit between the least and the greatest.

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::logical_expr::interval_arithmetic::Interval;

/// Notes of each column how many values it may have, where the least and the greatest are known.
pub fn count_values(statistics: &mut Statistics) {
    for column in &mut statistics.column_statistics {
        if column.distinct_count == Precision::Absent
            && let Some(values) = between(column)
        {
            let rows = statistics.num_rows.get_value();
            column.distinct_count = Precision::Inexact(rows.map_or(values, |rows| values.min(*rows)));
        }
    }
}

/// How many values there are from the least to the greatest.
fn between(column: &ColumnStatistics) -> Option<usize> {
    let (least, greatest) = (column.min_value.get_value()?, column.max_value.get_value()?);
    let is_counted = matches!(least.data_type(), DataType::Date32) || least.data_type().is_integer();
    if !is_counted {
        return None;
    }
    let range = Interval::try_new(least.clone(), greatest.clone()).ok()?;
    usize::try_from(range.cardinality()?).ok()
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::*;

    #[test]
    fn whole_numbers_are_counted_by_their_range() {
        let column = |least: ScalarValue, greatest: ScalarValue| ColumnStatistics {
            min_value: Precision::Exact(least),
            max_value: Precision::Exact(greatest),
            ..ColumnStatistics::new_unknown()
        };
        let mut statistics = Statistics {
            num_rows: Precision::Exact(1_000),
            total_byte_size: Precision::Absent,
            column_statistics: vec![
                column(ScalarValue::from(-3_i64), ScalarValue::from(6_i64)),
                column(ScalarValue::from(i64::MIN), ScalarValue::from(i64::MAX)),
                column(ScalarValue::from(0.0), ScalarValue::from(1.0)),
                column(ScalarValue::from("a"), ScalarValue::from("b")),
                ColumnStatistics::new_unknown(),
            ],
        };
        count_values(&mut statistics);
        let counts: Vec<_> = (statistics.column_statistics.iter())
            .map(|column| column.distinct_count.get_value().copied())
            .collect();
        // That there are more numbers than one can count is nothing known.
        assert_eq!(counts[0], Some(10));
        assert!(counts[1].is_none_or(|count| count == 1_000));
        assert_eq!(counts[2..], [None, None, None]);
    }
}
