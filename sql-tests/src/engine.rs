//! The runtime under test without a server around it: relations are made from SQL and rows, written to, and read back.
//!
//! Queries are bound as the server binds them, with its functions and options, so that what is found here can be shown
//! again in a script for `millrace test`. What the server adds — sessions, the catalog on disk, the wires — has tests of
//! its own and would only make thousands of views slow.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::collect;
use futures::TryStreamExt;
use millrace_catalog::CatalogSnapshot;
use millrace_database::DatabaseOptions;
use millrace_database::database::engine;
use millrace_engine::clock::VirtualClock;
use millrace_engine::{
    CutTimes, QueryOptions, RestoredView, Runtime, RuntimeError, RuntimeOptions, Snapshot, SourceKind,
    SourceSpec, ViewSpec, WriteToken,
};
use millrace_functions::sql::{comparisons, rewrite};
use millrace_planner::relation::attach;
use millrace_planner::stage::flow::FlowLimits;
use millrace_planner::{
    Binder, OnError, PlanError, RelationId, RelationInfo, RelationKind, RelationTable, ViewOptions, plan_view,
};
use millrace_resource::disk::Disks;
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::spill::query::SpillFiles;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_sql::CatalogReader;
use millrace_storage::{ChangeBatch, Durability, Store, StoreOptions};
use millrace_system::system;
use parking_lot::Mutex;
use sqlparser::ast;

use crate::Failure;

/// Why a view could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The query does not parse or bind.
    #[error("{0}")]
    Invalid(String),
    /// The planner says that it cannot be maintained.
    #[error("{0}")]
    Refused(String),
    /// It was planned and then failed.
    #[error("{0}")]
    Failed(String),
}

/// Functions, planners and options as a server has them.
///
/// # Errors
/// A function cannot be registered.
pub fn session_state(directory: &Path) -> Result<SessionState, Failure> {
    let catalog = Arc::new(ArcSwap::from_pointee(CatalogSnapshot::default()));
    let memory = Memory::new(None, Resident::Unknown);
    let disks = Disks::new(directory, &memory);
    let spills = Arc::new(SpillFiles::new(&disks, std::env::temp_dir(), &Arc::default()));
    let (state, _, _) = engine::build(
        &DatabaseOptions::new(directory),
        system::system,
        &memory,
        spills,
        &catalog,
        &Arc::default(),
        &Arc::default(),
    )?;
    Ok(state)
}

/// One query, parsed.
///
/// # Errors
/// The text is not one query.
pub fn parse(sql: &str) -> Result<ast::Query, String> {
    let mut parsed = millrace_parser::parse(sql).map_err(|error| error.to_string())?;
    let statement = parsed
        .pop()
        .filter(|_| parsed.is_empty())
        .map(|parsed| parsed.statement);
    match statement {
        Some(millrace_parser::ast::Statement::Sql(statement)) => match *statement {
            ast::Statement::Query(query) => Ok(*query),
            _ => Err(format!("not a query: {sql}")),
        },
        _ => Err(format!("not one query: {sql}")),
    }
}

/// A query's plan over what `catalog` names, bound as the server does it.
///
/// # Errors
/// What the binder says.
pub fn bind(
    state: &SessionState,
    catalog: &dyn CatalogReader,
    query: &ast::Query,
) -> Result<LogicalPlan, String> {
    let mut query = query.clone();
    rewrite::query(&mut query).map_err(|error| error.to_string())?;
    Binder::new(state, catalog)
        .query(&query)
        .and_then(comparisons::read_literals)
        .map_err(|error| error.to_string())
}

/// Relations by name, as views name them.
#[derive(Default)]
pub struct Relations(BTreeMap<String, RelationInfo>);

impl Relations {
    /// The relation of a name.
    pub fn get(&self, name: &str) -> Option<&RelationInfo> {
        self.0.get(name)
    }
}

