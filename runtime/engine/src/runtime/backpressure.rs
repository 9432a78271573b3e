//! Where writes wait: for room in the queue before their epochs, and for memory.
//!
//! A pipeline that falls behind has its own queue full, and its own sources wait; the writes of other pipelines find theirs as
//! they left it. Who waits has nothing in the log yet: when it gives up, nothing of its write is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_planner::RelationId;
use millrace_schedule::id::PipelineId;

use super::{Engine, Runtime};
use crate::error::{Result, RuntimeError};
use crate::feed::{FeedLimits, FeedSize};
use crate::relation::Relation;
use crate::worker::ViewInstance;

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    FeedRows(usize),
    FeedBytes(usize),
    Memory,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::FeedRows(most) => write!(f, "the next epochs ({most} rows wait)"),
            Lack::FeedBytes(most) => write!(f, "the next epochs ({most} bytes wait)"),
            Lack::Memory => f.write_str("memory"),
        }
    }
}

/// Writes of a pipeline that wait, and have waited.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    waiting: usize,
    since: Option<Instant>,
    lack: Option<Lack>,
    waited: Duration,
    writes_waited: u64,
}

/// The queue before the epochs of a pipeline, and who waits for space in it.
#[derive(Debug, Clone)]
pub struct FeedStatus {
    pub pipeline: PipelineId,
    /// Streams and tables that feed it, in order.
    pub sources: Vec<RelationId>,
    pub size: FeedSize,
    pub limits: FeedLimits,
    /// Writes that wait for space now, since when there have been any, and what they lack.
    pub writes_waiting: usize,
    pub since: Option<Instant>,
    pub lack: Option<Lack>,
    /// How long writes waited, added up, and how many of them did.
    pub waited: Duration,
    pub writes_waited: u64,
    /// The view whose task has been running for the longest now, the stage of the task, and since when.
    pub behind: Option<(RelationId, usize, Instant)>,
}

/// A write that waits; when this is dropped it does no more.
struct Waiting<'a> {
    engine: &'a Engine,
    pipeline: PipelineId,
    began: Instant,
}

