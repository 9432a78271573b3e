//! The slots: who is polled where and when.
//!
//! A slot is the right to be polled: there are as many as cores. Every class has as many threads ([`Lane`]), and the operating
//! system is told that those of a less urgent class matter less. A class's tasks find a slot taken only by those that are at least
//! as urgent; if all are in less urgent polls, one more poll begins at once, on a thread that the kernel prefers, and the
//! poll that was under way stands still until its gate pauses it or the urgent one has ended. A poll that does not end keeps nobody
//! waiting either: see [`super::long`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_task::Runnable;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::queue::{Cause, RunQueue, Turn, Waiting};
use millrace_schedule::cpu::{CLASSES, QueryClass};
use parking_lot::{Condvar, Mutex};
#[cfg(target_os = "linux")]
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use super::crowding::Crowding;
use super::long::{Change, Polls, ThreadNumber};
use super::task::{CpuGate, TaskRecord};
use super::{ClassTimes, Histogram, METER, RUNNING};
use crate::error::ResourceError;
use crate::memory::Memory;
use crate::running::{Place, Running};

/// How much less the threads of interactive and of batch tasks matter to the operating system, in steps of nice: five are a
/// third, and ten a tenth of the processor where both want all of it.
const INTERACTIVE_NICE: i32 = 5;
const BATCH_NICE: i32 = 10;

/// For how long after a task that is no batch work, batch work is idle work to the operating system.
const IDLE_FOR_NS: u64 = 1_000_000_000;

/// What kind of thread polls.
///
/// Batch work beside anything more urgent is idle work to the operating system: any other thread preempts it at once, where one
/// that is only nicer is let finish its slice of some milliseconds. That can mean next to nothing of the cores beside other programs,
/// so while nothing is more urgent it has threads that are only nicer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Stream,
    Interactive,
    Batch,
    Idle,
}

impl Lane {
    pub const ALL: [Lane; LANES] = [Lane::Stream, Lane::Interactive, Lane::Batch, Lane::Idle];

    /// As in threads' names.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Stream => "stream",
            Lane::Interactive => "interactive",
            Lane::Batch => "batch",
            Lane::Idle => "idle",
        }
    }
}

const LANES: usize = 4;

/// How often polls that take long are looked for, while somebody waits.
const WATCH_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Ready {
    pub runnable: Runnable,
    pub record: Arc<TaskRecord>,
}

#[derive(Default)]
pub(super) struct Queues {
    pub run: RunQueue<Ready>,
    /// What the threads of each lane are to poll.
    turns: [VecDeque<Turn<Ready>>; LANES],
    /// When the last poll ended.
    freed_ns: u64,
    is_stopped: bool,
    /// Threads end when no task is left.
    is_retired: bool,
    /// Polls under way.
    polls: Polls,
    /// What the operating system calls the threads.
    native_ids: Vec<Option<NativeId>>,
    /// Threads that have not ended, and are not kept by a poll that was set apart.
    threads: usize,
    /// Somebody waits for a slot, and the watch has been told.
    is_watched: bool,
}

pub(super) struct Shared {
    pub queues: Mutex<Queues>,
    slots: usize,
    /// There are threads for streams, too.
    has_streams: bool,
    /// There is something to poll for the threads of a lane.
    ready: [Condvar; LANES],
    /// Somebody waits for a slot: polls that take long are to be looked for.
    watch: Condvar,
    /// A thread has ended, or will with a poll that was set apart.
    thread_ended: Condvar,
    /// Until then batch work is idle work, unless others crowd it out.
    idle_until_ns: AtomicU64,
    crowding: Mutex<Crowding>,
    /// Tasks a class that wait for a slot, for gates to look at without the lock.
    pub waiting: [AtomicUsize; CLASSES],
    /// When the first of those began to wait, in nanoseconds since `started`.
    waiting_since: [AtomicU64; CLASSES],
    /// Polls that have begun or are about to, by the class whose place they take; changed under the lock.
    polls: [AtomicUsize; CLASSES],
    /// Since when the last one waited that began while no slot was free.
    crowded_since: AtomicU64,
    pub policy: AtomicU8,
    pub times: [ClassTimes; CLASSES],
    /// Processor time of all polls that have ended.
    pub busy_ns: AtomicU64,
    pub pause: Histogram,
    pub resume: Histogram,
    /// Tasks that have not ended, ready or not.
    pub alive: AtomicUsize,
    pub is_stopped: AtomicBool,
    /// The worker that was lost with these slots.
    pub lost: OnceLock<u32>,
    /// What tasks of queries hold that have not ended, in bytes.
    pub held: AtomicUsize,
    /// The memory of the process.
    pub memory: OnceLock<Arc<Memory>>,
    /// Where it is noted for which view each thread works.
    pub running: OnceLock<Arc<Running>>,
    started: Instant,
}

