//! The loss of a worker (Drizzle, section 3.3).
//!
//! ```text
//!  K = last checkpoint        committed           started
//!  |--------------------------|-------------------|          epochs after K can be run again: their cuts are kept where
//!                                                            sources arrive, what their tasks left on the workers
//! ```
//! What the lost worker had of a pipeline (state, rows that it left, its place in the order of things) goes to others by a
//! new template of the same lineage, whose first epoch is K + 1. The survivors keep what they have: a task that they ran is
//! not run again, they only tell of its output again, to whoever waits for it now. The partitions that changed hands are
//! restored as of K and run every epoch since; maps among them too, all epochs at once. Readers wait for views of the
//! pipeline until everything that they have seen is there again; nothing is taken back.
//!
//! A pipeline that is closed, for a change of its definitions or of its placement, ends with a checkpoint, and the next template
//! begins from it ([`Driver::close`]). So a loss at any moment finds one, and what is on another worker under the next template is
//! restored there as after a loss, with nothing to run again.
//!
//! Where there is no checkpoint (one worker alone, the first epoch of all), or where a view's rows go on in
//! batches that nobody keeps ([`Template::has_faucets`]), the views of the pipeline are
//! *abandoned*: their sources' logs are all there, so the views are filled again from the start, as new ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pipeline::Phase;
use super::{Command, Driver, cutter_of};
use crate::id::{PipelineId, WorkerId};
use crate::message::ToWorker;
use crate::template::{Replay, Template};

impl Driver {
    /// A worker is gone, with all that it had; it will not be listened to again.
    pub(super) fn lose(&mut self, worker: WorkerId, commands: &mut Vec<Command>) {
        let was_leaving = self.leaving.remove(&worker);
        if !self.workers.remove(&worker) && !was_leaving {
            return;
        }
        self.liveness.remove(&worker);
        self.cutters.remove(&worker);
        commands.push(Command::Evict { worker });
        self.lost.insert(worker);
        self.replace_lost(commands);
    }

    /// Puts what lost workers had elsewhere, if there is a worker to put it on.
    pub(super) fn replace_lost(&mut self, commands: &mut Vec<Command>) {
        if self.workers.is_empty() || self.lost.is_empty() {
            return;
        }
        let lost = std::mem::take(&mut self.lost);
        self.place(self.placement.len());
        let ids: Vec<PipelineId> = self.pipelines.keys().copied().collect();
        for id in ids {
            let Some(pipeline) = self.pipelines.get_mut(&id) else {
                continue;
            };
            if pipeline.hosts.is_disjoint(&lost) {
                continue;
            }
            if pipeline.is_job {
                pipeline.is_lost = true;
                commands.extend(
                    pipeline
                        .views
                        .first()
                        .map(|view| Command::JobLost { view: view.id }),
                );
            } else if pipeline.is_recoverable() {
                self.recover(id, &lost, commands);
            } else {
                self.abandon(id, commands);
            }
        }
        self.free_leaving(commands);
    }

    fn recover(&mut self, id: PipelineId, lost: &BTreeSet<WorkerId>, commands: &mut Vec<Command>) {
        let wanted = self.placement_of(id);
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        let (Some(old), Some(checkpoint)) = (&pipeline.template, pipeline.checkpoint) else {
            return;
        };
        self.version += 1;
        let partitions: Vec<usize> = (0..old.placement.len())
            .filter(|partition| lost.contains(&old.placement[*partition]))
            .collect();
        let mut placement = old.placement.clone();
        for partition in &partitions {
            placement[*partition] = wanted[*partition];
        }
        let cutter = if lost.contains(&old.cutter) {
            cutter_of(id, &placement, &self.workers, &self.cutters)
        } else {
            old.cutter
        };
        let is_final = placement == wanted[..placement.len()];
        self.prepared
            .extend(old.views.iter().map(|view| (view.id, self.version)));
        let template = Arc::new(Template {
            version: self.version,
            before: vec![old.version; old.views.len()],
            after: checkpoint,
            placement,
            cutter,
            replay: Some(Replay {
                to: pipeline.launched,
                checkpoints: pipeline.planned.iter().copied().collect(),
            }),
            ..Template::clone(old)
        });
        let participants = template.participants();
        pipeline.participants = participants.len();
        pipeline.hosts = participants.iter().copied().collect();
        pipeline.restoring = pipeline.hosts.clone();
        pipeline.is_recovering = true;
        pipeline.settled = checkpoint;
        pipeline.done.clear();
        pipeline.stragglers.forget();
        pipeline.template = Some(Arc::clone(&template));
        commands.push(Command::Lost {
            pipeline: id,
            views: pipeline.views.clone(),
            partitions,
            modulus: template.placement.len(),
        });
        for worker in participants {
            commands.push(Command::Send(worker, ToWorker::Prepare(Arc::clone(&template))));
        }
        commands.push(Command::CutterIs {
            pipeline: id,
            worker: cutter,
        });
        match pipeline.phase {
            Phase::Closing => commands.extend(pipeline.close()),
            // Partitions of the survivors are to move too, when it is at rest.
            Phase::Open if !is_final => self.close(id, commands),
            _ => {}
        }
    }

    /// Abandons the views of a pipeline. Whatever was cut counts as read: the sources go on.
    pub(super) fn abandon(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        let views: Vec<_> = std::mem::take(&mut pipeline.views)
            .iter()
            .map(|view| view.id)
            .collect();
        if let Some(template) = pipeline.template.take() {
            for worker in template.participants() {
                let message = ToWorker::Forget {
                    pipeline: id,
                    version: template.version,
                };
                commands.push(Command::Send(worker, message));
            }
        }
        for view in &views {
            self.pipeline_of.remove(view);
            self.prepared.remove(view);
        }
        pipeline.forget_checkpoint();
        pipeline.hosts.clear();
        pipeline.restoring.clear();
        pipeline.is_recovering = false;
        pipeline.skip_to(pipeline.launched);
        if pipeline.is_held {
            // Whoever holds it may be about to add a view over one that is gone.
            self.disturbed.extend(pipeline.tickets.front().copied());
        }
        commands.push(Command::Abandoned { pipeline: id, views });
        commands.push(Command::Commit {
            pipeline: id,
            epoch: pipeline.committed,
        });
        if pipeline.sources.is_empty() && pipeline.tickets.is_empty() {
            self.pipelines.remove(&id);
            return;
        }
        self.advance(id, commands);
    }
}
