//! The handle by which the server uses the runtime, and the loop that joins driver and worker.

mod decisions;
pub(crate) mod definitions;
mod memory;
mod relations;
mod room;
mod transport;
mod waits;
mod workers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use futures::future::BoxFuture;
use millrace_planner::{RelationId, StageGraph};
use millrace_storage::{Checkpoints, LogStore};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use self::decisions::EventQueue;
pub(crate) use self::relations::make_indexes;
pub use self::relations::{SourceKind, SourceSpec};
use self::room::RoomMeter;
pub use self::room::{FeedStatus, Lack};
use self::waits::Waits;
pub use self::workers::WorkerStatus;
use crate::backfill::JobStatus;
use crate::checkpoint::{
    CheckpointRecord, CheckpointStore, CheckpointTotals, Durable, Inbox, MemoryCheckpoints, Recovery, Slices,
};
use crate::clock::{Clock, SystemClock};
use crate::driver::{
    CheckpointPolicy, Driver, Event, HEARTBEAT_NS, PipelineId, PipelineRecord, Spread, Ticket,
};
use crate::error::{Result, RuntimeError};
use crate::feed::{FeedLimits, Feeds, Taken};
use crate::memory::{Memory, Resident};
use crate::operator::CombinerCounts;
use crate::query::Queries;
use crate::relation::Relation;
use crate::running::Running;
use crate::schedule::group::GroupSize;
use crate::schedule::template::WorkerId;
use crate::snapshot::{Frozen, Snapshot};
use crate::spill::{Spill, SpillOptions};
use crate::timers::Timers;
use crate::versions::Versions;
use crate::worker::cpu::{CpuScheduler, CpuTimes, Patience, QueryClass, SchedulerPolicy, TaskStatus};
use crate::worker::disk::{DiskStore, Disks, Moved, Phase, SpillFiles};
use crate::worker::flow::FlowStatus;
use crate::worker::network::{FETCHING_TASKS_MAX, Network};
use crate::worker::{ActivityCounts, Filled, Worker};
use crate::write::WriteToken;

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
    /// The time between two epochs of a pipeline; `None`: an epoch is cut as soon as there is input.
    pub batch_interval: Option<Duration>,
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
    /// Where state of views goes when memory is short. `None`: a view that needs more than there is is set
    /// aside.
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
            batch_interval: None,
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

/// So many rows are hashed, sorted or put out in about a millisecond.
pub const QUERY_PARTITION_ROWS: usize = 65_536;

/// A view to make.
#[derive(Clone)]
pub struct ViewSpec {
    pub id: RelationId,
    pub name: String,
    pub graph: StageGraph,
}

/// A pipeline as operators see it.
#[derive(Debug, Clone)]
pub struct PipelineStatus {
    pub pipeline: PipelineRecord,
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
    /// What stages that may multiply rows put out in batches.
    pub flows: Vec<FlowStatus>,
}

