//! Why a benchmark gave no result.

use std::io;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millrace_sql_tests::Failure;
use tokio_postgres::error::SqlState;

/// Why a benchmark gave no result: what it was doing, and what happened.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, a process or a socket did not work.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What happened.
        source: io::Error,
    },
    /// The server refused something, or the connection broke.
    #[error("{doing}: {}", postgres_text(source))]
    Postgres {
        /// What was being done.
        doing: String,
        /// What happened.
        source: tokio_postgres::Error,
    },
    /// The oracle failed.
    #[error("the oracle failed: {0}")]
    Oracle(#[from] DataFusionError),
    /// The data cannot be read or encoded.
    #[error("the data cannot be used: {0}")]
    Data(#[from] ArrowError),
    /// The server did not start or stop as it should.
    #[error("{0}")]
    Server(String),
    /// The engine inside this process failed.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// A figure cannot be drawn.
    #[error("cannot draw {0}")]
    Plot(String),
    /// The server's answer is wrong: speed does not matter then.
    #[error("wrong result: {0}")]
    Wrong(String),
}

impl From<Failure> for BenchError {
    /// What the tests' library says, which may be an error of ours that went through it.
    fn from(failure: Failure) -> Self {
        match failure.downcast::<BenchError>() {
            Ok(error) => *error,
            Err(error) => BenchError::Server(error.to_string()),
        }
    }
}

impl BenchError {
    /// For `map_err`: an I/O error while doing something.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| BenchError::Io { doing, source }
    }

    /// For `map_err`: an error of the engine inside this process.
    pub fn engine(error: impl std::fmt::Display) -> Self {
        BenchError::Engine(error.to_string())
    }

    /// Whether the server had no memory for a statement.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            BenchError::Postgres { source, .. } => source.code() == Some(&SqlState::OUT_OF_MEMORY),
            _ => false,
        }
    }

    /// For `map_err`: the server's error while doing something.
    pub fn postgres(doing: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Self {
        let doing = doing.into();
        move |source| BenchError::Postgres { doing, source }
    }
}

/// The client library's own text of a server's error is only "db error".
fn postgres_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => error.to_string(),
    }
}