/// Counts a task as alive.
pub(super) struct Alive(Arc<Shared>, Arc<TaskRecord>);

impl Alive {
    pub fn new(shared: &Arc<Shared>, record: &Arc<TaskRecord>) -> Alive {
        shared.alive.fetch_add(1, Ordering::AcqRel);
        Alive(Arc::clone(shared), Arc::clone(record))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.released(&self.1, usize::MAX);
        if self.0.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            let queues = self.0.queues.lock();
            if queues.is_retired {
                self.0.wake_all();
            }
        }
    }
}

impl Shared {
    pub fn new(slots: usize, has_streams: bool) -> Shared {
        Shared {
            queues: Mutex::default(),
            slots,
            has_streams,
            ready: Default::default(),
            watch: Condvar::new(),
            thread_ended: Condvar::new(),
            idle_until_ns: AtomicU64::new(0),
            crowding: Mutex::default(),
            waiting: Default::default(),
            waiting_since: Default::default(),
            polls: Default::default(),
            crowded_since: AtomicU64::new(0),
            policy: AtomicU8::new(SchedulerPolicy::default() as u8),
            times: Default::default(),
            busy_ns: AtomicU64::new(0),
            pause: Histogram::default(),
            resume: Histogram::default(),
            alive: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            lost: OnceLock::new(),
            held: AtomicUsize::new(0),
            memory: OnceLock::new(),
            running: OnceLock::new(),
            started: Instant::now(),
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    pub fn policy(&self) -> SchedulerPolicy {
        SchedulerPolicy::from_number(self.policy.load(Ordering::Relaxed))
    }

    /// Why a task did not end.
    pub fn stopped(&self) -> ResourceError {
        match self.lost.get() {
            Some(worker) => ResourceError::WorkerLost(*worker),
            None => ResourceError::ShuttingDown,
        }
    }

    /// Threads end when no task is left.
    pub fn retire(&self) {
        self.queues.lock().is_retired = true;
        self.wake_all();
    }

    /// Threads end after their poll.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.queues.lock().is_stopped = true;
        self.wake_all();
    }

    fn wake_all(&self) {
        for lane in &self.ready {
            lane.notify_all();
        }
        self.watch.notify_all();
    }

    /// Slots without a poll.
    pub fn free_slots(&self) -> usize {
        self.slots.saturating_sub(self.polls())
    }

    fn polls(&self) -> usize {
        self.polls.iter().map(|polls| polls.load(Ordering::Relaxed)).sum()
    }

    /// Tasks of a class that are ready and wait for a slot.
    pub fn waiting(&self, class: QueryClass) -> usize {
        self.waiting[class as usize].load(Ordering::Relaxed)
    }

    /// Something more urgent that waits for a slot, or has begun without one: its class, and since when. For a task that is
    /// polled.
    pub fn more_urgent(&self, running: QueryClass) -> Option<(QueryClass, u64)> {
        let more_urgent = || QueryClass::ALL[..running as usize].iter().copied();
        let count = |counts: &[AtomicUsize], class| counts[class as usize].load(Ordering::Relaxed);
        let waits = more_urgent().find(|class| count(&self.waiting, *class) > 0);
        if let Some(class) = waits {
            return Some((class, self.waiting_since[class as usize].load(Ordering::Relaxed)));
        }
        if running == QueryClass::Stream || self.polls() <= self.slots {
            return None;
        }
        let class = more_urgent().find(|class| count(&self.polls, *class) > 0)?;
        Some((class, self.crowded_since.load(Ordering::Relaxed)))
    }

    /// A task of a query holds so many bytes more.
    pub fn held(&self, record: &TaskRecord, bytes: usize) {
        record.held.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A task holds so many bytes less, and not less than nothing: what one task gets another may give back.
    pub fn released(&self, record: &TaskRecord, bytes: usize) {
        let before = record
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                Some(held.saturating_sub(bytes))
            });
        let held = before.unwrap_or_default();
        self.held.fetch_sub(held.min(bytes), Ordering::Relaxed);
    }

