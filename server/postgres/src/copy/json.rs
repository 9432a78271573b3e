//! JSON rows: NDJSON, or one array of objects.
//!
//! ```text
//! NDJSON      --whole lines-->              Documents --read--> columns
//! JSON array  --scanner: one a line-->          |
//!                                               `-- objects: plain objects, as nearly all are
//!                                               `-- scanner, values: all others, and errors
//! ```

mod objects;
mod values;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use memchr::memrchr;

use crate::copy::LINE_BYTES_MAX;
use crate::error::input::shortened;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::json;

/// Lines or documents that are read at a time, in bytes.
const DOCUMENTS_BYTES: usize = 1 << 20;

/// What documents become.
#[derive(Debug)]
struct Shape {
    /// What the members become at first: numbers, booleans and arrays of them, and text for all others.
    schema: SchemaRef,
    /// The columns that they are for.
    targets: Vec<Arc<Field>>,
    /// Whether there is a reader of plain objects for them.
    is_plain: bool,
}

/// Takes documents apart.
pub struct Decoder {
    shape: Arc<Shape>,
    collector: Collector,
}

enum Collector {
    /// NDJSON: bytes up to anywhere, and where the last line in them ends.
    Lines { bytes: Vec<u8>, whole: usize },
    /// An array's documents.
    Array(Box<Scan>),
}

/// Documents that are to become rows.
pub struct Documents {
    shape: Arc<Shape>,
    /// Lines as they came, or documents of an array, one a line.
    text: Vec<u8>,
}

/// Documents and where each ends.
#[derive(Default)]
struct Scan {
    /// Whether the documents stand in an array.
    array: bool,
    /// Whole documents, one a line.
    documents: Vec<u8>,
    /// Where each document ends in `documents`.
    ends: Vec<usize>,
    scanner: Scanner,
    /// Documents that came before.
    taken: u64,
}

/// Follows the structure of JSON to see where a document ends.
#[derive(Default)]
struct Scanner {
    current: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// `[` of the array was read; `]` was.
    opened: bool,
    closed: bool,
    /// A comma was read and a document is due, or one was read and a comma is due.
    comma_seen: bool,
    first_seen: bool,
}

impl Decoder {
    /// A decoder for objects with these members; others are ignored.
    pub fn new(array: bool, fields: &[Arc<Field>]) -> Self {
        let read: Vec<Field> = fields
            .iter()
            .map(|field| {
                let read = Field::new(field.name(), read_type(field), true);
                // Texts are not converted yet, and an annotation would say that they are.
                match field.data_type() {
                    DataType::Decimal128(..) => read.with_metadata(field.metadata().clone()),
                    _ => read,
                }
            })
            .collect();
        let schema: SchemaRef = Arc::new(Schema::new(read));
        let collector = if array {
            Collector::Array(Box::new(Scan {
                array,
                ..Scan::default()
            }))
        } else {
            Collector::Lines {
                bytes: vec![],
                whole: 0,
            }
        };
        Decoder {
            shape: Arc::new(Shape {
                is_plain: objects::is_plain(&schema) && !fields.iter().any(|field| values::is_json(field)),
                targets: fields.to_vec(),
                schema,
            }),
            collector,
        }
    }

