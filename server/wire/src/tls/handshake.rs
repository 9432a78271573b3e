//! What a TLS handshake came to, in the words of OpenSSL, as clients of PostgreSQL know them.

use millrace_database::sessions::Encryption;
use tokio_rustls::rustls::{ProtocolVersion, ServerConnection};

use super::client_name;

/// See the module. The handshake has ended.
pub(super) fn outcome(connection: &ServerConnection) -> Encryption {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "unknown",
    };
    let suite = connection.negotiated_cipher_suite();
    let cipher = suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()));
    let cipher = cipher.replacen("TLS13_", "TLS_", 1);
    let chain = connection.peer_certificates();
    Encryption {
        version: version.to_owned(),
        bits: if cipher.contains("AES_128") { 128 } else { 256 },
        cipher,
        client: chain.and_then(|chain| client_name::of(chain.first()?)),
    }
}
