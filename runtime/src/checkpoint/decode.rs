//! Blocks of a checkpoint back as what tasks and tables keep. Whatever does not fit is an error: then there is another way
//! to the same state.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::UInt32Type;
use millrace_storage::checkpoint::{
    BlockRef, Checkpoints, Slice, StoredImage, StoredPart, StoredTable, decode_rows, unpack_marks,
};

use crate::error::{Result, RuntimeError};
use crate::operator::OperatorImage;
use crate::operator::image::Part;
use crate::state::row_table::arrow_error;
use crate::state::{Chunk, Stored, TableImage};
use crate::worker::Image;

/// What a task keeps.
///
/// # Errors
/// A block cannot be read, is damaged, or is not what it should be.
pub(super) async fn image(checkpoints: &Checkpoints, stored: &StoredImage) -> Result<Image> {
    let operators = match &stored.operators {
        None => None,
        Some(parts) => {
            let mut read = vec![];
            for part in parts {
                read.push(match part {
                    StoredPart::Table(stored) => Part::Table(table(checkpoints, stored).await?),
                    StoredPart::Columns(sets) => {
                        let mut all = vec![];
                        for set in sets {
                            all.extend(columns(checkpoints, &set.slices, set.columns).await?);
                        }
                        Part::Columns(all)
                    }
                });
            }
            Some(OperatorImage::new(read))
        }
    };
    let contents = match &stored.contents {
        None => None,
        Some(stored) => Some(table(checkpoints, stored).await?),
    };
    Ok(Image { operators, contents })
}

/// A table's rows.
///
/// # Errors
/// As of [`image`].
pub(super) async fn table(checkpoints: &Checkpoints, stored: &StoredTable) -> Result<TableImage> {
    let mut chunks = vec![];
    for chunk in &stored.chunks {
        let rows = rows(checkpoints, chunk.data).await?;
        if rows.num_rows() as u64 != chunk.rows {
            return Err(mismatch("a chunk has another number of rows"));
        }
        let alive = match chunk.alive {
            None => None,
            Some(slice) => {
                let bytes = checkpoints.read(slice.block).await?;
                let marks = unpack_marks(bytes, rows.num_rows());
                Some(marks.ok_or_else(|| mismatch("marks of another number of rows"))?)
            }
        };
        let stored = Stored {
            rows: Some(chunk.data),
            alive: chunk.alive,
        };
        let chunk = Chunk::restored(rows, alive.as_ref(), stored);
        chunks.push((Arc::new(chunk), alive));
    }
    let tags = match &stored.tags {
        None => None,
        Some(slices) => {
            let tags = columns(checkpoints, slices, 1).await?;
            let tags = tags[0].as_primitive_opt::<UInt32Type>();
            let tags = tags.ok_or_else(|| mismatch("tags of another type"))?;
            Some(tags.values().to_vec())
        }
    };
    Ok(TableImage::new(chunks, tags))
}

async fn columns(checkpoints: &Checkpoints, slices: &[Slice], count: usize) -> Result<Vec<ArrayRef>> {
    let mut batches = vec![];
    for slice in slices {
        let batch = rows(checkpoints, slice.block).await?;
        if batch.num_columns() != count {
            return Err(mismatch("a slice has another number of columns"));
        }
        batches.push(batch);
    }
    if batches.is_empty() {
        return Err(mismatch("columns without a slice"));
    }
    (0..count)
        .map(|column| {
            let slices: Vec<&dyn Array> = batches
                .iter()
                .map(|batch| batch.column(column).as_ref())
                .collect();
            concat(&slices).map_err(arrow_error)
        })
        .collect()
}

async fn rows(checkpoints: &Checkpoints, block: BlockRef) -> Result<RecordBatch> {
    let bytes = checkpoints.read(block).await?;
    decode_rows(bytes).map_err(arrow_error)
}

fn mismatch(why: &str) -> RuntimeError {
    RuntimeError::Internal(format!("a checkpoint is not what its manifest says: {why}"))
}
