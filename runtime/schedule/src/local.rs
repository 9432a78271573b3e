//! The local scheduler of a worker: counts of outstanding inputs, and the clock of the cuts.
//!
//! Pre-scheduling (Drizzle, section 3.2): the tasks of an epoch are there before their inputs, and use nothing; a task whose
//! last input arrives is run. A task that ends tells the workers that wait for it; the driver hears of whole epochs, later.
//! Tasks with state of one partition run in the order of their epochs; maps run ahead, [`EPOCHS_IN_FLIGHT_MAX`] epochs at most.
//!
//! One worker of a pipeline is its *cutter*: its sources arrive there, and it starts the epochs (`cutter`).
//!
//! Pure bookkeeping: events in, actions out. Here messages find their pipeline; what they mean to it is in `pipeline`.

mod cutter;
mod event;
mod flow;
mod gathered;
mod pace;
mod pipeline;
mod recovery;
mod straggler;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millrace_planner::RelationId;

use super::message::{EpochTime, ToDriver, ToPeer, ToWorker};
use super::template::Template;
use crate::cpu::CHUNK_ROWS;
use crate::id::{Part, PipelineId, TaskId, WorkerId};
pub use event::{LocalAction, LocalEvent, ReadyTask, TakenCut, Timer};
use pipeline::Pipeline;
pub use straggler::{STRAGGLER_FACTOR, STRAGGLER_NS_MIN};

/// Epochs of one pipeline that may be under way at once.
pub const EPOCHS_IN_FLIGHT_MAX: usize = 4;
/// Void templates that are remembered: no message is under way for longer.
const FORGOTTEN_MAX: usize = 256;

/// What the scheduler asks of the tasks themselves.
pub trait Tasks {
    /// Whether the task has anything to do in its epoch: `is_needed` says that one of its inputs has rows, or that the epoch
    /// is a checkpoint.
    fn has_work(&self, task: TaskId, time: &EpochTime, is_needed: bool) -> bool;

    /// Whether what the tasks of this part keep is here as the template of this version left it.
    fn has_state(&self, part: Part, version: u64) -> bool;

    /// How old what readers of a view see may be, in nanoseconds: the time from a row's arrival to the end of its epoch; 0: as fresh as can
    /// be; none: as [`LocalScheduler::set_times`] says.
    fn freshness(&self, view: RelationId) -> Option<u64>;
}

/// See the module.
#[derive(Debug)]
pub struct LocalScheduler {
    me: WorkerId,
    /// See [`LocalScheduler::set_times`].
    interval: u64,
    freshness: u64,
    pipelines: HashMap<PipelineId, Pipeline>,
    /// Messages of peers that heard of a launch before this worker.
    early: Vec<ToPeer>,
    /// Commands that overtook their template.
    early_commands: Vec<ToWorker>,
    /// Templates that are void, with all before them: what is still said of them is not listened to.
    forgotten: VecDeque<(PipelineId, u64)>,
}

impl LocalScheduler {
    pub fn new(me: WorkerId) -> Self {
        LocalScheduler {
            me,
            interval: 0,
            freshness: 0,
            pipelines: HashMap::new(),
            early: vec![],
            early_commands: vec![],
            forgotten: VecDeque::new(),
        }
    }

    /// Sets when the pipelines cut whose cutters are here now or later, in nanoseconds: the time between two cuts, and the target for the
    /// freshness of views that have none of their own; 0: as soon as there is input. Back-fills do not wait. Returns the pipelines that
    /// are here, which are to look whether a cut is due.
    /// A target of a view that has changed holds from then on, too.
    pub fn set_times(&mut self, interval: u64, freshness: u64, tasks: &dyn Tasks) -> Vec<PipelineId> {
        (self.interval, self.freshness) = (interval, freshness);
        let mut set = vec![];
        for (id, pipeline) in &mut self.pipelines {
            let target = target(&pipeline.plan.template, freshness, tasks);
            if !pipeline.plan.template.is_job
                && let Some(cutter) = &mut pipeline.cutter
            {
                cutter.set_times(interval, target);
                set.push(*id);
            }
        }
        set
    }