/// See the module. Clones share the runtime.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub logs: Arc<LogStore>,
    pub options: RuntimeOptions,
    pub io: tokio::runtime::Handle,
    /// Drives what tasks await.
    pub waits: Waits,
    /// Serve what is read from files and written to them.
    pub disks: Arc<Disks>,
    /// What workers fetch of each other goes over it.
    pub network: Arc<Network>,
    /// Whether writes wait for the device.
    flushes_writes: Arc<AtomicBool>,
    policy: Mutex<(SchedulerPolicy, Patience)>,
    /// Runs what statements do by themselves.
    pub statements: CpuScheduler,
    /// Queries under way.
    pub queries: Mutex<Queries>,
    next_query: AtomicU64,
    pub driver: Mutex<Driver>,
    events: Mutex<EventQueue>,
    pub feeds: Mutex<Feeds>,
    /// Where writes wait for room in them.
    rooms: Mutex<BTreeMap<PipelineId, RoomMeter>>,
    pub versions: Arc<Versions>,
    pub timers: Timers,
    batch_interval: Mutex<Option<Duration>>,
    pub relations: RwLock<HashMap<RelationId, Arc<Relation>>>,
    pub jobs: Mutex<BTreeMap<RelationId, JobStatus>>,
    /// Back-fills that run at the priority of streams.
    pub urgent: Mutex<HashSet<PipelineId>>,
    /// Back-fills, by their first view, of which a part is lost.
    pub lost_jobs: Mutex<HashSet<RelationId>>,
    /// Pipelines that were restored after a loss, and views that were filled again.
    pub recoveries: [AtomicU64; 2],
    /// State of views outside of the workers.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Has them written, if they are to outlive the process.
    pub durable: Option<Durable>,
    checkpoint_inbox: Mutex<Option<Inbox>>,
    /// What there is to restore, until the logs are replayed.
    pub recovery: Mutex<Option<Recovery>>,
    /// Sources that are behind where their logs ended at the start.
    pub catching_up: Mutex<BTreeMap<RelationId, u64>>,
    /// Every write that was acknowledged, by whomever.
    pub acknowledged: Mutex<WriteToken>,
    workers: RwLock<BTreeMap<WorkerId, Arc<Worker>>>,
    /// The worker that takes a pipeline's cuts.
    cutters: RwLock<HashMap<PipelineId, WorkerId>>,
    next_worker: AtomicU32,
    /// Held by whoever lets a worker go: one has to stay.
    membership: Mutex<()>,
    started: Instant,
    tickets: Mutex<HashMap<Ticket, oneshot::Sender<()>>>,
    next_ticket: AtomicU64,
    next_pipeline: AtomicU64,
    pub next_incarnation: AtomicU64,
}

