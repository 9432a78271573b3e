//! The extended protocol: statements are parsed once, bound to values as portals, and executed in portions.
//!
//! A portal keeps its result stream between Execute messages, so that a client that asks for a hundred rows at a time
//! makes the query wait, not the server remember.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use millrace_database::sessions::TransactionStatus;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::memory::Charge;
use millrace_session::limits::check_limit;
use millrace_session::{CommandTag, Outcome, Prepared};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete, PortalSuspended,
    TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::EmptyQueryResponse;
use postgres_types::Type;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Failure};
use super::message::{self, Format, RowWriter};
use super::parameters::{self, Formats};
use super::simple::complete;
use super::wire::Closed;
use crate::metrics::StatementKind;

/// Values of so many bytes are decoded by the connection itself; more of them on the scheduler for statements.
const DECODED_AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// The values of a portal are charged to memory if they have more bytes.
const NOT_CHARGED_BYTES: usize = 1 << 10;

/// A statement that was parsed.
pub(super) struct Statement {
    prepared: Arc<Prepared>,
    kind: StatementKind,
}

/// A statement with its values, and how far its execution has come.
pub(super) struct Portal {
    statement: Arc<Statement>,
    parameters: Vec<ScalarValue>,
    formats: Formats,
    progress: Progress,
    /// What its values take.
    _charge: Option<Charge>,
}

enum Progress {
    Bound,
    Sending(Box<Rows>),
    Finished,
}

