//! The log: events of `tracing`, one line each, on stderr.

use std::io::IsTerminal;

use clap::ValueEnum;
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
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| {
            format!("{FILTER_VARIABLE} is not a log filter: {error} (try \"info\" or \"debug\")")
        })?,
        // What the client of Kafka warns of, a source tells with its stream.
        Err(_) => EnvFilter::new(format!("{filter},krafka=error")),
    };
    let format = match format {
        Some(format) => format,
        None => format_of(std::env::var(FORMAT_VARIABLE).ok().as_deref())?,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second call (a test that embeds two servers) leaves the first in place.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
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
    fn a_format_is_one_of_two() {
        assert_eq!(format_of(None), Ok(LogFormat::Text));
        assert_eq!(format_of(Some("JSON")), Ok(LogFormat::Json));
        assert!(format_of(Some("yaml")).unwrap_err().contains("text or json"));
    }
}
