//! Files that come into a directory or a bucket, each read once.
//!
//! ```text
//!  list --files that were not read, by path--> open, from where it ended --> lines::Lines   --> records
//!    ^                                                                  `--> columns::...   --> columns
//!    `-- when all were read, after the refresh interval
//! ```
//! What was read is told with what came out of it: how far the file is read that is open ([`Position::file`]), and the files that were
//! read to their end ([`Fetched::files`]). A file is told from others by its path and its identity: what the store says of its content,
//! and of a file that can grow (lines without compression, on the machine's own disk) the number of its inode. Such a file can be written
//! anew in place: a checksum of the last bytes that were read tells whether it was.

mod columns;
mod lines;
pub(crate) mod store;
mod writer;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use glob::{MatchOptions, Pattern};
use millrace_catalog::connector::encoding::Encoding;
use millrace_catalog::connector::files::{Compression, FilesDef, FilesPlace};
use object_store::ObjectMeta;
use twox_hash::XxHash3_64;

pub use self::writer::BucketWriter;

use self::columns::ColumnFile;
use self::lines::{From, Lines};
use self::store::{Failure, Place};
use crate::source::{
    ConnectorError, Fetched, FileAt, FileRead, FilesRead, Lag, Position, Reader, Record, Seen,
};

/// A last line without a line feed is taken when its file has been as it is for so long.
const SETTLED: Duration = Duration::from_secs(5);
/// How long a look for files waits before it says that there is nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// The one split that files are.
const SPLIT: i32 = 0;

/// See the module.
pub struct FileReader {
    place: Place,
    def: FilesDef,
    encoding: Encoding,
    /// The columns that are wanted.
    names: Vec<String>,
    pattern: Option<Pattern>,
    /// Of files that were read the bytes that they had, and how they were then, by path and identity.
    read: HashMap<u128, (u64, Option<Seen>)>,
    /// What is to be read next.
    pending: VecDeque<Found>,
    open: Option<Opened>,
    position: Option<FileAt>,
    looked: Option<Instant>,
    /// Files with a last line that may not be whole, as they were, and since when.
    unsettled: HashMap<String, (ObjectMeta, Instant)>,
}

/// A file that is there and was not read, or not to its end.
#[derive(Debug, Clone)]
struct Found {
    meta: ObjectMeta,
    /// The path as one sees it.
    path: String,
    identity: String,
    /// Where to go on: bytes without compression, or rows.
    from: u64,
    /// The checksum of what is before that.
    tail: Option<u64>,
    /// Whether it takes the place of one that was read.
    is_another: bool,
    compression: Compression,
    can_grow: bool,
    /// Whether a last line without a line feed is one.
    is_settled: bool,
}

/// A file that is being read.
struct Opened {
    found: Found,
    content: Content,
    records: u64,
}

enum Content {
    Lines(Box<Lines>),
    Columns(Box<ColumnFile>),
}

/// Two hashes of one text, so that no two files are one by chance.
fn key(path: &str, identity: &str) -> u128 {
    let text = format!("{path}\0{identity}");
    let hash = |seed| u128::from(XxHash3_64::oneshot_with_seed(seed, text.as_bytes()));
    hash(0) << 64 | hash(1)
}

impl FileReader {
    /// Goes on from a position, with the files that were read before.
    ///
    /// # Errors
    /// The directory or bucket is not there or cannot be listed.
    pub async fn open(
        def: FilesDef,
        encoding: Encoding,
        names: Vec<String>,
        position: &Position,
        before: &FilesRead,
    ) -> Result<FileReader, ConnectorError> {
        let place = Place::open(&def.place).await?;
        let pattern = def.pattern.as_deref().map(Pattern::new).transpose();
        let mut reader = FileReader {
            place,
            pattern: pattern
                .map_err(|error| ConnectorError::lasting(error.to_string(), "Create the stream again."))?,
            def,
            encoding,
            names,
            read: HashMap::with_capacity(before.len()),
            pending: VecDeque::new(),
            open: None,
            position: position.file.clone(),
            looked: None,
            unsettled: HashMap::new(),
        };
        for file in before {
            reader.has_read(file);
        }
        reader.look().await?;
        Ok(reader)
    }

    /// What is known of a file last counts: one that was cut is read again.
    fn has_read(&mut self, file: &FileRead) {
        self.read
            .insert(key(&file.path, &file.identity), (file.bytes, file.seen));
    }

