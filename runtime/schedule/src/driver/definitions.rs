//! Definitions change while the pipelines concerned are idle: tickets, and pipelines that become one.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_planner::RelationId;

use super::pipeline::Pipeline;
use super::{Command, Driver};
use crate::id::{PipelineId, Ticket};
use crate::message::ToWorker;
use crate::template::ViewShape;

impl Driver {
    /// Forgets a back-fill. Its pipeline stays, with nothing in it, as long as somebody waits for its turn there.
    pub(super) fn remove_job(&mut self, view: RelationId, commands: &mut Vec<Command>) {
        let Some(id) = self.end_job(view) else { return };
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        for view in &pipeline.views {
            self.prepared.remove(&view.id);
        }
        forget(id, pipeline, commands);
        if pipeline.tickets.is_empty() {
            self.pipelines.remove(&id);
            return;
        }
        pipeline.is_job = false;
        pipeline.views.clear();
        pipeline.template = None;
        pipeline.hosts.clear();
        pipeline.restoring.clear();
        pipeline.is_recovering = false;
        pipeline.skip_to(pipeline.launched);
        self.advance(id, commands);
    }

    /// The views of a back-fill go on in another pipeline, which is held: whoever waits for its turn with them waits there.
    fn attach_job(
        &mut self,
        view: RelationId,
        into: PipelineId,
        commands: &mut Vec<Command>,
    ) -> Option<Pipeline> {
        let id = self.end_job(view)?;
        let mut pipeline = self.pipelines.remove(&id)?;
        forget(id, &pipeline, commands);
        if pipeline.is_held
            && let Some(own) = pipeline.tickets.pop_front()
        {
            // The back-fill's own right ends with it.
            self.tickets.remove(&own);
        }
        if let Some(other) = self.pipelines.get_mut(&into) {
            let holder = other.tickets.pop_front();
            let waiting = other.tickets.iter().chain(&pipeline.tickets);
            let waiting: BTreeSet<Ticket> = waiting
                .copied()
                .filter(|ticket| Some(*ticket) != holder)
                .collect();
            other.tickets = holder.into_iter().chain(waiting).collect();
        }
        self.wait_elsewhere(id, into);
        Some(pipeline)
    }

    fn end_job(&mut self, view: RelationId) -> Option<PipelineId> {
        let id = self.jobs.remove(&view)?;
        self.jobs.retain(|_, pipeline| *pipeline != id);
        Some(id)
    }

    /// Tickets that wait at one pipeline wait at another instead.
    fn wait_elsewhere(&mut self, from: PipelineId, into: PipelineId) {
        for pipelines in self.tickets.values_mut() {
            if pipelines.remove(&from) {
                pipelines.insert(into);
            }
        }
    }

    /// Queues the ticket at every pipeline of the relations.
    pub(super) fn quiesce(
        &mut self,
        ticket: Ticket,
        relations: &[RelationId],
        or_new: PipelineId,
        commands: &mut Vec<Command>,
    ) {
        let pipeline_of = |relation| {
            self.pipeline_of
                .get(relation)
                .or_else(|| self.jobs.get(relation))
                .copied()
        };
        let mut ids: BTreeSet<PipelineId> = relations.iter().filter_map(pipeline_of).collect();
        if ids.is_empty() {
            // A view over nothing (VALUES) is a pipeline of its own.
            self.pipelines.insert(or_new, Pipeline::new(self.group_size));
            ids.insert(or_new);
        }
        for id in &ids {
            if let Some(pipeline) = self.pipelines.get_mut(id) {
                pipeline.tickets.push_back(ticket);
            }
            self.close(*id, commands);
        }
        self.tickets.insert(ticket, ids);
        self.try_hold(ticket, commands);
    }

    /// If it is the ticket's turn at all of its pipelines and they are idle: joins them and says so.
    pub(super) fn try_hold(&mut self, ticket: Ticket, commands: &mut Vec<Command>) {
        let Some(ids) = self.tickets.get(&ticket) else {
            return;
        };
        let is_ready = |id: &PipelineId| {
            self.pipelines.get(id).is_some_and(|pipeline| {
                pipeline.tickets.front() == Some(&ticket) && pipeline.is_idle() && !pipeline.is_held
            })
        };
        if !ids.iter().all(is_ready) {
            return;
        }
        let mut ids = ids.clone().into_iter();
        let Some(into) = ids.next() else { return };
        for from in ids {
            self.join(into, from, commands);
        }
        if let Some(pipeline) = self.pipelines.get_mut(&into) {
            pipeline.is_held = true;
            commands.push(Command::Quiesced {
                ticket,
                pipeline: into,
                epoch: pipeline.committed,
            });
        }
    }

