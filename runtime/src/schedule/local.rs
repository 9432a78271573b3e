//! The local scheduler of a worker: counts of outstanding inputs, and the clock of the cuts.
//!
//! Pre-scheduling (Drizzle, section 3.2): the tasks of an epoch are there before their inputs, and use nothing; a task whose
//! last input arrives is run. A task that ends tells the workers that wait for it; the driver hears of whole epochs, later.
//! Reduces of one partition run in the order of their epochs; maps run ahead, [`EPOCHS_IN_FLIGHT_MAX`] epochs at most.
//!
//! One worker of a pipeline is its *cutter*: its sources arrive there. It starts the next epoch as soon as there is input,
//! the cut before has been taken, and the driver has launched the epoch.
//!
//! Pure bookkeeping: events in, actions out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::message::{EpochCosts, ToDriver, ToPeer, ToWorker};
use super::plan::{Plan, TaskPlan};
use super::template::{StageInput, Template, WorkerId};
use crate::driver::PipelineId;
use crate::operator::CHUNK_ROWS;

/// Epochs of one pipeline that may be under way at once.
pub const EPOCHS_IN_FLIGHT_MAX: usize = 4;
/// Void templates that are remembered: no message is under way for longer.
const FORGOTTEN_MAX: usize = 256;

/// Names a task for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    pub view: RelationId,
    pub stage: usize,
    pub partition: usize,
    pub epoch: u64,
}

/// Rows that a task has to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Its share of a relation's cut.
    Cut { relation: RelationId, from: WorkerId },
    /// What an upstream stage sent to its partition.
    Exchange { stage: usize, from: WorkerId },
    /// The changes of a partition of a view.
    Changes {
        view: RelationId,
        partition: usize,
        from: WorkerId,
    },
}

/// A task whose inputs are all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyTask {
    pub pipeline: PipelineId,
    pub version: u64,
    pub id: TaskId,
    /// The epoch's clock, in microseconds.
    pub now: i64,
    pub is_job: bool,
    /// Whether other views wait for what it changes in its view.
    pub is_read: bool,
    pub sources: Vec<Source>,
}

/// What a task left behind: for an exchange, the partitions that have rows; for the last stage, partition 0 if the view
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    pub filled: Vec<u32>,
    pub busy_ns: u64,
}

