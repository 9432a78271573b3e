//! The CPU scheduler: a slot a core, each polling one coroutine at a time.
//!
//! A task is a future; a stretch between two suspension points is one poll, which is a compute monotask. Who is polled next
//! is the policy's choice ([`SchedulerPolicy`]); by default a slot takes from the highest class that has a ready task: stream
//! before interactive before batch. So a batch task is suspended by not being polled while something more urgent is ready; its
//! [`CpuGate`] makes it return to the queue when that is the case (Neptune, sections 4.1-4.3).
//!
//! ```text
//!             push                    next                         gate closed
//!   spawn ----------> RunQueue -----------------> slot: one poll ---------------> RunQueue (paused)
//!   wake  ---------->   by class                    |                              oldest first
//!                                                   `--> awaits something, or ends
//! ```
//! A poll that takes long (a join's table, the groups of an aggregate) has no suspension point inside. What is more urgent
//! and has waited for [`STAND_IN_AFTER`] meanwhile is polled by a stand-in, a thread beside the slots: then the kernel
//! suspends the long poll.

mod histogram;
mod policy;
mod queue;
mod task;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_task::Runnable;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};

use crate::error::{Result, RuntimeError};
use crate::worker::disk::DiskUse;
pub use histogram::{Durations, Histogram};
pub use policy::{GiveWay, Place, Policy, SchedulerPolicy};
pub use queue::Patience;
use queue::{Cause, RunQueue, Turn, Waiting};
pub use task::{CpuGate, CpuTask, Stretch, TaskLabel, TaskRecord, TaskState, TaskStatus, Waits, Work};

/// How urgent a task is. The order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueryClass {
    /// Epochs of views.
    Stream,
    /// A query until it has used its first CPU milliseconds.
    Interactive,
    /// What goes on longer; back-fill.
    Batch,
}

impl QueryClass {
    /// All of them, the most urgent first.
    pub const ALL: [QueryClass; CLASSES] = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];

    fn of_number(number: u8) -> QueryClass {
        match number {
            0 => QueryClass::Stream,
            1 => QueryClass::Interactive,
            _ => QueryClass::Batch,
        }
    }
}

impl std::fmt::Display for QueryClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            QueryClass::Stream => "stream",
            QueryClass::Interactive => "interactive",
            QueryClass::Batch => "batch",
        })
    }
}

const CLASSES: usize = 3;
const SLOT_STACK_BYTES: usize = 8 << 20;
/// How long something urgent waits for a slot to give way before a stand-in polls it.
const STAND_IN_AFTER: Duration = Duration::from_micros(200);

/// What a thread does until the scheduler is stopped.
type ThreadBody = fn(&Arc<Shared>);

struct Ready {
    runnable: Runnable,
    record: Arc<TaskRecord>,
}

#[derive(Default)]
struct Queues {
    run: RunQueue<Ready>,
    idle_slots: usize,
    /// Polls under way, by class.
    running: [usize; CLASSES],
    /// Stand-ins that watch nothing, and those that watch what waits.
    idle_stand_ins: usize,
    watching_stand_ins: usize,
    is_stopped: bool,
    /// Slots end when no task is left.
    is_retired: bool,
}

/// How long tasks of each class waited for a slot and kept it.
#[derive(Debug, Default)]
pub struct ClassTimes {
    /// From being ready to running.
    pub wait: Histogram,
    /// From running to the next suspension point.
    pub poll: Histogram,
}

/// What a scheduler has measured since its start.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes {
    /// By class, in the order of [`QueryClass::ALL`]: from being ready to running.
    pub wait: [Durations; CLASSES],
    /// By class: from running to the next suspension point.
    pub poll: [Durations; CLASSES],
    /// From the arrival of something more urgent to giving way.
    pub pause: Durations,
    /// From the moment at which a slot was free for something that was paused until it ran.
    pub resume: Durations,
}

