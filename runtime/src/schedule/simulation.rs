//! A simulated cluster: the driver and the local schedulers that run live, over modelled tasks, messages and clocks.
//!
//! For experiments on more workers than there are machines, and for fuzzing: deliveries can be delayed and doubled at random
//! (a seed gives the same run again), and workers can be killed at any moment: what they had is gone, what is sent to them
//! is lost, and the driver hears of it later. What must always hold is asserted while it runs: see [`checks`].

mod checks;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use millrace_planner::RelationId;

use super::group::GroupSize;
use super::local::{Ended, LocalAction, LocalEvent, LocalScheduler, ReadyTask, TaskId, Tasks};
use super::message::{ToDriver, ToPeer, ToWorker, decode, encode};
use super::template::{ViewShape, WorkerId};
use crate::driver::{CheckpointPolicy, Command, Driver, Event, PipelineId, Ticket};
use checks::Checks;

/// What things take, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Costs {
    /// A message on its way, at least and at most.
    pub message_ns: (u64, u64),
    /// A task on a slot.
    pub task_ns: u64,
    /// The driver's handling of an event, and of each message that it sends; `None`: as long as the real code, encoding
    /// included, takes on this machine.
    pub driver_ns: Option<(u64, u64)>,
    /// The same of a worker's local scheduler, which has a thread of its own beside the slots.
    pub worker_ns: Option<(u64, u64)>,
    /// How many messages of a thousand arrive twice.
    pub doubled_per_mille: u64,
}

/// How large the cluster is, and how it behaves.
#[derive(Debug, Clone)]
pub struct Setup {
    pub workers: u32,
    pub cores: usize,
    pub group_size: GroupSize,
    pub checkpoints: CheckpointPolicy,
    pub costs: Costs,
    pub seed: u64,
}

/// What a run showed.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Simulated time.
    pub elapsed_ns: u64,
    pub epochs: u64,
    pub tasks: u64,
    /// Messages of the driver, their bytes, and the driver's time.
    pub driver_messages: u64,
    pub driver_bytes: u64,
    pub driver_ns: u64,
    /// Messages between workers, and the time of the local schedulers: of all, and of the busiest.
    pub worker_messages: u64,
    pub worker_ns: u64,
    pub worker_ns_max: u64,
    /// From an epoch's cut to its commit.
    pub latencies_ns: Vec<u64>,
    /// Groups in the order in which they ended.
    pub groups: Vec<GroupSeen>,
    /// Checkpoints that were complete, losses after which a pipeline was restored from one, and tasks that ran again.
    pub checkpoints: u64,
    pub recoveries: u64,
    pub tasks_again: u64,
}

/// A group of a simulated run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSeen {
    /// When it ended, in simulated nanoseconds.
    pub at_ns: u64,
    /// Epochs in it.
    pub epochs: u64,
    /// The smoothed share of coordination after it.
    pub share: f64,
}

#[derive(Debug, Clone)]
enum Delivery {
    ToWorker(WorkerId, ToWorker),
    ToPeer(WorkerId, ToPeer),
    ToDriver(ToDriver),
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
    TaskFailed {
        worker: WorkerId,
        task: ReadyTask,
        lost: WorkerId,
    },
    Restored {
        worker: WorkerId,
        event: LocalEvent,
    },
    Lost(WorkerId),
    Wake {
        worker: WorkerId,
        pipeline: PipelineId,
    },
    Interval {
        worker: WorkerId,
        pipeline: PipelineId,
    },
    Input(PipelineId),
}

struct SimulatedWorker {
    local: LocalScheduler,
    free: usize,
    ready: VecDeque<ReadyTask>,
    /// When the local scheduler has worked off what it heard, and how long it has worked in all.
    free_at: u64,
    busy_ns: u64,
}

/// Which tasks have work.
struct Busy {
    /// All of them, the hardest case; or only those that others left rows for.
    is_everyone: bool,
}

