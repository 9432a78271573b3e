//! One task: a stage on a partition in an epoch.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use datafusion::common::hash_utils::create_hashes_with_hasher;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_operator::error::Result;
use millrace_operator::{ErrorCounter, Inputs, Output, concat, consolidate_parts};
use millrace_planner::stage::Output as Goes;
use millrace_resource::error::ResourceError;
use millrace_resource::gate::Gate;
use millrace_resource::memory::{Charge, Use};
use millrace_schedule::id::TaskId;
use millrace_schedule::local::ReadyTask;
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::{ChangeBatch, rows_bytes};
use twox_hash::XxHash3_64;

use super::flow::{BatchId, Channel};
use super::view::{Taken, ViewInstance};
use crate::error::RuntimeError;
use crate::worker::Transport;

/// Rows for each receiving partition that batches are put together for, if that many came.
const SCATTERED_ROWS_MIN: usize = 64;

/// What a task leaves behind.
#[derive(Debug, Default)]
pub(super) struct TaskOutput {
    /// By receiving partition.
    pub exchanged: Vec<Vec<ChangeBatch>>,
    /// What changed in the view.
    pub materialized: Vec<ChangeBatch>,
    /// What went on in batches: rows, bytes.
    flowed: (u64, u64),
    left_bytes: usize,
    /// For what is left.
    pub charge: Option<Charge>,
}

impl TaskOutput {
    fn left(&self) -> impl Iterator<Item = &ChangeBatch> {
        self.exchanged.iter().flatten().chain(&self.materialized)
    }

    /// Changes that it emits.
    pub fn rows(&self) -> u64 {
        self.flowed.0 + self.left().map(|batch| batch.num_rows() as u64).sum::<u64>()
    }

    /// Memory that these take.
    pub fn bytes(&self) -> u64 {
        self.flowed.1 + self.left_bytes as u64
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

/// Opens the channel of the task's stage and has its readers run.
pub(super) type OpenChannel<'a> = dyn Fn() -> Arc<Channel> + Send + Sync + 'a;

/// A task that runs: its operators, and where their rows go.
pub(super) struct Running<'a> {
    taken: Taken,
    sink: Sink<'a>,
}

impl<'a> Running<'a> {
    /// Takes the operators of a task; none if there is nobody to take them from.
    pub fn begin(
        view: &'a ViewInstance,
        ready: &ReadyTask,
        low_water: u64,
        rows_at: Option<&'a dyn Transport>,
        open: &'a OpenChannel<'a>,
        is_alive: impl Fn() -> bool,
    ) -> Result<Option<Running<'a>>, RuntimeError> {
        let task = ready.id;
        let Some(taken) = view.take(task.stage, task.partition, is_alive)? else {
            return Ok(None);
        };
        let sink = Sink {
            view,
            task,
            generation: taken.generation,
            low_water,
            incarnation: ready.incarnation,
            rows_at,
            is_read: ready.is_read,
            has_faucet: ready.has_faucet,
            open,
            channel: None,
            sent: 0,
            held: vec![],
            held_rows: 0,
            held_bytes: 0,
            charge: view.account.charge(Use::InFlight, 0),
            output: TaskOutput::default(),
        };
        Ok(Some(Running { taken, sink }))
    }

    /// Runs the operators over an epoch's input, or a part of it.
    pub async fn run(&mut self, inputs: &mut Inputs, gate: &dyn Gate, errors: &ErrorCounter) -> Result<()> {
        (self.taken.operators)
            .run(inputs, gate, errors, &mut self.sink)
            .await
    }

    /// Charges the state of its operators, between two parts of an epoch.
    pub fn charge_state(&self) {
        let TaskId { stage, partition, .. } = self.sink.task;
        let operators = &self.taken.operators;
        self.sink
            .view
            .charge_taken(stage, partition, || operators.state_bytes());
    }

