//! A task as its scheduler sees it: what was recorded of it, its suspension points.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::policy::GiveWay;
use millrace_schedule::cpu::queue::Cause;
use parking_lot::Mutex;

use super::work::Work;
use super::{METER, Shared, thread_cpu_time};
use crate::error::ResourceError;
use crate::gate::Gate;
use crate::monotask::{DiskUse, NetworkUse};

/// How long a task of a stream or of a short query has a slot while others of its class wait: a view whose epochs take long
/// is not to keep those waiting whose epochs take microseconds.
const QUANTUM: Duration = Duration::from_millis(2);

/// What a task waits for when it is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Rows of another stage.
    Input,
    /// Room for what it emits.
    Output,
    /// A file.
    Disk,
    /// Rows of another worker.
    Network,
}

/// How many kinds of [`Waits`] there are.
const WAITS: usize = 4;

/// Which task of which query it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLabel {
    pub query: u64,
    pub stage: usize,
    pub partition: usize,
    pub worker: u32,
}

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Ready, and waiting for a slot.
    Ready,
    Running,
    /// Waiting for rows, for a file, or for room.
    Waiting,
    /// Gave way to something more urgent.
    Paused,
    Ended,
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TaskState::Ready => "ready",
            TaskState::Running => "running",
            TaskState::Waiting => "waiting",
            TaskState::Paused => "paused",
            TaskState::Ended => "ended",
        })
    }
}

/// A stretch of a task on the processor: a compute monotask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub queued: Instant,
    pub started: Instant,
    /// On the processor.
    pub ran: Duration,
    /// It was resumed, after being paused.
    pub was_paused: bool,
}

/// Stretches that are kept of a task; what comes after is in its sums only.
const STRETCHES_MAX: usize = 1_024;

#[derive(Debug)]
pub(super) struct Notes {
    pub(super) state: TaskState,
    /// The next push is a pause.
    gives_way: bool,
    /// The next push is the end of its quantum.
    yields: bool,
    /// Turns that have begun.
    turns: u64,
    polls: u64,
    /// Time in which it had a slot, whether it had the processor or not.
    polled: Duration,
    wait: Duration,
    pauses: u64,
    paused: Duration,
    pause_latency_max: Duration,
    poll_max: Duration,
    first_run: Option<Instant>,
    ended: Option<Instant>,
    /// Since when it is not ready.
    idle_since: Option<Instant>,
    waits_for: Option<Waits>,
    /// In the order of [`Waits`].
    blocked: [Duration; WAITS],
    stretches: Vec<Stretch>,
    disk_uses: Vec<DiskUse>,
    network_uses: Vec<NetworkUse>,
}

/// What the scheduler knows of a task.
#[derive(Debug)]
pub struct TaskRecord {
    pub(super) work: Arc<Work>,
    label: Option<TaskLabel>,
    created: Instant,
    cpu_ns: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    /// Of the processor time, what went into dividing rows among the next stage's partitions; and how many batches.
    partitioning_ns: AtomicU64,
    partitioned: AtomicU64,
    /// Memory that it holds of its query's, in bytes.
    pub(super) held: AtomicUsize,
    pauses_since_undisturbed: AtomicU32,
    undisturbed_until_ns: AtomicU64,
    /// When its turn began, on the clock of the slots.
    turn_began_ns: AtomicU64,
    keeps_stretches: bool,
    /// The view for which it works, if it does for one alone.
    view: Option<RelationId>,
    /// Whether nobody waits for what it does any more.
    is_unwanted: AtomicBool,
    /// Touched by one thread at a time, but for those that look.
    pub(super) notes: Mutex<Notes>,
}

/// A task as others see it.
#[derive(Debug, Clone)]
pub struct TaskStatus {
    /// Which task of a query it is; `None`: of an epoch or a back-fill.
    pub label: Option<TaskLabel>,
    pub class: QueryClass,
    pub state: TaskState,
    pub created: Instant,
    pub first_run: Option<Instant>,
    pub ended: Option<Instant>,
    /// Put out so far.
    pub rows: u64,
    /// Of these rows, in memory.
    pub bytes: u64,
    /// Memory that it holds of its query's: tables of joins, groups, rows to be sorted. In bytes.
    pub held: usize,
    /// On the processor.
    pub cpu: Duration,
    pub polls: u64,
    pub poll_max: Duration,
    /// Ready or paused, without a slot.
    pub wait: Duration,
    pub pauses: u64,
    /// Of the waiting, what came after giving way; up to now if it is paused.
    pub paused: Duration,
    /// The longest from the arrival of something more urgent to giving way.
    pub pause_latency_max: Duration,
}

