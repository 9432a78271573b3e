//! The files of one step, before they are committed.
//!
//! ```text
//!   encode: rows into memory; end: what closes a file, into memory          take a processor
//!   proceed: what is encoded goes to the disk, the next file is opened      waits for the disk
//! ```
//! They are apart, since they belong to different schedulers. A file is full at so many rows or bytes. What is not finished
//! is removed.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use millrace_postgres::error::{SqlError, SqlResult};

use super::directory::{Directory, io_error};
use super::encode::{Encoder, Op, parquet};

/// Rows that are encoded or decoded at once, without a suspension point.
pub(super) const PIECE_ROWS: usize = 1_024;
/// Encoded bytes that go to the disk at once.
const WRITE_BYTES: usize = 1 << 20;

/// What rows are encoded into. It keeps what is not yet on the disk.
enum Encoding {
    Bytes(Vec<u8>),
    Parquet(Box<ArrowWriter<Vec<u8>>>),
}

/// The file that is written.
struct Open {
    file: File,
    encoding: Encoding,
    rows: u64,
    /// Those on the disk.
    bytes: u64,
    is_ended: bool,
}

impl Open {
    /// Bytes for the disk.
    fn encoded(&self) -> usize {
        match &self.encoding {
            Encoding::Bytes(bytes) => bytes.len(),
            Encoding::Parquet(writer) => writer.inner().len(),
        }
    }

    /// Bytes that the file will have at least.
    fn size(&self) -> u64 {
        match &self.encoding {
            Encoding::Bytes(bytes) => self.bytes + bytes.len() as u64,
            Encoding::Parquet(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
        }
    }
}

/// When a file is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub rows: u64,
    pub bytes: u64,
}

/// See the module.
pub(crate) struct Draft {
    directory: Directory,
    encoder: Arc<Encoder>,
    rows_max: u64,
    bytes_max: u64,
    numbers: Range<u64>,
    open: Option<Open>,
    is_finished: bool,
    pub rows: u64,
    pub bytes: u64,
}

impl Draft {
    /// Files from this number on, of so many rows and bytes.
    pub fn new(directory: &Directory, encoder: &Arc<Encoder>, limits: Limits, next: u64) -> Draft {
        Draft {
            directory: directory.clone(),
            encoder: Arc::clone(encoder),
            rows_max: limits.rows,
            bytes_max: limits.bytes,
            numbers: next..next,
            open: None,
            is_finished: false,
            rows: 0,
            bytes: 0,
        }
    }

    /// How the rows are encoded.
    pub fn encoder(&self) -> Arc<Encoder> {
        Arc::clone(&self.encoder)
    }

    /// How many rows may be encoded before the disk is needed.
    pub fn room(&self) -> usize {
        match &self.open {
            Some(open) if !self.is_full(open) && open.encoded() < WRITE_BYTES => {
                PIECE_ROWS.min(usize::try_from(self.rows_max - open.rows).unwrap_or(usize::MAX))
            }
            _ => 0,
        }
    }

    fn is_full(&self, open: &Open) -> bool {
        // A header alone fills no file.
        open.is_ended || open.rows > 0 && (open.rows >= self.rows_max || open.size() >= self.bytes_max)
    }

    /// Ends the file if it is full.
    pub fn end_if_full(&mut self) -> SqlResult<()> {
        match &self.open {
            Some(open) if self.is_full(open) => self.end(),
            _ => Ok(()),
        }
    }

