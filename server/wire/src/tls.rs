//! TLS on both listeners: who must use it, and with which certificate.
//!
//! One listener takes both kinds of clients: a TLS handshake begins with a byte with which neither HTTP nor PostgreSQL's protocol
//! begins, and a PostgreSQL client may also ask first (SSLRequest). Certificate and key come from files, and are read again
//! when these change: whoever renews them need not restart the server. Where there is a list of those who sign certificates of clients, the name
//! in one is another way to show who one is. ring is the one crypto provider.

mod binding;
mod certificate;
mod client_name;
mod der;
mod handshake;
mod stream;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;

use self::certificate::Source;
pub use self::stream::{Encrypt, EncryptionCell, Stream};

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never.
    #[default]
    Off,
    /// Where the client wants it.
    On,
    /// Always: others are refused.
    Required,
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<TlsMode, String> {
        match text.to_ascii_lowercase().as_str() {
            "off" => Ok(TlsMode::Off),
            "on" => Ok(TlsMode::On),
            "required" => Ok(TlsMode::Required),
            _ => Err("valid values: off, on, required".to_owned()),
        }
    }
}

/// What was configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// Whether connections are encrypted. A certificate signed by itself stands for `On` where this is `Off`.
    pub mode: TlsMode,
    /// The file with the certificate and those that signed it.
    pub certificate: Option<PathBuf>,
    /// The file with its private key.
    pub key: Option<PathBuf>,
    /// The file with those whose certificates of clients count.
    pub client_ca: Option<PathBuf>,
    /// Whether a certificate is made at the start.
    pub is_self_signed: bool,
}

/// Why TLS cannot be used. The text says what to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(crate) String);

/// Which protocol is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// PostgreSQL's.
    Postgres,
    /// HTTP.
    Http,
    /// Links between machines.
    Cluster,
}

impl Side {
    /// What the protocol is called in a handshake (ALPN).
    fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Side::Postgres => &[b"postgresql"],
            Side::Http => &[b"h2", b"http/1.1"],
            Side::Cluster => &[],
        }
    }
}

/// How connections are encrypted.
#[derive(Debug)]
pub struct Tls {
    is_required: bool,
    source: Source,
}

impl Tls {
    /// What the options ask for; `None`: nothing.
    ///
    /// # Errors
    /// They contradict each other, or certificate and key cannot be read or do not fit.
    pub fn new(options: &TlsOptions) -> Result<Option<Arc<Tls>>, TlsError> {
        let wrong = |why: &str| Err(TlsError(why.to_owned()));
        let is_off = options.mode == TlsMode::Off;
        let clients = options.client_ca.as_deref();
        let source = match (&options.certificate, &options.key, options.is_self_signed) {
            (None, None, false) if is_off && clients.is_some() => {
                return wrong("tls_client_ca has no effect while tls is off: set tls to on or required");
            }
            (None, None, false) if is_off => return Ok(None),
            (None, None, false) => return wrong("it needs tls_cert and tls_key, or tls_self_signed"),
            (None, None, true) => Source::self_signed(clients)?,
            (_, _, true) => return wrong("tls_self_signed and tls_cert or tls_key exclude each other"),
            _ if is_off => {
                return wrong(
                    "tls_cert and tls_key have no effect while tls is off: set tls to on or required",
                );
            }
            (Some(certificate), Some(key), false) => Source::files(certificate, key, clients)?,
            (None, Some(_), false) => return wrong("tls_key needs tls_cert"),
            (Some(_), None, false) => return wrong("tls_cert needs tls_key"),
        };
        Ok(Some(Arc::new(Tls {
            is_required: options.mode == TlsMode::Required,
            source,
        })))
    }

    /// Whether clients that do not encrypt are refused.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// The fingerprint of the certificate that was made at the start, if it was: SHA-256, in hexadecimal digits.
    pub fn fingerprint(&self) -> Option<String> {
        self.source.fingerprint()
    }

    /// What links between machines go by, with the certificate of now.
    pub(crate) fn of_links(&self) -> Arc<ServerConfig> {
        self.config(Side::Cluster).0
    }

    /// What a handshake goes by, with the certificate of now, and the hash of that.
    fn config(&self, side: Side) -> (Arc<ServerConfig>, Option<Arc<[u8]>>) {
        self.source.config(side)
    }
}
