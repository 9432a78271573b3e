//! What a client asks of its session: to parse, prepare and execute statements, and to take in rows.

use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::scalar::ScalarValue;
use millrace_catalog::connector::webhook::Webhook;
use millrace_database::clock::now_ms;
use millrace_database::database::subscriptions::Position;
use millrace_database::running::Running;
use millrace_database::sessions::Activity;
use millrace_parser::Parsed;
use millrace_parser::ast::{Statement, Subscribe};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Account, Charge, Holder, Use};
use millrace_schedule::cpu::QueryClass;
use postgres_types::Type;

use crate::copy_in::{self, CopyIn, IngestFormat};
use crate::look_up::shape_of;
use crate::outcome::Outcome;
use crate::prepared::{Prepared, bytes_of};
use crate::session::Session;
use crate::simple::SimpleQuery;
use crate::statement::insert::conflict;
use crate::statement::subscribe::Following;
use crate::transaction::{self, Transaction};
use crate::{counting, light, parameters, position, statement};

/// SQL text of so many bytes is parsed where the caller is; a longer one on the scheduler for statements.
const PARSED_AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// So much is charged without asking.
const SMALL_BYTES: usize = 64 << 10;

impl Session {
    /// Parses SQL text into its statements; an empty one is left out.
    ///
    /// # Errors
    /// The text is not SQL, there is no memory for what becomes of it, or parsing it was cancelled.
    pub async fn parse(self: &Arc<Self>, sql: &str) -> SqlResult<Vec<Parsed>> {
        if sql.len() <= PARSED_AT_ONCE_BYTES_MAX {
            return millrace_parser::parse(sql).map_err(from_internal::parse);
        }
        let (session, sql) = (Arc::clone(self), sql.to_owned());
        let running = self.begin_statement();
        let parse = async move {
            let _charge = session.keep_parsing(&sql)?;
            millrace_parser::parse(&sql).map_err(from_internal::parse)
        };
        self.run_statement(&running, self.planning_class(), parse).await
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
        let prepare = async move { session.make_prepared(parsed, &types) };
        let prepared = self.run_statement(&running, self.planning_class(), prepare).await;
        if prepared.is_err() {
            self.fail_transaction();
        }
        prepared
    }

    /// The same as a part of the statement that runs.
    pub(crate) fn make_prepared(
        &self,
        parsed: Option<Parsed>,
        types: &[Option<Type>],
    ) -> SqlResult<Arc<Prepared>> {
        let Some(parsed) = parsed else {
            return Ok(Arc::new(Prepared {
                parsed: None,
                param_types: vec![],
                said: String::new(),
                began_at_ms: now_ms(),
                columns: None,
                shape: None,
                _charge: None,
            }));
        };
        self.check_not_failed(&parsed.statement)?;
        let charge = self.keep(bytes_of(&parsed.text))?;
        let _planning = self.keep_planning(&parsed)?;
        let (param_types, columns) =
            parameters::describe(self, &parsed, types).map_err(|error| position::locate(error, &parsed))?;
        let shape = shape_of(&parsed);
        Ok(Arc::new(Prepared {
            parsed: Some(Arc::new(parsed)),
            param_types,
            said: String::new(),
            began_at_ms: now_ms(),
            columns,
            shape,
            _charge: Some(charge),
        }))
    }

