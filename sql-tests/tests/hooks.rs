//! Rows that are sent to a service over HTTP: signed, in steps that keep their numbers, at least once whatever is killed, and to nobody who
//! is only within reach of the server.
//!
//! `HOOK_ROUNDS` is how often the server is killed, `MILLRACE_SEED` when.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_cli::test::throw_away;
use millrace_sql_tests::crash::{Process, serve_if_child};
use millrace_sql_tests::outside::{Suite, line, refused, rounds, until, write_before_a_kill};
use millrace_sql_tests::{Failure, connect, run, seed, start};
use millrace_wire::Server;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

const SECRET: &str = "It's a Secret to Everybody";

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().unwrap();
    Suite::new(directory.path(), ())
        .unwrap()
        .test("requests", async |_, place| requests(place).await)
        .test("answers", async |_, place| answers(place).await)
        .test("private", async |_, place| private(place).await)
        .test("refusals", async |_, place| refusals(place).await)
        .test("kills", async |_, place| kills(place).await)
        .outcome()
}

/// A request that came.
#[derive(Debug, Clone)]
struct Came {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Came {
    fn header(&self, name: &str) -> String {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    }

    fn step(&self) -> u64 {
        self.header("millrace-step").parse().unwrap()
    }

    fn rows(&self) -> Vec<Value> {
        match self.header("content-type").as_str() {
            "application/json" => serde_json::from_slice(&self.body).unwrap(),
            "application/x-ndjson" => (self.body.split(|byte| *byte == b'\n'))
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect(),
            other => panic!("{other}"),
        }
    }
}

/// A status, headers and a body.
type Said = (u16, Vec<(&'static str, String)>, String);

/// A service that takes rows: what it answers depends on the path.
struct Service {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
    /// What `/said` answers.
    says: Arc<Mutex<Said>>,
}

#[derive(Clone)]
struct Behaviour {
    came: Arc<Mutex<Vec<Came>>>,
    says: Arc<Mutex<Said>>,
    random: Arc<Mutex<StdRng>>,
}

async fn take(
    State(service): State<Behaviour>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    if path == "/moved" {
        return (StatusCode::FOUND, [("location", "http://169.254.169.254/latest")]).into_response();
    }
    let chance = service.random.lock().random_range(0..10);
    if path == "/flaky" && chance == 0 && method == Method::POST {
        return (StatusCode::SERVICE_UNAVAILABLE, "not now").into_response();
    }
    service.came.lock().push(Came {
        method,
        path: path.clone(),
        headers,
        body,
    });
    if path == "/flaky" && chance == 1 {
        // It has them, and does not say so.
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    if path == "/said" {
        let (status, headers, body) = service.says.lock().clone();
        let mut answer = (StatusCode::from_u16(status).unwrap(), body).into_response();
        for (name, value) in headers {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        return answer;
    }
    StatusCode::NO_CONTENT.into_response()
}

impl Service {
    async fn start() -> Result<Service, Failure> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let behaviour = Behaviour {
            came: Arc::default(),
            says: Arc::new(Mutex::new((204, vec![], String::new()))),
            random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed()))),
        };
        let (came, says) = (Arc::clone(&behaviour.came), Arc::clone(&behaviour.says));
        let router = Router::new().fallback(take).with_state(behaviour);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Service { address, came, says })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn say(&self, status: u16, headers: Vec<(&'static str, String)>, body: &str) {
        *self.says.lock() = (status, headers, body.to_owned());
    }

    /// The requests with rows that came to a path.
    fn posts(&self, path: &str) -> Vec<Came> {
        let came = self.came.lock();
        let posts = came
            .iter()
            .filter(|came| came.path == path && came.method == Method::POST);
        posts.cloned().collect()
    }
}

/// HMAC-SHA256 as RFC 2104 has it, in hexadecimal digits.
fn hmac(secret: &[u8], body: &[u8]) -> String {
    use ring::digest::{SHA256, digest};
    let mut key = [0; 64];
    key[..secret.len()].copy_from_slice(secret);
    let pad = |with: u8| key.map(|byte| byte ^ with).to_vec();
    let inner = digest(&SHA256, &[&pad(0x36), body].concat());
    let outer = digest(&SHA256, &[&pad(0x5c), inner.as_ref()].concat());
    outer.as_ref().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn with_secret(place: &Path) -> Result<String, Failure> {
    std::fs::create_dir_all(place)?;
    let secret = place.join("secret");
    std::fs::write(&secret, format!("{SECRET}\n"))?;
    Ok(secret.display().to_string())
}

async fn serve(place: &Path, hosts: &str) -> Result<Server, Failure> {
    let mut config = throw_away(&place.join("data"));
    config.webhook_private_hosts = PrivateHosts::parse(hosts)?;
    Ok(Server::start(config).await?)
}

/// What a request is.
async fn requests(place: &Path) -> Result<(), Failure> {
    let service = Service::start().await?;
    let server = serve(place, "127.0.0.1").await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (n BIGINT, t TEXT)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY, v INT)").await?;
    run(
        &client,
        &format!("CREATE SECRET hook AS '{}'", SECRET.replace('\'', "''")),
    )
    .await?;
    for (name, from, path, more) in [
        ("plain", "s", "/plain", ", secret = SECRET hook"),
        (
            "lines",
            "s",
            "/lines",
            ", body = 'ndjson', max_row_count = 2, secret = SECRET hook, signature = 'token'",
        ),
        ("changes", "k", "/changes", ", type = 'changelog'"),
    ] {
        let sql = format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 'webhook', url = '{}', rollover_seconds = 0{more})",
            service.url(path)
        );
        run(&client, &sql).await?;
    }
    // They were looked at, and nothing was sent.
    assert!(
        service
            .came
            .lock()
            .iter()
            .all(|came| came.method == Method::OPTIONS && came.body.is_empty())
    );
    assert_eq!(service.came.lock().len(), 3);
    run(
        &client,
        "INSERT INTO s SELECT i, 'x' || i FROM generate_series(1, 5) AS g(i)",
    )
    .await?;
    run(&client, "INSERT INTO k VALUES (1, 1)").await?;
    run(&client, "FLUSH").await?;
    run(&client, "UPDATE k SET v = 2").await?;
    run(&client, "FLUSH").await?;