    /// Puts the rest of the rows where the stage's output says.
    pub async fn end(self) -> Result<TaskOutput> {
        let TaskId { stage, partition, .. } = self.sink.task;
        self.sink.view.put_back(stage, partition, self.taken);
        self.sink.end().await
    }
}

/// Where the rows of a task go.
struct Sink<'a> {
    view: &'a ViewInstance,
    task: TaskId,
    generation: u64,
    low_water: u64,
    incarnation: u64,
    /// The rows of the view are elsewhere, and this leads there.
    rows_at: Option<&'a dyn Transport>,
    is_read: bool,
    has_faucet: bool,
    open: &'a OpenChannel<'a>,
    /// Its rows go on in batches.
    channel: Option<Arc<Channel>>,
    /// Batches that were sent.
    sent: u64,
    held: Vec<ChangeBatch>,
    held_rows: usize,
    held_bytes: usize,
    /// For what is held, and for what is left where it is emitted at once.
    charge: Charge,
    output: TaskOutput,
}

impl Output for Sink<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        let bytes = rows_bytes(&batch.rows);
        self.held_rows += batch.num_rows();
        self.held_bytes += bytes;
        self.charge.resize(self.charge.bytes() + bytes);
        self.held.push(batch);
        if self.view.account.check().is_err() {
            return self.after_making_room().boxed();
        }
        if self.has_to_let_go() {
            self.let_go().boxed()
        } else {
            std::future::ready(Ok(())).boxed()
        }
    }
}

