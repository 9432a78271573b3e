//! `POST /api/ingest/{stream}`: rows as NDJSON, a JSON array or CSV. The answer says that they are durable.
//!
//! A request is all or nothing: if a row is malformed the answer names its number and no row of the request is kept. What the
//! stream does not take, because it is late or too far ahead of the clock, is counted as rejected, and the first such rows are named.
//! `?wait=applied` answers only when every view shows the rows. With `Idempotency-Key` a request that is sent again gets
//! the first answer, and its rows are not taken twice; with another body it is refused.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query as UrlQuery};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use millrace_database::ingest_keys::{Answered, Begin, BodyHash, IngestKey, KEY_BYTES_MAX};
use millrace_database::running::CancelHandle;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_session::Session;
use millrace_session::copy_in::IngestFormat;
use serde::Deserialize;
use serde_json::json;

use super::guard::Entered;
use super::negotiate::media_type;
use super::{State, error};

/// The header with the key of a request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// How long a request waits for space, before it is told to come again.
const WRITE_TIMEOUT: &str = "1s";

/// What the URL may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Whether CSV begins with the names of its columns.
    #[serde(default = "yes")]
    header: bool,
    /// When to answer.
    #[serde(default)]
    wait: Wait,
}

fn yes() -> bool {
    true
}

/// When to answer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// When the rows are on disk.
    #[default]
    Durable,
    /// When the rows are in every view.
    Applied,
}

/// Takes rows into a stream or table.
pub async fn post(
    Entered(state): Entered,
    Path(relation): Path<String>,
    parameters: Result<UrlQuery<Parameters>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parameters = match parameters {
        Ok(UrlQuery(parameters)) => parameters,
        Err(rejection) => return error::plain(rejection.status(), &rejection.body_text()),
    };
    let key = match headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=KEY_BYTES_MAX).contains(&key.len()) => Some(key.to_owned()),
        Some(_) => {
            let message = format!("Idempotency-Key must be 1 to {KEY_BYTES_MAX} visible ASCII characters");
            return error::plain(StatusCode::BAD_REQUEST, &message);
        }
    };
    let content_type = media_type(&headers, header::CONTENT_TYPE);
    let Some(format) = ingest_format(&content_type, parameters.header) else {
        let message = format!(
            "Content-Type must be application/x-ndjson, application/json or text/csv, not \"{content_type}\""
        );
        return error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
    };
    let request = Request {
        state,
        relation,
        format,
        wait: parameters.wait,
        key,
        door: Door::Ingest,
    };
    answer(request, body).await
}

/// A session for a request that writes: the client holds its rows better than a connection does.
pub(super) fn session(state: &State) -> SqlResult<Arc<Session>> {
    state.session(vec![("write_timeout".to_owned(), WRITE_TIMEOUT.to_owned())])
}

/// Takes the rows of a request, and says what became of them.
pub(super) async fn answer(request: Request, body: Body) -> Response {
    let body_bytes_max = request.state.body_bytes_max;
    let session = match session(&request.state) {
        Ok(session) => session,
        Err(error) => return error::response(&error),
    };
    // A task of its own: whether the rows were written must be known also if the client does not wait for it. One that
    // goes away before they are submitted takes them along.
    let _gone = EndedWithClient(session.cancel_handle());
    let outcome = match tokio::spawn(take_in(request, session, body)).await {
        Ok(outcome) => outcome,
        Err(error) => Err(SqlError::internal(format!("an ingest ended early: {error}")).into()),
    };
    match outcome {
        Ok(answered) => Json(body_of(&answered)).into_response(),
        Err(Failure::Busy) => error::plain(
            StatusCode::CONFLICT,
            "a request with this Idempotency-Key is in progress; try again later",
        ),
        Err(Failure::Differs) => error::plain(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this Idempotency-Key was used before with a different body; nothing was written: use a new key \
             for a new request",
        ),
        Err(Failure::Sql(error)) if error.code == SqlState::OutOfMemory => error::try_again(&error),
        Err(Failure::Sql(error)) => error::response(&error),
        Err(Failure::TooLarge) => {
            let message = format!(
                "the body exceeds the limit of {} bytes; nothing was stored; send smaller pieces or raise \
                 http_body_bytes_max",
                body_bytes_max
            );
            error::plain(StatusCode::PAYLOAD_TOO_LARGE, &message)
        }
        Err(Failure::Broken(reason)) => error::plain(StatusCode::BAD_REQUEST, &reason),
    }
}

