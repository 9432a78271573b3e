//! A server and workers in processes of their own: what is on the links between them, and who is not taken.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{millrace, run, text_of};

const TOKEN: &str = "the token of these machines";
/// Bytes with which a connection begins before anything is encrypted.
const PREAMBLE_BYTES: usize = 17;

/// A process of a cluster, which is killed when it is dropped.
struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str], token: &str) -> Process {
        let mut child = millrace(arguments)
            .env("MILLRACE_CLUSTER_TOKEN", token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Process { child, out }
    }

    /// The next line with this in it.
    fn line(&mut self, with: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.out.read_line(&mut line).unwrap() > 0,
                "{with} is not in\n{all}"
            );
            if line.contains(with) {
                return line;
            }
            all += &line;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free now.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A server that takes workers in there, and the port of its clients.
fn serve(directory: &Path, cluster: SocketAddr, settings: &str) -> (Process, String) {
    let config = directory.join("millrace.toml");
    let text = format!("cluster = '{cluster}'\npipeline_spread = 'all'\ncores = 1\n{settings}\n");
    fs::write(&config, text).unwrap();
    let data = directory.join("data");
    let arguments = [
        "serve",
        "--pg",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        text_of(&data),
        "--config",
        text_of(&config),
        "--stop-at-eof",
    ];
    let mut process = Process::start(&arguments, TOKEN);
    let ready = process.line(" is ready");
    let port = ready.split(" -p ").nth(1).and_then(|rest| rest.split(' ').next());
    let port = port.unwrap().to_owned();
    process.line("workers join with");
    (process, port)
}

/// A configuration of a worker.
fn setting(directory: &Path, settings: &str) -> String {
    let config = directory.join("worker.toml");
    fs::write(&config, format!("cores = 1\n{settings}\n")).unwrap();
    text_of(&config).to_owned()
}

/// What becomes of a worker that is not taken: its exit status and what it says.
fn refused(join: SocketAddr, config: &str, token: &str) -> (i32, String) {
    let mut child = millrace(&["worker", "--join", &join.to_string(), "--config", config])
        .env("MILLRACE_CLUSTER_TOKEN", token)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::<ChildStderr>::new(child.stderr.take().unwrap());
    while lines.read_line(&mut said).unwrap() > 0 {}
    (child.wait().unwrap().code().unwrap(), said)
}

/// The answer to a query that has one row, asked until it is the expected one.
fn until(port: &str, sql: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..2_000 {
        let (status, out, error) = run(&["sql", "-p", port, "-c", sql]);
        if status == 0 && out.lines().any(|line| line.trim() == expected) {
            return;
        }
        last = format!("{status}\n{out}\n{error}");
    }
    panic!("{sql} is not {expected} but {last}");
}

fn execute(port: &str, sql: &str) {
    let (status, _, error) = run(&["sql", "-p", port, "-c", sql]);
    assert_eq!(status, 0, "{sql}: {error}");
}

/// What went by.
type Recorded = Arc<Mutex<Vec<u8>>>;

async fn pass(from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin, recorded: Recorded) {
    let (mut from, mut to) = (from, to);
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        recorded.lock().unwrap().extend_from_slice(&bytes[..read]);
        if to.write_all(&bytes[..read]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// Somebody between two processes: listens in, or has a session of TLS with each.
fn between(runtime: &Runtime, to: SocketAddr, is_active: bool) -> (SocketAddr, Recorded) {
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = Recorded::default();
    let told = Arc::clone(&recorded);
    runtime.spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let told = Arc::clone(&told);
            tokio::spawn(async move {
                // The server may not be there just now.
                let Ok(mut onward) = TcpStream::connect(to).await else {
                    return;
                };
                if is_active {
                    let mut preamble = [0; PREAMBLE_BYTES];
                    from.read_exact(&mut preamble).await.unwrap();
                    onward.write_all(&preamble).await.unwrap();
                    from.write_u8(onward.read_u8().await.unwrap()).await.unwrap();
                    let (acceptor, connector) = tls();
                    let name = ServerName::try_from("millrace").unwrap();
                    let sessions = tokio::try_join!(acceptor.accept(from), connector.connect(name, onward));
                    let ((from, to), (onward_from, onward_to)) = sessions
                        .map(|(from, onward)| (split(from), split(onward)))
                        .unwrap();
                    tokio::join!(
                        pass(from, onward_to, Arc::clone(&told)),
                        pass(onward_from, to, told)
                    );
                } else {
                    let ((from, to), (onward_from, onward_to)) = (from.into_split(), onward.into_split());
                    tokio::join!(
                        pass(from, onward_to, Arc::clone(&told)),
                        pass(onward_from, to, told)
                    );
                }
            });
        }
    });
    (address, recorded)
}

