//! How fast the demo replays, and what it measures. Pure: whoever calls says what time it is.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Rows of a batch where nothing holds the replay back.
const BATCH_ROWS_MAX: u64 = 500;
/// Batches a second where the rate allows it: a screen that moves, and batches of a few hundred rows.
const BATCHES_PER_SECOND: u64 = 10;
/// What "rows a second" looks back at.
const RATE_WINDOW: Duration = Duration::from_secs(2);
/// The longest freshness that is told apart from longer ones.
const FRESHNESS_MICROSECONDS_MAX: u64 = 60_000_000;

/// How many flights a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// The next batch as soon as the last one is visible.
    Max,
    /// That many, if the server keeps up.
    RowsPerSecond(NonZeroU32),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("max") {
            return Ok(Rate::Max);
        }
        text.parse()
            .map(Rate::RowsPerSecond)
            .map_err(|_| "a number of rows a second from 1, or \"max\"".to_owned())
    }
}

impl Rate {
    /// How many rows to send at a time.
    pub fn batch_rows(self) -> usize {
        let rows = match self {
            Rate::Max => BATCH_ROWS_MAX,
            Rate::RowsPerSecond(rows) => u64::from(rows.get())
                .div_ceil(BATCHES_PER_SECOND)
                .min(BATCH_ROWS_MAX),
        };
        usize::try_from(rows).expect("a batch is at most a few hundred rows")
    }

    /// When the row after `rows_sent` others is due, from the start of the replay.
    pub fn due(self, rows_sent: u64) -> Duration {
        match self {
            Rate::Max => Duration::ZERO,
            Rate::RowsPerSecond(rows) => {
                Duration::from_micros(rows_sent.saturating_mul(1_000_000) / u64::from(rows.get()))
            }
        }
    }
}

/// What the replay has measured so far.
pub struct Meter {
    rows: u64,
    batches: u64,
    elapsed: Duration,
    /// The ends of recent batches, and how many rows were visible then.
    recent: VecDeque<(Duration, u64)>,
    /// From sending a batch to reading it in a view.
    freshness_microseconds: Histogram<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            rows: 0,
            batches: 0,
            elapsed: Duration::ZERO,
            recent: VecDeque::from([(Duration::ZERO, 0)]),
            freshness_microseconds: Histogram::new_with_max(FRESHNESS_MICROSECONDS_MAX, 3)
                .expect("the bounds are valid"),
        }
    }
}

impl Meter {
    /// Counts a batch that is there `now`, and visible so long after it was sent, if that is known.
    pub fn record(&mut self, rows: u64, freshness: Option<Duration>, now: Duration) {
        self.rows += rows;
        self.batches += 1;
        self.elapsed = now;
        self.recent.push_back((now, self.rows));
        while self.recent.len() > 2 && now.saturating_sub(self.recent[1].0) >= RATE_WINDOW {
            self.recent.pop_front();
        }
        if let Some(freshness) = freshness {
            let microseconds = u64::try_from(freshness.as_micros()).unwrap_or(u64::MAX);
            self.freshness_microseconds.saturating_record(microseconds);
        }
    }

    /// Rows that were sent and seen.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Batches that were sent and seen.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// From the start to the last batch.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Rows a second since the start.
    pub fn rows_per_second(&self) -> f64 {
        per_second(self.rows, self.elapsed)
    }

    /// Rows a second of late.
    pub fn recent_rows_per_second(&self) -> f64 {
        let (from, rows) = self.recent[0];
        per_second(self.rows - rows, self.elapsed.saturating_sub(from))
    }

    /// The freshness that this share of the batches reached, in percent.
    pub fn freshness(&self, percent: f64) -> Duration {
        Duration::from_micros(self.freshness_microseconds.value_at_percentile(percent))
    }
}

/// The value that so many of a hundred do not exceed.
pub fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or_default()
}

fn per_second(rows: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        rows as f64 / elapsed.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_or_refused() {
        assert_eq!("MAX".parse(), Ok(Rate::Max));
        assert_eq!(
            "1800".parse(),
            Ok(Rate::RowsPerSecond(NonZeroU32::new(1800).unwrap()))
        );
        for wrong in ["0", "-1", "fast", "1.5", ""] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_batch_is_a_tenth_of_a_second_but_never_large() {
        assert_eq!("1800".parse::<Rate>().unwrap().batch_rows(), 180);
        assert_eq!("1".parse::<Rate>().unwrap().batch_rows(), 1);
        assert_eq!("1000000".parse::<Rate>().unwrap().batch_rows(), 500);
        assert_eq!(Rate::Max.batch_rows(), 500);
    }

    #[test]
    fn a_row_is_due_after_those_before_it() {
        let rate: Rate = "200".parse().unwrap();
        assert_eq!(rate.due(0), Duration::ZERO);
        assert_eq!(rate.due(300), Duration::from_millis(1500));
        assert_eq!(Rate::Max.due(1 << 40), Duration::ZERO);
    }

    #[test]
    fn percentiles_are_values_that_came() {
        let values: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50), Duration::from_millis(100));
        assert_eq!(percentile(&values, 99), Duration::from_millis(198));
        assert_eq!(percentile(&values[..1], 99), Duration::from_millis(200));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn the_meter_tells_now_from_ever() {
        let mut meter = Meter::default();
        assert_eq!(meter.rows_per_second(), 0.0);
        // Ten slow seconds, then ten at ten times the rate.
        for second in 1..=10 {
            meter.record(100, Some(Duration::from_millis(2)), Duration::from_secs(second));
        }
        for second in 11..=20 {
            meter.record(1000, Some(Duration::from_millis(50)), Duration::from_secs(second));
        }
        assert_eq!((meter.rows(), meter.batches()), (11_000, 20));
        assert_eq!(meter.rows_per_second(), 550.0);
        assert_eq!(meter.recent_rows_per_second(), 1000.0);
        let rounded = |percent| meter.freshness(percent).as_secs_f64().mul_add(1000.0, 0.5) as u64;
        assert_eq!((rounded(50.0), rounded(99.0)), (2, 50));
    }
}
