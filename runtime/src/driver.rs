//! The driver: decides which epochs may run, where, and which are visible. It never touches data.
//!
//! A pure state machine: [`Driver::on`] takes an event and returns commands. It reads no clock, starts nothing and asks
//! nobody, so that the same code runs live, in a simulation and under a fuzzer.
//!
//! ```text
//!  open: Prepare(template), Launch(a..=b) --> workers run epochs on their own --> EpochDone.. --> Commit e
//!                                         <-- NeedEpochs --> Launch(b+1..=c)
//! ```
//!
//! A *pipeline* is a set of sources and views that are connected through common inputs, with one clock. Epochs are launched
//! in groups; within a group the driver is not asked (Drizzle, section 3.1). Definitions and placement change only between
//! groups, while the pipelines concerned are idle: [`Event::Quiesce`] closes their groups, joins them into one pipeline, and
//! answers [`Command::Quiesced`] when nothing is in flight; [`Event::Resume`] opens the next group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_planner::RelationId;
use serde::{Deserialize, Serialize};

use crate::schedule::group::{GroupCosts, GroupSize, GroupTuner};
use crate::schedule::message::{EpochCosts, ToDriver, ToWorker};
use crate::schedule::template::{Template, ViewShape, WorkerId};

/// Identifies a pipeline. Joining two keeps the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PipelineId(pub u64);

/// Identifies a change of definitions under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Groups of a pipeline that are remembered for inspection.
const GROUPS_REMEMBERED: usize = 64;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A worker is there from now on; partitions move to it when their pipeline is next opened.
    WorkerJoined { worker: WorkerId },
    /// A worker is to leave: pipelines that have partitions there are moved off it; then [`Command::WorkerFree`].
    WorkerLeaving { worker: WorkerId },
    /// A worker says something.
    Worker(ToDriver),
    /// A stream or table exists from now on; it is a pipeline of its own.
    SourceAdded {
        relation: RelationId,
        pipeline: PipelineId,
    },
    /// A back-fill of views starts: a pipeline of its own until it has caught up.
    JobAdded {
        views: Vec<Arc<ViewShape>>,
        pipeline: PipelineId,
    },
    /// Definitions over these relations are to change (a view that is back-filled stands for its back-fill). If there are
    /// none, a new pipeline is made, under the id given.
    Quiesce {
        ticket: Ticket,
        relations: Vec<RelationId>,
        or_new: PipelineId,
    },
    /// The change is done: `views` joined the pipeline, in this order; `dropped` are gone.
    Resume {
        ticket: Ticket,
        views: Vec<Arc<ViewShape>>,
        dropped: Vec<RelationId>,
    },
    /// The back-fill of a view, and of what is filled with it, ended or was given up.
    JobRemoved { view: RelationId },
    /// How many epochs groups have from now on.
    GroupSize(GroupSize),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    Send(WorkerId, ToWorker),
    /// Everything up to this epoch is done: readers may see it.
    Commit {
        pipeline: PipelineId,
        epoch: u64,
    },
    /// The view is part of the pipeline, and what its back-fill made is visible.
    Attached {
        view: RelationId,
        pipeline: PipelineId,
    },
    /// These pipelines are one from now on.
    Joined {
        into: PipelineId,
        from: PipelineId,
    },
    /// The pipeline's cuts are taken by this worker from now on.
    CutterIs {
        pipeline: PipelineId,
        worker: WorkerId,
    },
    /// Nothing of the pipeline is in flight, and nothing will be until the ticket is resumed.
    Quiesced {
        ticket: Ticket,
        pipeline: PipelineId,
        epoch: u64,
    },
    /// No pipeline has anything on the worker any more.
    WorkerFree {
        worker: WorkerId,
    },
}

/// A group that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    pub first_epoch: u64,
    pub last_epoch: u64,
    /// Input rows.
    pub rows: u64,
    pub costs: GroupCosts,
    /// Tasks that ran, and tasks that had nothing to do.
    pub tasks: u64,
    pub tasks_skipped: u64,
    /// Time in which its tasks ran, all workers together, in nanoseconds.
    pub busy_ns: u64,
    /// The smoothed share of coordination after it.
    pub share: f64,
}

