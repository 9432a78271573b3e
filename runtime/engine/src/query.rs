//! Batch queries: a DataFusion plan, cut into stages of tasks, each a coroutine on the cpu schedulers.
//!
//! ```text
//!  plan --cut--> last stage --> batches for the client
//!                  |  boundary: bounded buffers
//!                stages of tasks, started when their rows are first asked for
//! ```
//!
//! A plan over little data has one stage of one task, and nothing of this is felt.

mod boundary;
mod carry;
mod compact;
mod constants;
mod cut;
mod exchange;
mod gate;
mod generic_join;
mod partitions;
mod planner;
mod profile;
mod run;
mod steps;
mod unnest;
mod wanted;
mod wrap;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, RecordBatchStream, SendableRecordBatchStream};
use futures::{FutureExt, Stream, StreamExt};
use millrace_resource::cpu::{CpuScheduler, TaskRecord, TaskStatus, Work};
use millrace_resource::memory::Charge;
use millrace_resource::query_memory::QueryMemory;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::rows_bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::error::{CpuTask, Result};
use crate::machine::Machine;
use crate::workers::Workers;
pub use generic_join::GenericJoinExec;
pub use partitions::QUERY_PARTITION_ROWS;
pub use partitions::{FILE_PIECE_BYTES_MIN, Partitions, table_rows};
pub use planner::BatchPlanner;
pub use profile::ProfileHandle;
pub use run::{ClientWait, QueryRun};

/// Batches that wait for a slow client, where no faucet says how many; the query pauses when they are not taken.
const RESULT_BATCHES_MAX: usize = 4;

/// How a query is to run.
pub struct QueryOptions {
    pub class: QueryClass,
    /// For whom it runs.
    pub tenant: Tenant,
    /// DataFusion's context: functions, memory pool, batch size.
    pub context: Arc<TaskContext>,
}

/// Queries under way, and what all of them run on.
pub(crate) struct Queries {
    machine: Arc<Machine>,
    workers: Arc<Workers>,
    /// Runs what statements do by themselves.
    statements: CpuScheduler,
    /// Rows of a relation that make one partition of a query that reads it.
    partition_rows: usize,
    /// By number.
    under_way: Mutex<BTreeMap<u64, Weak<QueryRun>>>,
    next: AtomicU64,
}

impl Queries {
    /// None yet. `partition_rows`: rows of a relation that make one partition of a query that reads it.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(
        machine: &Arc<Machine>,
        workers: &Arc<Workers>,
        partition_rows: usize,
    ) -> Result<Arc<Queries>> {
        Ok(Arc::new(Queries {
            statements: CpuScheduler::start_without_streams(machine.cores, Some(machine.io.clone()))?,
            machine: Arc::clone(machine),
            workers: Arc::clone(workers),
            partition_rows,
            under_way: Mutex::default(),
            next: AtomicU64::new(1),
        }))
    }

    /// What runs statements.
    pub fn statements(&self) -> &CpuScheduler {
        &self.statements
    }

    fn runs(&self) -> Vec<Arc<QueryRun>> {
        let under_way = self.under_way.lock();
        under_way.values().filter_map(Weak::upgrade).collect()
    }

    /// Runs a piece of work on the cpu scheduler: what is neither a plan nor an epoch, such as converting what a client sent.
    /// Dropping the handle cancels it, if it has not begun.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn compute<T: Send + 'static>(
        &self,
        class: QueryClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<CpuTask<T>> {
        self.compute_async(Work::new(class), async move { work() })
    }

    /// The same for work that waits now and then.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn compute_async<T: Send + 'static>(
        &self,
        of: Arc<Work>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<CpuTask<T>> {
        self.workers.spawn_of(of, move |_| work.map(Ok).boxed())
    }

    /// Runs what a statement does by itself: binding, planning, evaluating constants, handing on what it writes. It has a
    /// scheduler of its own, so that it goes on when a worker is lost, and whoever called does nothing but wait. Dropping the handle
    /// cancels it: at once if it waits, else at its next suspension point.
    pub fn run_statement<T: Send + 'static>(
        &self,
        class: QueryClass,
        tenant: Tenant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> CpuTask<T> {
        let record = TaskRecord::new(Work::keeping(class, tenant), None);
        self.statements
            .spawn_recorded(Arc::new(record), |_| work.map(Ok).boxed())
    }

    /// Runs a physical plan. Dropping the stream cancels the query: what waits for a slot at once, what runs at its next
    /// suspension point.
    ///
    /// # Errors
    /// The runtime is shutting down, or an operator cannot be cut. A failing plan ends the stream with its error.
    pub fn execute(
        self: &Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
    ) -> Result<SendableRecordBatchStream> {
        let attempt = Attempt::start(self, &plan, &options, How::default())?;
        Ok(self.stream(plan, options, attempt))
    }

    /// The same, and what the schedulers see of it: complete once the rows have ended. It is not started again under the
    /// policy that kills.
    ///
    /// # Errors
    /// As [`Queries::execute`].
    pub fn execute_profiled(
        self: &Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
    ) -> Result<(SendableRecordBatchStream, ProfileHandle)> {
        let how = How {
            may_restart: false,
            keeps_stretches: true,
        };
        let attempt = Attempt::start(self, &plan, &options, how)?;
        let handle = ProfileHandle::new(&attempt.run, &options.context);
        Ok((self.stream(plan, options, attempt), handle))
    }

    fn stream(
        self: &Arc<Self>,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
        attempt: Attempt,
    ) -> SendableRecordBatchStream {
        Box::pin(QueryStream {
            schema: plan.schema(),
            queries: Arc::clone(self),
            plan,
            options,
            attempt,
            restarts: 0,
        })
    }

    /// The tasks of the queries under way.
    pub fn query_tasks(&self) -> Vec<TaskStatus> {
        self.runs().iter().flat_map(|run| run.tasks()).collect()
    }

    /// The queries that wait for their clients to take rows.
    pub fn waiting_for_clients(&self) -> Vec<ClientWait> {
        self.runs().iter().filter_map(|run| run.client_wait()).collect()
    }
}