    /// Lists what is there that was not read.
    async fn look(&mut self) -> Result<(), ConnectorError> {
        self.place.check().await?;
        let mut metas = self.place.list();
        let mut found = vec![];
        let mut unsettled = HashSet::new();
        loop {
            let next = metas.try_next().await;
            let Some(meta) = next.map_err(|error| self.place.failed(&error))? else {
                break;
            };
            let path = self.place.shown(&meta.location);
            if let Some(file) = self.unread(meta, path, &mut unsettled) {
                found.push(file);
            }
        }
        drop(metas);
        self.unsettled.retain(|path, _| unsettled.contains(path));
        // The file in the middle of which reading is comes first: how far others were read is known when they were read to their end.
        let is_begun = |file: &Found| {
            let at = self.position.as_ref();
            at.is_some_and(|at| (&at.path, &at.identity) == (&file.path, &file.identity))
        };
        found.sort_by(|a, b| (!is_begun(a), &a.path).cmp(&(!is_begun(b), &b.path)));
        self.pending = found.into();
        self.looked = Some(Instant::now());
        Ok(())
    }

    /// A file, if there is something in it that was not read.
    fn unread(&mut self, meta: ObjectMeta, path: String, unsettled: &mut HashSet<String>) -> Option<Found> {
        let within = self.place.within(&meta.location);
        // As everywhere: such names are of what is not finished, or of somebody else's.
        if within.split('/').any(|part| part.starts_with(['.', '_'])) {
            return None;
        }
        let options = MatchOptions {
            require_literal_separator: true,
            ..MatchOptions::new()
        };
        if let Some(pattern) = &self.pattern
            && !pattern.matches_with(&within, options)
        {
            return None;
        }
        let compression = match (&self.encoding, self.def.compression) {
            (Encoding::Parquet, _) => Compression::None,
            (_, Some(compression)) => compression,
            (_, None) => by_name(&within),
        };
        let can_grow = matches!(self.def.place, FilesPlace::Directory(_))
            && compression == Compression::None
            && self.encoding != Encoding::Parquet;
        let tag = meta
            .e_tag
            .clone()
            .unwrap_or_else(|| meta.last_modified.timestamp_micros().to_string());
        let identity = match can_grow {
            // The inode, which comes first.
            true => tag.split('-').next().unwrap_or_default().to_owned(),
            false => format!("{tag}-{}", meta.size),
        };
        let modified_us = meta.last_modified.timestamp_micros();
        let (mut from, mut tail, mut is_another) = match self.read.get(&key(&path, &identity)) {
            Some(_) if !can_grow => return None,
            // What is shorter than it was is another file, written over the first one.
            Some((read, _)) if *read > meta.size => (0, None, true),
            // One that was changed since may be another of the same length.
            Some((read, seen))
                if *read == meta.size && seen.is_none_or(|seen| seen.modified_us == modified_us) =>
            {
                return None;
            }
            Some((read, seen)) => (*read, seen.map(|seen| seen.tail), false),
            None => (0, None, false),
        };
        if let Some(at) = &self.position
            && at.path == path
            && at.identity == identity
            && (!can_grow || (from..=meta.size).contains(&at.at))
            && at.at > from
        {
            (from, tail, is_another) = (at.at, at.tail, false);
        }
        let mut is_settled = !can_grow;
        if let Some((before, since)) = self.unsettled.get(&path) {
            let is_same = before.size == meta.size && before.e_tag == meta.e_tag;
            if is_same && since.elapsed() < SETTLED {
                unsettled.insert(path);
                return None;
            }
            is_settled |= is_same;
        }
        Some(Found {
            meta,
            path,
            identity,
            from,
            tail,
            is_another,
            compression,
            can_grow,
            is_settled,
        })
    }

    /// Opens a file where it is to be read.
    async fn opened(&mut self, mut found: Found) -> Result<Opened, Failure> {
        let content = match &self.encoding {
            Encoding::Parquet => {
                let file = ColumnFile::open(&self.place, &found.meta, found.from, &self.names).await?;
                Content::Columns(Box::new(file))
            }
            encoding => {
                let lines = loop {
                    let from = From {
                        at: found.from,
                        can_grow: found.can_grow,
                        tail: found.tail,
                    };
                    let (meta, how) = (&found.meta, found.compression);
                    let opening = Lines::open(&self.place, meta, how, from, encoding, found.is_settled);
                    match opening.await? {
                        Some(lines) => break lines,
                        None => (found.from, found.tail, found.is_another) = (0, None, true),
                    }
                };
                Content::Lines(Box::new(lines))
            }
        };
        Ok(Opened {
            found,
            content,
            records: 0,
        })
    }