impl Sink<'_> {
    /// There is no memory for what is pushed: other parts of the view may leave for it.
    async fn after_making_room(&mut self) -> Result<()> {
        self.view.room().await?;
        if self.has_to_let_go() {
            self.let_go().await?;
        }
        Ok(())
    }

    /// More is held than may be.
    fn has_to_let_go(&self) -> bool {
        let limits = self.view.graph.flow;
        let is_full = match &self.channel {
            Some(_) => self.held_rows >= limits.batch_rows,
            None => self.held_rows > limits.rows(),
        };
        self.has_faucet && (is_full || self.held_bytes >= COPIED_BYTES_MAX)
    }

    fn goes(&self) -> &Goes {
        &self.view.graph.stages[self.task.stage].output
    }

    /// By receiving partition.
    fn scatter(&self, rows: Vec<ChangeBatch>) -> Result<Vec<Vec<ChangeBatch>>> {
        match self.goes() {
            Goes::Hash(columns) => scatter(rows, columns, self.view.graph.partitions),
            Goes::Single | Goes::Materialize => {
                let mut exchanged = vec![vec![]; self.view.graph.partitions];
                exchanged[0] = rows;
                Ok(exchanged)
            }
        }
    }

    /// More is held than may be: passes on what makes whole batches.
    async fn let_go(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.held);
        (self.held_rows, self.held_bytes) = (0, 0);
        if *self.goes() == Goes::Materialize {
            let done = self.materialize(held).await;
            self.charge.resize(self.output.left_bytes);
            return done;
        }
        if self.channel.is_none() {
            self.channel = Some((self.open)());
        }
        let batch_rows = self.view.graph.flow.batch_rows;
        let (mut batch, mut rows, mut bytes) = (vec![], 0, 0);
        for held in held {
            // At least one, and no larger than a batch.
            let row_bytes = (rows_bytes(&held.rows) / held.num_rows().max(1)).clamp(1, COPIED_BYTES_MAX);
            let mut start = 0;
            while start < held.num_rows() {
                let fit = ((COPIED_BYTES_MAX - bytes) / row_bytes).min(batch_rows - rows);
                let taken = fit.min(held.num_rows() - start);
                if taken > 0 {
                    batch.push(held.slice(start, taken));
                    (start, rows, bytes) = (start + taken, rows + taken, bytes + taken * row_bytes);
                }
                if taken == fit {
                    self.send(std::mem::take(&mut batch), bytes).await?;
                    (rows, bytes) = (0, 0);
                }
            }
        }
        (self.held, self.held_rows, self.held_bytes) = (batch, rows, bytes);
        self.charge.resize(bytes);
        Ok(())
    }

    async fn send(&mut self, batch: Vec<ChangeBatch>, bytes: usize) -> Result<()> {
        let Some(channel) = self.channel.clone() else {
            return Ok(());
        };
        let rows = batch.iter().map(|part| part.num_rows() as u64).sum::<u64>();
        let by_partition = self.scatter(batch)?;
        self.output.flowed.0 += rows;
        self.output.flowed.1 += bytes as u64;
        // It is not held any more.
        self.charge.resize(self.charge.bytes().saturating_sub(bytes));
        let charge = self.view.account.charge(Use::InFlight, bytes);
        let id = BatchId {
            from: self.task.partition,
            number: self.sent,
        };
        self.sent += 1;
        let sending = self.view.flow(self.task.stage).send(rows);
        let batches_max = self.view.graph.flow.batches;
        channel.send(id, batches_max, by_partition, Some(charge)).await;
        drop(sending);
        Ok(())
    }

    /// Applies rows to the view's contents.
    async fn materialize(&mut self, rows: Vec<ChangeBatch>) -> Result<()> {
        let view = self.view;
        // A row that came and went within the epoch never was in the view.
        let grows = view.graph.append_only || rows.iter().all(|batch| batch.weights.is_none());
        let rows = if grows {
            rows
        } else {
            let bytes: usize = rows.iter().map(|batch| rows_bytes(&batch.rows)).sum();
            // All of them are there twice for a while.
            if bytes > COPIED_BYTES_MAX {
                view.account.room(bytes)?;
            }
            let _copy = view.account.charge(Use::InFlight, bytes);
            consolidate_parts(rows)?
        };
        let mut batches = vec![];
        for batch in rows {
            let columns = batch.rows.columns().to_vec();
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let rows = arrow::array::RecordBatch::try_new_with_options(
                view.contents.schema.clone(),
                columns,
                &options,
            )?;
            batches.push(ChangeBatch {
                rows,
                weights: batch.weights,
            });
        }
        match self.rows_at {
            Some(_) if batches.is_empty() => {}
            Some(transport) => {
                let sent = transport.materialize(self.task, self.incarnation, batches.clone());
                // The only error is that whoever keeps the rows is gone.
                let lost = |_| ResourceError::WorkerLost(u32::MAX);
                sent.await.map_err(lost)?;
            }
            None => {
                let mut contents = view.contents.partitions[self.task.partition].write();
                if view.generation(self.task.partition) != self.generation {
                    self.output = TaskOutput::default();
                    return Ok(());
                }
                for batch in &batches {
                    contents.apply(batch, self.task.epoch, self.low_water)?;
                }
            }
        }
        for batch in batches {
            let bytes = rows_bytes(&batch.rows);
            // Nobody asks for the changes of a view that is not read; that there are some is known by the first.
            if self.is_read || self.output.materialized.is_empty() {
                self.output.left_bytes += bytes;
                self.output.materialized.push(batch);
            } else {
                self.output.flowed.0 += batch.num_rows() as u64;
                self.output.flowed.1 += bytes as u64;
            }
        }
        Ok(())
    }

    async fn end(mut self) -> Result<TaskOutput> {
        let held = std::mem::take(&mut self.held);
        if *self.goes() == Goes::Materialize {
            self.materialize(held).await?;
            self.charge.resize(self.output.left_bytes);
        } else if self.channel.is_some() {
            if !held.is_empty() {
                self.send(held, self.charge.bytes()).await?;
            }
        } else {
            self.output.exchanged = self.scatter(held)?;
            self.output.left_bytes = self.charge.bytes();
        }
        self.output.charge = Some(self.charge);
        Ok(self.output)
    }
}

