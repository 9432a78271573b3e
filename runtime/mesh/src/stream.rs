//! One connection of a link, plain or encrypted.

use tokio::io::{AsyncRead, AsyncWrite, split};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::MeshError;

/// What the exporter is asked for.
const LABEL: &[u8] = b"EXPORTER-millrace-mesh";
const BINDING_BYTES: usize = 32;

/// One connection, in both directions.
pub(crate) struct Stream {
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// What only the two ends of this connection have; nothing where it is not encrypted.
    pub binding: Vec<u8>,
}

impl Stream {
    pub fn plain(stream: TcpStream) -> Stream {
        let (reader, writer) = stream.into_split();
        Stream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            binding: vec![],
        }
    }

    /// # Errors
    /// The handshake has not ended.
    pub fn encrypted(stream: TlsStream<TcpStream>) -> Result<Stream, MeshError> {
        let output = vec![0; BINDING_BYTES];
        let exported = match &stream {
            TlsStream::Client(stream) => stream.get_ref().1.export_keying_material(output, LABEL, None),
            TlsStream::Server(stream) => stream.get_ref().1.export_keying_material(output, LABEL, None),
        };
        let (reader, writer) = split(stream);
        Ok(Stream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            binding: exported.map_err(std::io::Error::other)?,
        })
    }
}
