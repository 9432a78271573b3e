//! The driver and the local schedulers under random schedules: messages delayed, overtaken and doubled, definitions and
//! workers changing all the time, workers killed at any moment, messages and fetches that fail, workers that fall silent,
//! tasks that take long and are copied. `MILLRACE_SCHEDULE_SEEDS` sets how many seeds are run, `MILLRACE_SEED` the first.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::driver::{CheckpointPolicy, Spread};
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::{PipelineId, Ticket, WorkerId};
use millrace_schedule::simulation::{BatchJob, BatchReport, Costs, Setup, Simulation};
use millrace_schedule::template::{StageInput, StageShape, ViewShape};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A tree of stages: a map over each input, some of them several times, then reduces over one or more of the stages that
/// nobody reads yet. Some may have a faucet.
fn view(
    id: u64,
    inputs: &[RelationId],
    partitions: usize,
    faucets: f64,
    random: &mut StdRng,
) -> Arc<ViewShape> {
    let mut stages: Vec<StageShape> = vec![];
    for input in inputs {
        let maps = if faucets > 0.0 {
            random.random_range(1..3)
        } else {
            1
        };
        for _ in 0..maps {
            stages.push(StageShape {
                input: StageInput::Relation(*input),
                reader: None,
                is_single: false,
                has_faucet: false,
                flow_rows: None,
                pieces_max: usize::MAX,
            });
        }
    }
    let mut unread: Vec<usize> = (0..stages.len()).collect();
    let least = random.random_range(0..4);
    let mut reduces = 0;
    // Several stages need a reduce to meet in.
    while unread.len() > 1 || reduces < least {
        reduces += 1;
        let number = stages.len();
        let mut upstream = vec![];
        for _ in 0..random.random_range(1..3).min(unread.len()) {
            upstream.push(unread.remove(random.random_range(0..unread.len())));
        }
        upstream.sort_unstable();
        let has_faucet = random.random_bool(faucets);
        for stage in &upstream {
            stages[*stage].reader = Some(number);
            stages[*stage].has_faucet = has_faucet;
        }
        stages.push(StageShape {
            input: StageInput::Stages(upstream),
            reader: None,
            is_single: random.random_bool(0.3),
            has_faucet: false,
            flow_rows: None,
            pieces_max: usize::MAX,
        });
        unread.push(number);
    }
    Arc::new(ViewShape {
        id: RelationId(id),
        partitions,
        incarnation: 0,
        stages,
        is_batch: false,
    })
}

/// Lets in a change of definitions over these relations, as the runtime does: hold, make, go on.
fn hold(
    simulation: &mut Simulation,
    ticket: u64,
    inputs: Vec<RelationId>,
    seed: u64,
) -> (Ticket, PipelineId) {
    simulation.quiesce(Ticket(ticket), inputs, PipelineId(1_000 + ticket));
    let mut steps = 0;
    while simulation.held.is_empty() {
        // As the runtime does: the last one is followed by another.
        if simulation.workers().is_empty() {
            simulation.add_worker(WorkerId(10_000 + ticket as u32));
        }
        assert!(
            !simulation.run(1) || !simulation.held.is_empty(),
            "seed {seed}: never held"
        );
        steps += 1;
        assert!(
            steps < 1_000_000,
            "seed {seed}: a change of definitions was never let in"
        );
    }
    simulation.held.remove(0)
}

/// What a schedule did, to compare runs.
#[derive(Debug, PartialEq)]
struct Outcome {
    elapsed_ns: u64,
    tasks: u64,
    latencies_ns: Vec<u64>,
    checkpoints: u64,
    recoveries: u64,
    tasks_again: u64,
    refills: u64,
    evicted: u64,
    copies: u64,
    copies_won: u64,
    flows: u64,
    batch: BatchReport,
}

/// What goes wrong in a schedule.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Faults {
    None,
    /// Workers are killed.
    Kills,
    /// Also, messages and fetches fail, and workers fall silent.
    Network,
}

