//! `millrace serve`: a server until it is told to stop.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millrace_wire::config::{Config, keys};
use millrace_wire::serve::Server;
use tokio::sync::oneshot;

use crate::config_file::{ConfigError, PlaceArgs};
use crate::exit::{fail, misused};
use crate::logging::{self, LogFormat};
use crate::notify;
use crate::signals::EndSignals;

/// How long an orderly stop may take after the statements were given their time: epochs that run are waited for, and the last
/// checkpoint is written.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the process stays when it cannot go on, so that `/ready` says so.
const ENDED_SEEN: Duration = Duration::from_secs(15);

/// Flags of `millrace serve`. All but --config are configuration keys.
#[derive(Debug, Args)]
#[command(after_long_help = keys::help_text())]
pub struct ServeArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// CPU cores of a worker, for queries and views [default: all]
    #[arg(long, value_name = "N")]
    cores: Option<String>,
    /// Workers in this process [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Memory limit of the process, such as 600MB [default: 70 % of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Maximum number of PostgreSQL connections at a time [default: 200]
    #[arg(long, value_name = "N")]
    connections_max: Option<String>,
    /// Collector of OpenTelemetry that traces are sent to, such as http://127.0.0.1:4318 [default: none]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// off: no materialized view is loaded, so that one that crashes the server can be dropped [default: on]
    #[arg(long, value_name = "on|off")]
    views: Option<String>,
    /// Keep a copy of all that is written in an object store, such as s3://bucket/prefix or file:///mnt/millrace [default: none]
    #[arg(long, value_name = "URL")]
    log_url: Option<String>,
    /// Make the copy at --log-url this server's own, though another one has written it
    #[arg(long)]
    take_over: bool,
    /// Encrypt with a certificate made at the start, for a first try; its fingerprint is printed
    #[arg(long)]
    tls_self_signed: bool,
    /// How a line of the log looks [default: MILLRACE_LOG_FORMAT, or text]
    #[arg(long, value_enum, value_name = "text|json", hide_possible_values = true)]
    log_format: Option<LogFormat>,
    /// Stop when the standard input ends, for programs that start a server: it does not outlive them, however they end
    #[arg(long)]
    stop_at_eof: bool,
    /// Allow listening on other addresses than loopback without a password
    #[arg(long)]
    insecure: bool,
}

impl ServeArgs {
    fn load(&self) -> Result<Config, ConfigError> {
        let yes = |is_given: bool| is_given.then_some("true");
        self.place.load(&[
            ("cores", self.cores.as_deref()),
            ("workers", self.workers.as_deref()),
            ("memory_limit", self.memory_limit.as_deref()),
            ("connections_max", self.connections_max.as_deref()),
            ("otlp_endpoint", self.otlp_endpoint.as_deref()),
            ("views", self.views.as_deref()),
            ("log_url", self.log_url.as_deref()),
            ("take_over", yes(self.take_over)),
            ("tls_self_signed", yes(self.tls_self_signed)),
            ("insecure", yes(self.insecure)),
        ])
    }
}

/// Runs a server until a signal asks for its end; the second one does not wait any more.
pub async fn run(args: ServeArgs) -> ExitCode {
    if let Err(message) = logging::init_as("info", args.log_format) {
        return misused(&message);
    }
    let config = match args.load() {
        Ok(config) => config,
        Err(error @ ConfigError::File { .. }) => return fail(&error.to_string()),
        Err(error) => return misused(&error.to_string()),
    };
    let mut stop = match Stop::new(args.stop_at_eof) {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    if config.insecure {
        tracing::warn!("running without a password on an address that others can reach (--insecure)");
    }
    let data = config.data.clone();
    let shutdown_timeout = config.shutdown_timeout;
    let server = tokio::select! {
        server = Server::start(config) => match server {
            Ok(server) => server,
            Err(error) => return fail(&error.to_string()),
        },
        () = stop.asked() => return fail("stopped while starting"),
    };
    let (pg, http) = (server.pg_addr(), server.http_addr());
    if let Some(fingerprint) = server.tls().and_then(|tls| tls.fingerprint()) {
        println!("the certificate signed by itself has the SHA-256 fingerprint {fingerprint}");
    }
    let scheme = match server.tls() {
        Some(tls) if tls.is_required() => "https",
        _ => "http",
    };
    notify::ready(&format!("PostgreSQL on {pg}, {scheme}://{http}/"));
    println!(
        "millrace {} is ready: psql -h {} -p {} -U millrace millrace   {scheme}://{http}/   data in {}",
        millrace_wire::VERSION,
        pg.ip(),
        pg.port(),
        data.display()
    );
    if let Some(address) = server.cluster_addr() {
        println!("workers join with: millrace worker --join {address}");
    }
    tokio::select! {
        () = stop.asked() => {}
        what = server.ended() => {
            notify::stopping(&what);
            // Whoever asks `/ready` is to see it first.
            tokio::select! {
                () = tokio::time::sleep(ENDED_SEEN) => {}
                () = stop.asked() => {}
            }
            return fail(&format!("{what}; start the server again: acknowledged writes are safe"));
        }
    }
    tracing::info!("stopping; a second signal stops immediately");
    notify::stopping("waiting for statements, then the last checkpoint is written");
    let limit = shutdown_timeout + STOP_TIMEOUT;
    tokio::select! {
        () = server.shutdown() => ExitCode::SUCCESS,
        () = tokio::time::sleep(limit) => fail(&format!(
            "stopped after {} s without a clean shutdown; acknowledged writes are safe", limit.as_secs()
        )),
        () = stop.asked() => fail("stopped immediately; acknowledged writes \
             are safe"),
    }
}

/// How the server is told to stop.
pub(crate) struct Stop {
    signals: EndSignals,
    /// Answers when the standard input ends, if that is to be minded.
    input_ended: Option<oneshot::Receiver<()>>,
}

impl Stop {
    pub fn new(at_eof: bool) -> io::Result<Self> {
        Ok(Stop {
            signals: EndSignals::listen()?,
            input_ended: at_eof.then(|| {
                let (ended, input_ended) = oneshot::channel();
                tokio::task::spawn_blocking(move || {
                    // An input that cannot be read has ended, too.
                    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                    let _ = ended.send(());
                });
                input_ended
            }),
        })
    }

    /// Returns when somebody asks, and once for each time that somebody does.
    pub async fn asked(&mut self) {
        let input_ended = self.input_ended.as_mut();
        tokio::select! {
            () = self.signals.asked() => {}
            Some(_) = async { Some(input_ended?.await) } => self.input_ended = None,
        }
    }
}
