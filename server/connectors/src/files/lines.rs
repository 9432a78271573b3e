//! A file of lines: JSON, or CSV, whose values may have line feeds in quotes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;

use async_compression::tokio::bufread::{BzDecoder, GzipDecoder, XzDecoder, ZstdDecoder};
use bytes::{Buf, Bytes, BytesMut};
use futures::TryStreamExt as _;
use millrace_catalog::connector::encoding::Encoding;
use millrace_catalog::connector::files::Compression;
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::StreamReader;
use twox_hash::XxHash3_64;

use super::store::{Failure, Place, broken};

/// How much is read at once, and how many lines are given at once.
const PIECE_BYTES: usize = 1 << 20;
const LINES_MAX: usize = 16_384;
/// UTF-8 says the order of bytes by itself.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The longest line. What is longer is no row, and is told as far as that.
const LINE_BYTES_MAX: usize = 64 << 20;
/// So many bytes before a place tell whether a file still is what was read so far.
const TAIL_BYTES: usize = 4_096;

/// A file that is being read.
pub(super) struct Lines {
    bytes: Pin<Box<dyn AsyncRead + Send>>,
    /// What was read and not given.
    rest: BytesMut,
    /// Of `rest` the bytes that have been looked at, and whether a quote was open behind them.
    seen: usize,
    is_quoted: bool,
    /// Where `rest` begins, in bytes without compression.
    at: u64,
    is_ended: bool,
    /// Why there is no more, if that is not the end: told when what was read is given.
    failure: Option<Failure>,
    /// Whether the rest of a line that is too long is passed over.
    passes_over: bool,
    has_quotes: bool,
    header: Option<Bytes>,
    /// Of a file that can grow, the last bytes that were given.
    tail: Option<Tail>,
}

/// The last bytes before a place, in the pieces in which they were read.
#[derive(Debug, Default)]
struct Tail {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Tail {
    fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        self.pieces.push_back(piece);
        while let Some(first) = self.pieces.front()
            && self.length - first.len() >= TAIL_BYTES
        {
            self.length -= first.len();
            self.pieces.pop_front();
        }
    }

    fn checksum(&self) -> u64 {
        let bytes: Vec<u8> = self.pieces.iter().flatten().copied().collect();
        XxHash3_64::oneshot(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..])
    }
}

/// Where to go on in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct From {
    pub at: u64,
    /// Whether it can grow: the checksum of what is before the place is kept then.
    pub can_grow: bool,
    /// The checksum that was kept.
    pub tail: Option<u64>,
}

impl Lines {
    /// Opens a file, and goes on behind so many bytes; none: what is before them is not what it was, and so it is another file.
    pub async fn open(
        place: &Place,
        meta: &ObjectMeta,
        compression: Compression,
        from: From,
        encoding: &Encoding,
        is_settled: bool,
    ) -> Result<Option<Lines>, Failure> {
        let (has_quotes, has_header) = match encoding {
            Encoding::Csv { has_header, .. } => (true, *has_header),
            _ => (false, false),
        };
        let path = place.shown(&meta.location);
        let mut header = None;
        let mut begin = from.at;
        if has_header && meta.size > 0 {
            let mut lines = Lines::at_place(place, meta, compression, 0, has_quotes).await?;
            header = lines.first(place, &path, is_settled).await?;
            if header.is_none() {
                // The names are not all there yet.
                return Ok(Some(Lines {
                    rest: BytesMut::new(),
                    ..lines
                }));
            }
            if from.at == 0 {
                begin = lines.at;
            }
        }
        // Of a file that can grow what is before the place is read with it.
        let before = if from.can_grow {
            begin.min(TAIL_BYTES as u64)
        } else {
            0
        };
        let mut lines = Lines::at_place(place, meta, compression, begin - before, has_quotes).await?;
        lines.header = header;
        if from.can_grow {
            let tail = lines.take(place, &path, before as usize).await?;
            let is_other = |kept: u64| tail.length as u64 != before || tail.checksum() != kept;
            if from.tail.is_some_and(is_other) {
                return Ok(None);
            }
            lines.tail = Some(tail);
        }
        if compression != Compression::None {
            lines.pass(place, &path, begin).await?;
        }
        Ok(Some(lines))
    }

    /// Takes the next bytes, whatever they are.
    async fn take(&mut self, place: &Place, path: &str, count: usize) -> Result<Tail, Failure> {
        while self.rest.len() < count && !self.is_ended {
            self.fill(place, path).await?;
        }
        let taken = self.rest.split_to(count.min(self.rest.len())).freeze();
        self.at += taken.len() as u64;
        let mut tail = Tail::default();
        tail.push(taken);
        Ok(tail)
    }