impl CpuTimes {
    /// These and those of another worker.
    pub fn merge(&mut self, other: &CpuTimes) {
        for (mine, others) in self.wait.iter_mut().zip(&other.wait) {
            mine.merge(others);
        }
        for (mine, others) in self.poll.iter_mut().zip(&other.poll) {
            mine.merge(others);
        }
        self.pause.merge(&other.pause);
        self.resume.merge(&other.resume);
    }
}

struct Shared {
    queues: Mutex<Queues>,
    ready: Condvar,
    /// Something urgent has to wait.
    urgent: Condvar,
    /// Ready tasks a class, for gates to look at without the lock.
    waiting: [AtomicUsize; CLASSES],
    /// When the first of those began to wait, in nanoseconds since `started`.
    waiting_since: [AtomicU64; CLASSES],
    policy: AtomicU8,
    times: [ClassTimes; CLASSES],
    pause: Histogram,
    resume: Histogram,
    /// Tasks that have not ended, ready or not.
    alive: AtomicUsize,
    is_stopped: AtomicBool,
    /// The worker that was lost with these slots.
    lost: OnceLock<u32>,
    started: Instant,
}

/// Counts a task as alive.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            let queues = self.0.queues.lock();
            if queues.is_retired {
                self.0.ready.notify_all();
                self.0.urgent.notify_all();
            }
        }
    }
}

thread_local! {
    /// The gate of the task that this slot polls.
    static RUNNING: RefCell<Option<CpuGate>> = const { RefCell::new(None) };
}

/// For the leaves of DataFusion plans, which are handed no gate: whether the task that runs on this thread should return
/// to its queue. If so it is about to be paused, and has to answer Pending. False outside a slot.
pub fn should_yield() -> bool {
    RUNNING.with_borrow(|gate| gate.as_ref().is_some_and(CpuGate::gives_way))
}

/// For whatever answers Pending to the task that runs on this thread: what the task will then wait for.
pub fn waits_for(what: Waits) {
    RUNNING.with_borrow(|gate| {
        if let Some(gate) = gate {
            gate.record.waits_for(what);
        }
    });
}

/// A disk monotask of the task that runs on this thread has ended.
pub fn used_disk(used: DiskUse) {
    RUNNING.with_borrow(|gate| {
        if let Some(gate) = gate {
            gate.record.used_disk(used);
        }
    });
}

/// See the module. Clones share the slots.
#[derive(Clone)]
pub struct CpuScheduler {
    shared: Arc<Shared>,
    slots_total: usize,
    slots: Arc<Mutex<Vec<std::thread::JoinHandle<()>>>>,
}

