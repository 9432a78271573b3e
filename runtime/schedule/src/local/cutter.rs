//! The clock of a pipeline's cuts, on the worker where its sources arrive.
//!
//! It starts the next epoch as soon as there is input, the cut before has been taken, and the driver has launched the epoch.
//! After a loss it first takes the cuts again that were taken since the checkpoint, as they were: they are known where the
//! sources arrive, outside of the worker. All of these epochs may be in flight at once.

use std::collections::{BTreeMap, BTreeSet};

use millrace_planner::RelationId;

use super::{EPOCHS_IN_FLIGHT_MAX, EpochTime, LocalAction, Pipeline, Timer, Work};
use crate::id::WorkerId;
use crate::message::{ToDriver, ToPeer};

#[derive(Debug)]
pub(super) struct Cutter {
    pub has_input: bool,
    /// The cut of the last epoch that was started is being taken.
    is_cutting: bool,
    started: u64,
    pub in_flight: BTreeMap<u64, BTreeSet<WorkerId>>,
    is_closed: bool,
    /// It is to be closed after a checkpoint.
    is_closing: bool,
    /// The last epoch that was started and is a checkpoint.
    checkpointed: Option<u64>,
    /// Cuts that were taken before the loss are being taken again.
    is_replaying: bool,
    /// This epoch is started even without input.
    forced: Option<u64>,
    /// Epochs that are to be checkpoints.
    checkpoints: BTreeSet<u64>,
    /// So is the next one, which comes with or without input.
    is_checkpoint_due: bool,
    /// The last launched epoch when more were asked for.
    asked: Option<u64>,
    group: u64,
    /// Nanoseconds between two cuts; 0: as soon as there is input.
    pub interval: u64,
    next_cut_at: u64,
    pub is_asleep: bool,
    /// Since when there is input and no epoch to put it in.
    waits_since: Option<u64>,
    waited_ns: u64,
}

impl Cutter {
    pub fn new(after: u64, interval: u64) -> Self {
        Cutter {
            // What came while there was no group: the first epoch looks.
            has_input: true,
            is_cutting: false,
            started: after,
            in_flight: BTreeMap::new(),
            is_closed: false,
            is_closing: false,
            checkpointed: None,
            is_replaying: false,
            forced: None,
            checkpoints: BTreeSet::new(),
            is_checkpoint_due: false,
            asked: None,
            group: 1,
            interval,
            next_cut_at: 0,
            is_asleep: false,
            waits_since: None,
            waited_ns: 0,
        }
    }

    /// The one that goes on from a checkpoint, and takes cuts again that were taken after it.
    pub fn replaying(mut self, checkpoints: &[u64]) -> Self {
        self.is_replaying = true;
        self.checkpoints.extend(checkpoints);
        self
    }

    pub fn set_interval(&mut self, interval: u64) {
        if self.interval != interval {
            // What was due after a longer one does not wait for it.
            self.next_cut_at = 0;
        }
        self.interval = interval;
    }

    pub fn launch(&mut self, first: u64, last: u64, checkpoints: Vec<u64>, is_forced: bool) {
        self.group = last + 1 - first;
        self.checkpoints.extend(checkpoints);
        if is_forced {
            self.forced = Some(first);
        }
    }
}

impl Pipeline {
    /// The next epoch is a checkpoint.
    pub fn checkpoint(&mut self, work: &mut Work<'_>) {
        if let Some(cutter) = &mut self.cutter {
            cutter.is_checkpoint_due = true;
        }
        self.start(work);
    }

    /// Starts no further epoch, apart from a checkpoint if that is to be the last; says which was the last as soon as that
    /// is known.
    pub fn close(&mut self, is_checkpoint: bool, work: &mut Work<'_>) {
        let Some(cutter) = &mut self.cutter else { return };
        if is_checkpoint {
            cutter.is_closing = true;
            self.start(work);
            return;
        }
        cutter.is_closed = true;
        if cutter.is_replaying {
            self.start(work);
        } else {
            self.report_closed(work);
        }
    }

