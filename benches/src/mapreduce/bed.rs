//! A server in this process that streams are fed to.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use millrace_engine::{Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_server::{Config, Server};
use millrace_storage::ChangeBatch;
use tempfile::TempDir;

use crate::client::Client;
use crate::error::BenchError;

/// Where the log is kept if there is such a directory: memory.
const MEMORY: &str = "/dev/shm";

pub struct Bed {
    pub server: Server,
    pub client: Client,
    pub runtime: Runtime,
    _directory: TempDir,
}

/// Rows for several streams, written at once.
pub type Rows = Vec<(RelationId, RecordBatch)>;

impl Bed {
    /// A server on all cores, after these statements.
    pub async fn new(statements: &[&str]) -> Result<Self, BenchError> {
        let memory = std::path::Path::new(MEMORY);
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Self::start(directory, |_| {}, statements).await
    }

    /// A server that is configured so and keeps its data on the disk.
    pub async fn on_disk(configure: impl FnOnce(&mut Config)) -> Result<Self, BenchError> {
        Self::start(tempfile::tempdir(), configure, &[]).await
    }

    async fn start(
        directory: std::io::Result<TempDir>,
        configure: impl FnOnce(&mut Config),
        statements: &[&str],
    ) -> Result<Self, BenchError> {
        let directory = directory.map_err(BenchError::io("cannot make a directory for the log"))?;
        let mut config = Config {
            data: directory.path().join("data"),
            pg: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            http: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            ..Config::default()
        };
        configure(&mut config);
        let server = Server::start(config).await;
        let server = server.map_err(|error| BenchError::Server(error.to_string()))?;
        let client = Client::connect(server.pg_addr()).await?;
        for statement in statements {
            client.run(statement).await?;
        }
        let database = server
            .database()
            .map_err(|error| BenchError::Server(error.to_string()))?;
        Ok(Bed {
            runtime: database.runtime().clone(),
            client,
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

    /// The one number that a query answers.
    pub async fn number(&self, query: &str) -> Result<f64, BenchError> {
        let rows = self.client.rows(query).await?;
        let value = rows.first().and_then(|row| row.first()).cloned().flatten();
        let number = value.as_ref().and_then(|value| value.parse().ok());
        number.ok_or_else(|| BenchError::Wrong(format!("{query} answers {rows:?}")))
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