/// A pipeline as operators see it.
#[derive(Debug, Clone)]
pub struct PipelineRecord {
    pub id: PipelineId,
    pub sources: Vec<RelationId>,
    pub views: Vec<RelationId>,
    pub committed: u64,
    /// Epochs of the next group.
    pub group_size: u64,
    pub cutter: Option<WorkerId>,
    /// The newest last.
    pub groups: Vec<GroupRecord>,
}

#[derive(Debug)]
struct Pipeline {
    sources: BTreeSet<RelationId>,
    /// In the order in which they were made: a view comes after what it reads.
    views: Vec<Arc<ViewShape>>,
    is_job: bool,
    committed: u64,
    phase: Phase,
    template: Option<Arc<Template>>,
    /// Who of the participants has reported which epoch.
    done: BTreeMap<u64, BTreeSet<WorkerId>>,
    participants: usize,
    tuner: GroupTuner,
    /// Groups that were launched and have not ended, by their last epoch.
    groups: BTreeMap<u64, GroupRecord>,
    remembered: VecDeque<GroupRecord>,
    /// The driver's time that no group has been charged with yet.
    spent_ns: u64,
    /// Changes of definitions that wait or are under way, in order. While there is one, no epoch is launched.
    tickets: VecDeque<Ticket>,
    /// The first ticket has been told that the pipeline is idle.
    is_held: bool,
}

/// Whether epochs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Epochs up to `launched` may run.
    Open { launched: u64 },
    /// The cutter was asked to start no further one.
    Closing,
    /// None will be started after this one.
    Closed { last: u64 },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Driver {
    pipelines: BTreeMap<PipelineId, Pipeline>,
    pipeline_of: BTreeMap<RelationId, PipelineId>,
    /// Back-fills by view.
    jobs: BTreeMap<RelationId, PipelineId>,
    /// Which pipelines a change of definitions holds back, or waits to.
    tickets: BTreeMap<Ticket, BTreeSet<PipelineId>>,
    workers: BTreeSet<WorkerId>,
    leaving: BTreeSet<WorkerId>,
    /// Where each partition is: the same for all pipelines, so that equal keys of different views are on one worker.
    placement: Vec<WorkerId>,
    version: u64,
    group_size: GroupSize,
}

impl Pipeline {
    fn new(group_size: GroupSize) -> Self {
        Pipeline {
            sources: BTreeSet::new(),
            views: vec![],
            is_job: false,
            committed: 0,
            phase: Phase::Closed { last: 0 },
            template: None,
            done: BTreeMap::new(),
            participants: 0,
            tuner: GroupTuner::new(group_size),
            groups: BTreeMap::new(),
            remembered: VecDeque::new(),
            spent_ns: 0,
            tickets: VecDeque::new(),
            is_held: false,
        }
    }

    fn is_idle(&self) -> bool {
        self.phase == Phase::Closed { last: self.committed }
    }
}

impl Driver {
    /// Takes an event, decides. Commands are to be carried out in order.
    pub fn on(&mut self, event: Event) -> Vec<Command> {
        let mut commands = vec![];
        match event {
            Event::WorkerJoined { worker } => {
                if self.workers.insert(worker) {
                    self.reopen_all(&mut commands);
                }
            }
            Event::WorkerLeaving { worker } => {
                // The last worker stays: there is nowhere to go.
                if self.workers.len() > 1 && self.workers.remove(&worker) {
                    self.leaving.insert(worker);
                    self.reopen_all(&mut commands);
                }
            }
            Event::Worker(message) => self.heard(message, &mut commands),
            Event::SourceAdded { relation, pipeline } => {
                let mut state = Pipeline::new(self.group_size);
                state.sources.insert(relation);
                self.pipelines.insert(pipeline, state);
                self.pipeline_of.insert(relation, pipeline);
                self.open(pipeline, &mut commands);
            }
            Event::JobAdded { views, pipeline } => {
                let mut state = Pipeline::new(self.group_size);
                self.jobs.extend(views.iter().map(|view| (view.id, pipeline)));
                state.views = views;
                state.is_job = true;
                self.pipelines.insert(pipeline, state);
                self.open(pipeline, &mut commands);
            }
            Event::JobRemoved { view } => {
                self.remove_job(view, &mut commands);
            }
            Event::Quiesce {
                ticket,
                relations,
                or_new,
            } => self.quiesce(ticket, &relations, or_new, &mut commands),
            Event::Resume {
                ticket,
                views,
                dropped,
            } => self.resume(ticket, views, &dropped, &mut commands),
            Event::GroupSize(setting) => {
                self.group_size = setting;
                for pipeline in self.pipelines.values_mut() {
                    pipeline.tuner.set(setting);
                }
            }
        }
        commands
    }

