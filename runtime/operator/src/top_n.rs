//! The first rows of each partition in an order, kept while rows come and go.
//!
//! Rows are comparable bytes: the columns to order by, then every column of the output, so that equal rows have one
//! order. Two structures keep a partition:
//!
//! * [`zones`]: what is skipped, what is among the first rows, what is behind them, as three ordered multisets. A change moves
//!   at most one row across each border, so it costs the logarithm of the partition. Used where rows count one by one
//!   and their number is not asked for.
//! * [`prefix`]: one ordered multiset; the first rows of a partition that changed are numbered again. Used for ranks, and for
//!   numbers that are emitted, since all behind a change have other ones anyway.

mod image;
mod prefix;
mod zones;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::{HashMap, HashSet};
use millrace_planner::stage::closing::Closing;
use millrace_planner::stage::top_n::{Numbering, TopN};
use millrace_planner::watermark::Watermarks;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, chunks};
use super::closing::{Closer, is_final};
use super::expression::{ErrorCounter, conform};
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::{Output, push_all};
use crate::error::{OperatorError, Result};
use prefix::Prefix;
use zones::Zones;

/// A row as bytes that compare as the order has it.
type Key = Box<[u8]>;

/// Which rows of a partition are the first ones.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    skip: u64,
    /// The last number that is among them.
    last: u64,
    numbering: Numbering,
    /// Nothing ever goes: what is behind the first rows never comes back to them.
    append_only: bool,
}

/// How the first rows change: a row and its number (0 where that is not asked for), with a weight.
type Changes = HashMap<(Key, u64), i64>;

/// The rows of every partition.
enum Partitions {
    Zones(HashMap<Key, Zones>),
    Prefix(HashMap<Key, Prefix>),
}

/// See the module.
pub struct TopNInstance {
    partition_by: Vec<usize>,
    order_by: Vec<usize>,
    width: usize,
    with_number: bool,
    bounds: Bounds,
    schema: SchemaRef,
    partition_converter: RowConverter,
    order_converter: RowConverter,
    row_converter: RowConverter,
    partitions: Partitions,
    /// The columns of `partition_by`, under the names of the input.
    partition_schema: SchemaRef,
    closer: Option<Closer>,
}