impl CatalogReader for Relations {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        match self.0.get(name.table()) {
            Some(info) => Ok(Arc::new(RelationTable::new(info.clone()))),
            None => Err(DataFusionError::Plan(format!(
                "relation \"{name}\" does not exist"
            ))),
        }
    }
}

/// The same, for the query of a view.
struct OfView<'a>(&'a Relations);

impl CatalogReader for OfView<'_> {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        self.0.table(name)
    }

    fn plans_view(&self) -> bool {
        true
    }
}

/// Checkpoints are made when a test asks for them; that there is an interval has epochs written down.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(3600);

/// What a restart makes again.
#[derive(Clone)]
enum Made {
    Source {
        id: RelationId,
        name: String,
        schema: SchemaRef,
        key: Option<Vec<usize>>,
    },
    View(ViewSpec),
}

impl Made {
    fn id(&self) -> RelationId {
        match self {
            Made::Source { id, .. } => *id,
            Made::View(spec) => spec.id,
        }
    }
}

fn source_spec(id: RelationId, name: &str, schema: SchemaRef, key: Option<Vec<usize>>) -> SourceSpec {
    SourceSpec {
        id,
        name: name.to_owned(),
        schema,
        kind: key.map_or(SourceKind::Stream { event_time: None }, |key| SourceKind::Table {
            key,
        }),
    }
}

/// A runtime with its log. Relations of one name replace each other; identities are never used again.
pub struct Engine {
    runtime: Runtime,
    store: Store,
    state: SessionState,
    clock: Arc<VirtualClock>,
    cores: usize,
    next_id: AtomicU64,
    keeps_checkpoints: bool,
    cuts: CutTimes,
    made: Mutex<Vec<Made>>,
}

