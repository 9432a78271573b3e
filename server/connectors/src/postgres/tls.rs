//! TLS to a PostgreSQL server, as libpq's sslmode has it.
//!
//! The library that follows changes has TLS with a second provider of cryptography alone. So it talks to a Unix socket of ours, in a
//! directory that nobody else may enter, and what goes through that goes on through TLS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::connector::postgres::{PostgresPlace, TlsMode};
use socket2::{SockRef, TcpKeepalive};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::{ANSWER, SILENCE, at, silent};
use crate::source::ConnectorError;

/// Asks for TLS: the length of the message, and a number that is no version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// How long the library may take to come to its socket.
const COMING: Duration = Duration::from_secs(10);

/// A connection to a server.
pub(super) struct Connected {
    pub wire: Box<dyn Wire>,
    is_protected: bool,
}

/// What bytes go through.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// Connects, with TLS as it is wanted.
///
/// # Errors
/// The server does not answer in time, has no TLS, or is not trusted.
pub(super) async fn connect(place: &PostgresPlace) -> Result<Connected, ConnectorError> {
    let connected = tokio::time::timeout(ANSWER, connect_in_time(place)).await;
    connected.unwrap_or_else(|_| Err(silent(place)))
}

async fn connect_in_time(place: &PostgresPlace) -> Result<Connected, ConnectorError> {
    let failed = |why: String| ConnectorError::passing(format!("{}: {why}", at(place)));
    let io = |error: std::io::Error| failed(error.to_string());
    let mut stream = TcpStream::connect((place.host.as_str(), place.port))
        .await
        .map_err(io)?;
    stream.set_nodelay(true).map_err(io)?;
    notice_the_end(&stream).map_err(io)?;
    let plain = |stream| {
        Ok(Connected {
            wire: Box::new(stream),
            is_protected: false,
        })
    };
    if place.tls == TlsMode::Disable {
        return plain(stream);
    }
    stream.write_all(&SSL_REQUEST).await.map_err(io)?;
    match (stream.read_u8().await.map_err(io)?, place.tls) {
        (b'S', _) => {}
        (_, TlsMode::Prefer) => return plain(stream),
        _ => return Err(failed("the server has no TLS".to_owned())),
    }
    let config = config(place).await.map_err(failed)?;
    let name = ServerName::try_from(place.host.clone()).map_err(|error| failed(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Ok(Connected {
        wire: Box::new(stream.map_err(|error| failed(format!("TLS: {error}")))?),
        is_protected: true,
    })
}

/// Has the system look whether the other side is still there, though nothing is said, and whether what is said arrives.
fn notice_the_end(stream: &TcpStream) -> std::io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 6);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(())
}

/// A directory with a socket that leads to the server, if the connection to it has TLS. Who comes first has it.
///
/// # Errors
/// As [`connect`]; the socket cannot be made.
pub(super) async fn tunnel(place: &PostgresPlace) -> Result<Option<PathBuf>, ConnectorError> {
    if place.tls == TlsMode::Disable {
        return Ok(None);
    }
    let connected = connect(place).await?;
    if !connected.is_protected {
        return Ok(None);
    }
    let io = |error: std::io::Error| ConnectorError::passing(format!("cannot make a socket: {error}"));
    let directory = TempDir::new().map_err(io)?;
    let listener =
        UnixListener::bind(directory.path().join(format!(".s.PGSQL.{}", place.port))).map_err(io)?;
    let path = directory.path().to_owned();
    tokio::spawn(pass_on(directory, listener, connected.wire));
    Ok(Some(path))
}

/// Passes on what one connection says, until either side ends.
async fn pass_on(directory: TempDir, listener: UnixListener, mut wire: Box<dyn Wire>) {
    let accepted = tokio::time::timeout(COMING, listener.accept()).await;
    drop((listener, directory));
    if let Ok(Ok((mut socket, _))) = accepted
        && let Err(error) = tokio::io::copy_bidirectional(&mut socket, &mut wire).await
    {
        tracing::debug!(%error, "a connection to PostgreSQL ended");
    }
}

/// Whom one trusts.
async fn config(place: &PostgresPlace) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let (mut authority, mut trusted) = (None, vec![]);
    if matches!(place.tls, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        let roots;
        (roots, trusted) = whom_to_trust(place.tls_roots.clone()).await?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        authority = Some(verifier.map_err(|error| error.to_string())?);
    }
    let verifier = Verifier {
        provider,
        authority,
        trusted,
        checks_name: place.tls == TlsMode::VerifyFull,
    };
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(builder.with_no_client_auth())
}

/// The authorities, and their certificates as they are in the file.
async fn whom_to_trust(
    path: Option<PathBuf>,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let Some(path) = path else {
        let roots = webpki_roots::TLS_SERVER_ROOTS.to_vec();
        return Ok((RootCertStore { roots }, vec![]));
    };
    let shown = path.display().to_string();
    // Whatever the file is, nobody else waits for it.
    let read = move || -> Result<_, String> {
        let (mut roots, mut trusted) = (RootCertStore::empty(), vec![]);
        for certificate in CertificateDer::pem_file_iter(&path).map_err(|error| error.to_string())? {
            let certificate = certificate.map_err(|error| error.to_string())?;
            let added = roots.add(certificate.clone());
            added.map_err(|error| error.to_string())?;
            trusted.push(certificate);
        }
        match roots.is_empty() {
            true => Err("it has no certificate".to_owned()),
            false => Ok((roots, trusted)),
        }
    };
    let read = tokio::task::spawn_blocking(read)
        .await
        .map_err(|error| error.to_string())?;
    read.map_err(|why| format!("\"{shown}\": {why}"))
}

/// Looks at a server's certificate, as far as it is wanted.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// None: whoever it is.
    authority: Option<Arc<WebPkiServerVerifier>>,
    /// A server that shows one of these has signed its certificate itself, and is trusted as much as an authority.
    trusted: Vec<CertificateDer<'static>>,
    checks_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.trusted.contains(certificate) {
            if self.checks_name {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match authority.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
