//! How right the what-ifs are: predicted from what was seen on one machine, measured on the other.

use std::collections::HashMap;

use millrace_planner::performance::{Scenario, Speed};

use super::{Analyzed, Bed, Layout, Place, Scale, Workload, by_turns, median};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};

/// A machine: cores, and the disk's rate as a share of the whole one; `None`: as fast as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Machine {
    cores: usize,
    disk: Option<f64>,
}

/// A change: what the second machine takes is predicted from what is seen on the first.
struct Change {
    name: &'static str,
    from: Machine,
    to: Machine,
}

/// Changes that are measured together, on machines that they share.
pub struct Part {
    pub name: &'static str,
    chart: &'static str,
    changes: &'static [Change],
}

const fn change(name: &'static str, from: (usize, Option<f64>), to: (usize, Option<f64>)) -> Change {
    Change {
        name,
        from: Machine {
            cores: from.0,
            disk: from.1,
        },
        to: Machine {
            cores: to.0,
            disk: to.1,
        },
    }
}

/// The experiments.
pub const PARTS: [Part; 3] = [
    Part {
        name: "prediction: cores",
        chart: "prediction-cores",
        changes: &[
            change("1 core -> 2", (1, None), (2, None)),
            change("2 cores -> 1", (2, None), (1, None)),
        ],
    },
    Part {
        name: "prediction: speed of the disk",
        chart: "prediction-disk",
        changes: &[
            change("disk x 1/2", (2, Some(1.0)), (2, Some(0.5))),
            change("disk x 1/4", (2, Some(1.0)), (2, Some(0.25))),
            change("disk x 2", (2, Some(0.5)), (2, Some(1.0))),
            change("disk x 4", (2, Some(0.25)), (2, Some(1.0))),
        ],
    },
    Part {
        name: "prediction: two changes at once",
        chart: "prediction-both",
        changes: &[
            change("1 core -> 2 and disk x 2", (1, Some(0.5)), (2, Some(1.0))),
            change("2 cores -> 1 and disk x 2", (2, Some(0.5)), (1, Some(1.0))),
        ],
    },
];

impl Change {
    /// What is asked of the model.
    fn scenario(&self) -> Scenario {
        let (from, to) = (self.from.disk.unwrap_or(1.0), self.to.disk.unwrap_or(1.0));
        Scenario {
            cores: Some(self.to.cores),
            disk: Speed::Times(to / from),
            ..Scenario::default()
        }
    }
}

/// One query under one change, in milliseconds.
pub struct Case {
    pub change: String,
    pub query: String,
    pub before: f64,
    pub predicted: f64,
    pub actual: f64,
    /// How far the runs after the change are from that, in percent: the median.
    pub noise: f64,
}

impl Case {
    /// From runs before and after a change.
    pub fn new(
        change: &str,
        query: &str,
        before: &[Analyzed],
        scenario: &Scenario,
        after: &[Analyzed],
    ) -> Case {
        let elapsed = |runs: &[Analyzed]| median(runs.iter().map(|run| run.elapsed).collect());
        let actual = elapsed(after);
        let distances = after
            .iter()
            .map(|run| 100.0 * (run.elapsed - actual).abs() / actual);
        Case {
            change: change.to_owned(),
            query: query.to_owned(),
            before: elapsed(before),
            predicted: median(before.iter().map(|run| run.predicted(scenario)).collect()),
            actual,
            noise: median(distances.collect()),
        }
    }

    /// In percent of what was measured.
    fn error(&self) -> f64 {
        100.0 * (self.predicted - self.actual).abs() / self.actual
    }
}

