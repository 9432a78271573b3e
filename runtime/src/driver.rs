//! The driver: decides which epochs run, and when. It never touches data.
//!
//! A pure state machine: [`Driver::on`] takes an event and returns commands. It reads no clock, starts nothing and asks
//! nobody, so that the same code runs live, in a simulation and under a fuzzer.
//!
//! ```text
//!  InputArrived --> launch epoch e (if e-1 has taken its cut) --> RunGroup --> CutTaken, TasksFinished.. --> Commit e
//! ```
//!
//! A *pipeline* is a set of sources and views that are connected through common inputs, with one clock. Definitions change
//! only while the pipelines concerned are idle: [`Event::Quiesce`] holds back their next epochs, joins them into one, and
//! answers [`Command::Quiesced`] when nothing is in flight; [`Event::Resume`] lets them go on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_planner::RelationId;

/// Identifies a pipeline. Joining two keeps the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId(pub u64);

/// Identifies a change of definitions under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Epochs of one pipeline that may be under way at once: maps run ahead of reduces, but not without bound.
pub const EPOCHS_IN_FLIGHT_MAX: usize = 4;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A stream or table exists from now on; it is a pipeline of its own.
    SourceAdded {
        relation: RelationId,
        pipeline: PipelineId,
    },
    /// A back-fill of views (each with its tasks an epoch) starts: a pipeline of its own until it has caught up.
    JobAdded {
        views: Vec<(RelationId, usize)>,
        pipeline: PipelineId,
    },
    /// Input waits to be cut.
    InputArrived { pipeline: PipelineId },
    /// The epoch has its cut: its maps have started.
    CutTaken { pipeline: PipelineId, epoch: u64 },
    /// Tasks of an epoch ended.
    TasksFinished {
        pipeline: PipelineId,
        epoch: u64,
        tasks: usize,
    },
    /// Definitions over these relations are to change (a view that is back-filled stands for its back-fill). If there are
    /// none, a new pipeline is made, under the id given.
    Quiesce {
        ticket: Ticket,
        relations: Vec<RelationId>,
        or_new: PipelineId,
    },
    /// The change is done: `views` (each with its tasks an epoch) joined the pipeline, in this order; `dropped` are gone.
    Resume {
        ticket: Ticket,
        views: Vec<(RelationId, usize)>,
        dropped: Vec<RelationId>,
    },
    /// The back-fill of a view, and of what is filled with it, ended or was given up.
    JobRemoved { view: RelationId },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Run these epochs of the pipeline: tasks of every stage of every view, launched together.
    RunGroup {
        pipeline: PipelineId,
        first_epoch: u64,
        epochs: u64,
        views: Vec<RelationId>,
    },
    /// Everything up to this epoch is done: readers may see it.
    Commit { pipeline: PipelineId, epoch: u64 },
    /// The view is part of the pipeline, and what its back-fill made is visible.
    Attached { view: RelationId, pipeline: PipelineId },
    /// These pipelines are one from now on.
    Joined { into: PipelineId, from: PipelineId },
    /// Nothing of the pipeline is in flight, and nothing will be until the ticket is resumed.
    Quiesced {
        ticket: Ticket,
        pipeline: PipelineId,
        epoch: u64,
    },
}

#[derive(Debug, Default)]
struct Pipeline {
    sources: BTreeSet<RelationId>,
    /// In the order in which they were made: a view comes after what it reads.
    views: Vec<(RelationId, usize)>,
    /// The last epoch that was launched.
    epoch: u64,
    committed: u64,
    has_input: bool,
    in_flight: BTreeMap<u64, InFlight>,
    /// Changes of definitions that wait or are under way, in order. While there is one, no epoch is launched.
    tickets: VecDeque<Ticket>,
    /// The first ticket has been told that the pipeline is idle.
    is_held: bool,
}

