//! What queries took on several machines, with their profiles: measured once, and kept if that is asked for, so that what the model
//! makes of them can be computed again.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use millrace_clarity::Scenario;
use serde::{Deserialize, Serialize};

use super::Analyzed;
use crate::error::BenchError;
use crate::statistics::median;

/// A change: what a query takes on the second machine is predicted from what is seen on the first.
pub struct Change {
    pub name: String,
    pub from: String,
    pub to: String,
    /// What is asked of the model.
    pub scenario: Scenario,
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
    /// How far two halves of the runs after the change are from each other, in percent: so much of an error may be chance.
    pub same: f64,
    /// What the machine's host took of the processors meanwhile, in percent.
    pub stolen: f64,
}

impl Case {
    fn new(change: &Change, query: &str, before: &[Analyzed], after: &[Analyzed]) -> Case {
        let elapsed = |runs: &[Analyzed]| median(runs.iter().map(|run| run.elapsed));
        let actual = elapsed(after);
        let distances = after
            .iter()
            .map(|run| 100.0 * (run.elapsed - actual).abs() / actual);
        Case {
            change: change.name.clone(),
            query: query.to_owned(),
            before: elapsed(before),
            predicted: median(before.iter().map(|run| run.predicted(&change.scenario))),
            actual,
            noise: median(distances),
            same: {
                // They come in the order of what the host took.
                let every_second = |first: usize| after.iter().skip(first).step_by(2);
                let half = |first| median(every_second(first).map(|run| run.elapsed));
                match after.len() {
                    0 | 1 => 0.0,
                    _ => 100.0 * (half(0) - half(1)).abs() / actual,
                }
            },
            stolen: {
                let shares = before.iter().chain(after).map(|run| run.profile.stolen_share());
                100.0 * shares.sum::<f64>() / (before.len() + after.len()).max(1) as f64
            },
        }
    }

    /// In percent of what was measured.
    pub fn error(&self) -> f64 {
        100.0 * (self.predicted - self.actual).abs() / self.actual
    }
}

/// A run of a query on a machine, as it is kept.
#[derive(Serialize, Deserialize)]
struct Line {
    machine: String,
    query: String,
    #[serde(flatten)]
    run: Analyzed,
}

/// See the module.
#[derive(Default)]
pub struct Measured {
    /// In the order in which they came.
    queries: Vec<String>,
    /// By machine and query.
    runs: HashMap<(String, String), Vec<Analyzed>>,
}

impl Measured {
    /// Adds runs of a query on a machine.
    pub fn add(&mut self, machine: &str, query: &str, runs: impl IntoIterator<Item = Analyzed>) {
        if !self.queries.iter().any(|known| known == query) {
            self.queries.push(query.to_owned());
        }
        let of_query = self.runs.entry((machine.to_owned(), query.to_owned()));
        of_query.or_default().extend(runs);
    }

    /// What the model says of each query under each change, and what was measured.
    pub fn cases(&self, changes: &[Change]) -> Vec<Case> {
        let mut cases = vec![];
        for change in changes {
            for query in &self.queries {
                let of = |machine: &String| self.runs.get(&(machine.clone(), query.clone()));
                if let (Some(before), Some(after)) = (of(&change.from), of(&change.to)) {
                    cases.push(Case::new(change, query, before, after));
                }
            }
        }
        cases
    }

    /// Keeps it in a directory, a line for each run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, directory: &Path, part: &str) -> Result<(), BenchError> {
        let failed = || BenchError::io(format!("cannot keep profiles in {}", directory.display()));
        fs::create_dir_all(directory).map_err(failed())?;
        let file = File::create(directory.join(format!("{part}.jsonl"))).map_err(failed())?;
        let mut file = BufWriter::new(file);
        for query in &self.queries {
            let mut of_query: Vec<_> = self.runs.iter().filter(|((_, of), _)| of == query).collect();
            of_query.sort_by_key(|(key, _)| *key);
            for ((machine, query), runs) in of_query {
                for run in runs {
                    let line = Line {
                        machine: machine.clone(),
                        query: query.clone(),
                        run: run.clone(),
                    };
                    serde_json::to_writer(&mut file, &line).map_err(BenchError::engine)?;
                    writeln!(file).map_err(failed())?;
                }
            }
        }
        file.flush().map_err(failed())
    }

    /// What was kept of a part, if anything was.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn kept(directory: &Path, part: &str) -> Result<Option<Measured>, BenchError> {
        let path = directory.join(format!("{part}.jsonl"));
        if !path.exists() {
            return Ok(None);
        }
        let failed = || BenchError::io(format!("cannot read {}", path.display()));
        let mut measured = Measured::default();
        for line in BufReader::new(File::open(&path).map_err(failed())?).lines() {
            let Line { machine, query, run } =
                serde_json::from_str(&line.map_err(failed())?).map_err(BenchError::engine)?;
            measured.add(&machine, &query, [run]);
        }
        Ok(Some(measured))
    }
}