    /// Charges a pipeline with time that the driver, and the sending of what it decided, took.
    pub fn spent(&mut self, pipeline: PipelineId, nanoseconds: u64) {
        if let Some(pipeline) = self.pipelines.get_mut(&pipeline) {
            pipeline.spent_ns += nanoseconds;
        }
    }

    /// How the pipelines are doing.
    pub fn pipelines(&self) -> Vec<PipelineRecord> {
        self.pipelines
            .iter()
            .map(|(id, pipeline)| PipelineRecord {
                id: *id,
                sources: pipeline.sources.iter().copied().collect(),
                views: pipeline.views.iter().map(|view| view.id).collect(),
                committed: pipeline.committed,
                group_size: pipeline.tuner.size(),
                cutter: pipeline.template.as_ref().map(|template| template.cutter),
                groups: pipeline.remembered.iter().cloned().collect(),
            })
            .collect()
    }

    /// The sources of a pipeline.
    pub fn sources(&self, pipeline: PipelineId) -> Vec<RelationId> {
        let state = self.pipelines.get(&pipeline);
        state.map_or(vec![], |state| state.sources.iter().copied().collect())
    }

    /// The group of a pipeline that ended last.
    pub fn last_group(&self, pipeline: PipelineId) -> Option<&GroupRecord> {
        self.pipelines.get(&pipeline)?.remembered.back()
    }

    /// The pipeline of a source or view.
    pub fn pipeline_of(&self, relation: RelationId) -> Option<PipelineId> {
        self.pipeline_of.get(&relation).copied()
    }

    /// Workers that take part, and for each the partitions that it has.
    pub fn workers(&self) -> Vec<(WorkerId, usize)> {
        self.workers
            .iter()
            .map(|worker| (*worker, self.placement.iter().filter(|at| *at == worker).count()))
            .collect()
    }

    /// Makes a template of the pipeline as it is, and launches its first group.
    fn open(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let partitions = self
            .pipelines
            .get(&id)
            .and_then(|pipeline| pipeline.views.iter().map(|view| view.partitions).max())
            .unwrap_or(1);
        if self.workers.is_empty() {
            return;
        }
        self.place(partitions.max(self.placement.len()));
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        let Phase::Closed { last } = pipeline.phase else {
            return;
        };
        self.version += 1;
        let cutter = self.placement[id.0 as usize % self.placement.len()];
        let template = Arc::new(Template {
            pipeline: id,
            version: self.version,
            after: last,
            is_job: pipeline.is_job,
            views: pipeline.views.clone(),
            placement: self.placement.clone(),
            cutter,
        });
        let participants = template.participants();
        pipeline.participants = participants.len();
        if let Some(old) = pipeline.template.replace(Arc::clone(&template)) {
            for worker in old.participants() {
                if !participants.contains(&worker) {
                    let message = ToWorker::Forget {
                        pipeline: id,
                        version: old.version,
                    };
                    commands.push(Command::Send(worker, message));
                }
            }
        }
        for worker in participants {
            commands.push(Command::Send(worker, ToWorker::Prepare(Arc::clone(&template))));
        }
        commands.push(Command::CutterIs {
            pipeline: id,
            worker: cutter,
        });
        pipeline.phase = Phase::Open { launched: last };
        pipeline.launch(commands);
    }

