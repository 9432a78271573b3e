//! What a run found out, and how it is kept: `results.json` for programs, `report.md` for people.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::BenchError;
use crate::machine::{self, Machine};
use crate::plot::Chart;
use crate::size::Size;
use crate::statistics::{Sample, Summary};

/// Samples up to this size are kept value by value, larger ones as percentiles.
const RAW_VALUES_MAX: usize = 100;

/// Probes of the disk at the beginning of a run.
const FSYNC_PROBES: usize = 500;
const FSYNC_PROBES_SMALL: usize = 5;

/// Which statistic of a measurement is held against its aim.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    /// The median is to be under this.
    MedianUnder(f64),
    /// The median and the 99th percentile are to be under this.
    MedianAndP99Under(f64),
    /// The median is to be over this.
    MedianOver(f64),
}

impl Aim {
    /// Whether a sample reaches the aim.
    pub fn reached(self, summary: &Summary) -> bool {
        match self {
            Aim::MedianUnder(bound) => summary.median < bound,
            Aim::MedianAndP99Under(bound) => summary.median < bound && summary.p99 < bound,
            Aim::MedianOver(bound) => summary.median > bound,
        }
    }

    fn text(self) -> String {
        match self {
            Aim::MedianUnder(bound) => format!("< {}", figure(bound)),
            Aim::MedianAndP99Under(bound) => format!("median and p99 < {}", figure(bound)),
            Aim::MedianOver(bound) => format!("> {}", figure(bound)),
        }
    }
}

/// One quantity, measured one or more times.
#[derive(Debug, Clone)]
pub struct Measurement {
    name: String,
    unit: &'static str,
    aim: Option<Aim>,
    sample: Sample,
    values: Vec<f64>,
}

/// How a measurement is kept.
#[derive(Serialize)]
struct Kept<'a> {
    name: &'a str,
    unit: &'a str,
    aim: Option<Aim>,
    aim_reached: Option<bool>,
    summary: Summary,
    /// Every value in the order of measuring, where there are few.
    values: Option<&'a [f64]>,
    /// The 0th to the 100th percentile, where there are many.
    percentiles: Option<Vec<f64>>,
}

impl Measurement {
    /// The quantity's order statistics.
    pub fn summary(&self) -> Summary {
        self.sample.summary()
    }

    /// Whether the aim is reached, where there is one.
    pub fn aim_reached(&self) -> Option<bool> {
        self.aim.map(|aim| aim.reached(&self.summary()))
    }

    fn kept(&self) -> Kept<'_> {
        let few = self.values.len() <= RAW_VALUES_MAX;
        Kept {
            name: &self.name,
            unit: self.unit,
            aim: self.aim,
            aim_reached: self.aim_reached(),
            summary: self.summary(),
            values: few.then_some(&self.values),
            percentiles: (!few).then(|| {
                let percents = (0..=100).map(|percent| self.sample.quantile(f64::from(percent) / 100.0));
                percents.collect()
            }),
        }
    }
}

/// What one experiment found out.
#[derive(Debug, Clone)]
pub struct Experiment {
    name: &'static str,
    method: String,
    measurements: Vec<Measurement>,
}

impl Experiment {
    /// An experiment of this name; `method` tells in prose what is measured and how.
    pub fn new(name: &'static str, method: impl Into<String>) -> Self {
        Experiment {
            name,
            method: method.into(),
            measurements: Vec::new(),
        }
    }

    /// Adds a quantity; one without values is left out.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, values: Vec<f64>, aim: Option<Aim>) {
        if let Some(sample) = Sample::new(values.clone()) {
            self.measurements.push(Measurement {
                name: name.into(),
                unit,
                aim,
                sample,
                values,
            });
        }
    }

    /// The quantities, in the order in which they were added.
    pub fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    fn report(&self, text: &mut String) {
        let _ = writeln!(text, "\n## {}\n\n{}\n", self.name, self.method);
        text.push_str("| quantity | unit | n | median | p5 | p95 | p99 | min | max | aim | reached |\n");
        text.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|---|---|\n");
        for measurement in &self.measurements {
            let s = measurement.summary();
            let figures = match s.count {
                // One value has no spread to show.
                1 => figure(s.median) + " | | | | | ",
                _ => [s.median, s.p5, s.p95, s.p99, s.min, s.max]
                    .map(figure)
                    .join(" | "),
            };
            let aim = measurement.aim.map(Aim::text).unwrap_or_default();
            let reached = match measurement.aim_reached() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            let (name, unit) = (&measurement.name, measurement.unit);
            let _ = writeln!(
                text,
                "| {name} | {unit} | {} | {figures} | {aim} | {reached} |",
                s.count
            );
        }
    }
}