#[derive(Debug)]
struct InFlight {
    tasks: usize,
    has_cut: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Driver {
    pipelines: BTreeMap<PipelineId, Pipeline>,
    pipeline_of: BTreeMap<RelationId, PipelineId>,
    /// Back-fills by view.
    jobs: BTreeMap<RelationId, PipelineId>,
    /// Which pipelines a change of definitions holds back, or waits to.
    tickets: BTreeMap<Ticket, BTreeSet<PipelineId>>,
}

impl Driver {
    /// Takes an event, decides. Commands are to be carried out in order.
    pub fn on(&mut self, event: Event) -> Vec<Command> {
        let mut commands = vec![];
        match event {
            Event::SourceAdded { relation, pipeline } => {
                let state = Pipeline {
                    sources: BTreeSet::from([relation]),
                    ..Pipeline::default()
                };
                self.pipelines.insert(pipeline, state);
                self.pipeline_of.insert(relation, pipeline);
            }
            Event::JobAdded { views, pipeline } => {
                self.jobs.extend(views.iter().map(|(view, _)| (*view, pipeline)));
                let state = Pipeline {
                    views,
                    ..Pipeline::default()
                };
                self.pipelines.insert(pipeline, state);
            }
            Event::JobRemoved { view } => {
                self.remove_job(view);
            }
            Event::InputArrived { pipeline } => {
                if let Some(state) = self.pipelines.get_mut(&pipeline) {
                    state.has_input = true;
                }
                self.advance(pipeline, &mut commands);
            }
            Event::CutTaken { pipeline, epoch } => {
                if let Some(state) = self.in_flight(pipeline, epoch) {
                    state.has_cut = true;
                }
                self.advance(pipeline, &mut commands);
            }
            Event::TasksFinished {
                pipeline,
                epoch,
                tasks,
            } => {
                if let Some(state) = self.in_flight(pipeline, epoch) {
                    assert!(
                        tasks <= state.tasks,
                        "more tasks of epoch {epoch} ended than were started"
                    );
                    state.tasks -= tasks;
                }
                self.advance(pipeline, &mut commands);
            }
            Event::Quiesce {
                ticket,
                relations,
                or_new,
            } => self.quiesce(ticket, &relations, or_new, &mut commands),
            Event::Resume {
                ticket,
                views,
                dropped,
            } => self.resume(ticket, views, &dropped, &mut commands),
        }
        commands
    }

    /// Pipelines with their sources, views and last committed epoch.
    pub fn pipelines(&self) -> Vec<(PipelineId, Vec<RelationId>, Vec<RelationId>, u64)> {
        self.pipelines
            .iter()
            .map(|(id, p)| {
                (
                    *id,
                    p.sources.iter().copied().collect(),
                    p.views.iter().map(|v| v.0).collect(),
                    p.committed,
                )
            })
            .collect()
    }

    /// Forgets a back-fill and whatever waited for it.
    fn remove_job(&mut self, view: RelationId) -> Option<Pipeline> {
        let id = self.jobs.remove(&view)?;
        self.jobs.retain(|_, pipeline| *pipeline != id);
        self.tickets.retain(|_, pipelines| !pipelines.contains(&id));
        self.pipelines.remove(&id)
    }

    fn in_flight(&mut self, pipeline: PipelineId, epoch: u64) -> Option<&mut InFlight> {
        self.pipelines.get_mut(&pipeline)?.in_flight.get_mut(&epoch)
    }

    /// Commits what is done, tells a ticket that the pipeline is idle, launches the next epoch.
    fn advance(&mut self, id: PipelineId, commands: &mut Vec<Command>) {
        let Some(pipeline) = self.pipelines.get_mut(&id) else {
            return;
        };
        while let Some(first) = pipeline.in_flight.first_entry() {
            if first.get().tasks > 0 || !first.get().has_cut {
                break;
            }
            pipeline.committed = *first.key();
            first.remove();
            commands.push(Command::Commit {
                pipeline: id,
                epoch: pipeline.committed,
            });
        }
        if let Some(ticket) = pipeline.tickets.front().copied() {
            self.try_hold(ticket, commands);
            return;
        }
        let previous_cut = pipeline
            .in_flight
            .values()
            .next_back()
            .is_none_or(|last| last.has_cut);
        if pipeline.has_input && previous_cut && pipeline.in_flight.len() < EPOCHS_IN_FLIGHT_MAX {
            pipeline.has_input = false;
            pipeline.epoch += 1;
            let tasks = pipeline.views.iter().map(|view| view.1).sum();
            pipeline.in_flight.insert(
                pipeline.epoch,
                InFlight {
                    tasks,
                    has_cut: false,
                },
            );
            commands.push(Command::RunGroup {
                pipeline: id,
                first_epoch: pipeline.epoch,
                epochs: 1,
                views: pipeline.views.iter().map(|view| view.0).collect(),
            });
        }
    }

