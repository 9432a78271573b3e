//! How right the what-ifs are: predicted from what was seen on one machine, measured on the other.

use std::fmt;
use std::path::Path;

use millrace_clarity::{Scenario, Speed};
use millrace_engine::testing::Testing;

use super::measured::{Case, Change, Measured};
use super::{Layout, Place, Scale, Workload, by_turns};
use crate::error::BenchError;
use crate::plot::{Chart, Line};
use crate::results::{Aim, Experiment, Run};
use crate::statistics::median;

/// A machine: cores, and the disk's rate as a share of the whole one; `None`: as fast as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Machine {
    cores: usize,
    disk: Option<f64>,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.disk {
            Some(disk) => write!(f, "cores {}, disk x{disk}", self.cores),
            None => write!(f, "cores {}", self.cores),
        }
    }
}

/// From one machine to another.
struct Step {
    name: &'static str,
    from: Machine,
    to: Machine,
}

/// Changes that are measured together, on machines that they share.
pub struct Part {
    pub name: &'static str,
    chart: &'static str,
    steps: &'static [Step],
}

const fn step(name: &'static str, from: (usize, Option<f64>), to: (usize, Option<f64>)) -> Step {
    Step {
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
        steps: &[
            step("1 core -> 2", (1, None), (2, None)),
            step("2 cores -> 1", (2, None), (1, None)),
        ],
    },
    Part {
        name: "prediction: speed of the disk",
        chart: "prediction-disk",
        steps: &[
            step("disk x 1/2", (2, Some(1.0)), (2, Some(0.5))),
            step("disk x 1/4", (2, Some(1.0)), (2, Some(0.25))),
            step("disk x 2", (2, Some(0.5)), (2, Some(1.0))),
            step("disk x 4", (2, Some(0.25)), (2, Some(1.0))),
        ],
    },
    Part {
        name: "prediction: two changes at once",
        chart: "prediction-both",
        steps: &[
            step("1 core -> 2 and disk x 2", (1, Some(0.5)), (2, Some(1.0))),
            step("2 cores -> 1 and disk x 2", (2, Some(0.5)), (1, Some(1.0))),
        ],
    },
];

impl Step {
    fn change(&self) -> Change {
        let (from, to) = (self.from.disk.unwrap_or(1.0), self.to.disk.unwrap_or(1.0));
        Change {
            name: self.name.to_owned(),
            from: self.from.to_string(),
            to: self.to.to_string(),
            scenario: Scenario {
                cores: Some(self.to.cores),
                disk: Speed::Times(to / from),
                ..Scenario::default()
            },
        }
    }
}

/// Predicts and measures each query under each change.
///
/// # Errors
/// A query fails.
pub async fn run(run: &mut Run, part: &Part, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let mut machines: Vec<Machine> = vec![];
    for machine in part.steps.iter().flat_map(|step| [step.from, step.to]) {
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let mut beds = vec![];
    for machine in &machines {
        let bed = Layout::cores(machine.cores).start(&workload.tables()).await?;
        let rate = machine.disk.map(|share| (share * scale.disk_rate as f64) as u64);
        bed.runtime.set_disk_rate(rate);
        beds.push(bed);
    }
    let mut measured = Measured::default();
    for (name, sql) in workload.all() {
        let places = machines.iter().zip(&beds).map(|(machine, bed)| Place {
            bed,
            cores: machine.cores,
            sql,
        });
        let places: Vec<Place<'_>> = places.collect();
        let profiles = by_turns(&places, scale.turns).await?;
        for (machine, profiles) in machines.iter().zip(profiles) {
            measured.add(&machine.to_string(), name, profiles);
        }
    }
    for bed in beds {
        bed.stop().await;
    }
    if let Some(directory) = &scale.profiles {
        measured.keep(directory, part.chart)?;
    }
    part.conclude(run, scale, &measured);
    Ok(())
}

impl Part {
    /// Computes again what follows from profiles that were kept.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn again(&self, run: &mut Run, scale: &Scale, profiles: &Path) -> Result<(), BenchError> {
        if let Some(measured) = Measured::kept(profiles, self.chart)? {
            self.conclude(run, scale, &measured);
        }
        Ok(())
    }

    fn conclude(&self, run: &mut Run, scale: &Scale, measured: &Measured) {
        let changes: Vec<Change> = self.steps.iter().map(Step::change).collect();
        let method = format!(
            "Each query on one machine, and what is predicted from that of the other; and on the other, by turns: medians of {} runs \
             each, once warm, with those repeated during which the machine's host took more than 3 % of the processors. The error is the difference between predicted and measured, of the measured. A whole disk is {} MB/s by \
             a limit in the disk scheduler; without a limit files come from the page cache. With one core the whole process, its \
             client included, is bound to one.",
            scale.turns,
            scale.disk_rate / 1_000_000
        );
        report(run, self.name, self.chart, method, &measured.cases(&changes));
    }
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
            let middle = median(&errors);
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
    let same = cases.iter().map(|case| case.same).collect();
    experiment.add("half of the runs against the other half", "%", same, None);
    let stolen = cases.iter().map(|case| case.stolen).collect();
    experiment.add("taken by the machine's host", "%", stolen, None);
    let errors: Vec<f64> = cases.iter().map(Case::error).collect();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    experiment.add(
        "median error",
        "%",
        vec![median(&errors)],
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
