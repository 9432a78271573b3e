//! Where the configuration comes from: defaults < file < environment < flags.
//!
//! The file is TOML with the keys of [`KEYS`] at its top level; a key `memory_limit` is `MILLRACE_MEMORY_LIMIT` in the
//! environment and `--memory-limit` on the command line. A key that does not exist is an error that names the nearest that does; in
//! the environment it is a warning, because others put variables there too: for a service called millrace Kubernetes makes
//! `MILLRACE_PORT` and more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use figment::providers::{Env, Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use millrace_postgres::names;
use millrace_wire::config::Config;
use millrace_wire::config::keys::KEYS;

/// What environment variables begin with.
const PREFIX: &str = "MILLRACE_";
/// Variables with that prefix that are not keys: what is logged and how, and the path of the file.
const OTHER_VARIABLES: [&str; 3] = ["log", "log_format", "config"];

/// Flags of every command that looks at a configuration as `millrace serve` does. All but --config are configuration keys.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Data directory; created if it does not exist [default: ./millrace-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Address for PostgreSQL clients [default: 127.0.0.1:5433]
    #[arg(long, value_name = "ADDR")]
    pg: Option<String>,
    /// Address for HTTP [default: 127.0.0.1:8033]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl PlaceArgs {
    /// Those of a command that has no data directory and no clients.
    pub fn of_file(config: Option<PathBuf>) -> PlaceArgs {
        PlaceArgs {
            data: None,
            pg: None,
            http: None,
            config,
        }
    }

    /// The configuration with these flags, and others by their keys.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(&self, others: &[(&str, Option<&str>)]) -> Result<Config, ConfigError> {
        let own = [("data", &self.data), ("pg", &self.pg), ("http", &self.http)];
        let own = own.into_iter().map(|(key, value)| (key, value.as_deref()));
        let given = own.chain(others.iter().copied());
        let given = given.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
        load(self.config.as_deref(), given.collect())
    }

    /// The files that hold secrets, each with the keys by which it does: the configuration file, if there are any in it, and those
    /// that are named. A configuration that cannot be read has none.
    pub fn files_of_secrets(&self) -> Vec<(PathBuf, Vec<&'static str>)> {
        let mut found = vec![];
        let Some(path) = path_of_file(self.config.as_deref()) else {
            return files_named_in(&Figment::new());
        };
        let file = Figment::from(Toml::file_exact(&path));
        let inside = SECRET.into_iter().filter(|key| file.contains(key));
        let inside: Vec<&'static str> = inside.collect();
        if !inside.is_empty() {
            found.push((path, inside));
        }
        found.extend(files_named_in(&file));
        found
    }
}

/// The files that a configuration names for what is secret.
fn files_named_in(file: &Figment) -> Vec<(PathBuf, Vec<&'static str>)> {
    let environment = Figment::from(Env::prefixed(PREFIX).only(&FILES_OF_SECRETS));
    let figment = file.clone().merge(environment);
    let named = FILES_OF_SECRETS.into_iter().filter_map(|key| {
        let path = figment.extract_inner::<String>(key).ok()?;
        (!path.is_empty()).then(|| (PathBuf::from(path), vec![key]))
    });
    named.collect()
}

/// Where the configuration file is, if there is one.
fn path_of_file(given: Option<&Path>) -> Option<PathBuf> {
    given
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("MILLRACE_CONFIG").map(PathBuf::from))
}

/// What is wrong with a configuration, in one sentence with its remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The file could not be read or is not TOML.
    #[error("cannot read the configuration file {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// A key that does not exist.
    #[error("unknown configuration key \"{key}\" ({source_text}){}", nearest_text(.nearest))]
    UnknownKey {
        /// What was written.
        key: String,
        /// Where it was written.
        source_text: String,
        /// The nearest key that exists.
        nearest: Option<&'static str>,
    },
    /// A value that its key does not take.
    #[error("invalid value \"{value}\" for {key} ({source_text}): {reason}")]
    InvalidValue {
        /// The key.
        key: &'static str,
        /// What was written.
        value: String,
        /// Where it was written.
        source_text: String,
        /// What would be valid.
        reason: String,
    },
    /// The server would be open to the network.
    #[error(
        "{key} = \"{address}\" would let anyone on the network in: set a password (MILLRACE_PASSWORD, or \
         password in the configuration file), or use --insecure to allow it"
    )]
    Insecure {
        /// The key.
        key: &'static str,
        /// Where it would listen.
        address: SocketAddr,
    },
}

fn nearest_text(nearest: &Option<&'static str>) -> String {
    match nearest {
        Some(key) => format!("; did you mean \"{key}\"?"),
        None => "; `millrace serve --help` lists the keys".to_owned(),
    }
}

