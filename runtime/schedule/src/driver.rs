//! The driver: decides which epochs may run, where, and which are visible. It never touches data.
//!
//! A pure state machine: [`Driver::on`] takes an event at a time and returns commands. It reads no clock, starts nothing and
//! asks nobody, so that the same code runs live, in a simulation and under a fuzzer.
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

mod definitions;
mod event;
mod faucets;
mod membership;
mod pipeline;
mod placement;
mod recovery;
mod spread;
mod straggler;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_planner::RelationId;

use crate::cpu::policy::SchedulerPolicy;
use crate::group_size::GroupSize;
use crate::id::{PipelineId, Ticket, WorkerId};
use crate::message::{ToDriver, ToWorker};
use crate::template::{Replay, Template};
pub use event::{Command, Event};
pub use faucets::{FaucetCause, FaucetRecord};
use membership::Liveness;
pub use membership::{HEARTBEAT_NS, SILENT_BEATS_MAX, SUSPECT_BEATS_MAX};
pub use pipeline::{EpochRecord, GroupRecord, PipelineRecord};
use pipeline::{Phase, Pipeline};
pub use spread::Spread;
use straggler::Late;

/// When the state of views is put into the checkpoint store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointPolicy {
    /// So often, in nanoseconds, while there is more than one worker. One alone has nobody to take over from it.
    Shared { every_ns: u64 },
    /// So often, however many workers there are.
    Always { every_ns: u64 },
    /// Not at all: what is lost is filled again.
    Never,
}

impl CheckpointPolicy {
    /// Whether there are any with so many workers.
    fn is_on(self, workers: usize) -> bool {
        match self {
            CheckpointPolicy::Shared { .. } => workers > 1,
            CheckpointPolicy::Always { .. } => true,
            CheckpointPolicy::Never => false,
        }
    }

    fn every_ns(self) -> u64 {
        match self {
            CheckpointPolicy::Shared { every_ns } | CheckpointPolicy::Always { every_ns } => every_ns,
            CheckpointPolicy::Never => u64::MAX,
        }
    }
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        CheckpointPolicy::Shared {
            every_ns: 1_000_000_000,
        }
    }
}

/// How far a pipeline is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineHead {
    pub pipeline: PipelineId,
    pub committed: u64,
    /// Its sources and views, in order.
    pub relations: Vec<RelationId>,
}

/// See the module.
#[derive(Debug)]
pub struct Driver {
    pipelines: BTreeMap<PipelineId, Pipeline>,
    pipeline_of: BTreeMap<RelationId, PipelineId>,
    /// Back-fills by view.
    jobs: BTreeMap<RelationId, PipelineId>,
    /// Which pipelines a change of definitions holds back, or waits to.
    tickets: BTreeMap<Ticket, BTreeSet<PipelineId>>,
    workers: BTreeSet<WorkerId>,
    leaving: BTreeSet<WorkerId>,
    /// Workers of those that may take cuts.
    cutters: BTreeSet<WorkerId>,
    /// Of all that take part or leave.
    liveness: BTreeMap<WorkerId, Liveness>,
    heartbeat_ns: u64,
    ticked_at: u64,
    /// Where each partition is: the same for all pipelines, so that equal keys of different views are on one worker.
    placement: Vec<WorkerId>,
    /// The workers over which these are placed.
    placed_over: BTreeSet<WorkerId>,
    /// Bytes of state of each partition where it is, as last heard.
    kept: Vec<u64>,
    policy: SchedulerPolicy,
    version: u64,
    /// For each view, the version of the last template that has it.
    prepared: BTreeMap<RelationId, u64>,
    group_size: GroupSize,
    checkpoints: CheckpointPolicy,
    spread: Spread,
    /// Lost workers whose part could not be given to another yet, because there is none.
    lost: BTreeSet<WorkerId>,
    /// Tickets whose pipeline lost its views while it was held.
    disturbed: BTreeSet<Ticket>,
    /// The time of the event that is worked off.
    now: u64,
}

impl Default for Driver {
    fn default() -> Self {
        Driver {
            pipelines: BTreeMap::new(),
            pipeline_of: BTreeMap::new(),
            jobs: BTreeMap::new(),
            tickets: BTreeMap::new(),
            workers: BTreeSet::new(),
            leaving: BTreeSet::new(),
            cutters: BTreeSet::new(),
            liveness: BTreeMap::new(),
            heartbeat_ns: HEARTBEAT_NS,
            ticked_at: 0,
            placement: vec![],
            placed_over: BTreeSet::new(),
            kept: vec![],
            policy: SchedulerPolicy::default(),
            version: 0,
            prepared: BTreeMap::new(),
            group_size: GroupSize::default(),
            checkpoints: CheckpointPolicy::default(),
            spread: Spread::All,
            lost: BTreeSet::new(),
            disturbed: BTreeSet::new(),
            now: 0,
        }
    }
}

