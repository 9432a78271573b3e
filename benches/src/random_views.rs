//! The random oracle: random views over random changes, compared with plain DataFusion.
//!
//! The queries, the comparison and the way from a failure to a small script are `millrace_sql_tests::oracle`; here it has its
//! options and its report.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use millrace_sql_tests::oracle;

use crate::error::BenchError;
use crate::machine;
use crate::results::{Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;

/// The only experiment's name.
const NAME: &str = "random views";
/// Views of a small run, however many are asked for.
const CASES_SMALL: u64 = 20;

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct RandomViews {
    /// Views to compare
    #[arg(long, default_value_t = 1_000)]
    cases: u64,
    /// The seed of the first script; the one of a failure repeats it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Scripts at once [default: as many as there are cores]
    #[arg(long)]
    threads: Option<usize>,
    /// After so many failures it ends
    #[arg(long, default_value_t = 20)]
    failures: usize,
    /// Where scripts of failures are written, for `millrace test` [default: printed only]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scripts: Option<PathBuf>,
}

impl Suite for RandomViews {
    const NAME: &'static str = "oracle";
    const ABOUT: &'static str = "The random oracle: random views over random changes, compared with plain DataFusion; exits with \
                                 1 if one is wrong";
    const IS_KEPT: bool = false;

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        if !run.begins(NAME) {
            return Ok(());
        }
        let options = oracle::Options {
            cases: match run.size() {
                Size::Real => self.cases,
                Size::Small => self.cases.min(CASES_SMALL),
            },
            seed: self.seed,
            threads: self.threads.unwrap_or_else(machine::cores),
            out: self.scripts.clone(),
            failures_max: self.failures,
            talk: true,
        };
        let report = tokio::task::spawn_blocking(move || oracle::run(&options)).await;
        let report = report
            .map_err(BenchError::engine)?
            .map_err(|error| BenchError::Server(error.to_string()))?;
        let mut experiment = Experiment::new(
            NAME,
            "A case is one random query that is kept as a view through one random interleaving of changes and compared \
             with plain DataFusion at several epochs, rows and multiplicities.",
        );
        let seconds = report.elapsed.as_secs_f64();
        experiment.add("cases", "", vec![report.cases as f64], None);
        experiment.add("comparisons", "", vec![report.comparisons as f64], None);
        experiment.add("cases a second", "1/s", vec![report.cases as f64 / seconds], None);
        let refused = report.refused_share() * 100.0;
        experiment.add("refused by the planner", "%", vec![refused], None);
        experiment.add("failures", "", vec![report.failures.len() as f64], None);
        run.add(experiment);
        run.note(format!("```text\n{}```", report.text()));
        if !report.failures.is_empty() {
            let failures = report.failures.len();
            run.wrong(format!("{failures} views differ from their batch answer"));
        }
        Ok(())
    }
}