    /// Spreads partitions evenly over the workers, moving as few as it can.
    fn place(&mut self, partitions: usize) {
        let mut counts: BTreeMap<WorkerId, usize> = self.workers.iter().map(|worker| (*worker, 0)).collect();
        let share = partitions.div_ceil(counts.len());
        let mut homeless = vec![];
        for (partition, at) in self.placement.iter().enumerate() {
            match counts.get_mut(at) {
                Some(count) if *count < share => *count += 1,
                _ => homeless.push(partition),
            }
        }
        for partition in self.placement.len()..partitions {
            homeless.push(partition);
            self.placement.push(WorkerId(u32::MAX));
        }
        for partition in homeless {
            if let Some((worker, count)) = counts
                .iter_mut()
                .min_by_key(|(worker, count)| (**count, **worker))
            {
                *count += 1;
                self.placement[partition] = *worker;
            }
        }
        // A newcomer takes from those that have most.
        loop {
            let most = counts
                .iter()
                .max_by_key(|(_, count)| **count)
                .map(|(worker, count)| (*worker, *count));
            let least = counts
                .iter()
                .min_by_key(|(_, count)| **count)
                .map(|(worker, count)| (*worker, *count));
            let (Some((most, high)), Some((least, low))) = (most, least) else {
                return;
            };
            if high <= low + 1 {
                return;
            }
            if let Some(partition) = self.placement.iter().rposition(|at| *at == most) {
                self.placement[partition] = least;
                counts.insert(most, high - 1);
                counts.insert(least, low + 1);
            }
        }
    }

    /// Closes every pipeline; each opens again, over the workers as they are then, when it is idle.
    fn reopen_all(&mut self, commands: &mut Vec<Command>) {
        let ids: Vec<PipelineId> = self.pipelines.keys().copied().collect();
        for id in ids {
            self.close(id, commands);
            self.advance(id, commands);
        }
        self.free_leaving(commands);
    }

    fn close(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        if let (Phase::Open { .. }, Some(template)) = (pipeline.phase, &pipeline.template) {
            pipeline.phase = Phase::Closing;
            let message = ToWorker::Close {
                pipeline: id,
                version: template.version,
            };
            commands.push(Command::Send(template.cutter, message));
        }
    }

    fn heard(&mut self, message: ToDriver, commands: &mut Vec<Command>) {
        let (id, version) = match &message {
            ToDriver::EpochDone {
                pipeline, version, ..
            }
            | ToDriver::NeedEpochs {
                pipeline, version, ..
            }
            | ToDriver::Closed {
                pipeline, version, ..
            } => (*pipeline, *version),
        };
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        if pipeline
            .template
            .as_ref()
            .is_none_or(|template| template.version != version)
        {
            return;
        }
        match message {
            ToDriver::EpochDone {
                epoch, worker, costs, ..
            } => {
                if epoch > pipeline.committed && pipeline.done.entry(epoch).or_default().insert(worker) {
                    pipeline.charge(epoch, costs);
                }
            }
            ToDriver::NeedEpochs { last, .. } => {
                if pipeline.phase == (Phase::Open { launched: last }) {
                    pipeline.launch(commands);
                }
            }
            ToDriver::Closed { last, .. } => {
                if pipeline.phase == Phase::Closing {
                    pipeline.phase = Phase::Closed { last };
                }
            }
        }
        self.advance(id, commands);
    }

    /// Commits what is done, in order; tells a ticket that the pipeline is idle; opens it again if it was closed for its
    /// placement only.
    fn advance(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        while let Some(first) = pipeline.done.first_entry() {
            if *first.key() != pipeline.committed + 1 || first.get().len() < pipeline.participants {
                break;
            }
            first.remove();
            pipeline.committed += 1;
            commands.push(Command::Commit {
                pipeline: id,
                epoch: pipeline.committed,
            });
        }
        pipeline.end_groups();
        if let Some(ticket) = pipeline.tickets.front().copied() {
            self.try_hold(ticket, commands);
        } else if pipeline.is_idle() {
            self.open(id, commands);
            self.free_leaving(commands);
        }
    }

    fn free_leaving(&mut self, commands: &mut Vec<Command>) {
        let is_used = |worker: &WorkerId| {
            self.pipelines.values().any(|pipeline| {
                pipeline
                    .template
                    .as_ref()
                    .is_some_and(|template| template.participants().contains(worker))
            })
        };
        let free: Vec<WorkerId> = self
            .leaving
            .iter()
            .copied()
            .filter(|worker| !is_used(worker))
            .collect();
        for worker in free {
            self.leaving.remove(&worker);
            commands.push(Command::WorkerFree { worker });
        }
    }

