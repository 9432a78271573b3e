//! What sessions of a role may take of the server at most: ALTER ROLE .. SET (..).
//!
//! Settings are where a session begins, and it may change them; limits are not the session's, and it cannot.

use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::{SHARE_DEFAULT, SHARE_MAX};
use serde::{Deserialize, Serialize};

use crate::settings::duration_ms;

/// See the module. What is `None` has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Its part of the processor where others want some too, compared with theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_share: Option<u32>,
    /// What all its queries may have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// How urgent its queries may be, by the number of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_priority_max: Option<u8>,
    /// How long a statement may run, whatever the session says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement_timeout_max_ms: Option<u64>,
}

const CPU_SHARE: &str = "cpu_share";
const MEMORY_LIMIT: &str = "memory_limit";
const PRIORITY_MAX: &str = "query_priority_max";
const TIMEOUT_MAX: &str = "statement_timeout_max";

/// The names of all limits.
pub const NAMES: [&str; 4] = [CPU_SHARE, MEMORY_LIMIT, PRIORITY_MAX, TIMEOUT_MAX];

fn invalid(name: &str, value: &str, can_be: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("invalid value for parameter \"{name}\": \"{value}\""),
    )
    .with_hint(format!("It can be {can_be}."))
}

impl Limits {
    /// The limit that a word in a list of limits stands for; `None`: there is none of that name.
    pub fn named(word: &str) -> Option<&'static str> {
        let word = match word {
            "statement_timeout" => TIMEOUT_MAX,
            word => word,
        };
        NAMES.into_iter().find(|name| *name == word)
    }

    /// Sets one; `None`: there is no such limit any more.
    ///
    /// # Errors
    /// It is none of [`NAMES`], or cannot be that.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> SqlResult<()> {
        match name {
            CPU_SHARE => {
                let read = |text: &str| {
                    let share = text.parse().ok().filter(|share| (1..=SHARE_MAX).contains(share));
                    let can_be = format!(
                        "a number from 1 to {SHARE_MAX}, where roles without one have {SHARE_DEFAULT}"
                    );
                    share.ok_or_else(|| invalid(name, text, &can_be))
                };
                self.cpu_share = value.map(read).transpose()?;
            }
            MEMORY_LIMIT => {
                let read = |text: &str| {
                    let bytes = units::size(text).ok().filter(|bytes| *bytes > 0);
                    bytes.ok_or_else(|| invalid(name, text, "a size such as 100MB"))
                };
                self.memory_limit_bytes = value.map(read).transpose()?;
            }
            PRIORITY_MAX => {
                let read = |text: &str| {
                    let classes = QueryClass::ALL.into_iter();
                    let class = classes
                        .clone()
                        .find(|class| class.to_string() == text.to_lowercase());
                    let class = class.map(|class| class as u8);
                    class.ok_or_else(|| invalid(name, text, "stream, interactive or batch"))
                };
                self.query_priority_max = value.map(read).transpose()?;
            }
            TIMEOUT_MAX => {
                let read = |text: &str| {
                    let millis = duration_ms(text).filter(|millis| *millis > 0);
                    millis.ok_or_else(|| invalid(name, text, "a time such as 30s"))
                };
                self.statement_timeout_max_ms = value.map(read).transpose()?;
            }
            other => {
                return Err(SqlError::new(
                    SqlState::UndefinedObject,
                    format!("there is no limit \"{other}\" of a role"),
                )
                .with_hint(format!("There are {}.", NAMES.join(", "))));
            }
        }
        Ok(())
    }

    /// Those that there are, as they may be written.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let class = |number| QueryClass::of_number(number).to_string();
        let all = [
            (CPU_SHARE, self.cpu_share.map(|share| share.to_string())),
            (MEMORY_LIMIT, self.memory_limit_bytes.map(units::size_text)),
            (PRIORITY_MAX, self.query_priority_max.map(class)),
            (
                TIMEOUT_MAX,
                self.statement_timeout_max_ms.map(|millis| format!("{millis}ms")),
            ),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        *self == Limits::default()
    }

    /// The class of a query that would like to be of this one.
    pub fn class(&self, wanted: QueryClass) -> QueryClass {
        self.query_priority_max
            .map_or(wanted, |most| wanted.max(QueryClass::of_number(most)))
    }

    /// How long a statement may run whose session would let it run for so long.
    pub fn timeout(&self, wanted: Option<Duration>) -> Option<Duration> {
        let most = self.statement_timeout_max_ms.map(Duration::from_millis);
        wanted.into_iter().chain(most).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_shown_and_taken_away() {
        let mut limits = Limits::default();
        let given = [
            (CPU_SHARE, "50"),
            (MEMORY_LIMIT, "100MB"),
            (PRIORITY_MAX, "batch"),
            (TIMEOUT_MAX, "2000ms"),
        ];
        for (name, value) in given {
            limits.set(name, Some(value)).unwrap();
        }
        let shown = limits.shown();
        assert_eq!(
            shown
                .iter()
                .map(|(name, text)| (*name, text.as_str()))
                .collect::<Vec<_>>(),
            given
        );
        for (name, value) in [
            (CPU_SHARE, "0"),
            (CPU_SHARE, "10001"),
            (CPU_SHARE, "half"),
            (MEMORY_LIMIT, "0"),
            (MEMORY_LIMIT, "much"),
            (PRIORITY_MAX, "high"),
            (TIMEOUT_MAX, "0"),
            (TIMEOUT_MAX, "never"),
            ("durability", "off"),
        ] {
            let before = limits;
            let error = limits.set(name, Some(value)).unwrap_err();
            assert!(error.hint.is_some(), "{error:?}");
            assert_eq!(limits, before);
        }
        for (name, _) in given {
            limits.set(name, None).unwrap();
        }
        assert!(limits.are_none());
        assert_eq!(Limits::named("statement_timeout"), Some(TIMEOUT_MAX));
        assert_eq!(Limits::named("work_mem"), None);
    }

    #[test]
    fn sessions_stay_within_them() {
        let mut limits = Limits::default();
        let second = Duration::from_secs(1);
        assert_eq!(limits.class(QueryClass::Stream), QueryClass::Stream);
        assert_eq!(limits.timeout(None), None);
        limits.set(PRIORITY_MAX, Some("interactive")).unwrap();
        limits.set(TIMEOUT_MAX, Some("1s")).unwrap();
        assert_eq!(limits.class(QueryClass::Stream), QueryClass::Interactive);
        assert_eq!(limits.class(QueryClass::Batch), QueryClass::Batch);
        assert_eq!(limits.timeout(None), Some(second));
        assert_eq!(limits.timeout(Some(second / 2)), Some(second / 2));
        assert_eq!(limits.timeout(Some(second * 2)), Some(second));
    }
}