    /// The next piece of the file that is open; none: it ends.
    async fn piece(place: &Place, opened: &mut Opened) -> Result<Option<Fetched>, Failure> {
        let Opened {
            found,
            content,
            records,
        } = opened;
        let timestamp_ms = found.meta.last_modified.timestamp_millis();
        let at = |at: u64, tail: Option<u64>| {
            position_of(FileAt {
                path: found.path.clone(),
                identity: found.identity.clone(),
                at,
                tail,
            })
        };
        match content {
            Content::Columns(file) => {
                let Some((rows, first)) = file.next(place, &found.path).await? else {
                    return Ok(None);
                };
                *records += rows.num_rows() as u64;
                Ok(Some(Fetched {
                    position: at(first + rows.num_rows() as u64, None),
                    columns: Some(crate::source::Columns {
                        rows,
                        others: file.others.clone(),
                        file: found.path.clone(),
                        first,
                        timestamp_ms,
                    }),
                    ..Fetched::default()
                }))
            }
            Content::Lines(lines) => {
                let Some(batch) = lines.next(place, &found.path, found.is_settled).await? else {
                    return Ok(None);
                };
                let path = Bytes::copy_from_slice(found.path.as_bytes());
                let header = lines.header();
                let record = |(offset, value)| Record {
                    split: SPLIT,
                    offset: offset as i64,
                    timestamp_ms: Some(timestamp_ms),
                    key: Some(path.clone()),
                    value: Some(value),
                    headers: header
                        .iter()
                        .map(|header| (String::new(), Some(header.clone())))
                        .collect(),
                };
                let all: Vec<Record> = batch.into_iter().map(record).collect();
                *records += all.len() as u64;
                Ok(Some(Fetched {
                    records: all,
                    position: at(lines.at(), lines.tail()),
                    ..Fetched::default()
                }))
            }
        }
    }

    /// What is told of a file that cannot be read, or not any further.
    fn broken(&mut self, found: Found, at: u64, records: u64, why: String) -> Fetched {
        let file = FileRead {
            path: found.path.clone(),
            identity: found.identity.clone(),
            bytes: found.meta.size,
            records,
            broken: Some((at, why)),
            seen: None,
        };
        self.has_read(&file);
        Fetched {
            position: position_of(FileAt {
                path: found.path,
                identity: found.identity,
                at,
                tail: None,
            }),
            files: vec![file],
            ..Fetched::default()
        }
    }

    /// What is told of a file that ends.
    fn ended(&mut self, opened: Opened) -> Fetched {
        let Opened {
            found,
            content,
            records,
        } = opened;
        let (bytes, at, tail) = match &content {
            Content::Lines(lines) if found.can_grow => (lines.at(), lines.at(), lines.tail()),
            Content::Lines(lines) => (found.meta.size, lines.at(), None),
            Content::Columns(file) => (found.meta.size, file.at(), None),
        };
        let modified_us = found.meta.last_modified.timestamp_micros();
        if found.can_grow && bytes < found.meta.size {
            // The rest may become a line yet.
            let now = Instant::now();
            self.unsettled
                .insert(found.path.clone(), (found.meta.clone(), now));
        } else {
            self.unsettled.remove(&found.path);
        }
        let file = FileRead {
            path: found.path.clone(),
            identity: found.identity.clone(),
            bytes,
            records,
            broken: None,
            seen: tail.map(|tail| Seen { tail, modified_us }),
        };
        let known = self.read.get(&key(&file.path, &file.identity));
        let is_known = known.is_some_and(|(known, _)| *known == bytes) && records == 0;
        self.has_read(&file);
        Fetched {
            position: position_of(FileAt {
                path: found.path,
                identity: found.identity,
                at,
                tail,
            }),
            files: if is_known { vec![] } else { vec![file] },
            ..Fetched::default()
        }
    }
}

