//! A moment: what its object says, and what all of them up to one add up to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};

use super::pieces::{self, Object, Piece};
use super::place::Place;
use crate::StorageError;
use crate::catalog::{CatalogChange, CatalogCopy};
use crate::log::LogSpan;

pub(super) const MOMENTS: &str = "moments";
pub(super) const PACKS: &str = "packs";
pub(super) const CHECKPOINTS: &str = "checkpoints";
const FIRST_LINE: &str = "millrace moment, format 1";
/// What a first line looks like of which only the number is another one.
const ANY_FORMAT: &str = "millrace moment, format ";
/// Moments that are read at a time.
const READ_AT_ONCE: usize = 16;

/// What a moment says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub number: u64,
    /// The moment that says everything from which on moments are to be read: this one, or one before it.
    pub base: u64,
    /// Who has the right to the store, and which of its processes wrote this.
    pub owner: String,
    pub writer: String,
    /// When it was, in milliseconds since 1970-01-01 UTC.
    pub at_ms: i64,
    /// The server stopped after it: nothing was written since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last: bool,
    /// The catalog's last step, and the lowest id that was never given out.
    pub sequence: u64,
    pub next_id: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub catalog: Vec<CatalogChange>,
    /// Logs that are other than in the moment before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogRecord>,
    /// Logs that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<u64>,
    /// All files of checkpoints, if they are others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Vec<StoredFile>>,
}

/// How a log changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogRecord {
    pub relation: u64,
    pub first: u64,
    pub write_id: u64,
    pub base_end: u64,
    pub end: u64,
    /// Where pieces began that are of no use any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub new: Vec<Piece>,
}

impl LogRecord {
    /// What makes a log of one with other pieces.
    pub(super) fn between(relation: u64, before: &[Piece], now: &StoredLog) -> LogRecord {
        let LogSpan {
            first,
            write_id,
            base_end,
            end,
        } = now.span;
        let is_in = |piece: &&Piece, of: &[Piece]| {
            of.binary_search_by_key(&piece.from, |other| other.from)
                .is_ok_and(|at| of[at] == **piece)
        };
        LogRecord {
            relation,
            first,
            write_id,
            base_end,
            end,
            gone: (before.iter().filter(|piece| !is_in(piece, &now.pieces)))
                .map(|piece| piece.from)
                .collect(),
            new: (now.pieces.iter().filter(|piece| !is_in(piece, before)))
                .cloned()
                .collect(),
        }
    }
}

/// A file of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredFile {
    /// What it is called in a data directory.
    pub name: String,
    pub object: String,
    pub bytes: u64,
    pub crc: u32,
}

/// A log as it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredLog {
    pub span: LogSpan,
    pub pieces: Vec<Piece>,
}

/// What moments add up to: all that a restore needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stored {
    pub number: u64,
    pub base: u64,
    pub owner: String,
    pub writer: String,
    pub at_ms: i64,
    pub is_last: bool,
    pub catalog: CatalogCopy,
    pub logs: BTreeMap<u64, StoredLog>,
    pub checkpoints: Vec<StoredFile>,
}

impl Stored {
    /// Takes a moment in. An error says what does not fit.
    pub(super) fn apply(&mut self, record: Record) -> Result<(), String> {
        if record.base == record.number {
            *self = Stored::default();
        }
        for relation in record.dropped {
            self.logs.remove(&relation);
        }
        for change in record.logs {
            let span = LogSpan {
                first: change.first,
                write_id: change.write_id,
                base_end: change.base_end,
                end: change.end,
            };
            let log = self.logs.entry(change.relation);
            let log = log.or_insert(StoredLog { span, pieces: vec![] });
            log.span = span;
            log.pieces.retain(|piece| !change.gone.contains(&piece.from));
            log.pieces.extend(change.new);
            log.pieces.sort_by_key(|piece| piece.from);
            if let Some(row) = pieces::gap(span, &log.pieces) {
                return Err(format!("row {row} of log {} is in no object", change.relation));
            }
        }
        if let Some(files) = record.checkpoints {
            self.checkpoints = files;
        }
        self.catalog
            .apply((record.sequence, record.next_id), record.catalog);
        (self.number, self.base) = (record.number, record.base);
        (self.owner, self.writer) = (record.owner, record.writer);
        (self.at_ms, self.is_last) = (record.at_ms, record.is_last);
        Ok(())
    }

    /// Objects from which something is to be read.
    pub(super) fn objects(&self) -> BTreeSet<String> {
        let pieces = self.logs.values().flat_map(|log| &log.pieces);
        let pieces = pieces.map(|piece| object_name(&piece.object));
        let files = self.checkpoints.iter().map(|file| file.object.clone());
        let moments = (self.base..=self.number).map(moment_name);
        pieces.chain(files).chain(moments).collect()
    }
}

/// The name of the object that has a moment; names sort as numbers do.
pub(super) fn moment_name(number: u64) -> String {
    format!("{MOMENTS}/{number:020}")
}

/// The number of the moment that an object has.
pub(super) fn moment_number(name: &str) -> Option<u64> {
    name.strip_prefix(MOMENTS)?.strip_prefix('/')?.parse().ok()
}

/// The name of an object.
pub(super) fn object_name(object: &Object) -> String {
    match object {
        Object::Moment(number) => moment_name(*number),
        Object::Pack(name) => format!("{PACKS}/{name}"),
    }
}

/// The content of a moment's object. What its pieces say is where they are in `rows`, which comes first: it is put in front of what the
/// moment says, behind the first line.
pub(super) fn encode(record: &Record, rows: &[u8]) -> Result<Bytes, serde_json::Error> {
    let json = serde_json::to_vec(record)?;
    let mut bytes = first_line(rows.len(), &json).into_bytes();
    bytes.extend_from_slice(rows);
    bytes.extend_from_slice(&json);
    Ok(bytes.into())
}

