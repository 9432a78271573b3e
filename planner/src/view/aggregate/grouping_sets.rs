//! ROLLUP, CUBE and GROUPING SETS: which sets there are, and every row once for each.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, GroupingSet};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

use crate::error::{PlanError, Result};
use crate::stage::expand::Expand;
use crate::stage::operator::Operator;
use crate::view::fragment::{Fragment, Part, Placement};
use crate::view::lower::column;

/// A grouping set: which of the group columns it leaves out, and its number.
pub(super) struct GroupingSetColumns {
    pub left_out: Vec<bool>,
    /// One bit for each column left out, the first column's the highest; above them, how often the same set came before.
    pub id: u64,
}

/// The grouping sets, in the order written.
pub(super) fn grouping_sets(set: &GroupingSet, groups: &[&Expr]) -> Result<Vec<GroupingSetColumns>> {
    let sets: Vec<Vec<&Expr>> = match set {
        GroupingSet::Rollup(expressions) => (0..=expressions.len())
            .rev()
            .map(|kept| expressions[..kept].iter().collect())
            .collect(),
        GroupingSet::Cube(expressions) => {
            if expressions.len() > CUBE_COLUMNS_MAX {
                return Err(PlanError::not_incremental(
                    format!("CUBE over more than {CUBE_COLUMNS_MAX} columns"),
                    "list the sets that are needed with GROUPING SETS",
                ));
            }
            (0..1_usize << expressions.len())
                .map(|mask| {
                    (0..expressions.len())
                        .filter(|i| mask & (1 << i) == 0)
                        .map(|i| &expressions[i])
                        .collect()
                })
                .collect()
        }
        GroupingSet::GroupingSets(sets) => sets.iter().map(|set| set.iter().collect()).collect(),
    };
    let left_out: Vec<Vec<bool>> = sets
        .iter()
        .map(|set| groups.iter().map(|group| !set.contains(group)).collect())
        .collect();
    let id = |position: usize| {
        let earlier = left_out[..position]
            .iter()
            .filter(|other| **other == left_out[position])
            .count() as u64;
        left_out[position]
            .iter()
            .fold(0, |bits, left_out| (bits << 1) | u64::from(*left_out))
            | (earlier << groups.len())
    };
    let ids: Vec<u64> = (0..left_out.len()).map(id).collect();
    Ok(left_out
        .into_iter()
        .zip(ids)
        .map(|(left_out, id)| GroupingSetColumns { left_out, id })
        .collect())
}

/// A cube of this many columns has 4,096 grouping sets.
const CUBE_COLUMNS_MAX: usize = 12;

/// Every row once for each grouping set, with NULL in the columns that the set leaves out and the set's number behind them.
pub(super) fn expand(
    input: Fragment,
    schema: &SchemaRef,
    groups: usize,
    sets: &[GroupingSetColumns],
) -> Result<(Fragment, SchemaRef)> {
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    for field in &mut fields[..groups] {
        *field = Arc::new(field.as_ref().clone().with_nullable(true));
    }
    let expanded: SchemaRef = Arc::new(Schema::new(fields));
    let mut projections = vec![];
    for set in sets {
        let id = ScalarValue::UInt64(Some(set.id)).cast_to(schema.field(groups).data_type())?;
        let projection = (0..schema.fields().len())
            .map(|index| -> Result<Arc<dyn PhysicalExpr>> {
                Ok(match index {
                    _ if index == groups => Arc::new(Literal::new(id.clone())),
                    _ if index < groups && set.left_out[index] => Arc::new(Literal::new(
                        ScalarValue::try_from(schema.field(index).data_type())?,
                    )),
                    _ => column(schema, index),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        projections.push(projection);
    }
    let parts = input
        .parts
        .into_iter()
        .map(|part| Part {
            operator: Operator::Expand(Expand {
                input: Box::new(part.operator),
                projections: projections.clone(),
                schema: Arc::clone(&expanded),
            }),
            // The same row's copies stay together, and so do their retractions.
            placement: if part.placement == Placement::Arrival {
                Placement::Arrival
            } else {
                Placement::Keyed
            },
        })
        .collect();
    let fragment = Fragment {
        parts,
        append_only: input.append_only,
        key: None,
        // What a set leaves out is NULL, which no bound speaks of.
        watermarks: input.watermarks,
        schema: Arc::clone(&expanded),
    };
    Ok((fragment, expanded))
}
