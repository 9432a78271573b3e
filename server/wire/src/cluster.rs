//! More than one machine: where a server takes workers in, and the process that is one.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use millrace_database::database::elsewhere::Planner;
use millrace_database::{Database, DatabaseOptions};
use millrace_engine::cluster::{Host, HostOptions, JoinError, Left};
use millrace_mesh::{Access, Certificate, Listener, MeshError};
use millrace_postgres::error::SqlError;
use millrace_resource::spill::state::SpillOptions;
use ring::digest::{Context, SHA256};

use crate::VERSION;
use crate::config::Config;
use crate::tls::{Tls, TlsError};

/// Bytes of the digest of the binary that its name has.
const BUILD_BYTES: usize = 6;

/// What this binary is called among the processes of a cluster: its version, and the beginning of its digest.
///
/// # Errors
/// The binary cannot be read.
pub fn build() -> io::Result<String> {
    let mut file = io::BufReader::with_capacity(1 << 20, std::fs::File::open(std::env::current_exe()?)?);
    let mut digest = Digest(Context::new(&SHA256));
    io::copy(&mut file, &mut digest)?;
    let digest = digest.0.finish();
    let mut build = format!("{VERSION}-");
    for byte in &digest.as_ref()[..BUILD_BYTES] {
        // A string can be written to.
        let _ = write!(build, "{byte:02x}");
    }
    Ok(build)
}

struct Digest(Context);

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a worker has not come about, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It has to know the token of the coordinator.
    #[error(
        "a worker needs the coordinator's cluster_token: set MILLRACE_CLUSTER_TOKEN, or cluster_token in the configuration file"
    )]
    NoToken,
    /// The binary or a directory cannot be read or written.
    #[error("{what}: {source}")]
    Io {
        /// What was to be done.
        what: &'static str,
        /// Why it was not.
        source: io::Error,
    },
    /// Its address cannot be listened on.
    #[error("cannot listen on {address} for other workers: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: MeshError,
    },
    /// What plans of views are made with cannot be brought up.
    #[error("cannot prepare the planner: {}", .0.message)]
    Planner(SqlError),
    /// The coordinator does not take it.
    #[error("the coordinator at {coordinator} does not take this worker: {source}")]
    Refused {
        /// Where it was asked.
        coordinator: String,
        /// Why not.
        source: MeshError,
    },
    /// It cannot make a view that is there.
    #[error("this worker is of no use to the coordinator: {0}")]
    Unfit(String),
    /// The certificate cannot be used.
    #[error("TLS: {0}")]
    Tls(TlsError),
    /// It cannot be reached.
    #[error("cannot join {coordinator}: {source}")]
    Join {
        /// Where it was asked.
        coordinator: String,
        /// Why not.
        source: JoinError,
    },
}

/// A worker's process: what it is told by its command line.
#[derive(Debug, Clone)]
pub struct WorkerArgs {
    /// Where the coordinator takes workers in: its key `cluster`.
    pub join: String,
    /// Where this worker listens for others; none: at the address by which it reaches the coordinator, on any port.
    pub listen: Option<SocketAddr>,
    /// Where others reach it, if that is another address.
    pub advertise: Option<String>,
}

/// A process that can join a coordinator, and do so again.
pub struct Worker {
    args: WorkerArgs,
    config: Config,
    access: Access,
    build: String,
    planner: Arc<Planner>,
    directory: tempfile::TempDir,
}

impl Worker {
    /// Prepares what a worker needs beside its coordinator.
    ///
    /// # Errors
    /// There is no token, or something that it needs cannot be made.
    pub async fn prepare(args: WorkerArgs, config: Config) -> Result<Worker, WorkerError> {
        let token = config.cluster_token.as_deref().ok_or(WorkerError::NoToken)?;
        let tls = Tls::new(&config.tls).map_err(WorkerError::Tls)?;
        let access = access(&config, token, tls.as_ref()).map_err(|error| WorkerError::Io {
            what: "cannot make a certificate",
            source: io::Error::other(error),
        })?;
        let io = |what| move |source| WorkerError::Io { what, source };
        let build = build().map_err(io("cannot read this binary"))?;
        let directory = tempfile::Builder::new().prefix("millrace-worker").tempdir();
        let directory = directory.map_err(io("cannot make a directory for state that is on disk"))?;
        // It plans, and runs nothing.
        let options = DatabaseOptions {
            cores: 1,
            tuning: config.tuning.clone(),
            ..DatabaseOptions::new(directory.path().join("planner"))
        };
        let database = millrace_system::system::open(options).await;
        let planner = Arc::new(Planner(database.map_err(WorkerError::Planner)?));
        Ok(Worker {
            args,
            config,
            access,
            build,
            planner,
            directory,
        })
    }

