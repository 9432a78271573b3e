//! `millrace test`: sqllogictest files, each against a server of its own on a temporary directory.
//!
//! ```text
//!   find ── which files        run ── one file, all of its records        connection ── its clients     binary ── their values
//!   complete ── writes answers into a file        junit ── the outcome for CI        interrupt ── ctrl-C
//! ```
//! The files are run over PostgreSQL's wire, so that what passes here is what a client sees. Values are compared as
//! texts; NULL is `NULL`, the empty text is `(empty)`, and a line break is a space. The server's clock stands still, so that `now()` has one answer:
//! see [`virtual_clock`].

mod binary;
mod complete;
mod connection;
mod find;
mod interrupt;
mod junit;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use futures::StreamExt;
use millrace_auth::seal::SealingKey;
pub use millrace_engine::clock::VirtualClock;
use millrace_wire::config::Config;
use millrace_wire::serve::Server;
use tokio::sync::watch;

use self::run::{Failure, FileRun, NOT_RUN};
use crate::check::counted;
use crate::exit::{fail, misused};
use crate::logging;

/// Flags of `millrace test`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Each file runs against a server of its own. A file name.restart.slt beside name.slt runs after it, \
    on the same data, once the server was stopped and started again. Ctrl-C ends the files that run, and what came of the others \
    is told and written; a second one does not wait for that. Exit status: 0, 1 if something failed or was not run, 2 if there \
    is nothing to run."
)]
pub struct TestArgs {
    /// Files (.slt or .test), and directories: all files in them and below
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Which of the two query protocols to use
    #[arg(long, value_enum, default_value_t = Protocol::Simple)]
    protocol: Protocol,
    /// Write the answers into the files where they are missing or others, and run these files once more. Only results, counts of
    /// rows and texts of errors are written: a statement that fails where it must not stays a failure
    #[arg(long)]
    complete: bool,
    /// How many files to run at a time, each with its own server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Write what came of each record as JUnit's XML, for CI
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// How statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// As a text, answered in text.
    Simple,
    /// Parsed, described and executed.
    Extended,
}

/// Runs all files; exit status 1 if one failed.
pub async fn run(args: TestArgs) -> ExitCode {
    if let Err(message) = logging::init("warn") {
        return misused(&message);
    }
    let files = match find::files(&args.paths) {
        Ok(files) => files,
        Err(message) => return misused(&message),
    };
    // Before anything runs: it would be late to hear afterwards that it cannot be written.
    let junit = match args.junit.as_deref().map(junit::Output::open).transpose() {
        Ok(junit) => junit,
        Err(message) => return fail(&message),
    };
    let stop = match interrupt::asked() {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    let started = Instant::now();
    let (protocol, complete) = (args.protocol, args.complete);
    let runs = files
        .into_iter()
        .map(|file| run_or_complete(file, protocol, complete, stop.clone()));
    // In the order of the files, whichever ends first.
    let mut runs = futures::stream::iter(runs).buffered(usize::from(args.jobs));
    let mut done = vec![];
    while let Some(run) = runs.next().await {
        if run.was_begun() {
            print!("{}", run.report());
        }
        done.push(run);
    }
    println!("{}", summary(&done, started.elapsed()));
    if let Some(junit) = junit
        && let Err(message) = junit.write(&done)
    {
        return fail(&message);
    }
    if done.iter().all(FileRun::passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    }
}

/// Runs a file. With `complete`, answers that are missing or others are written, and the file is run again.
async fn run_or_complete(
    file: PathBuf,
    protocol: Protocol,
    complete: bool,
    stop: watch::Receiver<bool>,
) -> FileRun {
    let run = run_whole_file(&file, protocol, &stop).await;
    if !complete || run.passed() || *stop.borrow() {
        return run;
    }
    match complete::write_answers(run.failures()) {
        Ok(0) => run,
        Ok(written) => FileRun {
            written,
            ..run_whole_file(&file, protocol, &stop).await
        },
        Err(message) => run.and_failed(message),
    }
}

/// Runs a file, and what belongs to it after a restart.
async fn run_whole_file(file: &Path, protocol: Protocol, stop: &watch::Receiver<bool>) -> FileRun {
    let started = Instant::now();
    let mut run = FileRun::new(file);
    if let Err(message) = run_on_directory(&mut run, protocol, stop).await {
        run = run.and_failed(message);
    }
    run.took = started.elapsed();
    run
}

async fn run_on_directory(
    run: &mut FileRun,
    protocol: Protocol,
    stop: &watch::Receiver<bool>,
) -> Result<(), String> {
    let directory =
        tempfile::tempdir().map_err(|error| format!("cannot create a temporary directory: {error}"))?;
    let clock = virtual_clock();
    let files = [Some(run.file.clone()), find::after_restart(&run.file)];
    for file in files.into_iter().flatten() {
        if *stop.borrow() {
            return Err(NOT_RUN.to_owned());
        }
        let server = Server::start_on(throw_away(directory.path()), Some(Arc::clone(&clock)))
            .await
            .map_err(|error| error.to_string())?;
        run.records
            .extend(run::records(&server, &file, protocol, stop.clone()).await);
        server.shutdown().await;
    }
    Ok(())
}

fn summary(runs: &[FileRun], took: Duration) -> String {
    let passed = runs.iter().filter(|run| run.passed()).count();
    let records: usize = runs.iter().map(|run| run.records.len()).sum();
    let failures: usize = runs.iter().map(|run| run.failures().count()).sum();
    let written: usize = runs.iter().map(|run| run.written).sum();
    let mut text = format!("{passed} passed, {} failed: ", runs.len() - passed);
    text += &format!(
        "{}, {failures} of them failed, in {:.2} s",
        counted(records as u64, "record"),
        took.as_secs_f64()
    );
    if written > 0 {
        text += &format!("; {} written", counted(written as u64, "answer"));
    }
    let not_begun = runs.iter().filter(|run| !run.was_begun()).count();
    if not_begun > 0 {
        text += &format!("; interrupted: {not_begun} of the files that failed were not run");
    }
    text
}

/// Runs one file against a server of its own.
///
/// # Errors
/// The server cannot be started, or the file's failures, in words.
pub async fn run_file(file: &Path, protocol: Protocol) -> Result<(), String> {
    let directory =
        tempfile::tempdir().map_err(|error| format!("cannot create a temporary directory: {error}"))?;
    let server = Server::start_on(throw_away(directory.path()), Some(virtual_clock()))
        .await
        .map_err(|error| error.to_string())?;
    let outcome = run_file_on(&server, file, protocol).await;
    server.shutdown().await;
    outcome
}

/// Runs one file against a running server, which tests use to look at the same data twice.
///
/// # Errors
/// The file's failures, in words.
pub async fn run_file_on(server: &Server, file: &Path, protocol: Protocol) -> Result<(), String> {
    // Nobody asks for its end.
    let (_asking, stop) = watch::channel(false);
    let records = run::records(server, file, protocol, stop).await;
    let failures: Vec<String> = records
        .iter()
        .filter_map(|record| record.failure.as_ref())
        .map(Failure::to_string)
        .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// The clock of a test file: it stands at 2026-01-01 00:00 UTC until `ALTER SYSTEM SET clock` moves it.
pub fn virtual_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(1_767_225_600_000_000))
}

/// A configuration on free loopback ports, for servers that do not last.
pub fn throw_away(directory: &Path) -> Config {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    Config {
        data: directory.to_owned(),
        pg: loopback,
        http: loopback,
        secrets_key: Some(SealingKey::generate()),
        ..Config::default()
    }
}
