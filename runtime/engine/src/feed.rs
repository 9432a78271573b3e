//! What waits to be cut: writes in the order of their submission, one queue a pipeline. It has space for so much
//! ([`FeedLimits`]); whoever writes waits for space before the log has the write (`runtime/backpressure.rs`).
//!
//! A write enters when it is handed to the log and may be cut once it is durable. A cut takes whole writes from the front,
//! up to a number of rows, so that a transaction over several relations is in one epoch, and an epoch is always a prefix of
//! every input's log.
//!
//! What a cut took is remembered until a checkpoint contains it: when a worker is lost, the epochs since then are cut again,
//! as they were. A cutter whose template is void gets nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_planner::watermark::Watermarks;
use millrace_resource::memory::Charge;
use millrace_schedule::id::PipelineId;
use millrace_schedule::message::EpochTime;
use millrace_storage::ChangeBatch;

/// An epoch's share of one relation's log.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    pub changes: Vec<ChangeBatch>,
    /// For as long as the rows are kept.
    pub charges: Vec<Arc<Charge>>,
}

/// Rows after which a cut is closed: bounds what an epoch holds in memory.
pub const CUT_ROWS_MAX: usize = 262_144;

/// How much may wait to be cut, before writes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    pub rows: usize,
    pub bytes: usize,
}

impl Default for FeedLimits {
    /// Four full cuts: as many as there may be epochs in flight.
    fn default() -> Self {
        FeedLimits {
            rows: 4 * CUT_ROWS_MAX,
            bytes: 256 << 20,
        }
    }
}

/// What waits to be cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedSize {
    pub writes: usize,
    pub rows: usize,
    pub bytes: usize,
}

/// One relation's part of a write.
#[derive(Debug, Clone)]
pub struct Part {
    pub relation: RelationId,
    pub changes: ChangeBatch,
    /// The log's offset after this part; known when it is durable.
    pub end: u64,
    /// The watermark that its rows let one assume, if the stream has one.
    pub watermark: Option<i64>,
    /// For its rows, until their epoch is done.
    pub charge: Arc<Charge>,
}

#[derive(Debug)]
struct Write {
    sequence: u64,
    parts: Vec<Part>,
    is_durable: bool,
    /// Since when, in the runtime's nanoseconds; none: it was written before a restart, or is fed by a back-fill.
    durable_at: Option<u64>,
    /// An epoch that was committed before a restart: it is cut by itself, and, where that is known, at the time at which it
    /// was.
    replayed_at: Option<i64>,
}

impl Write {
    fn size(&self) -> FeedSize {
        FeedSize {
            writes: 1,
            rows: self.parts.iter().map(|part| part.changes.num_rows()).sum(),
            bytes: self.parts.iter().map(|part| part.charge.bytes()).sum(),
        }
    }
}

/// The writes of a pipeline.
#[derive(Debug, Default)]
struct Queue {
    writes: VecDeque<Write>,
    size: FeedSize,
}

impl Queue {
    fn push(&mut self, write: Write) {
        let size = write.size();
        self.size.writes += size.writes;
        self.size.rows += size.rows;
        self.size.bytes += size.bytes;
        self.writes.push_back(write);
    }

    fn pop(&mut self) -> Option<Write> {
        let write = self.writes.pop_front()?;
        let size = write.size();
        self.size.writes -= size.writes;
        self.size.rows -= size.rows;
        self.size.bytes -= size.bytes;
        Some(write)
    }

