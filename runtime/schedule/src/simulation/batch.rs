//! Batch work beside the epochs, in a simulation: the queues of the slots and the policies that run live decide over tasks
//! that only take time.
//!
//! ```text
//!   client -> job of tasks -> Policy::place -> worker: RunQueue -> slot -> paused for epochs' tasks -> RunQueue -> .. -> end
//! ```
//! A job's tasks are placed when it is sent, as those of a query are, and when the last has ended its client sends the next.
//! A paused task stays on its worker with the memory that it has.

use std::collections::BTreeMap;

use super::{Delivery, Simulation};
use crate::cpu::policy::{GiveWay, Place, SchedulerPolicy};
use crate::cpu::queue::{Cause, RunQueue, Turn, Waiting};
use crate::cpu::shares::Tenant;
use crate::cpu::{CLASSES, QueryClass};
use crate::driver::Event;
use crate::id::WorkerId;
use crate::local::ReadyTask;

/// When tasks that would hold more memory are not begun.
const MEMORY_PERMILLE_SHORT: u32 = 900;

/// What each client sends again and again.
#[derive(Debug, Clone, Copy)]
pub struct BatchJob {
    pub tasks: usize,
    /// A task takes between a half and one and a half of this, in nanoseconds.
    pub task_ns: u64,
    /// Memory that a task holds from its first turn until it ends, in thousandths of a worker's.
    pub memory_permille: u32,
}

/// A task of a job.
#[derive(Debug, Clone)]
pub(super) struct BatchTask {
    id: u64,
    client: usize,
    whole_ns: u64,
    left_ns: u64,
    memory_permille: u32,
    is_started: bool,
}

/// What may have a slot.
#[derive(Debug)]
pub(super) enum Item {
    Epoch(ReadyTask),
    Batch(BatchTask),
}

/// A batch task on a slot.
#[derive(Debug)]
struct Running {
    task: BatchTask,
    since_ns: u64,
    pauses: u32,
    undisturbed_until_ns: u64,
    /// It was asked to pause, and will.
    is_asked: bool,
}

/// The slots of a worker and what waits for them.
#[derive(Debug)]
pub(super) struct Slots {
    pub free: usize,
    pub queue: RunQueue<Item>,
    /// Tasks of epochs that wait, of those that go before batch work.
    waiting: usize,
    running: BTreeMap<u64, Running>,
    /// Batch tasks that wait, and those of them that were paused.
    batch_waiting: usize,
    paused: usize,
    paused_since: u64,
    /// Memory of batch tasks that have had a turn.
    memory_permille: u32,
}

impl Slots {
    pub fn new(cores: usize) -> Self {
        Slots {
            free: cores,
            queue: RunQueue::default(),
            waiting: 0,
            running: BTreeMap::new(),
            batch_waiting: 0,
            paused: 0,
            paused_since: 0,
            memory_permille: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting + self.batch_waiting + self.running.len() == 0
    }

    fn push(&mut self, item: Item, cause: Cause, pauses: u32, now: u64) {
        let is_new = matches!(&item, Item::Batch(task) if !task.is_started);
        let class = match &item {
            Item::Epoch(task) if !task.gives_way => {
                self.waiting += 1;
                QueryClass::Stream
            }
            Item::Epoch(_) => QueryClass::Batch,
            Item::Batch(_) => {
                self.batch_waiting += 1;
                QueryClass::Batch
            }
        };
        let waiting = Waiting {
            item,
            tenant: Tenant::default(),
            cause,
            since_ns: now,
            pauses,
            is_new,
        };
        self.queue.push(class, waiting);
    }
}

/// What batch work did, and what it meant for the epochs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchReport {
    /// Tasks that ended.
    pub ended: u64,
    /// Time on slots, of turns that are over.
    pub ran_ns: u64,
    /// Of which so much was for nothing, since a task began again.
    pub lost_ns: u64,
    pub pauses: u64,
    /// Tasks that began again.
    pub restarts: u64,
    /// From being ready to running, of the epochs' tasks that go before batch work.
    pub waits_ns: Vec<u64>,
    /// For each worker the integral over time of its paused tasks, in nanoseconds, and the most at one time.
    pub paused: BTreeMap<WorkerId, (u64, usize)>,
    /// The longest time between two turns of a task that waited.
    pub wait_ns_max: u64,
}

