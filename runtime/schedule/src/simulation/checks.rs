//! What must hold in a simulation, whatever the schedule and whoever is lost.
//!
//! * A task runs after everything that it reads was left for it, all of it and nothing twice, and before that is released.
//! * It runs once, and again only if the worker on which it ran is gone. A copy of it may run elsewhere; only what a copy
//!   read in full is taken, and only while the task has not ended.
//! * What has state runs every epoch once, in order: from where its template began, or from the checkpoint that was restored.
//! * An epoch is committed once, in order, when all of its tasks have ended.
//! * A pipeline is recovered when every partition is again where readers have seen it.
//! * In the end nothing is left of any epoch but what the next checkpoint would release.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::Setup;
use super::flow::flows_of;
use crate::driver::CheckpointPolicy;
use crate::id::{PipelineId, TaskId, WorkerId};
use crate::local::ReadyTask;
use crate::task::Source;
use crate::template::{StageInput, Template, ViewShape};

/// Names rows that a simulated task left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Left {
    Cut,
    Exchange {
        view: RelationId,
        stage: usize,
        /// Of the reader.
        partition: usize,
    },
    Changes {
        view: RelationId,
        partition: usize,
    },
}

/// A partition of what a view keeps in one of its stages.
type Part = (RelationId, usize, usize);

/// See the module.
#[derive(Debug)]
pub(super) struct Checks {
    seed: u64,
    /// What is left of an epoch on a worker, with the partitions that left it.
    left: HashMap<(PipelineId, u64, WorkerId), HashMap<Left, BTreeSet<usize>>>,
    /// Where each task of an epoch that is not committed ran last.
    ran: HashMap<(PipelineId, u64), HashMap<TaskId, WorkerId>>,
    /// Copies that run, or of which the rows are kept, and where.
    copies: HashMap<(PipelineId, TaskId, WorkerId), Copied>,
    /// The last epoch that each part has; none while it is lost.
    parts: HashMap<Part, Option<u64>>,
    /// What workers keep: the last epoch that a part has there. Nothing, where they share their memory.
    kept: HashMap<(WorkerId, Part), u64>,
    are_together: bool,
    /// The last template with a view that a worker was told.
    told: HashMap<(WorkerId, RelationId), u64>,
    /// Images in the checkpoint store: the complete one, and those that may become so.
    images: HashMap<Part, (Option<u64>, BTreeSet<u64>)>,
    committed: HashMap<PipelineId, u64>,
    templates: HashMap<PipelineId, Arc<Template>>,
    /// The epochs before the first of each lineage.
    opened: HashMap<u64, u64>,
    killed: BTreeSet<WorkerId>,
    /// Views that were given up and are not back yet.
    abandoned: HashSet<RelationId>,
    checkpoints: HashMap<PipelineId, u64>,
}

/// A copy that was started.
#[derive(Debug, Clone, Default)]
struct Copied {
    /// All that it reads was there.
    is_whole: bool,
    /// Partitions that it filled.
    filled: Vec<u32>,
}

/// What a task reads there, and on which worker.
fn read(task: TaskId, source: &Source) -> Option<(Left, WorkerId)> {
    Some(match *source {
        Source::Cut { from, .. } => (Left::Cut, from),
        Source::Exchange { stage, from } => {
            let (view, partition) = (task.view, task.partition);
            let left = Left::Exchange {
                view,
                stage,
                partition,
            };
            (left, from)
        }
        Source::Changes {
            view,
            partition,
            from,
        } => (Left::Changes { view, partition }, from),
        // It is there when the task ends, not when it starts.
        Source::Flow { .. } => return None,
    })
}

/// The workers from which a task fetches before it runs.
pub(super) fn sources(task: &ReadyTask) -> impl Iterator<Item = WorkerId> + '_ {
    let sources = task.sources.iter();
    sources.filter_map(|source| read(task.id, source).map(|(_, from)| from))
}

