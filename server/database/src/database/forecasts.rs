//! What was forecast of queries and back-fills that ran, beside what they took: `mr_catalog.forecasts`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrace_clarity::forecast::calibration::{Outcome, calibrated};
use millrace_clarity::forecast::interval::{Certainty, Interval};
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::clock::now_ns;

/// How many are kept; the oldest goes first.
const FORECASTS_MAX: usize = 512;
/// Longer texts of queries are cut.
const TEXT_CHARS_MAX: usize = 1_000;

/// A query that takes less is not forecast: there is nothing to plan with.
pub const FORECAST_MIN: Duration = Duration::from_millis(20);

/// What was forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A query.
    Query,
    /// The filling of a new view.
    BackFill,
}

impl Kind {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Query => "query",
            Kind::BackFill => "back-fill",
        }
    }
}

/// A forecast and what became of it.
#[derive(Debug, Clone)]
pub struct Kept {
    pub kind: Kind,
    /// The text of the query, or the name of the view.
    pub subject: String,
    /// Whose it was.
    pub role: ObjectId,
    /// When it had run, in nanoseconds since 1970-01-01 UTC.
    pub at_ns: u64,
    /// Runs that the forecast rested on.
    pub runs: usize,
    pub outcome: Outcome,
}

/// The forecasts that were kept last.
#[derive(Debug, Default)]
pub struct Forecasts {
    kept: Mutex<VecDeque<Arc<Kept>>>,
}

/// As much of a text as is kept.
fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

impl Forecasts {
    /// Keeps what became of a forecast.
    pub fn keep(&self, kind: Kind, subject: &str, role: ObjectId, runs: usize, outcome: Outcome) {
        let kept = Arc::new(Kept {
            kind,
            subject: cut(subject),
            role,
            at_ns: now_ns(),
            runs,
            outcome,
        });
        let mut all = self.kept.lock();
        if all.len() == FORECASTS_MAX {
            all.pop_front();
        }
        all.push_back(kept);
    }

    /// All that are kept, the oldest first.
    pub fn all(&self) -> Vec<Arc<Kept>> {
        self.kept.lock().iter().cloned().collect()
    }

    /// A forecast after what became of those before: of the same query, if there are any, else of all of its kind.
    pub fn calibrated(
        &self,
        kind: Kind,
        subject: &str,
        time: Interval,
        certainty: Certainty,
    ) -> (Interval, Certainty) {
        let (kept, subject) = (self.kept.lock(), cut(subject));
        let of_kind = kept.iter().filter(|kept| kept.kind == kind);
        let same = of_kind.clone().filter(|kept| kept.subject == subject);
        let same: Vec<Outcome> = same.map(|kept| kept.outcome).collect();
        if !same.is_empty() {
            return calibrated(time, certainty, &same);
        }
        let all: Vec<Outcome> = of_kind.map(|kept| kept.outcome).collect();
        calibrated(time, certainty, &all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_learns_from_its_own_outcomes_however_long_it_is() {
        let forecasts = Forecasts::default();
        let time = Interval {
            expected: 100,
            low: 90,
            high: 110,
        };
        let long = |letter: &str| letter.repeat(2 * TEXT_CHARS_MAX);
        for (subject, took) in [(long("a"), 1_000), (long("b"), 10)] {
            for _ in 0..8 {
                let outcome = Outcome {
                    time,
                    certainty: Certainty::Low,
                    took,
                };
                forecasts.keep(Kind::Query, &subject, ObjectId(1), 1, outcome);
            }
        }
        let said = |kind, subject: &str| forecasts.calibrated(kind, subject, time, Certainty::Low).0;
        let ends = |interval: Interval| (interval.low, interval.high);
        assert_eq!(ends(said(Kind::Query, &long("a"))), (90, 1_000));
        assert_eq!(ends(said(Kind::Query, &long("b"))), (10, 110));
        assert_eq!(ends(said(Kind::Query, "another")), (10, 1_000));
        assert_eq!(ends(said(Kind::BackFill, "another")), (90, 110));
    }
}
