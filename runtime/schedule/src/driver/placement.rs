//! Which partition lives on which worker.
//!
//! Every worker has as many as the others, give or take one. Which of them move when a worker comes or goes, and where to, is a
//! matter of the policy:
//! * `lma` looks at what is kept first: those stay that have most state, and what has to move goes, the largest first, to
//!   where checkpoints are, as long as there is room: nothing crosses a link for it. Then at memory: a worker whose memory is
//!   nearly full gets nothing new while another has room, and of several the one with the least pressure has the odd one
//!   more. Then at load: the worker with the fewest.
//! * The others go by load alone: the worker with the fewest gets what moves, and whatever has the highest number does.
//!
//! Places change only when workers or partitions do: what is kept changes all the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Driver;
use crate::cpu::policy::{MEMORY_PERMILLE_MAX, SchedulerPolicy};
use crate::id::WorkerId;

/// Nobody has it.
const NOWHERE: WorkerId = WorkerId(u32::MAX);

/// A worker as a place for partitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home {
    pub worker: WorkerId,
    /// Checkpoints are there.
    pub has_images: bool,
    pub memory_permille: u32,
}

impl Home {
    /// Pressure in steps of a tenth: a hair's breadth is no reason.
    fn pressure(&self) -> u32 {
        self.memory_permille / 100
    }

    fn is_full(&self) -> bool {
        self.memory_permille > MEMORY_PERMILLE_MAX
    }
}

impl Driver {
    /// Has so many partitions placed, on the workers that there are.
    pub(super) fn place(&mut self, partitions: usize) {
        if self.placed_over == self.workers && self.placement.len() >= partitions {
            return;
        }
        self.placement
            .resize(partitions.max(self.placement.len()), NOWHERE);
        self.kept.resize(self.placement.len(), 0);
        let homes: Vec<Home> = (self.workers.iter())
            .map(|worker| Home {
                worker: *worker,
                has_images: self.cutters.contains(worker),
                memory_permille: (self.liveness.get(worker)).map_or(0, |known| known.load().memory_permille),
            })
            .collect();
        match self.policy {
            SchedulerPolicy::Lma => by_locality(&mut self.placement, &self.kept, &homes),
            _ => by_load(&mut self.placement, &homes),
        }
        self.placed_over.clone_from(&self.workers);
    }

    /// A worker says how much it keeps of each partition. One that is just being restored there is not forgotten at once.
    pub(super) fn keeps(&mut self, worker: WorkerId, bytes: &[u64]) {
        for (partition, at) in self.placement.iter().enumerate() {
            if *at == worker {
                let now = bytes.get(partition).copied().unwrap_or(0);
                self.kept[partition] = if now > 0 { now } else { self.kept[partition] / 2 };
            }
        }
    }
}

/// Spreads partitions evenly, moving as little of what is kept as that allows.
pub(super) fn by_locality(placement: &mut [WorkerId], kept: &[u64], homes: &[Home]) {
    if homes.is_empty() {
        return;
    }
    // What each has, the largest first.
    let mut own: Vec<Vec<usize>> = vec![vec![]; homes.len()];
    for (partition, at) in placement.iter().enumerate() {
        if let Some(home) = homes.iter().position(|home| home.worker == *at) {
            own[home].push(partition);
        }
    }
    for partitions in &mut own {
        partitions.sort_by_key(|partition| (Reverse(kept[*partition]), *partition));
    }
    let shares = shares(placement.len(), kept, homes, &own);
    let mut counts: Vec<usize> = vec![0; homes.len()];
    let mut stays = vec![false; placement.len()];
    for (home, partitions) in own.iter().enumerate() {
        for partition in &partitions[..partitions.len().min(shares[home])] {
            stays[*partition] = true;
            counts[home] += 1;
        }
    }
    let mut homeless: Vec<usize> = (0..placement.len())
        .filter(|partition| !stays[*partition])
        .collect();
    homeless.sort_by_key(|partition| (Reverse(kept[*partition]), *partition));
    for partition in homeless {
        let with_room = (0..homes.len()).filter(|home| counts[*home] < shares[*home]);
        let best = with_room.min_by_key(|home| {
            let is_far = kept[partition] > 0 && !homes[*home].has_images;
            (
                is_far,
                counts[*home],
                homes[*home].pressure(),
                homes[*home].worker,
            )
        });
        // There is as much room as there are partitions.
        if let Some(best) = best {
            counts[best] += 1;
            placement[partition] = homes[best].worker;
        }
    }
}

