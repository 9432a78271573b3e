//! CANCEL JOB, WAIT, sources and sinks paused and resumed, and workers that come, leave and are killed.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::Object;
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::{ObjectKind as Kind, ObjectName, ObjectReference};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_schedule::id::WorkerId;
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::alter::find;
use crate::statement::{done, transaction};

/// How long a worker that is to be killed is left for a checkpoint of what it has, and how often that is looked at.
const CHECKPOINT_AWAITED_MAX: Duration = Duration::from_secs(2);
const CHECKPOINT_ASKED_EVERY: Duration = Duration::from_millis(5);

/// CANCEL JOB: returns when nothing is left of the job.
pub async fn cancel(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    session.database().cancel_job(ObjectId(number)).await?;
    done("CANCEL JOB")
}

/// WAIT: until the jobs that there are now are over, and generators that have an end and no rate.
pub async fn wait(session: &Arc<Session>) -> SqlResult<Outcome> {
    for failed in session.database().wait_for_jobs().await {
        session.notice(Severity::Warning, failed);
    }
    session.database().sources().ended().await;
    done("WAIT")
}

/// PAUSE STREAM: nothing is fed into it until it is resumed, also over a restart. PAUSE SINK: it delivers nothing until then.
pub async fn pause(session: &Arc<Session>, of: &ObjectReference) -> SqlResult<Outcome> {
    let (_guard, object) = pausable(session, of, "PAUSE").await?;
    match object.kind {
        ObjectKind::Sink => session.database().pause_sink(&object).await?,
        _ => session.database().pause_source(&object).await?,
    }
    done("PAUSE")
}

/// REFRESH MATERIALIZED VIEW: a view is kept right without it, so that it waits until the view has what was acknowledged before.
pub async fn refresh(session: &Arc<Session>, name: &ObjectName) -> SqlResult<Outcome> {
    let scope = session.scope();
    let object = names::resolve(session, &scope, name)?;
    if object.kind != ObjectKind::MaterializedView {
        return Err(SqlError::unsupported(format!(
            "\"{}\" is not a materialized view",
            object.name
        )));
    }
    scope.check_owner(&object)?;
    object.check_up()?;
    transaction::everything_visible(session).await?;
    done("REFRESH MATERIALIZED VIEW")
}

/// RESUME STREAM, RESUME SINK: goes on where it was paused, or where it failed.
pub async fn resume(session: &Arc<Session>, of: &ObjectReference) -> SqlResult<Outcome> {
    let (_guard, object) = pausable(session, of, "RESUME").await?;
    match object.kind {
        ObjectKind::Sink => session.database().resume_sink(&object).await?,
        _ => session.database().resume_source(&object).await?,
    }
    done("RESUME")
}

/// The stream, table or sink that is named, which stays while the right to change definitions is held.
async fn pausable<'s>(
    session: &'s Arc<Session>,
    of: &ObjectReference,
    what: &str,
) -> SqlResult<(DdlGuard<'s>, Arc<Object>)> {
    let kind = match of.kind {
        Kind::Stream => ObjectKind::Stream,
        Kind::Table => ObjectKind::Table,
        Kind::Sink => ObjectKind::Sink,
        other => {
            return Err(
                SqlError::unsupported(format!("{what} {other} is not supported")).with_hint(
                    "What feeds a stream or table can be paused, and a sink: PAUSE STREAM, TABLE or SINK.",
                ),
            );
        }
    };
    if session.transaction_is_open() {
        let message = format!("{what} cannot run inside a transaction block");
        return Err(SqlError::new(SqlState::ActiveSqlTransaction, message));
    }
    let guard = session.ddl().await?;
    let scope = session.scope();
    let object = find(session, &scope, &of.name, kind)?;
    scope.check_owner(&object)?;
    Ok((guard, object))
}

/// ADD WORKER: partitions move to it when the groups of epochs under way have ended.
pub fn add_worker(session: &Arc<Session>) -> SqlResult<Outcome> {
    let runtime = session.database().runtime();
    let worker = runtime.add_worker().map_err(from_internal::runtime)?;
    session.notice(Severity::Notice, format!("worker {} was added", worker.0));
    done("ADD WORKER")
}

/// DROP WORKER: the worker is `leaving` until its partitions have moved to others and its queries have ended.
pub(crate) fn drop_worker(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    let runtime = session.database().runtime();
    let worker = WorkerId(u32::try_from(number).unwrap_or(u32::MAX));
    runtime.remove_worker(worker).map_err(from_internal::runtime)?;
    done("DROP WORKER")
}

/// KILL WORKER: the worker is gone when this returns; its part of the views is restored elsewhere, and whoever reads them
/// waits for it.
pub async fn kill_worker(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    let runtime = session.database().runtime();
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    // What a checkpoint would have a moment later is not to be filled again because of this statement.
    let is_waited_for = || {
        let workers = runtime.workers();
        workers.len() > 1 && workers.iter().any(|worker| worker.id == number) && !runtime.can_lose_worker()
    };
    let safe = async {
        while is_waited_for() {
            tokio::time::sleep(CHECKPOINT_ASKED_EVERY).await;
        }
    };
    // Where it does not come about (a view with a faucet), the views are filled again.
    let _ = tokio::time::timeout(CHECKPOINT_AWAITED_MAX, safe).await;
    runtime.kill_worker(number).map_err(from_internal::runtime)?;
    done("KILL WORKER")
}