/// Batch work in a simulation.
#[derive(Debug, Default)]
pub(super) struct Batch {
    policy: SchedulerPolicy,
    /// How long a task runs on that was asked to pause, at most.
    pause_ns: u64,
    /// What each client sends, and its tasks that have not ended. A client that is gone sends nothing more.
    clients: Vec<(Option<BatchJob>, usize)>,
    next: u64,
}

impl Simulation {
    /// How slots are shared from now on, and how long a task goes on at most that was asked to pause.
    pub fn set_policy(&mut self, policy: SchedulerPolicy, pause_ns: u64) {
        self.batch.policy = policy;
        self.batch.pause_ns = pause_ns;
        self.event(Event::Policy(policy));
    }

    /// A client more, which sends a job, and the next one whenever one has ended.
    pub fn add_batch_client(&mut self, job: BatchJob) {
        let client = self.batch.clients.len();
        self.batch.clients.push((Some(job), 0));
        self.send_job(client);
    }

    /// No client sends anything more.
    pub fn stop_batch_clients(&mut self) {
        for (job, _) in &mut self.batch.clients {
            *job = None;
        }
    }

    fn send_job(&mut self, client: usize) {
        let Some(job) = self.batch.clients[client].0 else {
            return;
        };
        self.batch.clients[client].1 = job.tasks;
        for _ in 0..job.tasks {
            let whole_ns = job.task_ns / 2 + self.draw() % job.task_ns.max(1);
            self.batch.next += 1;
            let task = BatchTask {
                id: self.batch.next,
                client,
                whole_ns,
                left_ns: whole_ns,
                memory_permille: job.memory_permille,
                is_started: false,
            };
            self.place_batch(task);
        }
    }

    fn place_batch(&mut self, task: BatchTask) {
        let places: Vec<Place<u32>> = (self.workers.iter())
            .map(|(worker, simulated)| {
                let slots = &simulated.slots;
                Place {
                    worker: worker.0,
                    idle_slots: slots.free,
                    tasks: self.setup.cores - slots.free + slots.waiting + slots.batch_waiting,
                    paused: slots.paused,
                    memory_permille: slots.memory_permille,
                }
            })
            .collect();
        let Some(place) = self.batch.policy.rules().place(None, &places) else {
            return;
        };
        let worker = WorkerId(places[place].worker);
        self.push(worker, Item::Batch(task), Cause::Ready, 0);
    }

    /// Something is ready, or was paused.
    pub(super) fn push(&mut self, worker: WorkerId, item: Item, cause: Cause, pauses: u32) {
        let now = self.now;
        if let Some(simulated) = self.workers.get_mut(&worker) {
            simulated.slots.push(item, cause, pauses, now);
            if cause == Cause::Paused {
                self.count_paused(worker, 1);
            }
        }
        self.fill_slots(worker);
    }

    /// Gives out free slots, and asks for more of them where something urgent waits.
    pub(super) fn fill_slots(&mut self, worker: WorkerId) {
        let (policy, now) = (self.batch.policy, self.now);
        while let Some(simulated) = self.workers.get_mut(&worker) {
            let slots = &mut simulated.slots;
            if slots.free == 0 {
                self.ask_to_pause(worker);
                return;
            }
            slots.queue.defers_new =
                slots.memory_permille > MEMORY_PERMILLE_SHORT && !slots.running.is_empty();
            let Some(turn) = slots.queue.next(policy, [true; CLASSES], now) else {
                return;
            };
            let waited_ns = now - turn.waited.since_ns;
            let Turn {
                waited,
                undisturbed_until_ns,
                ..
            } = turn;
            match waited.item {
                Item::Epoch(task) => {
                    if !task.gives_way {
                        slots.waiting -= 1;
                        self.report.batch.waits_ns.push(waited_ns);
                    }
                    self.start_task(worker, task);
                }
                Item::Batch(mut task) => {
                    slots.free -= 1;
                    slots.batch_waiting -= 1;
                    if !std::mem::replace(&mut task.is_started, true) {
                        slots.memory_permille += task.memory_permille;
                    }
                    let (id, left_ns) = (task.id, task.left_ns);
                    let running = Running {
                        task,
                        since_ns: now,
                        pauses: waited.pauses,
                        undisturbed_until_ns,
                        is_asked: false,
                    };
                    slots.running.insert(id, running);
                    let longest = &mut self.report.batch.wait_ns_max;
                    *longest = waited_ns.max(*longest);
                    if waited.cause == Cause::Paused {
                        self.count_paused(worker, -1);
                    }
                    self.deliver(
                        now + left_ns,
                        Delivery::BatchTurn {
                            worker,
                            id,
                            since_ns: now,
                        },
                    );
                    if undisturbed_until_ns > now {
                        self.deliver(undisturbed_until_ns, Delivery::BatchDisturbed { worker });
                    }
                }
            }
        }
    }

