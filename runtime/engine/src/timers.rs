//! When views change although no input comes: the earliest such moment of each pipeline is waited for.
//!
//! A task whose operators keep rows by time says when the next of them is due. A pipeline has one timer, for the earliest
//! moment of its views; when it is reached the cutter hears that there is input, and the epoch that it starts finds the
//! tasks due. A pipeline without such views has none.
//!
//! After a start from checkpoints time stands still until all views are back and what they had before is fed again: a view that
//! changed earlier would do so unseen by those that read it and are not there yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use millrace_planner::RelationId;
use millrace_schedule::id::{PipelineId, TaskId};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::workers::Workers;

/// What is further ahead of the clock was dated by a clock that was wrong; by less clocks are set right.
const DRIFT_MICROS: i64 = 60_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    io: Handle,
    workers: Weak<Workers>,
    /// The latest time that was told: epochs never go back, even where the machine's clock does.
    told: AtomicI64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    views: HashMap<RelationId, Dues>,
    armed: HashMap<PipelineId, Timer>,
    /// The time of epochs until all views are back.
    held_at: Option<i64>,
    /// Nothing is waited for yet: what there was before is not fed again.
    is_held: bool,
}

#[derive(Debug, Default)]
struct Dues {
    /// None while the view is back-filled: its epochs come anyway.
    pipeline: Option<PipelineId>,
    /// By stage and partition.
    tasks: BTreeMap<(usize, usize), i64>,
}

#[derive(Debug)]
struct Timer {
    due: i64,
    task: AbortHandle,
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Timers {
    /// `io`: where is waited for the clock; the cutter of a pipeline whose time has come is found among `workers`.
    /// `held_at`: epochs have that time until [`Timers::go_on`], and nothing is waited for until [`Timers::release`].
    pub fn new(clock: &Arc<dyn Clock>, io: &Handle, workers: &Arc<Workers>, held_at: Option<i64>) -> Self {
        let state = State {
            held_at,
            is_held: held_at.is_some(),
            ..State::default()
        };
        Timers {
            clock: Arc::clone(clock),
            io: io.clone(),
            workers: Arc::downgrade(workers),
            told: AtomicI64::new(i64::MIN),
            state: Mutex::new(state),
        }
    }

    /// The time, in microseconds since 1970-01-01 00:00 UTC; never less than before.
    pub fn now(&self) -> i64 {
        let now = self.clock.now();
        self.told.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The time of an epoch that is cut now: of the oldest checkpoint, as long as views are brought back.
    pub fn of_epoch(&self) -> i64 {
        let held_at = self.state.lock().held_at;
        match held_at {
            Some(held_at) => held_at.min(self.clock.now()),
            None => self.now(),
        }
    }

    /// Whether a time of the process before is so far ahead of the clock that the clock must have been wrong then.
    pub fn is_to_come(&self, time: i64) -> bool {
        time > self.clock.now().saturating_add(DRIFT_MICROS)
    }

    /// From now on no time before this one is told: epochs of the process before had it.
    pub fn not_before(&self, time: i64) {
        self.told.fetch_max(time, Ordering::Relaxed);
    }

    /// Resolves when the clock has reached `time`.
    pub fn clock_reaches(&self, time: i64) -> BoxFuture<'static, ()> {
        self.clock.until(time)
    }

    /// A view that keeps rows by time is installed.
    pub fn install(&self, view: RelationId) {
        self.state.lock().views.insert(view, Dues::default());
    }

    /// A view is gone.
    pub fn remove(&self, view: RelationId) {
        let mut state = self.state.lock();
        let dues = state.views.remove(&view);
        if let Some(pipeline) = dues.and_then(|dues| dues.pipeline) {
            self.arm(&mut state, pipeline);
        }
    }

    /// A view became part of a pipeline.
    pub fn attach(&self, view: RelationId, pipeline: PipelineId) {
        let mut state = self.state.lock();
        if let Some(dues) = state.views.get_mut(&view) {
            dues.pipeline = Some(pipeline);
            self.arm(&mut state, pipeline);
        }
    }

    /// Two pipelines became one.
    pub fn join(&self, into: PipelineId, from: PipelineId) {
        let mut state = self.state.lock();
        state.armed.remove(&from);
        for dues in state.views.values_mut() {
            if dues.pipeline == Some(from) {
                dues.pipeline = Some(into);
            }
        }
        self.arm(&mut state, into);
    }

    /// A task ended: its output changes at `due` without input, or (`None`) never.
    pub fn set(&self, task: TaskId, due: Option<i64>) {
        let mut state = self.state.lock();
        let Some(dues) = state.views.get_mut(&task.view) else {
            return;
        };
        let key = (task.stage, task.partition);
        let before = match due {
            Some(due) => dues.tasks.insert(key, due),
            None => dues.tasks.remove(&key),
        };
        let Some(pipeline) = dues.pipeline else { return };
        let armed = state.armed.get(&pipeline).map_or(i64::MAX, |timer| timer.due);
        let is_later = |due: Option<i64>| due.is_none_or(|due| due > armed);
        // Most tasks are not those that come next.
        if before != due && !(is_later(before) && is_later(due)) {
            self.arm(&mut state, pipeline);
        }
    }

    /// The views that time alone can change, those included that are not visible yet.
    pub fn views(&self) -> Vec<RelationId> {
        self.state.lock().views.keys().copied().collect()
    }

    /// The pipelines in which time alone can change something.
    fn pipelines(&self) -> Vec<PipelineId> {
        let mut pipelines: Vec<PipelineId> = self
            .state
            .lock()
            .views
            .values()
            .filter_map(|dues| dues.pipeline)
            .collect();
        pipelines.sort_unstable();
        pipelines.dedup();
        pipelines
    }

    /// All views are back: epochs have the time of the clock from now on.
    pub fn go_on(&self) {
        self.state.lock().held_at = None;
    }

    /// All is fed again: from now on what is due is waited for.
    pub fn release(&self) {
        self.go_on();
        let pipelines = self.pipelines();
        let mut state = self.state.lock();
        state.is_held = false;
        for pipeline in pipelines {
            self.arm(&mut state, pipeline);
        }
    }

    /// Ends all waiting.
    pub fn stop(&self) {
        *self.state.lock() = State::default();
    }

    /// Sets a pipeline's timer to its earliest moment.
    fn arm(&self, state: &mut State, pipeline: PipelineId) {
        if state.is_held {
            return;
        }
        let of_pipeline = state
            .views
            .values()
            .filter(|dues| dues.pipeline == Some(pipeline));
        let Some(due) = of_pipeline.flat_map(|dues| dues.tasks.values()).min().copied() else {
            state.armed.remove(&pipeline);
            return;
        };
        if state.armed.get(&pipeline).is_some_and(|timer| timer.due == due) {
            return;
        }
        let reached = self.clock.until(due);
        let workers = Weak::clone(&self.workers);
        let task = self.io.spawn(async move {
            reached.await;
            if let Some(workers) = workers.upgrade() {
                workers.input_arrived(pipeline);
            }
        });
        let task = task.abort_handle();
        state.armed.insert(pipeline, Timer { due, task });
    }
}