    /// Takes bytes until they are used up or documents are to be taken. Returns the bytes that are left.
    ///
    /// # Errors
    /// The structure of an array is broken, or a document of one is too long.
    pub fn push<'a>(&mut self, data: &'a [u8]) -> SqlResult<&'a [u8]> {
        match &mut self.collector {
            Collector::Lines { bytes, whole } => {
                let room = DOCUMENTS_BYTES
                    .saturating_sub(bytes.len())
                    .max(DOCUMENTS_BYTES / 16);
                let (now, rest) = data.split_at(room.min(data.len()));
                if let Some(at) = memrchr(b'\n', now) {
                    *whole = bytes.len() + at + 1;
                }
                bytes.extend_from_slice(now);
                Ok(rest)
            }
            Collector::Array(scan) => {
                for (at, byte) in data.iter().enumerate() {
                    if scan.documents.len() >= DOCUMENTS_BYTES {
                        return Ok(&data[at..]);
                    }
                    scan.byte(*byte)?;
                }
                Ok(&[])
            }
        }
    }

    /// Whether documents are to be taken before more bytes are pushed.
    pub fn is_full(&self) -> bool {
        match &self.collector {
            Collector::Lines { bytes, whole } => {
                bytes.len() >= DOCUMENTS_BYTES && *whole > 0 || bytes.len() > LINE_BYTES_MAX
            }
            Collector::Array(scan) => scan.documents.len() >= DOCUMENTS_BYTES,
        }
    }

    /// The end of the data: what is left can be taken.
    ///
    /// # Errors
    /// An array is not closed.
    pub fn finish(&mut self) -> SqlResult<()> {
        match &mut self.collector {
            Collector::Lines { bytes, whole } => {
                *whole = bytes.len();
                Ok(())
            }
            Collector::Array(scan) => scan.finish(),
        }
    }

    /// The documents that were pushed whole; `None` when there are none.
    pub fn take(&mut self) -> Option<Documents> {
        let text = match &mut self.collector {
            Collector::Lines { bytes, whole } => {
                // A line that is too long goes as it is: whoever reads it says so.
                let end = if *whole == 0 && bytes.len() > LINE_BYTES_MAX {
                    bytes.len()
                } else {
                    std::mem::take(whole)
                };
                let rest = bytes.split_off(end);
                std::mem::replace(bytes, rest)
            }
            Collector::Array(scan) => {
                scan.taken += scan.ends.len() as u64;
                scan.ends.clear();
                std::mem::take(&mut scan.documents)
            }
        };
        (!text.is_empty()).then(|| Documents {
            shape: Arc::clone(&self.shape),
            text,
        })
    }

    /// The fields in the order of the batches, with the types that they have in them.
    pub fn read_fields(&self) -> Vec<Arc<Field>> {
        // Text that is read for another type is converted by that type's text input, so the annotation must not say
        // that it is converted already.
        self.shape.schema.fields().iter().cloned().collect()
    }
}

impl Documents {
    /// Typed columns, one for each field; no rows if there are only empty lines. `before` documents came earlier.
    ///
    /// # Errors
    /// A document is malformed or too long, or a value is of the wrong type; the row is named.
    pub fn read(&self, before: u64) -> SqlResult<RecordBatch> {
        if self.shape.is_plain
            && let Some(batch) = objects::read(&self.shape.schema, &self.shape.targets, &self.text)
        {
            return Ok(batch);
        }
        // Documents of an array stand on lines by now.
        let mut scan = Scan {
            taken: before,
            ..Scan::default()
        };
        for byte in &self.text {
            scan.byte(*byte)?;
        }
        scan.finish()?;
        if scan.ends.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.shape.schema)));
        }
        scan.rows(&self.shape)
    }
}

