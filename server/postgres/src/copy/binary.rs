//! PostgreSQL's binary format of COPY: a header, the rows with a length before each value, a trailer.
//!
//! Bytes come in pieces of any size. A row that is not whole yet is kept; the values of a whole one are appended to the columns as
//! the texts that they stand for, which are then read as those of the other formats are.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use bytes::{BufMut, Bytes, BytesMut};
use postgres_types::Type;

use crate::copy::LINE_BYTES_MAX;
use crate::copy::split::Columns;
use crate::encode::Column;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::parameter;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Signature, flags, length of the extension.
const HEADER_BYTES: usize = 19;
/// Flags beyond this are critical.
const CRITICAL: u32 = 0xffff_0000;
const WITH_OIDS: u32 = 1 << 16;
/// Stands where the number of a row's values would.
const TRAILER: i16 = -1;

/// The header of a COPY TO.
pub fn header() -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES);
    out.put_slice(SIGNATURE);
    out.put_u32(0);
    out.put_u32(0);
    out.freeze()
}

/// The end of a COPY TO.
pub fn trailer() -> Bytes {
    Bytes::copy_from_slice(&TRAILER.to_be_bytes())
}

/// The rows of a batch, and where each ends.
///
/// # Errors
/// A value has no binary form.
pub fn batch(schema: &Schema, batch: &RecordBatch) -> SqlResult<(Bytes, Vec<usize>)> {
    let columns = schema.fields().iter().zip(batch.columns());
    let columns: Vec<Column<'_>> = columns
        .map(|(field, array)| Column::new(array, field))
        .collect::<SqlResult<_>>()?;
    let mut out = BytesMut::new();
    let mut ends = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        out.put_i16(i16::try_from(columns.len()).unwrap_or(i16::MAX));
        for column in &columns {
            column.put_binary_sized(row, &mut out)?;
        }
        ends.push(out.len());
    }
    Ok((out.freeze(), ends))
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Header,
    Row,
    /// The trailer was read.
    Nothing,
}

/// Cuts rows as they come.
pub struct Rows {
    /// The names and types of the columns.
    columns: Vec<(String, Type)>,
    /// What errors call it: `COPY t`.
    what: String,
    /// What was not whole yet.
    pending: Vec<u8>,
    due: Due,
    row: u64,
}

impl Rows {
    /// For rows of these columns.
    pub fn new(columns: Vec<(String, Type)>, what: &str) -> Self {
        Rows {
            columns,
            what: what.to_owned(),
            pending: vec![],
            due: Due::Header,
            row: 0,
        }
    }

    fn wrong(&self, message: impl Into<String>) -> SqlError {
        let error = SqlError::new(SqlState::BadCopyFileFormat, message);
        match self.row {
            0 => error.with_context(self.what.clone()),
            row => error.with_context(format!("{}, line {row}", self.what)),
        }
    }

