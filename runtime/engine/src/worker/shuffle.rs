//! What tasks leave for other tasks to fetch, until its epoch is done everywhere.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use millrace_planner::RelationId;
use millrace_resource::memory::Charge;
use millrace_schedule::id::{PipelineId, TaskId};
use millrace_schedule::local::share;
use millrace_storage::ChangeBatch;
use serde::{Deserialize, Serialize};

use crate::feed::Cut;

/// Names rows that wait on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Block {
    /// A map's share of a relation's cut.
    Cut {
        relation: RelationId,
        partition: usize,
        /// See [`millrace_schedule::template::StageShape::pieces_max`].
        pieces_max: usize,
    },
    /// What a stage sent to a partition of its reader.
    Exchange {
        view: RelationId,
        stage: usize,
        partition: usize,
    },
    /// What changed in a partition of a view.
    Changes { view: RelationId, partition: usize },
    /// What a copy of a task would have sent to a partition of its stage's reader.
    Copy { task: TaskId, partition: usize },
}

#[derive(Debug, Default)]
struct Kept {
    cuts: HashMap<RelationId, Cut>,
    /// By the partition of the task that left it: one that runs again leaves it again.
    exchanges: HashMap<(RelationId, usize, usize), BTreeMap<usize, Vec<ChangeBatch>>>,
    changes: HashMap<(RelationId, usize), Vec<ChangeBatch>>,
    /// For what tasks left, until the epoch is released.
    charges: Vec<Charge>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shuffle {
    epochs: HashMap<(PipelineId, u64), Kept>,
    /// What copies of others' tasks emitted, by receiving partition.
    copies: HashMap<(PipelineId, TaskId), Copied>,
}

#[derive(Debug)]
struct Copied {
    by_partition: Vec<Vec<ChangeBatch>>,
    charge: Option<Charge>,
}

impl Shuffle {
    pub fn keep_cut(&mut self, pipeline: PipelineId, epoch: u64, relation: RelationId, cut: Cut) {
        self.epochs
            .entry((pipeline, epoch))
            .or_default()
            .cuts
            .insert(relation, cut);
    }

    /// Adds what one task of a stage sent.
    pub fn keep_exchanged(
        &mut self,
        pipeline: PipelineId,
        epoch: u64,
        (view, stage, from): (RelationId, usize, usize),
        by_partition: Vec<Vec<ChangeBatch>>,
        charge: Option<Charge>,
    ) {
        let kept = self.epochs.entry((pipeline, epoch)).or_default();
        kept.charges.extend(charge);
        for (partition, rows) in by_partition
            .into_iter()
            .enumerate()
            .filter(|(_, rows)| !rows.is_empty())
        {
            kept.exchanges
                .entry((view, stage, partition))
                .or_default()
                .insert(from, rows);
        }
    }

    pub fn keep_copy(
        &mut self,
        pipeline: PipelineId,
        task: TaskId,
        by_partition: Vec<Vec<ChangeBatch>>,
        charge: Option<Charge>,
    ) {
        let copied = Copied { by_partition, charge };
        self.copies.insert((pipeline, task), copied);
    }

    pub fn drop_copies(&mut self, pipeline: PipelineId, tasks: &[TaskId]) {
        for task in tasks {
            self.copies.remove(&(pipeline, *task));
        }
    }

    pub fn keep_changes(
        &mut self,
        pipeline: PipelineId,
        epoch: u64,
        (view, partition): (RelationId, usize),
        rows: Vec<ChangeBatch>,
        charge: Option<Charge>,
    ) {
        let kept = self.epochs.entry((pipeline, epoch)).or_default();
        kept.charges.extend(charge);
        kept.changes.insert((view, partition), rows);
    }

    /// Bytes of what is kept.
    pub fn bytes(&self) -> usize {
        let cuts = self.epochs.values().flat_map(|kept| kept.cuts.values());
        let input = cuts.flat_map(|cut| &cut.charges).map(|charge| charge.bytes());
        let left = self.epochs.values().flat_map(|kept| &kept.charges);
        let copies = self.copies.values().filter_map(|copied| copied.charge.as_ref());
        input.sum::<usize>() + left.chain(copies).map(Charge::bytes).sum::<usize>()
    }

    /// The rows of a block; none if nobody left any. There is no block of a copy that was dropped.
    pub fn fetch(&self, pipeline: PipelineId, epoch: u64, block: Block) -> Option<Vec<ChangeBatch>> {
        if let Block::Copy { task, partition } = block {
            let copied = self.copies.get(&(pipeline, task))?;
            return Some(copied.by_partition.get(partition).cloned().unwrap_or_default());
        }
        Some(self.rows(pipeline, epoch, block))
    }

    fn rows(&self, pipeline: PipelineId, epoch: u64, block: Block) -> Vec<ChangeBatch> {
        let Some(kept) = self.epochs.get(&(pipeline, epoch)) else {
            return vec![];
        };
        match block {
            Block::Copy { .. } => vec![],
            Block::Cut {
                relation,
                partition,
                pieces_max,
            } => kept
                .cuts
                .get(&relation)
                .map_or(vec![], |cut| slice(&cut.changes, partition, pieces_max)),
            Block::Exchange {
                view,
                stage,
                partition,
            } => kept
                .exchanges
                .get(&(view, stage, partition))
                .map_or(vec![], |by| by.values().flatten().cloned().collect()),
            Block::Changes { view, partition } => {
                kept.changes.get(&(view, partition)).cloned().unwrap_or_default()
            }
        }
    }

    pub fn release(&mut self, pipeline: PipelineId, epochs: &RangeInclusive<u64>) {
        self.epochs
            .retain(|(of, epoch), _| *of != pipeline || !epochs.contains(epoch));
        self.copies
            .retain(|(of, task), _| *of != pipeline || !epochs.contains(&task.epoch));
    }
}

fn slice(batches: &[ChangeBatch], partition: usize, pieces_max: usize) -> Vec<ChangeBatch> {
    let rows: usize = batches.iter().map(ChangeBatch::num_rows).sum();
    let range = share(rows as u64, partition, pieces_max);
    let (start, end) = (range.start as usize, range.end as usize);
    let mut shared = vec![];
    let mut offset = 0;
    for batch in batches {
        let (from, to) = (start.max(offset), end.min(offset + batch.num_rows()));
        if from < to {
            shared.push(batch.slice(from - offset, to - from));
        }
        offset += batch.num_rows();
    }
    shared
}