    let plain = service.posts("/plain");
    let rows: Vec<Value> = plain.iter().flat_map(Came::rows).collect();
    let expected: Vec<Value> = (1..=5)
        .map(|n| serde_json::json!({"n": n, "t": format!("x{n}")}))
        .collect();
    assert_eq!(rows, expected);
    for came in &plain {
        let signature = format!("sha256={}", hmac(SECRET.as_bytes(), &came.body));
        assert_eq!(came.header("x-hub-signature-256"), signature);
        let key = format!("{}-{}", came.header("millrace-sink"), came.step());
        assert_eq!(came.header("idempotency-key"), key);
    }
    let lines = service.posts("/lines");
    assert!(lines.len() >= 3 && lines.iter().all(|came| came.rows().len() <= 2));
    assert_eq!(lines.iter().flat_map(Came::rows).collect::<Vec<_>>(), expected);
    assert!(
        lines
            .iter()
            .all(|came| came.header("authorization") == format!("Bearer {SECRET}"))
    );
    let steps: Vec<u64> = lines.iter().map(Came::step).collect();
    assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>());
    let changes: Vec<Value> = service.posts("/changes").iter().flat_map(Came::rows).collect();
    assert_eq!(
        changes,
        [
            serde_json::json!({"op": "insert", "id": 1, "v": 1}),
            serde_json::json!({"op": "delete", "id": 1, "v": 1}),
            serde_json::json!({"op": "insert", "id": 1, "v": 2}),
        ]
    );
    until(
        &client,
        "SELECT name, connector, delivery, state, lag_rows FROM mr_catalog.sinks ORDER BY name",
        "changes webhook at_least_once running 0, lines webhook at_least_once running 0, plain webhook at_least_once running 0",
    )
    .await?;
    let shown = line(&client, "SHOW SINKS").await?;
    assert!(shown.contains("at_least_once"), "{shown}");
    // Another value of the secret is taken with the next request.
    run(&client, "ALTER SECRET hook AS 'another'").await?;
    run(&client, "INSERT INTO s VALUES (6, '')").await?;
    run(&client, "FLUSH").await?;
    let last = service.posts("/plain").pop().unwrap();
    assert_eq!(
        last.header("x-hub-signature-256"),
        format!("sha256={}", hmac(b"another", &last.body))
    );
    // What one millrace sends another takes.
    let there = start(&place.join("there")).await?;
    let secret = with_secret(place)?;
    let other = connect(there.pg_addr()).await?;
    run(
        &other,
        &format!(
            "CREATE STREAM s (n BIGINT, t TEXT) WITH (connector = 'webhook', secret.file = '{secret}', id.header = 'Idempotency-Key')"
        ),
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE SINK there FROM s WITH (connector = 'webhook', url = 'http://{}/api/webhook/s', secret.file = '{secret}')",
            there.http_addr()
        ),
    )
    .await?;
    run(&client, "FLUSH").await?;
    until(&other, "SELECT count(*), sum(n) FROM s", "6 21").await?;
    drop((client, other));
    server.shutdown().await;
    there.shutdown().await;
    Ok(())
}

