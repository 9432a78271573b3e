//! The handle by which the server uses the runtime, and the loop that joins driver and worker.

pub(crate) mod backfill;
mod backpressure;
mod decisions;
pub(crate) mod definitions;
pub(crate) mod durable;
pub(crate) mod follow;
mod machines;
mod memory;
mod queries;
mod relations;
mod seen_through;
pub mod testing;
mod transport;
mod visible;
pub(crate) mod watching;
mod workers;
pub(crate) mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use futures::future::BoxFuture;
use millrace_operator::CombinerCounts;
use millrace_planner::RelationId;
use millrace_resource::cpu::{CpuTimes, TaskStatus};
use millrace_resource::disk::Disks;
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::running::Running;
use millrace_resource::spill::query::SpillFiles;
use millrace_resource::spill::state::SpillOptions;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::queue::Patience;
use millrace_schedule::driver::{CheckpointPolicy, Event, HEARTBEAT_NS, PipelineRecord, Spread};
use millrace_schedule::group_size::GroupSize;
use millrace_storage::{Checkpoints, LogStore};
use parking_lot::RwLock;

use self::backfill::Jobs;
pub use self::backpressure::{FeedStatus, Lack};
use self::decisions::Decisions;
use self::durable::Checkpointing;
use self::durable::writer::{CheckpointRecord, CheckpointTotals, Durable};
pub use self::relations::{SourceKind, SourceSpec};
pub use self::workers::WorkerStatus;
use self::write::Writes;
use crate::checkpoint::encode::Slices;
use crate::clock::{Clock, SystemClock};
use crate::cluster::Cluster;
use crate::error::{Result, RuntimeError};
use crate::feed::{FeedLimits, Taken};
use crate::machine::Machine;
use crate::query::{QUERY_PARTITION_ROWS, Queries};
use crate::relation::Relation;
use crate::timers::Timers;
use crate::versions::{UnderWay, Versions};
use crate::worker::flow::FlowStatus;
use crate::worker::{ActivityCounts, Filled};
use crate::workers::{CutTimes, Workers};

/// How the runtime is laid out.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// CPU slots of a worker.
    pub cores: usize,
    /// Workers at the start.
    pub workers: usize,
    /// What dates epochs.
    pub clock: Arc<dyn Clock>,
    /// How many epochs a group has.
    pub group_size: GroupSize,
    /// When epochs are cut.
    pub cuts: CutTimes,
    /// When the state of views is put into the checkpoint store, for when a worker is lost.
    pub checkpoints: CheckpointPolicy,
    /// Where checkpoints are that outlive the process, if there are any, and how often there is one (`None`: only when asked
    /// for).
    pub durable: Option<Arc<Checkpoints>>,
    pub checkpoint_interval: Option<Duration>,
    /// Over how many workers the views of a pipeline are spread.
    pub spread: Spread,
    /// The time between two heartbeats of a worker; one that misses several is held to be lost.
    pub heartbeat_every: Duration,
    /// Rows of a relation that make one partition of a query that reads it.
    pub query_partition_rows: usize,
    /// How the slots are shared between streams, interactive queries and batch work.
    pub policy: SchedulerPolicy,
    /// How long work may be kept waiting for more urgent work.
    pub patience: Patience,
    /// The memory of the process, or what there is of it for this runtime.
    pub memory: Arc<Memory>,
    /// Where state of views goes when memory is short. `None`: a view that needs more than there is fails.
    pub spill: Option<SpillOptions>,
    /// How much may wait for the epochs of a pipeline, before its sources wait.
    pub feed_limits: FeedLimits,
    /// Where it is noted which views run, for the case that the process dies in one.
    pub running: Option<Arc<Running>>,
}

impl RuntimeOptions {
    /// One worker of so many CPU slots, and the machine's clock.
    pub fn new(cores: usize) -> Self {
        RuntimeOptions {
            cores,
            workers: 1,
            clock: Arc::new(SystemClock),
            group_size: GroupSize::default(),
            cuts: CutTimes::default(),
            checkpoints: CheckpointPolicy::default(),
            durable: None,
            checkpoint_interval: None,
            spread: Spread::default(),
            heartbeat_every: Duration::from_nanos(HEARTBEAT_NS),
            query_partition_rows: QUERY_PARTITION_ROWS,
            policy: SchedulerPolicy::default(),
            patience: Patience::default(),
            memory: Memory::new(None, Resident::Unknown),
            spill: None,
            feed_limits: FeedLimits::default(),
            running: None,
        }
    }
}

/// A pipeline as operators see it.
#[derive(Debug, Clone)]
pub struct PipelineStatus {
    pub pipeline: PipelineRecord,
    pub under_way: Option<UnderWay>,
    /// Writes that wait for their epoch.
    pub writes_waiting: usize,
}

