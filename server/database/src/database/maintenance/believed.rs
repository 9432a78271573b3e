//! The time that retention goes by: the machine's, unless it has just jumped ahead.
//!
//! A clock that is set to next year by mistake would have retention remove everything at once, and setting it right again would not bring
//! anything back. So a time that is much later than the last one plus what has really passed since is not believed for an hour:
//! until then time goes on as it did before. One that goes back is believed at once: then less is removed.

use std::time::{Duration, Instant};

/// A difference that is no jump: clocks are set right by so much.
const DRIFT_MS: i64 = 60_000;
/// How long a machine may have been off without that being a jump.
const OFF_MS: i64 = 24 * 3_600_000;
/// How long a jump has to last until it is believed.
const DOUBT: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug)]
pub(super) struct BelievedTime {
    /// A time that was believed, in milliseconds since 1970-01-01 UTC, and when that was.
    base: Option<(i64, Instant)>,
    /// Of the process before, the last time that is known.
    before: Option<i64>,
    /// Since when the clock is ahead.
    doubted_since: Option<Instant>,
}

impl BelievedTime {
    /// `before`: the last time that is known of the process before.
    pub fn new(before: Option<i64>) -> Self {
        BelievedTime {
            base: None,
            before,
            doubted_since: None,
        }
    }

    /// What to go by when the clock says `clock_ms` at this moment.
    pub fn at(&mut self, clock_ms: i64, moment: Instant) -> i64 {
        let (expected, ahead_max) = match (self.base, self.before) {
            (Some((base, since)), _) => (base + millis(moment.duration_since(since)), DRIFT_MS),
            (None, Some(before)) => (before, OFF_MS),
            (None, None) => (clock_ms, DRIFT_MS),
        };
        if self.base.is_none() && self.before.is_some() && clock_ms - expected > ahead_max {
            // From here on it goes on from there.
            self.base = Some((expected, moment));
        }
        if clock_ms - expected <= ahead_max {
            self.doubted_since = None;
            self.base = Some((clock_ms, moment));
            return clock_ms;
        }
        let since = *self.doubted_since.get_or_insert_with(|| {
            let seconds = (clock_ms - expected) / 1000;
            tracing::warn!(
                seconds,
                "the clock jumped ahead: retention ignores the jump for an hour, so that the clock can be \
                 corrected"
            );
            moment
        });
        if moment.duration_since(since) < DOUBT {
            return expected;
        }
        tracing::info!("the clock stayed ahead: retention uses it from now on");
        self.doubted_since = None;
        self.base = Some((clock_ms, moment));
        clock_ms
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_MS: i64 = 365 * 24 * 3_600_000;

    #[test]
    fn a_jump_ahead_is_believed_after_an_hour_and_one_back_at_once() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut time = BelievedTime::new(None);
        assert_eq!(time.at(5_000_000, at(0)), 5_000_000);
        assert_eq!(time.at(5_001_000, at(1)), 5_001_000);
        // Set right by half a minute.
        assert_eq!(time.at(5_032_000, at(2)), 5_032_000);
        assert_eq!(time.at(5_033_000 + YEAR_MS, at(3)), 5_033_000);
        assert_eq!(time.at(5_130_000 + YEAR_MS, at(100)), 5_130_000);
        // It was a mistake.
        assert_eq!(time.at(5_131_000, at(101)), 5_131_000);
        assert_eq!(time.at(5_132_000 + YEAR_MS, at(102)), 5_132_000);
        assert_eq!(time.at(YEAR_MS, at(3701)), 5_132_000 + 3_599_000);
        assert_eq!(time.at(YEAR_MS, at(3702)), YEAR_MS);
        assert_eq!(time.at(4_000_000, at(3703)), 4_000_000);
    }

    #[test]
    fn after_a_start_the_last_time_that_is_known_counts() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        // Off for an hour.
        let mut time = BelievedTime::new(Some(1_000_000));
        assert_eq!(time.at(4_600_000, start), 4_600_000);
        // Off for a year, or the clock is wrong.
        let mut time = BelievedTime::new(Some(1_000_000));
        assert_eq!(time.at(YEAR_MS, start), 1_000_000);
        assert_eq!(time.at(YEAR_MS + 1_000, later), 1_001_000);
        assert_eq!(
            time.at(YEAR_MS + 3_600_000, start + Duration::from_secs(3600)),
            YEAR_MS + 3_600_000
        );
        // Set back.
        let mut time = BelievedTime::new(Some(YEAR_MS));
        assert_eq!(time.at(1_000_000, start), 1_000_000);
    }
}
