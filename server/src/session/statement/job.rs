//! CANCEL JOB, WAIT and KILL WORKER.

use std::sync::Arc;

use millrace_storage::ObjectId;

use crate::error::{SqlResult, from_internal};
use crate::session::statement::done;
use crate::session::{Outcome, Session, Severity};

/// CANCEL JOB: returns when nothing is left of the job.
pub(crate) async fn cancel(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    session.database().cancel_job(ObjectId(number)).await?;
    done("CANCEL JOB")
}

/// WAIT: until the jobs that there are now are over.
pub(crate) async fn wait(session: &Arc<Session>) -> SqlResult<Outcome> {
    for failed in session.database().wait_for_jobs().await {
        session.notice(Severity::Warning, failed);
    }
    done("WAIT")
}

/// KILL WORKER: the worker is gone when this returns; its part of the views is restored elsewhere, and whoever reads them
/// waits for it.
pub(crate) fn kill_worker(session: &Arc<Session>, number: u64) -> SqlResult<Outcome> {
    let runtime = session.database().runtime();
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    runtime.kill_worker(number).map_err(from_internal::runtime)?;
    done("KILL WORKER")
}
