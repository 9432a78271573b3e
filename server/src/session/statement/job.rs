//! CANCEL JOB and WAIT.

use std::sync::Arc;

use millrace_storage::ObjectId;

use crate::error::SqlResult;
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
