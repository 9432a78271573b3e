//! `POST /api/sql` and `GET /api/sql?query=`: statements in, results out.
//!
//! The status is decided by the first result: its error, or that of its first rows, is the answer. From then on it is
//! 200, and what goes wrong is said in the body (see [`super::results`]). Rows are sent as they come; a client that
//! reads slowly slows its query, and one that goes away ends it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use axum::body::Body;
use axum::extract::Query as UrlQuery;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast as sqlparser;
use futures::{StreamExt, stream};
use millrace_database::sessions::SessionStatus;
use millrace_parser::ast::Statement;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::types::parameter;
use millrace_session::effects::{self, acting_function};
use millrace_session::{CommandTag, Outcome, Session, SimpleQuery};
use serde::Deserialize;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::guard::Entered;
use super::negotiate::{ResultFormat, media_type};
use super::queries::RunningQuery;
use super::request::{JsonValues, Part, SqlRequest, Whole, parameter_text};
use super::results::{Completion, ResultWriter};
use super::{State, error};
use crate::metrics::StatementKind;

/// The header that names a statement: chosen by the client, else by the server.
pub(super) const QUERY_ID: HeaderName = HeaderName::from_static("x-query-id");
/// How many pieces of an answer wait for the client; a piece is at most about [`PIECE_BYTES`].
const PIECES_MAX: usize = 4;
/// How much is put together before it is sent.
const PIECE_BYTES: usize = 64 * 1024;

/// `GET`: one text, which may only read.
#[derive(Debug, Deserialize)]
pub struct GetParameters {
    query: String,
}

/// Runs what the body says.
pub async fn post(Entered(state): Entered, headers: HeaderMap, Whole(body): Whole) -> Response {
    let request = match media_type(&headers, header::CONTENT_TYPE).as_str() {
        "application/json" => SqlRequest::from_json(&body),
        "text/plain" | "application/sql" => match String::from_utf8(body.into()) {
            Ok(sql) => Ok(SqlRequest::text(sql)),
            Err(_) => Err(SqlError::new(
                SqlState::CharacterNotInRepertoire,
                "the body is not UTF-8",
            )),
        },
        other => {
            let message = format!("Content-Type must be application/json or text/plain, not \"{other}\"");
            return error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
        }
    };
    match request {
        Ok(request) => run(state, &headers, request).await,
        Err(refusal) => error::response(&refusal),
    }
}

/// Runs the `query` of the URL in a read-only session.
pub async fn get(
    Entered(state): Entered,
    headers: HeaderMap,
    parameters: Result<UrlQuery<GetParameters>, QueryRejection>,
) -> Response {
    match parameters {
        Ok(UrlQuery(parameters)) => {
            let mut request = SqlRequest::text(parameters.query);
            request.read_only = true;
            run(state, &headers, request).await
        }
        Err(rejection) => error::plain(rejection.status(), &rejection.body_text()),
    }
}

async fn run(state: State, headers: &HeaderMap, request: SqlRequest) -> Response {
    let Some(format) = ResultFormat::accepted(headers) else {
        let message = "Accept must allow application/json, application/x-ndjson, text/csv or \
                       application/vnd.apache.arrow.stream";
        return error::plain(StatusCode::NOT_ACCEPTABLE, message);
    };
    match start(state, headers, request, format).await {
        Ok(answer) => answer,
        Err(refusal) => error::response(&refusal),
    }
}

