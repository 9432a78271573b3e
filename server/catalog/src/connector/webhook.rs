//! `connector = 'webhook'`: rows that another service sends over HTTP, signed with a secret that both know.
//!
//! The catalog has the place of the secret, an environment variable or a file, and never the secret.

use std::path::PathBuf;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::options::{Given, invalid};

/// The longest secret.
const SECRET_BYTES_MAX: usize = 4_096;

/// How requests for a stream are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub secret: Secret,
    pub check: Check,
    /// The header with the signature or the token, in lower case.
    pub header: String,
    /// What stands before it in the header.
    pub prefix: String,
    /// The header that tells two deliveries apart, in lower case; without it, each request is another one.
    pub id_header: Option<String>,
}

/// Where the secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// An environment variable of the server.
    Env(String),
    /// A file that the server can read; a line feed at its end does not count.
    File(PathBuf),
}

/// What shows that a request comes from somebody who knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// HMAC-SHA256 of the body, in hexadecimal digits.
    HmacHex,
    /// The same in base64.
    HmacBase64,
    /// The secret itself.
    Token,
}

impl Webhook {
    pub(super) fn new(given: &mut Given<'_>) -> SqlResult<Webhook> {
        let secret = match (given.text("secret.env"), given.text("secret.file")) {
            (Some(name), None) if is_variable(name) => Secret::Env(name.to_owned()),
            (Some(name), None) => {
                return Err(invalid(
                    "secret.env",
                    name,
                    "it must be the name of an environment variable",
                ));
            }
            (None, Some(path)) if path.starts_with('/') => Secret::File(path.into()),
            (None, Some(path)) => return Err(invalid("secret.file", path, "it must be an absolute path")),
            (None, None) => {
                return Err(given.missing(
                    "secret.env",
                    "the name of an environment variable with the secret; or use secret.file",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    "options \"secret.env\" and \"secret.file\" exclude each other",
                ));
            }
        };
        let checks = [
            ("hmac-sha256", Check::HmacHex),
            ("hmac-sha256-base64", Check::HmacBase64),
            ("token", Check::Token),
        ];
        let check = given.one_of("signature", &checks)?.unwrap_or(Check::HmacHex);
        let (header, prefix) = match check {
            Check::HmacHex => ("x-hub-signature-256", "sha256="),
            Check::HmacBase64 => ("x-signature", ""),
            Check::Token => ("authorization", "Bearer "),
        };
        let own = given.text("signature.header");
        // A header of another name has nothing in front, unless it is said.
        let prefix = given
            .text("signature.prefix")
            .unwrap_or(if own.is_some() { "" } else { prefix });
        Ok(Webhook {
            secret,
            check,
            header: name_of_header("signature.header", own.unwrap_or(header))?,
            prefix: prefix.to_owned(),
            id_header: given
                .text("id.header")
                .map(|name| name_of_header("id.header", name))
                .transpose()?,
        })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn name_of_header(option: &str, name: &str) -> SqlResult<String> {
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match is_name {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(invalid(option, name, "it must be the name of a header")),
    }
}

impl Secret {
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
                format!("the secret of a webhook cannot be read from {what}: {why}"),
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
