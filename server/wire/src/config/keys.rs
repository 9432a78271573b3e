//! Every configuration key: name, default, explanation, and how its text becomes a value.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use millrace_auth::seal::SealingKey;
use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_postgres::units;
use millrace_storage::offsite::Place;
use reqwest::Url;

use super::Config;

/// Between two moments of the copy there are so many milliseconds, or so much.
const SHIP_INTERVAL_MIN: Duration = Duration::from_millis(100);
const SHIP_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// One configuration key.
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// Its value where nothing is said, in the form in which it would be written.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Reads a value; the error says what would be valid.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
}

/// All keys, in the order in which they are explained.
pub const KEYS: &[Key] = &[
    Key {
        name: "data",
        default: "./millrace-data",
        help: "Data directory; created if it does not exist.",
        set: |config, text| {
            if text.is_empty() {
                return Err("it needs a directory".to_owned());
            }
            config.data = text.into();
            Ok(())
        },
    },
    Key {
        name: "pg",
        default: "127.0.0.1:5433",
        help: "Address for PostgreSQL clients. Port 0 picks a free port.",
        set: |config, text| {
            config.pg = address(text)?;
            Ok(())
        },
    },
    Key {
        name: "http",
        default: "127.0.0.1:8033",
        help: "Address for HTTP. Port 0 picks a free port.",
        set: |config, text| {
            config.http = address(text)?;
            Ok(())
        },
    },
    Key {
        name: "password",
        default: "",
        help: "Password of role millrace, whatever it was given by SQL: SCRAM-SHA-256 for PostgreSQL clients, Basic or \
               Bearer for HTTP. Empty: its own counts, and without one it is let in.",
        set: |config, text| {
            config.password = Some(text.to_owned()).filter(|password| !password.is_empty());
            Ok(())
        },
    },
    Key {
        name: "insecure",
        default: "false",
        help: "Allow listening on other addresses than loopback without a password.",
        set: |config, text| {
            config.insecure = boolean(text)?;
            Ok(())
        },
    },
    Key {
        name: "tls",
        default: "off",
        help: "Encryption of connections, on both listeners: off, on (clients choose), or required. Needs \
               tls_cert and tls_key, or tls_self_signed.",
        set: |config, text| {
            config.tls.mode = text.parse()?;
            Ok(())
        },
    },
    Key {
        name: "tls_cert",
        default: "",
        help: "File with the server's certificate, followed by those that signed it (PEM). It is read again \
               when it changes.",
        set: |config, text| {
            config.tls.certificate = Some(text.into()).filter(|_| !text.is_empty());
            Ok(())
        },
    },
    Key {
        name: "tls_key",
        default: "",
        help: "File with the private key of the certificate (PEM).",
        set: |config, text| {
            config.tls.key = Some(text.into()).filter(|_| !text.is_empty());
            Ok(())
        },
    },
    Key {
        name: "tls_client_ca",
        default: "",
        help: "File with the certificates of those who sign certificates of clients (PEM), which are then another way \
               to log in: as the role that the common name says. Read again like tls_cert.",
        set: |config, text| {
            config.tls.client_ca = Some(text.into()).filter(|_| !text.is_empty());
            Ok(())
        },
    },
    Key {
        name: "tls_self_signed",
        default: "false",
        help: "Encrypt with a certificate that is made at the start and signed by itself, for a first try; \
               its fingerprint is printed.",
        set: |config, text| {
            config.tls.is_self_signed = boolean(text)?;
            Ok(())
        },
    },
    Key {
        name: "secrets_key_file",
        default: "",
        help: "File with the key that secrets are encrypted with (CREATE SECRET): 32 random bytes as 64 hexadecimal \
               digits or in base64.",
        set: |config, text| {
            config.secrets_key_of_file = match text {
                "" => None,
                path => {
                    let text = std::fs::read_to_string(path)
                        .map_err(|error| format!("\"{path}\" cannot be read: {error}"))?;
                    Some(SealingKey::parse(&text)?)
                }
            };
            Ok(())
        },
    },
    Key {
        name: "secrets_key",
        default: "",
        help: "The same key itself, for the environment; it excludes secrets_key_file.",
        set: |config, text| {
            config.secrets_key = match text {
                "" => None,
                text => Some(SealingKey::parse(text)?),
            };
            Ok(())
        },
    },
    Key {
        name: "cores",
        default: "auto",
        help: "CPU cores of a worker, for queries and views; auto: all cores of the machine.",
        set: |config, text| {
            config.cores = auto_or(text, positive)?;
            Ok(())
        },
    },
    Key {
        name: "workers",
        default: "auto",
        help: "Workers in this process, each with its own cores; auto: one.",
        set: |config, text| {
            config.workers = auto_or(text, positive)?;
            Ok(())
        },
    },
    Key {
        name: "cluster",
        default: "",
        help: "Address for workers of other processes (millrace worker --join); needs cluster_token. Empty: none are taken in.",
        set: |config, text| {
            config.cluster = match text {
                "" => None,
                text => Some(address(text)?),
            };
            Ok(())
        },
    },
    Key {
        name: "cluster_token",
        default: "",
        help: "Shared secret that workers need to join, at least 16 characters; best from the environment. It is never sent.",
        set: |config, text| {
            config.cluster_token = match text {
                "" => None,
                text if text.len() < 16 => return Err("it must have 16 characters or more".to_owned()),
                text => Some(text.to_owned()),
            };
            Ok(())
        },
    },
    Key {
        name: "cluster_tls",
        default: "on",
        help: "Whether links between machines are encrypted, the same on all of them: on, or off, where the network or a tunnel sees to it.",
        set: |config, text| {
            config.cluster_tls = boolean(text)?;
            Ok(())
        },
    },
    Key {
        name: "access_control",
        default: "off",
        help: "Whether roles may do only what they have privileges for: off (every role may do everything) or on.",
        set: |config, text| tuned(config, "access_control", text),
    },
    Key {
        name: "batch_interval",
        default: "auto",
        help: "Time between two epochs, such as 100ms; auto: an epoch starts as soon as there is input.",
        set: |config, text| tuned(config, "batch_interval", text),
    },
    Key {
        name: "freshness_target",
        default: "none",
        help: "Maximum age of what a view shows, such as 50ms, for views that do not set it (WITH (freshness = ..)); epochs may be delayed \
               that long. none: as fresh as possible.",
        set: |config, text| tuned(config, "freshness_target", text),
    },
    Key {
        name: "checkpoint_interval",
        default: "10s",
        help: "Time between two checkpoints, from which the next start resumes; off: no checkpoints.",
        set: |config, text| tuned(config, "checkpoint_interval", text),
    },
    Key {
        name: "log_url",
        default: "",
        help: "Where a copy is kept of all that is written, checkpoints included, such as s3://bucket/prefix or file:///mnt/backups/millrace; \
               millrace restore --from makes a data directory of it elsewhere. Empty: none is kept.",
        set: |config, text| {
            config.log_url = match text {
                "" => None,
                url => Some(Place::check(url).map(|()| url.to_owned())?),
            };
            Ok(())
        },
    },
    Key {
        name: "log_ship_interval",
        default: "1s",
        help: "How often new writes go to log_url: about that much is lost with the machine.",
        set: |config, text| {
            config.log_ship_interval = match units::duration(text)? {
                interval if (SHIP_INTERVAL_MIN..=SHIP_INTERVAL_MAX).contains(&interval) => interval,
                _ => return Err("it must be a time from 100ms to 1h".to_owned()),
            };
            Ok(())
        },
    },
    Key {
        name: "take_over",
        default: "false",
        help: "Take over a copy at log_url that was written by another server: this one ships all of its data again, and the other one \
               is told and stops shipping.",
        set: |config, text| {
            config.take_over = boolean(text)?;
            Ok(())
        },
    },
    Key {
        name: "recovery_reads",
        default: "wait",
        help: "What reads do after a start while the log is replayed: wait until it is, or read the last \
               checkpoint (checkpoint).",
        set: |config, text| tuned(config, "recovery_reads", text),
    },
    Key {
        name: "durability",
        default: "group",
        help: "What an acknowledged write survives: with fsync and group a power failure (with group, \
               concurrent writes share a sync, for which a write waits at most 5ms), with off a crash of \
               the process.",
        set: |config, text| tuned(config, "durability", text),
    },
    Key {
        name: "flush_writes",
        default: "on",
        help: "Whether spilled files and checkpoints are written through to the device, so that their disk \
               time is measured correctly; off: into the system's cache.",
        set: |config, text| tuned(config, "flush_writes", text),
    },
    Key {
        name: "group_size",
        default: "auto",
        help: "Epochs that are scheduled together (group size); auto: adjusted to the measured cost of \
               coordination (AIMD).",
        set: |config, text| tuned(config, "group_size", text),
    },
    Key {
        name: "group_overhead_bounds",
        default: "5%,10%",
        help: "Bounds for the share of time spent on coordination, within which an automatic group_size \
               keeps it.",
        set: |config, text| tuned(config, "group_overhead_bounds", text),
    },
    Key {
        name: "pipeline_spread",
        default: "auto",
        help: "Workers over which the views of a pipeline are spread: auto (as many as their epochs have \
               work for) or all.",
        set: |config, text| tuned(config, "pipeline_spread", text),
    },
    Key {
        name: "scheduler_policy",
        default: "lma",
        help: "How tasks are scheduled on cores: lma and lb pause batch work for streams, fifo and fair \
               pause nothing, kill aborts batch queries and restarts them.",
        set: |config, text| tuned(config, "scheduler_policy", text),
    },
    Key {
        name: "suspension_max",
        default: "1s",
        help: "The longest time that work waits for more urgent work before it runs for undisturbed_time.",
        set: |config, text| tuned(config, "suspension_max", text),
    },
    Key {
        name: "undisturbed_time",
        default: "10ms",
        help: "How long work that has waited for suspension_max runs without being paused.",
        set: |config, text| tuned(config, "undisturbed_time", text),
    },
    Key {
        name: "connections_per_address_max",
        default: "none",
        help: "The most connections from one address at a time, PostgreSQL and HTTP together; none: any number. \
               Behind a proxy all clients have its address.",
        set: |config, text| {
            config.connections_per_address_max = match text {
                "none" => None,
                text => Some(count(text).map_err(|reason| format!("{reason}, or none"))?),
            };
            Ok(())
        },
    },
    Key {
        name: "http_hosts",
        default: "",
        help: "Names under which the server is reached over HTTP, with commas between, such as db.example.com; \
               requests for other names are refused. Empty: any name, but on loopback only this machine's.",
        set: |config, text| {
            let names = text.split(',').map(|name| name.trim().to_ascii_lowercase());
            config.http_hosts = names.filter(|name| !name.is_empty()).collect();
            Ok(())
        },
    },
    Key {
        name: "webhook_private_hosts",
        default: "",
        help: "Hosts at private addresses (loopback, local networks) that sinks may send webhooks to: names, addresses \
               and networks with commas between, such as hooks.internal, 10.1.0.0/16; *: all of them.",
        set: |config, text| {
            config.webhook_private_hosts = PrivateHosts::parse(text)?;
            Ok(())
        },
    },
    Key {
        name: "query_partition_rows",
        default: "65536",
        help: "Rows of a relation per partition of a query that reads it; a query with one partition runs \
               as one task.",
        set: |config, text| {
            config.query_partition_rows = count(text)?;
            Ok(())
        },
    },
    Key {
        name: "javascript_call_timeout",
        default: "100ms",
        help: "How much processor time one call of a function or reducer in JavaScript may take.",
        set: |config, text| tuned(config, "javascript_call_timeout", text),
    },
    Key {
        name: "javascript_memory",
        default: "64MB",
        help: "How much memory one engine for JavaScript may hold; there is one for each function and thread that uses it.",
        set: |config, text| tuned(config, "javascript_memory", text),
    },
    Key {
        name: "log_min_duration_statement",
        default: "-1",
        help: "Statements that run for so long are logged (target millrace::slow): a time such as 250ms; 0: all, -1: none.",
        set: |config, text| tuned(config, "log_min_duration_statement", text),
    },
    Key {
        name: "otlp_endpoint",
        default: "",
        help: "Collector of OpenTelemetry that a span is sent to for each statement (OTLP over HTTP), such as \
               http://127.0.0.1:4318. Empty: none.",
        set: |config, text| {
            config.otlp_endpoint = match text {
                "" => None,
                text => Some(collector(text)?),
            };
            Ok(())
        },
    },
    Key {
        name: "memory_limit",
        default: "auto",
        help: "Memory limit of the process, such as 600MB; auto: 70 % of the machine's memory, or of its \
               control group's limit.",
        set: |config, text| tuned(config, "memory_limit", text),
    },
    Key {
        name: "connections_max",
        default: "200",
        help: "Maximum number of PostgreSQL connections at a time.",
        set: |config, text| {
            config.connections_max = positive(text)?;
            Ok(())
        },
    },
    Key {
        name: "superuser_reserved_connections",
        default: "3",
        help: "How many of these are kept for superusers.",
        set: |config, text| {
            config.superuser_reserved_connections = match text.parse() {
                Ok(number) if number <= 65_536 => number,
                _ => return Err("it must be a whole number from 0 to 65536".to_owned()),
            };
            Ok(())
        },
    },
    Key {
        name: "recursion_iterations_max",
        default: "10000",
        help: "Maximum number of iterations of WITH RECURSIVE in a materialized view within an epoch; a \
               query that exceeds it counts as endless.",
        set: |config, text| {
            config.recursion_iterations_max = count(text)?;
            Ok(())
        },
    },
    Key {
        name: "recursion_rows_max",
        default: "10000000",
        help: "Maximum number of rows that WITH RECURSIVE in a materialized view may produce within an \
               epoch; a query that exceeds it counts as endless.",
        set: |config, text| {
            config.recursion_rows_max = count(text)?;
            Ok(())
        },
    },
    Key {
        name: "statement_bytes_max",
        default: "16MB",
        help: "Maximum length of an SQL text.",
        set: |config, text| {
            config.statement_bytes_max = bounded_size(text)?;
            Ok(())
        },
    },
    Key {
        name: "message_bytes_max",
        default: "64MB",
        help: "Maximum length of a single message of the PostgreSQL protocol (a statement, a Bind, one \
               piece of COPY data).",
        set: |config, text| {
            config.message_bytes_max = bounded_size(text)?;
            Ok(())
        },
    },
    Key {
        name: "http_body_bytes_max",
        default: "64MB",
        help: "Maximum length of the body of an HTTP request.",
        set: |config, text| {
            config.http_body_bytes_max = bounded_size(text)?;
            Ok(())
        },
    },
    Key {
        name: "shutdown_timeout",
        default: "10s",
        help: "How long running statements may take to end when the server stops, before they are cancelled.",
        set: |config, text| {
            config.shutdown_timeout = units::duration(text)?;
            Ok(())
        },
    },
    Key {
        name: "views",
        default: "on",
        help: "Whether existing materialized views are loaded at this start; with off none is, so that one \
               that crashes the server can be dropped.",
        set: |config, text| {
            config.views = boolean(text)?;
            Ok(())
        },
    },
];