impl Operator for TopNInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let batches = inputs[0].collect(epoch, gate, errors).await?;
            let changes = self.advance(batches, gate).await?;
            if !epoch.has_more {
                self.forget(&epoch.watermarks)?;
            }
            push_all(output, changes).await
        }
        .boxed()
    }

    fn state_bytes(&self) -> usize {
        match &self.partitions {
            Partitions::Zones(partitions) => map_bytes(partitions, Zones::memory_bytes),
            Partitions::Prefix(partitions) => map_bytes(partitions, Prefix::memory_bytes),
        }
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts);
        Ok(())
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl TopNInstance {
    /// A Top-N over no rows.
    ///
    /// # Errors
    /// A column's type has no order.
    pub fn new(plan: &TopN) -> Result<Self> {
        let input = plan.input.schema();
        let field = |column: usize| SortField::new(input.field(column).data_type().clone());
        let converter = |fields: Vec<SortField>| RowConverter::new(fields).map_err(OperatorError::from);
        let order = plan.order_by.iter().map(|(column, options)| {
            SortField::new_with_options(input.field(*column).data_type().clone(), *options)
        });
        let partitions = if plan.numbering == Numbering::RowNumber && !plan.with_number {
            Partitions::Zones(HashMap::new())
        } else {
            Partitions::Prefix(HashMap::new())
        };
        Ok(TopNInstance {
            partition_by: plan.partition_by.clone(),
            order_by: plan.order_by.iter().map(|(column, _)| *column).collect(),
            width: plan.width,
            with_number: plan.with_number,
            bounds: Bounds {
                skip: plan.skip as u64,
                last: plan
                    .fetch
                    .map_or(u64::MAX, |fetch| (plan.skip as u64).saturating_add(fetch as u64)),
                numbering: plan.numbering,
                append_only: plan.input_append_only,
            },
            schema: Arc::clone(&plan.schema),
            partition_converter: converter(plan.partition_by.iter().map(|column| field(*column)).collect())?,
            order_converter: converter(order.collect())?,
            row_converter: converter((0..plan.width).map(field).collect())?,
            partitions,
            partition_schema: Arc::new(input.project(&plan.partition_by)?),
            closer: Closer::new(plan.closes.as_ref()),
        })
    }

    /// Forgets the partitions that do not change any more.
    pub fn forget(&mut self, watermarks: &Watermarks) -> Result<()> {
        let Some(closer) = &mut self.closer else {
            return Ok(());
        };
        let count = match &self.partitions {
            Partitions::Zones(partitions) => partitions.len(),
            Partitions::Prefix(partitions) => partitions.len(),
        };
        let Some(bound) = closer.due(count, watermarks)? else {
            return Ok(());
        };
        let keys: Vec<&Key> = match &self.partitions {
            Partitions::Zones(partitions) => partitions.keys().collect(),
            Partitions::Prefix(partitions) => partitions.keys().collect(),
        };
        let parser = self.partition_converter.parser();
        let columns = self
            .partition_converter
            .convert_rows(keys.iter().map(|key| parser.parse(key)))?;
        // The value that closes a partition is one of the columns that tell partitions apart.
        let of_partition = Closing {
            value: over_partition(&closer.closing().value, &self.partition_by)?,
            bound: closer.closing().bound.clone(),
        };
        let rows = batch_of(&self.partition_schema, columns, count)?;
        let is_final = is_final(&of_partition, &rows, &bound)?;
        let closed: HashSet<Key> = (is_final.values().set_indices())
            .map(|position| keys[position].clone())
            .collect();
        match &mut self.partitions {
            Partitions::Zones(partitions) => partitions.retain(|key, _| !closed.contains(key)),
            Partitions::Prefix(partitions) => partitions.retain(|key, _| !closed.contains(key)),
        }
        closer.swept(count - closed.len());
        Ok(())
    }

    /// Applies what changed and emits how the first rows differ.
    pub async fn advance(&mut self, batches: Vec<ChangeBatch>, gate: &dyn Gate) -> Result<Vec<ChangeBatch>> {
        let mut changes = Changes::new();
        let mut touched: HashMap<Key, Vec<(Key, u64)>> = HashMap::new();
        for batch in &batches {
            for chunk in chunks(batch) {
                self.apply(&chunk, &mut changes, &mut touched)?;
                gate.checkpoint().await;
            }
        }
        if let Partitions::Prefix(partitions) = &mut self.partitions {
            for (partition, before) in touched {
                for first in before {
                    *changes.entry(first).or_default() -= 1;
                }
                let Some(rows) = partitions.get_mut(&partition) else {
                    continue;
                };
                for first in rows.first(&self.bounds) {
                    *changes.entry(first).or_default() += 1;
                }
                rows.forget_behind(&self.bounds);
                if rows.is_empty() {
                    partitions.remove(&partition);
                }
            }
        }
        changes.retain(|_, weight| *weight != 0);
        self.emit(changes)
    }

    /// Puts rows in and takes rows out. `touched`: the first rows of each numbered partition before its first change.
    fn apply(
        &mut self,
        batch: &ChangeBatch,
        changes: &mut Changes,
        touched: &mut HashMap<Key, Vec<(Key, u64)>>,
    ) -> Result<()> {
        let pick = |columns: &[usize]| -> Vec<ArrayRef> {
            columns
                .iter()
                .map(|column| Arc::clone(batch.rows.column(*column)))
                .collect()
        };
        let encoded = |converter: &RowConverter, columns: Vec<ArrayRef>| {
            if columns.is_empty() {
                return Ok(None);
            }
            converter
                .convert_columns(&columns)
                .map(Some)
                .map_err(OperatorError::from)
        };
        let partition_keys = encoded(&self.partition_converter, pick(&self.partition_by))?;
        let order_keys = encoded(&self.order_converter, pick(&self.order_by))?;
        let rows = encoded(&self.row_converter, batch.rows.columns()[..self.width].to_vec())?;
        let mut key = vec![];
        for row in 0..batch.num_rows() {
            let partition: &[u8] = partition_keys.as_ref().map_or(&[], |keys| keys.row(row).data());
            key.clear();
            if let Some(order) = &order_keys {
                key.extend_from_slice(order.row(row).data());
            }
            let order_length = key.len();
            if let Some(rows) = &rows {
                key.extend_from_slice(rows.row(row).data());
            }
            end_key(&mut key, order_length);
            let weight = batch.weight(row);
            match &mut self.partitions {
                Partitions::Zones(partitions) => {
                    if !partitions.contains_key(partition) {
                        partitions.insert(partition.into(), Zones::default());
                    }
                    if let Some(zones) = partitions.get_mut(partition) {
                        zones.change(&key, weight, &self.bounds, changes);
                        if zones.is_empty() {
                            partitions.remove(partition);
                        }
                    }
                }
                Partitions::Prefix(partitions) => {
                    if !partitions.contains_key(partition) {
                        partitions.insert(partition.into(), Prefix::default());
                    }
                    if let Some(prefix) = partitions.get_mut(partition) {
                        if !touched.contains_key(partition) {
                            touched.insert(partition.into(), prefix.first(&self.bounds));
                        }
                        prefix.change(&key, weight);
                    }
                }
            }
        }
        Ok(())
    }

    fn emit(&self, changes: Changes) -> Result<Vec<ChangeBatch>> {
        if changes.is_empty() {
            return Ok(vec![]);
        }
        let parser = self.row_converter.parser();
        let mut columns = self
            .row_converter
            .convert_rows(changes.keys().map(|(row, _)| parser.parse(row)))?;
        if self.with_number {
            let numbers = UInt64Array::from_iter_values(changes.keys().map(|(_, number)| *number));
            let wanted = self.schema.field(columns.len()).data_type();
            columns.push(conform(Arc::new(numbers), wanted)?);
        }
        let rows = batch_of(&self.schema, columns, changes.len())?;
        Ok(vec![ChangeBatch {
            rows,
            weights: Some(Int64Array::from_iter_values(changes.values().copied())),
        }])
    }
}

