//! What is said beside the answers.

use millrace_postgres::error::SqlState;

/// How much a [`Notice`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Details for the curious.
    Debug,
    /// For the server's log.
    Log,
    /// Something the user may want to know.
    Notice,
    /// Something the user asked for.
    Info,
    /// Something that is probably not what the user meant.
    Warning,
}

impl Severity {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Debug => "DEBUG",
            Severity::Log => "LOG",
            Severity::Notice => "NOTICE",
            Severity::Info => "INFO",
            Severity::Warning => "WARNING",
        }
    }
}

/// Something that is said beside the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub severity: Severity,
    /// The SQLSTATE: `00000` for a notice, `01000` for a warning, or one more special.
    pub code: SqlState,
    /// What is said.
    pub message: String,
}
