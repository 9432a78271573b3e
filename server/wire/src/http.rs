//! HTTP: SQL and ingest for programs that do not speak PostgreSQL's protocol, and what operators ask.
//!
//! | path | |
//! |---|---|
//! | `POST /api/sql`, `GET /api/sql?query=` | statements; see [`sql`] |
//! | `POST /api/subscribe` | the changes of a relation; see [`subscribe`] |
//! | `POST /api/ingest/{stream}` | rows; see [`ingest`] |
//! | `POST /api/webhook/{stream}` | rows that another service sends; see [`webhook`] |
//! | `DELETE /api/queries/{id}` | cancels a statement; its id is the answer's `x-query-id`, or the request's own |
//! | `GET /api/jobs/{id}/profile` | where a run's time went; see [`profile`] |
//! | `GET /health`, `GET /ready`, `GET /metrics` | alive; recovered and serving; Prometheus |
//! | `GET /`, `GET /console/..` | the page to look at a server; see [`console`] |
//!
//! A request is a session of its own: settings and transactions end with it.

pub(crate) mod connections;
pub mod console;
pub mod error;
pub mod guard;
mod headers;
pub mod ingest;
pub mod negotiate;
mod patience;
pub mod profile;
pub mod queries;
pub mod request;
mod rest;
pub mod results;
pub mod sql;
pub mod subscribe;
pub mod webhook;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, State as Extracted};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router, middleware};
use millrace_catalog::access::denied;
use millrace_catalog::role::{MONITOR, SIGNAL_BACKEND};
use millrace_catalog::{DEFAULT_DATABASE, DEFAULT_USER};
use millrace_database::database::health::Condition;
use millrace_database::sessions::SessionInfo;
use millrace_postgres::error::SqlResult;
use millrace_session::Session;
use millrace_storage::ObjectId;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

pub use self::guard::REQUESTS_MAX;
use self::guard::{Entered, Sender};
pub use self::queries::QueryRegistry;
use crate::ended::Told;
use crate::login::Doors;
use crate::slot::{DatabaseSlot, signalled};

/// What all requests share.
#[derive(Clone)]
pub struct State {
    /// The database, once it has been opened.
    pub database: Arc<DatabaseSlot>,
    /// Who is told of statements.
    pub told: Told,
    /// The statements that run.
    pub queries: Arc<QueryRegistry>,
    /// Who may come in.
    pub doors: Arc<Doors>,
    /// Who sent the request, once that is known.
    pub sender: Option<Sender>,
    /// The longest SQL text.
    pub statement_bytes_max: usize,
    /// The longest body.
    pub body_bytes_max: usize,
    /// Whether only this machine can reach the server.
    pub loopback_only: bool,
    /// The names under which the server is reached; none: any.
    pub hosts: Arc<[String]>,
    /// A place for each request that may be worked on at a time.
    pub requests: Arc<Semaphore>,
    /// A place for each subscription that may be open at a time.
    pub subscriptions: Arc<Semaphore>,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
}

impl State {
    /// A session for one request.
    pub(crate) fn session(&self, options: Vec<(String, String)>) -> SqlResult<Arc<Session>> {
        // A webhook has no sender but its signature: the stream is its own.
        let sender = self.sender.clone();
        let (user, peer, encryption) = match sender {
            Some(sender) => (sender.user, sender.peer, sender.encryption),
            None => (DEFAULT_USER.to_owned(), "http".to_owned(), None),
        };
        let info = SessionInfo {
            user,
            database: DEFAULT_DATABASE.to_owned(),
            application: "http".to_owned(),
            peer,
            encryption,
            options,
        };
        Session::new(self.database.get()?, info)
    }

    /// The role of who sent the request.
    fn sender_role(&self) -> SqlResult<Option<ObjectId>> {
        let catalog = self.database.get()?.catalog();
        let sender = self.sender.as_ref();
        Ok(sender.and_then(|sender| Some(catalog.login_role(&sender.user)?.id)))
    }

