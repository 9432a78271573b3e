//! How right the what-ifs are: predicted on one machine, measured on the other; and whose time is whose.

use std::collections::HashMap;

use super::{Bed, Scale, Workload, analyze, median};
use crate::client::Client;
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::statistics::Sample;

/// The experiments' names.
pub const CHANGES: &str = "prediction (chapter 5)";
pub const ATTRIBUTION: &str = "attribution (section 5.4)";

/// A machine: cores, and the disk's rate as a share of the whole one; `None`: as fast as it is.
#[derive(Debug, Clone, Copy)]
struct Machine {
    cores: usize,
    disk: Option<f64>,
}

impl Machine {
    fn key(self) -> String {
        format!("{self:?}")
    }
}

/// A change: what is said of the first machine is asked of the second.
struct Change {
    name: &'static str,
    from: Machine,
    to: Machine,
    what_if: &'static str,
}

const fn machine(cores: usize, disk: Option<f64>) -> Machine {
    Machine { cores, disk }
}

const MACHINE_CHANGES: [Change; 7] = [
    Change {
        name: "1 core -> 2",
        from: machine(1, None),
        to: machine(2, None),
        what_if: "cores = 2",
    },
    Change {
        name: "2 cores -> 1",
        from: machine(2, None),
        to: machine(1, None),
        what_if: "cores = 1",
    },
    Change {
        name: "disk x 1/2",
        from: machine(2, Some(1.0)),
        to: machine(2, Some(0.5)),
        what_if: "disk = 'x0.5'",
    },
    Change {
        name: "disk x 1/4",
        from: machine(2, Some(1.0)),
        to: machine(2, Some(0.25)),
        what_if: "disk = 'x0.25'",
    },
    Change {
        name: "disk x 4",
        from: machine(2, Some(0.25)),
        to: machine(2, Some(1.0)),
        what_if: "disk = 'x4'",
    },
    Change {
        name: "1 core -> 2 and disk x 2",
        from: machine(1, Some(0.5)),
        to: machine(2, Some(1.0)),
        what_if: "cores = 2, disk = 'x2'",
    },
    Change {
        name: "2 cores -> 1 and disk x 2",
        from: machine(2, Some(0.5)),
        to: machine(1, Some(1.0)),
        what_if: "cores = 1, disk = 'x2'",
    },
];

/// Predicts and measures each query under each change.
///
/// # Errors
/// A query fails.
pub async fn run(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let mut experiment = Experiment::new(
        CHANGES,
        format!(
            "Each query on one machine with a question about the other, then on the other: medians of {} runs each, once warm. \
             The error is the difference between predicted and measured, of the measured. A whole disk is {} MB/s by a limit \
             in the disk scheduler; without a limit files come from the page cache.",
            scale.repetitions,
            scale.disk_rate / 1_000_000
        ),
    );
    let beds = [Bed::new(workload, 1).await?, Bed::new(workload, 2).await?];
    // What each query took on each machine, and what was predicted of each change.
    let mut times: HashMap<(String, &str), f64> = HashMap::new();
    let mut predictions = vec![];
    for change in &MACHINE_CHANGES {
        for (name, sql) in workload.queries.iter().chain(&workload.others) {
            let (time, predicted) = measured(&beds, change.from, sql, change.what_if, scale).await?;
            times.insert((change.from.key(), name), time);
            predictions.push(predicted);
        }
    }
    let mut predictions = predictions.into_iter();
    let mut all = vec![];
    for change in &MACHINE_CHANGES {
        let mut errors = vec![];
        for (name, sql) in workload.queries.iter().chain(&workload.others) {
            let key = (change.to.key(), name.as_str());
            let actual = match times.get(&key) {
                Some(time) => *time,
                None => measured(&beds, change.to, sql, "", scale).await?.0,
            };
            times.insert(key, actual);
            let predicted = predictions.next().unwrap_or(f64::NAN);
            let from = times[&(change.from.key(), name.as_str())];
            experiment.add(
                format!(
                    "{}: {name}: {from:.0} ms, predicted {predicted:.0}, was",
                    change.name
                ),
                "ms",
                vec![actual],
                None,
            );
            errors.push(100.0 * (predicted - actual).abs() / actual);
        }
        all.extend(errors.iter().copied());
        if let Some(sample) = Sample::new(errors.clone()) {
            eprintln!(
                "{}: median error {:.1} %, worst {:.1} %",
                change.name,
                sample.quantile(0.5),
                sample.quantile(1.0)
            );
        }
        experiment.add(format!("{}: error", change.name), "%", errors, None);
    }
    for bed in beds {
        bed.stop().await;
    }
    let worst = all.iter().copied().fold(0.0, f64::max);
    experiment.add(
        "median error",
        "%",
        vec![median(all)],
        Some(Aim::MedianUnder(5.0)),
    );
    experiment.add("worst error", "%", vec![worst], Some(Aim::MedianUnder(15.0)));
    experiment.add("thesis: worst error", "%", vec![28.0], None);
    run.add(experiment);
    Ok(())
}

