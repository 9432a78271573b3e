//! How a command that did not do what it was asked for says so.

use std::process::ExitCode;

use crate::logging::say_failed;

/// Says what failed; the exit status is 1.
pub(crate) fn fail(message: &str) -> ExitCode {
    say_failed(message);
    ExitCode::from(1)
}

/// Says what was asked for wrongly; the exit status is 2.
pub(crate) fn misused(message: &str) -> ExitCode {
    say_failed(message);
    ExitCode::from(2)
}
