//! The `millrace-benches` binary: one subcommand per suite of experiments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use millrace_benches::drizzle;
use millrace_benches::durability::{checkpoint, recovery};
use millrace_benches::error::BenchError;
use millrace_benches::first_light::{self, Scale};
use millrace_benches::process::Isolation;
use millrace_benches::results::{Experiment, Run};
use millrace_benches::target::Target;
use millrace_benches::{faucet, flights, ingest, ivm, mapreduce, monotasks, neptune, tpch};
use millrace_sql_tests::{crash, oracle};

/// What the server uses too: engines inside this process are to be measured as they are.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
    /// TPC-H: the back-fill of the 22 queries as views against their batch answers, refreshes, memory
    Tpch(TpchArgs),
    /// The random oracle: random views over random changes, compared with plain DataFusion; exits with 1 if one is wrong
    Oracle(OracleArgs),
    /// Kills a server under load with SIGKILL, again and again, and compares all that it has after each restart; exits with 1 if a
    /// row is missing, twice or wrong
    Crash(CrashArgs),
    /// What it costs to keep views, by the size of the change and by the size of the base
    Ivm(IvmArgs),
    /// Drizzle's experiments: coordination on simulated clusters, latency and throughput of the Yahoo streaming benchmark
    Drizzle(DrizzleArgs),
    /// Streams first: what stream tasks wait for while TPC-H takes every core, under each scheduling policy
    Neptune(ScaledArgs),
    /// StreamMapReduce's experiments: moving average, word count, latency by rate; Nexmark over windows
    Mapreduce(DrizzleArgs),
    /// How fast rows become durable at each level, against the disk's own rates
    Ingest(DrizzleArgs),
    /// Performance clarity: its cost against plain DataFusion, and how right its predictions are
    Monotasks(MonotasksArgs),
    /// Recovery: time from exec to the first right answer after a kill, by state and by history
    Recovery(DrizzleArgs),
    /// Checkpoints: what they cost views that go on meanwhile, and what they write
    Checkpoint(DrizzleArgs),
    /// Faucet's experiments: joins that multiply rows, cliques of graphs, with flow control and without
    Faucet(FaucetArgs),
    /// One measurement of `faucet`, which gives each a process of its own
    #[command(hide = true)]
    FaucetCell {
        /// The measurement, as JSON
        cell: String,
    },
    /// The soak of `faucet`, which has a process of its own
    #[command(hide = true)]
    FaucetSoak {
        /// What is to be done, as JSON
        soak: String,
    },
    /// One measurement of `ivm`, which gives each a process of its own
    #[command(hide = true)]
    IvmCell {
        /// The measurement, as JSON
        cell: String,
    },
}

