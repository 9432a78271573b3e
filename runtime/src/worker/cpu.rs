//! The CPU scheduler: a slot a core, each polling one coroutine at a time.
//!
//! A task is a future; a stretch between two suspension points is one poll. Ready tasks wait in a queue per class, and a
//! slot always takes from the highest class that has one: stream before interactive before batch. So a batch task is
//! suspended by not being polled while something more urgent is ready; its [`CpuGate`] makes it return to the queue when
//! that is the case (Neptune, sections 4.1-4.2).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_task::Runnable;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex};

use crate::error::{Result, RuntimeError};
use crate::operator::Gate;

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

const CLASSES: usize = 3;
const SLOT_STACK_BYTES: usize = 8 << 20;

/// CPU time after which an interactive query counts as batch work.
const INTERACTIVE_CPU_MAX: Duration = Duration::from_millis(20);

/// What the scheduler knows of a task.
#[derive(Debug)]
pub struct TaskRecord {
    class: AtomicU8,
    cpu_ns: AtomicU64,
}

impl TaskRecord {
    fn new(class: QueryClass) -> Self {
        TaskRecord {
            class: AtomicU8::new(class as u8),
            cpu_ns: AtomicU64::new(0),
        }
    }

    fn class(&self) -> usize {
        usize::from(self.class.load(Ordering::Relaxed))
    }

    /// Time spent in polls of the task.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    fn ran(&self, time: Duration) {
        let total = self.cpu_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed) + time.as_nanos() as u64;
        if self.class() == QueryClass::Interactive as usize && total > INTERACTIVE_CPU_MAX.as_nanos() as u64 {
            self.class.store(QueryClass::Batch as u8, Ordering::Relaxed);
        }
    }
}

struct Ready {
    runnable: Runnable,
    record: Arc<TaskRecord>,
}

#[derive(Default)]
struct Queues {
    by_class: [VecDeque<Ready>; CLASSES],
    idle_slots: usize,
    is_stopped: bool,
    /// Slots end when no task is left.
    is_retired: bool,
}

struct Shared {
    queues: Mutex<Queues>,
    ready: Condvar,
    /// Ready tasks a class, for gates to look at without the lock.
    waiting: [AtomicUsize; CLASSES],
    /// Tasks that have not ended, ready or not.
    alive: AtomicUsize,
    /// Time in which slots polled, all together.
    busy_ns: AtomicU64,
    is_stopped: AtomicBool,
    /// The worker that was lost with these slots.
    lost: OnceLock<u32>,
}

/// Counts a task as alive.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            let queues = self.0.queues.lock();
            if queues.is_retired {
                self.0.ready.notify_all();
            }
        }
    }
}

thread_local! {
    /// The gate of the task that this slot polls.
    static RUNNING: RefCell<Option<CpuGate>> = const { RefCell::new(None) };
}

/// For the leaves of DataFusion plans, which are handed no gate: whether the task that runs on this thread should return
/// to its queue. False outside a slot.
pub fn should_yield() -> bool {
    RUNNING.with_borrow(|gate| gate.as_ref().is_some_and(CpuGate::is_closed))
}

/// See the module. Clones share the slots.
#[derive(Clone)]
pub struct CpuScheduler {
    shared: Arc<Shared>,
    slots_total: usize,
    slots: Arc<Mutex<Vec<std::thread::JoinHandle<()>>>>,
}

