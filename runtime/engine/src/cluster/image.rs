//! Images of operators' state on their way to the coordinator, and back to a host. The rows of a view are not among them: those are
//! never on a host.
//!
//! ```text
//!  host: image --> only what the coordinator has not --> coordinator: with what it has --> on disk --> host: all of it
//!        `-- Sent: chunks by number, slices by hash              `-- Held: the same
//! ```
//! Rows of a table are in chunks that do not change: each is sent once. Columns that an operator makes anew each time are cut into
//! slices, and one of the same bytes as the one before is not sent again. So what a checkpoint sends follows the change. The
//! coordinator puts what it gets on disk: its memory does not have to be that of all hosts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use millrace_mesh::Body;
use millrace_operator::OperatorImage;
use millrace_operator::image::{OperatorWaits, Part, SpilledSet, joined, sliced, tag_column, tags_of};
use millrace_resource::spill::state::{Spill, SpillWriter, SpilledRows};
use millrace_state::chunk::{Chunk, Stored};
use millrace_state::row_table::{TableImage, Tags};
use millrace_storage::checkpoint::{decode_rows, encode_rows, pack_marks, unpack_marks};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::protocol;
use crate::error::{Result, RuntimeError};

/// A chunk of a table.
#[derive(Debug, Serialize, Deserialize)]
struct ChunkHead {
    number: u64,
    /// Its rows come with it.
    is_new: bool,
    /// Marks of the rows that are alive do.
    has_marks: bool,
}

/// For each slice, whether it comes with it; otherwise it is as it was at its place.
type Slices = Vec<bool>;

/// What the parts of a body are.
#[derive(Debug, Serialize, Deserialize)]
enum Head {
    Table {
        chunks: Vec<ChunkHead>,
        /// Of the rows' numbers.
        tags: Option<Slices>,
    },
    /// For each set of columns of one length, how many columns there are.
    Columns(Vec<(usize, Slices)>),
}

/// An image.
#[derive(Debug, Serialize, Deserialize)]
struct Heads {
    parts: Vec<Head>,
    waits: OperatorWaits,
}

fn internal(why: impl ToString) -> RuntimeError {
    RuntimeError::Internal(why.to_string())
}

/// What tells slices apart: two hashes, and the length.
type SliceHash = (u64, u64, usize);

fn hash_of(bytes: &[u8]) -> SliceHash {
    let second = XxHash3_64::oneshot_with_seed(1, bytes);
    (XxHash3_64::oneshot(bytes), second, bytes.len())
}

/// What the other side has of a part: what was sent to it.
#[derive(Default)]
pub struct Sent {
    next: u64,
    /// By where a chunk is, which nothing else can be while it is kept here.
    chunks: HashMap<usize, (u64, Arc<Chunk>)>,
    slices: Vec<SliceHash>,
}

/// What this side has of a part: what was last sent of it.
#[derive(Default)]
pub struct Held {
    chunks: HashMap<u64, Arc<Chunk>>,
    slices: Vec<HeldSlice>,
}

#[derive(Clone)]
enum HeldSlice {
    Here(RecordBatch),
    Away(SpilledRows),
}

/// An image that is being put into bytes.
struct Encoder<'a> {
    before: &'a Sent,
    now: Sent,
    parts: Vec<Bytes>,
}

impl Encoder<'_> {
    fn slice(&mut self, bytes: Bytes) -> bool {
        let hash = hash_of(&bytes);
        let is_new = self.before.slices.get(self.now.slices.len()) != Some(&hash);
        self.now.slices.push(hash);
        if is_new {
            self.parts.push(bytes);
        }
        is_new
    }

    fn here(&mut self, columns: &[arrow::array::ArrayRef]) -> Result<Slices> {
        sliced(columns)?
            .map(|rows| Ok(self.slice(encode_rows(&rows)?.into())))
            .collect()
    }

    async fn away(&mut self, slices: &[SpilledRows]) -> Result<Slices> {
        let mut are_new = vec![];
        for slice in slices {
            are_new.push(self.slice(slice.read().await?));
        }
        Ok(are_new)
    }

    async fn chunk(&mut self, chunk: &Arc<Chunk>, alive: Option<&BooleanBuffer>) -> Result<ChunkHead> {
        let place = Arc::as_ptr(chunk) as usize;
        let known = self.before.chunks.get(&place).map(|(number, _)| *number);
        let number = known.unwrap_or(self.now.next);
        if known.is_none() {
            self.now.next += 1;
            self.parts.push(match chunk.away() {
                Some(away) => away.read().await?,
                None => encode_rows(&chunk.rows)?.into(),
            });
        }
        self.now.chunks.insert(place, (number, Arc::clone(chunk)));
        self.parts
            .extend(alive.map(|alive| Bytes::from(pack_marks(alive))));
        Ok(ChunkHead {
            number,
            is_new: known.is_none(),
            has_marks: alive.is_some(),
        })
    }

    async fn part(&mut self, part: &Part) -> Result<Head> {
        Ok(match part {
            Part::Table(table) => {
                let mut chunks = vec![];
                for (chunk, alive) in table.chunks() {
                    chunks.push(self.chunk(chunk, alive).await?);
                }
                let tags = match table.tags() {
                    None => None,
                    Some(Tags::Here(tags)) => Some(self.here(&[tag_column(tags)])?),
                    Some(Tags::Away(slices)) => Some(self.away(slices).await?),
                };
                Head::Table { chunks, tags }
            }
            Part::Columns(columns) => {
                let mut sets = vec![];
                for columns in columns.chunk_by(|one, next| one.len() == next.len()) {
                    sets.push((columns.len(), self.here(columns)?));
                }
                Head::Columns(sets)
            }
            Part::Away(away) => {
                let mut sets = vec![];
                for set in away {
                    sets.push((set.columns, self.away(&set.slices).await?));
                }
                Head::Columns(sets)
            }
        })
    }
}

