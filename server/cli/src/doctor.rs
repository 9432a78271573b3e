//! `millrace doctor`: what is wrong with this configuration, this directory and this machine, before a server is started.
//!
//! ```text
//!   machine ── memory, cores, open files, TLS        directory ── the data and its file system
//!   network ── ports, the token of a cluster, where copies and traces go        secrets ── files that others can read
//! ```

mod directory;
mod machine;
mod network;
mod secrets;

use std::process::ExitCode;

use clap::Args;

use crate::config_file::{ConfigError, PlaceArgs};
use crate::exit::misused;
use crate::logging;

/// Flags of `millrace doctor`: those of `millrace serve` that say what is looked at.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Everything is looked at as `millrace serve` would with the same configuration file and environment; \
    nothing is changed but for files that are written to see whether that can be done and how long it takes, and removed. Exit status: 0, a server can run; 1, it \
    cannot, or not safely."
)]
pub struct DoctorArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Good,
    /// A server runs, but not as well as it could, or not forever.
    Doubtful,
    /// It does not run, or not safely.
    Bad,
}

/// What was looked at, and what was found.
#[derive(Debug)]
struct Finding {
    subject: &'static str,
    state: State,
    /// What was found, and what to do about it.
    text: String,
}

impl Finding {
    fn good(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, State::Good, text)
    }

    fn doubtful(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, State::Doubtful, text)
    }

    fn bad(subject: &'static str, text: impl Into<String>) -> Finding {
        Finding::new(subject, State::Bad, text)
    }

    fn new(subject: &'static str, state: State, text: impl Into<String>) -> Finding {
        Finding {
            subject,
            state,
            text: text.into(),
        }
    }

    fn line(&self) -> String {
        let state = match self.state {
            State::Good => "ok  ",
            State::Doubtful => "warn",
            State::Bad => "FAIL",
        };
        format!("{state}  {:<14} {}", self.subject, self.text)
    }
}

/// Looks at everything.
pub fn run(args: &DoctorArgs) -> ExitCode {
    // What the configuration warns of is a line on stderr.
    if let Err(message) = logging::init("error") {
        return misused(&message);
    }
    let findings = look(args);
    for finding in &findings {
        println!("{}", finding.line());
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    println!(
        "millrace {}: {} good, {} doubtful, {} bad",
        millrace_wire::VERSION,
        count(State::Good),
        count(State::Doubtful),
        count(State::Bad)
    );
    match findings.iter().map(|finding| finding.state).max() {
        Some(State::Bad) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    }
}

fn look(args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = vec![];
    let loaded = match args.place.load(&[]) {
        // Whatever else is wrong is told, too.
        Err(error @ ConfigError::Insecure { .. }) => {
            findings.push(Finding::bad("exposure", error.to_string()));
            args.place.load(&[("insecure", Some("true"))])
        }
        loaded => loaded,
    };
    let config = match loaded {
        Ok(config) => config,
        Err(error) => return vec![Finding::bad("configuration", error.to_string())],
    };
    findings.insert(0, Finding::good("configuration", "it can be read"));
    findings.extend(machine::tls(&config));
    let (directory, is_in_use) = directory::look(&config.data);
    findings.extend(directory);
    findings.extend(secrets::look(&args.place.files_of_secrets()));
    findings.extend(network::ports(&config, is_in_use));
    findings.extend(network::cluster_token(&config));
    findings.extend(network::targets(&config));
    findings.extend([
        machine::open_files(&config),
        machine::memory(&config),
        machine::cores(&config),
    ]);
    findings
}
