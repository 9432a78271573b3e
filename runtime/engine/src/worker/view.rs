//! A view on a worker: its stages' operators with their state, and its contents.

mod elsewhere;
mod eviction;
mod watching;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use millrace_operator::{Combiner, ErrorCounter, OperatorImage, OperatorInstance};
use millrace_planner::{RelationId, StageGraph};
use millrace_resource::memory::{Account, Holder, Memory, StateCharge};
use millrace_resource::spill::state::Spill;
use millrace_schedule::id::WorkerId;
use millrace_schedule::message::EpochTime;
use millrace_schedule::template::{StageInput, ViewShape, is_reduce};
use millrace_state::row_table::{RowTable, TableImage, make_indexes};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::error::{Result, RuntimeError};
use crate::worker::activity::{Activity, Filled};
use crate::worker::flow::FlowMeter;
use eviction::Eviction;
pub(crate) use eviction::{PARTITIONS_DIVIDED, partitions_divided};
pub(super) use watching::EpochTask;
pub(crate) use watching::Watch;
use watching::Watchers;

/// A view to make.
#[derive(Clone)]
pub struct ViewSpec {
    pub id: RelationId,
    pub name: String,
    pub graph: StageGraph,
    /// From which another process makes the same graph; none if nobody can.
    pub definition: Option<Arc<[u8]>>,
}

/// The rows of a view, partition by partition.
#[derive(Debug)]
pub struct ViewContents {
    pub schema: SchemaRef,
    pub key: Option<Vec<usize>>,
    pub partitions: Vec<RwLock<RowTable>>,
}

/// The operators of a task, and how often their partition had been lost when they were taken.
pub(super) struct Taken {
    pub operators: OperatorInstance,
    pub generation: u64,
}

/// Where the operators of a part are.
enum Slot {
    /// With a task, or lost.
    Empty,
    Here(Box<OperatorInstance>),
    /// On disk, because memory is short.
    Away(OperatorImage),
}

impl Slot {
    fn state_bytes(&self) -> usize {
        match self {
            Slot::Here(operators) => operators.state_bytes(),
            Slot::Away(image) => image.memory_bytes(),
            Slot::Empty => 0,
        }
    }
}

/// What a task keeps, as it was after an epoch.
#[derive(Debug)]
pub struct Image {
    pub operators: Option<OperatorImage>,
    /// Of the last stage: the rows of the view.
    pub contents: Option<TableImage>,
}

fn empty_contents(graph: &StageGraph, schema: &SchemaRef) -> Result<RowTable> {
    let identity = (!graph.append_only).then(|| match &graph.key {
        Some(key) if !key.is_empty() => key.clone(),
        _ => (0..schema.fields().len()).collect(),
    });
    let mut table = RowTable::new(Arc::clone(schema), identity);
    if let Some(key) = graph.key.as_ref().filter(|key| !key.is_empty()) {
        table.add_index(key.clone())?;
    }
    Ok(table)
}

/// See the module.
pub struct ViewInstance {
    pub id: RelationId,
    pub name: String,
    pub graph: StageGraph,
    /// See [`ViewSpec::definition`].
    pub definition: Option<Arc<[u8]>>,
    pub shape: Arc<ViewShape>,
    /// For each stage, for each partition: the operators with their state. Maps have none and are made for each task.
    reduces: Vec<Vec<Mutex<Slot>>>,
    /// For each partition, how often it was lost: a task that began before has no business with what is there after.
    generations: Vec<AtomicU64>,
    losses: AtomicU64,
    /// For each partition, whether its rows were lost and are not back yet.
    are_rows_lost: Vec<AtomicBool>,
    /// Bytes that workers of other processes keep of it, in memory and on disk.
    elsewhere: Mutex<BTreeMap<WorkerId, (u64, u64)>>,
    /// The version of the last template that workers here were told and that has the view.
    template: AtomicU64,
    pub contents: Arc<ViewContents>,
    pub errors: ErrorCounter,
    failure: Mutex<Option<String>>,
    /// It failed because memory ran out.
    is_out_of_memory: AtomicBool,
    /// Tasks of it that run are to end.
    has_failed: watch::Sender<bool>,
    /// What it holds.
    pub account: Arc<Account>,
    /// Where its state goes when memory is short, if it goes anywhere.
    spill: Option<Arc<Spill>>,
    /// For each stage, for each partition: its state.
    charges: Vec<Vec<StateCharge>>,
    /// Whether it waits for rows that existed before it.
    is_filling: AtomicBool,
    /// Whether the rows that existed before it are brought to it; until then nothing of it is seen.
    is_bulk: AtomicBool,
    /// For each stage, whether its fixed rows are still to come.
    first: Vec<AtomicBool>,
    /// For each stage, whether it pays to combine rows before the exchange.
    combiners: Vec<Arc<Combiner>>,
    /// For each stage, for each partition.
    activity: Vec<Vec<Activity>>,
    /// Of its back-fill, when that has ended.
    filled: OnceLock<Filled>,
    /// For each stage, what went on in batches.
    flows: Vec<FlowMeter>,
    /// Which of its state is on disk.
    eviction: Eviction,
    watchers: Watchers,
    /// See [`ViewInstance::freshness`].
    freshness: Mutex<Option<Duration>>,
}