impl Checks {
    pub fn new(setup: &Setup) -> Self {
        Checks {
            seed: setup.seed,
            kept: HashMap::new(),
            // Nothing could be brought from one to another.
            are_together: setup.checkpoints == CheckpointPolicy::Never,
            told: HashMap::new(),
            left: HashMap::new(),
            ran: HashMap::new(),
            copies: HashMap::new(),
            parts: HashMap::new(),
            images: HashMap::new(),
            committed: HashMap::new(),
            templates: HashMap::new(),
            opened: HashMap::new(),
            killed: BTreeSet::new(),
            abandoned: HashSet::new(),
            checkpoints: HashMap::new(),
        }
    }

    /// Whether a worker that has not heard of it yet goes on with what was abandoned.
    fn is_void(&self, task: &ReadyTask) -> bool {
        self.abandoned.contains(&task.id.view) || task.version < self.templates[&task.pipeline].lineage
    }

    pub fn prepared(&mut self, template: &Arc<Template>) {
        // It did not arrive at first, and is sent again.
        let known = self.templates.get(&template.pipeline);
        if known.is_some_and(|known| known.version > template.version) {
            return;
        }
        if template.lineage == template.version {
            self.opened.insert(template.lineage, template.after);
        }
        for view in &template.views {
            self.abandoned.remove(&view.id);
        }
        self.templates.insert(template.pipeline, Arc::clone(template));
    }

    pub fn killed(&mut self, worker: WorkerId) {
        self.killed.insert(worker);
        self.gone(worker);
    }

    /// Nothing of the worker is there any more.
    pub fn gone(&mut self, worker: WorkerId) {
        self.left.retain(|(_, _, on), _| *on != worker);
        self.copies.retain(|(_, _, on), _| *on != worker);
        self.kept.retain(|(on, _), _| *on != worker);
    }

    /// Whether a worker has what a part keeps, as far as it can know. A part that was never run is the same everywhere.
    pub fn has_state(&self, worker: WorkerId, part: Part, version: u64) -> bool {
        let is_lost = self.parts.get(&part) == Some(&None);
        let told = self.told.get(&(worker, part.0)).copied().unwrap_or(0);
        match self.are_together {
            true => !is_lost,
            false if !self.parts.contains_key(&part) => true,
            false => told >= version && self.kept.contains_key(&(worker, part)),
        }
    }

    /// A worker is told by a template which parts it has.
    pub fn keep_own(&mut self, worker: WorkerId, template: &Template) {
        for view in &template.views {
            self.told.insert((worker, view.id), template.version);
        }
        let is_other = |(on, part): &(WorkerId, Part)| {
            *on == worker
                && template.views.iter().any(|view| view.id == part.0)
                && template.worker(part.2) != worker
        };
        self.kept.retain(|kept, _| !is_other(kept));
    }

    /// Bytes of each partition that a worker keeps, where each part of it has so many.
    pub fn kept_of(&self, worker: WorkerId, bytes: &[u64]) -> Vec<u64> {
        let mut kept = vec![0; bytes.len()];
        for (_, part) in self.kept.keys().filter(|(on, _)| *on == worker) {
            if let Some(kept) = kept.get_mut(part.2) {
                *kept += bytes[part.2];
            }
        }
        kept
    }

    pub fn discard(&mut self, worker: WorkerId, views: &[RelationId]) {
        self.kept
            .retain(|(on, part), _| *on != worker || !views.contains(&part.0));
    }

    pub fn cut(&mut self, pipeline: PipelineId, epoch: u64, worker: WorkerId) {
        let left = self.left.entry((pipeline, epoch, worker)).or_default();
        left.insert(Left::Cut, BTreeSet::from([0]));
    }

