//! `POST /api/subscribe`: the changes of a relation, as they come, until the client goes.
//!
//! | | NDJSON | server-sent events |
//! |---|---|---|
//! | the columns, if asked for | `{"columns": [{"name", "type"}]}` | `event: columns` |
//! | a row | `{"epoch", "op", "row"}` | the same as `data` |
//! | everything up to an epoch was sent | `{"progress": {"epoch", "id"}}` | `event: progress` with `id` |
//! | nothing happens | `{"heartbeat": {}}` | a comment |
//! | the end | `{"error": ..}` | `event: error` |
//!
//! The id is that of a whole epoch only: a client that sends it as `Last-Event-ID` goes on behind it, or is told that this is not
//! possible any more.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray};
use arrow::datatypes::Schema;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use millrace_database::database::subscriptions::{Event, Position};
use millrace_database::running::Running;
use millrace_parser::Parsed;
use millrace_parser::ast::{Statement, Subscribe};
use millrace_postgres::encode::Column;
use millrace_postgres::encode::json::put_members;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::{types, units};
use millrace_session::{Following, Session};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::guard::Entered;
use super::negotiate::media_type;
use super::queries::RunningQuery;
use super::request::Whole;
use super::sql::{QUERY_ID, register};
use super::{State, error};
use crate::login::role_of;
use crate::metrics::StatementKind;
use crate::slot::signalled;

/// Subscriptions over HTTP at a time.
pub const SUBSCRIPTIONS_MAX: usize = 4_096;
/// With the shortest heartbeat an idle client still costs next to nothing.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often it is looked whether the client's token is still valid.
const TOKEN_LOOK: Duration = Duration::from_secs(1);
/// How much is put together before it is sent.
const PIECE_BYTES: usize = 64 << 10;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies are not to wait for more.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// A name, or a whole SUBSCRIBE statement.
    query: String,
    snapshot: Option<bool>,
    progress: Option<bool>,
    heartbeat: Option<String>,
    /// Whether the columns and their types come first.
    columns: Option<bool>,
}

/// What a body asks for.
struct Asked {
    /// As it was written; `statement` is what is meant by it.
    parsed: Parsed,
    subscribe: Subscribe,
    heartbeat: Duration,
    wants_columns: bool,
    place: Place,
}

/// Where what was sent stands in the statement that is meant.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Characters that stand before it.
    before: usize,
    /// Characters before its first word.
    space: usize,
    characters: usize,
}

impl Place {
    /// The error with its position in what was sent.
    fn of(self, mut error: SqlError) -> SqlError {
        error.position = error.position.map(|position| {
            let from_first = position.saturating_sub(self.before).clamp(1, self.characters + 1);
            self.space + from_first
        });
        error
    }
}

/// How changes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    NdJson,
    Events,
}

impl Form {
    /// What `Accept` says; NDJSON if it says nothing.
    fn accepted(headers: &HeaderMap) -> Option<Form> {
        let accept = headers.get_all(header::ACCEPT).iter();
        let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
        let wanted = accept.join(",").to_ascii_lowercase();
        let mut ranges = wanted
            .split(',')
            .map(|range| range.split(';').next().unwrap_or_default().trim());
        if wanted.trim().is_empty() {
            return Some(Form::NdJson);
        }
        ranges.find_map(|range| match range {
            "text/event-stream" => Some(Form::Events),
            // What asks for JSON gets an object a line.
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/json"
            | "application/*"
            | "*/*" => Some(Form::NdJson),
            _ => None,
        })
    }

    fn media_type(self) -> &'static str {
        match self {
            Form::NdJson => "application/x-ndjson",
            Form::Events => "text/event-stream",
        }
    }
}

