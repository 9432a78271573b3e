//! Views in which the process died: one that kills the server whenever it runs must not kill it at every start.
//!
//! `RUNNING` tells which views ran when the process died ([`millrace_resource::running::Running`]). The start counts that as a death of
//! each of them, in a fact of the catalog, before anything runs. What there was at the death is run again by the start: if
//! all of it was gone through, and the clock was followed, the view was not to blame, and its deaths are forgotten. With
//! [`DEATHS_MAX`] of them the view fails to load: it died twice over the same rows. A clean stop forgets all, so that the start
//! after it tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_resource::running::{Place, Running};
use millrace_storage::{CatalogChange, ObjectId, ObjectKind, StorageError, Store};
use parking_lot::Mutex;

use crate::database::Database;

/// The file in the data directory.
const FILE: &str = "RUNNING";
/// The fact that has the deaths by view.
const FACT: &str = "deaths";
/// How long views may take until they are at this moment; nothing else is looked after meanwhile.
const FOLLOWING_MAX: Duration = Duration::from_secs(5);
/// So many deaths are too many.
const DEATHS_MAX: u32 = 2;

/// See the module.
#[derive(Debug)]
pub struct Deaths {
    running: Option<Arc<Running>>,
    /// By view, since it was last gone through.
    counts: Mutex<BTreeMap<ObjectId, u32>>,
}

impl Deaths {
    /// Counts what the last process left.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub(super) fn open(store: &Store) -> Result<Deaths, StorageError> {
        let path = store.directory().join(FILE);
        let (running, ran) = match Running::open(&path) {
            Ok((running, ran)) => (Some(running), ran),
            Err(error) => {
                say_unknown(&path, &error);
                (None, BTreeSet::new())
            }
        };
        let counts = count(store, &ran)?;
        // Only now: a death that is counted twice does less harm than one that never is.
        let running = running.filter(|running| match running.begin() {
            Ok(()) => true,
            Err(error) => {
                say_unknown(&path, &error);
                false
            }
        });
        Ok(Deaths {
            running: running.map(Arc::new),
            counts: Mutex::new(counts),
        })
    }

    /// Where it is noted which views run.
    pub(super) fn running(&self) -> Option<&Arc<Running>> {
        self.running.as_ref()
    }

    /// For a thread that does something for a view outside of the runtime's tasks.
    pub(super) fn place(&self) -> Option<Place> {
        self.running.as_ref().map(Running::place)
    }

    /// Why a view is not to run.
    pub(super) fn refusal(&self, view: ObjectId) -> Option<SqlError> {
        let deaths = self.counts.lock().get(&view).copied().unwrap_or_default();
        (deaths >= DEATHS_MAX).then(|| {
            let message = format!(
                "the server crashed {deaths} times while it ran this view; the view is tried again at the \
                 start after the next clean stop"
            );
            SqlError::new(SqlState::ObjectNotInPrerequisiteState, message)
        })
    }

    /// Whether it is to be found out which views are not to blame.
    fn has_suspects(&self) -> bool {
        self.counts.lock().values().any(|deaths| *deaths < DEATHS_MAX)
    }

    /// What there was at the last deaths was gone through: they are forgotten, of all views that ran.
    fn acquit(&self, store: &Store) -> Result<(), StorageError> {
        let mut counts = self.counts.lock();
        let left: BTreeMap<ObjectId, u32> = (counts.iter())
            .filter(|(_, deaths)| **deaths >= DEATHS_MAX)
            .map(|(view, deaths)| (*view, *deaths))
            .collect();
        if left.len() < counts.len() {
            keep(store, &left)?;
            *counts = left;
        }
        Ok(())
    }

    /// A clean stop.
    pub(super) fn forget(&self, store: &Store) -> Result<(), StorageError> {
        let mut counts = self.counts.lock();
        if !counts.is_empty() {
            counts.clear();
            keep(store, &counts)?;
        }
        Ok(())
    }
}

fn say_unknown(path: &Path, error: &std::io::Error) {
    tracing::warn!(
        path = %path.display(), %error,
        "cannot record which views are running: if one crashes the process, the next start will not know \
         which"
    );
}

/// The deaths so far, with those of the views that ran when the process died.
fn count(store: &Store, ran: &BTreeSet<RelationId>) -> Result<BTreeMap<ObjectId, u32>, StorageError> {
    let views: BTreeMap<ObjectId, String> = (store.catalog().objects().into_iter())
        .filter(|object| object.kind == ObjectKind::MaterializedView)
        .map(|object| (object.id, object.name))
        .collect();
    let fact = store.catalog().fact(FACT)?;
    let known: BTreeMap<u64, u32> = fact
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let mut counts: BTreeMap<ObjectId, u32> = known
        .into_iter()
        .map(|(view, deaths)| (ObjectId(view), deaths))
        .filter(|(view, _)| views.contains_key(view))
        .collect();
    let mut is_new = false;
    for id in ran.iter().map(|view| ObjectId(view.0)) {
        if let Some(name) = views.get(&id) {
            let deaths = counts.entry(id).or_default();
            *deaths += 1;
            is_new = true;
            tracing::warn!(
                view = name,
                deaths = *deaths,
                "the last process crashed while it ran this view"
            );
        }
    }
    if is_new {
        keep(store, &counts)?;
    }
    Ok(counts)
}

fn keep(store: &Store, counts: &BTreeMap<ObjectId, u32>) -> Result<(), StorageError> {
    let key = FACT.to_owned();
    let change = if counts.is_empty() {
        CatalogChange::RemoveFact { key }
    } else {
        let counts: BTreeMap<u64, u32> = counts.iter().map(|(view, deaths)| (view.0, *deaths)).collect();
        let value = serde_json::to_vec(&counts).expect("a map of numbers is JSON");
        CatalogChange::PutFact { key, value }
    };
    store.catalog().apply(vec![change])
}

impl Database {
    /// Why a materialized view is not to run after this start.
    pub(super) fn view_refusal(&self, view: ObjectId) -> Option<SqlError> {
        if !self.options.run_views {
            let message = "the server was started without materialized views (views = off)";
            return Some(SqlError::new(SqlState::ObjectNotInPrerequisiteState, message));
        }
        self.deaths.refusal(view)
    }

    /// Forgets the deaths of views that have gone through all that there was at the start.
    pub(super) async fn acquit_views(&self) {
        if !self.deaths.has_suspects() || !self.runtime.catching_up().is_empty() {
            return;
        }
        // What happens by time alone may have been it.
        let followed = tokio::time::timeout(FOLLOWING_MAX, self.runtime.follow_clock()).await;
        let outcome = match followed {
            Ok(Ok(())) => self.deaths.acquit(&self.store),
            // The server stops, which forgets them too; or epochs take long: it is asked again.
            Ok(Err(_)) | Err(_) => return,
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "cannot clear the suspicion against views in which the process crashed");
        }
    }
}
