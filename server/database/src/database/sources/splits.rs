//! The watermark of a stream that is read from several splits, of which each has its own.
//!
//! The stream's is that of the split that is furthest behind, and there is none while a split has none: so rows of a split that is read
//! later than others are not late. A split that has no record to be read for a while is not waited for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(super) struct Splits {
    idle_timeout: Option<Duration>,
    /// In microseconds.
    watermarks: BTreeMap<i32, i64>,
    /// When there was last a record of it, or one to be read.
    active: BTreeMap<i32, Instant>,
}

impl Splits {
    /// With what was known at `now`. A split is not waited for after so long without a record; `None`: for as long as it takes.
    pub fn new(idle_timeout: Option<Duration>, watermarks: BTreeMap<i32, i64>) -> Splits {
        Splits {
            idle_timeout,
            watermarks,
            active: BTreeMap::new(),
        }
    }

    /// There was a record of these splits, or is one to be read.
    pub fn are_active(&mut self, splits: impl Iterator<Item = i32>, now: Instant) {
        self.active.extend(splits.map(|split| (split, now)));
    }

    /// What the splits would be if rows let one assume this.
    pub fn with(&self, assumed: &BTreeMap<i32, i64>) -> BTreeMap<i32, i64> {
        let mut watermarks = self.watermarks.clone();
        for (split, watermark) in assumed {
            let known = watermarks.entry(*split).or_insert(*watermark);
            *known = (*known).max(*watermark);
        }
        watermarks
    }

    /// The watermark of the stream if the splits that there are have these.
    pub fn combined(
        &mut self,
        splits: impl Iterator<Item = i32>,
        watermarks: &BTreeMap<i32, i64>,
        now: Instant,
    ) -> Option<i64> {
        let mut least: Option<i64> = None;
        for split in splits {
            // One that was never seen counts from now on.
            let active = *self.active.entry(split).or_insert(now);
            if self
                .idle_timeout
                .is_some_and(|timeout| now.duration_since(active) >= timeout)
            {
                continue;
            }
            let watermark = *watermarks.get(&split)?;
            least = Some(least.map_or(watermark, |least| least.min(watermark)));
        }
        least
    }

    /// Rows were written.
    pub fn set(&mut self, watermarks: BTreeMap<i32, i64>) {
        self.watermarks = watermarks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_split_decides_until_it_is_idle() {
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut splits = Splits::new(Some(Duration::from_secs(10)), BTreeMap::new());
        splits.are_active([0, 1].into_iter(), begun);
        let first = splits.with(&[(0, 100)].into());
        assert_eq!(splits.combined(0..2, &first, after(1)), None, "one has none");
        splits.set(first);
        let second = splits.with(&[(1, 30), (0, 90)].into());
        assert_eq!(second, [(0, 100), (1, 30)].into());
        assert_eq!(splits.combined(0..2, &second, after(2)), Some(30));
        splits.set(second.clone());
        splits.are_active([0].into_iter(), after(8));
        assert_eq!(splits.combined(0..2, &second, after(9)), Some(30));
        assert_eq!(
            splits.combined(0..2, &second, after(10)),
            Some(100),
            "the other is idle"
        );
        assert_eq!(
            splits.combined(0..3, &second, after(11)),
            None,
            "a new one has none"
        );
        splits.are_active([0, 1].into_iter(), after(20));
        assert_eq!(
            splits.combined(0..3, &second, after(21)),
            Some(30),
            "the new one is idle"
        );
        assert_eq!(splits.combined(0..3, &second, after(40)), None, "all are idle");
    }

    #[test]
    fn without_a_timeout_a_split_is_waited_for() {
        let begun = Instant::now();
        let mut splits = Splits::new(None, [(0, 5)].into());
        let known = splits.with(&BTreeMap::new());
        let later = begun + Duration::from_secs(1 << 20);
        splits.are_active(0..2, begun);
        assert_eq!(splits.combined(0..2, &known, later), None);
        assert_eq!(splits.combined(0..1, &known, later), Some(5));
    }
}