/// What happened on a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEvent {
    Driver(ToWorker),
    Peer(ToPeer),
    /// Input waits to be cut; here is the cutter.
    InputArrived {
        pipeline: PipelineId,
    },
    /// The answer to [`LocalAction::TakeCut`].
    CutTaken {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        /// The epoch's clock, in microseconds.
        now: i64,
        rows: Vec<(RelationId, u64)>,
        /// More input waits.
        more: bool,
    },
    /// A task that was run ended.
    TaskEnded {
        pipeline: PipelineId,
        version: u64,
        id: TaskId,
        ended: Ended,
    },
    /// The time of [`LocalAction::WakeAt`] has come.
    Wake {
        pipeline: PipelineId,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAction {
    /// Fix the cut of every source for this epoch.
    TakeCut {
        pipeline: PipelineId,
        version: u64,
        epoch: u64,
        is_job: bool,
    },
    Run(ReadyTask),
    /// Rows that were kept of these epochs are fetched by nobody any more.
    Release {
        pipeline: PipelineId,
        epochs: RangeInclusive<u64>,
    },
    Send(WorkerId, ToPeer),
    Report(ToDriver),
    /// [`LocalEvent::Wake`] is wanted at this time (nanoseconds).
    WakeAt {
        pipeline: PipelineId,
        at: u64,
    },
}

/// What the scheduler asks of the tasks themselves.
pub trait Tasks {
    /// Whether the task has anything to do in an epoch: `is_filled` says whether any of its inputs has rows.
    fn has_work(&self, view: RelationId, stage: usize, partition: usize, now: i64, is_filled: bool) -> bool;
}

/// See the module.
#[derive(Debug)]
pub struct LocalScheduler {
    me: WorkerId,
    pipelines: HashMap<PipelineId, Pipeline>,
    /// Messages of peers that heard of a launch before this worker.
    early: Vec<ToPeer>,
    /// Commands that overtook their template.
    early_commands: Vec<ToWorker>,
    /// Templates that are void, with all before them: what is still said of them is not listened to.
    forgotten: VecDeque<(PipelineId, u64)>,
}

#[derive(Debug)]
struct Pipeline {
    plan: Arc<Plan>,
    version: u64,
    /// Epochs up to here may run.
    launched: u64,
    epochs: BTreeMap<u64, Epoch>,
    /// For each task, the last epoch in which it ended: the next one's waits for it if it is a reduce.
    ended: Vec<u64>,
    /// Everything up to here is done on this worker, and these epochs after it.
    done_to: u64,
    done_ahead: BTreeSet<u64>,
    cutter: Option<Cutter>,
}

/// An epoch in flight on this worker.
#[derive(Debug)]
struct Epoch {
    counts: Vec<u32>,
    sources: HashMap<usize, Vec<Source>>,
    /// For each view and stage, tasks that have not ended.
    left: Vec<Vec<u32>>,
    /// Which partitions of its reader each stage has filled so far.
    filled: HashMap<(usize, usize), BTreeSet<u32>>,
    tasks_left: usize,
    /// What was heard already: messages may come twice.
    heard: HashSet<(usize, usize, u32)>,
    has_cut: bool,
    now: i64,
    started_at: u64,
    costs: EpochCosts,
}

/// The clock of a pipeline's cuts.
#[derive(Debug)]
struct Cutter {
    has_input: bool,
    /// The cut of the last epoch that was started is being taken.
    is_cutting: bool,
    started: u64,
    in_flight: BTreeMap<u64, BTreeSet<WorkerId>>,
    is_closed: bool,
    /// The last epoch for which more were asked.
    asked: u64,
    group: u64,
    /// Nanoseconds between two cuts; 0: as soon as there is input.
    interval: u64,
    next_cut_at: u64,
    is_asleep: bool,
    /// Since when there is input and no epoch to put it in.
    waits_since: Option<u64>,
    waited_ns: u64,
}

impl LocalScheduler {
    pub fn new(me: WorkerId) -> Self {
        LocalScheduler {
            me,
            pipelines: HashMap::new(),
            early: vec![],
            early_commands: vec![],
            forgotten: VecDeque::new(),
        }
    }

    /// Sets the time between two cuts of a pipeline whose cutter is here, in nanoseconds; 0: as soon as there is input.
    /// Back-fills do not wait.
    pub fn set_interval(&mut self, pipeline: PipelineId, interval: u64) {
        if let Some(pipeline) = self.pipelines.get_mut(&pipeline)
            && !pipeline.plan.template.is_job
            && let Some(cutter) = &mut pipeline.cutter
        {
            if cutter.interval != interval {
                // What was due after a longer one does not wait for it.
                cutter.next_cut_at = 0;
            }
            cutter.interval = interval;
        }
    }

    /// Whether nothing is in flight or remembered of any epoch.
    pub fn is_idle(&self) -> bool {
        self.early.is_empty()
            && self.early_commands.is_empty()
            && self.pipelines.values().all(|pipeline| {
                pipeline.epochs.is_empty()
                    && pipeline
                        .cutter
                        .as_ref()
                        .is_none_or(|cutter| cutter.in_flight.is_empty())
            })
    }

    /// Takes an event at a time (nanoseconds, of any monotone clock), decides. Actions are to be carried out in order.
    pub fn on(&mut self, event: LocalEvent, at: u64, tasks: &dyn Tasks) -> Vec<LocalAction> {
        let mut work = Work {
            at,
            tasks,
            actions: vec![],
            peers: vec![],
        };
        match event {
            LocalEvent::Driver(message) => self.driver(message, &mut work),
            LocalEvent::Peer(message) => work.peers.push(message),
            LocalEvent::InputArrived { pipeline } => {
                if let Some(pipeline) = self.pipelines.get_mut(&pipeline) {
                    if let Some(cutter) = &mut pipeline.cutter {
                        cutter.has_input = true;
                    }
                    pipeline.start(&mut work);
                }
            }
            LocalEvent::Wake { pipeline } => {
                if let Some(pipeline) = self.pipelines.get_mut(&pipeline) {
                    if let Some(cutter) = &mut pipeline.cutter {
                        cutter.is_asleep = false;
                    }
                    pipeline.start(&mut work);
                }
            }
            LocalEvent::CutTaken {
                pipeline,
                version,
                epoch,
                now,
                rows,
                more,
            } => {
                if let Some(pipeline) = self.of(pipeline, version) {
                    pipeline.cut_taken(epoch, now, rows, more, &mut work);
                }
            }
            LocalEvent::TaskEnded {
                pipeline,
                version,
                id,
                ended,
            } => {
                if let Some(pipeline) = self.of(pipeline, version)
                    && let Some(view) = pipeline.plan.position(id.view)
                    && let Some(task) = pipeline.plan.task(view, id.stage, id.partition)
                {
                    if let Some(epoch) = pipeline.epochs.get_mut(&id.epoch) {
                        epoch.costs.tasks += 1;
                        epoch.costs.busy_ns += ended.busy_ns;
                    }
                    let filled = ended.filled.into_iter().collect();
                    pipeline.settle(id.epoch, vec![], vec![(task, filled)], &mut work);
                }
            }
        }
        // What is sent to oneself is worked off at once.
        while let Some(message) = work.peers.pop() {
            self.peer(message, &mut work);
        }
        work.actions
    }

    fn of(&mut self, pipeline: PipelineId, version: u64) -> Option<&mut Pipeline> {
        self.pipelines
            .get_mut(&pipeline)
            .filter(|pipeline| pipeline.version == version)
    }

    fn driver(&mut self, message: ToWorker, work: &mut Work<'_>) {
        let (id, version) = message.about();
        if self
            .forgotten
            .iter()
            .any(|(pipeline, to)| *pipeline == id && version <= *to)
        {
            return;
        }
        let known = self.pipelines.get(&id).map_or(0, |pipeline| pipeline.version);
        match message {
            ToWorker::Prepare(template) => {
                if known < version {
                    // The driver opens a pipeline again when all is committed, whatever is still said of it.
                    let epochs = 0..=template.after;
                    work.actions.push(LocalAction::Release { pipeline: id, epochs });
                    self.prepare(template);
                    let (ready, early) = std::mem::take(&mut self.early_commands)
                        .into_iter()
                        .partition(|command| command.about() == (id, version));
                    self.early_commands = early;
                    let ready: Vec<ToWorker> = ready;
                    for command in ready {
                        self.driver(command, work);
                    }
                }
            }
            ToWorker::Forget { .. } => {
                if known <= version {
                    self.pipelines.remove(&id);
                    let epochs = 0..=u64::MAX;
                    work.actions.push(LocalAction::Release { pipeline: id, epochs });
                }
                if self.forgotten.len() == FORGOTTEN_MAX {
                    self.forgotten.pop_front();
                }
                self.forgotten.push_back((id, version));
                self.early
                    .retain(|message| (message.about().0, message.about().1 <= version) != (id, true));
                self.early_commands
                    .retain(|message| message.about() != (id, version));
            }
            // Its template is still on the way.
            command if known < version => self.early_commands.push(command),
            ToWorker::Launch { first, last, .. } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.launch(first, last, work);
                    let (ready, early) = std::mem::take(&mut self.early).into_iter().partition(|message| {
                        let about = message.about();
                        (about.0, about.1) == (id, version) && about.2 <= last
                    });
                    self.early = early;
                    let ready: Vec<ToPeer> = ready;
                    work.peers.extend(ready);
                }
            }
            ToWorker::Close { .. } => {
                if let Some(pipeline) = self.of(id, version)
                    && let Some(cutter) = &mut pipeline.cutter
                {
                    cutter.is_closed = true;
                    let closed = ToDriver::Closed {
                        pipeline: id,
                        version,
                        last: cutter.started,
                    };
                    work.actions.push(LocalAction::Report(closed));
                }
            }
        }
    }

    fn prepare(&mut self, template: Arc<Template>) {
        let (id, version, after) = (template.pipeline, template.version, template.after);
        let old = self.pipelines.remove(&id).and_then(|old| old.cutter);
        let interval = old.map_or(0, |cutter| cutter.interval);
        let plan = Arc::new(Plan::new(template, self.me));
        let cutter = (plan.template.cutter == self.me).then(|| Cutter::new(after, interval));
        let pipeline = Pipeline {
            ended: vec![after; plan.tasks.len()],
            plan,
            version,
            launched: after,
            epochs: BTreeMap::new(),
            done_to: after,
            done_ahead: BTreeSet::new(),
            cutter,
        };
        self.pipelines.insert(id, pipeline);
    }

    fn peer(&mut self, message: ToPeer, work: &mut Work<'_>) {
        let (id, version, epoch) = message.about();
        if self
            .forgotten
            .iter()
            .any(|(pipeline, to)| *pipeline == id && version <= *to)
        {
            return;
        }
        let known = self
            .pipelines
            .get(&id)
            .map(|pipeline| (pipeline.version, pipeline.launched));
        match known {
            Some((known, _)) if known > version => return,
            Some((known, launched)) if known == version && epoch <= launched => {}
            // Its launch is still on the way.
            _ => {
                self.early.push(message);
                return;
            }
        }
        let Some(pipeline) = self.of(id, version) else {
            return;
        };
        match message {
            ToPeer::Cut { epoch, now, rows, .. } => pipeline.cut_arrived(epoch, now, &rows, work),
            ToPeer::StageDone {
                epoch,
                view,
                stage,
                from,
                filled,
                ..
            } => {
                pipeline.stage_done(epoch, view, stage, from, &filled, work);
            }
            ToPeer::Materialized {
                epoch,
                view,
                partition,
                from,
                is_filled,
                ..
            } => {
                pipeline.materialized(epoch, view, partition, from, is_filled, work);
            }
            ToPeer::EpochDone { epoch, from, .. } => pipeline.epoch_done(epoch, from, work),
            ToPeer::Release { epoch, .. } => {
                let epochs = epoch..=epoch;
                work.actions.push(LocalAction::Release { pipeline: id, epochs });
            }
        }
    }
}

