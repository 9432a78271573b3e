//! Clients that do not behave, and directories that cannot be opened: the server lives on, other sessions do not notice,
//! and whoever can be told is told what is wrong.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use futures::SinkExt;
use millrace_cli::test::throw_away;
use millrace_sql_tests::{connect, rows, run, seed, start, words};
use millrace_wire::Server;
use millrace_wire::config::Config;
use millrace_wire::http::REQUESTS_MAX;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};
use tokio_postgres::Client;

/// Whoever waits longer waits for something that never happens.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and a session that must not notice anything.
struct Fixture {
    server: Server,
    witness: Client,
    _directory: TempDir,
}

impl Fixture {
    async fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let config = throw_away(directory.path());
        Self::with(directory, config).await
    }

    async fn with(directory: TempDir, config: Config) -> Fixture {
        let server = Server::start(config).await.unwrap();
        let witness = connect(server.pg_addr()).await.unwrap();
        run(&witness, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
            .await
            .unwrap();
        run(
            &witness,
            "CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t",
        )
        .await
        .unwrap();
        Fixture {
            server,
            witness,
            _directory: directory,
        }
    }

    /// The witness works, new sessions are let in, writes reach the view, and nothing but these writes is there.
    async fn check_health(self) {
        let other = connect(self.server.pg_addr()).await.unwrap();
        for (id, client) in [&self.witness, &other].into_iter().enumerate() {
            run(client, &format!("INSERT INTO t VALUES ({}, 'well')", 1000 + id))
                .await
                .unwrap();
        }
        assert_eq!(number(&other, "SELECT n FROM n").await, 2);
        assert_eq!(
            number(&self.witness, "SELECT count(*) FROM t WHERE v = 'well'").await,
            2
        );
        assert_healthy(self.server.http_addr()).await;
        drop((other, self.witness));
        timeout(PATIENCE, self.server.shutdown())
            .await
            .expect("the server stops");
    }
}

async fn number(client: &Client, sql: &str) -> i64 {
    let rows = rows(client, sql).await.unwrap();
    rows[0][0].as_deref().unwrap().parse().unwrap()
}

async fn assert_healthy(address: SocketAddr) {
    let answer = request(address, "GET", "/health", "").await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

/// A whole HTTP request; the whole answer.
async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    request_with(address, method, path, "", body).await
}

/// The same with more headers, each with its end.
async fn request_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("the server answers").unwrap();
    answer
}

/// Sends bytes and closes the sending side; everything that comes back until the server closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    // The server may hang up before it has read everything, which is its right.
    if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the server hangs up");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The start-up packet of a client.
fn startup() -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    body.extend_from_slice(b"user\0millrace\0database\0millrace\0\0");
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

