//! A table as it was at one moment, for the checkpoint store.
//!
//! Chunks are shared, not copied: what an image costs is a mark for each row of the chunks from which rows went since the
//! image before. Later deletions, which chunks do not keep from whoever shares them, are not in the marks.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, SchemaRef};
use millrace_resource::spill::state::SpilledRows;

use super::{RowTable, mismatch};
use crate::chunk::Chunk;
use crate::error::{Result, StateError};
use crate::index::HashIndex;

/// A chunk, and which of its rows were there.
#[derive(Debug, Clone)]
pub(super) struct ChunkImage {
    chunk: Arc<Chunk>,
    /// None: all of them.
    alive: Option<BooleanBuffer>,
    /// How many rows had gone.
    dead_rows: usize,
}

/// A number for each row.
#[derive(Debug, Clone)]
pub enum Tags {
    Here(Vec<u32>),
    /// On disk, in slices of one column.
    Away(Vec<SpilledRows>),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct TableImage {
    chunks: Vec<ChunkImage>,
    tags: Option<Tags>,
}

impl TableImage {
    /// The image of chunks, each with the rows that are alive (none: all of them), and of a number for each row.
    pub fn new(
        chunks: impl IntoIterator<Item = (Arc<Chunk>, Option<BooleanBuffer>)>,
        tags: Option<Tags>,
    ) -> Self {
        let chunks = chunks.into_iter().map(|(chunk, alive)| ChunkImage {
            dead_rows: alive
                .as_ref()
                .map_or(0, |alive| alive.len() - alive.count_set_bits()),
            chunk,
            alive,
        });
        TableImage {
            chunks: chunks.collect(),
            tags,
        }
    }

    /// The chunks, each with the rows that are alive; none: all of them.
    pub fn chunks(&self) -> impl Iterator<Item = (&Arc<Chunk>, Option<&BooleanBuffer>)> {
        let chunks = self.chunks.iter();
        chunks.map(|image| (&image.chunk, image.alive.as_ref()))
    }

    /// The number that is kept with each row, if one is.
    pub fn tags(&self) -> Option<&Tags> {
        self.tags.as_ref()
    }

    /// Whether some of it is on disk.
    pub fn is_spilled(&self) -> bool {
        matches!(self.tags, Some(Tags::Away(_)))
            || self.chunks.iter().any(|image| image.chunk.away().is_some())
    }

    /// Bytes of what it has of its own, and of chunks whose rows are on disk.
    pub fn memory_bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|image| {
            let away = image.chunk.away().map_or(0, |_| image.chunk.memory_bytes());
            away + image.alive.as_ref().map_or(0, |alive| alive.inner().len())
        });
        let tags = match &self.tags {
            Some(Tags::Here(tags)) => size_of_val(&tags[..]),
            Some(Tags::Away(_)) | None => 0,
        };
        chunks.sum::<usize>() + tags
    }
}

impl RowTable {
    /// The rows that are there now, and of those that went before what a reader of an older version needs.
    pub fn image(&mut self) -> TableImage {
        let before = std::mem::take(&mut self.last_image);
        let chunks: Vec<ChunkImage> = (self.chunks.iter())
            .map(|chunk| {
                let dead_rows = chunk.dead_rows();
                let known = (before.iter())
                    .find(|image| Arc::ptr_eq(&image.chunk, chunk) && image.dead_rows == dead_rows);
                known.cloned().unwrap_or_else(|| ChunkImage {
                    chunk: Arc::clone(chunk),
                    alive: (dead_rows > 0)
                        .then(|| BooleanBuffer::collect_bool(chunk.len(), |row| chunk.is_alive(row))),
                    dead_rows,
                })
            })
            .collect();
        self.last_image = chunks.clone();
        TableImage {
            chunks,
            tags: self.tags.clone().map(Tags::Here),
        }
    }

    /// Makes an empty table what the image shows. Rows keep their numbers, and the versions at which they came and went.
    ///
    /// # Errors
    /// A column that is indexed cannot be hashed, or the image is one of another table.
    pub fn restore(&mut self, image: &TableImage) -> Result<()> {
        self.restore_rows(image)?;
        if self.is_spilled() {
            return Ok(());
        }
        (0..self.indexes.len()).try_for_each(|index| self.catch_up(index))
    }

