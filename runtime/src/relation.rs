//! A stored relation in the runtime: a stream, a table with its rows, or a view.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millrace_planner::RelationId;
use parking_lot::RwLock;

use crate::state::RowTable;
use crate::worker::ViewInstance;

/// A stream: its rows are in the log.
pub struct Stream {
    pub id: RelationId,
    pub name: String,
    pub schema: SchemaRef,
}

/// A table: its changes are in the log, its rows here too. A version is a log offset.
pub struct Table {
    pub id: RelationId,
    pub name: String,
    pub schema: SchemaRef,
    /// Columns of the primary key; empty for none.
    pub key: Vec<usize>,
    pub rows: RwLock<RowTable>,
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

    pub fn schema(&self) -> SchemaRef {
        match self {
            Relation::Stream(stream) => Arc::clone(&stream.schema),
            Relation::Table(table) => Arc::clone(&table.schema),
            Relation::View(view) => Arc::clone(&view.contents.schema),
        }
    }
}
