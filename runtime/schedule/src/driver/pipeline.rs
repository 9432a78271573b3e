//! A pipeline as the driver keeps it: its epochs, groups and checkpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_planner::RelationId;

use super::faucets::{FaucetRecord, Faucets};
use super::spread::Spreader;
use super::straggler::Stragglers;
use super::{CheckpointPolicy, Command};
use crate::group_size::{GroupCosts, GroupSize, GroupTuner};
use crate::id::{PipelineId, Ticket, WorkerId};
use crate::message::{EpochCosts, StageCosts, ToWorker};
use crate::template::{Template, ViewShape};

/// Groups of a pipeline that are remembered for inspection.
const GROUPS_REMEMBERED: usize = 64;
/// Epochs that are remembered for it: enough for a median and a 99th percentile.
const EPOCHS_REMEMBERED: usize = 1024;
/// Input rows after which a checkpoint is due before its time: until then what epochs left is kept in memory.
pub(super) const RETAINED_ROWS_MAX: u64 = 4 << 20;

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
    /// Tasks that were run on a second worker too, and those of them that ended there first.
    pub tasks_copied: u64,
    pub copies_won: u64,
    /// Time in which its tasks ran, all workers together, in nanoseconds.
    pub busy_ns: u64,
    /// Since the group before it ended, what was neither coordination nor execution: there was no input. Epochs that ran side
    /// by side make it too small.
    pub idle_ns: u64,
    /// What its tasks did, by view and stage.
    pub stages: Vec<StageCosts>,
    /// The smoothed share of coordination after it.
    pub share: f64,
    /// It was of a size that nobody chose: for the first checkpoint.
    pub(super) is_forced: bool,
}

/// An epoch that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochRecord {
    pub epoch: u64,
    /// Input rows.
    pub rows: u64,
    /// Time in which its tasks ran, all workers together, in nanoseconds.
    pub busy_ns: u64,
    /// Nanoseconds for which the oldest of its input waited to be cut, for whatever reason, then from the cut to the end of its last task.
    pub waited_ns: u64,
    pub elapsed_ns: u64,
}

/// A pipeline as operators see it.
#[derive(Debug, Clone)]
pub struct PipelineRecord {
    pub id: PipelineId,
    pub sources: Vec<RelationId>,
    pub views: Vec<RelationId>,
    /// Whether its epochs are batch work.
    pub gives_way: bool,
    pub committed: u64,
    /// The epoch of its last complete checkpoint, if it has one.
    pub checkpoint: Option<u64>,
    /// A lost worker's part of it is being restored.
    pub is_recovering: bool,
    /// Nothing of it would have to be filled again if a worker were lost now.
    pub can_lose_worker: bool,
    /// Epochs of the next group.
    pub group_size: u64,
    pub cutter: Option<WorkerId>,
    /// Workers that take part in its epochs.
    pub workers: usize,
    /// The newest last.
    pub groups: Vec<GroupRecord>,
    /// Of those with input, the newest last.
    pub epochs: Vec<EpochRecord>,
    /// Stages that may have a faucet, by view.
    pub faucets: Vec<FaucetRecord>,
}

impl EpochRecord {
    /// From the arrival of the oldest of its input to its end, in nanoseconds.
    pub fn freshness_ns(&self) -> u64 {
        self.waited_ns + self.elapsed_ns
    }
}

impl PipelineRecord {
    /// The share of the epochs that are remembered whose input was not older at their end, from 0 to 1; none if there are none.
    pub fn share_within(&self, freshness_ns: u64) -> Option<f64> {
        let within = self
            .epochs
            .iter()
            .filter(|epoch| epoch.freshness_ns() <= freshness_ns);
        (!self.epochs.is_empty()).then(|| within.count() as f64 / self.epochs.len() as f64)
    }
}