impl CpuScheduler {
    /// Starts a thread and a stand-in for each slot. `io`, if any, is where what tasks await is driven: files, timers.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(slots: usize, io: Option<tokio::runtime::Handle>) -> Result<CpuScheduler> {
        CpuScheduler::start_with(slots, slots, io)
    }

    fn start_with(
        slots: usize,
        stand_ins: usize,
        io: Option<tokio::runtime::Handle>,
    ) -> Result<CpuScheduler> {
        let slots = slots.max(1);
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            ready: Condvar::new(),
            urgent: Condvar::new(),
            waiting: Default::default(),
            waiting_since: Default::default(),
            policy: AtomicU8::new(SchedulerPolicy::default() as u8),
            times: Default::default(),
            pause: Histogram::default(),
            resume: Histogram::default(),
            alive: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            lost: OnceLock::new(),
            started: Instant::now(),
        });
        let mut threads = vec![];
        let kinds: [(_, _, ThreadBody); 2] = [
            ("cpu", slots, Shared::run_slot),
            ("cpu-stand-in", stand_ins, Shared::stand_in),
        ];
        for (name, count, run) in kinds {
            for slot in 0..count {
                let shared = Arc::clone(&shared);
                let io = io.clone();
                let thread = std::thread::Builder::new()
                    .name(format!("{name}-{slot}"))
                    // Deep plans and expressions recurse.
                    .stack_size(SLOT_STACK_BYTES)
                    .spawn(move || {
                        // What a task awaits (files, timers) lives on the I/O runtime; its own work stays here.
                        let _io = io.as_ref().map(tokio::runtime::Handle::enter);
                        run(&shared);
                    })
                    .map_err(|error| RuntimeError::Internal(format!("cannot start a cpu slot: {error}")))?;
                threads.push(thread);
            }
        }
        Ok(CpuScheduler {
            shared,
            slots_total: slots,
            slots: Arc::new(Mutex::new(threads)),
        })
    }

    /// Runs a coroutine. A panic in it becomes an error of the task; dropping the handle cancels it.
    pub fn spawn<T: Send + 'static>(
        &self,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> CpuTask<T> {
        self.spawn_recorded(Arc::new(TaskRecord::new(Work::new(class), None)), future)
    }

    /// The same with a record that others look at.
    pub fn spawn_recorded<T: Send + 'static>(
        &self,
        record: Arc<TaskRecord>,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> CpuTask<T> {
        let gate = CpuGate {
            shared: Arc::clone(&self.shared),
            record: Arc::clone(&record),
        };
        self.shared.alive.fetch_add(1, Ordering::AcqRel);
        let alive = Alive(Arc::clone(&self.shared));
        let ended = Arc::clone(&record);
        let future = AssertUnwindSafe(future(gate))
            .catch_unwind()
            .map(move |outcome| {
                ended.end();
                drop(alive);
                outcome
            })
            .map(|outcome| match outcome {
                Ok(result) => result,
                Err(panic) => Err(RuntimeError::Internal(format!(
                    "a task panicked: {}",
                    panic_message(&*panic)
                ))),
            });
        let shared = Arc::clone(&self.shared);
        let scheduled = Arc::clone(&record);
        let schedule = move |runnable| {
            shared.push(Ready {
                runnable,
                record: Arc::clone(&scheduled),
            })
        };
        let (runnable, task) = async_task::spawn(future, schedule);
        runnable.schedule();
        CpuTask::new(task.fallible(), Arc::clone(&self.shared), record)
    }

    /// Tasks that are ready and wait for a slot.
    pub fn waiting(&self, class: QueryClass) -> usize {
        self.shared.waiting[class as usize].load(Ordering::Relaxed)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots_total
    }

    /// Time in which the slots were busy since the start, all together, in nanoseconds. A poll counts when it ends.
    pub fn busy_ns(&self) -> u64 {
        let classes = self.shared.times.iter();
        classes.map(|times| times.poll.sum().as_nanos() as u64).sum()
    }

    /// The worker as a place for a task, but for its memory.
    pub fn place(&self, worker: u32) -> Place<u32> {
        let queues = self.shared.queues.lock();
        Place {
            worker,
            idle_slots: queues.idle_slots,
            tasks: (self.slots_total - queues.idle_slots.min(self.slots_total))
                + QueryClass::ALL
                    .map(|class| self.waiting(class))
                    .iter()
                    .sum::<usize>(),
            paused: queues.run.paused().count(),
            memory_permille: 0,
        }
    }

    /// How the slots are shared from now on.
    pub fn set_policy(&self, policy: SchedulerPolicy) {
        self.shared.policy.store(policy as u8, Ordering::Relaxed);
    }

    /// How long work may be kept waiting, from now on.
    pub fn set_patience(&self, patience: Patience) {
        self.shared.queues.lock().run.patience = patience;
    }

    /// What was measured since the start.
    pub fn times(&self) -> CpuTimes {
        let times = &self.shared.times;
        CpuTimes {
            wait: [0, 1, 2].map(|class: usize| times[class].wait.durations()),
            poll: [0, 1, 2].map(|class: usize| times[class].poll.durations()),
            pause: self.shared.pause.durations(),
            resume: self.shared.resume.durations(),
        }
    }

    /// The tasks that are paused and wait, the oldest first in each class.
    pub fn paused(&self) -> Vec<Arc<TaskRecord>> {
        let queues = self.shared.queues.lock();
        queues
            .run
            .paused()
            .map(|waiting| Arc::clone(&waiting.item.record))
            .collect()
    }

    /// Sees through what was spawned, then ends the slots. Blocks until then.
    pub fn retire(&self) {
        {
            let mut queues = self.shared.queues.lock();
            queues.is_retired = true;
            self.shared.ready.notify_all();
            self.shared.urgent.notify_all();
        }
        let threads: Vec<_> = self.slots.lock().drain(..).collect();
        for thread in threads {
            // A slot thread ends by returning: tasks' panics are caught.
            let _ = thread.join();
        }
    }

    /// Stops the slots because their worker is lost: whoever waits for a task of theirs is told so. Blocks until the polls
    /// under way have ended.
    pub fn lose(&self, worker: u32) {
        let _ = self.shared.lost.set(worker);
        self.stop();
    }

    /// Stops the slots after the poll that each is in. Tasks that have not ended are dropped.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        {
            let mut queues = self.shared.queues.lock();
            queues.is_stopped = true;
            self.shared.ready.notify_all();
            self.shared.urgent.notify_all();
        }
        for thread in self.slots.lock().drain(..) {
            // A slot thread ends by returning: tasks' panics are caught.
            let _ = thread.join();
        }
        // Dropped outside the lock: a task's destructor may wake others.
        let left = self.shared.take(|_| true);
        drop(left);
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn policy(&self) -> SchedulerPolicy {
        SchedulerPolicy::from_number(self.policy.load(Ordering::Relaxed))
    }

    /// Why a task did not end.
    fn stopped(&self) -> RuntimeError {
        match self.lost.get() {
            Some(worker) => RuntimeError::WorkerLost(*worker),
            None => RuntimeError::ShuttingDown,
        }
    }

    fn push(&self, ready: Ready) {
        let now = self.now_ns();
        let cause = ready.record.queued(self.started + Duration::from_nanos(now));
        let class = ready.record.class();
        let pauses = ready.record.pauses_since_undisturbed();
        let mut queues = self.queues.lock();
        if queues.is_stopped {
            // Dropped outside the lock: a task's destructor may wake others.
            drop(queues);
            return;
        }
        if self.waiting[class as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            self.waiting_since[class as usize].store(now, Ordering::Relaxed);
        }
        let waiting = Waiting {
            item: ready,
            cause,
            since_ns: now,
            pauses,
        };
        queues.run.push(class, waiting);
        if queues.idle_slots > 0 {
            self.ready.notify_one();
        } else {
            self.alert_stand_in(&queues, class);
        }
    }

    /// Lets a stand-in watch what waits, if none does.
    fn alert_stand_in(&self, queues: &Queues, class: QueryClass) {
        if queues.watching_stand_ins == 0
            && queues.idle_stand_ins > 0
            && self.makes_way(&queues.running, class)
        {
            self.urgent.notify_one();
        }
    }

    /// Whether some of these polls would give way to a task of this class, had they a suspension point.
    fn makes_way(&self, running: &[usize; CLASSES], waiting: QueryClass) -> bool {
        let rules = self.policy().rules();
        (QueryClass::ALL.into_iter().zip(running))
            .any(|(class, polls)| *polls > 0 && rules.gives_way(class, waiting) != GiveWay::No)
    }

    /// Takes out of the queue what is wanted.
    fn take(&self, is_wanted: impl Fn(&TaskRecord) -> bool) -> Vec<Ready> {
        let mut queues = self.queues.lock();
        let taken = queues.run.remove(|ready| is_wanted(&ready.record));
        let left = |(class, ready): (QueryClass, Ready)| {
            self.waiting[class as usize].fetch_sub(1, Ordering::Relaxed);
            ready
        };
        taken.into_iter().map(left).collect()
    }

    fn run_slot(self: &Arc<Self>) {
        let mut served = None;
        while let Some((turn, now)) = self.next(served.take()) {
            served = Some(self.poll(turn, now));
        }
    }

    /// Polls a task, from `now` on; returns its class and for how long.
    fn poll(self: &Arc<Self>, turn: Turn<Ready>, now: u64) -> (QueryClass, Duration) {
        let Turn {
            waited,
            class,
            undisturbed_until_ns,
        } = turn;
        let Ready { runnable, record } = waited.item;
        let wait = Duration::from_nanos(now.saturating_sub(waited.since_ns));
        self.times[class as usize].wait.record(wait);
        let started = self.started + Duration::from_nanos(now);
        let turn = record.begins(now, started, wait, waited.cause, undisturbed_until_ns);
        RUNNING.set(Some(CpuGate {
            shared: Arc::clone(self),
            record: Arc::clone(&record),
        }));
        runnable.run();
        let ran = Duration::from_nanos(self.now_ns().saturating_sub(now));
        self.times[class as usize].poll.record(ran);
        record.ran(turn, started, ran);
        RUNNING.set(None);
        (class, ran)
    }

    /// The next task and the time at which it begins; `served`: what this slot has just done.
    fn next(&self, served: Option<(QueryClass, Duration)>) -> Option<(Turn<Ready>, u64)> {
        let mut free_since = self.now_ns();
        let mut queues = self.queues.lock();
        queues.ended(served);
        loop {
            if queues.is_stopped {
                return None;
            }
            let now = self.now_ns();
            if let Some(turn) = queues.run.next(self.policy(), now) {
                if turn.waited.cause == Cause::Paused {
                    let since = free_since.max(turn.waited.since_ns);
                    self.resume
                        .record(Duration::from_nanos(now.saturating_sub(since)));
                }
                return Some((self.begins(&mut queues, turn), now));
            }
            if queues.is_retired && self.alive.load(Ordering::Acquire) == 0 {
                return None;
            }
            queues.idle_slots += 1;
            self.ready.wait(&mut queues);
            queues.idle_slots -= 1;
            free_since = 0;
        }
    }

    /// Counts a turn that was taken from the queue.
    fn begins(&self, queues: &mut Queues, turn: Turn<Ready>) -> Turn<Ready> {
        let class = turn.class as usize;
        self.waiting[class].fetch_sub(1, Ordering::Relaxed);
        if let Some(since) = queues.run.waiting_since(turn.class) {
            self.waiting_since[class].store(since, Ordering::Relaxed);
        }
        queues.running[class] += 1;
        turn
    }

    /// Polls what is urgent and has waited too long for polls that would give way but do not end.
    fn stand_in(self: &Arc<Self>) {
        let mut served = None;
        let mut queues = self.queues.lock();
        loop {
            queues.ended(served.take());
            if queues.is_stopped || (queues.is_retired && self.alive.load(Ordering::Acquire) == 0) {
                return;
            }
            let waiting = [QueryClass::Stream, QueryClass::Interactive]
                .into_iter()
                .filter(|class| self.makes_way(&queues.running, *class))
                .find_map(|class| Some((class, queues.run.waiting_since(class)?)));
            let Some((class, since)) = waiting else {
                queues.idle_stand_ins += 1;
                self.urgent.wait(&mut queues);
                queues.idle_stand_ins -= 1;
                continue;
            };
            let now = self.now_ns();
            let due = since + STAND_IN_AFTER.as_nanos() as u64;
            if now < due {
                let due = self.started + Duration::from_nanos(due);
                queues.watching_stand_ins += 1;
                self.urgent.wait_until(&mut queues, due);
                queues.watching_stand_ins -= 1;
                continue;
            }
            if let Some(turn) = queues.run.turn_of(class, now) {
                let turn = self.begins(&mut queues, turn);
                if queues.run.waiting_since(class).is_some() {
                    self.alert_stand_in(&queues, class);
                }
                drop(queues);
                served = Some(self.poll(turn, now));
                queues = self.queues.lock();
            }
        }
    }
}

impl Queues {
    /// A poll is over.
    fn ended(&mut self, served: Option<(QueryClass, Duration)>) {
        if let Some((class, time)) = served {
            self.run.served_ns[class as usize] += time.as_nanos() as u64;
            self.running[class as usize] -= 1;
        }
    }
}

/// What a panic says.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
