//! The `millrace-benches` binary: one subcommand per suite of experiments.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use millrace_benches::error::BenchError;
use millrace_benches::{APART, SUITES, apart};
use millrace_sql_tests::crash;

/// What the server uses too: engines inside this process are to be measured as they are.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if crash::serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let matches = Command::new("millrace-benches")
        .about("Benchmarks of millrace")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(SUITES.iter().map(|suite| suite.command()))
        .subcommand(apart::command())
        .get_matches();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("millrace-benches: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(mut matches: ArgMatches) -> Result<(), BenchError> {
    let Some((name, matches)) = matches.remove_subcommand() else {
        return Ok(());
    };
    match SUITES.iter().find(|suite| suite.name == name) {
        Some(suite) => suite.run(matches).await,
        None => apart::run(APART, &matches).await,
    }
}
