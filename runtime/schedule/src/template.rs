//! What the driver sends once and then refers to: the shape of a pipeline's stages, and where each partition lives.

use std::sync::Arc;

use millrace_planner::stage::Output;
use millrace_planner::stage::operator::Operator;
use millrace_planner::{Priority, RelationId, StageGraph};
use serde::{Deserialize, Serialize};

use crate::id::{PipelineId, WorkerId};

/// A task description that stays the same from epoch to epoch: every stage of every view of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub pipeline: PipelineId,
    /// Grows with each template that the driver makes; messages of an older one are void.
    pub version: u64,
    /// The version at which the pipeline was last opened from rest. A template of an older lineage tells nothing about what
    /// is where; one of the same lineage does: those after the first were made because a worker was lost.
    pub lineage: u64,
    /// The last epoch before the first of this template: after a loss, that of the checkpoint.
    pub after: u64,
    /// Where it goes on from a checkpoint: what is to be run again after that. That is something only if this template takes
    /// the place of one that lost a worker.
    pub replay: Option<Replay>,
    /// Whether what tasks left is kept until a checkpoint contains it, so that a lost worker's part can be run again.
    pub is_retained: bool,
    /// Whether this is a back-fill.
    pub is_job: bool,
    /// A view comes after the views that it reads.
    pub views: Vec<Arc<ViewShape>>,
    /// For each of them, the version of the last template before this one that had it; 0 if there was none.
    pub before: Vec<u64>,
    /// Partition `p` lives on worker `placement[p % placement.len()]`.
    pub placement: Vec<WorkerId>,
    /// The worker that takes the cuts: its sources arrive there.
    pub cutter: WorkerId,
}

/// The epochs after a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// No epoch after this one was launched.
    pub to: u64,
    /// Those of them that are to be checkpoints, if their cuts were not taken before.
    pub checkpoints: Vec<u64>,
}

/// A view as scheduling sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewShape {
    pub id: RelationId,
    /// Which attempt at it this is: a view that was lost is filled again under its own name, while tasks of the one before
    /// may still wait for a slot.
    pub incarnation: u64,
    /// Partitions of keyed state.
    pub partitions: usize,
    pub stages: Vec<StageShape>,
    /// Its epochs are to be batch work.
    pub is_batch: bool,
}

/// A stage as scheduling sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageShape {
    pub input: StageInput,
    /// The stage that reads its output; none for the last one, which materializes.
    pub reader: Option<usize>,
    /// Whether all of its rows meet in partition 0: it has no other tasks.
    pub is_single: bool,
    /// Whether its output may go on batch by batch while it is made.
    pub has_faucet: bool,
    /// Where there may be a faucet: rows that it lets a task hold back or have in flight.
    pub flow_rows: Option<u64>,
    /// Pieces of a relation's changes at most; each is a task. Of no meaning where the input is not a relation.
    pub pieces_max: usize,
}

/// What a stage reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageInput {
    /// A map over the changes of a stored relation.
    Relation(RelationId),
    /// Fixed rows: a map over nothing.
    Fixed,
    /// A reduce: what these stages sent.
    Stages(Vec<usize>),
}

impl Template {
    /// Whether its work is batch work: it is a back-fill, or none of its views is urgent.
    pub fn gives_way(&self) -> bool {
        self.is_job || (!self.views.is_empty() && self.views.iter().all(|view| view.is_batch))
    }

    /// Where a partition lives.
    pub fn worker(&self, partition: usize) -> WorkerId {
        self.placement[partition % self.placement.len()]
    }

    /// Whether a partition of its views would live elsewhere under this placement.
    pub fn would_move(&self, placement: &[WorkerId]) -> bool {
        let partitions = self.views.iter().map(|view| view.partitions).max();
        (0..partitions.unwrap_or(0))
            .any(|partition| self.worker(partition) != placement[partition % placement.len()])
    }

    /// Workers that take part in every epoch: those with tasks, and the cutter.
    pub fn participants(&self) -> Vec<WorkerId> {
        let mut workers: Vec<WorkerId> = self
            .views
            .iter()
            .flat_map(|view| view.stages.iter().flat_map(|stage| view.partitions_of(stage)))
            .map(|partition| self.worker(partition))
            .chain([self.cutter])
            .collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }
}

/// Blocks of a shuffle at most: each piece of the input leaves one for each partition of the reader, which are many if the
/// view's state is larger than memory, and a block of a few rows takes many times what they do.
const BLOCKS_MAX: usize = 8_192;

impl ViewShape {
    /// The shape of a stage graph.
    pub fn of(id: RelationId, incarnation: u64, graph: &StageGraph) -> ViewShape {
        let mut stages: Vec<StageShape> = graph
            .stages
            .iter()
            .map(|stage| {
                let upstream = stage.upstream();
                let input = match stage.source() {
                    Some(relation) => StageInput::Relation(relation),
                    None if upstream.is_empty() && !is_reduce(&stage.root) => StageInput::Fixed,
                    None => StageInput::Stages(upstream),
                };
                StageShape {
                    input,
                    reader: None,
                    is_single: false,
                    has_faucet: stage.faucet.as_ref().is_some_and(|faucet| faucet.is_placed),
                    flow_rows: stage.faucet.as_ref().map(|_| graph.flow.rows() as u64),
                    pieces_max: graph.partitions,
                }
            })
            .collect();
        for stage in 0..stages.len() {
            stages[stage].is_single = match &stages[stage].input {
                StageInput::Relation(_) => false,
                StageInput::Fixed => true,
                StageInput::Stages(upstream) => upstream
                    .iter()
                    .all(|up| graph.stages[*up].output == Output::Single),
            };
            if let StageInput::Stages(upstream) = stages[stage].input.clone() {
                for up in upstream {
                    stages[up].reader = Some(stage);
                    if !stages[stage].is_single {
                        stages[up].pieces_max =
                            graph.partitions.min(BLOCKS_MAX / graph.partitions.max(1)).max(1);
                    }
                }
            }
        }
        ViewShape {
            id,
            incarnation,
            partitions: graph.partitions,
            stages,
            is_batch: graph.priority == Priority::Batch,
        }
    }

    /// Whether a stage may be given its input in batches: one of those that it reads has a faucet.
    pub fn takes_batches(&self, stage: usize) -> bool {
        match &self.stages[stage].input {
            StageInput::Stages(upstream) => upstream.iter().any(|up| self.stages[*up].has_faucet),
            _ => false,
        }
    }

    /// The partitions in which a stage has tasks.
    pub fn partitions_of(&self, stage: &StageShape) -> std::ops::Range<usize> {
        0..if stage.is_single { 1 } else { self.partitions }
    }
}

impl Template {
    /// Whether what tasks leave may be gone when it is asked for again: batches are not kept.
    pub fn has_faucets(&self) -> bool {
        let mut stages = self.views.iter().flat_map(|view| &view.stages);
        stages.any(|stage| stage.has_faucet && stage.reader.is_some())
    }
}

impl StageShape {
    pub fn is_reduce(&self) -> bool {
        matches!(self.input, StageInput::Stages(_))
    }

    /// Whether its tasks have something to keep, operators' state or the contents of the view: those of one partition run
    /// in the order of their epochs.
    pub fn is_stateful(&self) -> bool {
        self.is_reduce() || self.reader.is_none()
    }
}

/// Whether an operator tree reads exchanges.
pub fn is_reduce(root: &Operator) -> bool {
    matches!(root, Operator::Exchange(_)) || root.inputs().into_iter().any(is_reduce)
}
