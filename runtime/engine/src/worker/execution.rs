//! How a worker runs the tasks that its local scheduler has found ready, and takes over what copies of them emitted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_operator::{ErrorCounter, Inputs, words};
use millrace_planner::stage::Output as Goes;
use millrace_resource::cpu::{CpuGate, TaskRecord, Work, running_task};
use millrace_resource::error::ResourceError;
use millrace_resource::gate::Gate;
use millrace_resource::memory::{Charge, Use};
use millrace_schedule::id::{Part as Kept, PipelineId, TaskId, WorkerId};
use millrace_schedule::local::{LocalEvent, ReadyTask};
use millrace_schedule::task::{Ended, Source};
use millrace_storage::ChangeBatch;
use parking_lot::Mutex;

use super::flow::{Batch, BatchId, Channel, FlowId, Part, Parts};
use super::shuffle::Block;
use super::task::{Running, TaskOutput};
use super::view::EpochTask;
use super::{ActivityCounts, ViewInstance, Worker};
use crate::error::{Result, RuntimeError};

/// How a task came out.
enum Outcome {
    /// What it left is kept.
    Ended(Ended),
    /// It could not fetch its input from this worker, and has done nothing.
    Unreachable(WorkerId),
    /// Nobody waits for it any more.
    Unwanted,
    /// A copy that came to nothing. The original will say why.
    Void,
}

/// The stages of which a task reads batches, and the workers on which they are.
fn flows_of(task: &ReadyTask) -> Vec<(usize, WorkerId)> {
    let flows = task.sources.iter().filter_map(|source| match source {
        Source::Flow { stage, from } => Some((*stage, *from)),
        _ => None,
    });
    flows.collect()
}

/// The gate of a task, which stops it once its view has failed.
struct ViewGate<'a> {
    gate: &'a CpuGate,
    view: &'a ViewInstance,
    /// For what its operators have collected of their input.
    held: Mutex<Charge>,
    /// Bytes of all that they have collected so far.
    collected: AtomicUsize,
}

impl ViewGate<'_> {
    fn new<'a>(gate: &'a CpuGate, view: &'a ViewInstance) -> ViewGate<'a> {
        ViewGate {
            gate,
            view,
            held: Mutex::new(view.account.charge(Use::InFlight, 0)),
            collected: AtomicUsize::new(0),
        }
    }

    /// The operators have run over their input, or a part of it.
    fn ran(&self) {
        self.held.lock().resize(0);
    }
}

impl Gate for ViewGate<'_> {
    fn checkpoint(&self) -> BoxFuture<'_, ()> {
        match self.view.has_failed() {
            // Whoever runs the task hears of it too, and drops it.
            true => std::future::pending().boxed(),
            false => self.gate.checkpoint(),
        }
    }

    fn room(&self, bytes: usize) -> Result<(), ResourceError> {
        self.view.account.room(bytes)
    }

    fn hold(&self, bytes: usize) -> BoxFuture<'_, Result<(), ResourceError>> {
        let mut held = self.held.lock();
        let all = held.bytes() + bytes;
        held.resize(all);
        drop(held);
        self.collected.fetch_add(bytes, Ordering::Relaxed);
        match self.view.account.check() {
            Ok(()) => std::future::ready(Ok(())).boxed(),
            Err(_) => self.view.room().boxed(),
        }
    }
}

/// The error of a task that was running when its view failed.
fn failed_meanwhile(view: &ViewInstance) -> RuntimeError {
    RuntimeError::ViewFailed {
        view: view.name.clone(),
        why: view.failure().unwrap_or_default(),
    }
}

/// Takes out of a task's input what waits for the rest of its stage: see [`Gathered`].
fn hold_back(
    view: &ViewInstance,
    flows: &[(usize, WorkerId)],
    inputs: &mut Inputs,
) -> BTreeMap<usize, Vec<ChangeBatch>> {
    let is_held = |stage: &usize| {
        view.graph.stages[*stage].faucet.is_none() && flows.iter().any(|(flow, _)| flow == stage)
    };
    let (held, whole) = std::mem::take(&mut inputs.exchanges)
        .into_iter()
        .partition(|(stage, _)| is_held(stage));
    inputs.exchanges = whole;
    held
}

