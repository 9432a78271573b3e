//! A GET changes nothing, whatever it reads: what does more than read is refused where the query calls it, and where a view or a function of
//! SQL does.

use crate::http::{Answer, basic, request};
use crate::{Fixture, PASSWORD, rows};

/// Everything but letters and digits as `%` and its number.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

async fn get(fixture: &Fixture, sql: &str) -> Answer {
    let path = format!("/api/sql?query={}", encoded(sql));
    let who = basic("millrace", PASSWORD);
    request(
        fixture.server.http_addr(),
        "GET",
        &path,
        Some(&who),
        "text/plain",
        "",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_only_reads() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    // A function, a view over it, and a view over that.
    for sql in [
        "CREATE TABLE t (a int)",
        "CREATE SEQUENCE q",
        "CREATE FUNCTION cancels(x int) RETURNS bool LANGUAGE sql AS 'SELECT pg_cancel_backend(x)'",
        "CREATE VIEW cancelling AS SELECT cancels(pid) AS done FROM pg_stat_activity WHERE usename = 'nobody'",
        "CREATE VIEW harmless AS SELECT done FROM cancelling",
        "CREATE VIEW ending AS SELECT pg_terminate_backend(pid) AS done FROM pg_stat_activity WHERE usename = 'nobody'",
    ] {
        rows(&first, sql).await.unwrap();
    }
    for sql in [
        "SELECT pg_cancel_backend(1)",
        "SELECT cancels(1)",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE cancels(a))",
        "SELECT * FROM cancelling",
        "SELECT count(*) FROM harmless",
        "WITH x AS (SELECT * FROM harmless) SELECT (SELECT count(*) FROM x)",
        "EXPLAIN ANALYZE SELECT * FROM harmless",
        "SELECT * FROM ending",
        "SELECT nextval('q')",
        "SELECT setval('q', 7)",
        "SELECT set_config('jit', 'on', false)",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_advisory_lock(1)",
        "INSERT INTO t VALUES (1)",
        "WITH x AS (INSERT INTO t VALUES (1) RETURNING a) SELECT * FROM x",
        "CREATE VIEW more AS SELECT 1",
        "CHECKPOINT",
        "SUBSCRIBE t",
        "COPY t TO STDOUT",
        "SELECT 1; INSERT INTO t VALUES (1)",
        "BEGIN; COMMIT",
        "SET jit = on",
    ] {
        let answer = get(&fixture, sql).await;
        assert!(
            answer.status >= 400 && answer.body.contains("25006"),
            "{sql}: {} {}",
            answer.status,
            answer.body
        );
    }
    for sql in [
        "SELECT currval('q') IS NULL FROM t",
        "SELECT count(*) FROM t",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM t",
    ] {
        let answer = get(&fixture, sql).await;
        assert_eq!(answer.status, 200, "{sql}: {}", answer.body);
    }
    assert_eq!(rows(&first, "SELECT count(*) FROM t").await.unwrap(), ["0"]);
    assert_eq!(rows(&first, "SELECT nextval('q')").await.unwrap(), ["1"]);
    // By other ways they do what they say.
    assert_eq!(
        rows(&first, "SELECT count(*) FROM harmless").await.unwrap(),
        ["0"]
    );
    fixture.server.shutdown().await;
}