/// A run of a suite: what is to be done, the machine, and what the experiments found out.
#[derive(Debug, Clone)]
pub struct Run {
    suite: &'static str,
    command: String,
    size: Size,
    only: Option<String>,
    wrong: Option<String>,
    date: String,
    machine: Machine,
    notes: Vec<String>,
    experiments: Vec<Experiment>,
    charts: Vec<Chart>,
}

impl Run {
    /// Begins a run: describes the machine and probes its disk. `command` is what would repeat the run; `only` chooses the
    /// experiments whose names contain it.
    ///
    /// # Errors
    /// The disk cannot be probed.
    pub fn begin(
        suite: &'static str,
        command: String,
        size: Size,
        only: Option<String>,
    ) -> Result<Self, BenchError> {
        let machine = Machine::describe();
        let mut disk = Experiment::new(
            "disk",
            "What durability costs on this disk, whatever the database: one append of 4 KiB to a file and \
             fdatasync, in the directory where the servers keep their data.",
        );
        let mut run = Run {
            suite,
            command,
            size,
            only,
            wrong: None,
            date: chrono::Utc::now().format("%Y-%m-%d").to_string(),
            machine,
            notes: Vec::new(),
            experiments: Vec::new(),
            charts: Vec::new(),
        };
        disk.add(
            "write + fdatasync",
            "ms",
            machine::fsync_ms(run.fsync_probes())?,
            None,
        );
        run.add(disk);
        if size == Size::Small {
            run.note(
                "A small run inside this process, in whatever profile that was built: these numbers show that the experiments \
                 work and nothing else.",
            );
        }
        Ok(run)
    }

    /// How much of everything is to be done.
    pub fn size(&self) -> Size {
        self.size
    }

    /// How often the disk is probed, wherever it is.
    pub fn fsync_probes(&self) -> usize {
        match self.size {
            Size::Real => FSYNC_PROBES,
            Size::Small => FSYNC_PROBES_SMALL,
        }
    }

    /// Whether an experiment is chosen.
    pub fn wants(&self, experiment: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|only| experiment.contains(only))
    }

    /// Whether an experiment is chosen, which begins now: says so on standard error.
    pub fn begins(&self, experiment: &str) -> bool {
        let is_wanted = self.wants(experiment);
        if is_wanted {
            eprintln!("{experiment} ...");
        }
        is_wanted
    }

    /// Ends the measuring.
    ///
    /// # Errors
    /// No experiment was chosen.
    pub(crate) fn end(&mut self) -> Result<(), BenchError> {
        if let (Some(only), [_]) = (&self.only, self.experiments.as_slice()) {
            let suite = self.suite;
            return Err(BenchError::Server(format!(
                "no experiment of {suite} has {only} in its name"
            )));
        }
        self.note(format!("Load after the run: {}.", machine::load_average()));
        Ok(())
    }

    /// Says that something is wrong although there are results, which are kept before the run fails.
    pub fn wrong(&mut self, text: String) {
        self.wrong = Some(text);
    }

    /// The end of the run for whoever started it.
    ///
    /// # Errors
    /// See [`Run::wrong`].
    pub(crate) fn outcome(self) -> Result<(), BenchError> {
        self.wrong.map_or(Ok(()), |text| Err(BenchError::Wrong(text)))
    }

    /// Adds a sentence that readers of all the results need.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds what an experiment found out.
    pub fn add(&mut self, experiment: Experiment) {
        self.experiments.push(experiment);
    }

    /// Adds a figure.
    pub fn draw(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    /// The figures.
    pub fn charts(&self) -> &[Chart] {
        &self.charts
    }

    /// What the experiments found out, that of the disk first.
    pub fn experiments(&self) -> &[Experiment] {
        &self.experiments
    }

    /// The report for people, in Markdown.
    pub fn report(&self) -> String {
        let m = &self.machine;
        let mut text = format!("# {} ({})\n\n    {}\n\n", self.suite, self.date, self.command);
        let gigabytes = m.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(text, "| machine | |\n|---|---|");
        let _ = writeln!(text, "| processor | {} ({} cores) |", m.cpu, m.cores);
        let _ = writeln!(text, "| memory | {gigabytes:.1} GiB |");
        let _ = writeln!(text, "| kernel, file system | {}, {} |", m.kernel, m.file_system);
        let _ = writeln!(text, "| load before the run | {} |", m.load_before);
        let _ = writeln!(text, "| commit | {} |", m.commit);
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        for chart in &self.charts {
            let _ = write!(text, "\n![{}]({}.svg)\n", chart.title, chart.name);
        }
        for experiment in &self.experiments {
            experiment.report(&mut text);
        }
        text
    }

    /// Everything, for programs.
    pub fn json(&self) -> serde_json::Value {
        let experiments = self.experiments.iter().map(|experiment| {
            serde_json::json!({
                "name": experiment.name,
                "method": experiment.method,
                "measurements": experiment.measurements.iter().map(Measurement::kept).collect::<Vec<_>>(),
            })
        });
        serde_json::json!({
            "suite": self.suite,
            "date": self.date,
            "command": self.command,
            "machine": self.machine,
            "notes": self.notes,
            "experiments": experiments.collect::<Vec<_>>(),
        })
    }

    /// Writes `results.json`, `report.md` and the figures into `<out>/<date>-<suite>/`, and returns that directory.
    pub fn write(&self, out: &Path) -> Result<PathBuf, BenchError> {
        let directory = out.join(format!("{}-{}", self.date, self.suite));
        let failed = || BenchError::io(format!("cannot write results into {}", directory.display()));
        fs::create_dir_all(&directory).map_err(failed())?;
        fs::write(directory.join("results.json"), format!("{:#}\n", self.json())).map_err(failed())?;
        fs::write(directory.join("report.md"), self.report()).map_err(failed())?;
        for chart in &self.charts {
            let file = directory.join(format!("{}.svg", chart.name));
            fs::write(file, chart.svg()?).map_err(failed())?;
        }
        Ok(directory)
    }
}