/// Follows what the body names.
pub async fn post(Entered(state): Entered, headers: HeaderMap, Whole(body): Whole) -> Response {
    if media_type(&headers, header::CONTENT_TYPE) != "application/json" {
        let message = "Content-Type must be application/json";
        return error::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let Some(form) = Form::accepted(&headers) else {
        let message = "Accept must allow application/x-ndjson or text/event-stream";
        return error::plain(StatusCode::NOT_ACCEPTABLE, message);
    };
    let started = Instant::now();
    let metrics = Arc::clone(&state.told.metrics);
    let begun = begin(state, &headers, &body, form).await;
    metrics.statement(StatementKind::Select, begun.is_ok(), started.elapsed());
    begun.unwrap_or_else(|refusal| error::response(&refusal))
}

async fn begin(state: State, headers: &HeaderMap, body: &[u8], form: Form) -> SqlResult<Response> {
    let Asked {
        parsed,
        subscribe,
        heartbeat,
        wants_columns,
        place: query_place,
    } = read(body, state.statement_bytes_max)?;
    let resume = match headers.get(&LAST_EVENT_ID) {
        Some(id) => Some(position(id)?),
        None => None,
    };
    let Ok(place) = Arc::clone(&state.subscriptions).try_acquire_owned() else {
        return Err(SqlError::new(
            SqlState::InsufficientResources,
            format!("too many subscriptions: the limit is {SUBSCRIPTIONS_MAX}"),
        ));
    };
    let session = state.session(vec![])?;
    let running_query = register(&state, headers, &session)?;
    let id = HeaderValue::from_str(running_query.id())
        .map_err(|_| SqlError::internal("an id that is no header"))?;
    let mut out = BytesMut::new();
    if wants_columns {
        let columns = session.followed_columns(&subscribe, &parsed).await;
        let columns = columns.map_err(|error| query_place.of(error))?;
        put_columns(&columns, form, &mut out);
    }
    let beginning = {
        let session = Arc::clone(&session);
        async move {
            let followed = session.follow(subscribe, &parsed, resume).await;
            followed.map_err(|error| query_place.of(error))
        }
    };
    let followed = match wants_columns {
        // What is followed may wait for an epoch that takes long.
        true => Followed::Beginning(beginning.boxed()),
        false => {
            let (following, running) = beginning.await?;
            Followed::Going(Box::new(following), running)
        }
    };
    let sending = Sending {
        form,
        followed,
        heartbeat,
        beats_at: tokio::time::Instant::now() + heartbeat,
        out,
        has_changes: true,
        has_ended: false,
        state,
        _held: (session, running_query, place),
    };
    let pieces = stream::unfold(sending, |mut sending| async {
        let piece = sending.next().await?;
        Some((Ok::<Bytes, io::Error>(piece), sending))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(form.media_type())),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (NO_BUFFERING, HeaderValue::from_static("no")),
        (QUERY_ID, id),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// What the body asks for, and how often a client is to hear something.
fn read(body: &[u8], statement_bytes_max: usize) -> SqlResult<Asked> {
    let invalid = |message: String| {
        SqlError::new(SqlState::InvalidParameterValue, message).with_hint(
            "Send {\"query\": \"relation\"}, and if wanted \"snapshot\": false, \"progress\": true, \"columns\": true, \
             \"heartbeat\": \"15s\".",
        )
    };
    if body.len() > statement_bytes_max {
        let message = format!("a statement of {} bytes is too long", body.len());
        return Err(SqlError::new(SqlState::ProgramLimitExceeded, message));
    }
    let request: Request = serde_json::from_slice(body)
        .map_err(|error| invalid(format!("the body is not a valid request: {error}")))?;
    let heartbeat = match &request.heartbeat {
        None => HEARTBEAT,
        Some(text) => units::duration(text)
            .ok()
            .filter(|heartbeat| (HEARTBEAT_MIN..=Duration::from_secs(3_600)).contains(heartbeat))
            .ok_or_else(|| invalid(format!("heartbeat must be from 100ms to 1h, not \"{text}\"")))?,
    };
    let query = millrace_parser::from_first_word(request.query.trim_end());
    let first = query
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .unwrap_or_default();
    let (before, after) = match first.to_ascii_uppercase().as_str() {
        "SUBSCRIBE" => ("", ""),
        "SELECT" | "WITH" | "VALUES" => ("SUBSCRIBE (", "\n)"),
        _ => ("SUBSCRIBE TO ", ""),
    };
    let place = Place {
        before: before.len(),
        space: before_in(&request.query, query),
        characters: query.chars().count(),
    };
    let mut parsed = millrace_parser::parse(&format!("{before}{query}{after}"))
        .map_err(|error| place.of(millrace_postgres::from_internal::parse(error)))?;
    let parsed = parsed.pop().filter(|_| parsed.is_empty());
    let statement = parsed.as_ref().map(|parsed| &parsed.statement);
    let (Some(Statement::Subscribe(subscribe)), Some(parsed)) = (statement, &parsed) else {
        return Err(invalid(
            "\"query\" must be a name, a SELECT or one SUBSCRIBE statement".to_owned(),
        ));
    };
    let (mut subscribe, parsed) = (Subscribe::clone(subscribe), Parsed::clone(parsed));
    subscribe.snapshot = request.snapshot.unwrap_or(subscribe.snapshot);
    subscribe.progress = request.progress.unwrap_or(subscribe.progress);
    Ok(Asked {
        parsed,
        subscribe,
        heartbeat,
        wants_columns: request.columns.unwrap_or(false),
        place,
    })
}

/// The names and types of the columns of its rows.
fn put_columns(schema: &Schema, form: Form, out: &mut BytesMut) {
    let columns = schema.fields().iter();
    let columns: Vec<_> = columns
        .map(|field| json!({"name": field.name(), "type": types::pg_type(field).name()}))
        .collect();
    let text = match form {
        Form::NdJson => format!("{}\n", json!({"columns": columns})),
        Form::Events => format!("event: columns\ndata: {}\n\n", json!(columns)),
    };
    out.put_slice(text.as_bytes());
}

/// Characters of a text before a part of it.
fn before_in(text: &str, part: &str) -> usize {
    let bytes = part.as_ptr() as usize - text.as_ptr() as usize;
    text[..bytes].chars().count()
}

fn position(id: &HeaderValue) -> SqlResult<Position> {
    let parts = id.to_str().ok().and_then(|text| text.split_once(':'));
    let position = parts.and_then(|(following, epoch)| {
        Some(Position {
            following: following.parse().ok()?,
            epoch: epoch.parse().ok()?,
        })
    });
    position.ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            "Last-Event-ID is not an id of a subscription",
        )
        .with_hint("Subscribe again with a snapshot.")
    })
}

