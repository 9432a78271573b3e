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
//! does not wait for it: it is polled at once by a thread that the kernel prefers (see `slots`).

mod crowding;
mod handle;
mod histogram;
mod long;
mod meter;
mod slots;
mod task;
#[cfg(test)]
mod tests;
mod work;

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::RelationId;
pub use millrace_schedule::cpu::policy::{GiveWay, Place, Policy, SchedulerPolicy};
pub use millrace_schedule::cpu::queue::Patience;
use millrace_schedule::cpu::{CLASSES, QueryClass};
use parking_lot::Mutex;

use crate::error::{ResourceError, Result};
use crate::memory::Memory;
use crate::monotask::DiskUse;
use crate::running::Running;
pub use handle::CpuTask;
pub use histogram::{Durations, Histogram};
use meter::Meter;
use slots::{Alive, Lane, Ready, Shared};
pub use slots::{process_cpu_time, stolen_time, thread_cpu_time};
pub use task::{CpuGate, Stretch, TaskLabel, TaskRecord, TaskState, TaskStatus, Waits};
pub use work::Work;

/// What plans and frees a plan calls itself for each of its levels, which in a build that is not optimised takes much.
const SLOT_STACK_BYTES: usize = 16 << 20;
/// How long tasks of each class waited for a slot and kept it.
#[derive(Debug, Default)]
pub struct ClassTimes {
    /// From being ready to running.
    pub wait: Histogram,
    /// From running to the next suspension point.
    pub poll: Histogram,
    /// Processor time in that, in nanoseconds.
    pub busy_ns: AtomicU64,
}

/// What a scheduler has measured since its start.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes {
    /// By class, in the order of [`QueryClass::ALL`]: from being ready to running.
    pub wait: [Durations; CLASSES],
    /// By class: from running to the next suspension point, whether the task had the processor meanwhile or not.
    pub poll: [Durations; CLASSES],
    /// By class: processor time in that.
    pub busy: [Duration; CLASSES],
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
        for (mine, others) in self.busy.iter_mut().zip(&other.busy) {
            *mine += *others;
        }
        self.pause.merge(&other.pause);
        self.resume.merge(&other.resume);
    }
}

thread_local! {
    /// The gate of the task that this slot polls.
    static RUNNING: RefCell<Option<CpuGate>> = const { RefCell::new(None) };
    /// The processor time of its polls.
    static METER: RefCell<Meter> = RefCell::default();
    /// The lane of this slot.
    static LANE: Cell<Option<Lane>> = const { Cell::new(None) };
}

/// Whether this thread is an idle one to the operating system, which other programs may leave next to nothing.
pub fn is_idle_thread() -> bool {
    LANE.get() == Some(Lane::Idle)
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

/// The task that runs on this thread holds so many bytes more of its query's memory. Nothing outside a slot.
pub fn holds(bytes: usize) {
    RUNNING.with_borrow(|gate| {
        if let Some(gate) = gate {
            gate.shared.held(&gate.record, bytes);
        }
    });
}

/// It holds so many bytes less.
pub fn releases(bytes: usize) {
    RUNNING.with_borrow(|gate| {
        if let Some(gate) = gate {
            gate.shared.released(&gate.record, bytes);
        }
    });
}

/// For computations that suspend nowhere, such as planning: whether nobody waits for the task on this thread any more. False outside a
/// slot.
pub fn is_unwanted() -> bool {
    RUNNING.with_borrow(|gate| gate.as_ref().is_some_and(|gate| gate.record.is_unwanted()))
}

/// The task that runs on this thread; none outside a slot.
pub fn running_task() -> Option<Arc<TaskRecord>> {
    RUNNING.with_borrow(|gate| gate.as_ref().map(|gate| Arc::clone(&gate.record)))
}

/// A disk monotask of the task that runs on this thread has ended.
pub fn used_disk(used: DiskUse) {
    RUNNING.with_borrow(|gate| {
        if let Some(gate) = gate {
            gate.record.used_disk(used);
        }
    });
}

/// The threads of a scheduler.
struct Threads {
    shared: Arc<Shared>,
    /// Drives what tasks await: files, timers.
    io: Option<tokio::runtime::Handle>,
    handles: Mutex<Vec<std::thread::JoinHandle<()>>>,
    next: AtomicUsize,
}

impl Threads {
    /// Starts a thread of a lane.
    fn start(&self, lane: Lane) -> std::io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let io = self.io.clone();
        let run = move || {
            // What a task awaits (files, timers) lives on the I/O runtime; its own work stays here.
            let _io = io.as_ref().map(tokio::runtime::Handle::enter);
            LANE.set(Some(lane));
            shared.run(lane, number);
        };
        self.shared.expects_thread();
        let thread = std::thread::Builder::new()
            .name(format!("{}-{number}", lane.name()))
            // Deep plans and expressions recurse.
            .stack_size(SLOT_STACK_BYTES)
            .spawn(run)
            .inspect_err(|_| self.shared.expects_no_thread())?;
        let mut handles = self.handles.lock();
        // Those that a long poll had kept, and that have ended since.
        handles.retain(|handle| !handle.is_finished());
        handles.push(thread);
        Ok(())
    }
}

/// See the module. Clones share the slots.
#[derive(Clone)]
pub struct CpuScheduler {
    shared: Arc<Shared>,
    slots_total: usize,
    threads: Arc<Threads>,
}

