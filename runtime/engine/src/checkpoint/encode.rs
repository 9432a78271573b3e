//! What tasks and tables keep, as blocks of a checkpoint: only what is not in an earlier one is written.
//!
//! Rows of a table are in chunks that do not change; a chunk knows the block that it was written to. Marks of what went, and
//! columns that an operator rebuilds each time, are cut into slices, and a slice of the same bytes as the one before is
//! referred to. So the size of a checkpoint follows the change. A block of a file of which little is still of use is written
//! again, so that the file can go.
//!
//! Bytes are made on the cpu slots, as batch work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use futures::FutureExt;
use millrace_operator::image::{Part as OperatorPart, SpilledSet, sliced, tag_column};
use millrace_resource::spill::state::SpilledRows;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::id::Part;
use millrace_state::chunk::Chunk;
use millrace_state::row_table::{TableImage, Tags};
use millrace_storage::checkpoint::{
    BlockRef, Draft, FileUse, Slice, StoredChunk, StoredImage, StoredPart, StoredSet, StoredTable,
    encode_rows, pack_marks,
};
use twox_hash::XxHash3_64;

use crate::error::{Result, RuntimeError};
use crate::worker::Image;
use crate::workers::Workers;

/// The slices of the last checkpoint, by part and by their place in it.
pub(crate) type Slices = HashMap<(Part, usize), Vec<Slice>>;

/// See the module.
pub(crate) struct Encoder<'a> {
    workers: &'a Workers,
    pub draft: Draft,
    /// Files whose blocks may be referred to.
    kept: HashSet<u64>,
    before: &'a Slices,
    pub slices: Slices,
}

/// The slices of one set of columns, one after the other.
struct Slicing {
    key: (Part, usize),
    before: Vec<Slice>,
    slices: Vec<Slice>,
}

impl<'a> Encoder<'a> {
    pub fn new(workers: &'a Workers, draft: Draft, files: HashMap<u64, FileUse>, before: &'a Slices) -> Self {
        let is_kept = |used: &FileUse| used.used_bytes * 2 >= used.bytes;
        let kept = files.into_iter().filter(|(_, used)| is_kept(used));
        Encoder {
            workers,
            draft,
            kept: kept.map(|(file, _)| file).collect(),
            before,
            slices: Slices::new(),
        }
    }

    /// What a task keeps.
    pub async fn image(&mut self, part: Part, image: &Image) -> Result<StoredImage> {
        let mut place = 0;
        let operators = match &image.operators {
            None => None,
            Some(operators) => {
                let mut parts = vec![];
                for operator in operators.parts() {
                    parts.push(match operator {
                        OperatorPart::Table(table) => {
                            StoredPart::Table(self.table(part, &mut place, table).await?)
                        }
                        OperatorPart::Columns(columns) => {
                            StoredPart::Columns(self.columns(part, &mut place, columns).await?)
                        }
                        OperatorPart::Away(sets) => {
                            StoredPart::Columns(self.away(part, &mut place, sets).await?)
                        }
                    });
                }
                Some(parts)
            }
        };
        let contents = match &image.contents {
            None => None,
            Some(table) => Some(self.table(part, &mut place, table).await?),
        };
        Ok(StoredImage {
            stage: part.stage,
            partition: part.partition,
            operators,
            contents,
        })
    }

    /// A table's rows.
    pub async fn table(&mut self, part: Part, place: &mut usize, image: &TableImage) -> Result<StoredTable> {
        let mut chunks = vec![];
        for (chunk, alive) in image.chunks() {
            let mut stored = chunk.stored();
            let data = match stored.rows.filter(|block| self.is_kept(*block)) {
                Some(data) => data,
                None => self.rows(chunk).await?,
            };
            let alive = match alive {
                None => None,
                Some(alive) => {
                    let bytes = pack_marks(alive);
                    Some(self.slice(stored.alive, bytes).await?)
                }
            };
            stored.rows = Some(data);
            stored.alive = alive;
            chunk.set_stored(stored);
            chunks.push(StoredChunk {
                rows: chunk.len() as u64,
                data,
                alive,
            });
        }
        let tags = match image.tags() {
            None => None,
            Some(Tags::Here(tags)) => Some(self.slices_of(part, place, &[tag_column(tags)]).await?),
            Some(Tags::Away(slices)) => Some(self.away_slices(part, place, slices).await?),
        };
        Ok(StoredTable { chunks, tags })
    }