    /// A task starts; returns whether it ran before, on a worker that is gone.
    pub fn started(
        &mut self,
        worker: WorkerId,
        task: &ReadyTask,
        shape: &ViewShape,
        is_everyone: bool,
    ) -> bool {
        if self.is_void(task) {
            return false;
        }
        let (id, seed) = (task.id, self.seed);
        let ran = self.ran.entry((task.pipeline, id.epoch)).or_default();
        let before = ran.insert(id, worker);
        if let Some(before) = before {
            assert!(
                self.killed.contains(&before),
                "seed {seed}: {id:?} ran on {before:?} and again on {worker:?}"
            );
        }
        let stage = &shape.stages[id.stage];
        if stage.is_stateful() {
            let template = &self.templates[&task.pipeline];
            let opened = self.opened[&template.lineage];
            let part = (id.view, id.stage, id.partition);
            if !self.are_together && self.parts.contains_key(&part) {
                let here = self.kept.get(&(worker, part)).copied();
                assert_eq!(
                    here, self.parts[&part],
                    "seed {seed}: {id:?} runs on {worker:?}, and that is not what its state there is"
                );
            }
            self.kept.insert((worker, part), id.epoch);
            let last = self.parts.entry(part).or_insert(Some(opened));
            let Some(has) = *last else {
                panic!("seed {seed}: {id:?} runs, and its state is lost");
            };
            let next = has.max(opened) + 1;
            assert!(
                next == id.epoch || (next < id.epoch && !is_everyone),
                "seed {seed}: {id:?} has run up to {has} (opened at {opened})"
            );
            *last = Some(id.epoch);
        }
        let mut met: HashMap<usize, Vec<usize>> = HashMap::new();
        for source in &task.sources {
            let Some((left, from)) = read(id, source) else {
                continue;
            };
            let by = self.left.get(&(task.pipeline, id.epoch, from));
            let Some(by) = by.and_then(|by| by.get(&left)) else {
                panic!("seed {seed}: {id:?} reads {left:?} of {from:?}, which is not there");
            };
            if let Source::Exchange { stage, .. } = source {
                met.entry(*stage).or_default().extend(by);
            }
        }
        if let StageInput::Stages(upstream) = &stage.input {
            for up in upstream {
                let mut met = met.remove(up).unwrap_or_default();
                // Whoever flows sends the rows of all of its partitions.
                let template = &self.templates[&task.pipeline];
                for (_, from) in flows_of(task).filter(|(stage, _)| stage == up) {
                    let partitions = shape.partitions_of(&shape.stages[*up]);
                    met.extend(partitions.filter(|partition| template.worker(*partition) == from));
                }
                met.sort_unstable();
                let all: Vec<usize> = shape.partitions_of(&shape.stages[*up]).collect();
                assert_eq!(
                    met, all,
                    "seed {seed}: {id:?} does not read all of stage {up} once"
                );
            }
        }
        before.is_some()
    }

    /// A copy of a task starts.
    pub fn copy_started(&mut self, worker: WorkerId, task: &ReadyTask) {
        let is_there = |source: &Source| {
            let Some((left, from)) = read(task.id, source) else {
                return true;
            };
            let by = self.left.get(&(task.pipeline, task.id.epoch, from));
            by.is_some_and(|by| by.contains_key(&left))
        };
        let copied = Copied {
            is_whole: task.sources.iter().all(is_there),
            filled: vec![],
        };
        self.copies.insert((task.pipeline, task.id, worker), copied);
    }

    /// The task of a worker that has not ended takes what its copy emitted; returns whether that is still there.
    pub fn take_copy(&mut self, worker: WorkerId, pipeline: PipelineId, id: TaskId, from: WorkerId) -> bool {
        let seed = self.seed;
        let Some(copied) = self.copies.get(&(pipeline, id, from)) else {
            return false;
        };
        assert!(
            copied.is_whole,
            "seed {seed}: {id:?} ends by a copy that has not read everything"
        );
        let left = self.left.entry((pipeline, id.epoch, worker)).or_default();
        for partition in &copied.filled {
            let (view, stage) = (id.view, id.stage);
            let name = Left::Exchange {
                view,
                stage,
                partition: *partition as usize,
            };
            left.entry(name).or_default().insert(id.partition);
        }
        // The task may not have come to a slot yet.
        self.ran
            .entry((pipeline, id.epoch))
            .or_default()
            .insert(id, worker);
        true
    }

    pub fn drop_copies(&mut self, worker: WorkerId, pipeline: PipelineId, tasks: &[TaskId]) {
        for task in tasks {
            self.copies.remove(&(pipeline, *task, worker));
        }
    }

    /// Whether all tasks have started that read the rows of this one.
    pub fn reader_runs(&self, task: &ReadyTask, shape: &ViewShape) -> bool {
        let ran = self.ran.get(&(task.pipeline, task.id.epoch));
        let (Some(ran), Some(reader)) = (ran, shape.stages[task.id.stage].reader) else {
            return false;
        };
        let mut partitions = shape.partitions_of(&shape.stages[reader]);
        partitions.all(|partition| {
            ran.contains_key(&TaskId {
                stage: reader,
                partition,
                ..task.id
            })
        })
    }

