//! The buffers between two stages: what one stage's tasks have emitted and the next one's have not taken yet.
//!
//! ```text
//!   producers            lane: a queue for each consumer          consumers
//!   task 0 --\         +-----------+-----------+-----------+       task 0
//!   task 1 ---->       |  queue 0  |  queue 1  |  queue 2  |  -->  task 1
//!   task 2 --/         +-----------+-----------+-----------+       task 2
//! ```
//!
//! Rows of producers whose order matters do not mix: then each producer has a lane of its own. A producer waits while every
//! queue of its lane is full. It does not wait for one full queue alone: its reader may be waiting for rows that have yet to
//! come through another queue of the lane (a join builds its table before it probes), so that waiting for it could wait for
//! ever. Whatever a lane takes beyond is held against the query's memory, and goes to disk when that is used up.
//!
//! A reader that is gone closes its queue; when all queues of its lane are closed, a producer ends early. A producer that
//! fails, or is dropped, fails all readers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::spill::SpillManager;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use millrace_resource::cpu::{CpuGate, TaskLabel, Waits, running_task, waits_for};
use millrace_resource::monotask::NetworkUse;
use millrace_resource::network::Network;
use millrace_storage::rows_bytes;
use parking_lot::Mutex;

/// So many times the rows that a reader takes at once make a queue full.
const FULL_TAKES: usize = 2;

/// How a stage's rows reach the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub producers: usize,
    /// One for all producers, or one for each, whose rows then keep their order.
    pub lanes: usize,
    /// Of each lane.
    pub consumers: usize,
    /// A reader waits for so many rows, or the end.
    pub rows_a_take: usize,
}

enum Piece {
    /// With their bytes, and the worker that put them out.
    Rows(RecordBatch, usize, Option<u32>),
    /// On disk.
    Spilled(Arc<dyn datafusion::execution::spill_file::SpillFile>),
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// Rows in memory.
    rows: usize,
    is_closed: bool,
    reader: Option<Waker>,
}

#[derive(Default)]
struct Lane {
    /// Producers that have not ended.
    open: usize,
    blocked: Vec<Waker>,
}

struct State {
    /// Lane by lane.
    queues: Vec<Queue>,
    lanes: Vec<Lane>,
    failure: Option<Arc<DataFusionError>>,
    reservation: MemoryReservation,
}

/// See the module.
pub struct Exchange {
    shape: Shape,
    state: Mutex<State>,
    spills: SpillManager,
    schema: SchemaRef,
    /// Workers fetch each other's rows over it; none if that takes no time.
    network: Option<Arc<Network>>,
}

/// Rows that were taken, and how many bytes and rows of them are of other workers.
type Taken = (Vec<RecordBatch>, (u64, u64));

impl Exchange {
    /// `metrics` gets what is spilled. `network`: by which workers fetch each other's rows, if that takes time.
    pub fn new(
        shape: Shape,
        schema: &SchemaRef,
        context: &TaskContext,
        metrics: &ExecutionPlanMetricsSet,
        network: Option<Arc<Network>>,
    ) -> Arc<Exchange> {
        let Shape { producers, lanes, .. } = shape;
        let producers_a_lane = producers / lanes;
        let reservation = MemoryConsumer::new("Exchange")
            .with_can_spill(true)
            .register(context.memory_pool());
        Arc::new(Exchange {
            shape,
            state: Mutex::new(State {
                queues: std::iter::repeat_with(Queue::default)
                    .take(lanes * shape.consumers)
                    .collect(),
                lanes: std::iter::repeat_with(|| Lane {
                    open: producers_a_lane,
                    blocked: vec![],
                })
                .take(lanes)
                .collect(),
                failure: None,
                reservation,
            }),
            spills: SpillManager::new(
                context.runtime_env(),
                SpillMetrics::new(metrics, 0),
                Arc::clone(schema),
            ),
            schema: Arc::clone(schema),
            network,
        })
    }

    /// The place for what a producer emits.
    pub fn producer(self: &Arc<Self>, producer: usize) -> Producer {
        Producer {
            exchange: Arc::clone(self),
            lane: if self.shape.lanes == 1 { 0 } else { producer },
            has_ended: false,
            gate: None,
        }
    }

