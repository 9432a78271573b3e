//! Forgetting rows that are gone: from the chains in which probes met them, and for good.

use std::sync::Arc;

use millrace_schedule::id::Version;

use super::{RowTable, Size, hashes};
use crate::chunk::Chunk;
use crate::error::Result;
use crate::index::HashIndex;

/// A table smaller than this is not rebuilt: there is nothing to win.
const REBUILD_DEAD_ROWS_MIN: usize = 1_024;

impl RowTable {
    /// Frees what no reader at `low_water` or later can see, when there is enough of it. Row numbers change.
    pub fn tidy(&mut self, low_water: Version) -> Result<()> {
        self.prune(low_water);
        self.settle_deletions(low_water);
        // It costs what is kept: what is alive, and what someone may still read.
        let kept = self.live_rows + self.dead_rows - self.forgotten_rows;
        if self.forgotten_rows > REBUILD_DEAD_ROWS_MIN.max(kept) {
            self.rebuild(low_water)?;
        }
        Ok(())
    }

    /// Counts the dead rows that no reader at `low_water` or later can see.
    pub(super) fn settle_deletions(&mut self, low_water: Version) {
        self.low_water = low_water;
        while let Some((_, rows)) = self.deletions.pop_front_if(|(version, _)| *version <= low_water) {
            self.forgotten_rows += rows;
        }
    }

    /// Unlinks rows that no reader can see from the chains in which probes met many of them.
    fn prune(&mut self, low_water: Version) {
        let crowded = std::mem::take(self.crowded.get_mut());
        for (index, hash) in crowded {
            let (chunks, bases) = (&self.chunks, &self.bases);
            self.indexes[index].prune(hash, |row| {
                let chunk = bases.partition_point(|base| *base <= row) - 1;
                chunks[chunk].deleted_at((row - bases[chunk]) as usize) <= low_water
            });
        }
    }

    /// Rebuilds the table from the rows that are alive or that a reader at `low_water` or later may see.
    pub(super) fn rebuild(&mut self, low_water: Version) -> Result<()> {
        let mut rebuilt = RowTable::new(Arc::clone(&self.schema), None);
        rebuilt.identity = self.identity;
        rebuilt.finer = self.finer.take();
        rebuilt.is_lazy = self.is_lazy;
        rebuilt.low_water = low_water;
        rebuilt.tags = self.tags.as_ref().map(|tags| {
            let survivors = self
                .chunks
                .iter()
                .zip(self.bases.iter())
                .flat_map(|(chunk, base)| {
                    chunk
                        .surviving(low_water)
                        .map(|row| tags[*base as usize + row])
                        .collect::<Vec<_>>()
                });
            survivors.collect()
        });
        rebuilt.indexes = self
            .indexes
            .iter()
            .map(|index| HashIndex::new(index.columns.clone()))
            .collect();
        let mut small: Vec<Chunk> = vec![];
        let mut size = Size::default();
        for chunk in self.chunks.iter() {
            let Some(survivors) = chunk.survivors(low_water)? else {
                continue;
            };
            let more = Size::of(&survivors.rows);
            if !size.plus(more).fits_a_chunk() {
                rebuilt.adopt(&small)?;
                small.clear();
                size = Size::default();
            }
            size = size.plus(more);
            small.push(survivors);
        }
        rebuilt.adopt(&small)?;
        rebuilt.deletions = std::mem::take(&mut self.deletions);
        *self = rebuilt;
        Ok(())
    }

    /// Appends chunks as one, with their versions.
    fn adopt(&mut self, chunks: &[Chunk]) -> Result<()> {
        if chunks.is_empty() {
            return Ok(());
        }
        let chunk = Chunk::concat(&chunks.iter().collect::<Vec<_>>(), self.low_water)?;
        if !self.is_lazy {
            for index in &mut self.indexes {
                let hashes = hashes(&chunk.rows, &index.columns)?;
                index.insert(self.rows, &hashes);
            }
        }
        let live = (0..chunk.len()).filter(|row| chunk.is_alive(*row)).count();
        self.live_rows += live;
        self.dead_rows += chunk.len() - live;
        Arc::make_mut(&mut self.bases).push(self.rows);
        self.rows += chunk.len() as u32;
        Arc::make_mut(&mut self.chunks).push(Arc::new(chunk));
        Ok(())
    }
}
