//! Reading the options of a connector: each is taken once, and what is left at the end is unknown.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use arrow::array::AsArray;
use arrow::datatypes::{Field, TimestampMicrosecondType};
use millrace_parser::ast::without_passwords;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::parse::interval::interval;
use millrace_postgres::types::{parse, timestamptz};

use crate::secret::Secrets;

/// The options of a connector that were not read yet.
pub struct Given<'a> {
    connector: &'a str,
    secrets: Secrets,
    left: BTreeMap<&'a str, &'a str>,
    /// What was asked for so far.
    known: Vec<String>,
}

impl<'a> Given<'a> {
    pub fn new(connector: &'a str, options: &'a BTreeMap<String, String>) -> Self {
        let options = options.iter().filter(|(name, _)| *name != "connector");
        Given {
            connector,
            secrets: Secrets::default(),
            left: options
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect(),
            known: vec![],
        }
    }

    /// The same, the secrets among which are opened so.
    #[must_use]
    pub fn with_secrets(self, secrets: &Secrets) -> Self {
        Given {
            secrets: secrets.clone(),
            ..self
        }
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The value of an option.
    pub fn text(&mut self, name: &str) -> Option<&'a str> {
        self.known.push(name.to_owned());
        self.left.remove(name)
    }

    /// The value of an option that has several names.
    ///
    /// # Errors
    /// It is given under two of them: which one counts nobody could tell.
    pub fn one_name(&mut self, names: &[&str]) -> SqlResult<Option<&'a str>> {
        let found: Vec<(&str, &'a str)> = (names.iter())
            .filter_map(|name| Some((*name, self.text(name)?)))
            .collect();
        match found[..] {
            [] => Ok(None),
            [(_, value)] => Ok(Some(value)),
            [(first, _), (second, _), ..] => Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("options \"{first}\" and \"{second}\" exclude each other"),
            )),
        }
    }

    /// Whether an option is there, and was not read yet.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// A whole number.
    pub fn number(&mut self, name: &str, range: RangeInclusive<u64>) -> SqlResult<Option<u64>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text
            .replace('_', "")
            .parse()
            .ok()
            .filter(|number| range.contains(number));
        let why = || {
            format!(
                "it must be a whole number from {} to {}",
                range.start(),
                range.end()
            )
        };
        number.map(Some).ok_or_else(|| invalid(name, text, &why()))
    }

    /// What random numbers follow from; 0 by default.
    pub fn seed(&mut self) -> SqlResult<u64> {
        Ok(self.number("seed", 0..=u64::MAX)?.unwrap_or_default())
    }

    /// A moment, in microseconds since 1970-01-01 00:00 UTC.
    pub fn time(&mut self, name: &str) -> SqlResult<Option<i64>> {
        let text = self.text(name);
        text.map(|text| time(text).map_err(|error| invalid(name, text, &error.message)))
            .transpose()
    }

    /// A length of time that is not negative, in microseconds.
    pub fn length(&mut self, name: &str) -> SqlResult<Option<u64>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let length = length(text).map_err(|why| invalid(name, text, &why))?;
        let length = u64::try_from(length).map_err(|_| invalid(name, text, "it must not be negative"))?;
        Ok(Some(length))
    }

    /// One of several words.
    pub(crate) fn one_of<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> SqlResult<Option<T>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        let all: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
        found
            .map(|(_, value)| Some(*value))
            .ok_or_else(|| invalid(name, text, &format!("it can be {}", all.join(", "))))
    }

    /// The error for an option that must be there.
    pub fn missing(&self, name: &str, what: &str) -> SqlError {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("connector \"{}\" needs option \"{name}\"", self.connector),
        )
        .with_hint(format!("It can be {what}."))
    }

    /// What was asked for, the options of columns once.
    fn options(&self) -> String {
        let mut options: Vec<String> = vec![];
        for name in &self.known {
            let option = match name
                .strip_prefix("fields.")
                .and_then(|field| field.rsplit_once('.'))
            {
                Some((_, option)) => format!("fields.<column>.{option}"),
                None => name.clone(),
            };
            if !options.contains(&option) {
                options.push(option);
            }
        }
        options.join(", ")
    }

    /// Refuses what nobody asked for.
    pub fn finish(self) -> SqlResult<()> {
        let Some(name) = self.left.keys().next() else {
            return Ok(());
        };
        Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("connector \"{}\" has no option \"{name}\"", self.connector),
        )
        .with_detail(format!("Its options are {}.", self.options()))
        .with_hint_opt(did_you_mean(name, self.known.iter().map(String::as_str))))
    }
}

/// The error for a value that an option cannot have.
pub fn invalid(name: &str, value: &str, why: &str) -> SqlError {
    let value = without_passwords(value);
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("invalid value for option \"{name}\": '{value}'"),
    )
    .with_detail(sentence(why))
}

/// `it must be a number` as `It must be a number.`
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), rest.as_str()),
        None => String::new(),
    }
}

/// A moment, in microseconds since 1970-01-01 00:00 UTC.
pub fn time(text: &str) -> SqlResult<i64> {
    let value = parse::value(&Field::new("", timestamptz(), false), Some(text))?;
    Ok(value.as_primitive::<TimestampMicrosecondType>().value(0))
}

/// A length of time, in microseconds.
pub fn length(text: &str) -> Result<i64, String> {
    let length = interval(text).map_err(|error| error.message)?;
    if length.months != 0 {
        return Err("months vary in length".to_owned());
    }
    let days = i64::from(length.days) * 86_400_000_000;
    Ok(days.saturating_add(length.nanoseconds / 1000))
}