/// What is followed.
enum Followed {
    Beginning(BoxFuture<'static, SqlResult<(Following, Running)>>),
    Going(Box<Following>, Running),
}

impl Followed {
    /// What happens next. None: it has begun.
    async fn next(&mut self) -> SqlResult<Option<Event>> {
        match self {
            Followed::Beginning(beginning) => {
                let (following, running) = beginning.await?;
                *self = Followed::Going(Box::new(following), running);
                Ok(None)
            }
            Followed::Going(following, running) => running.run(following.next()).await.map(Some),
        }
    }
}

/// What may happen while a client waits.
enum Happened {
    Begun,
    Event(Event),
    Nothing,
}

impl Happened {
    fn of(event: Option<Event>) -> Happened {
        event.map_or(Happened::Begun, Happened::Event)
    }
}

/// An answer that goes on.
struct Sending {
    form: Form,
    followed: Followed,
    heartbeat: Duration,
    beats_at: tokio::time::Instant,
    out: BytesMut,
    /// Whether something was sent of the epoch that is under way.
    has_changes: bool,
    has_ended: bool,
    state: State,
    _held: (Arc<Session>, RunningQuery, OwnedSemaphorePermit),
}

impl Sending {
    /// What is sent next: as much as there is, or a sign of life. None: it has ended.
    async fn next(&mut self) -> Option<Bytes> {
        if self.has_ended {
            return None;
        }
        while self.out.is_empty() {
            let mut stopping = self.state.stopping.clone();
            let happened = tokio::select! {
                biased;
                () = signalled(&mut stopping) => Err(SqlError::new(
                    SqlState::AdminShutdown,
                    "the server is shutting down",
                )),
                refused = until_refused(&self.state) => Err(refused),
                event = self.followed.next() => event.map(Happened::of),
                () = tokio::time::sleep_until(self.beats_at) => Ok(Happened::Nothing),
            };
            self.write(happened);
            while !self.has_ended
                && self.out.len() < PIECE_BYTES
                && let Followed::Going(following, _) = &mut self.followed
                && let Some(event) = following.present()
            {
                self.write(event.map(Happened::Event));
            }
        }
        self.beats_at = tokio::time::Instant::now() + self.heartbeat;
        Some(self.out.split().freeze())
    }

    fn write(&mut self, happened: SqlResult<Happened>) {
        let written = match happened {
            Ok(Happened::Event(event)) => self.write_event(&event),
            Ok(Happened::Begun) => Ok(()),
            Ok(Happened::Nothing) => {
                self.out.put_slice(match self.form {
                    Form::NdJson => b"{\"heartbeat\":{}}\n",
                    Form::Events => b": heartbeat\n\n",
                });
                Ok(())
            }
            Err(why) => Err(why),
        };
        if let Err(why) = written {
            self.has_ended = true;
            let object = error::object(&why);
            let text = match self.form {
                Form::NdJson => format!("{}\n", json!({"error": object})),
                Form::Events => format!("event: error\ndata: {object}\n\n"),
            };
            self.out.put_slice(text.as_bytes());
        }
    }

