//! The settings of a session: what SET, SHOW, RESET and set_config work on.
//!
//! A setting that exists has a row in [`KNOWN`]. Those that only drivers care about are accepted and kept, so that SHOW
//! tells what SET said.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::catalog::flow::{self, FlowDef};
use crate::config::units;
use crate::error::names::did_you_mean;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::system::SERVER_VERSION;
use crate::types::zone::Zone;

/// What a setting may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Any text.
    Text,
    /// on or off.
    Boolean,
    /// A whole number.
    Integer,
    /// Milliseconds, or a number with a unit; 0 is none.
    Duration,
    /// Flow control of new views.
    Flow,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// It is the server's ([`crate::database::tuning`]): sessions only see it.
    Server,
    /// It cannot be changed.
    Fixed,
}

/// A setting that exists.
#[derive(Debug)]
pub struct Known {
    /// Its name, as SHOW ALL lists it.
    pub name: &'static str,
    /// Its value at the start.
    pub default: &'static str,
    form: Form,
    /// What it does.
    pub description: &'static str,
}

const fn known(name: &'static str, default: &'static str, form: Form, description: &'static str) -> Known {
    Known {
        name,
        default,
        form,
        description,
    }
}

/// Every setting, by name.
pub const KNOWN: &[Known] = &[
    known(
        "application_name",
        "",
        Form::Text,
        "What the client calls itself.",
    ),
    known(
        "background_ddl",
        "off",
        Form::Boolean,
        "Whether CREATE MATERIALIZED VIEW returns before the view is live.",
    ),
    known(
        "backfill_rate_limit",
        "default",
        Form::Text,
        "Rows a second that a back-fill may read.",
    ),
    known(
        "batch_interval",
        "auto",
        Form::Server,
        "How long an epoch collects input.",
    ),
    known(
        "bytea_output",
        "hex",
        Form::OneOf(&["hex"]),
        "How bytea is written.",
    ),
    known(
        "check_function_bodies",
        "on",
        Form::Boolean,
        "Accepted for drivers.",
    ),
    known(
        "checkpoint_interval",
        "10s",
        Form::Server,
        "How often state is put into files from which the next start goes on.",
    ),
    known(
        "client_encoding",
        "UTF8",
        Form::Text,
        "The encoding of the client: always UTF8.",
    ),
    known(
        "client_min_messages",
        "notice",
        Form::OneOf(&[
            "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error",
        ]),
        "The least severe messages that are sent to the client.",
    ),
    known(
        "cyclic_joins",
        "auto",
        Form::OneOf(&["auto", "binary", "generic"]),
        "How queries join cycles of relations: all at once, by binary joins, or as their sizes say.",
    ),
    known(
        "DateStyle",
        "ISO, MDY",
        Form::Text,
        "How dates are written: always ISO.",
    ),
    known(
        "default_transaction_isolation",
        "read committed",
        Form::OneOf(&["read committed", "read uncommitted"]),
        "The isolation of new transactions.",
    ),
    known(
        "default_transaction_read_only",
        "off",
        Form::Boolean,
        "Whether new transactions may change nothing.",
    ),
    known(
        "durability",
        "group",
        Form::Server,
        "What an acknowledged write survives.",
    ),
    known(
        "extra_float_digits",
        "1",
        Form::Integer,
        "Accepted for drivers: floats are always written exactly.",
    ),
    known(
        "flush_writes",
        "on",
        Form::Server,
        "Whether files that queries spill and checkpoints are written through to the device.",
    ),
    known(
        flow::BATCHES,
        "auto",
        Form::Flow,
        "Batches that a task of a new view may have in flight where rows multiply, or off.",
    ),
    known(flow::BATCH_ROWS, "auto", Form::Flow, "Rows of such a batch."),
    known(
        "group_overhead_bounds",
        "5%,10%",
        Form::Server,
        "Coordination overhead between which the group size is kept.",
    ),
    known(
        "group_size",
        "auto",
        Form::Server,
        "Epochs that are scheduled at once.",
    ),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Form::Duration,
        "How long a session may do nothing inside a transaction before it is ended; 0 is for ever.",
    ),
    known(
        "idle_session_timeout",
        "0",
        Form::Duration,
        "How long a session may do nothing outside of a transaction before it is ended; 0 is for ever.",
    ),
    known(
        "integer_datetimes",
        "on",
        Form::Fixed,
        "Times are held as integers.",
    ),
    known(
        "IntervalStyle",
        "postgres",
        Form::OneOf(&["postgres"]),
        "How intervals are written.",
    ),
    known(
        "lock_timeout",
        "0",
        Form::Duration,
        "How long a statement waits for a lock; 0 is for ever.",
    ),
    known(
        "max_identifier_length",
        "63",
        Form::Fixed,
        "The longest name that clients should expect.",
    ),
    known(
        "memory_limit",
        "auto",
        Form::Server,
        "Memory of the process: auto is 70 % of the machine's.",
    ),
    known(
        "pipeline_spread",
        "auto",
        Form::Server,
        "Workers over which the views of a pipeline are spread.",
    ),
    known(
        "query_priority",
        "interactive",
        Form::OneOf(&["stream", "interactive", "batch"]),
        "The class in which queries are scheduled.",
    ),
    known(
        "read_consistency",
        "acknowledged",
        Form::OneOf(&["acknowledged", "snapshot"]),
        "Whether a query waits for all acknowledged writes, or reads the last committed epoch.",
    ),
    known("row_security", "on", Form::Boolean, "Accepted for drivers."),
    known(
        "recovery_reads",
        "wait",
        Form::Server,
        "What reads see after a start until the log is replayed.",
    ),
    known(
        "scheduler_policy",
        "lma",
        Form::Server,
        "Who goes first on a core, and who is paused for whom.",
    ),
    known(
        "search_path",
        "\"$user\", public",
        Form::Text,
        "The schemas in which names are looked for.",
    ),
    known(
        "server_encoding",
        "UTF8",
        Form::Fixed,
        "The encoding of the server.",
    ),
    known(
        "server_version",
        SERVER_VERSION,
        Form::Fixed,
        "The version of PostgreSQL that millrace follows.",
    ),
    known(
        "server_version_num",
        "150000",
        Form::Fixed,
        "The same as a number.",
    ),
    known(
        "session_authorization",
        "millrace",
        Form::Fixed,
        "The user of the session.",
    ),
    known(
        "sliding_windows",
        "panes",
        Form::OneOf(&["panes", "recompute"]),
        "How new views keep overlapping windows: put together from shared panes where that can be, or each by itself.",
    ),
    known(
        "standard_conforming_strings",
        "on",
        Form::OneOf(&["on"]),
        "Backslashes in strings are plain.",
    ),
    known(
        "statement_timeout",
        "0",
        Form::Duration,
        "How long a statement may run; 0 is for ever.",
    ),
    known(
        "suspension_max",
        "1s",
        Form::Server,
        "How long a class of work gets nothing because of more urgent work at the most.",
    ),
    known("synchronous_commit", "on", Form::Text, "Accepted for drivers."),
    known(
        "TimeZone",
        "UTC",
        Form::Text,
        "The zone in which timestamptz is read and shown.",
    ),
    known(
        "transaction_isolation",
        "read committed",
        Form::OneOf(&["read committed", "read uncommitted"]),
        "The isolation of the transaction.",
    ),
    known(
        "transaction_read_only",
        "off",
        Form::Boolean,
        "Whether the transaction may change nothing.",
    ),
    known(
        "undisturbed_time",
        "10ms",
        Form::Server,
        "How long work that has waited for suspension_max runs without being paused.",
    ),
    known(
        "write_timeout",
        "30s",
        Form::Duration,
        "How long a write waits for room while views are behind or memory is short; 0 is for ever.",
    ),
    known("xmloption", "content", Form::Text, "Accepted for drivers."),
];

