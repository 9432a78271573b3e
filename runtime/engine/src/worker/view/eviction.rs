//! Which parts of a view are in memory, and which on disk because memory is short.
//!
//! A part is what a stage keeps on a partition: its operators' state, and of the last stage the view's rows. It leaves as a
//! whole, after a task of the view has ended, and comes back before its own task runs; whoever reads the view reads the rows of
//! such a part from the disk. Which part leaves is left to chance: under load an epoch has rows for all of them, one after the
//! other, and then the one that has been away from the slots for the longest is the one that is needed next.
//!
//! A part has to fit. A view in few partitions, whose parts are too large to come and go, is rebuilt with more of them
//! ([`ViewInstance::has_large_parts`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use millrace_operator::OperatorInstance;
use millrace_planner::StageGraph;
use millrace_resource::error::ResourceError;
use millrace_resource::memory::{Account, OnDisk, Use};
use millrace_resource::spill::state::Spill;
use millrace_state::row_table::write_spilled;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, Semaphore, SemaphorePermit};

use super::{Slot, ViewInstance};
use crate::error::Result;

/// Partitions of a view whose state is larger than memory, at the least; see [`partitions_divided`].
pub(crate) const PARTITIONS_DIVIDED: usize = 128;
/// And at most: each has to be counted, run and scattered to.
const PARTITIONS_DIVIDED_MAX: usize = 512;
/// A part that is in memory takes some kB whatever it holds: there is one for so many bytes of the limit.
const LIMIT_BYTES_A_PART: usize = 512 << 10;
/// A part of fewer bytes stays: there is nothing to win.
const PART_BYTES_MIN: usize = 8 << 10;

/// Parts of a view that its tasks may have brought back at a time: while one waits for the disk its slot is free for the next.
const BROUGHT_BACK_MAX: u32 = 3;
/// What these share: all of them together take a quarter of the limit at most, or are one.
const PLACES: u32 = 48;
const PLACES_PART: usize = 4;

/// The right to a part, and to have brought it back.
pub(crate) struct Turn<'a> {
    _turn: MutexGuard<'a, ()>,
    place: Option<SemaphorePermit<'a>>,
}

/// See the module.
pub(super) struct Eviction {
    /// For each stage, for each partition: held by whoever runs the part's task, takes it away or brings it back.
    turns: Vec<Vec<AsyncMutex<()>>>,
    places: Semaphore,
    /// As many for those that are in memory already while it is short: a slot is free for the next as well while one that has run leaves.
    places_here: Semaphore,
    on_disk: Vec<Vec<Mutex<OnDisk>>>,
    /// Bytes that a part had in memory before it left.
    left: Vec<Vec<AtomicUsize>>,
    /// As the last task heard it.
    low_water: AtomicU64,
    /// As of when marks of spilled rows were dropped.
    settled: AtomicU64,
    chance: AtomicU64,
    has_large_parts: AtomicBool,
    is_divided: AtomicBool,
    relieving: AsyncMutex<()>,
    /// Writing failed; it was said once.
    is_full: AtomicBool,
}

impl Eviction {
    pub fn new(graph: &StageGraph, account: &Arc<Account>) -> Eviction {
        let stages = || graph.stages.iter();
        let partitions = 0..graph.partitions;
        account.set_leaving();
        Eviction {
            turns: (stages().map(|_| partitions.clone().map(|_| AsyncMutex::default()).collect())).collect(),
            on_disk: stages()
                .map(|_| {
                    let parts = partitions.clone();
                    parts.map(|_| Mutex::new(OnDisk::new(account))).collect()
                })
                .collect(),
            left: (stages().map(|_| partitions.clone().map(|_| AtomicUsize::new(0)).collect())).collect(),
            places: Semaphore::new(PLACES as usize),
            places_here: Semaphore::new(PLACES as usize),
            low_water: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            chance: AtomicU64::new(0),
            has_large_parts: AtomicBool::new(false),
            is_divided: AtomicBool::new(false),
            relieving: AsyncMutex::default(),
            is_full: AtomicBool::new(false),
        }
    }

