//! Where the columns of an operator's output come from: from a column of a stored relation, which the plan only passes on, or
//! they are computed. This tells the state of one plan from that of another.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::relation_id::RelationId;

/// Where a column's values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// They are those of a column of a stored relation.
    Stored(RelationId, usize),
    Computed,
}

/// The columns of one operator's output.
#[derive(Debug, Clone)]
pub(crate) struct Origins(pub(crate) Vec<(Origin, DataType)>);

impl Origins {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, to be shown.
    pub fn all(&self) -> String {
        self.list(0..self.len())
    }

    /// Some of them, to be shown.
    pub fn list(&self, columns: impl IntoIterator<Item = usize>) -> String {
        let columns = columns.into_iter().map(|column| match self.0.get(column) {
            Some((Origin::Stored(relation, place), data_type)) => {
                format!("{}.{place} {}", relation.0, type_name(data_type))
            }
            Some((Origin::Computed, data_type)) => format!("computed {}", type_name(data_type)),
            None => "unknown".to_owned(),
        });
        columns.collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn at(origins: &[Origin], column: usize) -> Origin {
    origins.get(column).copied().unwrap_or(Origin::Computed)
}

pub(crate) fn in_common(one: Vec<Origin>, other: Vec<Origin>) -> Vec<Origin> {
    let pairs = one.into_iter().zip(other);
    let pairs = pairs.map(|(one, other)| if one == other { one } else { Origin::Computed });
    pairs.collect()
}

pub(super) fn projected(input: &[Origin], expressions: &[Arc<dyn PhysicalExpr>]) -> Vec<Origin> {
    let origins = expressions
        .iter()
        .map(|expression| match expression.downcast_ref::<Column>() {
            Some(column) => at(input, column.index()),
            None => Origin::Computed,
        });
    origins.collect()
}

/// A type's name, in words of our own: Arrow has changed how it shows types before.
pub(super) fn type_name(data_type: &DataType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    match data_type {
        DataType::Timestamp(of, None) => format!("Timestamp({})", unit(of)),
        DataType::Timestamp(of, Some(zone)) => format!("Timestamp({}, {zone})", unit(of)),
        DataType::Time64(of) | DataType::Time32(of) => format!("Time({})", unit(of)),
        DataType::Decimal128(precision, scale) => format!("Decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("Decimal256({precision}, {scale})"),
        DataType::List(field) | DataType::LargeList(field) => {
            format!("List({})", type_name(field.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| type_name(field.data_type()));
            format!("Struct({})", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Interval(_) => "Interval".to_owned(),
        // Their names are those of the variants: Int64, Utf8, Boolean.
        other => format!("{other:?}"),
    }
}
