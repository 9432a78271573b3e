//! What any bytes must leave standing where rows come in: COPY's text, CSV and binary, JSON in lines and in an array. None may
//! panic, and what comes of them does not depend on the pieces in which they come.
//!
//! The target `rows` and `sql-tests/tests/server/rows_in.rs` run it.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::Field;
use millrace_postgres::copy::binary::Rows;
use millrace_postgres::copy::json::Decoder;
use millrace_postgres::copy::layout::{Header, Layout};
use millrace_postgres::copy::split::{Columns, Splitter};
use millrace_postgres::error::SqlResult;
use millrace_postgres::types::{from_pg, parse};
use postgres_types::Type;

/// Rows that are cut at a time.
const LIMIT: usize = 7;

/// The columns, each of another kind.
const COLUMNS: [(&str, Type); 13] = [
    ("a", Type::INT4),
    ("b", Type::TEXT),
    ("c", Type::FLOAT8),
    ("d", Type::NUMERIC),
    ("e", Type::TIMESTAMP),
    ("f", Type::TIMESTAMPTZ),
    ("g", Type::BOOL),
    ("h", Type::JSONB),
    ("i", Type::INT4_ARRAY),
    ("j", Type::BYTEA),
    ("k", Type::UUID),
    ("l", Type::INTERVAL),
    ("m", Type::DATE),
];

/// The formats, in the order of the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Csv,
    Binary,
    Lines,
    Array,
}

const FORMATS: [Format; 5] = [
    Format::Text,
    Format::Csv,
    Format::Binary,
    Format::Lines,
    Format::Array,
];

/// The fields of the columns.
pub fn fields() -> Vec<Arc<Field>> {
    let fields = COLUMNS.iter().map(|(name, kind)| {
        let kind = from_pg(kind).expect("the type is known");
        Arc::new(kind.field(*name, true))
    });
    fields.collect()
}

/// The first byte chooses a format and how it looks, the second how long the pieces are, the rest are the rows. Returns how many rows
/// they were, if they were any.
///
/// # Panics
/// Something is not as it must be.
pub fn check(bytes: &[u8]) -> Option<usize> {
    let [first, second, rest @ ..] = bytes else {
        return None;
    };
    let format = FORMATS[usize::from(*first) % FORMATS.len()];
    let look = usize::from(*first) / FORMATS.len();
    let whole = read(format, look, &[rest]);
    let pieces: Vec<&[u8]> = rest.chunks(1 + usize::from(*second)).collect();
    let in_pieces = read(format, look, &pieces);
    match (whole, in_pieces) {
        (Ok(whole), Ok(in_pieces)) => {
            assert_eq!(whole, in_pieces, "{format:?} {rest:?}");
            Some(whole.first().map_or(0, |column| column.len()))
        }
        (Err(whole), Err(in_pieces)) => {
            assert!(!whole.message.is_empty(), "{format:?} {rest:?}");
            assert_eq!(whole.code, in_pieces.code, "{format:?} {rest:?}");
            None
        }
        (whole, in_pieces) => panic!("{format:?} {rest:?}: {whole:?} and, in pieces, {in_pieces:?}"),
    }
}

/// The columns of all rows.
fn read(format: Format, look: usize, pieces: &[&[u8]]) -> SqlResult<Vec<ArrayRef>> {
    match format {
        Format::Text | Format::Csv => split(&layout(format, look), pieces),
        Format::Binary => binary(pieces),
        Format::Lines | Format::Array => json(format == Format::Array, pieces),
    }
}

fn layout(format: Format, look: usize) -> Layout {
    let header = [Header::Absent, Header::Skip, Header::Match][look % 3];
    let is_usual = (look / 3).is_multiple_of(2);
    let layout = match format {
        Format::Csv => Layout::csv(header),
        _ => Layout {
            header,
            ..Layout::text()
        },
    };
    match is_usual {
        true => layout,
        false => Layout {
            delimiter: b'|',
            escape: b'\\',
            null: "null".to_owned(),
            ..layout
        },
    }
}

fn split(layout: &Layout, pieces: &[&[u8]]) -> SqlResult<Vec<ArrayRef>> {
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut splitter = Splitter::new(layout, names);
    let mut columns = Columns::new(COLUMNS.len());
    let mut made = vec![];
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            rest = splitter
                .push(rest, &mut columns, LIMIT)
                .map_err(|error| error.into_sql("COPY"))?;
            if columns.rows() >= LIMIT {
                made.push(columns.take());
            }
        }
    }
    splitter
        .finish(&mut columns)
        .map_err(|error| error.into_sql("COPY"))?;
    made.push(columns.take());
    typed(&made)
}

fn binary(pieces: &[&[u8]]) -> SqlResult<Vec<ArrayRef>> {
    let columns = COLUMNS
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), kind.clone()))
        .collect();
    let mut rows = Rows::new(columns, "COPY");
    let mut columns = Columns::new(COLUMNS.len());
    let mut made = vec![];
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            rest = rows.push(rest, &mut columns, LIMIT)?;
            if columns.rows() >= LIMIT {
                made.push(columns.take());
            }
        }
    }
    while !rows.finish(&mut columns, LIMIT)? {
        made.push(columns.take());
    }
    made.push(columns.take());
    typed(&made)
}

/// Texts that were cut, as values of their columns.
fn typed(made: &[Vec<StringArray>]) -> SqlResult<Vec<ArrayRef>> {
    let fields = fields();
    let column = |at: usize| {
        let texts: Vec<&dyn arrow::array::Array> = made.iter().map(|batch| &batch[at] as _).collect();
        let texts = arrow::compute::concat(&texts).expect("texts can be put together");
        let texts = texts
            .as_any()
            .downcast_ref::<StringArray>()
            .expect("they are texts");
        parse::column(&fields[at], texts).map_err(|error| *error.error)
    };
    (0..COLUMNS.len()).map(column).collect()
}

fn json(is_array: bool, pieces: &[&[u8]]) -> SqlResult<Vec<ArrayRef>> {
    let mut decoder = Decoder::new(is_array, &fields());
    let mut batches: Vec<RecordBatch> = vec![];
    let mut before = 0;
    let mut take = |decoder: &mut Decoder| -> SqlResult<()> {
        if let Some(documents) = decoder.take() {
            let batch = documents.read(before)?;
            before += batch.num_rows() as u64;
            batches.push(batch);
        }
        Ok(())
    };
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            rest = decoder.push(rest)?;
            if decoder.is_full() {
                take(&mut decoder)?;
            }
        }
    }
    decoder.finish()?;
    take(&mut decoder)?;
    let column = |at: usize| {
        let columns: Vec<&dyn arrow::array::Array> =
            batches.iter().map(|batch| batch.column(at).as_ref()).collect();
        match columns.is_empty() {
            true => arrow::array::new_empty_array(&arrow::datatypes::DataType::Utf8),
            false => arrow::compute::concat(&columns).expect("columns can be put together"),
        }
    };
    Ok((0..COLUMNS.len()).map(column).collect())
}