    /// Whether the input of a pipeline whose cutter is here waits for company.
    pub fn is_paced(&self, pipeline: PipelineId) -> bool {
        let cutter = self
            .pipelines
            .get(&pipeline)
            .and_then(|pipeline| pipeline.cutter.as_ref());
        cutter.is_some_and(cutter::Cutter::is_paced)
    }

    /// Whether nothing is in flight or remembered of any epoch.
    pub fn is_idle(&self) -> bool {
        self.early.is_empty()
            && self.early_commands.is_empty()
            && self.pipelines.values().all(|pipeline| {
                pipeline.epochs.is_empty()
                    && pipeline.copies.is_empty()
                    && pipeline
                        .cutter
                        .as_ref()
                        .is_none_or(|cutter| cutter.in_flight.is_empty())
            })
    }

    /// Whether what a task that was run leaves is waited for: not if the view is gone, or if its copy ended before it.
    pub fn awaits(&self, task: &ReadyTask) -> bool {
        let Some(pipeline) = self.pipelines.get(&task.pipeline) else {
            return false;
        };
        if task.copy_for.is_some() {
            return pipeline.version == task.version && pipeline.copies.contains_key(&task.id);
        }
        self.is_running(task.pipeline, task.id)
    }

    /// Whether a task of this worker was run, and its end is waited for.
    pub fn is_running(&self, pipeline: PipelineId, id: TaskId) -> bool {
        let pipeline = self.pipelines.get(&pipeline);
        pipeline.is_some_and(|pipeline| {
            pipeline
                .number(id)
                .is_some_and(|number| pipeline.awaits(number, id.epoch))
        })
    }

