//! Work that is done again and again until the database is closed.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::database::Database;

/// The task that does it.
#[derive(Default)]
pub(super) struct Periodic {
    task: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<Notify>,
}

impl Periodic {
    /// Does it at once, and then so long after each time; never twice at a time.
    pub fn start<F: Future<Output = ()> + Send>(
        &self,
        db: &Arc<Database>,
        interval: Duration,
        mut work: impl FnMut(Arc<Database>) -> F + Send + 'static,
    ) {
        let db: Weak<Database> = Arc::downgrade(db);
        let stop = Arc::clone(&self.stop);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = stop.notified() => return,
                }
                match db.upgrade() {
                    Some(db) => work(db).await,
                    None => return,
                }
            }
        });
        *self.task.lock() = Some(task);
    }

    /// Waits for what is being done, and does no more. `what`: it, in a word.
    pub async fn stop(&self, what: &str) {
        let task = self.task.lock().take();
        self.stop.notify_one();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "{what} ended early");
        }
    }
}
