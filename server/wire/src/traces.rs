//! Traces: a span for each statement that has ended, sent to a collector of OpenTelemetry (OTLP over HTTP, protobuf), if there is one.
//!
//! ```text
//! statement ends --statement()--> queue, at most SPANS_WAITING_MAX --task--> POST <endpoint>/v1/traces, some at a time
//! ```
//! No statement waits for that: what does not fit into the queue, or the collector does not take, is lost, and counted in the log.
//! Constants are not in a span's text. EXPLAIN ANALYZE has its planning and its stages as children.

mod message;

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_clarity::Profile;
use millrace_database::clock::now_ns;
use millrace_database::statements::normalized;
use millrace_session::Session;
use parking_lot::Mutex;
use prost::Message;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;

use self::message::{Request, Resource, ResourceSpans, Scope, ScopeSpans, Span, Status, number, text};

/// Spans that wait to be sent.
const SPANS_WAITING_MAX: usize = 4_096;
/// Spans in a request.
const SPANS_SENT_MAX: usize = 512;
/// Spans are collected for so long before they are sent.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long a request, and the last of them when the server stops, may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A span of a server, and one inside of it.
const KIND_SERVER: i32 = 2;
const KIND_INTERNAL: i32 = 1;
const STATUS_ERROR: i32 = 2;

