//! A server in this process, which rows are handed to as Arrow.
//!
//! For what is not about the server's start and end: those suites take a [`crate::target::Target`].

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use millrace_engine::{Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_sql_tests::postgres::Postgres;
use millrace_storage::ChangeBatch;
use millrace_wire::{Config, Server};
use tempfile::TempDir;

use crate::client::Client;
use crate::error::BenchError;

/// Where data is kept if there is such a directory: memory, so that no disk is measured.
const MEMORY: &str = "/dev/shm";

/// Where a server keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In memory, where the system has a directory there.
    Memory,
    /// Where the system has its temporary files.
    Disk,
}

impl Place {
    /// A new directory, removed when it is dropped.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn directory(self) -> Result<TempDir, BenchError> {
        let memory = Path::new(MEMORY);
        let directory = match self {
            Place::Memory if memory.is_dir() => tempfile::tempdir_in(memory),
            _ => tempfile::tempdir(),
        };
        directory.map_err(BenchError::io("cannot make a directory"))
    }
}

/// A PostgreSQL server on a directory of its own; `None`: its programs are not there ([`millrace_sql_tests::postgres::BIN`]).
///
/// # Errors
/// It does not start.
pub fn postgres() -> Result<Option<(Postgres, TempDir)>, BenchError> {
    let directory = Place::Disk.directory()?;
    // It may be run by another user, who is to get into it.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))
        .map_err(BenchError::io("cannot open a directory to others"))?;
    let postgres = Postgres::start(&directory.path().join("postgres"))?;
    Ok(postgres.map(|postgres| (postgres, directory)))
}

/// A server of this process on any free ports.
///
/// # Errors
/// It does not start.
pub async fn serve(data: &Path, configure: impl FnOnce(&mut Config)) -> Result<Server, BenchError> {
    let mut config = Config {
        data: data.to_owned(),
        pg: (Ipv4Addr::LOCALHOST, 0).into(),
        http: (Ipv4Addr::LOCALHOST, 0).into(),
        ..Config::default()
    };
    configure(&mut config);
    let server = Server::start(config).await;
    server.map_err(|error| BenchError::Server(error.to_string()))
}

/// A server on a directory of its own, with one connection.
pub struct Bed {
    pub server: Server,
    pub client: Client,
    pub runtime: Runtime,
    _directory: TempDir,
}

/// Rows for several streams, written at once.
pub type Rows = Vec<(RelationId, RecordBatch)>;

impl Bed {
    /// A server on all cores with its data in memory, after these statements.
    ///
    /// # Errors
    /// It does not start, or refuses a statement.
    pub async fn new(statements: &[&str]) -> Result<Self, BenchError> {
        let bed = Self::start(Place::Memory, |_| {}).await?;
        for statement in statements {
            bed.client.run(statement).await?;
        }
        Ok(bed)
    }

    /// A server that is configured so.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(place: Place, configure: impl FnOnce(&mut Config)) -> Result<Self, BenchError> {
        let directory = place.directory()?;
        let server = serve(&directory.path().join("data"), configure).await?;
        let database = server
            .database()
            .map_err(|error| BenchError::Server(error.to_string()))?;
        Ok(Bed {
            runtime: database.runtime().clone(),
            client: Client::connect(server.pg_addr()).await?,
            server,
            _directory: directory,
        })
    }

    /// A stream or view by its name.
    pub fn relation(&self, name: &str) -> Result<RelationId, BenchError> {
        let database = self
            .server
            .database()
            .map_err(|error| BenchError::Server(error.to_string()))?;
        let catalog = database.catalog();
        let object = catalog.relation("millrace", "public", name);
        let object = object.ok_or_else(|| BenchError::Server(format!("there is no relation {name}")))?;
        Ok(RelationId(object.id.0))
    }

    /// Hands over rows; durable when it returns.
    pub async fn append(&self, rows: Rows) -> Result<WriteToken, BenchError> {
        append(&self.runtime, rows).await
    }

    /// Hands over writes one after the other, two under way; how long it took until all views had them. What `make` takes
    /// is not counted.
    pub async fn feed(
        &self,
        mut make: impl FnMut() -> Result<Option<Rows>, BenchError>,
    ) -> Result<Duration, BenchError> {
        let mut time = Duration::ZERO;
        let mut before: Option<WriteToken> = None;
        while let Some(rows) = make()? {
            let begin = Instant::now();
            let written = self.append(rows).await?;
            if let Some(before) = before.replace(written) {
                self.runtime.wait_for(&before).await.map_err(BenchError::engine)?;
            }
            time += begin.elapsed();
        }
        let begin = Instant::now();
        if let Some(before) = before {
            self.runtime.wait_for(&before).await.map_err(BenchError::engine)?;
        }
        Ok(time + begin.elapsed())
    }

    /// Ends the server.
    pub async fn stop(self) {
        drop(self.client);
        self.server.shutdown().await;
    }
}

/// Hands rows to a runtime; durable when it returns.
pub async fn append(runtime: &Runtime, rows: Rows) -> Result<WriteToken, BenchError> {
    let rows = rows
        .into_iter()
        .map(|(stream, rows)| (stream, ChangeBatch::insertions(rows)));
    runtime
        .append(rows.collect(), None)
        .await
        .map_err(BenchError::engine)
}