/// What is gathered while one event is worked off.
struct Work<'a> {
    at: u64,
    tasks: &'a dyn Tasks,
    actions: Vec<LocalAction>,
    /// Messages to this worker itself.
    peers: Vec<ToPeer>,
}

impl Work<'_> {
    fn send(&mut self, me: WorkerId, to: WorkerId, message: ToPeer) {
        if to == me {
            self.peers.push(message);
        } else {
            self.actions.push(LocalAction::Send(to, message));
        }
    }
}

impl Cutter {
    fn new(after: u64, interval: u64) -> Self {
        Cutter {
            // What came while there was no group: the first epoch looks.
            has_input: true,
            is_cutting: false,
            started: after,
            in_flight: BTreeMap::new(),
            is_closed: false,
            asked: after,
            group: 1,
            interval,
            next_cut_at: 0,
            is_asleep: false,
            waits_since: None,
            waited_ns: 0,
        }
    }
}

impl Pipeline {
    fn id(&self) -> PipelineId {
        self.plan.template.pipeline
    }

    fn launch(&mut self, first: u64, last: u64, work: &mut Work<'_>) {
        self.launched = self.launched.max(last);
        if let Some(cutter) = &mut self.cutter {
            cutter.group = last + 1 - first;
        }
        self.start(work);
    }