/// Where spans go.
pub struct Traces {
    spans: mpsc::Sender<Span>,
    lost: Arc<AtomicU64>,
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Traces {
    /// Sends spans to the collector at this address from now on. To be called on a runtime.
    ///
    /// # Errors
    /// No client can be made.
    pub fn start(endpoint: &Url) -> reqwest::Result<Arc<Traces>> {
        let client = Client::builder().timeout(TIMEOUT).build()?;
        let (spans, waiting) = mpsc::channel(SPANS_WAITING_MAX);
        let (stop, stopping) = watch::channel(false);
        let lost = Arc::new(AtomicU64::new(0));
        let sender = Sender {
            client,
            url: traces_url(endpoint),
            resource: resource(),
            lost: Arc::clone(&lost),
            is_failing: false,
        };
        Ok(Arc::new(Traces {
            spans,
            lost,
            stop,
            task: Mutex::new(Some(tokio::spawn(sender.run(waiting, stopping)))),
        }))
    }

    /// Takes a statement that ends now, after so long: the last that the session executed.
    pub(crate) fn statement(&self, session: &Session, succeeded: bool, took: Duration) {
        let (statement, info) = (session.statement_shown(), session.info());
        let end = now_ns();
        let start = end.saturating_sub(nanoseconds(took));
        let operation: String = (statement.trim_start().chars())
            .take_while(char::is_ascii_alphabetic)
            .map(|letter| letter.to_ascii_uppercase())
            .collect();
        let mut span = Span {
            trace_id: Uuid::new_v4().as_bytes().to_vec(),
            span_id: span_id(),
            parent_span_id: vec![],
            name: if operation.is_empty() {
                "statement".to_owned()
            } else {
                operation.clone()
            },
            kind: KIND_SERVER,
            start_time_unix_nano: start,
            end_time_unix_nano: end,
            attributes: vec![
                text("db.system.name", "millrace"),
                text("db.namespace", &info.database),
                text("db.operation.name", &operation),
                text("db.query.text", normalized(&statement)),
                text("user.name", &info.user),
                text("client.address", &info.peer),
                number("session.id", u64::from(session.id().unsigned_abs())),
            ],
            status: None,
        };
        if !succeeded {
            span.status = Some(Status { code: STATUS_ERROR });
        }
        // A session executes one statement at a time: the last run that it has analysed is this one.
        let run = match succeeded && operation == "EXPLAIN" {
            true => session.database().profiles().last_of(session.id()),
            false => None,
        };
        let inside = run
            .filter(|run| run.kept_at_ns >= start)
            .map(|run| stages(&span, &run.profile));
        for span in inside.into_iter().flatten().chain([span]) {
            if self.spans.try_send(span).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Sends what waits, for a while, and nothing after it.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        let task = self.task.lock().take();
        if let Some(task) = task
            && timeout(TIMEOUT, task).await.is_err()
        {
            tracing::warn!("the last spans were not sent: the collector takes too long");
        }
    }
}

/// The spans of a run inside of its statement's.
fn stages(statement: &Span, profile: &Profile) -> Vec<Span> {
    let (first, last) = (statement.start_time_unix_nano, statement.end_time_unix_nano);
    let begun = first + profile.planning;
    let span = |name: String, start: u64, end: u64, attributes| Span {
        trace_id: statement.trace_id.clone(),
        span_id: span_id(),
        parent_span_id: statement.span_id.clone(),
        name,
        kind: KIND_INTERNAL,
        start_time_unix_nano: start.min(last),
        end_time_unix_nano: end.min(last),
        attributes,
        status: None,
    };
    let planning = span("plan".to_owned(), first, begun, vec![]);
    let stages = profile.stages.iter().filter_map(|stage| {
        let start = stage.tasks.iter().map(|task| task.start).min()?;
        let end = stage.tasks.iter().map(|task| task.end).max()?;
        let attributes = vec![
            number("millrace.stage", stage.id as u64),
            number("millrace.tasks", stage.tasks.len() as u64),
            number("millrace.rows", stage.tasks.iter().map(|task| task.rows).sum()),
        ];
        Some(span(stage.name.clone(), begun + start, begun + end, attributes))
    });
    std::iter::once(planning).chain(stages).collect()
}

/// What sends.
struct Sender {
    client: Client,
    url: Url,
    resource: Resource,
    lost: Arc<AtomicU64>,
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut waiting: mpsc::Receiver<Span>, mut stopping: watch::Receiver<bool>) {
        let mut spans = Vec::with_capacity(SPANS_SENT_MAX);
        loop {
            tokio::select! {
                // What waits then is sent below.
                _ = stopping.wait_for(|stopping| *stopping) => break,
                received = waiting.recv() => match received {
                    Some(span) => spans.push(span),
                    None => break,
                },
            }
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
            self.drain(&mut waiting, &mut spans).await;
        }
        self.drain(&mut waiting, &mut spans).await;
    }

    /// Sends all that waits now.
    async fn drain(&mut self, waiting: &mut mpsc::Receiver<Span>, spans: &mut Vec<Span>) {
        loop {
            while spans.len() < SPANS_SENT_MAX
                && let Ok(span) = waiting.try_recv()
            {
                spans.push(span);
            }
            if spans.is_empty() {
                return;
            }
            self.send(take(spans)).await;
        }
    }

    /// Sends some; a collector that cannot be reached is told of once.
    async fn send(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let body = request(&self.resource, spans).encode_to_vec();
        let request = self.client.post(self.url.clone());
        let request = request.header(CONTENT_TYPE, "application/x-protobuf").body(body);
        let sent = request.send().await.and_then(reqwest::Response::error_for_status);
        match sent {
            Ok(_) => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::warn!(
                        lost,
                        "spans were lost: the collector was not quick enough, or not there"
                    );
                }
                self.is_failing = false;
            }
            Err(error) => {
                self.lost.fetch_add(count, Ordering::Relaxed);
                if !self.is_failing {
                    let error = error.without_url();
                    tracing::warn!(url = %self.url, %error, "spans cannot be sent; they are lost until they can");
                }
                self.is_failing = true;
            }
        }
    }
}

fn request(resource: &Resource, spans: Vec<Span>) -> Request {
    let scope = Scope {
        name: "millrace".to_owned(),
        version: crate::VERSION.to_owned(),
    };
    Request {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans,
            }],
        }],
    }
}

fn resource() -> Resource {
    Resource {
        attributes: vec![
            text("service.name", "millrace"),
            text("service.version", crate::VERSION),
            text("service.instance.id", Uuid::new_v4().to_string()),
        ],
    }
}

/// An endpoint is the collector's address, to which the path is added, or has that path already.
fn traces_url(endpoint: &Url) -> Url {
    let mut url = endpoint.clone();
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/v1/traces") {
        url.set_path(&format!("{path}/v1/traces"));
    }
    url
}

fn span_id() -> Vec<u8> {
    // The halves of a UUID have some bits in common with all others; so few that 58 are left.
    Uuid::new_v4().as_bytes()[..8].to_vec()
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_added_once() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://a/b", "https://a/b/v1/traces"),
            ("https://a/b/v1/traces", "https://a/b/v1/traces"),
        ] {
            assert_eq!(traces_url(&Url::parse(endpoint).unwrap()).as_str(), expected);
        }
    }
}