/// The state as bytes, apart from what was `sent` before; what of it is on disk is read.
///
/// # Errors
/// It cannot be read, or a type has no form in Arrow IPC.
pub async fn encode(image: Option<&OperatorImage>, sent: &mut Sent) -> Result<Body> {
    let mut encoder = Encoder {
        now: Sent {
            next: sent.next,
            ..Sent::default()
        },
        before: sent,
        parts: vec![],
    };
    let heads = match image {
        None => None,
        Some(image) => {
            let mut parts = vec![];
            for part in image.parts() {
                parts.push(encoder.part(part).await?);
            }
            let waits = image.waits().clone();
            Some(Heads { parts, waits })
        }
    };
    let Encoder { now, parts, .. } = encoder;
    *sent = now;
    Ok(Body {
        header: protocol::encode(&heads).map_err(internal)?.into(),
        parts,
    })
}

/// Bytes that are being made an image of.
struct Decoder<'a> {
    before: &'a Held,
    now: Held,
    parts: std::vec::IntoIter<Bytes>,
    /// Where it goes, if it is not kept in memory.
    writer: Option<SpillWriter>,
}

impl Decoder<'_> {
    fn next(&mut self) -> Result<Bytes> {
        self.parts
            .next()
            .ok_or_else(|| internal("a part of an image is missing"))
    }

    async fn chunk(&mut self, head: &ChunkHead) -> Result<(Arc<Chunk>, Option<BooleanBuffer>)> {
        let whole = match head.is_new {
            true => {
                let rows = decode_rows(self.next()?)?;
                let away = match &mut self.writer {
                    Some(writer) => Some(writer.put(&rows).await?),
                    None => None,
                };
                let chunk = Chunk::restored(rows, None, Stored::default());
                Arc::new(match away {
                    Some(away) => chunk.leave(away, 0)?,
                    None => chunk,
                })
            }
            false => {
                let known = self.before.chunks.get(&head.number);
                Arc::clone(known.ok_or_else(|| internal("a chunk of an image is not known"))?)
            }
        };
        let alive = match head.has_marks {
            true => {
                let marks = unpack_marks(self.next()?, whole.len());
                Some(marks.ok_or_else(|| internal("marks for the wrong number of rows"))?)
            }
            false => None,
        };
        let chunk = Arc::new(whole.only(alive.as_ref()));
        self.now.chunks.insert(head.number, Arc::clone(&chunk));
        Ok((chunk, alive))
    }

    async fn slices(&mut self, are_new: &Slices) -> Result<Vec<HeldSlice>> {
        let mut slices = vec![];
        for is_new in are_new {
            let slice = match is_new {
                true => {
                    let rows = decode_rows(self.next()?)?;
                    match &mut self.writer {
                        Some(writer) => HeldSlice::Away(writer.put(&rows).await?),
                        None => HeldSlice::Here(rows),
                    }
                }
                false => {
                    let known = self.before.slices.get(self.now.slices.len());
                    known
                        .cloned()
                        .ok_or_else(|| internal("a slice of an image is not known"))?
                }
            };
            self.now.slices.push(slice.clone());
            slices.push(slice);
        }
        Ok(slices)
    }

    async fn part(&mut self, head: &Head) -> Result<Part> {
        Ok(match head {
            Head::Table { chunks, tags } => {
                let mut read = vec![];
                for chunk in chunks {
                    read.push(self.chunk(chunk).await?);
                }
                let tags = match tags {
                    None => None,
                    Some(slices) => Some(match of_slices(self.slices(slices).await?, 1)? {
                        Ok(columns) => Tags::Here(tags_of(&columns[0])?),
                        Err(away) => Tags::Away(away),
                    }),
                };
                Part::Table(TableImage::new(read, tags))
            }
            Head::Columns(sets) => {
                let (mut here, mut away) = (vec![], vec![]);
                for (columns, slices) in sets {
                    match of_slices(self.slices(slices).await?, *columns)? {
                        Ok(columns) => here.extend(columns),
                        Err(slices) => away.push(SpilledSet {
                            columns: *columns,
                            slices,
                        }),
                    }
                }
                match away.is_empty() {
                    true => Part::Columns(here),
                    false if here.is_empty() => Part::Away(away),
                    false => return Err(internal("an image that is on disk in part")),
                }
            }
        })
    }
}

