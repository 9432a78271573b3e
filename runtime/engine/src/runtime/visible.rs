//! What readers see: one committed epoch, which contains what they ask for, and who waits for it.
//!
//! Whoever waits for what was written has its epoch cut, where it would wait for company; but for those who only watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::Runtime;
use crate::error::{Result, RuntimeError};
use crate::feed::CUT_ROWS_MAX;
use crate::relation::Relation;
use crate::runtime::write::WriteToken;
use crate::snapshot::{Frozen, Snapshot};

impl Runtime {
    /// One committed epoch of these relations, at which the writes of `after` are visible.
    ///
    /// # Errors
    /// A relation is not known, or the runtime is shutting down.
    pub async fn snapshot(&self, relations: &[RelationId], after: Option<&WriteToken>) -> Result<Snapshot> {
        self.snapshot_when(relations, after, true).await
    }

    /// `hurries`: what it waits for does not wait for company.
    async fn snapshot_when(
        &self,
        relations: &[RelationId],
        after: Option<&WriteToken>,
        hurries: bool,
    ) -> Result<Snapshot> {
        let nothing = BTreeMap::new();
        let after = after.map_or(&nothing, |token| &token.ends);
        let mut progress = self.engine.versions.progress();
        loop {
            progress.borrow_and_update();
            // A view that a worker took with it is another one when it is filled again.
            let handles = relations
                .iter()
                .map(|id| self.engine.relation(*id))
                .collect::<Result<Vec<_>>>()?;
            let wanted: Vec<(RelationId, bool)> = handles
                .iter()
                .map(|r| (r.id(), !matches!(r.as_ref(), Relation::View(_))))
                .collect();
            let losses = |handles: &[Arc<Relation>]| -> u64 { handles.iter().map(|r| r.losses()).sum() };
            let before = losses(&handles);
            if let Some((epoch, versions, pin)) = self.engine.versions.pin(&wanted, after) {
                // What was dropped before it was pinned would seem to be empty, and so would one that was filled again.
                let mut is_same = true;
                for handle in &handles {
                    is_same &= Arc::ptr_eq(handle, &self.engine.relation(handle.id())?);
                }
                let frozen: BTreeMap<RelationId, Frozen> = handles
                    .iter()
                    .zip(versions)
                    .map(|(r, version)| {
                        (
                            r.id(),
                            Frozen::new(r, version, &pin, &self.engine.logs, self.engine.machine.data()),
                        )
                    })
                    .collect();
                // What was lost before it was looked at is not there either.
                if is_same && losses(&handles) == before {
                    return Ok(Snapshot::new(epoch, frozen));
                }
                continue;
            }
            if hurries {
                self.engine.hurry(relations);
            }
            progress
                .changed()
                .await
                .map_err(|_| RuntimeError::SHUTTING_DOWN)?;
        }
    }

    /// What a read of these relations has to contain: all that was acknowledged so far, to whomever. Where it reads views that all have a
    /// target for their freshness, and no source of theirs, only what the reader wrote: `own`.
    pub fn to_be_read(&self, relations: &[RelationId], own: &WriteToken) -> WriteToken {
        let mut all = self.acknowledged();
        let default = self.engine.workers.cut_times().freshness;
        let mut has_views = false;
        for id in relations {
            if let Ok(relation) = self.engine.relation(*id)
                && let Relation::View(view) = relation.as_ref()
            {
                has_views = true;
                if view.freshness_target(default).is_none() {
                    return all;
                }
            }
        }
        if has_views {
            all.ends.retain(|id, _| relations.contains(id));
            all.merge(own);
        }
        all
    }

    /// All that was acknowledged so far, to whomever: a read after it sees what anyone was told is written.
    pub fn acknowledged(&self) -> WriteToken {
        self.engine.writes.acknowledged.lock().clone()
    }

    /// Waits until all of `written` is visible in the views over it.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn wait_for(&self, written: &WriteToken) -> Result<()> {
        self.contained(written, true).await
    }

    /// The same, when its time has come: no epoch is cut for it.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn until_visible(&self, written: &WriteToken) -> Result<()> {
        self.contained(written, false).await
    }

    /// For who writes on and on: waits until the views are not behind, which have this or let it wait for company, with less than half of
    /// what an epoch takes.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn keep_up(&self, written: &WriteToken) -> Result<()> {
        let bytes_max = self.engine.machine.memory.cut_bytes_max();
        let waits_for_company = written.ends.keys().all(|relation| {
            let Some(pipeline) = self.engine.versions.pipeline_of(*relation) else {
                return true;
            };
            let size = self.engine.writes.feeds.lock().size(pipeline);
            let is_little = size.rows < CUT_ROWS_MAX / 2 && size.bytes < bytes_max / 2;
            is_little && self.engine.workers.is_paced(pipeline)
        });
        match waits_for_company {
            true => Ok(()),
            false => self.wait_for(written).await,
        }
    }

    async fn contained(&self, written: &WriteToken, hurries: bool) -> Result<()> {
        let known: Vec<RelationId> = {
            let relations = self.engine.relations.read();
            written
                .ends
                .keys()
                .filter(|id| relations.contains_key(id))
                .copied()
                .collect()
        };
        self.snapshot_when(&known, Some(written), hurries)
            .await
            .map(|_| ())
    }

    /// Waits until no view is being filled again.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn filled_again(&self) -> Result<()> {
        self.until(|engine| !engine.versions.is_any_abandoned()).await
    }
}
