//! Kills a server under load with SIGKILL, again and again, and compares all that it has after each restart.
//!
//! What is done in a round, and how it is compared, is `millrace_sql_tests::crash`; here it has its options and its report.

use std::time::Instant;

use clap::Args;
use millrace_sql_tests::crash;

use crate::error::BenchError;
use crate::results::{Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;

/// The only experiment's name.
const NAME: &str = "kill -9";
/// Rounds of a small run, however many are asked for.
const ROUNDS_SMALL: u64 = 2;

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Crash {
    /// How often it is killed
    #[arg(long, default_value_t = 1_000)]
    rounds: u64,
    /// What decides when it is killed, and what is written and damaged
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Suite for Crash {
    const NAME: &'static str = "crash";
    const ABOUT: &'static str = "Kills a server under load with SIGKILL, again and again, and compares all that it has after \
                                 each restart; exits with 1 if a row is missing, twice or wrong";
    const IS_KEPT: bool = false;

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        if !run.begins(NAME) {
            return Ok(());
        }
        let begin = Instant::now();
        let rounds = match run.size() {
            Size::Real => self.rounds,
            Size::Small => self.rounds.min(ROUNDS_SMALL),
        };
        let seed = self.seed;
        let compared = tokio::task::spawn_blocking(move || {
            crash::kill_and_compare(seed, rounds, |done, seen| println!("{done} rounds: {seen:?}"))
        });
        let seen = compared.await.map_err(BenchError::engine)?;
        let seen = seen.map_err(|error| BenchError::Wrong(error.to_string()))?;
        let mut experiment = Experiment::new(
            NAME,
            "A round kills a server under writes, requests over HTTP, views that are made and dropped, sinks and checkpoints, \
             damages some of its files, starts it again and compares all rows. None was missing, twice or wrong.",
        );
        for (name, count) in [
            ("rounds", rounds),
            ("views restored from a checkpoint", seen.restored),
            ("views filled again", seen.filled),
            ("views compared with a part on disk", seen.away),
            ("files of checkpoints and sinks that were damaged", seen.damaged),
            ("logs that were torn", seen.torn),
            ("requests sent again, their answer being lost", seen.posted_again),
            ("writes without an answer: there", seen.kept),
            ("writes without an answer: not there", seen.lost),
        ] {
            experiment.add(name, "", vec![count as f64], None);
        }
        experiment.add(
            "longest, from a start until all was compared",
            "ms",
            vec![seen.slowest.as_secs_f64() * 1e3],
            None,
        );
        experiment.add("all rounds", "s", vec![begin.elapsed().as_secs_f64()], None);
        run.add(experiment);
        Ok(())
    }
}
