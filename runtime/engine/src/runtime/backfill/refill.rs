//! Views that were lost with a worker, and are in no checkpoint: they are filled again, under their own names. So are views
//! that get more partitions, because their state is larger than memory.
//!
//! Until then whoever reads them waits, and so do jobs that read them. What depends on them was lost with them, since it is
//! in the same pipeline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_planner::RelationId;
use millrace_resource::error::ResourceError;

use super::{BackfillOptions, DIVIDED_PIECE};
use crate::error::{Result, RuntimeError};
use crate::relation::Relation;
use crate::runtime::{Engine, Runtime};
use crate::worker::{PARTITIONS_DIVIDED, ViewInstance, ViewSpec, partitions_divided};

impl Engine {
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
            self.timers.remove(id);
            self.checkpoints.store.remove(id);
            self.uninstall(id);
            for partition in 0..view.graph.partitions {
                if let Err(error) = view.lose(partition) {
                    view.fail(error.to_string());
                }
            }
            lost.push(id);
            self.checkpoints.recoveries[1].fetch_add(1, Ordering::Relaxed);
        }
        if lost.is_empty() {
            return;
        }
        let runtime = Runtime {
            engine: Arc::clone(self),
        };
        self.machine
            .io
            .spawn(async move { runtime.fill_again(lost, None).await });
    }

    /// Rebuilds a view with more partitions, and whatever reads it with it. If its history is not there any more it stays as
    /// it is.
    pub(crate) async fn divide(self: &Arc<Self>, view: &Arc<ViewInstance>) {
        let mut lost = vec![view.id];
        {
            let relations = self.relations.read();
            let mut views: Vec<&Arc<ViewInstance>> = (relations.values())
                .filter_map(|relation| match relation.as_ref() {
                    Relation::View(view) => Some(view),
                    Relation::Stream(_) | Relation::Table(_) => None,
                })
                .collect();
            // Who reads another was made after it.
            views.sort_by_key(|view| view.id);
            for view in views {
                if !lost.contains(&view.id) && view.graph.inputs.iter().any(|input| lost.contains(&input.id))
                {
                    lost.push(view.id);
                }
            }
        }
        let views: Vec<Arc<ViewInstance>> = lost.iter().filter_map(|id| self.view(*id)).collect();
        if let Some(why) = self.history_gone(&views) {
            tracing::error!(view = %view.name, why, "the view cannot be rebuilt with more partitions, which \
             its state needs");
            if view.failure().is_some() {
                self.machine.memory.note_view_failed();
            }
            self.versions.give_up(view.id);
            return;
        }
        let Ok(held) = self.quiesce(vec![view.id]).await else {
            return;
        };
        // It may have been dropped meanwhile, or lost with a worker and be filled again.
        let is_same = |view: &Arc<ViewInstance>| {
            let is_now = self.view(view.id).is_some_and(|now| Arc::ptr_eq(&now, view));
            is_now && self.versions.pipeline_of(view.id).is_some()
        };
        if !views.iter().all(is_same) {
            if view.failure().is_some() || self.view(view.id).is_none() {
                self.versions.give_up(view.id);
            }
            return;
        }
        self.machine.memory.note_divided();
        for view in &views {
            self.versions.abandon(view.id);
            self.timers.remove(view.id);
            self.checkpoints.store.remove(view.id);
            self.uninstall(view.id);
            for partition in 0..view.graph.partitions {
                if let Err(error) = view.lose(partition) {
                    view.fail(error.to_string());
                }
            }
        }
        held.resume(vec![], lost.clone());
        let runtime = Runtime {
            engine: Arc::clone(self),
        };
        runtime.fill_again(lost, Some(view.id)).await;
    }

    pub(crate) fn view(&self, id: RelationId) -> Option<Arc<ViewInstance>> {
        match self.relation(id).ok()?.as_ref() {
            Relation::View(view) => Some(Arc::clone(view)),
            _ => None,
        }
    }

    /// Why one of these views cannot be filled again, if so: rows of a stream that it was made of are in a checkpoint and not in
    /// the log any more.
    fn history_gone(&self, views: &[Arc<ViewInstance>]) -> Option<String> {
        let manifests = self.checkpoints.durable.as_ref()?.files.manifests();
        let is_kept = |view: &Arc<ViewInstance>| {
            let mut relations = manifests.iter().flat_map(|manifest| manifest.relations());
            relations.any(|relation| relation == view.id.0)
        };
        let mut inputs = (views.iter().filter(|view| is_kept(view))).flat_map(|view| &view.graph.inputs);
        let gone = inputs.find(|input| self.logs.first(input.id.0) > 0)?;
        Some(format!(
            "retention has removed rows of stream \"{}\"; the view can be restored from its checkpoint at \
             the next start",
            gone.name
        ))
    }

    /// Whether a view has failed, or is gone.
    pub(super) fn has_failed(&self, id: RelationId) -> bool {
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
                // It may have more partitions now.
                let indexes = before.contents.partitions.first();
                let indexes = indexes.map_or(vec![], |partition| partition.read().indexed_columns());
                for partition in &view.contents.partitions {
                    for columns in indexes.iter().filter(|columns| !columns.is_empty()) {
                        partition.write().add_index(columns.clone())?;
                    }
                }
            }
            relations.insert(view.id, Arc::new(Relation::View(Arc::clone(view))));
        }
        Ok(())
    }
}

impl Runtime {
    /// `divided`: one of them gets more partitions.
    async fn fill_again(&self, mut lost: Vec<RelationId>, divided: Option<RelationId>) {
        loop {
            // What was dropped meanwhile is wanted by nobody.
            lost.retain(|id| self.engine.view(*id).is_some());
            let views: Vec<Arc<ViewInstance>> = lost.iter().filter_map(|id| self.engine.view(*id)).collect();
            if views.is_empty() {
                return;
            }
            let specs = views
                .iter()
                .map(|view| {
                    let mut graph = view.graph.clone();
                    graph.freshness_us = view.freshness().map(|target| target.as_micros() as u64);
                    if divided == Some(view.id) {
                        graph.partitions = partitions_divided(self.memory().limit());
                    }
                    ViewSpec {
                        id: view.id,
                        name: view.name.clone(),
                        graph,
                        definition: view.definition.clone(),
                    }
                })
                .collect();
            let why = match divided {
                None => "it was lost with a worker",
                Some(_) => "its state is larger than memory",
            };
            let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
            let error = match self.engine.history_gone(&views) {
                Some(why) => why,
                None => {
                    tracing::warn!(views = ?names, why, "refilling views");
                    let mut options = BackfillOptions::default();
                    if divided.is_some()
                        || views
                            .iter()
                            .any(|view| view.graph.partitions >= PARTITIONS_DIVIDED)
                    {
                        options.piece_rows *= DIVIDED_PIECE;
                    }
                    match self.create_views(specs, options).await {
                        Ok(()) => return,
                        // Another one was lost meanwhile: what it did of this is done by those that are left.
                        Err(RuntimeError::Resource(ResourceError::WorkerLost(_))) => continue,
                        Err(error) => error.to_string(),
                    }
                }
            };
            if lost.iter().any(|id| self.engine.view(*id).is_none()) {
                continue;
            }
            tracing::error!(views = ?names, %error, "views cannot be refilled");
            for view in views {
                view.fail_for_good(format!("{why}, and it cannot be refilled: {error}"));
                self.engine.versions.give_up(view.id);
            }
            return;
        }
    }
}
