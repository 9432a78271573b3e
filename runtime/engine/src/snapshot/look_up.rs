//! Look-ups: the rows that an index finds for given values, with or without a plan around them.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::kernels::cmp;
use arrow::compute::{and, filter, prep_null_mask_filter};
use datafusion::common::ScalarValue;
use millrace_planner::RelationId;
use millrace_state::row_table::RowTable;
use parking_lot::RwLock;

use super::{Frozen, Snapshot};
use crate::error::{Result, RuntimeError};
use crate::relation::Relation;

/// Rows that were found.
#[derive(Debug)]
pub struct Found {
    /// How many.
    pub rows: usize,
    /// The columns that were asked for.
    pub columns: Vec<ArrayRef>,
}

impl Frozen {
    fn partitions(&self) -> Vec<&RwLock<RowTable>> {
        match self.relation.as_ref() {
            Relation::Stream(_) => vec![],
            Relation::Table(table) => vec![&table.rows],
            Relation::View(view) => view.contents.partitions.iter().collect(),
        }
    }

    /// The columns of each index; a stream has none.
    pub(super) fn indexes(&self) -> Vec<Vec<usize>> {
        let partitions = self.partitions();
        let first = partitions.first();
        first.map_or_else(Vec::new, |table| table.read().indexed_columns())
    }

    /// Columns of the rows with these keys. `None`: the index is not there now, and a scan has to find them.
    pub(super) fn found(
        &self,
        index: usize,
        keys: &[ArrayRef],
        columns: &[usize],
    ) -> Result<Option<Vec<Found>>> {
        let mut found = vec![];
        for partition in self.partitions() {
            let table = partition.read();
            // Without its rows it has no index, nor soon after a start: a scan reads them.
            if table.is_spilled() || table.is_behind(index) {
                return Ok(None);
            }
            let matches = table.probe_at(index, keys, self.version)?;
            if !matches.rows.is_empty() {
                found.push(Found {
                    rows: matches.rows.len(),
                    columns: table.gather(&matches.rows, columns)?,
                });
            }
        }
        // A worker that was lost meanwhile took its rows with it: those that were seen are found by a scan.
        Ok(self.is_current().then_some(found))
    }
}

impl Snapshot {
    /// Some columns of the rows in which the columns `equal` have these values, each of its column's type and none NULL.
    ///
    /// `None`: no index has only columns of them, or it is not there now. A plan finds the rows then.
    ///
    /// # Errors
    /// The snapshot was not asked for this relation, it is a view that failed, or it does not have these columns.
    pub fn look_up(
        &self,
        relation: RelationId,
        equal: &[(usize, ScalarValue)],
        columns: &[usize],
    ) -> Result<Option<Vec<Found>>> {
        let frozen = self.readable(relation)?;
        let width = frozen.schema().fields().len();
        let mut named = columns.iter().chain(equal.iter().map(|(column, _)| column));
        if named.any(|column| *column >= width) {
            return Err(RuntimeError::Internal(
                "a look-up names a column that is not there".into(),
            ));
        }
        let value_of = |column: &usize| equal.iter().find(|(named, _)| named == column);
        let key_of = |index: &Vec<usize>| -> Option<Vec<&ScalarValue>> {
            let values = index
                .iter()
                .map(|column| value_of(column).map(|(_, value)| value));
            values
                .collect::<Option<Vec<_>>>()
                .filter(|values| !values.is_empty())
        };
        let indexes = frozen.indexes();
        let Some((index, key)) = indexes
            .iter()
            .enumerate()
            .find_map(|(number, index)| Some((number, key_of(index)?)))
        else {
            return Ok(None);
        };
        let keys = key.iter().map(|value| value.to_array());
        let keys = keys.collect::<datafusion::error::Result<Vec<ArrayRef>>>()?;
        // What the index does not know of is compared.
        let others: Vec<&(usize, ScalarValue)> = equal
            .iter()
            .filter(|(column, _)| !indexes[index].contains(column))
            .collect();
        let with_others: Vec<usize> = columns
            .iter()
            .copied()
            .chain(others.iter().map(|(column, _)| *column))
            .collect();
        let Some(found) = frozen.found(index, &keys, &with_others)? else {
            return Ok(None);
        };
        let found = found.into_iter().map(|mut found| {
            let compared = found.columns.split_off(columns.len());
            let mut is_kept: Option<BooleanArray> = None;
            for (column, (_, value)) in compared.iter().zip(&others) {
                let is_equal = cmp::eq(column, &value.to_scalar()?)?;
                let is_equal = match is_equal.null_count() {
                    0 => is_equal,
                    _ => prep_null_mask_filter(&is_equal),
                };
                is_kept = Some(match is_kept {
                    Some(before) => and(&before, &is_equal)?,
                    None => is_equal,
                });
            }
            let Some(is_kept) = is_kept else {
                return Ok(found);
            };
            let kept = found.columns.iter().map(|column| filter(column, &is_kept));
            Ok(Found {
                rows: is_kept.true_count(),
                columns: kept.collect::<std::result::Result<_, _>>()?,
            })
        });
        found.collect::<Result<Vec<_>>>().map(Some)
    }
}