impl Scan {
    fn byte(&mut self, byte: u8) -> SqlResult<()> {
        let scanner = &mut self.scanner;
        if scanner.depth == 0 {
            return self.between(byte);
        }
        // NDJSON: a newline ends the document whatever its state, so that one broken row does not eat the rest.
        if !self.array && byte == b'\n' {
            let text = String::from_utf8_lossy(&scanner.current).into_owned();
            return Err(self.bad_row("the document does not end on its line", &text));
        }
        if scanner.in_string && !scanner.escaped && byte < b' ' {
            // A tab or the like as it is, which the parser takes only when it is escaped.
            scanner
                .current
                .extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            scanner.current.push(if byte == b'\n' || byte == b'\r' {
                b' '
            } else {
                byte
            });
        }
        if scanner.current.len() > LINE_BYTES_MAX {
            let message = format!("a document is longer than {} MB", LINE_BYTES_MAX >> 20);
            return Err(SqlError::new(SqlState::ProgramLimitExceeded, message).with_context(self.row_name()));
        }
        if scanner.in_string {
            if scanner.escaped {
                scanner.escaped = false;
            } else if byte == b'\\' {
                scanner.escaped = true;
            } else if byte == b'"' {
                scanner.in_string = false;
            }
            return Ok(());
        }
        match byte {
            b'"' => scanner.in_string = true,
            b'{' | b'[' => scanner.depth += 1,
            b'}' | b']' => {
                scanner.depth -= 1;
                if scanner.depth == 0 {
                    self.documents.extend_from_slice(&scanner.current);
                    self.documents.push(b'\n');
                    self.ends.push(self.documents.len());
                    scanner.current.clear();
                    scanner.first_seen = true;
                    scanner.comma_seen = false;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A byte outside of documents.
    fn between(&mut self, byte: u8) -> SqlResult<()> {
        let array = self.array;
        let scanner = &mut self.scanner;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => Ok(()),
            b'[' if array && !scanner.opened => {
                scanner.opened = true;
                Ok(())
            }
            b']' if array && scanner.opened && !scanner.closed && !scanner.comma_seen => {
                scanner.closed = true;
                Ok(())
            }
            b',' if array
                && scanner.opened
                && !scanner.closed
                && scanner.first_seen
                && !scanner.comma_seen =>
            {
                scanner.comma_seen = true;
                Ok(())
            }
            b'{' if !array
                || (scanner.opened && !scanner.closed && (scanner.comma_seen || !scanner.first_seen)) =>
            {
                scanner.current.push(b'{');
                scanner.depth = 1;
                Ok(())
            }
            other => {
                let expected = match (array, scanner.opened) {
                    (true, false) => "expected an array of objects",
                    (true, true) => "expected an object, \",\" or \"]\"",
                    _ => "expected an object on each line",
                };
                Err(self.bad_row(expected, &char::from(other).to_string()))
            }
        }
    }

    /// The end of the data.
    ///
    /// # Errors
    /// It ends inside a document, or the array is not closed.
    pub fn finish(&mut self) -> SqlResult<()> {
        if self.scanner.depth > 0 {
            let text = String::from_utf8_lossy(&self.scanner.current).into_owned();
            return Err(self.bad_row("the data ends inside a document", &text));
        }
        if self.array && !self.scanner.closed {
            return Err(self.bad_row("the array is not closed", ""));
        }
        Ok(())
    }

    fn row_name(&self) -> String {
        format!("row {}", self.taken + self.ends.len() as u64 + 1)
    }

    fn bad_row(&self, message: &str, text: &str) -> SqlError {
        malformed(message, &self.row_name(), text)
    }

    /// The documents as columns.
    fn rows(&self, shape: &Shape) -> SqlResult<RecordBatch> {
        let mut start = 0;
        let mut texts = Vec::with_capacity(self.ends.len());
        let mut documents = Vec::with_capacity(self.ends.len());
        let row_name = |row: usize| format!("row {}", self.taken + row as u64 + 1);
        for end in &self.ends {
            texts.push(String::from_utf8_lossy(&self.documents[start..*end]).into_owned());
            start = *end;
        }
        for (row, text) in texts.iter().enumerate() {
            match json::parse(text.trim_end()) {
                Ok(json::Node::Object(members)) => documents.push(members),
                Ok(_) => {
                    return Err(malformed("expected an object", &row_name(row), text.trim_end()));
                }
                Err(broken) => {
                    let message = format!("{}, at byte {}", broken.message, broken.offset + 1);
                    return Err(malformed(&message, &row_name(row), text.trim_end()));
                }
            }
        }
        let columns = shape
            .targets
            .iter()
            .zip(shape.schema.fields())
            .map(|(target, read)| {
                let members: Vec<Option<&json::Node<'_>>> = documents
                    .iter()
                    .map(|members| {
                        let member = members.iter().find(|(name, _)| name == target.name());
                        member.map(|(_, node)| node)
                    })
                    .collect();
                values::column(target, read.data_type(), &members).map_err(|cell| {
                    let text = texts.get(cell.row).map_or("", |text| text.trim_end());
                    cell.error.with_context(format!(
                        "{}, column {}: {}",
                        row_name(cell.row),
                        target.name(),
                        shortened(text)
                    ))
                })
            })
            .collect::<SqlResult<Vec<_>>>()?;
        RecordBatch::try_new(Arc::clone(&shape.schema), columns)
            .map_err(|error| SqlError::internal(error.to_string()))
    }
}

fn malformed(message: &str, name: &str, text: &str) -> SqlError {
    let context = if text.is_empty() {
        name.to_string()
    } else {
        format!("{name}: {}", shortened(text))
    };
    SqlError::new(SqlState::InvalidJsonText, "malformed JSON")
        .with_detail(format!("{message}."))
        .with_context(context)
}

/// What a member is read as. Texts of dates, times and the like go through our own inputs.
fn read_type(field: &Field) -> DataType {
    match field.data_type() {
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..) => field.data_type().clone(),
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Date32 => DataType::Utf8,
        DataType::List(item) => {
            let item = Field::new("item", read_type(item), true);
            DataType::List(Arc::new(item))
        }
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;

    fn fields() -> Vec<Arc<Field>> {
        vec![
            Arc::new(Field::new("id", DataType::Int32, true)),
            Arc::new(Field::new("v", DataType::Utf8, true)),
        ]
    }

    /// Reads data that comes in pieces of several sizes, with and without the reader of plain objects.
    fn decode(array: bool, data: &str) -> SqlResult<RecordBatch> {
        let mut outcome: Option<SqlResult<RecordBatch>> = None;
        for (piece, is_plain) in [(usize::MAX, true), (1, true), (3, false)] {
            let mut decoder = Decoder::new(array, &fields());
            decoder.shape = Arc::new(Shape {
                is_plain,
                targets: decoder.shape.targets.clone(),
                schema: Arc::clone(&decoder.shape.schema),
            });
            let result = (|| {
                for piece in data.as_bytes().chunks(piece.min(data.len().max(1))) {
                    assert!(decoder.push(piece)?.is_empty());
                }
                decoder.finish()?;
                match decoder.take() {
                    Some(documents) => documents.read(0),
                    None => Ok(RecordBatch::new_empty(Arc::clone(&decoder.shape.schema))),
                }
            })();
            if let Some(before) = &outcome {
                assert_eq!(before, &result, "{data}");
            }
            outcome = Some(result);
        }
        outcome.unwrap()
    }

    #[test]
    fn documents_are_read() {
        assert_eq!(
            decode(false, "{\"id\":1,\"v\":\"a}\"}\n\n{\"v\":null,\"x\":{}}\n")
                .unwrap()
                .num_rows(),
            2
        );
        assert_eq!(
            decode(true, "[{\"id\":1},\n {\"id\":2,\n\"v\":\"[\"}]")
                .unwrap()
                .num_rows(),
            2
        );
        assert_eq!(decode(true, "[]").unwrap().num_rows(), 0);
        assert_eq!(decode(false, "\n \r\n").unwrap().num_rows(), 0);
        let batch = decode(false, "{\"id\":7}").unwrap();
        assert_eq!(batch.column(0).as_primitive::<Int32Type>().value(0), 7);
    }

    #[test]
    fn the_bad_row_is_named() {
        let error = decode(false, "{\"id\":1}\n{\"id\":\"x\"}\n{\"id\":3}\n").unwrap_err();
        assert_eq!(error.code, SqlState::InvalidTextRepresentation);
        assert!(error.context.unwrap().starts_with("row 2"));
        let error = decode(false, "{\"id\":1}\n{\"id\":,}\n").unwrap_err();
        assert_eq!(error.code, SqlState::InvalidJsonText);
        assert!(error.context.unwrap().starts_with("row 2"));
        for data in [
            "[{\"id\":1}",
            "[{\"id\":1} {\"id\":2}]",
            "{\"id\":1}",
            "[1]",
            "[{},]",
        ] {
            assert!(decode(true, data).is_err(), "{data}");
        }
        for data in ["1", "{\"id\":1", "{\n\"id\":1}"] {
            assert!(decode(false, data).is_err(), "{data}");
        }
    }
}
