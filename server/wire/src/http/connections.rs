//! The listener of HTTP, with a limit on how many connections there are at a time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tls::{Side, Stream, Tls};

/// Accepts so many connections at a time; more are closed at once.
pub struct Limited {
    listener: TcpListener,
    places: Arc<Semaphore>,
    tls: Option<Arc<Tls>>,
}

impl Limited {
    /// At most `connections_max` at a time, encrypted where clients ask for it and `tls` is there.
    pub fn new(listener: TcpListener, connections_max: usize, tls: Option<Arc<Tls>>) -> Limited {
        Limited {
            listener,
            places: Arc::new(Semaphore::new(connections_max)),
            tls,
        }
    }
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // That of a TcpListener, which waits a while where the process has no files left.
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => {
                    return (
                        Connection {
                            // The handshake is the connection's own affair: nobody else waits for it.
                            stream: Stream::new(stream, self.tls.clone(), Side::Http),
                            _place: place,
                        },
                        peer,
                    );
                }
                Err(_) => tracing::debug!(%peer, "too many HTTP connections"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The address of a client.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Peer {
        Peer(*stream.remote_addr())
    }
}

/// A connection, and its place among them.
pub struct Connection {
    stream: Stream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
