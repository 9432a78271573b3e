//! A stored relation in the runtime: a stream, a table with its rows, or a view.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use millrace_planner::RelationId;
use millrace_resource::memory::StateCharge;
use millrace_state::row_table::RowTable;
use millrace_storage::ChangeBatch;
use parking_lot::RwLock;

use crate::error::{Result, RuntimeError};
use crate::event_time::EventTime;
use crate::stream_values::StreamValues;
use crate::worker::ViewInstance;

/// A stream: its rows are in the log.
pub struct Stream {
    pub id: RelationId,
    pub name: String,
    pub schema: SchemaRef,
    /// What rows that are older than the last columns have in them, one value each.
    pub missing: Vec<ScalarValue>,
    /// Where rows have one that counts.
    pub event_time: Option<Arc<EventTime>>,
    pub(crate) values: Arc<StreamValues>,
}

/// A table: its changes are in the log, its rows here too. A version is a log offset.
pub struct Table {
    pub id: RelationId,
    pub name: String,
    pub schema: SchemaRef,
    /// Columns of the primary key; empty for none.
    pub key: Vec<usize>,
    /// What changes that are older than the last columns have in them, one value each.
    pub missing: Vec<ScalarValue>,
    pub rows: Arc<RwLock<RowTable>>,
    /// For its rows.
    pub charge: Arc<StateCharge>,
    /// Held from reading to commit by whoever changes the table.
    pub writer: Arc<tokio::sync::Mutex<()>>,
}

pub enum Relation {
    Stream(Stream),
    Table(Table),
    View(Arc<ViewInstance>),
}

impl Relation {
    pub fn id(&self) -> RelationId {
        match self {
            Relation::Stream(stream) => stream.id,
            Relation::Table(table) => table.id,
            Relation::View(view) => view.id,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Relation::Stream(stream) => &stream.name,
            Relation::Table(table) => &table.name,
            Relation::View(view) => &view.name,
        }
    }

    /// As errors call it: `table "t"`.
    pub fn described(&self) -> String {
        let kind = match self {
            Relation::Stream(_) => "stream",
            Relation::Table(_) => "table",
            Relation::View(_) => "view",
        };
        format!("{kind} \"{}\"", self.name())
    }

    pub fn schema(&self) -> SchemaRef {
        match self {
            Relation::Stream(stream) => Arc::clone(&stream.schema),
            Relation::Table(table) => Arc::clone(&table.schema),
            Relation::View(view) => Arc::clone(&view.contents.schema),
        }
    }

    /// A stream's event time, if it has one.
    pub fn event_time(&self) -> Option<&Arc<EventTime>> {
        match self {
            Relation::Stream(stream) => stream.event_time.as_ref(),
            _ => None,
        }
    }

    /// How often rows of a view were lost with a worker.
    pub fn losses(&self) -> u64 {
        match self {
            Relation::View(view) => view.losses(),
            _ => 0,
        }
    }

    /// Rows with all columns of the relation: those that were added after the rows were made hold what was said then.
    ///
    /// # Errors
    /// The rows have columns that the relation has not.
    pub fn widen(&self, rows: RecordBatch) -> Result<RecordBatch> {
        match self {
            Relation::View(_) => Ok(rows),
            stored => widen(rows, &stored.schema(), stored.missing()),
        }
    }

    /// What rows that are older than the last columns have in them.
    fn missing(&self) -> &[ScalarValue] {
        match self {
            Relation::Stream(stream) => &stream.missing,
            Relation::Table(table) => &table.missing,
            Relation::View(_) => &[],
        }
    }

    /// As [`Relation::widen`], for rows that have only these columns of the relation, as far as they were there when the rows were written.
    ///
    /// # Errors
    /// The rows have other columns.
    pub fn widen_columns(&self, rows: RecordBatch, columns: &[usize]) -> Result<RecordBatch> {
        widen_columns(rows, columns, &self.schema(), self.missing())
    }

    /// As [`Relation::widen`], for changes.
    pub fn widen_changes(&self, changes: ChangeBatch) -> Result<ChangeBatch> {
        Ok(ChangeBatch {
            rows: self.widen(changes.rows)?,
            weights: changes.weights,
        })
    }
}

/// Rows under a schema whose last columns they may not have yet; `missing` is what is in those, one value each.
pub fn widen(rows: RecordBatch, schema: &SchemaRef, missing: &[ScalarValue]) -> Result<RecordBatch> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    widen_columns(rows, &all, schema, missing)
}

/// The same, for rows that have only these columns, as far as they were there when the rows were written.
fn widen_columns(
    rows: RecordBatch,
    columns: &[usize],
    schema: &SchemaRef,
    missing: &[ScalarValue],
) -> Result<RecordBatch> {
    let (has, wants, count) = (rows.num_columns(), columns.len(), rows.num_rows());
    if has == wants {
        return Ok(rows);
    }
    let unexpected = || RuntimeError::Internal(format!("rows with {has} columns, expected {wants}"));
    // Columns are added at the end: those that the rows lack are the last.
    let mut last = columns.to_vec();
    last.sort_unstable();
    let added_from = *last.get(has).ok_or_else(unexpected)?;
    let others = schema.fields().len() - missing.len();
    let mut had = rows.columns().iter();
    let mut all: Vec<ArrayRef> = Vec::with_capacity(wants);
    for column in columns {
        all.push(if *column < added_from {
            had.next().cloned().ok_or_else(unexpected)?
        } else {
            let value = column.checked_sub(others).and_then(|at| missing.get(at));
            value.ok_or_else(unexpected)?.to_array_of_size(count)?
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    let schema = Arc::new(schema.project(columns)?);
    RecordBatch::try_new_with_options(schema, all, &options).map_err(RuntimeError::from)
}
