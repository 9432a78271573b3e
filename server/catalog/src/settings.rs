//! The settings of a session: what SET, SHOW, RESET and set_config work on.
//!
//! A setting that exists has a row in [`known`]. Those that only drivers care about are accepted and kept, so that SHOW
//! tells what SET said; those that are harmless in PostgreSQL and do nothing here are too, with a notice.

mod form;
mod harmless;
mod identity;
pub mod known;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::zone::Zone;
use millrace_postgres::units;

use crate::flow::FlowDef;
use form::Form;
use known::{Known, find};

pub use identity::Identity;

/// The longest value of a setting, in bytes: clients read some of them in messages of 30,000.
const VALUE_BYTES_MAX: usize = 16_384;
/// The most bytes of all settings that a session makes up, names and values.
const CUSTOM_BYTES_MAX: usize = 1 << 20;
/// Settings whose changes the client is told.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "search_path",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// The settings that say who the session is.
pub const IDENTITY: [&str; 3] = ["is_superuser", "role", "session_authorization"];
/// The value of `role` without SET ROLE.
pub const NO_ROLE: &str = "none";

/// The values of a session's settings.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Those that are not at their default, by lower-case name.
    changed: Arc<BTreeMap<String, String>>,
    /// What the session began with: RESET goes back to it.
    initial: Arc<BTreeMap<String, String>>,
    /// Who the session is, whatever its roles are called by now.
    identity: Identity,
}

/// What became of a setting that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Its name as it is reported to the client, if that is done for it.
    pub reported: Option<&'static str>,
    /// Its name, if it does nothing here.
    pub without_effect: Option<&'static str>,
}

/// A setting as it is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The value to which RESET puts it back.
    pub reset: String,
    /// What there is to know of it; none: the session made it up.
    pub known: Option<&'static Known>,
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedObject,
        format!("unrecognized configuration parameter \"{name}\""),
    )
    .with_hint_opt(did_you_mean(name, known::KNOWN.iter().map(|known| known.name)))
}

/// A setting with a dot in its name belongs to whoever made it up, and may hold anything.
fn is_custom(name: &str) -> bool {
    name.contains('.')
}

impl Settings {
    /// The settings at the start of a session of this user.
    pub fn new(user: &str) -> Self {
        let mut settings = Settings::default();
        settings.put("session_authorization", user.to_string());
        settings.keep_as_initial();
        settings
    }

    /// Who the session is, and as whom it acts, if that is somebody else; `session_user` and `role` are what they are called.
    pub fn identify(
        &mut self,
        identity: Identity,
        session_user: &str,
        role: Option<&str>,
        is_superuser: bool,
    ) {
        self.identity = identity;
        self.put("session_authorization", session_user.to_owned());
        self.put("role", role.unwrap_or(NO_ROLE).to_owned());
        self.put("is_superuser", if is_superuser { "on" } else { "off" }.to_owned());
    }

