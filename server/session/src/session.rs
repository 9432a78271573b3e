//! What one client has: its settings, transaction, prepared statements and cursors, and the right of one statement at a time to run.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use millrace_catalog::CatalogSnapshot;
use millrace_catalog::scope::Scope;
use millrace_catalog::settings::{self, Identity, Settings, Shown};
use millrace_catalog::temporary::{OWN_SCHEMA, schema_of};
use millrace_database::Database;
use millrace_database::clock::now_ms;
use millrace_database::database::definitions::Definitions;
use millrace_database::running::{CancelHandle, Running};
use millrace_database::sessions::news::Inbox;
use millrace_database::sessions::{Activity, Locking, SessionInfo, SessionStatus, TransactionStatus};
use millrace_engine::WriteToken;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::cursor::Cursor;
use crate::identity;
use crate::known::KnownStatements;
use crate::notice::{Notice, Severity};
use crate::prepared::Prepared;
use crate::transaction::Transaction;

/// One client's conversation.
pub struct Session {
    pub(crate) id: i32,
    pub(crate) db: Arc<Database>,
    pub(crate) info: SessionInfo,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) transaction: Mutex<Transaction>,
    pub(crate) prepared: Mutex<BTreeMap<String, Arc<Prepared>>>,
    /// Statements that the client has sent before.
    pub(crate) known: Mutex<KnownStatements>,
    pub(crate) cursors: Mutex<BTreeMap<String, Cursor>>,
    pub(crate) notices: Mutex<Vec<Notice>>,
    pub(crate) parameter_changes: Mutex<Vec<(String, String)>>,
    pub(crate) cancel: CancelHandle,
    /// The statement that runs.
    pub(crate) running: Mutex<Option<Running>>,
    /// Held by the statement that runs, also by one that was ended and is still in a computation that cannot be broken off: what
    /// comes next waits for it.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The table whose lock that statement has, or waits for.
    pub(crate) locking: Mutex<Option<Locking>>,
    pub(crate) activity: Mutex<Option<Activity>>,
    /// What others tell it.
    pub(crate) inbox: Arc<Inbox>,
    /// In milliseconds since 1970-01-01 UTC.
    pub(crate) began_at_ms: i64,
    /// Who logged in.
    pub(crate) user: ObjectId,
    /// What it has written.
    pub(crate) written: Mutex<WriteToken>,
    /// Statements that were written down.
    statements: AtomicU64,
    /// Whether queries may call no function that does more than read.
    pub(crate) only_reads: AtomicBool,
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
        let user = identity::login(&db, &mut info)?;
        let role = user.role().cloned().unwrap_or_default();
        let mut settings = Settings::new(&info.user);
        settings.identify(Identity::of(user.id), &info.user, None, role.superuser);
        let database = db.catalog().database(&info.database).map(|database| database.id);
        let said = database.map(|database| db.catalog().settings_of(user.id, database));
        for (name, value) in said.iter().flatten() {
            // What was allowed when it was said may not be there any more; nobody is kept out by that.
            if let Err(error) = identity::start_with(&db, &mut settings, name, value) {
                tracing::warn!(role = info.user, setting = name, %error, "a setting of a role is passed over");
            }
        }
        if !info.application.is_empty() {
            settings.set("application_name", &info.application)?;
        }
        for (name, value) in &info.options {
            if name == "options" {
                for (name, value) in settings::command_line(value)? {
                    identity::start_with(&db, &mut settings, &name, &value)?;
                }
            } else {
                identity::start_with(&db, &mut settings, name, value)?;
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
            known: Mutex::default(),
            cursors: Mutex::default(),
            notices: Mutex::default(),
            cancel: CancelHandle::default(),
            running: Mutex::default(),
            turn: Arc::default(),
            locking: Mutex::default(),
            activity: Mutex::default(),
            inbox: Arc::default(),
            began_at_ms: now_ms(),
            user: user.id,
            written: Mutex::default(),
            statements: AtomicU64::new(0),
            only_reads: AtomicBool::new(false),
        });
        let status: Weak<dyn SessionStatus> = Arc::downgrade(&session) as _;
        db.register(id, status);
        Ok(session)
    }

    /// The state of the transaction, as the wire shows it.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction.lock().status()
    }

    /// The columns of a cursor that DECLARE opened: to the protocol it is a portal like any other.
    pub fn cursor_columns(&self, name: &str) -> Option<SchemaRef> {
        let cursors = self.cursors.lock();
        cursors.get(name).map(|cursor| Arc::clone(&cursor.schema))
    }

    /// What others tell it on the channels on which it listens. The client is told between transactions.
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
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
    pub(crate) fn scope_settings(&self) -> Settings {
        let mut settings = self.settings.lock().clone();
        if self.is_read_only() {
            settings.set_transaction_read_only();
        }
        settings
    }

    /// The statement that runs, or ran last, as others may see it.
    pub fn statement_shown(&self) -> String {
        let activity = self.activity.lock();
        activity
            .as_ref()
            .map(|activity| activity.statement.clone())
            .unwrap_or_default()
    }

    /// A number for a statement that is written down, unique in the session.
    pub(crate) fn next_statement_id(&self) -> u64 {
        self.statements.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From now on queries call no function that does more than read.
    pub fn only_reads(&self) {
        self.only_reads.store(true, Ordering::Relaxed);
    }

    /// Who is at the other end.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// The session's number, unique in this process: what clients know as the process id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The database that the session is connected to.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// What a read of these relations has to contain: every write that was acknowledged before it, whoever's it was; where they are views
    /// with a target for their freshness, this session's.
    pub(crate) fn read_after(&self, relations: &[RelationId]) -> Option<WriteToken> {
        let waits = self
            .settings
            .lock()
            .get("read_consistency")
            .is_ok_and(|value| value != "snapshot");
        waits.then(|| self.db.runtime().to_be_read(relations, &self.written.lock()))
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

    /// The catalog, with what the open transaction has defined.
    pub(crate) fn catalog(&self) -> Arc<CatalogSnapshot> {
        match self.definitions() {
            Some(definitions) => definitions.catalog(),
            None => self.db.catalog(),
        }
    }

    /// What the open transaction has defined.
    pub(crate) fn definitions(&self) -> Option<Arc<Definitions>> {
        self.transaction.lock().active()?.definitions.clone()
    }

    /// What names mean now.
    pub fn scope(&self) -> Scope {
        let zone = self.other_zone();
        let settings = self.scope_settings();
        let catalog = self.catalog();
        let identity = settings.identity();
        let acting = identity::acting(&self.db, &catalog, self.user, identity);
        let mut search_path = settings.search_path(&catalog.role_name(identity.current_user()));
        // Temporary tables hide others, unless they are named as a schema in some other place.
        let temporary = schema_of(self.id);
        match search_path.iter_mut().find(|schema| *schema == OWN_SCHEMA) {
            Some(place) => *place = temporary,
            None => search_path.insert(0, temporary),
        }
        let mut scope = Scope {
            search_path,
            catalog,
            database: self.info.database.clone(),
            zone,
            acting,
            session: Some(self.id),
            target: None,
            settings,
            given: BTreeMap::new(),
            before: BTreeMap::new(),
        };
        if acting.is_checked {
            // A schema into which one may not look is passed over, as in PostgreSQL.
            let mut path = std::mem::take(&mut scope.search_path);
            path.retain(|schema| scope.check_schema(schema).is_ok());
            scope.search_path = path;
        }
        scope
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
        if settings::IDENTITY.contains(&name.to_lowercase().as_str()) {
            return self.set_identity(&name.to_lowercase(), Some(value), is_local);
        }
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

    /// Changes one of the settings that say who the session is; `None`: to what it was at the start.
    ///
    /// # Errors
    /// There is no such role, or the session may not act as it.
    pub(crate) fn set_identity(&self, name: &str, value: Option<&str>, is_local: bool) -> SqlResult<()> {
        let (catalog, before) = (self.catalog(), self.settings.lock().reported());
        self.change_settings(is_local, |settings| {
            identity::change(&catalog, settings, name, value, Some(self.user))
        })?;
        let mut now = self.settings.lock().reported();
        now.retain(|setting| !before.contains(setting));
        self.parameter_changes.lock().extend(now);
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
    pub(crate) fn put_settings(&self, settings: Settings) {
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

    pub fn report(&self, name: Option<&'static str>) {
        if let Some(name) = name {
            let value = self.setting(name).unwrap_or_default();
            self.parameter_changes.lock().push((name.to_string(), value));
        }
    }

    /// The transaction around the statement, if there is one, has failed. A wire says so of what was wrong before it was executed.
    pub fn fail_transaction(&self) {
        let settings = self.transaction.lock().fail();
        if let Some(settings) = settings {
            self.put_settings(settings);
        }
        // Cursors that are not held end with the transaction; they could not be read any more. A savepoint keeps those before it.
        if self.transaction.lock().known().is_none() {
            self.cursors.lock().retain(|_, cursor| cursor.hold);
        }
    }

    /// The statement under way runs for as long as what is returned is held.
    pub(crate) fn runs_for(&self) -> Arc<()> {
        let mut activity = self.activity.lock();
        activity.as_mut().map(Activity::runs_for).unwrap_or_default()
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
            activity.executed();
        }
    }
}

impl Session {
    /// Begins a statement: it may run for as long as the settings say.
    pub(crate) fn begin_statement(&self) -> Running {
        let timeout = self.settings.lock().statement_timeout();
        self.cancel.begin(self.limits().timeout(timeout))
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
    /// `class`: what may hold others up, such as a commit, is to be interactive, whatever the session's queries are.
    ///
    /// # Errors
    /// Its own; it was ended.
    pub(crate) async fn run_statement<T: Send + 'static>(
        self: &Arc<Self>,
        running: &Running,
        class: QueryClass,
        work: impl Future<Output = SqlResult<T>> + Send + 'static,
    ) -> SqlResult<T> {
        let current = self.current(running).await?;
        let task = (self.db.runtime()).run_statement(class, self.tenant(), async move {
            let _current = current;
            work.await
        });
        running
            .run(async { task.await.map_err(from_internal::runtime)? })
            .await
    }

    /// Runs what prepares a statement, such as decoding its values, as `Session::run_statement` does.
    ///
    /// # Errors
    /// Its own; it was ended.
    pub async fn compute<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        let running = self.begin_statement();
        self.run_statement(&running, self.planning_class(), async move { work() })
            .await
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
    pub fn idle_timeout(&self) -> Option<(std::time::Duration, SqlError)> {
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
    pub fn running(&self) -> Running {
        let running = self.running.lock().clone();
        running.unwrap_or_else(|| self.cancel.begin(None))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.db.unregister(self.id);
        self.db.forget_temporary(self.id);
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
