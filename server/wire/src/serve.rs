//! A running server: two listeners, a database, and how they start and stop.
//!
//! [`Server`] is what `millrace serve` runs and what tests, the demo and benchmarks embed. The listeners are bound
//! first, so that a port in use is found before anything is touched, and so that `/ready` and clients that come too
//! early get an answer while the database recovers.

mod files;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_database::database::shipping::ShippingOptions;
use millrace_database::{Database, DatabaseOptions};
use millrace_engine::clock::VirtualClock;
use millrace_mesh::MeshError;
use millrace_planner::reducer::Reducer;
use millrace_postgres::error::{SqlError, SqlResult};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use self::files::ConnectionsMax;
use crate::addresses::Addresses;
use crate::cluster::Taking;
use crate::config::Config;
use crate::ended::Told;
use crate::http::{self, connections};
use crate::login::Doors;
use crate::metrics::{Metrics, RuntimeCollector};
use crate::pg::cancel::CancelRegistry;
use crate::pg::connection::Shared;
use crate::pg::listener;
use crate::slot::DatabaseSlot;
use crate::tls::{Tls, TlsError};
use crate::traces::Traces;

/// How long statements that were cancelled get to notice it before their connections are dropped.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address could not be listened on.
    #[error("cannot listen on {address} for {clients}: {source}{}", hint(source, flag))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// For whom.
        clients: &'static str,
        /// The flag that chooses another address.
        flag: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Encryption was asked for and cannot be given.
    #[error("cannot use TLS: {0}")]
    Tls(TlsError),
    /// Settings contradict each other.
    #[error("{0} and {1} exclude each other")]
    Exclusive(&'static str, &'static str),
    /// Workers cannot be taken in.
    #[error("cannot listen on {address} for workers: {source}")]
    Cluster {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: MeshError,
    },
    /// Anybody could take part.
    #[error("cluster needs cluster_token: set MILLRACE_CLUSTER_TOKEN for the server and its workers")]
    NoToken,
    /// No client can be made for the collector of traces.
    #[error("cannot send traces: {0}")]
    Traces(reqwest::Error),
    /// The database could not be opened.
    #[error("cannot open the database: {}", full_text(.0))]
    Open(SqlError),
}

fn hint(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; another server uses it: stop that server, or choose another address with {flag}")
        }
        io::ErrorKind::PermissionDenied => format!("; choose a port above 1023 with {flag}"),
        _ => String::new(),
    }
}

fn full_text(error: &SqlError) -> String {
    let more = error.detail.iter().chain(&error.hint);
    more.fold(error.message.clone(), |text, part| format!("{text}\n{part}"))
}

/// A running server. Dropping it without [`Server::shutdown`] abandons its connections, but loses nothing that was
/// acknowledged.
pub struct Server {
    pg_addr: SocketAddr,
    http_addr: SocketAddr,
    cluster_addr: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    database: Arc<DatabaseSlot>,
    told: Told,
    cancels: Arc<CancelRegistry>,
    queries: Arc<http::QueryRegistry>,
    stop: watch::Sender<bool>,
    abandon: watch::Sender<bool>,
    pg_task: JoinHandle<()>,
    http_task: JoinHandle<()>,
    shutdown_timeout: Duration,
}