/// The time of a query, and the one that is predicted of the change (or of none).
async fn measured(
    beds: &[Bed; 2],
    machine: Machine,
    sql: &str,
    what_if: &str,
    scale: &Scale,
) -> Result<(f64, f64), BenchError> {
    let bed = &beds[machine.cores - 1];
    let rate = machine.disk.map(|share| (share * scale.disk_rate as f64) as u64);
    bed.runtime.set_disk_rate(rate);
    // Plans, files and pages are there from the first run on.
    bed.time(sql).await?;
    let (mut elapsed, mut predicted) = (vec![], vec![]);
    for _ in 0..scale.repetitions {
        let analyzed = bed.analyze(sql, what_if).await?;
        elapsed.push(analyzed.elapsed);
        predicted.push(analyzed.predicted);
    }
    bed.runtime.set_disk_rate(None);
    Ok((median(elapsed), median(predicted)))
}

/// Pairs of queries that run at once: what each is charged with, against what it takes alone.
///
/// # Errors
/// A query fails.
pub async fn attribution(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bed = Bed::new(workload, cores).await?;
    bed.runtime.set_disk_rate(Some(scale.disk_rate));
    let mut experiment = Experiment::new(
        ATTRIBUTION,
        "Two queries alone, then both at once, each with its profile: the difference between the processor and disk time \
         that it is charged with together and alone, of the latter. Medians.",
    );
    let queries: Vec<&(String, String)> = workload.queries.iter().chain(&workload.others).collect();
    let pairs = [
        (0, queries.len() - 2),
        (queries.len() - 4, queries.len() - 3),
        (2, 0),
    ];
    let mut errors = vec![];
    for (left, right) in pairs {
        let pair = [queries[left], queries[right]];
        let other = Client::connect(bed.server.pg_addr()).await?;
        let (mut alone, mut together) = ([vec![], vec![]], [vec![], vec![]]);
        for _ in 0..=scale.repetitions {
            for (query, alone) in pair.iter().zip(&mut alone) {
                alone.push(bed.analyze(&query.1, "").await?);
            }
            let both = (bed.analyze(&pair[0].1, ""), analyze(&other, &pair[1].1, ""));
            let both = futures::future::try_join(both.0, both.1).await?;
            together[0].push(both.0);
            together[1].push(both.1);
        }
        for (place, (name, _)) in pair.into_iter().enumerate() {
            for (resource, of) in [
                (
                    "cpu",
                    (|analyzed: &super::Analyzed| analyzed.cpu) as fn(&super::Analyzed) -> f64,
                ),
                ("disk", |analyzed| analyzed.disk),
            ] {
                let alone = median(alone[place][1..].iter().map(of).collect());
                let both = median(together[place][1..].iter().map(of).collect());
                if alone < 1.0 {
                    continue;
                }
                let error = 100.0 * (both - alone).abs() / alone;
                let beside = &pair_name(&queries, left, right, place);
                experiment.add(
                    format!("{name} beside {beside}: {resource}, alone {alone:.1} ms, together"),
                    "ms",
                    vec![both],
                    None,
                );
                errors.push(error);
            }
        }
    }
    experiment.add("error", "%", errors, Some(Aim::MedianUnder(1.0)));
    experiment.add("thesis: Spark's error, least", "%", vec![17.0], None);
    run.add(experiment);
    bed.stop().await;
    Ok(())
}

fn pair_name(queries: &[&(String, String)], left: usize, right: usize, place: usize) -> String {
    queries[if place == 0 { right } else { left }].0.clone()
}