/// A view as operators see it.
#[derive(Debug, Clone)]
pub struct ViewStatus {
    pub relation: RelationId,
    pub name: String,
    pub rows: usize,
    pub state_bytes: usize,
    /// Bytes of its state that are on disk because memory is short; they are not in `state_bytes`.
    pub on_disk_bytes: usize,
    /// Rows on which an expression failed, and the last message.
    pub expression_errors: u64,
    pub last_expression_error: Option<String>,
    /// Why the view failed, if it did.
    pub failure: Option<String>,
    /// For each stage that combines rows before an exchange, what became of them.
    pub combiners: Vec<(usize, CombinerCounts)>,
    /// For each stage, for each partition, what its tasks have done.
    pub activity: Vec<Vec<ActivityCounts>>,
    /// What of that was for the rows that existed before it.
    pub filled: Option<Filled>,
    /// What stages that may multiply rows emitted in batches.
    pub flows: Vec<FlowStatus>,
    /// How old what readers see may be, by the view or by the server's setting; none: it is to be as fresh as can be.
    pub freshness_target: Option<Duration>,
}

/// See the module. Clones share the runtime.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) engine: Arc<Engine>,
}

/// What the runtime is made of.
pub(crate) struct Engine {
    pub options: RuntimeOptions,
    pub logs: Arc<LogStore>,
    pub machine: Arc<Machine>,
    pub workers: Arc<Workers>,
    pub queries: Arc<Queries>,
    pub versions: Arc<Versions>,
    pub timers: Timers,
    pub relations: RwLock<HashMap<RelationId, Arc<Relation>>>,
    pub writes: Writes,
    pub decisions: Decisions,
    pub checkpoints: Checkpointing,
    pub jobs: Jobs,
    pub cluster: Cluster,
}

