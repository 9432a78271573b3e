//! Secrets of connectors: the catalog has the place, an environment variable or a file, and never the secret.

use std::path::PathBuf;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::options::{Given, invalid};

/// The longest secret.
const SECRET_BYTES_MAX: usize = 4_096;

/// Where the secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// An environment variable of the server.
    Env(String),
    /// A file that the server can read; a line feed at its end does not count.
    File(PathBuf),
}

/// The error for a secret that is an option itself.
pub(super) fn in_the_open(option: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("option \"{option}\" is not supported: everybody who sees the catalog would see it"),
    )
    .with_hint(format!(
        "Use {option}.env for the name of an environment variable of the server, or {option}.file for a file."
    ))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Secret {
    /// What `name.env` or `name.file` says, if one of them is there.
    ///
    /// # Errors
    /// Both are, or it names no variable or file.
    pub(super) fn given(given: &mut Given<'_>, name: &str) -> SqlResult<Option<Secret>> {
        let (env, file) = (format!("{name}.env"), format!("{name}.file"));
        match (given.text(&env), given.text(&file)) {
            (Some(variable), None) if is_variable(variable) => Ok(Some(Secret::Env(variable.to_owned()))),
            (Some(variable), None) => Err(invalid(
                &env,
                variable,
                "it must be the name of an environment variable",
            )),
            (None, Some(path)) if path.starts_with('/') => Ok(Some(Secret::File(path.into()))),
            (None, Some(path)) => Err(invalid(&file, path, "it must be an absolute path")),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("options \"{env}\" and \"{file}\" exclude each other"),
            )),
        }
    }

    /// The secret as it is now. A file is read.
    ///
    /// # Errors
    /// It is not there, empty, or too long.
    pub fn read(&self) -> SqlResult<Vec<u8>> {
        let (what, read) = match self {
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
