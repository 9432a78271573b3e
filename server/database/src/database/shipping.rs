//! Ships what is written to a copy in an object store, so that little is lost with the machine.
//!
//! A task of its own makes a moment of the copy every interval; what a moment is, is `millrace_storage::offsite`'s. Nothing waits for it:
//! while the object store does not answer, the server goes on, and says how far the copy is behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::StorageError;
use millrace_storage::offsite::{Place, ShipOptions, Shipped, Shipper};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;

use crate::clock::now_ms;
use crate::database::Database;
use crate::database::periodic::Periodic;

/// How long a start waits for the object store to say whether the copy is another server's.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an orderly stop tries to make the last moment.
const LAST_MAX: Duration = Duration::from_secs(20);
/// What goes on is logged again after so long.
const SAY_AGAIN_MS: i64 = 60_000;

/// Where a copy is kept, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShippingOptions {
    /// The URL of a bucket or a directory.
    pub url: String,
    /// The time between two moments.
    pub interval: Duration,
    /// Whether to take over a copy that is another directory's.
    pub take_over: bool,
}

/// How a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShippingStatus {
    pub url: String,
    /// `starting`, `shipping`, `failing` or `fenced`.
    pub state: &'static str,
    pub shipped: Shipped,
    /// What was written since is not in the copy, in milliseconds since 1970-01-01 UTC; 0: nothing is known of it.
    pub covered_ms: i64,
    /// For how long that has been so.
    pub lag_ms: i64,
    /// Why the last step failed.
    pub error: Option<String>,
}

/// The task, and what it said last.
#[derive(Default)]
pub struct Shipping {
    shipper: Arc<tokio::sync::Mutex<Option<Shipper>>>,
    ticks: Periodic,
    /// Breaks a step off: the object store may be away.
    stop: Arc<Notify>,
    shipped: Mutex<Option<Arc<Mutex<Shipped>>>>,
    said: Arc<Mutex<Said>>,
}

/// How the last step came out.
#[derive(Debug, Default)]
struct Said {
    started_ms: i64,
    has_stepped: bool,
    is_fenced: bool,
    error: Option<String>,
    logged_ms: i64,
}

impl Said {
    /// Hears of a step.
    fn hear(&mut self, outcome: Result<(), StorageError>, now_ms: i64) {
        self.has_stepped = true;
        let Err(error) = outcome else {
            if self.error.take().is_some() {
                tracing::info!("the copy in the object store is up to date again");
                self.logged_ms = 0;
            }
            return;
        };
        self.is_fenced = matches!(error, StorageError::Fenced { .. } | StorageError::NotOurs { .. });
        if now_ms.saturating_sub(self.logged_ms) >= SAY_AGAIN_MS {
            self.logged_ms = now_ms;
            match self.is_fenced {
                true => tracing::error!(%error, "nothing is shipped any more"),
                false => {
                    tracing::warn!(%error, "the copy in the object store falls behind; this is tried again")
                }
            }
        }
        self.error = Some(error.to_string());
    }
}

/// Refuses a copy in the data directory, and a data directory in the copy.
fn check_apart(url: &str, data: &Path) -> SqlResult<()> {
    let Some(directory) = Place::directory_of(url) else {
        return Ok(());
    };
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    match (whole(&directory), whole(data)) {
        (Ok(copy), Ok(data)) if copy.starts_with(&data) || data.starts_with(&copy) => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("log_url cannot be inside of the data directory, nor around it: {url}"),
        )),
        _ => Ok(()),
    }
}

impl Shipping {
    /// How the copy is; `None`: there is to be none.
    fn status(&self, url: &str, now_ms: i64) -> Option<ShippingStatus> {
        let shipped = self
            .shipped
            .lock()
            .as_ref()
            .map(|shipped| shipped.lock().clone())?;
        let said = self.said.lock();
        let covered_ms = shipped.covered_ms.max(shipped.moment_at_ms);
        let since_ms = if covered_ms > 0 {
            covered_ms
        } else {
            said.started_ms
        };
        Some(ShippingStatus {
            url: url.to_owned(),
            state: match &said.error {
                _ if said.is_fenced => "fenced",
                Some(_) => "failing",
                None if said.has_stepped => "shipping",
                None => "starting",
            },
            covered_ms,
            lag_ms: now_ms.saturating_sub(since_ms).max(0),
            shipped,
            error: said.error.clone(),
        })
    }
}

impl Database {
    /// How the copy is that is kept elsewhere; `None`: none is.
    pub fn shipping_status(&self) -> Option<ShippingStatus> {
        let options = self.options.shipping.as_ref()?;
        self.shipping.status(&options.url, now_ms())
    }

    /// Finds out whose the copy is, before anything is written.
    ///
    /// # Errors
    /// It is another server's. That it cannot be asked is none.
    pub(super) async fn prepare_shipping(&self) -> SqlResult<()> {
        let Some(options) = &self.options.shipping else {
            return Ok(());
        };
        check_apart(&options.url, self.store.directory())?;
        let place = Place::open(&options.url)?;
        let name = || Uuid::new_v4().simple().to_string();
        let mut ship = ShipOptions::new(name(), name(), Arc::new(now_ms));
        ship.take_over = options.take_over;
        let mut shipper = Shipper::new(&self.store, place, ship);
        self.said_at_start(match timeout(CONNECT_MAX, shipper.connect()).await {
            Ok(Err(error @ StorageError::NotOurs { .. })) => return Err(error.into()),
            Ok(Err(error)) => Some(error),
            Ok(Ok(())) | Err(_) => None,
        });
        *self.shipping.shipped.lock() = Some(shipper.shipped());
        *self.shipping.shipper.lock().await = Some(shipper);
        Ok(())
    }

    fn said_at_start(&self, error: Option<StorageError>) {
        let mut said = self.shipping.said.lock();
        said.started_ms = now_ms();
        if let Some(error) = error {
            said.hear(Err(error), now_ms());
        }
    }

    /// Begins to ship.
    pub(super) fn start_shipping(self: &Arc<Self>) {
        let Some(options) = &self.options.shipping else {
            return;
        };
        let (shipper, said, stop) = (
            Arc::clone(&self.shipping.shipper),
            Arc::clone(&self.shipping.said),
            Arc::clone(&self.shipping.stop),
        );
        self.shipping.ticks.start(self, options.interval, move |db| {
            // What a step needs of the database it takes before: it may take long.
            let temporary = db.all_temporary();
            drop(db);
            let (shipper, said, stop) = (Arc::clone(&shipper), Arc::clone(&said), Arc::clone(&stop));
            async move {
                let mut shipper = shipper.lock().await;
                let Some(shipper) = shipper.as_mut() else { return };
                tokio::select! {
                    outcome = shipper.step(&temporary, false) => {
                        said.lock().hear(outcome.map(|_| ()), now_ms());
                    }
                    () = stop.notified() => {}
                }
            }
        });
    }

    /// Makes the last moment, of everything: nothing is written any more.
    pub(super) async fn finish_shipping(&self) {
        self.shipping.stop.notify_one();
        self.shipping.ticks.stop("shipping").await;
        let Some(mut shipper) = self.shipping.shipper.lock().await.take() else {
            return;
        };
        let last = BTreeSet::new();
        match timeout(LAST_MAX, shipper.step(&last, true)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "the last writes could not be shipped"),
            Err(_) => tracing::error!("the last writes could not be shipped in time"),
        }
    }
}
