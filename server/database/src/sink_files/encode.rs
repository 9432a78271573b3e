//! Rows of a sink in the form of its files.
//!
//! A **key** is what a row is apart from what happened to it: of JSON and CSV its line without the `op`, of Parquet Arrow's
//! row format, of what waits for another system its record key and its row. Rows with the same key are the same to whoever reads the files. Files can be read back to keys
//! ([`super::decode`]), and keys be written: so that a start finds out what was delivered, and takes back what must not have
//! been.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use bytes::{BufMut, BytesMut};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::errors::ParquetError;
use millrace_catalog::sink::{FileFormat, SinkDef, SinkType};
use millrace_postgres::copy::encode;
use millrace_postgres::copy::layout::{Header, Layout};
use millrace_postgres::encode::{Column, json};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::enumeration::{as_texts, text_field};
use millrace_postgres::{from_internal, types};

use super::directory::io_error;
use super::outbox;

/// What happened to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Insert,
    Delete,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Insert => "insert",
            Op::Delete => "delete",
        }
    }

    /// What a record begins with.
    pub(super) fn sign(self) -> u8 {
        match self {
            Op::Insert => b'+',
            Op::Delete => b'-',
        }
    }

    pub(super) fn parse(name: &[u8]) -> Option<Op> {
        [Op::Insert, Op::Delete]
            .into_iter()
            .find(|op| op.name().as_bytes() == name)
    }
}

/// Lines one after the other, each with its line feed.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.bytes[start..*end])
    }
}

/// Rows that are written as the members of objects.
struct Members<'a> {
    columns: Vec<Column<'a>>,
    schema: SchemaRef,
}

impl<'a> Members<'a> {
    fn new(rows: &'a RecordBatch) -> SqlResult<Self> {
        let columns = rows.columns().iter().zip(rows.schema_ref().fields());
        let columns = columns.map(|(array, field)| Column::new(array, field));
        Ok(Members {
            columns: columns.collect::<SqlResult<_>>()?,
            schema: rows.schema(),
        })
    }

    /// Writes a row on one line.
    fn put(&self, row: usize, out: &mut BytesMut) {
        let start = out.len();
        json::put_members(&self.columns, &self.schema, row, out);
        // A value of type json is as it was given: between its members there may be any space. Within a text there is none of these.
        for byte in &mut out[start..] {
            if matches!(byte, b'\n' | b'\r' | b'\t') {
                *byte = b' ';
            }
        }
    }
}

/// See the module.
pub struct Encoder {
    pub(super) format: FileFormat,
    /// What the user calls what has the rows.
    shown: String,
    pub(super) is_changelog: bool,
    /// The columns of the key of a record, by position.
    record_key: Option<Vec<usize>>,
    /// The columns of the files, with the `op` of a changelog.
    schema: SchemaRef,
    /// Those of the relation, called as in the files.
    pub(super) columns: SchemaRef,
    layout: Layout,
}

impl Encoder {
    /// For a sink over a relation of this schema.
    ///
    /// # Errors
    /// The relation has fewer columns than it had.
    pub fn new(def: &SinkDef, relation: &Schema) -> SqlResult<Encoder> {
        if relation.fields().len() < def.columns.len() {
            return Err(SqlError::internal("a sink has more columns than its relation"));
        }
        let is_changelog = def.sink_type == SinkType::Changelog;
        // Files have texts where a relation has values of an enum.
        let schema = def.schema(relation);
        let schema = Arc::new(Schema::new(
            schema.fields().iter().map(text_field).collect::<Vec<_>>(),
        ));
        let columns = schema.fields().iter().skip(usize::from(is_changelog)).cloned();
        let format = outbox::form(&def.target);
        Ok(Encoder {
            format,
            shown: match def.kept() {
                Some(_) => "subscriptions".to_owned(),
                None => format!("{} files", def.target.format().to_uppercase()),
            },
            is_changelog,
            record_key: def.target.key().map(<[usize]>::to_vec),
            columns: Arc::new(Schema::new(columns.collect::<Vec<_>>())),
            schema,
            layout: Layout::csv(Header::Match),
        })
    }

    pub fn is_text(&self) -> bool {
        self.format != FileFormat::Parquet
    }

    /// Refuses types that the format has not.
    ///
    /// # Errors
    /// A column has one.
    pub fn check(&self) -> SqlResult<()> {
        for field in self.columns.fields() {
            let name = types::type_name(field);
            let nullable = Arc::new(field.as_ref().clone().with_nullable(true));
            let schema = Arc::new(Schema::new(vec![Arc::clone(&nullable)]));
            let tried =
                RecordBatch::try_new(Arc::clone(&schema), vec![new_null_array(nullable.data_type(), 1)])
                    .map_err(from_internal::arrow)
                    .and_then(|batch| {
                        if self.is_text() {
                            return self.lines_with(&batch, None).map(|_| ());
                        }
                        RowConverter::new(vec![SortField::new(nullable.data_type().clone())])
                            .map_err(from_internal::arrow)?;
                        let mut writer = ArrowWriter::try_new(vec![], schema, None).map_err(parquet)?;
                        writer.write(&batch).map_err(parquet)?;
                        writer.close().map(|_| ()).map_err(parquet)
                    });
            if let Err(error) = tried {
                return Err(SqlError::unsupported(format!(
                    "column \"{}\" is of type {name}, which {} do not support",
                    field.name(),
                    self.shown
                ))
                .with_detail(error.message)
                .with_hint("Cast it to text in a query: CREATE SINK .. AS SELECT .."));
            }
        }
        Ok(())
    }

