//! Messages over a byte stream: what has been read and not yet decoded, what has been encoded and not yet written.
//!
//! pgwire knows how each message is laid out; this knows when to read and when to write. Nothing is written before
//! [`Wire::flush`] or before [`Wire::relieve`] finds that much has piled up, so that the answer to a query is one packet
//! where it fits into one.

use std::io;

use bytes::BytesMut;
use millrace_postgres::error::{SqlError, SqlState};
use pgwire::messages::{DecodeContext, PgWireBackendMessage, PgWireFrontendMessage, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::frame;
use crate::tls::Encrypt;

/// How much is read at least at a time, and what an idle connection may keep.
const READ_BYTES: usize = 8 * 1024;
/// How much memory a message's length field can claim before its bytes have come.
const READ_AHEAD_BYTES: usize = 1024 * 1024;
/// How much answer piles up before it is written.
const WRITE_BYTES: usize = 64 * 1024;
/// The longest message of whoever has not shown who it is.
const STRANGERS_BYTES_MAX: usize = 64 * 1024;

/// Why a connection ends.
#[derive(Debug)]
pub enum Closed {
    /// The client said goodbye or hung up between two messages, or in the middle of one.
    ByClient,
    /// The server is stopping.
    ByServer,
    /// The network failed.
    Io(io::Error),
    /// The client broke the protocol in a way after which its next message cannot be found, or may not go on.
    Fatal(SqlError),
}

impl From<io::Error> for Closed {
    fn from(error: io::Error) -> Self {
        Closed::Io(error)
    }
}

/// A byte stream that carries messages.
pub struct Wire<S> {
    stream: S,
    incoming: BytesMut,
    outgoing: BytesMut,
    context: DecodeContext,
    message_bytes_max: usize,
    /// Whether the client has shown who it is.
    is_admitted: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Wraps a stream over which nothing has been said yet.
    pub fn new(stream: S, message_bytes_max: usize) -> Self {
        let mut context = DecodeContext::default();
        context.awaiting_frontend_ssl = false;
        Wire {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            context,
            message_bytes_max,
            is_admitted: false,
        }
    }

    /// The next packet before the connection is established, length included. Cancel-safe.
    pub async fn receive_startup(&mut self) -> Result<BytesMut, Closed> {
        loop {
            let length = frame::startup_length(&self.incoming).map_err(Closed::Fatal)?;
            match length {
                Some(length) if self.incoming.len() >= length => return Ok(self.incoming.split_to(length)),
                _ => self.read_more(READ_BYTES).await?,
            }
        }
    }

    /// Notes the protocol version and that all that follows has a message type.
    pub fn established(&mut self, version: ProtocolVersion) {
        self.context.protocol_version = version;
        self.context.awaiting_frontend_startup = false;
    }

    /// Notes that the client has shown who it is: from now on its messages may be long.
    pub fn admitted(&mut self) {
        self.is_admitted = true;
    }

    /// The next message. Cancel-safe: what was read stays for the next call.
    pub async fn receive(&mut self) -> Result<PgWireFrontendMessage, Closed> {
        loop {
            let most = match self.is_admitted {
                true => self.message_bytes_max,
                false => self.message_bytes_max.min(STRANGERS_BYTES_MAX),
            };
            let length = frame::message_length(&self.incoming, most).map_err(Closed::Fatal)?;
            match length {
                Some(length) if self.incoming.len() >= length => {
                    let mut message = self.incoming.split_to(length);
                    frame::check_body(message[0], &message[5..]).map_err(Closed::Fatal)?;
                    let decoded = PgWireFrontendMessage::decode(&mut message, &self.context);
                    return decoded.ok().flatten().ok_or_else(|| {
                        Closed::Fatal(SqlError::new(SqlState::ProtocolViolation, "malformed message"))
                    });
                }
                Some(length) => {
                    self.read_more((length - self.incoming.len()).min(READ_AHEAD_BYTES))
                        .await?
                }
                None => {
                    self.release_idle_memory();
                    self.read_more(READ_BYTES).await?;
                }
            }
        }
    }

    /// Whether the message behind the one that is being handled is a Sync, and is there already.
    pub fn is_sync_next(&self) -> bool {
        self.incoming.first() == Some(&b'S')
    }

    /// Returns when the client has hung up. What it sends meanwhile is there for the next [`Wire::receive`]. Cancel-safe.
    pub async fn hung_up(&mut self) -> Closed {
        while self.incoming.len() < READ_AHEAD_BYTES {
            if let Err(closed) = self.read_more(READ_BYTES).await {
                return closed;
            }
        }
        std::future::pending().await
    }

    async fn read_more(&mut self, wanted: usize) -> Result<(), Closed> {
        self.incoming.reserve(wanted.max(READ_BYTES));
        match self.stream.read_buf(&mut self.incoming).await? {
            0 => Err(Closed::ByClient),
            _ => Ok(()),
        }
    }

    /// A connection that waits for its next message holds no more than a small buffer.
    fn release_idle_memory(&mut self) {
        if self.incoming.is_empty() && self.incoming.capacity() > READ_BYTES {
            self.incoming = BytesMut::new();
        }
        if self.outgoing.is_empty() && self.outgoing.capacity() > READ_BYTES {
            self.outgoing = BytesMut::new();
        }
    }

    /// The stream below.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Everything from here on is encrypted.
    ///
    /// # Errors
    /// The client did not wait for the answer to its request: what it sent already may be somebody else's.
    pub fn encrypt(&mut self) -> Result<(), Closed>
    where
        S: Encrypt,
    {
        if !self.incoming.is_empty() {
            let message = "received unencrypted data after SSL request";
            return Err(Closed::Fatal(SqlError::new(SqlState::ProtocolViolation, message)));
        }
        self.stream.encrypt();
        Ok(())
    }

    /// Adds a message to the answer.
    pub fn put(&mut self, message: &PgWireBackendMessage) -> Result<(), Closed> {
        let start = self.outgoing.len();
        message.encode(&mut self.outgoing).map_err(|error| {
            self.outgoing.truncate(start);
            Closed::Fatal(SqlError::internal(format!("cannot encode an answer: {error}")))
        })
    }

    /// The answer so far, for messages that are written in place.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Writes what has piled up if it is much. A slow reader is waited for here.
    pub async fn relieve(&mut self) -> Result<(), Closed> {
        if self.outgoing.len() >= WRITE_BYTES {
            self.flush().await
        } else {
            Ok(())
        }
    }

    /// Writes everything.
    pub async fn flush(&mut self) -> Result<(), Closed> {
        self.stream.write_all(&self.outgoing).await?;
        self.outgoing.clear();
        self.stream.flush().await?;
        Ok(())
    }

    /// Tells the other side that nothing more comes.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_may_arrive_byte_by_byte() {
        let (mut client, server) = tokio::io::duplex(1);
        let mut wire = Wire::new(server, 1_000);
        wire.established(ProtocolVersion::PROTOCOL3_0);
        let send = async move {
            client
                .write_all(b"Q\0\0\0\x0dselect 1\0X\0\0\0\x04")
                .await
                .unwrap();
            client
        };
        let receive = async {
            let query = wire.receive().await.unwrap();
            assert!(matches!(query, PgWireFrontendMessage::Query(query) if query.query == "select 1"));
            assert!(matches!(
                wire.receive().await.unwrap(),
                PgWireFrontendMessage::Terminate(_)
            ));
        };
        tokio::join!(send, receive);
        assert!(matches!(wire.receive().await, Err(Closed::ByClient)));
    }

    #[tokio::test]
    async fn garbage_is_fatal_and_half_a_message_is_a_hang_up() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut wire = Wire::new(server, 1_000);
        wire.established(ProtocolVersion::PROTOCOL3_0);
        client.write_all(b"B\0\0\0\x08\0\0\xff\xff").await.unwrap();
        assert!(matches!(wire.receive().await, Err(Closed::Fatal(_))));
        client.write_all(b"Q\0\0\0\x0dsel").await.unwrap();
        drop(client);
        assert!(matches!(wire.receive().await, Err(Closed::ByClient)));
    }
}
