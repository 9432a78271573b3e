//! Stages whose rows go on to the next stage: as a whole when they are done, or in batches while they are made.
//!
//! ```text
//!  task of stage s     runs, emits little ................. ends ->  StageDone: its readers' counts go down, they fetch
//!                      runs, emits more than it may hold ->  StageFlows: the readers run beside it
//!                                                               ... ends -> EndFlow: they have had the last batch
//! ```
//! A batch carries one more coordinate of time: (epoch, batch). How many are in flight is settled between the tasks
//! ([`crate::worker`]); what is counted here, and what ends it, is the progress that is counted anyway (Faucet, section 4).
//!
//! A reader that runs because one stage flows takes what its other inputs bring when they bring it, whether they flow or not.
//! It must not wait for them first: they may wait, over several stages, for the one that flows to have space. As it is, a task
//! waits for space only in the tasks of its reader, those run, and the stages of a view are a tree: there is no cycle of waits.

use millrace_planner::RelationId;

use super::pipeline::Pipeline;
use super::{LocalAction, Work};
use crate::id::WorkerId;
use crate::message::ToPeer;
use crate::task::Source;
use crate::template::StageInput;

impl Pipeline {
    /// All tasks of a stage on a worker ended: `filled` are the partitions that have rows there; none if some of its rows
    /// went on in batches.
    pub fn stage_done(
        &mut self,
        number: u64,
        view: RelationId,
        stage: usize,
        from: WorkerId,
        filled: Option<&[u32]>,
        work: &mut Work<'_>,
    ) {
        let Some(filled) = filled else {
            return self.stage_flows(number, view, stage, work);
        };
        let Some(position) = self.hear(number, view, stage, from, work) else {
            return;
        };
        self.note_progress(number, position, stage, work);
        self.stage_arrived(number, position, stage, work, |partition| {
            let is_filled = filled.contains(&(partition as u32));
            is_filled.then_some(Source::Exchange { stage, from })
        });
    }

    /// Rows of a stage go on in batches: its reader takes them, and everything else that has not come yet, while it runs.
    pub fn stage_flows(&mut self, number: u64, view: RelationId, stage: usize, work: &mut Work<'_>) {
        let plan = self.plan.clone();
        let Some(position) = plan.position(view) else {
            return;
        };
        let stages = &plan.template.views[position].stages;
        let Some(reader) = stages[stage].reader else {
            return;
        };
        let StageInput::Stages(upstream) = &stages[reader].input else {
            return;
        };
        for stage in upstream.iter().copied() {
            for from in plan.workers_of(position, stage).iter().copied() {
                if self.hear(number, view, stage, from, work).is_some() {
                    self.stage_arrived(number, position, stage, work, |_| {
                        Some(Source::Flow { stage, from })
                    });
                }
            }
        }
    }

    /// Whether it is the first that is heard of a stage on a worker, and has a meaning; then the view's position.
    fn hear(
        &mut self,
        number: u64,
        view: RelationId,
        stage: usize,
        from: WorkerId,
        work: &Work<'_>,
    ) -> Option<usize> {
        let position = self.plan.position(view)?;
        self.plan.template.views[position].stages[stage].reader?;
        let epoch = self.epoch(number, work)?;
        epoch.heard.insert((position, stage, from.0)).then_some(position)
    }

    fn stage_arrived(
        &mut self,
        number: u64,
        view: usize,
        stage: usize,
        work: &mut Work<'_>,
        source: impl Fn(usize) -> Option<Source>,
    ) {
        let plan = self.plan.clone();
        let Some(reader) = plan.template.views[view].stages[stage].reader else {
            return;
        };
        let Some(epoch) = self.epochs.get_mut(&number) else {
            return;
        };
        let mut arrived = vec![];
        for task in plan.stages[view][reader].clone() {
            if let Some(source) = source(plan.tasks[task].partition) {
                epoch.sources.entry(task).or_default().push(source);
            }
            arrived.push(task);
        }
        self.settle(number, arrived, vec![], work);
    }

    /// A task that runs here emits batches from now on.
    pub fn task_flows(&mut self, task: usize, number: u64, work: &mut Work<'_>) {
        let plan = self.plan.clone();
        let planned = plan.tasks[task];
        let view = plan.view(planned);
        let (pipeline, version, me) = (self.id(), self.version, plan.me);
        let is_awaited = self.awaits(task, number);
        let (Some(epoch), Some(reader), true) = (
            self.epochs.get_mut(&number),
            view.stages[planned.stage].reader,
            is_awaited,
        ) else {
            work.actions.push(LocalAction::EndFlow {
                pipeline,
                epoch: number,
                view: view.id,
                stage: planned.stage,
                is_void: true,
            });
            return;
        };
        if !epoch.flowing.insert((planned.view, planned.stage)) {
            return;
        }
        for to in plan.workers_of(planned.view, reader).iter().copied() {
            let message = ToPeer::StageFlows {
                pipeline,
                version,
                epoch: number,
                view: view.id,
                stage: planned.stage,
            };
            work.send(me, to, message);
        }
    }
}
