//! One client's conversation: settings, transaction, prepared statements, cursors, and the execution of statements.
//!
//! The wire protocols own a [`Session`] each and translate. They may call it from any task, but one statement at a
//! time; only [`CancelHandle::cancel`] may come from elsewhere while a statement runs.
//!
//! ```text
//! let session = Session::new(db, info)?;                         // 3D000 when the database is unknown
//! simple query:    let mut query = session.run(sql).await?;      // parse errors come from here
//!                  while let Some(outcome) = query.next().await { .. }   // stop at the first error
//! extended query:  let parsed = session.parse(sql).await?;       // one statement, or none
//!                  let prepared = session.prepare(parsed.pop(), &types).await?;
//!                  session.execute(&prepared, params).await?
//! ingest:          session.ingest("stream", IngestFormat::NdJson, body).await?
//! after each:      session.take_notices(), session.take_parameter_changes(), session.transaction_status()
//! ```
//!
//! Whoever calls only waits: what takes time with the text, the plan or the values of a statement runs on the runtime's scheduler
//! for statements ([`Session::run_statement`]).

#[cfg(test)]
mod alter_tests;
pub mod cancel;
pub mod constants;
pub mod cursor;
#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod external_tests;
#[cfg(test)]
mod job_tests;
pub(crate) mod kept;
mod light;
#[cfg(test)]
mod memory_tests;
mod object_names;
pub mod outcome;
pub mod overlay;
pub mod parameters;
pub mod position;
#[cfg(test)]
mod psql_tests;
pub mod query;
#[cfg(test)]
mod recovery_tests;
#[cfg(test)]
mod retention_tests;
pub mod rows;
pub mod settings;
pub mod simple;
#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod size_tests;
pub mod statement;
#[cfg(test)]
pub(crate) mod tests;
pub mod transaction;
pub mod write;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use datafusion::scalar::ScalarValue;
use millrace_engine::WriteToken;
use millrace_parser::Parsed;
use millrace_parser::ast::Statement;
use parking_lot::Mutex;
use postgres_types::Type;

pub use cancel::{CancelHandle, Running};
pub use outcome::{CommandTag, CopyOut, Notice, Outcome, Prepared, Severity, TagRows, TransactionStatus};
pub use simple::SimpleQuery;
pub use write::Locking;

use crate::catalog::{CatalogSnapshot, Reader};
use crate::copy::{CopyIn, IngestFormat};
use crate::database::{Database, now_ms};
use crate::error::{SqlError, SqlResult, SqlState, from_internal};
use crate::session::cursor::Cursor;
use crate::session::settings::{Settings, Shown};
use crate::session::transaction::Transaction;

/// SQL text of so many bytes is parsed where the caller is; a longer one on the scheduler for statements.
const PARSED_AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// Who is at the other end.
#[derive(Debug, Clone, Default)]
pub struct SessionInfo {
    /// The user's name.
    pub user: String,
    /// The database that was asked for.
    pub database: String,
    /// What the client calls itself.
    pub application: String,
    /// The address of the client; empty when it is in this process.
    pub peer: String,
    /// Settings from the start-up message (`client_encoding`, `options`, ...), applied as SET would.
    pub options: Vec<(String, String)>,
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
    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.running || self.rows.strong_count() > 0
    }
}

/// One client's conversation.
pub struct Session {
    id: i32,
    db: Arc<Database>,
    info: SessionInfo,
    settings: Mutex<Settings>,
    transaction: Mutex<Transaction>,
    prepared: Mutex<BTreeMap<String, Arc<Prepared>>>,
    cursors: Mutex<BTreeMap<String, Cursor>>,
    notices: Mutex<Vec<Notice>>,
    parameter_changes: Mutex<Vec<(String, String)>>,
    cancel: CancelHandle,
    /// The statement that runs.
    running: Mutex<Option<Running>>,
    /// Held by the statement that runs, also by one that was ended and is still in a computation that cannot be broken off: what
    /// comes next waits for it.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The table whose lock that statement has, or waits for.
    locking: Mutex<Option<Locking>>,
    activity: Mutex<Option<Activity>>,
    /// In milliseconds since 1970-01-01 UTC.
    began_at_ms: i64,
}

/// What the names of one statement mean: one catalog, one search path.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The catalog.
    pub catalog: Arc<CatalogSnapshot>,
    /// The database of the session.
    pub database: String,
    /// The schemas in which unqualified names are looked for.
    pub search_path: Vec<String>,
    /// The time zone of the session, if it is not UTC: texts without a zone are assigned to timestamptz in it.
    pub zone: Option<crate::types::zone::Zone>,
    /// The settings of the session.
    pub settings: Settings,
}

