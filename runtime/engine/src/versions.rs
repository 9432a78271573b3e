//! Which epoch of each pipeline is committed, and who still reads an older one.
//!
//! One lock guards both, so that a reader's pin and the writers' low-water mark cannot miss each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_planner::RelationId;
use millrace_planner::watermark::Watermarks;
use millrace_schedule::id::{PipelineId, Version};
use millrace_schedule::message::EpochTime;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The last committed epoch of a pipeline.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    pub epoch: u64,
    /// Log offsets that the epoch contains, by source.
    pub ends: HashMap<RelationId, u64>,
    /// The epoch's time, in microseconds since 1970-01-01 00:00 UTC.
    pub now: i64,
    /// The watermarks of its streams that the epoch's tasks were told.
    pub watermarks: Watermarks,
}

/// What an epoch is to contain when it is committed.
#[derive(Debug, Clone)]
struct Uncommitted {
    ends: HashMap<RelationId, u64>,
    now: i64,
    watermarks: Arc<Watermarks>,
    /// When it was cut.
    at: Instant,
}

/// The epochs of a pipeline that were cut and are not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    pub epochs: usize,
    /// Since the oldest of them was cut.
    pub age: Duration,
}

#[derive(Debug, Default)]
struct State {
    pipelines: HashMap<PipelineId, Committed>,
    pipeline_of: HashMap<RelationId, PipelineId>,
    /// Offsets and time of epochs that are not committed yet.
    cuts: BTreeMap<(PipelineId, u64), Uncommitted>,
    pins: BTreeMap<u64, Vec<(RelationId, Version)>>,
    /// Pipelines whose views are being restored, and views that are being filled again: readers wait.
    recovering: HashSet<PipelineId>,
    abandoned: HashSet<RelationId>,
    next_pin: u64,
    epochs_total: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Versions {
    state: Mutex<State>,
    progress: watch::Sender<u64>,
}

/// Keeps versions readable while it lives.
#[derive(Debug)]
pub struct Pin {
    id: u64,
    versions: Arc<Versions>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.versions.state.lock().pins.remove(&self.id);
    }
}

impl Versions {
    pub fn new() -> Arc<Versions> {
        Arc::new(Versions {
            state: Mutex::default(),
            progress: watch::channel(0).0,
        })
    }

    /// A receiver that changes whenever more can be seen.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Puts a relation into a pipeline; `end`: what of its log is visible at once.
    pub fn attach(&self, relation: RelationId, pipeline: PipelineId, end: Option<u64>) {
        {
            let mut state = self.state.lock();
            state.pipeline_of.insert(relation, pipeline);
            state.abandoned.remove(&relation);
            let committed = state.pipelines.entry(pipeline).or_default();
            if let Some(end) = end {
                committed.ends.insert(relation, end);
            }
        }
        self.progress.send_modify(|count| *count += 1);
    }

    pub fn detach(&self, relation: RelationId) {
        let mut state = self.state.lock();
        if let Some(pipeline) = state.pipeline_of.remove(&relation)
            && let Some(committed) = state.pipelines.get_mut(&pipeline)
        {
            committed.ends.remove(&relation);
        }
    }

    /// A view is lost, and to be filled again.
    pub fn abandon(&self, view: RelationId) {
        self.detach(view);
        self.state.lock().abandoned.insert(view);
        self.progress.send_modify(|count| *count += 1);
    }

    /// Readers of a view wait until it was filled again, which is about to begin.
    pub fn suspend(&self, view: RelationId) {
        self.state.lock().abandoned.insert(view);
    }

    /// A lost view is not to be filled again: nobody waits for it.
    pub fn give_up(&self, view: RelationId) {
        self.state.lock().abandoned.remove(&view);
        self.progress.send_modify(|count| *count += 1);
    }

    /// Whether a view is lost and not filled again yet.
    pub fn is_any_abandoned(&self) -> bool {
        !self.state.lock().abandoned.is_empty()
    }

    /// Whether one of these is lost and not filled again yet.
    pub fn is_abandoned(&self, relations: &[RelationId]) -> bool {
        let state = self.state.lock();
        relations.iter().any(|id| state.abandoned.contains(id))
    }

    /// The views of a pipeline are being restored, or are again as readers have seen them.
    pub fn set_recovering(&self, pipeline: PipelineId, is_recovering: bool) {
        {
            let mut state = self.state.lock();
            if is_recovering {
                state.recovering.insert(pipeline);
            } else {
                state.recovering.remove(&pipeline);
            }
        }
        self.progress.send_modify(|count| *count += 1);
    }