    /// Starts the next epoch if it may.
    fn start(&mut self, work: &mut Work<'_>) {
        let (id, version, is_job) = (self.id(), self.version, self.plan.template.is_job);
        let participants = &self.plan.participants;
        let Some(cutter) = &mut self.cutter else { return };
        if !cutter.has_input
            || cutter.is_cutting
            || cutter.is_closed
            || cutter.in_flight.len() >= EPOCHS_IN_FLIGHT_MAX
        {
            return;
        }
        if cutter.started >= self.launched {
            cutter.waits_since.get_or_insert(work.at);
            return;
        }
        if work.at < cutter.next_cut_at {
            if !std::mem::replace(&mut cutter.is_asleep, true) {
                work.actions.push(LocalAction::WakeAt {
                    pipeline: id,
                    at: cutter.next_cut_at,
                });
            }
            return;
        }
        if let Some(since) = cutter.waits_since.take() {
            cutter.waited_ns += work.at.saturating_sub(since);
        }
        cutter.next_cut_at = if cutter.interval == 0 {
            0
        } else {
            // Late cuts do not shift the later ones.
            let due = cutter.next_cut_at.max(work.at.saturating_sub(cutter.interval));
            due + cutter.interval
        };
        cutter.has_input = false;
        cutter.is_cutting = true;
        cutter.started += 1;
        let epoch = cutter.started;
        cutter
            .in_flight
            .insert(epoch, participants.iter().copied().collect());
        work.actions.push(LocalAction::TakeCut {
            pipeline: id,
            version,
            epoch,
            is_job,
        });
        // The next group is asked for while the last epochs of this one run.
        let ahead = (cutter.group / 4).clamp(1, EPOCHS_IN_FLIGHT_MAX as u64);
        if self.launched - epoch < ahead && cutter.asked < self.launched {
            cutter.asked = self.launched;
            work.actions.push(LocalAction::Report(ToDriver::NeedEpochs {
                pipeline: id,
                version,
                last: self.launched,
            }));
        }
    }