/// Puts the configuration together. `flags` holds the keys that were given on the command line.
///
/// # Errors
/// The file cannot be read, a key is unknown, a value is invalid, or the result would be open to the network
/// without saying so.
fn load(file: Option<&Path>, flags: BTreeMap<String, String>) -> Result<Config, ConfigError> {
    let file = path_of_file(file);
    let mut figment = Figment::new();
    if let Some(path) = &file {
        figment = figment.merge(Toml::file_exact(path));
    }
    let environment = Env::prefixed(PREFIX).ignore(&OTHER_VARIABLES);
    let environment = environment.iter().map(|(key, value)| (key.into_string(), value));
    let (environment, unknown) = known(environment);
    for warning in unknown {
        tracing::warn!("{warning}");
    }
    let config = from_figment(
        figment
            .merge(Texts {
                name: "environment",
                texts: environment,
            })
            .merge(Texts {
                name: "command line",
                texts: flags,
            }),
    )?;
    check_exposure(&config)?;
    Ok(config)
}

fn from_figment(figment: Figment) -> Result<Config, ConfigError> {
    let mut data = figment.data().map_err(|error| ConfigError::File {
        path: error
            .metadata
            .as_ref()
            .and_then(file_path)
            .map(path_text)
            .unwrap_or_default(),
        reason: error.kind.to_string(),
    })?;
    let mut config = Config::default();
    for (name, value) in data.remove(&Profile::Default).unwrap_or_default() {
        let source_text = || source_text(&name, figment.get_metadata(value.tag()));
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let nearest = names::nearest(&name, KEYS.iter().map(|key| key.name));
            let nearest = KEYS.iter().map(|key| key.name).find(|key| Some(*key) == nearest);
            return Err(ConfigError::UnknownKey {
                key: name.clone(),
                source_text: source_text(),
                nearest,
            });
        };
        let invalid = |value: &str, reason: String| ConfigError::InvalidValue {
            key: key.name,
            value: if SECRET.contains(&key.name) {
                "***".to_owned()
            } else {
                value.to_owned()
            },
            source_text: source_text(),
            reason,
        };
        let text = scalar_text(&value).ok_or_else(|| invalid("...", "it needs a single value".to_owned()))?;
        (key.set)(&mut config, &text).map_err(|reason| invalid(&text, reason))?;
    }
    Ok(config)
}

/// Keys whose values no message shows.
const SECRET: [&str; 3] = ["password", "secrets_key", "cluster_token"];
/// Keys that name files that are nobody else's business.
const FILES_OF_SECRETS: [&str; 2] = ["secrets_key_file", "tls_key"];

/// Listening beyond this machine needs a password, or the word of the user that none is wanted.
fn check_exposure(config: &Config) -> Result<(), ConfigError> {
    if config.insecure || config.password.is_some() {
        return Ok(());
    }
    for (key, address) in [("pg", config.pg), ("http", config.http)] {
        if !address.ip().is_loopback() {
            return Err(ConfigError::Insecure { key, address });
        }
    }
    Ok(())
}