    /// What a stage keeps on a partition is elsewhere; the rows of the view stay.
    pub fn let_go(&self, stage: usize, partition: usize) {
        if stage + 1 < self.on_disk.len() {
            self.left[stage][partition].store(0, Ordering::Relaxed);
            self.on_disk[stage][partition].lock().set(0);
        }
    }

    /// A partition was lost.
    pub fn lose(&self, partition: usize) {
        self.on_disk
            .iter()
            .for_each(|stage| stage[partition].lock().set(0));
    }
}

impl ViewInstance {
    /// Bytes of operators' state on a partition, in memory and on disk: what would move with it.
    pub(crate) fn moved_bytes(&self, stage: usize, partition: usize) -> usize {
        let instance = self.reduces[stage].get(partition);
        let here = instance.map_or(0, |instance| instance.lock().state_bytes());
        here + self.eviction.on_disk[stage][partition].lock().bytes()
    }

    /// The right to a part, for its task, which finds it in memory; none if the stage keeps nothing. `flows`: the task takes its
    /// input while others make it.
    ///
    /// # Errors
    /// It is on disk, and cannot be read.
    pub(crate) async fn turn(&self, stage: usize, partition: usize, flows: bool) -> Result<Option<Turn<'_>>> {
        if !self.is_stateful(stage) {
            return Ok(None);
        }
        let turn = self.eviction.turns[stage][partition].lock().await;
        let mut place = None;
        let memory = self.account.memory();
        let places_of = |bytes| match memory.is_exhausted() {
            true => PLACES,
            false => places_of(bytes, memory.limit()),
        };
        if self.is_spilled(stage, partition) {
            let bytes = self.eviction.left[stage][partition].load(Ordering::Relaxed);
            let image = self.eviction.on_disk[stage][partition].lock().bytes();
            // A task that waits for others may be the one that they wait for: it cannot be kept waiting here.
            if !flows {
                let places = places_of(bytes + image);
                place = self.eviction.places.acquire_many(places).await.ok();
                // The partition may have been lost while this waited.
                if !self.is_spilled(stage, partition) {
                    return Ok(Some(Turn { _turn: turn, place }));
                }
            }
            // What it took before it left is there at once for all who look whether there is space, and so is what is read.
            self.charges[stage][partition].set(bytes);
            let _image = self.account.charge(Use::InFlight, image);
            self.make_room().await;
            let brought = self.bring_back(stage, partition).await;
            self.measure(stage, partition);
            brought?;
        } else if !flows && self.is_divided() && self.is_crowded() {
            // It grows before it can leave.
            let places = places_of(self.charges[stage][partition].bytes());
            place = self.eviction.places_here.acquire_many(places).await.ok();
        }
        Ok(Some(Turn { _turn: turn, place }))
    }

    /// The right to a part that is about to be restored, of a view that has no tasks yet: it may be leaving as it was made, without
    /// state, and has to have left before it gets its own.
    pub(crate) async fn turn_to_restore(&self, stage: usize, partition: usize) -> MutexGuard<'_, ()> {
        let turn = self.eviction.turns[stage][partition].lock().await;
        self.eviction.on_disk[stage][partition].lock().set(0);
        self.eviction.left[stage][partition].store(0, Ordering::Relaxed);
        turn
    }

    /// Bytes that the parts of its state had in memory that are on disk now.
    pub(crate) fn left_bytes(&self) -> usize {
        let parts = self.eviction.left.iter().flatten();
        parts.map(|left| left.load(Ordering::Relaxed)).sum()
    }

    /// Whether something of a part is on disk.
    fn is_spilled(&self, stage: usize, partition: usize) -> bool {
        let is_last = stage + 1 == self.graph.stages.len();
        let operators = self.reduces[stage].get(partition);
        operators.is_some_and(|slot| matches!(&*slot.lock(), Slot::Away(_)))
            || (is_last && self.contents.partitions[partition].read().is_spilled())
    }

    /// The oldest version that a reader may still look at.
    pub(crate) fn set_low_water(&self, version: u64) {
        self.eviction.low_water.fetch_max(version, Ordering::Relaxed);
    }

    /// Brings a part back into memory that is on disk. The caller has the turn.
    ///
    /// # Errors
    /// It cannot be read.
    async fn bring_back(&self, stage: usize, partition: usize) -> Result<()> {
        let generation = self.generation(partition);
        let mut is_back = false;
        if let Some(slot) = self.reduces[stage].get(partition) {
            let away = match &*slot.lock() {
                Slot::Away(image) => Some(image.clone()),
                Slot::Empty | Slot::Here(_) => None,
            };
            if let Some(image) = away {
                let image = image.load().await?;
                let mut operators = OperatorInstance::new(&self.graph.stages[stage].root, partition)?;
                operators.restore(&image)?;
                let mut slot = slot.lock();
                if self.generation(partition) == generation {
                    *slot = Slot::Here(Box::new(operators));
                }
                is_back = true;
            }
        }
        if stage + 1 == self.graph.stages.len() {
            let contents = &self.contents.partitions[partition];
            let away = {
                let contents = contents.read();
                contents.is_spilled().then(|| contents.view(0))
            };
            if let Some(away) = away {
                let mut chunks = vec![];
                for chunk in 0..away.num_chunks() {
                    chunks.push(away.chunk(chunk).await?);
                }
                let mut contents = contents.write();
                if self.generation(partition) == generation {
                    contents.come_back(chunks)?;
                }
                is_back = true;
            }
        }
        if is_back {
            self.eviction.on_disk[stage][partition].lock().set(0);
            self.eviction.left[stage][partition].store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Charges what a stage's task keeps on a partition now.
    pub(super) fn measure(&self, stage: usize, partition: usize) {
        self.charges[stage][partition].measure(|| self.part_bytes(stage, partition));
    }

    /// Whether parts of it have to leave before it may take more.
    fn is_crowded(&self) -> bool {
        self.account.memory().is_crowded() && self.account.leaves()
    }

    /// If memory is short and the view is among those that hold most, its parts leave that no task has, as many as have to.
    pub(crate) async fn make_room(&self) {
        let Some(spill) = self.spill.as_ref() else {
            return;
        };
        let mut by_chance = match spill.is_by_chance() {
            true => self.chance() % 3,
            false => 0,
        };
        while self.failure().is_none() && (by_chance > 0 || self.is_crowded()) {
            let bytes_min = if by_chance > 0 { 0 } else { PART_BYTES_MIN };
            by_chance = by_chance.saturating_sub(1);
            let Some((stage, partition)) = self.next_to_leave(bytes_min) else {
                self.settle_spilled();
                return;
            };
            let Ok(_turn) = self.eviction.turns[stage][partition].try_lock() else {
                continue;
            };
            if !self.leaves(spill, stage, partition).await {
                return;
            }
        }
    }

    /// At the end of the task that has a part: where memory is short and no other part could leave, this one does. It would stay while
    /// the task of the next epoch waits for a slot, which holds it from now on, and so would those that are brought back after it. What
    /// is left is the place of the part.
    pub(in crate::worker) async fn end_turn<'a>(
        &self,
        turn: Option<Turn<'a>>,
        stage: usize,
        partition: usize,
    ) -> Option<SemaphorePermit<'a>> {
        let turn = turn?;
        self.make_room().await;
        if let Some(spill) = self.spill.as_ref()
            && self.is_divided()
            && self.is_crowded()
            && self.charges[stage][partition].bytes() >= PART_BYTES_MIN
        {
            self.leaves(spill, stage, partition).await;
        }
        turn.place
    }

    /// Rows that left while somebody could still read older versions keep marks in memory of when each came and went. Here those go
    /// that nobody needs any more.
    fn settle_spilled(&self) {
        let low_water = self.eviction.low_water.load(Ordering::Relaxed);
        if self.eviction.settled.load(Ordering::Relaxed) >= low_water {
            return;
        }
        let mut is_whole = true;
        let last = self.graph.stages.len() - 1;
        for (partition, contents) in self.contents.partitions.iter().enumerate() {
            let Ok(_turn) = self.eviction.turns[last][partition].try_lock() else {
                is_whole = false;
                continue;
            };
            if let Err(error) = contents.write().settle_spilled(low_water) {
                tracing::error!(view = %self.name, %error, "marks of spilled rows cannot be dropped");
                return;
            }
            self.measure(last, partition);
        }
        if is_whole {
            self.eviction.settled.fetch_max(low_water, Ordering::Relaxed);
        }
    }

    /// Has parts leave, if memory is short. Nobody waits here: what a task has taken in or emitted is free again when the tasks after
    /// it have run.
    ///
    /// # Errors
    /// There is no memory for the view to go on; for one whose state is on disk in part, half as much again as there is was taken.
    pub(in crate::worker) async fn room(&self) -> Result<(), ResourceError> {
        self.make_room().await;
        if self.is_divided() && !self.account.memory().is_overdrawn() {
            return Ok(());
        }
        self.account.check()
    }

    /// A number that nobody can tell.
    fn chance(&self) -> u64 {
        // The upper bits of a Weyl sequence.
        let step = 0x9E37_79B9_7F4A_7C15;
        self.eviction.chance.fetch_add(step, Ordering::Relaxed) >> 33
    }

    /// As [`ViewInstance::make_room`], for a part whose turn the caller has, before its image is taken: one in memory would hold
    /// what is to leave.
    pub(in crate::worker) async fn leave_before_image(&self, stage: usize, partition: usize) {
        if let Some(spill) = self.spill.as_ref()
            && self.is_stateful(stage)
            && (self.is_crowded()
                || self.account.on_disk() > 0
                || (spill.is_by_chance() && self.chance().is_multiple_of(2)))
        {
            self.leaves(spill, stage, partition).await;
        }
    }

    /// A part of so many bytes or more that may leave: any of those that no task has.
    fn next_to_leave(&self, bytes_min: usize) -> Option<(usize, usize)> {
        let mut parts = vec![];
        for (stage, charges) in self.charges.iter().enumerate() {
            for (partition, charge) in charges.iter().enumerate() {
                let bytes = charge.bytes();
                if bytes < bytes_min || !self.can_leave(stage, partition) {
                    continue;
                }
                if self.account.memory().is_large_part(bytes) && self.graph.partitions < PARTITIONS_DIVIDED {
                    self.eviction.has_large_parts.store(true, Ordering::Release);
                }
                if self.eviction.turns[stage][partition].try_lock().is_ok() {
                    parts.push((stage, partition));
                }
            }
        }
        let count = parts.len() as u64;
        (count > 0).then(|| parts[(self.chance() % count) as usize])
    }

    /// Whether something of a part is in memory that may leave.
    fn can_leave(&self, stage: usize, partition: usize) -> bool {
        let is_last = stage + 1 == self.graph.stages.len();
        let has_rows = || is_last && !self.contents.partitions[partition].read().is_spilled();
        match self.reduces[stage].get(partition) {
            None => has_rows(),
            Some(slot) => match &*slot.lock() {
                Slot::Here(operators) => operators.can_leave(),
                Slot::Away(_) => has_rows(),
                Slot::Empty => false,
            },
        }
    }

    /// Whether memory was short, and parts of it are too large to come and go.
    pub(crate) fn has_large_parts(&self) -> bool {
        self.eviction.has_large_parts.load(Ordering::Acquire)
    }

    /// Whether it was made in so many partitions that its state can be on disk in part.
    pub(crate) fn is_divided(&self) -> bool {
        self.spill.as_ref().is_some() && self.graph.partitions >= PARTITIONS_DIVIDED
    }

    /// Whether it may be rebuilt with more partitions.
    pub(in crate::worker) fn can_be_divided(&self) -> bool {
        self.spill.as_ref().is_some() && self.graph.partitions < PARTITIONS_DIVIDED
    }

    /// Whether it is to be rebuilt with more partitions: its parts are too large, or there was no memory for it. True once.
    pub(crate) fn take_to_divide(&self) -> bool {
        let is_wanted = match self.failure() {
            None => self.has_large_parts(),
            Some(_) => self.is_out_of_memory.load(Ordering::Acquire),
        };
        is_wanted && self.can_be_divided() && !self.eviction.is_divided.swap(true, Ordering::AcqRel)
    }

    /// Has parts leave in the background, if nobody sees to it already.
    pub(crate) async fn relieve(&self) {
        if let Ok(_relieving) = self.eviction.relieving.try_lock() {
            self.make_room().await;
        }
    }

    /// Has a part leave, whose turn the caller has; returns whether it has left.
    async fn leaves(&self, spill: &Arc<Spill>, stage: usize, partition: usize) -> bool {
        match self.leave(spill, stage, partition).await {
            Ok(has_left) => has_left,
            Err(error) => {
                if !self.eviction.is_full.swap(true, Ordering::Relaxed) {
                    tracing::error!(view = %self.name, %error, "memory is short, and the state of a view \
                     cannot be spilled");
                }
                false
            }
        }
    }

    async fn leave(&self, spill: &Arc<Spill>, stage: usize, partition: usize) -> Result<bool> {
        let generation = self.generation(partition);
        let mut writer = spill.begin();
        let mut has_left = false;
        if let Some(slot) = self.reduces[stage].get(partition) {
            let image = match &mut *slot.lock() {
                Slot::Here(operators) if operators.can_leave() => Some(operators.image()?),
                Slot::Away(_) => None,
                Slot::Here(_) | Slot::Empty => return Ok(false),
            };
            if let Some(image) = image {
                let _image = self.account.charge(Use::InFlight, image.memory_bytes());
                let image = image.leave(&mut writer).await?;
                let mut slot = slot.lock();
                if self.generation(partition) != generation {
                    return Ok(false);
                }
                *slot = Slot::Away(image);
                has_left = true;
            }
        }
        if stage + 1 == self.graph.stages.len() {
            let contents = &self.contents.partitions[partition];
            let low_water = self.eviction.low_water.load(Ordering::Relaxed);
            let table = {
                let mut contents = contents.write();
                let is_here = !contents.is_spilled() && self.generation(partition) == generation;
                is_here.then(|| contents.before_leaving(low_water)).transpose()?
            };
            if let Some(table) = table {
                let away = write_spilled(&mut writer, &table).await?;
                let mut contents = contents.write();
                if self.generation(partition) != generation {
                    return Ok(false);
                }
                contents.leave(&table, away)?;
                has_left = true;
            }
        }
        if has_left {
            let bytes = self.charges[stage][partition].bytes();
            self.eviction.left[stage][partition].fetch_max(bytes, Ordering::Relaxed);
        }
        self.measure(stage, partition);
        if has_left {
            let mut on_disk = self.eviction.on_disk[stage][partition].lock();
            let bytes = on_disk.bytes() + writer.bytes() as usize;
            on_disk.set(bytes);
        }
        Ok(has_left)
    }
}

