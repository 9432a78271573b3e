//! What coordination costs on clusters that are not there: the driver, the local schedulers and the encoding of their
//! messages run as they are, on a clock that only they, the network and the tasks move.
//!
//! The experiments are those of Drizzle (SOSP'17), section 5.2, and of its figure 11.

pub(crate) mod cluster;

use millrace_planner::RelationId;
use millrace_schedule::group_size::GroupSize;
use millrace_schedule::simulation::{GroupSeen, Report};
use millrace_schedule::template::{StageInput, StageShape};

use self::cluster::Cluster;
use super::Scale;
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::median;

/// Slots of a worker, as in the paper.
pub(crate) const SLOTS: usize = 4;
/// A message between two machines.
const MESSAGE_NS: u64 = 100_000;
/// The sum of some random numbers: less than a millisecond.
const TASK_NS: u64 = 500_000;
/// Reduce tasks of the paper's shuffle.
const REDUCERS: usize = 16;
/// Workers of the largest cluster of the paper, which its numbers are about.
const WORKERS_OF_THE_PAPER: u32 = 128;
/// Milliseconds that Spark took there to schedule one micro-batch.
const SPARK_MS: f64 = 195.0;
/// The driver's time for an event and for a message that starts a worker's tasks, so that a group of one takes it as long
/// as Spark took.
const SPARK_NS: (u64, u64) = (
    10_000,
    (SPARK_MS * 1e6) as u64 / WORKERS_OF_THE_PAPER as u64 - 10_000,
);
const STEPS_MAX: u64 = 1_000_000_000;

/// How a cluster is scheduled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scheduling {
    /// Barriers behind every stage, and a round trip to the driver.
    Central,
    /// A barrier behind every micro-batch; within it, reduces are there before their maps.
    PreScheduled,
    /// So many micro-batches at once.
    Groups(u64),
}

impl Scheduling {
    fn name(self) -> String {
        match self {
            Scheduling::Central => "central".to_owned(),
            Scheduling::PreScheduled => "pre-scheduling alone".to_owned(),
            Scheduling::Groups(size) => format!("G = {size}"),
        }
    }
}

/// A job on a cluster.
#[derive(Debug, Clone, Copy)]
struct Job {
    workers: u32,
    scheduling: Scheduling,
    task_ns: u64,
    has_shuffle: bool,
    /// The driver as slow as Spark's, or as fast as ours is here.
    is_slow: bool,
}

/// Times of one micro-batch, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    total: f64,
    /// What is left of the total beside its tasks.
    coordination: f64,
    driver: f64,
    busiest_worker: f64,
    messages: f64,
}

/// Runs the simulated experiments whose names contain what was asked for.
///
/// # Errors
/// A simulation does not come to rest.
pub fn run(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    if run.begins(ONE_STAGE) {
        one_stage(run, scale)?;
    }
    if run.begins(MORE_DATA) {
        more_data(run, scale)?;
    }
    if run.begins(SHUFFLE) {
        shuffle(run, scale)?;
    }
    if run.begins(TUNING) {
        tuning(run, scale)?;
    }
    Ok(())
}

const ONE_STAGE: &str = "one stage (figures 4a, 4b)";
const MORE_DATA: &str = "one stage, 100 times the data (figure 5a)";
const SHUFFLE: &str = "with a shuffle (figure 5b)";
const TUNING: &str = "group size over time (figure 11)";

fn method(text: &str) -> String {
    format!(
        "{text} Simulated clusters of workers with {SLOTS} slots and as many tasks a stage as there are slots. A message is \
         {} ms under way. The driver and each worker's local scheduler (which has a thread of its own) take as long as the \
         real code takes on this machine for that very event, messages encoded and decoded included; the first worker also \
         hands out every cut. Rows are not moved.",
        MESSAGE_NS as f64 / 1e6
    )
}

