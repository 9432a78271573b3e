//! One pipeline on one worker: the epochs in flight, with the counts of what their tasks wait for.
//!
//! Where what tasks left is retained, a loss makes a new [`Pipeline`] out of the old one: [`Pipeline::take_over`]. Every
//! epoch since the checkpoint comes again. A task that ran before the loss is not run again: when the epoch's cut comes it
//! only tells of its output, under the new template, to whoever waits for it now.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use millrace_planner::RelationId;

use super::cutter::Cutter;
use super::gathered::Gathered;
use super::straggler::Progress;
use super::{LocalAction, ReadyTask, Work, share};
use crate::id::{PipelineId, TaskId, WorkerId};
use crate::message::{EpochCosts, EpochTime, ToDriver, ToPeer};
use crate::plan::{Plan, TaskPlan};
use crate::task::{Ended, Source};
use crate::template::{StageInput, Template};

#[derive(Debug)]
pub(super) struct Pipeline {
    pub plan: Arc<Plan>,
    pub version: u64,
    /// Epochs up to here may run.
    pub launched: u64,
    pub epochs: BTreeMap<u64, Epoch>,
    /// For each task, the last epoch in which it ended: the next one's waits for it if it is stateful.
    pub ended: Vec<u64>,
    /// Everything up to here is done on this worker, and these epochs after it.
    done_to: u64,
    done_ahead: BTreeSet<u64>,
    pub cutter: Option<Cutter>,
    /// What tasks filled, by epoch, where that is retained; stateful tasks that had nothing to do are left out.
    pub records: BTreeMap<u64, HashMap<usize, Vec<u32>>>,
    /// Tasks that run, where a loss may come in between.
    pub running: HashSet<(usize, u64)>,
    /// Tasks whose state is being fetched from the checkpoint, with the version of the template that asked for it.
    pub restoring: HashMap<usize, u64>,
    /// Copies of others' tasks that run here or have run, and for whom.
    pub copies: BTreeMap<TaskId, WorkerId>,
    /// Tasks of this worker that run elsewhere too, and where.
    pub lent: HashMap<(usize, u64), WorkerId>,
    /// There is a timer to look for stragglers.
    pub is_watching: bool,
    gathered: Gathered,
}

/// An epoch in flight on this worker.
#[derive(Debug)]
pub(super) struct Epoch {
    pub counts: Vec<u32>,
    pub states: Vec<TaskState>,
    pub sources: HashMap<usize, Vec<Source>>,
    /// For each view and stage, tasks that have not ended.
    left: Vec<Vec<u32>>,
    /// Which partitions of its reader each stage has filled so far.
    filled: HashMap<(usize, usize), BTreeSet<u32>>,
    tasks_left: usize,
    /// What was heard already: messages may come twice.
    pub heard: HashSet<(usize, usize, u32)>,
    /// Stages of which tasks here emitted batches.
    pub flowing: HashSet<(usize, usize)>,
    /// How far the map stages are that tasks here wait for.
    pub progress: BTreeMap<(usize, usize), Progress>,
    has_cut: bool,
    is_checkpoint: bool,
    pub time: EpochTime,
    pub started_at: u64,
    pub costs: EpochCosts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskState {
    Waiting,
    Running,
    /// It ended before the loss; when the epoch's cut comes its output is told of again.
    Retold,
    Ended,
}

impl Pipeline {
    pub fn new(template: Arc<Template>, me: WorkerId, interval: u64, target: u64) -> Pipeline {
        let (version, after) = (template.version, template.after);
        let plan = Arc::new(Plan::new(template, me));
        let template = &plan.template;
        let mut cutter = (template.cutter == me).then(|| Cutter::new(after, interval, target));
        let mut launched = after;
        if let Some(replay) = &template.replay {
            launched = replay.to;
            cutter = cutter.map(|cutter| cutter.replaying(&replay.checkpoints));
        }
        Pipeline {
            ended: vec![after; plan.tasks.len()],
            version,
            launched,
            epochs: BTreeMap::new(),
            done_to: after,
            done_ahead: BTreeSet::new(),
            cutter,
            records: BTreeMap::new(),
            running: HashSet::new(),
            restoring: HashMap::new(),
            copies: BTreeMap::new(),
            lent: HashMap::new(),
            is_watching: false,
            gathered: Gathered::default(),
            plan,
        }
    }

    pub fn id(&self) -> PipelineId {
        self.plan.template.pipeline
    }

    pub fn is_stateful(&self, task: usize) -> bool {
        let task = self.plan.tasks[task];
        self.plan.view(task).stages[task.stage].is_stateful()
    }