/// A result that is being sent.
struct Rows {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    tag: CommandTag,
    /// The batch of which some rows have been sent, and how many.
    batch: Option<(RecordBatch, usize)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        let name = parse.name.unwrap_or_default();
        self.check_statement_length(&parse.query)?;
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DuplicatePreparedStatement, message).into());
        }
        check_limit(self.statements.len(), "prepared statements")?;
        // Oid 0 and types that millrace does not know are left to be inferred.
        let types: Vec<Option<Type>> = parse.type_oids.iter().map(|oid| Type::from_oid(*oid)).collect();
        let prepared = self.session.prepare_text(&parse.query, &types).await?;
        let statement = Statement {
            prepared,
            kind: StatementKind::of_sql(&parse.query),
        };
        self.statements.insert(name, Arc::new(statement));
        self.put_notices()?;
        self.wire
            .put(&PgWireBackendMessage::ParseComplete(ParseComplete::new()))?;
        Ok(())
    }

    pub(super) async fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let name = bind.statement_name.unwrap_or_default();
        let statement = Arc::clone(self.statement(&name)?);
        let prepared = &statement.prepared;
        let portal_name = bind.portal_name.unwrap_or_default();
        if !portal_name.is_empty() && self.portals.contains_key(&portal_name) {
            let message = format!("cursor \"{portal_name}\" already exists");
            return Err(SqlError::new(SqlState::DuplicateCursor, message).into());
        }
        check_limit(self.portals.len(), "portals")?;
        let bytes: usize = bind.parameters.iter().flatten().map(bytes::Bytes::len).sum();
        let charge = match bytes > NOT_CHARGED_BYTES {
            true => Some(self.session.keep(bytes)?),
            false => None,
        };
        let decode = {
            let statement = Arc::clone(&statement);
            let (values, codes, name) = (bind.parameters, bind.parameter_format_codes, name.clone());
            let types = self.session.types_now(&statement.prepared.param_types);
            move || parameters::decode(&values, &codes, &types, &name)
        };
        let parameters = match bytes <= DECODED_AT_ONCE_BYTES_MAX {
            true => decode()?,
            false => self.session.compute(decode).await?,
        };
        let columns = prepared
            .columns
            .as_ref()
            .map_or(0, |schema| schema.fields().len());
        let formats = Formats::new(&bind.result_column_format_codes, columns, "result column")?;
        let portal = Portal {
            statement,
            parameters,
            formats,
            progress: Progress::Bound,
            _charge: charge,
        };
        self.portals.insert(portal_name, portal);
        self.wire
            .put(&PgWireBackendMessage::BindComplete(BindComplete::new()))?;
        Ok(())
    }

    pub(super) fn describe(&mut self, describe: &Describe) -> Result<(), Failure> {
        let name = describe.name.as_deref().unwrap_or_default();
        match describe.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let prepared = Arc::clone(&self.statement(name)?.prepared);
                let oids = prepared.param_types.iter().map(Type::oid).collect();
                self.wire.put(&PgWireBackendMessage::ParameterDescription(
                    ParameterDescription::new(oids),
                ))?;
                self.wire
                    .put(&describe_columns(prepared.columns.as_ref(), |_| Format::Text))?;
            }
            TARGET_TYPE_BYTE_PORTAL => {
                let description = match self.portals.get(name) {
                    Some(portal) => {
                        let columns = portal.statement.prepared.columns.as_ref();
                        describe_columns(columns, |index| portal.formats.of(index))
                    }
                    None => {
                        let columns = self.session.cursor_columns(name);
                        let columns = columns.ok_or_else(|| no_portal(name))?;
                        describe_columns(Some(&columns), |_| Format::Text)
                    }
                };
                self.wire.put(&description)?;
            }
            other => return Err(invalid_target("DESCRIBE", other).into()),
        }
        Ok(())
    }

    pub(super) fn close(&mut self, close: &Close) -> Result<(), Failure> {
        let name = close.name.as_deref().unwrap_or_default();
        match close.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                self.statements.remove(name);
            }
            TARGET_TYPE_BYTE_PORTAL => {
                self.portals.remove(name);
            }
            other => return Err(invalid_target("CLOSE", other).into()),
        }
        self.wire
            .put(&PgWireBackendMessage::CloseComplete(CloseComplete::new()))?;
        Ok(())
    }

    /// Ends the transaction of a pipeline. Portals live as long as theirs; without one, until the Sync.
    pub(super) async fn sync(&mut self) -> Result<(), Closed> {
        if let Err(error) = self.session.end_implicit().await {
            self.report(error)?;
        }
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.portals.clear();
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, execute: &Execute) -> Result<(), Failure> {
        let name = execute.name.as_deref().unwrap_or_default();
        // The portal is taken out while it runs; it comes back unless it failed.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let kind = portal.statement.kind;
        let started = Instant::now();
        let row_limit = u64::try_from(execute.max_rows).ok().filter(|rows| *rows > 0);
        let executed = self.execute_portal(&mut portal, row_limit).await;
        match &executed {
            Ok(()) => self.ended(kind, true, started.elapsed()),
            Err(Failure::Sql(_)) => self.ended(kind, false, started.elapsed()),
            Err(Failure::Closed(_)) => {}
        }
        executed?;
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    async fn execute_portal(&mut self, portal: &mut Portal, row_limit: Option<u64>) -> Result<(), Failure> {
        let tag = match portal.progress {
            Progress::Sending(_) => return self.send_portion(portal, row_limit).await,
            Progress::Finished => {
                let message = "portal cannot be run: its result has been sent";
                return Err(SqlError::new(SqlState::ObjectNotInPrerequisiteState, message).into());
            }
            Progress::Bound => {
                let parameters = std::mem::take(&mut portal.parameters);
                // Statements up to a Sync are one transaction; one alone commits by itself.
                if !self.wire.is_sync_next() {
                    self.session.begin_implicit(&portal.statement.prepared);
                }
                let outcome = self
                    .session
                    .execute(&portal.statement.prepared, parameters)
                    .await?;
                self.put_notices()?;
                portal.progress = Progress::Finished;
                match outcome {
                    Outcome::Rows { schema, stream, tag } => {
                        portal.progress = Progress::Sending(Box::new(Rows {
                            schema,
                            stream,
                            tag,
                            batch: None,
                        }));
                        return self.send_portion(portal, row_limit).await;
                    }
                    Outcome::Empty => {
                        self.wire.put(&PgWireBackendMessage::EmptyQueryResponse(
                            EmptyQueryResponse::new(),
                        ))?;
                        return Ok(());
                    }
                    Outcome::Done { tag } => tag,
                    Outcome::CopyIn(copy) => self.copy_in(*copy).await?,
                    Outcome::CopyOut(copy) => self.copy_out(copy).await?,
                }
            }
        };
        self.put_notices()?;
        self.wire.put(&complete(&tag, 0))?;
        Ok(())
    }

    /// Sends rows until there are no more or the client has as many as it asked for.
    async fn send_portion(&mut self, portal: &mut Portal, row_limit: Option<u64>) -> Result<(), Failure> {
        let Progress::Sending(rows) = &mut portal.progress else {
            return Ok(());
        };
        let formats = &portal.formats;
        let (mut sent, mut is_slow) = (0, false);
        loop {
            let (batch, first) = match rows.batch.take() {
                Some(current) => current,
                None => match self.next_piece(&mut rows.stream, is_slow).await? {
                    Some(batch) => (batch.map_err(from_internal::datafusion)?, 0),
                    None => {
                        self.put_notices()?;
                        self.wire.put(&complete(&rows.tag, sent))?;
                        portal.progress = Progress::Finished;
                        return Ok(());
                    }
                },
            };
            is_slow = batch.num_rows() == 0;
            let wanted = row_limit.map_or(usize::MAX, |limit| {
                usize::try_from(limit - sent).unwrap_or(usize::MAX)
            });
            let last = batch.num_rows().min(first.saturating_add(wanted));
            let writer = RowWriter::new(&batch, &rows.schema, |index| formats.of(index))?;
            for row in first..last {
                writer.put(row, self.wire.outgoing())?;
                self.wire.relieve().await?;
            }
            drop(writer);
            sent += (last - first) as u64;
            if last < batch.num_rows() {
                rows.batch = Some((batch, last));
            }
            if row_limit == Some(sent) {
                self.wire
                    .put(&PgWireBackendMessage::PortalSuspended(PortalSuspended::new()))?;
                return Ok(());
            }
        }
    }

    fn statement(&self, name: &str) -> SqlResult<&Arc<Statement>> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::InvalidSqlStatementName, message)
        })
    }
}

fn describe_columns(columns: Option<&SchemaRef>, format: impl Fn(usize) -> Format) -> PgWireBackendMessage {
    match columns {
        Some(schema) => message::row_description(schema, format),
        None => PgWireBackendMessage::NoData(NoData::new()),
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidCursorName,
        format!("portal \"{name}\" does not exist"),
    )
}

fn invalid_target(message: &str, target: u8) -> SqlError {
    SqlError::new(
        SqlState::ProtocolViolation,
        format!("invalid {message} message subtype {target}"),
    )
}
