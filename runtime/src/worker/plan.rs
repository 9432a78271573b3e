//! Who waits for whom among the tasks of one epoch of a pipeline.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::cpu::QueryClass;
use super::view::ViewInstance;
use crate::driver::PipelineId;

/// The views of a pipeline as they are in one epoch, and their edges.
pub(super) struct PipelinePlan {
    pub pipeline: PipelineId,
    pub class: QueryClass,
    views: Vec<Arc<ViewInstance>>,
    position: HashMap<RelationId, usize>,
    /// For each view and stage, the one stage that reads it.
    consumer: HashMap<(RelationId, usize), usize>,
    /// Map stages by the relation that they read.
    readers: HashMap<RelationId, Vec<(RelationId, usize)>>,
}

impl PipelinePlan {
    pub fn new(pipeline: PipelineId, class: QueryClass, views: Vec<Arc<ViewInstance>>) -> Self {
        let mut consumer = HashMap::new();
        let mut readers: HashMap<RelationId, Vec<(RelationId, usize)>> = HashMap::new();
        for view in &views {
            for stage in &view.graph.stages {
                for upstream in stage.upstream() {
                    consumer.insert((view.id, upstream), stage.id);
                }
                if let Some(source) = stage.source() {
                    readers.entry(source).or_default().push((view.id, stage.id));
                }
            }
        }
        let position = views
            .iter()
            .enumerate()
            .map(|(position, view)| (view.id, position))
            .collect();
        PipelinePlan {
            pipeline,
            class,
            views,
            position,
            consumer,
            readers,
        }
    }

    pub fn views(&self) -> &[Arc<ViewInstance>] {
        &self.views
    }

    pub fn view(&self, id: RelationId) -> Option<&Arc<ViewInstance>> {
        self.position.get(&id).map(|position| &self.views[*position])
    }

    /// The stage that reads this one's exchange.
    pub fn consumer(&self, view: RelationId, stage: usize) -> Option<usize> {
        self.consumer.get(&(view, stage)).copied()
    }

    /// The map stages that read a relation.
    pub fn readers(&self, relation: RelationId) -> &[(RelationId, usize)] {
        self.readers.get(&relation).map_or(&[], Vec::as_slice)
    }

    /// Tasks that read a relation's changes in one epoch.
    pub fn reading_tasks(&self, relation: RelationId) -> usize {
        self.readers(relation)
            .iter()
            .filter_map(|(view, _)| self.view(*view))
            .map(|view| view.graph.partitions)
            .sum()
    }
}