    /// Cuts rows until the bytes are used up or the columns have `limit` rows. Returns the bytes that are left.
    ///
    /// # Errors
    /// The data is not in this format, or a value is none of its column.
    pub fn push<'a>(&mut self, bytes: &'a [u8], columns: &mut Columns, limit: usize) -> SqlResult<&'a [u8]> {
        if self.pending.is_empty() {
            let used = self.cut(bytes, columns, limit)?;
            let rest = &bytes[used..];
            if columns.rows() >= limit {
                return Ok(rest);
            }
            self.pending.extend_from_slice(rest);
            return Ok(&[]);
        }
        let mut whole = std::mem::take(&mut self.pending);
        whole.extend_from_slice(bytes);
        let used = self.cut(&whole, columns, limit)?;
        whole.drain(..used);
        self.pending = whole;
        if self.pending.len() > LINE_BYTES_MAX && columns.rows() < limit {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("a row is longer than {} MB", LINE_BYTES_MAX >> 20),
            )
            .with_context(format!("{}, line {}", self.what, self.row + 1)));
        }
        Ok(&[])
    }

    /// The client has sent all. What is still there is cut up to the limit; `false`: there is more.
    ///
    /// # Errors
    /// As [`Self::push`]; or the data ends within a row.
    pub fn finish(&mut self, columns: &mut Columns, limit: usize) -> SqlResult<bool> {
        let whole = std::mem::take(&mut self.pending);
        let used = self.cut(&whole, columns, limit)?;
        if used == whole.len() {
            return match self.due {
                Due::Header => Err(self.wrong("COPY file signature not recognized")),
                Due::Row | Due::Nothing => Ok(true),
            };
        }
        if columns.rows() >= limit {
            self.pending = whole[used..].to_vec();
            return Ok(false);
        }
        Err(match (self.due, whole.len()) {
            (Due::Header, 0..11) => self.wrong("COPY file signature not recognized"),
            (Due::Header, 11..15) => self.wrong("invalid COPY file header (missing flags)"),
            (Due::Header, 15..19) => self.wrong("invalid COPY file header (missing length)"),
            (Due::Header, _) => self.wrong("invalid COPY file header (wrong length)"),
            (Due::Row | Due::Nothing, _) => {
                self.row += 1;
                self.wrong("unexpected EOF in COPY data")
            }
        })
    }

    /// Cuts what is whole; returns how many bytes that was.
    fn cut(&mut self, bytes: &[u8], columns: &mut Columns, limit: usize) -> SqlResult<usize> {
        let mut used = 0;
        while columns.rows() < limit && used < bytes.len() {
            let rest = &bytes[used..];
            let length = match self.due {
                Due::Header => self.header(rest)?,
                Due::Row => self.row(rest, columns)?,
                Due::Nothing => return Err(self.wrong("received copy data after EOF marker")),
            };
            match length {
                Some(length) => used += length,
                None => break,
            }
        }
        Ok(used)
    }

    /// Reads the header; `None`: it is not whole yet.
    fn header(&mut self, bytes: &[u8]) -> SqlResult<Option<usize>> {
        let seen = bytes.len().min(SIGNATURE.len());
        if bytes[..seen] != SIGNATURE[..seen] {
            return Err(self.wrong("COPY file signature not recognized"));
        }
        let Some(flags) = word(bytes, SIGNATURE.len()) else {
            return Ok(None);
        };
        if flags & WITH_OIDS != 0 {
            return Err(self.wrong("invalid COPY file header (WITH OIDS)"));
        }
        if flags & CRITICAL != 0 {
            return Err(self.wrong("unrecognized critical flags in COPY file header"));
        }
        let Some(extension) = word(bytes, SIGNATURE.len() + 4) else {
            return Ok(None);
        };
        let Ok(extension) = usize::try_from(extension.cast_signed()) else {
            return Err(self.wrong("invalid COPY file header (missing length)"));
        };
        if extension > LINE_BYTES_MAX {
            return Err(self.wrong("invalid COPY file header (wrong length)"));
        }
        if bytes.len() < HEADER_BYTES + extension {
            return Ok(None);
        }
        self.due = Due::Row;
        Ok(Some(HEADER_BYTES + extension))
    }

    /// Reads a row; `None`: it is not whole yet.
    fn row(&mut self, bytes: &[u8], columns: &mut Columns) -> SqlResult<Option<usize>> {
        let Some(count) = bytes.first_chunk::<2>() else {
            return Ok(None);
        };
        let count = i16::from_be_bytes(*count);
        if count == TRAILER {
            self.due = Due::Nothing;
            return Ok(Some(2));
        }
        let row = self.row + 1;
        if usize::try_from(count).ok() != Some(self.columns.len()) {
            self.row = row;
            return Err(self.wrong(format!(
                "row field count is {count}, expected {}",
                self.columns.len()
            )));
        }
        let mut at = 2;
        let mut values = Vec::with_capacity(self.columns.len());
        for _ in &self.columns {
            let Some(length) = word(bytes, at) else {
                return Ok(None);
            };
            at += 4;
            values.push(match length.cast_signed() {
                -1 => None,
                negative if negative < 0 => {
                    self.row = row;
                    return Err(self.wrong("invalid field size"));
                }
                _ => {
                    let end = at.saturating_add(length as usize);
                    let Some(value) = bytes.get(at..end) else {
                        if length as usize > LINE_BYTES_MAX {
                            self.row = row;
                            return Err(self.wrong("invalid field size"));
                        }
                        return Ok(None);
                    };
                    at = end;
                    Some(value)
                }
            });
        }
        self.row = row;
        let mut texts = Vec::with_capacity(values.len());
        for ((name, pg_type), value) in self.columns.iter().zip(values) {
            let text = value
                .map(|bytes| parameter::binary_text(pg_type, bytes))
                .transpose();
            texts.push(
                text.map_err(|error| {
                    error.with_context(format!("{}, line {row}, column {name}", self.what))
                })?,
            );
        }
        columns.push(texts, row);
        Ok(Some(at))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, ArrayRef, Int32Array, StringArray};
    use std::sync::Arc;

    fn rows() -> Rows {
        Rows::new(vec![("a".into(), Type::INT4), ("b".into(), Type::TEXT)], "COPY t")
    }

    fn data() -> Vec<u8> {
        let a: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let b: ArrayRef = Arc::new(StringArray::from(vec![None, Some("ä\t")]));
        let rows = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
        let (body, ends) = batch(&rows.schema(), &rows).unwrap();
        assert_eq!((ends.len(), ends.last()), (2, Some(&body.len())));
        [&header()[..], &body, &trailer()].concat()
    }

    #[test]
    fn what_is_written_is_read_in_pieces_of_any_size() {
        let data = data();
        for size in 1..=data.len() {
            let (mut reader, mut columns) = (rows(), Columns::new(2));
            for piece in data.chunks(size) {
                assert!(reader.push(piece, &mut columns, 10).unwrap().is_empty());
            }
            assert!(reader.finish(&mut columns, 10).unwrap());
            let texts = columns.take();
            assert_eq!((texts[0].value(0), texts[1].value(1)), ("1", "ä\t"));
            assert!(texts[0].is_null(1) && texts[1].is_null(0));
        }
    }

    #[test]
    fn a_limit_leaves_the_rest() {
        let data = data();
        let (mut reader, mut columns) = (rows(), Columns::new(2));
        let rest = reader.push(&data, &mut columns, 1).unwrap();
        assert_eq!(columns.rows(), 1);
        assert_eq!(columns.take().len(), 2);
        assert!(reader.push(rest, &mut columns, 1).unwrap().len() <= 2);
        // In pieces, the rest waits for the end.
        let (mut reader, mut columns) = (rows(), Columns::new(2));
        reader.push(&data[..5], &mut columns, 1).unwrap();
        reader.push(&data[5..], &mut columns, 1).unwrap();
        columns.take();
        assert!(!reader.finish(&mut columns, 1).unwrap());
        columns.take();
        assert!(reader.finish(&mut columns, 1).unwrap());
    }

    #[test]
    fn cut_and_changed_data_is_refused_and_never_panics() {
        let data = data();
        for end in 0..data.len() {
            let (mut reader, mut columns) = (rows(), Columns::new(2));
            let cut = reader.push(&data[..end], &mut columns, 10);
            let ended = cut.and_then(|_| reader.finish(&mut columns, 10));
            // It may end before the trailer, between rows.
            let first = 19 + 2 + 8 + 4;
            assert_eq!(ended.is_ok(), [19, first, data.len() - 2].contains(&end), "{end}");
        }
        for at in 0..data.len() {
            for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut changed = data.clone();
                changed[at] = byte;
                let (mut reader, mut columns) = (rows(), Columns::new(2));
                let _ = reader
                    .push(&changed, &mut columns, 10)
                    .and_then(|_| reader.finish(&mut columns, 10));
            }
        }
    }
}
