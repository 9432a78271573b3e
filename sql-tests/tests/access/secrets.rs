//! Secrets of a whole server: where their values are, and what becomes of those who use them when the key or a value is gone.

use std::path::Path;

use millrace_auth::seal::SealingKey;
use millrace_cli::test::throw_away;
use millrace_wire::Server;
use millrace_wire::config::Config;
use tokio_postgres::Client;

use crate::http::request;
use crate::rows;

const VALUE: &str = "abracadabra-17";

fn key(digit: &str) -> Option<SealingKey> {
    Some(SealingKey::parse(&digit.repeat(64)).unwrap())
}

async fn start(data: &Path, key: Option<SealingKey>) -> (Server, Client) {
    let config = Config {
        secrets_key: key,
        ..throw_away(data)
    };
    let server = Server::start(config).await.unwrap();
    let client = millrace_sql_tests::connect(server.pg_addr()).await.unwrap();
    (server, client)
}

/// Delivers a row to the webhook with a token; the status.
async fn deliver(server: &Server, token: &str) -> u16 {
    let token = format!("Bearer {token}");
    let answer = request(
        server.http_addr(),
        "POST",
        "/api/webhook/hook",
        Some(&token),
        "application/json",
        "{\"a\": 1}",
    );
    answer.await.status
}

async fn state(client: &Client) -> String {
    rows(client, "SELECT state FROM mr_catalog.secrets")
        .await
        .unwrap()
        .remove(0)
}

/// Every file below a directory that has these bytes.
fn files_with(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = vec![];
    let mut next = vec![directory.to_owned()];
    while let Some(path) = next.pop() {
        if path.is_dir() {
            next.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let content = std::fs::read(&path).unwrap();
            if content.windows(bytes.len()).any(|window| window == bytes) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_encrypted_and_whoever_uses_it_follows_its_value() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (server, client) = start(&data, key("a")).await;
    for sql in [
        &format!("CREATE SECRET pw AS '{VALUE}'"),
        "CREATE STREAM hook (a INT) WITH (connector = 'webhook', signature = 'token', secret = SECRET pw)",
    ] {
        rows(&client, sql).await.unwrap();
    }
    let texts = [
        "SELECT query FROM pg_stat_activity",
        "SHOW PROCESSLIST",
        "SHOW CREATE SECRET pw",
        "SHOW CREATE STREAM hook",
        "SELECT * FROM mr_catalog.secrets",
        "SHOW SECRETS",
    ];
    for sql in texts {
        let shown = rows(&client, sql).await.unwrap().join("\n");
        assert!(!shown.contains(VALUE), "{sql}: {shown}");
    }
    assert_eq!(deliver(&server, VALUE).await, 200);
    assert_eq!(deliver(&server, "another").await, 401);
    rows(&client, "ALTER SECRET pw AS 'another'").await.unwrap();
    assert_eq!(deliver(&server, VALUE).await, 401);
    assert_eq!(deliver(&server, "another").await, 200);
    rows(&client, &format!("ALTER SECRET pw AS '{VALUE}'"))
        .await
        .unwrap();

    // A backup has no value, in whatever form.
    let backup = directory.path().join("backup");
    rows(&client, &format!("BACKUP TO '{}'", backup.display()))
        .await
        .unwrap();
    server.shutdown().await;
    assert_eq!(
        files_with(directory.path(), VALUE.as_bytes()),
        Vec::<String>::new()
    );
    assert!(
        !files_with(&data, b"\"bytes\":").is_empty(),
        "it is sealed somewhere"
    );
    assert_eq!(files_with(&backup, b"\"bytes\":"), Vec::<String>::new());

    // Another key, or none: the server is there, and says why the secret is not.
    for (other, expected) in [(key("b"), "other key"), (None, "no key")] {
        let (server, client) = start(&data, other).await;
        assert_eq!(state(&client).await, expected);
        assert_eq!(deliver(&server, VALUE).await, 401);
        assert_eq!(rows(&client, "SELECT count(*) FROM hook").await.unwrap(), ["2"]);
        server.shutdown().await;
    }
    let (server, client) = start(&data, None).await;
    let error = rows(&client, "CREATE SECRET more AS 'x'").await.unwrap_err();
    assert!(error.starts_with("55000") && error.contains("key"), "{error}");
    server.shutdown().await;

    // What is restored wants the value again, and then goes on.
    let restored = directory.path().join("restored");
    millrace_storage::restore(&backup, &restored).unwrap();
    let (server, client) = start(&restored, key("c")).await;
    assert_eq!(state(&client).await, "no value");
    assert_eq!(deliver(&server, VALUE).await, 401);
    rows(&client, &format!("ALTER SECRET pw AS '{VALUE}'"))
        .await
        .unwrap();
    assert_eq!(state(&client).await, "ok");
    assert_eq!(deliver(&server, VALUE).await, 200);
    server.shutdown().await;

    // With its key everything is as it was.
    let (server, client) = start(&data, key("a")).await;
    assert_eq!(state(&client).await, "ok");
    assert_eq!(deliver(&server, VALUE).await, 200);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_comes_from_one_place() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        secrets_key: key("a"),
        secrets_key_of_file: key("a"),
        ..throw_away(directory.path())
    };
    let error = Server::start(config).await.err().unwrap().to_string();
    assert_eq!(error, "secrets_key and secrets_key_file exclude each other");
}