#[derive(Debug)]
pub(super) struct Pipeline {
    pub sources: BTreeSet<RelationId>,
    /// In the order in which they were made: a view comes after what it reads.
    pub views: Vec<Arc<ViewShape>>,
    pub is_job: bool,
    /// What readers see.
    pub committed: u64,
    /// Everything up to here is done by all participants of this template: less than `committed` after a loss.
    pub settled: u64,
    /// An idle pipeline that is opened goes on from here at least.
    pub epoch_floor: u64,
    pub phase: Phase,
    /// The last epoch before it is closed is to be a checkpoint.
    pub is_checkpoint_last: bool,
    /// No epoch after this one may have been started.
    pub launched: u64,
    pub template: Option<Arc<Template>>,
    /// Who of the participants has reported which epoch.
    pub done: BTreeMap<u64, BTreeSet<WorkerId>>,
    pub participants: usize,
    /// Workers that may have something of its state.
    pub hosts: BTreeSet<WorkerId>,
    /// A back-fill that lost a part.
    pub is_lost: bool,
    pub tuner: GroupTuner,
    /// Groups that were launched and have not ended, by their last epoch.
    pub groups: BTreeMap<u64, GroupRecord>,
    pub remembered: VecDeque<GroupRecord>,
    /// Epochs that are done, for inspection.
    epochs: VecDeque<EpochRecord>,
    /// The driver's time that no group has been charged with yet.
    pub spent_ns: u64,
    /// When the last group ended, or the first one was launched, in nanoseconds.
    group_ended_at: Option<u64>,
    /// Changes of definitions that wait or are under way, in order. While there is one, no epoch is launched.
    pub tickets: VecDeque<Ticket>,
    /// The first ticket has been told that the pipeline is idle.
    pub is_held: bool,
    /// The last epoch after which the store has the state of all tasks; what was left since then is retained.
    pub checkpoint: Option<u64>,
    /// Launched epochs that are to be checkpoints.
    pub planned: BTreeSet<u64>,
    /// Epochs that are: reported as such by some.
    imaged: BTreeSet<u64>,
    /// When the last planned one was launched, in nanoseconds, and input rows since the last complete one.
    planned_at: u64,
    rows_retained: u64,
    /// Participants that have not restored yet what they took over.
    pub restoring: BTreeSet<WorkerId>,
    /// Since a loss, not everything that readers see is there again.
    pub is_recovering: bool,
    pub stragglers: Stragglers,
    pub spreader: Spreader,
    pub faucets: Faucets,
}

/// Whether epochs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The cutter was asked to start no further one.
    Closing,
    /// None will be started after this one.
    Closed {
        last: u64,
    },
}

impl Pipeline {
    pub fn new(group_size: GroupSize) -> Self {
        Pipeline {
            sources: BTreeSet::new(),
            views: vec![],
            is_job: false,
            committed: 0,
            settled: 0,
            epoch_floor: 0,
            phase: Phase::Closed { last: 0 },
            is_checkpoint_last: false,
            launched: 0,
            template: None,
            done: BTreeMap::new(),
            participants: 0,
            hosts: BTreeSet::new(),
            is_lost: false,
            tuner: GroupTuner::new(group_size),
            groups: BTreeMap::new(),
            remembered: VecDeque::new(),
            epochs: VecDeque::new(),
            spent_ns: 0,
            group_ended_at: None,
            tickets: VecDeque::new(),
            is_held: false,
            checkpoint: None,
            planned: BTreeSet::new(),
            imaged: BTreeSet::new(),
            planned_at: 0,
            rows_retained: 0,
            restoring: BTreeSet::new(),
            is_recovering: false,
            stragglers: Stragglers::default(),
            spreader: Spreader::default(),
            faucets: Faucets::default(),
        }
    }

