//! What is told of others' rows by the way: details of errors, and what a view says of who reads it.

use tokio_postgres::Client;

use crate::privileges::{denied, fixture, ok};
use crate::rows;

/// The SQLSTATE and the detail of the error that a statement ends with.
async fn detail(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    format!("{} {}", error.code().code(), error.detail().unwrap_or("-"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_shows_rows_to_whom_may_read_them() {
    let (fixture, first) = fixture().await;
    for statement in [
        "CREATE TABLE s.parent (a int PRIMARY KEY)",
        "CREATE TABLE s.t (a int PRIMARY KEY, b int NOT NULL DEFAULT 77, c int CHECK (c > 0), d int REFERENCES s.parent)",
        "CREATE UNIQUE INDEX ON s.t (b)",
        "INSERT INTO s.parent VALUES (1)",
        "INSERT INTO s.t VALUES (1, 1, 1, 1)",
        "GRANT INSERT, UPDATE, DELETE ON s.t, s.parent TO eve",
    ] {
        ok(&first, statement).await;
    }
    let eve = fixture.role("eve").await;
    let shown = [
        (
            "INSERT INTO s.t VALUES (1, 2, 1)",
            "23505 Key (a)=(1) already exists.",
            "23505 -",
        ),
        (
            "INSERT INTO s.t VALUES (2, 1, 1)",
            "23505 Key (b)=(1) already exists.",
            "23505 -",
        ),
        (
            "INSERT INTO s.t (a, c) VALUES (2, -1)",
            "23514 Failing row contains (2, 77, -1, null).",
            "23514 -",
        ),
        (
            "UPDATE s.t SET b = NULL",
            "23502 Failing row contains (1, null, 1, 1).",
            "23502 -",
        ),
        (
            "INSERT INTO s.t VALUES (2, 2, 1, 5)",
            "23503 Key (d)=(5) is not present in table \"parent\".",
            "23503 Key is not present in table \"parent\".",
        ),
        (
            "DELETE FROM s.parent",
            "23503 Key (a)=(1) is still referenced from table \"t\".",
            "23503 Key is still referenced from table \"t\".",
        ),
        (
            "BEGIN; INSERT INTO s.t VALUES (1, 2, 1); COMMIT",
            "23505 Key (a)=(1) already exists.",
            "23505 -",
        ),
    ];
    for (sql, _, without) in shown {
        assert_eq!(detail(&eve, sql).await, without, "{sql}");
        let _ = rows(&eve, "ROLLBACK").await;
    }
    ok(&first, "GRANT SELECT ON s.t, s.parent TO eve").await;
    for (sql, with, _) in shown {
        assert_eq!(detail(&eve, sql).await, with, "{sql}");
        assert_eq!(detail(&first, sql).await, with, "{sql}");
        let _ = rows(&eve, "ROLLBACK").await;
        let _ = rows(&first, "ROLLBACK").await;
    }
    // Each of the two tables by itself.
    ok(&first, "REVOKE SELECT ON s.parent FROM eve").await;
    let (sql, with, _) = shown[4];
    assert_eq!(detail(&eve, sql).await, with, "{sql}");
    let (sql, _, without) = shown[5];
    assert_eq!(detail(&eve, sql).await, without, "{sql}");
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_told_who_reads_it() {
    let (fixture, first) = fixture().await;
    let (bob, eve) = (fixture.role("bob").await, fixture.role("eve").await);
    ok(&first, "CREATE TABLE s.t (who text, a int)").await;
    ok(&first, "INSERT INTO s.t VALUES ('bob', 1), ('eve', 2)").await;
    ok(
        &first,
        "CREATE VIEW s.own AS SELECT a FROM s.t WHERE who = current_user",
    )
    .await;
    ok(
        &first,
        "CREATE VIEW s.asks AS SELECT current_user, session_user, current_setting('application_name') AS name",
    )
    .await;
    ok(&first, "GRANT SELECT ON s.own, s.asks TO bob, eve").await;
    for _ in 0..2 {
        assert_eq!(ok(&bob, "SELECT a FROM s.own").await, ["1"]);
        assert_eq!(ok(&eve, "SELECT a FROM s.own").await, ["2"]);
        assert_eq!(ok(&first, "SELECT a FROM s.own").await, [""; 0]);
    }
    ok(&eve, "SET application_name = 'x'").await;
    assert_eq!(ok(&eve, "SELECT * FROM s.asks").await, ["eve|eve|x"]);
    ok(&first, "GRANT bob TO eve").await;
    ok(&eve, "SET ROLE bob").await;
    assert_eq!(ok(&eve, "SELECT * FROM s.asks").await, ["bob|eve|x"]);
    assert_eq!(ok(&eve, "SELECT a FROM s.own").await, ["1"]);
    denied(&eve, "SELECT * FROM s.t", "permission denied for table t").await;
    fixture.server.shutdown().await;
}
