//! Whether the rows of a group are combined before they are sent to it.
//!
//! Combining pays as long as it leaves clearly fewer rows. What it left is remembered for each stage, by all of its tasks;
//! where keys are nearly unique, tasks pass their rows on as they are, one partial state each, and every now and then one of
//! them combines again to see whether that has changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// With fewer rows a task teaches nothing, and it hardly matters what it does.
const ROWS_MIN: usize = 1_024;
/// Above this share of rows that are left, combining them costs more than it saves.
const LEFT_MAX: f64 = 0.8;
/// Weight of the newest task in the smoothed share.
const SMOOTHING: f64 = 0.3;
/// Of so many tasks that might pass their rows on, one combines.
const PROBE_EVERY: u64 = 64;

/// What the tasks of a stage have learned. See the module.
#[derive(Debug, Default)]
pub struct Combiner {
    /// The smoothed share of rows that combining left.
    left: Mutex<Option<f64>>,
    is_off: AtomicBool,
    passed_since_probe: AtomicU64,
    counts: [AtomicU64; 3],
}

/// What became of rows in front of an exchange, since the view was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CombinerCounts {
    /// Rows that were combined, and how many were left of them.
    pub combined: u64,
    pub left: u64,
    /// Rows that were passed on as they were.
    pub passed: u64,
    /// Whether the next task combines, unless it probes.
    pub is_combining: bool,
}

impl Combiner {
    /// Whether a task combines so many rows.
    pub(super) fn combines(&self, rows: usize) -> bool {
        if self.is_off.load(Ordering::Relaxed) {
            return false;
        }
        if rows < ROWS_MIN || self.pays() {
            return true;
        }
        let passed = self.passed_since_probe.fetch_add(1, Ordering::Relaxed) + 1;
        passed.is_multiple_of(PROBE_EVERY)
    }

    fn pays(&self) -> bool {
        self.left.lock().is_none_or(|left| left <= LEFT_MAX)
    }

    /// A task combined rows.
    pub(super) fn combined(&self, rows: usize, left: usize) {
        self.counts[0].fetch_add(rows as u64, Ordering::Relaxed);
        self.counts[1].fetch_add(left as u64, Ordering::Relaxed);
        if rows < ROWS_MIN {
            return;
        }
        let now = left as f64 / rows as f64;
        let mut share = self.left.lock();
        // After a probe that pays there is no need for several more.
        *share = Some(match *share {
            Some(before) if before <= LEFT_MAX => before + SMOOTHING * (now - before),
            _ => now,
        });
    }

    /// A task passed rows on.
    pub(super) fn passed(&self, rows: usize) {
        self.counts[2].fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Never combines from now on, or (`true`) as long as it pays.
    pub fn set(&self, is_on: bool) {
        self.is_off.store(!is_on, Ordering::Relaxed);
    }

    pub fn counts(&self) -> CombinerCounts {
        let [combined, left, passed] = &self.counts;
        CombinerCounts {
            combined: combined.load(Ordering::Relaxed),
            left: left.load(Ordering::Relaxed),
            passed: passed.load(Ordering::Relaxed),
            is_combining: !self.is_off.load(Ordering::Relaxed) && self.pays(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_unique_keys_are_passed_on_until_a_probe_pays() {
        let combiner = Combiner::default();
        assert!(combiner.combines(5_000));
        combiner.combined(5_000, 4_900);
        assert!(!combiner.counts().is_combining);
        // Few rows are combined, and say nothing.
        assert!(combiner.combines(10));
        combiner.combined(10, 1);
        let probes = (0..2 * PROBE_EVERY).filter(|_| combiner.combines(5_000)).count();
        assert_eq!(probes, 2);
        // A probe that shows no change leaves it so, one that pays ends it.
        combiner.combined(5_000, 4_950);
        assert!(!combiner.counts().is_combining);
        combiner.combined(5_000, 50);
        assert!(combiner.counts().is_combining && combiner.combines(5_000));
        // One odd task does not.
        combiner.combined(5_000, 5_000);
        assert!(combiner.combines(5_000));
        combiner.set(false);
        assert!(!combiner.combines(10));
    }
}
