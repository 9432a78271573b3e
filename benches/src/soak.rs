//! A long life: what comes and goes for as long as one likes, and what the server takes meanwhile.
//!
//! What a round is, and what must not grow, is `millrace_sql_tests::soak`; here it has its options and its report.

use std::time::Duration;

use clap::Args;
use millrace_sql_tests::soak::{Length, Taken, soak};

use crate::error::BenchError;
use crate::process::megabytes;
use crate::results::{Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;

/// The only experiment's name.
const NAME: &str = "soak";
/// Rounds of a small run, however long it is to be.
const ROUNDS_SMALL: usize = 6;

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Soak {
    /// How long it goes on
    #[arg(long, default_value_t = 7_200)]
    seconds: u64,
    /// What decides what comes and goes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Suite for Soak {
    const NAME: &'static str = "soak";
    const ABOUT: &'static str = "Has sessions, definitions, views, cancels, clients that do not read and lost workers come and \
                                 go; exits with 1 if memory, files, threads or the disk grow";
    const IS_KEPT: bool = false;

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        if !run.begins(NAME) {
            return Ok(());
        }
        let length = match run.size() {
            Size::Real => Length::Time(Duration::from_secs(self.seconds)),
            Size::Small => Length::Rounds(ROUNDS_SMALL),
        };
        let tell = |round: usize, taken: &Taken| {
            if round.is_multiple_of(20) {
                println!("{round}: {taken:?}");
            }
        };
        let taken = soak(self.seed, length, tell).await;
        let taken = taken.map_err(|error| BenchError::Wrong(error.to_string()))?;
        let mut experiment = Experiment::new(
            NAME,
            "A round has sessions that write, read, are cancelled or go away, a view and a table that are made and dropped, and every \
             fifth time a worker that is killed. After each round it is asked what the server takes.",
        );
        let all = |of: &dyn Fn(&Taken) -> f64| taken.iter().map(of).collect::<Vec<f64>>();
        for (name, unit, values) in [
            ("resident", "MB", all(&|taken| megabytes(taken.resident_bytes))),
            ("open files", "", all(&|taken| taken.files as f64)),
            ("threads", "", all(&|taken| taken.threads as f64)),
            ("on the disk", "MB", all(&|taken| megabytes(taken.disk_bytes))),
            ("an answer", "ms", all(&|taken| taken.answer.as_secs_f64() * 1e3)),
        ] {
            experiment.add(name, unit, values, None);
        }
        run.add(experiment);
        Ok(())
    }
}