impl TaskRecord {
    pub fn new(work: Arc<Work>, label: Option<TaskLabel>) -> Self {
        TaskRecord {
            work,
            label,
            created: Instant::now(),
            cpu_ns: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            partitioning_ns: AtomicU64::new(0),
            partitioned: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            pauses_since_undisturbed: AtomicU32::new(0),
            undisturbed_until_ns: AtomicU64::new(0),
            turn_began_ns: AtomicU64::new(0),
            keeps_stretches: false,
            view: None,
            is_unwanted: AtomicBool::new(false),
            notes: Mutex::new(Notes {
                state: TaskState::Ready,
                gives_way: false,
                yields: false,
                turns: 0,
                polls: 0,
                polled: Duration::ZERO,
                wait: Duration::ZERO,
                pauses: 0,
                paused: Duration::ZERO,
                pause_latency_max: Duration::ZERO,
                poll_max: Duration::ZERO,
                first_run: None,
                ended: None,
                idle_since: None,
                waits_for: None,
                blocked: [Duration::ZERO; WAITS],
                stretches: vec![],
                disk_uses: vec![],
                network_uses: vec![],
            }),
        }
    }

    /// Nobody waits for it any more.
    pub(super) fn unwant(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits for what it does any more: it ends at its next suspension point, or where it looks.
    pub fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }

    /// With each stretch kept, as far as there is space.
    #[must_use]
    pub fn keeping_stretches(mut self) -> Self {
        self.keeps_stretches = true;
        self
    }

    /// As one that works for a view alone.
    #[must_use]
    pub fn for_view(mut self, view: RelationId) -> Self {
        self.view = Some(view);
        self
    }

    /// The view for which it works, if it does for one alone.
    pub(super) fn view(&self) -> Option<RelationId> {
        self.view
    }

    pub(super) fn class(&self) -> QueryClass {
        self.work.class()
    }

    /// Whether it has had no turn yet.
    pub(super) fn is_new(&self) -> bool {
        self.notes.lock().turns == 0
    }

    /// Time spent in polls of the task.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Each stretch on the processor, if they are kept.
    pub fn stretches(&self) -> Vec<Stretch> {
        self.notes.lock().stretches.clone()
    }

    /// What a part of its polls, measured on the clock, was on the processor: others may have had that meanwhile.
    pub fn on_processor(&self, time: Duration) -> Duration {
        let polled = self.notes.lock().polled;
        if polled.is_zero() {
            return Duration::ZERO;
        }
        let share = self.cpu().as_secs_f64() / polled.as_secs_f64();
        time.mul_f64(share.min(1.0))
    }

    /// Of the time in polls, what went into dividing rows among partitions.
    pub fn partitioning(&self) -> Duration {
        Duration::from_nanos(self.partitioning_ns.load(Ordering::Relaxed))
    }

    /// Batches that were divided among partitions.
    pub fn partitioned(&self) -> u64 {
        self.partitioned.load(Ordering::Relaxed)
    }

    /// How long it was not ready because it waited for this.
    pub fn blocked(&self, what: Waits) -> Duration {
        self.notes.lock().blocked[what as usize]
    }

    /// Its disk monotasks.
    pub fn disk_uses(&self) -> Vec<DiskUse> {
        self.notes.lock().disk_uses.clone()
    }

    pub(super) fn waits_for(&self, what: Waits) {
        self.notes.lock().waits_for = Some(what);
    }

    /// A disk monotask of it has ended.
    pub fn used_disk(&self, used: DiskUse) {
        self.notes.lock().disk_uses.push(used);
    }

    /// Its network monotasks.
    pub fn network_uses(&self) -> Vec<NetworkUse> {
        self.notes.lock().network_uses.clone()
    }

