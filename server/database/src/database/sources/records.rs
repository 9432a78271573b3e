//! From records to rows of a stream, and what is kept of those that are none.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;
use millrace_catalog::Relation;
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::encoding::{Encoding, Member};
use millrace_catalog::scope::Scope;
use millrace_connectors::changes::{ChangeDecoder, Changes};
use millrace_connectors::connect;
use millrace_connectors::decode::{Given, halves};
use millrace_connectors::news::New;
use millrace_connectors::source::{Columns, ConnectorError, FileRead, FilesRead, Record};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::{self, timestamptz};
use millrace_storage::{ChangeBatch, LogStore};

use super::news::Watch;
use crate::database::Database;
use crate::database::rows::RowBuilder;

/// How much of a bad record is kept, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The columns of a stream of bad records, in their order: when each came, where it stands, what it is, and why it is no row.
pub fn error_columns() -> [(&'static str, DataType); 8] {
    [
        ("at", timestamptz()),
        ("partition", DataType::Int32),
        ("offset", DataType::Int64),
        ("key", DataType::Binary),
        ("value", DataType::Binary),
        ("bytes", DataType::Int64),
        ("code", DataType::Utf8),
        ("reason", DataType::Utf8),
    ]
}

/// The columns of a stream of files that were read, in their order: when, which, and what came out of it.
pub fn file_columns() -> [(&'static str, DataType); 5] {
    [
        ("at", timestamptz()),
        ("file", DataType::Utf8),
        ("identity", DataType::Utf8),
        ("bytes", DataType::Int64),
        ("records", DataType::Int64),
    ]
}

/// What makes changes of a relation out of records.
pub(super) struct Rows {
    decoder: ChangeDecoder,
    builder: RowBuilder,
    encoding: Encoding,
    watch: Option<Watch>,
    /// The columns of values, and of what stands beside them.
    values: Vec<FieldRef>,
    members: Vec<(FieldRef, Member)>,
}

impl Rows {
    /// For a relation, if records come for it.
    pub fn new(
        db: &Database,
        scope: &Scope,
        relation: &Relation,
        connector: &ConnectorDef,
    ) -> SqlResult<Option<Rows>> {
        let Some((format, columns)) = connector.records(&relation.columns, relation.source_key())? else {
            return Ok(None);
        };
        let field = |position: &usize| Arc::clone(&relation.columns[*position].field);
        let members = columns
            .members
            .iter()
            .map(|(position, member)| (field(position), *member));
        let members: Vec<(FieldRef, Member)> = members.collect();
        let values: Vec<FieldRef> = columns.values.iter().map(field).collect();
        let given: Vec<usize> = (columns.values.iter().copied())
            .chain(columns.members.iter().map(|(position, _)| *position))
            .collect();
        Ok(Some(Rows {
            watch: Watch::new(format.schema_change, relation),
            encoding: format.encoding.clone(),
            decoder: ChangeDecoder::new(
                format,
                values.clone(),
                members.clone(),
                columns.key.iter().map(field).collect(),
            ),
            builder: RowBuilder::new(db, scope, relation, &given)?,
            values,
            members,
        }))
    }

    /// What to do about columns that records have and the relation has not; none: nothing.
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// The columns of records that are new.
    pub fn news(&self, records: &[Record], columns: Option<&Columns>) -> Vec<New> {
        let Some(watch) = &self.watch else { return vec![] };
        let Some(columns) = columns else {
            return self.decoder.news(records, &watch.known);
        };
        let others = columns.others.iter();
        let others = others.filter(|field| !watch.known.contains(field.name()));
        let new = |field: &FieldRef| New {
            name: field.name().clone(),
            sql_type: Some(types::type_name(&types::stored(field))),
            at: 0,
        };
        others.map(new).collect()
    }

    /// Sets records aside that have a column of a name that none can have, each with the reason.
    pub fn without_impossible(
        &self,
        records: Vec<Record>,
        new: &[New],
    ) -> (Vec<Record>, Vec<(Record, SqlError)>) {
        let why = |new: &[New]| {
            let watch = self.watch.as_ref()?;
            new.iter().find_map(|new| watch.refuses(&new.name))
        };
        if why(new).is_none() {
            return (records, vec![]);
        }
        let (mut sound, mut refused) = (vec![], vec![]);
        for record in records {
            match why(&self.news(std::slice::from_ref(&record), None)) {
                None => sound.push(record),
                Some(error) => refused.push((record, error)),
            }
        }
        (sound, refused)
    }

    /// What values are.
    pub fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// The columns of values.
    pub fn names(&self) -> Vec<String> {
        self.values.iter().map(|field| field.name().clone()).collect()
    }

    /// What rows of a file of columns change.
    pub fn changes_of(&self, columns: &Columns) -> Changes {
        let (rows, bad) = halves(columns.rows.num_rows(), &|range| {
            let (given, count) = (self.given(columns, range.clone())?, range.len());
            self.builder
                .build(&given, count)
                .map_err(|failure| *failure.error)
        });
        let placed =
            |(first, batch): (usize, RecordBatch)| ((first..first + batch.num_rows()).collect(), batch);
        Changes {
            puts: rows.into_iter().map(placed).collect(),
            bad,
            ..Changes::default()
        }
    }

    /// The columns of some of the rows of a file, in types that SQL has; one that the file does not have is NULL.
    fn given(&self, columns: &Columns, range: Range<usize>) -> SqlResult<Given> {
        let rows = columns.rows.slice(range.start, range.len());
        let mut given: Given = vec![];
        for field in &self.values {
            let Some((number, of_file)) = rows.schema_ref().column_with_name(field.name()) else {
                given.push((Arc::clone(field), new_null_array(field.data_type(), range.len())));
                continue;
            };
            if of_file.data_type().is_nested()
                && !matches!(of_file.data_type(), DataType::List(_) | DataType::LargeList(_))
            {
                return Err(SqlError::new(
                    SqlState::DatatypeMismatch,
                    format!(
                        "column \"{}\" of the file is of type {}",
                        field.name(),
                        of_file.data_type()
                    ),
                )
                .with_hint("Columns of structures and maps cannot be read."));
            }
            let stored = types::stored(of_file);
            let array = cast_with_options(rows.column(number), stored.data_type(), &STRICT);
            given.push((stored, array.map_err(from_internal::arrow)?));
        }
        for (field, member) in &self.members {
            let array: ArrayRef = match member {
                Member::File => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                    &columns.file,
                    range.len(),
                ))),
                Member::Timestamp => {
                    let micros = columns.timestamp_ms.saturating_mul(1_000);
                    Arc::new(TimestampMicrosecondArray::from_value(micros, range.len()).with_timezone("UTC"))
                }
                _ => {
                    let first = columns.first + range.start as u64;
                    Arc::new(Int64Array::from_iter_values(
                        (0..range.len() as u64).map(|row| (first + row) as i64),
                    ))
                }
            };
            let from = field.as_ref().clone().with_data_type(array.data_type().clone());
            let from = if *member == Member::Timestamp {
                from.with_data_type(timestamptz())
            } else {
                from
            };
            given.push((Arc::new(from), array));
        }
        Ok(given)
    }

    /// Learns what is needed to read these records.
    ///
    /// # Errors
    /// The registry that has their schemas does not answer, or refuses.
    pub async fn prepare(&self, records: &[Record]) -> Result<(), ConnectorError> {
        self.decoder.prepare(records).await
    }

    /// What records change.
    pub fn changes(&self, records: &[Record]) -> Changes {
        let build = |given: &Given, rows: usize| {
            let built = self.builder.build(given, rows);
            built.map_err(|failure| *failure.error)
        };
        self.decoder.changes(records, &build)
    }
}