/// Splits rows by a hash of their key columns.
fn scatter(batches: Vec<ChangeBatch>, columns: &[usize], partitions: usize) -> Result<Vec<Vec<ChangeBatch>>> {
    let mut scattered = vec![vec![]; partitions];
    // A batch of a few rows takes many times what they do.
    let enough = partitions * SCATTERED_ROWS_MIN;
    let (mut some, mut rows, mut bytes) = (vec![], 0, 0);
    for batch in batches {
        rows += batch.num_rows();
        bytes += rows_bytes(&batch.rows);
        some.push(batch);
        if rows >= enough || bytes >= COPIED_BYTES_MAX {
            scatter_some(std::mem::take(&mut some), columns, &mut scattered)?;
            (rows, bytes) = (0, 0);
        }
    }
    scatter_some(some, columns, &mut scattered)?;
    Ok(scattered)
}

/// Adds a batch for each partition that has some of these rows.
fn scatter_some(
    batches: Vec<ChangeBatch>,
    columns: &[usize],
    scattered: &mut [Vec<ChangeBatch>],
) -> Result<()> {
    let partitions = scattered.len();
    let Some(batch) = concat(batches)? else {
        return Ok(());
    };
    let keys: Vec<ArrayRef> = columns
        .iter()
        .map(|column| batch.rows.column(*column).clone())
        .collect();
    let hashes = partition_hash(&keys, batch.num_rows())?;
    let mut positions: Vec<Vec<u32>> = vec![vec![]; partitions];
    for (row, hash) in hashes.iter().enumerate() {
        positions[(hash % partitions as u64) as usize].push(row as u32);
    }
    for (scattered, positions) in scattered.iter_mut().zip(positions) {
        if positions.is_empty() {
            continue;
        }
        if positions.len() == batch.num_rows() {
            scattered.push(batch);
            break;
        }
        let weights = batch.weights.as_ref().map(|weights| {
            positions
                .iter()
                .map(|row| weights.value(*row as usize))
                .collect::<Vec<i64>>()
                .into()
        });
        let rows = arrow::compute::take_record_batch(&batch.rows, &UInt32Array::from(positions))?;
        scattered.push(ChangeBatch { rows, weights });
    }
    Ok(())
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

    use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn small_batches_are_scattered_together() {
        let values = |range: std::ops::Range<i64>| {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(range));
            ChangeBatch::insertions(RecordBatch::try_from_iter([("v", values)]).unwrap())
        };
        let batches: Vec<ChangeBatch> = (0..100).map(|n| values(n * 50..(n + 1) * 50)).collect();
        let scattered = scatter(batches.clone(), &[0], 16).unwrap();
        // 5,000 rows, of which 1,024 or a few more are scattered at a time.
        assert!(
            scattered.iter().all(|batches| batches.len() <= 5),
            "{scattered:?}"
        );
        let sum = |batches: &[ChangeBatch]| -> i64 {
            let columns = batches
                .iter()
                .map(|batch| batch.rows.column(0).as_primitive::<Int64Type>());
            columns.map(|column| column.values().iter().sum::<i64>()).sum()
        };
        assert_eq!(
            scattered.iter().map(|batches| sum(batches)).sum::<i64>(),
            4_999 * 2_500
        );
        assert_eq!(scatter(vec![], &[0], 16).unwrap(), vec![vec![]; 16]);
        let weighted =
            ChangeBatch::new(batches[0].rows.clone(), Some(Int64Array::from(vec![-1; 50]))).unwrap();
        let scattered = scatter(vec![weighted, batches[0].clone()], &[0], 16).unwrap();
        let weights = scattered.iter().flatten();
        let weights: i64 = weights
            .map(|batch| (0..batch.num_rows()).map(|row| batch.weight(row)).sum::<i64>())
            .sum();
        assert_eq!(weights, 0);
    }

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
