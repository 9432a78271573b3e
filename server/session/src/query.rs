//! Running a bound query: one snapshot, the session's own changes over it, a physical plan, the runtime's scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use millrace_catalog::external::{ExternalTable, ROW_BYTES};
use millrace_catalog::flow::{self, FlowDef};
use millrace_catalog::limits::Limits;
use millrace_clarity::Profile;
use millrace_database::running::Running;
use millrace_engine::{Partitions, QueryOptions, table_rows};
use millrace_functions::sql::{sort_key, zoned_cast};
use millrace_planner::RelationId;
use millrace_planner::query::generic_join::{CyclicJoinChoice, CyclicJoins};
use millrace_planner::relation::{attach, relation_of, relations};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal::df;
use millrace_postgres::types::zone::Zone;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::{SHARE_DEFAULT, Tenant};
use millrace_storage::rows_bytes;

use crate::effects;
use crate::output_columns::OutputColumns;
use crate::overlay;
use crate::own_changes::Net;
use crate::session::Session;
use crate::transaction::Transaction;

/// The columns of each relation as the plan knows them: it may have been bound before the relation was altered.
fn known_schemas(plan: &LogicalPlan) -> datafusion::error::Result<BTreeMap<RelationId, SchemaRef>> {
    let mut known = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(info) = relation_of(scan)
        {
            known.insert(info.id, info.schema);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(known)
}

/// Bytes of the largest external table of the plan.
fn external_bytes(plan: &LogicalPlan) -> datafusion::error::Result<u64> {
    let mut bytes = 0;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = source_as_provider(&scan.source)?.downcast_ref::<ExternalTable>()
        {
            bytes = bytes.max(table.bytes());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

/// How much of a view may be in flight, by the session's settings.
///
/// # Errors
/// A setting has a value that it cannot have.
pub(crate) fn view_flow(session: &Session) -> SqlResult<FlowDef> {
    let mut flow = FlowDef::default();
    for name in [flow::BATCHES, flow::BATCH_ROWS] {
        if let Some(text) = session.setting(name) {
            flow.set(name, &text)?;
        }
    }
    Ok(flow)
}

/// Providers that stand for some relations instead of the committed snapshot: the locked state, for DML.
pub type Providers = BTreeMap<RelationId, Arc<dyn TableProvider>>;

impl Session {
    /// The physical plan of a query over one epoch, the session's own changes included.
    ///
    /// # Errors
    /// The plan cannot be made, or a relation was dropped meanwhile.
    pub async fn physical_plan(
        &self,
        plan: LogicalPlan,
        instead: &Providers,
    ) -> SqlResult<Arc<dyn ExecutionPlan>> {
        let choice = Arc::new(self.cyclic_joins(&plan)?);
        self.physical_plan_choosing(plan, instead, choice).await
    }

    /// How the session's queries join cycles, and what is known of this one for it.
    ///
    /// # Errors
    /// Those of a walk over the plan.
    pub(crate) fn cyclic_joins(&self, plan: &LogicalPlan) -> SqlResult<CyclicJoinChoice> {
        let mut choice = CyclicJoinChoice::new(match self.setting("cyclic_joins").as_deref() {
            Some("generic") => CyclicJoins::Generic,
            Some("binary") => CyclicJoins::Binary,
            _ => CyclicJoins::Auto,
        });
        df(choice.note_keys(plan))?;
        Ok(choice)
    }

    /// As [`Session::physical_plan`]; what is decided of cycles is noted.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn physical_plan_choosing(
        &self,
        plan: LogicalPlan,
        instead: &Providers,
        choice: Arc<CyclicJoinChoice>,
    ) -> SqlResult<Arc<dyn ExecutionPlan>> {
        if self.only_reads.load(Ordering::Relaxed) {
            effects::check_plan(&plan)?;
        }
        let file_bytes = df(external_bytes(&plan))?;
        let (plan, rows) = self.attach_snapshot(plan, instead).await?;
        let mut plan = df(sort_key::by_value(plan))?;
        if let Some(zone) = self.other_zone() {
            plan = df(zoned_cast::in_zone(plan, zone))?;
        }
        let mut state = self.db.statement_state();
        state.config_mut().set_extension(choice);
        let limits = view_flow(self)?.limits(self.db.options().partitions());
        state.config_mut().set_extension(Arc::new(limits));
        let runtime = self.db.runtime();
        let rows = rows.max((file_bytes / ROW_BYTES) as usize);
        let Partitions { first, most } = runtime.query_partitions(rows, file_bytes);
        if most <= 1 {
            return df(state.create_physical_plan(&plan).await);
        }
        let in_partitions = move |partitions: usize| {
            let mut state = state.clone();
            state.config_mut().options_mut().execution.target_partitions = partitions;
            let plan = plan.clone();
            async move { df(state.create_physical_plan(&plan).await) }
        };
        let db = Arc::clone(&self.db);
        // The plan of a large query takes milliseconds of a processor, which those who take in rows would wait for.
        let planning = async move {
            let planned = in_partitions(first).await?;
            let wanted = db.runtime().partitions_for(table_rows(planned.as_ref(), rows));
            match wanted.min(most) {
                wanted if wanted > first => in_partitions(wanted).await,
                _ => Ok(planned),
            }
        };
        let planned = runtime.compute_async(self.query_class(), self.tenant(), planning)?;
        planned.await?
    }

    /// The plan with each relation bound to its rows, and how many the largest of them may have.
    async fn attach_snapshot(
        &self,
        plan: LogicalPlan,
        instead: &Providers,
    ) -> SqlResult<(LogicalPlan, usize)> {
        let named = df(relations(&plan))?;
        let known = df(known_schemas(&plan))?;
        let definitions = self.definitions();
        let mut providers = instead.clone();
        if let Some(definitions) = &definitions {
            for (id, schema) in known.iter().filter(|(id, _)| definitions.is_new(**id)) {
                if !instead.contains_key(id) {
                    providers.insert(*id, overlay::nothing(schema)?);
                }
            }
        }
        let wanted: Vec<RelationId> = named
            .iter()
            .copied()
            .filter(|id| !providers.contains_key(id))
            .collect();
        let mut rows = 0;
        if !wanted.is_empty() {
            let after = self.read_after(&wanted);
            let snapshot = self.db.runtime().snapshot(&wanted, after.as_ref()).await?;
            rows = rows.max(snapshot.rows_max());
            for id in wanted {
                let widening = definitions
                    .as_ref()
                    .and_then(|definitions| definitions.widening(id));
                let provider = match known.get(&id) {
                    Some(schema) if let Some(widening) = &widening => {
                        let base = snapshot.table_provider_as(id, &widening.before)?;
                        overlay::widened(base, widening, schema)?
                    }
                    Some(schema) => snapshot.table_provider_as(id, schema)?,
                    None => snapshot.table_provider(id)?,
                };
                providers.insert(id, provider);
            }
        }
        // What this transaction has changed in tables shows over what is committed.
        let own: Vec<_> = match &mut *self.transaction.lock() {
            Transaction::Active(active) => {
                let shown = |id: &RelationId| {
                    (active.locked.contains(id) || active.is_new_table(*id))
                        && named.contains(id)
                        && !instead.contains_key(id)
                };
                let shown: Vec<RelationId> = active.changes.keys().copied().filter(shown).collect();
                let own = shown.into_iter().map(|id| Ok((id, active.net(id)?)));
                own.collect::<SqlResult<_>>()?
            }
            _ => vec![],
        };
        for (id, changes) in own {
            if let Some(base) = providers.get(&id).cloned() {
                providers.insert(id, overlay::provider(base, &changes));
            }
        }
        let plan = df(attach(plan, &|id| {
            providers.get(&id).cloned().ok_or_else(|| {
                SqlError::internal(format!(
                    "relation {id} appeared in a plan after its relations were counted"
                ))
                .into()
            })
        }))?;
        Ok((plan, rows))
    }

    /// What the open transaction has changed in a relation.
    ///
    /// # Errors
    /// As [`crate::own_changes::OwnChanges::net`].
    pub(crate) fn own_changes(&self, id: RelationId) -> SqlResult<Arc<Net>> {
        let mut transaction = self.transaction.lock();
        transaction
            .active()
            .map_or_else(|| Ok(Arc::default()), |active| active.net(id))
    }

    /// The zone of the session, if it is not UTC.
    pub(crate) fn other_zone(&self) -> Option<Zone> {
        let zone = Zone::parse_setting(&self.setting("TimeZone")?)?;
        (zone != Zone::UTC).then_some(zone)
    }

    /// What the session may take at most: the limits of the role that has logged in, as they are now.
    pub(crate) fn limits(&self) -> Limits {
        let catalog = self.db.catalog();
        catalog
            .role_def(self.user)
            .map_or_else(Limits::default, |role| role.limits)
    }

    /// For whom the session's work is done.
    pub(crate) fn tenant(&self) -> Tenant {
        // Those without a share of their own are tenants too: none of them keeps another waiting.
        Tenant {
            id: self.user.0,
            share: self.limits().cpu_share.unwrap_or(SHARE_DEFAULT),
        }
    }

    /// The class in which the session's queries run.
    pub(crate) fn query_class(&self) -> QueryClass {
        let wanted = match self.setting("query_priority").as_deref() {
            Some("stream") => QueryClass::Stream,
            Some("batch") => QueryClass::Batch,
            _ => QueryClass::Interactive,
        };
        self.limits().class(wanted)
    }

    /// The class in which they are read and planned: those of a role that is limited to batch work do not hold up others'.
    pub(crate) fn planning_class(&self) -> QueryClass {
        self.query_class().max(QueryClass::Interactive)
    }

    /// What the session's queries run with.
    fn query_options(&self) -> QueryOptions {
        let limit = self.limits().memory_limit_bytes;
        let memory = limit.map(|bytes| self.db.memory_of_tenant(self.user, bytes));
        self.db.query_options(self.query_class(), self.tenant(), memory)
    }

    /// Starts a physical plan.
    ///
    /// # Errors
    /// The runtime refuses it.
    pub fn start(&self, plan: Arc<dyn ExecutionPlan>) -> SqlResult<SendableRecordBatchStream> {
        let options = self.query_options();
        Ok(self.db.runtime().execute(plan, options)?)
    }

    /// All rows of a query.
    ///
    /// # Errors
    /// Planning or running it failed.
    pub async fn collect(&self, plan: LogicalPlan, instead: &Providers) -> SqlResult<Vec<RecordBatch>> {
        let physical = self.physical_plan(plan, instead).await?;
        self.collect_physical(physical).await
    }

    /// All rows of a physical plan.
    ///
    /// # Errors
    /// Running it failed.
    pub(crate) async fn collect_physical(&self, plan: Arc<dyn ExecutionPlan>) -> SqlResult<Vec<RecordBatch>> {
        let mut stream = self.start(plan)?;
        let mut batches = vec![];
        // From then on the operating system knows of them.
        let mut kept = self.kept_rows();
        while let Some(batch) = stream.next().await {
            let batch = df(batch)?;
            if batch.num_rows() > 0 {
                kept.add(rows_bytes(&batch))?;
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    /// Runs a physical plan to its end for what the schedulers see of it; `planning` is the time before. Its rows are
    /// thrown away.
    ///
    /// # Errors
    /// Running it failed.
    pub(crate) async fn profile_physical(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        planning: Duration,
    ) -> SqlResult<Profile> {
        let options = self.query_options();
        let (mut stream, handle) = self.db.runtime().execute_profiled(plan, options)?;
        while let Some(batch) = stream.next().await {
            df(batch)?;
        }
        Ok(handle.profile(planning))
    }

    /// A stream of rows under the statement's right to run: cancellation and the timeout end it, and a failure makes
    /// the transaction fail.
    pub(crate) fn guarded(
        self: &Arc<Self>,
        stream: SendableRecordBatchStream,
        columns: &OutputColumns,
        running: Running,
    ) -> (SchemaRef, SendableRecordBatchStream) {
        let zone = self.other_zone();
        let mut schema = columns.applied(&stream.schema());
        if let Some(zone) = zone {
            let fields: Vec<_> = schema
                .fields()
                .iter()
                .map(|field| zoned_cast::shown_field(field, zone))
                .collect();
            schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        }
        let held = self.runs_for();
        let state = (
            Some((stream, held)),
            Arc::clone(self),
            running,
            Arc::clone(&schema),
        );
        let rows = futures::stream::unfold(state, move |(stream, session, running, schema)| async move {
            let (mut stream, held) = stream?;
            let next = running
                .run(async {
                    match stream.next().await {
                        Some(batch) => df(batch).map(Some),
                        None => Ok(None),
                    }
                })
                .await;
            match next {
                Ok(None) => None,
                Ok(Some(batch)) => {
                    let columns = match zone {
                        Some(zone) => batch
                            .columns()
                            .iter()
                            .map(|column| zoned_cast::shown(column, zone))
                            .collect(),
                        None => batch.columns().to_vec(),
                    };
                    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
                        .or_else(|_| Ok::<_, datafusion::error::DataFusionError>(batch));
                    Some((batch, (Some((stream, held)), session, running, schema)))
                }
                Err(error) => {
                    session.fail_transaction();
                    Some((Err(error.into()), (None, session, running, schema)))
                }
            }
        });
        let stream: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.boxed()));
        (schema, stream)
    }
}

/// The columns of a plan.
pub fn schema_of(plan: &LogicalPlan) -> SchemaRef {
    SchemaRef::new(Schema::new(plan.schema().fields().clone()))
}

/// Rows that are there already, as a stream.
///
/// # Errors
/// The batches have another schema.
pub fn rows_of(schema: SchemaRef, batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    let rows = futures::stream::iter(batches.into_iter().map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}
