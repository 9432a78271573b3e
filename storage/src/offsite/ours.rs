//! What a process knows of the copy that is its own, and how the next moment follows from it.

use std::collections::{BTreeMap, BTreeSet};

use super::checkpoints::{Known, Sent};
use super::moment::{self, LogRecord, Record, Stored, StoredLog};
use super::pieces::{self, Object, Piece};
use super::send::Packs;
use super::shipper::ShipOptions;
use super::sweep::Sweep;
use crate::catalog::CatalogCopy;
use crate::checkpoint;
use crate::log::{LogCopy, LogHold};
use crate::store::Progress;

/// Rows that are sent again at a time, for the room that their objects take.
const LEFT_BYTES_MAX: u64 = 16 << 20;
/// A moment that says everything comes when there are others behind the last one for so long.
const BASE_MS: i64 = 60_000;

/// The copy, once it is known to be ours.
#[derive(Debug)]
pub(super) struct Copy {
    pub owner: String,
    /// As of the last moment.
    pub stored: Stored,
    /// The pieces of each log that are there, named by a moment or not yet.
    pub pieces: BTreeMap<u64, Vec<Piece>>,
    /// Whether this process has made a moment.
    pub is_begun: bool,
    pub base_at_ms: i64,
    /// As of the last moment of this process.
    pub progress: Option<Progress>,
    pub looked_at_ms: i64,
    /// When the last step came out well.
    pub well_ms: i64,
    pub known: Known,
    /// The checkpoints that the last moment has, and those that the next one has.
    pub _holds: Vec<LogHold>,
    pub root: Option<Vec<u8>>,
    pub version: Option<Vec<u64>>,
    pub next: Option<Sent>,
    pub packs: Packs,
    pub sweep: Sweep,
}

impl Copy {
    pub(super) fn is_base_due(&self, now_ms: i64) -> bool {
        self.is_begun
            && self.stored.base < self.stored.number
            && now_ms.saturating_sub(self.base_at_ms) >= BASE_MS
    }

    /// Adds pieces that are there.
    pub(super) fn add(&mut self, pieces: Vec<(u64, Piece)>) {
        for (relation, piece) in pieces {
            let log = self.pieces.entry(relation).or_default();
            let at = log.partition_point(|other| other.from < piece.from);
            log.insert(at, piece);
        }
    }

    /// Lets go of pieces in objects of which less than half is of use, so that they are sent again and the objects can go: what is written
    /// seldom would keep what was written beside it.
    pub(super) fn leave_wasteful(&mut self) {
        let mut used: BTreeMap<&str, u64> = BTreeMap::new();
        for piece in self.pieces.values().flatten() {
            if let Object::Pack(name) = &piece.object {
                *used.entry(name).or_default() += piece.bytes;
            }
        }
        let mut left: Vec<(u64, String)> = used
            .into_iter()
            .filter(|(name, bytes)| {
                let name = moment::object_name(&Object::Pack((*name).to_owned()));
                bytes * 2 < self.sweep.bytes_of(&name)
            })
            .map(|(name, bytes)| (bytes, name.to_owned()))
            .collect();
        // The emptiest first, and no more than is sent quickly.
        left.sort();
        let mut bytes = 0;
        left.retain(|(of_object, _)| {
            bytes += of_object;
            bytes <= LEFT_BYTES_MAX
        });
        let left: BTreeSet<String> = left.into_iter().map(|(_, name)| name).collect();
        for log in self.pieces.values_mut() {
            log.retain(|piece| !matches!(&piece.object, Object::Pack(name) if left.contains(name)));
        }
    }

    /// Takes back pieces of a moment that was not made.
    pub(super) fn forget_moment(&mut self, number: u64) {
        for log in self.pieces.values_mut() {
            log.retain(|piece| piece.object != Object::Moment(number));
        }
    }

    /// What is there with the next moment. `inline`: the pieces that go with it.
    pub(super) fn next_stored(
        &mut self,
        number: u64,
        at_ms: i64,
        is_last: bool,
        (catalog, logs, inline): (CatalogCopy, &BTreeMap<u64, LogCopy>, Vec<(u64, Piece)>),
        options: &ShipOptions,
    ) -> Stored {
        self.add(inline);
        let root = self.next.as_ref().map(|next| &next.root).or(self.root.as_ref());
        let files = self.next.as_ref().map(|next| &next.files);
        let stored_log = |(relation, log): (&u64, &LogCopy)| {
            let pieces = self.pieces.get(relation).cloned().unwrap_or_default();
            let span = log.span();
            debug_assert_eq!(pieces::gap(span, &pieces), None, "all rows are in some object");
            (*relation, StoredLog { span, pieces })
        };
        Stored {
            number,
            base: self.stored.base,
            owner: self.owner.clone(),
            writer: options.writer.clone(),
            at_ms,
            is_last,
            catalog: match root {
                Some(root) => catalog.with_fact(checkpoint::FACT, root),
                None => catalog.without_fact(checkpoint::FACT),
            },
            logs: logs.iter().map(stored_log).collect(),
            checkpoints: files.unwrap_or(&self.stored.checkpoints).clone(),
        }
    }

    /// The moment that makes this out of the one before.
    pub(super) fn record(&self, next: &Stored, is_base: bool) -> Record {
        let nothing = Stored::default();
        let before = if is_base { &nothing } else { &self.stored };
        let (sequence, next_id) = next.catalog.place();
        let mut logs = vec![];
        for (relation, log) in &next.logs {
            let old = before.logs.get(relation);
            if old != Some(log) {
                let old = old.map_or(&[][..], |old| &old.pieces);
                logs.push(LogRecord::between(*relation, old, log));
            }
        }
        let dropped = before
            .logs
            .keys()
            .filter(|relation| !next.logs.contains_key(relation));
        Record {
            number: next.number,
            base: if is_base { next.number } else { self.stored.base },
            owner: next.owner.clone(),
            writer: next.writer.clone(),
            at_ms: next.at_ms,
            is_last: next.is_last,
            sequence,
            next_id,
            catalog: match is_base {
                true => next.catalog.changes(),
                false => next.catalog.changes_since(&before.catalog),
            },
            logs,
            dropped: dropped.copied().collect(),
            checkpoints: (is_base || before.checkpoints != next.checkpoints)
                .then(|| next.checkpoints.clone()),
        }
    }

    /// A moment was made.
    pub(super) fn made(&mut self, stored: Stored) {
        self.is_begun = true;
        self.stored = stored;
        let Some(next) = self.next.take() else {
            return;
        };
        let mut known = self.known.lock();
        for file in known.values().chain(&next.files) {
            self.sweep.add(file.object.clone(), file.bytes);
        }
        known.retain(|name, _| next.files.iter().any(|file| file.name == *name));
        drop(known);
        (self.root, self.version, self._holds) = (Some(next.root), Some(next.version), next.holds);
    }
}

/// A copy of which nothing is used but its number.
pub(super) fn only_number(number: u64) -> Stored {
    Stored {
        number,
        ..Stored::default()
    }
}
