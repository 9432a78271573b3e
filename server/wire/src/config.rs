//! The server's configuration. Every key is one row of [`keys::KEYS`]: its name, default, explanation and how its text is read.
//! Where texts come from (a file, the environment, flags) is the command line's business.

pub mod keys;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use millrace_auth::seal::SealingKey;
use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_database::tuning::Tuning;
use reqwest::Url;

use self::keys::KEYS;
use crate::tls::TlsOptions;

/// The server's configuration. [`keys::KEYS`] explains every field.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where everything lasting is kept.
    pub data: PathBuf,
    /// Where to listen for PostgreSQL clients; port 0 takes any free port.
    pub pg: SocketAddr,
    /// Where to listen for HTTP; port 0 takes any free port.
    pub http: SocketAddr,
    /// The password that clients must know.
    pub password: Option<String>,
    /// Whether to listen beyond loopback without a password.
    pub insecure: bool,
    /// Whether connections are encrypted, and with which certificate.
    pub tls: TlsOptions,
    /// The key of secrets, as it was given itself and in a file.
    pub secrets_key: Option<SealingKey>,
    pub secrets_key_of_file: Option<SealingKey>,
    /// Processor cores to use; `None` is all.
    pub cores: Option<usize>,
    /// Workers; `None` is one.
    pub workers: Option<usize>,
    /// Where to take in workers of other processes.
    pub cluster: Option<SocketAddr>,
    /// What they have to know.
    pub cluster_token: Option<String>,
    /// Whether links to them, and between them, are encrypted.
    pub cluster_tls: bool,
    /// How epochs are cut and grouped.
    pub tuning: Tuning,
    /// The most PostgreSQL connections at a time.
    pub connections_max: usize,
    /// How many of these are kept for superusers.
    pub superuser_reserved_connections: usize,
    /// The most connections from one address at a time, of both kinds; `None`: any number.
    pub connections_per_address_max: Option<usize>,
    /// The names under which the server is reached over HTTP; none: any.
    pub http_hosts: Vec<String>,
    /// Hosts at private addresses that webhooks may be sent to.
    pub webhook_private_hosts: PrivateHosts,
    /// Rows of a relation that make one partition of a query.
    pub query_partition_rows: usize,
    /// Iterations of a recursion in a view within one epoch.
    pub recursion_iterations_max: usize,
    /// Rows that a recursion in a view may make within one epoch.
    pub recursion_rows_max: usize,
    /// The longest SQL text, in bytes.
    pub statement_bytes_max: usize,
    /// The longest message of the PostgreSQL protocol, in bytes.
    pub message_bytes_max: usize,
    /// The longest body of an HTTP request, in bytes.
    pub http_body_bytes_max: usize,
    /// How long running statements may take to end when the server stops.
    pub shutdown_timeout: Duration,
    /// The collector of OpenTelemetry that spans are sent to.
    pub otlp_endpoint: Option<Url>,
    /// Whether the materialized views that there are run.
    pub views: bool,
    /// Where a copy is kept of all that is written: the URL of a bucket or a directory.
    pub log_url: Option<String>,
    /// How often what was written goes there.
    pub log_ship_interval: Duration,
    /// Whether a copy of another server is taken over.
    pub take_over: bool,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 0);
        let mut config = Config {
            data: PathBuf::new(),
            pg: loopback,
            http: loopback,
            password: None,
            insecure: false,
            tls: TlsOptions::default(),
            secrets_key: None,
            secrets_key_of_file: None,
            cores: None,
            workers: None,
            cluster: None,
            cluster_token: None,
            cluster_tls: true,
            tuning: Tuning::default(),
            connections_max: 0,
            superuser_reserved_connections: 0,
            connections_per_address_max: None,
            http_hosts: vec![],
            webhook_private_hosts: PrivateHosts::default(),
            query_partition_rows: 0,
            recursion_iterations_max: 0,
            recursion_rows_max: 0,
            statement_bytes_max: 0,
            message_bytes_max: 0,
            http_body_bytes_max: 0,
            shutdown_timeout: Duration::ZERO,
            otlp_endpoint: None,
            views: true,
            log_url: None,
            log_ship_interval: Duration::ZERO,
            take_over: false,
        };
        for key in KEYS {
            (key.set)(&mut config, key.default).expect("a default is a valid value of its key");
        }
        config
    }
}