    /// What it is called.
    pub fn build(&self) -> &str {
        &self.build
    }

    fn database(&self) -> &Arc<Database> {
        &self.planner.0
    }

    /// Joins the coordinator.
    ///
    /// # Errors
    /// It cannot be reached, or does not take this worker.
    pub async fn join(&self) -> Result<Joined, WorkerError> {
        let address = match self.args.listen {
            Some(address) => address,
            None => SocketAddr::new(self.own_address().await, 0),
        };
        let listener = Listener::bind(address, self.access.clone()).await;
        let listener = listener.map_err(|source| WorkerError::Listen { address, source })?;
        let memory = self.database().runtime().memory();
        let cores = self
            .config
            .cores
            .unwrap_or(DatabaseOptions::new(PathBuf::new()).cores);
        let options = HostOptions {
            coordinator: self.args.join.clone(),
            access: self.access.clone(),
            build: self.build.clone(),
            advertised: self.args.advertise.clone(),
            cores,
            memory: Arc::clone(memory),
            memory_limit: memory.limit() as u64,
            spill: Some(SpillOptions::new(self.directory.path().join("state"))),
            directory: self.directory.path().to_owned(),
        };
        let planner = Arc::clone(&self.planner);
        match Host::join(options, planner, listener).await {
            Ok(host) => Ok(Joined(host)),
            Err(JoinError::Mesh(
                source @ (MeshError::Refused(_)
                | MeshError::Token
                | MeshError::OnlyHere
                | MeshError::OnlyThere
                | MeshError::Protocol),
            )) => Err(WorkerError::Refused {
                coordinator: self.args.join.clone(),
                source,
            }),
            Err(source) => Err(WorkerError::Join {
                coordinator: self.args.join.clone(),
                source,
            }),
        }
    }

    /// The address of this machine by which it reaches the coordinator.
    async fn own_address(&self) -> IpAddr {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let Ok(mut coordinator) = tokio::net::lookup_host(&self.args.join).await else {
            return loopback;
        };
        let Some(coordinator) = coordinator.next() else {
            return loopback;
        };
        let any = match coordinator {
            SocketAddr::V4(_) => IpAddr::from([0, 0, 0, 0]),
            SocketAddr::V6(_) => IpAddr::from([0_u16; 8]),
        };
        // Nothing is sent: the system only chooses a route.
        let chosen = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
            socket.connect(coordinator)?;
            socket.local_addr()
        });
        chosen.map_or(loopback, |address| address.ip())
    }

    /// Ends what was prepared.
    pub async fn close(self) {
        // What it has is worth nothing.
        let _ = self.database().close().await;
    }
}

/// A worker that takes part.
pub struct Joined(Host);

impl Joined {
    /// Its number there.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Resolves when it does not take part any more; whether the coordinator has let it go.
    ///
    /// # Errors
    /// It cannot make a view that the coordinator has: to join again would come to the same.
    pub async fn is_dismissed(self) -> Result<bool, WorkerError> {
        match self.0.ended().await {
            Left::Dismissed => Ok(true),
            Left::Lost => Ok(false),
            Left::Unfit(why) => Err(WorkerError::Unfit(why)),
        }
    }
}

/// What links go by. A certificate that was configured is shown on them, too; what is trusted is the token.
fn access(config: &Config, token: &str, tls: Option<&Arc<Tls>>) -> Result<Access, MeshError> {
    if !config.cluster_tls {
        return Ok(Access::plain(token));
    }
    let shown = tls
        .cloned()
        .map(|tls| Arc::new(move || tls.of_links()) as Certificate);
    Access::encrypted(token, shown)
}

/// Where a server takes workers in: a listener that was bound, and how to use it.
pub(crate) struct Taking {
    listener: Listener,
    build: String,
}

impl Taking {
    /// None if the configuration does not say that it should.
    ///
    /// # Errors
    /// The address cannot be listened on, or the binary cannot be read.
    pub async fn bind(config: &Config, tls: Option<&Arc<Tls>>) -> Result<Option<Taking>, MeshError> {
        let (Some(address), Some(token)) = (config.cluster, config.cluster_token.as_deref()) else {
            return Ok(None);
        };
        let listener = Listener::bind(address, access(config, token, tls)?).await?;
        if !config.cluster_tls && !address.ip().is_loopback() {
            tracing::warn!("links between machines are not encrypted (cluster_tls)");
        }
        Ok(Some(Taking {
            listener,
            build: build()?,
        }))
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// From now on workers may join.
    pub fn begin(self, database: &Database) {
        database.runtime().listen_for_workers(self.listener, &self.build);
    }
}
