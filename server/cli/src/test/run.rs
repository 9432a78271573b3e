//! Runs the records of a file, all of them, and keeps what came of each.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_wire::serve::Server;
use millrace_wire::slot::signalled;
use sqllogictest::{
    Control, DefaultColumnType, Record, ResultMode, Runner, TestError, TestErrorKind, parse_file,
};
use tokio::sync::watch;

use super::Protocol;
use super::connection::Connection;
use crate::check::counted;

/// What is said of a file that was not run to its end because somebody asked for the end.
const INTERRUPTED: &str = "interrupted: what follows was not run";
/// What is said of one that was not even begun.
pub const NOT_RUN: &str = "interrupted before it was run";

/// One run of a file.
pub struct FileRun {
    /// The file.
    pub file: PathBuf,
    /// Its records that are statements, queries or commands, in their order.
    pub records: Vec<RecordRun>,
    /// Answers that were written into it before.
    pub written: usize,
    /// How long it took.
    pub took: Duration,
}

/// One run of a record.
pub struct RecordRun {
    /// Where it begins: `file:line`.
    pub place: String,
    /// What it does, in short.
    pub what: String,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// Why a record failed.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Its answer is not what the file says.
    Record(TestError),
    /// It could not be run at all.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Record(error) => {
                let said = error.display(false).to_string();
                f.write_str(&said.replace(
                    "is expected to fail, but actually succeed:",
                    "was to fail, and did not:",
                ))
            }
            Failure::Other(message) => f.write_str(message),
        }
    }
}

impl FileRun {
    /// A run of which nothing is known yet.
    pub fn new(file: &Path) -> Self {
        FileRun {
            file: file.to_owned(),
            records: vec![],
            written: 0,
            took: Duration::ZERO,
        }
    }

    /// Whether everything was as the file says.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Whether it was run at all, or somebody asked for the end before.
    pub fn was_begun(&self) -> bool {
        !self.records.iter().any(RecordRun::was_not_run)
    }

    /// What failed.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.records.iter().filter_map(|record| record.failure.as_ref())
    }

    /// The same with a failure that belongs to none of its records.
    pub fn and_failed(mut self, message: String) -> Self {
        self.records.push(RecordRun::of_file(&self.file, message));
        self
    }

    /// What came of it, in lines.
    pub fn report(&self) -> String {
        let seconds = self.took.as_secs_f64();
        let written = match self.written {
            0 => String::new(),
            written => format!(", {} written", counted(written as u64, "answer")),
        };
        if self.passed() {
            return format!("ok    {} ({seconds:.2} s{written})\n", self.file.display());
        }
        let (failed, all) = (self.failures().count(), self.records.len());
        let failures: String = self
            .failures()
            .map(|failure| format!("{}\n", failure.to_string().trim_end()))
            .collect();
        format!(
            "FAIL  {} ({failed} of {}{written})\n{failures}",
            self.file.display(),
            counted(all as u64, "record")
        )
    }
}

impl RecordRun {
    fn was_not_run(&self) -> bool {
        matches!(&self.failure, Some(Failure::Other(message)) if message.starts_with(NOT_RUN))
    }

    fn of_file(file: &Path, message: String) -> Self {
        RecordRun {
            place: file.display().to_string(),
            what: "the file".to_owned(),
            took: Duration::ZERO,
            failure: Some(Failure::Other(format!("{message}\nat {}", file.display()))),
        }
    }
}

/// Runs a file against a running server: all of its records, whatever fails, unless the server is gone or the end is asked for.
pub async fn records(
    server: &Server,
    file: &Path,
    protocol: Protocol,
    mut stop: watch::Receiver<bool>,
) -> Vec<RecordRun> {
    let parsed = match parse(file) {
        Ok(parsed) => parsed,
        Err(failure) => return vec![failure],
    };
    let address = server.pg_addr();
    let mut runner = Runner::new(move || Connection::open(address, protocol));
    runner.add_label(match protocol {
        Protocol::Simple => "simple",
        Protocol::Extended => "extended",
    });
    let mut runs = vec![];
    let mut is_by_value = false;
    for record in parsed {
        match record {
            Record::Halt { .. } => break,
            Record::Control(Control::ResultMode(mode)) => is_by_value = mode == ResultMode::ValueWise,
            _ => {}
        }
        let described = described(&record);
        let started = Instant::now();
        let outcome = tokio::select! {
            outcome = runner.run_async(record) => outcome,
            () = signalled(&mut stop) => {
                runs.push(RecordRun::of_file(file, INTERRUPTED.to_owned()));
                break;
            }
        };
        let Some((place, what)) = described else {
            if let Err(error) = outcome {
                runs.push(RecordRun::of_file(file, error.display(false).to_string()));
            }
            continue;
        };
        let is_gone = outcome.as_ref().is_err_and(is_server_gone);
        runs.push(RecordRun {
            place,
            what,
            took: started.elapsed(),
            failure: outcome.err().map(|error| match error.kind() {
                // It has rows with all of their values, and the file one value a line: no answer to be written.
                TestErrorKind::QueryResultMismatch { .. } if is_by_value => {
                    Failure::Other(error.display(false).to_string())
                }
                _ => Failure::Record(error),
            }),
        });
        if is_gone {
            let message = "the connection is gone: what follows was not run".to_owned();
            runs.push(RecordRun::of_file(file, message));
            break;
        }
    }
    runner.shutdown_async().await;
    runs
}

fn parse(file: &Path) -> Result<Vec<Record<DefaultColumnType>>, RecordRun> {
    let of_file = |message: String| RecordRun::of_file(file, message);
    // The parser takes for granted that there is a text under a name that is one.
    let text = std::fs::read(file).map_err(|error| of_file(format!("cannot read the file: {error}")))?;
    if std::str::from_utf8(&text).is_err() || file.to_str().is_none() {
        return Err(of_file("the file, or its name, is not text in UTF-8".to_owned()));
    }
    parse_file(file).map_err(|error| RecordRun {
        failure: Some(Failure::Record(error.into())),
        ..of_file(String::new())
    })
}

/// Where a record that can fail begins, and what it does.
fn described(record: &Record<DefaultColumnType>) -> Option<(String, String)> {
    const LENGTH: usize = 60;
    let (loc, text) = match record {
        Record::Statement { loc, sql, .. }
        | Record::Query { loc, sql, .. }
        | Record::Let { loc, sql, .. } => (loc, sql),
        Record::System { loc, command, .. } => (loc, command),
        _ => return None,
    };
    let place = format!("{}:{}", loc.file(), loc.line());
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((place, text.chars().take(LENGTH).collect()))
}

fn is_server_gone(error: &TestError) -> bool {
    match error.kind() {
        TestErrorKind::Fail { err, .. } | TestErrorKind::ErrorMismatch { err, .. } => err
            .downcast_ref::<super::connection::Failure>()
            .is_some_and(super::connection::Failure::is_of_connection),
        _ => false,
    }
}