/// Refuses columns that records do not have, as far as that is written down somewhere.
pub(super) async fn check_columns(connector: &ConnectorDef, relation: &Relation) -> SqlResult<()> {
    let Some((_, of)) = connector.records(&relation.columns, relation.source_key())? else {
        return Ok(());
    };
    let Some(known) = connect::columns(connector).await? else {
        return Ok(());
    };
    let names = || known.iter().map(|(name, _)| name.as_str());
    for position in of.values {
        let name = relation.columns[position].field.name();
        if !names().any(|known| known == name) {
            return Err(SqlError::new(
                SqlState::UndefinedColumn,
                format!("the schema of the topic's records has no field \"{name}\""),
            )
            .with_detail(format!("It has {}.", names().collect::<Vec<_>>().join(", ")))
            .with_hint_opt(did_you_mean(name, names())));
        }
    }
    Ok(())
}

/// A value that does not fit its type is an error, and not NULL.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// What is kept of the files that were read.
pub(super) struct Files {
    relation: RelationId,
    schema: SchemaRef,
}

impl Files {
    /// If a relation is filled from files.
    pub fn new(db: &Database, relation: &Relation) -> Option<Files> {
        let catalog = db.catalog();
        let files = catalog.object(relation.files?)?.relation()?;
        Some(Files {
            relation: files.info.id,
            schema: Arc::clone(files.schema()),
        })
    }

