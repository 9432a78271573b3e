//! `POST /api/ingest/{stream}`: rows as NDJSON, a JSON array or CSV. The answer says that they are durable.
//!
//! A request is all or nothing: if a row is malformed the answer names its number and no row of the request is kept.
//! `?wait=applied` answers only when every view shows the rows.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query as UrlQuery, State as Extracted};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;

use super::negotiate::media_type;
use super::{State, error};
use crate::copy::IngestFormat;
use crate::error::{SqlError, SqlResult};
use crate::session::Session;

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
    Extracted(state): Extracted<State>,
    Path(relation): Path<String>,
    parameters: Result<UrlQuery<Parameters>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let parameters = match parameters {
        Ok(UrlQuery(parameters)) => parameters,
        Err(rejection) => return error::plain(rejection.status(), &rejection.body_text()),
    };
    if headers.contains_key("idempotency-key") {
        return error::plain(
            StatusCode::NOT_IMPLEMENTED,
            "Idempotency-Key is not supported; leave it out",
        );
    }
    let content_type = media_type(&headers, header::CONTENT_TYPE);
    let Some(format) = ingest_format(&content_type, parameters.header) else {
        let message = format!(
            "Content-Type must be application/x-ndjson, application/json or text/csv, not \"{content_type}\""
        );
        return error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
    };
    match take_in(&state, &relation, format, parameters.wait, body).await {
        Ok(rows) => Json(json!({"rows": rows, "rejected": 0})).into_response(),
        Err(Failure::Sql(error)) => error::response(&error),
        Err(Failure::TooLarge) => {
            let message = format!(
                "the body exceeds the limit of {} bytes; nothing was kept; send smaller pieces or raise http_body_bytes_max",
                state.body_bytes_max
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

enum Failure {
    Sql(SqlError),
    TooLarge,
    Broken(String),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Sql(error)
    }
}

async fn take_in(
    state: &State,
    relation: &str,
    format: IngestFormat,
    wait: Wait,
    body: Body,
) -> Result<u64, Failure> {
    let session = state.session(Vec::new())?;
    let mut copy = session.begin_ingest(relation, format).await?;
    let mut pieces = body.into_data_stream();
    let mut received = 0;
    while let Some(piece) = pieces.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                copy.fail("the request was broken off");
                return Err(Failure::Broken(format!(
                    "the request was broken off; nothing was kept: {error}"
                )));
            }
        };
        received += piece.len();
        if received > state.body_bytes_max {
            copy.fail("the request is too large");
            return Err(Failure::TooLarge);
        }
        copy.push(&piece).await?;
    }
    let rows = copy.finish().await?;
    state.metrics.ingested(rows);
    if wait == Wait::Applied {
        flush(&session).await?;
    }
    Ok(rows)
}

/// Waits until everything that the session wrote is in every view.
async fn flush(session: &Arc<Session>) -> SqlResult<()> {
    let mut query = session.run("FLUSH")?;
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
