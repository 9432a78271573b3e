//! Where the schemas of records are kept: a schema registry as Confluent's, Apicurio's, Karapace's and Redpanda's are.

use std::path::PathBuf;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::options::{Given, invalid};
use super::secret::Secret;

const URL: &str = "schema.registry";
const USER: &str = "schema.registry.username";
const CA: &str = "schema.registry.ssl.ca.location";
const PASSWORD: &str = "schema.registry.password";

/// A registry, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlace {
    /// `http://host:port`, without a slash at the end; of several any one answers.
    pub urls: Vec<String>,
    /// A user, and where the password is.
    pub user: Option<(String, Secret)>,
    /// A PEM file with the authority that signed the registry's certificate; none: one that the system knows.
    pub ca: Option<PathBuf>,
}

impl RegistryPlace {
    /// What the options say, if they name a registry.
    ///
    /// # Errors
    /// They name none and one is `needed`, or an option has a value that it cannot have.
    pub(crate) fn given(given: &mut Given<'_>, needed: bool) -> SqlResult<Option<RegistryPlace>> {
        let urls = given.text(URL);
        let user = given.text(USER);
        let password = Secret::given(given, PASSWORD)?;
        let ca = given.text(CA);
        let Some(text) = urls else {
            if needed {
                return Err(given.missing(URL, "'http://host:8081', several with commas between"));
            }
            return match user.is_some() || password.is_some() || ca.is_some() {
                true => Err(not_for_this()),
                false => Ok(None),
            };
        };
        if !needed {
            return Err(not_for_this());
        }
        if let Some(path) = ca.filter(|path| !path.starts_with('/')) {
            return Err(invalid(CA, path, "it must be an absolute path"));
        }
        let user = match (user, password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some((user.to_owned(), password)),
            (Some(_), None) => {
                return Err(given.missing(
                    &format!("{PASSWORD}.env"),
                    "the name of an environment variable with the password; or use the same with .file",
                ));
            }
            (None, Some(_)) => return Err(given.missing(USER, "the name of a user")),
        };
        let urls: Vec<String> = text
            .split(',')
            .map(|url| url.trim().trim_end_matches('/').to_owned())
            .collect();
        for url in &urls {
            let host = url
                .strip_prefix("http://")
                .or_else(|| url.strip_prefix("https://"));
            let is_url = host.is_some_and(|host| {
                !host.is_empty() && !host.starts_with('/') && !url.contains(['@', '?', '#', ' '])
            });
            if !is_url {
                let why = "it must be http://host:port or https://host:port, several with commas between, \
                           without a user";
                return Err(invalid(URL, text, why));
            }
        }
        Ok(Some(RegistryPlace {
            urls,
            user,
            ca: ca.map(PathBuf::from),
        }))
    }
}

fn not_for_this() -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("option \"{URL}\" and those that begin with it are for ENCODE AVRO and ENCODE PROTOBUF"),
    )
}
