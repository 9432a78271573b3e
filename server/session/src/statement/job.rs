//! CANCEL JOB, WAIT, and workers that come, leave and are killed.

use std::sync::Arc;

use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_schedule::id::WorkerId;
use millrace_storage::ObjectId;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

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
    session.database().generators().ended().await;
    done("WAIT")
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
pub fn kill_worker(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    let runtime = session.database().runtime();
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    runtime.kill_worker(number).map_err(from_internal::runtime)?;
    done("KILL WORKER")
}