/// One random schedule; some tasks take long if `is_slow`.
fn schedule(seed: u64, faults: Faults, is_slow: bool) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let workers = random.random_range(1..6);
    let group_size = match random.random_range(0..4) {
        0 => GroupSize::default(),
        1 => GroupSize::Fixed(1),
        _ => GroupSize::Fixed(random.random_range(2..20)),
    };
    let every_ns = random.random_range(1_000..3_000_000);
    let checkpoints = match random.random_range(0..3) {
        0 => CheckpointPolicy::Shared { every_ns },
        _ => CheckpointPolicy::Always { every_ns },
    };
    let mut simulation = Simulation::new(Setup {
        workers,
        cores: random.random_range(1..4),
        group_size,
        checkpoints,
        costs: Costs {
            message_ns: (10, random.random_range(11..200_000)),
            task_ns: 20_000,
            driver_ns: Some((2_000, 1_000)),
            worker_ns: Some((0, 0)),
            doubled_per_mille: 50,
            dropped_per_mille: if faults == Faults::Network {
                random.random_range(1..60)
            } else {
                0
            },
            slow: if is_slow {
                (random.random_range(1..40), 150_000_000)
            } else {
                (0, 0)
            },
        },
        seed,
    });
    if faults == Faults::Network {
        let times = if is_slow { 10 } else { 1 };
        simulation.set_heartbeats(times * random.random_range(400_000..2_000_000));
    }
    if random.random_bool(0.5) {
        simulation.set_spread(Spread::Auto {
            worker_ns: random.random_range(20_000..400_000),
            patience_ns: random.random_range(0..5_000_000),
        });
    }
    // Pipelines in which rows go on in batches are filled again when a worker is lost, not recovered.
    let faucets = if random.random_bool(0.3) { 0.4 } else { 0.0 };
    let sources: Vec<RelationId> = (1..=4).map(RelationId).collect();
    for source in &sources {
        simulation.add_source(*source, PipelineId(source.0));
    }
    // Batch work on the same slots.
    if random.random_bool(0.2) {
        let policies = SchedulerPolicy::ALL;
        simulation.set_policy(
            policies[random.random_range(0..policies.len())],
            random.random_range(0..50_000),
        );
        for _ in 0..random.random_range(1..3) {
            simulation.add_batch_client(BatchJob {
                tasks: random.random_range(1..6),
                task_ns: random.random_range(200_000..20_000_000),
                memory_permille: random.random_range(0..200),
            });
        }
    }
    let mut readable = sources.clone();
    let mut views: BTreeMap<RelationId, (Arc<ViewShape>, Vec<RelationId>)> = BTreeMap::new();
    let mut next = 100;
    let mut tickets = 0;
    let mut present: BTreeSet<u32> = (0..workers).collect();
    let mut next_worker = workers;
    let mut refills = 0;
    let mut left = BTreeSet::new();
    for _ in 0..60 {
        present.retain(|worker| simulation.workers().contains(&WorkerId(*worker)));
        let actions = match faults {
            Faults::None => 8,
            Faults::Kills => 10,
            Faults::Network => 12,
        };
        match random.random_range(0..actions) {
            0..=3 => {
                let source = sources[random.random_range(0..sources.len())];
                if let Some(pipeline) = simulation.pipeline_of(source) {
                    simulation.input(pipeline, random.random_range(1..12));
                    if random.random_bool(0.3) {
                        simulation.checkpoint_due(pipeline);
                    }
                }
            }
            4 | 5 => {
                // A view over one or two relations.
                let inputs: BTreeSet<RelationId> = (0..2)
                    .map(|_| readable[random.random_range(0..readable.len())])
                    .collect();
                let inputs: Vec<RelationId> = inputs.into_iter().collect();
                // Nobody reads what waits to be filled again.
                if inputs.iter().any(|input| simulation.abandoned.contains(input)) {
                    continue;
                }
                tickets += 1;
                next += 1;
                let (ticket, pipeline) = hold(&mut simulation, tickets, inputs.clone(), seed);
                let view = view(next, &inputs, random.random_range(1..7), faucets, &mut random);
                readable.push(view.id);
                views.insert(view.id, (Arc::clone(&view), inputs));
                simulation.resume(ticket, pipeline, vec![view], vec![]);
            }
            6 => {
                simulation.add_worker(WorkerId(next_worker));
                present.insert(next_worker);
                next_worker += 1;
            }
            7 => {
                if present.len() > 1
                    && let Some(worker) = present.pop_first()
                {
                    simulation.remove_worker(WorkerId(worker));
                    left.insert(WorkerId(worker));
                }
            }
            10 | 11 => {
                let all: Vec<u32> = present.iter().copied().collect();
                if let Some(worker) = all.choose(&mut random) {
                    simulation.silence_worker(WorkerId(*worker), random.random_range(0..12_000_000));
                }
            }
            _ => {
                if present.len() <= 1 {
                    simulation.add_worker(WorkerId(next_worker));
                    present.insert(next_worker);
                    next_worker += 1;
                }
                let all: Vec<u32> = present.iter().copied().collect();
                let worker = all[random.random_range(0..all.len())];
                present.remove(&worker);
                simulation.kill_worker(WorkerId(worker), random.random_range(0..2_000_000));
            }
        }
        if random.random_bool(0.5) {
            refills += refill(&mut simulation, &views, &mut tickets, seed);
        }
        simulation.run(random.random_range(0..400));
    }
    simulation.stop_batch_clients();
    loop {
        assert!(simulation.run(5_000_000), "seed {seed}: it never comes to rest");
        if simulation.workers().is_empty() {
            simulation.add_worker(WorkerId(next_worker));
            next_worker += 1;
            continue;
        }
        match refill(&mut simulation, &views, &mut tickets, seed) {
            0 => break,
            again => refills += again,
        }
    }
    for view in views.keys() {
        assert!(
            simulation.pipeline_of(*view).is_some(),
            "seed {seed}: view {view} was lost"
        );
    }
    simulation.assert_idle();
    // Those that were held to be lost meanwhile are gone, too.
    let staying: Vec<&WorkerId> = left
        .iter()
        .filter(|worker| simulation.workers_known().contains(worker))
        .collect();
    assert!(staying.is_empty(), "seed {seed}: {staying:?} were never let go");
    let freed: BTreeSet<WorkerId> = simulation.freed.iter().copied().collect();
    assert_eq!(
        freed.len(),
        simulation.freed.len(),
        "seed {seed}: a worker was let go twice"
    );
    assert!(
        if faults == Faults::Network {
            freed.is_subset(&left)
        } else {
            freed == left
        },
        "seed {seed}: {freed:?} were let go of {left:?}"
    );
    let report = simulation.report;
    Outcome {
        elapsed_ns: report.elapsed_ns,
        tasks: report.tasks,
        latencies_ns: report.latencies_ns,
        checkpoints: report.checkpoints,
        recoveries: report.recoveries,
        tasks_again: report.tasks_again,
        refills,
        evicted: report.evicted,
        copies: report.copies,
        copies_won: report.copies_won,
        flows: report.flows,
        batch: report.batch,
    }
}

