//! A simulated cluster: the driver and the local schedulers that run live, over modelled tasks, messages and clocks.
//!
//! For experiments on more workers than there are machines, and for fuzzing: deliveries can be delayed and doubled at random
//! (a seed gives the same run again), and workers can be killed at any moment: what they had is gone, what is sent to them
//! is lost, and the driver hears of it later. Messages and fetches can fail at random, and workers can fall silent for a
//! while: whoever wanted to tell or to fetch is told that it failed, and nobody else. What must always hold is asserted while it runs: see `checks`.

mod batch;
mod checks;
mod driver;
mod faults;
mod flow;
mod setup;
mod tasks;
mod worker;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

use millrace_planner::RelationId;

use super::local::{LocalEvent, LocalScheduler, ReadyTask, Timer};
use super::message::{ToDriver, ToPeer, ToWorker};
use super::template::ViewShape;
use crate::cpu::queue::Cause;
use crate::driver::{Driver, Event, Spread};
use crate::id::{PipelineId, TaskId, Ticket, WorkerId};
use crate::task::Ended;
use batch::{Batch, Item, Slots};
pub use batch::{BatchJob, BatchReport};
use checks::Checks;
use flow::Flows;
pub use setup::{Costs, GroupSeen, Report, Setup};
use tasks::Busy;

#[derive(Debug, Clone)]
enum Delivery {
    ToWorker(WorkerId, ToWorker),
    ToPeer(WorkerId, WorkerId, ToPeer),
    ToDriver(WorkerId, ToDriver),
    /// Its sender finds out that it did not arrive.
    Failed(Box<Delivery>),
    /// All workers send a heartbeat, and the driver looks who has not.
    Beat,
    CutTaken {
        worker: WorkerId,
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        is_replay: bool,
        is_checkpoint: bool,
    },
    Ready {
        worker: WorkerId,
        task: ReadyTask,
    },
    TaskDone {
        worker: WorkerId,
        task: ReadyTask,
    },
    /// A batch task's turn, which began then, is over, if it still goes on.
    BatchTurn {
        worker: WorkerId,
        id: u64,
        since_ns: u64,
    },
    /// A batch task may be asked to pause again.
    BatchDisturbed {
        worker: WorkerId,
    },
    /// What a task waited for, which has done its work, has come.
    FlowDone {
        worker: WorkerId,
        task: ReadyTask,
    },
    TaskFailed {
        worker: WorkerId,
        task: ReadyTask,
        lost: WorkerId,
    },
    /// What a copy emitted has been fetched.
    CopyTaken {
        worker: WorkerId,
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        from: WorkerId,
        ended: Ended,
    },
    Restored {
        worker: WorkerId,
        event: LocalEvent,
    },
    Lost(WorkerId),
    Wake {
        worker: WorkerId,
        pipeline: PipelineId,
        timer: Timer,
    },
    Input(PipelineId),
}

struct SimulatedWorker {
    local: LocalScheduler,
    slots: Slots,
    /// When the local scheduler has worked off what it heard, and how long it has worked in all.
    free_at: u64,
    busy_ns: u64,
}

/// Stages that are scheduled one by one, as by a central scheduler; see [`Simulation::schedule_centrally`].
#[derive(Default)]
struct Central {
    pipelines: Vec<PipelineId>,
    /// Requests for further epochs that are answered when the stage before is committed.
    held: HashMap<PipelineId, ToDriver>,
    /// Pipelines whose turn has come.
    due: Vec<PipelineId>,
}

/// See the module.
pub struct Simulation {
    setup: Setup,
    driver: Driver,
    driver_free_at: u64,
    workers: BTreeMap<WorkerId, SimulatedWorker>,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    deliveries: HashMap<u64, Delivery>,
    next: u64,
    random: u64,
    cutters: HashMap<PipelineId, WorkerId>,
    shapes: HashMap<RelationId, Arc<ViewShape>>,
    views: HashMap<PipelineId, BTreeSet<RelationId>>,
    /// Epochs that inputs are still to make.
    inputs_left: HashMap<PipelineId, u64>,
    /// Cuts that were taken and may have to be taken again: the epoch's time, and whether it is a checkpoint.
    cuts: HashMap<(PipelineId, u64), (i64, bool)>,
    /// The newest template under which a cut was asked for: an older one gets none.
    fences: HashMap<PipelineId, u64>,
    checks: Checks,
    flows: Flows,
    batch: Batch,
    cut_at: HashMap<(PipelineId, u64), u64>,
    /// Tickets that were granted.
    pub held: Vec<(Ticket, PipelineId)>,
    /// Workers that nothing uses any more.
    pub freed: Vec<WorkerId>,
    /// Views that are to be filled again.
    pub abandoned: Vec<RelationId>,
    pub report: Report,
    last_group: (Option<PipelineId>, u64),
    central: Central,
    interval_ns: u64,
    /// The time between heartbeats, if there are any.
    heartbeat_ns: Option<u64>,
    is_beating: bool,
    /// Deliveries under way that are neither heartbeats nor their timer.
    foreground: u64,
    /// Workers that nobody can reach, and until when.
    silent: BTreeMap<WorkerId, u64>,
    /// Workers whose tasks take so many times as long.
    slow: BTreeMap<WorkerId, u64>,
    /// When anything but a heartbeat or a timer to look for stragglers last arrived.
    active_at: u64,
    /// Where the report begins.
    since: u64,
    /// Partitions that exchanges fill; all of them if there is no number.
    filled: Option<usize>,
    /// Bytes of state of each part, by its partition.
    state_bytes: Vec<u64>,
}