/// The variables of the environment that are keys, and what there is to say of the others.
fn known(environment: impl Iterator<Item = (String, String)>) -> (BTreeMap<String, String>, Vec<String>) {
    let (known, unknown): (BTreeMap<_, _>, BTreeMap<_, _>) =
        environment.partition(|(name, _)| KEYS.iter().any(|key| key.name == name.as_str()));
    let warning = |name: &String| {
        let variable = format!("{PREFIX}{}", name.to_ascii_uppercase());
        let nearest = names::nearest(name, KEYS.iter().map(|key| key.name));
        let nearest = nearest.map(|key| format!("; did you mean {PREFIX}{}?", key.to_ascii_uppercase()));
        format!(
            "ignoring environment variable {variable}: it is not a configuration key{}",
            nearest.unwrap_or_default()
        )
    };
    let warnings = unknown.keys().map(warning).collect();
    (known, warnings)
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn file_path(metadata: &Metadata) -> Option<&Path> {
    metadata.source.as_ref()?.file_path()
}

/// Where a value comes from, for error messages.
fn source_text(key: &str, metadata: Option<&Metadata>) -> String {
    match metadata {
        Some(metadata) if metadata.name == "environment" => {
            format!("environment variable {PREFIX}{}", key.to_ascii_uppercase())
        }
        Some(metadata) if metadata.name == "command line" => format!("flag --{}", key.replace('_', "-")),
        Some(metadata) => file_path(metadata).map_or_else(
            || metadata.name.to_string(),
            |path| format!("in {}", path_text(path)),
        ),
        None => "default".to_owned(),
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(_, text) => Some(text.clone()),
        Value::Char(_, c) => Some(c.to_string()),
        Value::Bool(_, value) => Some(value.to_string()),
        Value::Num(_, number) => match (number.to_u128(), number.to_i128(), number.to_f64()) {
            (Some(number), ..) => Some(number.to_string()),
            (_, Some(number), _) => Some(number.to_string()),
            (.., number) => number.map(|number| number.to_string()),
        },
        Value::Empty(..) | Value::Dict(..) | Value::Array(..) => None,
    }
}

/// Keys whose values are taken as the texts that they are: a password of digits is not a number.
struct Texts {
    name: &'static str,
    texts: BTreeMap<String, String>,
}

impl Provider for Texts {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        let dict: Dict = self
            .texts
            .iter()
            .map(|(key, text)| (key.clone(), Value::from(text.clone())))
            .collect();
        Ok(Profile::Default.collect(dict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let texts = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect()
        };
        let figment = Figment::new()
            .merge(Toml::string(file))
            .merge(Texts {
                name: "environment",
                texts: texts(environment),
            })
            .merge(Texts {
                name: "command line",
                texts: texts(flags),
            });
        let config = from_figment(figment)?;
        check_exposure(&config)?;
        Ok(config)
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let config = load("", &[], &[]).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.data, PathBuf::from("./millrace-data"));
        assert_eq!(config.pg, "127.0.0.1:5433".parse().unwrap());
        assert_eq!(config.http, "127.0.0.1:8033".parse().unwrap());
        assert!(!config.insecure && config.password.is_none());
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file() {
        let file = "data = 'f'\ncores = 1\nconnections_max = 1\nmemory_limit = '600MB'";
        let config = load(
            file,
            &[("cores", "2"), ("connections_max", "2"), ("password", "1234")],
            &[("connections_max", "3")],
        )
        .unwrap();
        assert_eq!(config.data, PathBuf::from("f"));
        assert_eq!((config.cores, config.connections_max), (Some(2), 3));
        assert_eq!(config.tuning.memory_limit, Some(600 << 20));
        assert_eq!(config.password.as_deref(), Some("1234"));
    }

    #[test]
    fn more_than_one_worker_is_refused() {
        assert_eq!(load("", &[], &[("workers", "2")]).unwrap().workers, Some(2));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_and_its_place() {
        let error = load("", &[], &[("memory_limits", "1GB")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown configuration key \"memory_limits\" (flag --memory-limits); did you mean \"memory_limit\"?"
        );
        assert!(load("memory_limits = '1GB'", &[], &[]).is_err());
    }

    #[test]
    fn variables_of_others_are_ignored_with_a_warning() {
        let environment = [
            ("service_host", "10.0.0.7"),
            ("port", "tcp://10.0.0.7:5433"),
            ("port_5433_tcp_addr", "10.0.0.7"),
            ("memory_limits", "1GB"),
            ("memory_limit", "600MB"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (keys, warnings) = known(environment.into_iter());
        assert_eq!(
            keys.into_iter().collect::<Vec<_>>(),
            [("memory_limit".to_owned(), "600MB".to_owned())]
        );
        assert_eq!(
            warnings,
            [
                "ignoring environment variable MILLRACE_MEMORY_LIMITS: it is not a configuration key; did you mean \
                 MILLRACE_MEMORY_LIMIT?",
                "ignoring environment variable MILLRACE_PORT: it is not a configuration key",
                "ignoring environment variable MILLRACE_PORT_5433_TCP_ADDR: it is not a configuration key",
                "ignoring environment variable MILLRACE_SERVICE_HOST: it is not a configuration key",
            ]
        );
    }

    #[test]
    fn an_invalid_value_says_what_would_be_valid() {
        let error = load("", &[], &[("memory_limit", "lots")])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("invalid value \"lots\" for memory_limit (flag --memory-limit): "),
            "{error}"
        );
        assert!(load("cores = 0", &[], &[]).is_err());
        assert!(
            load("[pg]\nport = 1", &[], &[])
                .unwrap_err()
                .to_string()
                .contains("single value")
        );
        assert!(load("pg = 'somewhere'", &[], &[]).is_err());
    }

    #[test]
    fn no_message_shows_a_secret() {
        let error = load("cluster_token = 'too-short'", &[], &[]).unwrap_err();
        let shown = error.to_string();
        assert!(
            shown.contains("cluster_token") && !shown.contains("too-short"),
            "{shown}"
        );
    }

    #[test]
    fn files_with_secrets_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("millrace.toml");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            PlaceArgs::of_file(Some(path.clone())).files_of_secrets()
        };
        assert_eq!(of("cores = 1"), []);
        assert_eq!(of("cores = "), []);
        assert_eq!(
            of("cluster_token = '0123456789abcdef'\npassword = 'x'\ntls_key = '/x/key.pem'"),
            [
                (path.clone(), vec!["password", "cluster_token"]),
                (PathBuf::from("/x/key.pem"), vec!["tls_key"]),
            ]
        );
    }

    #[test]
    fn the_network_needs_a_password_or_the_users_word() {
        assert!(matches!(
            load("pg = '0.0.0.0:1'", &[], &[]),
            Err(ConfigError::Insecure { key: "pg", .. })
        ));
        assert!(load("http = '[::]:1'", &[], &[]).is_err());
        assert!(load("http = '0.0.0.0:1'\npassword = 'x'", &[], &[]).is_ok());
        assert!(load("http = '0.0.0.0:1'", &[], &[("insecure", "true")]).is_ok());
        assert!(load("pg = '[::1]:1'", &[], &[]).is_ok());
    }
}