fn ingest_format(content_type: &str, csv_header: bool) -> Option<IngestFormat> {
    match content_type {
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Some(IngestFormat::NdJson),
        "application/json" => Some(IngestFormat::JsonArray),
        "text/csv" => Some(IngestFormat::Csv { header: csv_header }),
        _ => None,
    }
}

/// What is asked for.
pub(super) struct Request {
    pub state: State,
    pub relation: String,
    pub format: IngestFormat,
    pub wait: Wait,
    pub key: Option<String>,
    pub door: Door,
}

/// By which way rows come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Ingest,
    Webhook,
}

enum Failure {
    Sql(SqlError),
    /// A request of the same key is not answered yet.
    Busy,
    /// One of the same key had other bytes.
    Differs,
    TooLarge,
    Broken(String),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Sql(error)
    }
}

/// Ends a request whose client does not wait for it any more.
struct EndedWithClient(CancelHandle);

impl Drop for EndedWithClient {
    fn drop(&mut self) {
        self.0.terminate();
    }
}

/// What a request that was done is answered.
fn body_of(answered: &Answered) -> serde_json::Value {
    let mut body = json!({"rows": answered.rows, "rejected": answered.rejected});
    if !answered.rejections.is_empty() {
        body["rejections"] = json!(answered.rejections);
    }
    body
}

async fn take_in(request: Request, session: Arc<Session>, body: Body) -> Result<Answered, Failure> {
    let state = &request.state;
    let mut copy = match request.door {
        Door::Ingest => session.begin_ingest(&request.relation, request.format).await?,
        Door::Webhook => session.begin_webhook(&request.relation, request.format)?,
    };
    let mut running = None;
    let mut answered = None;
    if let Some(key) = request.key.and_then(|key| IngestKey::new(copy.relation(), &key)) {
        match session.database().ingest_keys().begin(&key) {
            Begin::Run(new) => running = Some(new),
            Begin::Done(before) => answered = Some(before),
            Begin::Busy => return Err(Failure::Busy),
        }
        copy.remember(key);
    }
    let mut pieces = body.into_data_stream();
    let mut received = 0;
    let mut hash = BodyHash::default();
    while let Some(piece) = pieces.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                copy.fail("the request was interrupted");
                return Err(Failure::Broken(format!(
                    "the request was interrupted; nothing was stored: {error}"
                )));
            }
        };
        received += piece.len();
        if received > state.body_bytes_max {
            copy.fail("the request is too large");
            return Err(Failure::TooLarge);
        }
        hash.push(&piece);
        if answered.is_none() {
            copy.push(&piece).await?;
        }
    }
    let body = Some(hash.get());
    if let Some(answered) = answered {
        if answered.body.is_some() && answered.body != body {
            return Err(Failure::Differs);
        }
        if request.wait == Wait::Applied {
            flush(&session).await?;
        }
        return Ok(answered);
    }
    copy.remember_body(hash.get());
    let copied = copy.finish().await?;
    let answered = Answered {
        rows: copied.rows - copied.rejected,
        rejected: copied.rejected,
        rejections: copied.rejections,
        body,
    };
    if let Some(running) = running {
        running.done(answered.clone());
    }
    state.told.metrics.ingested(answered.rows);
    if request.wait == Wait::Applied {
        flush(&session).await?;
    }
    Ok(answered)
}

/// Waits until everything that the session wrote is in every view.
async fn flush(session: &Arc<Session>) -> SqlResult<()> {
    let mut query = session.run("FLUSH").await?;
    while let Some(outcome) = query.next().await {
        outcome?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_chooses_the_decoder() {
        assert!(matches!(
            ingest_format("application/x-ndjson", true),
            Some(IngestFormat::NdJson)
        ));
        assert!(matches!(
            ingest_format("application/json", true),
            Some(IngestFormat::JsonArray)
        ));
        assert!(matches!(
            ingest_format("text/csv", false),
            Some(IngestFormat::Csv { header: false })
        ));
        assert!(ingest_format("", true).is_none());
    }
}
