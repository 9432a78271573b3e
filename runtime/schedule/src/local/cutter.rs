//! The clock of a pipeline's cuts, on the worker where its sources arrive.
//!
//! It starts the next epoch as soon as there is input, the cut before has been taken, and the driver has launched the epoch.
//! After a loss it first takes the cuts again that were taken since the checkpoint, as they were: they are known where the
//! sources arrive, outside of the worker. All of these epochs may be in flight at once.

use std::collections::{BTreeMap, BTreeSet};

use super::pace::Pace;
use super::{EPOCHS_IN_FLIGHT_MAX, LocalAction, Pipeline, TakenCut, Timer, Work};
use crate::id::WorkerId;
use crate::message::{ToDriver, ToPeer};

#[derive(Debug)]
pub(super) struct Cutter {
    pub has_input: bool,
    /// The cut of the last epoch that was started is being taken.
    is_cutting: bool,
    started: u64,
    pub in_flight: BTreeMap<u64, BTreeSet<WorkerId>>,
    /// As the last cut said.
    in_flight_max: usize,
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
    interval: u64,
    /// How long it waits for company besides.
    pub pace: Pace,
    /// Somebody waits for what there is.
    is_hurried: bool,
    next_cut_at: u64,
    pub is_asleep: bool,
    /// Since when there is input and no epoch to put it in.
    waits_since: Option<u64>,
    waited_ns: u64,
}