impl ViewInstance {
    /// Operators with empty state and empty contents.
    ///
    /// # Errors
    /// The plan asks for an operator that cannot be built.
    pub fn new(
        spec: ViewSpec,
        incarnation: u64,
        memory: &Arc<Memory>,
        spill: Option<Arc<Spill>>,
    ) -> Result<Self> {
        let ViewSpec {
            id,
            name,
            graph,
            definition,
        } = spec;
        let account = memory.account(Holder::Relation(id), &format!("view \"{name}\""));
        account.set_name(format!("view \"{name}\""));
        let awaits_all = graph.awaits_all();
        let mut reduces = vec![];
        for stage in &graph.stages {
            let mut instances = vec![];
            if is_reduce(&stage.root) {
                for partition in 0..graph.partitions {
                    let operators = OperatorInstance::new(&stage.root, partition)?;
                    instances.push(Mutex::new(Slot::Here(Box::new(operators))));
                }
            } else {
                // Built once here so that a plan that cannot run is refused now.
                OperatorInstance::new(&stage.root, 0)?;
            }
            reduces.push(instances);
        }
        let schema = Arc::clone(&graph.schema);
        let mut partitions = vec![];
        for _ in 0..graph.partitions {
            partitions.push(RwLock::new(empty_contents(&graph, &schema)?));
        }
        let generations = (0..graph.partitions).map(|_| AtomicU64::new(0)).collect();
        let first = graph.stages.iter().map(|_| AtomicBool::new(true)).collect();
        let contents = Arc::new(ViewContents {
            schema,
            key: graph.key.clone(),
            partitions,
        });
        let shape = Arc::new(ViewShape::of(id, incarnation, &graph));
        let freshness = Mutex::new(graph.freshness_us.map(Duration::from_micros));
        Ok(ViewInstance {
            id,
            name,
            definition,
            shape,
            reduces,
            generations,
            losses: AtomicU64::new(0),
            are_rows_lost: (0..graph.partitions).map(|_| AtomicBool::new(false)).collect(),
            elsewhere: Mutex::default(),
            template: AtomicU64::new(0),
            contents,
            errors: ErrorCounter::new(graph.on_error, graph.keeps_errors),
            failure: Mutex::default(),
            is_out_of_memory: AtomicBool::new(false),
            has_failed: watch::Sender::new(false),
            eviction: Eviction::new(&graph, &account),
            watchers: Watchers::default(),
            charges: (graph.stages.iter())
                .map(|_| {
                    (0..graph.partitions)
                        .map(|_| StateCharge::new(&account))
                        .collect()
                })
                .collect(),
            account,
            spill,
            is_filling: AtomicBool::new(awaits_all),
            combiners: graph.stages.iter().map(|_| Arc::default()).collect(),
            activity: (graph.stages.iter())
                .map(|_| (0..graph.partitions).map(|_| Activity::default()).collect())
                .collect(),
            flows: graph.stages.iter().map(|_| FlowMeter::default()).collect(),
            graph,
            is_bulk: AtomicBool::new(false),
            first,
            filled: OnceLock::new(),
            freshness,
        })
    }

