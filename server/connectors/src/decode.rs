//! From the bytes of records to typed columns: one library for whatever brings them.
//!
//! Records are read together; where one of them cannot be, they are halved until it stands alone, so that many good ones cost what
//! they cost without it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, FieldRef, Schema};
use millrace_catalog::connector::encoding::{Encoding, Member};
use millrace_postgres::copy::json;
use millrace_postgres::copy::layout::{Header, Layout};
use millrace_postgres::copy::split::{Columns, Splitter};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::{is_text, parse, timestamptz};

use crate::source::Record;

/// So many characters of a line of names are shown.
const NAMES_SHOWN_MAX: usize = 200;

/// Columns of a stream that records give, each with its field.
pub type Given = Vec<(FieldRef, ArrayRef)>;

/// Makes columns of records.
#[derive(Debug, Clone)]
pub struct RecordDecoder {
    encoding: Encoding,
    /// The columns that come out of the values, in the stream's order.
    values: Vec<FieldRef>,
    /// The columns that come out of what stands beside them.
    members: Vec<(FieldRef, Member)>,
}

/// A record that is no row, and why.
#[derive(Debug)]
pub struct BadRecord {
    /// Its place among the records.
    pub at: usize,
    pub error: SqlError,
}

/// Rows in their order, each batch with the place of its first, and those that are none: what cannot be made together is halved until it
/// stands alone.
pub fn halves(
    count: usize,
    make: &dyn Fn(Range<usize>) -> SqlResult<RecordBatch>,
) -> (Vec<(usize, RecordBatch)>, Vec<BadRecord>) {
    let (mut rows, mut bad) = (vec![], vec![]);
    // What is still to be made, the next last.
    let mut left: Vec<Range<usize>> = std::iter::once(0..count).collect();
    while let Some(range) = left.pop() {
        if range.is_empty() {
            continue;
        }
        match make(range.clone()) {
            Ok(batch) => rows.push((range.start, batch)),
            Err(error) if range.len() == 1 => bad.push(BadRecord {
                at: range.start,
                error,
            }),
            Err(_) => {
                let middle = range.start + range.len() / 2;
                left.extend([middle..range.end, range.start..middle]);
            }
        }
    }
    (rows, bad)
}

/// Values of a key, as a batch of these columns.
///
/// # Errors
/// One has no value.
pub fn key_rows(fields: &[FieldRef], given: &Given, rows: usize) -> SqlResult<RecordBatch> {
    let mut columns = vec![];
    for ((_, array), field) in given.iter().zip(fields) {
        let array = arrow::compute::cast(array, field.data_type()).map_err(from_internal::arrow)?;
        if array.logical_null_count() > 0 {
            return Err(SqlError::new(
                SqlState::NotNullViolation,
                format!("the key has no value for column \"{}\"", field.name()),
            ));
        }
        columns.push(array);
    }
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(from_internal::arrow)
}

impl RecordDecoder {
    /// For these columns of a stream; the columns that it gives are those of the values, then those of the members.
    pub fn new(encoding: Encoding, values: Vec<FieldRef>, members: Vec<(FieldRef, Member)>) -> Self {
        RecordDecoder {
            encoding,
            values,
            members,
        }
    }

    /// Rows of records in their order, each batch with the place of its first among the records, and the records that are none.
    pub fn rows(
        &self,
        records: &[Record],
        build: &dyn Fn(&Given, usize) -> SqlResult<RecordBatch>,
    ) -> (Vec<(usize, RecordBatch)>, Vec<BadRecord>) {
        halves(records.len(), &|range| {
            let records = &records[range];
            build(&self.columns(records)?, records.len())
        })
    }

    /// What parts the values of lines behind a line of names, if they are that.
    pub(crate) fn header_delimiter(&self) -> Option<u8> {
        match self.encoding {
            Encoding::Csv {
                delimiter,
                has_header: true,
            } => Some(delimiter),
            _ => None,
        }
    }

    fn columns(&self, records: &[Record]) -> SqlResult<Given> {
        let mut given = match self.values.is_empty() {
            true => vec![],
            false => self.of_values(records)?,
        };
        for (field, member) in &self.members {
            given.push(of_member(field, *member, records)?);
        }
        Ok(given)
    }