/// A message of the protocol.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend((body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', &[sql.as_bytes(), &[0]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_ports() {
    let fixture = Fixture::new().await;
    let mut random = StdRng::seed_from_u64(seed());
    for _ in 0..40 {
        let mut garbage = vec![0; random.random_range(1..600)];
        random.fill_bytes(&mut garbage);
        exchange(fixture.server.pg_addr(), &garbage).await;
        exchange(fixture.server.http_addr(), &garbage).await;
        exchange(fixture.server.pg_addr(), &[startup(), garbage].concat()).await;
    }
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_says_why_nothing_can_be_written() {
    let fixture = Fixture::new().await;
    let address = fixture.server.http_addr();
    let db = fixture.server.database().unwrap();
    let ready = async || {
        db.look(Instant::now(), PATIENCE).await;
        request(address, "GET", "/ready", "").await
    };
    let answer = ready().await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let probe = fixture._directory.path().join("PROBE");
    std::fs::remove_file(&probe).unwrap();
    std::fs::create_dir(&probe).unwrap();
    let answer = ready().await;
    let says_why = answer.starts_with("HTTP/1.0 503") && answer.contains("PROBE");
    assert!(says_why, "{answer}");
    // It lives all the same.
    assert_healthy(address).await;
    std::fs::remove_dir(&probe).unwrap();
    let answer = ready().await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    drop(db);
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_on_the_wrong_port_is_told_so() {
    let fixture = Fixture::new().await;
    let answer = exchange(
        fixture.server.pg_addr(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await;
    assert!(answer.contains("HTTP has its own port"), "{answer:?}");
    let answer = exchange(fixture.server.http_addr(), &startup()).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer:?}"
    );
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_lie_about_themselves() {
    let fixture = Fixture::new().await;
    for (bytes, told) in [
        (vec![b'?', 0, 0, 0, 4], "invalid frontend message type 63"),
        (vec![b'Q', 0, 0, 0, 1], "invalid message length 1"),
        (vec![b'Q', 0xff, 0xff, 0xff, 0xff], "exceeds the limit"),
        (message(b'B', &[0, 0, 0, 9]), "08P01"),
        (message(b'Q', b"SELECT 1"), "08P01"),
        (message(b'Q', b"SELECT '\xff'\0"), "UTF8|UTF-8"),
    ] {
        let answer = exchange(fixture.server.pg_addr(), &[startup(), bytes].concat()).await;
        assert!(
            told.split('|').any(|told| answer.contains(told)),
            "{told}: {answer:?}"
        );
    }
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_in_the_middle_of_a_message() {
    let fixture = Fixture::new().await;
    let whole = [
        startup(),
        query("BEGIN; INSERT INTO t VALUES (1, 'lost')"),
        query("SELECT 'never ended'"),
    ]
    .concat();
    for cut in (0..whole.len()).step_by(7) {
        exchange(fixture.server.pg_addr(), &whole[..cut]).await;
    }
    let request = b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nINSERT";
    for cut in (1..=request.len()).step_by(9) {
        exchange(fixture.server.http_addr(), &request[..cut]).await;
    }
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_are_too_long() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        statement_bytes_max: 10_000,
        message_bytes_max: 100_000,
        ..throw_away(directory.path())
    };
    let fixture = Fixture::with(directory, config).await;
    let client = connect(fixture.server.pg_addr()).await.unwrap();
    let long = |bytes: usize| format!("SELECT '{}'", "x".repeat(bytes));
    for error in [
        client.simple_query(&long(20_000)).await.err(),
        client.prepare(&long(20_000)).await.err(),
    ] {
        let words = words(&error.expect("it is too long"));
        assert!(
            words.starts_with("54000: a statement of 20009 bytes exceeds the limit of 10000 bytes"),
            "{words}"
        );
    }
    // The session goes on; only a message that cannot be read ends it.
    assert_eq!(number(&client, "SELECT 1").await, 1);
    let error = client
        .simple_query(&long(200_000))
        .await
        .expect_err("it is too long");
    let words = words(&error);
    assert!(
        error.is_closed() || words.starts_with("54000: a message of"),
        "{words}"
    );
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ingest_that_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        http_body_bytes_max: 10_000,
        ..throw_away(directory.path())
    };
    let fixture = Fixture::with(directory, config).await;
    run(&fixture.witness, "CREATE STREAM s (id INT NOT NULL, v TEXT)")
        .await
        .unwrap();
    let good = "{\"id\": 1, \"v\": \"a\"}\n";
    let long = good.repeat(1_000);
    for (path, body, status, told) in [
        ("/api/ingest/s", format!("{good}{{\"id\": \n"), "400", "row 2"),
        (
            "/api/ingest/s",
            format!("{good}{good}{{\"id\": \"x\"}}\n"),
            "400",
            "row 3",
        ),
        (
            "/api/ingest/s",
            format!("{good}{{\"v\": \"no id\"}}\n"),
            "400",
            "row 2",
        ),
        ("/api/ingest/nothing", good.to_owned(), "404", "nothing"),
        ("/api/ingest/s", long, "413", "10000"),
    ] {
        let answer = request(fixture.server.http_addr(), "POST", path, &body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.0 {status}")),
            "{told}: {answer}"
        );
        assert!(answer.contains(told), "{told}: {answer}");
    }
    assert_eq!(number(&fixture.witness, "SELECT count(*) FROM s").await, 0);
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ingest_that_is_sent_again() {
    let Fixture {
        server,
        witness,
        _directory: directory,
    } = Fixture::new().await;
    run(&witness, "CREATE STREAM s (id INT NOT NULL)").await.unwrap();
    run(&witness, "CREATE STREAM other (id INT NOT NULL)")
        .await
        .unwrap();
    let send = async |server: &Server, path: &'static str, key: &str, body: &'static str| {
        let header = format!("Idempotency-Key: {key}\r\n");
        request_with(server.http_addr(), "POST", path, &header, body).await
    };
    let (path, rows) = ("/api/ingest/s?wait=applied", "{\"id\": 1}\n{\"id\": 2}\n");
    // One that failed may be tried again.
    let answer = send(&server, path, "a", "{\"id\": 1}\n{}\n").await;
    assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
    for key in ["a", "a", "b", "a"] {
        let answer = send(&server, path, key, rows).await;
        assert!(
            answer.starts_with("HTTP/1.0 200") && answer.contains("\"rows\":2"),
            "{answer}"
        );
    }
    assert_eq!(number(&witness, "SELECT count(*) FROM s").await, 4);
    let answer = send(&server, "/api/ingest/other", "a", "{\"id\": 1}\n").await;
    assert!(answer.contains("\"rows\":1"), "another relation's key: {answer}");
    let answer = send(&server, path, &"k".repeat(256), rows).await;
    assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
    drop(witness);
    server.shutdown().await;
    let server = start(directory.path()).await.unwrap();
    let witness = connect(server.pg_addr()).await.unwrap();
    let answer = send(&server, path, "b", rows).await;
    assert!(answer.contains("\"rows\":2"), "{answer}");
    // Other rows under the same key would be lost without a word.
    let answer = send(&server, path, "b", "{\"id\": 9}\n").await;
    assert!(
        answer.starts_with("HTTP/1.0 422") && answer.contains("a different body"),
        "{answer}"
    );
    assert_eq!(number(&witness, "SELECT count(*) FROM s").await, 4);
    let answer = send(&server, path, "c", rows).await;
    assert!(answer.contains("\"rows\":2"), "{answer}");
    assert_eq!(number(&witness, "SELECT count(*) FROM s").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn ingest_of_rows_that_are_late() {
    let Fixture {
        server,
        witness,
        _directory: directory,
    } = Fixture::new().await;
    run(
        &witness,
        "CREATE STREAM s (id INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds');
         INSERT INTO s VALUES (0, '2020-01-01 00:00:10Z')",
    )
    .await
    .unwrap();
    let rows = "{\"id\": 1, \"ts\": \"2020-01-01T00:00:20Z\"}\n{\"id\": 2, \"ts\": \"2020-01-01T00:00:04.5Z\"}\n\
                {\"id\": 3, \"ts\": \"2200-01-01T00:00:00Z\"}\n{\"id\": 4, \"ts\": null}\n";
    let send = async |server: &Server, key: &str| {
        let header = format!("Idempotency-Key: {key}\r\n");
        request_with(server.http_addr(), "POST", "/api/ingest/s", &header, rows).await
    };
    let body = |answer: &str| -> serde_json::Value {
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let first = body(&send(&server, "a").await);
    let late = "late: its event time 2020-01-01 00:00:04.500+00 is before the stream's watermark 2020-01-01 00:00:05+00";
    let ahead =
        "its event time 2200-01-01 00:00:00+00 is ahead of the clock by more than watermark.max_future_skew";
    let expected = serde_json::json!({
        "rows": 2,
        "rejected": 2,
        "rejections": [{"row": 2, "reason": late}, {"row": 3, "reason": ahead}],
    });
    assert_eq!(first, expected);
    assert_eq!(number(&witness, "SELECT sum(id) FROM s").await, 5);
    // What a key was answered it is answered again, also after a restart.
    assert_eq!(body(&send(&server, "a").await), expected);
    drop(witness);
    server.shutdown().await;
    let server = start(directory.path()).await.unwrap();
    let witness = connect(server.pg_addr()).await.unwrap();
    assert_eq!(body(&send(&server, "a").await), expected);
    assert_eq!(number(&witness, "SELECT sum(id) FROM s").await, 5);
    // By now the first row is not late, as it is the one that made the watermark; the second is.
    let again = body(&send(&server, "b").await);
    assert_eq!((&again["rows"], &again["rejected"]), (&2.into(), &2.into()));
    let all = (0..25).map(|_| "{\"id\": 9, \"ts\": \"2019-01-01T00:00:00Z\"}\n");
    let answer = request(
        server.http_addr(),
        "POST",
        "/api/ingest/s",
        &all.collect::<String>(),
    )
    .await;
    let answer = body(&answer);
    assert_eq!((&answer["rows"], &answer["rejected"]), (&0.into(), &25.into()));
    assert_eq!(answer["rejections"].as_array().map(Vec::len), Some(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn ingest_for_which_there_is_no_room() {
    let fixture = Fixture::new().await;
    run(&fixture.witness, "CREATE STREAM s (id INT NOT NULL)")
        .await
        .unwrap();
    // The process has more than that already.
    run(&fixture.witness, "ALTER SYSTEM SET memory_limit = '1MB'")
        .await
        .unwrap();
    fixture.server.database().unwrap().runtime().memory().look();
    let (path, row) = ("/api/ingest/s", "{\"id\": 1}\n");
    let answer = request(fixture.server.http_addr(), "POST", path, row).await;
    assert!(answer.starts_with("HTTP/1.0 429"), "{answer}");
    let headers = answer.to_ascii_lowercase();
    assert!(
        headers.contains("retry-after: 1") && answer.contains("53200"),
        "{answer}"
    );
    run(&fixture.witness, "ALTER SYSTEM RESET memory_limit")
        .await
        .unwrap();
    let answer = request(fixture.server.http_addr(), "POST", path, row).await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert_eq!(number(&fixture.witness, "SELECT count(*) FROM s").await, 1);
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_are_worked_on() {
    let fixture = Fixture::new().await;
    run(&fixture.witness, "CREATE STREAM s (id INT NOT NULL)")
        .await
        .unwrap();
    let address = fixture.server.http_addr();
    let head = "POST /api/ingest/s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n\
                Content-Length: 10\r\n\r\n";
    let mut hanging = vec![];
    let refused = async {
        loop {
            // The request that looks may have taken the place of one of these: then there is one more.
            let missing = REQUESTS_MAX.saturating_sub(hanging.len()).max(1);
            for _ in 0..missing {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(head.as_bytes()).await.unwrap();
                hanging.push(stream);
            }
            let answer = request(address, "GET", "/api/sql?query=SELECT%201", "").await;
            if answer.starts_with("HTTP/1.0 429") {
                return answer.to_ascii_lowercase();
            }
        }
    };
    let answer = timeout(PATIENCE, refused).await.expect("one too many is refused");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    assert_healthy(address).await;
    drop(hanging);
    let served = async {
        while !request(address, "GET", "/api/sql?query=SELECT%201", "")
            .await
            .starts_with("HTTP/1.0 200")
        {}
    };
    timeout(PATIENCE, served).await.expect("there is room again");
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nesting_without_end() {
    let fixture = Fixture::new().await;
    let client = connect(fixture.server.pg_addr()).await.unwrap();
    for sql in [
        format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("SELECT {}1", "- ".repeat(50_000)),
        format!("SELECT {}1", "NOT ".repeat(20_000)),
        format!("SELECT 1{}", " + 1".repeat(20_000)),
        format!("{}SELECT 1", "SELECT * FROM (".repeat(5_000)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(10_000)),
    ] {
        // Whether it is answered or refused is not the point here.
        if let Err(error) = client.simple_query(&sql).await {
            assert!(!error.is_closed(), "{}: {error}", &sql[..40]);
        }
        assert_eq!(number(&client, "SELECT 1").await, 1);
    }
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_in_the_middle_of_copy() {
    let fixture = Fixture::new().await;
    for _ in 0..3 {
        let client = connect(fixture.server.pg_addr()).await.unwrap();
        let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
        let mut sink = Box::pin(sink);
        for id in 0..50 {
            sink.send(Bytes::from(format!("{id}\tlost\n"))).await.unwrap();
        }
        // Ends the copy with CopyFail, like a program that gives up.
        drop(sink);
        drop(client);
        // And like a program that is killed: half a row, and nothing more.
        let piece = message(b'd', b"77\tlost\n78\tlo");
        let bytes = [startup(), query("COPY t FROM STDIN"), piece].concat();
        exchange(fixture.server.pg_addr(), &bytes).await;
    }
    fixture.check_health().await;
}

/// Clients that take nothing, by either protocol: their queries wait, others do not, and it can be seen.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read() {
    let fixture = Fixture::new().await;
    let endless = "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)";
    let mut deaf = TcpStream::connect(fixture.server.pg_addr()).await.unwrap();
    deaf.write_all(&[startup(), query(endless)].concat())
        .await
        .unwrap();
    let mut deaf_to_http = TcpStream::connect(fixture.server.http_addr()).await.unwrap();
    let head = "POST /api/sql?format=csv HTTP/1.0\r\nHost: localhost\r\nContent-Type: text/plain";
    let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{endless}", endless.len());
    deaf_to_http.write_all(request.as_bytes()).await.unwrap();
    let waits = "SELECT count(*) FROM mr_catalog.flow WHERE query IS NOT NULL AND since <= now()
                 AND waits_for = '4 batches not yet read by the client'";
    let both_wait = async { while number(&fixture.witness, waits).await < 2 {} };
    timeout(PATIENCE, both_wait).await.expect("both queries wait");
    let held = "SELECT sum(bytes) FROM mr_catalog.memory WHERE holder = 'query'";
    let held = number(&fixture.witness, held).await;
    assert!(held < 256 << 20, "{held} bytes are held of a gigabyte");
    // One may go on for a moment, until the system's buffers are full.
    let address = fixture.server.http_addr();
    let counted = async {
        while !(self::request(address, "GET", "/metrics", "").await).contains("queries_waiting_for_clients 2")
        {
        }
    };
    timeout(PATIENCE, counted).await.expect("both are counted");
    assert_eq!(
        number(&fixture.witness, "SELECT count(*) FROM generate_series(1, 1000)").await,
        1000
    );
    drop((deaf, deaf_to_http));
    let none_waits = async { while number(&fixture.witness, waits).await > 0 {} };
    timeout(PATIENCE, none_waits).await.expect("they are given up");
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_are_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        connections_max: 3,
        ..throw_away(directory.path())
    };
    let fixture = Fixture::with(directory, config).await;
    let held = [
        connect(fixture.server.pg_addr()).await.unwrap(),
        connect(fixture.server.pg_addr()).await.unwrap(),
    ];
    let error = connect(fixture.server.pg_addr()).await.expect_err("one too many");
    let error = error
        .downcast::<tokio_postgres::Error>()
        .expect("the server says it");
    let words = words(&error);
    assert!(words.starts_with("53300: "), "{words}");
    assert_eq!(number(&fixture.witness, "SELECT 1").await, 1);
    drop(held);
    timeout(PATIENCE, fixture.server.shutdown())
        .await
        .expect("the server stops");
}

/// An administrator gets in where others do not any more.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_places_are_for_superusers() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        connections_max: 4,
        superuser_reserved_connections: 2,
        ..throw_away(directory.path())
    };
    let fixture = Fixture::with(directory, config).await;
    run(&fixture.witness, "CREATE ROLE app LOGIN").await.unwrap();
    let address = fixture.server.pg_addr();
    let as_app = || async move {
        let text = format!(
            "host={} port={} user=app dbname=millrace",
            address.ip(),
            address.port()
        );
        tokio_postgres::connect(&text, tokio_postgres::NoTls).await
    };
    let (_held, connection) = as_app().await.expect("there is a place");
    let connection = tokio::spawn(connection);
    let error = as_app().await.err().expect("the others are kept");
    let words = words(&error);
    assert!(words.starts_with("53300: remaining connection slots"), "{words}");
    let administrator = connect(address).await.expect("one is kept for this");
    assert_eq!(number(&administrator, "SELECT 1").await, 1);
    connection.abort();
}

/// Whoever connects and says nothing gives up his place to whoever comes later.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_keep_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        connections_max: 3,
        ..throw_away(directory.path())
    };
    let fixture = Fixture::with(directory, config).await;
    let mut silent = vec![];
    for _ in 0..100 {
        silent.push(
            tokio::net::TcpStream::connect(fixture.server.pg_addr())
                .await
                .unwrap(),
        );
        silent.push(
            tokio::net::TcpStream::connect(fixture.server.http_addr())
                .await
                .unwrap(),
        );
    }
    let client = connect(fixture.server.pg_addr()).await.unwrap();
    assert_eq!(number(&client, "SELECT 1").await, 1);
    fixture.check_health().await;
    drop(silent);
}

/// Why a server does not start on the directory.
async fn refusal(directory: &Path) -> String {
    start(directory).await.err().expect("it cannot start").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_another_server_uses() {
    let fixture = Fixture::new().await;
    let error = refusal(fixture._directory.path()).await;
    assert!(error.contains("in use") || error.contains("uses"), "{error}");
    assert!(error.contains(&std::process::id().to_string()), "{error}");
    fixture.check_health().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_of_others() {
    let directory = tempfile::tempdir().unwrap();
    start(directory.path()).await.unwrap().shutdown().await;
    let format = directory.path().join("FORMAT");
    let ours = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, "millrace data directory, format 999\n").unwrap();
    let error = refusal(directory.path()).await;
    assert!(
        error.contains("format 999") && error.contains("newer millrace"),
        "{error}"
    );
    // Refusing changes nothing.
    std::fs::write(&format, ours).unwrap();
    start(directory.path()).await.unwrap().shutdown().await;

    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("thesis.tex"), "mine").unwrap();
    let error = refusal(foreign.path()).await;
    assert!(
        error.contains("not a millrace data directory") && error.contains("thesis.tex"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(foreign.path().join("thesis.tex")).unwrap(),
        "mine"
    );

    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refusal(file.path()).await;
    assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
}
