//! Files of a sink read back to keys, piece by piece: reading them is the disk's, decoding lines a core's.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use millrace_catalog::sink::FileFormat;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::directory::io_error;
use super::draft::PIECE_ROWS;
use super::encode::{Encoder, Op};

/// Bytes of lines that are read at once.
const READ_BYTES: usize = 256 << 10;

/// A file, and how far it is decoded. So much of it is in memory as was read at once.
pub struct Decoder {
    encoder: Arc<Encoder>,
    path: PathBuf,
    rest: Rest,
}

enum Rest {
    Lines {
        file: File,
        /// What was read and not decoded begins with a line.
        read: Vec<u8>,
    },
    Batches {
        reader: Box<ParquetRecordBatchReader>,
        read: Option<RecordBatch>,
    },
}

impl Decoder {
    /// Opens a file that the encoder's sink wrote.
    ///
    /// # Errors
    /// It cannot be read, or is not what the sink wrote.
    pub fn open(encoder: Arc<Encoder>, path: PathBuf) -> SqlResult<Decoder> {
        let mut file = File::open(&path).map_err(|error| io_error("read", &path, &error))?;
        let rest = if encoder.is_text() {
            let mut header = vec![0; encoder.header().len()];
            let found = file.read_exact(&mut header);
            if found.is_err() || header != encoder.header() {
                return Err(damaged(&path));
            }
            Rest::Lines { file, read: vec![] }
        } else {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file)
                .and_then(|builder| builder.with_batch_size(PIECE_ROWS).build());
            Rest::Batches {
                reader: Box::new(reader.map_err(|error| damaged(&path).with_detail(error.to_string()))?),
                read: None,
            }
        };
        Ok(Decoder { encoder, path, rest })
    }

    /// Reads the next piece, to be decoded. `false`: there is nothing left.
    ///
    /// # Errors
    /// It cannot be read, or is not what the sink wrote.
    pub fn read(&mut self) -> SqlResult<bool> {
        match &mut self.rest {
            Rest::Lines { file, read } => {
                let before = read.len();
                let taken = file.take(READ_BYTES as u64).read_to_end(read);
                taken.map_err(|error| io_error("read", &self.path, &error))?;
                match (before, read.len() > before) {
                    (_, true) => Ok(true),
                    (0, false) => Ok(false),
                    // A line without an end.
                    (_, false) => Err(damaged(&self.path)),
                }
            }
            Rest::Batches { reader, read } => {
                *read = (reader.next().transpose())
                    .map_err(|error| damaged(&self.path).with_detail(error.to_string()))?;
                Ok(read.is_some())
            }
        }
    }

    /// Decodes what was read, key by key.
    ///
    /// # Errors
    /// It is not what the sink wrote.
    pub(crate) fn decode(&mut self, each: &mut dyn FnMut(Op, &[u8])) -> SqlResult<()> {
        let (encoder, path) = (&self.encoder, &self.path);
        match &mut self.rest {
            Rest::Lines { read, .. } => {
                let mut at = 0;
                while let Some(length) = encoder.line_end(&read[at..]) {
                    let line = &read[at..at + length];
                    let (op, key) = encoder.parse_line(line).ok_or_else(|| damaged(path))?;
                    each(op, key);
                    at += length;
                }
                read.drain(..at);
                Ok(())
            }
            Rest::Batches { read, .. } => match read.take() {
                Some(batch) => encoder.keys_of_file(&batch, path, each),
                None => Ok(()),
            },
        }
    }
}

pub(super) fn damaged(path: &Path) -> SqlError {
    SqlError::new(
        SqlState::DataCorrupted,
        format!("\"{}\" was modified after the sink wrote it", path.display()),
    )
}

impl Encoder {
    /// The keys of rows as they are in a Parquet file.
    fn keys_of_file(
        &self,
        batch: &RecordBatch,
        path: &Path,
        each: &mut dyn FnMut(Op, &[u8]),
    ) -> SqlResult<()> {
        if batch.num_columns() != self.schema().fields().len() {
            return Err(damaged(path));
        }
        let first = usize::from(self.is_changelog);
        let rows = RecordBatch::try_new(Arc::clone(&self.columns), batch.columns()[first..].to_vec())
            .map_err(|error| damaged(path).with_detail(error.to_string()))?;
        let ops = match self.is_changelog {
            true => Some(
                batch
                    .column(0)
                    .as_string_opt::<i32>()
                    .ok_or_else(|| damaged(path))?,
            ),
            false => None,
        };
        for (row, key) in self.keys(&rows)?.iter().enumerate() {
            let op = match ops {
                Some(ops) => Op::parse(ops.value(row).as_bytes()).ok_or_else(|| damaged(path))?,
                None => Op::Insert,
            };
            each(op, key);
        }
        Ok(())
    }

    /// Where the first line ends: behind its line feed, which in CSV is not one inside quotes.
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        let mut is_quoted = false;
        for (position, byte) in bytes.iter().enumerate() {
            match byte {
                b'"' if self.format == FileFormat::Csv => is_quoted = !is_quoted,
                b'\n' if !is_quoted => return Some(position + 1),
                _ => {}
            }
        }
        None
    }

    fn parse_line<'a>(&self, line: &'a [u8]) -> Option<(Op, &'a [u8])> {
        let mut rest = line;
        if self.format == FileFormat::Records {
            let (sign, key) = rest.split_first()?;
            let op = [Op::Insert, Op::Delete]
                .into_iter()
                .find(|op| op.sign() == *sign)?;
            return Some((op, key));
        }
        if self.format == FileFormat::Json {
            rest = rest.strip_prefix(b"{")?;
        }
        if !self.is_changelog {
            return Some((Op::Insert, rest));
        }
        if self.format == FileFormat::Json {
            rest = rest.strip_prefix(b"\"op\":\"")?;
        }
        let (op, behind) = rest.split_at_checked(Op::Insert.name().len())?;
        let behind = match self.format {
            FileFormat::Json => behind.strip_prefix(b"\"")?,
            _ => behind,
        };
        Some((Op::parse(op)?, behind.strip_prefix(b",").unwrap_or(behind)))
    }
}