    fn of_values(&self, records: &[Record]) -> SqlResult<Given> {
        let no_value = || invalid("the record has no value".to_owned());
        let values: Vec<&[u8]> = (records.iter())
            .map(|record| record.value.as_deref().ok_or_else(no_value))
            .collect::<SqlResult<_>>()?;
        let arrays: Vec<ArrayRef> = match &self.encoding {
            Encoding::Bytes => {
                let field = &self.values[0];
                return Ok(vec![of_bytes(field, values.into_iter().map(Some))?]);
            }
            Encoding::Json => {
                let batch = documents(&self.values, &values)?;
                batch.columns().to_vec()
            }
            Encoding::Csv {
                delimiter,
                has_header: true,
            } => {
                let ordered = in_order(*delimiter, &self.values, records, &values)?;
                let ordered: Vec<&[u8]> = ordered.iter().map(Vec::as_slice).collect();
                lines(*delimiter, &self.values, &ordered)?
            }
            Encoding::Csv { delimiter, .. } => lines(*delimiter, &self.values, &values)?,
            Encoding::Avro(_) | Encoding::Protobuf { .. } | Encoding::Parquet => {
                return Err(invalid("such records are not read one by one".to_owned()));
            }
        };
        let rows = arrays.first().map_or(records.len(), |array| array.len());
        if rows != records.len() {
            return Err(invalid(format!("the record has {rows} rows instead of one")));
        }
        Ok(self.values.iter().cloned().zip(arrays).collect())
    }
}

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::InvalidTextRepresentation, message)
}

/// Each value is a document.
fn documents(fields: &[FieldRef], values: &[&[u8]]) -> SqlResult<RecordBatch> {
    let mut decoder = json::Decoder::new(false, fields);
    let mut text = Vec::with_capacity(values.iter().map(|value| value.len() + 1).sum());
    for value in values {
        let start = text.len();
        text.extend_from_slice(value);
        // Between the members of a document a line feed is a space; within a text there is none.
        for byte in &mut text[start..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        if text[start..].iter().all(u8::is_ascii_whitespace) {
            return Err(invalid("the record is empty".to_owned()));
        }
        text.push(b'\n');
    }
    let mut batches = vec![];
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        rest = decoder.push(rest)?;
        if decoder.is_full()
            && let Some(documents) = decoder.take()
        {
            batches.push(documents.read(0)?);
        }
    }
    decoder.finish()?;
    if let Some(documents) = decoder.take() {
        batches.push(documents.read(0)?);
    }
    match batches.len() {
        0 => Err(invalid("the record is empty".to_owned())),
        1 => Ok(batches.remove(0)),
        _ => arrow::compute::concat_batches(&batches[0].schema(), &batches).map_err(from_internal::arrow),
    }
}

/// Each value is a line of CSV.
fn lines(delimiter: u8, fields: &[FieldRef], values: &[&[u8]]) -> SqlResult<Vec<ArrayRef>> {
    let layout = Layout {
        delimiter,
        ..Layout::csv(Header::Absent)
    };
    let names = fields.iter().map(|field| field.name().clone()).collect();
    let mut splitter = Splitter::new(&layout, names);
    let mut columns = Columns::new(fields.len());
    let broken = |error: millrace_postgres::copy::split::SplitError| error.into_sql("the record");
    for (number, value) in values.iter().enumerate() {
        for piece in [value, b"\n".as_slice()] {
            let mut rest = piece;
            while !rest.is_empty() {
                rest = splitter.push(rest, &mut columns, usize::MAX).map_err(broken)?;
            }
        }
        // A quote that is not closed would swallow the next record.
        if columns.rows() != number + 1 {
            let rows = (columns.rows() + 1).saturating_sub(number + 1);
            return Err(invalid(format!("the record has {rows} lines instead of one")));
        }
    }
    splitter.finish(&mut columns).map_err(broken)?;
    let texts = columns.take();
    (fields.iter().zip(&texts))
        .map(|(field, texts)| parse::column(field, texts).map_err(|cell| *cell.error))
        .collect()
}

/// Lines of files whose first line has the names, with the values in the order of the columns; a column that a file does not have is
/// NULL. The first line stands beside each record.
fn in_order(
    delimiter: u8,
    fields: &[FieldRef],
    records: &[Record],
    values: &[&[u8]],
) -> SqlResult<Vec<Vec<u8>>> {
    let header = |record: &Record| record.headers.first().and_then(|(_, header)| header.clone());
    let first = records.first().and_then(header).unwrap_or_default();
    if records
        .iter()
        .any(|record| header(record).as_ref() != Some(&first))
    {
        return Err(invalid("the file has no line of names".to_owned()));
    }
    let names = names_of_header(delimiter, &first);
    let places = fields
        .iter()
        .map(|field| names.iter().position(|name| name == field.name()));
    let places: Vec<Option<usize>> = places.collect();
    if !fields.is_empty() && places.iter().all(Option::is_none) {
        return Err(invalid(format!(
            "the line of names has none of the columns: {}",
            String::from_utf8_lossy(&first)
                .chars()
                .take(NAMES_SHOWN_MAX)
                .collect::<String>()
        )));
    }
    let ordered = values.iter().map(|value| {
        let pieces = pieces(delimiter, value);
        if pieces.len() != names.len() {
            let (values, names) = (pieces.len(), names.len());
            return Err(invalid(format!(
                "the line has {values} values, and the file {names} names"
            )));
        }
        let mut line = Vec::with_capacity(value.len());
        for (number, place) in places.iter().enumerate() {
            if number > 0 {
                line.push(delimiter);
            }
            line.extend_from_slice(place.map_or(b"".as_slice(), |place| pieces[place]));
        }
        Ok(line)
    });
    ordered.collect()
}