    /// What a consumer takes from a lane.
    pub fn reader(self: &Arc<Self>, lane: usize, consumer: usize) -> Reader {
        Reader {
            exchange: Arc::clone(self),
            lane,
            queue: lane * self.shape.consumers + consumer,
            task: None,
            spilled: None,
            fetching: None,
        }
    }

    /// How the rows reach the next stage.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    fn is_full(&self, queue: &Queue) -> bool {
        let limit = FULL_TAKES * self.shape.rows_a_take;
        queue.is_closed
            || match self.shape.rows_a_take {
                // Batches count, whatever their rows.
                1 => queue.pieces.len() >= FULL_TAKES,
                _ => queue.rows >= limit,
            }
    }

    fn queues<'a>(&self, state: &'a State, lane: usize) -> &'a [Queue] {
        &state.queues[lane * self.shape.consumers..(lane + 1) * self.shape.consumers]
    }

    fn push(&self, lane: usize, consumer: usize, batch: RecordBatch, worker: Option<u32>) -> Result<()> {
        let number = lane * self.shape.consumers + consumer;
        let bytes = rows_bytes(&batch);
        let mut state = self.state.lock();
        let state_mut = &mut *state;
        let queue = &mut state_mut.queues[number];
        if queue.is_closed {
            return Ok(());
        }
        if state_mut.reservation.try_grow(bytes).is_ok() {
            queue.rows += batch.num_rows();
            queue.pieces.push_back(Piece::Rows(batch, bytes, worker));
        } else {
            // All that the queue has in memory goes into one file. Its reader waits meanwhile, so that the order stays.
            let (mut batches, mut freed) = (vec![], 0);
            let mut kept = VecDeque::new();
            for piece in queue.pieces.drain(..) {
                match piece {
                    Piece::Rows(batch, bytes, _) => {
                        freed += bytes;
                        batches.push(batch);
                    }
                    spilled => kept.push_back(spilled),
                }
            }
            batches.push(batch);
            queue.pieces = kept;
            queue.rows = 0;
            state_mut.reservation.shrink(freed);
            if let Some(file) = self.spills.spill_record_batch_and_finish(&batches, "exchange")? {
                queue.pieces.push_back(Piece::Spilled(file));
            }
        }
        let is_ready =
            queue.rows >= self.shape.rows_a_take || matches!(queue.pieces.front(), Some(Piece::Spilled(_)));
        let reader = if is_ready { queue.reader.take() } else { None };
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Ready when the lane has space; false if nobody reads it any more.
    fn poll_room(&self, lane: usize, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        let queues = self.queues(&state, lane);
        if queues.iter().all(|queue| queue.is_closed) {
            return Poll::Ready(false);
        }
        if queues.iter().all(|queue| self.is_full(queue)) {
            state.lanes[lane].blocked.push(context.waker().clone());
            waits_for(Waits::Output);
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    fn fail(&self, error: Arc<DataFusionError>) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(error);
        let readers: Vec<Waker> = (state.queues.iter_mut())
            .filter_map(|queue| queue.reader.take())
            .collect();
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    fn end(&self, lane: usize) {
        let mut state = self.state.lock();
        state.lanes[lane].open -= 1;
        let mut readers = vec![];
        if state.lanes[lane].open == 0 {
            let range = lane * self.shape.consumers..(lane + 1) * self.shape.consumers;
            readers.extend(
                state.queues[range]
                    .iter_mut()
                    .filter_map(|queue| queue.reader.take()),
            );
        }
        drop(state);
        readers.into_iter().for_each(Waker::wake);
    }

    /// What a queue has, up to as many rows as a reader takes.
    fn poll_take(&self, reader: &mut Reader, context: &Context<'_>) -> Poll<Option<Result<Taken>>> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Poll::Ready(Some(Err(DataFusionError::Shared(Arc::clone(failure)))));
        }
        let has_ended = state.lanes[reader.lane].open == 0;
        let queue = &mut state.queues[reader.queue];
        if let Some(Piece::Spilled(_)) = queue.pieces.front()
            && let Some(Piece::Spilled(file)) = queue.pieces.pop_front()
        {
            reader.spilled = Some(self.spills.read_spill_as_stream(file, None)?);
            // Where batches count, a file has taken the place of one.
            let blocked = self.unblocked(&mut state, reader.lane);
            drop(state);
            blocked.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok((vec![], (0, 0)))));
        }
        if queue.rows < self.shape.rows_a_take && !has_ended {
            queue.reader = Some(context.waker().clone());
            waits_for(Waits::Input);
            return Poll::Pending;
        }
        let (mut taken, mut rows, mut freed) = (vec![], 0, 0);
        let mut of_others = (0, 0);
        while let Some(Piece::Rows(batch, ..)) = queue.pieces.front() {
            if rows > 0 && rows + batch.num_rows() > self.shape.rows_a_take {
                break;
            }
            if let Some(Piece::Rows(batch, bytes, worker)) = queue.pieces.pop_front() {
                if worker != reader.task.map(|task| task.worker) {
                    of_others = (of_others.0 + bytes as u64, of_others.1 + batch.num_rows() as u64);
                }
                rows += batch.num_rows();
                freed += bytes;
                taken.push(batch);
            }
        }
        if taken.is_empty() && queue.pieces.is_empty() {
            return Poll::Ready(None);
        }
        queue.rows -= rows;
        state.reservation.shrink(freed);
        let blocked = self.unblocked(&mut state, reader.lane);
        drop(state);
        blocked.into_iter().for_each(Waker::wake);
        Poll::Ready(Some(Ok((taken, of_others))))
    }

    /// Those that waited for space, if there is some.
    fn unblocked(&self, state: &mut State, lane: usize) -> Vec<Waker> {
        let queues = self.queues(state, lane);
        let is_blocked =
            queues.iter().all(|queue| self.is_full(queue)) && !queues.iter().all(|queue| queue.is_closed);
        if is_blocked {
            return vec![];
        }
        std::mem::take(&mut state.lanes[lane].blocked)
    }

    fn close(&self, lane: usize, queue: usize) {
        let mut state = self.state.lock();
        let queue = &mut state.queues[queue];
        queue.is_closed = true;
        queue.rows = 0;
        let pieces = std::mem::take(&mut queue.pieces);
        let freed = (pieces.iter())
            .map(|piece| match piece {
                Piece::Rows(_, bytes, _) => *bytes,
                Piece::Spilled(_) => 0,
            })
            .sum();
        state.reservation.shrink(freed);
        let blocked = self.unblocked(&mut state, lane);
        drop(state);
        blocked.into_iter().for_each(Waker::wake);
    }
}

