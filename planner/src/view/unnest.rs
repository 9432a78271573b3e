//! UNNEST: each row by itself, so weights pass through and nothing is kept.

use datafusion::common::NullHandling;
use datafusion::logical_expr::Unnest;

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::{Operator, UnnestColumn};
use crate::watermark::{Bound, ColumnWatermark};

impl Lowering {
    pub(super) fn unnest(&mut self, unnest: &Unnest) -> Result<Fragment> {
        if !unnest.struct_type_columns.is_empty() {
            return Err(PlanError::not_incremental(
                "unnest of a struct",
                "name the fields that are needed",
            ));
        }
        if unnest.list_type_columns.iter().any(|(_, list)| list.depth != 1) {
            return Err(PlanError::not_incremental(
                "unnest of an unnest",
                "unnest the inner arrays in a query around the first",
            ));
        }
        let null_handling: NullHandling = unnest.options.null_handling;
        let fragment = self.node(&unnest.input)?;
        let lists: Vec<usize> = unnest.list_type_columns.iter().map(|(index, _)| *index).collect();
        let columns: Vec<UnnestColumn> = unnest
            .dependency_indices
            .iter()
            .map(|index| {
                if lists.contains(index) {
                    UnnestColumn::Elements(*index)
                } else {
                    UnnestColumn::Kept(*index)
                }
            })
            .collect();
        let schema = arrow_schema(&unnest.schema);
        let kept = |wanted: usize| {
            columns
                .iter()
                .position(|column| *column == UnnestColumn::Kept(wanted))
        };
        let parts = fragment
            .parts
            .into_iter()
            .map(|part| {
                let placement = match part.placement {
                    Placement::Hash(hashed) => hashed
                        .into_iter()
                        .map(kept)
                        .collect::<Option<_>>()
                        .map_or(Placement::Keyed, Placement::Hash),
                    other => other,
                };
                let operator = Operator::Unnest {
                    input: Box::new(part.operator),
                    columns: columns.clone(),
                    null_handling,
                    schema: schema.clone(),
                };
                Part { operator, placement }
            })
            .collect();
        let watermarks = fragment
            .watermarks
            .into_iter()
            .filter_map(|ColumnWatermark { column, bound }| {
                let elements = UnnestColumn::Elements(column);
                if let Some(column) = columns.iter().position(|column| *column == elements) {
                    let bound = Bound::FirstOf(Box::new(bound));
                    return Some(ColumnWatermark { column, bound });
                }
                kept(column).map(|column| ColumnWatermark { column, bound })
            })
            .collect();
        Ok(Fragment {
            parts,
            append_only: fragment.append_only,
            key: None,
            watermarks,
            schema,
        })
    }
}