    /// Makes two idle pipelines one.
    fn join(&mut self, into: PipelineId, from: PipelineId, commands: &mut Vec<Command>) {
        let Some(other) = self.pipelines.remove(&from) else {
            return;
        };
        forget(from, &other, commands);
        let Some(pipeline) = self.pipelines.get_mut(&into) else {
            return;
        };
        let are_checkpointed = pipeline.is_checkpointed() && other.is_checkpointed();
        for relation in other
            .sources
            .iter()
            .chain(other.views.iter().map(|view| &view.id))
        {
            self.pipeline_of.insert(*relation, into);
        }
        pipeline.sources.extend(other.sources);
        // Views of different pipelines do not read each other: any order between them will do.
        pipeline.views.extend(other.views);
        pipeline.faucets.extend(other.faucets);
        pipeline.hosts.extend(other.hosts);
        pipeline.skip_to(other.committed);
        pipeline.begin_from(are_checkpointed);
        let waiting: BTreeSet<Ticket> = pipeline.tickets.iter().copied().chain(other.tickets).collect();
        pipeline.tickets = waiting.into_iter().collect();
        let epoch = pipeline.committed;
        self.wait_elsewhere(from, into);
        commands.push(Command::Joined { into, from });
        commands.push(Command::Commit {
            pipeline: into,
            epoch,
        });
    }

    pub(super) fn resume(
        &mut self,
        ticket: Ticket,
        views: Vec<Arc<ViewShape>>,
        dropped: &[RelationId],
        commands: &mut Vec<Command>,
    ) {
        let Some(id) = self.tickets.remove(&ticket).and_then(|ids| ids.first().copied()) else {
            return;
        };
        // A view was made over one that was lost meanwhile, or lost a part when it was about to join: it is as lost.
        let mut is_disturbed = self.disturbed.remove(&ticket) && !views.is_empty();
        let attached: Vec<RelationId> = views.iter().map(|view| view.id).collect();
        let is_on = self.checkpoints.is_on(self.workers.len());
        let (mut epoch_min, mut hosts) = (0, BTreeSet::new());
        let mut in_store = 0;
        for view in &attached {
            if let Some(job) = self.attach_job(*view, id, commands) {
                epoch_min = job.committed.max(epoch_min);
                is_disturbed |= job.is_lost;
                in_store += if job.is_checkpointed() { job.views.len() } else { 0 };
                // A worker joined when it was about to end: where its state is, and where it is to be, may be two places.
                is_disturbed |= is_on && !job.is_checkpointed();
                hosts.extend(job.hosts);
            }
        }
        if !is_disturbed {
            self.pipeline_of.extend(attached.iter().map(|view| (*view, id)));
        }
        for relation in dropped {
            self.pipeline_of.remove(relation);
            self.prepared.remove(relation);
        }
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        pipeline.tickets.pop_front();
        pipeline.is_held = false;
        if is_disturbed {
            commands.push(Command::Abandoned {
                pipeline: id,
                views: attached,
            });
        } else if !views.is_empty() {
            let were_checkpointed = pipeline.is_checkpointed();
            pipeline.views.extend(views);
            pipeline.hosts.extend(hosts);
            let is_checkpointed = were_checkpointed && in_store == attached.len();
            // A back-fill counted its own epochs; the view's versions go on from there.
            pipeline.epoch_floor = epoch_min;
            pipeline.catch_up(id, commands);
            pipeline.begin_from(is_checkpointed);
            commands.extend(
                attached
                    .into_iter()
                    .map(|view| Command::Attached { view, pipeline: id }),
            );
        }
        pipeline.views.retain(|view| !dropped.contains(&view.id));
        pipeline.sources.retain(|source| !dropped.contains(source));
        if pipeline.sources.is_empty() && pipeline.views.is_empty() && pipeline.tickets.is_empty() {
            if let Some(pipeline) = self.pipelines.remove(&id) {
                forget(id, &pipeline, commands);
            }
            // A view was dropped while it was filled.
            self.jobs.retain(|_, pipeline| *pipeline != id);
            return;
        }
        self.advance(id, commands);
    }
}

/// Tells the workers that the pipeline is gone.
fn forget(id: PipelineId, pipeline: &Pipeline, commands: &mut Vec<Command>) {
    if let Some(template) = &pipeline.template {
        for worker in template.participants() {
            let message = ToWorker::Forget {
                pipeline: id,
                version: template.version,
            };
            commands.push(Command::Send(worker, message));
        }
    }
}