/// Runs up to the first rows; then the rest runs on while the answer is being sent.
async fn start(
    state: State,
    headers: &HeaderMap,
    request: SqlRequest,
    format: ResultFormat,
) -> SqlResult<Response> {
    check_lengths(&request, state.statement_bytes_max)?;
    if request.json == JsonValues::Text && format != ResultFormat::Json {
        return Err(
            SqlError::unsupported("\"json\": \"text\" is supported only where the answer is JSON")
                .with_hint("Send it with Accept: application/json, or leave it out."),
        );
    }
    let session = state.session(request.settings.clone())?;
    if request.read_only {
        begin_read_only(&session, &request).await?;
    }
    let running = register(&state, headers, &session)?;
    let id = HeaderValue::from_str(running.id()).map_err(|_| malformed_id())?;
    let json = request.json;

    let statements = Statements {
        session,
        parts: request.parts.into(),
        text: None,
    };
    let mut execution = Execution {
        statements,
        state,
        _running: running,
    };
    let mut writer = ResultWriter::new(format).with_json(json);
    let first = match execution.next_result().await {
        Ok(first) => first,
        // A client that reads JSON finds every statement's error at the same place.
        Err(error) if format == ResultFormat::Json => {
            writer.error(&error);
            writer.end();
            let content_type = HeaderValue::from_static(format.media_type());
            let headers = [(header::CONTENT_TYPE, content_type), (QUERY_ID, id)];
            return Ok((error::status(&error), headers, writer.take()).into_response());
        }
        Err(error) => return Err(error),
    };
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        let sent = execution.send_all(first, &mut writer, &sender).await;
        if let Err(Broken::Incomplete(error)) = sent {
            // The format has no place for an error: an aborted body tells the client that the answer is incomplete.
            let _ = sender.send(Err(io::Error::other(error))).await;
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let content_type = HeaderValue::from_static(format.media_type());
    Ok((
        [(header::CONTENT_TYPE, content_type), (QUERY_ID, id)],
        Body::from_stream(pieces),
    )
        .into_response())
}

fn check_lengths(request: &SqlRequest, bytes_max: usize) -> SqlResult<()> {
    for sql in request.texts() {
        if sql.len() > bytes_max {
            let message = format!(
                "a statement of {} bytes exceeds the limit of {bytes_max} bytes",
                sql.len()
            );
            return Err(SqlError::new(SqlState::ProgramLimitExceeded, message)
                .with_hint("Load rows with /api/ingest, or raise statement_bytes_max."));
        }
    }
    Ok(())
}

/// A GET must not change anything: only statements that read are accepted, and they run in a read-only transaction,
/// which catches a write inside a query.
async fn begin_read_only(session: &Arc<Session>, request: &SqlRequest) -> SqlResult<()> {
    for sql in request.texts() {
        for parsed in session.parse(sql).await? {
            if !reads_only(&parsed.statement) {
                let message = "GET supports only SELECT, SHOW, DESCRIBE and EXPLAIN";
                return Err(SqlError::new(SqlState::ReadOnlySqlTransaction, message)
                    .with_hint("Send the statement to /api/sql with POST."));
            }
            if let Some(function) = acting_function(&parsed.statement) {
                return Err(effects::refused(&function));
            }
        }
    }
    // What views and functions of SQL call is seen when they are bound.
    session.only_reads();
    let mut begin = session.run("BEGIN READ ONLY").await?;
    while let Some(outcome) = begin.next().await {
        outcome?;
    }
    Ok(())
}

fn reads_only(statement: &Statement) -> bool {
    match statement {
        Statement::Sql(statement) => matches!(**statement, sqlparser::Statement::Query(_)),
        Statement::Show(_) | Statement::Describe(_) | Statement::Explain(_) => true,
        _ => false,
    }
}

pub(super) fn register(
    state: &State,
    headers: &HeaderMap,
    session: &Arc<Session>,
) -> SqlResult<RunningQuery> {
    let id = match headers.get(&QUERY_ID) {
        Some(id) => id.to_str().map_err(|_| malformed_id())?.to_owned(),
        None => Uuid::new_v4().to_string(),
    };
    state
        .queries
        .register(id, session.cancel_handle(), session.user())
        .ok_or_else(malformed_id)
}

fn malformed_id() -> SqlError {
    SqlError::new(
        SqlState::ObjectInUse,
        "X-Query-Id is malformed or belongs to a running statement",
    )
    .with_hint("Use up to 128 visible ASCII characters that no running statement uses, or omit it.")
}

/// A result whose first rows are there.
enum Ready {
    Rows {
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
        first: Option<arrow::array::RecordBatch>,
        tag: CommandTag,
    },
    Done {
        tag: CommandTag,
    },
}

/// Why an answer ended early.
enum Broken {
    /// The client went away.
    Gone,
    /// An error that the format cannot express.
    Incomplete(SqlError),
}

type Sender = mpsc::Sender<io::Result<Bytes>>;

/// A request that runs.
struct Execution {
    statements: Statements,
    state: State,
    _running: RunningQuery,
}

/// A result and when its statement began.
struct Answer {
    ready: Ready,
    started: Instant,
}

impl Execution {
    /// Tells of a statement that has ended.
    fn ended(&self, kind: StatementKind, succeeded: bool, duration: Duration) {
        (self.state.told).ended(&self.statements.session, kind, succeeded, duration);
    }

    /// The next result with its first rows; `None` after the last.
    async fn next_result(&mut self) -> SqlResult<Option<Answer>> {
        let started = Instant::now();
        let kind = self.statements.next_kind();
        let result = self.try_next_result(started).await;
        if result.is_err() {
            self.ended(kind, false, started.elapsed());
        }
        result
    }

    async fn try_next_result(&mut self, started: Instant) -> SqlResult<Option<Answer>> {
        loop {
            let Some(outcome) = self.statements.next().await else {
                return Ok(None);
            };
            let ready = match outcome? {
                Outcome::Rows {
                    schema,
                    mut stream,
                    tag,
                } => {
                    let first = stream
                        .next()
                        .await
                        .transpose()
                        .map_err(from_internal::datafusion)?;
                    Ready::Rows {
                        schema,
                        stream,
                        first,
                        tag,
                    }
                }
                Outcome::Done { tag } => Ready::Done { tag },
                Outcome::Empty => continue,
                Outcome::CopyIn(copy) => {
                    copy.fail("COPY FROM STDIN has no data over HTTP");
                    return Err(
                        SqlError::unsupported("COPY FROM STDIN is not available over HTTP")
                            .with_hint("Send the rows to /api/ingest/{stream} with POST."),
                    );
                }
                Outcome::CopyOut(_) => {
                    return Err(SqlError::unsupported("COPY TO STDOUT is not available over HTTP")
                        .with_hint("SELECT with \"Accept: text/csv\" gives the rows as CSV."));
                }
            };
            return Ok(Some(Answer { ready, started }));
        }
    }

    /// Sends this result and all that follow.
    async fn send_all(
        &mut self,
        first: Option<Answer>,
        writer: &mut ResultWriter,
        sender: &Sender,
    ) -> Result<(), Broken> {
        let mut next = Ok(first);
        loop {
            let sent = match next {
                Ok(Some(result)) => self.send_result(result, writer, sender).await?,
                Ok(None) => break,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                if !writer.error(&error) {
                    return Err(Broken::Incomplete(error));
                }
                break;
            }
            next = self.next_result().await;
        }
        writer.end();
        send(writer, sender).await
    }

    async fn send_result(
        &mut self,
        result: Answer,
        writer: &mut ResultWriter,
        sender: &Sender,
    ) -> Result<SqlResult<()>, Broken> {
        let (tag, rows) = match result.ready {
            Ready::Done { tag } => (tag, None),
            Ready::Rows {
                schema,
                stream,
                first,
                tag,
            } => {
                let batches = stream::iter(first.map(Ok)).chain(stream);
                match send_rows(&schema, batches, writer, sender).await? {
                    Ok(rows) => (tag, Some(rows)),
                    Err(error) => {
                        let kind = StatementKind::of_tag(&tag.command);
                        self.ended(kind, false, result.started.elapsed());
                        return Ok(Err(error));
                    }
                }
            }
        };
        let duration = result.started.elapsed();
        self.ended(StatementKind::of_tag(&tag.command), true, duration);
        let notices = self.statements.session.take_notices();
        let tag = tag.render(rows.unwrap_or(0));
        Ok(writer.complete(&Completion {
            tag: &tag,
            rows,
            notices: &notices,
            duration,
        }))
    }
}

async fn send_rows(
    schema: &SchemaRef,
    mut batches: impl StreamExt<Item = datafusion::error::Result<arrow::array::RecordBatch>> + Unpin,
    writer: &mut ResultWriter,
    sender: &Sender,
) -> Result<SqlResult<u64>, Broken> {
    if let Err(error) = writer.begin_rows(schema) {
        return Ok(Err(error));
    }
    let mut rows = 0;
    while let Some(batch) = batches.next().await {
        let is_last_for_now =
            batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0) && writer.pending_bytes() > 0;
        let written = batch.map_err(from_internal::datafusion).and_then(|batch| {
            rows += batch.num_rows() as u64;
            writer.batch(schema, &batch)
        });
        if let Err(error) = written {
            return Ok(Err(error));
        }
        if writer.pending_bytes() >= PIECE_BYTES || is_last_for_now {
            send(writer, sender).await?;
        }
    }
    Ok(Ok(rows))
}

