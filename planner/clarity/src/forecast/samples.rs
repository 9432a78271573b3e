//! What was seen of one thing several times, and what it says of the next time: as much as in the middle, at the least the least, at
//! the most the most. What was seen too seldom may be off by more than that.

use std::ops::{AddAssign, Mul};

/// Fewer rows than this are too few to tell what one costs.
pub const ROWS_TIMED_MIN: u64 = 1_000;
/// What was seen this often is known well.
const SAMPLES_SURE: usize = 3;
/// By how much a cost may be off that was seen too seldom, either way.
const SELDOM_FACTOR: f64 = 1.5;

/// Numbers in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn new(mut samples: Vec<f64>) -> Samples {
        samples.sort_by(f64::total_cmp);
        Samples(samples)
    }

    /// The upper one of two in the middle.
    pub fn median(&self) -> Option<f64> {
        self.0.get(self.0.len() / 2).copied()
    }

    /// Whether it was seen often enough to be known well.
    pub fn are_many(&self) -> bool {
        self.0.len() >= SAMPLES_SURE
    }

    /// From the least to the most that was seen.
    pub fn spread(&self) -> Option<Spread> {
        Some(Spread {
            low: *self.0.first()?,
            expected: self.median()?,
            high: *self.0.last()?,
        })
    }

    /// The same, wider where it was seen too seldom.
    pub fn cost(&self) -> Option<Spread> {
        let factor = if self.are_many() { 1.0 } else { SELDOM_FACTOR };
        self.spread().map(|spread| spread.widened(factor))
    }
}

/// A number that is not known for sure.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
}

impl Spread {
    /// A number that is.
    pub fn of(number: f64) -> Spread {
        Spread {
            low: number,
            expected: number,
            high: number,
        }
    }

    /// With ends that may be off by so many times, either way.
    pub fn widened(self, factor: f64) -> Spread {
        Spread {
            low: self.low / factor,
            high: self.high * factor,
            ..self
        }
    }
}

impl Mul<f64> for Spread {
    type Output = Spread;

    fn mul(self, factor: f64) -> Spread {
        Spread {
            low: self.low * factor,
            expected: self.expected * factor,
            high: self.high * factor,
        }
    }
}

impl AddAssign for Spread {
    fn add_assign(&mut self, other: Spread) {
        self.low += other.low;
        self.expected += other.expected;
        self.high += other.high;
    }
}