    /// One batch task is asked to pause for each task of an epoch that waits: the one first that began its turn last.
    fn ask_to_pause(&mut self, worker: WorkerId) {
        let (policy, now) = (self.batch.policy, self.now);
        if policy.rules().gives_way(QueryClass::Batch, QueryClass::Stream) == GiveWay::No {
            return;
        }
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let slots = &mut simulated.slots;
        let asked = slots.running.values().filter(|running| running.is_asked).count();
        let mut candidates: Vec<&mut Running> = (slots.running.values_mut())
            .filter(|running| !running.is_asked && running.undisturbed_until_ns <= now)
            .collect();
        candidates.sort_by_key(|running| std::cmp::Reverse((running.since_ns, running.task.id)));
        let mut turns = vec![];
        for running in candidates.into_iter().take(slots.waiting.saturating_sub(asked)) {
            running.is_asked = true;
            turns.push((running.task.id, running.since_ns));
        }
        for (id, since_ns) in turns {
            let after_ns = self.draw() % (self.batch.pause_ns + 1);
            self.deliver(now + after_ns, Delivery::BatchTurn { worker, id, since_ns });
        }
    }

    /// The end of a task's turn: it has ended, or gives way. A turn that is over already ends no more.
    pub(super) fn batch_turn(&mut self, worker: WorkerId, id: u64, since_ns: u64) {
        let (policy, now) = (self.batch.policy, self.now);
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let slots = &mut simulated.slots;
        if slots
            .running
            .get(&id)
            .is_none_or(|running| running.since_ns != since_ns)
        {
            return;
        }
        let Some(Running { mut task, pauses, .. }) = slots.running.remove(&id) else {
            return;
        };
        slots.free += 1;
        let ran_ns = now - since_ns;
        task.left_ns = task.left_ns.saturating_sub(ran_ns);
        self.report.batch.ran_ns += ran_ns;
        if task.left_ns == 0 {
            slots.memory_permille -= task.memory_permille;
            self.report.batch.ended += 1;
            let left = &mut self.batch.clients[task.client].1;
            *left -= 1;
            if *left == 0 {
                self.send_job(task.client);
            }
            self.fill_slots(worker);
        } else if policy.rules().gives_way(QueryClass::Batch, QueryClass::Stream) == GiveWay::Restart {
            self.report.batch.lost_ns += task.whole_ns - task.left_ns;
            task.left_ns = task.whole_ns;
            task.is_started = false;
            slots.memory_permille -= task.memory_permille;
            self.report.batch.restarts += 1;
            self.push(worker, Item::Batch(task), Cause::Ready, 0);
        } else {
            self.report.batch.pauses += 1;
            self.push(worker, Item::Batch(task), Cause::Paused, pauses + 1);
        }
    }

    /// What a worker had that is gone begins again elsewhere.
    pub(super) fn lose_batch(&mut self, worker: WorkerId, mut slots: Slots) {
        self.report.batch.paused.remove(&worker);
        let waiting = slots.queue.remove(|item| matches!(item, Item::Batch(_)));
        let waiting = waiting.into_iter().filter_map(|(_, item)| match item {
            Item::Batch(task) => Some(task),
            Item::Epoch(_) => None,
        });
        let running = slots.running.into_values().map(|running| running.task);
        for mut task in running.chain(waiting) {
            task.left_ns = task.whole_ns;
            task.is_started = false;
            self.place_batch(task);
        }
    }

    fn count_paused(&mut self, worker: WorkerId, change: isize) {
        let (now, since) = (self.now, self.since);
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let slots = &mut simulated.slots;
        let (integral, most) = self.report.batch.paused.entry(worker).or_default();
        *integral += slots.paused as u64 * (now - slots.paused_since.max(since));
        slots.paused = slots.paused.saturating_add_signed(change);
        slots.paused_since = now;
        *most = slots.paused.max(*most);
    }
}