impl Session {
    /// Begins a conversation.
    ///
    /// # Errors
    /// The database does not exist, the server is closing, or an option is refused.
    pub fn new(db: Arc<Database>, mut info: SessionInfo) -> SqlResult<Arc<Session>> {
        if db.is_closing() {
            return Err(SqlError::new(
                SqlState::CannotConnectNow,
                "the server is shutting down",
            ));
        }
        info.database = db.resolve_database(&info.database)?;
        if info.user.is_empty() {
            info.user = crate::catalog::DEFAULT_USER.to_string();
        }
        let mut settings = Settings::new(&info.user);
        if !info.application.is_empty() {
            settings.set("application_name", &info.application)?;
        }
        for (name, value) in &info.options {
            if name == "options" {
                for (name, value) in settings::command_line(value)? {
                    settings.set(&name, &value)?;
                }
            } else {
                settings.set(name, value)?;
            }
        }
        settings.keep_as_initial();
        let id = db.next_session_id();
        let session = Arc::new(Session {
            id,
            parameter_changes: Mutex::new(settings.reported()),
            db: Arc::clone(&db),
            info,
            settings: Mutex::new(settings),
            transaction: Mutex::default(),
            prepared: Mutex::default(),
            cursors: Mutex::default(),
            notices: Mutex::default(),
            cancel: CancelHandle::default(),
            running: Mutex::default(),
            turn: Arc::default(),
            locking: Mutex::default(),
            activity: Mutex::default(),
            began_at_ms: now_ms(),
        });
        db.register(id, &session);
        Ok(session)
    }

    /// Parses SQL text into its statements; an empty one is left out.
    ///
    /// # Errors
    /// The text is not SQL, or parsing it was cancelled.
    pub async fn parse(self: &Arc<Self>, sql: &str) -> SqlResult<Vec<Parsed>> {
        if sql.len() <= PARSED_AT_ONCE_BYTES_MAX {
            return millrace_parser::parse(sql).map_err(from_internal::parse);
        }
        let sql = sql.to_owned();
        let running = self.begin_statement();
        self.run_statement(&running, async move {
            millrace_parser::parse(&sql).map_err(from_internal::parse)
        })
        .await
    }

    /// Finds out the parameters and columns of a statement; `None` is the empty statement.
    ///
    /// # Errors
    /// Names or types do not bind, the transaction has failed, or it was cancelled.
    pub async fn prepare(
        self: &Arc<Self>,
        parsed: Option<Parsed>,
        types: &[Option<Type>],
    ) -> SqlResult<Arc<Prepared>> {
        let (session, types) = (Arc::clone(self), types.to_vec());
        let running = self.begin_statement();
        let prepared = self
            .run_statement(&running, async move { session.make_prepared(parsed, &types) })
            .await;
        if prepared.is_err() {
            self.fail_transaction();
        }
        prepared
    }

    /// The same as a part of the statement that runs.
    fn make_prepared(&self, parsed: Option<Parsed>, types: &[Option<Type>]) -> SqlResult<Arc<Prepared>> {
        let Some(parsed) = parsed else {
            return Ok(Arc::new(Prepared {
                parsed: None,
                param_types: vec![],
                columns: None,
            }));
        };
        self.check_not_failed(&parsed.statement)?;
        let (param_types, columns) =
            parameters::describe(self, &parsed, types).map_err(|error| position::locate(error, &parsed))?;
        Ok(Arc::new(Prepared {
            parsed: Some(Arc::new(parsed)),
            param_types,
            columns,
        }))
    }

    /// Executes a statement. Outside a transaction, what it writes is committed when it returns.
    ///
    /// # Errors
    /// Whatever is wrong with it; a transaction around it has then failed.
    pub async fn execute(
        self: &Arc<Self>,
        prepared: &Prepared,
        params: Vec<ScalarValue>,
    ) -> SqlResult<Outcome> {
        match &prepared.parsed {
            None => Ok(Outcome::Empty),
            Some(parsed) => self.execute_parsed(parsed, &prepared.param_types, params).await,
        }
    }

    /// Executes the statements of a simple query, one at each call of [`SimpleQuery::next`].
    ///
    /// # Errors
    /// The text is not SQL; nothing was executed.
    pub async fn run(self: &Arc<Self>, sql: &str) -> SqlResult<SimpleQuery> {
        let statements = match self.parse(sql).await {
            Ok(statements) => statements,
            Err(error) => {
                self.fail_transaction();
                return Err(error);
            }
        };
        Ok(SimpleQuery::new(Arc::clone(self), statements))
    }

