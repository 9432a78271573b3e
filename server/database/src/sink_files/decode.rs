//! Files of a sink read back to keys, piece by piece: reading them is the disk's, decoding them a core's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use millrace_catalog::sink::FileFormat;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::draft::PIECE_ROWS;
use super::encode::{Encoder, Op};

/// A file, and how far it is decoded.
pub struct Decoder {
    encoder: Arc<Encoder>,
    path: PathBuf,
    rest: Rest,
}

enum Rest {
    Lines(Bytes),
    Batches(ParquetRecordBatchReader),
}

impl Decoder {
    /// Over what a file holds that the encoder's sink wrote.
    ///
    /// # Errors
    /// It is not what the sink wrote.
    pub fn new(encoder: Arc<Encoder>, path: PathBuf, content: Vec<u8>) -> SqlResult<Decoder> {
        let content = Bytes::from(content);
        let rest = if encoder.is_text() {
            if !content.starts_with(&encoder.header()) {
                return Err(damaged(&path));
            }
            Rest::Lines(content.slice(encoder.header().len()..))
        } else {
            let reader = ParquetRecordBatchReaderBuilder::try_new(content)
                .and_then(|builder| builder.with_batch_size(PIECE_ROWS).build());
            Rest::Batches(reader.map_err(|error| damaged(&path).with_detail(error.to_string()))?)
        };
        Ok(Decoder { encoder, path, rest })
    }

    /// Decodes a piece, key by key. `false`: there was nothing left.
    ///
    /// # Errors
    /// It is not what the sink wrote.
    pub(crate) fn piece(&mut self, each: &mut dyn FnMut(Op, &[u8])) -> SqlResult<bool> {
        let (encoder, path) = (&self.encoder, &self.path);
        match &mut self.rest {
            Rest::Lines(rest) => {
                if rest.is_empty() {
                    return Ok(false);
                }
                for _ in 0..PIECE_ROWS {
                    if rest.is_empty() {
                        break;
                    }
                    let end = encoder.line_end(rest).ok_or_else(|| damaged(path))?;
                    let line = rest.split_to(end);
                    let (op, key) = encoder.parse_line(&line).ok_or_else(|| damaged(path))?;
                    each(op, key);
                }
                Ok(true)
            }
            Rest::Batches(reader) => {
                let Some(batch) = reader.next() else {
                    return Ok(false);
                };
                let batch = batch.map_err(|error| damaged(path).with_detail(error.to_string()))?;
                encoder.keys_of_file(&batch, path, each)?;
                Ok(true)
            }
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