impl Opened {
    /// What is told of a file that takes the place of one that was read, before any of its records: it begins anew.
    fn begins_anew(&self) -> Fetched {
        let (path, identity) = (self.found.path.clone(), self.found.identity.clone());
        Fetched {
            position: position_of(FileAt {
                path: path.clone(),
                identity: identity.clone(),
                at: 0,
                tail: None,
            }),
            files: vec![FileRead {
                path,
                identity,
                bytes: 0,
                records: 0,
                broken: None,
                seen: None,
            }],
            ..Fetched::default()
        }
    }
}

/// Where reading is, of the one split that files are.
fn position_of(file: FileAt) -> Position {
    Position {
        file: Some(file),
        ..beginning()
    }
}

/// Before any file.
fn beginning() -> Position {
    Position {
        splits: [(SPLIT, 0)].into(),
        ..Position::default()
    }
}

/// How a file is compressed, as its name says.
fn by_name(name: &str) -> Compression {
    let endings = [
        (".gz", Compression::Gzip),
        (".zst", Compression::Zstd),
        (".bz2", Compression::Bzip2),
        (".xz", Compression::Xz),
    ];
    let found = endings
        .into_iter()
        .find(|(ending, _)| name.to_ascii_lowercase().ends_with(ending));
    found.map_or(Compression::None, |(_, compression)| compression)
}

#[async_trait]
impl Reader for FileReader {
    async fn next(&mut self) -> Result<Fetched, ConnectorError> {
        loop {
            if let Some(mut opened) = self.open.take() {
                let piece = match Self::piece(&self.place, &mut opened).await {
                    Err(Failure::Changed(_)) => {
                        tracing::warn!(
                            file = opened.found.path,
                            "a file was changed while it was read; the new one is read from its beginning"
                        );
                        return Ok(self.ended(opened));
                    }
                    Err(Failure::Broken(why)) => {
                        let Opened {
                            found,
                            content,
                            records,
                        } = opened;
                        let at = match content {
                            Content::Lines(lines) => lines.at(),
                            Content::Columns(file) => file.at(),
                        };
                        return Ok(self.broken(found, at, records, why));
                    }
                    piece => piece.map_err(ConnectorError::from)?,
                };
                return Ok(match piece {
                    Some(fetched) => {
                        self.position.clone_from(&fetched.position.file);
                        self.open = Some(opened);
                        fetched
                    }
                    None => {
                        let fetched = self.ended(opened);
                        self.position.clone_from(&fetched.position.file);
                        fetched
                    }
                });
            }
            if let Some(found) = self.pending.pop_front() {
                match self.opened(found.clone()).await {
                    Ok(opened) if opened.found.is_another => {
                        tracing::info!(
                            file = found.path,
                            "a file was written anew in place, and is read from its beginning"
                        );
                        let fetched = opened.begins_anew();
                        fetched.files.iter().for_each(|file| self.has_read(file));
                        self.position.clone_from(&fetched.position.file);
                        self.open = Some(opened);
                        return Ok(fetched);
                    }
                    Ok(opened) => self.open = Some(opened),
                    // It is gone or another one since it was listed.
                    Err(Failure::Changed(_)) => {
                        tracing::info!(
                            file = found.path,
                            "a file is gone or was changed before it was read"
                        );
                    }
                    Err(Failure::Broken(why)) => {
                        let at = found.from;
                        return Ok(self.broken(found, at, 0, why));
                    }
                    Err(failure) => return Err(failure.into()),
                }
                continue;
            }
            let rest = self
                .looked
                .map(|looked| self.def.refresh.saturating_sub(looked.elapsed()));
            match rest {
                Some(rest) if rest > PATIENCE => {
                    tokio::time::sleep(PATIENCE).await;
                    return Ok(Fetched::default());
                }
                rest => tokio::time::sleep(rest.unwrap_or_default()).await,
            }
            self.look().await?;
            if self.pending.is_empty() {
                return Ok(Fetched::default());
            }
        }
    }

    fn position(&self) -> Position {
        Position {
            file: self.position.clone(),
            ..beginning()
        }
    }

    async fn lag(&mut self) -> Lag {
        let is_behind = self.open.is_some() || !self.pending.is_empty();
        Lag {
            splits: [(SPLIT, (!is_behind).then_some(0))].into(),
        }
    }

    async fn close(&mut self) {}
}
