//! Views that are made: the job that fills them, and what was forecast of that beside what it took.

use std::sync::Arc;

use millrace_clarity::forecast::calibration::Outcome;
use millrace_database::database::ddl::DdlGuard;
use millrace_database::database::definitions::Definitions;
use millrace_database::database::forecasts::{FORECAST_MIN, Kind};
use millrace_database::database::jobs::{Making, Waiting};
use millrace_planner::{RelationId, StageGraph};
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_storage::ObjectId;

use crate::forecasting::nanoseconds;
use crate::session::Session;
use crate::statement::explain::filling;

/// Begins a job; unless it is one for the background, waits for its end.
pub(super) async fn make(session: &Session, guard: DdlGuard<'_>, making: Making) -> SqlResult<()> {
    if let Some(definitions) = guard.definitions() {
        return in_transaction(definitions, making);
    }
    let options = session.backfill_options()?;
    let is_background = session.setting("background_ddl").as_deref() == Some("on");
    let new = match is_background {
        true => None,
        false => Some(NewViews::of(session.scope().acting.role, &making)),
    };
    let job = guard.start_job(making, options, is_background)?;
    // Other definitions may change while the views are filled.
    drop(guard);
    if is_background {
        return Ok(());
    }
    // Whoever goes away from here takes the job along.
    let waiting = Waiting(job);
    waiting.0.wait().await?;
    if let Some(new) = new {
        new.are_filled(session);
    }
    Ok(())
}

/// Leaves the views to COMMIT.
fn in_transaction(definitions: &Arc<Definitions>, making: Making) -> SqlResult<()> {
    let Making {
        mut specs,
        mut put,
        removed,
    } = making;
    // What is made with a view: the stream of rows on which it fails.
    let beside = put.split_off(put.len().min(1));
    match (specs.pop(), put.pop()) {
        (Some(spec), Some(object)) if specs.is_empty() && removed.is_empty() => {
            definitions.put_view(object, spec, beside);
            Ok(())
        }
        _ => Err(SqlError::unsupported(
            "a view whose rows have to be recomputed cannot be replaced inside a transaction",
        )
        .with_hint("Replace it before BEGIN or after COMMIT.")),
    }
}

/// Views that are being made.
struct NewViews {
    role: ObjectId,
    views: Vec<(RelationId, String, StageGraph)>,
}

impl NewViews {
    fn of(role: ObjectId, making: &Making) -> Self {
        let views = making.specs.iter();
        let views = views.map(|spec| (spec.id, spec.name.clone(), spec.graph.clone()));
        NewViews {
            role,
            views: views.collect(),
        }
    }

    /// They are filled: keeps what would have been forecast of those that took some time, by the views that there were before.
    fn are_filled(self, session: &Session) {
        let (db, new) = (session.database(), self.views.iter());
        let new: Vec<RelationId> = new.map(|(id, ..)| *id).collect();
        let filled = db.runtime().views();
        for (id, name, graph) in &self.views {
            let view = filled.iter().find(|view| view.relation == *id);
            let Some(took) = view.and_then(|view| view.filled.as_ref()?.elapsed) else {
                continue;
            };
            if took < FORECAST_MIN {
                continue;
            }
            let Some(said) = filling(session, name, graph, &new) else {
                continue;
            };
            let outcome = Outcome {
                time: said.time,
                certainty: said.certainty,
                took: nanoseconds(took),
            };
            let kept = db.forecasts();
            kept.keep(Kind::BackFill, name, self.role, said.views, outcome);
        }
    }
}