impl CpuScheduler {
    /// Starts one thread for each slot.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(slots: usize, io: Option<tokio::runtime::Handle>) -> Result<CpuScheduler> {
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            ready: Condvar::new(),
            waiting: Default::default(),
            alive: AtomicUsize::new(0),
            busy_ns: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
            lost: OnceLock::new(),
        });
        let mut threads = vec![];
        for slot in 0..slots.max(1) {
            let shared = Arc::clone(&shared);
            let io = io.clone();
            let thread = std::thread::Builder::new()
                .name(format!("cpu-{slot}"))
                // Deep plans and expressions recurse.
                .stack_size(SLOT_STACK_BYTES)
                .spawn(move || {
                    // What a task awaits (files, timers) lives on the I/O runtime; its own work stays here.
                    let _io = io.as_ref().map(tokio::runtime::Handle::enter);
                    shared.run_slot();
                })
                .map_err(|error| RuntimeError::Internal(format!("cannot start a cpu slot: {error}")))?;
            threads.push(thread);
        }
        Ok(CpuScheduler {
            shared,
            slots_total: slots.max(1),
            slots: Arc::new(Mutex::new(threads)),
        })
    }

    /// Runs a coroutine. A panic in it becomes an error of the task; dropping the handle cancels it.
    pub fn spawn<T: Send + 'static>(
        &self,
        class: QueryClass,
        future: impl FnOnce(CpuGate) -> BoxFuture<'static, Result<T>>,
    ) -> CpuTask<T> {
        let record = Arc::new(TaskRecord::new(class));
        let gate = CpuGate {
            shared: Arc::clone(&self.shared),
            record: Arc::clone(&record),
        };
        self.shared.alive.fetch_add(1, Ordering::AcqRel);
        let alive = Alive(Arc::clone(&self.shared));
        let future = AssertUnwindSafe(future(gate))
            .catch_unwind()
            .map(move |outcome| {
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
        CpuTask {
            task: Some(task.fallible()),
            shared: Arc::clone(&self.shared),
            record,
        }
    }

    /// Tasks that are ready and wait for a slot.
    pub fn waiting(&self, class: QueryClass) -> usize {
        self.shared.waiting[class as usize].load(Ordering::Relaxed)
    }

    pub fn slots(&self) -> usize {
        self.slots_total
    }

    /// Time in which the slots were busy since the start, all together, in nanoseconds. A poll counts when it ends.
    pub fn busy_ns(&self) -> u64 {
        self.shared.busy_ns.load(Ordering::Relaxed)
    }

    /// Sees through what was spawned, then ends the slots. Blocks until then.
    pub fn retire(&self) {
        {
            let mut queues = self.shared.queues.lock();
            queues.is_retired = true;
            self.shared.ready.notify_all();
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
        }
        for thread in self.slots.lock().drain(..) {
            // A slot thread ends by returning: tasks' panics are caught.
            let _ = thread.join();
        }
        let left: Vec<Ready> = self
            .shared
            .queues
            .lock()
            .by_class
            .iter_mut()
            .flat_map(std::mem::take)
            .collect();
        drop(left);
    }
}

impl Shared {
    /// Why a task did not end.
    fn stopped(&self) -> RuntimeError {
        match self.lost.get() {
            Some(worker) => RuntimeError::WorkerLost(*worker),
            None => RuntimeError::ShuttingDown,
        }
    }

    fn push(&self, ready: Ready) {
        let mut queues = self.queues.lock();
        if queues.is_stopped {
            // Dropped outside the lock: a task's destructor may wake others.
            drop(queues);
            return;
        }
        let class = ready.record.class();
        self.waiting[class].fetch_add(1, Ordering::Relaxed);
        queues.by_class[class].push_back(ready);
        if queues.idle_slots > 0 {
            self.ready.notify_one();
        }
    }

    fn run_slot(self: &Arc<Self>) {
        while let Some(Ready { runnable, record }) = self.next() {
            RUNNING.set(Some(CpuGate {
                shared: Arc::clone(self),
                record: Arc::clone(&record),
            }));
            let start = Instant::now();
            runnable.run();
            let time = start.elapsed();
            record.ran(time);
            self.busy_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
            RUNNING.set(None);
        }
    }

    fn next(&self) -> Option<Ready> {
        let mut queues = self.queues.lock();
        loop {
            if queues.is_stopped {
                return None;
            }
            for class in 0..CLASSES {
                if let Some(ready) = queues.by_class[class].pop_front() {
                    self.waiting[class].fetch_sub(1, Ordering::Relaxed);
                    return Some(ready);
                }
            }
            if queues.is_retired && self.alive.load(Ordering::Acquire) == 0 {
                return None;
            }
            queues.idle_slots += 1;
            self.ready.wait(&mut queues);
            queues.idle_slots -= 1;
        }
    }
}

/// A running coroutine's result. Dropping it cancels the coroutine at its next suspension point.
pub struct CpuTask<T> {
    task: Option<async_task::FallibleTask<Result<T>>>,
    shared: Arc<Shared>,
    record: Arc<TaskRecord>,
}

impl<T> CpuTask<T> {
    /// Lets the task run on without anyone waiting.
    pub fn detach(mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }

    /// CPU time so far.
    pub fn cpu(&self) -> Duration {
        self.record.cpu()
    }
}

impl<T> Future for CpuTask<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.task {
            // None: its slots were stopped before it ended.
            Some(task) => (task.poll_unpin(context))
                .map(|outcome| outcome.unwrap_or_else(|| Err(self.shared.stopped()))),
            None => Poll::Pending,
        }
    }
}