    async fn columns(
        &mut self,
        part: Part,
        place: &mut usize,
        columns: &[ArrayRef],
    ) -> Result<Vec<StoredSet>> {
        let mut sets = vec![];
        for columns in columns.chunk_by(|one, next| one.len() == next.len()) {
            sets.push(StoredSet {
                columns: columns.len(),
                slices: self.slices_of(part, place, columns).await?,
            });
        }
        Ok(sets)
    }

    /// Columns of one length; at least one slice, so that their types are known.
    async fn slices_of(&mut self, part: Part, place: &mut usize, columns: &[ArrayRef]) -> Result<Vec<Slice>> {
        let mut slicing = self.begin_slices(part, place);
        for rows in sliced(columns)? {
            let bytes = encoded(self.workers, rows).await?;
            self.add_slice(&mut slicing, bytes).await?;
        }
        Ok(self.end_slices(slicing))
    }

    /// Columns that are on disk, as they are there.
    async fn away(&mut self, part: Part, place: &mut usize, sets: &[SpilledSet]) -> Result<Vec<StoredSet>> {
        let mut stored = vec![];
        for set in sets {
            stored.push(StoredSet {
                columns: set.columns,
                slices: self.away_slices(part, place, &set.slices).await?,
            });
        }
        Ok(stored)
    }

    async fn away_slices(
        &mut self,
        part: Part,
        place: &mut usize,
        slices: &[SpilledRows],
    ) -> Result<Vec<Slice>> {
        let mut slicing = self.begin_slices(part, place);
        for slice in slices {
            let bytes = slice.read().await?.into();
            self.add_slice(&mut slicing, bytes).await?;
        }
        Ok(self.end_slices(slicing))
    }

    fn begin_slices(&self, part: Part, place: &mut usize) -> Slicing {
        let key = (part, *place);
        *place += 1;
        Slicing {
            key,
            before: self.before.get(&key).cloned().unwrap_or_default(),
            slices: vec![],
        }
    }

    async fn add_slice(&mut self, slicing: &mut Slicing, bytes: Vec<u8>) -> Result<()> {
        let before = slicing.before.get(slicing.slices.len()).copied();
        slicing.slices.push(self.slice(before, bytes).await?);
        Ok(())
    }

    fn end_slices(&mut self, slicing: Slicing) -> Vec<Slice> {
        self.slices.insert(slicing.key, slicing.slices.clone());
        slicing.slices
    }

    async fn rows(&mut self, chunk: &Arc<Chunk>) -> Result<BlockRef> {
        let bytes = match chunk.away() {
            Some(away) => away.read().await?.into(),
            None => encoded(self.workers, chunk.rows.clone()).await?,
        };
        Ok(self.draft.put(bytes).await?)
    }

    async fn slice(&mut self, before: Option<Slice>, bytes: Vec<u8>) -> Result<Slice> {
        let hash = XxHash3_64::oneshot(&bytes);
        let is_same = |before: &Slice| before.hash == hash && before.block.bytes == bytes.len() as u64;
        if let Some(before) = before.filter(|before| is_same(before) && self.is_kept(before.block)) {
            return Ok(before);
        }
        let block = self.draft.put(bytes).await?;
        Ok(Slice { block, hash })
    }

    fn is_kept(&self, block: BlockRef) -> bool {
        block.file == self.draft.number() || self.kept.contains(&block.file)
    }
}

async fn encoded(workers: &Workers, rows: RecordBatch) -> Result<Vec<u8>> {
    let task = workers.spawn(QueryClass::Batch, move |_| {
        async move { Ok::<_, RuntimeError>(encode_rows(&rows)?) }.boxed()
    })?;
    task.await
}

/// The slices that a part of a manifest refers to, by their place, as [`Encoder::image`] counts places.
pub(crate) fn known_slices(part: Part, image: &StoredImage, slices: &mut Slices) {
    let mut place = 0;
    let mut add = |of: &[Slice]| {
        slices.insert((part, place), of.to_vec());
        place += 1;
    };
    for operator in image.operators.iter().flatten() {
        match operator {
            StoredPart::Table(table) => table.tags.iter().for_each(|tags| add(tags)),
            StoredPart::Columns(sets) => sets.iter().for_each(|set| add(&set.slices)),
        }
    }
    if let Some(tags) = image.contents.as_ref().and_then(|table| table.tags.as_ref()) {
        add(tags);
    }
}
