//! The listener of HTTP, with a limit on how many connections there are at a time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::patience::{Patience, Requests};
use crate::addresses::{Addresses, Place, keep_alive};
use crate::tls::{EncryptionCell, Side, Stream, Tls};

/// Accepts so many connections at a time; more are closed at once.
pub struct Limited {
    listener: TcpListener,
    places: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    tls: Option<Arc<Tls>>,
}

impl Limited {
    /// At most `connections_max` at a time, encrypted where clients ask for it and `tls` is there.
    pub fn new(
        listener: TcpListener,
        connections_max: usize,
        addresses: Arc<Addresses>,
        tls: Option<Arc<Tls>>,
    ) -> Limited {
        Limited {
            listener,
            places: Arc::new(Semaphore::new(connections_max)),
            addresses,
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
            let places = Arc::clone(&self.places).try_acquire_owned().ok();
            match places.zip(self.addresses.enter(peer.ip())) {
                Some(place) => {
                    keep_alive(&stream, peer);
                    return (
                        Connection {
                            // The handshake is the connection's own affair: nobody else waits for it.
                            stream: Stream::new(stream, self.tls.clone(), Side::Http),
                            patience: Patience::default(),
                            _place: place,
                        },
                        peer,
                    );
                }
                None => tracing::debug!(%peer, "too many HTTP connections"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A client: its address, and what it has shown.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// How its connection is encrypted.
    pub encryption: EncryptionCell,
    /// What its connection is doing.
    pub requests: Arc<Requests>,
}

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Peer {
        Peer {
            address: *stream.remote_addr(),
            encryption: stream.io().stream.encryption_cell(),
            requests: Arc::clone(&stream.io().patience.requests),
        }
    }
}

/// A connection, and its place among them.
pub struct Connection {
    stream: Stream,
    patience: Patience,
    _place: (OwnedSemaphorePermit, Place),
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            return Poll::Ready(read);
        }
        // Whoever sends nothing, or a head byte by byte, or does not end the handshake, is not waited for.
        ready!(self.patience.poll_exhausted(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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