    /// A network monotask of it has ended.
    pub fn used_network(&self, used: NetworkUse) {
        self.notes.lock().network_uses.push(used);
    }

    /// Which task of which query it is.
    pub fn label(&self) -> Option<TaskLabel> {
        self.label
    }

    /// It waited within a poll.
    pub fn waited(&self, what: Waits, time: Duration) {
        self.notes.lock().blocked[what as usize] += time;
    }

    /// What there is to see of it now.
    pub fn status(&self) -> TaskStatus {
        let notes = self.notes.lock();
        TaskStatus {
            label: self.label,
            class: self.class(),
            state: notes.state,
            created: self.created,
            first_run: notes.first_run,
            ended: notes.ended,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            held: self.held.load(Ordering::Relaxed),
            cpu: self.cpu(),
            polls: notes.polls,
            poll_max: notes.poll_max,
            wait: notes.wait,
            pauses: notes.pauses,
            paused: notes.paused,
            pause_latency_max: notes.pause_latency_max,
        }
    }

    /// The same, with the last poll of a task that has ended. Whoever waits for a task hears of its end from within that
    /// poll, a moment before the slot has counted it.
    pub fn final_status(&self) -> TaskStatus {
        let is_counted = || {
            let notes = self.notes.lock();
            notes.state != TaskState::Ended || notes.polls == notes.turns
        };
        while !is_counted() {
            std::thread::yield_now();
        }
        self.status()
    }

    pub(super) fn pauses_since_undisturbed(&self) -> u32 {
        self.pauses_since_undisturbed.load(Ordering::Relaxed)
    }

    /// It goes into the queue; returns why.
    pub(super) fn queued(&self, now: Instant) -> Cause {
        let mut notes = self.notes.lock();
        if let Some(since) = notes.idle_since.take()
            && let Some(what) = notes.waits_for
        {
            notes.blocked[what as usize] += now.saturating_duration_since(since);
        }
        let yields = std::mem::take(&mut notes.yields);
        if std::mem::take(&mut notes.gives_way) {
            notes.state = TaskState::Paused;
            return Cause::Paused;
        }
        notes.state = TaskState::Ready;
        match yields {
            true => Cause::Yielded,
            false => Cause::Ready,
        }
    }

    /// A turn begins; returns its number.
    pub(super) fn begins(
        &self,
        now_ns: u64,
        started: Instant,
        wait: Duration,
        cause: Cause,
        undisturbed_until_ns: u64,
    ) -> u64 {
        if undisturbed_until_ns > now_ns {
            self.undisturbed_until_ns
                .store(undisturbed_until_ns, Ordering::Relaxed);
            self.pauses_since_undisturbed.store(0, Ordering::Relaxed);
        }
        self.turn_began_ns.store(now_ns, Ordering::Relaxed);
        let mut notes = self.notes.lock();
        notes.state = TaskState::Running;
        notes.wait += wait;
        if cause == Cause::Paused {
            notes.paused += wait;
        }
        notes.first_run.get_or_insert(started);
        if self.keeps_stretches && notes.stretches.len() < STRETCHES_MAX {
            notes.stretches.push(Stretch {
                queued: started.checked_sub(wait).unwrap_or(started),
                started,
                ran: Duration::ZERO,
                was_paused: cause == Cause::Paused,
            });
        }
        notes.turns += 1;
        notes.turns
    }

    /// That turn is over: it held a slot for `time`, and had the processor for `cpu` of that.
    pub(super) fn ran(&self, turn: u64, started: Instant, time: Duration, cpu: Duration) {
        self.cpu_ns.fetch_add(cpu.as_nanos() as u64, Ordering::Relaxed);
        self.work.ran(cpu);
        let mut notes = self.notes.lock();
        notes.polls += 1;
        notes.polled += time;
        if notes.state == TaskState::Ended {
            // With the poll in which it ended.
            notes.ended = Some(started + time);
        }
        notes.poll_max = notes.poll_max.max(time);
        if let Some(stretch) = notes.stretches.iter_mut().rev().find(|s| s.started == started) {
            stretch.ran = cpu;
        }
        // Another slot may have begun the next turn meanwhile, or it is in the queue again.
        if notes.turns == turn {
            notes.gives_way = false;
            notes.yields = false;
            if notes.state == TaskState::Running {
                notes.state = TaskState::Waiting;
                notes.idle_since = Some(started + time);
            }
        }
    }

