//! The `millrace-benches` binary: one subcommand per suite of experiments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use millrace_benches::error::BenchError;
use millrace_benches::first_light::{self, Scale};
use millrace_benches::flights;
use millrace_benches::results::Run;
use millrace_benches::target::Target;

/// Benchmarks of millrace.
#[derive(Debug, Parser)]
#[command(name = "millrace-benches")]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Start-up, idle cost, freshness, bulk loading and point queries of one server
    FirstLight(SuiteArgs),
}

#[derive(Debug, Args)]
struct SuiteArgs {
    /// A bounded run with a server inside this process: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    small: bool,
    /// Where the results' directory is made [default: benches/results; with --small nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The flights of a year, as .ndjson, .ndjson.gz, .csv or .csv.gz [default: January's, repeated]
    #[arg(long, value_name = "FILE")]
    flights: Option<PathBuf>,
    /// Run only the experiments whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("millrace-benches: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Suite::FirstLight(args) = Cli::parse().suite;
    match runtime.block_on(first_light(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millrace-benches: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn first_light(args: SuiteArgs) -> Result<(), BenchError> {
    let (scale, target) = if args.small {
        (Scale::small(), Target::InProcess)
    } else {
        (Scale::real(), Target::beside_this_executable()?)
    };
    let flights = flights::load(args.flights.as_deref(), scale.flights)?;
    let run = Run::begin("first-light", command(&args), scale.fsync_probes)?;
    let run = first_light::run(run, &scale, &target, &flights, args.only.as_deref()).await?;
    println!("{}", run.report());
    let out = match (args.out, args.small) {
        (Some(out), _) => out,
        (None, true) => return Ok(()),
        (None, false) => Path::new(env!("CARGO_MANIFEST_DIR")).join("results"),
    };
    println!("kept in {}", run.write(&out)?.display());
    Ok(())
}

/// The command that repeats this run; files by their names only, because directories differ between machines.
fn command(args: &SuiteArgs) -> String {
    let mut words = vec!["cargo run --release -p millrace-benches -- first-light".to_owned()];
    words.extend(args.small.then(|| "--small".to_owned()));
    if let Some(name) = args.flights.as_deref().and_then(Path::file_name) {
        words.push(format!("--flights {}", name.to_string_lossy()));
    }
    words.extend(args.only.as_ref().map(|name| format!("--only {name}")));
    words.join(" ")
}