    /// Appends rows to a stream or table; all of them, or none.
    ///
    /// # Errors
    /// The relation takes no rows, or a row is wrong; its number is in the context.
    pub async fn ingest(
        self: &Arc<Self>,
        relation: &str,
        format: IngestFormat,
        body: Bytes,
    ) -> SqlResult<u64> {
        let mut copy = self.begin_ingest(relation, format).await?;
        copy.push(&body).await?;
        Ok(copy.finish().await?.rows)
    }

    /// Begins what [`Self::ingest`] does, for a body that comes in pieces.
    ///
    /// # Errors
    /// The relation does not exist or takes no rows.
    pub async fn begin_ingest(self: &Arc<Self>, relation: &str, format: IngestFormat) -> SqlResult<CopyIn> {
        CopyIn::for_ingest(self, relation, format).await
    }

    /// The state of the transaction, as the wire shows it.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction.lock().status()
    }

    /// How to cancel what the session runs.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// What was said beside the answers since the last call.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock())
    }

    /// The settings that changed and of which the client is told; at first, all such settings.
    pub fn take_parameter_changes(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.parameter_changes.lock())
    }

    /// The value of a setting; `None`: there is no such setting.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.setting_shown(name).ok()
    }

    /// The value of a setting, be it the session's or the server's.
    ///
    /// # Errors
    /// There is no such setting.
    pub(crate) fn setting_shown(&self, name: &str) -> SqlResult<String> {
        if name.eq_ignore_ascii_case("transaction_read_only") {
            return Ok(if self.is_read_only() { "on" } else { "off" }.to_owned());
        }
        match self.database().tuning().get(&name.to_lowercase()) {
            Some(value) => Ok(value),
            None => self.settings.lock().get(name),
        }
    }

    /// Every setting, by name.
    pub(crate) fn settings_shown(&self) -> Vec<Shown> {
        let tuning = self.database().tuning();
        let mut all = self.scope_settings().all();
        for shown in &mut all {
            if let Some(of_server) = tuning.get(&shown.name) {
                shown.value = of_server;
            }
        }
        all
    }

    /// The settings, and what the transaction says of writing.
    fn scope_settings(&self) -> Settings {
        let mut settings = self.settings.lock().clone();
        if self.is_read_only() {
            settings.set_transaction_read_only();
        }
        settings
    }

    /// Who is at the other end.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// The session's number, unique in this process: what clients know as the process id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub fn began_at_ms(&self) -> i64 {
        self.began_at_ms
    }

    /// The database that the session is connected to.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// What the session is doing.
    pub fn activity(&self) -> Option<Activity> {
        self.activity.lock().clone()
    }

    /// What a read has to contain: every write that was acknowledged before it, whoever's it was.
    pub(crate) fn read_after(&self) -> Option<WriteToken> {
        let waits = self
            .settings
            .lock()
            .get("read_consistency")
            .is_ok_and(|value| value != "snapshot");
        waits.then(|| self.db.runtime().acknowledged())
    }

    /// Says something beside the answer, if the client wants to hear it.
    pub(crate) fn notice(&self, severity: Severity, message: impl Into<String>) {
        let least = match self.setting("client_min_messages").as_deref() {
            Some("error") => return,
            Some("warning") => Severity::Warning,
            Some("notice") => Severity::Notice,
            Some("log") => Severity::Log,
            _ => Severity::Debug,
        };
        if severity >= least || severity == Severity::Info {
            let code = if severity == Severity::Warning {
                SqlState::Warning
            } else {
                SqlState::SuccessfulCompletion
            };
            self.notices.lock().push(Notice {
                severity,
                code,
                message: message.into(),
            });
        }
    }

    /// What names mean now.
    pub(crate) fn scope(&self) -> Scope {
        let zone = self.other_zone();
        let settings = self.scope_settings();
        Scope {
            catalog: self.db.catalog(),
            database: self.info.database.clone(),
            search_path: settings.search_path(&self.info.user),
            zone,
            settings,
        }
    }

    /// The schema in which new objects are made: the first of the search path that exists.
    pub(crate) fn creation_schema(&self, scope: &Scope) -> SqlResult<String> {
        scope
            .search_path
            .iter()
            .find(|schema| scope.catalog.schema(&scope.database, schema).is_some())
            .cloned()
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::InvalidSchemaName,
                    "no schema has been selected to create in",
                )
                .with_hint("Name a schema, or set search_path to one that exists.")
            })
    }

    /// Sets something for the session, or only for the transaction. What is set in a transaction goes with it, if it does.
    ///
    /// # Errors
    /// There is no such setting, it cannot be changed, or not to this value.
    pub(crate) fn set_setting(&self, name: &str, value: &str, is_local: bool) -> SqlResult<()> {
        let mut changed = None;
        self.change_settings(is_local, |settings| {
            changed = Some(settings.set(name, value)?);
            Ok(())
        })?;
        let Some(changed) = changed else {
            return Ok(());
        };
        self.report(changed.reported);
        if let Some(name) = changed.without_effect {
            self.notice(
                Severity::Notice,
                format!("setting \"{name}\" has no effect in millrace"),
            );
        }
        Ok(())
    }

    /// Changes settings so that the end of the transaction, if one is open, finds what was before.
    ///
    /// # Errors
    /// The change's own; nothing was changed then.
    pub(crate) fn change_settings(
        &self,
        is_local: bool,
        mut change: impl FnMut(&mut Settings) -> SqlResult<()>,
    ) -> SqlResult<()> {
        let mut transaction = self.transaction.lock();
        let mut settings = self.settings.lock();
        let before = settings.clone();
        change(&mut settings)?;
        match &mut *transaction {
            Transaction::Active(active) => {
                if is_local {
                    active.settings_after.get_or_insert_with(|| before.clone());
                } else if let Some(after) = &mut active.settings_after {
                    change(after)?;
                }
                active.settings_before.get_or_insert(before);
            }
            // There is no transaction that it could be for.
            _ if is_local => *settings = before,
            _ => {}
        }
        Ok(())
    }

    /// Puts back settings at the end of a transaction, and tells the client of those that it follows.
    fn put_settings(&self, settings: Settings) {
        let reported = {
            let mut now = self.settings.lock();
            let before = now.reported();
            *now = settings;
            let mut reported = now.reported();
            reported.retain(|setting| !before.contains(setting));
            reported
        };
        self.parameter_changes.lock().extend(reported);
    }

    /// Whether changes wait for COMMIT.
    pub(crate) fn transaction_is_open(&self) -> bool {
        matches!(&*self.transaction.lock(), Transaction::Active(_))
    }

    fn report(&self, name: Option<&'static str>) {
        if let Some(name) = name {
            let value = self.setting(name).unwrap_or_default();
            self.parameter_changes.lock().push((name.to_string(), value));
        }
    }

    fn check_not_failed(&self, statement: &Statement) -> SqlResult<()> {
        let failed = matches!(*self.transaction.lock(), Transaction::Failed { implicit: false });
        if failed && !statement::ends_transaction(statement) {
            return Err(transaction::failed());
        }
        Ok(())
    }

    /// The transaction around the statement, if there is one, has failed.
    pub(crate) fn fail_transaction(&self) {
        let settings = self.transaction.lock().fail();
        if let Some(settings) = settings {
            self.put_settings(settings);
        }
        // Cursors that are not held end with the transaction; they could not be read any more.
        self.cursors.lock().retain(|_, cursor| cursor.hold);
    }

    /// The statement under way runs for as long as what is returned is held.
    pub(crate) fn runs_for(&self) -> Arc<()> {
        let rows = Arc::new(());
        if let Some(activity) = self.activity.lock().as_mut() {
            activity.rows = Arc::downgrade(&rows);
        }
        rows
    }

    pub(crate) async fn execute_parsed(
        self: &Arc<Self>,
        parsed: &Arc<Parsed>,
        param_types: &[Type],
        params: Vec<ScalarValue>,
    ) -> SqlResult<Outcome> {
        if self.db.is_closing() {
            return Err(SqlError::new(
                SqlState::AdminShutdown,
                "the server is shutting down",
            ));
        }
        self.check_not_failed(&parsed.statement)?;
        let running = self.begin_statement();
        let done = if light::is_light(self, parsed, &params) {
            let work = self.execute_within(parsed, param_types, &params, running.clone());
            self.run_here(&running, work).await
        } else {
            let (session, parsed, its_own) = (Arc::clone(self), Arc::clone(parsed), running.clone());
            let param_types = param_types.to_vec();
            let work = async move {
                session
                    .execute_within(&parsed, &param_types, &params, its_own)
                    .await
            };
            self.run_statement(&running, work).await
        };
        done.map_err(|error| {
            self.fail_transaction();
            position::locate(error, parsed)
        })
    }

    /// Executes a statement as a part of one that runs: it ends with it, and there is one point from which both are seen through.
    pub(crate) async fn execute_within(
        self: &Arc<Self>,
        parsed: &Parsed,
        param_types: &[Type],
        params: &[ScalarValue],
        running: Running,
    ) -> SqlResult<Outcome> {
        *self.activity.lock() = Some(Activity {
            statement: parsed.text.clone(),
            started_at_ms: now_ms(),
            running: true,
            rows: Weak::new(),
        });
        let mut statement = parsed.statement.clone();
        parameters::substitute(&mut statement, param_types, params)?;
        statement::execute(self, statement, parsed, running).await
    }
}