impl Server {
    /// Starts a server and returns when it is ready: everything that was ever acknowledged is there again.
    ///
    /// # Errors
    /// An address cannot be listened on, or the data directory cannot be opened.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_on(config, None).await
    }

    /// As [`Server::start`], on a clock that is set by hand if there is one.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_on(config: Config, clock: Option<Arc<VirtualClock>>) -> Result<Self, StartError> {
        Self::start_with(config, clock, vec![]).await
    }

    /// As [`Server::start_on`], with aggregates of the program's own, which SQL calls by their names.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(
        config: Config,
        clock: Option<Arc<VirtualClock>>,
        reducers: Vec<Arc<dyn Reducer>>,
    ) -> Result<Self, StartError> {
        let adjust = |options: &mut DatabaseOptions| {
            options.virtual_clock = clock;
            options.reducers = reducers;
        };
        Self::start_as(config, adjust).await
    }

    /// As [`Server::start`], on a database whose options are those of the configuration but for what `adjust` does to them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_as(
        config: Config,
        adjust: impl FnOnce(&mut DatabaseOptions) + Send,
    ) -> Result<Self, StartError> {
        if config.secrets_key.is_some() && config.secrets_key_of_file.is_some() {
            return Err(StartError::Exclusive("secrets_key", "secrets_key_file"));
        }
        let tls = Tls::new(&config.tls).map_err(StartError::Tls)?;
        let (pg_listener, pg_addr) = listen(config.pg, "PostgreSQL clients", "--pg").await?;
        let (http_listener, http_addr) = listen(config.http, "HTTP", "--http").await?;
        if config.cluster.is_some() && config.cluster_token.is_none() {
            return Err(StartError::NoToken);
        }
        let taking = Taking::bind(&config, tls.as_ref())
            .await
            .map_err(|source| StartError::Cluster {
                address: config.cluster.unwrap_or(pg_addr),
                source,
            })?;
        let cluster_addr = taking.as_ref().map(Taking::address);
        let database = Arc::new(DatabaseSlot::default());
        let traces = config.otlp_endpoint.as_ref().map(Traces::start);
        let told = Told {
            metrics: Arc::new(Metrics::default()),
            traces: traces.transpose().map_err(StartError::Traces)?,
        };
        let cancels = Arc::new(CancelRegistry::default());
        let queries = Arc::new(http::QueryRegistry::default());
        let (stop, stopping) = watch::channel(false);
        let (abandon, abandoned) = watch::channel(false);

        let doors = Arc::new(Doors::new(config.password.as_deref()));
        let addresses = Arc::new(Addresses::new(config.connections_per_address_max));
        let connections_max = ConnectionsMax::now(config.connections_max);
        let shared = Arc::new(Shared {
            sessions_max: connections_max.pg,
            places: Arc::new(Semaphore::new(connections_max.pg)),
            // One is for anybody.
            sessions_reserved: (config.superuser_reserved_connections).min(connections_max.pg - 1),
            addresses: Arc::clone(&addresses),
            database: Arc::clone(&database),
            tls: tls.clone(),
            doors: Arc::clone(&doors),
            cancels: Arc::clone(&cancels),
            told: told.clone(),
            statement_bytes_max: config.statement_bytes_max,
            message_bytes_max: config.message_bytes_max,
        });
        let pg = listener::run(pg_listener, shared, stopping.clone(), abandoned.clone());
        let http_state = http::State {
            database: Arc::clone(&database),
            told: told.clone(),
            queries: Arc::clone(&queries),
            doors,
            sender: None,
            statement_bytes_max: config.statement_bytes_max,
            body_bytes_max: config.http_body_bytes_max,
            loopback_only: http_addr.ip().is_loopback(),
            hosts: config.http_hosts.clone().into(),
            requests: Arc::new(Semaphore::new(http::REQUESTS_MAX)),
            subscriptions: Arc::new(Semaphore::new(http::subscribe::SUBSCRIPTIONS_MAX)),
            stopping: stopping.clone(),
        };
        let http = http::run(
            connections::Limited::new(http_listener, connections_max.http, addresses, tls.clone()),
            http_state,
            stopping,
            abandoned,
        );
        let server = Server {
            pg_addr,
            http_addr,
            cluster_addr,
            tls,
            database,
            told,
            cancels,
            queries,
            stop,
            abandon,
            pg_task: tokio::spawn(pg),
            http_task: tokio::spawn(http),
            shutdown_timeout: config.shutdown_timeout,
        };
        let mut options = database_options(&config);
        adjust(&mut options);
        match millrace_system::system::open(options).await {
            Ok(database) => {
                let collector = RuntimeCollector(Arc::downgrade(&database));
                (server.told.metrics).register(|registry| registry.register_collector(Box::new(collector)));
                if let Some(taking) = taking {
                    taking.begin(&database);
                }
                server.database.open(database);
                Ok(server)
            }
            Err(error) => {
                server.shutdown().await;
                Err(StartError::Open(error))
            }
        }
    }

    /// How many PostgreSQL connections the limit of open files leaves space for, of those that are wanted.
    pub fn connections_allowed(wanted: usize) -> usize {
        ConnectionsMax::now(wanted).pg
    }

    /// Where PostgreSQL clients connect.
    pub fn pg_addr(&self) -> SocketAddr {
        self.pg_addr
    }

    /// Where HTTP is served.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Where workers of other processes are taken in, if they are.
    pub fn cluster_addr(&self) -> Option<SocketAddr> {
        self.cluster_addr
    }

    /// How connections are encrypted, if they are.
    pub fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// The database, for programs that embed the server and want sessions without a wire.
    ///
    /// # Errors
    /// The server is being stopped.
    pub fn database(&self) -> SqlResult<Arc<Database>> {
        self.database.get()
    }

    /// Returns when something is gone without which the server is of no use, and says what. Whoever runs it ends it then.
    pub async fn ended(&self) -> String {
        match self.database.get() {
            Ok(database) => database.ended().await,
            Err(error) => error.message,
        }
    }

    /// What the server counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.told.metrics
    }

    /// Stops: no new connections, idle ones are told, running statements may end for a while and are then cancelled,
    /// and the database is closed. Every acknowledged write is on disk anyway.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        if timeout(self.shutdown_timeout, self.connections_ended())
            .await
            .is_err()
        {
            tracing::info!("cancelling statements that are still running");
            self.cancels.cancel_all();
            self.queries.cancel_all();
            if timeout(CANCEL_TIMEOUT, self.connections_ended()).await.is_err() {
                tracing::warn!("closing connections that did not end");
                self.abandon.send_replace(true);
                self.connections_ended().await;
            }
        }
        if let Some(traces) = &self.told.traces {
            traces.stop().await;
        }
        if let Some(database) = self.database.close()
            && let Err(error) = database.close().await
        {
            tracing::error!(%error, "closing the database failed; what was acknowledged is safe");
        }
    }

    async fn connections_ended(&mut self) {
        for task in [&mut self.pg_task, &mut self.http_task] {
            if !task.is_finished()
                && let Err(error) = task.await
            {
                tracing::error!(%error, "a listener failed");
            }
        }
    }
}