    /// Changes what waits in any way.
    fn edit(&mut self, edit: impl FnOnce(&mut VecDeque<Write>)) {
        let mut writes = std::mem::take(&mut self.writes);
        edit(&mut writes);
        self.size = FeedSize::default();
        writes.into_iter().for_each(|write| self.push(write));
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Feeds {
    queues: HashMap<PipelineId, Queue>,
    pipeline_of: HashMap<RelationId, PipelineId>,
    next_sequence: u64,
    /// Cuts that may have to be taken again.
    retained: BTreeMap<(PipelineId, u64), Taken>,
    /// The newest template under which a cut was asked for.
    fences: HashMap<PipelineId, u64>,
    /// Watermarks of streams, as of what was cut.
    watermarks: Watermarks,
    /// What a back-fill's pipeline is told instead of those of its own streams, of which it has none.
    told: HashMap<PipelineId, Watermarks>,
}

/// What a cutter asks for.
#[derive(Debug, Clone, Copy)]
pub struct CutRequest {
    pub pipeline: PipelineId,
    /// Of the template under which it asks.
    pub version: u64,
    pub epoch: u64,
    /// The cut is to be remembered.
    pub is_retained: bool,
    /// Only a cut that was taken before is wanted.
    pub is_replay: bool,
    pub is_checkpoint: bool,
}

/// What a cutter gets.
#[derive(Debug)]
pub enum CutAnswer<T> {
    Taken(T),
    /// The epoch was not cut before.
    New,
    /// The template under which it was asked for is void.
    Void,
}

/// What a cut took.
#[derive(Debug, Clone, Default)]
pub struct Taken {
    pub changes: HashMap<RelationId, Cut>,
    /// Offsets that each relation has reached.
    pub ends: HashMap<RelationId, u64>,
    pub time: EpochTime,
    pub is_checkpoint: bool,
    /// It was taken before.
    pub is_again: bool,
    /// Durable writes were left for the next epoch.
    pub more: bool,
    /// Since when the oldest of its rows were durable, in the runtime's nanoseconds, where that is known.
    pub oldest_at: Option<u64>,
}

impl Feeds {
    /// Binds a relation to a pipeline's queue.
    pub fn attach(&mut self, relation: RelationId, pipeline: PipelineId) {
        self.pipeline_of.insert(relation, pipeline);
        self.queues.entry(pipeline).or_default();
    }

    pub fn detach(&mut self, relation: RelationId) {
        self.watermarks.remove(&relation);
        if let Some(pipeline) = self.pipeline_of.remove(&relation)
            && let Some(queue) = self.queues.get_mut(&pipeline)
        {
            queue.edit(|writes| {
                writes.retain_mut(|write| {
                    write.parts.retain(|part| part.relation != relation);
                    // Nobody tells of it when it is durable, and those behind it would wait for that.
                    !write.parts.is_empty()
                });
            });
        }
    }

    pub fn remove_pipeline(&mut self, pipeline: PipelineId) {
        self.queues.remove(&pipeline);
        self.fences.remove(&pipeline);
        self.told.remove(&pipeline);
    }

    /// Whoever cut the pipeline so far is not to do it again, and what was cut is not to be cut again.
    pub fn void(&mut self, pipeline: PipelineId) {
        if let Some(fence) = self.fences.get_mut(&pipeline) {
            *fence += 1;
        }
        self.release(pipeline, u64::MAX);
    }

    /// Cuts up to this epoch are not taken again.
    pub fn release(&mut self, pipeline: PipelineId, to: u64) {
        self.retained
            .retain(|(of, epoch), _| *of != pipeline || *epoch > to);
    }

    pub fn pipeline_of(&self, relation: RelationId) -> Option<PipelineId> {
        self.pipeline_of.get(&relation).copied()
    }

    /// Two queues become one, in the order of submission.
    pub fn join(&mut self, into: PipelineId, from: PipelineId) {
        for pipeline in self
            .pipeline_of
            .values_mut()
            .filter(|pipeline| **pipeline == from)
        {
            *pipeline = into;
        }
        self.release(from, u64::MAX);
        self.fences.remove(&from);
        let other = self.queues.remove(&from).unwrap_or_default();
        let queue = self.queues.entry(into).or_default();
        queue.edit(|writes| {
            writes.extend(other.writes);
            writes.make_contiguous().sort_by_key(|write| write.sequence);
        });
    }

    /// Enters a write that is on its way to the log; returns its number.
    pub fn submit(&mut self, pipeline: PipelineId, parts: Vec<Part>) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.queues.entry(pipeline).or_default().push(Write {
            sequence,
            parts,
            is_durable: false,
            durable_at: None,
            replayed_at: None,
        });
        sequence
    }

    /// Enters rows that come from storage already.
    pub fn submit_durable(&mut self, pipeline: PipelineId, parts: Vec<Part>) {
        self.submit(pipeline, parts);
        if let Some(write) = self.last_mut(pipeline) {
            write.is_durable = true;
        }
    }

    /// Enters rows that were written before a restart; `at`: all that an epoch of that time took.
    pub fn submit_replayed(&mut self, pipeline: PipelineId, parts: Vec<Part>, at: Option<i64>) {
        self.submit_durable(pipeline, parts);
        if let Some(write) = self.last_mut(pipeline) {
            write.replayed_at = at;
        }
    }

    fn last_mut(&mut self, pipeline: PipelineId) -> Option<&mut Write> {
        self.queues.get_mut(&pipeline)?.writes.back_mut()
    }

    /// The write is durable at this time; `ends` has the offset at which its part of each relation ends. Returns the pipeline in whose
    /// queue it is now; none: all of its relations have been dropped.
    pub fn acknowledge(&mut self, sequence: u64, ends: &[(RelationId, u64)], at: u64) -> Option<PipelineId> {
        let pipeline = self.pipeline_of_any(ends.iter().map(|(relation, _)| *relation))?;
        let write = self.find(pipeline, sequence)?;
        for part in &mut write.parts {
            let end = ends.iter().find(|(relation, _)| *relation == part.relation);
            part.end = end.map_or(part.end, |(_, end)| *end);
        }
        (write.is_durable, write.durable_at) = (true, Some(at));
        Some(pipeline)
    }

    /// The write to these relations failed: it never was. Returns the pipeline in whose queue it was.
    pub fn withdraw(
        &mut self,
        sequence: u64,
        relations: impl Iterator<Item = RelationId>,
    ) -> Option<PipelineId> {
        let pipeline = self.pipeline_of_any(relations)?;
        let queue = self.queues.get_mut(&pipeline)?;
        queue.edit(|writes| writes.retain(|write| write.sequence != sequence));
        Some(pipeline)
    }

    /// The pipeline of the relations of a write, of which some may have been dropped since.
    fn pipeline_of_any(&self, mut relations: impl Iterator<Item = RelationId>) -> Option<PipelineId> {
        relations.find_map(|relation| self.pipeline_of(relation))
    }

    fn find(&mut self, pipeline: PipelineId, sequence: u64) -> Option<&mut Write> {
        let queue = &mut self.queues.get_mut(&pipeline)?.writes;
        let position = queue
            .binary_search_by_key(&sequence, |write| write.sequence)
            .ok()?;
        queue.get_mut(position)
    }

    /// Writes that wait.
    pub fn len(&self, pipeline: PipelineId) -> usize {
        self.size(pipeline).writes
    }

    /// Whether a whole cut waits: no epoch takes more.
    pub fn has_whole_cut(&self, pipeline: PipelineId, bytes_max: usize) -> bool {
        let size = self.size(pipeline);
        size.rows >= CUT_ROWS_MAX || size.bytes >= bytes_max
    }

    /// All that waits, durable or not.
    pub fn size(&self, pipeline: PipelineId) -> FeedSize {
        self.queues
            .get(&pipeline)
            .map_or_else(FeedSize::default, |queue| queue.size)
    }

    /// Takes the durable writes at the front, up to [`CUT_ROWS_MAX`] rows or so many bytes; or what was taken for this epoch before.
    pub fn cut(&mut self, request: CutRequest, now: i64, bytes_max: usize) -> CutAnswer<Taken> {
        let CutRequest { pipeline, epoch, .. } = request;
        let fence = self.fences.entry(pipeline).or_default();
        if request.version < *fence {
            return CutAnswer::Void;
        }
        *fence = request.version;
        if let Some(known) = self.retained.get(&(pipeline, epoch)) {
            return CutAnswer::Taken(Taken {
                is_again: true,
                // The cutter goes on asking by itself.
                more: true,
                ..known.clone()
            });
        }
        if request.is_replay {
            return CutAnswer::New;
        }
        let mut taken = Taken {
            is_checkpoint: request.is_checkpoint,
            ..Taken::default()
        };
        let now = self.take(pipeline, &mut taken, bytes_max).unwrap_or(now);
        let watermarks = self.watermarks_of(pipeline);
        taken.time = EpochTime {
            now,
            watermarks: Arc::new(watermarks),
        };
        if request.is_retained {
            self.retained.insert((pipeline, epoch), taken.clone());
        }
        CutAnswer::Taken(taken)
    }

    /// The watermark of a stream as its log has it. It does not go back by this.
    pub fn set_watermark(&mut self, relation: RelationId, watermark: i64) {
        let known = self.watermarks.entry(relation).or_insert(watermark);
        *known = (*known).max(watermark);
    }

    /// The watermark of a stream is this, although what was cut let one assume a later one.
    pub fn set_watermark_back(&mut self, relation: RelationId, watermark: i64) {
        self.watermarks.insert(relation, watermark);
    }

    /// Whether rows of a relation wait to be cut, durable or not.
    pub fn has_waiting(&self, relation: RelationId) -> bool {
        let pipeline = self.pipeline_of.get(&relation);
        let queue = pipeline.and_then(|pipeline| self.queues.get(pipeline));
        queue.is_some_and(|queue| {
            let mut parts = queue.writes.iter().flat_map(|write| &write.parts);
            parts.any(|part| part.relation == relation)
        })
    }

    /// The watermarks of all streams, as of what was cut.
    pub fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// From now on the epochs of a back-fill go by these watermarks.
    pub fn tell_watermarks(&mut self, job: PipelineId, watermarks: Watermarks) {
        self.told.insert(job, watermarks);
    }

    fn watermarks_of(&self, pipeline: PipelineId) -> Watermarks {
        if let Some(told) = self.told.get(&pipeline) {
            return told.clone();
        }
        let of_pipeline = |relation: &RelationId| self.pipeline_of.get(relation) == Some(&pipeline);
        let known = self
            .watermarks
            .iter()
            .filter(|(relation, _)| of_pipeline(relation));
        known
            .map(|(relation, watermark)| (*relation, *watermark))
            .collect()
    }

    /// Returns the time of the epoch, if it is one that is cut again.
    fn take(&mut self, pipeline: PipelineId, taken: &mut Taken, bytes_max: usize) -> Option<i64> {
        let queue = self.queues.get_mut(&pipeline)?;
        let (mut rows, mut bytes, mut is_first, mut replayed_at) = (0, 0, true, None);
        while let Some(write) = queue.writes.front() {
            let is_next = write.replayed_at.is_some() && !is_first;
            let is_full = rows >= CUT_ROWS_MAX || bytes >= bytes_max;
            if !write.is_durable || is_full || is_next || replayed_at.is_some() {
                break;
            }
            is_first = false;
            replayed_at = write.replayed_at;
            taken.oldest_at = match (taken.oldest_at, write.durable_at) {
                (Some(known), Some(at)) => Some(known.min(at)),
                (known, at) => known.or(at),
            };
            for part in queue.pop().into_iter().flat_map(|write| write.parts) {
                rows += part.changes.num_rows();
                bytes += part.charge.bytes();
                taken.ends.insert(part.relation, part.end);
                if let Some(watermark) = part.watermark {
                    let known = self.watermarks.entry(part.relation).or_insert(watermark);
                    *known = (*known).max(watermark);
                }
                if part.changes.num_rows() > 0 {
                    let cut = taken.changes.entry(part.relation).or_default();
                    cut.changes.push(part.changes);
                    cut.charges.push(part.charge);
                }
            }
        }
        taken.more = queue.writes.front().is_some_and(|write| write.is_durable);
        replayed_at
    }
}

#[cfg(test)]
mod tests;