/// A number with about three digits that matter.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || size >= 100.0 {
        thousands(value.round() as i64)
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.995 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

fn thousands(value: i64) -> String {
    let digits = value.abs().to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    format!("{}{}", if value < 0 { "-" } else { "" }, groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        let figures = [0.0, 0.0421, 1.0 / 3.0, 1.0, 12.345, 336_776.4, -1500.0].map(figure);
        assert_eq!(
            figures,
            ["0", "0.042", "0.333", "1.00", "12.3", "336,776", "-1,500"]
        );
    }

    #[test]
    fn aims_are_held_against_their_statistic() {
        let mut experiment = Experiment::new("e", "m");
        let mut values = vec![1.0; 98];
        values.extend([9.0, 9.0]);
        experiment.add("latency", "ms", values.clone(), Some(Aim::MedianAndP99Under(5.0)));
        experiment.add("latency", "ms", values, Some(Aim::MedianUnder(5.0)));
        experiment.add("rate", "rows/s", vec![10.0], Some(Aim::MedianOver(5.0)));
        experiment.add("nothing", "ms", Vec::new(), None);
        let reached: Vec<_> = experiment
            .measurements
            .iter()
            .map(Measurement::aim_reached)
            .collect();
        assert_eq!(reached, [Some(false), Some(true), Some(true)]);
    }

    #[test]
    fn few_values_are_kept_whole_and_many_as_percentiles() {
        let mut run = Run::begin("suite", "command".into(), Size::Small, None).unwrap();
        let mut experiment = Experiment::new("e", "m");
        experiment.add("few", "ms", vec![3.0, 1.0], None);
        experiment.add("many", "ms", (0..1001).map(f64::from).collect(), None);
        run.add(experiment);
        let directory = tempfile::tempdir().unwrap();
        let kept = run.write(directory.path()).unwrap();
        let json = fs::read_to_string(kept.join("results.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let measurements = &json["experiments"][1]["measurements"];
        assert_eq!(measurements[0]["values"], serde_json::json!([3.0, 1.0]));
        assert_eq!(measurements[1]["percentiles"][42], serde_json::json!(420.0));
        assert!(measurements[1]["values"].is_null());
        assert!(
            fs::read_to_string(kept.join("report.md"))
                .unwrap()
                .contains("| few | ms | 2 | 2.00 |")
        );
    }
}