impl Simulation {
    pub fn new(setup: Setup) -> Self {
        let mut simulation = Simulation {
            random: setup.seed | 1,
            driver: Driver::default(),
            driver_free_at: 0,
            workers: BTreeMap::new(),
            now: 0,
            queue: BinaryHeap::new(),
            deliveries: HashMap::new(),
            next: 0,
            cutters: HashMap::new(),
            shapes: HashMap::new(),
            views: HashMap::new(),
            inputs_left: HashMap::new(),
            cuts: HashMap::new(),
            fences: HashMap::new(),
            checks: Checks::new(&setup),
            flows: Flows::default(),
            batch: Batch::default(),
            cut_at: HashMap::new(),
            held: vec![],
            freed: vec![],
            abandoned: vec![],
            report: Report::default(),
            last_group: (None, 0),
            central: Central::default(),
            interval_ns: 0,
            heartbeat_ns: None,
            is_beating: false,
            foreground: 0,
            silent: BTreeMap::new(),
            slow: BTreeMap::new(),
            active_at: 0,
            since: 0,
            filled: None,
            state_bytes: vec![],
            setup,
        };
        simulation.event(Event::GroupSize(simulation.setup.group_size));
        simulation.event(Event::Checkpoints(simulation.setup.checkpoints));
        for worker in 0..simulation.setup.workers {
            simulation.add_worker(WorkerId(worker));
        }
        simulation
    }

    pub fn add_worker(&mut self, worker: WorkerId) {
        let mut local = LocalScheduler::new(worker);
        local.set_times(self.interval_ns, 0, &Busy::all(worker, &self.checks));
        let simulated = SimulatedWorker {
            local,
            slots: Slots::new(self.setup.cores),
            free_at: 0,
            busy_ns: 0,
        };
        self.workers.insert(worker, simulated);
        // Sources arrive where the first of them are.
        let has_sources = worker.0 % 3 < 2;
        self.event(Event::WorkerJoined { worker, has_sources });
    }

    pub fn remove_worker(&mut self, worker: WorkerId) {
        self.event(Event::WorkerLeaving { worker });
    }

    /// Kills a worker: all that it has is gone at once. The driver hears of it after this time.
    pub fn kill_worker(&mut self, worker: WorkerId, after_ns: u64) {
        if let Some(simulated) = self.workers.remove(&worker) {
            self.checks.killed(worker);
            self.lose_flows(worker);
            self.lose_batch(worker, simulated.slots);
            self.deliver(self.now + after_ns, Delivery::Lost(worker));
        }
    }

    /// Has workers send heartbeats from now on, so often, whenever anything is under way.
    pub fn set_heartbeats(&mut self, every_ns: u64) {
        self.heartbeat_ns = Some(every_ns);
        self.event(Event::Heartbeats { every_ns });
    }

    /// Over how many workers pipelines are spread from now on; all, if this is not called.
    pub fn set_spread(&mut self, spread: Spread) {
        self.event(Event::Spread(spread));
    }

    /// Workers that take part in a pipeline's epochs.
    pub fn workers_of(&self, pipeline: PipelineId) -> usize {
        let pipelines = self.driver.pipelines().into_iter();
        pipelines
            .filter(|record| record.id == pipeline)
            .map(|record| record.workers)
            .sum()
    }

    /// Asks for the next epoch of a pipeline to be a checkpoint, as whoever writes them does.
    pub fn checkpoint_due(&mut self, pipeline: PipelineId) {
        self.event(Event::CheckpointDue { pipeline });
    }

    /// For so long nobody can reach the worker, and it can reach nobody. It goes on with what it has.
    pub fn silence_worker(&mut self, worker: WorkerId, for_ns: u64) {
        self.silent.insert(worker, self.now + for_ns);
    }

    /// From now on tasks on the worker take so many times as long; messages do not.
    pub fn slow_worker(&mut self, worker: WorkerId, times: u64) {
        self.slow.insert(worker, times);
    }

