//! The driver's side of a simulation: events as it is free to take them, and what it decides.

use std::hint::black_box;
use std::time::Instant;

use millrace_planner::RelationId;

use super::{Delivery, GroupSeen, Simulation};
use crate::driver::{Command, Event};
use crate::id::{PipelineId, WorkerId};
use crate::message::{ToDriver, ToWorker, decode, encode};
use crate::template::{StageInput, StageShape};

impl Simulation {
    /// The driver takes an event when it is free, and is busy for as long as that takes.
    pub(super) fn event(&mut self, event: Event) {
        let about = match &event {
            Event::Worker(message) => message.about().map(|(pipeline, _)| pipeline),
            _ => None,
        };
        let start = self.now.max(self.driver_free_at);
        let heard = match &event {
            Event::Worker(message) => encode(message).unwrap_or_default(),
            _ => vec![],
        };
        let started = Instant::now();
        if !heard.is_empty() {
            black_box(decode::<ToDriver>(&heard).is_ok());
        }
        let commands = self.driver.on(event, start);
        let mut sent: Vec<(WorkerId, Vec<u8>)> = vec![];
        let mut others = vec![];
        for command in commands {
            match command {
                Command::Send(to, message) => {
                    if let ToWorker::Prepare(template) = &message {
                        self.checks.prepared(template);
                    }
                    sent.push((to, encode(&message).unwrap_or_default()));
                }
                other => others.push(other),
            }
        }
        let took = match self.setup.costs.driver_ns {
            Some((event_ns, message_ns)) => event_ns + message_ns * sent.len() as u64,
            None => started.elapsed().as_nanos() as u64,
        };
        self.driver_free_at = start + took;
        self.report.driver_ns += took;
        if let Some(pipeline) = about {
            self.driver.spent(pipeline, took);
        }
        for (to, bytes) in sent {
            self.report.driver_messages += 1;
            self.report.driver_bytes += bytes.len() as u64;
            match decode(&bytes) {
                Ok(message) => self.send(self.driver_free_at, Delivery::ToWorker(to, message)),
                Err(error) => panic!("a message that cannot be read: {error}"),
            }
        }
        for command in others {
            match command {
                Command::Send(..) | Command::Attached { .. } | Command::JobLost { .. } => {}
                // Whatever it does from now on is not listened to.
                Command::Evict { worker } => {
                    self.silent.remove(&worker);
                    if self.workers.remove(&worker).is_some() {
                        self.report.evicted += 1;
                        self.checks.killed(worker);
                        self.lose_flows(worker);
                    }
                }
                Command::Lost {
                    views,
                    partitions,
                    modulus,
                    ..
                } => {
                    self.report.recoveries += 1;
                    self.checks.lost(&views, &partitions, modulus);
                }
                Command::Recovered { pipeline } => self.checks.recovered(pipeline),
                Command::Checkpointed {
                    pipeline,
                    epoch,
                    views,
                    ..
                } => {
                    self.report.checkpoints += 1;
                    self.cuts.retain(|(of, at), _| *of != pipeline || *at > epoch);
                    let shapes = views.iter().map(|view| &self.shapes[view]);
                    self.checks.checkpointed(pipeline, epoch, shapes);
                }
                Command::Abandoned { pipeline, views } => {
                    self.cuts.retain(|(of, _), _| *of != pipeline);
                    self.cut_at.retain(|(of, _), _| *of != pipeline);
                    for view in views {
                        if let Some(of) = self.views.get_mut(&pipeline) {
                            of.remove(&view);
                        }
                        self.checks.abandoned(view);
                        self.abandoned.push(view);
                    }
                }
                Command::Commit { pipeline, epoch } => self.commit(pipeline, epoch),
                Command::CutterIs { pipeline, worker } => {
                    self.cutters.insert(pipeline, worker);
                }
                Command::Joined { into, from } => {
                    let views = self.views.remove(&from).unwrap_or_default();
                    self.views.entry(into).or_default().extend(views);
                    let inputs = self.inputs_left.remove(&from).unwrap_or(0);
                    *self.inputs_left.entry(into).or_default() += inputs;
                }
                Command::Quiesced { ticket, pipeline, .. } => self.held.push((ticket, pipeline)),
                Command::WorkerFree { worker } => {
                    self.freed.push(worker);
                    // Nobody is owed the message that would tell it to forget, if that one fails.
                    if self.setup.costs.dropped_per_mille > 0 {
                        self.workers.remove(&worker);
                        self.checks.gone(worker);
                        self.lose_flows(worker);
                    }
                }
            }
        }
        if let Some(group) = about.and_then(|pipeline| self.driver.last_group(pipeline))
            && self.last_group != (about, group.last_epoch)
        {
            self.last_group = (about, group.last_epoch);
            self.report.groups.push(GroupSeen {
                at_ns: self.now,
                epochs: group.last_epoch + 1 - group.first_epoch,
                share: group.share,
            });
        }
        for pipeline in std::mem::take(&mut self.central.due) {
            if let Some(message) = self.central.held.remove(&pipeline) {
                self.event(Event::Worker(message));
            }
            let left = self.inputs_left.entry(pipeline).or_default();
            *left += u64::from(pipeline != self.central.pipelines[0]);
            if *left > 0 {
                self.send(self.driver_free_at, Delivery::Input(pipeline));
            }
        }
    }

    /// Tasks of a view that run in an epoch: those that no map fills have nothing to do.
    fn tasks_with_input(&self, view: &RelationId) -> usize {
        let shape = &self.shapes[view];
        let of_stage = |stage: &StageShape| {
            let partitions = shape.partitions_of(stage).len();
            match (&stage.input, self.filled) {
                (StageInput::Stages(_), Some(filled)) => partitions.min(filled),
                _ => partitions,
            }
        };
        shape.stages.iter().map(of_stage).sum()
    }

    pub(super) fn commit(&mut self, pipeline: PipelineId, epoch: u64) {
        self.checks.committed(pipeline, epoch);
        let Some(cut_at) = self.cut_at.remove(&(pipeline, epoch)) else {
            return;
        };
        let views = self.views.get(&pipeline).cloned().unwrap_or_default();
        let tasks: usize = views.iter().map(|view| self.tasks_with_input(view)).sum();
        self.checks.done(pipeline, epoch, tasks);
        self.report.epochs += 1;
        self.report
            .latencies_ns
            .push(self.now.max(self.driver_free_at) - cut_at);
        let stages = &self.central.pipelines;
        if let Some(stage) = stages.iter().position(|stage| *stage == pipeline) {
            self.central.due.push(stages[(stage + 1) % stages.len()]);
        }
    }
}
