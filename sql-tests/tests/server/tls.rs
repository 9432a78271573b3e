//! TLS on both listeners: who gets in, who is refused, and what somebody in between cannot do.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use millrace_wire::tls::{TlsMode, TlsOptions};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

struct Fixture {
    server: Server,
    certificate: CertificateDer<'static>,
    _directory: TempDir,
}

/// Writes a certificate for `localhost` and its key.
fn make_certificate(directory: &Path) -> (TlsOptions, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let options = TlsOptions {
        mode: TlsMode::On,
        certificate: Some(directory.join("cert.pem")),
        key: Some(directory.join("key.pem")),
        client_ca: None,
        is_self_signed: false,
    };
    std::fs::write(options.certificate.as_ref().unwrap(), made.cert.pem()).unwrap();
    std::fs::write(options.key.as_ref().unwrap(), made.signing_key.serialize_pem()).unwrap();
    (options, made.cert.der().clone())
}

async fn start(mode: TlsMode) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let (options, certificate) = make_certificate(directory.path());
    let config = Config {
        tls: TlsOptions { mode, ..options },
        ..throw_away(&directory.path().join("data"))
    };
    Fixture {
        server: Server::start(config).await.unwrap(),
        certificate,
        _directory: directory,
    }
}

impl Fixture {
    /// A handshake in which the server must show its certificate.
    async fn encrypt(
        &self,
        stream: TcpStream,
        protocol: Option<&[u8]>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// The same, showing a certificate of one's own.
    async fn encrypt_as(
        &self,
        stream: TcpStream,
        protocol: &[u8],
        shown: Option<&(String, String)>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

fn start_up() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0millrace\0\0";
    [&(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

/// What comes first after the start-up packet: `R` for who is let in, and all of an error for who is not.
async fn begin(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> (u8, String) {
    stream.write_all(&start_up()).await.unwrap();
    let kind = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap() as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).await.unwrap();
    (kind, String::from_utf8_lossy(&body).into_owned())
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_clients_ask_or_begin_with_it() {
    let fixture = start(TlsMode::On).await;
    let address = fixture.server.pg_addr();
    let mut plain = connect(address).await;
    assert_eq!(begin(&mut plain).await.0, b'R');

    let mut asking = connect(address).await;
    asking.write_all(&SSL_REQUEST).await.unwrap();
    assert_eq!(asking.read_u8().await.unwrap(), b'S');
    let mut asking = fixture.encrypt(asking, None).await.unwrap();
    assert_eq!(begin(&mut asking).await.0, b'R');

    let mut direct = fixture
        .encrypt(connect(address).await, Some(b"postgresql"))
        .await
        .unwrap();
    assert_eq!(begin(&mut direct).await.0, b'R');

    // The handshake of a browser, which says nothing of PostgreSQL, leads nowhere.
    for other in [None, Some(&b"http/1.1"[..])] {
        if let Ok(mut stream) = fixture.encrypt(connect(address).await, other).await {
            let _ = stream.write_all(&start_up()).await;
            assert!(!matches!(stream.read(&mut [0; 64]).await, Ok(1..)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_put_in_before_the_handshake_are_not_taken() {
    let fixture = start(TlsMode::On).await;
    let mut stream = connect(fixture.server.pg_addr()).await;
    stream
        .write_all(&[&SSL_REQUEST[..], &start_up()].concat())
        .await
        .unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.starts_with('S') && answer.contains("received unencrypted data"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn http_is_encrypted_on_the_same_port() {
    let fixture = start(TlsMode::On).await;
    let address = fixture.server.http_addr();
    let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answers = vec![];
    let mut plain = connect(address).await;
    plain.write_all(request).await.unwrap();
    answers.push(String::new());
    plain.read_to_string(&mut answers[0]).await.unwrap();
    let mut encrypted = fixture
        .encrypt(connect(address).await, Some(b"http/1.1"))
        .await
        .unwrap();
    encrypted.write_all(request).await.unwrap();
    answers.push(String::new());
    encrypted.read_to_string(&mut answers[1]).await.unwrap();
    for answer in answers {
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("alive"),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_encrypt_is_refused_where_it_is_required() {
    let fixture = start(TlsMode::Required).await;
    let (kind, error) = begin(&mut connect(fixture.server.pg_addr()).await).await;
    assert!(
        kind == b'E' && error.contains("28000") && error.contains("sslmode=require"),
        "{error}"
    );
    let mut stream = connect(fixture.server.http_addr()).await;
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 426") && answer.contains("https://"),
        "{answer}"
    );

    let mut asking = connect(fixture.server.pg_addr()).await;
    asking.write_all(&SSL_REQUEST).await.unwrap();
    assert_eq!(asking.read_u8().await.unwrap(), b'S');
    let mut asking = fixture.encrypt(asking, None).await.unwrap();
    assert_eq!(begin(&mut asking).await.0, b'R');
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_contradict_each_other_do_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let (files, _) = make_certificate(directory.path());
    let nothing = TlsOptions::default();
    for (options, told) in [
        (
            TlsOptions {
                mode: TlsMode::On,
                ..nothing.clone()
            },
            "needs tls_cert and tls_key",
        ),
        (
            TlsOptions {
                mode: TlsMode::Off,
                ..files.clone()
            },
            "have no effect while tls is off",
        ),
        (
            TlsOptions {
                key: None,
                ..files.clone()
            },
            "tls_cert needs tls_key",
        ),
        (
            TlsOptions {
                certificate: None,
                ..files.clone()
            },
            "tls_key needs tls_cert",
        ),
        (
            TlsOptions {
                is_self_signed: true,
                ..files.clone()
            },
            "exclude each other",
        ),
        (
            TlsOptions {
                key: files.certificate.clone(),
                ..files.clone()
            },
            "no private key",
        ),
        (
            TlsOptions {
                certificate: files.key.clone(),
                ..files.clone()
            },
            "no certificate",
        ),
    ] {
        let config = Config {
            tls: options,
            ..throw_away(&directory.path().join("data"))
        };
        let error = Server::start(config).await.err().unwrap().to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// An authority for certificates of clients: its own certificate, and what it signs with.
fn make_authority() -> (String, rcgen::Issuer<'static, rcgen::KeyPair>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = parameters.self_signed(&key).unwrap();
    (certificate.pem(), rcgen::Issuer::new(parameters, key))
}

/// A certificate for a name, and its key, in PEM.
fn sign(issuer: &rcgen::Issuer<'static, rcgen::KeyPair>, name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(vec![]).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let certificate = parameters.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_let_in_by_its_certificate_as_the_role_of_that_name() {
    let directory = tempfile::tempdir().unwrap();
    let (options, certificate) = make_certificate(directory.path());
    let (authority, issuer) = make_authority();
    let client_ca = directory.path().join("clients.pem");
    std::fs::write(&client_ca, &authority).unwrap();
    let config = Config {
        password: Some("open sesame".to_owned()),
        tls: TlsOptions {
            client_ca: Some(client_ca),
            ..options
        },
        ..throw_away(&directory.path().join("data"))
    };
    let fixture = Fixture {
        server: Server::start(config).await.unwrap(),
        certificate,
        _directory: directory,
    };
    let (pg, http) = (fixture.server.pg_addr(), fixture.server.http_addr());
    let first = tokio_postgres::Config::new()
        .host(pg.ip().to_string())
        .port(pg.port())
        .user("millrace")
        .dbname("millrace")
        .password("open sesame")
        .connect(tokio_postgres::NoTls)
        .await;
    let (first, connection) = first.unwrap();
    tokio::spawn(connection);
    first
        .batch_execute("CREATE USER ann; CREATE USER bob PASSWORD 'x'")
        .await
        .unwrap();
    let (_, other_issuer) = make_authority();
    let ann = sign(&issuer, "ann");
    // Whose certificate, as whom, and whether it is let in at once.
    let cases = [
        (Some(&ann), "ann", b"R\0\0\0\x08\0\0\0\0"),
        (Some(&ann), "bob", b"R\0\0\0*\0\0\0\x0a"),
        (None, "ann", b"R\0\0\0*\0\0\0\x0a"),
    ];
    for (shown, user, expected) in cases {
        let mut stream = fixture
            .encrypt_as(connect(pg).await, b"postgresql", shown)
            .await
            .unwrap();
        let body = format!("\0\x03\0\0user\0{user}\0database\0millrace\0\0");
        let packet = [&(body.len() as u32 + 4).to_be_bytes()[..], body.as_bytes()].concat();
        stream.write_all(&packet).await.unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, expected, "{user}");
    }
    // One whom nobody here knows is refused in the handshake.
    let forged = sign(&other_issuer, "ann");
    let refused = fixture
        .encrypt_as(connect(pg).await, b"postgresql", Some(&forged))
        .await;
    if let Ok(mut stream) = refused {
        let _ = stream.write_all(&start_up()).await;
        assert!(!matches!(stream.read(&mut [0; 64]).await, Ok(1..)));
    }
    // HTTP: by the certificate alone; what is said in a header counts more.
    let ask = async |shown: Option<&(String, String)>, header: &str| {
        let mut stream = fixture
            .encrypt_as(connect(http).await, b"http/1.1", shown)
            .await
            .unwrap();
        let request = format!(
            "GET /api/sql?query=SELECT%20current_user HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask(Some(&ann), "").await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"ann\""),
        "{answer}"
    );
    // bob:x
    let answer = ask(Some(&ann), "Authorization: Basic Ym9iOng=\r\n").await;
    assert!(answer.contains("\"bob\""), "{answer}");
    for shown in [None, Some(&sign(&issuer, "nobody"))] {
        let answer = ask(shown, "").await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
}

/// TLS of tokio-postgres, which tells that library to which certificate the connection is bound.
struct Bound {
    config: Arc<ClientConfig>,
    /// The certificate that the client says it has seen.
    seen: CertificateDer<'static>,
}

struct BoundStream {
    stream: TlsStream<TcpStream>,
    hash: Vec<u8>,
}

impl tokio_postgres::tls::TlsConnect<TcpStream> for Bound {
    type Stream = BoundStream;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<BoundStream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TlsConnector::from(self.config).connect(name, stream).await?;
            // Certificates that are made here are signed with SHA-256.
            let suite = tokio_rustls::rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
            let sha256 = suite.tls13().unwrap().common.hash_provider;
            let hash = sha256.hash(&self.seen).as_ref().to_vec();
            Ok(BoundStream { stream, hash })
        })
    }
}

impl tokio_postgres::tls::TlsStream for BoundStream {
    fn channel_binding(&self) -> tokio_postgres::tls::ChannelBinding {
        tokio_postgres::tls::ChannelBinding::tls_server_end_point(self.hash.clone())
    }
}

impl AsyncRead for BoundStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_bound_to_the_certificate_of_its_connection() {
    let directory = tempfile::tempdir().unwrap();
    let (options, certificate) = make_certificate(directory.path());
    let config = Config {
        password: Some("open sesame".to_owned()),
        tls: TlsOptions {
            mode: TlsMode::Required,
            ..options
        },
        ..throw_away(&directory.path().join("data"))
    };
    let server = Server::start(config).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Arc::new(tls);
    let elsewhere = tempfile::tempdir().unwrap();
    let (_, other) = make_certificate(elsewhere.path());
    let connect = async |seen: &CertificateDer<'static>, password: &str| {
        let bound = Bound {
            config: Arc::clone(&tls),
            seen: seen.clone(),
        };
        let connected = tokio_postgres::Config::new()
            .user("millrace")
            .dbname("millrace")
            .password(password)
            .ssl_mode(tokio_postgres::config::SslMode::Require)
            .channel_binding(tokio_postgres::config::ChannelBinding::Require)
            .connect_raw(TcpStream::connect(server.pg_addr()).await.unwrap(), bound)
            .await;
        match connected {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                let row = client.query_one("SELECT 1 + 1", &[]).await.unwrap();
                assert_eq!(row.get::<_, i32>(0), 2);
                "in".to_owned()
            }
            Err(error) => error
                .as_db_error()
                .map_or_else(|| error.to_string(), |error| error.code().code().to_owned()),
        }
    };
    assert_eq!(connect(&certificate, "open sesame").await, "in");
    assert_eq!(connect(&certificate, "open").await, "28P01");
    // Whoever stands in between has shown the client another certificate: the password alone does not let anybody in.
    assert_eq!(connect(&other, "open sesame").await, "08P01");
    server.shutdown().await;
}
