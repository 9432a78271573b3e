//! The state of a hash join: one side's rows, indexed by the join's keys, and the search for those that match rows of the other side.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use millrace_planner::stage::closing::Closing;
use millrace_state::row_table::{Matches, RowTable};
use millrace_state::width::Widths;
use millrace_storage::ChangeBatch;

use super::OUTPUT_ROWS_STEP;
use crate::batches::{filter_changes, nullable};
use crate::closing::Closer;
use crate::error::Result;

/// How a side's rows appear by themselves, beside the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appearance {
    /// Only in pairs.
    Paired,
    /// With NULLs for the other side, while there is no match.
    NullExtended,
    /// Once, while there is a match.
    Matched,
    /// Once, while there is none.
    Unmatched,
    /// Always, with whether there is a match.
    Marked,
}

/// One side's rows.
pub(super) struct Side {
    pub table: RowTable,
    pub index: Option<usize>,
    pub keys: Vec<usize>,
    pub width: usize,
    /// Of what of a row is in a pair.
    pub copied: Widths,
    pub append_only: bool,
    pub appearance: Appearance,
    pub closer: Option<Closer>,
}

impl Side {
    pub fn new(
        schema: &SchemaRef,
        keys: Vec<usize>,
        width: usize,
        append_only: bool,
        unique: Option<&[usize]>,
        appearance: Appearance,
        closes: Option<&Closing>,
    ) -> Result<Side> {
        let copied = Widths::of(schema, 0..width);
        let schema = nullable(schema);
        let all = || (0..schema.fields().len()).collect::<Vec<_>>();
        let mut table = match unique.filter(|unique| !unique.is_empty()) {
            _ if append_only => RowTable::new(schema, None),
            _ if keys.is_empty() => {
                let identity = unique
                    .filter(|unique| !unique.is_empty())
                    .map_or_else(all, <[usize]>::to_vec);
                RowTable::new(schema, Some(identity))
            }
            // The index over the join keys finds a row as well.
            Some(unique) if unique.iter().all(|column| keys.contains(column)) => {
                RowTable::new(schema, Some(keys.clone()))
            }
            unique => {
                let unique = unique.map_or_else(all, <[usize]>::to_vec);
                RowTable::keyed(schema, keys.clone(), unique)
            }
        };
        if appearance != Appearance::Paired {
            table = table.with_tags();
        }
        let index = if keys.is_empty() {
            None
        } else {
            Some(table.add_index(keys.clone())?)
        };
        Ok(Side {
            table,
            index,
            keys,
            width,
            copied,
            append_only,
            appearance,
            closer: Closer::new(closes),
        })
    }

    /// Rows that can matter: one whose key is NULL matches nothing.
    pub fn relevant(&self, batch: ChangeBatch, null_equals_null: bool) -> Result<ChangeBatch> {
        if null_equals_null || self.appearance != Appearance::Paired {
            return Ok(batch);
        }
        let nulls: Vec<_> = self
            .keys
            .iter()
            .filter_map(|key| batch.rows.column(*key).logical_nulls())
            .collect();
        if nulls.iter().all(|nulls| nulls.null_count() == 0) {
            return Ok(batch);
        }
        let mask: BooleanArray = (0..batch.num_rows())
            .map(|row| Some(nulls.iter().all(|nulls| nulls.is_valid(row))))
            .collect();
        filter_changes(&batch, &mask)
    }

    /// Where to look for the rows of this side that match rows of the other.
    pub fn begin_matching(&mut self, other: &RecordBatch, other_keys: &[usize]) -> Result<Matching> {
        let mut matching = Matching {
            keys: vec![],
            hashes: vec![],
            all: vec![],
            rows: other.num_rows(),
            next: 0,
        };
        match self.index {
            Some(index) => {
                self.table.catch_up(index)?;
                matching.keys = (other_keys.iter())
                    .map(|key| Arc::clone(other.column(*key)))
                    .collect();
                matching.hashes = RowTable::hashes_of(&matching.keys, other.num_rows())?;
            }
            None => matching.all = self.table.live_row_numbers(),
        }
        Ok(matching)
    }

    /// The matches of the next few rows of the other side; none when all have been seen.
    pub fn next_matches(&self, matching: &mut Matching, null_equals_null: bool) -> Result<Option<Matches>> {
        let from = matching.next;
        if from >= matching.rows {
            return Ok(None);
        }
        if let Some(index) = self.index {
            let range = (from, OUTPUT_ROWS_STEP);
            let (keys, hashes) = (&matching.keys, &matching.hashes);
            let (matches, next) = self
                .table
                .probe_some(index, keys, hashes, null_equals_null, range)?;
            matching.next = next;
            return Ok(Some(matches));
        }
        let all = &matching.all;
        let rows = (OUTPUT_ROWS_STEP / all.len().max(1)).max(1);
        matching.next = (from + rows).min(matching.rows);
        let probing = from as u32..matching.next as u32;
        Ok(Some(Matches {
            probe: (probing
                .clone()
                .flat_map(|row| std::iter::repeat_n(row, all.len())))
            .collect(),
            rows: (probing.flat_map(|_| all.iter().copied())).collect(),
        }))
    }
}

/// How far rows of one side have been matched with the other.
pub(super) struct Matching {
    keys: Vec<ArrayRef>,
    hashes: Vec<u64>,
    /// Without keys: all rows of the other side.
    all: Vec<u32>,
    /// Of the side that is matched.
    rows: usize,
    next: usize,
}