    pub fn push(&self, ready: Ready) {
        let now = self.now_ns();
        let cause = ready.record.queued(self.started + Duration::from_nanos(now));
        let class = ready.record.class();
        if class != QueryClass::Batch {
            self.idle_until_ns.store(now + IDLE_FOR_NS, Ordering::Relaxed);
        }
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
            tenant: ready.record.work.tenant(),
            pauses: ready.record.pauses_since_undisturbed(),
            is_new: ready.record.is_new(),
            item: ready,
            cause,
            since_ns: now,
        };
        queues.run.push(class, waiting);
        self.dispatch(&mut queues, now, None);
    }

    /// Takes out of the queue what is wanted.
    pub fn take(&self, is_wanted: impl Fn(&TaskRecord) -> bool) -> Vec<Ready> {
        let mut queues = self.queues.lock();
        let taken = queues.run.remove(|ready| is_wanted(&ready.record));
        let left = |(class, ready): (QueryClass, Ready)| {
            self.waiting[class as usize].fetch_sub(1, Ordering::Relaxed);
            ready
        };
        taken.into_iter().map(left).collect()
    }

    /// All that waits, after the threads have ended.
    pub fn take_all(&self) -> Vec<Ready> {
        let mut left = self.take(|_| true);
        let mut queues = self.queues.lock();
        let assigned = queues.turns.iter_mut().flat_map(|turns| turns.drain(..));
        left.extend(assigned.map(|turn| turn.waited.item));
        left
    }

    /// Where a poll is made that takes a place of a class.
    fn lane(&self, policy: SchedulerPolicy, rank: QueryClass, now: u64) -> Lane {
        match rank {
            // Without pauses all are alike, to the operating system too.
            _ if !policy.pauses() && self.has_streams => Lane::Stream,
            QueryClass::Stream if self.has_streams => Lane::Stream,
            QueryClass::Stream | QueryClass::Interactive => Lane::Interactive,
            QueryClass::Batch if !policy.pauses() => Lane::Interactive,
            QueryClass::Batch => {
                let is_beside_others = now < self.idle_until_ns.load(Ordering::Relaxed);
                match self.has_streams && is_beside_others && !self.crowding.lock().is_crowded_out(now) {
                    true => Lane::Idle,
                    false => Lane::Batch,
                }
            }
        }
    }

    /// Gives out turns as long as there is space. `mine`: the lane of the thread that calls, which will look for a turn itself.
    fn dispatch(&self, queues: &mut Queues, now: u64, mut mine: Option<usize>) {
        let policy = self.policy();
        loop {
            let batch_polls = self.polls[QueryClass::Batch as usize].load(Ordering::Relaxed);
            let is_short = || self.memory.get().is_some_and(|memory| memory.is_short());
            queues.run.defers_new = batch_polls > 0 && is_short();
            let Some(turn) = queues.run.next(policy, self.room(policy), now) else {
                if !queues.is_watched && self.is_anyone_waiting() {
                    queues.is_watched = true;
                    self.watch.notify_one();
                }
                return;
            };
            let class = turn.class as usize;
            self.waiting[class].fetch_sub(1, Ordering::Relaxed);
            if let Some(since) = queues.run.waiting_since(turn.class) {
                self.waiting_since[class].store(since, Ordering::Relaxed);
            }
            if self.free_slots() == 0 {
                self.crowded_since.store(turn.waited.since_ns, Ordering::Relaxed);
            }
            self.polls[turn.rank as usize].fetch_add(1, Ordering::Relaxed);
            let lane = self.lane(policy, turn.rank, now) as usize;
            queues.turns[lane].push_back(turn);
            if mine == Some(lane) {
                mine = None;
            } else {
                self.ready[lane].notify_one();
            }
        }
    }

    /// For which classes there is space: slots are taken by what is at least as urgent, and by everything under a policy
    /// that pauses nobody.
    fn room(&self, policy: SchedulerPolicy) -> [bool; CLASSES] {
        let polls = self.polls.each_ref().map(|polls| polls.load(Ordering::Relaxed));
        let all = polls.iter().sum();
        let mut taken = 0;
        polls.map(|polls| {
            taken += polls;
            self.slots > if policy.pauses() { taken } else { all }
        })
    }

    fn is_anyone_waiting(&self) -> bool {
        QueryClass::ALL.into_iter().any(|class| self.waiting(class) > 0)
    }

    /// There will be a thread that calls [`Self::run`].
    pub fn expects_thread(&self) {
        self.queues.lock().threads += 1;
    }

    /// There will be none after all.
    pub fn expects_no_thread(&self) {
        self.count_thread_out(&mut self.queues.lock());
    }

    /// What a thread of a lane does until the scheduler is stopped, or its lane has another one instead of it.
    pub fn run(self: &Arc<Self>, lane: Lane, thread: ThreadNumber) {
        yield_to_more_urgent_lanes(lane);
        let mut noted = None;
        let mut queues = self.queues.lock();
        if queues.native_ids.len() <= thread {
            queues.native_ids.resize(thread + 1, None);
        }
        queues.native_ids[thread] = native_id();
        loop {
            let turn = match queues.is_stopped {
                true => None,
                false => queues.turns[lane as usize].pop_front(),
            };
            if let Some(turn) = turn {
                let freed = queues.freed_ns;
                let now = self.now_ns();
                queues.polls.begin(thread, lane, turn.rank, now);
                drop(queues);
                self.note(&mut noted, &turn.waited.item.record);
                let tenant = turn.waited.tenant;
                let (class, held, cpu) = self.poll(turn, freed, now);
                let now = self.now_ns();
                if lane == Lane::Idle {
                    let mut crowding = self.crowding.lock();
                    crowding.polled(held, cpu, now, self.slots, process_cpu_time);
                }
                queues = self.queues.lock();
                queues.run.served(class, tenant, held.as_nanos() as u64);
                queues.freed_ns = now;
                let ended = queues.polls.end(thread).expect("it began above");
                if let Some(place) = ended.place {
                    self.polls[place as usize].fetch_sub(1, Ordering::Relaxed);
                }
                let mine = (!ended.is_replaced).then_some(lane as usize);
                self.dispatch(&mut queues, now, mine);
                // One whose poll was set apart was counted out then.
                match (ended.is_replaced, ended.place) {
                    (true, Some(_)) => return self.count_thread_out(&mut queues),
                    (true, None) => return,
                    (false, Some(_)) => {}
                    (false, None) => queues.threads += 1,
                }
            } else if queues.is_stopped || (queues.is_retired && self.alive.load(Ordering::Acquire) == 0) {
                return self.count_thread_out(&mut queues);
            } else if let Some(idle) = noted.as_mut().filter(|noted| noted.is_set()) {
                drop(queues);
                idle.set(None);
                queues = self.queues.lock();
            } else {
                self.ready[lane as usize].wait(&mut queues);
            }
        }
    }

    fn count_thread_out(&self, queues: &mut Queues) {
        queues.threads -= 1;
        self.thread_ended.notify_all();
        self.watch.notify_all();
    }

    /// Waits until the threads have ended, but for those whose polls were set apart.
    pub fn wait_for_threads(&self) {
        let mut queues = self.queues.lock();
        while queues.threads > 0 {
            self.thread_ended.wait(&mut queues);
        }
    }

    /// What the watch does until the threads have ended: while somebody waits for a slot, looks for polls that take long.
    /// `start` starts another thread of a lane; false: the operating system refuses it.
    pub fn run_watch(&self, start: impl Fn(Lane) -> bool) {
        let mut queues = self.queues.lock();
        loop {
            let is_ending = queues.is_stopped || queues.is_retired;
            if is_ending && queues.threads == 0 {
                return;
            }
            if is_ending || self.is_anyone_waiting() {
                self.watch.wait_for(&mut queues, WATCH_EVERY);
            } else {
                queues.is_watched = false;
                self.watch.wait(&mut queues);
            }
            let now = self.now_ns();
            let changes = queues.polls.overdue(self.policy().pauses(), now);
            if changes.is_empty() {
                continue;
            }
            for change in &changes {
                self.apply(&mut queues, *change);
            }
            drop(queues);
            let refused: Vec<ThreadNumber> = (changes.iter())
                .filter(|change| change.needs_thread && !start(change.lane))
                .map(|change| change.thread)
                .collect();
            queues = self.queues.lock();
            for thread in refused {
                queues.polls.keep_thread(thread);
            }
            self.dispatch(&mut queues, now, None);
        }
    }

    fn apply(&self, queues: &mut Queues, change: Change) {
        self.polls[change.from as usize].fetch_sub(1, Ordering::Relaxed);
        match change.to {
            Some(class) => {
                self.polls[class as usize].fetch_add(1, Ordering::Relaxed);
            }
            None => self.count_thread_out(queues),
        }
        if let Some(id) = queues.native_ids.get(change.thread).copied().flatten() {
            let told = match (change.to, change.lane) {
                (_, Lane::Interactive) => be_nicer(id, BATCH_NICE - INTERACTIVE_NICE),
                (_, Lane::Stream) => be_nicer(id, BATCH_NICE),
                (_, Lane::Batch | Lane::Idle) => Ok(()),
            };
            if let Err(error) = told {
                tracing::debug!(error, "cannot lower the priority of a thread in a long poll");
            }
        }
        tracing::debug!(thread = change.thread, from = %change.from, "a task has been running for long \
         without a suspension point");
    }

    /// Notes that a thread comes to a task.
    fn note(&self, place: &mut Option<Place>, record: &TaskRecord) {
        let view = record.view();
        if place.is_none() && view.is_some() {
            *place = self.running.get().map(Running::place);
        }
        if let Some(place) = place {
            place.set(view);
        }
    }

    /// Polls a task; returns its class, for how long it held a slot, and the processor time in that. `freed_ns`: when the last
    /// poll before had ended.
    fn poll(
        self: &Arc<Self>,
        turn: Turn<Ready>,
        freed_ns: u64,
        now: u64,
    ) -> (QueryClass, Duration, Duration) {
        let Turn {
            waited,
            class,
            undisturbed_until_ns,
            ..
        } = turn;
        let Ready { runnable, record } = waited.item;
        let wait = Duration::from_nanos(now.saturating_sub(waited.since_ns));
        self.times[class as usize].wait.record(wait);
        if waited.cause == Cause::Paused {
            let since = freed_ns.max(waited.since_ns);
            self.resume
                .record(Duration::from_nanos(now.saturating_sub(since)));
        }
        let started = self.started + Duration::from_nanos(now);
        let turn = record.begins(now, started, wait, waited.cause, undisturbed_until_ns);
        RUNNING.set(Some(CpuGate {
            shared: Arc::clone(self),
            record: Arc::clone(&record),
        }));
        // What can be made to stand still is not all processor time, whatever its length.
        let is_exact = class != QueryClass::Stream;
        METER.with_borrow_mut(|meter| meter.begin(is_exact, thread_cpu_time));
        runnable.run();
        let held = Duration::from_nanos(self.now_ns().saturating_sub(now));
        let cpu = METER.with_borrow_mut(|meter| meter.end(held, thread_cpu_time));
        let (times, busy_ns) = (&self.times[class as usize], cpu.as_nanos() as u64);
        times.poll.record(held);
        times.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        self.busy_ns.fetch_add(busy_ns, Ordering::Relaxed);
        record.ran(turn, started, held, cpu);
        RUNNING.set(None);
        (class, held, cpu)
    }
}

