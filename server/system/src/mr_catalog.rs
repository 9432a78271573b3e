//! The relations of `mr_catalog`: what the runtime knows of itself, at the moment when a statement is bound.

mod batches;
mod cpu;
mod disks;
mod flow;
mod generators;
mod jobs;
mod memory;
mod performance;
mod recovery;
mod relations;
mod secrets;
mod shipping;
mod sinks;
mod sources;
mod stages;
mod subscribers;
mod subscriptions;
mod tasks;
mod tokens;
mod views;
mod watermarks;
mod workers;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::catalog::{MemTable, TableProvider};
use millrace_catalog::scope::Acting;
use millrace_database::Database;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};

use crate::pg_catalog::SystemRelation;

/// Makes the rows of a relation, column by column, as somebody may see them.
type Rows = fn(&Database, Acting) -> Columns;

/// The relations: the one place that names them all.
const RELATIONS: [(&str, Rows); 31] = [
    ("batches", |database, _| batches::batches(database)),
    ("checkpoints", |database, _| recovery::checkpoints(database)),
    ("cpu", |database, _| cpu::columns(database)),
    ("dependencies", |database, _| relations::dependencies(database)),
    ("disks", |database, _| disks::columns(database)),
    ("feeds", |database, _| flow::feeds(database)),
    ("flow", |database, _| flow::columns(database)),
    ("forecasts", performance::forecasts),
    ("generators", |database, _| generators::columns(database)),
    ("groups", |database, _| batches::groups(database)),
    ("jobs", |database, _| jobs::columns(database)),
    ("late_rows", |database, _| watermarks::late_rows(database)),
    ("memory", |database, _| memory::columns(database)),
    ("monotasks", |database, _| performance::monotasks(database)),
    ("profiles", performance::profiles),
    ("recovery", |database, _| recovery::recovery(database)),
    ("relations", |database, _| relations::relations(database)),
    ("resources", |database, _| performance::resources(database)),
    ("secrets", |database, _| secrets::columns(database)),
    ("shipping", |database, _| shipping::columns(database)),
    ("sinks", |database, _| sinks::columns(database)),
    ("sources", |database, _| sources::columns(database)),
    ("stages", |database, _| stages::columns(database)),
    ("subscribers", subscribers::columns),
    ("subscriptions", |database, _| subscriptions::columns(database)),
    ("tasks", |database, _| tasks::columns(database)),
    ("tokens", |database, _| tokens::columns(database)),
    ("unbounded_state", |database, _| views::unbounded_state(database)),
    ("views", |database, _| views::views(database)),
    ("watermarks", |database, _| watermarks::watermarks(database)),
    ("workers", |database, _| workers::columns(database)),
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
    let shape =
        |(name, columns): (&'static str, Rows)| Ok((name, rows(columns(database, Acting::SYSTEM))?.schema()));
    RELATIONS.into_iter().map(shape).collect()
}

/// A relation by name; `None`: there is none.
///
/// # Errors
/// Its rows could not be put together.
pub fn relation(
    database: &Database,
    name: &str,
    viewer: Acting,
) -> SqlResult<Option<Arc<dyn TableProvider>>> {
    let Some((_, columns)) = RELATIONS.into_iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let batch = rows(columns(database, viewer))?;
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

fn optional_texts(values: impl Iterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}
