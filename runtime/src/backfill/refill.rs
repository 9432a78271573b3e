//! Views that were lost with a worker, and are in no checkpoint: they are filled again, under their own names.
//!
//! Until then whoever reads them waits, and so do jobs that read them. What depends on them was lost with them, since it is
//! in the same pipeline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_planner::RelationId;

use super::BackfillOptions;
use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::runtime::{Inner, Runtime, ViewSpec};
use crate::worker::ViewInstance;

impl Inner {
    /// Fills views again that are part of no pipeline any more; in the order in which they read each other.
    pub fn refill(self: &Arc<Self>, views: Vec<RelationId>) {
        let mut lost = vec![];
        for id in views {
            let Some(view) = self.view(id) else { continue };
            if view.failure().is_some() {
                // It stays as it is.
                self.versions.detach(id);
                continue;
            }
            self.versions.abandon(id);
            self.timers.remove(self, id);
            self.checkpoints.remove(id);
            self.uninstall(id);
            for partition in 0..view.graph.partitions {
                if let Err(error) = view.lose(partition) {
                    view.fail(error.to_string());
                }
            }
            lost.push(id);
            self.recoveries[1].fetch_add(1, Ordering::Relaxed);
        }
        if lost.is_empty() {
            return;
        }
        let runtime = Runtime {
            inner: Arc::clone(self),
        };
        self.io.spawn(async move { runtime.fill_again(lost).await });
    }

    fn view(&self, id: RelationId) -> Option<Arc<ViewInstance>> {
        match self.relation(id).ok()?.as_ref() {
            Relation::View(view) => Some(Arc::clone(view)),
            _ => None,
        }
    }

    /// Why one of these views cannot be filled again, if so: rows of a stream that it was made of are in a checkpoint and not in
    /// the log any more.
    fn history_gone(&self, views: &[Arc<ViewInstance>]) -> Option<String> {
        let manifests = self.durable.as_ref()?.files.manifests();
        let is_kept = |view: &Arc<ViewInstance>| {
            let mut relations = manifests.iter().flat_map(|manifest| manifest.relations());
            relations.any(|relation| relation == view.id.0)
        };
        let mut inputs = (views.iter().filter(|view| is_kept(view))).flat_map(|view| &view.graph.inputs);
        let gone = inputs.find(|input| self.logs.first(input.id.0) > 0)?;
        Some(format!(
            "retention has removed rows of stream \"{}\"; the next start has the view's checkpoint",
            gone.name
        ))
    }

    /// Whether a view has failed, or is gone.
    pub(super) fn is_set_aside(&self, id: RelationId) -> bool {
        self.view(id).is_none_or(|view| view.failure().is_some())
    }

    /// Makes views known by their names. One that is filled again takes the place of the one that was lost, indexes included.
    ///
    /// # Errors
    /// One of those was dropped meanwhile.
    pub(crate) fn adopt(&self, views: &[Arc<ViewInstance>]) -> Result<()> {
        let mut relations = self.relations.write();
        for view in views {
            if self.versions.is_abandoned(&[view.id]) && !relations.contains_key(&view.id) {
                return Err(RuntimeError::UnknownRelation(view.id));
            }
        }
        for view in views {
            if let Some(before) = relations.get(&view.id)
                && let Relation::View(before) = before.as_ref()
            {
                for (new, old) in view.contents.partitions.iter().zip(&before.contents.partitions) {
                    for columns in old.read().indexed_columns() {
                        if !columns.is_empty() {
                            new.write().add_index(columns)?;
                        }
                    }
                }
            }
            relations.insert(view.id, Arc::new(Relation::View(Arc::clone(view))));
        }
        Ok(())
    }
}

impl Runtime {
    async fn fill_again(&self, mut lost: Vec<RelationId>) {
        loop {
            // What was dropped meanwhile is wanted by nobody.
            lost.retain(|id| self.inner.view(*id).is_some());
            let views: Vec<Arc<ViewInstance>> = lost.iter().filter_map(|id| self.inner.view(*id)).collect();
            if views.is_empty() {
                return;
            }
            let specs = views
                .iter()
                .map(|view| ViewSpec {
                    id: view.id,
                    name: view.name.clone(),
                    graph: view.graph.clone(),
                })
                .collect();
            let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
            let error = match self.inner.history_gone(&views) {
                Some(why) => why,
                None => {
                    tracing::warn!(views = ?names, "lost with a worker: filling again");
                    match self.create_views(specs, BackfillOptions::default()).await {
                        Ok(()) => return,
                        // Another one was lost meanwhile: what it did of this is done by those that are left.
                        Err(RuntimeError::WorkerLost(_)) => continue,
                        Err(error) => error.to_string(),
                    }
                }
            };
            if lost.iter().any(|id| self.inner.view(*id).is_none()) {
                continue;
            }
            tracing::error!(views = ?names, %error, "cannot be filled again");
            for view in views {
                view.fail(format!(
                    "it was lost with a worker, and cannot be filled again: {error}"
                ));
                self.inner.versions.give_up(view.id);
            }
            return;
        }
    }
}
