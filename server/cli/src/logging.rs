//! The log: events of `tracing`, one line each, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The environment variable that chooses what is logged, in `tracing`'s syntax (`info`, `millrace_wire::pg=debug`).
pub const FILTER_VARIABLE: &str = "MILLRACE_LOG";

/// Starts logging; `default` applies where the environment says nothing.
///
/// # Errors
/// The filter in the environment is malformed.
pub fn init(default: &str) -> Result<(), String> {
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text).map_err(|error| {
            format!("{FILTER_VARIABLE} is not a log filter: {error} (try \"info\" or \"debug\")")
        })?,
        // What the client of Kafka warns of, a source tells with its stream.
        Err(_) => EnvFilter::new(format!("{default},krafka=error")),
    };
    let colours = std::io::stderr().is_terminal();
    // A second call (a test that embeds two servers) leaves the first in place.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .try_init();
    Ok(())
}