#[derive(Debug, Args)]
struct TpchArgs {
    /// TPC-H's scale factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Where the results' directory is made [default: benches/results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct OracleArgs {
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
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Keep the results, in a directory made here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CrashArgs {
    /// How often it is killed
    #[arg(long, default_value_t = 1_000)]
    rounds: u64,
    /// What decides when it is killed, and what is written and damaged
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the results, in a directory made here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct IvmArgs {
    /// A bounded run inside this process: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    small: bool,
    /// Where the results' directory is made [default: benches/results; with --small nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure only the views whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Debug, Args)]
struct DrizzleArgs {
    /// A bounded run inside this process: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    small: bool,
    /// Where the results' directory is made [default: benches/results; with --small nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only the experiments whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Debug, Args)]
struct FaucetArgs {
    /// A bounded run inside this process: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    small: bool,
    /// How long the soak takes [default: 600]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Where the results' directory is made [default: benches/results; with --small nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only the experiments whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Debug, Args)]
struct ScaledArgs {
    /// TPC-H's scale factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A bounded run: shows that the experiments work, not how fast millrace is
    #[arg(long)]
    small: bool,
    /// Where the results' directory is made [default: benches/results; with --small nothing is kept]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only the experiments whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

#[derive(Debug, Args)]
struct MonotasksArgs {
    #[command(flatten)]
    args: ScaledArgs,
    /// Where TPC-H's tables are as Parquet, or are to be kept for later runs [default: made and removed]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Keep the profiles there from which is predicted: hundreds of MB
    #[arg(long, value_name = "DIR")]
    profiles: Option<PathBuf>,
    /// Run nothing, and tell what the model makes of the profiles that an earlier run has kept there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["profiles", "files"])]
    again: Option<PathBuf>,
}

impl DrizzleArgs {
    /// The command that repeats the run.
    fn command(&self, suite: &str) -> String {
        let mut command = format!("cargo run --release -p millrace-benches -- {suite}");
        if self.small {
            command.push_str(" --small");
        }
        if let Some(only) = &self.only {
            command.push_str(&format!(" --only \"{only}\""));
        }
        command
    }
}

impl ScaledArgs {
    /// The command that repeats the run.
    fn command(&self, suite: &str) -> String {
        let which = match self.small {
            true => "--small".to_owned(),
            false => format!("--scale {}", self.scale),
        };
        let mut command = format!("cargo run --release -p millrace-benches -- {suite} {which}");
        if let Some(only) = &self.only {
            command.push_str(&format!(" --only \"{only}\""));
        }
        command
    }
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
    if crash::serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("millrace-benches: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = match Cli::parse().suite {
        Suite::FirstLight(args) => runtime.block_on(first_light(args)),
        Suite::Ivm(args) => runtime.block_on(ivm(args)),
        Suite::Drizzle(args) => runtime.block_on(drizzle(args)),
        Suite::Neptune(args) => runtime.block_on(neptune(args)),
        Suite::Mapreduce(args) => runtime.block_on(mapreduce(args)),
        Suite::Ingest(args) => ingest(&args),
        Suite::Monotasks(args) => runtime.block_on(monotasks(args)),
        Suite::IvmCell { cell } => runtime.block_on(ivm_cell(&cell)),
        Suite::Faucet(args) => runtime.block_on(faucet(args)),
        Suite::FaucetCell { cell } => runtime.block_on(faucet_cell(&cell)),
        Suite::FaucetSoak { soak } => runtime.block_on(faucet_soak(&soak)),
        Suite::Recovery(args) => runtime.block_on(recovery(args)),
        Suite::Checkpoint(args) => runtime.block_on(checkpoint(args)),
        Suite::Tpch(args) => runtime.block_on(tpch(args)),
        Suite::Oracle(args) => oracle(&args),
        Suite::Crash(args) => crash_rounds(&args),
    };
    match outcome {
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
    keep(&run, args.out, args.small)
}

async fn ivm(args: IvmArgs) -> Result<(), BenchError> {
    let (scale, isolation) = if args.small {
        (ivm::Scale::small(), Isolation::None)
    } else {
        (ivm::Scale::real(), Isolation::Process)
    };
    let mut command = "cargo run --release -p millrace-benches -- ivm".to_owned();
    if args.small {
        command.push_str(" --small");
    }
    if let Some(only) = &args.only {
        command.push_str(&format!(" --only {only}"));
    }
    let run = Run::begin("ivm", command, scale.fsync_probes)?;
    let run = ivm::run(run, &scale, isolation, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

async fn drizzle(args: DrizzleArgs) -> Result<(), BenchError> {
    let scale = if args.small {
        drizzle::Scale::small()
    } else {
        drizzle::Scale::real()
    };
    let mut command = "cargo run --release -p millrace-benches -- drizzle".to_owned();
    if args.small {
        command.push_str(" --small");
    }
    if let Some(only) = &args.only {
        command.push_str(&format!(" --only \"{only}\""));
    }
    let run = Run::begin("drizzle", command, scale.fsync_probes)?;
    let run = drizzle::run(run, &scale, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

async fn monotasks(
    MonotasksArgs {
        args,
        files,
        profiles,
        again,
    }: MonotasksArgs,
) -> Result<(), BenchError> {
    let scale = monotasks::Scale {
        profiles,
        ..match args.small {
            true => monotasks::Scale::small(),
            false => monotasks::Scale::real(args.scale),
        }
    };
    let run = Run::begin("monotasks", args.command("monotasks"), scale.fsync_probes)?;
    let run = match again {
        Some(profiles) => monotasks::again(run, &scale, &profiles)?,
        None => monotasks::run(run, &scale, args.only.as_deref(), files.as_deref()).await?,
    };
    keep(&run, args.out, args.small)
}

async fn mapreduce(args: DrizzleArgs) -> Result<(), BenchError> {
    let scale = match args.small {
        true => mapreduce::Scale::small(),
        false => mapreduce::Scale::real(),
    };
    let mut command = "cargo run --release -p millrace-benches -- mapreduce".to_owned();
    if args.small {
        command.push_str(" --small");
    }
    if let Some(only) = &args.only {
        command.push_str(&format!(" --only \"{only}\""));
    }
    let run = Run::begin("mapreduce", command, scale.fsync_probes)?;
    let run = mapreduce::run(run, &scale, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

async fn recovery(args: DrizzleArgs) -> Result<(), BenchError> {
    let (scale, target) = match args.small {
        true => (recovery::Scale::small(), Target::InProcess),
        false => (recovery::Scale::real(), Target::beside_this_executable()?),
    };
    let run = Run::begin("recovery", args.command("recovery"), scale.fsync_probes)?;
    let run = recovery::run(run, &scale, &target, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

async fn checkpoint(args: DrizzleArgs) -> Result<(), BenchError> {
    let (scale, target) = match args.small {
        true => (checkpoint::Scale::small(), Target::InProcess),
        false => (checkpoint::Scale::real(), Target::beside_this_executable()?),
    };
    let run = Run::begin("checkpoint", args.command("checkpoint"), scale.fsync_probes)?;
    let run = checkpoint::run(run, &scale, &target, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

fn ingest(args: &DrizzleArgs) -> Result<(), BenchError> {
    let scale = match args.small {
        true => ingest::Scale::small(),
        false => ingest::Scale::real(),
    };
    let run = Run::begin("ingest", args.command("ingest"), scale.fsync_probes)?;
    let run = ingest::run(run, &scale, args.only.as_deref())?;
    keep(&run, args.out.clone(), args.small)
}

async fn neptune(args: ScaledArgs) -> Result<(), BenchError> {
    let scale = match args.small {
        true => neptune::Scale::small(),
        false => neptune::Scale::real(args.scale),
    };
    let command = args.command("neptune");
    let run = Run::begin("neptune", command, scale.fsync_probes)?;
    let run = neptune::run(run, &scale, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

async fn faucet(args: FaucetArgs) -> Result<(), BenchError> {
    let (mut scale, isolation) = match args.small {
        true => (faucet::Scale::small(), Isolation::None),
        false => (faucet::Scale::real(), Isolation::Process),
    };
    let mut command = "cargo run --release -p millrace-benches -- faucet".to_owned();
    if args.small {
        command.push_str(" --small");
    }
    if let Some(only) = &args.only {
        command.push_str(&format!(" --only \"{only}\""));
    }
    if let Some(seconds) = args.seconds {
        scale.soak.seconds = seconds;
        command.push_str(&format!(" --seconds {seconds}"));
    }
    let run = Run::begin("faucet", command, scale.fsync_probes)?;
    let run = faucet::run(run, &scale, isolation, args.only.as_deref()).await?;
    keep(&run, args.out, args.small)
}

/// Runs a measurement and prints what it found, for the process that started this one.
async fn ivm_cell(cell: &str) -> Result<(), BenchError> {
    let cell: ivm::Cell = serde_json::from_str(cell).map_err(BenchError::engine)?;
    found(&cell.run().await?)
}

/// The same.
async fn faucet_cell(cell: &str) -> Result<(), BenchError> {
    let cell: faucet::Cell = serde_json::from_str(cell).map_err(BenchError::engine)?;
    found(&cell.run().await?)
}

/// The same.
async fn faucet_soak(soak: &str) -> Result<(), BenchError> {
    let soak: faucet::Soak = serde_json::from_str(soak).map_err(BenchError::engine)?;
    found(&soak.run().await?)
}

fn found(measured: &impl serde::Serialize) -> Result<(), BenchError> {
    println!("{}", serde_json::to_string(measured).map_err(BenchError::engine)?);
    Ok(())
}

/// Shows a run, and keeps it unless it was a small one.
fn keep(run: &Run, out: Option<PathBuf>, small: bool) -> Result<(), BenchError> {
    println!("{}", run.report());
    let out = match (out, small) {
        (Some(out), _) => out,
        (None, true) => return Ok(()),
        (None, false) => Path::new(env!("CARGO_MANIFEST_DIR")).join("results"),
    };
    println!("kept in {}", run.write(&out)?.display());
    Ok(())
}

async fn tpch(args: TpchArgs) -> Result<(), BenchError> {
    let command = format!(
        "cargo run --release -p millrace-benches -- tpch --scale {}",
        args.scale
    );
    let scale = tpch::Scale::real(args.scale);
    let run = tpch::run(Run::begin("tpch", command, scale.fsync_probes)?, &scale).await?;
    keep(&run, args.out, false)
}

fn crash_rounds(args: &CrashArgs) -> Result<(), BenchError> {
    let begin = Instant::now();
    let (rounds, seed) = (args.rounds, args.seed);
    let tell = |done: u64, seen: &crash::Seen| println!("{done} rounds: {seen:?}");
    let seen = crash::kill_and_compare(seed, rounds, tell);
    let seen = seen.map_err(|error| BenchError::Wrong(error.to_string()))?;
    let Some(out) = &args.out else {
        return Ok(());
    };
    let command = format!("cargo run --release -p millrace-benches -- crash --rounds {rounds} --seed {seed}");
    let mut run = Run::begin("crash", command, 0)?;
    let mut experiment = Experiment::new(
        "kill -9",
        "A round kills a server under writes, requests over HTTP, views that are made and dropped, sinks and checkpoints, damages \
         some of its files, starts it again and compares all rows. None was missing, twice or wrong.",
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
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let slowest = vec![millis(seen.slowest)];
    experiment.add(
        "longest, from a start until all was compared",
        "ms",
        slowest,
        None,
    );
    experiment.add("all rounds", "s", vec![begin.elapsed().as_secs_f64()], None);
    run.add(experiment);
    println!("kept in {}", run.write(out)?.display());
    Ok(())
}

fn oracle(args: &OracleArgs) -> Result<(), BenchError> {
    let options = oracle::Options {
        cases: args.cases,
        seed: args.seed,
        threads: args
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        out: args.scripts.clone(),
        failures_max: args.failures,
        talk: true,
    };
    let report = oracle::run(&options).map_err(|error| BenchError::Server(error.to_string()))?;
    println!("{}", report.text());
    if let Some(out) = &args.out {
        let (cases, seed) = (args.cases, args.seed);
        let command =
            format!("cargo run --release -p millrace-benches -- oracle --cases {cases} --seed {seed}");
        let mut run = Run::begin("oracle", command, 0)?;
        let mut experiment = Experiment::new(
            "random views",
            "A case is one random query that is kept as a view through one random interleaving of changes and compared \
             with plain DataFusion at several epochs, rows and multiplicities.",
        );
        let seconds = report.elapsed.as_secs_f64();
        experiment.add("cases", "", vec![report.cases as f64], None);
        experiment.add("comparisons", "", vec![report.comparisons as f64], None);
        experiment.add("cases a second", "1/s", vec![report.cases as f64 / seconds], None);
        experiment.add(
            "refused by the planner",
            "%",
            vec![report.refused_share() * 100.0],
            None,
        );
        experiment.add("failures", "", vec![report.failures.len() as f64], None);
        run.add(experiment);
        run.note(format!("```text\n{}```", report.text()));
        println!("kept in {}", run.write(out)?.display());
    }
    match report.failures.len() {
        0 => Ok(()),
        failures => Err(BenchError::Wrong(format!(
            "{failures} views differ from their batch answer"
        ))),
    }
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