impl Cutter {
    /// `interval`, `target`: nanoseconds between two cuts, and of freshness; 0: there is none.
    pub fn new(after: u64, interval: u64, target: u64) -> Self {
        Cutter {
            // What came while there was no group: the first epoch looks.
            has_input: true,
            is_cutting: false,
            started: after,
            in_flight: BTreeMap::new(),
            in_flight_max: EPOCHS_IN_FLIGHT_MAX,
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
            pace: Pace::new(target),
            is_hurried: false,
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

    /// As [`Cutter::new`]. What was due by those before does not wait for them.
    pub fn set_times(&mut self, interval: u64, target: u64) {
        self.next_cut_at = 0;
        self.interval = interval;
        self.pace.set_target(target);
    }

    /// What there is does not wait for company; for the set interval it does.
    pub fn hurry(&mut self) {
        self.is_hurried |= self.has_input && self.interval == 0;
    }

    /// Whether input waits for company.
    pub fn is_paced(&self) -> bool {
        self.interval == 0 && self.pace.has_target()
    }

    /// How long after the one before the next cut is due.
    fn until_next(&self) -> u64 {
        match (self.interval, self.pace.interval()) {
            (0, by_target) => by_target,
            (set, 0) => set,
            (set, by_target) => set.min(by_target),
        }
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
        if !has_input || cutter.is_closed || cutter.in_flight.len() >= cutter.in_flight_max {
            return;
        }
        // A checkpoint does not wait for company either.
        let is_hurried = cutter.is_hurried || (is_forced && cutter.interval == 0);
        if work.at < cutter.next_cut_at && !is_hurried {
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
        cutter.next_cut_at = match cutter.until_next() {
            0 => 0,
            // Early cuts begin anew, late ones do not shift the later ones.
            until_next if is_hurried => work.at + until_next,
            until_next => cutter.next_cut_at.max(work.at.saturating_sub(until_next)) + until_next,
        };
        (cutter.has_input, cutter.is_hurried) = (false, false);
        self.take_cut(work);
    }

    fn take_cut(&mut self, work: &mut Work<'_>) {
        let (id, version, launched) = (self.id(), self.version, self.launched);
        let template = &self.plan.template;
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = true;
        cutter.started += 1;
        let epoch = cutter.started;
        cutter.pace.cut(epoch, work.at);
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

    pub fn cut_taken(&mut self, cut: TakenCut, work: &mut Work<'_>) {
        let TakenCut {
            epoch,
            time,
            rows,
            more,
            is_checkpoint,
            waited_ns: input_waited_ns,
            in_flight_max,
        } = cut;
        let (id, version, me) = (self.id(), self.version, self.plan.me);
        let Some(cutter) = &mut self.cutter else { return };
        cutter.is_cutting = false;
        cutter.in_flight_max = in_flight_max;
        if is_checkpoint {
            cutter.checkpointed = Some(epoch);
        }
        cutter.has_input |= more;
        if more {
            // It took all that an epoch may have.
            cutter.hurry();
        }
        if rows.iter().all(|(_, rows)| *rows == 0) {
            cutter.pace.is_empty(epoch);
        }
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
            entry.costs.input_waited_ns = input_waited_ns;
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
                cutter.pace.done(number, work.at);
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

    use millrace_planner::RelationId;

    use super::*;
    use crate::id::{Part, PipelineId, TaskId};
    use crate::local::{LocalEvent, LocalScheduler, Tasks};
    use crate::message::{EpochTime, ToWorker};
    use crate::template::{Replay, Template, ViewShape};

    struct Idle;

    impl Tasks for Idle {
        fn has_work(&self, _: TaskId, _: &EpochTime, _: bool) -> bool {
            false
        }

        fn has_state(&self, _: Part, _: u64) -> bool {
            true
        }

        fn freshness(&self, _: RelationId) -> Option<u64> {
            None
        }
    }

    const MS: u64 = 1_000_000;

    fn taken(epoch: u64, more: bool) -> TakenCut {
        TakenCut {
            epoch,
            time: EpochTime::default(),
            rows: vec![(RelationId(1), 10)],
            more,
            is_checkpoint: false,
            waited_ns: 0,
            in_flight_max: EPOCHS_IN_FLIGHT_MAX,
        }
    }

    /// A cutter whose epochs are all launched, and when it takes cuts at what is told to it.
    struct Clocked {
        local: LocalScheduler,
        pipeline: PipelineId,
        taken: u64,
    }

    impl Clocked {
        /// `interval`, `freshness`: of the server; the view has none of its own.
        fn new(interval: u64, freshness: u64) -> Clocked {
            let (pipeline, me) = (PipelineId(1), WorkerId(2));
            let template = Template {
                pipeline,
                version: 5,
                lineage: 5,
                after: 0,
                replay: None,
                is_retained: false,
                is_job: false,
                views: vec![Arc::new(ViewShape {
                    id: RelationId(9),
                    incarnation: 1,
                    partitions: 1,
                    stages: vec![],
                    is_batch: false,
                })],
                before: vec![0],
                placement: vec![me],
                cutter: me,
            };
            let mut local = LocalScheduler::new(me);
            local.set_times(interval, freshness, &Idle);
            let mut clocked = Clocked {
                local,
                pipeline,
                taken: 0,
            };
            clocked.on(LocalEvent::Driver(ToWorker::Prepare(Arc::new(template))), 0);
            let launch = ToWorker::Launch {
                pipeline,
                version: 5,
                first: 1,
                last: 1_000,
                checkpoints: vec![],
                is_forced: false,
            };
            clocked.on(LocalEvent::Driver(launch), 0);
            clocked
        }

        /// What is told; whether a cut is taken, of which the rest follows at once.
        fn on(&mut self, event: LocalEvent, at: u64) -> bool {
            let actions = self.local.on(event, at, &Idle);
            let is_cut = actions
                .iter()
                .any(|action| matches!(action, LocalAction::TakeCut { .. }));
            if is_cut {
                self.taken += 1;
                self.cut_taken(at);
            }
            is_cut
        }

        fn cut_taken(&mut self, at: u64) {
            let event = LocalEvent::CutTaken {
                pipeline: self.pipeline,
                version: 5,
                cut: taken(self.taken, false),
            };
            self.local.on(event, at, &Idle);
        }

        fn input(&mut self, at: u64) -> bool {
            let pipeline = self.pipeline;
            self.on(LocalEvent::InputArrived { pipeline }, at)
        }

        fn hurry(&mut self, at: u64) -> bool {
            let pipeline = self.pipeline;
            self.on(LocalEvent::Hurry { pipeline }, at)
        }

        fn woken(&mut self, at: u64) -> bool {
            let (pipeline, timer) = (self.pipeline, Timer::Cut);
            self.on(LocalEvent::Wake { pipeline, timer }, at)
        }
    }

    #[test]
    fn input_waits_for_company_and_not_if_somebody_waits_for_it() {
        let mut cutter = Clocked::new(0, 100 * MS);
        assert_eq!(cutter.taken, 1, "the first looks what there is");
        // Of what epochs take nothing is known yet: half of the target is left to them.
        assert!(!cutter.input(10 * MS) && !cutter.woken(39 * MS));
        assert!(cutter.woken(40 * MS));
        assert!(!cutter.hurry(41 * MS), "nothing waits");
        assert!(!cutter.input(42 * MS));
        assert!(cutter.hurry(43 * MS));
        assert!(!cutter.input(82 * MS), "the next one begins anew");
        assert!(cutter.woken(83 * MS));
        // Long after the one before nothing waits for company.
        assert!(cutter.input(500 * MS));
    }

    #[test]
    fn what_one_epoch_could_not_take_goes_into_the_next_at_once() {
        let mut cutter = Clocked::new(0, 100 * MS);
        let actions = {
            assert!(!cutter.input(10 * MS));
            let (pipeline, timer) = (cutter.pipeline, Timer::Cut);
            cutter
                .local
                .on(LocalEvent::Wake { pipeline, timer }, 40 * MS, &Idle)
        };
        assert!(
            actions
                .iter()
                .any(|action| matches!(action, LocalAction::TakeCut { .. }))
        );
        cutter.taken += 1;
        let event = LocalEvent::CutTaken {
            pipeline: cutter.pipeline,
            version: 5,
            cut: taken(cutter.taken, true),
        };
        assert!(cutter.on(event, 41 * MS));
    }

    #[test]
    fn a_checkpoint_waits_for_no_company() {
        let checkpoint = |cutter: &Clocked| {
            let pipeline = cutter.pipeline;
            LocalEvent::Driver(ToWorker::Checkpoint { pipeline, version: 5 })
        };
        let mut cutter = Clocked::new(0, 1_000 * MS);
        assert!(!cutter.input(10 * MS));
        let event = checkpoint(&cutter);
        assert!(cutter.on(event, 11 * MS));
        let mut cutter = Clocked::new(1_000 * MS, 0);
        let event = checkpoint(&cutter);
        assert!(
            !cutter.input(10 * MS) && !cutter.on(event, 11 * MS),
            "a set interval is kept"
        );
    }

    #[test]
    fn a_set_interval_is_kept() {
        let mut cutter = Clocked::new(50 * MS, 0);
        assert!(!cutter.input(10 * MS) && !cutter.hurry(20 * MS) && !cutter.woken(49 * MS));
        assert!(cutter.woken(50 * MS));
        // The shorter of the two counts.
        let mut cutter = Clocked::new(50 * MS, 20 * MS);
        assert!(!cutter.input(MS) && !cutter.hurry(2 * MS));
        assert!(cutter.woken(8 * MS));
        let mut cutter = Clocked::new(50 * MS, 1_000 * MS);
        assert!(!cutter.input(MS) && cutter.woken(50 * MS));
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
