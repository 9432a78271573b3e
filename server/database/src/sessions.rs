//! The sessions that there are: what others see of each, and how they end what it runs.
//!
//! Sessions are a layer above. They put themselves in here as what implements [`SessionStatus`], and are gone from here when
//! nobody holds them any more.

pub mod advisory;
pub mod news;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use millrace_catalog::Object;
use millrace_planner::RelationId;
use millrace_resource::memory::Memory;
use millrace_resource::query_memory::TenantMemory;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{LogStore, ObjectId};
use parking_lot::Mutex;

use crate::clock::now_ms;
use crate::running::CancelHandle;
use crate::sessions::advisory::AdvisoryLocks;
use crate::sessions::news::News;
use crate::statements::Statements;

/// Who is at the other end.
#[derive(Debug, Clone, Default)]
pub struct SessionInfo {
    /// The user's name when it logged in.
    pub user: String,
    /// The database that was asked for.
    pub database: String,
    /// What the client calls itself.
    pub application: String,
    /// The address of the client; empty when it is in this process.
    pub peer: String,
    /// How its connection is encrypted, if it is.
    pub encryption: Option<Encryption>,
    /// Settings from the start-up message (`client_encoding`, `options`, ...), applied as SET would.
    pub options: Vec<(String, String)>,
}

/// What a TLS handshake came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// The protocol's version, such as `TLSv1.3`.
    pub version: String,
    /// The cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
    /// Bits of its key.
    pub bits: u32,
    /// The name in the certificate that the client has shown, signed by one who may.
    pub client: Option<String>,
}

/// What a session is doing, for `SHOW PROCESSLIST`.
#[derive(Debug, Clone)]
pub struct Activity {
    /// The statement that runs, or ran last.
    pub statement: String,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: i64,
    /// Whether it is still being executed.
    running: bool,
    /// Held by the rows that it has yet to give.
    rows: Weak<()>,
}

impl Activity {
    /// A statement that begins now.
    pub fn begun(statement: String) -> Self {
        Activity {
            statement,
            started_at_ms: now_ms(),
            running: true,
            rows: Weak::new(),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.running || self.rows.strong_count() > 0
    }

    /// It was executed; rows may be still to come.
    pub fn executed(&mut self) {
        self.running = false;
    }

    /// It runs for as long as what is returned is held.
    pub fn runs_for(&mut self) -> Arc<()> {
        let rows = Arc::new(());
        self.rows = Arc::downgrade(&rows);
        rows
    }
}

/// The state of a session's transaction, as the wire shows it after each query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction.
    Idle,
    /// Inside a transaction.
    Active,
    /// Inside a transaction that failed: only its end is accepted.
    Failed,
}

/// The lock of a table, as `pg_locks` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Locking {
    /// The table.
    pub relation: RelationId,
    /// Whether the session has it; else it waits.
    pub is_held: bool,
    /// Since when it waits, in milliseconds since 1970-01-01 UTC.
    pub since_ms: i64,
}

impl Locking {
    /// One that the session has.
    pub fn held(relation: RelationId) -> Self {
        Locking {
            relation,
            is_held: true,
            since_ms: 0,
        }
    }

    /// One that it waits for from now on.
    pub fn awaited(relation: RelationId) -> Self {
        Locking {
            relation,
            is_held: false,
            since_ms: now_ms(),
        }
    }
}

/// What others see of a session, and how they end what it runs.
pub trait SessionStatus: Send + Sync {
    /// Its number, unique in this process: what clients know as the process id.
    fn id(&self) -> i32;

    /// Who is at the other end.
    fn info(&self) -> &SessionInfo;

    /// The role that logged in, whatever it is called by now.
    fn user(&self) -> ObjectId;

    /// When it began, in milliseconds since 1970-01-01 UTC.
    fn began_at_ms(&self) -> i64;

    /// What it is doing.
    fn activity(&self) -> Option<Activity>;

    /// The value of a setting; `None`: there is no such setting.
    fn setting(&self, name: &str) -> Option<String>;

    /// The class in which its queries run.
    fn query_class(&self) -> QueryClass;

    /// The state of its transaction, as the wire shows it.
    fn transaction_status(&self) -> TransactionStatus;