/// Predicts and measures each query under each change.
///
/// # Errors
/// A query fails.
pub async fn run(run: &mut Run, part: &Part, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let mut machines: Vec<Machine> = vec![];
    for machine in part.changes.iter().flat_map(|change| [change.from, change.to]) {
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let mut beds = vec![];
    for machine in &machines {
        let bed = Bed::new(&workload.tables(), &Layout::cores(machine.cores)).await?;
        let rate = machine.disk.map(|share| (share * scale.disk_rate as f64) as u64);
        bed.runtime.set_disk_rate(rate);
        beds.push(bed);
    }
    // By machine and query.
    let mut runs: HashMap<(usize, &str), Vec<Analyzed>> = HashMap::new();
    for (name, sql) in workload.all() {
        let places = machines.iter().zip(&beds).map(|(machine, bed)| Place {
            bed,
            cores: machine.cores,
            sql,
        });
        let places: Vec<Place<'_>> = places.collect();
        let profiles = by_turns(&places, scale.repetitions).await?;
        runs.extend(
            (profiles.into_iter().enumerate()).map(|(number, profiles)| ((number, name.as_str()), profiles)),
        );
    }
    for bed in beds {
        bed.stop().await;
    }
    let place = |machine: Machine| machines.iter().position(|known| *known == machine);
    let mut cases = vec![];
    for change in part.changes {
        for (name, _) in workload.all() {
            let of = |machine| place(machine).and_then(|number| runs.get(&(number, name.as_str())));
            if let (Some(before), Some(after)) = (of(change.from), of(change.to)) {
                cases.push(Case::new(change.name, name, before, &change.scenario(), after));
            }
        }
    }
    let method = format!(
        "Each query on one machine, and what is predicted from that of the other; and on the other, by turns: medians of {} runs \
         each, once warm. The error is the difference between predicted and measured, of the measured. A whole disk is {} MB/s by a \
         limit in the disk scheduler; without a limit files come from the page cache. With one core the whole process, its client \
         included, is bound to one.",
        scale.repetitions,
        scale.disk_rate / 1_000_000
    );
    report(run, part.name, part.chart, method, &cases);
    Ok(())
}

/// Keeps what came out as a table and as a chart of predicted against measured times.
pub fn report(run: &mut Run, name: &'static str, chart: &'static str, method: String, cases: &[Case]) {
    let mut experiment = Experiment::new(name, method);
    let mut changes: Vec<&str> = vec![];
    for case in cases {
        if !changes.contains(&case.change.as_str()) {
            changes.push(&case.change);
        }
        let (change, query) = (&case.change, &case.query);
        let text = format!(
            "{change}: {query}: {:.0} ms, predicted {:.0}, was",
            case.before, case.predicted
        );
        experiment.add(text, "ms", vec![case.actual], None);
    }
    let mut lines = vec![];
    for change in changes {
        let of_change = || cases.iter().filter(|case| case.change == change);
        let errors: Vec<f64> = of_change().map(Case::error).collect();
        let worst = of_change().max_by(|left, right| left.error().total_cmp(&right.error()));
        if let Some(worst) = worst {
            let middle = median(errors.clone());
            eprintln!(
                "{change}: median error {middle:.1} %, worst {:.1} % ({})",
                worst.error(),
                worst.query
            );
        }
        if let Some(worst) = worst {
            let text = format!("{change}: error of {}, the worst", worst.query);
            experiment.add(text, "%", vec![worst.error()], None);
        }
        experiment.add(format!("{change}: error"), "%", errors, None);
        lines.push(Line {
            name: change.to_owned(),
            points: of_change().map(|case| (case.actual, case.predicted)).collect(),
        });
    }
    let noise = cases.iter().map(|case| case.noise).collect();
    experiment.add("distance of a run from the median of its like", "%", noise, None);
    let errors: Vec<f64> = cases.iter().map(Case::error).collect();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    experiment.add(
        "median error",
        "%",
        vec![median(errors)],
        Some(Aim::MedianUnder(5.0)),
    );
    experiment.add("worst error", "%", vec![worst], Some(Aim::MedianUnder(15.0)));
    experiment.add("thesis: worst error", "%", vec![28.0], None);
    for line in &mut lines {
        line.points.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    run.draw(Chart {
        name: chart,
        title: format!("{name}: predicted against measured"),
        x: "measured, ms",
        y: "predicted, ms",
        lines,
    });
    run.add(experiment);
}
