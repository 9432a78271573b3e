//! A new table that follows a server: whoever makes it waits until it has its rows, or hears why it gets none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::Object;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use super::{Progress, State, Task};
use crate::database::Database;

/// How soon it is looked again for a source that is being started again.
const RESTART: Duration = Duration::from_millis(10);
/// How often it is looked whether the table is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After so many attempts that failed one after the other, whoever waits is told.
const ATTEMPTS_MAX: u32 = 3;

/// What has become of the copy.
enum Copied {
    Done,
    Failed(String),
}

impl Copied {
    /// None: it is not known yet.
    fn of(progress: &Progress, table: ObjectId) -> Option<Copied> {
        if progress.place.tables.contains_key(&table.0) {
            return Some(Copied::Done);
        }
        let is_over = match progress.state {
            State::Failed => true,
            State::Retrying => progress.failures >= ATTEMPTS_MAX,
            _ => false,
        };
        let error = || {
            progress
                .error
                .clone()
                .unwrap_or_else(|| "the source has failed".to_owned())
        };
        is_over.then(|| Copied::Failed(error()))
    }
}

impl Database {
    /// Waits until a table that follows a server has its rows.
    ///
    /// # Errors
    /// Why it does not get them.
    pub async fn table_is_copied(&self, source: ObjectId, table: ObjectId) -> SqlResult<()> {
        let refused = |why: String| Err(SqlError::new(SqlState::ObjectNotInPrerequisiteState, why));
        loop {
            let task = |tasks: &BTreeMap<ObjectId, Task>| Some(tasks.get(&source)?.progress.clone());
            let Some(mut progress) = task(&self.sources.tasks.lock()) else {
                return refused("the source was dropped while the table was filled from it".to_owned());
            };
            if self.catalog().object(table).is_none() {
                return refused("the table was dropped while it was filled".to_owned());
            }
            if let Some(copied) = Copied::of(&progress.borrow(), table) {
                return match copied {
                    Copied::Done => Ok(()),
                    Copied::Failed(why) => refused(why),
                };
            }
            let changed = tokio::time::timeout(LOOK_EVERY, progress.changed()).await;
            match changed {
                _ if self.is_paused(source)? => return Ok(()),
                // It is started again, for a column that is to be added first, say.
                Ok(Err(_)) => tokio::time::sleep(RESTART).await,
                Ok(Ok(())) | Err(_) => {}
            }
        }
    }

    /// Drops a table that could not be filled, and has the source go on without it. What others have made of it meanwhile keeps it.
    ///
    /// # Errors
    /// The catalog cannot be written.
    pub async fn drop_unfilled(self: &Arc<Self>, source: &Object, table: ObjectId) -> SqlResult<()> {
        let guard = self.ddl().await;
        let catalog = guard.catalog();
        let Some(object) = catalog.object(table) else {
            drop(guard);
            return self.restart_source(source, async || Ok(())).await;
        };
        let all = catalog.closure(&[table]);
        let is_part = |id: &ObjectId| {
            let kind = catalog.object(*id).map(|part| part.kind);
            *id == table || matches!(kind, Some(ObjectKind::Index | ObjectKind::Sequence))
        };
        if !all.iter().all(is_part) || !self.jobs().over(&[Arc::clone(object)]).is_empty() {
            tracing::warn!(
                table = object.described(),
                "a table that could not be filled stays: something was made of it"
            );
            return Ok(());
        }
        guard.drop(&all).await?;
        drop(guard);
        self.restart_source(source, async || Ok(())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_hears_of_the_copy_or_why_there_is_none() {
        let table = ObjectId(7);
        let outcome = |progress: &Progress| match Copied::of(progress, table) {
            None => "waits".to_owned(),
            Some(Copied::Done) => "done".to_owned(),
            Some(Copied::Failed(why)) => why,
        };
        let mut progress = Progress::default();
        assert_eq!(outcome(&progress), "waits");
        progress.error = Some("no".to_owned());
        for (state, failures, expected) in [
            (State::Retrying, 1, "waits"),
            (State::Retrying, ATTEMPTS_MAX, "no"),
            (State::Failed, 1, "no"),
            (State::Running, ATTEMPTS_MAX, "waits"),
        ] {
            (progress.state, progress.failures) = (state, failures);
            assert_eq!(outcome(&progress), expected, "{state:?} {failures}");
        }
        progress.place.tables.insert(table.0, 5);
        progress.state = State::Failed;
        assert_eq!(outcome(&progress), "done");
    }
}
