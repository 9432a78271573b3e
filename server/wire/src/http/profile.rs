//! `GET /api/jobs/{id}/profile`: a run or a view that EXPLAIN ANALYZE looked at, as its JSON or as a trace.

use axum::Json;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millrace_catalog::role::MONITOR;
use millrace_clarity::render::json::{Document, Run, Watched};
use millrace_clarity::render::trace::trace;
use millrace_clarity::{analyse, analyse_view};
use millrace_database::database::profiles::Recent;
use serde::Deserialize;

use super::error;
use super::guard::Entered;

/// What the query string may say.
#[derive(Debug, Deserialize)]
pub struct Parameters {
    /// `json`, or `trace`: events for Chrome's and Perfetto's viewers.
    format: Option<String>,
}

/// See the module.
pub async fn get(
    Entered(state): Entered,
    Path(id): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Response {
    if let Err(refusal) = state.check_role(MONITOR, "see how others' statements ran") {
        return error::response(&refusal);
    }
    let database = match state.database.get() {
        Ok(database) => database,
        Err(error) => return error::response(&error),
    };
    let Some(recent) = id.parse().ok().and_then(|id| database.profiles().get(id)) else {
        return error::plain(
            StatusCode::NOT_FOUND,
            &format!("profile \"{id}\" does not exist; only those of the last runs are stored"),
        );
    };
    match (parameters.format.as_deref(), recent) {
        (None | Some("json"), Recent::Run(run)) => Json(Document::new(Run {
            id: Some(run.id),
            analysis: analyse(&run.profile, None),
            profile: run.profile.clone(),
        }))
        .into_response(),
        (None | Some("json"), Recent::View(view)) => Json(Document::new(Watched {
            id: Some(view.id),
            analysis: analyse_view(&view.profile, None),
            view: view.profile.clone(),
        }))
        .into_response(),
        (Some("trace"), Recent::Run(run)) => Json(trace(&run.profile)).into_response(),
        (Some("trace"), Recent::View(view)) => {
            let seen = view.profile.trace.as_ref();
            Json(seen.map(|seen| trace(&seen.run))).into_response()
        }
        (Some(other), _) => error::plain(
            StatusCode::BAD_REQUEST,
            &format!("invalid profile format \"{other}\": the formats are json and trace"),
        ),
    }
}
