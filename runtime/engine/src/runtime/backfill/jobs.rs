//! Which back-fills are under way, and which views of theirs nobody wants any more.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use millrace_planner::RelationId;
use millrace_schedule::id::PipelineId;
use parking_lot::Mutex;

/// What a back-fill is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    Filling,
    CatchingUp,
    Attaching,
}

/// A back-fill under way.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// The first of its views.
    pub relation: RelationId,
    pub name: String,
    pub state: JobState,
    /// Input rows fed so far.
    pub rows_done: u64,
    /// Input rows in all, as far as is known (an upper bound while rows are deleted).
    pub rows_total: u64,
    pub started: Instant,
    /// Runs at the priority of streams.
    pub is_urgent: bool,
}

impl JobStatus {
    /// How long the job will take yet, if it goes on as it did; unknown before it has done anything.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.rows_total.saturating_sub(self.rows_done);
        if self.rows_done == 0 {
            return (left == 0).then_some(Duration::ZERO);
        }
        let each = self.started.elapsed().as_secs_f64() / self.rows_done as f64;
        Duration::try_from_secs_f64(each * left as f64).ok()
    }
}

/// Back-fills under way.
#[derive(Default)]
pub(crate) struct Jobs {
    pub statuses: Mutex<BTreeMap<RelationId, JobStatus>>,
    /// Those that run at the priority of streams.
    pub urgent: Mutex<HashSet<PipelineId>>,
    /// Those, by their first view, of which a part is lost.
    pub lost: Mutex<HashSet<RelationId>>,
    /// The views that are being filled, and whether they were dropped since.
    filling: Mutex<BTreeMap<RelationId, bool>>,
    pub next_incarnation: AtomicU64,
}

impl Jobs {
    /// Of these relations, those that are being filled are wanted by nobody.
    pub fn give_up(&self, relations: &[RelationId]) {
        let mut filling = self.filling.lock();
        for relation in relations {
            if let Some(is_dropped) = filling.get_mut(relation) {
                *is_dropped = true;
            }
        }
    }

    /// One of these that was dropped.
    pub fn dropped(&self, views: &[RelationId]) -> Option<RelationId> {
        let filling = self.filling.lock();
        let is_dropped = |view: &&RelationId| filling.get(*view).copied().unwrap_or(false);
        views.iter().find(is_dropped).copied()
    }
}

/// Views that are being filled, until this is dropped.
pub(super) struct Filling<'a> {
    jobs: &'a Jobs,
    views: &'a [RelationId],
}

impl<'a> Filling<'a> {
    pub fn begin(jobs: &'a Jobs, views: &'a [RelationId]) -> Self {
        jobs.filling
            .lock()
            .extend(views.iter().map(|view| (*view, false)));
        Filling { jobs, views }
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let mut filling = self.jobs.filling.lock();
        for view in self.views {
            filling.remove(view);
        }
    }
}