impl Runtime {
    /// Starts the cpu slots. Must be called on a tokio runtime, which then serves the waiting for files.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(options: RuntimeOptions, logs: Arc<LogStore>) -> Result<Runtime> {
        let io = tokio::runtime::Handle::current();
        let disks = Arc::new(Disks::new(logs.directory(), &options.memory));
        let device = Arc::downgrade(disks.data());
        logs.set_device(device);
        if let Some(spill) = &options.spill {
            let spill = Spill::open(spill, &disks.of(&spill.directory), io.clone());
            let spill = spill.map_err(|error| RuntimeError::Spill(error.to_string()))?;
            options.memory.spill_to(spill);
        }
        let durable = options.durable.clone();
        let durable = durable.map(|files| Durable::new(files, options.checkpoint_interval));
        let (durable, inbox) = durable.unzip();
        let recovery = options.durable.clone().map(Recovery::new);
        let statements = CpuScheduler::start_interactive(options.cores, Some(io.clone()))?;
        let inner = Arc::new(Inner {
            logs,
            io,
            statements,
            waits: Waits::start()?,
            disks,
            network: Arc::default(),
            flushes_writes: Arc::new(AtomicBool::new(true)),
            policy: Mutex::new((options.policy, options.patience)),
            queries: Mutex::default(),
            next_query: AtomicU64::new(1),
            driver: Mutex::default(),
            events: Mutex::default(),
            feeds: Mutex::default(),
            rooms: Mutex::default(),
            versions: Versions::new(),
            timers: Timers::new(Arc::clone(&options.clock)),
            batch_interval: Mutex::new(options.batch_interval),
            relations: RwLock::default(),
            jobs: Mutex::default(),
            urgent: Mutex::default(),
            lost_jobs: Mutex::default(),
            recoveries: Default::default(),
            checkpoints: Arc::new(MemoryCheckpoints::default()),
            durable,
            checkpoint_inbox: Mutex::new(inbox),
            recovery: Mutex::new(recovery),
            catching_up: Mutex::default(),
            acknowledged: Mutex::default(),
            workers: RwLock::default(),
            cutters: RwLock::default(),
            tickets: Mutex::default(),
            membership: Mutex::default(),
            next_worker: AtomicU32::new(0),
            next_ticket: AtomicU64::new(1),
            next_pipeline: AtomicU64::new(1),
            next_incarnation: AtomicU64::new(0),
            started: Instant::now(),
            options,
        });
        if let Some(checkpoints) = &inner.options.durable {
            checkpoints.set_files(|files| inner.files(files))?;
        }
        let runtime = Runtime { inner };
        runtime
            .inner
            .post(Event::GroupSize(runtime.inner.options.group_size));
        runtime
            .inner
            .post(Event::Checkpoints(runtime.inner.options.checkpoints));
        runtime.set_spread(runtime.inner.options.spread);
        for _ in 0..runtime.inner.options.workers.max(1) {
            runtime.add_worker()?;
        }
        runtime.inner.start_heartbeats();
        runtime.inner.watch_memory();
        Ok(runtime)
    }

    /// How often there are checkpoints that outlive the process from now on; `None`: only when asked for.
    pub fn set_checkpoint_interval(&self, interval: Option<Duration>) {
        if let Some(durable) = &self.inner.durable {
            durable.set_interval(interval);
        }
    }

    /// Puts all that is committed at this moment into checkpoints that outlive the process; returns when that is so, or when
    /// it is known that it cannot be.
    pub async fn checkpoint(&self) {
        if let Some(durable) = &self.inner.durable {
            durable.request().await;
        }
    }

    /// What was written to checkpoints since the start.
    pub fn checkpoint_totals(&self) -> CheckpointTotals {
        let durable = self.inner.durable.as_ref();
        durable.map_or_else(CheckpointTotals::default, |durable| durable.totals())
    }

    /// The last checkpoints that were written, the newest last.
    pub fn checkpoint_records(&self) -> Vec<CheckpointRecord> {
        let durable = self.inner.durable.as_ref();
        durable.map_or(vec![], |durable| durable.records())
    }

    /// Has a view's stages combine rows before exchanges where that pays, as they do at first, or never: for measurements.
    pub fn set_combining(&self, view: RelationId, is_on: bool) {
        for worker in self.inner.workers.read().values() {
            for view in worker.views().iter().filter(|instance| instance.id == view) {
                view.set_combining(is_on);
            }
        }
    }

    /// How many epochs groups have from the next one on.
    pub fn set_group_size(&self, group_size: GroupSize) {
        self.inner.post(Event::GroupSize(group_size));
    }

    /// Over how many workers pipelines are spread from now on.
    pub fn set_spread(&self, spread: Spread) {
        self.inner.post(Event::Spread(spread));
    }

    /// The time between two epochs of a pipeline from now on; `None`: an epoch is cut as soon as there is input.
    pub fn set_batch_interval(&self, interval: Option<Duration>) {
        *self.inner.batch_interval.lock() = interval;
        let cutters = self.inner.cutters.read().clone();
        for (pipeline, worker) in cutters {
            self.inner.apply_interval(pipeline, worker);
        }
    }

    /// One committed epoch of these relations, at which the writes of `after` are visible.
    ///
    /// # Errors
    /// A relation is not known, or the runtime is shutting down.
    pub async fn snapshot(&self, relations: &[RelationId], after: Option<&WriteToken>) -> Result<Snapshot> {
        let nothing = BTreeMap::new();
        let after = after.map_or(&nothing, |token| &token.ends);
        let mut progress = self.inner.versions.progress();
        loop {
            progress.borrow_and_update();
            // A view that a worker took with it is another one when it is filled again.
            let handles = relations
                .iter()
                .map(|id| self.inner.relation(*id))
                .collect::<Result<Vec<_>>>()?;
            let wanted: Vec<(RelationId, bool)> = handles
                .iter()
                .map(|r| (r.id(), !matches!(r.as_ref(), Relation::View(_))))
                .collect();
            let losses = |handles: &[Arc<Relation>]| -> u64 { handles.iter().map(|r| r.losses()).sum() };
            let before = losses(&handles);
            if let Some((epoch, versions, pin)) = self.inner.versions.pin(&wanted, after) {
                // What was dropped before it was pinned would seem to be empty, and so would one that was filled again.
                let mut is_same = true;
                for handle in &handles {
                    is_same &= Arc::ptr_eq(handle, &self.inner.relation(handle.id())?);
                }
                let frozen: BTreeMap<RelationId, Frozen> = handles
                    .iter()
                    .zip(versions)
                    .map(|(r, version)| {
                        (
                            r.id(),
                            Frozen::new(r, version, &pin, &self.inner.logs, self.inner.disks.data()),
                        )
                    })
                    .collect();
                // What was lost before it was looked at is not there either.
                if is_same && losses(&handles) == before {
                    return Ok(Snapshot::new(epoch, frozen));
                }
                continue;
            }
            progress.changed().await.map_err(|_| RuntimeError::ShuttingDown)?;
        }
    }

    /// All that was acknowledged so far, to whomever: a read after it sees what anyone was told is written.
    pub fn acknowledged(&self) -> WriteToken {
        self.inner.acknowledged.lock().clone()
    }

    /// Waits until all of `written` is visible in the views over it.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn wait_for(&self, written: &WriteToken) -> Result<()> {
        let known: Vec<RelationId> = {
            let relations = self.inner.relations.read();
            written
                .ends
                .keys()
                .filter(|id| relations.contains_key(id))
                .copied()
                .collect()
        };
        self.snapshot(&known, Some(written)).await.map(|_| ())
    }

    /// Waits until no view is being filled again.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn filled_again(&self) -> Result<()> {
        self.until(|inner| !inner.versions.is_any_abandoned()).await
    }

    /// The time that the next epoch would have, in microseconds since 1970-01-01 00:00 UTC; never less than before.
    pub fn now(&self) -> i64 {
        self.inner.timers.now()
    }

    /// Resolves when the clock has reached `time`, in microseconds since 1970-01-01 00:00 UTC.
    pub fn clock_reaches(&self, time: i64) -> BoxFuture<'static, ()> {
        self.inner.timers.clock_reaches(time)
    }

    /// Waits until every view is as it is at this moment or later: rows whose time has come are there, or gone.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn follow_clock(&self) -> Result<()> {
        let now = self.now();
        let mut progress = self.inner.versions.progress();
        loop {
            progress.borrow_and_update();
            // Pipelines may become one meanwhile: they are asked for again each time.
            let mut behind = self.inner.timers.pipelines();
            behind.retain(|pipeline| {
                self.inner
                    .versions
                    .now(*pipeline)
                    .is_some_and(|reached| reached < now)
            });
            if behind.is_empty() {
                return Ok(());
            }
            for pipeline in behind {
                self.inner.input_arrived(pipeline);
            }
            progress.changed().await.map_err(|_| RuntimeError::ShuttingDown)?;
        }
    }

    /// Pipelines with their clocks and groups.
    pub fn pipelines(&self) -> Vec<PipelineStatus> {
        let pipelines = self.inner.driver.lock().pipelines();
        let feeds = self.inner.feeds.lock();
        pipelines
            .into_iter()
            .map(|pipeline| PipelineStatus {
                writes_waiting: feeds.len(pipeline.id),
                pipeline,
            })
            .collect()
    }

    /// How the views are doing, in order of identity.
    pub fn views(&self) -> Vec<ViewStatus> {
        let relations: BTreeMap<RelationId, Arc<Relation>> = self
            .inner
            .relations
            .read()
            .iter()
            .map(|(id, relation)| (*id, Arc::clone(relation)))
            .collect();
        relations
            .values()
            .filter_map(|relation| match relation.as_ref() {
                Relation::View(view) => Some(ViewStatus {
                    relation: view.id,
                    name: view.name.clone(),
                    rows: view.rows(),
                    state_bytes: view.state_bytes(),
                    on_disk_bytes: view.account.on_disk(),
                    expression_errors: view.errors.rows(),
                    last_expression_error: view.errors.last(),
                    failure: view.failure(),
                    combiners: view.combiner_counts(),
                    flows: view.flow_statuses(),
                    activity: view.activity_counts(),
                    filled: view.filled().cloned(),
                }),
                _ => None,
            })
            .collect()
    }

    /// Whether there is such a relation.
    pub fn knows(&self, relation: RelationId) -> bool {
        self.inner.relations.read().contains_key(&relation)
    }

    /// Rows that a table or view holds, or that a stream's log has had; none if it is not known.
    pub fn rows(&self, relation: RelationId) -> Option<u64> {
        Some(match self.inner.relation(relation).ok()?.as_ref() {
            Relation::Stream(stream) => self.inner.logs.head(stream.id.0),
            Relation::Table(table) => table.rows.read().live_rows() as u64,
            Relation::View(view) => view.rows() as u64,
        })
    }

    /// Changes that a table or a stream has had, as far as its log goes back, or a view since it was made; none if it is not
    /// known.
    pub fn changes(&self, relation: RelationId) -> Option<u64> {
        Some(match self.inner.relation(relation).ok()?.as_ref() {
            Relation::Stream(_) | Relation::Table(_) => self.inner.logs.head(relation.0),
            Relation::View(view) => {
                let activity = view.activity_counts();
                let last = activity.last().map(ActivityCounts::sum);
                last.map_or(0, |counts| counts.rows_out)
            }
        })
    }

    /// Epochs committed since the start, all pipelines together.
    pub fn epochs_total(&self) -> u64 {
        self.inner.versions.epochs_total()
    }

    /// How often views of a pipeline were restored from a checkpoint after a worker was lost, and how many were filled again.
    pub fn recoveries(&self) -> (u64, u64) {
        let [restored, refilled] = &self.inner.recoveries;
        (restored.load(Ordering::Relaxed), refilled.load(Ordering::Relaxed))
    }

    /// Tasks that are ready and wait for a cpu slot.
    pub fn tasks_waiting(&self, class: QueryClass) -> usize {
        self.inner
            .workers
            .read()
            .values()
            .map(|worker| worker.cpu.waiting(class))
            .sum()
    }

    /// What the slots of all workers have measured since the start.
    pub fn cpu_times(&self) -> CpuTimes {
        let mut times = CpuTimes::default();
        for worker in self.inner.workers.read().values() {
            times.merge(&worker.cpu.times());
        }
        times
    }

    /// The tasks that are paused for more urgent ones, with their workers; the oldest of a worker first.
    pub fn paused_tasks(&self) -> Vec<(u32, TaskStatus)> {
        let workers = self.inner.workers.read();
        let paused = workers.values().flat_map(|worker| {
            let records = worker.cpu.paused();
            records
                .into_iter()
                .map(|record| (worker.id.0, record.status()))
                .collect::<Vec<_>>()
        });
        paused.collect()
    }

    /// Serves the disks as devices of this rate would be; `None`: as fast as they are.
    pub fn set_disk_rate(&self, bytes_per_second: Option<u64>) {
        for disk in self.inner.disks.all() {
            disk.set_bytes_per_second(bytes_per_second);
        }
    }

    /// Has the workers' queries be as if each worker had a link of this rate to the others, for measurements; `None`: they
    /// share their memory.
    pub fn set_network_rate(&self, bytes_per_second: Option<u64>) {
        self.inner.network.set_bytes_per_second(bytes_per_second);
    }

    /// The devices, with a scheduler each.
    pub fn disks(&self) -> &Arc<Disks> {
        &self.inner.disks
    }

    /// Whether a write of a query, a checkpoint or a sink ends when the device has it, so that the time is really its own, or
    /// when the system's cache does.
    pub fn set_flushes_writes(&self, is_on: bool) {
        self.inner.flushes_writes.store(is_on, Ordering::Relaxed);
    }

    /// Files, read and written when the disk scheduler says.
    pub fn files(&self) -> Arc<dyn ObjectStore> {
        self.inner.files(LocalFileSystem::new())
    }

    /// What queries spill, as files in the system's directory for such.
    pub fn spill_files(&self) -> Arc<SpillFiles> {
        let directory = std::env::temp_dir();
        Arc::new(SpillFiles::new(
            &self.inner.disks,
            directory,
            &self.inner.flushes_writes,
        ))
    }

    /// What a file holds, read as a disk monotask once there is memory for it.
    ///
    /// # Errors
    /// The operating system refuses a thread. The inner error is the file's.
    pub async fn read_file(&self, path: &Path) -> Result<std::io::Result<Vec<u8>>> {
        let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
        let file = path.to_owned();
        let read = move || {
            let content = std::fs::read(file);
            let bytes = content.as_ref().map_or(0, |content| content.len() as u64);
            (content, Moved { bytes, rows: 0 })
        };
        let disk = self.inner.disks.of(path);
        let served = disk
            .serve(Phase::Read, usize::try_from(bytes).unwrap_or(usize::MAX), read)
            .await;
        let (content, _) = served.map_err(|error| RuntimeError::Internal(error.to_string()))?;
        Ok(content)
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
        // How much it moves, it does not say.
        let work = move || (work(), Moved::default());
        let used = self.inner.disks.of(path).serve(Phase::Write, 0, work).await;
        let (done, _) = used.map_err(|error| RuntimeError::Internal(error.to_string()))?;
        Ok(done)
    }

    /// How the slots are shared from now on.
    pub fn set_policy(&self, policy: SchedulerPolicy, patience: Patience) {
        *self.inner.policy.lock() = (policy, patience);
        for worker in self.inner.workers.read().values() {
            worker.cpu.set_policy(policy);
            worker.cpu.set_patience(patience);
        }
    }

    /// How the slots are shared.
    pub fn policy(&self) -> (SchedulerPolicy, Patience) {
        *self.inner.policy.lock()
    }

    /// Finishes the epochs in flight and stops the slots.
    pub async fn shutdown(&self) {
        let all: Vec<RelationId> = self.inner.relations.read().keys().copied().collect();
        // Held and never resumed: nothing new is launched.
        if let Ok(held) = self.inner.quiesce(all).await {
            held.keep();
        }
        self.inner.timers.stop();
        let workers = self.inner.workers.read().clone();
        let statements = self.inner.statements.clone();
        // Slots end after the poll that they are in, unless that takes long.
        let stop = move || {
            workers
                .values()
                .for_each(|worker| worker.cpu.stop_without_long_polls());
            statements.stop_without_long_polls();
        };
        let _ = self.inner.io.spawn_blocking(stop).await;
        self.inner.waits.stop();
    }
}