    /// Whether the task was started here, under whichever template, and has not ended.
    pub fn is_running(&self, task: usize, epoch: u64) -> bool {
        self.running.contains(&(task, epoch))
    }

    /// The number of a task of this worker.
    pub fn number(&self, id: TaskId) -> Option<usize> {
        let view = self.plan.position(id.view)?;
        self.plan.task(view, id.stage, id.partition)
    }

    /// Whether the task was started here and its end is waited for.
    pub fn awaits(&self, task: usize, epoch: u64) -> bool {
        match self.epochs.get(&epoch) {
            Some(epoch) => epoch.states[task] == TaskState::Running,
            // Not heard of yet since a loss.
            None => self.is_running(task, epoch),
        }
    }

    pub fn launch(
        &mut self,
        first: u64,
        last: u64,
        checkpoints: Vec<u64>,
        is_forced: bool,
        work: &mut Work<'_>,
    ) {
        self.launched = self.launched.max(last);
        self.gathered.launch(last);
        if let Some(cutter) = &mut self.cutter {
            cutter.launch(first, last, checkpoints, is_forced);
        }
        self.start(work);
    }

    /// What was left of epochs up to here is wanted by nobody.
    pub fn release(&mut self, to: u64) {
        self.records = self.records.split_off(&(to + 1));
    }

    /// The epoch's state, made from the plan when it is first heard of; none if it is over.
    pub fn epoch(&mut self, epoch: u64, work: &Work<'_>) -> Option<&mut Epoch> {
        if epoch <= self.done_to || self.done_ahead.contains(&epoch) {
            return None;
        }
        let (plan, ended, restoring) = (&self.plan, &self.ended, &self.restoring);
        let (running, records) = (&self.running, self.records.get(&epoch));
        Some(self.epochs.entry(epoch).or_insert_with(|| {
            let mut counts = plan.counts.clone();
            let mut states = vec![TaskState::Waiting; plan.tasks.len()];
            for (number, task) in plan.tasks.iter().enumerate() {
                let is_stateful = plan.view(*task).stages[task.stage].is_stateful();
                if is_stateful {
                    let next = ended[number] + 1;
                    if next < epoch || (next == epoch && restoring.contains_key(&number)) {
                        counts[number] += 1;
                    }
                    if epoch < next {
                        states[number] = TaskState::Retold;
                    }
                }
                if records.is_some_and(|records| records.contains_key(&number)) {
                    states[number] = TaskState::Retold;
                } else if running.contains(&(number, epoch)) {
                    states[number] = TaskState::Running;
                }
            }
            Epoch {
                counts,
                states,
                sources: HashMap::new(),
                left: plan
                    .stages
                    .iter()
                    .map(|stages| stages.iter().map(|range| range.len() as u32).collect())
                    .collect(),
                filled: HashMap::new(),
                tasks_left: plan.tasks.len(),
                heard: HashSet::new(),
                flowing: HashSet::new(),
                progress: BTreeMap::new(),
                has_cut: false,
                is_checkpoint: false,
                time: EpochTime::default(),
                started_at: work.at,
                costs: EpochCosts::default(),
            }
        }))
    }

    /// The cut releases the maps, and brings the epoch's clock to all tasks.
    pub fn cut_arrived(
        &mut self,
        number: u64,
        time: EpochTime,
        rows: &[(RelationId, u64)],
        is_checkpoint: bool,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let from = plan.template.cutter;
        let Some(epoch) = self.epoch(number, work) else {
            return;
        };
        if std::mem::replace(&mut epoch.has_cut, true) {
            return;
        }
        epoch.time = time;
        epoch.is_checkpoint = is_checkpoint;
        let (mut arrived, mut retold) = (vec![], vec![]);
        for (task, planned) in plan.tasks.iter().enumerate() {
            if epoch.states[task] == TaskState::Retold {
                retold.push(task);
                continue;
            }
            let view = plan.view(*planned);
            let stage = &view.stages[planned.stage];
            if let StageInput::Relation(relation) = &stage.input {
                let rows = rows
                    .iter()
                    .find(|(cut, _)| cut == relation)
                    .map_or(0, |(_, rows)| *rows);
                if !share(rows, planned.partition, stage.pieces_max).is_empty() {
                    let source = Source::Cut {
                        relation: *relation,
                        from,
                    };
                    epoch.sources.entry(task).or_default().push(source);
                }
            }
            arrived.push(task);
        }
        let records = self.records.get(&number);
        let filled = |task: usize| {
            let filled = records.and_then(|records| records.get(&task));
            filled.map_or(BTreeSet::new(), |filled| filled.iter().copied().collect())
        };
        let ended = retold.into_iter().map(|task| (task, filled(task))).collect();
        self.settle(number, arrived, ended, work);
        self.finish(number, work);
    }