    fn write_event(&mut self, event: &Event) -> SqlResult<()> {
        let Followed::Going(following, _) = &self.followed else {
            return Err(SqlError::internal("an event of what has not begun"));
        };
        match event {
            Event::Complete { epoch } => {
                // An id for each epoch of which something was sent, so that a client can come back.
                let is_due = self.has_changes && self.form == Form::Events;
                self.has_changes = false;
                if !is_due && !following.tells_progress() {
                    return Ok(());
                }
                let position = following.subscription.position(*epoch);
                let id = format!("{}:{}", position.following, position.epoch);
                let text = match self.form {
                    Form::NdJson => format!("{}\n", json!({"progress": {"epoch": epoch, "id": id}})),
                    Form::Events => {
                        format!("id: {id}\nevent: progress\ndata: {}\n\n", json!({"epoch": epoch}))
                    }
                };
                self.out.put_slice(text.as_bytes());
                Ok(())
            }
            Event::Changes { epoch, ops, rows } => {
                self.has_changes = true;
                let Some((ops, columns)) = following.sent(ops, rows)? else {
                    return Ok(());
                };
                let ops = ops.as_string::<i32>();
                let schema = following.row_schema();
                let columns = columns.iter().zip(schema.fields());
                let columns = columns
                    .map(|(array, field)| Column::new(array, field))
                    .collect::<SqlResult<Vec<_>>>()?;
                let (begin, end): (&str, &[u8]) = match self.form {
                    Form::NdJson => ("", b"}}\n"),
                    Form::Events => ("data: ", b"}}\n\n"),
                };
                for row in 0..ops.len() {
                    let head = format!(
                        "{begin}{{\"epoch\":{epoch},\"op\":\"{}\",\"row\":{{",
                        ops.value(row)
                    );
                    self.out.put_slice(head.as_bytes());
                    put_members(&columns, &schema, row, &mut self.out);
                    self.out.put_slice(end);
                }
                Ok(())
            }
        }
    }
}

/// Resolves when the token by which the client came is not valid any more.
async fn until_refused(state: &State) -> SqlError {
    let token = state.sender.as_ref().and_then(|sender| sender.token.as_ref());
    let (Some(token), Ok(db)) = (token, state.database.get()) else {
        return std::future::pending().await;
    };
    while role_of(&db, token).is_some() {
        tokio::time::sleep(TOKEN_LOOK).await;
    }
    SqlError::new(
        SqlState::InvalidAuthorizationSpecification,
        "the token has expired or was dropped",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_statement_are_understood() {
        let Asked {
            subscribe, heartbeat, ..
        } = read(br#"{"query": "s.\"V\"", "snapshot": false}"#, 1_000).unwrap();
        assert_eq!(
            subscribe.to_string(),
            r#"SUBSCRIBE TO s."V" WITH (SNAPSHOT = false, PROGRESS = false)"#
        );
        assert_eq!(heartbeat, HEARTBEAT);
        let body = br#"{"query": "subscribe v envelope upsert", "progress": true, "heartbeat": "1s"}"#;
        let Asked {
            subscribe, heartbeat, ..
        } = read(body, 1_000).unwrap();
        assert!(subscribe.upsert.is_some() && subscribe.progress && subscribe.snapshot);
        assert_eq!(heartbeat, Duration::from_secs(1));
        for wrong in [
            r#"{}"#,
            r#"{"query": "v; DROP TABLE t"}"#,
            r#"{"query": "v", "heartbeat": "0s"}"#,
            r#"{"query": "v", "snapshots": true}"#,
        ] {
            assert!(read(wrong.as_bytes(), 1_000).is_err(), "{wrong}");
        }
    }

    #[test]
    fn comments_stand_before_and_behind() {
        let many = format!(
            "{}SELECT 1 AS a FROM v -- last",
            "-- c\n/* a /* b */ */".repeat(30_000)
        );
        let body = json!({ "query": many }).to_string();
        let asked = read(body.as_bytes(), 1 << 20).unwrap();
        assert!(asked.parsed.text.starts_with("SUBSCRIBE (SELECT 1"));
        for nothing in ["--", "/* a", "-- a\n", " "] {
            let body = json!({ "query": nothing }).to_string();
            assert!(read(body.as_bytes(), 1_000).is_err(), "{nothing}");
        }
    }

    #[test]
    fn errors_stand_where_they_were_written() {
        for (query, position) in [
            ("v v2 v3", 3),
            ("  SELECT 1 FROM", 16),
            ("\u{e4} b", 3),
            ("-- a\n/* b */ SELECT 1 FROM", 27),
            ("SUBSCRIBE (SELECT 1 FROM t", 27),
        ] {
            let body = json!({ "query": query }).to_string();
            let error = read(body.as_bytes(), 1_000).err().unwrap();
            assert_eq!(error.position, Some(position), "{query}: {}", error.message);
        }
    }

    #[test]
    fn an_id_names_a_following_and_an_epoch() {
        let id = |text: &str| position(&text.parse().unwrap());
        let known = id("6b0c1bd0-6a0f-4b7f-9c2c-4c5b6a3f2d10:17").unwrap();
        assert_eq!(known.epoch, 17);
        for wrong in ["17", "x:17", "6b0c1bd0-6a0f-4b7f-9c2c-4c5b6a3f2d10:x", ""] {
            assert!(id(wrong).is_err(), "{wrong}");
        }
    }
}
