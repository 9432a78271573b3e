//! What the log has behind a checkpoint, fed again.
//!
//! The writes of all sources that are behind their logs come in the order in which they were made, whole. Epochs that were
//! committed before are cut as they were, at their times (those that a wrong clock put far into the future: now), as far as the epoch
//! log has them; what is behind that is cut again. Writes that are made meanwhile are in the queue behind all this.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_resource::monotask::{Moved, Phase};
use millrace_schedule::id::PipelineId;
use millrace_storage::checkpoint::EpochRecord;
use millrace_storage::{LogBlock, LogReader, rows_bytes};

use crate::error::{Result, RuntimeError};
use crate::feed::Part;
use crate::runtime::durable::restore::Recovery;
use crate::runtime::write::WriteToken;
use crate::runtime::{Engine, Runtime};

/// Epochs that wait to be cut: bounds what of the log is in memory.
const WAITING_MAX: usize = 64;

/// What was fed again.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    pub rows: u64,
    pub epochs: u64,
    /// A read after it sees all that was acknowledged before the start.
    pub token: WriteToken,
}

/// The log of a source behind its checkpoint, block by block.
struct Source {
    relation: RelationId,
    reader: LogReader,
    next: Option<LogBlock>,
}

/// A write, or what of it is behind the checkpoints.
struct Write {
    id: u64,
    parts: Vec<Part>,
}

/// The logs as one, in the order of writes.
struct Merged {
    sources: Vec<Source>,
}

impl Merged {
    fn open(engine: &Engine, behind: &BTreeMap<RelationId, (u64, u64)>) -> Result<Merged> {
        let mut sources = vec![];
        for (relation, (end, head)) in behind {
            let mut reader = engine.logs.read(relation.0, *end, *head)?;
            let next = reader.next().transpose()?;
            sources.push(Source {
                relation: *relation,
                reader,
                next,
            });
        }
        Ok(Merged { sources })
    }

    fn next(&mut self, engine: &Engine) -> Result<Option<Write>> {
        let ids = self.sources.iter().filter_map(|source| source.next.as_ref());
        let Some(id) = ids.map(|block| block.write_id).min() else {
            return Ok(None);
        };
        let mut parts = vec![];
        for source in &mut self.sources {
            while let Some(block) = source.next.take_if(|block| block.write_id == id) {
                source.next = source.reader.next().transpose()?;
                let relation = engine.relation(source.relation)?;
                let end = block.first_offset + block.changes.num_rows() as u64;
                let changes = relation.widen_changes(block.changes)?;
                let watermark = match relation.event_time() {
                    Some(event_time) => {
                        event_time.assumed_of_log(block.first_offset, &block.note, &changes.rows)?
                    }
                    None => None,
                };
                parts.push(Part {
                    relation: source.relation,
                    charge: engine.charge_input(&relation, &changes),
                    changes,
                    end,
                    watermark,
                });
            }
        }
        Ok(Some(Write { id, parts }))
    }
}

/// Feeds writes to their pipelines.
struct Feeder<'a> {
    runtime: &'a Runtime,
    merged: Option<Merged>,
    queues: HashMap<PipelineId, VecDeque<Write>>,
    replayed: Replayed,
}

impl Runtime {
    /// Feeds again what the logs have behind the checkpoints from which sources go on. Returns when all of it is fed; it is
    /// visible where a read waits for the token. From then on views change by the clock, too: with checkpoints that outlive the process
    /// it is to be called once, when all relations are back.
    ///
    /// # Errors
    /// A log is damaged, or the runtime is shutting down.
    pub async fn replay(&self) -> Result<Replayed> {
        let Some(recovery) = self.engine.checkpoints.recovery.lock().take() else {
            self.engine.timers.release();
            return Ok(Replayed::default());
        };
        self.engine.begin_checkpoints(recovery.slices());
        let mut records = match recovery.epochs_from() {
            Some(from) if !recovery.behind.is_empty() => recovery.files.epochs().read(from)?,
            _ => vec![],
        };
        records.retain(|record| is_behind(record, &recovery));
        let timers = &self.engine.timers;
        for record in &mut records {
            if timers.is_to_come(record.now) {
                record.now = timers.now();
            }
        }
        let latest = records.iter().map(|record| record.now).chain(recovery.now());
        if let Some(latest) = latest.filter(|time| !timers.is_to_come(*time)).max() {
            self.engine.timers.not_before(latest);
        }
        self.engine.timers.go_on();
        let mut feeder = Feeder {
            runtime: self,
            merged: Some(Merged::open(&self.engine, &recovery.behind)?),
            queues: HashMap::new(),
            replayed: Replayed::default(),
        };
        for (relation, (_, head)) in &recovery.behind {
            feeder.replayed.token.ends.insert(*relation, *head);
        }
        *self.engine.checkpoints.catching_up.lock() = feeder.replayed.token.ends.clone();
        for record in records {
            feeder.epoch(&record).await?;
        }
        feeder.rest().await?;
        self.engine.timers.release();
        Ok(feeder.replayed)
    }

    /// Waits until all sources are where their logs were at the start.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn caught_up(&self) -> Result<()> {
        self.until(|engine| {
            let behind: Vec<RelationId> = {
                let mut behind = engine.checkpoints.catching_up.lock();
                behind.retain(|relation, head| engine.versions.end(*relation) < *head);
                behind.keys().copied().collect()
            };
            engine.hurry(&behind);
            behind.is_empty()
        })
        .await
    }

    /// Sources that are not yet where their logs were at the start.
    pub fn catching_up(&self) -> BTreeSet<RelationId> {
        let mut behind = self.engine.checkpoints.catching_up.lock();
        behind.retain(|relation, head| self.engine.versions.end(*relation) < *head);
        behind.keys().copied().collect()
    }
}