/// Where one task puts its rows. Dropped before [`Producer::end`], it fails the readers.
pub struct Producer {
    exchange: Arc<Exchange>,
    lane: usize,
    has_ended: bool,
    /// Of the task, once it runs: it knows why tasks are dropped.
    gate: Option<CpuGate>,
}

impl Producer {
    /// The task that emits the rows runs.
    pub fn begins(&mut self, gate: &CpuGate) {
        self.gate = Some(gate.clone());
    }

    /// Rows for a consumer, which are not waited for.
    ///
    /// # Errors
    /// They have to go to disk, and cannot.
    pub fn push(&self, consumer: usize, batch: RecordBatch) -> Result<()> {
        let task = self.gate.as_ref().and_then(CpuGate::label);
        let worker = task.map(|task| task.worker);
        self.exchange.push(self.lane, consumer, batch, worker)
    }

    /// Whether somebody reads what it emits, and nothing has failed.
    pub fn is_wanted(&self) -> bool {
        let state = self.exchange.state.lock();
        let queues = self.exchange.queues(&state, self.lane);
        state.failure.is_none() && !queues.iter().all(|queue| queue.is_closed)
    }

    /// Waits until there is space for more; false: nobody wants more.
    pub async fn room(&self) -> bool {
        std::future::poll_fn(|context| self.exchange.poll_room(self.lane, context)).await
    }

