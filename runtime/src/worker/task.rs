//! One task: a stage on a partition in an epoch.

use std::hash::{BuildHasherDefault, Hasher};

use arrow::array::{ArrayRef, UInt32Array};
use datafusion::common::hash_utils::create_hashes_with_hasher;
use millrace_planner::stage::Output;
use millrace_storage::ChangeBatch;
use twox_hash::XxHash3_64;

use super::cpu::CpuGate;
use super::view::ViewInstance;
use crate::error::Result;
use crate::operator::{ErrorCounter, Inputs, consolidate};
use crate::schedule::local::TaskId;
use crate::state::row_table::arrow_error;

/// What a task leaves behind.
#[derive(Debug, Default)]
pub(super) struct TaskOutput {
    /// By receiving partition.
    pub exchanged: Vec<Vec<ChangeBatch>>,
    /// What changed in the view.
    pub materialized: Vec<ChangeBatch>,
}

impl TaskOutput {
    /// Changes that it puts out.
    pub fn rows(&self) -> u64 {
        let batches = self.exchanged.iter().flatten().chain(&self.materialized);
        batches.map(|batch| batch.num_rows() as u64).sum()
    }

    /// Memory that these take.
    pub fn bytes(&self) -> u64 {
        let batches = self.exchanged.iter().flatten().chain(&self.materialized);
        batches
            .map(|batch| batch.rows.get_array_memory_size() as u64)
            .sum()
    }

    /// The receiving partitions that have rows; partition 0 stands for a view that changed.
    pub fn filled(&self) -> Vec<u32> {
        let has_rows = |batches: &Vec<ChangeBatch>| batches.iter().any(|batch| batch.num_rows() > 0);
        if has_rows(&self.materialized) {
            return vec![0];
        }
        (0..)
            .zip(&self.exchanged)
            .filter(|(_, batches)| has_rows(batches))
            .map(|(partition, _)| partition)
            .collect()
    }
}

/// Runs the operators and puts the rows where the stage's output says.
pub(super) async fn run(
    view: &ViewInstance,
    task: TaskId,
    mut inputs: Inputs,
    gate: &CpuGate,
    errors: &ErrorCounter,
    low_water: u64,
    is_alive: impl Fn() -> bool,
) -> Result<TaskOutput> {
    let Some(mut taken) = view.take(task.stage, task.partition, is_alive)? else {
        return Ok(TaskOutput::default());
    };
    let generation = taken.generation;
    let rows = taken.operators.run(&mut inputs, gate, errors).await?;
    view.put_back(task.stage, task.partition, taken);
    match &view.graph.stages[task.stage].output {
        Output::Hash(columns) => Ok(TaskOutput {
            exchanged: scatter(&rows, columns, view.graph.partitions)?,
            materialized: vec![],
        }),
        Output::Single => {
            let mut exchanged = vec![vec![]; view.graph.partitions];
            exchanged[0] = rows;
            Ok(TaskOutput {
                exchanged,
                materialized: vec![],
            })
        }
        Output::Materialize => {
            // A row that came and went within the epoch never was in the view.
            let grows = view.graph.append_only || rows.iter().all(|batch| batch.weights.is_none());
            let rows = if grows {
                rows
            } else {
                consolidate(rows)?.into_iter().collect()
            };
            let mut contents = view.contents.partitions[task.partition].write();
            if view.generation(task.partition) != generation {
                return Ok(TaskOutput::default());
            }
            let mut materialized = vec![];
            for batch in rows {
                let columns = batch.rows.columns().to_vec();
                let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                let rows = arrow::array::RecordBatch::try_new_with_options(
                    view.contents.schema.clone(),
                    columns,
                    &options,
                )
                .map_err(arrow_error)?;
                let batch = ChangeBatch {
                    rows,
                    weights: batch.weights,
                };
                contents.apply(&batch, task.epoch, low_water)?;
                materialized.push(batch);
            }
            Ok(TaskOutput {
                exchanged: vec![],
                materialized,
            })
        }
    }
}

/// Splits rows by a hash of their key columns.
fn scatter(batches: &[ChangeBatch], columns: &[usize], partitions: usize) -> Result<Vec<Vec<ChangeBatch>>> {
    let mut scattered = vec![vec![]; partitions];
    for batch in batches {
        if batch.num_rows() == 0 {
            continue;
        }
        let keys: Vec<ArrayRef> = columns
            .iter()
            .map(|column| batch.rows.column(*column).clone())
            .collect();
        let hashes = partition_hash(&keys, batch.num_rows())?;
        let mut positions: Vec<Vec<u32>> = vec![vec![]; partitions];
        for (row, hash) in hashes.iter().enumerate() {
            positions[(hash % partitions as u64) as usize].push(row as u32);
        }
        for (partition, positions) in positions.into_iter().enumerate() {
            if positions.is_empty() {
                continue;
            }
            if positions.len() == batch.num_rows() {
                scattered[partition].push(batch.clone());
                continue;
            }
            let weights = batch.weights.as_ref().map(|weights| {
                positions
                    .iter()
                    .map(|row| weights.value(*row as usize))
                    .collect::<Vec<i64>>()
                    .into()
            });
            let rows = arrow::compute::take_record_batch(&batch.rows, &UInt32Array::from(positions))
                .map_err(arrow_error)?;
            scattered[partition].push(ChangeBatch { rows, weights });
        }
    }
    Ok(scattered)
}

/// The hash that places a key: XXH3 of each column, combined. The same on every platform and in every version, so that
/// partitions can be stored and sent.
///
/// # Errors
/// A column's type cannot be hashed.
pub fn partition_hash(keys: &[ArrayRef], rows: usize) -> Result<Vec<u64>> {
    let mut hashes = vec![0; rows];
    create_hashes_with_hasher(
        keys,
        &BuildHasherDefault::<PartitionHasher>::default(),
        &mut hashes,
    )?;
    Ok(hashes)
}

/// XXH3 chained over what is written; numbers as little-endian bytes.
#[derive(Default)]
struct PartitionHasher(u64);

impl Hasher for PartitionHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, bytes);
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.write(&value.to_le_bytes());
    }

    fn write_u128(&mut self, value: u128) {
        self.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    /// Stored state is placed by these numbers: they must never change.
    #[test]
    fn partition_hashes_are_stable() {
        let keys: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(1), Some(-7), None])),
            Arc::new(StringArray::from(vec![Some("EWR"), None, Some("")])),
        ];
        let hashes = partition_hash(&keys, 3).unwrap();
        assert_eq!(
            hashes,
            [4154814722075091648, 14838759734602465204, 18261055604391895053]
        );
    }
}