/// Settings whose changes the client is told.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "integer_datetimes",
    "IntervalStyle",
    "search_path",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// The values of a session's settings.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Those that are not at their default, by lower-case name.
    changed: BTreeMap<String, String>,
    /// What the session began with: RESET goes back to it.
    initial: BTreeMap<String, String>,
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedObject,
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint_opt(did_you_mean(name, KNOWN.iter().map(|known| known.name)))
}

/// A setting with a dot in its name belongs to whoever made it up, and may hold anything.
fn is_custom(name: &str) -> bool {
    name.contains('.')
}

impl Settings {
    /// The settings at the start of a session of this user.
    pub fn new(user: &str) -> Self {
        let mut settings = Settings::default();
        settings
            .changed
            .insert("session_authorization".into(), user.to_string());
        settings.initial = settings.changed.clone();
        settings
    }

    /// From now on RESET goes back to the values of now.
    pub fn keep_as_initial(&mut self) {
        self.initial = self.changed.clone();
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn get(&self, name: &str) -> SqlResult<String> {
        let key = name.to_lowercase();
        if let Some(value) = self.changed.get(&key) {
            return Ok(value.clone());
        }
        find(name)
            .map(|known| known.default.to_string())
            .ok_or_else(|| undefined(name))
    }

    /// Changes a setting. Returns its name as it is reported to the client, if that is done for it.
    ///
    /// # Errors
    /// There is no such setting, it cannot be changed, or not to this value.
    pub fn set(&mut self, name: &str, value: &str) -> SqlResult<Option<&'static str>> {
        let key = name.to_lowercase();
        let Some(known) = find(name) else {
            if is_custom(name) {
                self.changed.insert(key, value.to_string());
                return Ok(None);
            }
            return Err(undefined(name));
        };
        let value = checked(known, value)?;
        self.changed.insert(key, value);
        Ok(REPORTED.iter().find(|reported| **reported == known.name).copied())
    }