/// Fills lost views again, one after the other in the order in which they were made, as the runtime does; returns how many.
fn refill(
    simulation: &mut Simulation,
    views: &BTreeMap<RelationId, (Arc<ViewShape>, Vec<RelationId>)>,
    tickets: &mut u64,
    seed: u64,
) -> u64 {
    let mut filled = 0;
    loop {
        let lost: BTreeSet<RelationId> = simulation.abandoned.iter().copied().collect();
        let Some((view, inputs)) = lost.first().map(|first| &views[first]) else {
            return filled;
        };
        *tickets += 1;
        let (ticket, pipeline) = hold(simulation, *tickets, inputs.clone(), seed);
        // An input may have been lost while this was held.
        if inputs.iter().any(|input| simulation.abandoned.contains(input)) {
            simulation.resume(ticket, pipeline, vec![], vec![]);
            continue;
        }
        simulation.abandoned.retain(|id| *id != view.id);
        simulation.resume(ticket, pipeline, vec![Arc::clone(view)], vec![]);
        filled += 1;
    }
}

#[test]
fn random_schedules_run_every_task_once_and_commit_in_order() {
    let first = variable("MILLRACE_SEED", 1);
    let seeds = variable("MILLRACE_SCHEDULE_SEEDS", 8);
    let (mut epochs, mut flows, mut paused) = (0, 0, 0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let outcome = schedule(seed, Faults::None, false);
        assert_eq!((outcome.tasks_again, outcome.recoveries), (0, 0), "seed {seed}");
        paused += outcome.batch.pauses;
        epochs += outcome.latencies_ns.len();
        flows += outcome.flows;
    }
    assert!(
        epochs as u64 > seeds * 10 && flows > seeds && paused > seeds,
        "{epochs} epochs, {flows} tasks with batches, {paused} pauses in {seeds} schedules test nothing"
    );
}

