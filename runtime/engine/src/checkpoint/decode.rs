//! Blocks of a checkpoint back as what tasks and tables keep. Whatever does not fit is an error: then there is another way
//! to the same state.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use millrace_operator::OperatorImage;
use millrace_operator::image::{Part, joined, tags_of};
use millrace_state::chunk::{Chunk, Stored};
use millrace_state::row_table::{TableImage, Tags};
use millrace_storage::checkpoint::{
    BlockRef, Checkpoints, Slice, StoredImage, StoredPart, StoredTable, decode_rows, unpack_marks,
};

use crate::error::{Result, RuntimeError};
use crate::worker::Image;

/// What a task keeps.
///
/// # Errors
/// A block cannot be read, is damaged, or is not what it should be.
pub(crate) async fn image(checkpoints: &Checkpoints, stored: &StoredImage) -> Result<Image> {
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
pub(crate) async fn table(checkpoints: &Checkpoints, stored: &StoredTable) -> Result<TableImage> {
    let mut chunks = vec![];
    for chunk in &stored.chunks {
        let rows = rows(checkpoints, chunk.data).await?;
        if rows.num_rows() as u64 != chunk.rows {
            return Err(mismatch("a chunk has the wrong number of rows"));
        }
        let alive = match chunk.alive {
            None => None,
            Some(slice) => {
                let bytes = checkpoints.read(slice.block).await?;
                let marks = unpack_marks(bytes, rows.num_rows());
                Some(marks.ok_or_else(|| mismatch("marks for the wrong number of rows"))?)
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
            Some(Tags::Here(tags_of(&tags[0])?))
        }
    };
    Ok(TableImage::new(chunks, tags))
}

async fn columns(checkpoints: &Checkpoints, slices: &[Slice], count: usize) -> Result<Vec<ArrayRef>> {
    let mut batches = vec![];
    for slice in slices {
        batches.push(rows(checkpoints, slice.block).await?);
    }
    Ok(joined(&batches, count)?)
}

async fn rows(checkpoints: &Checkpoints, block: BlockRef) -> Result<RecordBatch> {
    let bytes = checkpoints.read(block).await?;
    decode_rows(bytes).map_err(RuntimeError::from)
}

fn mismatch(why: &str) -> RuntimeError {
    RuntimeError::Internal(format!("a checkpoint does not match its manifest: {why}"))
}
