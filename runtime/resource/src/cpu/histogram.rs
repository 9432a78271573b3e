//! How long things took: counts by duration, cheap enough for every poll of every task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for each doubling: a percentile is off by at most an eighth.
const BUCKETS_A_DOUBLING: u32 = 8;
/// From a nanosecond to more than an hour.
const DOUBLINGS: u32 = 42;

/// Durations, counted in buckets that grow by the eighth part of a doubling. Recording takes no lock.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// What a [`Histogram`] had counted at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Durations {
    buckets: Vec<u64>,
    /// All of them together.
    pub sum: Duration,
    /// The longest since the start.
    pub max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS_A_DOUBLING * DOUBLINGS)
                .map(|_| AtomicU64::new(0))
                .collect(),
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

/// The bucket of a duration: its doubling, and the three bits below its highest.
fn bucket(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(1);
    let doubling = value.ilog2();
    let eighth = match doubling.checked_sub(3) {
        Some(shift) => (value >> shift) & 7,
        None => (value << (3 - doubling)) & 7,
    };
    let last = (BUCKETS_A_DOUBLING * DOUBLINGS - 1) as usize;
    ((doubling * BUCKETS_A_DOUBLING) as usize + eighth as usize).min(last)
}

/// The largest duration of a bucket, in nanoseconds.
fn upper_bound(bucket: usize) -> u64 {
    let doubling = bucket as u32 / BUCKETS_A_DOUBLING;
    let eighth = bucket as u64 % u64::from(BUCKETS_A_DOUBLING);
    ((1u64 << doubling) * (8 + eighth + 1)) / 8
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let nanoseconds = duration.as_nanos() as u64;
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        self.max_ns.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn durations(&self) -> Durations {
        Durations {
            buckets: self
                .buckets
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
            max: Duration::from_nanos(self.max_ns.load(Ordering::Relaxed)),
        }
    }
}

impl Durations {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The duration that this share of them (0 to 1) does not exceed, to an eighth; zero if there are none.
    pub fn percentile(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_bound(bucket)).min(self.max);
            }
        }
        Duration::ZERO
    }

    /// These and others: those of another worker.
    pub fn merge(&mut self, other: &Durations) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// What came after an earlier look; the longest stays that since the start.
    #[must_use]
    pub fn since(&self, before: &Durations) -> Durations {
        let earlier = |bucket: usize| before.buckets.get(bucket).copied().unwrap_or(0);
        Durations {
            buckets: (self.buckets.iter().enumerate())
                .map(|(bucket, count)| count.saturating_sub(earlier(bucket)))
                .collect(),
            sum: self.sum.saturating_sub(before.sum),
            max: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_an_eighth() {
        let histogram = Histogram::default();
        for microseconds in 1..=1000 {
            histogram.record(Duration::from_micros(microseconds));
        }
        let durations = histogram.durations();
        assert_eq!(durations.count(), 1000);
        for (share, expected) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (0.01, 10.0)] {
            let found = durations.percentile(share).as_secs_f64() * 1e6;
            assert!(found >= expected && found <= expected * 1.126, "{share}: {found}");
        }
        assert_eq!(durations.percentile(1.0), Duration::from_millis(1));
        assert_eq!(Durations::default().percentile(0.5), Duration::ZERO);
    }

    #[test]
    fn buckets_hold_what_they_say() {
        for nanoseconds in (0..1 << 20).chain([u64::MAX / 2, u64::MAX]) {
            let place = bucket(nanoseconds);
            let last = (BUCKETS_A_DOUBLING * DOUBLINGS - 1) as usize;
            assert!(
                place == last || nanoseconds <= upper_bound(place),
                "{nanoseconds}"
            );
            assert!(
                place == 0 || nanoseconds.saturating_add(1) >= upper_bound(place - 1),
                "{nanoseconds}"
            );
        }
    }
}