    /// A task ends and leaves rows for everyone who may want them; returns the partitions that it filled.
    pub fn ended(
        &mut self,
        worker: WorkerId,
        task: &ReadyTask,
        shape: &ViewShape,
        filled: Option<usize>,
    ) -> Vec<u32> {
        let id = task.id;
        if filled.is_none() && !self.is_void(task) {
            self.check_flows(task, shape);
        }
        if task.is_checkpoint && !self.is_void(task) {
            let part = (id.view, id.stage, id.partition);
            self.images.entry(part).or_default().1.insert(id.epoch);
        }
        if task.copy_for.is_some() {
            let reader = shape.stages[id.stage].reader.map(|reader| &shape.stages[reader]);
            let partitions = reader.map_or(0..0, |reader| shape.partitions_of(reader));
            let end = partitions.end.min(filled.unwrap_or(usize::MAX));
            let filled: Vec<u32> = (0..end as u32).collect();
            if let Some(copied) = self.copies.get_mut(&(task.pipeline, id, worker)) {
                copied.filled.clone_from(&filled);
            }
            return filled;
        }
        let left = self.left.entry((task.pipeline, id.epoch, worker)).or_default();
        match shape.stages[id.stage].reader {
            Some(reader) => {
                let mut partitions = shape.partitions_of(&shape.stages[reader]);
                partitions.end = partitions.end.min(filled.unwrap_or(usize::MAX));
                for partition in partitions.clone() {
                    let (view, stage) = (id.view, id.stage);
                    let name = Left::Exchange {
                        view,
                        stage,
                        partition,
                    };
                    left.entry(name).or_default().insert(id.partition);
                }
                partitions.map(|partition| partition as u32).collect()
            }
            None => {
                if task.is_read {
                    let name = Left::Changes {
                        view: id.view,
                        partition: id.partition,
                    };
                    left.entry(name).or_default().insert(id.partition);
                }
                vec![0]
            }
        }
    }

    /// A task that read batches has had them all: the tasks that sent them have ended.
    fn check_flows(&self, task: &ReadyTask, shape: &ViewShape) {
        let (seed, id) = (self.seed, task.id);
        for (stage, from) in flows_of(task).filter(|(_, from)| !self.killed.contains(from)) {
            let left = Left::Exchange {
                view: id.view,
                stage,
                partition: id.partition,
            };
            let by = self.left.get(&(task.pipeline, id.epoch, from));
            let by: Vec<usize> = by
                .and_then(|by| by.get(&left))
                .map_or(vec![], |by| by.iter().copied().collect());
            let template = &self.templates[&task.pipeline];
            let partitions = shape.partitions_of(&shape.stages[stage]);
            let sent: Vec<usize> = partitions
                .filter(|partition| template.worker(*partition) == from)
                .collect();
            assert_eq!(
                by, sent,
                "seed {seed}: {id:?} ended before it had all batches of stage {stage}"
            );
        }
    }

    pub fn release(&mut self, worker: WorkerId, pipeline: PipelineId, epochs: &RangeInclusive<u64>) {
        self.left
            .retain(|(of, epoch, on), _| *on != worker || *of != pipeline || !epochs.contains(epoch));
        self.copies
            .retain(|(of, id, on), _| *on != worker || *of != pipeline || !epochs.contains(&id.epoch));
    }