/// Whether an epoch came after the checkpoint that its sources go on from.
fn is_behind(record: &EpochRecord, recovery: &Recovery) -> bool {
    record.ends.iter().any(|(relation, end)| {
        let relation = RelationId(*relation);
        match recovery.behind.get(&relation) {
            // Of an epoch without input the time tells.
            Some((checkpointed, _)) if end == checkpointed => {
                recovery.time_of(relation).is_some_and(|time| record.now > time)
            }
            Some((checkpointed, _)) => end > checkpointed,
            None => false,
        }
    })
}

impl Feeder<'_> {
    /// Feeds what an epoch took, as one that is to be cut as it was.
    async fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        let ends: HashMap<RelationId, u64> = (record.ends.iter())
            .map(|(relation, end)| (RelationId(*relation), *end))
            .collect();
        let is_reached = |part: &Part| ends.get(&part.relation).is_some_and(|end| part.end <= *end);
        // Of an epoch all of one pipeline then; what they are in now may be several.
        while self.is_short_of(&ends) {
            if !self.pull().await? {
                break;
            }
        }
        let engine = Arc::clone(&self.runtime.engine);
        let pipelines: BTreeSet<PipelineId> = (ends.keys())
            .filter_map(|relation| engine.versions.pipeline_of(*relation))
            .collect();
        for pipeline in pipelines {
            let queue = self.queues.entry(pipeline).or_default();
            let mut parts = vec![];
            while queue
                .front()
                .is_some_and(|write| write.parts.iter().any(is_reached))
            {
                parts.extend(queue.pop_front().into_iter().flat_map(|write| write.parts));
            }
            self.submit(pipeline, parts, Some(record.now)).await?;
        }
        self.replayed.epochs += 1;
        Ok(())
    }

    /// Whether writes that belong to an epoch with these ends are still in the log.
    fn is_short_of(&self, ends: &HashMap<RelationId, u64>) -> bool {
        let Some(merged) = &self.merged else { return false };
        merged.sources.iter().any(|source| {
            let next = source.next.as_ref().map(|block| block.first_offset);
            let end = ends.get(&source.relation);
            next.zip(end).is_some_and(|(next, end)| next < *end)
        })
    }

    /// Feeds what no recorded epoch took.
    async fn rest(&mut self) -> Result<()> {
        loop {
            let waiting: Vec<PipelineId> = self.queues.keys().copied().collect();
            for pipeline in waiting {
                for write in self.queues.remove(&pipeline).unwrap_or_default() {
                    self.submit(pipeline, write.parts, None).await?;
                }
            }
            if !self.pull().await? {
                return Ok(());
            }
        }
    }

    /// Takes the next write out of the logs; false: there is none.
    async fn pull(&mut self) -> Result<bool> {
        let engine = Arc::clone(&self.runtime.engine);
        let Some(mut merged) = self.merged.take() else {
            return Ok(false);
        };
        let read = {
            let engine = Arc::clone(&engine);
            move || {
                let write = merged.next(&engine);
                let parts = write.iter().flatten().flat_map(|write| &write.parts);
                let mut moved = Moved::default();
                for changes in parts.map(|part| &part.changes) {
                    moved.bytes += rows_bytes(&changes.rows) as u64;
                    moved.rows += changes.num_rows() as u64;
                }
                ((merged, write), moved)
            }
        };
        let read = engine.machine.data().serve(Phase::Read, 0, read).await;
        let ((merged, write), _) = read.map_err(|error| RuntimeError::Internal(error.to_string()))?;
        self.merged = Some(merged);
        let Some(write) = write? else {
            return Ok(false);
        };
        let relations: Vec<RelationId> = write.parts.iter().map(|part| part.relation).collect();
        let mut pipelines: BTreeSet<PipelineId> = (relations.iter())
            .filter_map(|relation| engine.versions.pipeline_of(*relation))
            .collect();
        if pipelines.len() > 1 {
            // What was written together is read together.
            engine.quiesce(relations.clone()).await?.resume(vec![], vec![]);
            let mut joined: Vec<Write> = vec![];
            for pipeline in &pipelines {
                joined.extend(self.queues.remove(pipeline).unwrap_or_default());
            }
            joined.sort_by_key(|write| write.id);
            pipelines = (relations.iter())
                .filter_map(|relation| engine.versions.pipeline_of(*relation))
                .collect();
            if let Some(pipeline) = pipelines.first() {
                self.queues.insert(*pipeline, joined.into());
            }
        }
        let pipeline = pipelines.first().ok_or(RuntimeError::SHUTTING_DOWN)?;
        self.replayed.rows += write
            .parts
            .iter()
            .map(|part| part.changes.num_rows() as u64)
            .sum::<u64>();
        self.queues.entry(*pipeline).or_default().push_back(write);
        Ok(true)
    }

    async fn submit(&self, pipeline: PipelineId, parts: Vec<Part>, now: Option<i64>) -> Result<()> {
        let engine = &self.runtime.engine;
        engine.writes.feeds.lock().submit_replayed(pipeline, parts, now);
        engine.workers.input_arrived(pipeline);
        // A pipeline that has become part of another has nothing that waits.
        let is_room = |engine: &Engine| {
            let is_room = engine.writes.feeds.lock().len(pipeline) <= WAITING_MAX;
            if !is_room {
                // This waits for it.
                engine.workers.hurry(pipeline);
            }
            is_room
        };
        self.runtime.until(is_room).await
    }
}