/// Rows of stages without a faucet, which are given to operators as a whole.
struct Gathered {
    rows: BTreeMap<usize, Vec<ChangeBatch>>,
    /// By stage, the workers on which it has not ended.
    left: BTreeMap<usize, usize>,
}

impl Gathered {
    fn new(
        view: &ViewInstance,
        flows: &[(usize, WorkerId)],
        held: BTreeMap<usize, Vec<ChangeBatch>>,
    ) -> Gathered {
        let mut left = BTreeMap::new();
        for (stage, _) in flows {
            if view.graph.stages[*stage].faucet.is_none() {
                *left.entry(*stage).or_default() += 1;
            }
        }
        Gathered { rows: held, left }
    }

    /// Adds what a stage left on a worker; returns what operators may see now.
    fn add(&mut self, stage: usize, rows: Vec<ChangeBatch>) -> Option<Vec<ChangeBatch>> {
        let Some(left) = self.left.get_mut(&stage) else {
            return Some(rows);
        };
        *left -= 1;
        self.rows.entry(stage).or_default().extend(rows);
        (*left == 0).then(|| self.rows.remove(&stage)).flatten()
    }
}

impl Worker {
    pub(super) fn spawn(self: &Arc<Self>, ready: ReadyTask) {
        let worker = Arc::clone(self);
        let queued = Instant::now();
        let class = self.class(ready.pipeline, ready.gives_way);
        let record = TaskRecord::new(Work::new(class), None).for_view(ready.id.view);
        let views = self.views.read();
        let is_watched = views.get(&ready.id.view).is_some_and(|view| view.is_watched());
        drop(views);
        let record = match is_watched {
            true => record.keeping_stretches(),
            false => record,
        };
        let task = self.cpu.spawn_recorded(Arc::new(record), move |gate| {
            async move {
                let queue = queued.elapsed();
                let outcome = worker.run(&ready, &gate, queue).await;
                worker.tell(ready, outcome);
                Ok::<(), ResourceError>(())
            }
            .boxed()
        });
        task.detach();
    }

    /// Tells the local scheduler how a task came out.
    fn tell(self: &Arc<Self>, task: ReadyTask, outcome: Outcome) {
        let ReadyTask {
            pipeline,
            version,
            id,
            ..
        } = task;
        let copy_ended = |ended| LocalEvent::CopyEnded {
            pipeline,
            version,
            id,
            ended,
        };
        let event = match (outcome, task.copy_for) {
            (Outcome::Unwanted, _) | (Outcome::Void, None) => return,
            (Outcome::Ended(ended), Some(_)) => copy_ended(Some(ended)),
            (_, Some(_)) => copy_ended(None),
            (Outcome::Ended(ended), None) => LocalEvent::TaskEnded {
                pipeline,
                version,
                id,
                ended,
                is_copied: false,
            },
            (Outcome::Unreachable(lost), None) => LocalEvent::TaskFailed {
                pipeline,
                version,
                id,
                lost,
            },
        };
        self.on(event);
    }

    /// Whether what the task leaves is waited for.
    fn awaits(&self, ready: &ReadyTask) -> bool {
        self.local.lock().awaits(ready)
    }