/// Takes any certificate.
#[derive(Debug)]
struct Any;

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
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Both sides of TLS, with a certificate of one's own.
fn tls() -> (TlsAcceptor, TlsConnector) {
    let made = rcgen::generate_simple_self_signed(vec!["millrace".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let versions = &[&version::TLS13];
    let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any))
        .with_no_client_auth();
    (
        TlsAcceptor::from(Arc::new(server)),
        TlsConnector::from(Arc::new(client)),
    )
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Of a server and two workers, what went over each kind of link while a view over two shuffles was made.
fn recorded_of(settings: &str, server_settings: &str) -> [Vec<u8>; 2] {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let cluster = free();
    let (server, port) = serve(
        directory.path(),
        cluster,
        &format!("{settings}\n{server_settings}"),
    );
    let config = setting(directory.path(), settings);
    let (join, to_server) = between(&runtime, cluster, false);
    let mut to_workers = vec![];
    let mut start = || {
        let own = free();
        let (advertised, recorded) = between(&runtime, own, false);
        to_workers.push(recorded);
        let arguments = [
            "worker",
            "--join",
            &join.to_string(),
            "--listen",
            &own.to_string(),
            "--advertise",
            &advertised.to_string(),
            "--config",
            &config,
            "--stop-at-eof",
        ];
        Process::start(&arguments, TOKEN)
    };
    let mut workers = [start(), start()];
    for worker in &mut workers {
        worker.line(" works as worker ");
    }
    let there = "SELECT count(*) FROM mr_catalog.workers WHERE partitions > 0";
    execute(&port, "CREATE TABLE t (k INT PRIMARY KEY, j INT, s TEXT)");
    execute(
        &port,
        "CREATE MATERIALIZED VIEW v AS SELECT b.s, count(*) AS n FROM t a JOIN t b ON a.j = b.k GROUP BY b.s",
    );
    until(&port, there, "3");
    execute(
        &port,
        "INSERT INTO t SELECT i, (i * 7) % 500, 'what is in row ' || i % 50 FROM generate_series(0, 499) AS g(i)",
    );
    until(&port, "SELECT count(*) || ' ' || sum(n) FROM v", "50 500");

    // The server is killed, and is there again: the workers find it, over the same links.
    drop(server);
    let (_server, port) = serve(
        directory.path(),
        cluster,
        &format!("{settings}\n{server_settings}"),
    );
    for worker in &mut workers {
        worker.line(" works as worker ");
    }
    until(&port, there, "3");
    execute(
        &port,
        "INSERT INTO t VALUES (500, 1, 'what is in row 1'), (501, 500, 'x')",
    );
    until(&port, "SELECT count(*) || ' ' || sum(n) FROM v", "50 502");
    let to_workers = to_workers
        .iter()
        .flat_map(|recorded| recorded.lock().unwrap().clone())
        .collect();
    let to_server = to_server.lock().unwrap().clone();
    [to_server, to_workers]
}

#[test]
fn nothing_between_machines_can_be_read_on_the_way() {
    // Without encryption the same is found: the recording has what it should have.
    for (settings, server_settings, is_readable) in [
        ("cluster_tls = false", "", true),
        ("", "", false),
        ("", "tls = 'on'\ntls_self_signed = true", false),
    ] {
        let kinds = recorded_of(settings, server_settings);
        for (recorded, kind) in kinds.iter().zip(["to the server", "between workers"]) {
            assert!(recorded.len() > 10_000, "{kind}: {}", recorded.len());
            assert_eq!(
                has(recorded, "what is in row 1"),
                is_readable,
                "{kind} {settings}"
            );
            assert!(!has(recorded, TOKEN), "{kind}");
        }
        // What comes with a view's definition.
        assert_eq!(has(&kinds[0], "count(*)"), is_readable, "{settings}");
    }
}

#[test]
fn who_does_not_know_the_token_or_stands_between_is_refused() {
    let (directory, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let cluster = free();
    let (server, port) = serve(directory.path(), cluster, "");
    let on = setting(directory.path(), "");
    let (status, said) = refused(cluster, &on, "the token of other machines");
    assert!(
        status != 0 && said.contains("a different cluster_token"),
        "{status} {said}"
    );

    let (between, heard) = between(&runtime, cluster, true);
    let (status, said) = refused(between, &on, TOKEN);
    assert!(
        status != 0 && said.contains("the connection is intercepted"),
        "{status} {said}"
    );
    // It was in the middle, and has not come to what a worker says of itself.
    assert!(!heard.lock().unwrap().is_empty() && !has(&heard.lock().unwrap(), "127.0.0.1"));

    let off = setting(directory.path(), "cluster_tls = false");
    let (status, said) = refused(cluster, &off, TOKEN);
    assert!(
        status != 0 && said.contains("encrypted there and not here") && said.contains("cluster_tls"),
        "{status} {said}"
    );
    until(&port, "SELECT count(*) FROM mr_catalog.workers", "1");
    drop(server);

    let (_server, _) = serve(directory.path(), cluster, "cluster_tls = false");
    let on = setting(directory.path(), "");
    let (status, said) = refused(cluster, &on, TOKEN);
    assert!(
        status != 0 && said.contains("encrypted here and not there") && said.contains("cluster_tls"),
        "{status} {said}"
    );
}

/// With state that is nearly all in six groups: bytes that a newcomer has of it, and those that all have.
fn brought_by(policy: &str) -> (u64, u64) {
    let directory = tempfile::tempdir().unwrap();
    let cluster = free();
    let settings = format!("scheduler_policy = '{policy}'");
    let (_server, port) = serve(directory.path(), cluster, &settings);
    let config = setting(directory.path(), "");
    let start = || {
        let join = cluster.to_string();
        Process::start(
            &["worker", "--join", &join, "--config", &config, "--stop-at-eof"],
            TOKEN,
        )
    };
    let mut worker = start();
    worker.line(" works as worker 1 ");
    execute(&port, "CREATE TABLE t (k INT PRIMARY KEY, s TEXT)");
    execute(
        &port,
        "CREATE MATERIALIZED VIEW v AS SELECT k, max(s) AS s FROM t GROUP BY k",
    );
    execute(
        &port,
        "INSERT INTO t SELECT i, repeat('x', CASE WHEN i < 6 THEN 300000 ELSE 10 END) FROM generate_series(0, 399) AS g(i)",
    );
    let all = "SELECT count(*) || ' ' || sum(length(s)) FROM v";
    until(&port, all, "400 1803940");
    let known = "SELECT sum(state_bytes) > 1800000 FROM mr_catalog.workers";
    until(&port, known, "t");
    let mut newcomer = start();
    newcomer.line(" works as worker 2 ");
    until(
        &port,
        "SELECT partitions FROM mr_catalog.workers WHERE id = 2",
        "5",
    );
    // Every group changes once more, where it is now.
    execute(&port, "UPDATE t SET s = s || 'y'");
    until(&port, all, "400 1804340");
    until(
        &port,
        "SELECT state_bytes > 0 FROM mr_catalog.workers WHERE id = 2",
        "t",
    );
    until(&port, known, "t");
    let bytes = |of: &str| {
        let sql = format!("SELECT sum(state_bytes) FROM mr_catalog.workers {of}");
        let (status, out, error) = run(&["sql", "-p", &port, "-c", &sql]);
        assert_eq!(status, 0, "{error}");
        out.lines()
            .find_map(|line| line.trim().parse::<u64>().ok())
            .unwrap()
    };
    let brought = (bytes("WHERE id = 2"), bytes(""));
    // It goes again, and so does the other one: what they had is there.
    for (gone, id) in [(&mut newcomer, 2), (&mut worker, 1)] {
        execute(&port, &format!("DROP WORKER {id}"));
        gone.line("has let this worker go");
        execute(&port, "UPDATE t SET s = s || 'z'");
    }
    until(&port, all, "400 1805140");
    brought
}

#[test]
fn a_newcomer_is_brought_little_state_by_lma_and_whatever_is_last_by_lb() {
    let ((lma, all), (lb, _)) = (brought_by("lma"), brought_by("lb"));
    println!("of {all} bytes of state a newcomer has {lma} by lma, and {lb} by lb");
    assert!(lma < 300_000 && lb > 300_000, "{lma} and {lb} of {all}");
}
