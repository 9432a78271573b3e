//! The engine in this process: a log, a runtime, tables and views, without server, wire and SQL evaluation.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_engine::{Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewSpec, WriteToken};
use millrace_planner::{
    Binder, RelationId, RelationInfo, RelationKind, RelationTable, ViewOptions, plan_view,
};
use millrace_sql::CatalogReader;
use millrace_storage::{Store, StoreOptions};
use tempfile::TempDir;

use super::workload::{Model, Table, Write};
use crate::bed::Place;
use crate::error::BenchError;
use crate::machine::cores;

/// Rows of one transaction while tables are loaded.
const LOAD_ROWS: usize = 32_768;

/// The only view of a bed.
pub const VIEW: RelationId = RelationId(100);

/// An engine with tables, and the view over them if there is one.
pub struct Bed {
    pub runtime: Runtime,
    relations: Relations,
    context: SessionContext,
    _store: Store,
    _directory: TempDir,
}

struct Relations(BTreeMap<String, RelationInfo>);

impl CatalogReader for Relations {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        match self.0.get(name.table()) {
            Some(info) => Ok(Arc::new(RelationTable::new(info.clone()))),
            None => Err(DataFusionError::Plan(format!("there is no table {name}"))),
        }
    }
}

/// DataFusion as the engine uses it for types, and with as many partitions as are given for queries.
pub fn context(partitions: usize) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
    SessionContext::new_with_config(config)
}

impl Bed {
    /// Empty tables.
    pub async fn new(tables: &[Table]) -> Result<Self, BenchError> {
        let directory = Place::Memory.directory()?;
        let store = Store::open(directory.path(), StoreOptions::default()).map_err(BenchError::engine)?;
        let runtime = Runtime::start(RuntimeOptions::new(cores()), Arc::clone(store.logs()))
            .map_err(BenchError::engine)?;
        let mut relations = BTreeMap::new();
        for table in tables {
            let (id, schema) = (table.id(), table.schema());
            let created = store.logs().create(id.0, Arc::clone(&schema));
            created.map_err(BenchError::engine)?;
            let spec = SourceSpec {
                id,
                name: table.name().to_owned(),
                schema: Arc::clone(&schema),
                kind: SourceKind::Table { key: vec![0] },
            };
            runtime.create_source(spec).await.map_err(BenchError::engine)?;
            let info = RelationInfo {
                id,
                name: table.name().to_owned(),
                kind: RelationKind::Table,
                schema,
                key: Some(vec![0]),
                append_only: false,
                watermarks: vec![],
            };
            relations.insert(table.name().to_owned(), info);
        }
        Ok(Bed {
            runtime,
            relations: Relations(relations),
            context: context(1),
            _store: store,
            _directory: directory,
        })
    }

    /// Makes the view.
    pub async fn create_view(&self, select: &str) -> Result<(), BenchError> {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, select).map_err(BenchError::engine)?;
        let statement = statements
            .pop()
            .ok_or_else(|| BenchError::engine("a view without a query"))?;
        let state = self.context.state();
        let plan = Binder::new(&state, &self.relations)
            .statement(&statement)
            .map_err(BenchError::engine)?;
        let options = ViewOptions::new(cores());
        let graph = plan_view(&state, plan, options).map_err(BenchError::engine)?;
        let spec = ViewSpec {
            id: VIEW,
            name: "measured".to_owned(),
            graph,
            definition: None,
        };
        self.runtime.create_view(spec).await.map_err(BenchError::engine)
    }

    /// Inserts all that the model holds and returns when it is visible.
    pub async fn load(&self, model: &Model) -> Result<(), BenchError> {
        let mut written = WriteToken::default();
        for table in model.tables() {
            for batch in model.batches(table, LOAD_ROWS)? {
                let changes = millrace_storage::ChangeBatch::insertions(batch);
                written.merge(&self.append(vec![(table.id(), changes)]).await?);
            }
        }
        self.runtime.wait_for(&written).await.map_err(BenchError::engine)
    }

    /// Writes, and returns when it is durable.
    pub async fn append(&self, write: Write) -> Result<WriteToken, BenchError> {
        let tables: Vec<RelationId> = write.iter().map(|(table, _)| *table).collect();
        let locks = self
            .runtime
            .lock_tables(&tables)
            .await
            .map_err(BenchError::engine)?;
        let written = self.runtime.append(write, Some(&locks)).await;
        written.map_err(BenchError::engine)
    }

    /// Bytes of the view's state and contents, as the engine counts them.
    pub fn state_bytes(&self) -> usize {
        self.runtime.views().iter().map(|view| view.state_bytes).sum()
    }

    /// The view as a table of DataFusion's.
    pub async fn view(&self) -> Result<Arc<dyn TableProvider>, BenchError> {
        let snapshot = self.runtime.snapshot(&[VIEW], None).await;
        let snapshot = snapshot.map_err(BenchError::engine)?;
        snapshot.table_provider(VIEW).map_err(BenchError::engine)
    }

    pub async fn stop(self) {
        self.runtime.shutdown().await;
    }
}