    /// Rows of the relation with the columns of the files, without `op`.
    pub fn conform(&self, rows: &RecordBatch) -> SqlResult<RecordBatch> {
        let schema = rows.schema();
        let columns = rows.columns().iter().zip(schema.fields());
        let columns = columns.take(self.columns.fields().len());
        let columns = columns.map(|(values, field)| as_texts(field, values)).collect();
        RecordBatch::try_new(Arc::clone(&self.columns), columns).map_err(from_internal::arrow)
    }

    /// Rows as they are in a Parquet file.
    pub(crate) fn with_op(&self, op: Op, rows: RecordBatch) -> SqlResult<RecordBatch> {
        if !self.is_changelog {
            return Ok(rows);
        }
        let ops: ArrayRef = Arc::new(StringArray::from(vec![op.name(); rows.num_rows()]));
        let columns = std::iter::once(ops).chain(rows.columns().iter().cloned());
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect()).map_err(from_internal::arrow)
    }

    /// Rows as lines without `op`: the keys of JSON and CSV.
    pub fn lines(&self, rows: &RecordBatch) -> SqlResult<Lines> {
        self.lines_with(rows, self.record_key.as_deref())
    }

    fn lines_with(&self, rows: &RecordBatch, record_key: Option<&[usize]>) -> SqlResult<Lines> {
        let mut lines = Lines::default();
        if self.format == FileFormat::Csv {
            lines.bytes = encode::batch_with(&self.layout, rows, |end| lines.ends.push(end))?;
            return Ok(lines);
        }
        let members = Members::new(rows)?;
        let key = record_key.map(|key| rows.project(key)).transpose();
        let key = key.map_err(from_internal::arrow)?;
        let key = key.as_ref().map(Members::new).transpose()?;
        let mut out = BytesMut::new();
        for row in 0..rows.num_rows() {
            if self.format == FileFormat::Records {
                if let Some(key) = &key {
                    out.put_u8(b'{');
                    key.put(row, &mut out);
                    out.put_u8(b'}');
                }
                out.put_slice(b"\t{");
            }
            members.put(row, &mut out);
            out.put_slice(b"}\n");
            lines.ends.push(out.len());
        }
        lines.bytes = out.into();
        Ok(lines)
    }

    /// The keys of rows.
    pub fn keys(&self, rows: &RecordBatch) -> SqlResult<Vec<Box<[u8]>>> {
        if self.is_text() {
            return Ok(self.lines(rows)?.iter().map(Box::from).collect());
        }
        let keys = self.converter()?.convert_columns(rows.columns());
        let keys = keys.map_err(from_internal::arrow)?;
        Ok(keys.iter().map(|key| Box::from(key.as_ref())).collect())
    }

    /// The rows that have these keys, of a Parquet file.
    pub fn rows_of(&self, keys: &[Box<[u8]>]) -> SqlResult<RecordBatch> {
        let converter = self.converter()?;
        let parser = converter.parser();
        let columns = converter.convert_rows(keys.iter().map(|key| parser.parse(key)));
        let columns = columns.map_err(from_internal::arrow)?;
        RecordBatch::try_new(Arc::clone(&self.columns), columns).map_err(from_internal::arrow)
    }

    fn converter(&self) -> SqlResult<RowConverter> {
        let fields = self.columns.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        RowConverter::new(fields.collect()).map_err(from_internal::arrow)
    }

    /// What a text file begins with.
    pub fn header(&self) -> Vec<u8> {
        match self.format {
            FileFormat::Csv => self.layout.header_line(&self.schema).unwrap_or_default(),
            FileFormat::Json | FileFormat::Parquet | FileFormat::Records => vec![],
        }
    }

    /// Writes a key of a text form as a line.
    pub(crate) fn put_line(&self, op: Op, key: &[u8], out: &mut Vec<u8>) {
        match (self.format, self.is_changelog) {
            (FileFormat::Records, _) => out.push(op.sign()),
            (FileFormat::Json, true) => {
                out.extend_from_slice(b"{\"op\":\"");
                out.extend_from_slice(op.name().as_bytes());
                // An object without members of its own has nothing to be parted from.
                out.extend_from_slice(if key == b"}\n" { b"\"" } else { b"\"," });
            }
            (FileFormat::Json, false) => out.push(b'{'),
            (_, true) => {
                out.extend_from_slice(op.name().as_bytes());
                out.push(b',');
            }
            (_, false) => {}
        }
        out.extend_from_slice(key);
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// An error of the Parquet writer.
pub fn parquet(error: ParquetError) -> SqlError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => io_error("write", Path::new("a Parquet file"), &error),
            Err(error) => SqlError::internal(error.to_string()),
        },
        error => SqlError::internal(error.to_string()),
    }
}
