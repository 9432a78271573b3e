//! From records to rows of a stream, and what is kept of those that are none.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use millrace_catalog::Relation;
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::scope::Scope;
use millrace_connectors::changes::{ChangeDecoder, Changes};
use millrace_connectors::decode::Given;
use millrace_connectors::source::{ConnectorError, Record};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::timestamptz;
use millrace_storage::ChangeBatch;

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

/// What makes changes of a relation out of records.
pub(super) struct Rows {
    decoder: ChangeDecoder,
    builder: RowBuilder,
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
        let given: Vec<usize> = (columns.values.iter().copied())
            .chain(columns.members.iter().map(|(position, _)| *position))
            .collect();
        Ok(Some(Rows {
            decoder: ChangeDecoder::new(
                format,
                columns.values.iter().map(field).collect(),
                members.collect(),
                columns.key.iter().map(field).collect(),
            ),
            builder: RowBuilder::new(db, scope, relation, &given)?,
        }))
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

/// What becomes of records that are no rows.
pub(super) struct Errors {
    /// The stream that keeps them, and its columns.
    stream: Option<(RelationId, SchemaRef)>,
    stops: bool,
}

impl Errors {
    pub fn new(db: &Database, relation: &Relation, stops: bool) -> Errors {
        let catalog = db.catalog();
        let stream = relation.errors.and_then(|id| {
            let errors = catalog.object(id)?.relation()?;
            Some((errors.info.id, Arc::clone(errors.schema())))
        });
        Errors { stream, stops }
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
                format!(
                    "record {} of partition {} is no row: {}",
                    record.offset, record.split, error.message
                ),
                "on_error = 'skip' keeps such records in a stream of their own, and goes on.",
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