/// How many partitions each worker is to have.
fn shares(partitions: usize, kept: &[u64], homes: &[Home], own: &[Vec<usize>]) -> Vec<usize> {
    let are_all_full = homes.iter().all(Home::is_full);
    let takes_more = |home: &usize| are_all_full || !homes[*home].is_full();
    let even = partitions.div_ceil(homes.len());
    let mut shares: Vec<usize> = own.iter().map(|own| own.len().min(even)).collect();
    let mut open: Vec<usize> = (0..homes.len()).filter(takes_more).collect();
    let closed: usize = (0..homes.len())
        .filter(|home| !takes_more(home))
        .map(|home| shares[home])
        .sum();
    let (each, odd) = (
        (partitions - closed) / open.len(),
        (partitions - closed) % open.len(),
    );
    open.iter().for_each(|home| shares[*home] = each);
    // The odd ones: to whoever would have to give most away without, then to whoever has most room.
    open.sort_by_key(|home| {
        let given_away = own[*home].get(each).map(|partition| kept[*partition]);
        (Reverse(given_away), homes[*home].pressure(), homes[*home].worker)
    });
    open.iter().take(odd).for_each(|home| shares[*home] += 1);
    shares
}

/// Spreads partitions evenly, moving as few as that allows.
fn by_load(placement: &mut [WorkerId], homes: &[Home]) {
    let mut counts: BTreeMap<WorkerId, usize> = homes.iter().map(|home| (home.worker, 0)).collect();
    if counts.is_empty() {
        return;
    }
    let share = placement.len().div_ceil(counts.len());
    let mut homeless = vec![];
    for (partition, at) in placement.iter().enumerate() {
        match counts.get_mut(at) {
            Some(count) if *count < share => *count += 1,
            _ => homeless.push(partition),
        }
    }
    for partition in homeless {
        if let Some((worker, count)) = counts
            .iter_mut()
            .min_by_key(|(worker, count)| (**count, **worker))
        {
            *count += 1;
            placement[partition] = *worker;
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
        if let Some(partition) = placement.iter().rposition(|at| *at == most) {
            placement[partition] = least;
            counts.insert(most, high - 1);
            counts.insert(least, low + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(worker: u32, memory_permille: u32) -> Home {
        Home {
            worker: WorkerId(worker),
            has_images: worker == 0,
            memory_permille,
        }
    }

    fn at(workers: &[u32]) -> Vec<WorkerId> {
        workers.iter().copied().map(WorkerId).collect()
    }

    fn placed(workers: &[u32], kept: &[u64], homes: &[Home]) -> Vec<u32> {
        let mut placement = at(workers);
        by_locality(&mut placement, kept, homes);
        placement.iter().map(|worker| worker.0).collect()
    }

    /// Of all ways to place these evenly, what the cheapest moves away from workers that are there.
    fn least(workers: &[u32], kept: &[u64], homes: &[Home]) -> u64 {
        let (count, each) = (homes.len(), workers.len() / homes.len());
        let ways = count.pow(workers.len() as u32);
        let costs = (0..ways).filter_map(|way| {
            let mut counts = vec![0; count];
            let (mut rest, mut cost) = (way, 0);
            for (partition, was) in workers.iter().enumerate() {
                let home = rest % count;
                rest /= count;
                counts[home] += 1;
                let is_there = homes.iter().any(|home| home.worker.0 == *was);
                if is_there && homes[home].worker.0 != *was {
                    cost += kept[partition];
                }
            }
            let is_even = counts.iter().all(|count| (each..=each + 1).contains(count));
            (is_even
                || workers.len().is_multiple_of(homes.len()) && counts.iter().all(|count| *count == each))
            .then_some(cost)
        });
        costs.min().unwrap()
    }

    fn moved(before: &[u32], after: &[u32], kept: &[u64], homes: &[Home]) -> u64 {
        let pairs = before.iter().zip(after).zip(kept);
        pairs
            .filter(|((was, is), _)| was != is && homes.iter().any(|home| home.worker.0 == **was))
            .map(|(_, bytes)| bytes)
            .sum()
    }

    #[test]
    fn as_little_moves_as_balance_allows() {
        // A generator of one's own: each case is another draw.
        let mut random = 88_172_645_463_325_252_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for case in 0..2_000 {
            let partitions = 1 + draw(7) as usize;
            let homes: Vec<Home> = (0..1 + draw(3) as u32).map(|worker| home(worker, 0)).collect();
            // Some are of workers that are gone, some of nobody yet.
            let workers: Vec<u32> = (0..partitions)
                .map(|_| draw(homes.len() as u64 + 1) as u32)
                .collect();
            let kept: Vec<u64> = (0..partitions).map(|_| draw(4) * draw(100)).collect();
            let after = placed(&workers, &kept, &homes);
            let counts = homes
                .iter()
                .map(|home| after.iter().filter(|worker| **worker == home.worker.0).count());
            let (most, fewest) = (counts.clone().max().unwrap(), counts.min().unwrap());
            assert!(most <= fewest + 1, "{case}: {workers:?} {after:?}");
            assert_eq!(
                moved(&workers, &after, &kept, &homes),
                least(&workers, &kept, &homes),
                "{case}: {workers:?} {kept:?} {after:?}"
            );
            // Nothing moves again.
            assert_eq!(placed(&after, &kept, &homes), after);
        }
    }

    #[test]
    fn a_newcomer_gets_the_smallest_and_by_load_the_last() {
        let (workers, kept) = ([0, 1, 0, 1, 0, 1], [1, 50, 70, 60, 80, 90]);
        let homes = [home(0, 0), home(1, 0), home(2, 0)];
        assert_eq!(placed(&workers, &kept, &homes), [2, 2, 0, 1, 0, 1]);
        let mut placement = at(&workers);
        by_load(&mut placement, &homes);
        assert_eq!(placement, at(&[0, 1, 0, 1, 2, 2]));
    }

    #[test]
    fn what_has_to_move_goes_to_the_checkpoints_the_largest_first() {
        let (workers, kept) = ([0, 1, 2, 2, 2, 2], [5, 5, 10, 40, 20, 30]);
        let homes = [home(0, 0), home(1, 0)];
        assert_eq!(placed(&workers, &kept, &homes), [0, 1, 1, 0, 1, 0]);
        // Without state it goes round, so that views of few partitions are spread, too.
        assert_eq!(placed(&[9; 5], &[0; 5], &homes), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn one_whose_memory_is_full_gets_nothing_new() {
        let (workers, kept) = ([0, 1, 2, 2, 1, 0], [1; 6]);
        let (full, other) = (home(0, 900), home(1, 100));
        assert_eq!(placed(&workers, &kept, &[full, other]), [0, 1, 1, 1, 1, 0]);
        // Where all are, it is as if none was.
        assert_eq!(placed(&workers, &kept, &[full, home(1, 900)]), [0, 1, 0, 1, 1, 0]);
        // The odd one goes to who has most room, unless another would have to give more away for that.
        let homes = [home(0, 500), home(1, 100)];
        assert_eq!(placed(&[9, 9, 9], &[0; 3], &homes), [1, 0, 1]);
        assert_eq!(placed(&[0, 0, 9], &[7; 3], &homes), [0, 0, 1]);
    }
}