    async fn run(self: &Arc<Self>, ready: &ReadyTask, gate: &CpuGate, queue: Duration) -> Outcome {
        let started = Instant::now();
        let id = ready.id;
        // A view that was abandoned meanwhile may be here again, as another one.
        let Some(view) = self.view(id.view, ready.incarnation) else {
            return match ready.copy_for {
                None => Outcome::Ended(Ended::default()),
                Some(_) => Outcome::Void,
            };
        };
        let _running = view.activity(id.stage, id.partition).begin(started);
        if !view.shape.stages[id.stage].is_stateful() {
            if *self.is_stalled.borrow() {
                let mut stalled = self.is_stalled.subscribe();
                // The sender is this worker's own.
                _ = stalled.wait_for(|is_stalled| !is_stalled).await;
            }
            if !self.awaits(ready) {
                return Outcome::Unwanted;
            }
        }
        let inputs = match self.inputs(&view, ready).await {
            Ok(inputs) => inputs,
            Err(lost) => return Outcome::Unreachable(lost),
        };
        let mut rows_in = inputs.rows();
        let bytes_in = inputs.bytes();
        // What is in this memory is charged to whoever left it; what came from another machine is here a second time.
        let is_elsewhere = |source: &Source| !self.transport.is_together(source.from());
        let _came =
            (ready.sources.iter().any(is_elsewhere)).then(|| view.account.charge(Use::InFlight, bytes_in));
        // Rows on which an expression fails are counted where the task is at home.
        let uncounted = ErrorCounter::new(view.graph.on_error, false);
        let errors = match ready.copy_for {
            None => &view.errors,
            Some(_) => &uncounted,
        };
        // A panic in an operator is a failure of its view, not of the worker.
        let outcome = std::panic::AssertUnwindSafe(async {
            let gate = &ViewGate::new(gate, &view);
            let turn = view.turn(id.stage, id.partition, inputs.has_more).await?;
            let output = tokio::select! {
                biased;
                () = view.until_failed() => return Err(failed_meanwhile(&view)),
                output = self.run_operators(&view, ready, inputs, &mut rows_in, gate, errors) => output?,
            };
            errors.check()?;
            let kept = match view.graph.stages[id.stage].output {
                Goes::Materialize => output.bytes() as usize,
                _ => 0,
            };
            let moved = bytes_in + gate.collected.load(Ordering::Relaxed) + kept;
            view.charge_state(id.stage, id.partition, moved);
            if view.keeps_time(id.stage) {
                self.transport.due(id, view.due(id.stage, id.partition));
            }
            if ready.is_checkpoint {
                let part = Kept {
                    view: id.view,
                    stage: id.stage,
                    partition: id.partition,
                };
                view.leave_before_image(id.stage, id.partition).await;
                let image = view.image(id.stage, id.partition)?;
                if self.is_alive() {
                    self.transport.keep_image(part, id.epoch, image).await?;
                }
            }
            // The place is given back when there is space for the next.
            let place = view.end_turn(turn, id.stage, id.partition).await;
            view.room().await?;
            drop(place);
            Ok::<_, RuntimeError>(output)
        })
        .catch_unwind()
        .await;
        let (error, is_memory) = match outcome {
            Ok(Ok(output)) => {
                let busy = gate.busy();
                let ended = Ended {
                    filled: output.filled(),
                    busy_ns: busy.as_nanos() as u64,
                    rows_in,
                    rows_out: output.rows(),
                    bytes_out: output.bytes(),
                };
                if !self.keep(&view, ready, output) {
                    return Outcome::Unwanted;
                }
                if ready.copy_for.is_none() {
                    self.note_activity(
                        &view,
                        id,
                        &ActivityCounts::of_task(rows_in, ended.rows_out, queue, busy),
                    );
                    self.note_for_watchers(&view, id, &ended, Instant::now());
                }
                return Outcome::Ended(ended);
            }
            // Batches stay away only if the worker is gone that sends them, and then the view is filled again.
            Ok(Err(RuntimeError::Resource(ResourceError::WorkerLost(_)))) => return Outcome::Unwanted,
            Ok(Err(error)) => (error.reason(), error.is_out_of_memory()),
            Err(_) => ("an operator panicked; see the log".to_owned(), false),
        };
        Parts::new(&flows_of(ready), &self.fetch_batches(ready))
            .drain()
            .await;
        if ready.copy_for.is_some() {
            return Outcome::Void;
        }
        if !view.has_failed() {
            tracing::error!(view = %view.name, stage = id.stage, partition = id.partition, epoch = id.epoch, error = words::logged(&error),
                "a view failed; the others continue");
            view.set_aside(error, is_memory);
            self.transport.failed(&view, is_memory);
        }
        Outcome::Ended(Ended::default())
    }

    /// Counts what a task did.
    fn note_activity(&self, view: &ViewInstance, id: TaskId, counts: &ActivityCounts) {
        view.activity(id.stage, id.partition).add(counts);
        self.transport.ran(view, id, counts);
    }

    /// Tells those who watch the view of the task that runs on this thread.
    fn note_for_watchers(&self, view: &ViewInstance, id: TaskId, ended: &Ended, at: Instant) {
        let Some(record) = view.is_watched().then(running_task).flatten() else {
            return;
        };
        view.note_for_watchers(|| EpochTask {
            id,
            worker: self.id,
            record: Arc::clone(&record),
            busy_ns: ended.busy_ns,
            ended: at,
            rows: ended.rows_out,
            bytes: ended.bytes_out,
        });
    }