    /// Puts a setting back. Returns its name as [`Self::set`] does.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn reset(&mut self, name: &str) -> SqlResult<Option<&'static str>> {
        let key = name.to_lowercase();
        if find(name).is_none() && !is_custom(name) {
            return Err(undefined(name));
        }
        match self.initial.get(&key) {
            Some(value) => self.changed.insert(key, value.clone()),
            None => self.changed.remove(&key),
        };
        Ok(REPORTED
            .iter()
            .find(|reported| reported.eq_ignore_ascii_case(name))
            .copied())
    }

    /// Puts all settings back.
    pub fn reset_all(&mut self) {
        self.changed = self.initial.clone();
    }

    /// Every setting with its value and description, by name.
    pub fn all(&self) -> Vec<(String, String, &'static str)> {
        let mut all: Vec<_> = KNOWN
            .iter()
            .map(|known| {
                (
                    known.name.to_string(),
                    self.get(known.name).unwrap_or_default(),
                    known.description,
                )
            })
            .collect();
        let custom = self.changed.iter().filter(|(name, _)| find(name).is_none());
        all.extend(custom.map(|(name, value)| (name.clone(), value.clone(), "Made by the session.")));
        all.sort_by_key(|(name, _, _)| name.to_lowercase());
        all
    }

    /// What the client is told at the start.
    pub fn reported(&self) -> Vec<(String, String)> {
        REPORTED
            .iter()
            .map(|name| ((*name).to_string(), self.get(name).unwrap_or_default()))
            .collect()
    }

    /// The schemas of the search path, `"$user"` replaced.
    pub fn search_path(&self, user: &str) -> Vec<String> {
        let text = self.get("search_path").unwrap_or_default();
        split_list(&text)
            .into_iter()
            .map(|schema| {
                if schema == "$user" {
                    user.to_string()
                } else {
                    schema
                }
            })
            .collect()
    }

    /// How long a statement may run.
    pub fn statement_timeout(&self) -> Option<Duration> {
        self.timeout("statement_timeout")
    }

    /// How long a statement waits for a lock.
    pub fn lock_timeout(&self) -> Option<Duration> {
        self.timeout("lock_timeout")
    }

    /// How long a write waits for room.
    pub fn write_timeout(&self) -> Option<Duration> {
        self.timeout("write_timeout")
    }

    /// A setting that is a time; none where it is 0.
    pub fn timeout(&self, name: &str) -> Option<Duration> {
        let text = self.get(name).ok()?;
        let millis = duration_ms(&text)?;
        (millis > 0).then(|| Duration::from_millis(millis))
    }
}

/// The elements of a list of names, unquoted.
pub fn split_list(text: &str) -> Vec<String> {
    let mut out = vec![];
    let mut current = String::new();
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(std::mem::take(&mut current).trim().to_string()),
            other => current.push(other),
        }
    }
    out.push(current.trim().to_string());
    out.retain(|name| !name.is_empty());
    out
}

/// A list of names as `search_path` shows it.
pub fn join_list(names: &[String]) -> String {
    let plain = |name: &str| {
        !name.is_empty()
            && name.chars().all(|character| {
                character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_'
            })
    };
    let shown: Vec<String> = names
        .iter()
        .map(|name| {
            if plain(name) {
                name.clone()
            } else {
                format!("\"{name}\"")
            }
        })
        .collect();
    shown.join(", ")
}