    /// Workers that take part, as far as the driver knows.
    pub fn workers(&self) -> BTreeSet<WorkerId> {
        self.driver
            .workers()
            .into_iter()
            .map(|(worker, _)| worker)
            .collect()
    }

    /// Those that leave, too.
    pub fn workers_known(&self) -> BTreeSet<WorkerId> {
        self.driver.loads().into_keys().collect()
    }

    fn is_silent(&self, worker: WorkerId) -> bool {
        self.silent.get(&worker).is_some_and(|until| self.now < *until)
    }

    /// A source with a pipeline of its own.
    pub fn add_source(&mut self, relation: RelationId, pipeline: PipelineId) {
        self.event(Event::SourceAdded { relation, pipeline });
    }

    /// Asks for a change of definitions; granted when it is in `held`.
    pub fn quiesce(&mut self, ticket: Ticket, relations: Vec<RelationId>, or_new: PipelineId) {
        self.event(Event::Quiesce {
            ticket,
            relations,
            or_new,
        });
    }

    /// Ends a change of definitions that was granted.
    pub fn resume(
        &mut self,
        ticket: Ticket,
        pipeline: PipelineId,
        views: Vec<Arc<ViewShape>>,
        dropped: Vec<RelationId>,
    ) {
        for view in &views {
            self.shapes.insert(view.id, Arc::clone(view));
            self.views.entry(pipeline).or_default().insert(view.id);
        }
        for view in &dropped {
            for views in self.views.values_mut() {
                views.remove(view);
            }
        }
        self.event(Event::Resume {
            ticket,
            views,
            dropped,
        });
    }

    /// The pipeline of a source or view.
    pub fn pipeline_of(&self, relation: RelationId) -> Option<PipelineId> {
        self.driver.pipeline_of(relation)
    }

    /// Input for so many more epochs arrives.
    pub fn input(&mut self, pipeline: PipelineId, epochs: u64) {
        *self.inputs_left.entry(pipeline).or_default() += epochs;
        self.deliver(self.now, Delivery::Input(pipeline));
    }

    /// Schedules these pipelines, each a stage, as a central scheduler does: with a barrier behind each. The driver launches
    /// an epoch of a stage when that of the stage before is committed, and the first stage's next when the last is: a round
    /// trip for each. Groups must have one epoch. Input is counted at the first.
    pub fn schedule_centrally(&mut self, pipelines: Vec<PipelineId>) {
        self.central.pipelines = pipelines;
    }

    /// Time between two cuts of the pipelines.
    pub fn set_interval(&mut self, interval_ns: u64) {
        self.interval_ns = interval_ns;
        for (id, worker) in &mut self.workers {
            (worker.local).set_times(interval_ns, 0, &Busy::all(*id, &self.checks));
        }
    }

    /// How much state each part of a view has from now on, by its partition.
    pub fn set_state_bytes(&mut self, bytes: Vec<u64>) {
        self.state_bytes = bytes;
    }

    /// Workers that take part, and how many partitions each has.
    pub fn partitions(&self) -> Vec<(WorkerId, usize)> {
        self.driver.workers()
    }

    /// Lets exchanges fill only the first partitions: the other reduces have nothing to do.
    pub fn fill_only(&mut self, partitions: usize) {
        self.filled = Some(partitions);
    }

    /// What tasks take from now on.
    pub fn set_task_ns(&mut self, task_ns: u64) {
        self.setup.costs.task_ns = task_ns;
    }

    /// Lets the report begin here.
    pub fn measure(&mut self) {
        self.since = self.now;
        self.report = Report::default();
        for worker in self.workers.values_mut() {
            worker.busy_ns = 0;
        }
    }

    /// Runs for so long.
    pub fn run_for(&mut self, elapsed_ns: u64) {
        let until_ns = self.now + elapsed_ns;
        self.run_until(until_ns);
    }

    fn run_until(&mut self, until_ns: u64) {
        while self.queue.peek().is_some_and(|Reverse((at, _))| *at <= until_ns) {
            self.run(1);
        }
        self.now = self.now.max(until_ns);
        self.report.elapsed_ns = self.now - self.since;
    }

    /// Runs until nothing is under way any more, or `steps` deliveries were made; returns whether all is quiet.
    pub fn run(&mut self, steps: u64) -> bool {
        for _ in 0..steps {
            let Some(Reverse((at, number))) = self.queue.pop() else {
                break;
            };
            self.now = self.now.max(at);
            if let Some(delivery) = self.deliveries.remove(&number) {
                if delivery.is_foreground() {
                    self.foreground -= 1;
                    self.active_at = self.now;
                }
                self.arrive(delivery);
            }
        }
        self.report.elapsed_ns = self.active_at.saturating_sub(self.since);
        self.queue.is_empty()
    }