/// The names in the first line of a file.
pub(crate) fn names_of_header(delimiter: u8, line: &[u8]) -> Vec<String> {
    let name = |piece: &[u8]| {
        let text = String::from_utf8_lossy(piece);
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => text.trim().to_owned(),
        }
    };
    // What some programs write before UTF-8.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    pieces(delimiter, line).into_iter().map(name).collect()
}

/// A line of CSV, cut at delimiters that are not within quotes.
fn pieces(delimiter: u8, line: &[u8]) -> Vec<&[u8]> {
    let mut is_quoted = false;
    let cut = |byte: &u8| {
        if *byte == b'"' {
            is_quoted = !is_quoted;
        }
        *byte == delimiter && !is_quoted
    };
    line.split(cut).collect()
}

fn of_bytes<'a>(
    field: &Field,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> SqlResult<(FieldRef, ArrayRef)> {
    if !is_text(field.data_type()) {
        let from = Arc::new(Field::new(field.name(), arrow::datatypes::DataType::Binary, true));
        return Ok((from, Arc::new(BinaryArray::from_iter(values))));
    }
    let text = |value: &'a [u8]| {
        let text = std::str::from_utf8(value)
            .ok()
            .filter(|text| !text.contains('\0'));
        text.ok_or_else(|| {
            SqlError::new(
                SqlState::CharacterNotInRepertoire,
                format!("column \"{}\" is text, and its bytes are not UTF-8", field.name()),
            )
            .with_hint("Give the column the type BYTEA.")
        })
    };
    let texts: Vec<Option<&str>> = values
        .map(|value| value.map(text).transpose())
        .collect::<SqlResult<_>>()?;
    let from = Arc::new(Field::new(field.name(), arrow::datatypes::DataType::Utf8, true));
    Ok((from, Arc::new(StringArray::from(texts))))
}

/// A column out of what stands beside the values.
fn of_member(field: &Field, member: Member, records: &[Record]) -> SqlResult<(FieldRef, ArrayRef)> {
    let typed = |array: ArrayRef| {
        let from = Field::new(field.name(), array.data_type().clone(), true);
        Ok((Arc::new(from) as FieldRef, array))
    };
    match member {
        Member::Key => of_bytes(field, records.iter().map(|record| record.key.as_deref())),
        Member::Partition => typed(Arc::new(Int32Array::from_iter_values(
            records.iter().map(|record| record.split),
        ))),
        Member::Offset => typed(Arc::new(Int64Array::from_iter_values(
            records.iter().map(|record| record.offset),
        ))),
        Member::Timestamp => {
            let micros = (records.iter()).map(|record| record.timestamp_ms.map(|ms| ms.saturating_mul(1000)));
            let times = TimestampMicrosecondArray::from_iter(micros).with_timezone("UTC");
            let (from, array) = typed(Arc::new(times))?;
            Ok((
                Arc::new(from.as_ref().clone().with_data_type(timestamptz())),
                array,
            ))
        }
        Member::File => {
            let paths = records.iter().map(|record| record.key.as_deref());
            typed(Arc::new(StringArray::from_iter(
                paths.map(|path| path.map(String::from_utf8_lossy)),
            )))
        }
        Member::Headers => {
            let texts = records.iter().map(|record| headers(&record.headers));
            typed(Arc::new(StringArray::from_iter_values(texts)))
        }
    }
}