/// Figures 4a and 4b.
fn one_stage(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        ONE_STAGE,
        method(&format!(
            "Time per micro-batch, {} of them, each task computing for {} ms. *Central*: the next micro-batch is asked for \
             when the one before is committed, as Spark does; *G*: groups. *As slow as Spark*: the driver takes {:.2} ms to \
             start the tasks of a worker, so that {WORKERS_OF_THE_PAPER} workers take it the {SPARK_MS} ms that the paper \
             measured of Spark.",
            scale.batches,
            TASK_NS as f64 / 1e6,
            SPARK_NS.1 as f64 / 1e6,
        )),
    );
    let series = [
        Scheduling::Central,
        Scheduling::Groups(1),
        Scheduling::Groups(25),
        Scheduling::Groups(50),
        Scheduling::Groups(100),
    ];
    let job = |workers, scheduling, is_slow| Job {
        workers,
        scheduling,
        task_ns: TASK_NS,
        has_shuffle: false,
        is_slow,
    };
    let largest = scale.workers.last().copied().unwrap_or(1);
    let mut lines = vec![];
    for (is_slow, whose) in [(false, ""), (true, ", as slow as Spark")] {
        for scheduling in series {
            let mut points = vec![];
            for workers in &scale.workers {
                let times = trials(job(*workers, scheduling, is_slow), scale)?;
                let totals: Vec<f64> = times.iter().map(|times| times.total).collect();
                points.push((f64::from(*workers), median(&totals)));
                experiment.add(
                    format!("{}{whose}, {workers} workers", scheduling.name()),
                    "ms",
                    totals,
                    None,
                );
            }
            lines.push(Line {
                name: format!("{}{whose}", scheduling.name()),
                points,
            });
        }
    }
    for (is_slow, whose) in [(false, ""), (true, ", as slow as Spark")] {
        let central = trials(job(largest, Scheduling::Central, is_slow), scale)?;
        let grouped = trials(job(largest, Scheduling::Groups(100), is_slow), scale)?;
        let aim = (!is_slow).then_some(Aim::MedianUnder(1.0));
        for (name, times) in [("central", &central), ("G = 100", &grouped)] {
            let name = |part: &str| format!("{name}{whose}, {largest} workers: {part}");
            let of = |part: fn(&Times) -> f64| times.iter().map(part).collect::<Vec<f64>>();
            let aim = aim.filter(|_| times.as_ptr() == grouped.as_ptr());
            experiment.add(
                name("coordination (time beside the tasks)"),
                "ms",
                of(|t| t.coordination),
                aim,
            );
            experiment.add(name("the driver's time"), "ms", of(|t| t.driver), None);
            experiment.add(
                name("the busiest local scheduler's time"),
                "ms",
                of(|t| t.busiest_worker),
                None,
            );
            experiment.add(name("messages of all"), "", of(|t| t.messages), None);
        }
        let gains = central.iter().zip(&grouped).map(|(a, b)| a.total / b.total);
        let gain_aim = is_slow.then_some(Aim::MedianOver(46.0));
        experiment.add(
            format!("gain of G = 100{whose}, {largest} workers"),
            "x",
            gains.collect(),
            gain_aim,
        );
        let gains = central
            .iter()
            .zip(&grouped)
            .map(|(a, b)| a.coordination / b.coordination);
        experiment.add(
            format!("gain of G = 100 in coordination{whose}, {largest} workers"),
            "x",
            gains.collect(),
            None,
        );
    }
    experiment.add(
        "tasks, all of them at once",
        "ms",
        vec![TASK_NS as f64 / 1e6],
        None,
    );
    experiment.add(
        "paper: Spark, 128 workers: scheduling",
        "ms",
        vec![SPARK_MS],
        None,
    );
    experiment.add("paper: Drizzle, G = 100, 128 workers", "ms", vec![5.0], None);
    experiment.add("paper: gain by cluster size", "x", vec![7.0, 46.0], None);
    run.add(experiment);
    run.draw(Chart {
        name: "one-stage",
        title: "Time per micro-batch, one stage (figure 4a)".to_owned(),
        x: "workers",
        y: "ms",
        lines,
    });
    Ok(())
}

