//! Secrets of connectors: the definition has the place, which is a secret of the catalog, an environment variable or a file, and never the
//! secret itself.

use std::path::PathBuf;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use super::options::{Given, invalid};
use crate::secret::Secrets;

/// The longest secret.
pub const SECRET_BYTES_MAX: usize = 4_096;

/// Where the secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// One that CREATE SECRET made.
    Kept(KeptSecret),
    /// An environment variable of the server.
    Env(String),
    /// A file that the server can read; a line feed at its end does not count.
    File(PathBuf),
}

/// A secret of the catalog, as options have it: under its identity, and the name that it had then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSecret {
    pub id: ObjectId,
    pub name: String,
    secrets: Secrets,
}

impl KeptSecret {
    /// What stands behind the name of an option whose value is in a secret.
    pub const SUFFIX: &str = ".from_secret";

    /// As the value of an option.
    pub fn value(id: ObjectId, name: &str) -> String {
        format!("{id} {name}")
    }

    /// The identity and the name that a value says.
    pub fn parse(value: &str) -> Option<(ObjectId, &str)> {
        let (id, name) = value.split_once(' ')?;
        Some((ObjectId(id.parse().ok()?), name))
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Secret {
    /// What `name = SECRET ..`, `name.env` or `name.file` says, if one of them is there.
    ///
    /// # Errors
    /// Two are, one names no secret, variable or file, or the secret itself is there.
    pub(super) fn given(given: &mut Given<'_>, name: &str) -> SqlResult<Option<Secret>> {
        let secrets = given.secrets().clone();
        let (kept, env, file) = (
            format!("{name}{}", KeptSecret::SUFFIX),
            format!("{name}.env"),
            format!("{name}.file"),
        );
        if given.text(name).is_some() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("option \"{name}\" is not supported: everybody who sees the catalog would see it"),
            )
            .with_hint(format!(
                "Use CREATE SECRET s AS '..' and {name} = SECRET s, {env} for the name of an environment variable of the \
                 server, or {file} for a file."
            )));
        }
        let found: Vec<(&str, &str)> = [&*kept, &*env, &*file]
            .into_iter()
            .filter_map(|option| Some((option, given.text(option)?)))
            .collect();
        match found[..] {
            [] => Ok(None),
            [(option, value)] if option == kept => match KeptSecret::parse(value) {
                Some((id, name)) => Ok(Some(Secret::Kept(KeptSecret {
                    id,
                    name: name.to_owned(),
                    secrets,
                }))),
                None => Err(invalid(option, value, "it must be the name of a secret")),
            },
            [(option, variable)] if option == env => match is_variable(variable) {
                true => Ok(Some(Secret::Env(variable.to_owned()))),
                false => Err(invalid(
                    option,
                    variable,
                    "it must be the name of an environment variable",
                )),
            },
            [(option, path)] => match path.starts_with('/') {
                true => Ok(Some(Secret::File(path.into()))),
                false => Err(invalid(option, path, "it must be an absolute path")),
            },
            [(first, _), (second, _), ..] => Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("options \"{first}\" and \"{second}\" exclude each other"),
            )),
        }
    }

    /// The secret as it is now. A file is read.
    ///
    /// # Errors
    /// It is not there, empty, or too long; one of the catalog cannot be opened.
    pub fn read(&self) -> SqlResult<Vec<u8>> {
        let (what, read) = match self {
            Secret::Kept(kept) => return kept.secrets.open(kept.id),
            Secret::Env(name) => (
                format!("environment variable {name}"),
                std::env::var(name)
                    .map(String::into_bytes)
                    .map_err(|_| "it is not set".to_owned()),
            ),
            Secret::File(path) => (
                format!("file \"{}\"", path.display()),
                std::fs::read(path).map_err(|error| error.to_string()),
            ),
        };
        let read = read.map(|mut bytes| {
            while matches!(bytes.last(), Some(b'\n' | b'\r')) {
                bytes.pop();
            }
            bytes
        });
        let failed = |why: &str| {
            SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                format!("a secret cannot be read from {what}: {why}"),
            )
        };
        match read {
            Ok(bytes) if bytes.is_empty() => Err(failed("it is empty")),
            Ok(bytes) if bytes.len() > SECRET_BYTES_MAX => Err(failed("it is too long")),
            Ok(bytes) => Ok(bytes),
            Err(why) => Err(failed(&why)),
        }
    }
}