impl Runtime {
    /// Starts the cpu slots. Must be called on a tokio runtime, which then serves the waiting for files.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(options: RuntimeOptions, logs: Arc<LogStore>) -> Result<Runtime> {
        let spill = options.spill.as_ref();
        let machine = Machine::start(options.cores, &options.memory, spill, logs.directory())?;
        let machine = Arc::new(machine);
        let device = Arc::downgrade(machine.data());
        logs.set_device(device);
        let policy = (options.policy, options.patience);
        let workers = Workers::new(&machine, options.running.clone(), policy, options.cuts);
        let queries = Queries::start(&machine, &workers, options.query_partition_rows)?;
        let checkpoints = Checkpointing::new(options.durable.clone(), options.checkpoint_interval);
        let engine = Arc::new(Engine {
            logs,
            queries,
            versions: Versions::new(),
            timers: Timers::new(&options.clock, &machine.io, &workers, checkpoints.time()),
            relations: RwLock::default(),
            writes: Writes::default(),
            decisions: Decisions::default(),
            checkpoints,
            jobs: Jobs::default(),
            cluster: Cluster::default(),
            workers,
            machine,
            options,
        });
        if let Some(checkpoints) = &engine.options.durable {
            checkpoints.set_files(|files| engine.machine.files(files))?;
        }
        let runtime = Runtime { engine };
        runtime
            .engine
            .post(Event::GroupSize(runtime.engine.options.group_size));
        runtime
            .engine
            .post(Event::Checkpoints(runtime.engine.options.checkpoints));
        runtime.set_spread(runtime.engine.options.spread);
        for _ in 0..runtime.engine.options.workers.max(1) {
            runtime.add_worker()?;
        }
        runtime.engine.start_heartbeats();
        runtime.engine.watch_memory();
        Ok(runtime)
    }

    /// How often there are checkpoints that outlive the process from now on; `None`: only when asked for.
    pub fn set_checkpoint_interval(&self, interval: Option<Duration>) {
        if let Some(durable) = &self.engine.checkpoints.durable {
            durable.set_interval(interval);
        }
    }

    /// Puts all that is committed at this moment into checkpoints that outlive the process; returns when that is so, or when
    /// it is known that it cannot be.
    pub async fn checkpoint(&self) {
        if let Some(durable) = &self.engine.checkpoints.durable {
            durable.request().await;
        }
    }

    /// What was written to checkpoints since the start.
    pub fn checkpoint_totals(&self) -> CheckpointTotals {
        let durable = self.engine.checkpoints.durable.as_ref();
        durable.map_or_else(CheckpointTotals::default, |durable| durable.totals())
    }

    /// The last checkpoints that were written, the newest last.
    pub fn checkpoint_records(&self) -> Vec<CheckpointRecord> {
        let durable = self.engine.checkpoints.durable.as_ref();
        durable.map_or(vec![], |durable| durable.records())
    }

    /// Has a view's stages combine rows before exchanges where that pays, as they do at first, or never: for measurements.
    pub fn set_combining(&self, view: RelationId, is_on: bool) {
        self.engine.workers.set_combining(view, is_on);
    }

    /// How old what readers of a view see may be from now on; zero: it is to be as fresh as can be; none: as the cut times say.
    ///
    /// # Errors
    /// There is no such view.
    pub fn set_freshness(&self, view: RelationId, target: Option<Duration>) -> Result<()> {
        let found = self
            .engine
            .view(view)
            .ok_or(RuntimeError::UnknownRelation(view))?;
        found.set_freshness(target);
        self.engine.workers.retime();
        Ok(())
    }

    /// How many epochs groups have from the next one on.
    pub fn set_group_size(&self, group_size: GroupSize) {
        self.engine.post(Event::GroupSize(group_size));
    }

    /// Over how many workers pipelines are spread from now on.
    pub fn set_spread(&self, spread: Spread) {
        self.engine.post(Event::Spread(spread));
    }

    /// When epochs are cut from now on.
    pub fn set_cut_times(&self, cuts: CutTimes) {
        self.engine.workers.set_cut_times(cuts);
    }

    /// The time that the next epoch would have, in microseconds since 1970-01-01 00:00 UTC; never less than before.
    pub fn now(&self) -> i64 {
        self.engine.timers.now()
    }

    /// Resolves when the clock has reached `time`, in microseconds since 1970-01-01 00:00 UTC.
    pub fn clock_reaches(&self, time: i64) -> BoxFuture<'static, ()> {
        self.engine.timers.clock_reaches(time)
    }

    /// Waits until every view is as it is at this moment or later: rows whose time has come are there, or gone.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn follow_clock(&self) -> Result<()> {
        let now = self.now();
        let mut progress = self.engine.versions.progress();
        loop {
            progress.borrow_and_update();
            // Pipelines may become one meanwhile: they are asked for again each time.
            let behind = self.engine.versions.behind(&self.engine.timers.views(), now);
            if behind.is_empty() {
                return Ok(());
            }
            for pipeline in behind {
                self.engine.workers.input_arrived(pipeline);
                self.engine.workers.hurry(pipeline);
            }
            progress
                .changed()
                .await
                .map_err(|_| RuntimeError::SHUTTING_DOWN)?;
        }
    }

    /// Pipelines with their clocks and groups.
    pub fn pipelines(&self) -> Vec<PipelineStatus> {
        let pipelines = self.engine.decisions.driver.lock().pipelines();
        let feeds = self.engine.writes.feeds.lock();
        pipelines
            .into_iter()
            .map(|pipeline| PipelineStatus {
                writes_waiting: feeds.len(pipeline.id),
                under_way: self.engine.versions.under_way(pipeline.id),
                pipeline,
            })
            .collect()
    }

    /// How the views are doing, in order of identity.
    pub fn views(&self) -> Vec<ViewStatus> {
        let relations: BTreeMap<RelationId, Arc<Relation>> = self
            .engine
            .relations
            .read()
            .iter()
            .map(|(id, relation)| (*id, Arc::clone(relation)))
            .collect();
        let default = self.engine.workers.cut_times().freshness;
        relations
            .values()
            .filter_map(|relation| match relation.as_ref() {
                Relation::View(view) => Some(ViewStatus {
                    relation: view.id,
                    name: view.name.clone(),
                    rows: view.rows(),
                    state_bytes: view.state_bytes() + view.bytes_elsewhere().0,
                    on_disk_bytes: view.account.on_disk() + view.bytes_elsewhere().1,
                    expression_errors: view.errors.rows(),
                    last_expression_error: view.errors.last(),
                    failure: view.failure(),
                    combiners: view.combiner_counts(),
                    flows: view.flow_statuses(),
                    activity: view.activity_counts(),
                    filled: view.filled().cloned(),
                    freshness_target: view.freshness_target(default),
                }),
                _ => None,
            })
            .collect()
    }

    /// Whether there is such a relation.
    pub fn knows(&self, relation: RelationId) -> bool {
        self.engine.relations.read().contains_key(&relation)
    }

    /// Rows that a table or view holds, or that a stream's log has had; none if it is not known.
    pub fn rows(&self, relation: RelationId) -> Option<u64> {
        Some(match self.engine.relation(relation).ok()?.as_ref() {
            Relation::Stream(stream) => self.engine.logs.head(stream.id.0),
            Relation::Table(table) => table.rows.read().live_rows() as u64,
            Relation::View(view) => view.rows() as u64,
        })
    }

    /// Changes that a table or a stream has had, as far as its log goes back, or a view since it was made; none if it is not
    /// known.
    pub fn changes(&self, relation: RelationId) -> Option<u64> {
        Some(match self.engine.relation(relation).ok()?.as_ref() {
            Relation::Stream(_) | Relation::Table(_) => self.engine.logs.head(relation.0),
            Relation::View(view) => {
                let activity = view.activity_counts();
                let last = activity.last().map(ActivityCounts::sum);
                last.map_or(0, |counts| counts.rows_out)
            }
        })
    }

    /// Epochs committed since the start, all pipelines together.
    pub fn epochs_total(&self) -> u64 {
        self.engine.versions.epochs_total()
    }

    /// How often views of a pipeline were restored from a checkpoint after a worker was lost, and how many were filled again.
    pub fn recoveries(&self) -> (u64, u64) {
        let [restored, refilled] = &self.engine.checkpoints.recoveries;
        (restored.load(Ordering::Relaxed), refilled.load(Ordering::Relaxed))
    }

    /// Tasks that are ready and wait for a cpu slot.
    pub fn tasks_waiting(&self, class: QueryClass) -> usize {
        self.engine.workers.tasks_waiting(class)
    }

    /// What the slots of all workers have measured since the start.
    pub fn cpu_times(&self) -> CpuTimes {
        self.engine.workers.cpu_times()
    }

    /// The tasks that are paused for more urgent ones, with their workers; the oldest of a worker first.
    pub fn paused_tasks(&self) -> Vec<(u32, TaskStatus)> {
        self.engine.workers.paused_tasks()
    }

    /// The devices, with a scheduler each.
    pub fn disks(&self) -> &Arc<Disks> {
        &self.engine.machine.disks
    }

    /// Whether a write of a query, a checkpoint or a sink ends when the device has it, so that the time is really its own, or
    /// when the system's cache does.
    pub fn set_flushes_writes(&self, is_on: bool) {
        self.engine.machine.set_flushes_writes(is_on);
    }

    /// Files, read and written when the disk scheduler says.
    pub fn files(&self) -> Arc<dyn ObjectStore> {
        self.engine.machine.files(LocalFileSystem::new())
    }

    /// What queries spill, as files in the system's directory for such.
    pub fn spill_files(&self) -> Arc<SpillFiles> {
        self.engine.machine.spill_files()
    }

    /// What a file holds, read as a disk monotask once there is memory for it.
    ///
    /// # Errors
    /// The operating system refuses a thread. The inner error is the file's.
    pub async fn read_file(&self, path: &Path) -> Result<std::io::Result<Vec<u8>>> {
        self.engine.machine.read_file(path).await
    }

    /// Runs what reads and writes files by itself as a disk monotask of the device that a path is on.
    ///
    /// # Errors
    /// It panicked, or the operating system refuses a thread.
    pub async fn use_files<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.engine.machine.use_files(path, work).await
    }

    /// How the slots are shared from now on.
    pub fn set_policy(&self, policy: SchedulerPolicy, patience: Patience) {
        self.engine.workers.set_policy(policy, patience);
        self.engine.post(Event::Policy(policy));
    }

    /// How the slots are shared.
    pub fn policy(&self) -> (SchedulerPolicy, Patience) {
        self.engine.workers.policy()
    }

    /// Finishes the epochs in flight and stops the slots.
    pub async fn shutdown(&self) {
        let all: Vec<RelationId> = self.engine.relations.read().keys().copied().collect();
        // Held and never resumed: nothing new is launched.
        if let Ok(held) = self.engine.quiesce(all).await {
            held.keep();
        }
        self.engine.timers.stop();
        let workers = self.engine.workers.all();
        let statements = self.engine.queries.statements().clone();
        // Slots end after the poll that they are in, unless that takes long.
        let stop = move || {
            workers
                .iter()
                .for_each(|worker| worker.cpu.stop_without_long_polls());
            statements.stop_without_long_polls();
        };
        let _ = self.engine.machine.io.spawn_blocking(stop).await;
        self.engine.machine.stop();
    }
}

impl Engine {
    pub fn relation(&self, id: RelationId) -> Result<Arc<Relation>> {
        self.relations
            .read()
            .get(&id)
            .cloned()
            .ok_or(RuntimeError::UnknownRelation(id))
    }

    /// Gives changes that were written before a column was added that column.
    fn widen(&self, taken: &mut Taken) {
        let relations = self.relations.read();
        for (id, cut) in &mut taken.changes {
            let Some(relation) = relations.get(id) else {
                continue;
            };
            for changes in &mut cut.changes {
                match relation.widen_changes(changes.clone()) {
                    Ok(wider) => *changes = wider,
                    // The views that read it will say what is wrong.
                    Err(error) => {
                        tracing::error!(relation = relation.name(), %error, "changes are not as wide as their relation")
                    }
                }
            }
        }
    }

    /// From now on checkpoints are written.
    pub fn begin_checkpoints(self: &Arc<Self>, slices: Slices) {
        if let Some(inbox) = self.checkpoints.inbox.lock().take() {
            Durable::start(self, inbox, slices);
        }
    }
}
