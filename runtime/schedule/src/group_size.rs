//! The size of groups, by AIMD (additive increase, multiplicative decrease) on the measured share of coordination, the other way
//! round: the size is multiplied when there is too much coordination, and decreased by a step when there is too little.
//!
//! Coordination is what an epoch would not need if it were already launched: the driver's time for the group, and the time
//! in which input waited for the next group. Its share of the total, exponentially smoothed, is held between two bounds:
//! above the upper one the group grows by a factor, below the lower one it shrinks by a step.
//!
//! Source: Drizzle (SOSP'17), section 3.4.

use serde::{Deserialize, Serialize};

/// How many epochs a group has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum GroupSize {
    /// So many that coordination takes between `lower` and `upper` of the time (fractions).
    Auto {
        lower: f64,
        upper: f64,
    },
    Fixed(u64),
}

impl Default for GroupSize {
    fn default() -> Self {
        GroupSize::Auto {
            lower: 0.05,
            upper: 0.10,
        }
    }
}

/// What a group took, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCosts {
    /// The driver's own time.
    pub scheduling_ns: u64,
    /// Time in which input waited for the next group.
    pub waited_ns: u64,
    /// Time of the epochs, each from its cut to its end.
    pub execution_ns: u64,
}

/// Largest group. At a millisecond an epoch it is ten seconds: as long as a change of plan may wait.
pub const GROUP_MAX: u64 = 10_000;
const GROWTH: f64 = 1.5;
const STEP: u64 = 1;
/// Weight of the newest group in the smoothed share.
const SMOOTHING: f64 = 0.3;

/// See the module.
#[derive(Debug, Clone)]
pub struct GroupTuner {
    setting: GroupSize,
    size: u64,
    share: Option<f64>,
}

impl Default for GroupTuner {
    fn default() -> Self {
        GroupTuner::new(GroupSize::default())
    }
}

impl GroupTuner {
    pub fn new(setting: GroupSize) -> Self {
        let size = match setting {
            GroupSize::Auto { .. } => 1,
            GroupSize::Fixed(size) => size.clamp(1, GROUP_MAX),
        };
        GroupTuner {
            setting,
            size,
            share: None,
        }
    }

    /// Changes the setting; an automatic size starts from where it is.
    pub fn set(&mut self, setting: GroupSize) {
        self.setting = setting;
        self.share = None;
        if let GroupSize::Fixed(size) = setting {
            self.size = size.clamp(1, GROUP_MAX);
        }
    }

    /// Epochs of the next group.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The smoothed share of coordination in the total, as expected of the next group.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(0.0)
    }

    /// Learns from a group that ended.
    pub fn learn(&mut self, costs: GroupCosts) {
        let coordination = (costs.scheduling_ns + costs.waited_ns) as f64;
        let total = coordination + costs.execution_ns as f64;
        if total == 0.0 {
            return;
        }
        let now = coordination / total;
        let share = self
            .share
            .map_or(now, |before| before + SMOOTHING * (now - before));
        self.share = Some(share);
        let GroupSize::Auto { lower, upper } = self.setting else {
            return;
        };
        let before = self.size;
        if share > upper {
            self.size = ((self.size as f64 * GROWTH).ceil() as u64).min(GROUP_MAX);
        } else if share < lower {
            self.size = self.size.saturating_sub(STEP).max(1);
        }
        // A group costs the same to coordinate whatever its size: what was measured is carried over to the new one, or the
        // smoothed share would lag behind and the size overshoot.
        let growth = self.size as f64 / before as f64;
        self.share = Some(share / (share + (1.0 - share) * growth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group costs 1 ms to coordinate, an epoch 0.5 ms: the share is between the bounds from 18 to 38 epochs.
    #[test]
    fn the_size_settles_within_the_bounds_and_follows_a_change_of_load() {
        let mut tuner = GroupTuner::default();
        let settle = |tuner: &mut GroupTuner, epoch_ns: u64, groups: usize| {
            for _ in 0..groups {
                let execution_ns = tuner.size() * epoch_ns;
                tuner.learn(GroupCosts {
                    scheduling_ns: 1_000_000,
                    waited_ns: 0,
                    execution_ns,
                });
            }
            tuner.size()
        };
        let size = settle(&mut tuner, 500_000, 100);
        assert!((18..=38).contains(&size), "{size}");
        assert!((0.05..=0.10).contains(&tuner.share()), "{}", tuner.share());
        // Ten times the work: smaller groups will do.
        let size = settle(&mut tuner, 5_000_000, 400);
        assert!((1..=4).contains(&size), "{size}");
        let size = settle(&mut tuner, 50_000, 400);
        assert!((180..=380).contains(&size), "{size}");
    }

    #[test]
    fn a_fixed_size_stays() {
        let mut tuner = GroupTuner::new(GroupSize::Fixed(25));
        for _ in 0..10 {
            tuner.learn(GroupCosts {
                scheduling_ns: 1,
                waited_ns: 0,
                execution_ns: 1,
            });
        }
        assert_eq!(tuner.size(), 25);
    }
}
