//! Images of operators' state as bytes. The rows of a view are not among them: those are never on a host.

use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::Bytes;
use millrace_mesh::Body;
use millrace_operator::OperatorImage;
use millrace_operator::image::{Part, joined, sliced, tag_column, tags_of};
use millrace_state::chunk::{Chunk, Stored};
use millrace_state::row_table::{TableImage, Tags};
use millrace_storage::checkpoint::{decode_rows, encode_rows, pack_marks, unpack_marks};
use serde::{Deserialize, Serialize};

use super::protocol;
use crate::error::{Result, RuntimeError};

/// What the parts of a body are.
#[derive(Debug, Serialize, Deserialize)]
enum Head {
    Table {
        /// For each chunk, whether marks of the rows that are alive follow it.
        chunks: Vec<bool>,
        /// Slices of the rows' numbers.
        tags: Option<usize>,
    },
    /// For each set of columns of one length, how many columns there are, and slices.
    Columns(Vec<(usize, usize)>),
}

fn internal(why: impl ToString) -> RuntimeError {
    RuntimeError::Internal(why.to_string())
}

fn put(parts: &mut Vec<Bytes>, rows: &RecordBatch) -> Result<()> {
    parts.push(encode_rows(rows)?.into());
    Ok(())
}

/// The state as bytes; what of it is on disk is read.
///
/// # Errors
/// It cannot be read, or a type has no form in Arrow IPC.
pub async fn encode(image: Option<&OperatorImage>) -> Result<Body> {
    let (mut heads, mut parts) = (vec![], vec![]);
    if let Some(image) = image {
        for part in image.load().await?.parts() {
            heads.push(match part {
                Part::Table(table) => {
                    let mut chunks = vec![];
                    for (chunk, alive) in table.chunks() {
                        put(&mut parts, &chunk.rows)?;
                        chunks.push(alive.is_some());
                        parts.extend(alive.map(|alive| Bytes::from(pack_marks(alive))));
                    }
                    let tags = match table.tags() {
                        Some(Tags::Here(tags)) => {
                            let before = parts.len();
                            for rows in sliced(&[tag_column(tags)])? {
                                put(&mut parts, &rows)?;
                            }
                            Some(parts.len() - before)
                        }
                        Some(Tags::Away(_)) => return Err(internal("an image that was loaded is on disk")),
                        None => None,
                    };
                    Head::Table { chunks, tags }
                }
                Part::Columns(columns) => {
                    let mut sets = vec![];
                    for columns in columns.chunk_by(|one, next| one.len() == next.len()) {
                        let before = parts.len();
                        for rows in sliced(columns)? {
                            put(&mut parts, &rows)?;
                        }
                        sets.push((columns.len(), parts.len() - before));
                    }
                    Head::Columns(sets)
                }
                Part::Away(_) => return Err(internal("an image that was loaded is on disk")),
            });
        }
    }
    let heads = image.map(|image| (heads, image.put_off()));
    Ok(Body {
        header: protocol::encode(&heads).map_err(internal)?.into(),
        parts,
    })
}

/// The state; none if the stage has none.
///
/// # Errors
/// The bytes are something else.
pub fn decode(body: Body) -> Result<Option<OperatorImage>> {
    let heads: Option<(Vec<Head>, Vec<bool>)> = protocol::decode(&body.header).map_err(internal)?;
    let mut bytes = body.parts.into_iter();
    let mut next = || {
        bytes
            .next()
            .ok_or_else(|| internal("a part of an image is missing"))
    };
    let Some((heads, put_off)) = heads else {
        return Ok(None);
    };
    let mut parts = vec![];
    for head in heads {
        parts.push(match head {
            Head::Table { chunks, tags } => {
                let mut read = vec![];
                for has_marks in chunks {
                    let rows = decode_rows(next()?)?;
                    let alive = match has_marks {
                        true => Some(
                            unpack_marks(next()?, rows.num_rows())
                                .ok_or_else(|| internal("marks for the wrong number of rows"))?,
                        ),
                        false => None,
                    };
                    let chunk = Chunk::restored(rows, alive.as_ref(), Stored::default());
                    read.push((Arc::new(chunk), alive));
                }
                let tags = match tags {
                    None => None,
                    Some(slices) => {
                        let slices = (0..slices).map(|_| Ok(decode_rows(next()?)?));
                        let slices = slices.collect::<Result<Vec<_>>>()?;
                        Some(Tags::Here(tags_of(&joined(&slices, 1)?[0])?))
                    }
                };
                Part::Table(TableImage::new(read, tags))
            }
            Head::Columns(sets) => {
                let mut all = vec![];
                for (columns, slices) in sets {
                    let slices = (0..slices).map(|_| Ok(decode_rows(next()?)?));
                    let slices = slices.collect::<Result<Vec<_>>>()?;
                    all.extend(joined(&slices, columns)?);
                }
                Part::Columns(all)
            }
        });
    }
    Ok(Some(OperatorImage::new(parts).with_put_off(put_off)))
}