/// What the database needs to know of the configuration.
fn database_options(config: &Config) -> DatabaseOptions {
    let mut options = DatabaseOptions::new(&config.data);
    options.cores = config.cores.unwrap_or(options.cores);
    options.workers = config.workers.unwrap_or(options.workers);
    options.has_machines = config.cluster.is_some();
    options.tuning = config.tuning.clone();
    options.query_partition_rows = config.query_partition_rows;
    options.recursion.iterations = config.recursion_iterations_max;
    options.recursion.rows = config.recursion_rows_max;
    options.has_password = config.password.is_some();
    options.secrets_key = (config.secrets_key.clone()).or_else(|| config.secrets_key_of_file.clone());
    options.private_hosts = Arc::new(config.webhook_private_hosts.clone());
    options.run_views = config.views;
    options.shipping = config.log_url.as_ref().map(|url| ShippingOptions {
        url: url.clone(),
        interval: config.log_ship_interval,
        take_over: config.take_over,
    });
    options
}

async fn listen(
    address: SocketAddr,
    clients: &'static str,
    flag: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen {
        address,
        clients,
        flag,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_its_remedy() {
        let (_held, address) = listen("127.0.0.1:0".parse().unwrap(), "HTTP", "--http")
            .await
            .unwrap();
        let error = listen(address, "HTTP", "--http").await.unwrap_err().to_string();
        assert!(
            error.contains(&address.to_string()) && error.contains("choose another address with --http"),
            "{error}"
        );
    }
}