    pub fn materialized(
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

    /// A task that was run ended, by itself or by its copy. The first of the two counts.
    pub fn task_ended(
        &mut self,
        task: usize,
        number: u64,
        ended: Ended,
        is_copied: bool,
        work: &mut Work<'_>,
    ) {
        if !self.awaits(task, number) {
            return;
        }
        let was_lent = self.call_back(task, number, work);
        self.gathered.add(task, &ended);
        let Ended { filled, busy_ns, .. } = ended;
        if self.plan.template.is_retained {
            self.running.remove(&(task, number));
            self.records
                .entry(number)
                .or_default()
                .insert(task, filled.clone());
        }
        if let Some(epoch) = self.epochs.get_mut(&number) {
            epoch.costs.tasks += 1;
            epoch.costs.tasks_copied += u32::from(was_lent);
            epoch.costs.copies_won += u32::from(is_copied);
            epoch.costs.busy_ns += busy_ns;
            self.settle(number, vec![], vec![(task, filled.into_iter().collect())], work);
        } else if self.ended[task] < number {
            // The epoch has not been heard of yet since the loss.
            self.ended[task] = number;
            if self.is_stateful(task) && self.epochs.contains_key(&(number + 1)) {
                self.settle(number + 1, vec![task], vec![], work);
            }
        }
    }

    /// Works off arrivals and ends until nothing more follows without running a task.
    pub fn settle(
        &mut self,
        number: u64,
        arrived: Vec<usize>,
        ended: Vec<(usize, BTreeSet<u32>)>,
        work: &mut Work<'_>,
    ) {
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
                if epoch.counts[task] == 0 && epoch.states[task] == TaskState::Waiting {
                    self.ready(number, task, &mut ended, work);
                }
            } else {
                return;
            }
        }
    }

    /// A task has all of its inputs: runs it, or ends it if there is nothing to do.
    pub fn ready(
        &mut self,
        number: u64,
        task: usize,
        ended: &mut Vec<(u64, usize, BTreeSet<u32>)>,
        work: &mut Work<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let is_checkpoint = self.is_stateful(task);
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        let is_checkpoint = is_checkpoint && epoch.is_checkpoint;
        let planned = plan.tasks[task];
        let id = TaskId {
            view: plan.view(planned).id,
            stage: planned.stage,
            partition: planned.partition,
            epoch: number,
        };
        // They stay: a task that could not fetch them runs again.
        let sources = epoch.sources.get(&task).cloned().unwrap_or_default();
        let is_filled = !sources.is_empty();
        if !work.tasks.has_work(id, &epoch.time, is_filled || is_checkpoint) {
            epoch.costs.tasks_skipped += 1;
            ended.push((number, task, BTreeSet::new()));
            return;
        }
        epoch.states[task] = TaskState::Running;
        if plan.template.is_retained {
            self.running.insert((task, number));
        }
        work.actions.push(LocalAction::Run(ReadyTask {
            pipeline: plan.template.pipeline,
            version: self.version,
            id,
            incarnation: plan.view(planned).incarnation,
            time: epoch.time.clone(),
            gives_way: plan.template.gives_way(),
            is_read: !plan.readers(id.view).is_empty(),
            is_checkpoint,
            sources,
            has_faucet: plan.view(planned).stages[planned.stage].has_faucet,
            copy_for: None,
        }));
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
        if std::mem::replace(&mut epoch.states[task], TaskState::Ended) == TaskState::Ended {
            return;
        }
        epoch.tasks_left -= 1;
        if self.ended[task] < number {
            self.ended[task] = number;
            if shape.is_stateful() && self.epochs.contains_key(&(number + 1)) {
                arrived.push((number + 1, task));
            }
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
                    let is_flowing = epoch.flowing.contains(&(planned.view, planned.stage));
                    if view.takes_batches(reader) {
                        work.actions.push(LocalAction::EndFlow {
                            pipeline,
                            epoch: number,
                            view: view.id,
                            stage: planned.stage,
                            is_void: false,
                        });
                    }
                    for to in plan.workers_of(planned.view, reader).iter().copied() {
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
                            is_flowing,
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
        // Epochs of stages without state may overtake each other.
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
            stages: self.gathered.take(number, &self.plan),
            is_checkpoint: epoch.is_checkpoint,
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
