//! Reads rows of logs, and puts them into objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoints::blocking;
use super::moment::{self, PACKS};
use super::pieces::{Object, PIECE_BYTES_MAX, Piece};
use super::place::Place;
use crate::StorageError;
use crate::log::LogCopy;

/// An object gets no other piece when it would be larger than this then.
const PACK_BYTES: usize = 8 << 20;
/// So many bytes go with the moment itself: one request less.
const INLINE_BYTES_MAX: usize = 256 << 10;
/// After a large object it rests as long as that took, but no longer than this: the link and the disk are for others too.
const REST_MAX: Duration = Duration::from_secs(1);

/// Rows of a log that are to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub relation: u64,
    pub from: u64,
    pub to: u64,
    pub base_end: u64,
}

/// Pieces that wait until there are enough for an object.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pieces: Vec<(u64, Piece)>,
    bytes: Vec<u8>,
}

/// Gives packs their names.
#[derive(Debug)]
pub(super) struct Packs {
    pub writer: String,
    pub next: u64,
}

/// Reads the next piece of some rows: all of them, or as many as are one.
pub(super) async fn read(
    copies: &Arc<BTreeMap<u64, LogCopy>>,
    part: Part,
) -> Result<(Piece, Vec<u8>), StorageError> {
    let copies = Arc::clone(copies);
    blocking(move || {
        let unknown = StorageError::UnknownRelation {
            relation: part.relation,
        };
        let copy = copies.get(&part.relation).ok_or(unknown)?;
        let (bytes, end) = copy.segment(part.from, part.to, PIECE_BYTES_MAX)?;
        let piece = Piece {
            from: part.from,
            to: end,
            base_end: if part.from < part.base_end {
                part.base_end
            } else {
                0
            },
            object: Object::Moment(0),
            at: 0,
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(&bytes),
        };
        Ok((piece, bytes))
    })
    .await
}

impl Waiting {
    /// Adds a piece. What there is goes before it, if the object would get too large.
    pub(super) fn push(&mut self, relation: u64, mut piece: Piece, bytes: &[u8]) {
        piece.at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        self.pieces.push((relation, piece));
    }

    /// Whether an object ought to be written before so much is added.
    pub(super) fn is_full(&self, more: usize) -> bool {
        !self.bytes.is_empty() && self.bytes.len() + more > PACK_BYTES
    }

    /// Whether it is enough for an object of its own.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > INLINE_BYTES_MAX
    }

    /// Writes them as an object: its name and bytes, and the pieces.
    pub(super) async fn write(
        &mut self,
        place: &Place,
        packs: &mut Packs,
        is_hurried: bool,
    ) -> Result<(String, u64, Vec<(u64, Piece)>), StorageError> {
        let object = Object::Pack(format!("{}-{:010}", packs.writer, packs.next));
        packs.next += 1;
        let (name, bytes) = (moment::object_name(&object), self.bytes.len() as u64);
        debug_assert!(name.starts_with(PACKS), "a pack is one of them");
        let began = Instant::now();
        place.put(&name, std::mem::take(&mut self.bytes).into()).await?;
        if !is_hurried && bytes >= PACK_BYTES as u64 / 2 {
            tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        for (_, piece) in &mut pieces {
            piece.object = object.clone();
        }
        Ok((name, bytes, pieces))
    }

    /// Has them go with a moment: their bytes, and the pieces.
    pub(super) fn into_moment(self, number: u64) -> (Vec<u8>, Vec<(u64, Piece)>) {
        let at = moment::rows_at();
        let pieces = self.pieces.into_iter().map(|(relation, piece)| {
            let piece = Piece {
                object: Object::Moment(number),
                at: at + piece.at,
                ..piece
            };
            (relation, piece)
        });
        (self.bytes, pieces.collect())
    }
}