#[test]
fn nothing_is_lost_or_done_twice_whoever_is_killed_when() {
    let first = variable("MILLRACE_SEED", 1);
    let seeds = variable("MILLRACE_SCHEDULE_SEEDS", 50);
    let (mut epochs, mut recoveries, mut again, mut checkpoints) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let outcome = schedule(seed, Faults::Kills, false);
        epochs += outcome.latencies_ns.len() as u64;
        recoveries += outcome.recoveries;
        again += outcome.tasks_again;
        checkpoints += outcome.checkpoints;
    }
    println!("{epochs} epochs, {checkpoints} checkpoints, {recoveries} recoveries, {again} tasks again");
    assert!(
        epochs > seeds * 10 && recoveries > seeds && again > seeds,
        "{epochs} epochs, {recoveries} recoveries, {again} tasks again in {seeds} schedules test nothing"
    );
}

#[test]
fn nothing_is_lost_or_done_twice_whatever_cannot_be_sent() {
    let first = variable("MILLRACE_SEED", 1);
    let seeds = variable("MILLRACE_SCHEDULE_SEEDS", 50);
    let (mut epochs, mut recoveries, mut again, mut evicted) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        let outcome = schedule(seed, Faults::Network, false);
        epochs += outcome.latencies_ns.len() as u64;
        recoveries += outcome.recoveries;
        again += outcome.tasks_again;
        evicted += outcome.evicted;
    }
    println!(
        "{epochs} epochs, {recoveries} recoveries, {again} tasks again, {evicted} alive and held to be lost"
    );
    assert!(
        epochs > seeds * 10 && recoveries > seeds && evicted > seeds,
        "{epochs} epochs, {recoveries} recoveries, {evicted} evicted in {seeds} schedules test nothing"
    );
}

