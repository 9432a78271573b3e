//! The log: events of `tracing`, one line each, on stderr. Where it is for programs, all else that the process says there is a JSON
//! object a line, too: why it did not start, what was wrong with its flags, and panics.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use chrono::{SecondsFormat, Utc};
use clap::ValueEnum;
use serde_json::json;
use tracing_subscriber::EnvFilter;

/// The environment variable that chooses what is logged, in `tracing`'s syntax (`info`, `millrace_wire::pg=debug`).
pub const FILTER_VARIABLE: &str = "MILLRACE_LOG";
/// The one that chooses how a line looks.
pub const FORMAT_VARIABLE: &str = "MILLRACE_LOG_FORMAT";

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people: time, level, where from, message, fields.
    Text,
    /// For programs: a JSON object with `timestamp`, `level`, `target`, `message`, and a member for each field.
    Json,
}

/// Starts logging; `filter` and `format` apply where the environment says nothing.
///
/// # Errors
/// What the environment says is malformed.
pub fn init(filter: &str) -> Result<(), String> {
    init_as(filter, None)
}

/// As [`init`], in a format that was asked for on the command line, if one was.
///
/// # Errors
/// As [`init`].
pub fn init_as(filter: &str, format: Option<LogFormat>) -> Result<(), String> {
    let format = match format {
        Some(format) => format,
        None => format_of(std::env::var(FORMAT_VARIABLE).ok().as_deref())?,
    };
    // A second call (a test that embeds two servers) leaves the first in place, here and below.
    let _ = FORMAT.set(format);
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| {
            format!("{FILTER_VARIABLE} is not a log filter: {error} (try \"info\" or \"debug\")")
        })?,
        // What the client of Kafka warns of, a source tells with its stream.
        Err(_) => EnvFilter::new(format!("{filter},krafka=error")),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would tell that stderr is gone on stderr, and that ends the thread that had something to log.
        .log_internal_errors(false);
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => {
            std::panic::set_hook(Box::new(|panic| write_line(&panicked(panic))));
            builder.json().flatten_event(true).try_init()
        }
    };
    Ok(())
}

/// What [`init_as`] was told.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Says on stderr why the command did not do what it was asked for: as a line for people, or for programs where the log is for them.
pub(crate) fn say_failed(message: &str) {
    match FORMAT.get() {
        Some(LogFormat::Json) => write_line(&failed(message)),
        // Nothing can be done for an output that is gone.
        _ => drop(writeln!(std::io::stderr(), "millrace: {message}")),
    }
}

/// The same of a command line that could not be read, which may have said how the log looks; `arguments` is what was written.
/// False: nobody asked for JSON, and nothing was said.
pub(crate) fn say_misused(message: &str, arguments: &[String]) -> bool {
    let given = arguments.windows(2).rev().find_map(|pair| match pair {
        [flag, value] if flag == FORMAT_FLAG => Some(value.as_str()),
        [_, flag] => flag.strip_prefix(FORMAT_FLAG)?.strip_prefix('='),
        _ => None,
    });
    let variable = std::env::var(FORMAT_VARIABLE).ok();
    let is_json = format_of(given.or(variable.as_deref())) == Ok(LogFormat::Json);
    if is_json {
        write_line(&failed(message));
    }
    is_json
}

const FORMAT_FLAG: &str = "--log-format";

/// Members that every line has, as `tracing` writes them.
fn failed(message: &str) -> serde_json::Value {
    json!({"timestamp": now(), "level": "ERROR", "message": message, "target": "millrace"})
}

fn panicked(panic: &PanicHookInfo<'_>) -> serde_json::Value {
    let location = panic.location().map(ToString::to_string);
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    json!({
        "timestamp": now(),
        "level": "ERROR",
        "message": format!("panicked: {}", panic.payload_as_str().unwrap_or("it does not say why")),
        "location": location,
        "thread": std::thread::current().name(),
        "backtrace": backtrace,
        "target": "millrace",
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "lines of a log say when they were written"
)]
fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn write_line(line: &serde_json::Value) {
    // In one piece, since other threads log, too. Nothing can be done for an output that is gone.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

fn format_of(text: Option<&str>) -> Result<LogFormat, String> {
    match text {
        None | Some("") => Ok(LogFormat::Text),
        Some(text) => LogFormat::from_str(text, true)
            .map_err(|_| format!("{FORMAT_VARIABLE} is \"{text}\"; it can be text or json")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_object() {
        let (told, heard) = std::sync::mpsc::channel();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = told.send(panicked(panic));
        }));
        let thread = std::thread::Builder::new().name("worker".into());
        let thread = thread.spawn(|| panic!("line one\nline {}", 2)).unwrap();
        assert!(thread.join().is_err());
        std::panic::set_hook(before);
        let line = heard.recv().unwrap();
        assert_eq!(line["message"], "panicked: line one\nline 2");
        assert_eq!(line["thread"], "worker");
        assert!(
            line["location"].as_str().unwrap().contains("logging.rs:"),
            "{line}"
        );
        assert_eq!(line.to_string().lines().count(), 1);
    }

    #[test]
    fn a_format_is_one_of_two() {
        assert_eq!(format_of(None), Ok(LogFormat::Text));
        assert_eq!(format_of(Some("JSON")), Ok(LogFormat::Json));
        assert!(format_of(Some("yaml")).unwrap_err().contains("text or json"));
    }
}