/// Figure 5a.
fn more_data(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let task_ns = 100 * TASK_NS;
    let mut experiment = Experiment::new(
        MORE_DATA,
        method(&format!(
            "As above, with tasks of {} ms: what groups save is the same, and matters less. The paper: beyond groups of 25 \
             nothing more is gained.",
            task_ns as f64 / 1e6
        )),
    );
    let mut lines = vec![];
    for (is_slow, whose) in [(false, ""), (true, ", as slow as Spark")] {
        for scheduling in [
            Scheduling::Central,
            Scheduling::Groups(1),
            Scheduling::Groups(25),
            Scheduling::Groups(100),
        ] {
            let mut points = vec![];
            for workers in &scale.workers {
                let job = Job {
                    workers: *workers,
                    scheduling,
                    task_ns,
                    has_shuffle: false,
                    is_slow,
                };
                let times = trials(job, scale)?;
                let totals: Vec<f64> = times.iter().map(|times| times.total).collect();
                points.push((f64::from(*workers), median(&totals)));
                experiment.add(
                    format!("{}{whose}, {workers} workers", scheduling.name()),
                    "ms",
                    totals,
                    None,
                );
            }
            lines.push(Line {
                name: format!("{}{whose}", scheduling.name()),
                points,
            });
        }
    }
    run.add(experiment);
    run.draw(Chart {
        name: "more-data",
        title: "Time per micro-batch, 100 times the data (figure 5a)".to_owned(),
        x: "workers",
        y: "ms",
        lines,
    });
    Ok(())
}

/// Figure 5b.
fn shuffle(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        SHUFFLE,
        method(&format!(
            "Time per micro-batch, {} of them, maps as in figure 4 and {REDUCERS} reduces behind a shuffle, each computing \
             for {} ms. *Central*: the driver starts the reduces when it has heard of every map, and the next maps when it \
             has heard of every reduce. *Pre-scheduling alone*: reduces wait for their maps on the workers, and there is a \
             barrier behind each micro-batch. *G*: groups, no barrier. The time to fetch is not in it, which makes up most of \
             the paper's 45 ms at 128 workers.",
            scale.batches,
            TASK_NS as f64 / 1e6,
        )),
    );
    let mut lines = vec![];
    let largest = scale.workers.last().copied().unwrap_or(1);
    for (is_slow, whose) in [(false, ""), (true, ", as slow as Spark")] {
        let mut at_largest = vec![];
        for scheduling in [
            Scheduling::Central,
            Scheduling::PreScheduled,
            Scheduling::Groups(10),
            Scheduling::Groups(100),
        ] {
            let mut points = vec![];
            for workers in &scale.workers {
                let job = Job {
                    workers: *workers,
                    scheduling,
                    task_ns: TASK_NS,
                    has_shuffle: true,
                    is_slow,
                };
                let times = trials(job, scale)?;
                let totals: Vec<f64> = times.iter().map(|times| times.total).collect();
                points.push((f64::from(*workers), median(&totals)));
                if *workers == largest {
                    at_largest.push((scheduling, median(&totals)));
                }
                experiment.add(
                    format!("{}{whose}, {workers} workers", scheduling.name()),
                    "ms",
                    totals,
                    None,
                );
            }
            lines.push(Line {
                name: format!("{}{whose}", scheduling.name()),
                points,
            });
        }
        if let Some(((_, central), rest)) = at_largest.split_first() {
            for (scheduling, time) in rest {
                experiment.add(
                    format!("gain of {}{whose}, {largest} workers", scheduling.name()),
                    "x",
                    vec![central / time],
                    None,
                );
            }
        }
    }
    experiment.add(
        "paper: gain of groups over Spark by cluster size",
        "x",
        vec![2.7, 5.5],
        None,
    );
    experiment.add(
        "paper: what pre-scheduling alone saves at 128 workers",
        "ms",
        vec![20.0],
        None,
    );
    run.add(experiment);
    run.draw(Chart {
        name: "shuffle",
        title: "Time per micro-batch, with a shuffle (figure 5b)".to_owned(),
        x: "workers",
        y: "ms",
        lines,
    });
    Ok(())
}