impl Driver {
    /// Takes an event at a time (nanoseconds, of any monotone clock), decides. Commands are to be carried out in order.
    pub fn on(&mut self, event: Event, now: u64) -> Vec<Command> {
        self.now = now;
        let mut commands = vec![];
        match event {
            Event::WorkerJoined { worker, has_sources } => {
                if self.workers.insert(worker) {
                    if has_sources {
                        self.cutters.insert(worker);
                    }
                    self.liveness.insert(worker, Liveness::default());
                    self.replace_lost(&mut commands);
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
            Event::WorkerLost { worker } => self.lose(worker, &mut commands),
            Event::Worker(message) => self.heard(message, &mut commands),
            Event::Undelivered { to, message } => self.keep_undelivered(to, message, &mut commands),
            Event::Tick => self.tick(&mut commands),
            Event::Policy(policy) => self.policy = policy,
            Event::Heartbeats { every_ns } => self.heartbeat_ns = every_ns,
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
            Event::Checkpoints(policy) => self.checkpoints = policy,
            Event::CheckpointDue { pipeline } => {
                if let Some(state) = self.pipelines.get(&pipeline)
                    && let (Phase::Open, Some(template)) = (state.phase, &state.template)
                {
                    let version = template.version;
                    let message = ToWorker::Checkpoint { pipeline, version };
                    commands.push(Command::Send(template.cutter, message));
                }
            }
            Event::Spread(spread) => {
                self.spread = spread;
                let ids: Vec<PipelineId> = self.pipelines.keys().copied().collect();
                for id in ids {
                    self.respread(id, &mut commands);
                    self.advance(id, &mut commands);
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
            .map(|(id, pipeline)| pipeline.record(*id))
            .collect()
    }

    /// The pipelines with their last committed epochs, without back-fills.
    pub fn heads(&self) -> Vec<PipelineHead> {
        let pipelines = self.pipelines.iter().filter(|(_, pipeline)| !pipeline.is_job);
        let heads = pipelines.map(|(id, pipeline)| {
            let views = pipeline.views.iter().map(|view| view.id);
            let mut relations: Vec<RelationId> = pipeline.sources.iter().copied().chain(views).collect();
            relations.sort_unstable();
            PipelineHead {
                pipeline: *id,
                committed: pipeline.committed,
                relations,
            }
        });
        heads.collect()
    }

    /// The sources of a pipeline.
    pub fn sources(&self, pipeline: PipelineId) -> Vec<RelationId> {
        let state = self.pipelines.get(&pipeline);
        state.map_or(vec![], |state| state.sources.iter().copied().collect())
    }

    /// The group of a pipeline that ended last.
    pub fn last_group(&self, pipeline: PipelineId) -> Option<&GroupRecord> {
        self.pipelines.get(&pipeline)?.last_group()
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
        let mut placement = self.placement_of(id);
        let is_on = self.checkpoints.is_on(self.workers.len());
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        if !pipeline.is_idle() {
            return;
        }
        // A worker joined when it was being closed: nothing moves before it is in a checkpoint.
        let has_to_stay = is_on && !pipeline.is_checkpointed();
        let is_there = |worker| self.workers.contains(worker) || self.leaving.contains(worker);
        let stays = (pipeline.template.as_ref())
            .filter(|old| has_to_stay && old.would_move(&placement) && old.placement.iter().all(is_there))
            .map(|old| old.placement.clone());
        let is_closed_again = stays.is_some();
        placement = stays.unwrap_or(placement);
        let is_checkpointed = pipeline.is_checkpointed() && !pipeline.views.is_empty();
        let replay = is_checkpointed.then(|| Replay {
            to: pipeline.committed,
            checkpoints: vec![],
        });
        pipeline.begin_from(is_checkpointed);
        pipeline.stragglers.forget();
        self.version += 1;
        let cutter = cutter_of(id, &placement, &self.workers, &self.cutters);
        let is_retained = is_on && !pipeline.is_job && !pipeline.views.is_empty();
        let views = pipeline.views.iter().map(|view| view.id);
        let before = views
            .map(|view| self.prepared.insert(view, self.version).unwrap_or(0))
            .collect();
        let template = Arc::new(Template {
            pipeline: id,
            version: self.version,
            lineage: self.version,
            after: pipeline.committed,
            replay,
            is_job: pipeline.is_job,
            is_retained,
            views: pipeline.faucets.place(&pipeline.views, is_retained),
            before,
            placement,
            cutter,
        });
        let participants = template.participants();
        pipeline.participants = participants.len();
        let hosts = std::mem::replace(&mut pipeline.hosts, participants.iter().copied().collect());
        for worker in hosts.difference(&pipeline.hosts) {
            let message = ToWorker::Discard {
                pipeline: id,
                version: template.version,
                views: pipeline.views.iter().map(|view| view.id).collect(),
            };
            commands.push(Command::Send(*worker, message));
        }
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
        pipeline.phase = Phase::Open;
        pipeline.launched = pipeline.committed;
        pipeline.launch(self.checkpoints, self.now, commands);
        if is_closed_again {
            self.close(id, commands);
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

    /// Has no further epoch started. Where state is put into the checkpoint store it is once more, so that it can be restored
    /// wherever the next template puts it, and a loss costs nothing from its first moment on.
    pub(super) fn close(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let is_on = self.checkpoints.is_on(self.workers.len() + self.leaving.len());
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        if pipeline.phase == Phase::Open && pipeline.template.is_some() {
            pipeline.phase = Phase::Closing;
            pipeline.is_checkpoint_last = is_on && !pipeline.views.is_empty();
            commands.extend(pipeline.close());
        }
    }

    fn heard(&mut self, message: ToDriver, commands: &mut Vec<Command>) {
        let message = match message {
            ToDriver::Unreachable {
                pipeline,
                version,
                task,
                lost,
                by,
            } => {
                let retry = ToWorker::Retry {
                    pipeline,
                    version,
                    task,
                };
                return self.accuse(lost, by, retry);
            }
            ToDriver::Undelivered { to, message } => return self.relay(to, message, commands),
            ToDriver::Heartbeat { worker, load } => return self.heartbeat(worker, load, commands),
            ToDriver::State { worker, bytes } => return self.keeps(worker, &bytes),
            message => message,
        };
        let Some((id, version)) = message.about() else {
            return;
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
                epoch,
                worker,
                costs,
                stages,
                is_checkpoint,
                ..
            } => {
                pipeline.epoch_done(epoch, worker, costs, &stages, is_checkpoint);
                self.advance(id, commands);
                self.revise_faucets(id, commands);
                return self.respread(id, commands);
            }
            ToDriver::NeedEpochs { last, .. } => {
                if pipeline.launched == last {
                    match pipeline.phase {
                        Phase::Open => pipeline.launch(self.checkpoints, self.now, commands),
                        Phase::Closing => pipeline.launch_last(self.now, commands),
                        Phase::Closed { .. } => {}
                    }
                }
            }
            ToDriver::Closed { last, .. } => {
                if pipeline.phase == Phase::Closing {
                    pipeline.phase = Phase::Closed { last };
                    pipeline.launched = last;
                    pipeline.planned.retain(|epoch| *epoch <= last);
                }
            }
            ToDriver::Restored { worker, .. } => {
                pipeline.restoring.remove(&worker);
            }
            ToDriver::Straggling {
                epoch,
                view,
                stage,
                worker,
                ..
            } => {
                let late = Late {
                    epoch,
                    view,
                    stage,
                    worker,
                };
                self.help(id, late, commands);
            }
            ToDriver::Unreachable { .. }
            | ToDriver::Undelivered { .. }
            | ToDriver::Heartbeat { .. }
            | ToDriver::State { .. } => {}
        }
        self.advance(id, commands);
    }

    /// Commits what is done, in order; tells a ticket that the pipeline is idle; opens it again if it was closed for its
    /// placement only.
    fn advance(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        pipeline.settle(id, self.now, commands);
        if let Some(ticket) = pipeline.tickets.front().copied() {
            self.try_hold(ticket, commands);
        } else if pipeline.is_idle() {
            self.open(id, commands);
            self.free_leaving(commands);
        }
    }

    fn free_leaving(&mut self, commands: &mut Vec<Command>) {
        let is_used = |worker: &WorkerId| {
            self.pipelines
                .values()
                .any(|pipeline| pipeline.hosts.contains(worker))
        };
        let free: Vec<WorkerId> = self
            .leaving
            .iter()
            .copied()
            .filter(|worker| !is_used(worker))
            .collect();
        for worker in free {
            self.leaving.remove(&worker);
            self.liveness.remove(&worker);
            commands.push(Command::WorkerFree { worker });
        }
    }
}

/// The worker that takes a pipeline's cuts: one that has part of it, if any of those may.
fn cutter_of(
    id: PipelineId,
    placement: &[WorkerId],
    workers: &BTreeSet<WorkerId>,
    cutters: &BTreeSet<WorkerId>,
) -> WorkerId {
    let first = id.0 as usize % placement.len();
    let (before, after) = placement.split_at(first);
    let may = |worker: &&WorkerId| cutters.contains(*worker);
    let mut placed = after.iter().chain(before).filter(may);
    let other = || workers.iter().find(may);
    *placed.next().or_else(other).unwrap_or(&placement[first])
}