    /// What has state and lives here.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = vec![];
        for pipeline in self.pipelines.values() {
            for (number, task) in pipeline.plan.tasks.iter().enumerate() {
                if pipeline.is_stateful(number) {
                    parts.push(Part {
                        view: pipeline.plan.view(*task).id,
                        stage: task.stage,
                        partition: task.partition,
                    });
                }
            }
        }
        parts
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
            LocalEvent::Hurry { pipeline } => {
                if let Some(pipeline) = self.pipelines.get_mut(&pipeline) {
                    if let Some(cutter) = &mut pipeline.cutter {
                        cutter.hurry();
                    }
                    pipeline.start(&mut work);
                }
            }
            LocalEvent::Wake { pipeline, timer } => {
                if let Some(pipeline) = self.pipelines.get_mut(&pipeline) {
                    match timer {
                        Timer::Cut => {
                            if let Some(cutter) = &mut pipeline.cutter {
                                cutter.is_asleep = false;
                            }
                            pipeline.start(&mut work);
                        }
                        Timer::Stragglers => pipeline.look_for_stragglers(&mut work),
                    }
                }
            }
            LocalEvent::CutTaken {
                pipeline,
                version,
                cut,
            } => {
                if let Some(pipeline) = self.of(pipeline, version) {
                    pipeline.cut_taken(cut, &mut work);
                }
            }
            LocalEvent::NoCut {
                pipeline,
                version,
                epoch,
                is_checkpoint,
            } => {
                if let Some(pipeline) = self.of(pipeline, version) {
                    pipeline.no_cut(epoch, is_checkpoint, &mut work);
                }
            }
            LocalEvent::TaskEnded {
                pipeline,
                version,
                id,
                ended,
                is_copied,
            } => {
                if let Some((pipeline, task)) = self.run_by(pipeline, version, id) {
                    pipeline.task_ended(task, id.epoch, ended, is_copied, &mut work);
                } else {
                    // Nobody will come for what it left.
                    let epochs = id.epoch..=id.epoch;
                    work.actions.push(LocalAction::Release { pipeline, epochs });
                }
            }
            LocalEvent::TaskFlows {
                pipeline,
                version,
                id,
            } => match self.run_by(pipeline, version, id) {
                Some((pipeline, task)) => pipeline.task_flows(task, id.epoch, &mut work),
                None => {
                    // Nobody will take its batches.
                    work.actions.push(LocalAction::EndFlow {
                        pipeline,
                        epoch: id.epoch,
                        view: id.view,
                        stage: id.stage,
                        is_void: true,
                    });
                }
            },
            LocalEvent::CopyEnded {
                pipeline,
                version,
                id,
                ended,
            } => {
                if let Some(pipeline) = self.of(pipeline, version) {
                    pipeline.copy_ended(id, ended, &mut work);
                }
            }
            LocalEvent::TaskFailed {
                pipeline,
                version,
                id,
                lost,
            } => {
                work.actions.push(LocalAction::Report(ToDriver::Unreachable {
                    pipeline,
                    version,
                    task: id,
                    lost,
                    by: self.me,
                }));
                if let Some((pipeline, task)) = self.run_by(pipeline, version, id) {
                    pipeline.task_failed(task, id.epoch, version, &mut work);
                }
            }
            LocalEvent::Restored {
                pipeline,
                version,
                view,
                stage,
                partition,
            } => {
                if let Some(pipeline) = self.pipelines.get_mut(&pipeline)
                    && let Some(position) = pipeline.plan.position(view)
                    && let Some(task) = pipeline.plan.task(position, stage, partition)
                {
                    pipeline.restored(task, version, &mut work);
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

    /// The pipeline and the number of a task that was run under this version, if it is still wanted.
    fn run_by(&mut self, pipeline: PipelineId, version: u64, id: TaskId) -> Option<(&mut Pipeline, usize)> {
        let pipeline = self.pipelines.get_mut(&pipeline)?;
        let task = pipeline.number(id)?;
        let is_wanted = pipeline.version == version || pipeline.is_running(task, id.epoch);
        is_wanted.then_some((pipeline, task))
    }

    fn driver(&mut self, message: ToWorker, work: &mut Work<'_>) {
        let (id, version) = message.about();
        let is_forgotten = |(pipeline, to): &(PipelineId, u64)| *pipeline == id && version <= *to;
        let is_discard = matches!(message, ToWorker::Discard { .. });
        if !is_discard && self.forgotten.iter().any(is_forgotten) {
            return;
        }
        let known = self.pipelines.get(&id).map_or(0, |pipeline| pipeline.version);
        match message {
            ToWorker::Relay(message) => work.peers.push(message),
            ToWorker::Prepare(template) => {
                if known < version {
                    // The driver opens a pipeline again when all is committed, whatever is still said of it.
                    let epochs = 0..=template.after;
                    work.actions.push(LocalAction::Release { pipeline: id, epochs });
                    self.prepare(template, work);
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
                self.drop_early(id, version);
            }
            // Its template is still on the way. What is discarded is so because there will be none.
            command if known < version && !is_discard => self.early_commands.push(command),
            ToWorker::Launch {
                first,
                last,
                checkpoints,
                is_forced,
                ..
            } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.launch(first, last, checkpoints, is_forced, work);
                    self.hear_early(id, version, last, work);
                }
            }
            ToWorker::Close { is_checkpoint, .. } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.close(is_checkpoint, work);
                }
            }
            ToWorker::Discard { views, .. } => {
                // A template that came before this message, and was made after it, may have brought some of them back.
                let is_newer = |view: &RelationId| {
                    let mut pipelines = self.pipelines.values();
                    pipelines.any(|of| of.version >= version && of.plan.position(*view).is_some())
                };
                let views = views.into_iter().filter(|view| !is_newer(view)).collect();
                work.actions.push(LocalAction::Discard { views });
            }
            ToWorker::Checkpoint { .. } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.checkpoint(work);
                }
            }
            ToWorker::Retry { task, .. } => {
                if let Some((pipeline, number)) = self.run_by(id, version, task) {
                    pipeline.run_again(number, task.epoch, work);
                }
            }
            ToWorker::CopyTo {
                epoch,
                view,
                stage,
                to,
                ..
            } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.copy_to(epoch, view, stage, to, work);
                }
            }
            ToWorker::Release { to, .. } => {
                if let Some(pipeline) = self.of(id, version) {
                    pipeline.release(to);
                    let epochs = 0..=to;
                    work.actions.push(LocalAction::Release { pipeline: id, epochs });
                }
            }
        }
    }

    /// Nobody waits any more for what is said of templates up to this version.
    fn drop_early(&mut self, id: PipelineId, version: u64) {
        self.early
            .retain(|message| message.about().0 != id || message.about().1 > version);
        self.early_commands
            .retain(|message| message.about().0 != id || message.about().1 > version);
    }

    /// Messages that came before their epochs were launched here.
    fn hear_early(&mut self, id: PipelineId, version: u64, launched: u64, work: &mut Work<'_>) {
        let (ready, early) = std::mem::take(&mut self.early).into_iter().partition(|message| {
            let about = message.about();
            (about.0, about.1) == (id, version) && about.2 <= launched
        });
        self.early = early;
        let ready: Vec<ToPeer> = ready;
        work.peers.extend(ready);
    }

    fn prepare(&mut self, template: Arc<Template>, work: &mut Work<'_>) {
        let (id, version, lineage) = (template.pipeline, template.version, template.lineage);
        let mut old = self.pipelines.remove(&id);
        if let Some(old) = old.as_ref().filter(|old| !old.copies.is_empty()) {
            // Of tasks under a template that is void.
            let tasks = old.copies.keys().copied().collect();
            work.actions.push(LocalAction::DropCopies { pipeline: id, tasks });
        }
        let (interval, target) = match template.is_job {
            true => (0, 0),
            false => (self.interval, target(&template, self.freshness, work.tasks)),
        };
        let goes_on = template.replay.is_some();
        work.actions.push(LocalAction::KeepOwn(Arc::clone(&template)));
        let mut pipeline = Pipeline::new(template, self.me, interval, target);
        let (cutter, before) = (
            &mut pipeline.cutter,
            old.as_mut().and_then(|old| old.cutter.take()),
        );
        if let (Some(cutter), Some(before)) = (cutter, before) {
            cutter.pace.learn_from(before.pace);
        }
        pipeline.take_over(old.filter(|old| old.version >= lineage), work);
        if goes_on {
            pipeline.start(work);
        }
        let launched = pipeline.launched;
        self.pipelines.insert(id, pipeline);
        self.drop_early(id, version - 1);
        self.hear_early(id, version, launched, work);
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
            ToPeer::Cut {
                epoch,
                time,
                rows,
                is_checkpoint,
                ..
            } => pipeline.cut_arrived(epoch, time, &rows, is_checkpoint, work),
            ToPeer::StageDone {
                epoch,
                view,
                stage,
                from,
                filled,
                is_flowing,
                ..
            } => {
                let filled = (!is_flowing).then_some(filled.as_slice());
                pipeline.stage_done(epoch, view, stage, from, filled, work);
            }
            ToPeer::StageFlows {
                epoch, view, stage, ..
            } => pipeline.stage_flows(epoch, view, stage, work),
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
            ToPeer::Copy {
                epoch,
                view,
                stage,
                from,
                time,
                tasks,
                ..
            } => pipeline.run_copies((epoch, view, stage), from, &time, tasks, work),
            ToPeer::CopyEnded { task, by, ended, .. } => pipeline.copy_told(task, by, ended, work),
            ToPeer::DropCopy { task, .. } => pipeline.drop_copy(task, work),
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

/// Partition `p`'s share of an epoch's rows: even pieces, but no more of them than there is work for, nor than `pieces_max`
/// (see [`StageShape::pieces_max`](crate::template::StageShape::pieces_max)).
pub fn share(rows: u64, partition: usize, pieces_max: usize) -> std::ops::Range<u64> {
    let pieces = rows
        .div_ceil(CHUNK_ROWS as u64)
        .clamp(1, pieces_max.max(1) as u64);
    let partition = partition as u64;
    if partition >= pieces {
        return 0..0;
    }
    rows * partition / pieces..rows * (partition + 1) / pieces
}

/// The freshness that all views of a template are to have, in nanoseconds, where those without a target have this one; 0: as fresh as can be.
fn target(template: &Template, default: u64, tasks: &dyn Tasks) -> u64 {
    let targets = (template.views.iter()).map(|view| tasks.freshness(view.id).unwrap_or(default));
    targets.min().unwrap_or(0)
}
