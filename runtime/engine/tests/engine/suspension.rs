//! Neptune's cluster, simulated: 75 workers of four cores, a stream that takes 15 % of them, and batch work that would take
//! all. The driver, the queues of the slots and the policies are those that run live.

use std::sync::Arc;

use millrace_planner::RelationId;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::driver::CheckpointPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::id::{PipelineId, Ticket};
use millrace_schedule::simulation::{BatchJob, BatchReport, Costs, Setup, Simulation};
use millrace_schedule::template::{StageInput, StageShape, ViewShape};

const WORKERS: usize = 75;
const CORES: usize = 4;
const INTERVAL_NS: u64 = 100_000_000;
/// A suspension point is at most so far away.
const PAUSE_NS: u64 = 1_000_000;
const SECONDS: u64 = 4;

/// A map on every worker and a reduce of as many partitions, `share` of the cores in all; two clients whose jobs have a task
/// for each core.
fn run(policy: SchedulerPolicy, share: f64, seed: u64) -> BatchReport {
    let tasks_a_core = 2.0 / CORES as f64;
    let mut simulation = Simulation::new(Setup {
        workers: WORKERS as u32,
        cores: CORES,
        group_size: GroupSize::Fixed(10),
        checkpoints: CheckpointPolicy::Never,
        costs: Costs {
            message_ns: (100_000, 300_000),
            task_ns: (INTERVAL_NS as f64 * share / tasks_a_core) as u64,
            driver_ns: Some((2_000, 1_000)),
            worker_ns: Some((2_000, 1_000)),
            doubled_per_mille: 0,
            dropped_per_mille: 0,
            slow: (0, 0),
        },
        seed,
    });
    let source = RelationId(1);
    simulation.set_interval(INTERVAL_NS);
    simulation.add_source(source, PipelineId(1));
    assert!(simulation.run(10_000));
    simulation.quiesce(Ticket(1), vec![source], PipelineId(2));
    assert!(simulation.run(10_000));
    let (ticket, pipeline) = simulation.held.remove(0);
    let stage = |input, reader| StageShape {
        input,
        reader,
        is_single: false,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    };
    let view = Arc::new(ViewShape {
        id: RelationId(100),
        incarnation: 0,
        partitions: WORKERS,
        stages: vec![
            stage(StageInput::Relation(source), Some(1)),
            stage(StageInput::Stages(vec![0]), None),
        ],
        is_batch: false,
    });
    simulation.resume(ticket, pipeline, vec![view], vec![]);
    assert!(simulation.run(100_000));
    simulation.set_policy(policy, PAUSE_NS);
    for _ in 0..2 {
        simulation.add_batch_client(BatchJob {
            tasks: WORKERS * CORES,
            task_ns: 1_000_000_000,
            memory_permille: 60,
        });
    }
    simulation.run_for(1_000_000_000);
    simulation.measure();
    simulation.input(pipeline, SECONDS * 1_000_000_000 / INTERVAL_NS);
    simulation.run_for(SECONDS * 1_000_000_000);
    let report = simulation.report.batch.clone();
    simulation.stop_batch_clients();
    assert!(simulation.run(10_000_000), "it never comes to rest");
    simulation.assert_idle();
    report
}

fn p99(waits: &[u64]) -> u64 {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

#[test]
fn streams_wait_for_a_suspension_point_and_pauses_are_balanced() {
    let lma = run(SchedulerPolicy::Lma, 0.15, 1);
    let fifo = run(SchedulerPolicy::Fifo, 0.15, 1);
    let kill = run(SchedulerPolicy::Kill, 0.15, 1);
    assert!(p99(&lma.waits_ns) <= PAUSE_NS, "{} ns", p99(&lma.waits_ns));
    assert!(p99(&fifo.waits_ns) > 20 * PAUSE_NS, "{} ns", p99(&fifo.waits_ns));
    assert!(lma.pauses > 1_000, "{} pauses", lma.pauses);
    // What streams leave of the slots is used but for turns that are not over; `fifo` gives streams less than they want.
    let done = |report: &BatchReport| (report.ran_ns - report.lost_ns) as f64;
    let left = (1.0 - 0.15) * (WORKERS * CORES) as f64 * SECONDS as f64 * 1e9;
    assert!(done(&lma) > 0.9 * left, "{} of {left}", done(&lma));
    assert!(
        kill.restarts > 1_000 && done(&kill) < 0.9 * done(&lma),
        "{kill:?}"
    );
    // Every worker has paused tasks, none of them many more or for longer than the others.
    let integrals: Vec<u64> = lma.paused.values().map(|(integral, _)| *integral).collect();
    let most = lma.paused.values().map(|(_, most)| *most).max().unwrap_or(0);
    let mean = integrals.iter().sum::<u64>() / WORKERS as u64;
    let longest = integrals.iter().copied().max().unwrap_or(0);
    println!("paused at a time: at most {most}; for {mean} ns on average, {longest} at most");
    assert_eq!(integrals.len(), WORKERS);
    assert!(
        most <= CORES && longest < 2 * mean,
        "{most} at a time, {longest} ns of {mean}"
    );
}

#[test]
fn nobody_starves_when_streams_want_all_cores() {
    // More than there is: epochs run one after the other without a gap.
    let report = run(SchedulerPolicy::Lma, 1.5, 2);
    println!(
        "{} tasks ended, the longest wait {} ns",
        report.ended, report.wait_ns_max
    );
    assert!(report.ended > 0, "{report:?}");
}