impl Engine {
    /// An engine on an empty directory, with a clock that is set by hand. Nothing that it writes survives the machine.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn start(directory: &Path, cores: usize) -> Result<Engine, Failure> {
        let options = StoreOptions {
            durability: Durability::Off,
            ..StoreOptions::default()
        };
        let state = session_state(directory)?;
        let store = Store::open(&directory.join("data"), options)?;
        let clock = Arc::new(VirtualClock::new(0));
        let options = RuntimeOptions {
            clock: Arc::clone(&clock) as _,
            ..RuntimeOptions::new(cores)
        };
        let runtime = Runtime::start(options, Arc::clone(store.logs()))?;
        Ok(Engine {
            runtime,
            store,
            state,
            clock,
            cores,
            next_id: AtomicU64::new(1),
            keeps_checkpoints: false,
            cuts: CutTimes::default(),
            made: Mutex::default(),
        })
    }

    /// From the next restart on there are checkpoints, which [`Engine::checkpoint`] makes and [`Engine::reopen`] goes on
    /// from.
    pub fn keep_checkpoints(&mut self) {
        self.keeps_checkpoints = true;
    }

    /// From now on what is written waits for company for so long, until somebody reads it.
    pub fn pace(&mut self, freshness: Option<Duration>) {
        self.cuts.freshness = freshness;
        self.runtime.set_cut_times(self.cuts);
    }

    fn start_runtime(&self) -> Result<Runtime, RuntimeError> {
        let options = RuntimeOptions {
            clock: Arc::clone(&self.clock) as _,
            durable: self
                .keeps_checkpoints
                .then(|| Arc::clone(self.store.checkpoints())),
            checkpoint_interval: Some(CHECKPOINT_INTERVAL),
            cuts: self.cuts,
            ..RuntimeOptions::new(self.cores)
        };
        Runtime::start(options, Arc::clone(self.store.logs()))
    }

    /// Puts the state of this moment into checkpoints.
    pub async fn checkpoint(&self) {
        self.runtime.checkpoint().await;
    }

    /// Starts the runtime again with the relations that there are, views from the last checkpoints. Returns how many views
    /// came back that way, and why others were filled.
    ///
    /// # Errors
    /// The runtime does not start, or a relation cannot be made again.
    pub async fn reopen(&mut self) -> Result<(u64, Vec<String>), Failure> {
        self.runtime.shutdown().await;
        self.runtime = self.start_runtime()?;
        let (mut restored, mut filled, mut later) = (0, vec![], vec![]);
        let made = self.made.lock().clone();
        for made in made {
            match made {
                Made::Source {
                    id,
                    name,
                    schema,
                    key,
                } => {
                    self.runtime
                        .create_source(source_spec(id, &name, schema, key))
                        .await?
                }
                Made::View(spec) => match self.runtime.restore_view(spec.clone(), false).await? {
                    RestoredView::Restored { .. } => restored += 1,
                    other => {
                        if let RestoredView::Unusable(why) = other {
                            filled.push(format!("{}: {why}", spec.name));
                        }
                        later.push(spec);
                    }
                },
            }
        }
        let replayed = self.runtime.replay().await?;
        self.runtime.wait_for(&replayed.token).await?;
        for spec in later {
            self.runtime.create_view(spec).await?;
        }
        self.runtime.follow_clock().await?;
        Ok((restored, filled))
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Starts the runtime again, without relations, at this time (microseconds since 1970-01-01 00:00 UTC).
    ///
    /// # Errors
    /// The runtime does not start.
    pub async fn restart_at(&mut self, time: i64) -> Result<(), RuntimeError> {
        self.runtime.shutdown().await;
        self.clock = Arc::new(VirtualClock::new(time));
        self.made.lock().clear();
        self.runtime = self.start_runtime()?;
        self.runtime.replay().await?;
        Ok(())
    }

    /// Sets the clock forward, and waits until views have followed.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn advance_to(&self, time: i64) -> Result<(), RuntimeError> {
        self.clock.advance_to(time);
        self.runtime.follow_clock().await
    }

    /// What queries are bound and planned with.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    fn next_id(&self) -> RelationId {
        RelationId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a stream (`key` is `None`) or a table.
    ///
    /// # Errors
    /// The log cannot be written.
    pub async fn create_source(
        &self,
        relations: &mut Relations,
        name: &str,
        schema: SchemaRef,
        key: Option<Vec<usize>>,
    ) -> Result<RelationId, Failure> {
        let id = self.next_id();
        self.store.logs().create(id.0, Arc::clone(&schema))?;
        let spec = source_spec(id, name, Arc::clone(&schema), key.clone());
        self.runtime.create_source(spec).await?;
        self.made.lock().push(Made::Source {
            id,
            name: name.to_owned(),
            schema: Arc::clone(&schema),
            key: key.clone(),
        });
        let append_only = key.is_none();
        let info = RelationInfo {
            id,
            name: name.to_owned(),
            kind: if append_only {
                RelationKind::Stream
            } else {
                RelationKind::Table
            },
            schema,
            key: key.filter(|key| !key.is_empty()),
            append_only,
            watermarks: vec![],
        };
        relations.0.insert(name.to_owned(), info);
        Ok(id)
    }

    /// Makes a materialized view whose state has so many partitions, and waits until it is live.
    ///
    /// # Errors
    /// The query is wrong, is refused, or fails.
    pub async fn create_view(
        &self,
        relations: &mut Relations,
        name: &str,
        query: &ast::Query,
        partitions: usize,
        on_error: OnError,
    ) -> Result<RelationId, CreateError> {
        let plan = bind(&self.state, &OfView(relations), query).map_err(CreateError::Invalid)?;
        // So little in flight that what a script puts out goes on in batches.
        let options = ViewOptions {
            flow: FlowLimits {
                batches: 1 + partitions % 3,
                batch_rows: 3 * partitions,
            },
            on_error,
            ..ViewOptions::new(partitions)
        };
        let graph = plan_view(&self.state, plan, options).map_err(|error| match error {
            PlanError::NotIncremental { .. } => CreateError::Refused(error.to_string()),
            other => CreateError::Failed(other.to_string()),
        })?;
        let id = self.next_id();
        let info = RelationInfo {
            id,
            name: name.to_owned(),
            kind: RelationKind::View,
            schema: Arc::clone(&graph.schema),
            key: graph.key.clone(),
            append_only: graph.append_only,
            watermarks: graph.watermarks.clone(),
        };
        let spec = ViewSpec {
            id,
            name: name.to_owned(),
            graph,
            definition: None,
        };
        self.runtime
            .create_view(spec.clone())
            .await
            .map_err(|error| CreateError::Failed(error.to_string()))?;
        self.made.lock().push(Made::View(spec));
        relations.0.insert(name.to_owned(), info);
        Ok(id)
    }

    /// Forgets relations, given together with all views over them, and the logs of those that have one.
    ///
    /// # Errors
    /// The runtime is shutting down, or a log cannot be removed.
    pub async fn drop_relations(&self, ids: &[RelationId]) -> Result<(), Failure> {
        self.made.lock().retain(|made| !ids.contains(&made.id()));
        self.runtime.drop_relations(ids).await?;
        for id in ids.iter().filter(|id| self.store.logs().contains(id.0)) {
            self.store.logs().remove(id.0)?;
        }
        Ok(())
    }

    /// Writes changes of several relations as one write.
    ///
    /// # Errors
    /// Two rows of a table would have one key, or the log cannot be written.
    pub async fn write(&self, changes: Vec<(RelationId, ChangeBatch)>) -> Result<WriteToken, RuntimeError> {
        let ids: Vec<RelationId> = changes.iter().map(|(id, _)| *id).collect();
        let locks = self.runtime.lock_tables(&ids).await?;
        self.runtime.append(changes, Some(&locks)).await
    }

    /// One epoch of relations that contains the writes of `after`.
    ///
    /// # Errors
    /// A relation is not known.
    pub async fn snapshot(&self, ids: &[RelationId], after: &WriteToken) -> Result<Snapshot, RuntimeError> {
        self.runtime.snapshot(ids, Some(after)).await
    }

    /// The rows of a relation in a snapshot.
    ///
    /// # Errors
    /// It is a view that has failed.
    pub async fn read(&self, snapshot: &Snapshot, id: RelationId) -> Result<Vec<RecordBatch>, Failure> {
        let provider = snapshot.table_provider(id)?;
        let plan = provider.scan(&self.state, None, &[], None).await?;
        Ok(collect(plan, self.state.task_ctx()).await?)
    }

    /// Answers a query over one epoch as a server does: in stages of tasks on the slots.
    ///
    /// # Errors
    /// It does not bind, or fails.
    pub async fn query(
        &self,
        relations: &Relations,
        query: &ast::Query,
        class: QueryClass,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let plan = bind(&self.state, relations, query)?;
        let ids: Vec<RelationId> = millrace_planner::relation::relations(&plan)?
            .into_iter()
            .collect();
        let snapshot = self.snapshot(&ids, &self.runtime.acknowledged()).await?;
        let plan = attach(plan, &|id| {
            let provider = snapshot.table_provider(id);
            provider.map_err(|error| DataFusionError::External(Box::new(error)))
        })?;
        let mut state = self.state.clone();
        let partitions = self.runtime.partitions_for(snapshot.rows_max());
        state.config_mut().options_mut().execution.target_partitions = partitions;
        let plan = state.create_physical_plan(&plan).await?;
        let context = state.task_ctx();
        let stream = self.runtime.execute(
            plan,
            QueryOptions {
                class,
                tenant: Tenant::default(),
                context,
            },
        )?;
        Ok(stream.try_collect().await?)
    }

    /// Finishes what runs. What was given to this engine must not be used afterwards.
    pub async fn shutdown(&self) {
        self.runtime.shutdown().await;
    }
}