/// The keys as a text for `--help`.
pub fn help_text() -> String {
    let mut text = String::from(
        "Configuration keys (in the file, as MILLRACE_<KEY> in the environment, the most common ones as \
         flags):\n",
    );
    for key in KEYS {
        let default = if key.default.is_empty() {
            "none"
        } else {
            key.default
        };
        text.push_str(&format!(
            "\n  {} (default: {default})\n      {}\n",
            key.name, key.help
        ));
    }
    text.push_str(
        "\nMILLRACE_CONFIG is the path of the file, MILLRACE_LOG the log level (info, debug, ...).",
    );
    text
}

/// Sets what belongs to the runtime's tuning.
fn tuned(config: &mut Config, name: &str, text: &str) -> Result<(), String> {
    let set = config.tuning.set(name, text);
    set.map_err(|allowed| format!("valid values: {allowed}"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = "an address is host:port, such as 127.0.0.1:5433";
    let mut addresses = text.to_socket_addrs().map_err(|_| wrong.to_owned())?;
    addresses.next().ok_or_else(|| wrong.to_owned())
}

fn collector(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| "it is a URL, such as http://127.0.0.1:4318".to_owned())
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=65_536).contains(&number) => Ok(number),
        _ => Err("it must be a whole number from 1 to 65536".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=1_000_000_000).contains(&number) => Ok(number),
        _ => Err("it must be a whole number from 1 to 1000000000".to_owned()),
    }
}

fn auto_or<T>(text: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    read(text)
        .map(Some)
        .map_err(|reason| format!("{reason}, or auto"))
}

/// Limits of single things stay below what the protocol's signed 32-bit lengths can express.
fn bounded_size(text: &str) -> Result<usize, String> {
    match units::size(text)? {
        bytes @ 1_024..=0x3fff_ffff => Ok(bytes as usize),
        _ => Err("it must be a size of at least 1kB and less than 1GB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_explained() {
        let text = help_text();
        for key in KEYS {
            assert!(text.contains(key.name) && key.help.ends_with('.'), "{}", key.name);
        }
    }
}