fn checked(known: &Known, value: &str) -> SqlResult<String> {
    let invalid = |hint: Option<String>| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("invalid value for parameter \"{}\": \"{value}\"", known.name),
        )
        .with_hint_opt(hint)
    };
    match known.form {
        Form::Fixed => Err(SqlError::new(
            SqlState::CantChangeRuntimeParam,
            format!("parameter \"{}\" cannot be changed", known.name),
        )),
        Form::Server => Err(SqlError::new(
            SqlState::CantChangeRuntimeParam,
            format!("parameter \"{}\" cannot be changed in a session", known.name),
        )
        .with_hint(format!(
            "ALTER SYSTEM SET {} changes it for the server.",
            known.name
        ))),
        Form::Boolean => match crate::types::parse::boolean(value) {
            Some(value) => Ok(if value { "on" } else { "off" }.to_string()),
            None => Err(invalid(Some("It takes on or off.".to_string()))),
        },
        Form::Integer => match value.trim().parse::<i64>() {
            Ok(number) => Ok(number.to_string()),
            Err(_) => Err(invalid(Some("It takes a whole number.".to_string()))),
        },
        Form::Duration => match duration_ms(value) {
            Some(_) => Ok(value.trim().to_string()),
            None => Err(invalid(Some(
                "It takes milliseconds, or a time with its unit, such as 250ms, 5s or 2 hours, up to 24 days."
                    .to_string(),
            ))),
        },
        Form::Flow => {
            FlowDef::default().set(known.name, value)?;
            Ok(value.to_lowercase())
        }
        Form::OneOf(words) => {
            let lower = value.to_lowercase();
            match words.iter().find(|word| **word == lower) {
                Some(word) => Ok((*word).to_string()),
                None => Err(invalid(Some(format!("Available values: {}.", words.join(", "))))),
            }
        }
        Form::Text => match known.name {
            "client_encoding" => {
                let plain: String = value
                    .to_uppercase()
                    .chars()
                    .filter(char::is_ascii_alphanumeric)
                    .collect();
                match plain.as_str() {
                    "UTF8" | "UNICODE" | "SQLASCII" => Ok("UTF8".to_string()),
                    _ => Err(
                        SqlError::unsupported(format!("client encoding \"{value}\" is not supported"))
                            .with_hint("millrace speaks UTF8."),
                    ),
                }
            }
            "DateStyle" if !value.to_uppercase().contains("ISO") && !value.is_empty() => {
                let order = value.to_uppercase();
                if matches!(order.as_str(), "MDY" | "DMY" | "YMD" | "DEFAULT") {
                    Ok("ISO, MDY".to_string())
                } else {
                    Err(
                        SqlError::unsupported(format!("DateStyle \"{value}\" is not supported"))
                            .with_hint("Dates are written in ISO style."),
                    )
                }
            }
            "DateStyle" => Ok("ISO, MDY".to_string()),
            "TimeZone" => match Zone::parse_setting(value) {
                Some(Zone::Named(zone)) => Ok(zone.name().to_string()),
                Some(Zone::UTC) => Ok("UTC".to_string()),
                Some(Zone::Fixed(_)) => Ok(value.trim().to_string()),
                None => Err(invalid(None)),
            },
            _ => Ok(value.to_string()),
        },
    }
}

/// Milliseconds of `250`, `250ms`, `1.5 s`, `2 hours`.
fn duration_ms(text: &str) -> Option<u64> {
    let micros = match text.trim().parse::<f64>() {
        Ok(millis) => (millis * 1e3).round(),
        Err(_) => units::duration(text).ok()?.as_micros() as f64,
    };
    let millis = (micros / 1e3).round();
    // A time of more than 24 days is not what anybody means, and PostgreSQL refuses it as well.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..=2_147_483_647.0).contains(&millis).then_some(millis as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_shown_and_reset() {
        let mut settings = Settings::new("millrace");
        assert_eq!(settings.get("statement_timeout").unwrap(), "0");
        settings.set("STATEMENT_TIMEOUT", "2 s").unwrap();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(2)));
        for (text, seconds) in [
            ("1500", 1.5),
            ("250 ms", 0.25),
            ("1 day", 86_400.0),
            ("2 hours", 7_200.0),
        ] {
            settings.set("statement_timeout", text).unwrap();
            assert_eq!(
                settings.statement_timeout(),
                Some(Duration::from_secs_f64(seconds))
            );
        }
        settings.reset("statement_timeout").unwrap();
        assert_eq!(settings.statement_timeout(), None);
        assert_eq!(
            settings.set("timezone", "Europe/Berlin").unwrap(),
            Some("TimeZone")
        );
        settings.set("myapp.user", "7").unwrap();
        assert_eq!(settings.get("myapp.user").unwrap(), "7");
    }

    #[test]
    fn unknown_settings_and_values_are_refused() {
        let mut settings = Settings::new("millrace");
        let error = settings.set("statment_timeout", "1").unwrap_err();
        assert_eq!(error.code, SqlState::UndefinedObject);
        assert_eq!(
            error.hint.as_deref(),
            Some("Perhaps you meant \"statement_timeout\".")
        );
        assert_eq!(
            settings.set("statement_timeout", "1 year").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        assert_eq!(
            settings.set("server_version", "9").unwrap_err().code,
            SqlState::CantChangeRuntimeParam
        );
        assert_eq!(
            settings.set("query_priority", "high").unwrap_err().code,
            SqlState::InvalidParameterValue
        );
        assert_eq!(
            settings.set("client_encoding", "LATIN1").unwrap_err().code,
            SqlState::FeatureNotSupported
        );
    }

    #[test]
    fn the_search_path_is_a_list() {
        let mut settings = Settings::new("u");
        assert_eq!(settings.search_path("u"), ["u", "public"]);
        settings.set("search_path", "a, \"B c\"").unwrap();
        assert_eq!(settings.search_path("u"), ["a", "B c"]);
        assert_eq!(join_list(&["a".to_string(), "B c".to_string()]), "a, \"B c\"");
    }
}