    /// Whether a stage is the one that puts out the rows of the view.
    pub(super) fn is_last(&self, stage: usize) -> bool {
        stage + 1 == self.graph.stages.len()
    }

    /// Whether a stage makes rows out of nothing.
    pub fn is_fixed(&self, stage: usize) -> bool {
        self.shape.stages[stage].input == StageInput::Fixed
    }

    /// Takes the operators of a partition for one task, if its worker is alive; a map's are built again.
    pub(super) fn take(
        &self,
        stage: usize,
        partition: usize,
        is_alive: impl Fn() -> bool,
    ) -> Result<Option<Taken>> {
        let slot = self.reduces[stage].get(partition);
        // A worker dies before its partitions are lost: one that lives, seen under the lock, has what is here.
        let mut slot = slot.map(Mutex::lock);
        let generation = self.generation(partition);
        if !is_alive() {
            return Ok(None);
        }
        let operators = match &mut slot {
            Some(slot) => match std::mem::replace(&mut **slot, Slot::Empty) {
                Slot::Here(operators) => Some(*operators),
                other => {
                    **slot = other;
                    None
                }
            },
            None => Some(OperatorInstance::new(&self.graph.stages[stage].root, partition)?),
        };
        Ok(operators.map(|operators| Taken {
            operators,
            generation,
        }))
    }

    /// Brings a reduce's operators back, unless the partition was lost meanwhile.
    pub(super) fn put_back(&self, stage: usize, partition: usize, taken: Taken) {
        if let Some(instance) = self.reduces[stage].get(partition) {
            let mut instance = instance.lock();
            if self.generation(partition) == taken.generation {
                *instance = Slot::Here(Box::new(taken.operators));
            }
        }
    }

    /// How often a partition was lost.
    pub(super) fn generation(&self, partition: usize) -> u64 {
        self.generations[partition].load(Ordering::Acquire)
    }

    /// How often any was.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Drops a partition with all its state: its worker is gone. What still runs there can do nothing to what comes after.
    ///
    /// # Errors
    /// The contents cannot be made, which they could before.
    pub fn lose(&self, partition: usize) -> Result<()> {
        self.losses.fetch_add(1, Ordering::AcqRel);
        self.generations[partition].fetch_add(1, Ordering::AcqRel);
        for instances in &self.reduces {
            if let Some(instance) = instances.get(partition) {
                *instance.lock() = Slot::Empty;
            }
        }
        let mut empty = empty_contents(&self.graph, &self.contents.schema)?;
        {
            let mut contents = self.contents.partitions[partition].write();
            for columns in contents.indexed_columns() {
                empty.add_index(columns)?;
            }
            *contents = empty;
        }
        // A stage in which all rows meet puts them into the first partition.
        let last = self.shape.stages.last();
        let has_rows = last.is_some_and(|last| self.shape.partitions_of(last).contains(&partition));
        self.are_rows_lost[partition].store(has_rows, Ordering::Release);
        self.charges.iter().for_each(|stage| stage[partition].set(0));
        self.eviction.lose(partition);
        Ok(())
    }

    /// Charges the state of a stage's task on a partition, to which so many bytes of changes came.
    pub(crate) fn charge_state(&self, stage: usize, partition: usize, bytes: usize) {
        if self.is_stateful(stage) {
            self.charges[stage][partition].moved(bytes, || self.part_bytes(stage, partition));
        }
    }

    /// The same while a task has the operators; `measure` tells the bytes of their state.
    pub(super) fn charge_taken(&self, stage: usize, partition: usize, measure: impl FnOnce() -> usize) {
        let contents = || self.contents_bytes(stage, partition);
        self.charges[stage][partition].moved(0, || measure() + contents());
    }

    /// Whether tasks of the stage keep something: keyed state, or the rows of the view.
    fn is_stateful(&self, stage: usize) -> bool {
        stage + 1 == self.graph.stages.len() || !self.reduces[stage].is_empty()
    }