    pub fn record(&self, id: PipelineId) -> PipelineRecord {
        PipelineRecord {
            id,
            sources: self.sources.iter().copied().collect(),
            views: self.views.iter().map(|view| view.id).collect(),
            gives_way: self
                .template
                .as_ref()
                .is_some_and(|template| template.gives_way()),
            committed: self.committed,
            checkpoint: self.checkpoint,
            is_recovering: self.is_recovering,
            can_lose_worker: self.views.is_empty()
                || self.is_job
                || self.is_recoverable() && self.phase == Phase::Open,
            group_size: self.tuner.size(),
            cutter: self.template.as_ref().map(|template| template.cutter),
            workers: self.participants,
            groups: self.remembered.iter().cloned().collect(),
            epochs: self.epochs.iter().copied().collect(),
            faucets: self.faucets.records(&self.views, self.is_retained()),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Closed { last: self.settled } && !self.is_recovering
    }

    /// Whether what tasks leave is kept for lost workers.
    fn is_retained(&self) -> bool {
        (self.template.as_ref()).is_some_and(|template| template.is_retained)
    }

    /// Whether a lost worker's part can be restored and run again.
    pub fn is_recoverable(&self) -> bool {
        self.checkpoint.is_some()
            && self
                .template
                .as_ref()
                .is_some_and(|template| template.is_retained && !template.has_faucets())
    }

    /// Launches the next group: one message a worker.
    pub fn launch(&mut self, policy: CheckpointPolicy, now: u64, commands: &mut Vec<Command>) {
        let Some(template) = &self.template else { return };
        // What a template starts with has to be in a checkpoint before anything can be restored: at once.
        let is_forced = template.is_retained && self.checkpoint.is_none() && self.planned.is_empty();
        let size = if is_forced { 1 } else { self.tuner.size() };
        let is_due = template.is_retained
            && self.planned.is_empty()
            && (now.saturating_sub(self.planned_at) >= policy.every_ns()
                || self.rows_retained >= RETAINED_ROWS_MAX);
        self.launch_group(size, is_forced || is_due, is_forced, now, commands);
    }

    /// Launches the epoch that a pipeline that is being closed needs for its checkpoint.
    pub fn launch_last(&mut self, now: u64, commands: &mut Vec<Command>) {
        self.launch_group(1, false, false, now, commands);
    }

    fn launch_group(
        &mut self,
        size: u64,
        is_checkpoint: bool,
        is_forced: bool,
        now: u64,
        commands: &mut Vec<Command>,
    ) {
        let Some(template) = &self.template else { return };
        let (first, last) = (self.launched + 1, self.launched + size);
        let mut checkpoints = vec![];
        if is_checkpoint {
            self.planned.insert(last);
            self.planned_at = now;
            checkpoints.push(last);
        }
        for worker in template.participants() {
            let message = ToWorker::Launch {
                pipeline: template.pipeline,
                version: template.version,
                first,
                last,
                checkpoints: checkpoints.clone(),
                is_forced,
            };
            commands.push(Command::Send(worker, message));
        }
        self.launched = last;
        self.group_ended_at.get_or_insert(now);
        self.groups.insert(last, GroupRecord::new(first, last, is_forced));
    }

    /// An idle pipeline goes on from a later epoch.
    pub fn skip_to(&mut self, epoch: u64) {
        self.committed = self.committed.max(epoch);
        self.settled = self.committed;
        self.launched = self.committed;
        self.phase = Phase::Closed { last: self.committed };
        self.done.clear();
        self.groups.clear();
    }

    /// If it is idle, goes on to the epoch from which what was added counts.
    pub fn catch_up(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        if self.is_idle() && self.epoch_floor > self.committed {
            self.skip_to(self.epoch_floor);
            commands.push(Command::Commit {
                pipeline: id,
                epoch: self.committed,
            });
        }
    }

    /// What was left before is of no use to what comes: a new lineage.
    pub fn forget_checkpoint(&mut self) {
        self.begin_from(false);
    }

    /// A new lineage, which begins with all state in the checkpoint store or not.
    pub fn begin_from(&mut self, is_checkpointed: bool) {
        self.checkpoint = is_checkpointed.then_some(self.committed);
        self.planned.clear();
        self.imaged.clear();
        self.rows_retained = 0;
    }

    /// Whether the checkpoint store has all state as of the last epoch.
    pub fn is_checkpointed(&self) -> bool {
        self.views.is_empty() || self.checkpoint == Some(self.committed)
    }

    /// The message by which it is closed.
    pub fn close(&self) -> Option<Command> {
        let template = self.template.as_ref()?;
        let message = ToWorker::Close {
            pipeline: template.pipeline,
            version: template.version,
            is_checkpoint: self.is_checkpoint_last,
        };
        Some(Command::Send(template.cutter, message))
    }

    /// Moves on over epochs that all participants have done; commits those that were not committed before.
    pub fn settle(&mut self, id: PipelineId, now: u64, commands: &mut Vec<Command>) {
        while let Some(first) = self.done.first_entry() {
            if *first.key() != self.settled + 1 || first.get().len() < self.participants {
                break;
            }
            first.remove();
            self.settled += 1;
            if self.settled > self.committed {
                self.committed = self.settled;
                commands.push(Command::Commit {
                    pipeline: id,
                    epoch: self.committed,
                });
            }
            self.planned.remove(&self.settled);
            if self.imaged.remove(&self.settled) && self.checkpoint.is_none_or(|last| last < self.settled) {
                self.checkpointed(id, commands);
            }
        }
        if self.is_recovering && self.settled >= self.committed && self.restoring.is_empty() {
            self.is_recovering = false;
            self.catch_up(id, commands);
            commands.push(Command::Recovered { pipeline: id });
        }
        self.stragglers.settle(self.settled);
        self.end_groups(now);
    }

    /// All state after the last epoch that settled is in the store.
    fn checkpointed(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(template) = &self.template else { return };
        self.checkpoint = Some(self.settled);
        self.rows_retained = 0;
        commands.push(Command::Checkpointed {
            pipeline: id,
            epoch: self.settled,
            views: self.views.iter().map(|view| view.id).collect(),
            is_kept: template.is_retained || self.phase != Phase::Open,
        });
        for worker in template.participants() {
            let message = ToWorker::Release {
                pipeline: id,
                version: template.version,
                to: self.settled,
            };
            commands.push(Command::Send(worker, message));
        }
    }

    /// A worker has done an epoch.
    pub fn epoch_done(
        &mut self,
        epoch: u64,
        worker: WorkerId,
        costs: EpochCosts,
        stages: &[StageCosts],
        is_checkpoint: bool,
    ) {
        if is_checkpoint && epoch > self.settled {
            self.imaged.insert(epoch);
        }
        if epoch > self.settled
            && self.done.entry(epoch).or_default().insert(worker)
            && epoch > self.committed
        {
            self.rows_retained += costs.rows;
            self.stragglers.learn(&costs);
            self.charge(epoch, costs, stages);
            self.note(epoch, costs);
        }
    }

    /// Adds what an epoch cost a worker to its group.
    fn charge(&mut self, epoch: u64, costs: EpochCosts, stages: &[StageCosts]) {
        if let Some((_, group)) = self.groups.range_mut(epoch..).next() {
            group.rows += costs.rows;
            group.busy_ns += costs.busy_ns;
            group.tasks += u64::from(costs.tasks);
            group.tasks_skipped += u64::from(costs.tasks_skipped);
            group.tasks_copied += u64::from(costs.tasks_copied);
            group.copies_won += u64::from(costs.copies_won);
            group.costs.waited_ns += costs.waited_ns;
            for costs in stages {
                let mut known = group.stages.iter_mut();
                match known.find(|known| (known.view, known.stage) == (costs.view, costs.stage)) {
                    Some(known) => known.merge(costs),
                    None => group.stages.push(costs.clone()),
                }
            }
            // The cutter's view of the epoch is the longest but for messages under way.
            group.costs.execution_ns += costs.elapsed_ns / self.participants.max(1) as u64;
        }
    }

    /// Remembers what an epoch took on a worker: of several workers the longest time, for they work side by side.
    fn note(&mut self, epoch: u64, costs: EpochCosts) {
        if costs.tasks == 0 {
            return;
        }
        let new = EpochRecord {
            epoch,
            rows: costs.rows,
            busy_ns: costs.busy_ns,
            waited_ns: costs.input_waited_ns,
            elapsed_ns: costs.elapsed_ns,
        };
        let is_first = self.done.get(&epoch).is_none_or(|workers| workers.len() <= 1);
        let known = || self.epochs.iter().rposition(|record| record.epoch == epoch);
        let known = if is_first { None } else { known() };
        match known.and_then(|position| self.epochs.get_mut(position)) {
            Some(record) => {
                record.rows += new.rows;
                record.busy_ns += new.busy_ns;
                record.waited_ns = record.waited_ns.max(new.waited_ns);
                record.elapsed_ns = record.elapsed_ns.max(new.elapsed_ns);
            }
            None => {
                if self.epochs.len() == EPOCHS_REMEMBERED {
                    self.epochs.pop_front();
                }
                self.epochs.push_back(new);
            }
        }
    }

    /// Learns from the groups whose epochs are all committed, and from one that was closed early.
    fn end_groups(&mut self, now: u64) {
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
            let elapsed_ns = now.saturating_sub(self.group_ended_at.replace(now).unwrap_or(now));
            let GroupCosts {
                scheduling_ns,
                waited_ns,
                execution_ns,
            } = group.costs;
            group.idle_ns = elapsed_ns.saturating_sub(scheduling_ns + waited_ns + execution_ns);
            // A group of empty epochs, or one that a change of definitions ended, says nothing of the load.
            if group.tasks > 0 && group.last_epoch == last && !group.is_forced {
                self.tuner.learn(group.costs);
                self.spreader.learn(&group);
            }
            self.faucets.learn(&group, &self.views, now);
            group.share = self.tuner.share();
            if self.remembered.len() == GROUPS_REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back(group);
        }
    }

    pub fn last_group(&self) -> Option<&GroupRecord> {
        self.remembered.back()
    }
}

impl GroupRecord {
    pub(super) fn new(first_epoch: u64, last_epoch: u64, is_forced: bool) -> Self {
        GroupRecord {
            first_epoch,
            last_epoch,
            rows: 0,
            costs: GroupCosts::default(),
            tasks: 0,
            tasks_skipped: 0,
            tasks_copied: 0,
            copies_won: 0,
            busy_ns: 0,
            idle_ns: 0,
            stages: vec![],
            share: 0.0,
            is_forced,
        }
    }
}
