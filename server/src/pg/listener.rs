//! Accepts PostgreSQL clients, and keeps count of them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};

use super::connection::{self, Shared};
use crate::error::{SqlError, SqlState};
use crate::serve::signalled;

/// How long to wait when the process is out of file descriptors, before trying to accept again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How many connections above the limit are served for as long as it takes to tell them so, or to take their cancel
/// request. Those above that are closed at once.
const EXCESS_CONNECTIONS_MAX: usize = 32;

/// Accepts connections until the server stops; then waits for those that are open to end.
///
/// When `abandon` turns true, connections that are still open are dropped where they are.
pub async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    connections_max: usize,
    mut stopping: watch::Receiver<bool>,
    mut abandon: watch::Receiver<bool>,
) {
    let for_connections = stopping.clone();
    let mut connections = JoinSet::new();
    loop {
        // Finished tasks are collected as they end, so that the set holds exactly the open connections.
        tokio::select! {
            () = signalled(&mut stopping) => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() >= connections_max + EXCESS_CONNECTIONS_MAX => drop(stream),
                Ok((stream, peer)) => {
                    let refusal = refusal(connections.len(), connections_max);
                    let connection = serve(stream, peer, Arc::clone(&shared), refusal, for_connections.clone());
                    connections.spawn(connection);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a PostgreSQL connection");
                    if is_out_of_resources(&error) {
                        sleep(ACCEPT_RETRY).await;
                    }
                }
            },
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            () = signalled(&mut abandon) => break,
            ended = connections.join_next() => match ended {
                Some(ended) => log_panic(ended),
                None => return,
            },
        }
    }
    connections.shutdown().await;
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    refusal: Option<SqlError>,
    stopping: watch::Receiver<bool>,
) {
    // Answers are written whole, so there is nothing that waiting for more could save.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot turn off delayed sending");
    }
    let _open = shared.metrics.connection_opened("pg");
    connection::serve(stream, peer.to_string(), Arc::clone(&shared), refusal, stopping).await;
}

/// One connection in excess is still served long enough to be told why it is refused.
fn refusal(open: usize, connections_max: usize) -> Option<SqlError> {
    (open >= connections_max).then(|| {
        SqlError::new(SqlState::TooManyConnections, "sorry, too many clients already")
            .with_detail(format!("The limit is {connections_max} connections."))
            .with_hint("Close idle connections, use a pool, or raise connections_max.")
    })
}

fn is_out_of_resources(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| code == Some(errno.raw_os_error()))
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection ended by a defect of millrace; the others go on");
    }
}