    /// As [`RowTable::restore`]; indexes lack the rows until they are asked for, or made ([`RowTable::begin_index`]).
    ///
    /// # Errors
    /// The image is one of another table.
    pub fn restore_rows(&mut self, image: &TableImage) -> Result<()> {
        self.check(image)?;
        let indexes = self.indexes.iter().map(|index| index.columns.clone());
        let mut restored = RowTable::new(Arc::clone(&self.schema), None);
        restored.identity = self.identity;
        restored.finer = self.finer.take();
        restored.indexes = indexes.map(HashIndex::new).collect();
        restored.tags = match &image.tags {
            Some(Tags::Here(tags)) => Some(tags.clone()),
            // They are refused above.
            Some(Tags::Away(_)) | None => None,
        };
        let mut chunks = vec![];
        let mut bases = vec![];
        for ChunkImage { chunk, alive, .. } in &image.chunks {
            let mut copy = chunk.as_of(alive.as_ref());
            if copy.away().is_none() && copy.rows.schema_ref() != &self.schema {
                copy.rows = under(&self.schema, &copy.rows)?;
            }
            let dead = copy.dead_rows();
            restored.live_rows += copy.len() - dead;
            restored.dead_rows += dead;
            bases.push(restored.rows);
            restored.rows += copy.len() as u32;
            chunks.push(Arc::new(copy));
        }
        // Nobody is told when the dead rows went: they count as forgotten as soon as the next rows go.
        if restored.dead_rows > 0 {
            let last = chunks.iter().flat_map(|chunk| chunk.last_deletion()).max();
            restored
                .deletions
                .push_back((last.unwrap_or(0), restored.dead_rows));
        }
        restored.chunks = Arc::new(chunks);
        restored.bases = Arc::new(bases);
        *self = restored;
        Ok(())
    }

    /// Refuses an image of another table: it may come from a file.
    fn check(&self, image: &TableImage) -> Result<()> {
        let mut rows = 0;
        for ChunkImage { chunk, alive, .. } in &image.chunks {
            rows += chunk.len();
            let columns = chunk.rows.columns().iter().map(|column| column.data_type());
            let wanted = self.schema.fields().iter().map(|field| field.data_type());
            let is_spilled = chunk.away().is_some();
            let is_one = chunk.rows.num_columns() == self.schema.fields().len()
                && columns.zip(wanted).all(|(is, wanted)| may_become(is, wanted));
            let fits =
                (is_spilled || is_one) && alive.as_ref().is_none_or(|alive| alive.len() == chunk.len());
            if !fits {
                return Err(mismatch());
            }
        }
        let tags = match &image.tags {
            Some(Tags::Here(tags)) => Some(tags.len()),
            Some(Tags::Away(_)) => return Err(mismatch()),
            None => None,
        };
        if u32::try_from(rows).is_err()
            || tags.is_some() != self.tags.is_some()
            || tags.is_some_and(|tags| tags != rows)
        {
            return Err(mismatch());
        }
        Ok(())
    }
}

/// Whether a column of a checkpoint can be one of this type. Numbers of rows and ranks were kept without a sign by versions
/// before 2026-11-24.
fn may_become(is: &DataType, wanted: &DataType) -> bool {
    is == wanted || (*is == DataType::UInt64 && *wanted == DataType::Int64)
}

