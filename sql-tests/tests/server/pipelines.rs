//! Pipelines: statements of the extended protocol up to a Sync are one transaction, as in PostgreSQL, unless they say BEGIN. Each
//! message is written by hand, since drivers put a Sync behind every statement.

use bytes::BytesMut;
use millrace_sql_tests::{connect, rows, run, start};
use millrace_wire::Server;
use pgwire::messages::PgWireFrontendMessage;
use pgwire::messages::extendedquery::{Bind, Execute, Flush, Parse, Sync};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that shows the messages of the server.
struct Raw(TcpStream);

impl Raw {
    async fn connect(server: &Server) -> Raw {
        let mut raw = Raw(TcpStream::connect(server.pg_addr()).await.unwrap());
        let body = b"\0\x03\0\0user\0millrace\0database\0millrace\0\0";
        let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
        packet.extend_from_slice(body);
        raw.0.write_all(&packet).await.unwrap();
        raw.until_ready().await;
        raw
    }

    /// Sends each statement as Parse, Bind and Execute, and no Sync.
    async fn send(&mut self, statements: &[&str]) {
        let mut bytes = BytesMut::new();
        for statement in statements {
            for message in [
                PgWireFrontendMessage::Parse(Parse::new(None, (*statement).to_owned(), vec![])),
                PgWireFrontendMessage::Bind(Bind::new(None, None, vec![], vec![], vec![])),
                PgWireFrontendMessage::Execute(Execute::new(None, 0)),
            ] {
                message.encode(&mut bytes).unwrap();
            }
        }
        self.0.write_all(&bytes).await.unwrap();
    }

    /// Has the server write what it has to say: the commands that are complete, and SQLSTATEs.
    async fn flush(&mut self, answers: usize) -> Vec<String> {
        let mut bytes = BytesMut::new();
        PgWireFrontendMessage::Flush(Flush::new())
            .encode(&mut bytes)
            .unwrap();
        self.0.write_all(&bytes).await.unwrap();
        let mut said = vec![];
        while said.len() < answers {
            said.extend(self.message().await);
        }
        said
    }

    async fn sync(&mut self) -> Vec<String> {
        let mut bytes = BytesMut::new();
        PgWireFrontendMessage::Sync(Sync::new())
            .encode(&mut bytes)
            .unwrap();
        self.0.write_all(&bytes).await.unwrap();
        self.until_ready().await
    }

    /// What the server says up to ReadyForQuery, and its state then.
    async fn until_ready(&mut self) -> Vec<String> {
        let mut said = vec![];
        loop {
            match self.message().await {
                Some(text) if text.starts_with("ready") => {
                    said.push(text);
                    return said;
                }
                other => said.extend(other),
            }
        }
    }

    /// One message, if it is one that is looked at.
    async fn message(&mut self) -> Option<String> {
        let kind = self.0.read_u8().await.unwrap();
        let length = self.0.read_u32().await.unwrap() as usize - 4;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        match kind {
            b'C' => Some(text.trim_end_matches('\0').to_owned()),
            b'E' => Some(
                text.split('\0')
                    .find_map(|field| field.strip_prefix('C'))?
                    .to_owned(),
            ),
            b'Z' => Some(format!("ready {text}")),
            _ => None,
        }
    }
}

struct Fixture {
    server: Server,
    client: tokio_postgres::Client,
    raw: Raw,
    _directory: TempDir,
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    run(&client, "CREATE TABLE t (k INT PRIMARY KEY)").await.unwrap();
    Fixture {
        raw: Raw::connect(&server).await,
        client,
        server,
        _directory: directory,
    }
}

impl Fixture {
    async fn keys(&self) -> Vec<String> {
        let rows = rows(&self.client, "SELECT k FROM t ORDER BY k").await.unwrap();
        rows.into_iter().flatten().flatten().collect()
    }
}

const ONE: &str = "INSERT INTO t VALUES (1)";
const TWO: &str = "INSERT INTO t VALUES (2)";

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_one_transaction() {
    let mut f = fixture().await;
    f.raw.send(&[ONE, "SELECT count(*) FROM t", TWO]).await;
    // Others see nothing of it before the Sync.
    assert_eq!(f.raw.flush(3).await, ["INSERT 0 1", "SELECT 1", "INSERT 0 1"]);
    assert!(f.keys().await.is_empty());
    assert_eq!(f.raw.sync().await, ["ready I"]);
    assert_eq!(f.keys().await, ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_takes_the_whole_pipeline_back() {
    let mut f = fixture().await;
    // In execution, in its values, and in its text.
    for (wrong, code) in [
        ("INSERT INTO t VALUES (1 / 0)", "22012"),
        ("INSERT INTO t VALUES (1)", "23505"),
        ("INSERT INTO t VALUES ($1)", "08P01"),
        ("INSERT INTO nowhere VALUES (1)", "42P01"),
        ("INSERT INTO", "42601"),
    ] {
        f.raw.send(&[ONE, wrong, TWO]).await;
        assert_eq!(f.raw.sync().await, ["INSERT 0 1", code, "ready I"], "{wrong}");
        assert!(f.keys().await.is_empty(), "{wrong}");
    }
    // One that is alone is what it was.
    f.raw.send(&[ONE]).await;
    assert_eq!(f.raw.sync().await, ["INSERT 0 1", "ready I"]);
    assert_eq!(f.keys().await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_may_begin_and_end_transactions() {
    let mut f = fixture().await;
    f.raw.send(&["BEGIN", ONE]).await;
    assert_eq!(f.raw.sync().await, ["BEGIN", "INSERT 0 1", "ready T"]);
    f.raw.send(&[TWO, "COMMIT", "INSERT INTO t VALUES (3)"]).await;
    assert_eq!(
        f.raw.sync().await,
        ["INSERT 0 1", "COMMIT", "INSERT 0 1", "ready I"]
    );
    assert_eq!(f.keys().await, ["1", "2", "3"]);
    // BEGIN takes what came before it into its transaction.
    f.raw.send(&["INSERT INTO t VALUES (4)", "BEGIN"]).await;
    assert_eq!(f.raw.sync().await, ["INSERT 0 1", "BEGIN", "ready T"]);
    f.raw.send(&["ROLLBACK"]).await;
    assert_eq!(f.raw.sync().await, ["ROLLBACK", "ready I"]);
    assert_eq!(f.keys().await, ["1", "2", "3"]);
    // What is wrong before it is executed fails a transaction, too.
    f.raw.send(&["BEGIN", "SELECT nothing"]).await;
    assert_eq!(f.raw.sync().await, ["BEGIN", "42703", "ready E"]);
    f.raw.send(&["ROLLBACK"]).await;
    assert_eq!(f.raw.sync().await, ["ROLLBACK", "ready I"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_before_the_sync_has_changed_nothing() {
    let mut f = fixture().await;
    f.raw.send(&[ONE, TWO]).await;
    assert_eq!(f.raw.flush(2).await, ["INSERT 0 1", "INSERT 0 1"]);
    f.raw = Raw::connect(&f.server).await;
    // The table is free, and its rows are not there.
    f.raw.send(&[ONE]).await;
    assert_eq!(f.raw.sync().await, ["INSERT 0 1", "ready I"]);
    assert_eq!(f.keys().await, ["1"]);
}
