//! The paper's cluster, simulated: 75 workers of four cores, a stream that takes 15 % of them, and batch work that would take
//! all (Neptune, section 7.1). The driver, the slots' queues and the policies are those that run live.

use millrace_planner::RelationId;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::simulation::{BatchJob, BatchReport};

use super::Scale;
use crate::drizzle::simulated::cluster::Cluster;
use crate::drizzle::simulated::{SLOTS, stages};
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};

/// The experiment's name.
pub const NAME: &str = "simulated cluster";

const WORKERS: usize = 75;
const SOURCE: RelationId = RelationId(1);
const INTERVAL_NS: u64 = 100_000_000;
/// Of all cores.
const DEMAND: f64 = 0.15;
/// A suspension point is at most so far away.
const PAUSE_NS: u64 = 1_000_000;
const JOBS: usize = 2;
const JOB: BatchJob = BatchJob {
    tasks: WORKERS * SLOTS,
    task_ns: 1_000_000_000,
    memory_permille: 60,
};

/// All policies.
///
/// # Errors
/// The simulation does not do what it should.
pub fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        NAME,
        format!(
            "{WORKERS} workers of {SLOTS} cores: a view that takes {} % of them, cut every {} ms, and {JOBS} clients whose jobs \
             have a task for each core, about a second long. {} s under each policy; a task gives way within {} ms after it \
             was asked. *Used*: time of batch tasks on slots that was not lost, of what streams leave. *Paused*: over the \
             workers, the longest sum of the times for which tasks were paused against the mean.",
            DEMAND * 100.0,
            INTERVAL_NS / 1_000_000,
            scale.simulated.as_secs(),
            PAUSE_NS / 1_000_000,
        ),
    );
    for policy in SchedulerPolicy::ALL {
        let report = simulate(policy, scale)?;
        let waits = report.waits_ns.iter().map(|wait| *wait as f64 / 1e6).collect();
        experiment.add(format!("{policy}: wait of a stream's task"), "ms", waits, None);
        let seconds = scale.simulated.as_secs_f64();
        let left_ns = (1.0 - DEMAND) * (WORKERS * SLOTS) as f64 * seconds * 1e9;
        let used = (report.ran_ns - report.lost_ns) as f64 / left_ns;
        experiment.add(format!("{policy}: used"), "x", vec![used], None);
        let pauses = (report.pauses + report.restarts) as f64 / seconds;
        experiment.add(
            format!("{policy}: pauses and restarts"),
            "1/s",
            vec![pauses],
            None,
        );
        if report.pauses > 0 {
            let times: Vec<u64> = report.paused.values().map(|(time, _)| *time).collect();
            let mean = times.iter().sum::<u64>() as f64 / WORKERS as f64;
            let longest = times.iter().copied().max().unwrap_or(0) as f64;
            let most = report.paused.values().map(|(_, most)| *most).max();
            let aim = (policy == SchedulerPolicy::Lma).then_some(Aim::MedianUnder(2.0));
            experiment.add(
                format!("{policy}: paused, longest"),
                "x",
                vec![longest / mean],
                aim,
            );
            let most = vec![most.unwrap_or(0) as f64];
            experiment.add(
                format!("{policy}: paused at a time on a worker"),
                "tasks",
                most,
                None,
            );
        }
    }
    run.add(experiment);
    Ok(())
}

fn simulate(policy: SchedulerPolicy, scale: &Scale) -> Result<BatchReport, BenchError> {
    let stages = stages(SOURCE, true);
    // A task of each stage on every worker.
    let task_ns = INTERVAL_NS as f64 * DEMAND * SLOTS as f64 / stages.len() as f64;
    let mut cluster = Cluster::new(WORKERS as u32, task_ns as u64, GroupSize::Fixed(10), false, 1);
    cluster.simulation.set_interval(INTERVAL_NS);
    let pipeline = cluster.view(SOURCE, &stages, WORKERS)?;
    let simulation = &mut cluster.simulation;
    simulation.set_policy(policy, PAUSE_NS);
    for _ in 0..JOBS {
        simulation.add_batch_client(JOB);
    }
    let run_ns = scale.simulated.as_nanos() as u64;
    simulation.run_for(run_ns / 4);
    simulation.measure();
    simulation.input(pipeline, run_ns / INTERVAL_NS);
    simulation.run_for(run_ns);
    let report = simulation.report.batch.clone();
    simulation.stop_batch_clients();
    cluster.rest()?;
    cluster.simulation.assert_idle();
    Ok(report)
}