    fn parts_of(shape: &ViewShape) -> impl Iterator<Item = Part> + '_ {
        let view = shape.id;
        let stages = shape.stages.iter().enumerate();
        let stateful = stages.filter(|(_, stage)| stage.is_stateful());
        stateful.flat_map(move |(number, stage)| {
            shape
                .partitions_of(stage)
                .map(move |partition| (view, number, partition))
        })
    }

    pub fn lost(&mut self, views: &[Arc<ViewShape>], partitions: &[usize], modulus: usize) {
        for part in views.iter().flat_map(|view| Self::parts_of(view)) {
            if partitions.contains(&(part.2 % modulus)) {
                self.parts.insert(part, None);
                self.kept.retain(|(_, of), _| *of != part);
            }
        }
    }

    pub fn restored(&mut self, worker: WorkerId, part: Part) {
        let seed = self.seed;
        let Some((Some(epoch), _)) = self.images.get(&part) else {
            panic!("seed {seed}: {part:?} is restored on {worker:?}, and is in no checkpoint");
        };
        self.kept.insert((worker, part), *epoch);
        let before = self.parts.insert(part, Some(*epoch));
        let before = before.flatten();
        assert!(
            before.is_none() || before == Some(*epoch),
            "seed {seed}: {part:?} has {before:?} and is restored as of {epoch}"
        );
    }

    pub fn checkpointed<'a>(
        &mut self,
        pipeline: PipelineId,
        epoch: u64,
        shapes: impl Iterator<Item = &'a Arc<ViewShape>>,
    ) {
        let seed = self.seed;
        self.checkpoints.insert(pipeline, epoch);
        for part in shapes.flat_map(|shape| Self::parts_of(shape)) {
            let image = self.images.entry(part).or_default();
            let later = image.1.split_off(&(epoch + 1));
            assert!(
                image.1.contains(&epoch),
                "seed {seed}: {part:?} is not in the checkpoint of {epoch}"
            );
            image.1 = later;
            image.0 = Some(epoch);
        }
    }

    pub fn recovered(&mut self, pipeline: PipelineId) {
        let (seed, committed) = (self.seed, self.committed.get(&pipeline).copied().unwrap_or(0));
        let template = &self.templates[&pipeline];
        for part in template.views.iter().flat_map(|view| Self::parts_of(view)) {
            if let Some(has) = self.parts.get(&part) {
                // Parts that were never run have what their template began with.
                let opened = self.opened[&template.lineage];
                let has = has.map(|has| has.max(opened));
                assert!(
                    has >= Some(committed.min(template.replay.as_ref().map_or(0, |replay| replay.to))),
                    "seed {seed}: recovered at {committed}, but {part:?} has {has:?}"
                );
            }
        }
    }

    pub fn abandoned(&mut self, view: RelationId) {
        self.abandoned.insert(view);
        self.parts.retain(|part, _| part.0 != view);
        self.kept.retain(|(_, part), _| part.0 != view);
        self.images.retain(|part, _| part.0 != view);
        for ran in self.ran.values_mut() {
            ran.retain(|id, _| id.view != view);
        }
    }

    pub fn committed(&mut self, pipeline: PipelineId, epoch: u64) {
        let seed = self.seed;
        let last = self.committed.insert(pipeline, epoch).unwrap_or(0);
        assert!(
            epoch >= last,
            "seed {seed}: epoch {epoch} was committed after {last}"
        );
    }

    /// The epoch is committed: its tasks are so many, and have ended.
    pub fn done(&mut self, pipeline: PipelineId, epoch: u64, tasks: usize) {
        let seed = self.seed;
        let ran = self.ran.remove(&(pipeline, epoch)).unwrap_or_default().len();
        assert_eq!(
            ran, tasks,
            "seed {seed}: epoch {epoch} was committed before its tasks had ended"
        );
    }

    pub fn assert_nothing_left(&self) {
        let retained: HashSet<PipelineId> = (self.templates.values())
            .filter(|template| template.is_retained)
            .map(|template| template.pipeline)
            .collect();
        let is_wanted = |pipeline: &PipelineId, epoch: u64| {
            let checkpoint = self.checkpoints.get(pipeline).copied();
            retained.contains(pipeline) && checkpoint.is_none_or(|checkpoint| epoch > checkpoint)
        };
        let left = self
            .left
            .iter()
            .find(|((pipeline, epoch, _), left)| !left.is_empty() && !is_wanted(pipeline, *epoch));
        assert!(
            left.is_none(),
            "seed {}: rows that nobody released: {left:?}",
            self.seed
        );
        let seed = self.seed;
        let copies = &self.copies;
        assert!(
            copies.is_empty(),
            "seed {seed}: copies that nobody dropped: {copies:?}"
        );
    }
}
