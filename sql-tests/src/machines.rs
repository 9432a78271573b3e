//! Servers of this process whose views are on a worker beside them, as on another machine: what tests of SQL ask is to be answered the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_cli::test::{VirtualClock, throw_away};
use millrace_schedule::driver::Spread;
use millrace_wire::Server;
use millrace_wire::cluster::{Worker, WorkerArgs};
use millrace_wire::config::Config;

use crate::{Failure, connect, rows};

/// The variable with which servers of [`start_on`] have such a worker.
const WANTED: &str = "MILLRACE_TEST_MACHINES";
const TOKEN: &str = "the token of a test";
/// How long it may take until the worker takes part.
const PATIENCE: Duration = Duration::from_secs(30);

/// As [`crate::start_on`]; with a worker beside it, if the variable is there.
///
/// # Errors
/// The server cannot be started, or the worker does not take part.
pub async fn start_on(directory: &Path, clock: &Arc<VirtualClock>) -> Result<Server, Failure> {
    if std::env::var_os(WANTED).is_none() {
        return crate::start_on(directory, clock).await;
    }
    let config = taking(throw_away(directory));
    let server = Server::start_on(config, Some(Arc::clone(clock))).await?;
    join(&server).await?;
    Ok(server)
}

/// The configuration of a server that takes workers in, and puts something of every view on each.
fn taking(mut config: Config) -> Config {
    config.cluster = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.cluster_token = Some(TOKEN.to_owned());
    config.tuning.pipeline_spread = Spread::All;
    config
}

/// Has a worker join the server, until the server ends.
///
/// # Errors
/// It does not take part.
async fn join(server: &Server) -> Result<(), Failure> {
    let address = server.cluster_addr().ok_or("the server takes no workers in")?;
    let args = WorkerArgs {
        join: address.to_string(),
        listen: None,
        advertise: None,
    };
    let config = Config {
        cluster_token: Some(TOKEN.to_owned()),
        cores: Some(1),
        ..Config::default()
    };
    let worker = Worker::prepare(args, config).await?;
    let joined = worker.join().await?;
    tokio::spawn(async move {
        // Whoever asks the server finds out.
        let _ = joined.is_dismissed().await;
        worker.close().await;
    });
    let client = connect(server.pg_addr()).await?;
    let there = "SELECT count(*) FROM mr_catalog.workers WHERE address <> 'in process'";
    let since = Instant::now();
    while rows(&client, there).await? != [[Some("1".to_owned())]] {
        if since.elapsed() > PATIENCE {
            return Err("the worker does not take part".into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