/// The session's statement, for as long as anything of it runs.
struct Current {
    session: Arc<Session>,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

impl Drop for Current {
    fn drop(&mut self) {
        *self.session.running.lock() = None;
        *self.session.locking.lock() = None;
        if let Some(activity) = self.session.activity.lock().as_mut() {
            activity.running = false;
        }
    }
}

impl Session {
    /// Begins a statement: it may run for as long as the settings say.
    pub(crate) fn begin_statement(&self) -> Running {
        let timeout = self.settings.lock().statement_timeout();
        self.cancel.begin(timeout)
    }

    /// Waits until nothing of the statement before runs any more. What then runs asks [`Session::running`] whether it still may.
    async fn current(self: &Arc<Self>, running: &Running) -> SqlResult<Current> {
        let turn = Arc::clone(&self.turn);
        let turn = running.run(async { Ok(turn.lock_owned().await) }).await?;
        *self.running.lock() = Some(running.clone());
        Ok(Current {
            session: Arc::clone(self),
            _turn: turn,
        })
    }

    /// Runs a statement, or a part of one, on the runtime's scheduler for statements. If it is ended from outside, the answer does
    /// not wait for the computation that it is in; the session's next statement does.
    ///
    /// # Errors
    /// Its own; it was ended.
    pub(crate) async fn run_statement<T: Send + 'static>(
        self: &Arc<Self>,
        running: &Running,
        work: impl Future<Output = SqlResult<T>> + Send + 'static,
    ) -> SqlResult<T> {
        let current = self.current(running).await?;
        let task = self.db.runtime().run_statement(async move {
            let _current = current;
            work.await
        });
        running
            .run(async { task.await.map_err(from_internal::runtime)? })
            .await
    }