    /// Charges what is kept for the client between statements, until what is returned is dropped. It leaves so much memory that
    /// writes need not wait: it would make them wait for as long as the client likes.
    ///
    /// What is small is charged without asking: where memory is short, somebody has to be able to say DROP or ALTER SYSTEM.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn keep(&self, bytes: usize) -> SqlResult<Charge> {
        let account = self.clients_account();
        if bytes > SMALL_BYTES && !self.database().runtime().memory().fits(bytes) {
            return Err(from_internal::resource(account.out_of_memory()));
        }
        Ok(account.charge(Use::Input, bytes))
    }

    /// The same of what is gone when the statement has ended.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn hold(&self, bytes: usize) -> SqlResult<Charge> {
        let account = self.clients_account();
        if bytes > SMALL_BYTES {
            account.room(bytes).map_err(from_internal::resource)?;
        }
        Ok(account.charge(Use::Input, bytes))
    }

    /// What clients' own data are charged to.
    pub(crate) fn clients_account(&self) -> Arc<Account> {
        let memory = self.database().runtime().memory();
        memory.account(Holder::Clients, "what clients send")
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
            Some(parsed) => {
                if prepared.shape.is_some()
                    && let Some(outcome) = self.look_up(prepared, params.clone(), &parsed.text).await?
                {
                    return Ok(outcome);
                }
                self.execute_parsed(parsed, &prepared.param_types, params).await
            }
        }
    }

    /// Executes the statements of a simple query, one at each call of [`SimpleQuery::next`].
    ///
    /// # Errors
    /// The text is not SQL; nothing was executed.
    pub async fn run(self: &Arc<Self>, sql: &str) -> SqlResult<SimpleQuery> {
        if let Some(outcome) = self.answer_known(sql).await? {
            return Ok(SimpleQuery::answered(Arc::clone(self), outcome));
        }
        let parsed = self.parse(sql).await;
        let parsed = parsed.and_then(|statements| Ok((self.keep_trees(&statements)?, statements)));
        match parsed {
            Ok((charge, statements)) => Ok(SimpleQuery::new(Arc::clone(self), statements, charge)),
            Err(error) => {
                self.fail_transaction();
                Err(error)
            }
        }
    }

    /// Begins to follow what a SUBSCRIBE names, for a wire that has a form of its own for changes. The second is its right to run.
    ///
    /// # Errors
    /// The relation does not exist, cannot be followed, or what is to be resumed is not known any more.
    pub async fn follow(
        self: &Arc<Self>,
        subscribe: Subscribe,
        parsed: &Parsed,
        resume: Option<Position>,
    ) -> SqlResult<(Following, Running)> {
        let running = self.begin_statement();
        *self.activity.lock() = Some(Activity::begun(subscribe.to_string()));
        let session = Arc::clone(self);
        let begin = async move { statement::subscribe::follow(&session, &subscribe, resume).await };
        let following = self
            .run_statement(&running, QueryClass::Interactive, begin)
            .await
            .map_err(|error| position::locate(error, parsed))?;
        Ok((following, running))
    }

    /// The columns of the rows of what a SUBSCRIBE names, without waiting for any.
    ///
    /// # Errors
    /// It does not exist, or cannot be followed.
    pub async fn followed_columns(
        self: &Arc<Self>,
        subscribe: &Subscribe,
        parsed: &Parsed,
    ) -> SqlResult<SchemaRef> {
        let running = self.begin_statement();
        let (session, subscribe) = (Arc::clone(self), subscribe.clone());
        let columns = async move { statement::subscribe::row_columns(&session, &subscribe) };
        let columns = self
            .run_statement(&running, QueryClass::Interactive, columns)
            .await;
        columns.map_err(|error| position::locate(error, parsed))
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
        CopyIn::for_ingest(self, relation, format, conflict::resolve_rows).await
    }

    /// How requests for a stream that takes rows by webhook are checked.
    ///
    /// # Errors
    /// There is no such stream.
    pub fn webhook(&self, stream: &str) -> SqlResult<Webhook> {
        copy_in::ingest::webhook_of(self, stream)
    }

    /// As [`Self::begin_ingest`], for a request to a webhook that was checked.
    ///
    /// # Errors
    /// There is no such stream.
    pub fn begin_webhook(self: &Arc<Self>, stream: &str, format: IngestFormat) -> SqlResult<CopyIn> {
        CopyIn::for_webhook(self, stream, format, conflict::resolve_rows)
    }

    pub(crate) fn check_not_failed(&self, statement: &Statement) -> SqlResult<()> {
        let failed = matches!(
            *self.transaction.lock(),
            Transaction::Failed { implicit: false, .. }
        );
        if failed && !statement::ends_transaction(statement) {
            return Err(transaction::failed());
        }
        Ok(())
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
        let (running, started) = (self.begin_statement(), Instant::now());
        let done = if light::is_light(self, parsed, &params) {
            let work = self.execute_within(parsed, param_types, &params, running.clone());
            self.run_here(&running, work).await
        } else {
            let (session, statement, its_own) = (Arc::clone(self), Arc::clone(parsed), running.clone());
            let param_types = param_types.to_vec();
            let work = async move {
                session
                    .execute_within(&statement, &param_types, &params, its_own)
                    .await
            };
            let class = match statement::is_query(&parsed.statement) {
                true => self.planning_class(),
                false => QueryClass::Interactive,
            };
            self.run_statement(&running, class, work).await
        };
        let outcome = done.map_err(|error| {
            self.fail_transaction();
            position::locate(error, parsed)
        })?;
        Ok(counting::counted(self, outcome, started))
    }

    /// Executes a statement as a part of one that runs: it ends with it, and there is one point from which both are seen through.
    pub(crate) async fn execute_within(
        self: &Arc<Self>,
        parsed: &Parsed,
        param_types: &[Type],
        params: &[ScalarValue],
        running: Running,
    ) -> SqlResult<Outcome> {
        *self.activity.lock() = Some(Activity::begun(parsed.statement.shown(&parsed.text)));
        let _planning = self.keep_planning(parsed)?;
        let mut statement = parsed.statement.clone();
        parameters::substitute(&mut statement, &self.types_now(param_types), params)?;
        statement::execute(self, statement, parsed, running).await
    }
}
