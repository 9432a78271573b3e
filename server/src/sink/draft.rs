//! The files of one step, before they are committed.
//!
//! A file is full at so many rows or bytes; then the next one begins. What is not finished is removed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

use super::SinkDef;
use super::directory::{Directory, io_error};
use super::encode::{Encoder, Op, parquet};
use crate::error::SqlResult;

/// Rows after which it is looked whether a file is full.
const PIECE_ROWS: usize = 4_096;

enum Writer {
    Text(BufWriter<File>, u64),
    Parquet(Box<ArrowWriter<File>>),
}

/// See the module.
pub(crate) struct Draft {
    directory: Directory,
    encoder: Arc<Encoder>,
    rows_max: u64,
    bytes_max: u64,
    numbers: Range<u64>,
    /// The file that is written, with its rows.
    open: Option<(Writer, u64)>,
    is_finished: bool,
    pub rows: u64,
    pub bytes: u64,
}

impl Draft {
    /// Files from this number on.
    pub fn new(def: &SinkDef, encoder: &Arc<Encoder>, next: u64) -> Draft {
        Draft {
            directory: Directory::of(def),
            encoder: Arc::clone(encoder),
            rows_max: def.rows_max,
            bytes_max: def.bytes_max,
            numbers: next..next,
            open: None,
            is_finished: false,
            rows: 0,
            bytes: 0,
        }
    }

    /// Writes rows of the relation.
    pub fn write(&mut self, op: Op, rows: &RecordBatch) -> SqlResult<()> {
        let rows = self.encoder.conform(rows)?;
        let mut done = 0;
        while done < rows.num_rows() {
            let room = self.room()?;
            let piece = rows.slice(done, room.min(rows.num_rows() - done));
            done += piece.num_rows();
            if self.encoder.is_text() {
                let lines = Arc::clone(&self.encoder).lines(&piece)?;
                self.put_lines(op, lines.iter(), piece.num_rows())?;
            } else {
                self.put_rows(op, piece)?;
            }
        }
        Ok(())
    }

    /// Writes rows by their keys.
    pub fn write_keys(&mut self, op: Op, mut keys: &[Box<[u8]>]) -> SqlResult<()> {
        while !keys.is_empty() {
            let (piece, rest) = keys.split_at(self.room()?.min(keys.len()));
            keys = rest;
            if self.encoder.is_text() {
                self.put_lines(op, piece.iter().map(Box::as_ref), piece.len())?;
            } else {
                let rows = self.encoder.rows_of(piece)?;
                self.put_rows(op, rows)?;
            }
        }
        Ok(())
    }

    /// Ends the last file; returns the numbers of all of them. They are on the disk then, and not committed.
    pub fn finish(mut self) -> SqlResult<(Range<u64>, u64, u64)> {
        self.close_file()?;
        if !self.numbers.is_empty() {
            self.directory.sync()?;
        }
        self.is_finished = true;
        Ok((self.numbers.clone(), self.rows, self.bytes))
    }

    /// How many rows may be written before this is asked again. There is an open file then.
    fn room(&mut self) -> SqlResult<usize> {
        let is_full = self.open.as_ref().is_some_and(|(writer, rows)| {
            let bytes = match writer {
                Writer::Text(_, bytes) => *bytes,
                Writer::Parquet(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
            };
            *rows >= self.rows_max || bytes >= self.bytes_max
        });
        if is_full {
            self.close_file()?;
        }
        let rows = match &self.open {
            Some((_, rows)) => *rows,
            None => {
                self.open_file()?;
                0
            }
        };
        Ok(PIECE_ROWS.min(usize::try_from(self.rows_max - rows).unwrap_or(usize::MAX)))
    }

    fn open_file(&mut self) -> SqlResult<()> {
        let path = self.directory.hidden(self.numbers.end);
        let file = File::create_new(&path).map_err(|error| io_error("write", &path, &error))?;
        // From here on there is something to remove.
        self.numbers.end += 1;
        let writer = if self.encoder.is_text() {
            let header = self.encoder.header();
            let mut file = BufWriter::new(file);
            file.write_all(&header)
                .map_err(|error| io_error("write", &path, &error))?;
            Writer::Text(file, header.len() as u64)
        } else {
            let compression = Compression::ZSTD(ZstdLevel::default());
            let properties = WriterProperties::builder().set_compression(compression).build();
            let schema = Arc::clone(self.encoder.schema());
            Writer::Parquet(Box::new(
                ArrowWriter::try_new(file, schema, Some(properties)).map_err(parquet)?,
            ))
        };
        self.open = Some((writer, 0));
        Ok(())
    }

    fn close_file(&mut self) -> SqlResult<()> {
        let Some((writer, _)) = self.open.take() else {
            return Ok(());
        };
        let path = self.directory.hidden(self.numbers.end - 1);
        let file = match writer {
            Writer::Text(file, _) => {
                let flushed = file.into_inner().map_err(std::io::IntoInnerError::into_error);
                flushed.map_err(|error| io_error("write", &path, &error))?
            }
            Writer::Parquet(writer) => writer.into_inner().map_err(parquet)?,
        };
        let synced = file.sync_all().and_then(|()| file.metadata());
        self.bytes += synced.map_err(|error| io_error("sync", &path, &error))?.len();
        Ok(())
    }

    fn put_lines<'a>(&mut self, op: Op, keys: impl Iterator<Item = &'a [u8]>, rows: usize) -> SqlResult<()> {
        let path = self.directory.hidden(self.numbers.end - 1);
        if let Some((Writer::Text(file, bytes), in_file)) = &mut self.open {
            let mut out = vec![];
            for key in keys {
                self.encoder.put_line(op, key, &mut out);
            }
            file.write_all(&out)
                .map_err(|error| io_error("write", &path, &error))?;
            *bytes += out.len() as u64;
            *in_file += rows as u64;
            self.rows += rows as u64;
        }
        Ok(())
    }

    fn put_rows(&mut self, op: Op, rows: RecordBatch) -> SqlResult<()> {
        if let Some((Writer::Parquet(writer), in_file)) = &mut self.open {
            let count = rows.num_rows() as u64;
            writer.write(&self.encoder.with_op(op, rows)?).map_err(parquet)?;
            *in_file += count;
            self.rows += count;
        }
        Ok(())
    }
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