    fn report_closed(&self, work: &mut Work<'_>) {
        if let Some(cutter) = self.cutter.as_ref().filter(|cutter| cutter.is_closed) {
            let closed = ToDriver::Closed {
                pipeline: self.id(),
                version: self.version,
                last: cutter.started,
            };
            work.actions.push(LocalAction::Report(closed));
        }
    }

    /// Starts the next epoch if it may.
    pub fn start(&mut self, work: &mut Work<'_>) {
        let launched = self.launched;
        let Some(cutter) = &mut self.cutter else { return };
        if cutter.is_cutting {
            return;
        }
        if cutter.is_replaying {
            if cutter.started < launched {
                self.take_cut(work);
                return;
            }
            cutter.is_replaying = false;
            self.report_closed(work);
        }
        let Some(cutter) = &mut self.cutter else { return };
        if cutter.is_closing && !cutter.is_closed {
            if cutter.checkpointed == Some(cutter.started) {
                cutter.is_closed = true;
                self.report_closed(work);
                return;
            }
            // At once.
            (cutter.is_checkpoint_due, cutter.next_cut_at) = (true, 0);
        }
        let is_forced = cutter.is_checkpoint_due || cutter.forced == Some(cutter.started + 1);
        let has_input = cutter.has_input || is_forced;
        if !has_input || cutter.is_closed || cutter.in_flight.len() >= EPOCHS_IN_FLIGHT_MAX {
            return;
        }
        if work.at < cutter.next_cut_at {
            if !std::mem::replace(&mut cutter.is_asleep, true) {
                let at = cutter.next_cut_at;
                let pipeline = self.plan.template.pipeline;
                work.actions.push(LocalAction::WakeAt {
                    pipeline,
                    at,
                    timer: Timer::Cut,
                });
            }
            return;
        }
        // Behind the interval: before an epoch is due nothing waits for the driver.
        if cutter.started >= launched {
            cutter.waits_since.get_or_insert(work.at);
            // Nobody has asked under this template if it goes on where the one before, which lost a worker, had ended.
            self.ask_for_more(work);
            return;
        }
        if let Some(since) = cutter.waits_since.take() {
            cutter.waited_ns += work.at.saturating_sub(since);
        }
        cutter.next_cut_at = if cutter.interval == 0 {
            0
        } else {
            // Late cuts do not shift the later ones.
            let due = cutter.next_cut_at.max(work.at.saturating_sub(cutter.interval));
            due + cutter.interval
        };
        cutter.has_input = false;
        self.take_cut(work);
    }

    fn take_cut(&mut self, work: &mut Work<'_>) {
        let (id, version, launched) = (self.id(), self.version, self.launched);
        let template = &self.plan.template;
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = true;
        cutter.started += 1;
        let epoch = cutter.started;
        // One that is taken again is what it was.
        let is_due = !cutter.is_replaying && std::mem::take(&mut cutter.is_checkpoint_due);
        cutter
            .in_flight
            .insert(epoch, self.plan.participants.iter().copied().collect());
        work.actions.push(LocalAction::TakeCut {
            pipeline: id,
            version,
            epoch,
            gives_way: template.gives_way(),
            is_retained: template.is_retained,
            is_replay: cutter.is_replaying,
            is_checkpoint: cutter.checkpoints.remove(&epoch) | is_due,
        });
        // The next group is asked for while the last epochs of this one run.
        let ahead = (cutter.group / 4).clamp(1, EPOCHS_IN_FLIGHT_MAX as u64);
        if launched - epoch < ahead {
            self.ask_for_more(work);
        }
    }

    /// Asks the driver for the next group, once.
    fn ask_for_more(&mut self, work: &mut Work<'_>) {
        let (id, version, launched) = (self.id(), self.version, self.launched);
        let Some(cutter) = &mut self.cutter else { return };
        if cutter.asked.replace(launched) != Some(launched) {
            work.actions.push(LocalAction::Report(ToDriver::NeedEpochs {
                pipeline: id,
                version,
                last: launched,
            }));
        }
    }