    /// Somebody who waits is to look again.
    pub fn notify(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    pub fn remove_pipeline(&self, pipeline: PipelineId) {
        let mut state = self.state.lock();
        state.pipelines.remove(&pipeline);
        state.cuts.retain(|(of, _), _| *of != pipeline);
    }

    pub fn join(&self, into: PipelineId, from: PipelineId) {
        let mut state = self.state.lock();
        for pipeline in state
            .pipeline_of
            .values_mut()
            .filter(|pipeline| **pipeline == from)
        {
            *pipeline = into;
        }
        let other = state.pipelines.remove(&from).unwrap_or_default();
        let committed = state.pipelines.entry(into).or_default();
        committed.epoch = committed.epoch.max(other.epoch);
        committed.ends.extend(other.ends);
        committed.watermarks.extend(other.watermarks);
        // What was in the other may be older.
        committed.now = committed.now.min(other.now);
    }

    /// Remembers what an epoch contains until it is committed.
    pub fn cut(&self, pipeline: PipelineId, epoch: u64, ends: HashMap<RelationId, u64>, time: &EpochTime) {
        let cut = Uncommitted {
            ends,
            now: time.now,
            watermarks: Arc::clone(&time.watermarks),
            at: Instant::now(),
        };
        self.state.lock().cuts.insert((pipeline, epoch), cut);
    }

    /// What of a pipeline is under way, if anything is.
    pub fn under_way(&self, pipeline: PipelineId) -> Option<UnderWay> {
        let state = self.state.lock();
        let cuts = state.cuts.range((pipeline, 0)..=(pipeline, u64::MAX));
        let ages = cuts.map(|(_, cut)| cut.at.elapsed());
        let epochs = ages.clone().count();
        ages.max().map(|age| UnderWay { epochs, age })
    }

    /// What a commit of this epoch will make visible, epoch by epoch: the time of each, and the offsets that it reaches. Of
    /// an epoch that reaches none, those of the pipeline as they are. Of a back-fill there are none.
    pub fn to_commit(&self, pipeline: PipelineId, epoch: u64) -> Vec<(i64, Vec<(RelationId, u64)>)> {
        let state = self.state.lock();
        let known = state.pipelines.get(&pipeline).map(|committed| &committed.ends);
        let cuts = state.cuts.range((pipeline, 0)..=(pipeline, epoch));
        let reached = cuts.map(|(_, cut)| {
            let ends = known.filter(|_| cut.ends.is_empty()).unwrap_or(&cut.ends);
            let ends = ends.iter().map(|(relation, end)| (*relation, *end));
            (cut.now, ends.filter(|(_, end)| *end > 0).collect::<Vec<_>>())
        });
        reached.filter(|(_, ends)| !ends.is_empty()).collect()
    }

    /// The pipeline as of its last committed epoch; its sources stay readable as of then while the pin lives.
    pub fn pin_pipeline(self: &Arc<Self>, pipeline: PipelineId) -> Option<(Committed, Arc<Pin>)> {
        let mut state = self.state.lock();
        let committed = state.pipelines.get(&pipeline)?.clone();
        let id = state.next_pin;
        state.next_pin += 1;
        let pinned = committed.ends.iter().map(|(relation, end)| (*relation, *end));
        let pinned = pinned.collect();
        state.pins.insert(id, pinned);
        drop(state);
        let versions = Arc::clone(self);
        Some((committed, Arc::new(Pin { id, versions })))
    }

    /// The committed version of a relation: an offset, or an epoch.
    pub fn version(&self, relation: RelationId, by_offset: bool) -> Version {
        self.state.lock().version(relation, by_offset)
    }

    /// Offsets up to which sources are committed.
    pub fn end(&self, relation: RelationId) -> u64 {
        self.state.lock().version(relation, true)
    }

    /// The pipelines of those views that are visible as of an earlier time.
    pub fn behind(&self, views: &[RelationId], time: i64) -> HashSet<PipelineId> {
        let state = self.state.lock();
        let pipelines = views.iter().filter_map(|view| state.pipeline_of.get(view));
        let is_behind = |pipeline: &&PipelineId| {
            let committed = state.pipelines.get(*pipeline);
            committed.is_some_and(|committed| committed.now < time)
        };
        pipelines.filter(is_behind).copied().collect()
    }

    /// The epoch and all before it are what readers see from now on.
    pub fn commit(&self, pipeline: PipelineId, epoch: u64) {
        {
            let mut state = self.state.lock();
            state.epochs_total += 1;
            let mut cuts = vec![];
            while let Some(entry) = state
                .cuts
                .range((pipeline, 0)..=(pipeline, epoch))
                .next()
                .map(|(key, _)| *key)
            {
                cuts.extend(state.cuts.remove(&entry));
            }
            let committed = state.pipelines.entry(pipeline).or_default();
            committed.epoch = committed.epoch.max(epoch);
            for cut in cuts {
                committed.ends.extend(cut.ends);
                committed.now = cut.now;
                committed.watermarks.extend(cut.watermarks.iter());
            }
        }
        self.progress.send_modify(|count| *count += 1);
    }

    pub fn pipeline_of(&self, relation: RelationId) -> Option<PipelineId> {
        self.state.lock().pipeline_of.get(&relation).copied()
    }

    pub fn epochs_total(&self) -> u64 {
        self.state.lock().epochs_total
    }

    /// The committed version of each relation (an offset for `by_offset`, else an epoch), pinned; `None` while some write
    /// of `after` that concerns their pipelines is not contained, or while a view is being restored. The epoch is the first relation's.
    pub fn pin(
        self: &Arc<Self>,
        relations: &[(RelationId, bool)],
        after: &BTreeMap<RelationId, u64>,
    ) -> Option<(u64, Vec<Version>, Arc<Pin>)> {
        let mut state = self.state.lock();
        let pipelines: Vec<PipelineId> = relations
            .iter()
            .filter_map(|(relation, _)| state.pipeline_of.get(relation).copied())
            .collect();
        for (written, end) in after {
            let Some(pipeline) = state.pipeline_of.get(written) else {
                continue;
            };
            let reached = state
                .pipelines
                .get(pipeline)
                .and_then(|committed| committed.ends.get(written));
            if pipelines.contains(pipeline) && reached.is_none_or(|reached| reached < end) {
                return None;
            }
        }
        let is_gone = |(relation, by_offset): &(RelationId, bool)| {
            let pipeline = state.pipeline_of.get(relation);
            state.abandoned.contains(relation)
                || (!by_offset && pipeline.is_some_and(|pipeline| state.recovering.contains(pipeline)))
        };
        if relations.iter().any(is_gone) {
            return None;
        }
        let versions: Vec<Version> = relations
            .iter()
            .map(|(relation, by_offset)| state.version(*relation, *by_offset))
            .collect();
        let epoch = pipelines
            .first()
            .and_then(|pipeline| state.pipelines.get(pipeline))
            .map_or(0, |c| c.epoch);
        let id = state.next_pin;
        state.next_pin += 1;
        let pinned = relations
            .iter()
            .map(|(relation, _)| *relation)
            .zip(versions.iter().copied())
            .collect();
        state.pins.insert(id, pinned);
        drop(state);
        Some((
            epoch,
            versions,
            Arc::new(Pin {
                id,
                versions: Arc::clone(self),
            }),
        ))
    }

    /// The oldest version of the relation that anyone reads now or may read later.
    pub fn low_water(&self, relation: RelationId, by_offset: bool) -> Version {
        let state = self.state.lock();
        let committed = state.version(relation, by_offset);
        state.oldest_pinned(relation).unwrap_or(committed).min(committed)
    }

    /// The same of a view whose epochs run in `pipeline`. While it is back-filled nobody reads it: who does later sees all
    /// that the pipeline has committed by then.
    pub fn low_water_in(&self, view: RelationId, pipeline: PipelineId) -> Version {
        let state = self.state.lock();
        let committed = match state.pipeline_of.contains_key(&view) {
            true => state.version(view, false),
            false => state
                .pipelines
                .get(&pipeline)
                .map_or(0, |committed| committed.epoch),
        };
        state.oldest_pinned(view).unwrap_or(committed).min(committed)
    }
}

impl State {
    fn oldest_pinned(&self, relation: RelationId) -> Option<Version> {
        let pins = self.pins.values().flatten();
        let versions = pins.filter(|(pinned, _)| *pinned == relation);
        versions.map(|(_, version)| *version).min()
    }

    fn version(&self, relation: RelationId, by_offset: bool) -> Version {
        let Some(committed) = self
            .pipeline_of
            .get(&relation)
            .and_then(|pipeline| self.pipelines.get(pipeline))
        else {
            return 0;
        };
        if by_offset {
            committed.ends.get(&relation).copied().unwrap_or(0)
        } else {
            committed.epoch
        }
    }
}