/// Partitions of a view whose state is larger than a limit of so many bytes.
pub(crate) fn partitions_divided(limit: usize) -> usize {
    (limit / LIMIT_BYTES_A_PART).clamp(PARTITIONS_DIVIDED, PARTITIONS_DIVIDED_MAX)
}

/// Places that a part of so many bytes takes while it is back.
fn places_of(bytes: usize, limit: usize) -> u32 {
    let all = (limit / PLACES_PART).max(1);
    let places = bytes.saturating_mul(PLACES as usize) / all;
    let places = u32::try_from(places).unwrap_or(PLACES);
    places.clamp(PLACES / BROUGHT_BACK_MAX, PLACES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_limit_has_fewer_parts() {
        assert_eq!(partitions_divided(2 << 20), 128);
        assert_eq!(partitions_divided(128 << 20), 256);
        assert_eq!(partitions_divided(usize::MAX), 512);
    }

    #[test]
    fn large_parts_are_brought_back_one_by_one() {
        let limit = 256 << 20;
        assert_eq!(places_of(0, usize::MAX), 16);
        assert_eq!(places_of(8 << 20, limit), 16);
        assert_eq!(places_of(32 << 20, limit), 24);
        assert_eq!(places_of(40 << 20, limit), 30);
        assert_eq!(places_of(64 << 20, limit), 48);
        assert_eq!(places_of(usize::MAX, 1), 48);
    }
}
