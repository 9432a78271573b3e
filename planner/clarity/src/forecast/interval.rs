//! What every forecast says: the time that is expected, between what and what it will be, and how sure that is.

use serde::{Deserialize, Serialize};

use crate::profile::Nanoseconds;

/// A time that is expected, and the ends of the interval in which it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub expected: Nanoseconds,
    pub low: Nanoseconds,
    pub high: Nanoseconds,
}

/// How sure a forecast is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// A kind of operator was never seen.
    Low,
    /// Rows are estimated, or an operator was seen seldom or with few rows.
    Medium,
    High,
}

impl Certainty {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Low => "low",
            Certainty::Medium => "medium",
            Certainty::High => "high",
        }
    }
}
