//! The driver and the local schedulers under random schedules: messages delayed, overtaken and doubled, definitions and
//! workers changing all the time. `MILLRACE_SCHEDULE_SEEDS` sets how many seeds are run, `MILLRACE_SCHEDULE_SEED` the first.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_runtime::driver::{PipelineId, Ticket};
use millrace_runtime::schedule::group::GroupSize;
use millrace_runtime::schedule::simulation::{Costs, Setup, Simulation};
use millrace_runtime::schedule::template::{StageInput, StageShape, ViewShape, WorkerId};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Two maps, a reduce over both, another reduce behind an exchange of its own.
fn view(id: u64, inputs: &[RelationId], partitions: usize, random: &mut StdRng) -> Arc<ViewShape> {
    let mut stages: Vec<StageShape> = inputs
        .iter()
        .map(|input| StageShape {
            input: StageInput::Relation(*input),
            reader: None,
            is_single: false,
        })
        .collect();
    let mut upstream: Vec<usize> = (0..stages.len()).collect();
    for _ in 0..random.random_range(0..3) {
        let number = stages.len();
        for stage in &upstream {
            stages[*stage].reader = Some(number);
        }
        let is_single = random.random_bool(0.3);
        stages.push(StageShape {
            input: StageInput::Stages(upstream),
            reader: None,
            is_single,
        });
        upstream = vec![number];
    }
    if upstream.len() > 1 {
        // Several maps need a reduce to meet in.
        let number = stages.len();
        for stage in &upstream {
            stages[*stage].reader = Some(number);
        }
        stages.push(StageShape {
            input: StageInput::Stages(upstream),
            reader: None,
            is_single: false,
        });
    }
    Arc::new(ViewShape {
        id: RelationId(id),
        partitions,
        stages,
    })
}

/// One random schedule; returns what it did, to compare runs.
fn schedule(seed: u64) -> (u64, u64, Vec<u64>) {
    let mut random = StdRng::seed_from_u64(seed);
    let workers = random.random_range(1..6);
    let group_size = match random.random_range(0..4) {
        0 => GroupSize::default(),
        1 => GroupSize::Fixed(1),
        _ => GroupSize::Fixed(random.random_range(2..20)),
    };
    let mut simulation = Simulation::new(Setup {
        workers,
        cores: random.random_range(1..4),
        group_size,
        costs: Costs {
            message_ns: (10, random.random_range(11..200_000)),
            task_ns: 20_000,
            driver_ns: Some((2_000, 1_000)),
            worker_ns: Some((0, 0)),
            doubled_per_mille: 50,
        },
        seed,
    });
    let sources: Vec<RelationId> = (1..=4).map(RelationId).collect();
    for source in &sources {
        simulation.add_source(*source, PipelineId(source.0));
    }
    let mut readable = sources.clone();
    let mut next = 100;
    let mut tickets = 0;
    let mut present: BTreeSet<u32> = (0..workers).collect();
    let mut next_worker = workers;
    for _ in 0..60 {
        match random.random_range(0..8) {
            0..=3 => {
                let source = sources[random.random_range(0..sources.len())];
                if let Some(pipeline) = simulation.pipeline_of(source) {
                    simulation.input(pipeline, random.random_range(1..12));
                }
            }
            4 | 5 => {
                // A view over one or two relations, made as the runtime does: hold, make, go on.
                let inputs: BTreeSet<RelationId> = (0..2)
                    .map(|_| readable[random.random_range(0..readable.len())])
                    .collect();
                let inputs: Vec<RelationId> = inputs.into_iter().collect();
                tickets += 1;
                next += 1;
                simulation.quiesce(Ticket(tickets), inputs.clone(), PipelineId(1_000 + tickets));
                let mut steps = 0;
                while simulation.held.is_empty() {
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
                let (ticket, pipeline) = simulation.held.remove(0);
                let view = view(next, &inputs, random.random_range(1..7), &mut random);
                readable.push(view.id);
                simulation.resume(ticket, pipeline, vec![view], vec![]);
            }
            6 => {
                simulation.add_worker(WorkerId(next_worker));
                present.insert(next_worker);
                next_worker += 1;
            }
            _ => {
                if present.len() > 1
                    && let Some(worker) = present.pop_first()
                {
                    simulation.remove_worker(WorkerId(worker));
                }
            }
        }
        simulation.run(random.random_range(0..400));
    }
    assert!(simulation.run(5_000_000), "seed {seed}: it never comes to rest");
    simulation.assert_idle();
    let left = next_worker as usize - present.len();
    assert_eq!(
        simulation.freed.len(),
        left,
        "seed {seed}: a worker was never let go"
    );
    let report = simulation.report;
    (report.elapsed_ns, report.tasks, report.latencies_ns)
}

#[test]
fn random_schedules_run_every_task_once_and_commit_in_order() {
    let first = variable("MILLRACE_SCHEDULE_SEED", 1);
    let seeds = variable("MILLRACE_SCHEDULE_SEEDS", 40);
    let mut epochs = 0;
    for seed in first..first + seeds {
        println!("seed {seed}");
        epochs += schedule(seed).2.len();
    }
    assert!(
        epochs as u64 > seeds * 10,
        "{epochs} epochs in {seeds} schedules test nothing"
    );
}

#[test]
fn a_seed_gives_the_same_run_again() {
    assert_eq!(schedule(7), schedule(7));
}
