//! A connection that is plain, or encrypted from its first byte, or becomes so.
//!
//! ```text
//!             the first byte                      the handshake ends
//!  Unknown ──────────────────> Handshake ─────────────────────────────> Encrypted
//!     │  └──────────────────> Plain ── SSLRequest ──> Handshake
//!     └─ HTTP without TLS where it is required ──> Refused: told so, and closed
//! ```
//!
//! The handshake runs when the connection is read or written first: whoever accepts connections never waits for it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Join, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use millrace_database::sessions::Encryption;

use super::{Side, Tls, handshake};

/// What the first byte of a TLS handshake is.
const HANDSHAKE: u8 = 0x16;

/// What a client that speaks plain HTTP is told where TLS is required.
const REFUSAL: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nconnection: close\r\ncontent-type: application/json\r\n\
    content-length: 102\r\nupgrade: TLS/1.2\r\n\r\n\
    {\"error\":{\"code\":\"28000\",\"message\":\"this server requires encryption (tls = required): use https://\"}}\n";

/// A stream that can be encrypted while it is in use.
pub trait Encrypt: AsyncRead + AsyncWrite + Unpin {
    /// Whether [`Encrypt::encrypt`] may be called: there is a certificate, and it has not been called.
    fn can_encrypt(&self) -> bool {
        false
    }

    /// Whether what is read and written is encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// The hash of the certificate that the client was shown, which both sides can sign; `None`: it was shown none.
    fn certificate_hash(&self) -> Option<Vec<u8>> {
        None
    }

    /// What the handshake came to, once it has ended.
    fn encryption(&self) -> Option<Encryption> {
        None
    }

    /// The client's next bytes are those of a handshake.
    fn encrypt(&mut self) {}
}

/// Bytes in memory, as tests and fuzz targets send them, are never encrypted.
impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Encrypt for Join<R, W> {}
impl Encrypt for DuplexStream {}

/// See the module.
pub struct Stream {
    state: State,
    tls: Option<Arc<Tls>>,
    side: Side,
    /// The hash of the certificate that the client is shown.
    shown: Option<Arc<[u8]>>,
    /// What the handshake came to, once it has ended.
    encryption: EncryptionCell,
}

/// What a handshake came to, which is known when it has ended.
pub type EncryptionCell = Arc<OnceLock<Encryption>>;

enum State {
    Unknown(TcpStream),
    Plain(TcpStream),
    /// `true`: without SSLRequest, so that the protocol must be named in the handshake.
    Handshake(Box<Accept<TcpStream>>, bool),
    Encrypted(Box<TlsStream<TcpStream>>),
    /// How much of the refusal was written.
    Refused(TcpStream, usize),
    Ended,
}

impl Stream {
    /// A connection from which nothing has been read.
    pub fn new(stream: TcpStream, tls: Option<Arc<Tls>>, side: Side) -> Stream {
        let state = match &tls {
            Some(_) => State::Unknown(stream),
            None => State::Plain(stream),
        };
        Stream {
            state,
            tls,
            side,
            shown: None,
            encryption: EncryptionCell::default(),
        }
    }

    /// Where it will be known what the handshake came to.
    pub fn encryption_cell(&self) -> EncryptionCell {
        Arc::clone(&self.encryption)
    }

    fn handshake(&mut self, stream: TcpStream, is_direct: bool) -> State {
        match &self.tls {
            Some(tls) => {
                let (config, shown) = tls.config(self.side);
                self.shown = shown;
                let acceptor = TlsAcceptor::from(config);
                State::Handshake(Box::new(acceptor.accept(stream)), is_direct)
            }
            None => State::Plain(stream),
        }
    }

    /// Gets on to where rows of bytes can be read and written.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                State::Plain(_) | State::Encrypted(_) | State::Ended => return Poll::Ready(Ok(())),
                State::Unknown(stream) => {
                    let mut byte = [0];
                    let count = ready!(stream.poll_peek(context, &mut ReadBuf::new(&mut byte)))?;
                    let State::Unknown(stream) = std::mem::replace(&mut self.state, State::Ended) else {
                        return Poll::Ready(Ok(()));
                    };
                    let is_required = self.tls.as_ref().is_some_and(|tls| tls.is_required());
                    self.state = match (count, byte[0]) {
                        (1, HANDSHAKE) => self.handshake(stream, true),
                        (1, _) if is_required && self.side == Side::Http => State::Refused(stream, 0),
                        _ => State::Plain(stream),
                    };
                }
                State::Handshake(accept, is_direct) => {
                    let (accepted, is_direct) = (ready!(Pin::new(&mut **accept).poll(context)), *is_direct);
                    self.state = State::Ended;
                    let stream = accepted?;
                    // A handshake with which somebody came for another protocol is not answered in this one.
                    if is_direct
                        && self.side == Side::Postgres
                        && stream.get_ref().1.alpn_protocol().is_none()
                    {
                        let why = "direct TLS needs the protocol's name in the handshake (ALPN postgresql)";
                        return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                    }
                    let _ = self.encryption.set(handshake::outcome(stream.get_ref().1));
                    self.state = State::Encrypted(Box::new(stream));
                }
                State::Refused(stream, written) => {
                    while *written < REFUSAL.len() {
                        *written += ready!(Pin::new(&mut *stream).poll_write(context, &REFUSAL[*written..]))?;
                    }
                    let _ = ready!(Pin::new(&mut *stream).poll_shutdown(context));
                    self.state = State::Ended;
                }
            }
        }
    }
}

impl Encrypt for Stream {
    fn can_encrypt(&self) -> bool {
        self.tls.is_some() && matches!(self.state, State::Unknown(_) | State::Plain(_))
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.state, State::Encrypted(_))
    }

    fn certificate_hash(&self) -> Option<Vec<u8>> {
        let shown = self.shown.as_ref().filter(|_| self.is_encrypted());
        shown.map(|hash| hash.to_vec())
    }

    fn encryption(&self) -> Option<Encryption> {
        self.encryption.get().cloned()
    }

    fn encrypt(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::Unknown(stream) | State::Plain(stream) => self.handshake(stream, false),
            other => other,
        };
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(context))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            State::Encrypted(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            State::Encrypted(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_flush(context),
            State::Encrypted(stream) => Pin::new(&mut **stream).poll_flush(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Unknown(stream) | State::Plain(stream) | State::Refused(stream, _) => {
                Pin::new(stream).poll_shutdown(context)
            }
            State::Encrypted(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            State::Handshake(..) | State::Ended => Poll::Ready(Ok(())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(context))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            State::Encrypted(stream) => Pin::new(&mut **stream).poll_write_vectored(context, pieces),
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let text = std::str::from_utf8(super::REFUSAL).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
    }
}
