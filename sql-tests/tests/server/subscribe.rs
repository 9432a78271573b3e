//! Following a relation over the wires: COPY and plain rows over PostgreSQL's, lines and server-sent events over HTTP.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use millrace_sql_tests::{connect, rows, run, start};
use millrace_wire::Server;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_postgres::{Client, Config, NoTls};

struct Fixture {
    server: Server,
    client: Client,
    _directory: TempDir,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    let f = Fixture {
        server,
        client,
        _directory: directory,
    };
    f.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
    f.run("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    f.run("INSERT INTO t VALUES (1, 'a')").await;
    f
}

impl Fixture {
    async fn run(&self, sql: &str) {
        run(&self.client, sql).await.unwrap();
    }

    async fn another(&self) -> Client {
        connect(self.server.pg_addr()).await.unwrap()
    }

    /// Waits until so many follow.
    async fn follow(&self, count: &str) {
        loop {
            let counted = rows(&self.client, "SELECT count(*) FROM mr_catalog.subscribers")
                .await
                .unwrap();
            if counted[0][0].as_deref() == Some(count) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn without_epoch(line: &[u8]) -> String {
    let line = String::from_utf8(line.to_vec()).unwrap();
    line.trim_end().split_once('\t').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_sends_each_change_when_it_comes() {
    let f = fixture().await;
    let other = f.another().await;
    let copy = other.copy_out("COPY (SUBSCRIBE m) TO STDOUT").await.unwrap();
    let mut copy = Box::pin(copy);
    let first: Bytes = copy.next().await.unwrap().unwrap();
    assert_eq!(without_epoch(&first), "insert\ta\t1");
    f.run("INSERT INTO t VALUES (2, 'b')").await;
    let second: Bytes = copy.next().await.unwrap().unwrap();
    assert_eq!(without_epoch(&second), "insert\tb\t1");
    // A cancelled one ends with the usual error, and the session goes on.
    other.cancel_token().cancel_query(NoTls).await.unwrap();
    let error = copy.next().await.unwrap().unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014");
    drop(copy);
    assert_eq!(
        rows(&other, "SELECT 1").await.unwrap()[0][0].as_deref(),
        Some("1")
    );
    f.follow("0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_over_the_extended_protocol_and_a_client_that_goes_is_noticed() {
    let f = fixture().await;
    let address = f.server.pg_addr();
    let mut config = Config::new();
    config
        .host(address.ip().to_string())
        .port(address.port())
        .user("millrace");
    let (other, connection) = config.connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let statement = other.prepare("SUBSCRIBE m WITH (PROGRESS)").await.unwrap();
    let names: Vec<&str> = statement.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, ["epoch", "progressed", "op", "v", "n"]);
    let sent = other.query_raw(&statement, Vec::<i32>::new()).await.unwrap();
    let mut sent = Box::pin(sent);
    let row = sent.try_next().await.unwrap().unwrap();
    let what = (
        row.get::<_, bool>(1),
        row.get::<_, Option<&str>>(2),
        row.get::<_, Option<i64>>(4),
    );
    assert_eq!(what, (false, Some("insert"), Some(1)));
    let row = sent.try_next().await.unwrap().unwrap();
    let what = (
        row.get::<_, bool>(1),
        row.get::<_, Option<&str>>(2),
        row.get::<_, Option<i64>>(4),
    );
    assert_eq!(what, (true, None, None));
    f.follow("1").await;
    // Nothing changes, and nothing is sent: that the client is gone is seen all the same.
    connection.abort();
    f.follow("0").await;
}

/// A subscription over HTTP that is being read.
struct Reading(BufReader<TcpStream>);

impl Reading {
    async fn begin(to: SocketAddr, headers: &str, body: &Value) -> (String, Reading) {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let body = body.to_string();
        let request = format!(
            "POST /api/subscribe HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reading = Reading(BufReader::new(stream));
        let status = reading.line().await;
        while !reading.line().await.is_empty() {}
        (status, reading)
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// The next line of the body that is not the length of a chunk, nor the end of one.
    async fn text(&mut self) -> String {
        loop {
            let line = self.line().await;
            if !line.is_empty() && !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return line;
            }
        }
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.text().await).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_over_http() {
    let f = fixture().await;
    let http = f.server.http_addr();
    let request = json!({"query": "m", "progress": true, "heartbeat": "100ms"});
    let (status, mut reading) = Reading::begin(http, "", &request).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let first = reading.json().await;
    assert_eq!(
        (&first["op"], &first["row"]),
        (&json!("insert"), &json!({"v": "a", "n": 1}))
    );
    let progress = reading.json().await;
    assert_eq!(progress["progress"]["epoch"], first["epoch"]);
    // Nothing happens, and the client hears that it is still there.
    while reading.json().await != json!({"heartbeat": {}}) {}
    f.run("UPDATE t SET v = 'b' WHERE id = 1").await;
    let mut changes = vec![];
    while changes.len() < 2 {
        let line = reading.json().await;
        if line.get("row").is_some() {
            changes.push((line["op"].as_str().unwrap().to_owned(), line["row"]["v"].clone()));
        }
    }
    changes.sort_by_key(|(op, _)| op.clone());
    assert_eq!(
        changes,
        [
            ("delete".to_owned(), json!("a")),
            ("insert".to_owned(), json!("b"))
        ]
    );
    f.run("DROP MATERIALIZED VIEW m").await;
    let error = loop {
        let line = reading.json().await;
        if let Some(error) = line.get("error") {
            break error.clone();
        }
    };
    assert_eq!(error["code"], "55000");
    let (status, mut refused) = Reading::begin(http, "", &json!({"query": "m"})).await;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert_eq!(refused.json().await["error"]["code"], "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_come_first_and_errors_stand_where_they_are() {
    let f = fixture().await;
    let http = f.server.http_addr();
    let columns = json!([{"name": "v", "type": "text"}, {"name": "n", "type": "int8"}]);
    for query in [
        "m",
        "  m ENVELOPE UPSERT",
        "-- all\nSELECT * FROM m",
        "SUBSCRIBE TO m",
    ] {
        let request = json!({"query": query, "columns": true});
        let (status, mut reading) = Reading::begin(http, "", &request).await;
        assert_eq!(status, "HTTP/1.1 200 OK", "{query}");
        assert_eq!(reading.json().await, json!({ "columns": columns }), "{query}");
        assert_eq!(reading.json().await["row"], json!({"v": "a", "n": 1}), "{query}");
    }
    let accept = "Accept: text/event-stream\r\n";
    let (_, mut reading) = Reading::begin(http, accept, &json!({"query": "m", "columns": true})).await;
    assert_eq!(event(&mut reading).await, (None, "columns".to_owned(), columns));
    // Of an empty relation, too.
    f.run("CREATE TABLE empty (id UUID, at TIMESTAMPTZ, tags TEXT[])")
        .await;
    let request = json!({"query": "empty", "columns": true});
    let (_, mut reading) = Reading::begin(http, "", &request).await;
    let types: Vec<Value> = reading.json().await["columns"].as_array().unwrap().clone();
    let types: Vec<&str> = types
        .iter()
        .map(|column| column["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["uuid", "timestamptz", "_text"]);
    for (query, code, position) in [
        ("SELECT nope FROM m", "42703", 8),
        ("  SELECT v\n FROM nope", "42P01", 18),
        ("nope", "42P01", 1),
        ("SUBSCRIBE (SELECT v FROM m WHERE nope = 1)", "42703", 34),
        ("SELECT v FROM m WHERE", "42601", 22),
        ("m m2 m3", "42601", 3),
    ] {
        let (_, mut refused) = Reading::begin(http, "", &json!({ "query": query })).await;
        let error = refused.json().await["error"].clone();
        assert_eq!(
            (&error["code"], &error["position"]),
            (&json!(code), &json!(position)),
            "{query}: {error}"
        );
    }
}

/// An event: its id, its kind and its data.
async fn event(reading: &mut Reading) -> (Option<String>, String, Value) {
    let (mut id, mut kind) = (None, "message".to_owned());
    loop {
        let line = reading.text().await;
        match line.split_once(": ") {
            Some(("id", text)) => id = Some(text.to_owned()),
            Some(("event", text)) => kind = text.to_owned(),
            Some(("data", text)) => return (id, kind, serde_json::from_str(text).unwrap()),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_over_http_go_on_where_a_client_was() {
    let f = fixture().await;
    let http = f.server.http_addr();
    let accept = "Accept: text/event-stream\r\n";
    let (status, mut reading) = Reading::begin(http, accept, &json!({"query": "m"})).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (id, kind, data) = event(&mut reading).await;
    assert_eq!(
        (id, kind.as_str(), &data["row"]),
        (None, "message", &json!({"v": "a", "n": 1}))
    );
    let (id, kind, _) = event(&mut reading).await;
    assert_eq!(kind, "progress");
    let id = id.unwrap();
    drop(reading);
    // What happens meanwhile is not lost.
    f.run("INSERT INTO t VALUES (2, 'b')").await;
    let again = format!("{accept}Last-Event-ID: {id}\r\n");
    let (status, mut reading) = Reading::begin(http, &again, &json!({"query": "m"})).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (_, _, data) = event(&mut reading).await;
    assert_eq!(
        (&data["op"], &data["row"]),
        (&json!("insert"), &json!({"v": "b", "n": 1}))
    );
    // An id of another following says nothing here.
    let foreign = format!("{accept}Last-Event-ID: 6b0c1bd0-6a0f-4b7f-9c2c-4c5b6a3f2d10:1\r\n");
    let (status, mut refused) = Reading::begin(http, &foreign, &json!({"query": "m"})).await;
    assert_eq!(status, "HTTP/1.1 400 Bad Request");
    let error = refused.json().await["error"].clone();
    assert_eq!(
        (&error["code"], &error["hint"]),
        (&json!("72000"), &json!("Subscribe again with a snapshot."))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_subscriptions_at_once() {
    let f = fixture().await;
    let other = f.another().await;
    let copy = other.copy_out("COPY (SUBSCRIBE m) TO STDOUT").await.unwrap();
    let mut copy = Box::pin(copy);
    assert!(copy.next().await.unwrap().is_ok());
    let (_, mut reading) = Reading::begin(f.server.http_addr(), "", &json!({"query": "m"})).await;
    assert_eq!(reading.json().await["op"], "insert");
    f.follow("2").await;
    f.server.shutdown().await;
    assert!(copy.next().await.is_none_or(|piece| piece.is_err()));
    assert_eq!(reading.json().await["error"]["code"], "57P01");
    let mut rest = vec![];
    reading.0.read_to_end(&mut rest).await.unwrap();
}

/// A client that follows and does not read neither holds up the view nor keeps anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_told_so_and_holds_nothing_up() {
    let f = fixture().await;
    let (status, mut slow) = Reading::begin(f.server.http_addr(), "", &json!({"query": "t"})).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    f.follow("1").await;
    let waiting = "SELECT coalesce(sum(waiting_bytes), 0), count(error) FROM mr_catalog.subscribers";
    let mut id = 10;
    loop {
        f.run(&format!(
            "INSERT INTO t SELECT x, repeat('y', 4000) FROM generate_series({id}, {}) AS g(x)",
            id + 499
        ))
        .await;
        id += 500;
        let told = rows(&f.client, waiting).await.unwrap();
        if told[0][1].as_deref() == Some("1") {
            assert_eq!(told[0][0].as_deref(), Some("0"));
            break;
        }
        assert!(id < 100_000, "a client that reads nothing was never too slow");
    }
    let counted = rows(&f.client, "SELECT sum(n) FROM m").await.unwrap();
    assert_eq!(counted[0][0], Some((id - 10 + 1).to_string()));
    let error = loop {
        let line = slow.json().await;
        if let Some(error) = line.get("error") {
            break error.clone();
        }
    };
    assert_eq!(error["code"], "54000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_over_http_goes_on_after_a_restart() {
    let f = fixture().await;
    f.run("CREATE SUBSCRIPTION kept FROM m WITH (retention = '1 hour')")
        .await;
    let accept = "Accept: text/event-stream\r\n";
    let query = json!({"query": "kept"});
    let (status, mut reading) = Reading::begin(f.server.http_addr(), accept, &query).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (_, _, data) = event(&mut reading).await;
    assert_eq!(
        (&data["op"], &data["row"]),
        (&json!("insert"), &json!({"v": "a", "n": 1}))
    );
    let (id, kind, _) = event(&mut reading).await;
    assert_eq!(kind, "progress");
    drop(reading);
    // COPY reads it as well.
    f.run("INSERT INTO t VALUES (2, 'b')").await;
    let copy = f
        .client
        .copy_out("COPY (SUBSCRIBE kept) TO STDOUT")
        .await
        .unwrap();
    let mut copy = Box::pin(copy);
    let mut copied: Vec<String> = vec![];
    while copied.len() < 2 {
        let lines = copy.next().await.unwrap().unwrap();
        copied.extend(lines.split_inclusive(|byte| *byte == b'\n').map(without_epoch));
    }
    copied.sort();
    assert_eq!(copied, ["insert\ta\t1", "insert\tb\t1"]);
    drop(copy);
    let Fixture {
        server, _directory, ..
    } = f;
    server.shutdown().await;
    let server = start(_directory.path()).await.unwrap();
    let again = format!("{accept}Last-Event-ID: {}\r\n", id.unwrap());
    let (status, mut reading) = Reading::begin(server.http_addr(), &again, &query).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let (_, _, data) = event(&mut reading).await;
    assert_eq!(
        (&data["op"], &data["row"]),
        (&json!("insert"), &json!({"v": "b", "n": 1}))
    );
    let (next, kind, _) = event(&mut reading).await;
    assert_eq!(kind, "progress");
    assert!(next.is_some());
    // An id of another subscription says nothing here.
    let foreign = format!("{accept}Last-Event-ID: 6b0c1bd0-6a0f-4b7f-9c2c-4c5b6a3f2d10:1\r\n");
    let (status, mut refused) = Reading::begin(server.http_addr(), &foreign, &query).await;
    assert_eq!(status, "HTTP/1.1 400 Bad Request");
    assert_eq!(refused.json().await["error"]["code"], "72000");
    drop(reading);
    server.shutdown().await;
}