    /// There is no cut of this epoch to be taken again: what comes from here on is new.
    pub fn no_cut(&mut self, epoch: u64, is_checkpoint: bool, work: &mut Work<'_>) {
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = false;
        cutter.is_replaying = false;
        cutter.started = epoch - 1;
        cutter.in_flight.remove(&epoch);
        if is_checkpoint {
            cutter.checkpoints.insert(epoch);
        }
        self.report_closed(work);
        self.start(work);
    }

    pub fn cut_taken(
        &mut self,
        epoch: u64,
        time: EpochTime,
        rows: Vec<(RelationId, u64)>,
        more: bool,
        is_checkpoint: bool,
        work: &mut Work<'_>,
    ) {
        let (id, version, me) = (self.id(), self.version, self.plan.me);
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = false;
        if is_checkpoint {
            cutter.checkpointed = Some(epoch);
        }
        cutter.has_input |= more;
        let waited_ns = std::mem::take(&mut cutter.waited_ns);
        for worker in &self.plan.participants {
            if *worker != me {
                let message = ToPeer::Cut {
                    pipeline: id,
                    version,
                    epoch,
                    time: time.clone(),
                    rows: rows.clone(),
                    is_checkpoint,
                };
                work.actions.push(LocalAction::Send(*worker, message));
            }
        }
        let entry = self.epoch(epoch, work);
        if let Some(entry) = entry {
            entry.costs.rows = rows.iter().map(|(_, rows)| rows).sum();
            entry.costs.waited_ns = waited_ns;
        }
        self.cut_arrived(epoch, time, &rows, is_checkpoint, work);
        self.start(work);
    }

    /// A participant has done all of an epoch.
    pub fn epoch_done(&mut self, number: u64, from: WorkerId, work: &mut Work<'_>) {
        if let Some(cutter) = &mut self.cutter
            && let Some(workers) = cutter.in_flight.get_mut(&number)
        {
            workers.remove(&from);
            if workers.is_empty() {
                cutter.in_flight.remove(&number);
                if !self.plan.template.is_retained {
                    for to in &self.plan.participants {
                        let message = ToPeer::Release {
                            pipeline: self.plan.template.pipeline,
                            version: self.version,
                            epoch: number,
                        };
                        work.send(self.plan.me, *to, message);
                    }
                }
            }
        }
        self.start(work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::{Part, PipelineId, TaskId};
    use crate::local::{LocalEvent, LocalScheduler, Tasks};
    use crate::message::ToWorker;
    use crate::template::{Replay, Template};

    struct Idle;

    impl Tasks for Idle {
        fn has_work(&self, _: TaskId, _: &EpochTime, _: bool) -> bool {
            false
        }

        fn has_state(&self, _: Part, _: u64) -> bool {
            true
        }
    }

    /// All that was launched is in the checkpoint, and what asked for more was said under the template that is void.
    #[test]
    fn a_template_without_anything_to_run_again_asks_for_epochs() {
        let (pipeline, me) = (PipelineId(1), WorkerId(2));
        let template = Arc::new(Template {
            pipeline,
            version: 5,
            lineage: 4,
            after: 9,
            replay: Some(Replay {
                to: 9,
                checkpoints: vec![],
            }),
            is_retained: true,
            is_job: false,
            views: vec![],
            before: vec![],
            placement: vec![me],
            cutter: me,
        });
        let mut local = LocalScheduler::new(me);
        let mut actions = local.on(LocalEvent::Driver(ToWorker::Prepare(template)), 0, &Idle);
        actions.extend(local.on(LocalEvent::InputArrived { pipeline }, 1, &Idle));
        let asked = actions.iter().filter(|action| {
            let LocalAction::Report(ToDriver::NeedEpochs { version, last, .. }) = action else {
                return false;
            };
            (*version, *last) == (5, 9)
        });
        assert_eq!(asked.count(), 1);
    }
}
