//! Rows that another service sends: signed ones are taken, once each, and nobody else is let in.

use std::net::SocketAddr;

use millrace_sql_tests::{connect, rows, run, start};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::Client;

const SECRET: &str = "It's a Secret to Everybody";
/// Signatures by somebody else: `printf BODY | openssl dgst -sha256 -hmac "It's a Secret to Everybody"`.
const OBJECT: (&str, &str) = (
    r#"{"action": "opened", "issue": {"id": 7}, "sender": "ann"}"#,
    "d5cb9c6d619a223c86b38de8ca3a58192409e469d6243fb16aff1369eee5daac",
);
const ARRAY: (&str, &str) = (
    r#"[{"action": "closed", "issue": {"id": 7}}, {"action": "reopened"}]"#,
    "13e6374a6ef463b4b325c430bd62e19d8a339e318639f3a495e90ada181794d3",
);
const WRONG_TYPE: (&str, &str) = (
    r#"{"issue": 1, "n": "x"}"#,
    "f6f79c527894161c04f58bde6b519c487e2d545cb80f54d456da9f5fddde6a1c",
);

/// The status of an answer, and its body.
async fn post(to: SocketAddr, stream: &str, body: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = format!(
        "POST /api/webhook/{stream} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut connection = TcpStream::connect(to).await.unwrap();
    let request = format!("{request}\r\n{body}");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn actions(client: &Client) -> Vec<Option<String>> {
    let rows = rows(client, "SELECT action FROM events ORDER BY action")
        .await
        .unwrap();
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_deliveries_are_taken_once_and_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let server = start(&directory.path().join("data")).await.unwrap();
    let client = connect(server.pg_addr()).await.unwrap();
    run(
        &client,
        &format!(
            "CREATE STREAM events (action TEXT, issue JSONB, n INT) \
             WITH (connector = 'webhook', secret.file = '{}', id.header = 'X-GitHub-Delivery')",
            secret.display()
        ),
    )
    .await
    .unwrap();
    run(&client, "CREATE STREAM plain (action TEXT)").await.unwrap();
    let http = server.http_addr();
    let signed = |signature: &str| format!("sha256={signature}");
    let (of_object, of_array) = (signed(OBJECT.1), signed(ARRAY.1));

    let delivery = [
        ("X-Hub-Signature-256", of_object.as_str()),
        ("X-GitHub-Delivery", "d1"),
    ];
    for _ in 0..2 {
        assert_eq!(
            post(http, "events", OBJECT.0, &delivery).await,
            (200, json!({"rows": 1, "rejected": 0}))
        );
    }
    let delivery = [
        ("X-Hub-Signature-256", of_array.as_str()),
        ("X-GitHub-Delivery", "d2"),
    ];
    assert_eq!(post(http, "events", ARRAY.0, &delivery).await.0, 200);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        actions(&client).await,
        [text("closed"), text("opened"), text("reopened")]
    );
    let id = rows(
        &client,
        "SELECT issue ->> 'id' FROM events WHERE action = 'opened'",
    )
    .await
    .unwrap();
    assert_eq!(id[0][0].as_deref(), Some("7"));

    // The answer does not tell which of these it is.
    let refusals = [
        post(http, "events", OBJECT.0, &[("X-GitHub-Delivery", "d3")]).await,
        post(
            http,
            "events",
            ARRAY.0,
            &[("X-Hub-Signature-256", &of_object), ("X-GitHub-Delivery", "d3")],
        )
        .await,
        post(
            http,
            "events",
            OBJECT.0,
            &[("X-Hub-Signature-256", OBJECT.1), ("X-GitHub-Delivery", "d3")],
        )
        .await,
        post(http, "plain", OBJECT.0, &[("X-Hub-Signature-256", &of_object)]).await,
        post(http, "nothing", OBJECT.0, &[("X-Hub-Signature-256", &of_object)]).await,
    ];
    for refusal in &refusals {
        assert_eq!((refusal.0, refusal), (401, &refusals[0]));
    }
    // What is signed and wrong is told.
    let wrong = signed(WRONG_TYPE.1);
    let delivery = [
        ("X-Hub-Signature-256", wrong.as_str()),
        ("X-GitHub-Delivery", "d4"),
    ];
    let (status, told) = post(http, "events", WRONG_TYPE.0, &delivery).await;
    assert_eq!((status, &told["error"]["code"]), (400, &json!("22P02")));
    let (status, _) = post(http, "events", OBJECT.0, &[("X-Hub-Signature-256", &of_object)]).await;
    assert_eq!(status, 400, "a delivery without its id");
    // The door of the others stays closed, and with a new secret that of the old ones.
    assert!(run(&client, "INSERT INTO events VALUES ('x')").await.is_err());
    std::fs::write(&secret, "another").unwrap();
    let delivery = [
        ("X-Hub-Signature-256", of_object.as_str()),
        ("X-GitHub-Delivery", "d5"),
    ];
    assert_eq!(post(http, "events", OBJECT.0, &delivery).await.0, 401);
    assert_eq!(actions(&client).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_known_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let data = directory.path().join("data");
    let delivery = [
        ("Authorization", "Token It's a Secret to Everybody"),
        ("X-Id", "d1"),
    ];
    for is_first in [true, false] {
        let server = start(&data).await.unwrap();
        let client = connect(server.pg_addr()).await.unwrap();
        if is_first {
            run(
                &client,
                &format!(
                    "CREATE STREAM events (action TEXT) WITH (connector = 'webhook', signature = 'token', \
                     signature.header = 'Authorization', signature.prefix = 'Token ', secret.file = '{}', id.header = 'X-Id')",
                    secret.display()
                ),
            )
            .await
            .unwrap();
        }
        assert_eq!(
            post(server.http_addr(), "events", OBJECT.0, &delivery).await.0,
            200
        );
        assert_eq!(actions(&client).await, [Some("opened".to_owned())]);
        server.shutdown().await;
    }
}
