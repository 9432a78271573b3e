//! How long input waits for company before its epoch is cut, so that a target for freshness holds at the lowest cost: an epoch has a cost
//! of its own, and the fewer there are, the more is left for others.
//!
//! A row that comes right behind a cut waits for the next one and then for its epoch. So the time between two cuts is what the target
//! leaves when the epoch's own time is taken off, with a reserve.

use std::collections::{BTreeMap, VecDeque};

/// Epochs whose times are remembered.
const REMEMBERED: usize = 64;
/// With fewer of them an epoch is thought to take half of the target.
const KNOWN_MIN: usize = 8;
/// So much of the target, in percent, is for the row that waits longest: the rest is for what no epoch has shown yet.
const PLANNED_PERCENT: u64 = 90;

/// See the module. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// From the arrival of a row to the end of its epoch; 0: as soon as can be.
    target: u64,
    /// When epochs that are under way were cut.
    cut_at: BTreeMap<u64, u64>,
    /// How long the last ones took that had something to do.
    took: VecDeque<u64>,
}

impl Pace {
    pub fn new(target: u64) -> Pace {
        Pace {
            target,
            ..Pace::default()
        }
    }

    pub fn has_target(&self) -> bool {
        self.target > 0
    }

    pub fn set_target(&mut self, target: u64) {
        self.target = target;
    }

    /// What was learned under the template before.
    pub fn learn_from(&mut self, before: Pace) {
        self.took = before.took;
    }

    pub fn cut(&mut self, epoch: u64, at: u64) {
        if self.target > 0 {
            self.cut_at.insert(epoch, at);
        }
    }

    /// The epoch has no rows: what it takes says nothing.
    pub fn is_empty(&mut self, epoch: u64) {
        self.cut_at.remove(&epoch);
    }

    /// An epoch is done.
    pub fn done(&mut self, epoch: u64, at: u64) {
        if let Some(since) = self.cut_at.remove(&epoch) {
            if self.took.len() == REMEMBERED {
                self.took.pop_front();
            }
            self.took.push_back(at.saturating_sub(since));
        }
    }

    /// The time between two cuts; 0: as soon as there is input.
    pub fn interval(&self) -> u64 {
        if self.target == 0 {
            return 0;
        }
        // The longest but one: a single one that took long foretells nothing.
        let mut longest = [0; 2];
        for took in &self.took {
            if *took > longest[0] {
                longest = [*took, longest[0]];
            } else if *took > longest[1] {
                longest[1] = *took;
            }
        }
        let epoch = match self.took.len() {
            known if known < KNOWN_MIN => longest[0].max(self.target / 2),
            _ => longest[1],
        };
        (self.target / 100 * PLANNED_PERCENT).saturating_sub(epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn paced(target: u64, took: &[u64]) -> u64 {
        let mut pace = Pace::new(target);
        for (epoch, took) in took.iter().enumerate() {
            pace.cut(epoch as u64, 7);
            pace.done(epoch as u64, 7 + took);
        }
        pace.interval()
    }

    #[test]
    fn what_the_target_leaves_is_waited_for_company() {
        assert_eq!(paced(0, &[MS; 64]), 0, "no target");
        assert_eq!(paced(100 * MS, &[5 * MS; 64]), 85 * MS);
        assert_eq!(paced(100 * MS, &[95 * MS; 64]), 0, "it cannot be held");
        assert_eq!(paced(100 * MS, &[]), 40 * MS, "nothing is known yet");
        assert_eq!(paced(100 * MS, &[70 * MS; 2]), 20 * MS, "little is known yet");
    }

    #[test]
    fn one_that_took_long_foretells_nothing_and_two_do() {
        let mut took = vec![5 * MS; 63];
        took.push(80 * MS);
        assert_eq!(paced(100 * MS, &took), 85 * MS);
        took.push(60 * MS);
        assert_eq!(paced(100 * MS, &took), 30 * MS);
        took.extend([5 * MS; 63]);
        assert_eq!(paced(100 * MS, &took), 85 * MS, "the first of them is forgotten");
    }

    #[test]
    fn epochs_without_rows_say_nothing() {
        let mut pace = Pace::new(100 * MS);
        for epoch in 0..64 {
            pace.cut(epoch, 0);
            if epoch % 2 == 1 {
                pace.is_empty(epoch);
            }
            pace.done(epoch, if epoch % 2 == 0 { 10 * MS } else { 1 });
        }
        assert_eq!(pace.interval(), 80 * MS);
    }
}