#[test]
fn nothing_is_lost_or_done_twice_whatever_is_slow() {
    let first = variable("MILLRACE_SEED", 1);
    let seeds = variable("MILLRACE_SCHEDULE_SEEDS", 6);
    let (mut epochs, mut copies, mut won, mut again) = (0, 0, 0, 0);
    for seed in first..first + seeds {
        for faults in [Faults::None, Faults::Kills, Faults::Network] {
            println!("seed {seed}, {faults:?}");
            let outcome = schedule(seed, faults, true);
            epochs += outcome.latencies_ns.len() as u64;
            copies += outcome.copies;
            won += outcome.copies_won;
            again += outcome.tasks_again;
        }
    }
    println!("{epochs} epochs, {copies} copies, {won} of them ended first, {again} tasks again");
    assert!(
        won > seeds && copies > won + seeds && again > seeds,
        "{epochs} epochs, {copies} copies, {won} of them first, {again} tasks again in {seeds} schedules test nothing"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for faults in [Faults::None, Faults::Kills, Faults::Network] {
        assert_eq!(schedule(7, faults, true), schedule(7, faults, true));
    }
}

/// A driver that takes a thousandth of the interval needs no groups: the time until an epoch is due is not the driver's.
#[test]
fn waiting_for_an_interval_is_not_waiting_for_the_driver() {
    let mut simulation = Simulation::new(Setup {
        workers: 4,
        cores: 1,
        group_size: GroupSize::default(),
        costs: Costs {
            message_ns: (50_000, 50_000),
            task_ns: 5_000_000,
            driver_ns: Some((2_000, 20_000)),
            worker_ns: Some((0, 0)),
            doubled_per_mille: 0,
            dropped_per_mille: 0,
            slow: (0, 0),
        },
        checkpoints: CheckpointPolicy::Never,
        seed: 1,
    });
    let source = RelationId(1);
    simulation.set_interval(100_000_000);
    simulation.add_source(source, PipelineId(1));
    assert!(simulation.run(1_000));
    simulation.quiesce(Ticket(1), vec![source], PipelineId(2));
    assert!(simulation.run(1_000));
    let (ticket, pipeline) = simulation.held.remove(0);
    let mut random = StdRng::seed_from_u64(1);
    let view = view(100, &[source], 4, 0.0, &mut random);
    simulation.resume(ticket, pipeline, vec![view], vec![]);
    assert!(simulation.run(1_000));
    simulation.input(pipeline, 200);
    assert!(simulation.run(1_000_000));
    let epochs: Vec<u64> = simulation
        .report
        .groups
        .iter()
        .map(|group| group.epochs)
        .collect();
    assert!(
        epochs.len() > 150 && epochs.iter().all(|epochs| *epochs == 1),
        "{epochs:?}"
    );
}

/// Epochs of a pipeline whose tasks take so long: on how many workers it is after them, and messages for each epoch.
fn spread_of(simulation: &mut Simulation, pipeline: PipelineId, task_ns: u64) -> (usize, u64) {
    simulation.set_task_ns(task_ns);
    simulation.input(pipeline, 400);
    assert!(simulation.run(10_000_000));
    simulation.measure();
    simulation.input(pipeline, 100);
    assert!(simulation.run(10_000_000));
    let report = &simulation.report;
    let messages = report.worker_messages + report.driver_messages;
    (simulation.workers_of(pipeline), messages / report.epochs)
}

/// A pipeline with little to do is on one worker, and costs a fraction of the messages; with more to do it is on as many
/// as have something to do.
#[test]
fn a_pipeline_has_as_many_workers_as_it_has_work_for() {
    let mut simulation = Simulation::new(Setup {
        workers: 4,
        cores: 2,
        group_size: GroupSize::Fixed(10),
        costs: Costs::reliable((10_000, 10_000), 10_000),
        checkpoints: CheckpointPolicy::Shared {
            every_ns: 1_000_000_000,
        },
        seed: 1,
    });
    let source = RelationId(1);
    simulation.add_source(source, PipelineId(1));
    let (ticket, pipeline) = hold(&mut simulation, 1, vec![source], 1);
    // Two maps on four partitions, and a reduce on one.
    let stage = |input, reader, is_single| StageShape {
        input,
        reader,
        is_single,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    };
    let view = Arc::new(ViewShape {
        id: RelationId(100),
        incarnation: 0,
        partitions: 4,
        stages: vec![
            stage(StageInput::Relation(source), Some(2), false),
            stage(StageInput::Relation(RelationId(2)), Some(2), false),
            stage(StageInput::Stages(vec![0, 1]), None, true),
        ],
        is_batch: false,
    });
    simulation.resume(ticket, pipeline, vec![view], vec![]);
    let all = spread_of(&mut simulation, pipeline, 10_000);
    simulation.set_spread(Spread::Auto {
        worker_ns: 500_000,
        patience_ns: 2_000_000,
    });
    let few = spread_of(&mut simulation, pipeline, 10_000);
    let many = spread_of(&mut simulation, pipeline, 1_000_000);
    println!("workers and messages an epoch: {all:?}, little work {few:?}, much {many:?}");
    // Nine tasks, three after each other: a fourth worker would be of no use.
    assert_eq!((all.0, few.0, many.0), (4, 1, 3));
    assert!(few.1 * 8 < all.1, "{few:?} against {all:?}");
    simulation.assert_idle();
}

/// Once a pipeline has a checkpoint it is never without one, whatever else goes on: a worker that is lost while partitions
/// move costs no view.
#[test]
fn a_worker_that_is_lost_while_partitions_move_costs_no_view() {
    for steps in 0..400 {
        let mut simulation = Simulation::new(Setup {
            workers: 3,
            cores: 2,
            group_size: GroupSize::Fixed(3),
            costs: Costs::reliable((10, 50_000), 10_000),
            checkpoints: CheckpointPolicy::Shared {
                every_ns: 1_000_000_000,
            },
            seed: steps,
        });
        let mut random = StdRng::seed_from_u64(steps);
        let source = RelationId(1);
        simulation.add_source(source, PipelineId(1));
        let (ticket, pipeline) = hold(&mut simulation, 1, vec![source], steps);
        let view = view(100, &[source], 5, 0.0, &mut random);
        simulation.resume(ticket, pipeline, vec![view], vec![]);
        simulation.input(pipeline, 5);
        assert!(simulation.run(5_000_000), "seed {steps}: it never comes to rest");
        let before = simulation.report.recoveries;
        match steps % 2 {
            0 => simulation.add_worker(WorkerId(3)),
            _ => simulation.remove_worker(WorkerId(2)),
        }
        simulation.input(pipeline, 2);
        simulation.run(steps);
        simulation.kill_worker(WorkerId(steps as u32 / 2 % 2), 0);
        simulation.input(pipeline, 2);
        assert!(simulation.run(5_000_000), "seed {steps}: it never comes to rest");
        assert_eq!(simulation.abandoned, [], "seed {steps}");
        assert!(
            simulation.report.recoveries > before || simulation.workers_of(pipeline) == 1,
            "seed {steps}"
        );
        simulation.assert_idle();
    }
}
