//! The sessions of a database: their numbers, what their queries run with, and what is forgotten when they end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use millrace_engine::QueryOptions;
use millrace_resource::query_memory::{QueryMemory, TenantMemory};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::ObjectId;

use crate::database::Database;
use crate::database::sequences::Sequences;
use crate::sessions::SessionStatus;
use crate::sessions::advisory::AdvisoryLocks;
use crate::sessions::news::News;
use crate::statements::Statements;

impl Database {
    /// The sessions that there are, by id.
    pub fn sessions(&self) -> Vec<Arc<dyn SessionStatus>> {
        self.sessions.all()
    }

    /// The values of sequences.
    pub fn sequences(&self) -> &Arc<Sequences> {
        &self.sequences
    }

    /// The advisory locks of sessions.
    pub fn advisory_locks(&self) -> &Arc<AdvisoryLocks> {
        &self.sessions.advisory
    }

    /// What sessions tell each other.
    pub fn news(&self) -> &News {
        &self.sessions.news
    }

    /// What sessions have executed.
    pub fn statements(&self) -> &Statements {
        &self.sessions.statements
    }

    /// What a query runs with.
    pub fn query_options(
        &self,
        class: QueryClass,
        tenant: Tenant,
        limit: Option<Arc<TenantMemory>>,
    ) -> QueryOptions {
        let environment = RuntimeEnv {
            memory_pool: QueryMemory::of_tenant(self.runtime.memory(), limit),
            ..self.state.runtime_env().as_ref().clone()
        };
        let context = TaskContext::from(&self.state).with_runtime(Arc::new(environment));
        QueryOptions {
            class,
            tenant,
            context: Arc::new(context),
        }
    }

    /// What all queries of a role may have together, of which there are to be so many bytes from now on.
    pub fn memory_of_tenant(&self, role: ObjectId, limit_bytes: u64) -> Arc<TenantMemory> {
        let name = self.catalog().role_name(role);
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        self.sessions.memory_of(role, &name, limit_bytes)
    }

    pub fn next_session_id(&self) -> i32 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    pub fn register(&self, id: i32, session: Weak<dyn SessionStatus>) {
        self.sessions.add(id, session);
    }

    pub fn unregister(&self, id: i32) {
        self.sessions.remove(id);
        self.sessions.advisory.unlock_all(id);
        self.sessions.news.forget(id);
        self.sequences.forget_session(id);
    }
}
