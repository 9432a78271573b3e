//! Encryption of links, and what stands for trust in it: the token.
//!
//! No certificate is looked at. Both sides put something into their proofs of the token that only the two ends of one TLS session
//! have (RFC 8446, section 7.5: its exporter). Whoever stands between them has a session with each, so that the proof
//! of one end is none for the other, whichever certificate was shown.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, ring::default_provider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ServerConfig;
use rustls::{DigitallySignedStruct, Error, SignatureScheme, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, rustls};

use crate::MeshError;
use crate::handshake::Token;
use crate::stream::Stream;

/// What the side that connects says first, before the byte that says whether it encrypts.
const MAGIC: &[u8; 16] = b"millrace mesh 2\n";
const PLAIN: u8 = b'P';
const ENCRYPTED: u8 = b'E';
/// The name that both certificate and handshake have: nobody looks at it.
const NAME: &str = "millrace";

/// The certificate that a listener shows, as of now.
pub type Certificate = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// What both sides of a link go by: the token, and whether they encrypt.
#[derive(Clone)]
pub struct Access {
    pub(crate) token: Token,
    tls: Option<Tls>,
}

#[derive(Clone)]
struct Tls {
    certificate: Certificate,
    connector: TlsConnector,
}

impl Access {
    /// Whoever listens on the way learns what is said, but not the token.
    pub fn plain(token: &str) -> Access {
        Access {
            token: Token::new(token),
            tls: None,
        }
    }

    /// Nobody else learns what is said. `certificate`: what this process shows where it listens; none: one that is made now.
    ///
    /// # Errors
    /// No certificate can be made.
    pub fn encrypted(token: &str, certificate: Option<Certificate>) -> Result<Access, MeshError> {
        let certificate = match certificate {
            Some(certificate) => certificate,
            None => made()?,
        };
        let provider = Arc::new(default_provider());
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(std::io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any(provider)))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Access {
            token: Token::new(token),
            tls: Some(Tls {
                certificate,
                connector: TlsConnector::from(Arc::new(config)),
            }),
        })
    }

    fn mode(&self) -> u8 {
        if self.tls.is_some() { ENCRYPTED } else { PLAIN }
    }

    /// The side that connects, up to where both may speak.
    ///
    /// # Errors
    /// Only one of the two sides encrypts; the other one is no millrace process.
    pub(crate) async fn connects(&self, mut stream: TcpStream) -> Result<Stream, MeshError> {
        stream.write_all(MAGIC).await?;
        stream.write_u8(self.mode()).await?;
        match (stream.read_u8().await?, &self.tls) {
            (ENCRYPTED, Some(tls)) => {
                let name = ServerName::try_from(NAME).map_err(std::io::Error::other)?;
                let stream = tls.connector.connect(name, stream).await?;
                Stream::encrypted(stream.into())
            }
            (PLAIN, None) => Ok(Stream::plain(stream)),
            (ENCRYPTED, None) => Err(MeshError::OnlyThere),
            (PLAIN, Some(_)) => Err(MeshError::OnlyHere),
            _ => Err(MeshError::Protocol),
        }
    }

    /// The side that listens, up to where both may speak.
    ///
    /// # Errors
    /// As of the other side.
    pub(crate) async fn listens(&self, mut stream: TcpStream) -> Result<Stream, MeshError> {
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await?;
        if &magic != MAGIC {
            return Err(MeshError::Protocol);
        }
        let theirs = stream.read_u8().await?;
        stream.write_u8(self.mode()).await?;
        match (theirs, &self.tls) {
            (ENCRYPTED, Some(tls)) => {
                let acceptor = TlsAcceptor::from((tls.certificate)());
                Stream::encrypted(acceptor.accept(stream).await?.into())
            }
            (PLAIN, None) => Ok(Stream::plain(stream)),
            (ENCRYPTED, None) => Err(MeshError::OnlyThere),
            (PLAIN, Some(_)) => Err(MeshError::OnlyHere),
            _ => Err(MeshError::Protocol),
        }
    }
}

/// A certificate that signs itself.
fn made() -> Result<Certificate, MeshError> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).map_err(std::io::Error::other)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key.into())
        })
        .map_err(std::io::Error::other)?;
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);
    Ok(Arc::new(move || Arc::clone(&config)))
}

/// Takes any certificate whose key the other side has: the proofs of the token say who that is.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("links are TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
