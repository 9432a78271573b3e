//! The relations of `mr_catalog`: what the runtime knows of itself, at the moment when a statement is bound.

mod batches;
mod disks;
mod flow;
mod generators;
mod jobs;
mod memory;
mod performance;
mod recovery;
mod sinks;
mod sources;
mod stages;
mod subscriptions;
mod tasks;
mod tokens;
mod views;
mod watermarks;
mod workers;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::catalog::{MemTable, TableProvider};
use millrace_database::Database;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};

use crate::pg_catalog::SystemRelation;

/// Makes the rows of a relation, column by column.
type Rows = fn(&Database) -> Columns;

/// The relations: the one place that names them all.
const RELATIONS: [(&str, Rows); 23] = [
    ("batches", batches::batches),
    ("checkpoints", recovery::checkpoints),
    ("disks", disks::columns),
    ("feeds", flow::feeds),
    ("flow", flow::columns),
    ("generators", generators::columns),
    ("groups", batches::groups),
    ("jobs", jobs::columns),
    ("late_rows", watermarks::late_rows),
    ("memory", memory::columns),
    ("monotasks", performance::monotasks),
    ("recovery", recovery::recovery),
    ("resources", performance::resources),
    ("sinks", sinks::columns),
    ("sources", sources::columns),
    ("stages", stages::columns),
    ("subscriptions", subscriptions::columns),
    ("tasks", tasks::columns),
    ("tokens", tokens::columns),
    ("unbounded_state", views::unbounded_state),
    ("views", views::views),
    ("watermarks", watermarks::watermarks),
    ("workers", workers::columns),
];

/// The names of the relations.
pub fn names() -> impl Iterator<Item = &'static str> {
    RELATIONS.into_iter().map(|(name, _)| name)
}

/// All of them with their columns.
///
/// # Errors
/// The rows of one could not be put together.
pub fn shapes(database: &Database) -> SqlResult<Vec<SystemRelation>> {
    let shape = |(name, columns): (&'static str, Rows)| Ok((name, rows(columns(database))?.schema()));
    RELATIONS.into_iter().map(shape).collect()
}

/// A relation by name; `None`: there is none.
///
/// # Errors
/// Its rows could not be put together.
pub fn relation(database: &Database, name: &str) -> SqlResult<Option<Arc<dyn TableProvider>>> {
    let Some((_, columns)) = RELATIONS.into_iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let batch = rows(columns(database))?;
    Ok(Some(Arc::new(df(MemTable::try_new(
        batch.schema(),
        vec![vec![batch]],
    ))?)))
}

fn rows(columns: Columns) -> SqlResult<RecordBatch> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    RecordBatch::try_from_iter_with_nullable(columns).map_err(from_internal::arrow)
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(
        values.map(|value| i64::try_from(value).ok()),
    ))
}

fn optional_numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(
        values.map(|value| value.and_then(|value| i64::try_from(value).ok())),
    ))
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}