    /// Ends the file that is written, if there is one.
    pub fn end(&mut self) -> SqlResult<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        if let Encoding::Parquet(writer) = open.encoding {
            open.encoding = Encoding::Bytes(writer.into_inner().map_err(parquet)?);
        }
        open.is_ended = true;
        self.open = Some(open);
        Ok(())
    }

    /// Makes room: writes what is encoded, closes the file if it has ended, and opens one if none is.
    pub fn proceed(&mut self) -> SqlResult<()> {
        self.write_encoded()?;
        if self.open.as_ref().is_some_and(|open| open.is_ended) {
            self.close_file()?;
        }
        match &self.open {
            Some(_) => Ok(()),
            None => self.open_file(),
        }
    }

    /// Encodes rows as the encoder's `conform` gives them, of which there are no more than there is space for.
    pub fn encode(&mut self, op: Op, rows: &RecordBatch) -> SqlResult<()> {
        if self.encoder.is_text() {
            let lines = self.encoder.lines(rows)?;
            return self.put_lines(op, lines.iter(), rows.num_rows());
        }
        self.put_rows(op, rows.clone())
    }

    /// The same with rows by their keys.
    pub fn encode_keys(&mut self, op: Op, keys: &[Box<[u8]>]) -> SqlResult<()> {
        if self.encoder.is_text() {
            return self.put_lines(op, keys.iter().map(Box::as_ref), keys.len());
        }
        let rows = self.encoder.rows_of(keys)?;
        self.put_rows(op, rows)
    }

    /// Closes the last file, which has ended; returns the numbers of all of them. They are on the disk then, and not committed.
    pub fn finish(mut self) -> SqlResult<(Range<u64>, u64, u64)> {
        self.write_encoded()?;
        self.close_file()?;
        if !self.numbers.is_empty() {
            self.directory.sync()?;
        }
        self.is_finished = true;
        Ok((self.numbers.clone(), self.rows, self.bytes))
    }

    fn open_file(&mut self) -> SqlResult<()> {
        let path = self.directory.hidden(self.numbers.end);
        let file = self
            .directory
            .create_new(&path)
            .map_err(|error| io_error("write", &path, &error))?;
        // From here on there is something to remove.
        self.numbers.end += 1;
        let encoding = if self.encoder.is_text() {
            Encoding::Bytes(self.encoder.header())
        } else {
            let compression = Compression::ZSTD(ZstdLevel::default());
            let properties = WriterProperties::builder().set_compression(compression).build();
            let schema = Arc::clone(self.encoder.schema());
            let writer = ArrowWriter::try_new(vec![], schema, Some(properties)).map_err(parquet)?;
            Encoding::Parquet(Box::new(writer))
        };
        self.open = Some(Open {
            file,
            encoding,
            rows: 0,
            bytes: 0,
            is_ended: false,
        });
        Ok(())
    }

    /// Writes what is encoded.
    fn write_encoded(&mut self) -> SqlResult<()> {
        let path = self.directory.hidden(self.numbers.end.saturating_sub(1));
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let encoded = match &mut open.encoding {
            Encoding::Bytes(bytes) => bytes,
            // Parquet counts what it was given, not what is still here.
            Encoding::Parquet(writer) => writer.inner_mut(),
        };
        let written = open.file.write_all(encoded);
        written.map_err(|error| io_error("write", &path, &error))?;
        open.bytes += encoded.len() as u64;
        encoded.clear();
        Ok(())
    }

    fn close_file(&mut self) -> SqlResult<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let path = self.directory.hidden(self.numbers.end - 1);
        let synced = open.file.sync_all().and_then(|()| open.file.metadata());
        self.bytes += synced.map_err(|error| io_error("sync", &path, &error))?.len();
        Ok(())
    }

    fn put_lines<'a>(&mut self, op: Op, keys: impl Iterator<Item = &'a [u8]>, count: usize) -> SqlResult<()> {
        let Some(Open {
            encoding: Encoding::Bytes(bytes),
            rows,
            ..
        }) = &mut self.open
        else {
            return Err(no_file());
        };
        for key in keys {
            self.encoder.put_line(op, key, bytes);
        }
        *rows += count as u64;
        self.rows += count as u64;
        Ok(())
    }

    fn put_rows(&mut self, op: Op, batch: RecordBatch) -> SqlResult<()> {
        let Some(Open {
            encoding: Encoding::Parquet(writer),
            rows,
            ..
        }) = &mut self.open
        else {
            return Err(no_file());
        };
        let count = batch.num_rows() as u64;
        writer.write(&self.encoder.with_op(op, batch)?).map_err(parquet)?;
        *rows += count;
        self.rows += count;
        Ok(())
    }
}

/// Rows were encoded without room.
fn no_file() -> SqlError {
    SqlError::internal("a sink encoded rows before a file was open")
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        self.open = None;
        for number in self.numbers.clone() {
            // What stays is removed when the sink starts again.
            let _ = fs::remove_file(self.directory.hidden(number));
        }
    }
}
