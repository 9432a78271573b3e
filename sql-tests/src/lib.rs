//! What the tests of whole servers share: a server in this process, a client of it, and rows as texts.
//!
//! ```text
//!   tests/*.rs ---> crash · hostile · soak · histories · oracle · tpch     what is done to a server, or to an engine
//!       |                |
//!       |            start, connect, rows, run                             a server in this process, and a client of it
//!       |            machines                                              servers with a worker beside them
//!       |            batch · engine                                        answers of plain DataFusion; an engine alone
//!       |
//!       `------> outside · kafka · registry · s3 · postgres                real servers of others, and clients of them
//! ```
//!
//! What the right rows are, and whether they are there, is decided by `millrace-oracle`.
//!
//! The tests themselves are `tests/slt.rs` (the files under `slt/`), `tests/server/random.rs` (random views against plain DataFusion),
//! `tests/crash.rs` (kill -9 and restart), `tests/server/abuse.rs` (clients that do not behave), `tests/hostile.rs` (clients that want
//! to end the server), and others beside them.

pub mod batch;
pub mod crash;
pub mod engine;
pub mod histories;
pub mod hostile;
pub mod kafka;
pub mod machines;
pub mod oracle;
pub mod outside;
pub mod postgres;
pub mod registry;
pub mod s3;
pub mod soak;
pub mod tpch;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use millrace_cli::test::{VirtualClock, throw_away};
use millrace_oracle::text::TextRow;
use millrace_wire::Server;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// A failure, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The seed of a random test, the same always unless the environment says otherwise. `-- oracle` of the benches looks for what
/// no run has met.
///
/// # Panics
/// As [`millrace_oracle::seed`].
#[must_use]
pub fn seed() -> u64 {
    millrace_oracle::seed(20_261_122)
}

/// A server of this process on the directory, on free loopback ports.
///
/// # Errors
/// The server cannot be started.
pub async fn start(directory: &Path) -> Result<Server, Failure> {
    Ok(Server::start(throw_away(directory)).await?)
}

/// As [`start`], on a clock that is set by hand.
///
/// # Errors
/// The server cannot be started.
pub async fn start_on(directory: &Path, clock: &Arc<VirtualClock>) -> Result<Server, Failure> {
    Ok(Server::start_on(throw_away(directory), Some(Arc::clone(clock))).await?)
}

/// A connection. It lives as long as the client that is returned.
///
/// # Errors
/// There is no server, or it refuses.
pub async fn connect(address: SocketAddr) -> Result<Client, Failure> {
    let mut config = Config::new();
    config
        .host(address.ip().to_string())
        .port(address.port())
        .user("millrace")
        .dbname("millrace");
    let (client, connection) = config.connect(NoTls).await?;
    // Whoever waits for an answer hears of a lost connection.
    tokio::spawn(connection);
    Ok(client)
}

/// The rows of a query, in the order they came in.
///
/// # Errors
/// What the server says.
pub async fn rows(client: &Client, sql: &str) -> Result<Vec<TextRow>, Failure> {
    let messages = client
        .simple_query(sql)
        .await
        .map_err(|error| format!("{sql}\n{}", words(&error)))?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|index| row.get(index).map(str::to_owned))
                .collect(),
        ),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

/// The rows of a query as a multiset: sorted.
///
/// # Errors
/// What the server says.
pub async fn sorted_rows(client: &Client, sql: &str) -> Result<Vec<TextRow>, Failure> {
    let mut rows = rows(client, sql).await?;
    rows.sort();
    Ok(rows)
}

/// Runs statements that answer no rows.
///
/// # Errors
/// What the server says.
pub async fn run(client: &Client, sql: &str) -> Result<(), Failure> {
    client
        .batch_execute(sql)
        .await
        .map_err(|error| format!("{sql}\n{}", words(&error)).into())
}

/// Everything that a server said about a failure.
pub fn words(error: &tokio_postgres::Error) -> String {
    let Some(error) = error.as_db_error() else {
        return error.to_string();
    };
    let more = [error.detail(), error.hint(), error.where_()];
    more.into_iter().flatten().fold(
        format!("{}: {}", error.code().code(), error.message()),
        |text, part| format!("{text}\n{part}"),
    )
}