    fn cut_taken(
        &mut self,
        epoch: u64,
        now: i64,
        rows: Vec<(RelationId, u64)>,
        more: bool,
        work: &mut Work<'_>,
    ) {
        let (id, version, me) = (self.id(), self.version, self.plan.me);
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = false;
        cutter.has_input |= more;
        let waited_ns = std::mem::take(&mut cutter.waited_ns);
        for worker in &self.plan.participants {
            if *worker != me {
                let message = ToPeer::Cut {
                    pipeline: id,
                    version,
                    epoch,
                    now,
                    rows: rows.clone(),
                };
                work.actions.push(LocalAction::Send(*worker, message));
            }
        }
        let entry = self.epoch(epoch, work);
        if let Some(entry) = entry {
            entry.costs.rows = rows.iter().map(|(_, rows)| rows).sum();
            entry.costs.waited_ns = waited_ns;
        }
        self.cut_arrived(epoch, now, &rows, work);
        self.start(work);
    }

    /// The epoch's state, made from the plan when it is first heard of; none if it is over.
    fn epoch(&mut self, epoch: u64, work: &Work<'_>) -> Option<&mut Epoch> {
        if epoch <= self.done_to || self.done_ahead.contains(&epoch) {
            return None;
        }
        let plan = &self.plan;
        let ended = &self.ended;
        Some(self.epochs.entry(epoch).or_insert_with(|| {
            let mut counts = plan.counts.clone();
            for (number, task) in plan.tasks.iter().enumerate() {
                let is_reduce = plan.view(*task).stages[task.stage].is_reduce();
                if is_reduce && ended[number] + 1 < epoch {
                    counts[number] += 1;
                }
            }
            Epoch {
                counts,
                sources: HashMap::new(),
                left: plan
                    .stages
                    .iter()
                    .map(|stages| stages.iter().map(|range| range.len() as u32).collect())
                    .collect(),
                filled: HashMap::new(),
                tasks_left: plan.tasks.len(),
                heard: HashSet::new(),
                has_cut: false,
                now: 0,
                started_at: work.at,
                costs: EpochCosts::default(),
            }
        }))
    }

    /// The cut releases the maps, and brings the epoch's clock to all tasks.
    fn cut_arrived(&mut self, number: u64, now: i64, rows: &[(RelationId, u64)], work: &mut Work<'_>) {
        let plan = Arc::clone(&self.plan);
        let from = plan.template.cutter;
        let Some(epoch) = self.epoch(number, work) else {
            return;
        };
        if std::mem::replace(&mut epoch.has_cut, true) {
            return;
        }
        epoch.now = now;
        let mut arrived = vec![];
        for (task, planned) in plan.tasks.iter().enumerate() {
            let view = plan.view(*planned);
            if let StageInput::Relation(relation) = &view.stages[planned.stage].input {
                let rows = rows
                    .iter()
                    .find(|(cut, _)| cut == relation)
                    .map_or(0, |(_, rows)| *rows);
                if !share(rows, planned.partition, view.partitions).is_empty() {
                    let source = Source::Cut {
                        relation: *relation,
                        from,
                    };
                    epoch.sources.entry(task).or_default().push(source);
                }
            }
            arrived.push(task);
        }
        self.settle(number, arrived, vec![], work);
        self.finish(number, work);
    }

