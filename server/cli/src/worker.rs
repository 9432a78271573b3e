//! `millrace worker`: a process that works for a server on another machine.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use millrace_wire::cluster::{Worker, WorkerArgs, WorkerError};

use crate::config_file::{ConfigError, PlaceArgs};
use crate::exit::{fail, misused};
use crate::logging::{self, LogFormat};
use crate::serve::Stop;

/// Time between two attempts to join.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// Flags of `millrace worker`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "The coordinator is a server with the keys cluster (an address) and cluster_token; a worker needs the same token, \
from MILLRACE_CLUSTER_TOKEN or the configuration file, and has to be of the same build. It keeps nothing: when it is lost, what it had is \
restored on the others from the last checkpoint, and when the coordinator is not there, it tries to join again until it is stopped."
)]
pub struct JoinArgs {
    /// Where the coordinator takes workers in
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    join: String,
    /// Where this worker listens for other workers [default: any port of the address by which it reaches the coordinator]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Where other workers reach this one, if that is not where it listens
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    advertise: Option<String>,
    /// CPU cores to use [default: all]
    #[arg(long, value_name = "N")]
    cores: Option<String>,
    /// Memory limit of the process, such as 600MB [default: 70 % of the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// How a line of the log looks [default: MILLRACE_LOG_FORMAT, or text]
    #[arg(long, value_enum, value_name = "text|json", hide_possible_values = true)]
    log_format: Option<LogFormat>,
    /// Stop when the standard input ends
    #[arg(long)]
    stop_at_eof: bool,
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("it must be a host and a port, such as db.example.com:6435".to_owned()),
    }
}

/// Works for a coordinator until it lets the worker go, or a signal asks for its end.
pub async fn run(args: JoinArgs) -> ExitCode {
    if let Err(message) = logging::init_as("info", args.log_format) {
        return misused(&message);
    }
    let config = PlaceArgs::of_file(args.config).load(&[
        ("cores", args.cores.as_deref()),
        ("memory_limit", args.memory_limit.as_deref()),
    ]);
    let config = match config {
        Ok(config) => config,
        Err(error @ ConfigError::File { .. }) => return fail(&error.to_string()),
        Err(error) => return misused(&error.to_string()),
    };
    let mut stop = match Stop::new(args.stop_at_eof) {
        Ok(stop) => stop,
        Err(error) => return fail(&format!("cannot listen for signals: {error}")),
    };
    let join = WorkerArgs {
        join: args.join,
        listen: args.listen,
        advertise: args.advertise,
    };
    let coordinator = join.join.clone();
    let worker = match Worker::prepare(join, config).await {
        Ok(worker) => worker,
        Err(error @ (WorkerError::NoToken | WorkerError::Tls(_))) => return misused(&error.to_string()),
        Err(error) => return fail(&error.to_string()),
    };
    let working = async {
        let (mut was_said, mut has_joined) = (false, false);
        loop {
            match worker.join().await {
                Ok(joined) => {
                    (was_said, has_joined) = (false, true);
                    println!(
                        "millrace {} works as worker {} of {coordinator}",
                        worker.build(),
                        joined.id()
                    );
                    match joined.is_dismissed().await {
                        Ok(true) => {
                            println!("the coordinator has let this worker go");
                            return ExitCode::SUCCESS;
                        }
                        Ok(false) => {}
                        Err(error) => return fail(&error.to_string()),
                    }
                    tracing::warn!("the coordinator is gone, or held this worker to be lost: joining again");
                }
                // Another attempt would come to the same.
                Err(error @ WorkerError::Refused { .. }) => return fail(&error.to_string()),
                Err(error @ WorkerError::Listen { .. }) if !has_joined => return fail(&error.to_string()),
                Err(error) if !was_said => {
                    was_said = true;
                    tracing::warn!("{error}; trying again until it is there");
                }
                Err(_) => {}
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    };
    let code = tokio::select! {
        code = working => code,
        () = stop.asked() => ExitCode::SUCCESS,
    };
    worker.close().await;
    code
}
