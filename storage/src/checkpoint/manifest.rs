//! What a checkpoint consists of: a JSON document of references to blocks.
//!
//! Blocks are immutable, so that a later checkpoint refers to those of an earlier one where nothing changed.

use serde::{Deserialize, Serialize};

/// The version of manifests that this code writes.
const VERSION: u32 = 2;
/// The oldest version that it reads. Version 1 has no [`StoredView::state`].
const VERSION_OLDEST: u32 = 1;

/// Where a block is: checkpoint file, position, length in bytes, CRC32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u32)", into = "(u64, u64, u64, u32)")]
pub struct BlockRef {
    pub file: u64,
    pub at: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl From<(u64, u64, u64, u32)> for BlockRef {
    fn from((file, at, bytes, crc): (u64, u64, u64, u32)) -> Self {
        BlockRef { file, at, bytes, crc }
    }
}

impl From<BlockRef> for (u64, u64, u64, u32) {
    fn from(block: BlockRef) -> Self {
        (block.file, block.at, block.bytes, block.crc)
    }
}

/// Some rows of columns; by the hash of its bytes a later checkpoint knows that they are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub block: BlockRef,
    pub hash: u64,
}

/// Neighbouring rows of a table, dead ones included, because rows have numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredChunk {
    pub rows: u64,
    pub data: BlockRef,
    /// A bit for each row that is alive, packed; none: all of them are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<Slice>,
}

/// A table of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTable {
    pub chunks: Vec<StoredChunk>,
    /// A number for each row, if the table keeps one: slices of one column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Slice>>,
}

/// Columns of one length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSet {
    pub columns: usize,
    pub slices: Vec<Slice>,
}

/// One part of an operator's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredPart {
    Table(StoredTable),
    Columns(Vec<StoredSet>),
}

/// What a task of a view keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    pub stage: usize,
    pub partition: usize,
    /// The parts of its operators, in the order of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<Vec<StoredPart>>,
    /// Of the last stage: rows of the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<StoredTable>,
}

/// A view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredView {
    pub relation: u64,
    /// What tells the state of one plan from that of another, by operator, in the planner's words. Without it (version 1)
    /// the parts of the images have to fit the plan's operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<String>>,
    pub partitions: usize,
    /// What it reads.
    pub inputs: Vec<u64>,
    /// Rows on which an expression has failed so far.
    pub failed_rows: u64,
    pub images: Vec<StoredImage>,
}

/// A stream or table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSource {
    pub relation: u64,
    /// The log's offset up to which everything is in the checkpoint.
    pub end: u64,
    /// The stream's watermark there, in microseconds since 1970-01-01 00:00 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<i64>,
    /// A table's rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<StoredTable>,
}

/// A pipeline after an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    pub number: u64,
    pub epoch: u64,
    /// The epoch's time, in microseconds since 1970-01-01 00:00 UTC.
    pub now: i64,
    /// When it was written, in milliseconds since 1970-01-01 00:00 UTC.
    pub written_at_ms: i64,
    /// The first file of the epoch log that has epochs after it.
    pub epochs_from: u64,
    pub sources: Vec<StoredSource>,
    pub views: Vec<StoredView>,
}

impl Manifest {
    /// One without relations.
    pub fn new(number: u64, epoch: u64, now: i64, epochs_from: u64) -> Manifest {
        Manifest {
            version: VERSION,
            number,
            epoch,
            now,
            written_at_ms: 0,
            epochs_from,
            sources: vec![],
            views: vec![],
        }
    }

    /// The relations that it has something of.
    pub fn relations(&self) -> impl Iterator<Item = u64> + '_ {
        let sources = self.sources.iter().map(|source| source.relation);
        sources.chain(self.views.iter().map(|view| view.relation))
    }

    /// Shows every block that it refers to.
    pub fn visit(&self, see: &mut impl FnMut(BlockRef)) {
        for table in self.sources.iter().filter_map(|source| source.rows.as_ref()) {
            table.visit(see);
        }
        for image in self.views.iter().flat_map(|view| &view.images) {
            for part in image.operators.iter().flatten() {
                match part {
                    StoredPart::Table(table) => table.visit(see),
                    StoredPart::Columns(sets) => {
                        let slices = sets.iter().flat_map(|set| &set.slices);
                        slices.for_each(|slice| see(slice.block));
                    }
                }
            }
            if let Some(table) = &image.contents {
                table.visit(see);
            }
        }
    }

    /// Bytes of all blocks that it refers to, each counted once.
    pub fn bytes(&self) -> u64 {
        let (mut seen, mut bytes) = (std::collections::HashSet::new(), 0);
        self.visit(&mut |block| {
            if seen.insert((block.file, block.at)) {
                bytes += block.bytes;
            }
        });
        bytes
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads a manifest; the error says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        match manifest.version {
            VERSION_OLDEST..=VERSION => Ok(manifest),
            other => Err(format!(
                "it has version {other}, only {VERSION_OLDEST} to {VERSION} are known"
            )),
        }
    }
}

impl StoredTable {
    fn visit(&self, see: &mut impl FnMut(BlockRef)) {
        for chunk in &self.chunks {
            see(chunk.data);
            if let Some(alive) = chunk.alive {
                see(alive.block);
            }
        }
        for slice in self.tags.iter().flatten() {
            see(slice.block);
        }
    }
}