    /// The files that were read before, as the log has them.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(&self, logs: &LogStore) -> Result<FilesRead, ConnectorError> {
        let failed =
            |error: String| ConnectorError::passing(format!("reading which files were read: {error}"));
        let log = logs.read(self.relation.0, 0, u64::MAX);
        let mut files = vec![];
        for block in log.map_err(|error| failed(error.to_string()))? {
            let rows = block.map_err(|error| failed(error.to_string()))?.changes.rows;
            let texts = |number: usize| rows.column(number).as_string::<i32>();
            let numbers = |number: usize| rows.column(number).as_primitive::<Int64Type>();
            files.extend((0..rows.num_rows()).map(|row| {
                let (identity, seen) = FileRead::of_kept_identity(texts(2).value(row));
                FileRead {
                    path: texts(1).value(row).to_owned(),
                    identity,
                    bytes: numbers(3).value(row) as u64,
                    records: numbers(4).value(row) as u64,
                    broken: None,
                    seen,
                }
            }));
        }
        Ok(files)
    }

    /// What is written of files that were read.
    ///
    /// # Errors
    /// The stream has other columns.
    pub fn of(
        &self,
        files: &[FileRead],
        now: i64,
    ) -> Result<Option<(RelationId, ChangeBatch)>, ConnectorError> {
        if files.is_empty() {
            return Ok(None);
        }
        let number = |of: &dyn Fn(&FileRead) -> u64| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(
                files.iter().map(|file| of(file) as i64),
            ))
        };
        let text = |of: &dyn Fn(&FileRead) -> String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(files.iter().map(of)))
        };
        let columns = [
            Arc::new(TimestampMicrosecondArray::from_value(now, files.len()).with_timezone("UTC"))
                as ArrayRef,
            text(&|file| file.path.clone()),
            text(&FileRead::kept_identity),
            number(&|file| file.bytes),
            number(&|file| file.records),
        ];
        let rows = kept_rows(&self.schema, &columns);
        let rows = rows.map_err(|error| ConnectorError::passing(format!("noting files: {error}")))?;
        Ok(Some((self.relation, ChangeBatch::insertions(rows))))
    }
}

/// What becomes of records that are no rows.
pub(super) struct Errors {
    /// The stream that keeps them, and its columns.
    stream: Option<(RelationId, SchemaRef)>,
    stops: bool,
    has_files: bool,
}

impl Errors {
    pub fn new(db: &Database, relation: &Relation, stops: bool) -> Errors {
        let catalog = db.catalog();
        let stream = relation.errors.and_then(|id| {
            let errors = catalog.object(id)?.relation()?;
            Some((errors.info.id, Arc::clone(errors.schema())))
        });
        Errors {
            stream,
            stops,
            has_files: relation.files.is_some(),
        }
    }

    /// Where a record stands, in words.
    pub fn place(&self, record: &Record) -> String {
        let of = match (&record.key, self.has_files) {
            (Some(path), true) => format!("file \"{}\"", String::from_utf8_lossy(path)),
            _ => format!("partition {}", record.split),
        };
        format!("record {} of {of}", record.offset)
    }

    /// What is written of them.
    ///
    /// # Errors
    /// The source is to stop.
    pub fn of(
        &self,
        bad: &[(&Record, &SqlError)],
        now: i64,
    ) -> Result<Option<(RelationId, ChangeBatch)>, ConnectorError> {
        match (bad.first(), &self.stream) {
            (Some((record, error)), _) if self.stops => Err(ConnectorError::lasting(
                format!("{} is no row: {}", self.place(record), error.message),
                "ALTER .. SET (on_error = 'skip') puts such records into a separate stream, and reading goes on.",
            )),
            (Some(_), Some((id, schema))) => {
                let rows = bad_rows(schema, bad, now)?;
                Ok(Some((*id, ChangeBatch::insertions(rows))))
            }
            _ => Ok(None),
        }
    }
}

/// Why a record is no row.
fn reason(error: &SqlError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    }
}

/// Bad records as rows of their stream.
fn bad_rows(
    schema: &SchemaRef,
    bad: &[(&Record, &SqlError)],
    now: i64,
) -> Result<RecordBatch, ConnectorError> {
    let kept = |bytes: &Option<bytes::Bytes>| {
        let bytes = bytes.as_ref()?;
        Some(bytes.slice(..bytes.len().min(KEPT_BYTES_MAX)))
    };
    let bytes = |record: &Record| record.value.as_ref().map(|value| value.len() as i64);
    let records = || bad.iter().map(|(record, _)| *record);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_value(now, bad.len()).with_timezone("UTC")),
        Arc::new(Int32Array::from_iter_values(records().map(|record| record.split))),
        Arc::new(Int64Array::from_iter_values(
            records().map(|record| record.offset),
        )),
        Arc::new(BinaryArray::from_iter(records().map(|record| kept(&record.key)))),
        Arc::new(BinaryArray::from_iter(
            records().map(|record| kept(&record.value)),
        )),
        Arc::new(Int64Array::from_iter(records().map(bytes))),
        Arc::new(StringArray::from_iter_values(
            bad.iter().map(|(_, error)| error.code.code()),
        )),
        Arc::new(StringArray::from_iter_values(
            bad.iter().map(|(_, error)| reason(error)),
        )),
    ];
    kept_rows(schema, &columns)
        .map_err(|error| ConnectorError::passing(format!("keeping bad records: {error}")))
}

/// Columns as rows of the stream that keeps what is no row elsewhere.
pub(in crate::database) fn kept_rows(
    schema: &SchemaRef,
    columns: &[ArrayRef],
) -> Result<RecordBatch, ArrowError> {
    let cast = columns
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| arrow::compute::cast(column, field.data_type()));
    RecordBatch::try_new(Arc::clone(schema), cast.collect::<Result<Vec<_>, _>>()?)
}