    /// Forgets a back-fill and whatever waited for it.
    fn remove_job(&mut self, view: RelationId, commands: &mut Vec<Command>) -> Option<Pipeline> {
        let id = self.jobs.remove(&view)?;
        self.jobs.retain(|_, pipeline| *pipeline != id);
        self.tickets.retain(|_, pipelines| !pipelines.contains(&id));
        let pipeline = self.pipelines.remove(&id)?;
        forget(id, &pipeline, commands);
        Some(pipeline)
    }

    /// Queues the ticket at every pipeline of the relations.
    fn quiesce(
        &mut self,
        ticket: Ticket,
        relations: &[RelationId],
        or_new: PipelineId,
        commands: &mut Vec<Command>,
    ) {
        let pipeline_of = |relation| {
            self.pipeline_of
                .get(relation)
                .or_else(|| self.jobs.get(relation))
                .copied()
        };
        let mut ids: BTreeSet<PipelineId> = relations.iter().filter_map(pipeline_of).collect();
        if ids.is_empty() {
            // A view over nothing (VALUES) is a pipeline of its own.
            self.pipelines.insert(or_new, Pipeline::new(self.group_size));
            ids.insert(or_new);
        }
        for id in &ids {
            if let Some(pipeline) = self.pipelines.get_mut(id) {
                pipeline.tickets.push_back(ticket);
            }
            self.close(*id, commands);
        }
        self.tickets.insert(ticket, ids);
        self.try_hold(ticket, commands);
    }

    /// If it is the ticket's turn at all of its pipelines and they are idle: joins them and says so.
    fn try_hold(&mut self, ticket: Ticket, commands: &mut Vec<Command>) {
        let Some(ids) = self.tickets.get(&ticket) else {
            return;
        };
        let is_ready = |id: &PipelineId| {
            let pipeline = &self.pipelines[id];
            pipeline.tickets.front() == Some(&ticket) && pipeline.is_idle() && !pipeline.is_held
        };
        if !ids.iter().all(is_ready) {
            return;
        }
        let mut ids = ids.clone().into_iter();
        let Some(into) = ids.next() else { return };
        for from in ids {
            self.join(into, from, commands);
        }
        if let Some(pipeline) = self.pipelines.get_mut(&into) {
            pipeline.is_held = true;
            commands.push(Command::Quiesced {
                ticket,
                pipeline: into,
                epoch: pipeline.committed,
            });
        }
    }

    /// Makes two idle pipelines one.
    fn join(&mut self, into: PipelineId, from: PipelineId, commands: &mut Vec<Command>) {
        let Some(other) = self.pipelines.remove(&from) else {
            return;
        };
        forget(from, &other, commands);
        let Some(pipeline) = self.pipelines.get_mut(&into) else {
            return;
        };
        for relation in other
            .sources
            .iter()
            .chain(other.views.iter().map(|view| &view.id))
        {
            self.pipeline_of.insert(*relation, into);
        }
        pipeline.sources.extend(other.sources);
        // Views of different pipelines do not read each other: any order between them will do.
        pipeline.views.extend(other.views);
        pipeline.skip_to(other.committed);
        let waiting: BTreeSet<Ticket> = pipeline.tickets.iter().copied().chain(other.tickets).collect();
        pipeline.tickets = waiting.into_iter().collect();
        for pipelines in self.tickets.values_mut() {
            if pipelines.remove(&from) {
                pipelines.insert(into);
            }
        }
        let epoch = pipeline.committed;
        commands.push(Command::Joined { into, from });
        commands.push(Command::Commit {
            pipeline: into,
            epoch,
        });
    }