impl Tasks for Busy {
    fn has_work(&self, _: TaskId, _: i64, is_needed: bool) -> bool {
        self.is_everyone || is_needed
    }
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
    /// Where the report begins.
    since: u64,
    /// Partitions that exchanges fill; all of them if there is no number.
    filled: Option<usize>,
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
            checks: Checks::new(setup.seed),
            cut_at: HashMap::new(),
            held: vec![],
            freed: vec![],
            abandoned: vec![],
            report: Report::default(),
            last_group: (None, 0),
            central: Central::default(),
            interval_ns: 0,
            since: 0,
            filled: None,
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
        let simulated = SimulatedWorker {
            local: LocalScheduler::new(worker),
            free: self.setup.cores,
            ready: VecDeque::new(),
            free_at: 0,
            busy_ns: 0,
        };
        self.workers.insert(worker, simulated);
        self.event(Event::WorkerJoined { worker });
    }

    pub fn remove_worker(&mut self, worker: WorkerId) {
        self.event(Event::WorkerLeaving { worker });
    }

    /// Kills a worker: all that it has is gone at once. The driver hears of it after this time.
    pub fn kill_worker(&mut self, worker: WorkerId, after_ns: u64) {
        if self.workers.remove(&worker).is_some() {
            self.checks.killed(worker);
            self.deliver(self.now + after_ns, Delivery::Lost(worker));
        }
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

    /// Time between two cuts of pipelines that are opened from now on.
    pub fn set_interval(&mut self, interval_ns: u64) {
        self.interval_ns = interval_ns;
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
                self.report.elapsed_ns = self.now - self.since;
                return true;
            };
            self.now = self.now.max(at);
            if let Some(delivery) = self.deliveries.remove(&number) {
                self.arrive(delivery);
            }
        }
        self.report.elapsed_ns = self.now - self.since;
        self.queue.is_empty()
    }

    /// Nothing in flight, nothing remembered of any epoch.
    ///
    /// # Panics
    /// Something is.
    pub fn assert_idle(&self) {
        for (id, worker) in &self.workers {
            assert!(worker.local.is_idle(), "worker {} still remembers an epoch", id.0);
            assert!(worker.ready.is_empty());
        }
        self.checks.assert_nothing_left();
        assert!(
            self.inputs_left.values().all(|left| *left == 0),
            "input that was never cut"
        );
    }

    fn arrive(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::ToWorker(to, message) => self.local(to, LocalEvent::Driver(message)),
            Delivery::ToPeer(to, message) => self.local(to, LocalEvent::Peer(message)),
            Delivery::ToDriver(message) => self.event(Event::Worker(message)),
            Delivery::Wake { worker, pipeline } => self.local(worker, LocalEvent::Wake { pipeline }),
            Delivery::Interval { worker, pipeline } => {
                if let Some(simulated) = self.workers.get_mut(&worker) {
                    simulated.local.set_interval(pipeline, self.interval_ns);
                }
                self.local(worker, LocalEvent::Wake { pipeline });
            }
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
                if let Some(simulated) = self.workers.get_mut(&worker) {
                    simulated.ready.push_back(task);
                }
                self.fill_slots(worker);
            }
            Delivery::TaskDone { worker, task } => self.task_done(worker, task),
            Delivery::TaskFailed { worker, task, lost } => {
                let Some(simulated) = self.workers.get_mut(&worker) else {
                    return;
                };
                simulated.free += 1;
                let ReadyTask {
                    pipeline,
                    version,
                    id,
                    ..
                } = task;
                let event = LocalEvent::TaskFailed {
                    pipeline,
                    version,
                    id,
                    lost,
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

    /// Where sources arrive: a new cut, or one that was taken before.
    fn cut(
        &mut self,
        worker: WorkerId,
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        is_replay: bool,
        is_checkpoint: bool,
    ) -> LocalEvent {
        let known = self.cuts.get(&(pipeline, epoch)).copied();
        if is_replay && known.is_none() {
            return LocalEvent::NoCut {
                pipeline,
                version,
                epoch,
                is_checkpoint,
            };
        }
        let left = self.inputs_left.entry(pipeline).or_default();
        if known.is_none() {
            *left = left.saturating_sub(1);
            self.cut_at.insert((pipeline, epoch), self.now);
        }
        let more = *left > 0;
        let now = i64::try_from(self.now).unwrap_or(i64::MAX);
        let (now, is_checkpoint) = *self.cuts.entry((pipeline, epoch)).or_insert((now, is_checkpoint));
        self.checks.cut(pipeline, epoch, worker);
        let sources = self.driver.sources(pipeline);
        LocalEvent::CutTaken {
            pipeline,
            version,
            epoch,
            now,
            rows: sources.into_iter().map(|source| (source, 1 << 24)).collect(),
            more,
            is_checkpoint,
        }
    }

    fn task_done(&mut self, worker: WorkerId, task: ReadyTask) {
        if !self.workers.contains_key(&worker) {
            return;
        }
        let shape = Arc::clone(&self.shapes[&task.id.view]);
        let filled = self.checks.ended(worker, &task, &shape, self.filled);
        if let Some(simulated) = self.workers.get_mut(&worker) {
            simulated.free += 1;
        }
        let ReadyTask {
            pipeline,
            version,
            id,
            ..
        } = task;
        let ended = Ended {
            filled,
            busy_ns: self.setup.costs.task_ns,
        };
        self.local(
            worker,
            LocalEvent::TaskEnded {
                pipeline,
                version,
                id,
                ended,
            },
        );
        self.fill_slots(worker);
    }

    /// Starts tasks on free slots.
    fn fill_slots(&mut self, worker: WorkerId) {
        let task_ns = self.setup.costs.task_ns;
        while let Some(simulated) = self.workers.get_mut(&worker) {
            if simulated.free == 0 {
                return;
            }
            let Some(task) = simulated.ready.pop_front() else {
                return;
            };
            let workers = &self.workers;
            let lost = checks::sources(&task).find(|from| !workers.contains_key(from));
            if let Some(simulated) = self.workers.get_mut(&worker) {
                simulated.free -= 1;
            }
            if let Some(lost) = lost {
                let at = self.now + self.setup.costs.message_ns.0;
                self.deliver(at, Delivery::TaskFailed { worker, task, lost });
                continue;
            }
            let is_everyone = self.filled.is_none();
            let shape = &self.shapes[&task.id.view];
            let is_again = self.checks.started(worker, &task, shape, is_everyone);
            self.report.tasks_again += u64::from(is_again);
            self.report.tasks += 1;
            self.deliver(self.now + task_ns, Delivery::TaskDone { worker, task });
        }
    }

    fn local(&mut self, worker: WorkerId, event: LocalEvent) {
        let Some(simulated) = self.workers.get_mut(&worker) else {
            return;
        };
        let start = self.now.max(simulated.free_at);
        let tasks = Busy {
            is_everyone: self.filled.is_none(),
        };
        let heard = match &event {
            LocalEvent::Peer(message) => encode(message).unwrap_or_default(),
            LocalEvent::Driver(message) => encode(message).unwrap_or_default(),
            _ => vec![],
        };
        let started = Instant::now();
        match &event {
            LocalEvent::Peer(_) => _ = black_box(decode::<ToPeer>(&heard).is_ok()),
            LocalEvent::Driver(_) => _ = black_box(decode::<ToWorker>(&heard).is_ok()),
            _ => {}
        }
        let actions = simulated.local.on(event, start, &tasks);
        let took = match self.setup.costs.worker_ns {
            Some((event_ns, message_ns)) => {
                let is_message =
                    |action: &&LocalAction| matches!(action, LocalAction::Send(..) | LocalAction::Report(_));
                event_ns + message_ns * actions.iter().filter(is_message).count() as u64
            }
            None => {
                for action in &actions {
                    match action {
                        LocalAction::Send(_, message) => _ = black_box(encode(message).is_ok()),
                        LocalAction::Report(message) => _ = black_box(encode(message).is_ok()),
                        _ => {}
                    }
                }
                started.elapsed().as_nanos() as u64
            }
        };
        simulated.free_at = start + took;
        simulated.busy_ns += took;
        self.report.worker_ns += took;
        self.report.worker_ns_max = self.report.worker_ns_max.max(simulated.busy_ns);
        let now = simulated.free_at;
        for action in actions {
            match action {
                LocalAction::TakeCut {
                    pipeline,
                    version,
                    epoch,
                    is_replay,
                    is_checkpoint,
                    ..
                } => {
                    self.deliver(
                        now,
                        Delivery::CutTaken {
                            worker,
                            pipeline,
                            version,
                            epoch,
                            is_replay,
                            is_checkpoint,
                        },
                    );
                }
                LocalAction::Restore {
                    pipeline,
                    version,
                    view,
                    stage,
                    partition,
                    ..
                } => {
                    let event = LocalEvent::Restored {
                        pipeline,
                        version,
                        view,
                        stage,
                        partition,
                    };
                    let at = now + self.setup.costs.task_ns;
                    self.deliver(at, Delivery::Restored { worker, event });
                }
                LocalAction::Run(task) => self.deliver(now, Delivery::Ready { worker, task }),
                LocalAction::Release { pipeline, epochs } => self.checks.release(worker, pipeline, &epochs),
                LocalAction::Send(to, message) => {
                    self.report.worker_messages += 1;
                    self.send(now, Delivery::ToPeer(to, message));
                }
                LocalAction::Report(message) => match message {
                    ToDriver::NeedEpochs { pipeline, .. } if self.central.pipelines.contains(&pipeline) => {
                        self.central.held.insert(pipeline, message);
                    }
                    message => self.send(now, Delivery::ToDriver(message)),
                },
                LocalAction::WakeAt { pipeline, at } => {
                    self.deliver(at.max(now), Delivery::Wake { worker, pipeline });
                }
            }
        }
    }

    /// The driver takes an event when it is free, and is busy for as long as that takes.
    fn event(&mut self, event: Event) {
        let about = match &event {
            Event::Worker(message) => message.about().map(|(pipeline, _)| pipeline),
            _ => None,
        };
        let start = self.now.max(self.driver_free_at);
        let heard = match &event {
            Event::Worker(message) => encode(message).unwrap_or_default(),
            _ => vec![],
        };
        let started = Instant::now();
        if !heard.is_empty() {
            black_box(decode::<ToDriver>(&heard).is_ok());
        }
        let commands = self.driver.on(event, start);
        let mut sent: Vec<(WorkerId, Vec<u8>)> = vec![];
        let mut others = vec![];
        for command in commands {
            match command {
                Command::Send(to, message) => {
                    if let ToWorker::Prepare(template) = &message {
                        self.checks.prepared(template);
                    }
                    sent.push((to, encode(&message).unwrap_or_default()));
                }
                other => others.push(other),
            }
        }
        let took = match self.setup.costs.driver_ns {
            Some((event_ns, message_ns)) => event_ns + message_ns * sent.len() as u64,
            None => started.elapsed().as_nanos() as u64,
        };
        self.driver_free_at = start + took;
        self.report.driver_ns += took;
        if let Some(pipeline) = about {
            self.driver.spent(pipeline, took);
        }
        for (to, bytes) in sent {
            self.report.driver_messages += 1;
            self.report.driver_bytes += bytes.len() as u64;
            match decode(&bytes) {
                Ok(message) => self.send(self.driver_free_at, Delivery::ToWorker(to, message)),
                Err(error) => panic!("a message that cannot be read: {error}"),
            }
        }
        for command in others {
            match command {
                Command::Send(..) | Command::Attached { .. } | Command::JobLost { .. } => {}
                // Whatever it does from now on is not listened to.
                Command::Evict { worker } => {
                    self.workers.remove(&worker);
                }
                Command::Lost {
                    views,
                    partitions,
                    modulus,
                    ..
                } => {
                    self.report.recoveries += 1;
                    self.checks.lost(&views, &partitions, modulus);
                }
                Command::Recovered { pipeline } => self.checks.recovered(pipeline),
                Command::Checkpointed {
                    pipeline,
                    epoch,
                    views,
                } => {
                    self.report.checkpoints += 1;
                    self.cuts.retain(|(of, at), _| *of != pipeline || *at > epoch);
                    let shapes = views.iter().map(|view| &self.shapes[view]);
                    self.checks.checkpointed(pipeline, epoch, shapes);
                }
                Command::Abandoned { pipeline, views } => {
                    self.cuts.retain(|(of, _), _| *of != pipeline);
                    self.cut_at.retain(|(of, _), _| *of != pipeline);
                    for view in views {
                        if let Some(of) = self.views.get_mut(&pipeline) {
                            of.remove(&view);
                        }
                        self.checks.abandoned(view);
                        self.abandoned.push(view);
                    }
                }
                Command::Commit { pipeline, epoch } => self.commit(pipeline, epoch),
                Command::CutterIs { pipeline, worker } => {
                    self.cutters.insert(pipeline, worker);
                    if self.interval_ns > 0 {
                        // Behind its template.
                        let at = self.driver_free_at + self.setup.costs.message_ns.1;
                        self.deliver(at, Delivery::Interval { worker, pipeline });
                    }
                }
                Command::Joined { into, from } => {
                    let views = self.views.remove(&from).unwrap_or_default();
                    self.views.entry(into).or_default().extend(views);
                    let inputs = self.inputs_left.remove(&from).unwrap_or(0);
                    *self.inputs_left.entry(into).or_default() += inputs;
                }
                Command::Quiesced { ticket, pipeline, .. } => self.held.push((ticket, pipeline)),
                Command::WorkerFree { worker } => self.freed.push(worker),
            }
        }
        if let Some(group) = about.and_then(|pipeline| self.driver.last_group(pipeline))
            && self.last_group != (about, group.last_epoch)
        {
            self.last_group = (about, group.last_epoch);
            self.report.groups.push(GroupSeen {
                at_ns: self.now,
                epochs: group.last_epoch + 1 - group.first_epoch,
                share: group.share,
            });
        }
        for pipeline in std::mem::take(&mut self.central.due) {
            if let Some(message) = self.central.held.remove(&pipeline) {
                self.event(Event::Worker(message));
            }
            let left = self.inputs_left.entry(pipeline).or_default();
            *left += u64::from(pipeline != self.central.pipelines[0]);
            if *left > 0 {
                self.send(self.driver_free_at, Delivery::Input(pipeline));
            }
        }
    }

    fn commit(&mut self, pipeline: PipelineId, epoch: u64) {
        self.checks.committed(pipeline, epoch);
        let Some(cut_at) = self.cut_at.remove(&(pipeline, epoch)) else {
            return;
        };
        let views = self.views.get(&pipeline).cloned().unwrap_or_default();
        let tasks: usize = views.iter().map(|view| self.shapes[view].tasks()).sum();
        self.checks.done(pipeline, epoch, tasks);
        self.report.epochs += 1;
        self.report
            .latencies_ns
            .push(self.now.max(self.driver_free_at) - cut_at);
        let stages = &self.central.pipelines;
        if let Some(stage) = stages.iter().position(|stage| *stage == pipeline) {
            self.central.due.push(stages[(stage + 1) % stages.len()]);
        }
    }

    fn send(&mut self, at: u64, delivery: Delivery) {
        let (least, most) = self.setup.costs.message_ns;
        let delay = least
            + if most > least {
                self.draw() % (most - least)
            } else {
                0
            };
        if self.setup.costs.doubled_per_mille > 0 && self.draw() % 1000 < self.setup.costs.doubled_per_mille {
            let again = delay + self.draw() % (most + 1);
            self.deliver(at + again, delivery.clone());
        }
        self.deliver(at + delay, delivery);
    }

    fn deliver(&mut self, at: u64, delivery: Delivery) {
        self.next += 1;
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