/// Rows under a schema of the same types, or of types that they may become.
pub(super) fn under(schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch> {
    let columns = rows.columns().iter().zip(schema.fields());
    let columns = columns
        .map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => arrow::compute::cast(column, field.data_type()).map_err(StateError::from),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(StateError::from)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use millrace_storage::ChangeBatch;

    use super::*;
    use crate::row_table::TableView;

    fn rows(values: std::ops::Range<i64>) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    fn change(values: std::ops::Range<i64>, weight: i64) -> ChangeBatch {
        let rows = rows(values);
        let weights = Some(Int64Array::from(vec![weight; rows.num_rows()]));
        ChangeBatch { rows, weights }
    }

    fn seen(view: &TableView) -> Vec<i64> {
        let mut seen = vec![];
        for batch in view.batches(None).unwrap() {
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            seen.extend(column.values());
        }
        seen.sort_unstable();
        seen
    }

    fn empty() -> RowTable {
        let mut table = RowTable::new(rows(0..0).schema(), Some(vec![0]));
        table.add_index(vec![0]).unwrap();
        table
    }

    #[test]
    fn a_restored_table_is_as_it_was_and_goes_on() {
        let mut table = empty();
        table.apply(&change(0..100, 1), 1, 0).unwrap();
        table.apply(&change(10..20, -1), 2, 0).unwrap();
        table.apply(&change(100..110, 1), 3, 0).unwrap();
        let image = table.image();
        table.apply(&change(20..90, -1), 4, 0).unwrap();
        table.apply(&change(200..300, 1), 5, 0).unwrap();
        let mut restored = empty();
        restored.restore(&image).unwrap();
        let now: Vec<i64> = (0..10).chain(20..110).collect();
        assert_eq!(seen(&restored.view(3)), now);
        assert_eq!(seen(&restored.view(9)), now);
        assert_eq!(
            seen(&restored.view(2)),
            (0..10).chain(20..100).collect::<Vec<_>>()
        );
        assert_eq!(seen(&restored.view(1)), (0..100).collect::<Vec<_>>());
        assert_eq!(restored.live_rows(), now.len());
        // The same changes again make the same table, and the first one does not notice.
        restored.apply(&change(20..90, -1), 4, 0).unwrap();
        restored.apply(&change(200..300, 1), 5, 0).unwrap();
        assert_eq!(seen(&restored.view(5)), seen(&table.view(5)));
        restored.apply(&change(0..10, -1), 6, 0).unwrap();
        assert_eq!(seen(&table.view(6)).len(), 130);
        // An image of what was restored is one of everything.
        let mut again = empty();
        again.restore(&restored.image()).unwrap();
        assert_eq!(seen(&again.view(6)), seen(&restored.view(6)));
    }

    fn found(table: &RowTable, value: i64) -> usize {
        let keys: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![value]))];
        table.probe(0, &keys, false).unwrap().rows.len()
    }

    #[test]
    fn indexes_of_a_restored_table_are_made_while_it_goes_on() {
        let mut table = empty();
        table.apply(&change(0..1_000, 1), 1, 0).unwrap();
        let image = table.image();
        let restored = || {
            let mut restored = empty();
            restored.restore_rows(&image).unwrap();
            assert!(restored.is_behind(0));
            restored
        };
        // Made beside it, while rows come.
        let mut slow = restored();
        let mut draft = slow.begin_index().unwrap();
        slow.apply(&change(1_000..1_100, 1), 2, 0).unwrap();
        draft.make().unwrap();
        slow.put_index(draft).unwrap();
        assert!(!slow.is_behind(0) && slow.begin_index().is_none());
        assert_eq!([5, 1_050, 2_000].map(|value| found(&slow, value)), [1, 1, 0]);
        // Somebody could not wait for it, and rows have other numbers by then.
        let mut hasty = restored();
        let mut draft = hasty.begin_index().unwrap();
        draft.make().unwrap();
        hasty.apply(&change(0..10, -1), 2, 0).unwrap();
        assert!(!hasty.is_behind(0));
        hasty.rebuild(2).unwrap();
        hasty.put_index(draft).unwrap();
        assert_eq!([5, 10, 999].map(|value| found(&hasty, value)), [0, 1, 1]);
        // Of a table that became another one.
        let mut other = restored();
        let mut draft = other.begin_index().unwrap();
        draft.make().unwrap();
        let mut few = empty();
        few.apply(&change(7..9, 1), 1, 0).unwrap();
        other.restore_rows(&few.image()).unwrap();
        other.put_index(draft).unwrap();
        assert!(other.is_behind(0));
        other.restore(&few.image()).unwrap();
        assert_eq!([7, 9].map(|value| found(&other, value)), [1, 0]);
    }

    #[test]
    fn what_did_not_change_is_not_marked_again() {
        let mut table = empty();
        table.apply(&change(0..100, 1), 1, 0).unwrap();
        table.apply(&change(0..10, -1), 2, 0).unwrap();
        let marks = |image: &TableImage| image.chunks[0].alive.as_ref().unwrap().values().as_ptr();
        let first = table.image();
        assert_eq!(marks(&first), marks(&table.image()));
        table.apply(&change(10..11, -1), 3, 0).unwrap();
        let later = table.image();
        assert_ne!(marks(&first), marks(&later));
        assert_eq!(later.chunks[0].dead_rows, 11);
    }
}