    /// Refuses what needs a role that is there for this.
    pub(crate) fn check_role(&self, role: ObjectId, what: &str) -> SqlResult<()> {
        let db = self.database.get()?;
        let user = self.sender_role()?;
        let may = user.is_some_and(|user| db.catalog().has_role(user, role));
        match may || !db.tuning().access_control {
            true => Ok(()),
            false => Err(denied(format!("permission denied to {what}"))),
        }
    }
}

/// Serves HTTP until the server stops; then lets running requests end, or drops them when `abandon` turns true.
pub async fn run(
    listener: connections::Limited,
    state: State,
    mut stopping: watch::Receiver<bool>,
    mut abandon: watch::Receiver<bool>,
) {
    let stop = async move { signalled(&mut stopping).await };
    let service = router(state).into_make_service_with_connect_info::<connections::Peer>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(stop);
    tokio::select! {
        served = async { serving.await } => {
            if let Err(error) = served {
                tracing::error!(%error, "HTTP ended");
            }
        }
        () = signalled(&mut abandon) => {}
    }
}

/// All paths.
pub fn router(state: State) -> Router {
    let api = Router::new()
        .route("/api/sql", post(sql::post).get(sql::get))
        .route("/api/ingest/{stream}", post(ingest::post))
        .layer(middleware::from_fn_with_state(state.clone(), guard::crowd))
        .route("/api/subscribe", post(subscribe::post))
        .route("/api/queries/{id}", delete(cancel))
        .route("/api/jobs/{id}/profile", get(profile::get))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(state.clone(), guard::login));
    // These show by their signature who sends them.
    let webhooks = Router::new()
        .route("/api/webhook/{stream}", post(webhook::post))
        .layer(middleware::from_fn_with_state(state.clone(), guard::crowd));
    let page = Router::new()
        .route("/", get(console::page))
        .route("/console/{file}", get(console::file));
    Router::new()
        .route(
            "/health",
            get(async || Json(json!({"status": "alive", "version": crate::VERSION}))),
        )
        .route("/ready", get(ready))
        .merge(api)
        .merge(webhooks)
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(state.body_bytes_max))
        .layer(middleware::from_fn_with_state(state.clone(), guard::origin))
        // They say nothing of the server, and a browser may come to them from anywhere, by a link.
        .merge(page)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(rest::read))
        .layer(middleware::from_fn(patience::watch))
        .layer(middleware::from_fn(headers::secure))
        .with_state(state)
}

async fn ready(Extracted(state): Extracted<State>) -> Response {
    match state.database.get() {
        Ok(database) => match database.condition() {
            Condition::Well => Json(json!({"status": "ready"})).into_response(),
            Condition::HeldUp(why) | Condition::Ended(why) => {
                error::plain(StatusCode::SERVICE_UNAVAILABLE, &why)
            }
        },
        Err(error) => error::response(&error),
    }
}

async fn metrics(Entered(state): Entered) -> Response {
    if let Err(refusal) = state.check_role(MONITOR, "read the server's numbers") {
        return error::response(&refusal);
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, content_type)],
        state.told.metrics.render(),
    )
        .into_response()
}

async fn cancel(Entered(state): Entered, Path(id): Path<String>) -> Response {
    let is_own = match state.sender_role() {
        Ok(role) => state.queries.user_of(&id) == role,
        Err(error) => return error::response(&error),
    };
    if !is_own && let Err(refusal) = state.check_role(SIGNAL_BACKEND, "cancel a query of somebody else") {
        return error::response(&refusal);
    }
    match state.queries.cancel(&id) {
        true => Json(json!({"cancelled": id})).into_response(),
        false => error::plain(
            StatusCode::NOT_FOUND,
            &format!("no statement with the id \"{id}\" is running"),
        ),
    }
}

async fn unknown_path(uri: Uri) -> Response {
    error::plain(StatusCode::NOT_FOUND, &format!("{} does not exist", uri.path()))
}

async fn wrong_method(uri: Uri) -> Response {
    error::plain(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("{} does not support this method", uri.path()),
    )
}