    /// All rows were pushed.
    pub fn end(mut self) {
        self.has_ended = true;
        self.exchange.end(self.lane);
    }

    /// The task has failed.
    pub fn fail(mut self, error: DataFusionError) {
        self.has_ended = true;
        self.exchange.fail(Arc::new(error));
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if !self.has_ended {
            let error = match self.gate.as_ref().and_then(CpuGate::stopped) {
                Some(error) => DataFusionError::External(Box::new(error)),
                None => DataFusionError::Internal("a task of the query was dropped before its end".into()),
            };
            self.exchange.fail(Arc::new(error));
        }
    }
}

/// What one consumer takes from one lane.
pub struct Reader {
    exchange: Arc<Exchange>,
    lane: usize,
    queue: usize,
    /// Whoever reads, once it has begun to.
    task: Option<TaskLabel>,
    spilled: Option<SendableRecordBatchStream>,
    /// Rows that are on their way.
    fetching: Option<(Vec<RecordBatch>, BoxFuture<'static, NetworkUse>)>,
}

impl Reader {
    /// The next rows, as one batch.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            if let Some((_, arrival)) = &mut self.fetching {
                waits_for(Waits::Network);
                let Poll::Ready(used) = arrival.poll_unpin(context) else {
                    return Poll::Pending;
                };
                if let Some(task) = running_task() {
                    task.used_network(used);
                }
                if let Some((batches, _)) = self.fetching.take() {
                    return Poll::Ready(Some(self.together(batches)));
                }
            }
            if let Some(spilled) = &mut self.spilled {
                match spilled.poll_next_unpin(context) {
                    Poll::Ready(None) => self.spilled = None,
                    other => return other,
                }
            }
            let exchange = Arc::clone(&self.exchange);
            if exchange.network.is_some() && self.task.is_none() {
                self.task = running_task().and_then(|task| task.label());
            }
            let (batches, (bytes, rows)) = match exchange.poll_take(self, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(taken))) => taken,
            };
            match (&exchange.network, self.task) {
                (Some(network), Some(task)) if bytes > 0 => {
                    let arrival = Arc::clone(network).fetch(task, bytes, rows).boxed();
                    self.fetching = Some((batches, arrival));
                }
                _ if batches.is_empty() => {}
                _ => return Poll::Ready(Some(self.together(batches))),
            }
        }
    }

    fn together(&self, mut batches: Vec<RecordBatch>) -> Result<RecordBatch> {
        match (batches.pop(), batches.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                batches.extend(last);
                Ok(concat_batches(&self.exchange.schema, &batches)?)
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.exchange.close(self.lane, self.queue);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use futures::poll;

    use super::*;

    /// The reader of a queue that is on disk takes it from there, and then the producer goes on.
    #[tokio::test]
    async fn room_on_disk_is_room() {
        let pool = Arc::new(GreedyMemoryPool::new(1));
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .build_arc()
            .unwrap();
        let context = SessionContext::new_with_config_rt(SessionConfig::new(), environment).task_ctx();
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let shape = Shape {
            producers: 1,
            lanes: 1,
            consumers: 1,
            rows_a_take: 1,
        };
        let metrics = ExecutionPlanMetricsSet::new();
        let exchange = Exchange::new(shape, &batch.schema(), &context, &metrics, None);
        let producer = exchange.producer(0);
        let mut reader = exchange.reader(0, 0);
        for _ in 0..FULL_TAKES {
            producer.push(0, batch.clone()).unwrap();
        }
        let mut next = async || std::future::poll_fn(|context| reader.poll_next(context)).await;
        {
            let mut room = pin!(producer.room());
            assert!(poll!(room.as_mut()).is_pending(), "the queue is full");
            for _ in 0..FULL_TAKES {
                assert_eq!(next().await.unwrap().unwrap(), batch);
            }
            let woken = tokio::time::timeout(std::time::Duration::from_secs(60), room).await;
            assert!(woken.unwrap(), "nobody has told the producer");
        }
        producer.end();
        assert!(next().await.is_none());
    }
}