/// A task's suspension point.
#[derive(Clone)]
pub struct CpuGate {
    shared: Arc<Shared>,
    record: Arc<TaskRecord>,
}

impl CpuGate {
    /// Whether something more urgent than this task waits for a slot.
    pub fn is_closed(&self) -> bool {
        let class = self.record.class();
        self.shared.waiting[..class]
            .iter()
            .any(|waiting| waiting.load(Ordering::Relaxed) > 0)
    }
}

impl Gate for CpuGate {
    fn checkpoint(&self) -> BoxFuture<'_, ()> {
        if self.is_closed() {
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

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_stream_task_runs_before_batch_tasks_that_waited_longer() {
        let cpu = CpuScheduler::start(1, None).unwrap();
        let (started, first_runs) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let order = Arc::new(Mutex::new(vec![]));
        let blocker = cpu.spawn(QueryClass::Batch, move |_| {
            async move {
                started.send(()).unwrap();
                released.recv().unwrap();
                Ok(())
            }
            .boxed()
        });
        first_runs.recv().unwrap();
        let note = |class, name: &'static str| {
            let order = Arc::clone(&order);
            cpu.spawn(class, move |_| {
                async move {
                    order.lock().push(name);
                    Ok(())
                }
                .boxed()
            })
        };
        let tasks = [
            note(QueryClass::Batch, "batch"),
            note(QueryClass::Interactive, "interactive"),
            note(QueryClass::Stream, "stream"),
        ];
        release.send(()).unwrap();
        futures::executor::block_on(async {
            blocker.await.unwrap();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(*order.lock(), ["stream", "interactive", "batch"]);
        cpu.stop();
    }

    #[test]
    fn a_batch_task_gives_way_at_its_gate() {
        let cpu = CpuScheduler::start(1, None).unwrap();
        let order = Arc::new(Mutex::new(vec![]));
        let (started, batch_runs) = mpsc::channel();
        let (arrived, stream_waits) = mpsc::channel::<()>();
        let notes = Arc::clone(&order);
        let batch = cpu.spawn(QueryClass::Batch, move |gate| {
            async move {
                started.send(()).unwrap();
                stream_waits.recv().unwrap();
                gate.checkpoint().await;
                notes.lock().push("batch");
                Ok(())
            }
            .boxed()
        });
        batch_runs.recv().unwrap();
        let notes = Arc::clone(&order);
        let stream = cpu.spawn(QueryClass::Stream, move |_| {
            async move {
                notes.lock().push("stream");
                Ok(())
            }
            .boxed()
        });
        arrived.send(()).unwrap();
        futures::executor::block_on(async {
            batch.await.unwrap();
            stream.await.unwrap();
        });
        assert_eq!(*order.lock(), ["stream", "batch"]);
        cpu.stop();
    }

    #[test]
    fn a_panic_is_an_error_and_the_slot_lives_on() {
        let cpu = CpuScheduler::start(1, None).unwrap();
        let bad = cpu.spawn::<()>(QueryClass::Batch, |_| async { panic!("bad row") }.boxed());
        let error = futures::executor::block_on(bad).unwrap_err();
        assert!(error.to_string().contains("bad row"));
        let good = cpu.spawn(QueryClass::Batch, |_| async { Ok(7) }.boxed());
        assert_eq!(futures::executor::block_on(good).unwrap(), 7);
        cpu.stop();
    }
}