    /// Tables whose locks it has or waits for.
    fn locks(&self) -> Vec<Locking>;

    /// How to cancel what it runs.
    fn cancel_handle(&self) -> CancelHandle;

    /// An object that its open transaction has defined, which nobody else knows yet.
    fn defined(&self, id: ObjectId) -> Option<Arc<Object>>;

    /// The cursors that it has open.
    fn cursors(&self) -> Vec<CursorShown>;

    /// The statements that PREPARE has prepared.
    fn prepared_statements(&self) -> Vec<PreparedShown>;
}

/// What a session keeps under a name.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The name.
    pub name: String,
    /// The statement that made it.
    pub statement: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub began_at_ms: i64,
}

/// A cursor, for `pg_cursors`.
#[derive(Debug, Clone)]
pub struct CursorShown {
    /// Its name and its statement.
    pub kept: Kept,
    /// Whether it outlives its transaction.
    pub is_holdable: bool,
    /// Whether it moves in both directions.
    pub is_scrollable: bool,
}

/// A prepared statement, for `pg_prepared_statements`.
#[derive(Debug, Clone)]
pub struct PreparedShown {
    /// Its name and its statement.
    pub kept: Kept,
    /// The names of the types of its parameters.
    pub parameter_types: Vec<String>,
}

/// Where the bytes of relations are known.
pub struct Bytes {
    /// Those in memory, and put on disk.
    pub memory: Arc<Memory>,
    /// Those of their logs.
    pub logs: Arc<LogStore>,
}

/// By their ids.
#[derive(Default)]
pub struct Sessions {
    /// Their advisory locks.
    pub advisory: Arc<AdvisoryLocks>,
    /// What they tell each other.
    pub news: News,
    /// What they have executed.
    pub statements: Statements,
    /// Where the bytes of relations are known.
    bytes: OnceLock<Bytes>,
    by_id: Mutex<BTreeMap<i32, Weak<dyn SessionStatus>>>,
    /// What the queries of roles with a limit have.
    memory: Mutex<BTreeMap<ObjectId, Weak<TenantMemory>>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_id.lock().keys()).finish()
    }
}

impl Sessions {
    /// Says where the bytes of relations are known.
    pub(crate) fn measure_by(&self, memory: &Arc<Memory>, logs: &Arc<LogStore>) {
        let (memory, logs) = (Arc::clone(memory), Arc::clone(logs));
        let _ = self.bytes.set(Bytes { memory, logs });
    }

    /// Where the bytes of relations are known; none in a database that has no store.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.bytes.get()
    }

    /// Those that there are, by id.
    pub fn all(&self) -> Vec<Arc<dyn SessionStatus>> {
        self.by_id.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// What the queries of a role have, whose limit this is from now on. It is there as long as a query has it.
    pub(super) fn memory_of(&self, role: ObjectId, name: &str, limit_bytes: usize) -> Arc<TenantMemory> {
        let mut all = self.memory.lock();
        all.retain(|_, memory| memory.strong_count() > 0);
        if let Some(known) = all.get(&role).and_then(Weak::upgrade) {
            known.set_limit(limit_bytes);
            return known;
        }
        let made = Arc::new(TenantMemory::new(name.to_owned(), limit_bytes));
        all.insert(role, Arc::downgrade(&made));
        made
    }

    pub(super) fn add(&self, id: i32, session: Weak<dyn SessionStatus>) {
        self.by_id.lock().insert(id, session);
    }

    pub(super) fn remove(&self, id: i32) {
        self.by_id.lock().remove(&id);
    }

    /// One of them.
    pub fn get(&self, id: i32) -> Option<Arc<dyn SessionStatus>> {
        self.by_id.lock().get(&id).and_then(Weak::upgrade)
    }

    /// Ends a session: what it runs, if that can still be ended, and its connection; false: there is no such session.
    pub fn terminate(&self, id: i32) -> bool {
        let session = self.get(id);
        if let Some(session) = &session {
            session.cancel_handle().terminate();
        }
        session.is_some()
    }

    /// Cancels what a session runs, paused or not; false: there is no such session.
    pub fn cancel(&self, id: i32) -> bool {
        let session = self.get(id);
        if let Some(session) = &session {
            session.cancel_handle().cancel();
        }
        session.is_some()
    }
}