    fn stage_done(
        &mut self,
        number: u64,
        view: RelationId,
        stage: usize,
        from: WorkerId,
        filled: &[u32],
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let Some(position) = plan.position(view) else {
            return;
        };
        let Some(reader) = plan.template.views[position].stages[stage].reader else {
            return;
        };
        let Some(epoch) = self.epoch(number, work) else {
            return;
        };
        if !epoch.heard.insert((position, stage, from.0)) {
            return;
        }
        let mut arrived = vec![];
        for task in plan.stages[position][reader].clone() {
            if filled.contains(&(plan.tasks[task].partition as u32)) {
                epoch
                    .sources
                    .entry(task)
                    .or_default()
                    .push(Source::Exchange { stage, from });
            }
            arrived.push(task);
        }
        self.settle(number, arrived, vec![], work);
    }

    fn materialized(
        &mut self,
        number: u64,
        view: RelationId,
        partition: usize,
        from: WorkerId,
        is_filled: bool,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let Some(position) = plan.position(view) else {
            return;
        };
        let last = plan.template.views[position].stages.len() - 1;
        let Some(epoch) = self.epoch(number, work) else {
            return;
        };
        if !epoch.heard.insert((position, last, partition as u32)) {
            return;
        }
        let mut arrived = vec![];
        for (reader, stage) in plan.readers(view) {
            let partitions = plan.template.views[*reader].partitions;
            if let Some(task) = plan.task(*reader, *stage, partition % partitions) {
                if is_filled {
                    let source = Source::Changes {
                        view,
                        partition,
                        from,
                    };
                    epoch.sources.entry(task).or_default().push(source);
                }
                arrived.push(task);
            }
        }
        self.settle(number, arrived, vec![], work);
    }

    fn epoch_done(&mut self, number: u64, from: WorkerId, work: &mut Work<'_>) {
        if let Some(cutter) = &mut self.cutter
            && let Some(workers) = cutter.in_flight.get_mut(&number)
        {
            workers.remove(&from);
            if workers.is_empty() {
                cutter.in_flight.remove(&number);
                for to in &self.plan.participants {
                    let message = ToPeer::Release {
                        pipeline: self.plan.template.pipeline,
                        version: self.version,
                        epoch: number,
                    };
                    work.send(self.plan.me, *to, message);
                }
            }
        }
        self.start(work);
    }

    /// Works off arrivals and ends until nothing more follows without running a task.
    fn settle(
        &mut self,
        number: u64,
        arrived: Vec<usize>,
        ended: Vec<(usize, BTreeSet<u32>)>,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let mut arrived: Vec<(u64, usize)> = arrived.into_iter().map(|task| (number, task)).collect();
        let mut ended: Vec<(u64, usize, BTreeSet<u32>)> = ended
            .into_iter()
            .map(|(task, filled)| (number, task, filled))
            .collect();
        loop {
            if let Some((number, task, filled)) = ended.pop() {
                self.end(number, task, filled, &mut arrived, work);
            } else if let Some((number, task)) = arrived.pop() {
                let Some(epoch) = self.epochs.get_mut(&number) else {
                    continue;
                };
                epoch.counts[task] -= 1;
                if epoch.counts[task] > 0 {
                    continue;
                }
                let planned = plan.tasks[task];
                let view = plan.view(planned).id;
                let sources = epoch.sources.remove(&task).unwrap_or_default();
                let is_filled = !sources.is_empty();
                if work
                    .tasks
                    .has_work(view, planned.stage, planned.partition, epoch.now, is_filled)
                {
                    work.actions.push(LocalAction::Run(ReadyTask {
                        pipeline: plan.template.pipeline,
                        version: self.version,
                        id: TaskId {
                            view,
                            stage: planned.stage,
                            partition: planned.partition,
                            epoch: number,
                        },
                        now: epoch.now,
                        is_job: plan.template.is_job,
                        is_read: !plan.readers(view).is_empty(),
                        sources,
                    }));
                } else {
                    epoch.costs.tasks_skipped += 1;
                    ended.push((number, task, BTreeSet::new()));
                }
            } else {
                return;
            }
        }
    }

