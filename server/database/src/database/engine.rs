//! The session state of DataFusion that every statement shares: options, functions, planners.
//!
//! It is built once. Statements bind against it with a catalog reader of their own, so that none of its hundreds of
//! functions is registered again for a query.

use std::sync::Arc;

use arc_swap::ArcSwap;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::spill_file::TempFileFactory;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use millrace_catalog::{CatalogSnapshot, DEFAULT_DATABASE, DEFAULT_SCHEMA};
use millrace_engine::{BatchPlanner, FILE_PIECE_BYTES_MIN};
use millrace_functions::exclusions::Exclusions;
use millrace_functions::operators::PgOperators;
use millrace_functions::{bounded, registry};
use millrace_planner::query::{Wanted, optimizer_rules_of_select, physical_optimizer_rules};
use millrace_planner::reducer;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::{self, df};
use millrace_resource::cpu;
use millrace_resource::memory::Memory;
use millrace_resource::query_memory::QueryMemory;

use crate::database::DatabaseOptions;
use crate::database::sequences::{self, Sequences};
use crate::database::system::{MakeSystem, SystemCatalog};
use crate::sessions::Sessions;

/// Rows of a batch inside a query.
const BATCH_ROWS: usize = 8192;

/// Planning ends where its statement has ended.
const WANTED: Wanted = Wanted(|| !cpu::is_unwanted());

/// The options under which DataFusion answers as PostgreSQL does.
fn config() -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(DEFAULT_DATABASE, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(true)
        .with_information_schema(false)
        // Parallelism is the runtime's: it cuts plans at their exchanges.
        .with_target_partitions(1)
        .with_repartition_file_min_size(FILE_PIECE_BYTES_MIN as usize)
        .with_batch_size(BATCH_ROWS)
        .with_extension(Arc::new(WANTED));
    let options = config.options_mut();
    // Columns are stored as plain strings; views of strings would have every comparison cast.
    options.sql_parser.map_string_types_to_utf8view = false;
    // A pass of ours looks at the order of subqueries.
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.sql_parser.support_varchar_with_length = true;
    options.sql_parser.parse_float_as_decimal = true;
    // NULL is larger than every value: last in ascending order, first in descending.
    options.sql_parser.default_null_ordering = "nulls_max".to_string();
    options.execution.time_zone = Some("UTC".to_string());
    // Of files: how many rows they have, and between which values, decides the order of joins. It is read once.
    options.execution.collect_statistics = true;
    // A task has its own rows: else those that begin first would take all, and the others nothing.
    options.execution.enable_file_stream_work_stealing = false;
    options.explain.logical_plan_only = false;
    config
}

/// Builds the shared state, and with it what the system shows of itself.
///
/// # Errors
/// A function cannot be registered, which only a wrong build brings about.
pub fn build(
    options: &DatabaseOptions,
    make: MakeSystem,
    memory: &Arc<Memory>,
    spills: Arc<dyn TempFileFactory>,
    catalog: &Arc<ArcSwap<CatalogSnapshot>>,
    sessions: &Arc<Sessions>,
    sequences: &Arc<Sequences>,
) -> SqlResult<(
    SessionState,
    Box<dyn SystemCatalog>,
    Arc<millrace_javascript::Engine>,
)> {
    // For what runs outside of a query; each query has a pool of its own over the same memory.
    let pool = QueryMemory::new(memory);
    pool.set_name("statements".to_owned());
    let budget = bounded::MemoryBudget::new(memory, Arc::clone(&pool) as _);
    let disks = DiskManagerBuilder::default().with_temp_file_factory(spills);
    // A file that was added to a directory has to be seen by the next statement.
    let caches = CacheManagerConfig::default().with_list_files_cache_limit(0);
    let runtime = RuntimeEnvBuilder::new()
        .with_cache_manager(caches)
        .with_memory_pool(Arc::clone(&pool) as _)
        .with_disk_manager_builder(disks);
    let runtime = df(runtime.build_arc())?;
    let mut builder = SessionStateBuilder::new()
        .with_config(config())
        .with_runtime_env(runtime)
        .with_default_features();
    // The first planner that plans a call has it.
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(Exclusions));
    planners.insert(0, Arc::new(PgOperators));
    let state = builder
        .with_optimizer_rules(optimizer_rules_of_select(WANTED))
        .with_physical_optimizer_rules(physical_optimizer_rules())
        .with_query_planner(Arc::new(BatchPlanner))
        .build();
    let context = SessionContext::new_with_state(state);
    let system = make(&context, catalog, sessions)?;
    let mut state = context.state();
    df(registry::register(&mut state, &budget))?;
    for reducer in &options.reducers {
        let function = Arc::new(reducer::aggregate(Arc::clone(reducer)));
        state.register_udaf(function).map_err(from_internal::datafusion)?;
    }
    for function in system.functions.into_iter().chain(sequences::udfs(sequences)) {
        state.register_udf(function).map_err(from_internal::datafusion)?;
    }
    // The last: around all that is there.
    df(bounded::register(&mut state, &budget))?;
    let javascript = millrace_javascript::Engine::new(pool);
    Ok((state, system.catalog, javascript))
}