    /// Queues the ticket at every pipeline of the relations.
    fn quiesce(
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
            self.pipelines.insert(or_new, Pipeline::default());
            ids.insert(or_new);
        }
        for id in &ids {
            if let Some(pipeline) = self.pipelines.get_mut(id) {
                pipeline.tickets.push_back(ticket);
            }
        }
        self.tickets.insert(ticket, ids);
        self.try_hold(ticket, commands);
    }

    /// If it is the ticket's turn at all of its pipelines and they are idle: joins them and says so.
    fn try_hold(&mut self, ticket: Ticket, commands: &mut Vec<Command>) {
        let Some(ids) = self.tickets.get(&ticket) else {
            return;
        };
        let is_ready = |id: &PipelineId| {
            let pipeline = &self.pipelines[id];
            pipeline.tickets.front() == Some(&ticket) && pipeline.in_flight.is_empty() && !pipeline.is_held
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
                epoch: pipeline.epoch,
            });
        }
    }

    /// Makes two idle pipelines one.
    fn join(&mut self, into: PipelineId, from: PipelineId, commands: &mut Vec<Command>) {
        let Some(other) = self.pipelines.remove(&from) else {
            return;
        };
        let Some(pipeline) = self.pipelines.get_mut(&into) else {
            return;
        };
        for relation in other.sources.iter().chain(other.views.iter().map(|view| &view.0)) {
            self.pipeline_of.insert(*relation, into);
        }
        pipeline.sources.extend(other.sources);
        // Views of different pipelines do not read each other: any order between them will do.
        pipeline.views.extend(other.views);
        pipeline.epoch = pipeline.epoch.max(other.epoch);
        pipeline.committed = pipeline.epoch;
        pipeline.has_input |= other.has_input;
        let waiting: BTreeSet<Ticket> = pipeline.tickets.iter().copied().chain(other.tickets).collect();
        pipeline.tickets = waiting.into_iter().collect();
        for pipelines in self.tickets.values_mut() {
            if pipelines.remove(&from) {
                pipelines.insert(into);
            }
        }
        commands.push(Command::Joined { into, from });
        commands.push(Command::Commit {
            pipeline: into,
            epoch: self.pipelines[&into].committed,
        });
    }

    fn resume(
        &mut self,
        ticket: Ticket,
        views: Vec<(RelationId, usize)>,
        dropped: &[RelationId],
        commands: &mut Vec<Command>,
    ) {
        let Some(id) = self.tickets.remove(&ticket).and_then(|ids| ids.first().copied()) else {
            return;
        };
        let mut epoch_min = 0;
        let attached: Vec<RelationId> = views.iter().map(|view| view.0).collect();
        for (view, _) in &views {
            if let Some(job) = self.remove_job(*view) {
                epoch_min = job.committed.max(epoch_min);
            }
            self.pipeline_of.insert(*view, id);
        }
        for relation in dropped {
            self.pipeline_of.remove(relation);
        }
        let mut next = None;
        if let Some(pipeline) = self.pipelines.get_mut(&id) {
            pipeline.tickets.pop_front();
            pipeline.is_held = false;
            pipeline.views.extend(views);
            pipeline.views.retain(|(view, _)| !dropped.contains(view));
            pipeline.sources.retain(|source| !dropped.contains(source));
            // A back-fill counted its own epochs; the view's versions go on from there.
            pipeline.epoch = pipeline.epoch.max(epoch_min);
            pipeline.committed = pipeline.committed.max(epoch_min);
            commands.push(Command::Commit {
                pipeline: id,
                epoch: pipeline.committed,
            });
            commands.extend(
                attached
                    .into_iter()
                    .map(|view| Command::Attached { view, pipeline: id }),
            );
            if pipeline.sources.is_empty() && pipeline.views.is_empty() && pipeline.tickets.is_empty() {
                self.pipelines.remove(&id);
                return;
            }
            next = pipeline.tickets.front().copied();
        }
        match next {
            Some(ticket) => self.try_hold(ticket, commands),
            None => self.advance(id, commands),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    const A: RelationId = RelationId(1);
    const B: RelationId = RelationId(2);
    const V: RelationId = RelationId(3);

    #[test]
    fn an_epoch_runs_when_input_arrives_and_commits_when_its_tasks_end() {
        let mut driver = Driver::default();
        let pipeline = PipelineId(1);
        assert_eq!(
            driver.on(Event::SourceAdded {
                relation: A,
                pipeline
            }),
            []
        );
        assert_eq!(
            driver.on(Event::InputArrived { pipeline }),
            [Command::RunGroup {
                pipeline,
                first_epoch: 1,
                epochs: 1,
                views: vec![]
            }]
        );
        // More input before the cut belongs to the same epoch or the next: nothing is launched yet.
        assert_eq!(driver.on(Event::InputArrived { pipeline }), []);
        assert_eq!(
            driver.on(Event::CutTaken { pipeline, epoch: 1 }),
            [
                Command::Commit { pipeline, epoch: 1 },
                Command::RunGroup {
                    pipeline,
                    first_epoch: 2,
                    epochs: 1,
                    views: vec![]
                }
            ]
        );
    }

    #[test]
    fn a_view_over_two_sources_joins_their_pipelines_once_both_are_idle() {
        let mut driver = Driver::default();
        let (a, b) = (PipelineId(1), PipelineId(2));
        driver.on(Event::SourceAdded {
            relation: A,
            pipeline: a,
        });
        driver.on(Event::SourceAdded {
            relation: B,
            pipeline: b,
        });
        driver.on(Event::InputArrived { pipeline: b });
        let ticket = Ticket(1);
        assert_eq!(
            driver.on(Event::Quiesce {
                ticket,
                relations: vec![A, B],
                or_new: PipelineId(9)
            }),
            []
        );
        assert_eq!(driver.on(Event::InputArrived { pipeline: a }), []);
        let commands = driver.on(Event::CutTaken {
            pipeline: b,
            epoch: 1,
        });
        assert_eq!(
            commands,
            [
                Command::Commit {
                    pipeline: b,
                    epoch: 1
                },
                Command::Joined { into: a, from: b },
                Command::Commit {
                    pipeline: a,
                    epoch: 1
                },
                Command::Quiesced {
                    ticket,
                    pipeline: a,
                    epoch: 1
                },
            ]
        );
        let commands = driver.on(Event::Resume {
            ticket,
            views: vec![(V, 3)],
            dropped: vec![],
        });
        assert_eq!(
            commands.last(),
            Some(&Command::RunGroup {
                pipeline: a,
                first_epoch: 2,
                epochs: 1,
                views: vec![V]
            })
        );
    }

    /// Random events against what must always hold: epochs of a pipeline commit in order, each once, all tasks done; a
    /// ticket is told of idleness only when nothing is in flight; nothing is stuck at the end.
    #[test]
    fn random_schedules_commit_every_epoch_once_and_in_order() {
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut driver = Driver::default();
            let sources: Vec<RelationId> = (0..4).map(RelationId).collect();
            for relation in &sources {
                driver.on(Event::SourceAdded {
                    relation: *relation,
                    pipeline: PipelineId(relation.0),
                });
            }
            let mut views: Vec<(RelationId, usize)> = vec![];
            // (pipeline, epoch) -> tasks left, cut taken
            let mut running: BTreeMap<(PipelineId, u64), (usize, bool)> = BTreeMap::new();
            let mut committed: BTreeMap<PipelineId, u64> = BTreeMap::new();
            let mut held: Vec<(Ticket, PipelineId)> = vec![];
            let mut asked = 0;
            let mut told = 0;
            let mut next = 0;
            for step in 0..600 {
                let draining = step > 500;
                let event = match random.random_range(0..10) {
                    0..=2 if !draining => Event::InputArrived {
                        pipeline: driver.pipeline_of[sources.choose(&mut random).unwrap()],
                    },
                    3 if !draining && asked < 20 => {
                        asked += 1;
                        let relations = sources.choose_multiple(&mut random, 2).copied().collect();
                        Event::Quiesce {
                            ticket: Ticket(asked),
                            relations,
                            or_new: PipelineId(99),
                        }
                    }
                    4 | 5 if !held.is_empty() => {
                        let (ticket, _) = held.remove(0);
                        next += 1;
                        let view = (RelationId(100 + next), random.random_range(0..4));
                        views.push(view);
                        Event::Resume {
                            ticket,
                            views: vec![view],
                            dropped: vec![],
                        }
                    }
                    _ => {
                        let keys: Vec<_> = running.keys().copied().collect();
                        let Some((pipeline, epoch)) = keys.choose(&mut random).copied() else {
                            continue;
                        };
                        let state = running.get_mut(&(pipeline, epoch)).unwrap();
                        if !state.1 {
                            state.1 = true;
                            Event::CutTaken { pipeline, epoch }
                        } else if state.0 > 0 {
                            let tasks = random.random_range(1..=state.0);
                            state.0 -= tasks;
                            Event::TasksFinished {
                                pipeline,
                                epoch,
                                tasks,
                            }
                        } else {
                            continue;
                        }
                    }
                };
                for command in driver.on(event) {
                    match command {
                        Command::RunGroup {
                            pipeline,
                            first_epoch,
                            views: run,
                            ..
                        } => {
                            assert!(
                                held.iter().all(|(_, p)| *p != pipeline),
                                "seed {seed}: launched while held"
                            );
                            let tasks = views.iter().filter(|v| run.contains(&v.0)).map(|v| v.1).sum();
                            assert!(running.insert((pipeline, first_epoch), (tasks, false)).is_none());
                        }
                        Command::Commit { pipeline, epoch } => {
                            let last = committed.insert(pipeline, epoch).unwrap_or(0);
                            assert!(epoch >= last, "seed {seed}: epoch {epoch} after {last}");
                            if let Some(state) = running.remove(&(pipeline, epoch)) {
                                assert_eq!(state, (0, true), "seed {seed}: committed before it was done");
                            }
                            assert!(
                                running.keys().all(|(p, e)| *p != pipeline || *e > epoch),
                                "seed {seed}: out of order"
                            );
                        }
                        Command::Attached { .. } => {}
                        Command::Joined { into, from } => {
                            assert!(
                                running.keys().all(|(p, _)| *p != into && *p != from),
                                "seed {seed}: joined while busy"
                            );
                        }
                        Command::Quiesced { ticket, pipeline, .. } => {
                            assert!(
                                running.keys().all(|(p, _)| *p != pipeline),
                                "seed {seed}: not idle"
                            );
                            held.push((ticket, pipeline));
                            told += 1;
                        }
                    }
                }
            }
            // Drain: everything asked for comes to its end.
            for _ in 0..10_000 {
                if running.is_empty() && held.is_empty() {
                    break;
                }
                let event = if let Some((ticket, _)) = held.pop() {
                    Event::Resume {
                        ticket,
                        views: vec![],
                        dropped: vec![],
                    }
                } else {
                    let ((pipeline, epoch), state) = running.iter_mut().next().map(|(k, v)| (*k, v)).unwrap();
                    if !state.1 {
                        state.1 = true;
                        Event::CutTaken { pipeline, epoch }
                    } else {
                        let tasks = std::mem::take(&mut state.0);
                        Event::TasksFinished {
                            pipeline,
                            epoch,
                            tasks,
                        }
                    }
                };
                for command in driver.on(event) {
                    match command {
                        Command::RunGroup {
                            pipeline,
                            first_epoch,
                            views: run,
                            ..
                        } => {
                            let tasks = views.iter().filter(|v| run.contains(&v.0)).map(|v| v.1).sum();
                            running.insert((pipeline, first_epoch), (tasks, false));
                        }
                        Command::Commit { pipeline, epoch } => {
                            running.remove(&(pipeline, epoch));
                        }
                        Command::Quiesced { ticket, pipeline, .. } => {
                            held.push((ticket, pipeline));
                            told += 1;
                        }
                        Command::Joined { .. } | Command::Attached { .. } => {}
                    }
                }
            }
            assert!(running.is_empty() && held.is_empty(), "seed {seed}: stuck");
            assert_eq!(
                told, asked,
                "seed {seed}: a change of definitions was never let in"
            );
        }
    }
}
