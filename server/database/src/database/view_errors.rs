//! Rows on which expressions of views failed, in the streams that keep them: `view$errors`, as those of sources.
//!
//! The runtime holds some of them until they are taken here, once a second. They are to be looked at, and nothing more is made of them: what
//! is run again, at a start or since the row goes, fails again and is told again, and the last ones before a crash may be missing.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use millrace_engine::{FailedRow, Failures, WriteOptions};
use millrace_planner::RelationId;
use millrace_postgres::error::SqlError;
use millrace_postgres::from_internal;
use millrace_postgres::types::{output, timestamptz};
use millrace_storage::ChangeBatch;

use crate::database::Database;
use crate::database::sources::kept_rows;

/// So long a write of them waits for room; then they are given up.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The columns of such a stream: when it was noted, the expression, the row that it was computed over, and what became of that.
pub fn view_error_columns() -> [(&'static str, DataType); 5] {
    [
        ("at", timestamptz()),
        ("expression", DataType::Utf8),
        ("input", DataType::Utf8),
        ("code", DataType::Utf8),
        ("reason", DataType::Utf8),
    ]
}

impl Database {
    /// Writes what failed since this was done before.
    pub async fn keep_failed_rows(&self) {
        let catalog = self.catalog();
        for object in catalog.objects() {
            let Some(relation) = object.relation().filter(|relation| relation.query.is_some()) else {
                continue;
            };
            let stream = relation.errors.and_then(|id| catalog.object(id)?.relation());
            let Some(stream) = stream else { continue };
            let failures = self.runtime.take_failed_rows(relation.info.id);
            if failures.rows.is_empty() {
                continue;
            }
            let kept = self.keep(stream.info.id, stream.schema(), failures).await;
            if let Err(error) = kept {
                let (view, error) = (object.display_name(), error.message);
                tracing::warn!(
                    view,
                    error,
                    "rows on which an expression of a view failed could not be kept"
                );
            }
        }
    }

    async fn keep(&self, stream: RelationId, schema: &SchemaRef, failures: Failures) -> Result<(), SqlError> {
        let rows = rows(schema, failures, self.runtime.now()).map_err(from_internal::arrow)?;
        let options = WriteOptions {
            wait_max: Some(WAIT_MAX),
            ..WriteOptions::default()
        };
        let changes = vec![(stream, ChangeBatch::insertions(rows))];
        let written = self.runtime.append_with(changes, &options).await;
        written.map(|_| ()).map_err(from_internal::runtime)
    }
}

/// What failed, as rows of the stream.
fn rows(schema: &SchemaRef, failures: Failures, now: i64) -> Result<RecordBatch, ArrowError> {
    let more = failures.more;
    let mut told: Vec<[Option<String>; 4]> = failures.rows.into_iter().map(cells).collect();
    if more > 0 {
        let reason = format!("{more} more failures were counted and not kept");
        told.push([None, None, None, Some(reason)]);
    }
    let count = told.len();
    let texts = |cell: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter(
            told.iter().map(|row| row[cell].as_deref()),
        ))
    };
    let at = TimestampMicrosecondArray::from_value(now, count).with_timezone("UTC");
    let columns: [ArrayRef; 5] = [Arc::new(at), texts(0), texts(1), texts(2), texts(3)];
    kept_rows(schema, &columns)
}

/// Expression, row, code and reason.
fn cells(failed: FailedRow) -> [Option<String>; 4] {
    let error = from_internal::datafusion(failed.error);
    [
        failed.expression,
        failed.row.as_ref().map(as_json),
        Some(error.code.code().to_owned()),
        Some(error.message),
    ]
}

/// A row as a JSON object of texts.
fn as_json(row: &RecordBatch) -> String {
    let schema = row.schema();
    let members = schema.fields().iter().zip(row.columns()).map(|(field, column)| {
        let value = match column.is_null(0) {
            true => serde_json::Value::Null,
            false => output::text(field, column, 0).into(),
        };
        (field.name().clone(), value)
    });
    serde_json::Value::Object(members.collect()).to_string()
}