    /// Who the session is, and as whom it acts.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    fn put(&mut self, key: &str, value: String) {
        Arc::make_mut(&mut self.changed).insert(key.to_owned(), value);
    }

    /// From now on RESET goes back to the values of now.
    pub fn keep_as_initial(&mut self) {
        self.initial = Arc::clone(&self.changed);
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
            .map(|(known, _)| known.default.to_string())
            .ok_or_else(|| undefined(name))
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// There is no such setting, it cannot be changed, or not to this value.
    pub fn set(&mut self, name: &str, value: &str) -> SqlResult<Changed> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!(
                    "the value of parameter \"{name}\" is {} bytes long; at most {VALUE_BYTES_MAX} are accepted",
                    value.len()
                ),
            ));
        }
        let key = name.to_lowercase();
        let Some((known, is_harmless)) = find(name) else {
            if is_custom(name) {
                self.check_custom(&key, value)?;
                self.put(&key, value.to_string());
                return Ok(Changed {
                    reported: None,
                    without_effect: None,
                });
            }
            return Err(undefined(name));
        };
        self.put(&key, checked(known, value)?);
        Ok(Changed {
            reported: REPORTED.iter().find(|reported| **reported == known.name).copied(),
            without_effect: is_harmless.then_some(known.name),
        })
    }

    /// Refuses a setting that the session makes up when it has made up so many.
    fn check_custom(&self, key: &str, value: &str) -> SqlResult<()> {
        let others = self
            .changed
            .iter()
            .filter(|(other, _)| is_custom(other) && *other != key);
        let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        match bytes + key.len() + value.len() > CUSTOM_BYTES_MAX {
            true => Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!(
                    "the parameters that a session makes up can have at most {CUSTOM_BYTES_MAX} bytes in all"
                ),
            )
            .with_hint("RESET those that are no longer needed.")),
            false => Ok(()),
        }
    }

    /// Puts a setting back. Returns its name as it is reported to the client, if that is done for it.
    ///
    /// # Errors
    /// There is no such setting, or it cannot be changed.
    pub fn reset(&mut self, name: &str) -> SqlResult<Option<&'static str>> {
        let key = name.to_lowercase();
        if find(name).is_none() && !is_custom(name) {
            return Err(undefined(name));
        }
        let changed = Arc::make_mut(&mut self.changed);
        match self.initial.get(&key) {
            Some(value) => changed.insert(key, value.clone()),
            None => changed.remove(&key),
        };
        Ok(REPORTED
            .iter()
            .find(|reported| reported.eq_ignore_ascii_case(name))
            .copied())
    }

    /// Puts all settings back. Who the session is stays as it is.
    pub fn reset_all(&mut self) {
        let kept: Vec<(&str, String)> = IDENTITY
            .iter()
            .filter_map(|name| Some((*name, self.changed.get(*name)?.clone())))
            .collect();
        self.changed = Arc::clone(&self.initial);
        for (name, value) in kept {
            self.put(name, value);
        }
    }

    /// Whether all settings have the same values.
    pub fn is_same(&self, other: &Settings) -> bool {
        self.identity == other.identity
            && (Arc::ptr_eq(&self.changed, &other.changed) || self.changed == other.changed)
    }

    /// Every setting, by name.
    pub fn all(&self) -> Vec<Shown> {
        let shown = |name: &str, known: Option<&'static Known>| {
            let default = known.map_or("", |known| known.default);
            let key = name.to_lowercase();
            let value =
                |of: &BTreeMap<String, String>| of.get(&key).map_or(default, String::as_str).to_owned();
            Shown {
                name: name.to_owned(),
                value: value(&self.changed),
                reset: value(&self.initial),
                known,
            }
        };
        let mut all: Vec<Shown> = known::all().map(|known| shown(known.name, Some(known))).collect();
        let custom = self.changed.keys().filter(|name| find(name).is_none());
        all.extend(custom.map(|name| shown(name, None)));
        all.sort_by_key(|shown| shown.name.to_lowercase());
        all
    }

    /// What the transaction says of writing, for whoever reads all settings.
    pub fn set_transaction_read_only(&mut self) {
        self.put("transaction_read_only", "on".to_owned());
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

    /// How long a write waits for space.
    pub fn write_timeout(&self) -> Option<Duration> {
        self.timeout("write_timeout")
    }

    /// How much may wait for a client that follows a relation, in bytes.
    pub fn subscription_buffer(&self) -> usize {
        let bytes = self
            .get("subscription_buffer")
            .ok()
            .and_then(|text| units::size(&text).ok());
        bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(usize::MAX)
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

/// The settings in `options` of a start-up message: `-c name=value` and `--name=value`, separated by spaces; a backslash
/// takes the next character as it is.
///
/// # Errors
/// Something else is in it.
pub fn command_line(text: &str) -> SqlResult<Vec<(String, String)>> {
    let mut words = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, words.last_mut()) {
            ('\\', Some(word)) => word.extend(characters.next()),
            (character, _) if character.is_whitespace() => words.push(String::new()),
            (character, Some(word)) => word.push(character),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    let mut words = words.into_iter();
    let mut settings = vec![];
    while let Some(word) = words.next() {
        let given = match word.strip_prefix("-c").or_else(|| word.strip_prefix("--")) {
            Some("") if word == "-c" => words.next(),
            Some(given) => Some(given.to_owned()),
            None => None,
        };
        let Some((name, value)) = given.as_deref().and_then(|given| given.split_once('=')) else {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("invalid command-line argument for server process: {word}"),
            )
            .with_hint("Options have the form -c name=value."));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
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
        Form::Boolean => match millrace_postgres::types::parse::boolean(value) {
            Some(value) => Ok(if value { "on" } else { "off" }.to_string()),
            None => Err(invalid(Some("Valid values: on, off.".to_string()))),
        },
        Form::Integer => match value.trim().parse::<i64>() {
            Ok(number) => Ok(number.to_string()),
            Err(_) => Err(invalid(Some("Give a whole number.".to_string()))),
        },
        Form::Quantity => {
            let number = value
                .trim()
                .trim_end_matches(|c: char| c.is_ascii_alphabetic())
                .trim_end();
            match number.parse::<f64>() {
                Ok(_) => Ok(value.trim().to_string()),
                Err(_) => Err(invalid(None)),
            }
        }
        Form::Duration => match duration_ms(value) {
            Some(_) => Ok(value.trim().to_string()),
            None => Err(invalid(Some(
                "Give milliseconds, or a time with its unit, such as 250ms, 5s or 2 hours, up to 24 days."
                    .to_string(),
            ))),
        },
        Form::Size => match units::size(value) {
            Ok(_) => Ok(value.trim().to_string()),
            Err(why) => Err(invalid(Some(why))),
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
                            .with_hint("Only UTF8 is supported."),
                    ),
                }
            }
            "DateStyle" => {
                let words = value.split(',').map(|word| word.trim().to_ascii_uppercase());
                for word in words.filter(|word| !word.is_empty()) {
                    if !matches!(
                        word.as_str(),
                        "ISO" | "MDY" | "US" | "NONEURO" | "NONEUROPEAN" | "DEFAULT"
                    ) {
                        let message = format!("DateStyle \"{value}\" is not supported");
                        return Err(SqlError::unsupported(message).with_hint(
                            "The only style is \"ISO, MDY\": a month is written before its day.",
                        ));
                    }
                }
                Ok("ISO, MDY".to_string())
            }
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
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
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
    fn values_have_a_limit() {
        let mut settings = Settings::new("millrace");
        assert!(settings.set("search_path", &"a".repeat(VALUE_BYTES_MAX)).is_ok());
        for name in ["search_path", "application_name", "my.own"] {
            let error = settings
                .set(name, &"a".repeat(VALUE_BYTES_MAX + 1))
                .err()
                .unwrap();
            assert_eq!(error.code, SqlState::InvalidParameterValue, "{name}");
        }
    }

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
            settings.set("timezone", "Europe/Berlin").unwrap().reported,
            Some("TimeZone")
        );
        let changed = settings.set("Work_Mem", "64MB").unwrap();
        assert_eq!(changed.without_effect, Some("work_mem"));
        assert_eq!(settings.get("work_mem").unwrap(), "64MB");
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
            settings.set("work_mem", "much").unwrap_err().code,
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
    fn options_of_the_start_are_settings() {
        let given = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            command_line(r" -c search_path=a,\ b -cwork_mem=1MB  --statement-timeout=5s").unwrap(),
            [
                given("search_path", "a, b"),
                given("work_mem", "1MB"),
                given("statement_timeout", "5s")
            ]
        );
        assert_eq!(command_line("").unwrap(), []);
        for wrong in ["-c", "-x", "work_mem=1", "-c work_mem"] {
            assert_eq!(
                command_line(wrong).unwrap_err().code,
                SqlState::SyntaxError,
                "{wrong}"
            );
        }
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