impl<'a> Waiting<'a> {
    fn begin(engine: &'a Engine, pipeline: PipelineId) -> Waiting<'a> {
        let began = Instant::now();
        let mut meters = engine.writes.backpressure.lock();
        let meter = meters.entry(pipeline).or_default();
        meter.waiting += 1;
        meter.writes_waited += 1;
        meter.since.get_or_insert(began);
        Waiting {
            engine,
            pipeline,
            began,
        }
    }

    fn lacks(&self, lack: Lack) {
        if let Some(meter) = self.engine.writes.backpressure.lock().get_mut(&self.pipeline) {
            meter.lack = Some(lack);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(meter) = self.engine.writes.backpressure.lock().get_mut(&self.pipeline) {
            meter.waiting -= 1;
            meter.waited += self.began.elapsed();
            if meter.waiting == 0 {
                meter.since = None;
                meter.lack = None;
            }
        }
    }
}

impl Runtime {
    /// Waits while backpressure holds back writes to a stream or table.
    ///
    /// # Errors
    /// It takes longer than `wait_max`.
    pub async fn wait_for_backpressure(
        &self,
        relation: RelationId,
        wait_max: Option<Duration>,
    ) -> Result<()> {
        self.engine.wait_for_backpressure(&[relation], wait_max).await
    }

    /// The queues before the epochs, in order of the pipelines.
    pub fn feeds(&self) -> Vec<FeedStatus> {
        self.engine.feed_statuses()
    }
}

impl Engine {
    /// Waits while backpressure holds back writes to these relations.
    ///
    /// # Errors
    /// It takes longer than `wait_max`.
    pub async fn wait_for_backpressure(
        &self,
        relations: &[RelationId],
        wait_max: Option<Duration>,
    ) -> Result<()> {
        let memory = &self.machine.memory;
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            let mut freed = std::pin::pin!(memory.freed());
            freed.as_mut().enable();
            let Some((pipeline, lack)) = self.held_back_by(relations) else {
                return Ok(());
            };
            let waiting = waiting.get_or_insert_with(|| {
                memory.note_wait();
                Waiting::begin(self, pipeline)
            });
            waiting.lacks(lack);
            let Some(wait) = wait_max else {
                freed.await;
                continue;
            };
            let deadline = tokio::time::Instant::from_std(waiting.began + wait);
            if tokio::time::timeout_at(deadline, freed).await.is_err() {
                let waited = waiting.began.elapsed();
                let (cause, why) = match lack {
                    Lack::Memory => ("memory is short", memory.shown()),
                    lack => ("views are behind", format!("the write waited for {lack}")),
                };
                return Err(RuntimeError::WriteTimedOut { waited, cause, why });
            }
        }
    }

    /// What holds back a write to these relations, and of which pipeline.
    fn held_back_by(&self, relations: &[RelationId]) -> Option<(PipelineId, Lack)> {
        let limits = self.options.feed_limits;
        let pipelines: BTreeSet<PipelineId> = {
            let feeds = self.writes.feeds.lock();
            let pipelines: BTreeSet<PipelineId> =
                relations.iter().filter_map(|id| feeds.pipeline_of(*id)).collect();
            for pipeline in &pipelines {
                let size = feeds.size(*pipeline);
                if size.rows >= limits.rows {
                    return Some((*pipeline, Lack::FeedRows(size.rows)));
                }
                if size.bytes >= limits.bytes {
                    return Some((*pipeline, Lack::FeedBytes(size.bytes)));
                }
            }
            pipelines
        };
        let memory = &self.machine.memory;
        if memory.room(usize::MAX, 1) {
            return None;
        }
        let (mut held, mut sharing) = (0, BTreeSet::new());
        for id in self.relations.read().keys() {
            if let Some(pipeline) = self.versions.pipeline_of(*id) {
                sharing.insert(pipeline);
                if pipelines.contains(&pipeline) {
                    held += memory.held(*id);
                }
            }
        }
        let pipeline = pipelines.first().copied()?;
        (!memory.room(held, sharing.len())).then_some((pipeline, Lack::Memory))
    }

    fn feed_statuses(&self) -> Vec<FeedStatus> {
        let relations: Vec<Arc<Relation>> = self.relations.read().values().cloned().collect();
        let mut by_pipeline: BTreeMap<PipelineId, (Vec<RelationId>, Vec<Arc<ViewInstance>>)> =
            BTreeMap::new();
        for relation in &relations {
            if let Some(pipeline) = self.versions.pipeline_of(relation.id()) {
                let (sources, views) = by_pipeline.entry(pipeline).or_default();
                match relation.as_ref() {
                    Relation::View(view) => views.push(Arc::clone(view)),
                    source => sources.push(source.id()),
                }
            }
        }
        let mut meters = self.writes.backpressure.lock();
        meters.retain(|pipeline, meter| meter.waiting > 0 || by_pipeline.contains_key(pipeline));
        let feeds = self.writes.feeds.lock();
        let status = |(pipeline, (mut sources, views)): (PipelineId, (Vec<RelationId>, Vec<_>))| {
            sources.sort_unstable();
            let nobody = Backpressure::default();
            let meter = meters.get(&pipeline).unwrap_or(&nobody);
            let running = views.iter().filter_map(|view: &Arc<ViewInstance>| {
                let (stage, since) = view.longest_task()?;
                Some((view.id, stage, since))
            });
            FeedStatus {
                pipeline,
                sources,
                size: feeds.size(pipeline),
                limits: self.options.feed_limits,
                writes_waiting: meter.waiting,
                since: meter.since,
                lack: meter.lack,
                waited: meter.waited,
                writes_waited: meter.writes_waited,
                behind: running.min_by_key(|(_, _, since)| *since),
            }
        };
        by_pipeline.into_iter().map(status).collect()
    }
}