    /// The state of a stage's task on a partition, for the checkpoint store. The task is not running.
    pub(crate) fn image(&self, stage: usize, partition: usize) -> Result<Image> {
        let operators = match self.reduces[stage].get(partition) {
            Some(instance) => match &mut *instance.lock() {
                Slot::Here(operators) => Some(operators.image()?),
                Slot::Away(image) => Some(image.clone()),
                Slot::Empty => None,
            },
            None => None,
        };
        let is_last = stage + 1 == self.graph.stages.len();
        let contents = is_last.then(|| self.contents.partitions[partition].write().image());
        Ok(Image { operators, contents })
    }

    /// Puts in place what [`ViewInstance::image`] made, apart from the view's rows.
    ///
    /// # Errors
    /// The image is not one of this plan.
    pub(crate) fn restore(
        &self,
        stage: usize,
        partition: usize,
        image: &Image,
        is_alive: impl Fn() -> bool,
    ) -> Result<()> {
        if let (Some(instance), Some(operators)) = (self.reduces[stage].get(partition), &image.operators) {
            let restored = if operators.is_spilled() {
                Slot::Away(operators.clone())
            } else {
                let mut restored = OperatorInstance::new(&self.graph.stages[stage].root, partition)?;
                restored.restore(operators)?;
                Slot::Here(Box::new(restored))
            };
            // As in `take`: a worker that died has nothing to put here.
            let mut instance = instance.lock();
            if is_alive() {
                *instance = restored;
            }
        }
        self.measure(stage, partition);
        Ok(())
    }

    /// Whether a reduce has nothing to do in an epoch that brings no input, at its time.
    pub(super) fn idle_without_input(&self, stage: usize, partition: usize, time: &EpochTime) -> bool {
        self.reduces[stage]
            .get(partition)
            .is_none_or(|instance| match &*instance.lock() {
                Slot::Empty => true,
                Slot::Here(operators) => {
                    operators.idle_without_input(self.is_bulk())
                        && !operators.is_due(time.now, &time.watermarks)
                }
                Slot::Away(image) => {
                    let waits = image.waits();
                    waits.idle_without_input(self.is_bulk()) && waits.due.is_none_or(|due| due > time.now)
                }
            })
    }

    /// Whether the stage's output can change by time alone.
    pub(super) fn keeps_time(&self, stage: usize) -> bool {
        self.graph.stages[stage].root.keeps_time()
    }

    /// When the output of a partition next changes without input.
    pub(crate) fn due(&self, stage: usize, partition: usize) -> Option<i64> {
        match &*self.reduces[stage].get(partition)?.lock() {
            Slot::Empty => None,
            Slot::Here(operators) => operators.due(),
            Slot::Away(image) => image.waits().due,
        }
    }

    /// Whether the fixed rows of a stage are still to come.
    pub fn is_first(&self, stage: usize) -> bool {
        self.first[stage].load(Ordering::Relaxed)
    }

    /// True once for each stage.
    pub(crate) fn take_first(&self, stage: usize) -> bool {
        self.first[stage].swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.is_filling.load(Ordering::Acquire)
    }

