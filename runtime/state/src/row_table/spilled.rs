//! A table whose rows are on disk: its chunks know their rows' versions and where they are. Readers load the chunks that they
//! look at; nothing can be changed or looked up until all of them are back.

use std::sync::Arc;

use millrace_resource::spill::state::{SpillWriter, SpilledRows};
use millrace_schedule::id::Version;

use super::image::under;
use super::{RowTable, TableView};
use crate::chunk::Chunk;
use crate::error::{Result, StateError};
use crate::index::HashIndex;

/// A table leaves without its dead rows if they are such a part of the others.
const FORGOTTEN_PART: usize = 8;

impl RowTable {
    /// Whether the rows are on disk.
    pub fn is_spilled(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.away().is_some())
    }

    /// What is to be written before the rows can leave: without most of those that no reader at `low_water` or later can see. Nothing
    /// may change until [`RowTable::leave`].
    ///
    /// # Errors
    /// A column that is indexed cannot be hashed.
    pub fn before_leaving(&mut self, low_water: Version) -> Result<TableView> {
        self.settle_deletions(low_water);
        // It costs what is kept, and saves a mark a row.
        if self.forgotten_rows * FORGOTTEN_PART > self.live_rows {
            self.rebuild(low_water)?;
        }
        Ok(self.view(Version::MAX - 1))
    }

    /// Drops the columns, which are there now for each chunk, and the indexes.
    ///
    /// # Errors
    /// They are those of other chunks.
    pub fn leave(&mut self, written: &TableView, away: Vec<SpilledRows>) -> Result<()> {
        let chunks = self.chunks.iter().zip(written.chunks());
        if self.chunks.len() != away.len() || !chunks.into_iter().all(|(now, then)| Arc::ptr_eq(now, then)) {
            return Err(super::mismatch());
        }
        let hollow = (self.chunks.iter().zip(away))
            .map(|(chunk, away)| {
                chunk
                    .leave(away, self.low_water)
                    .map(Arc::new)
                    .map_err(StateError::from)
            })
            .collect::<Result<Vec<_>>>()?;
        self.chunks = Arc::new(hollow);
        self.last_image = vec![];
        self.crowded = Default::default();
        for index in &mut self.indexes {
            *index = HashIndex::new(std::mem::take(&mut index.columns));
        }
        Ok(())
    }

    /// Of rows on disk, forgets when they came and went as far as nobody at `low_water` or later can tell. Marks that were too many versions
    /// when the rows left may take more memory than the rows would.
    pub fn settle_spilled(&mut self, low_water: Version) -> Result<()> {
        if !self.is_spilled() || low_water <= self.low_water {
            return Ok(());
        }
        self.settle_deletions(low_water);
        let settled = (self.chunks.iter())
            .map(|chunk| match chunk.away() {
                Some(away) => chunk.leave(away.clone(), low_water).map(Arc::new),
                None => Ok(Arc::clone(chunk)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.chunks = Arc::new(settled);
        Ok(())
    }

    /// Takes the rows back, chunk by chunk as [`TableView::chunk`] gives them.
    ///
    /// # Errors
    /// A column that is indexed cannot be hashed.
    pub fn come_back(&mut self, chunks: Vec<Arc<Chunk>>) -> Result<()> {
        self.chunks = Arc::new(chunks);
        if self.is_lazy {
            return Ok(());
        }
        self.catch_up_all()
    }
}

/// Writes the rows of a table, chunk by chunk.
///
/// # Errors
/// The disk is full, or out of order.
pub async fn write(writer: &mut SpillWriter, table: &TableView) -> Result<Vec<SpilledRows>> {
    let mut away = vec![];
    for chunk in table.chunks() {
        away.push(match chunk.away() {
            Some(known) => known.clone(),
            None => writer.put(&under(&table.schema, &chunk.rows)?).await?,
        });
    }
    Ok(away)
}
