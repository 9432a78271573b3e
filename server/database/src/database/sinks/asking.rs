//! What is asked of the tasks of sinks.

use millrace_catalog::Object;
use millrace_engine::Changes;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use tokio::sync::{oneshot, watch};

use super::writing::Ask;
use super::{Running, SinkStatus, Sinks};

impl Sinks {
    /// Waits until all that is visible now is delivered, by those sinks that can deliver.
    pub async fn flush(&self) {
        let answers: Vec<oneshot::Receiver<()>> = self.0.lock().values().filter_map(flush).collect();
        for answer in answers {
            // One that fails, or is dropped meanwhile, is not waited for.
            let _ = answer.await;
        }
    }

    /// The same of one.
    pub(in crate::database) async fn flush_one(&self, sink: ObjectId) {
        let answer = self.0.lock().get(&sink).and_then(flush);
        if let Some(answer) = answer {
            let _ = answer.await;
        }
    }

    /// All rows of what a subscription follows, as of the step that was taken last, and its epoch.
    ///
    /// # Errors
    /// 55000: it does not go on.
    pub(in crate::database) async fn rows_of(&self, object: &Object) -> SqlResult<(u64, Changes)> {
        let (answer, rows) = oneshot::channel();
        let is_asked = {
            let sinks = self.0.lock();
            let sink = sinks.get(&object.id);
            sink.is_some_and(|sink| sink.asks.send(Ask::Rows(answer)).is_ok())
        };
        if is_asked && let Ok(rows) = rows.await {
            return Ok(rows);
        }
        let why = self
            .status(object.id)
            .and_then(|status| status.borrow().error.clone());
        Err(does_not_go_on(object, why))
    }

    /// Waits until one runs.
    ///
    /// # Errors
    /// 55000: it does not go on.
    pub(in crate::database) async fn check_begun(&self, object: &Object) -> SqlResult<()> {
        match self.begun(object.id).await {
            None => Ok(()),
            why => Err(does_not_go_on(object, why)),
        }
    }

    /// Waits until a new one runs, or says why it does not.
    pub async fn begun(&self, sink: ObjectId) -> Option<String> {
        let mut status = self.status(sink)?;
        let begun = status
            .wait_for(|status| status.is_running || status.error.is_some())
            .await;
        begun.ok().and_then(|status| status.error.clone())
    }

    fn status(&self, sink: ObjectId) -> Option<watch::Receiver<SinkStatus>> {
        self.0.lock().get(&sink).map(|sink| sink.status.clone())
    }
}

fn flush(sink: &Running) -> Option<oneshot::Receiver<()>> {
    let (done, wait) = oneshot::channel();
    sink.asks.send(Ask::Flush(done)).ok().map(|()| wait)
}

fn does_not_go_on(object: &Object, why: Option<String>) -> SqlError {
    SqlError::new(
        SqlState::ObjectNotInPrerequisiteState,
        format!("{} does not go on", object.described()),
    )
    .with_detail_opt(why)
}