/// Where the rows begin in a moment's object: the first line has always the same length.
pub(super) fn rows_at() -> u64 {
    first_line(0, b"").len() as u64
}

fn first_line(rows: usize, json: &[u8]) -> String {
    let numbers = format!("{rows:016x} {:016x} {:08x}", json.len(), crc32c::crc32c(json));
    let crc = crc32c::crc32c(numbers.as_bytes());
    format!("{FIRST_LINE} {numbers} {crc:08x}\n")
}

/// Reads a moment's object; an error says what is wrong with it. The rows are not looked at.
pub(super) fn decode(content: &[u8]) -> Result<Record, String> {
    let line_end = content.iter().position(|byte| *byte == b'\n');
    let line = line_end.and_then(|end| std::str::from_utf8(&content[..end]).ok());
    let line = line.ok_or("this is not a moment")?;
    let Some(numbers) = line.strip_prefix(FIRST_LINE) else {
        return Err(match line.starts_with(ANY_FORMAT) {
            true => "it has a format that this version does not read; use a newer millrace".to_owned(),
            false => "this is not a moment".to_owned(),
        });
    };
    let mut numbers = numbers
        .split_ascii_whitespace()
        .map(|text| u64::from_str_radix(text, 16));
    let mut next = || {
        numbers
            .next()
            .and_then(Result::ok)
            .and_then(|number| usize::try_from(number).ok())
    };
    let (Some(rows), Some(bytes), Some(crc)) = (next(), next(), next()) else {
        return Err("the first line is damaged".to_owned());
    };
    let from = (line.len() + 1).checked_add(rows);
    let to = from.and_then(|from| from.checked_add(bytes));
    let json = from.zip(to).and_then(|(from, to)| content.get(from..to));
    let json = json.ok_or_else(|| format!("it has only {} bytes", content.len()))?;
    if first_line(rows, json) != format!("{line}\n") {
        let found = crc32c::crc32c(json);
        return Err(format!("the checksum is {crc:08x}, the bytes give {found:08x}"));
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Whether bytes are a moment's object; for fuzzing.
#[cfg(any(test, feature = "decoders"))]
pub(crate) fn check(content: &[u8]) -> Result<(), String> {
    decode(content).map(|_| ())
}

/// A moment; `None`: there is none of this number.
pub(super) async fn read(place: &Place, number: u64) -> Result<Option<Record>, StorageError> {
    let name = moment_name(number);
    let Some(content) = place.get(&name).await? else {
        return Ok(None);
    };
    let record = decode(&content).map_err(|why| place.damaged(&name, why))?;
    match record.number == number {
        true => Ok(Some(record)),
        false => Err(place.damaged(&name, format!("it is moment {}", record.number))),
    }
}

/// All that is there as of the last moment; `None`: there is no moment.
///
/// # Errors
/// The place does not answer, or an object is missing or damaged, which is named.
pub(super) async fn load(place: &Place) -> Result<Option<Stored>, StorageError> {
    let listed = place.list(MOMENTS).await?;
    let last = listed.iter().filter_map(|(name, _)| moment_number(name)).max();
    let Some(last) = last else {
        return Ok(None);
    };
    let missing = |number| place.damaged(&moment_name(number), "it is missing");
    let newest = read(place, last).await?.ok_or_else(|| missing(last))?;
    let numbers = newest.base..last;
    let mut records = futures::stream::iter(numbers)
        .map(|number| async move { read(place, number).await?.ok_or_else(|| missing(number)) })
        .buffered(READ_AT_ONCE);
    let mut stored = Stored::default();
    let mut expected = newest.base;
    let mut take = |record: Record| {
        let number = record.number;
        let is_first = number == newest.base;
        if is_first != (record.base == number) && number != last {
            return Err(place.damaged(&moment_name(number), "it does not continue the moments before it"));
        }
        expected += 1;
        stored
            .apply(record)
            .map_err(|why| place.damaged(&moment_name(number), why))
    };
    while let Some(record) = records.try_next().await? {
        take(record)?;
    }
    take(newest.clone())?;
    Ok(Some(stored))
}

#[cfg(test)]
pub(crate) mod unit {
    use super::*;

    /// A moment's object.
    pub(crate) fn sample() -> Vec<u8> {
        encode(&record(), b"rows").unwrap().to_vec()
    }

    fn record() -> Record {
        Record {
            number: 7,
            base: 5,
            owner: "a".to_owned(),
            writer: "b".to_owned(),
            at_ms: 12,
            is_last: true,
            sequence: 3,
            next_id: 20_000,
            catalog: vec![CatalogChange::RemoveFact { key: "k".to_owned() }],
            logs: vec![],
            dropped: vec![4],
            checkpoints: Some(vec![]),
        }
    }

    #[test]
    fn a_moment_is_read_as_it_was_written_or_not_at_all() {
        let record = record();
        let content = encode(&record, b"rows").unwrap();
        assert_eq!(&content[rows_at() as usize..][..4], b"rows");
        assert_eq!(decode(&content), Ok(record));
        for at in (0..rows_at() as usize).chain(rows_at() as usize + 4..content.len()) {
            let mut flipped = content.to_vec();
            flipped[at] ^= 4;
            assert!(decode(&flipped).is_err(), "byte {at}");
        }
        for length in 0..content.len() {
            assert!(decode(&content[..length]).is_err(), "{length} bytes");
        }
        let newer = String::from_utf8(content.to_vec())
            .unwrap()
            .replace("format 1", "format 2");
        assert!(decode(newer.as_bytes()).unwrap_err().contains("newer millrace"));
    }
}