    pub(super) fn end(&self) {
        let mut notes = self.notes.lock();
        notes.state = TaskState::Ended;
        notes.ended = Some(Instant::now());
    }

    /// It is about to be paused: `latency` after something more urgent had come. False if it was known already.
    fn pauses(&self, latency: Duration) -> bool {
        let mut notes = self.notes.lock();
        if std::mem::replace(&mut notes.gives_way, true) {
            return false;
        }
        notes.pauses += 1;
        notes.pause_latency_max = notes.pause_latency_max.max(latency);
        self.pauses_since_undisturbed.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// A task's suspension point.
#[derive(Clone)]
pub struct CpuGate {
    pub(super) shared: Arc<Shared>,
    pub(super) record: Arc<TaskRecord>,
}

impl CpuGate {
    /// What something more urgent without a slot asks of this task, and since when.
    fn asked(&self) -> Option<(GiveWay, u64)> {
        let running = self.record.class();
        let (urgent, since) = self.shared.more_urgent(running)?;
        let undisturbed_until = self.record.undisturbed_until_ns.load(Ordering::Relaxed);
        if undisturbed_until > 0 && self.shared.now_ns() < undisturbed_until {
            return None;
        }
        match self.shared.policy().rules().gives_way(running, urgent) {
            GiveWay::No => None,
            way => Some((way, since)),
        }
    }

    /// Whether this task has had its quantum, and others of its class wait that may need much less. Batch work has none:
    /// it is to be done soon, not each part of it at once.
    fn is_over_quantum(&self) -> bool {
        let class = self.record.class();
        if class == QueryClass::Batch || self.shared.waiting(class) == 0 || !self.shared.policy().pauses() {
            return false;
        }
        let began = self.record.turn_began_ns.load(Ordering::Relaxed);
        self.shared.now_ns().saturating_sub(began) >= QUANTUM.as_nanos() as u64
    }

    /// Whether this task should give way; if so the next time that it is queued counts as being paused, or as the end of
    /// its quantum. One that nobody waits for any more ends where it does.
    pub fn gives_way(&self) -> bool {
        if self.record.is_unwanted() {
            return true;
        }
        let Some((way, since)) = self.asked() else {
            let is_over = self.is_over_quantum();
            if is_over {
                self.record.notes.lock().yields = true;
            }
            return is_over;
        };
        if way == GiveWay::Restart {
            self.record.work.kill();
        }
        let latency = Duration::from_nanos(self.shared.now_ns().saturating_sub(since));
        if self.record.pauses(latency) {
            self.shared.pause.record(latency);
        }
        true
    }

    /// Which task of which query it is.
    pub fn label(&self) -> Option<TaskLabel> {
        self.record.label
    }

    /// Processor time of the task so far, with the poll in which it is; for the task itself.
    pub fn busy(&self) -> Duration {
        let began = self.record.turn_began_ns.load(Ordering::Relaxed);
        let held = Duration::from_nanos(self.shared.now_ns().saturating_sub(began));
        self.record.cpu() + METER.with_borrow(|meter| meter.so_far(held, thread_cpu_time))
    }

    /// Notes what the task emits.
    pub fn put_out(&self, rows: usize, bytes: usize) {
        self.record.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.record.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes processor time that went into dividing a batch among partitions.
    pub fn divided(&self, time: Duration) {
        let record = &self.record;
        record
            .partitioning_ns
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
        record.partitioned.fetch_add(1, Ordering::Relaxed);
    }

    /// Why tasks do not end any more, if the slots are stopped.
    pub fn stopped(&self) -> Option<ResourceError> {
        let is_stopped = self.shared.is_stopped.load(Ordering::Relaxed);
        is_stopped.then(|| self.shared.stopped())
    }
}

impl Gate for CpuGate {
    fn checkpoint(&self) -> BoxFuture<'_, ()> {
        if self.gives_way() {
            YieldOnce(false).boxed()
        } else {
            futures::future::ready(()).boxed()
        }
    }
}

/// Goes to the back of the queue once.
struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