    async fn at_place(
        place: &Place,
        meta: &ObjectMeta,
        compression: Compression,
        from: u64,
        has_quotes: bool,
    ) -> Result<Lines, Failure> {
        let is_plain = compression == Compression::None;
        let from = if is_plain { from.min(meta.size) } else { 0 };
        let bytes: Pin<Box<dyn AsyncRead + Send>> = if from == meta.size {
            Box::pin(tokio::io::empty())
        } else {
            let options = GetOptions {
                // What was added since it was listed is read the next time.
                range: is_plain.then_some(GetRange::Bounded(from..meta.size)),
                // A file on disk is told by its inode, and may have grown; one that was replaced meanwhile is read as what it is.
                if_match: meta.e_tag.clone().filter(|tag| tag.starts_with('"')),
                ..GetOptions::default()
            };
            let got = place.store.get_opts(&meta.location, options).await;
            let stream = got.map_err(|error| place.failed(&error))?.into_stream();
            let reader = StreamReader::new(stream.map_err(io::Error::other));
            match compression {
                Compression::None => Box::pin(reader),
                Compression::Gzip => {
                    let mut decoder = GzipDecoder::new(reader);
                    decoder.multiple_members(true);
                    Box::pin(decoder)
                }
                Compression::Zstd => {
                    let mut decoder = ZstdDecoder::new(reader);
                    decoder.multiple_members(true);
                    Box::pin(decoder)
                }
                Compression::Bzip2 => {
                    let mut decoder = BzDecoder::new(reader);
                    decoder.multiple_members(true);
                    Box::pin(decoder)
                }
                Compression::Xz => {
                    let mut decoder = XzDecoder::new(reader);
                    decoder.multiple_members(true);
                    Box::pin(decoder)
                }
            }
        };
        Ok(Lines {
            bytes,
            rest: BytesMut::new(),
            seen: 0,
            is_quoted: false,
            at: from,
            is_ended: false,
            failure: None,
            passes_over: false,
            has_quotes,
            header: None,
            tail: None,
        })
    }

    /// Passes over bytes at the beginning.
    async fn pass(&mut self, place: &Place, path: &str, count: u64) -> Result<(), Failure> {
        while self.at < count && !(self.is_ended && self.rest.is_empty()) {
            self.fill(place, path).await?;
            let passed = (count - self.at).min(self.rest.len() as u64);
            self.rest.advance(passed as usize);
            self.at += passed;
        }
        Ok(())
    }

    async fn fill(&mut self, place: &Place, path: &str) -> Result<(), Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.rest.reserve(PIECE_BYTES);
        let target = self.rest.len() + PIECE_BYTES;
        while self.rest.len() < target {
            let read = self.bytes.read_buf(&mut self.rest).await;
            match read {
                Ok(0) => {
                    self.is_ended = true;
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => {
                    self.failure = Some(failed(place, path, &error));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The first line.
    async fn first(&mut self, place: &Place, path: &str, is_settled: bool) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some((_, line)) = self.line(is_settled) {
                return Ok(Some(line));
            }
            if self.is_ended {
                return Ok(None);
            }
            self.fill(place, path).await?;
        }
    }

    /// The next lines, each with its place; none: the file ends, as far as it is there. Whether its last line needs no line feed is said.
    pub async fn next(
        &mut self,
        place: &Place,
        path: &str,
        is_settled: bool,
    ) -> Result<Option<Vec<(u64, Bytes)>>, Failure> {
        let mut lines = vec![];
        loop {
            while lines.len() < LINES_MAX
                && let Some((at, line)) = self.line(is_settled)
            {
                if !line.iter().all(u8::is_ascii_whitespace) {
                    lines.push((at, line));
                }
            }
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
            if self.is_ended {
                return Ok(None);
            }
            self.fill(place, path).await?;
        }
    }

    /// The next whole line of what was read, without what ends it.
    fn line(&mut self, is_settled: bool) -> Option<(u64, Bytes)> {
        loop {
            let end = self.end();
            let (length, behind) = match end {
                Some(end) => (end, end + 1),
                None if self.is_ended && is_settled && !self.rest.is_empty() => {
                    (self.rest.len(), self.rest.len())
                }
                None if self.rest.len() > LINE_BYTES_MAX => (self.rest.len(), self.rest.len()),
                None => return None,
            };
            let at = self.at;
            let mut line = self.rest.split_to(behind).freeze();
            self.at += behind as u64;
            self.seen = 0;
            if let Some(tail) = &mut self.tail {
                tail.push(line.clone());
            }
            line.truncate(length);
            // What some editors put before the first character.
            if at == 0 && line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            let was_passed_over = self.passes_over;
            self.passes_over = end.is_none() && !self.is_ended;
            if !self.passes_over {
                self.is_quoted = false;
            }
            if !was_passed_over {
                return Some((at, line));
            }
        }
    }

    /// Where the first line of what was read ends.
    fn end(&mut self) -> Option<usize> {
        for (number, byte) in self.rest[self.seen..].iter().enumerate() {
            match byte {
                b'"' if self.has_quotes => self.is_quoted = !self.is_quoted,
                b'\n' if !self.is_quoted => {
                    let end = self.seen + number;
                    self.seen = end;
                    return Some(end);
                }
                _ => {}
            }
        }
        self.seen = self.rest.len();
        None
    }

    /// Where the next line begins, in bytes without compression.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The checksum of what is before that, if the file can grow.
    pub fn tail(&self) -> Option<u64> {
        self.tail.as_ref().map(Tail::checksum)
    }

    /// The line that has the names.
    pub fn header(&self) -> Option<Bytes> {
        self.header.clone()
    }
}

fn failed(place: &Place, path: &str, error: &io::Error) -> Failure {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<object_store::Error>());
    match inner {
        Some(error) => place.failed(error),
        None => broken(path, &error.to_string()),
    }
}
