//! Which partition lives on which worker.

use std::collections::BTreeMap;

use super::Driver;
use crate::id::WorkerId;

impl Driver {
    /// Spreads partitions evenly over the workers, moving as few as it can.
    pub(super) fn place(&mut self, partitions: usize) {
        let mut counts: BTreeMap<WorkerId, usize> = self.workers.iter().map(|worker| (*worker, 0)).collect();
        let share = partitions.div_ceil(counts.len());
        let mut homeless = vec![];
        for (partition, at) in self.placement.iter().enumerate() {
            match counts.get_mut(at) {
                Some(count) if *count < share => *count += 1,
                _ => homeless.push(partition),
            }
        }
        for partition in self.placement.len()..partitions {
            homeless.push(partition);
            self.placement.push(WorkerId(u32::MAX));
        }
        for partition in homeless {
            if let Some((worker, count)) = counts
                .iter_mut()
                .min_by_key(|(worker, count)| (**count, **worker))
            {
                *count += 1;
                self.placement[partition] = *worker;
            }
        }
        // A newcomer takes from those that have most.
        loop {
            let most = counts
                .iter()
                .max_by_key(|(_, count)| **count)
                .map(|(worker, count)| (*worker, *count));
            let least = counts
                .iter()
                .min_by_key(|(_, count)| **count)
                .map(|(worker, count)| (*worker, *count));
            let (Some((most, high)), Some((least, low))) = (most, least) else {
                return;
            };
            if high <= low + 1 {
                return;
            }
            if let Some(partition) = self.placement.iter().rposition(|at| *at == most) {
                self.placement[partition] = least;
                counts.insert(most, high - 1);
                counts.insert(least, low + 1);
            }
        }
    }
}