    /// The rows that existed before it are to be brought to it.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub fn begin_bulk(&self) -> Result<()> {
        self.is_bulk.store(true, Ordering::Release);
        let mut partitions = self.contents.partitions.iter();
        Ok(partitions.try_for_each(|partition| partition.write().set_lazy(true))?)
    }

    pub fn is_bulk(&self) -> bool {
        self.is_bulk.load(Ordering::Acquire)
    }

    /// What existed when the view was begun was brought to it, and it is at rest: the next epoch emits what was postponed.
    pub fn end_bulk(&self) {
        self.is_bulk.store(false, Ordering::Release);
    }

    /// Brings the contents' indexes up to date after the view was filled.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub fn index_contents(&self, partition: usize) -> Result<()> {
        Ok(self.contents.partitions[partition].write().set_lazy(false)?)
    }

    /// Makes the indexes of its rows that it lacks after it was restored.
    ///
    /// # Errors
    /// A column cannot be hashed.
    pub(crate) fn make_indexes(&self, partition: usize) -> Result<()> {
        Ok(make_indexes(&self.contents.partitions[partition])?)
    }

    /// All rows that existed before the view were brought to it, and it is at rest.
    pub fn end_filling(&self) {
        self.is_filling.store(false, Ordering::Release);
    }

    /// All of its state was restored from a checkpoint of the process before: it goes on from there. `failed_rows`: on so
    /// many an expression had failed.
    pub fn begin_restored(&self, failed_rows: u64) {
        self.end_filling();
        self.errors.set_rows(failed_rows);
        for first in &self.first {
            first.store(false, Ordering::Relaxed);
        }
    }

    /// Fails the view: reading it gives the error until it is dropped.
    pub fn fail(&self, why: String) {
        self.failure.lock().get_or_insert(why);
    }

    /// As [`ViewInstance::fail`], of one that may have failed before: this is why it stays so.
    pub fn fail_for_good(&self, why: String) {
        *self.failure.lock() = Some(why);
    }

    /// As [`ViewInstance::fail`], and drops what the view keeps. `is_memory`: there was no memory for it.
    pub fn set_aside(&self, why: String, is_memory: bool) {
        if is_memory && self.failure().is_none() {
            self.is_out_of_memory.store(true, Ordering::Release);
            // One that is rebuilt with more partitions has not failed for good.
            if !self.can_be_divided() {
                self.account.memory().note_view_failed();
            }
        }
        self.fail(why);
        self.has_failed.send_replace(true);
        for partition in 0..self.contents.partitions.len() {
            if let Err(error) = self.lose(partition) {
                tracing::error!(view = %self.name, %error, "the contents of a failed view cannot be dropped");
            }
        }
    }

    /// Resolves when it has failed.
    pub(super) async fn until_failed(&self) {
        let mut has_failed = self.has_failed.subscribe();
        // The sender is the view's own.
        _ = has_failed.wait_for(|has_failed| *has_failed).await;
    }

    /// Whether it has failed.
    pub(super) fn has_failed(&self) -> bool {
        *self.has_failed.borrow()
    }

    /// The error of whoever makes the view, if it failed.
    pub fn failed(&self) -> Option<RuntimeError> {
        let why = self.failure()?;
        Some(if self.is_out_of_memory.load(Ordering::Acquire) {
            DataFusionError::ResourcesExhausted(why).into()
        } else {
            RuntimeError::ViewFailed {
                view: self.name.clone(),
                why,
            }
        })
    }

    /// How old what readers see may be; `default`: where the view does not say it. None: it is to be as fresh as can be.
    pub fn freshness_target(&self, default: Option<Duration>) -> Option<Duration> {
        let target = self.freshness().or(default);
        target.filter(|target| !target.is_zero())
    }

    /// What the view itself says of that: zero, that it is to be as fresh as can be.
    pub fn freshness(&self) -> Option<Duration> {
        *self.freshness.lock()
    }

    /// Changes it. Cutters are to be told.
    pub(crate) fn set_freshness(&self, target: Option<Duration>) {
        *self.freshness.lock() = target;
    }

    /// Why the view failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Bytes of keyed state and contents in this process.
    pub fn state_bytes(&self) -> usize {
        let operators: usize = self
            .reduces
            .iter()
            .flatten()
            .map(|instance| instance.lock().state_bytes())
            .sum();
        operators
            + self
                .contents
                .partitions
                .iter()
                .map(|table| table.read().memory_bytes())
                .sum::<usize>()
    }

    /// Bytes of what a stage's task keeps on a partition; of the last stage, with the rows of the view.
    pub(super) fn part_bytes(&self, stage: usize, partition: usize) -> usize {
        let instance = self.reduces[stage].get(partition);
        let operators = instance.map_or(0, |instance| instance.lock().state_bytes());
        operators + self.contents_bytes(stage, partition)
    }

    /// Bytes of the view's rows on a partition, if the stage is the last one.
    fn contents_bytes(&self, stage: usize, partition: usize) -> usize {
        let is_last = stage + 1 == self.graph.stages.len();
        let contents = is_last.then(|| self.contents.partitions[partition].read().memory_bytes());
        contents.unwrap_or(0)
    }

    /// Rows of the view now.
    pub fn rows(&self) -> usize {
        self.contents
            .partitions
            .iter()
            .map(|table| table.read().live_rows())
            .sum()
    }
}
