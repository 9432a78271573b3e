//! The part of the handle that queries and statements are run by.

use std::sync::Arc;
use std::time::Instant;

use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use millrace_resource::cpu::{TaskStatus, Work};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;

use super::Runtime;
use crate::error::{CpuTask, Result};
use crate::query::{ClientWait, Partitions, ProfileHandle, QueryOptions};

impl Runtime {
    /// Whether no epoch is decided about any more: a fault has ended the driver.
    pub fn has_stopped_deciding(&self) -> bool {
        self.engine.decisions.has_stopped()
    }

    /// Since when the driver is at the decision that it is at, if it is at one.
    pub fn deciding_since(&self) -> Option<Instant> {
        self.engine.decisions.since()
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
        self.engine.queries.compute(class, work)
    }

    /// The same for work that waits now and then, on behalf of a tenant.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub fn compute_async<T: Send + 'static>(
        &self,
        class: QueryClass,
        tenant: Tenant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<CpuTask<T>> {
        self.engine
            .queries
            .compute_async(Work::of_tenant(class, tenant), work)
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
        self.engine.queries.run_statement(class, tenant, work)
    }

    /// Runs a physical plan. Dropping the stream cancels the query: what waits for a slot at once, what runs at its next
    /// suspension point.
    ///
    /// # Errors
    /// The runtime is shutting down, or an operator cannot be cut. A failing plan ends the stream with its error.
    pub fn execute(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
    ) -> Result<SendableRecordBatchStream> {
        self.engine.queries.execute(plan, options)
    }

    /// The same, and what the schedulers see of it: complete once the rows have ended. It is not started again under the
    /// policy that kills.
    ///
    /// # Errors
    /// As [`Runtime::execute`].
    pub fn execute_profiled(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: QueryOptions,
    ) -> Result<(SendableRecordBatchStream, ProfileHandle)> {
        self.engine.queries.execute_profiled(plan, options)
    }

    /// The tasks of the queries under way.
    pub fn query_tasks(&self) -> Vec<TaskStatus> {
        self.engine.queries.query_tasks()
    }

    /// The queries that wait for their clients to take rows.
    pub fn waiting_for_clients(&self) -> Vec<ClientWait> {
        self.engine.queries.waiting_for_clients()
    }

    /// Into how many partitions a query is cut that works on so many rows at a time: one while that is little, for then the
    /// exchanges would cost more than they bring; else as many as make each partition's hash tables, sorted runs and groups small
    /// enough to be worked on between two suspension points.
    pub fn partitions_for(&self, rows: usize) -> usize {
        self.engine.queries.partitions_for(rows)
    }

    /// The same for one that reads relations of so many rows and files of so many bytes.
    pub fn query_partitions(&self, rows: usize, file_bytes: u64) -> Partitions {
        self.engine.queries.query_partitions(rows, file_bytes)
    }
}