    fn end(
        &mut self,
        number: u64,
        task: usize,
        filled: BTreeSet<u32>,
        arrived: &mut Vec<(u64, usize)>,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let planned: TaskPlan = plan.tasks[task];
        let view = plan.view(planned);
        let shape = &view.stages[planned.stage];
        let (pipeline, version, me) = (self.id(), self.version, plan.me);
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        epoch.tasks_left -= 1;
        self.ended[task] = self.ended[task].max(number);
        if shape.is_reduce() && self.epochs.contains_key(&(number + 1)) {
            arrived.push((number + 1, task));
        }
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        match shape.reader {
            Some(reader) => {
                epoch
                    .filled
                    .entry((planned.view, planned.stage))
                    .or_default()
                    .extend(filled);
                let left = &mut epoch.left[planned.view][planned.stage];
                *left -= 1;
                if *left == 0 {
                    let filled = epoch
                        .filled
                        .remove(&(planned.view, planned.stage))
                        .unwrap_or_default();
                    for to in plan.workers_of(view, reader) {
                        let filled = filled
                            .iter()
                            .copied()
                            .filter(|p| plan.template.worker(*p as usize) == to)
                            .collect();
                        let message = ToPeer::StageDone {
                            pipeline,
                            version,
                            epoch: number,
                            view: view.id,
                            stage: planned.stage,
                            from: me,
                            filled,
                        };
                        work.send(me, to, message);
                    }
                }
            }
            None => {
                let mut told: Vec<WorkerId> = vec![];
                for (reader, _) in plan.readers(view.id) {
                    let partitions = plan.template.views[*reader].partitions;
                    let to = plan.template.worker(planned.partition % partitions);
                    if told.contains(&to) {
                        continue;
                    }
                    told.push(to);
                    let message = ToPeer::Materialized {
                        pipeline,
                        version,
                        epoch: number,
                        view: view.id,
                        partition: planned.partition,
                        from: me,
                        is_filled: !filled.is_empty(),
                    };
                    work.send(me, to, message);
                }
            }
        }
        self.finish(number, work);
    }

    /// Ends the epoch on this worker if all of it is done.
    fn finish(&mut self, number: u64, work: &mut Work<'_>) {
        let (pipeline, version, me) = (self.id(), self.version, self.plan.me);
        let cutter = self.plan.template.cutter;
        let Some(epoch) = self.epochs.get(&number) else {
            return;
        };
        if epoch.tasks_left > 0 || !epoch.has_cut {
            return;
        }
        let Some(epoch) = self.epochs.remove(&number) else {
            return;
        };
        // Epochs without reduces may overtake each other.
        self.done_ahead.insert(number);
        while self.done_ahead.remove(&(self.done_to + 1)) {
            self.done_to += 1;
        }
        let mut costs = epoch.costs;
        costs.elapsed_ns = work.at.saturating_sub(epoch.started_at);
        work.actions.push(LocalAction::Report(ToDriver::EpochDone {
            pipeline,
            version,
            epoch: number,
            worker: me,
            costs,
        }));
        work.send(
            me,
            cutter,
            ToPeer::EpochDone {
                pipeline,
                version,
                epoch: number,
                from: me,
            },
        );
    }
}

/// Partition `p`'s share of an epoch's rows: even pieces, but no more of them than there is work for.
pub fn share(rows: u64, partition: usize, partitions: usize) -> std::ops::Range<u64> {
    let pieces = rows.div_ceil(CHUNK_ROWS as u64).clamp(1, partitions as u64);
    let partition = partition as u64;
    if partition >= pieces {
        return 0..0;
    }
    rows * partition / pieces..rows * (partition + 1) / pieces
}