/// Headers as a JSON object; the values of several with one name are an array. Bytes that are no text are told in hexadecimal digits, as
/// bytea has them.
fn headers(headers: &[(String, Option<bytes::Bytes>)]) -> String {
    let value = |bytes: &bytes::Bytes| match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text.to_owned(),
        _ => format!(
            "\\x{}",
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        ),
    };
    let mut members: BTreeMap<&str, Vec<serde_json::Value>> = BTreeMap::new();
    for (name, bytes) in headers {
        let value = serde_json::Value::from(bytes.as_ref().map(value));
        members.entry(name).or_default().push(value);
    }
    let members = members.into_iter().map(|(name, mut values)| {
        let value = match values.len() {
            1 => values.remove(0),
            _ => serde_json::Value::Array(values),
        };
        (name.to_owned(), value)
    });
    serde_json::Value::Object(members.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Schema};
    use bytes::Bytes;

    use super::*;

    fn record(offset: i64, value: Option<&str>) -> Record {
        Record {
            split: 2,
            offset,
            timestamp_ms: Some(1_000),
            key: Some(Bytes::from_static(b"k")),
            value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
            headers: vec![("h".to_owned(), Some(Bytes::from_static(&[0xff])))],
        }
    }

    fn field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    fn build(given: &Given, _: usize) -> SqlResult<RecordBatch> {
        let (fields, arrays): (Vec<_>, Vec<_>) = given.iter().cloned().unzip();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap())
    }

    /// The offsets of the rows, and of the records that are none.
    fn read(encoding: Encoding, values: &[Option<&str>]) -> (Vec<i64>, Vec<usize>) {
        let decoder = RecordDecoder::new(
            encoding,
            vec![field("a", DataType::Int32), field("b", DataType::Utf8)],
            vec![(field("o", DataType::Int64), Member::Offset)],
        );
        let records: Vec<Record> = (values.iter().enumerate())
            .map(|(at, value)| record(at as i64, *value))
            .collect();
        let (rows, bad) = decoder.rows(&records, &build);
        let offsets = rows.iter().flat_map(|(_, batch)| {
            let offsets = batch.column(2).as_any().downcast_ref::<Int64Array>().unwrap();
            offsets.values().to_vec()
        });
        (offsets.collect(), bad.iter().map(|bad| bad.at).collect())
    }

    #[test]
    fn a_bad_record_costs_no_other() {
        let good = r#"{"a": 1, "b": "x"}"#;
        let broken = [
            None,
            Some(""),
            Some("  "),
            Some("{"),
            Some(r#"{"a": "x"}"#),
            Some(r#"{"a": 1} {"a": 2}"#),
            Some("[]"),
            Some("{\"a\":1}\n{\"a\":2}"),
        ];
        for at in 0..9 {
            for broken in broken {
                let mut values = vec![Some(good); 9];
                values[at] = broken;
                let (rows, bad) = read(Encoding::Json, &values);
                assert_eq!(bad, vec![at], "{broken:?}");
                let others: Vec<i64> = (0..9).filter(|offset| *offset != at as i64).collect();
                assert_eq!(rows, others, "{broken:?}");
            }
        }
    }

    #[test]
    fn a_document_may_have_lines() {
        let (rows, bad) = read(Encoding::Json, &[Some("{\n \"a\": 1,\r\n \"b\": \"y\"\n}\n")]);
        assert_eq!((rows, bad), (vec![0], vec![]));
    }

    #[test]
    fn a_line_of_csv_is_a_record() {
        let csv = Encoding::Csv {
            delimiter: b';',
            has_header: false,
        };
        let values = [
            Some("1;x"),
            Some("\"2\";\"y\""),
            Some("3"),
            Some("4;\"open"),
            Some("5;z"),
            Some("6;z\n7;z"),
            Some("x;z"),
        ];
        assert_eq!(read(csv, &values), (vec![0, 1, 4], vec![2, 3, 5, 6]));
    }

    #[test]
    fn a_line_of_names_that_has_no_column_is_none() {
        let encoding = Encoding::Csv {
            delimiter: b',',
            has_header: true,
        };
        let fields = vec![field("a", DataType::Int32), field("b", DataType::Utf8)];
        let decoder = RecordDecoder::new(encoding, fields, vec![]);
        let mut line = record(0, Some("1,x"));
        for (names, is_bad) in [("a,c", false), ("A,B", true), ("c,d", true)] {
            line.headers = vec![(String::new(), Some(Bytes::copy_from_slice(names.as_bytes())))];
            let (_, bad) = decoder.rows(std::slice::from_ref(&line), &build);
            assert_eq!(!bad.is_empty(), is_bad, "{names}");
        }
    }

    #[test]
    fn headers_of_one_name_are_an_array() {
        let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let given = [
            ("h".to_owned(), text("1")),
            ("g".to_owned(), None),
            ("h".to_owned(), text("2")),
        ];
        assert_eq!(headers(&given), r#"{"g":null,"h":["1","2"]}"#);
    }

    #[test]
    fn what_stands_beside_a_value_is_a_column() {
        let decoder = RecordDecoder::new(
            Encoding::Bytes,
            vec![field("v", DataType::Binary)],
            vec![
                (field("k", DataType::Utf8), Member::Key),
                (field("p", DataType::Int32), Member::Partition),
                (field("h", DataType::Utf8), Member::Headers),
            ],
        );
        let (rows, bad) = decoder.rows(&[record(5, Some("abc"))], &build);
        assert!(bad.is_empty());
        let rows = rows.into_iter().map(|(_, batch)| batch).collect::<Vec<_>>();
        let shown = arrow::util::pretty::pretty_format_batches(&rows)
            .unwrap()
            .to_string();
        assert!(shown.contains(r#"| 616263 | k | 2 | {"h":"\\xff"} |"#), "{shown}");
    }
}