impl Inner {
    /// So many tasks keep every resource at work, with one more that is ready when one of them ends (Ousterhout 2017, section
    /// 5.3.1): one a core, and one for each request that a device is good for.
    pub fn tasks_in_flight(&self) -> usize {
        let cores = self.options.cores * self.num_workers().max(1);
        let disks = self.disks.all();
        let requests: usize = disks.iter().map(|disk| disk.concurrency()).sum();
        let fetching = self.network.bytes_per_second().map_or(0, |_| FETCHING_TASKS_MAX);
        cores + requests + fetching + 1
    }

    fn files(&self, files: LocalFileSystem) -> Arc<DiskStore> {
        Arc::new(DiskStore::new(files, &self.disks, &self.flushes_writes))
    }

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
        if let Some(inbox) = self.checkpoint_inbox.lock().take() {
            Durable::start(self, inbox, slices);
        }
    }

    pub fn new_query(&self) -> u64 {
        self.next_query.fetch_add(1, Ordering::Relaxed)
    }

    pub fn new_pipeline(&self) -> PipelineId {
        PipelineId(self.next_pipeline.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the cutter of a pipeline that input waits.
    pub fn input_arrived(&self, pipeline: PipelineId) {
        let cutter = self.cutters.read().get(&pipeline).copied();
        if let Some(worker) = cutter.and_then(|cutter| self.workers.read().get(&cutter).cloned()) {
            worker.input_arrived(pipeline);
        }
    }

    fn apply_interval(&self, pipeline: PipelineId, worker: WorkerId) {
        let interval = self.batch_interval.lock().unwrap_or_default();
        let worker = self.workers.read().get(&worker).cloned();
        if let Some(worker) = worker {
            worker.set_interval(pipeline, interval.as_nanos() as u64);
        }
    }
}
