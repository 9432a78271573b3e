//! How the rows of a stream or table are kept: `durability`, and of a stream `retention` and `retention_size`.

use millrace_parser::ast::Options;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use millrace_storage::{Durability, ObjectKind, RelationOptions};
use serde::{Deserialize, Serialize};

use crate::connector::length;
use crate::temporary::OnCommit;

/// How much is kept of what is no row.
const BOUNDED_BYTES_MAX: u64 = 256 << 20;

/// See the module. What is not said is the server's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durability: Option<Durability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    /// What COMMIT does, if it is a temporary table.
    #[serde(default, skip_serializing_if = "OnCommit::is_default")]
    pub on_commit: OnCommit,
}

impl Retention {
    /// Of a stream that is looked at now and then, and must not fill the disk: of what is no row, or of what came in.
    pub fn bounded() -> Retention {
        Retention {
            retention_bytes: Some(BOUNDED_BYTES_MAX),
            ..Retention::default()
        }
    }

    /// For so many milliseconds.
    pub fn of_time(ms: i64) -> Retention {
        Retention {
            retention_ms: Some(ms),
            ..Retention::default()
        }
    }

    /// The same, of so many bytes where nothing is said of them.
    #[must_use]
    pub fn of_at_most(self, bytes: u64) -> Retention {
        Retention {
            retention_bytes: self.retention_bytes.or(Some(bytes)),
            ..self
        }
    }

    /// For how long, in milliseconds, and how many bytes are kept.
    pub fn kept(&self) -> (Option<i64>, Option<u64>) {
        (self.retention_ms, self.retention_bytes)
    }

    /// The same of a temporary table, of which nothing outlasts the process.
    #[must_use]
    pub fn temporary(self, on_commit: OnCommit) -> Retention {
        Retention {
            durability: Some(Durability::Off),
            on_commit,
            ..self
        }
    }

    /// What the options say, which are taken out of `options`.
    ///
    /// # Errors
    /// An option has a value that it cannot have, or a table is to forget rows.
    pub fn new(options: &mut Options, kind: ObjectKind) -> SqlResult<Retention> {
        let mut keeping = Retention::default();
        let mut left = vec![];
        for option in std::mem::take(&mut options.0) {
            let name = option.name.value.to_ascii_lowercase();
            let value = option.value.to_string();
            let value = value.trim_matches('\'');
            let invalid = |why: &str| {
                SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("invalid value for option \"{name}\": '{value}'"),
                )
                .with_hint(format!("{why}."))
            };
            match name.as_str() {
                "durability" => {
                    let level = value.to_ascii_lowercase().parse();
                    keeping.durability =
                        Some(level.map_err(|()| invalid("It can be 'fsync', 'group' or 'off'"))?);
                }
                "retention" | "retention_size" if kind != ObjectKind::Stream => {
                    return Err(SqlError::new(
                        SqlState::InvalidTableDefinition,
                        format!("option \"{name}\" is only for streams"),
                    )
                    .with_detail("A table keeps its rows until they are deleted."));
                }
                "retention" => {
                    let time = length(value).ok().filter(|micros| *micros >= 1_000);
                    let time = time.ok_or_else(|| invalid("Give a time, such as '7 days'"))?;
                    keeping.retention_ms = Some(time / 1_000);
                }
                "retention_size" => {
                    let bytes = units::size(value).map_err(|_| invalid("Give a size, such as '10GB'"))?;
                    keeping.retention_bytes = Some(bytes);
                }
                _ => left.push(option),
            }
        }
        options.0 = left;
        Ok(keeping)
    }

    /// Takes over what `change` says.
    #[must_use]
    pub fn altered(mut self, change: Retention) -> Retention {
        self.durability = change.durability.or(self.durability);
        self.retention_ms = change.retention_ms.or(self.retention_ms);
        self.retention_bytes = change.retention_bytes.or(self.retention_bytes);
        self
    }

    /// Leaves an option to the server again; whether there is such an option.
    pub fn reset(&mut self, name: &str) -> bool {
        match name {
            "durability" => self.durability = None,
            "retention" => self.retention_ms = None,
            "retention_size" => self.retention_bytes = None,
            _ => return false,
        }
        true
    }

    /// Whether everything is the server's.
    pub fn is_default(&self) -> bool {
        *self == Retention::default()
    }

    /// Whether rows may go.
    pub fn forgets(&self) -> bool {
        self.retention_ms.is_some() || self.retention_bytes.is_some()
    }

    /// What the log goes by.
    pub fn for_log(&self) -> RelationOptions {
        RelationOptions {
            durability: self.durability,
            retention_ms: self.retention_ms,
            retention_bytes: self.retention_bytes,
        }
    }

    /// As CREATE has it: the options behind the columns.
    pub fn options(&self) -> Vec<String> {
        let durability = self.durability.map(|level| format!("durability = '{level}'"));
        let time = self
            .retention_ms
            .map(|ms| format!("retention = '{} milliseconds'", ms));
        let time = match self.retention_ms {
            Some(ms) if ms % 86_400_000 == 0 => Some(format!("retention = '{} days'", ms / 86_400_000)),
            Some(ms) if ms % 1_000 == 0 => Some(format!("retention = '{} seconds'", ms / 1_000)),
            _ => time,
        };
        let size = self
            .retention_bytes
            .map(|bytes| format!("retention_size = '{bytes}B'"));
        durability.into_iter().chain(time).chain(size).collect()
    }
}