/// What becomes of a sink by what is answered.
async fn answers(place: &Path) -> Result<(), Failure> {
    let service = Service::start().await?;
    let server = serve(place, "127.0.0.1").await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (n BIGINT)").await?;
    let create = |name: &str, path: &str, more: &str| {
        format!(
            "CREATE SINK {name} FROM s WITH (connector = 'webhook', url = '{}', rollover_seconds = 0{more})",
            service.url(path)
        )
    };
    run(&client, &create("said", "/said", "")).await?;
    let state = "SELECT state, error FROM mr_catalog.sinks WHERE name = 'said'";
    // Again and again.
    service.say(503, vec![], "come\nback");
    run(&client, "INSERT INTO s VALUES (1)").await?;
    let expected = format!(
        "failing {} answers 503 Service Unavailable: come back",
        service.url("/said")
    );
    until(&client, state, &expected).await?;
    service.say(204, vec![], "");
    until(&client, state, "running NULL").await?;
    let sent = service.posts("/said");
    assert!(
        sent.len() >= 2
            && sent
                .iter()
                .all(|came| came.step() == 0 && came.body == sent[0].body)
    );
    // Not before it wants.
    service.say(429, vec![("retry-after", "3".to_owned())], "");
    run(&client, "INSERT INTO s VALUES (2)").await?;
    let expected = format!("failing {} answers 429 Too Many Requests", service.url("/said"));
    until(&client, state, &expected).await?;
    let before = service.posts("/said").len();
    service.say(204, vec![], "");
    // An attempt after 0.1 s would be there by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(service.posts("/said").len(), before);
    until(&client, state, "running NULL").await?;
    assert_eq!(service.posts("/said").len(), before + 1);
    // Never again, until somebody says so.
    service.say(422, vec![], &"no such column ".repeat(100));
    run(&client, "INSERT INTO s VALUES (3)").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sinks WHERE name = 'said'",
        "failed",
    )
    .await?;
    let error = line(&client, state).await?;
    assert!(
        error.contains("answers 422 Unprocessable Entity: no such column no such"),
        "{error}"
    );
    assert!(error.len() < 500, "{error}");
    let before = service.posts("/said").len();
    run(&client, "INSERT INTO s VALUES (4)").await?;
    service.say(204, vec![], "");
    run(&client, "RESUME SINK said").await?;
    until(&client, state, "running NULL").await?;
    run(&client, "FLUSH").await?;
    let after: Vec<Value> = service.posts("/said")[before..]
        .iter()
        .flat_map(Came::rows)
        .collect();
    assert_eq!(after, [serde_json::json!({"n": 3}), serde_json::json!({"n": 4})]);
    // Redirects, at CREATE and later.
    let error = refused(&client, &create("moved", "/moved", "")).await?;
    assert!(
        error.contains("redirects to http://169.254.169.254/latest, which is not followed"),
        "{error}"
    );
    service.say(307, vec![("location", service.url("/elsewhere"))], "");
    run(&client, "INSERT INTO s VALUES (5)").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sinks WHERE name = 'said'",
        "failed",
    )
    .await?;
    assert!(service.posts("/elsewhere").is_empty());
    let error = line(&client, state).await?;
    assert!(error.contains("is not followed"), "{error}");
    // Nobody is there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let error = refused(
        &client,
        &format!("CREATE SINK x FROM s WITH (connector = 'webhook', url = 'http://{nobody}/')"),
    )
    .await?;
    assert!(error.contains("refused"), "{error}");
    // Somebody who says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let error = refused(
        &client,
        &format!(
            "CREATE SINK x FROM s WITH (connector = 'webhook', url = 'http://{}/', timeout = '200 ms')",
            silent.local_addr()?
        ),
    )
    .await?;
    assert!(error.contains("no answer within 0.2 seconds"), "{error}");
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// Who is only within reach of the server is not reached.
async fn private(place: &Path) -> Result<(), Failure> {
    let service = Service::start().await?;
    let port = service.address.port();
    let server = serve(place, "").await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (n BIGINT)").await?;
    let create = |name: &str, host: &str| {
        format!("CREATE SINK {name} FROM s WITH (connector = 'webhook', url = 'http://{host}:{port}/in')")
    };
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "[fe80::1]",
        "[fd00::1]",
    ] {
        let error = refused(&client, &create("x", host)).await?;
        assert!(error.contains("to which sinks may not send"), "{host}: {error}");
        assert!(error.contains("webhook_private_hosts"), "{host}: {error}");
    }
    drop(client);
    server.shutdown().await;
    // By its name, and only by that; and not any more when it is not allowed any more.
    let server = serve(place, "localhost").await?;
    let client = connect(server.pg_addr()).await?;
    let error = refused(&client, &create("x", "127.0.0.1")).await?;
    assert!(error.contains("to which sinks may not send"), "{error}");
    assert!(service.came.lock().is_empty());
    run(&client, &create("x", "localhost")).await?;
    run(&client, "INSERT INTO s VALUES (1)").await?;
    run(&client, "FLUSH").await?;
    assert_eq!(service.posts("/in").len(), 1);
    drop(client);
    server.shutdown().await;
    let server = serve(place, "").await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "INSERT INTO s VALUES (2)").await?;
    until(&client, "SELECT state FROM mr_catalog.sinks", "failed").await?;
    let error = line(&client, "SELECT error FROM mr_catalog.sinks").await?;
    assert!(error.contains("localhost is at"), "{error}");
    assert_eq!(service.posts("/in").len(), 1);
    drop(client);
    server.shutdown().await;
    Ok(())
}