    /// Runs a task's operators over its input: at once, or part by part where it comes in batches.
    async fn run_operators(
        self: &Arc<Self>,
        view: &ViewInstance,
        ready: &ReadyTask,
        mut inputs: Inputs,
        rows_in: &mut u64,
        gate: &ViewGate<'_>,
        errors: &ErrorCounter,
    ) -> Result<TaskOutput> {
        let id = ready.id;
        let fetch = self.fetch_batches(ready);
        let flows = flows_of(ready);
        let mut parts = Parts::new(&flows, &fetch);
        let held = hold_back(view, &flows, &mut inputs);
        let open = || self.open_channel(ready);
        let low_water = self.transport.low_water(view.id, ready.pipeline);
        view.set_low_water(low_water);
        let is_alive = || self.is_alive();
        let rows_at = (!self.transport.has_sources()).then_some(&*self.transport);
        let running = Running::begin(view, ready, low_water, rows_at, &open, is_alive)?;
        let Some(mut running) = running else {
            parts.drain().await;
            return Ok(TaskOutput::default());
        };
        running.run(&mut inputs, gate, errors).await?;
        gate.ran();
        if !inputs.has_more {
            return Ok(running.end().await?);
        }
        inputs.first = false;
        let mut gathered = Gathered::new(view, &flows, held);
        while let Some(part) = parts.next().await? {
            let (stage, rows) = match part {
                Part::Batch { stage, rows } => (stage, rows),
                // What those of its tasks left that emitted little.
                Part::End { stage, from } => {
                    let block = Block::Exchange {
                        view: id.view,
                        stage,
                        partition: id.partition,
                    };
                    let rows = self.fetch_from(from, ready, block).await?;
                    match gathered.add(stage, rows) {
                        Some(rows) => (stage, rows),
                        None => continue,
                    }
                }
            };
            *rows_in += rows.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
            inputs.exchanges.insert(stage, rows);
            running.run(&mut inputs, gate, errors).await?;
            gate.ran();
            running.charge_state();
            view.room().await?;
        }
        inputs.has_more = false;
        running.run(&mut inputs, gate, errors).await?;
        Ok(running.end().await?)
    }

    /// From now on the task's rows go on in batches: makes their channel, and has the tasks run that read it.
    fn open_channel(self: &Arc<Self>, ready: &ReadyTask) -> Arc<Channel> {
        let ReadyTask {
            pipeline,
            version,
            id,
            ..
        } = *ready;
        let channel = self.flows.open(FlowId {
            pipeline,
            epoch: id.epoch,
            view: id.view,
            stage: id.stage,
        });
        self.on(LocalEvent::TaskFlows {
            pipeline,
            version,
            id,
        });
        channel
    }

    /// How a task asks for the next batch of a stage on a worker.
    fn fetch_batches(
        self: &Arc<Self>,
        ready: &ReadyTask,
    ) -> impl Fn(usize, WorkerId, Option<BatchId>) -> BoxFuture<'static, Result<Option<Batch>>> + Send + Sync + use<>
    {
        let ReadyTask { pipeline, id, .. } = *ready;
        let worker = Arc::clone(self);
        move |stage, from, done| {
            let flow = FlowId {
                pipeline,
                epoch: id.epoch,
                view: id.view,
                stage,
            };
            if from == worker.id {
                let worker = Arc::clone(&worker);
                return async move { worker.next_batch(flow, id.partition, done).await }.boxed();
            }
            worker.transport.next_batch(from, flow, id.partition, done)
        }
    }

    /// Rows that wait on a worker, which may be this one.
    async fn fetch_from(&self, from: WorkerId, ready: &ReadyTask, block: Block) -> Result<Vec<ChangeBatch>> {
        if from == self.id {
            return self.fetch(ready.pipeline, ready.id.epoch, block);
        }
        (self.transport)
            .fetch(from, ready.pipeline, ready.id.epoch, block)
            .await
    }