/// Columns of these slices, or where they are.
type HereOrAway = std::result::Result<Vec<arrow::array::ArrayRef>, Vec<SpilledRows>>;

fn of_slices(slices: Vec<HeldSlice>, columns: usize) -> Result<HereOrAway> {
    let (mut here, mut away) = (vec![], vec![]);
    for slice in slices {
        match slice {
            HeldSlice::Here(rows) => here.push(rows),
            HeldSlice::Away(slice) => away.push(slice),
        }
    }
    match away.is_empty() {
        true => Ok(Ok(joined(&here, columns)?)),
        false if here.is_empty() => Ok(Err(away)),
        false => Err(internal("columns that are on disk in part")),
    }
}

/// The state, with what is `held` of it; none if the stage has none. With a `spill` it is on disk.
///
/// # Errors
/// The bytes are something else, or the disk is full.
pub async fn decode(
    body: Body,
    held: &mut Held,
    spill: Option<&Arc<Spill>>,
) -> Result<Option<OperatorImage>> {
    let heads: Option<Heads> = protocol::decode(&body.header).map_err(internal)?;
    let Some(Heads { parts: heads, waits }) = heads else {
        return Ok(None);
    };
    let mut decoder = Decoder {
        before: held,
        now: Held::default(),
        parts: body.parts.into_iter(),
        writer: spill.map(Spill::begin),
    };
    let mut parts = vec![];
    for head in &heads {
        parts.push(decoder.part(head).await?);
    }
    let now = decoder.now;
    *held = now;
    Ok(Some(OperatorImage::with_waits(parts, waits)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use millrace_state::row_table::RowTable;
    use millrace_storage::ChangeBatch;

    use super::*;

    fn change(values: std::ops::Range<i64>, weight: i64) -> ChangeBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let rows = RecordBatch::try_from_iter([("v", values)]).unwrap();
        let weights = Some(Int64Array::from(vec![weight; rows.num_rows()]));
        ChangeBatch { rows, weights }
    }

    fn empty() -> RowTable {
        let schema = change(0..0, 1).rows.schema();
        RowTable::new(schema, Some(vec![0]))
    }

    fn image(table: &mut RowTable, columns: Vec<ArrayRef>) -> OperatorImage {
        OperatorImage::new(vec![Part::Table(table.image()), Part::Columns(columns)])
    }

    fn rows(image: &OperatorImage) -> (Vec<i64>, Vec<ArrayRef>) {
        let [Part::Table(table), Part::Columns(columns)] = image.parts() else {
            panic!("{image:?}");
        };
        let mut restored = empty();
        restored.restore(table).unwrap();
        let mut values = vec![];
        for batch in restored.view(1 << 40).batches(None).unwrap() {
            let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            values.extend(column.values());
        }
        values.sort_unstable();
        (values, columns.clone())
    }

    /// What is sent is what the coordinator has not, and what comes of it is the image, time and again.
    #[tokio::test]
    async fn only_what_changed_is_sent() {
        let numbers = |range: std::ops::Range<i64>| Arc::new(Int64Array::from_iter_values(range)) as ArrayRef;
        let mut table = empty();
        let (mut sent, mut held) = (Sent::default(), Held::default());
        table.apply(&change(0..100_000, 1), 1, 0).unwrap();
        let columns = vec![numbers(0..30_000), numbers(1..30_001)];
        let first = image(&mut table, columns.clone());
        let body = encode(Some(&first), &mut sent).await.unwrap();
        let bytes = |body: &Body| body.parts.iter().map(Bytes::len).sum::<usize>();
        assert!(bytes(&body) > 1_200_000);
        let came = decode(body, &mut held, None).await.unwrap().unwrap();
        assert_eq!(rows(&came), rows(&first));
        for step in 0..20 {
            table
                .apply(&change(step..step + 1, -1), 2 + step as u64, 0)
                .unwrap();
            table
                .apply(&change(200_000 + step..200_001 + step, 1), 2 + step as u64, 0)
                .unwrap();
            let mut columns = columns.clone();
            columns[0] = numbers(0..30_000 - step);
            columns[1] = numbers(0..30_000 - step);
            let next = image(&mut table, columns);
            let body = encode(Some(&next), &mut sent).await.unwrap();
            // Marks, the new rows, and at first all slices of the columns.
            assert!(
                bytes(&body) < if step == 0 { 700_000 } else { 250_000 },
                "{}",
                bytes(&body)
            );
            let came = decode(body, &mut held, None).await.unwrap().unwrap();
            assert_eq!(rows(&came), rows(&next), "step {step}");
        }
        // Whoever has nothing gets all.
        let whole = image(&mut table, vec![]);
        let body = encode(Some(&whole), &mut Sent::default()).await.unwrap();
        let came = decode(body, &mut Held::default(), None).await.unwrap().unwrap();
        assert_eq!(rows(&came), rows(&whole));
        let body = encode(Some(&whole), &mut sent).await.unwrap();
        assert!(decode(body, &mut Held::default(), None).await.is_err());
    }
}
