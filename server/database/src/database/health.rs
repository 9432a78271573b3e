//! Whether the server does what it is there for: not whether it is alive, but whether what is written becomes durable, and epochs are
//! decided. `/ready` answers from what was found last, so that no slow disk holds up whoever asks.
//!
//! ```text
//!  well <--> held up      a probe failed or is still on its way, or a decision is: others may be asked meanwhile
//!    |
//!    `-----> ended        the log's writer or the driver is gone for good: the process is to end, and to be started again
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_storage::StorageError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::database::periodic::Periodic;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(5);
/// What takes so long is held up.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Well,
    /// Why nothing can be promised now.
    HeldUp(String),
    /// What is gone for good.
    Ended(String),
}

/// A probe, and when it was begun.
type Probe = (Instant, JoinHandle<Result<(), StorageError>>);

/// What was found, and the task that looks.
#[derive(Default)]
pub(super) struct Health {
    condition: watch::Sender<Condition>,
    /// The probe that is on its way, and since when. Whoever looks holds it.
    probe: tokio::sync::Mutex<Option<Probe>>,
    looks: Periodic,
}

impl Database {
    /// What was found last.
    pub fn condition(&self) -> Condition {
        self.health.condition.borrow().clone()
    }

    /// Returns when something is gone without which the process is of no use, and says what.
    pub async fn ended(&self) -> String {
        let mut condition = self.health.condition.subscribe();
        loop {
            if let Condition::Ended(what) = &*condition.borrow_and_update() {
                return what.clone();
            }
            // The sender is in `self`.
            let _ = condition.changed().await;
        }
    }

    /// Looks from time to time, until the database is closed.
    pub(super) fn start_health(self: &Arc<Self>) {
        let looks = async |db: Arc<Database>| db.look(Instant::now(), INTERVAL / 2).await;
        self.health.looks.start(self, INTERVAL, looks);
    }

    pub(super) async fn stop_health(&self) {
        self.health.looks.stop("looking whether the server is well").await;
    }

    /// Looks once; a probe is waited for so long.
    pub async fn look(&self, now: Instant, wait_max: Duration) {
        let mut probe = self.health.probe.lock().await;
        let found = match self.what_ended() {
            Some(what) => Condition::Ended(what),
            None => match self.what_holds_up(&mut probe, now, wait_max).await {
                Some(why) => Condition::HeldUp(why),
                None => Condition::Well,
            },
        };
        self.health.condition.send_if_modified(|known| {
            // What has ended stays so.
            if *known == found || matches!(known, Condition::Ended(_)) {
                return false;
            }
            match &found {
                Condition::Well => tracing::info!("the server is well again"),
                Condition::HeldUp(why) => tracing::warn!(why, "the server is not ready"),
                Condition::Ended(what) => tracing::error!(what, "the server cannot go on"),
            }
            *known = found;
            true
        });
    }

    fn what_ended(&self) -> Option<String> {
        if !self.store.logs().is_writing() {
            return Some("the thread that writes the log has ended".to_owned());
        }
        self.runtime
            .has_stopped_deciding()
            .then(|| "the driver of epochs has ended".to_owned())
    }

    async fn what_holds_up(
        &self,
        on_its_way: &mut Option<Probe>,
        now: Instant,
        wait_max: Duration,
    ) -> Option<String> {
        let since = self.runtime.deciding_since();
        if since.is_some_and(|since| now.saturating_duration_since(since) > PATIENCE) {
            return Some("a decision about epochs takes long".to_owned());
        }
        let (since, mut probe) = on_its_way.take().unwrap_or_else(|| {
            let store = self.store.probe();
            (now, tokio::task::spawn_blocking(store))
        });
        match tokio::time::timeout(wait_max, &mut probe).await {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(format!("nothing can be written: {error}")),
            Ok(Err(error)) => Some(format!("nothing can be written: {error}")),
            Err(_) => {
                *on_its_way = Some((since, probe));
                let waited = now.saturating_duration_since(since);
                (waited > PATIENCE).then(|| "a write to the data directory takes long".to_owned())
            }
        }
    }
}
