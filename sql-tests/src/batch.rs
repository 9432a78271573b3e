//! What plain DataFusion answers for a query that is bound as the server binds it, with the server's functions.
//!
//! A query is planned once and run as often as one likes: its scans read whatever rows the base relations have then
//! ([`millrace_oracle::base`]). SQL as DataFusion itself reads it is [`millrace_oracle::plain`].

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use chrono::DateTime;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SessionState;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use millrace_functions::sql::{comparisons, rewrite};
use millrace_oracle::base::Base;
use millrace_planner::relation::attach;
use millrace_sql::CatalogReader;
use sqlparser::ast;

use crate::engine::bind;

/// Relations with their rows. What a query over a view reads are the rows that the view's own query gave.
pub struct Batch {
    state: SessionState,
    tables: BTreeMap<String, Base>,
}

/// A planned query. In its plan stands the time at which it was planned.
pub struct BatchQuery {
    plan: Arc<dyn ExecutionPlan>,
}

impl BatchQuery {
    /// The columns of its answer, any of which may be NULL.
    pub fn schema(&self) -> SchemaRef {
        let schema = self.plan.schema();
        let fields = schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

impl Batch {
    /// No relations. `state` says what queries are planned with; `partitions` how many parts of them run at once.
    pub fn new(state: &SessionState, partitions: usize) -> Batch {
        // A builder would register the functions again, in any order: those of one name would take each other's place.
        let mut state = state.clone();
        state.config_mut().options_mut().execution.target_partitions = partitions;
        Batch {
            state,
            tables: BTreeMap::new(),
        }
    }

    /// Sets what `now()` is in what is planned from now on, in microseconds since 1970-01-01 00:00 UTC.
    pub fn set_now(&mut self, time: i64) {
        let props = self.state.execution_props_mut();
        props.query_execution_start_time = DateTime::from_timestamp_micros(time);
    }

    /// Makes a base relation without rows. A key, if there is one, is what GROUP BY may rely on.
    pub fn create(&mut self, name: &str, schema: SchemaRef, key: Option<Vec<usize>>) {
        self.tables.insert(name.to_owned(), Base::new(schema, key));
    }

    /// Makes these the rows of a base relation.
    pub fn set_rows(&self, name: &str, batches: Vec<RecordBatch>) {
        if let Some(table) = self.tables.get(name) {
            table.set_rows(batches);
        }
    }

    /// The same rows in another order, in all relations.
    ///
    /// # Errors
    /// A type cannot be taken by position.
    pub fn reverse(&self) -> Result<(), ArrowError> {
        self.tables.values().try_for_each(Base::reverse)
    }

    /// The rows of a base relation.
    pub fn rows(&self, name: &str) -> Vec<RecordBatch> {
        self.tables.get(name).map(Base::rows).unwrap_or_default()
    }

    /// Plans a query.
    ///
    /// # Errors
    /// What the binder, the optimizer or the physical planner says.
    pub async fn plan(&self, query: &ast::Query) -> Result<BatchQuery, String> {
        let planning = async {
            let plan = self.bind(query)?;
            let plan = self.state.create_physical_plan(&plan).await;
            let plan = plan.map_err(|error| error.to_string())?;
            Ok(BatchQuery { plan })
        };
        no_panic(planning).await
    }

    /// Runs a planned query over the rows of this moment. One run of a plan at a time.
    ///
    /// # Errors
    /// An expression fails on a row.
    pub async fn run(&self, query: &mut BatchQuery) -> Result<Vec<RecordBatch>, String> {
        let again = reset_plan_states(Arc::clone(&query.plan)).map_err(|error| error.to_string())?;
        query.plan = Arc::clone(&again);
        let running = async {
            let rows = collect(again, self.state.task_ctx()).await;
            rows.map_err(|error| error.to_string())
        };
        no_panic(running).await
    }

    /// Plans and runs a query.
    ///
    /// # Errors
    /// As [`Batch::plan`] and [`Batch::run`].
    pub async fn answer(&self, query: &ast::Query) -> Result<Vec<RecordBatch>, String> {
        self.run(&mut self.plan(query).await?).await
    }

    /// Plans and runs a query as DataFusion itself binds it, without the planner's rewrites.
    ///
    /// # Errors
    /// As [`Batch::plan`] and [`Batch::run`]; there is more that DataFusion cannot plan then.
    pub async fn answer_as_written(&self, query: &ast::Query) -> Result<Vec<RecordBatch>, String> {
        let asking = async {
            let context = SessionContext::new_with_state(self.state.clone());
            for name in self.tables.keys() {
                let names = Names {
                    batch: self,
                    with_keys: true,
                };
                let provider = names.table(&TableReference::bare(name.as_str()))?;
                // The catalog is shared by all states of an engine.
                context.deregister_table(name.as_str())?;
                context.register_table(name.as_str(), provider)?;
            }
            let mut query = query.clone();
            rewrite::query(&mut query).map_err(|error| DataFusionError::Plan(error.to_string()))?;
            let statement = ast::Statement::Query(Box::new(query));
            let statement = datafusion::sql::parser::Statement::Statement(Box::new(statement));
            let plan = context.state().statement_to_plan(statement).await?;
            let plan = self
                .state
                .create_physical_plan(&comparisons::read_literals(plan)?)
                .await?;
            collect(plan, self.state.task_ctx()).await
        };
        no_panic(async { asking.await.map_err(|error: DataFusionError| error.to_string()) }).await
    }

    /// Keys are made known only to queries that do not bind without them, so that what the optimizer concludes from
    /// them is not taken for granted by the oracle too.
    fn bind(&self, query: &ast::Query) -> Result<datafusion::logical_expr::LogicalPlan, String> {
        let names = |with_keys| Names {
            batch: self,
            with_keys,
        };
        let bound =
            bind(&self.state, &names(false), query).or_else(|_| bind(&self.state, &names(true), query))?;
        // No scan stands for a stored relation: joins in time become those of a moment.
        let none = |id| Err(DataFusionError::Plan(format!("relation {id} is not stored")));
        attach(bound, &none).map_err(|error| error.to_string())
    }
}

/// A panic of plain DataFusion is no answer, as an error is none.
async fn no_panic<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.unwrap_or_else(|_| Err("plain DataFusion panics".to_owned()))
}

/// The relations, with or without their keys.
struct Names<'a> {
    batch: &'a Batch,
    with_keys: bool,
}

impl CatalogReader for Names<'_> {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        let Some(base) = self.batch.tables.get(name.table()) else {
            return Err(DataFusionError::Plan(format!(
                "relation \"{name}\" does not exist"
            )));
        };
        let partitions = self.batch.state.config().target_partitions();
        Ok(base.table(self.with_keys, partitions))
    }
}