async fn send(writer: &mut ResultWriter, sender: &Sender) -> Result<(), Broken> {
    sender.send(Ok(writer.take())).await.map_err(|_| Broken::Gone)
}

/// The statements of a request, one outcome after the other.
struct Statements {
    session: Arc<Session>,
    parts: VecDeque<Part>,
    text: Option<SimpleQuery>,
}

impl Statements {
    /// The kind of what comes next, as far as its first word tells.
    fn next_kind(&self) -> StatementKind {
        match (&self.text, self.parts.front()) {
            (None, Some(Part::Text(sql))) => StatementKind::of_sql(sql),
            (None, Some(Part::Statement(statement))) => StatementKind::of_sql(&statement.query),
            _ => StatementKind::Other,
        }
    }

    async fn next(&mut self) -> Option<SqlResult<Outcome>> {
        loop {
            if let Some(text) = &mut self.text {
                if let Some(outcome) = text.next().await {
                    return Some(outcome);
                }
                self.text = None;
            }
            match self.parts.pop_front()? {
                Part::Text(sql) => match self.session.run(&sql).await {
                    Ok(text) => self.text = Some(text),
                    Err(error) => return Some(Err(error)),
                },
                Part::Statement(statement) => return Some(self.execute(statement).await),
            }
        }
    }

    async fn execute(&mut self, statement: super::request::Query) -> SqlResult<Outcome> {
        let mut parsed = self.session.parse(&statement.query).await?;
        if parsed.len() > 1 {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "an entry of \"queries\" must be a single statement",
            ));
        }
        let prepared = self.session.prepare(parsed.pop(), &[]).await?;
        let (given, needed) = (statement.params.len(), prepared.param_types.len());
        if given != needed {
            let message = format!("the statement has {needed} parameters, but \"params\" has {given}");
            return Err(SqlError::new(SqlState::InvalidParameterValue, message));
        }
        let types = self.session.types_now(&prepared.param_types);
        let decode = move || {
            let values = statement.params.iter().zip(&types).enumerate();
            values
                .map(|(index, (value, pg_type))| {
                    let text = parameter_text(value, pg_type);
                    parameter::from_text(pg_type, text.as_deref())
                        .map_err(|error| error.with_context(format!("parameter ${}", index + 1)))
                })
                .collect::<SqlResult<Vec<_>>>()
        };
        let values = self.session.compute(decode).await?;
        self.session.execute(&prepared, values).await
    }
}