    fn resume(
        &mut self,
        ticket: Ticket,
        views: Vec<Arc<ViewShape>>,
        dropped: &[RelationId],
        commands: &mut Vec<Command>,
    ) {
        let Some(id) = self.tickets.remove(&ticket).and_then(|ids| ids.first().copied()) else {
            return;
        };
        let mut epoch_min = 0;
        let attached: Vec<RelationId> = views.iter().map(|view| view.id).collect();
        for view in &attached {
            if let Some(job) = self.remove_job(*view, commands) {
                epoch_min = job.committed.max(epoch_min);
            }
            self.pipeline_of.insert(*view, id);
        }
        for relation in dropped {
            self.pipeline_of.remove(relation);
        }
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        pipeline.tickets.pop_front();
        pipeline.is_held = false;
        pipeline.views.extend(views);
        pipeline.views.retain(|view| !dropped.contains(&view.id));
        pipeline.sources.retain(|source| !dropped.contains(source));
        // A back-fill counted its own epochs; the view's versions go on from there.
        pipeline.skip_to(epoch_min);
        commands.push(Command::Commit {
            pipeline: id,
            epoch: pipeline.committed,
        });
        commands.extend(
            attached
                .into_iter()
                .map(|view| Command::Attached { view, pipeline: id }),
        );
        if pipeline.sources.is_empty() && pipeline.views.is_empty() && pipeline.tickets.is_empty() {
            if let Some(pipeline) = self.pipelines.remove(&id) {
                forget(id, &pipeline, commands);
            }
            return;
        }
        self.advance(id, commands);
    }
}

/// Tells the workers that the pipeline is gone.
fn forget(id: PipelineId, pipeline: &Pipeline, commands: &mut Vec<Command>) {
    if let Some(template) = &pipeline.template {
        for worker in template.participants() {
            let message = ToWorker::Forget {
                pipeline: id,
                version: template.version,
            };
            commands.push(Command::Send(worker, message));
        }
    }
}

impl Pipeline {
    /// Launches the next group: one message a worker.
    fn launch(&mut self, commands: &mut Vec<Command>) {
        let (Phase::Open { launched }, Some(template)) = (self.phase, &self.template) else {
            return;
        };
        let (first, last) = (launched + 1, launched + self.tuner.size());
        for worker in template.participants() {
            let message = ToWorker::Launch {
                pipeline: template.pipeline,
                version: template.version,
                first,
                last,
            };
            commands.push(Command::Send(worker, message));
        }
        self.phase = Phase::Open { launched: last };
        self.groups.insert(last, GroupRecord::new(first, last));
    }

    /// An idle pipeline goes on from a later epoch.
    fn skip_to(&mut self, epoch: u64) {
        self.committed = self.committed.max(epoch);
        self.phase = Phase::Closed { last: self.committed };
        self.done.clear();
        self.groups.clear();
    }

    /// Adds what an epoch cost a worker to its group.
    fn charge(&mut self, epoch: u64, costs: EpochCosts) {
        if let Some((_, group)) = self.groups.range_mut(epoch..).next() {
            group.rows += costs.rows;
            group.busy_ns += costs.busy_ns;
            group.tasks += u64::from(costs.tasks);
            group.tasks_skipped += u64::from(costs.tasks_skipped);
            group.costs.waited_ns += costs.waited_ns;
            // The cutter's view of the epoch is the longest but for messages under way.
            group.costs.execution_ns += costs.elapsed_ns / self.participants.max(1) as u64;
        }
    }

    /// Learns from the groups whose epochs are all committed, and from one that was closed early.
    fn end_groups(&mut self) {
        let end = match self.phase {
            Phase::Closed { last } if last == self.committed => u64::MAX,
            _ => self.committed,
        };
        while let Some(first) = self.groups.first_entry() {
            if *first.key() > end {
                return;
            }
            let last = *first.key();
            let mut group = first.remove();
            group.last_epoch = group.last_epoch.min(self.committed);
            if group.last_epoch < group.first_epoch {
                continue;
            }
            group.costs.scheduling_ns = std::mem::take(&mut self.spent_ns);
            // A group of empty epochs, or one that a change of definitions ended, says nothing of the load.
            if group.tasks > 0 && group.last_epoch == last {
                self.tuner.learn(group.costs);
            }
            group.share = self.tuner.share();
            if self.remembered.len() == GROUPS_REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back(group);
        }
    }
}

impl GroupRecord {
    fn new(first_epoch: u64, last_epoch: u64) -> Self {
        GroupRecord {
            first_epoch,
            last_epoch,
            rows: 0,
            costs: GroupCosts::default(),
            tasks: 0,
            tasks_skipped: 0,
            busy_ns: 0,
            share: 0.0,
        }
    }
}
