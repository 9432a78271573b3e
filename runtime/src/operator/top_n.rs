//! The first rows in an order, kept while rows come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use millrace_planner::stage::TopN;
use millrace_storage::ChangeBatch;

use super::batch_of;
use crate::error::{Result, RuntimeError};
use crate::state::row_table::arrow_error;

/// All rows, in order, as comparable bytes: the ORDER BY columns, then every column of the output.
pub struct TopNInstance {
    order_by: Vec<usize>,
    skip: usize,
    fetch: Option<usize>,
    width: usize,
    append_only: bool,
    schema: SchemaRef,
    converter: RowConverter,
    rows: BTreeMap<Box<[u8]>, i64>,
}

impl TopNInstance {
    pub fn new(plan: &TopN) -> Result<Self> {
        let input = plan.input.schema();
        let mut fields: Vec<SortField> = plan
            .order_by
            .iter()
            .map(|(column, options)| {
                SortField::new_with_options(input.field(*column).data_type().clone(), *options)
            })
            .collect();
        fields.extend((0..plan.width).map(|column| SortField::new(input.field(column).data_type().clone())));
        Ok(TopNInstance {
            order_by: plan.order_by.iter().map(|(column, _)| *column).collect(),
            skip: plan.skip,
            fetch: plan.fetch,
            width: plan.width,
            append_only: plan.input_append_only,
            schema: Arc::clone(&plan.schema),
            converter: RowConverter::new(fields).map_err(arrow_error)?,
            rows: BTreeMap::new(),
        })
    }

    pub fn state_bytes(&self) -> usize {
        self.rows.keys().map(|key| key.len() + 40).sum()
    }

    /// Applies what changed and puts out how the first rows differ.
    pub fn run(&mut self, batches: Vec<ChangeBatch>) -> Result<Vec<ChangeBatch>> {
        if batches.iter().all(|batch| batch.num_rows() == 0) {
            return Ok(vec![]);
        }
        let before = self.first_rows();
        for batch in &batches {
            self.apply(batch)?;
        }
        let mut changes = self.first_rows();
        for (row, count) in before {
            *changes.entry(row).or_default() -= count;
        }
        changes.retain(|_, count| *count != 0);
        if self.append_only {
            self.trim();
        }
        self.emit(&changes)
    }

    fn apply(&mut self, batch: &ChangeBatch) -> Result<()> {
        let mut columns: Vec<ArrayRef> = self
            .order_by
            .iter()
            .map(|column| Arc::clone(batch.rows.column(*column)))
            .collect();
        columns.extend(batch.rows.columns()[..self.width].iter().cloned());
        let keys = self.converter.convert_columns(&columns).map_err(arrow_error)?;
        for row in 0..batch.num_rows() {
            let key = keys.row(row).data();
            let weight = batch.weight(row);
            match self.rows.get_mut(key) {
                Some(count) => {
                    *count += weight;
                    if *count == 0 {
                        self.rows.remove(key);
                    }
                }
                None => {
                    self.rows.insert(key.into(), weight);
                }
            }
        }
        Ok(())
    }

    /// The rows between OFFSET and LIMIT, with how often each is among them.
    fn first_rows(&self) -> BTreeMap<Box<[u8]>, i64> {
        let start = self.skip as i64;
        let end = self
            .fetch
            .map_or(i64::MAX, |fetch| start.saturating_add(fetch as i64));
        let mut first = BTreeMap::new();
        let mut position = 0;
        for (row, count) in &self.rows {
            if position >= end {
                break;
            }
            let within = (position + count).min(end) - position.max(start);
            if within > 0 {
                first.insert(row.clone(), within);
            }
            position += count;
        }
        first
    }

    /// Where nothing ever goes, what is behind the first rows never comes back to them.
    fn trim(&mut self) {
        let Some(fetch) = self.fetch else { return };
        let end = self.skip.saturating_add(fetch) as i64;
        let mut position = 0;
        let cut = self.rows.iter().find_map(|(row, count)| {
            let is_behind = position >= end;
            position += count;
            is_behind.then(|| row.clone())
        });
        if let Some(cut) = cut {
            self.rows.split_off(&cut);
        }
    }

    fn emit(&self, changes: &BTreeMap<Box<[u8]>, i64>) -> Result<Vec<ChangeBatch>> {
        if changes.is_empty() {
            return Ok(vec![]);
        }
        let parser = self.converter.parser();
        let columns = self
            .converter
            .convert_rows(changes.keys().map(|row| parser.parse(row)))
            .map_err(arrow_error)?;
        let columns = columns
            .get(self.order_by.len()..)
            .ok_or_else(|| RuntimeError::Internal("a Top-N row has too few columns".into()))?
            .to_vec();
        let rows = batch_of(&self.schema, columns, changes.len())?;
        Ok(vec![ChangeBatch {
            rows,
            weights: Some(Int64Array::from_iter_values(changes.values().copied())),
        }])
    }
}
