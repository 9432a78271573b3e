//! Measurements that each have a process of their own, so that one leaves nothing in the memory of the next.
//!
//! A real run starts this executable again with a hidden subcommand, which runs one measurement and prints what it found as
//! JSON. A small run measures in its own process.

use std::future::Future;
use std::process::{Command, Stdio};

use clap::{Arg, ArgMatches};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::BenchError;
use crate::size::Size;

/// The hidden subcommand.
pub const COMMAND: &str = "measure-apart";

/// A measurement that can be asked of another process.
pub trait Apart: Serialize + DeserializeOwned + 'static {
    /// Names its kind among all ([`crate::APART`]).
    const NAME: &'static str;
    /// What it finds.
    type Found: Serialize + DeserializeOwned;

    /// Measures in this process.
    ///
    /// # Errors
    /// The engine fails, or an answer is wrong.
    fn run(&self) -> impl Future<Output = Result<Self::Found, BenchError>>;
}

/// What a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of address space.
    pub bytes: u64,
    /// Seconds until it is killed.
    pub seconds: u64,
}

impl Bounds {
    /// A command that runs `program` under these limits.
    pub fn command(self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &self.seconds.to_string(), "prlimit"]);
        command.args([&format!("--as={}", self.bytes), program]);
        command
    }
}

/// Measures: in a process of its own where results are taken, in this one where the run is small.
///
/// # Errors
/// The measurement fails, or needs more than it may use; what its process said is on standard error.
pub async fn measure<A: Apart>(
    size: Size,
    asked: &A,
    bounds: Option<Bounds>,
) -> Result<A::Found, BenchError> {
    if size == Size::Small {
        return asked.run().await;
    }
    let executable = std::env::current_exe().map_err(BenchError::io("cannot find this executable"))?;
    let mut command = match bounds {
        Some(bounds) => bounds.command(&executable.to_string_lossy()),
        None => Command::new(executable),
    };
    let asked = serde_json::to_string(asked).map_err(BenchError::engine)?;
    command.args([COMMAND, A::NAME, &asked]).stderr(Stdio::inherit());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output
        .map_err(BenchError::engine)?
        .map_err(BenchError::io("cannot start a process for a measurement"))?;
    if !output.status.success() {
        return Err(BenchError::engine(format!(
            "{} {asked} ended with {}; what it said is above",
            A::NAME,
            output.status
        )));
    }
    serde_json::from_slice(&output.stdout).map_err(BenchError::engine)
}

/// A kind of measurement in the list of all kinds.
pub struct Kind {
    name: &'static str,
    answer: fn(String) -> LocalBoxFuture<'static, Result<String, BenchError>>,
}

impl Kind {
    /// The entry of a kind.
    pub const fn of<A: Apart>() -> Kind {
        Kind {
            name: A::NAME,
            answer: |asked| answer::<A>(asked).boxed_local(),
        }
    }
}

async fn answer<A: Apart>(asked: String) -> Result<String, BenchError> {
    let asked: A = serde_json::from_str(&asked).map_err(BenchError::engine)?;
    serde_json::to_string(&asked.run().await?).map_err(BenchError::engine)
}

/// The hidden subcommand's arguments.
pub fn command() -> clap::Command {
    clap::Command::new(COMMAND)
        .about("One measurement, for the process that started this one")
        .hide(true)
        .arg(Arg::new("kind").required(true))
        .arg(Arg::new("asked").required(true))
}

/// Does what the hidden subcommand asks.
///
/// # Errors
/// The measurement is not known, or fails.
pub async fn run(kinds: &[Kind], matches: &ArgMatches) -> Result<(), BenchError> {
    let word = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let kind = kinds.iter().find(|kind| kind.name == word("kind"));
    let kind = kind.ok_or_else(|| BenchError::engine(format!("there is no measurement {}", word("kind"))))?;
    println!("{}", (kind.answer)(word("asked")).await?);
    Ok(())
}
