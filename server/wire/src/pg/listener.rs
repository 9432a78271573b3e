//! Accepts PostgreSQL clients, and keeps count of them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, sleep};

use super::connection::{self, Shared};
use crate::addresses::keep_alive;
use crate::slot::signalled;
use crate::tls::{Side, Stream};

/// How long to wait when the process is out of file descriptors, before trying to accept again.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How many connections there may be beside the sessions: those that have yet to show who they are, that are told that there is
/// no place for them, or that come to cancel. When there are more, the one is closed that has been showing who it is for longest: whoever
/// opens connections and says nothing keeps nobody out.
const STARTING_MAX: usize = 32;

/// Accepts connections until the server stops; then waits for those that are open to end.
///
/// When `abandon` turns true, connections that are still open are dropped where they are.
pub async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut stopping: watch::Receiver<bool>,
    mut abandon: watch::Receiver<bool>,
) {
    let for_connections = stopping.clone();
    let mut connections = JoinSet::new();
    let mut starting: VecDeque<(AbortHandle, Arc<AtomicBool>)> = VecDeque::new();
    let connections_max = shared.sessions_max + STARTING_MAX;
    loop {
        // Finished tasks are collected as they end, so that the set holds exactly the open connections.
        tokio::select! {
            () = signalled(&mut stopping) => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    starting.retain(|(task, is_admitted)| {
                        !task.is_finished() && !is_admitted.load(Ordering::Acquire)
                    });
                    if connections.len() >= connections_max
                        && let Some((oldest, _)) = starting.pop_front()
                    {
                        oldest.abort();
                    }
                    let is_admitted = Arc::new(AtomicBool::new(false));
                    let admitted = Arc::clone(&is_admitted);
                    let connection = serve(stream, peer, Arc::clone(&shared), admitted, for_connections.clone());
                    starting.push_back((connections.spawn(connection), is_admitted));
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
    is_admitted: Arc<AtomicBool>,
    stopping: watch::Receiver<bool>,
) {
    // Answers are written whole, so there is nothing that waiting for more could save.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY on a connection");
    }
    keep_alive(&stream, peer);
    let _open = shared.told.metrics.connection_opened("pg");
    connection::serve(
        Stream::new(stream, shared.tls.clone(), Side::Postgres),
        peer.to_string(),
        Arc::clone(&shared),
        is_admitted,
        stopping,
    )
    .await;
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
        tracing::error!(%error, "a connection ended because of a bug in millrace; the others continue");
    }
}