/// Bytes at the end of a key: where the order's bytes end and the row's begin.
const KEY_END: usize = size_of::<u32>();

fn end_key(key: &mut Vec<u8>, order_length: usize) {
    key.extend_from_slice(&(order_length as u32).to_le_bytes());
}

fn order_length(key: &[u8]) -> usize {
    let mut end = [0; KEY_END];
    end.copy_from_slice(&key[key.len() - KEY_END..]);
    u32::from_le_bytes(end) as usize
}

/// The bytes that order a row.
fn order_of(key: &[u8]) -> &[u8] {
    &key[..order_length(key)]
}

/// The row's own bytes.
fn row_of(key: &[u8]) -> &[u8] {
    &key[order_length(key)..key.len() - KEY_END]
}

/// Bytes of partitions: the table, the keys, and what `bytes` says of each.
fn map_bytes<T>(partitions: &HashMap<Key, T>, bytes: impl Fn(&T) -> usize) -> usize {
    let kept: usize = partitions.iter().map(|(key, rows)| key.len() + bytes(rows)).sum();
    partitions.allocation_size() + kept
}

/// A column of the input as one of the columns that tell partitions apart.
fn over_partition(value: &Arc<dyn PhysicalExpr>, partition_by: &[usize]) -> Result<Arc<dyn PhysicalExpr>> {
    let column = value.downcast_ref::<Column>();
    let position = column.and_then(|column| partition_by.iter().position(|by| *by == column.index()));
    match (column, position) {
        (Some(column), Some(position)) => Ok(Arc::new(Column::new(column.name(), position))),
        _ => Err(OperatorError::Internal(format!(
            "{value} does not tell partitions apart"
        ))),
    }
}