/// An automatic group size is watched for so long, half of it under ten times the load.
struct Watch {
    interval_ms: u64,
    seconds: u64,
}

/// Figure 11.
fn tuning(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let workers = scale.workers.last().copied().unwrap_or(1);
    let mut experiment = Experiment::new(
        TUNING,
        method(&format!(
            "The automatic group size over time on {workers} workers, for three intervals between micro-batches; groups \
             begin with one micro-batch, bounds are 5 % and 10 %. Tasks take a twentieth of the interval, and ten times that \
             in the second half. The paper, whose driver needs as long as Spark's: 100 ms grows to 64 and settles at 49, \
             250 ms settles at 8. Ours needs groups at 5 ms only; with a driver as slow as Spark's it grows as the paper's. \
             *Within the bounds*: groups of the last third of a half whose smoothed share of coordination is at most 10 %.",
        )),
    );
    let mut lines = vec![];
    for watch in [
        Watch {
            interval_ms: 100,
            seconds: scale.tuning_seconds,
        },
        Watch {
            interval_ms: 250,
            seconds: scale.tuning_seconds,
        },
        Watch {
            interval_ms: 5,
            seconds: scale.tuning_seconds.div_ceil(4),
        },
    ] {
        for (is_slow, whose) in [(false, ""), (true, ", as slow as Spark")] {
            // A driver that needs 195 ms for a group of one cannot follow 5 ms at once, which is what tuning is for.
            let name = format!("{} ms{whose}", watch.interval_ms);
            let half_ns = watch.seconds * 500_000_000;
            let groups = watched(workers, &watch, is_slow)?;
            for (half, load) in [(0, "load"), (1, "ten times the load")] {
                let from = half * half_ns;
                let of_half: Vec<&GroupSeen> = groups
                    .iter()
                    .filter(|group| group.at_ns >= from && group.at_ns < from + half_ns)
                    .collect();
                let sizes = |groups: &[&GroupSeen]| groups.iter().map(|group| group.epochs as f64).collect();
                let settled: Vec<&GroupSeen> = of_half
                    .iter()
                    .copied()
                    .filter(|group| group.at_ns >= from + half_ns * 2 / 3)
                    .collect();
                experiment.add(format!("{name}, {load}: group size"), "", sizes(&of_half), None);
                experiment.add(
                    format!("{name}, {load}: group size, settled"),
                    "",
                    sizes(&settled),
                    None,
                );
                let within = settled.iter().filter(|group| group.share <= 0.105).count();
                if !settled.is_empty() {
                    experiment.add(
                        format!("{name}, {load}: within the bounds"),
                        "%",
                        vec![100.0 * within as f64 / settled.len() as f64],
                        None,
                    );
                }
            }
            lines.push(Line {
                name,
                points: groups
                    .iter()
                    .map(|group| (group.at_ns as f64 / 1e9, group.epochs as f64))
                    .collect(),
            });
        }
    }
    run.add(experiment);
    run.draw(Chart {
        name: "group-size",
        title: "Epochs of a group over time (figure 11)".to_owned(),
        x: "seconds",
        y: "epochs",
        lines,
    });
    Ok(())
}