impl CpuScheduler {
    /// Starts the threads: for each slot one a lane, and one that looks for long polls. `io`, if any, is where what tasks await
    /// is driven: files, timers.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(slots: usize, io: Option<tokio::runtime::Handle>) -> Result<CpuScheduler> {
        Self::start_lanes(slots, io, &Lane::ALL)
    }

    /// One without streams: for statements, which are to be planned and handed on however busy the slots of the workers are.
    /// What they read and change is done by tasks of those. Batch work of it is only nicer and never idle work: what is planned may hold
    /// locks, and is not to stand still beside other programs.
    ///
    /// # Errors
    /// As [`CpuScheduler::start`].
    pub fn start_without_streams(slots: usize, io: Option<tokio::runtime::Handle>) -> Result<CpuScheduler> {
        Self::start_lanes(slots, io, &[Lane::Interactive, Lane::Batch])
    }

    fn start_lanes(slots: usize, io: Option<tokio::runtime::Handle>, lanes: &[Lane]) -> Result<CpuScheduler> {
        let slots = slots.max(1);
        let refused =
            |error: std::io::Error| ResourceError::Internal(format!("cannot start a cpu slot: {error}"));
        let shared = Arc::new(Shared::new(slots, lanes.contains(&Lane::Stream)));
        let threads = Arc::new(Threads {
            shared: Arc::clone(&shared),
            io,
            handles: Mutex::default(),
            next: AtomicUsize::new(0),
        });
        for lane in lanes {
            for _ in 0..slots {
                threads.start(*lane).map_err(refused)?;
            }
        }
        let watched = Arc::clone(&threads);
        std::thread::Builder::new()
            .name("long-polls".to_owned())
            .spawn(move || {
                let start = |lane| watched.start(lane).is_ok();
                watched.shared.run_watch(start);
            })
            .map_err(refused)?;
        Ok(CpuScheduler {
            shared,
            slots_total: slots,
            threads,
        })
    }

    /// Runs a coroutine. A panic in it becomes an error of the task; dropping the handle cancels it.
    pub fn spawn<T: Send + 'static, E: From<ResourceError> + Send + 'static>(
        &self,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T, E>>,
    ) -> CpuTask<T, E> {
        self.spawn_recorded(Arc::new(TaskRecord::new(Work::new(class), None)), future)
    }

    /// The same for a view: should the process die in it, the next start knows of which view it was.
    pub fn spawn_for<T: Send + 'static, E: From<ResourceError> + Send + 'static>(
        &self,
        view: RelationId,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T, E>>,
    ) -> CpuTask<T, E> {
        let record = TaskRecord::new(Work::new(class), None).for_view(view);
        self.spawn_recorded(Arc::new(record), future)
    }

    /// The same with a record that others look at.
    pub fn spawn_recorded<T: Send + 'static, E: From<ResourceError> + Send + 'static>(
        &self,
        record: Arc<TaskRecord>,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T, E>>,
    ) -> CpuTask<T, E> {
        let gate = CpuGate {
            shared: Arc::clone(&self.shared),
            record: Arc::clone(&record),
        };
        let alive = Alive::new(&self.shared, &record);
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
                Err(panic) => {
                    let said = format!("a task panicked: {}", panic_message(&*panic));
                    Err(ResourceError::Internal(said).into())
                }
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
        self.shared.waiting(class)
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots_total
    }

    /// Processor time of all polls since the start, in nanoseconds. A poll counts when it ends.
    pub fn busy_ns(&self) -> u64 {
        self.shared.busy_ns.load(Ordering::Relaxed)
    }

    /// What tasks of queries hold here, in bytes.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// From now on batch tasks begin only while there is memory.
    pub fn watch(&self, memory: &Arc<Memory>) {
        let _ = self.shared.memory.set(Arc::clone(memory));
    }

    /// From now on it is noted there for which view each thread works.
    pub fn note_in(&self, running: &Arc<Running>) {
        let _ = self.shared.running.set(Arc::clone(running));
    }

    /// The worker as a place for a task. `memory_permille`: how much of its memory is in use, in thousandths.
    pub fn place(&self, worker: u32, memory_permille: u32) -> Place<u32> {
        let queues = self.shared.queues.lock();
        let idle_slots = self.shared.free_slots();
        let waiting = QueryClass::ALL.map(|class| self.waiting(class));
        Place {
            worker,
            idle_slots,
            tasks: (self.slots_total - idle_slots) + waiting.iter().sum::<usize>(),
            paused: queues.run.paused().count(),
            memory_permille,
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
            busy: times
                .each_ref()
                .map(|times| Duration::from_nanos(times.busy_ns.load(Ordering::Relaxed))),
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
        self.shared.retire();
        self.join();
    }

    /// Stops the slots because their worker is lost: whoever waits for a task of theirs is told so. Blocks until the polls
    /// under way have ended.
    pub fn lose(&self, worker: u32) {
        let _ = self.shared.lost.set(worker);
        self.stop();
    }

    /// Stops the slots after the poll that each is in. Tasks that have not ended are dropped.
    pub fn stop(&self) {
        self.shared.stop();
        self.join();
        // Dropped outside the lock: a task's destructor may wake others.
        let left = self.shared.take_all();
        drop(left);
    }

    fn join(&self) {
        let threads: Vec<_> = self.threads.handles.lock().drain(..).collect();
        for thread in threads {
            // It ends by returning: tasks' panics are caught.
            let _ = thread.join();
        }
    }

    /// As [`CpuScheduler::stop`], but polls that have been under way for a second or more are not waited for.
    pub fn stop_without_long_polls(&self) {
        self.shared.stop();
        self.shared.wait_for_threads();
        drop(self.shared.take_all());
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