async fn refusals(place: &Path) -> Result<(), Failure> {
    let server = serve(place, "").await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (n BIGINT)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY)").await?;
    for (from, more, expected) in [
        ("s", "url = 'nowhere'", "like https://host/path"),
        ("s", "timeout = '1 s'", "needs option \"url\""),
        (
            "s",
            "url = 'https://ann:hidden@example.com/'",
            "must not have a user or a password",
        ),
        (
            "s",
            "url = 'https://example.com/', secret = 'hidden'",
            "is not supported: everybody",
        ),
        (
            "s",
            "url = 'https://example.com/', bodi = 'json'",
            "Perhaps you meant \"body\"",
        ),
        (
            "s",
            "url = 'https://example.com/', delivery = 'exactly_once'",
            "cannot be delivered to exactly once",
        ),
        (
            "s",
            "url = 'https://example.com/', type = 'upsert'",
            "'append-only', 'changelog'",
        ),
        ("k", "url = 'https://example.com/'", "cannot be append-only"),
    ] {
        let error = refused(
            &client,
            &format!("CREATE SINK x FROM {from} WITH (connector = 'webhook', {more})"),
        )
        .await?;
        // What the statement was stands in front.
        let said = error.split_once('\n').map_or("", |(_, said)| said);
        if !said.to_lowercase().contains(&expected.to_lowercase()) || said.contains("hidden") {
            return Err(format!("{more}: {error}").into());
        }
    }
    let error = refused(
        &client,
        "CREATE SINK x FROM s WITH (connector = 'webhook', url = 'https://example.com/') FORMAT UPSERT ENCODE JSON",
    )
    .await?;
    assert!(
        error.contains("FORMAT UPSERT ENCODE JSON is not supported"),
        "{error}"
    );
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// The server is killed, and the service does not always say what it has taken.
async fn kills(place: &Path) -> Result<(), Failure> {
    let rounds = rounds("HOOK_ROUNDS");
    let seed = seed();
    println!("kills: {rounds} rounds, MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let service = Service::start().await?;
    let secret = with_secret(place)?;
    let data = place.join("data");
    let mut server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    run(&client, "CREATE STREAM s (n BIGINT, t TEXT)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY, v BIGINT)").await?;
    for (name, from, more) in [
        ("rows", "s", "max_row_count = 50"),
        ("changes", "k", "type = 'changelog', body = 'ndjson'"),
    ] {
        let sql = format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 'webhook', url = '{}', secret.file = '{secret}', \
             signature.header = 'X-{name}', rollover_seconds = 0.02, {more})",
            service.url("/flaky")
        );
        run(&client, &sql).await?;
    }
    let mut number = 0_u64;
    for _ in 0..rounds {
        let client = connect(server.pg).await?;
        write_before_a_kill(&client, &mut random, &mut number, 30, 300).await?;
        drop(client);
        server.kill()?;
        server = Process::start(&data, random.random_range(1..3), false)?;
    }
    let client = connect(server.pg).await?;
    let check = "SELECT name, state, lag_rows FROM mr_catalog.sinks ORDER BY name";
    until(&client, check, "changes running 0, rows running 0").await?;
    // One that is failing just then does not keep FLUSH.
    let total =
        "SELECT count(*) FROM mr_catalog.sinks WHERE state = 'running' AND lag_rows = 0 AND lag_seconds = 0";
    until(&client, total, "2").await?;
    let came = service.posts("/flaky");
    let mut steps: BTreeMap<(&str, u64), Came> = BTreeMap::new();
    let mut again = 0;
    for came in came {
        let (name, signature) = match (came.header("x-rows"), came.header("x-changes")) {
            (signature, other) if other.is_empty() => ("rows", signature),
            (_, signature) => ("changes", signature),
        };
        assert_eq!(signature, hmac(SECRET.as_bytes(), &came.body));
        match steps.get(&(name, came.step())) {
            None => {
                steps.insert((name, came.step()), came);
            }
            Some(before) => {
                again += 1;
                assert_eq!(
                    before.body, came.body,
                    "a step is the same however often it comes"
                );
                assert_eq!(before.header("idempotency-key"), came.header("idempotency-key"));
            }
        }
    }
    assert!(again > 0, "nothing was sent again: the test shows nothing");
    // Each step is there.
    for name in ["rows", "changes"] {
        let numbers: Vec<u64> = (steps.keys())
            .filter(|(of, _)| *of == name)
            .map(|(_, step)| *step)
            .collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "{name}");
    }
    let of = |name: &str| -> Vec<Value> {
        let of = steps.iter().filter(|((of, _), _)| *of == name);
        of.flat_map(|(_, came)| came.rows()).collect()
    };
    let rows = of("rows");
    let numbers: BTreeSet<u64> = rows.iter().map(|row| row["n"].as_u64().unwrap()).collect();
    assert_eq!(rows.len() as u64, number);
    assert!(numbers.into_iter().eq(0..number));
    let mut kept: BTreeMap<String, i64> = BTreeMap::new();
    for row in of("changes") {
        let sign = if row["op"] == "insert" { 1 } else { -1 };
        *kept.entry(format!("{} {}", row["id"], row["v"])).or_default() += sign;
    }
    kept.retain(|_, count| *count != 0);
    assert!(kept.values().all(|count| *count == 1), "{kept:?}");
    let expected = line(&client, "SELECT id, v FROM k").await?;
    let expected: BTreeSet<String> = expected
        .split(", ")
        .filter(|row| !row.is_empty())
        .map(str::to_owned)
        .collect();
    assert_eq!(kept.into_keys().collect::<BTreeSet<_>>(), expected);
    println!(
        "kills: {number} rows in {} steps, {again} requests came again",
        steps.len()
    );
    server.kill()
}