/// The groups of a run in which the load becomes tenfold after half of the time.
fn watched(workers: u32, watch: &Watch, is_slow: bool) -> Result<Vec<GroupSeen>, BenchError> {
    let task_ns = watch.interval_ms * 1_000_000 / 20;
    let mut cluster = Cluster::new(workers, task_ns, GroupSize::default(), is_slow, 1);
    cluster.simulation.set_interval(watch.interval_ms * 1_000_000);
    let pipeline = cluster.view(SOURCE, &stages(SOURCE, false), workers as usize * SLOTS)?;
    cluster.simulation.measure();
    // More than there is time for.
    cluster.simulation.input(pipeline, u64::MAX / 2);
    let half_ns = watch.seconds * 500_000_000;
    cluster.simulation.run_for(half_ns);
    cluster.simulation.set_task_ns(10 * task_ns);
    cluster.simulation.run_for(half_ns);
    Ok(cluster.simulation.report.groups)
}

/// Times of a job's micro-batches, one value a trial.
fn trials(job: Job, scale: &Scale) -> Result<Vec<Times>, BenchError> {
    (1..=scale.trials)
        .map(|seed| Ok(times(job, &simulate(job, scale.batches, seed)?)))
        .collect()
}

fn times(job: Job, report: &Report) -> Times {
    let epochs = report.epochs.max(1) as f64;
    // Of the central schedule with a shuffle each stage is an epoch of its own.
    let batches = match (job.scheduling, job.has_shuffle) {
        (Scheduling::Central, true) => epochs / 2.0,
        _ => epochs,
    };
    let stages = if job.has_shuffle { 2.0 } else { 1.0 };
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6 / batches;
    Times {
        total: ms(report.elapsed_ns),
        coordination: (ms(report.elapsed_ns) - stages * job.task_ns as f64 / 1e6).max(0.0),
        driver: ms(report.driver_ns),
        busiest_worker: ms(report.worker_ns_max),
        messages: (report.driver_messages + report.worker_messages) as f64 / batches,
    }
}

const SOURCE: RelationId = RelationId(1);
/// What the second stage of the central schedule reads, in place of a shuffle.
const BETWEEN: RelationId = RelationId(2);

fn simulate(job: Job, batches: u64, seed: u64) -> Result<Report, BenchError> {
    let group_size = GroupSize::Fixed(match job.scheduling {
        Scheduling::Groups(size) => size,
        _ => 1,
    });
    let tasks = job.workers as usize * SLOTS;
    let mut cluster = Cluster::new(job.workers, job.task_ns, group_size, job.is_slow, seed);
    let pipeline = if job.scheduling == Scheduling::Central {
        let first = cluster.view(SOURCE, &stages(SOURCE, false), tasks)?;
        let mut all = vec![first];
        if job.has_shuffle {
            all.push(cluster.view(BETWEEN, &stages(BETWEEN, false), REDUCERS)?);
        }
        cluster.simulation.schedule_centrally(all);
        first
    } else {
        let pipeline = cluster.view(SOURCE, &stages(SOURCE, job.has_shuffle), tasks)?;
        if job.has_shuffle {
            cluster.simulation.fill_only(REDUCERS);
        }
        if job.scheduling == Scheduling::PreScheduled {
            cluster.simulation.schedule_centrally(vec![pipeline]);
        }
        pipeline
    };
    cluster.simulation.measure();
    cluster.simulation.input(pipeline, batches);
    cluster.rest()?;
    Ok(cluster.simulation.report)
}

/// A map, or a map and a reduce.
pub(crate) fn stages(source: RelationId, has_shuffle: bool) -> Vec<StageShape> {
    let map = StageShape {
        input: StageInput::Relation(source),
        reader: has_shuffle.then_some(1),
        is_single: false,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    };
    let reduce = StageShape {
        input: StageInput::Stages(vec![0]),
        reader: None,
        is_single: false,
        has_faucet: false,
        flow_rows: None,
        pieces_max: usize::MAX,
    };
    let mut stages = vec![map];
    stages.extend(has_shuffle.then_some(reduce));
    stages
}
