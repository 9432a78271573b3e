//! Temporary tables: the schemas in which they are, and what becomes of their rows.

use serde::{Deserialize, Serialize};

/// As a session names its own temporary schema.
pub const OWN_SCHEMA: &str = "pg_temp";
const PREFIX: &str = "pg_temp_";

/// What COMMIT does to a temporary table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnCommit {
    /// Nothing.
    #[default]
    PreserveRows,
    /// The rows go.
    DeleteRows,
    /// The table goes with the transaction that has made it.
    Drop,
}

impl OnCommit {
    /// Whether it is what is done if nothing is said.
    pub fn is_default(&self) -> bool {
        *self == OnCommit::default()
    }
}

/// The schema of the temporary tables of a session.
pub fn schema_of(session: i32) -> String {
    format!("{PREFIX}{session}")
}

/// Whether a schema is one of temporary tables.
pub fn is_temporary(schema: &str) -> bool {
    schema.starts_with(PREFIX)
}

/// The number of the session whose temporary schema it is.
pub fn session_of(schema: &str) -> Option<i64> {
    schema.strip_prefix(PREFIX)?.parse().ok()
}
