//! What a view's tasks have done since it was made: counters that tasks add to and EXPLAIN ANALYZE takes the difference of.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Tasks of one stage on one partition, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityCounts {
    pub tasks: u64,
    /// Changes that they were given.
    pub rows_in: u64,
    /// Changes that they emit.
    pub rows_out: u64,
    /// Processor time of them: what waits for rows, for room or for its turn is not busy.
    pub busy_ns: u64,
    /// From being ready to their first poll.
    pub queue_ns: u64,
}

impl ActivityCounts {
    /// Those of one task.
    pub fn of_task(rows_in: u64, rows_out: u64, queue: Duration, busy: Duration) -> ActivityCounts {
        ActivityCounts {
            tasks: 1,
            rows_in,
            rows_out,
            busy_ns: busy.as_nanos() as u64,
            queue_ns: queue.as_nanos() as u64,
        }
    }

    /// Those of several partitions.
    pub fn sum<'a>(counts: impl IntoIterator<Item = &'a ActivityCounts>) -> ActivityCounts {
        let mut sum = ActivityCounts::default();
        for counts in counts {
            sum.tasks += counts.tasks;
            sum.rows_in += counts.rows_in;
            sum.rows_out += counts.rows_out;
            sum.busy_ns += counts.busy_ns;
            sum.queue_ns += counts.queue_ns;
        }
        sum
    }
}

/// What it took to bring the rows to a view that existed before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// `None`: it was slowed down on purpose, or filled together with others.
    pub elapsed: Option<Duration>,
    /// For each stage.
    pub activity: Vec<ActivityCounts>,
}

/// The counters of one stage on one partition.
#[derive(Debug, Default)]
pub struct Activity {
    tasks: AtomicU64,
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    busy_ns: AtomicU64,
    queue_ns: AtomicU64,
    /// Since when a task has been running now.
    running: Mutex<Option<Instant>>,
}

/// A task that runs, until this is dropped.
pub struct RunningTask<'a>(&'a Activity);

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}

impl Activity {
    /// A task begins. Of several at once, as maps are, the last counts.
    pub fn begin(&self, now: Instant) -> RunningTask<'_> {
        *self.running.lock() = Some(now);
        RunningTask(self)
    }

    /// Since when a task has been running now.
    pub fn running_since(&self) -> Option<Instant> {
        *self.running.lock()
    }

    /// Tasks have ended well.
    pub fn add(&self, counts: &ActivityCounts) {
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        add(&self.tasks, counts.tasks);
        add(&self.rows_in, counts.rows_in);
        add(&self.rows_out, counts.rows_out);
        add(&self.queue_ns, counts.queue_ns);
        add(&self.busy_ns, counts.busy_ns);
    }

    pub fn counts(&self) -> ActivityCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ActivityCounts {
            tasks: read(&self.tasks),
            rows_in: read(&self.rows_in),
            rows_out: read(&self.rows_out),
            busy_ns: read(&self.busy_ns),
            queue_ns: read(&self.queue_ns),
        }
    }
}