/// Time for which the machine's host gave each processor to other machines since the machine started, on average; 0 where the operating
/// system does not tell, or there is no host. In steps of 10 ms.
pub fn stolen_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    stolen_of(&stat).unwrap_or_default()
}

/// A tick of the kernel's counters as programs see them.
const TICK: Duration = Duration::from_millis(10);

fn stolen_of(stat: &str) -> Option<Duration> {
    // cpu: user, nice, system, idle, iowait, irq, softirq, steal; then a line for each processor.
    let mut lines = stat.lines();
    let ticks: u32 = lines.next()?.split_ascii_whitespace().nth(8)?.parse().ok()?;
    let processors = lines.take_while(|line| line.starts_with("cpu")).count();
    Some(TICK * ticks / u32::try_from(processors.max(1)).ok()?)
}

/// Processor time of this thread; `None`: the operating system does not tell.
pub fn thread_cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The same of the process.
pub fn process_cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// What the operating system calls a thread.
#[cfg(target_os = "linux")]
type NativeId = rustix::thread::Pid;
#[cfg(not(target_os = "linux"))]
type NativeId = std::convert::Infallible;

fn native_id() -> Option<NativeId> {
    #[cfg(target_os = "linux")]
    {
        Some(rustix::thread::gettid())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Tells the operating system that a thread matters less than so far.
fn be_nicer(thread: NativeId, steps: i32) -> Result<(), String> {
    #[cfg(target_os = "linux")]
    {
        // To Linux a thread is a process here.
        rustix::process::getpriority_process(Some(thread))
            .map(|nice: i32| (nice + steps).min(19))
            .and_then(|nice| rustix::process::setpriority_process(Some(thread), nice))
            .map_err(|error| error.to_string())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = steps;
        match thread {}
    }
}

/// Tells the operating system how much this thread matters. Where it does not listen, polls of all classes are alike to it.
fn yield_to_more_urgent_lanes(lane: Lane) {
    let be_nicer = |steps| native_id().map_or(Ok(()), |thread| be_nicer(thread, steps));
    let told = match lane {
        Lane::Stream => Ok(()),
        Lane::Interactive => be_nicer(INTERACTIVE_NICE),
        Lane::Batch => be_nicer(BATCH_NICE),
        Lane::Idle => be_idle(),
    };
    if let Err(error) = told {
        let lane = lane.name();
        tracing::debug!(
            error,
            lane,
            "cannot lower the priority of threads of a less urgent class"
        );
    }
}

/// Under the usual policy, however nice, a running thread is let be for about 3 ms.
fn be_idle() -> Result<(), String> {
    #[cfg(target_os = "linux")]
    {
        set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Min,
            ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle),
        )
        .map_err(|error| error.to_string())
    }
    #[cfg(not(target_os = "linux"))]
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_that_of_a_processor() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 0\ncpu0 1 2 3 4 5 6 7 50 9 0\ncpu1 1 2 3 4 5 6 7 30 9 0\nintr 5\n";
        assert_eq!(stolen_of(stat), Some(Duration::from_millis(400)));
        for broken in ["", "cpu 1 2", "cpu  10 20 30 40 50 60 70 x 90 0\n"] {
            assert_eq!(stolen_of(broken), None, "{broken}");
        }
    }
}