    /// Runs what prepares a statement, such as decoding its values, as [`Session::run_statement`] does.
    ///
    /// # Errors
    /// Its own; it was ended.
    pub(crate) async fn compute<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        let running = self.begin_statement();
        self.run_statement(&running, async move { work() }).await
    }

    /// Runs a part of a statement where the caller is: it must do little besides waiting.
    ///
    /// # Errors
    /// Its own; it was ended.
    pub(crate) async fn run_here<T>(
        self: &Arc<Self>,
        running: &Running,
        work: impl Future<Output = SqlResult<T>>,
    ) -> SqlResult<T> {
        let _current = self.current(running).await?;
        running.run(work).await
    }

    /// How long the session may do nothing in the state that it is in, and what it is told when it did.
    pub(crate) fn idle_timeout(&self) -> Option<(std::time::Duration, SqlError)> {
        let is_idle = self.transaction_status() == TransactionStatus::Idle;
        let (name, code, what) = match is_idle {
            true => (
                "idle_session_timeout",
                SqlState::IdleSessionTimeout,
                "idle-session",
            ),
            false => (
                "idle_in_transaction_session_timeout",
                SqlState::IdleInTransactionSessionTimeout,
                "idle-in-transaction",
            ),
        };
        let timeout = self.settings.lock().timeout(name)?;
        let message = format!("terminating connection due to {what} timeout");
        Some((timeout, SqlError::new(code, message)))
    }

    /// Whether the transaction, or the statement that is one by itself, may change nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        if let Transaction::Active(active) = &*self.transaction.lock() {
            return active.read_only;
        }
        self.setting("default_transaction_read_only").as_deref() == Some("on")
    }

    /// The statement that runs.
    pub(crate) fn running(&self) -> Running {
        let running = self.running.lock().clone();
        running.unwrap_or_else(|| self.cancel.begin(None))
    }

    /// Tables whose locks the session has or waits for, by their numbers.
    pub(crate) fn locks(&self) -> Vec<Locking> {
        let mut locks: Vec<Locking> = match &*self.transaction.lock() {
            Transaction::Active(active) => active.locked.iter().map(|id| Locking::held(*id)).collect(),
            _ => vec![],
        };
        let now = *self.locking.lock();
        locks.extend(now.filter(|now| !locks.iter().any(|held| held.relation == now.relation)));
        locks
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.db.unregister(self.id);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Scope {
    /// A reader of the catalog under this scope.
    pub fn reader<'a>(&'a self, db: &'a Database) -> Reader<'a> {
        Reader::new(db, db.state(), &self.catalog, &self.database, &self.search_path)
            .with_settings(&self.settings)
    }
}