    /// Keeps what a task emitted until it is fetched and released. Not so what a map emitted that nobody waits for: asked
    /// and done under one lock, so that nobody releases it in between.
    fn keep(&self, view: &ViewInstance, ready: &ReadyTask, output: TaskOutput) -> bool {
        let ReadyTask { pipeline, id, .. } = *ready;
        let is_map = !view.shape.stages[id.stage].is_stateful();
        let local = is_map.then(|| self.local.lock());
        if local.as_ref().is_some_and(|local| !local.awaits(ready)) {
            return false;
        }
        let mut shuffle = self.shuffle.lock();
        let charge = output.charge;
        if ready.copy_for.is_some() {
            shuffle.keep_copy(pipeline, id, output.exchanged, charge);
        } else if !output.exchanged.is_empty() {
            let task = (id.view, id.stage, id.partition);
            shuffle.keep_exchanged(pipeline, id.epoch, task, output.exchanged, charge);
        } else if ready.is_read && !output.materialized.is_empty() {
            let of = (id.view, id.partition);
            shuffle.keep_changes(pipeline, id.epoch, of, output.materialized, charge);
        }
        true
    }

    /// Fetches what a copy of a task of this worker emitted, and ends the task by it, unless it has ended by itself.
    pub(super) async fn take_copy(
        self: Arc<Self>,
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        from: WorkerId,
        ended: Ended,
    ) {
        let partitions = ended.filled.iter().max().map_or(0, |last| *last as usize + 1);
        let mut exchanged = vec![vec![]; partitions];
        for partition in ended.filled.iter().map(|partition| *partition as usize) {
            let block = Block::Copy { task: id, partition };
            match self.transport.fetch(from, pipeline, id.epoch, block).await {
                Ok(rows) => exchanged[partition] = rows,
                // Then the original has to do.
                Err(_) => return,
            }
        }
        let Some(view) = self.views.read().get(&id.view).cloned() else {
            return;
        };
        let bytes = usize::try_from(ended.bytes_out).unwrap_or(usize::MAX);
        let charge = Some(view.account.charge(Use::InFlight, bytes));
        {
            let local = self.local.lock();
            if !local.is_running(pipeline, id) {
                return;
            }
            let task = (id.view, id.stage, id.partition);
            self.shuffle
                .lock()
                .keep_exchanged(pipeline, id.epoch, task, exchanged, charge);
        }
        let busy = Duration::from_nanos(ended.busy_ns);
        let counts = ActivityCounts::of_task(ended.rows_in, ended.rows_out, Duration::ZERO, busy);
        self.note_activity(&view, id, &counts);
        self.on(LocalEvent::TaskEnded {
            pipeline,
            version,
            id,
            ended,
            is_copied: true,
        });
    }

    /// Fetches what a task reads, or says which worker does not answer.
    async fn inputs(&self, view: &ViewInstance, ready: &ReadyTask) -> std::result::Result<Inputs, WorkerId> {
        let id = ready.id;
        let mut inputs = Inputs {
            now: ready.time.now,
            watermarks: Arc::clone(&ready.time.watermarks),
            combiner: view.combiner(id.stage),
            is_filling: view.is_filling(),
            is_bulk: view.is_bulk(),
            has_more: !flows_of(ready).is_empty(),
            ..Inputs::default()
        };
        for source in &ready.sources {
            let (from, block) = match *source {
                Source::Cut { relation, from } => {
                    let block = Block::Cut {
                        relation,
                        partition: id.partition,
                        pieces_max: view.shape.stages[id.stage].pieces_max,
                    };
                    (from, block)
                }
                Source::Exchange { stage, from } => (
                    from,
                    Block::Exchange {
                        view: id.view,
                        stage,
                        partition: id.partition,
                    },
                ),
                Source::Changes {
                    view,
                    partition,
                    from,
                } => (from, Block::Changes { view, partition }),
                // They come while the task runs.
                Source::Flow { .. } => continue,
            };
            let rows = self.fetch_from(from, ready, block).await.map_err(|_| from)?;
            match source {
                Source::Exchange { stage, .. } => inputs.exchanges.entry(*stage).or_default().extend(rows),
                _ => inputs.source.extend(rows),
            }
        }
        inputs.first = view.is_fixed(id.stage) && view.take_first(id.stage);
        if inputs.first {
            self.transport.emitted_fixed_rows(view, id.stage);
        }
        Ok(inputs)
    }
}