    /// Nothing in flight, nothing remembered of any epoch.
    ///
    /// # Panics
    /// Something is.
    pub fn assert_idle(&self) {
        for (id, worker) in &self.workers {
            assert!(worker.local.is_idle(), "worker {} still remembers an epoch", id.0);
            assert!(worker.slots.is_empty());
        }
        self.checks.assert_nothing_left();
        self.assert_no_flow();
        assert!(
            self.inputs_left.values().all(|left| *left == 0),
            "input that was never cut"
        );
    }

    fn arrive(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::ToWorker(to, message) => self.local(to, LocalEvent::Driver(message)),
            Delivery::ToPeer(_, to, message) => self.local(to, LocalEvent::Peer(message)),
            Delivery::ToDriver(_, message) => self.event(Event::Worker(message)),
            Delivery::Failed(delivery) => self.failed(*delivery),
            Delivery::Beat => self.beat(),
            Delivery::Wake {
                worker,
                pipeline,
                timer,
            } => self.local(worker, LocalEvent::Wake { pipeline, timer }),
            Delivery::Input(pipeline) => {
                if let Some(cutter) = self.cutters.get(&pipeline).copied() {
                    self.local(cutter, LocalEvent::InputArrived { pipeline });
                }
            }
            Delivery::CutTaken {
                worker,
                pipeline,
                version,
                epoch,
                is_replay,
                is_checkpoint,
            } => {
                let fence = self.fences.entry(pipeline).or_default();
                if !self.workers.contains_key(&worker) || version < *fence {
                    return;
                }
                *fence = version;
                let event = self.cut(worker, pipeline, version, epoch, is_replay, is_checkpoint);
                self.local(worker, event);
            }
            Delivery::Ready { worker, task } => {
                self.push(worker, Item::Epoch(task), Cause::Ready, 0);
            }
            Delivery::BatchTurn { worker, id, since_ns } => self.batch_turn(worker, id, since_ns),
            Delivery::BatchDisturbed { worker } => self.fill_slots(worker),
            Delivery::TaskDone { worker, task } => self.task_done(worker, task),
            Delivery::FlowDone { worker, task } => self.flow_done(worker, task),
            Delivery::CopyTaken {
                worker,
                pipeline,
                version,
                id,
                from,
                ended,
            } => self.copy_taken(worker, (pipeline, version, id), from, ended),
            Delivery::TaskFailed { worker, task, lost } => {
                let Some(simulated) = self.workers.get_mut(&worker) else {
                    return;
                };
                simulated.slots.free += 1;
                let ReadyTask {
                    pipeline,
                    version,
                    id,
                    copy_for,
                    ..
                } = task;
                let event = match copy_for {
                    Some(_) => LocalEvent::CopyEnded {
                        pipeline,
                        version,
                        id,
                        ended: None,
                    },
                    None => LocalEvent::TaskFailed {
                        pipeline,
                        version,
                        id,
                        lost,
                    },
                };
                self.local(worker, event);
                self.fill_slots(worker);
            }
            Delivery::Restored { worker, event } => {
                if let LocalEvent::Restored {
                    view,
                    stage,
                    partition,
                    ..
                } = &event
                    && self.workers.contains_key(&worker)
                {
                    self.checks.restored(worker, (*view, *stage, *partition));
                }
                self.local(worker, event);
            }
            Delivery::Lost(worker) => self.event(Event::WorkerLost { worker }),
        }
    }

    fn send(&mut self, at: u64, delivery: Delivery) {
        let is_dropped = self.is_dropped(&delivery);
        let (least, most) = self.setup.costs.message_ns;
        let delay = least
            + if most > least {
                self.draw() % (most - least)
            } else {
                0
            };
        if is_dropped {
            self.deliver(at + delay, Delivery::Failed(Box::new(delivery)));
            return;
        }
        if self.setup.costs.doubled_per_mille > 0 && self.draw() % 1000 < self.setup.costs.doubled_per_mille {
            let again = delay + self.draw() % (most + 1);
            self.deliver(at + again, delivery.clone());
        }
        self.deliver(at + delay, delivery);
    }

    fn deliver(&mut self, at: u64, delivery: Delivery) {
        self.next += 1;
        self.foreground += u64::from(delivery.is_foreground());
        if !self.is_beating
            && let Some(every_ns) = self.heartbeat_ns
            && delivery.is_foreground()
        {
            self.is_beating = true;
            self.deliver(self.now + every_ns, Delivery::Beat);
            self.next += 1;
        }
        self.deliveries.insert(self.next, delivery);
        self.queue.push(Reverse((at, self.next)));
    }

    /// Xorshift: a run is its seed.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