/// How often a query is started again under the policy that kills; from then on it is paused.
const RESTARTS_MAX: usize = 100;

/// How a run is to be made.
#[derive(Debug, Clone, Copy)]
struct How {
    may_restart: bool,
    /// Each stretch of its tasks is kept, not only their sums.
    keeps_stretches: bool,
}

impl Default for How {
    fn default() -> Self {
        How {
            may_restart: true,
            keeps_stretches: false,
        }
    }
}

/// A batch for the client, charged until it is taken.
type Taken = (DataFusionResult<RecordBatch>, Option<Charge>);

/// A run and where its rows come out. Dropping it cancels the run.
struct Attempt {
    receiver: mpsc::Receiver<Taken>,
    /// Dropped with the stream: that cancels it.
    task: Option<CpuTask<()>>,
    run: Arc<QueryRun>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Others may hold the run, to look at it.
        self.run.cancel();
    }
}

impl Attempt {
    fn start(
        queries: &Arc<Queries>,
        plan: &Arc<dyn ExecutionPlan>,
        options: &QueryOptions,
        how: How,
    ) -> Result<Attempt> {
        let batches_max = unnest::batches_in_flight(plan).unwrap_or(RESULT_BATCHES_MAX);
        let run = QueryRun::new(
            queries,
            Work::of_tenant(options.class, options.tenant),
            how.keeps_stretches,
            batches_max,
        );
        run.work.set_restartable(how.may_restart);
        let last = cut::cut(Arc::clone(plan), &run)?;
        let stage = run.new_stage(&last);
        let (sender, receiver) = mpsc::channel(batches_max);
        let context = Arc::clone(&options.context);
        if let Some(memory) = context.memory_pool().downcast_ref::<QueryMemory>() {
            memory.set_name(format!("query {}", run.id));
        }
        let client = Arc::clone(&run.client);
        let task = run.start(stage, 0, move |gate| {
            async move {
                let mut rows = match last.execute(0, Arc::clone(&context)) {
                    Ok(rows) => rows,
                    Err(error) => {
                        // A receiver that is gone wants no error either.
                        let _ = sender.send((Err(error), None)).await;
                        return Ok(());
                    }
                };
                // A batch is made only once there is space for it.
                while let Some(room) = client.room(&sender).await
                    && let Some(batch) = rows.next().await
                {
                    let is_error = batch.is_err();
                    let mut charge = None;
                    if let Ok(batch) = &batch {
                        let bytes = rows_bytes(batch);
                        gate.put_out(batch.num_rows(), bytes);
                        let memory = context.memory_pool().downcast_ref::<QueryMemory>();
                        charge = memory.map(|memory| memory.result(bytes));
                    }
                    room.send((batch, charge));
                    if is_error {
                        return Ok(());
                    }
                }
                Ok(())
            }
            .boxed()
        })?;
        Ok(Attempt {
            receiver,
            task: Some(task),
            run,
        })
    }
}

/// The rows of a running query.
struct QueryStream {
    schema: SchemaRef,
    queries: Arc<Queries>,
    plan: Arc<dyn ExecutionPlan>,
    options: QueryOptions,
    attempt: Attempt,
    restarts: usize,
}

impl QueryStream {
    /// Starts again what was killed, if nobody has seen a row of it.
    fn poll_restart(&mut self, context: &Context<'_>) -> Result<()> {
        while self.attempt.run.work.poll_killed(context) {
            self.restarts += 1;
            let plan = reset_plan_states(Arc::clone(&self.plan))?;
            let how = How {
                may_restart: self.restarts < RESTARTS_MAX,
                ..How::default()
            };
            self.attempt = Attempt::start(&self.queries, &plan, &self.options, how)?;
        }
        Ok(())
    }
}

impl Stream for QueryStream {
    type Item = DataFusionResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(error) = self.poll_restart(context) {
            return Poll::Ready(Some(Err(DataFusionError::External(Box::new(error)))));
        }
        let attempt = &mut self.attempt;
        match attempt.receiver.poll_recv(context) {
            Poll::Ready(None) => {}
            Poll::Ready(Some((rows, _))) => {
                attempt.run.work.set_restartable(false);
                return Poll::Ready(Some(rows));
            }
            Poll::Pending => return Poll::Pending,
        }
        // The channel is closed: the task has ended, well or with a panic.
        let Some(task) = &mut attempt.task else {
            return Poll::Ready(None);
        };
        match task.poll_unpin(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => {
                attempt.task = None;
                Poll::Ready(
                    outcome
                        .err()
                        .map(|error| Err(DataFusionError::External(Box::new(error)))),
                )
            }
        }
    }
}

impl RecordBatchStream for QueryStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
