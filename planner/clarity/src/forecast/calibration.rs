//! What forecasts were worth: they are kept beside what happened, and what is forecast next is as wide as those before were off.
//!
//! ```text
//! outcomes ──> took / expected, in order ──> the 5th and the 95th in a hundred
//! interval = from the least of its own low end and expected x 5th, to the most of its own high end and expected x 95th
//! certainty: not high where more than a fifth of those that were as certain missed, not medium where more than half did
//! ```

use serde::{Deserialize, Serialize};

use super::interval::{Certainty, Interval};
use crate::profile::Nanoseconds;

/// So many outcomes tell how far off the next forecast may be.
const OUTCOMES_MIN: usize = 8;
/// The parts of the outcomes below and above which an interval may miss.
const TAIL: f64 = 0.05;
/// The part of forecasts of a certainty that may miss.
const HIGH_MISSES_MAX: f64 = 0.2;
const MEDIUM_MISSES_MAX: f64 = 0.5;

/// A forecast beside what happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub time: Interval,
    pub certainty: Certainty,
    /// What it took.
    pub took: Nanoseconds,
}

impl Outcome {
    /// Whether it took what was forecast.
    pub fn is_inside(&self) -> bool {
        (self.time.low..=self.time.high).contains(&self.took)
    }

    /// What it took, to what was expected.
    pub fn ratio(&self) -> f64 {
        self.took as f64 / self.time.expected.max(1) as f64
    }
}

/// An interval and its certainty after what became of those before.
pub fn calibrated(time: Interval, certainty: Certainty, outcomes: &[Outcome]) -> (Interval, Certainty) {
    if outcomes.len() < OUTCOMES_MIN {
        return (time, certainty);
    }
    let mut ratios: Vec<f64> = outcomes.iter().map(Outcome::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part).round() as usize];
    let expected = time.expected as f64;
    let time = Interval {
        low: time.low.min((expected * at(TAIL)) as Nanoseconds),
        high: time.high.max((expected * at(1.0 - TAIL)) as Nanoseconds),
        ..time
    };
    let misses = |certainty: Certainty| {
        let as_certain = outcomes.iter().filter(|outcome| outcome.certainty == certainty);
        let (all, missed) = as_certain.fold((0, 0), |(all, missed), outcome| {
            (all + 1, missed + usize::from(!outcome.is_inside()))
        });
        missed as f64 / f64::max(1.0, f64::from(all))
    };
    let certainty = match certainty {
        Certainty::High if misses(Certainty::High) > HIGH_MISSES_MAX => Certainty::Medium,
        Certainty::Medium if misses(Certainty::Medium) > MEDIUM_MISSES_MAX => Certainty::Low,
        other => other,
    };
    (time, certainty)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    fn outcome(expected: Nanoseconds, took: Nanoseconds, certainty: Certainty) -> Outcome {
        Outcome {
            time: Interval {
                expected,
                low: expected / 2,
                high: expected * 2,
            },
            certainty,
            took,
        }
    }

    #[test]
    fn the_next_interval_is_as_wide_as_those_before_were_off() {
        let time = Interval {
            expected: 100 * MS,
            low: 90 * MS,
            high: 110 * MS,
        };
        let off: Vec<Outcome> = (0..40)
            .map(|number| outcome(MS, MS * (1 + number % 10), Certainty::High))
            .collect();
        let (wide, certainty) = calibrated(time, Certainty::High, &off);
        assert_eq!(
            (wide.low, wide.high, wide.expected),
            (90 * MS, 1_000 * MS, 100 * MS)
        );
        // Eight of ten took more than twice as long.
        assert_eq!(certainty, Certainty::Medium);
        assert_eq!(calibrated(time, Certainty::Medium, &off).1, Certainty::Medium);
        let few = &off[..OUTCOMES_MIN - 1];
        assert_eq!(calibrated(time, Certainty::High, few), (time, Certainty::High));
    }

    #[test]
    fn those_that_came_true_change_nothing() {
        let time = Interval {
            expected: 100 * MS,
            low: 50 * MS,
            high: 200 * MS,
        };
        let right: Vec<Outcome> = (0..20).map(|_| outcome(MS, MS + 1, Certainty::High)).collect();
        assert!(right.iter().all(Outcome::is_inside));
        assert_eq!(calibrated(time, Certainty::High, &right), (time, Certainty::High));
    }

    #[test]
    fn what_missed_is_outside() {
        assert!(!outcome(MS, 3 * MS, Certainty::Low).is_inside());
        assert!(!outcome(MS, MS / 4, Certainty::Low).is_inside());
        assert_eq!(outcome(2 * MS, 3 * MS, Certainty::Low).ratio(), 1.5);
    }
}
