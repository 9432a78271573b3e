//! Rows on which an expression of a view fails, and the stream that keeps them.

use millrace_postgres::error::SqlState;

use crate::tests::Fixture;

async fn with_view() -> Fixture {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT, w TEXT)").await;
    f.ok("INSERT INTO t VALUES (1, 0, NULL), (2, 5, 'x')").await;
    f.ok("CREATE MATERIALIZED VIEW mv WITH (on_error = 'skip') AS SELECT id, 10 / v AS q, w FROM t")
        .await;
    f
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_on_which_a_view_fails_are_kept_with_expression_and_reason() {
    let f = with_view().await;
    let kept = "SELECT expression, input, code, reason FROM mv$errors ORDER BY input";
    f.db.keep_failed_rows().await;
    let first = r#"10 / v|{"id":"1","v":"0","w":null}|22012|division by zero"#;
    assert_eq!(f.ok(kept).await, [first], "what was there before the view");
    f.ok("INSERT INTO t VALUES (3, 0, 'y')").await;
    assert_eq!(f.ok("SELECT id FROM mv").await, ["2"]);
    f.db.keep_failed_rows().await;
    let second = r#"10 / v|{"id":"3","v":"0","w":"y"}|22012|division by zero"#;
    assert_eq!(f.ok(kept).await, [first, second]);
    f.db.keep_failed_rows().await;
    assert_eq!(f.ok(kept).await, [first, second]);
    let count = "SELECT expression_errors FROM mr_catalog.views WHERE name = 'mv'";
    assert_eq!(f.ok(count).await, ["2"]);
    // What a view has not kept when the server is stopped is kept then.
    f.ok("INSERT INTO t VALUES (4, 0, 'z')").await;
    f.ok("SELECT id FROM mv").await;
    let f = f.restart().await;
    let third = r#"10 / v|{"id":"4","v":"0","w":"z"}|22012|division by zero"#;
    assert_eq!(f.ok(kept).await, [first, second, third]);
    f.ok("INSERT INTO t VALUES (5, 0, 'z')").await;
    f.ok("SELECT id FROM mv").await;
    f.db.keep_failed_rows().await;
    assert_eq!(f.ok("SELECT count(*) FROM mv$errors").await, ["4"]);
}

/// 80 MB of texts are refused in one step, after the division has failed on its rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_in_a_step_that_is_tried_again_is_kept_once() {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("INSERT INTO t SELECT g, g % 10 FROM generate_series(1, 40) AS s(g)")
        .await;
    f.ok("CREATE MATERIALIZED VIEW mv WITH (on_error = 'null') AS SELECT id, 10 / v AS q, length(repeat('xx', 1000000 + v)) AS n FROM t")
        .await;
    f.db.keep_failed_rows().await;
    let kept = "SELECT input FROM mv$errors ORDER BY length(input), input";
    let inputs = [10, 20, 30, 40].map(|id| format!(r#"{{"id":"{id}","v":"0"}}"#));
    assert_eq!(f.ok(kept).await, inputs);
}

/// In the words of SQL, whatever an expression is made of inside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expression_that_failed_is_told_as_one_writes_it() {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok("CREATE TABLE t (v INT, s TEXT, d TIMESTAMP, j JSONB, n NUMERIC)")
        .await;
    let written = [
        "(v - 1) * 2000000000",
        "(10 / v)::numeric",
        "s::date",
        "(j ->> 'it''s')::integer",
        "1 / n",
        "to_timestamp(s, 'YYYY')",
        "substring('abc', 1, v - 1)",
        "extract(epoch FROM d) / v",
        "date_trunc(s, d)",
    ];
    for (number, expression) in written.iter().enumerate() {
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW v{number} WITH (on_error = 'null') AS SELECT {expression} AS x FROM t"
        ))
        .await;
    }
    f.ok(r#"INSERT INTO t VALUES (0, 'x', '2026-01-01', '{"it''s": "no"}', 0), (5, 'x', '2026-01-01', '{"it''s": "no"}', 0)"#)
        .await;
    for number in 0..written.len() {
        f.ok(&format!("SELECT * FROM v{number}")).await;
    }
    f.db.keep_failed_rows().await;
    for (number, expression) in written.iter().enumerate() {
        let sql = format!("SELECT DISTINCT lower(expression) FROM v{number}$errors");
        assert_eq!(f.ok(&sql).await, [expression.to_lowercase()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_there_is_no_room_for_is_told_as_a_number() {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW mv WITH (on_error = 'null') AS SELECT 10 / v AS q FROM s")
        .await;
    f.ok("INSERT INTO s SELECT 0 FROM generate_series(1, 2500)").await;
    assert_eq!(f.ok("SELECT count(*) FROM mv WHERE q IS NULL").await, ["2500"]);
    f.db.keep_failed_rows().await;
    let told = "SELECT count(expression), count(*) FILTER (WHERE reason = \
                '1500 more failures were counted and not kept') FROM mv$errors";
    assert_eq!(f.ok(told).await, ["1000|1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_of_failed_rows_comes_and_goes_with_its_view() {
    let f = with_view().await;
    let streams = "SELECT relname FROM pg_class WHERE relname LIKE '%$errors'";
    assert_eq!(f.ok(streams).await, ["mv$errors"]);
    // A definition that says the same of errors keeps the rows that were kept.
    f.db.keep_failed_rows().await;
    f.ok("CREATE OR REPLACE MATERIALIZED VIEW mv WITH (on_error = 'null') AS SELECT id, 7 / v AS q FROM t")
        .await;
    f.db.keep_failed_rows().await;
    let kept = "SELECT expression FROM mv$errors ORDER BY 1";
    assert_eq!(f.ok(kept).await, ["10 / v", "7 / v"]);
    let shown = f.ok("SHOW CREATE MATERIALIZED VIEW mv").await;
    assert!(shown[0].contains("WITH (on_error = 'null')"), "{shown:?}");
    // One that says nothing lets go of them, unless something reads them.
    f.ok("CREATE VIEW reader AS SELECT reason FROM mv$errors").await;
    let plain = "CREATE OR REPLACE MATERIALIZED VIEW mv AS SELECT id, 7 / v AS q FROM t";
    let error = f.error(plain).await;
    assert_eq!(error.code, SqlState::DependentObjectsStillExist);
    let error = f.error("DROP MATERIALIZED VIEW mv").await;
    assert_eq!(error.code, SqlState::DependentObjectsStillExist);
    f.ok("DROP VIEW reader").await;
    f.ok(plain).await;
    assert!(f.ok(streams).await.is_empty());
    // One whose view cannot be made is not there either.
    let fails = "CREATE MATERIALIZED VIEW mv2 WITH (on_error = 'fail') AS SELECT 7 / v AS q FROM t";
    f.error(fails).await;
    assert!(f.ok(streams).await.is_empty());
    f.ok("CREATE MATERIALIZED VIEW mv2 WITH (on_error = 'null') AS SELECT 7 / v AS q FROM t")
        .await;
    f.ok("DROP MATERIALIZED VIEW mv2").await;
    assert!(f.ok(streams).await.is_empty());
    // In a transaction it comes about with COMMIT.
    for (end, expected) in [("ROLLBACK", vec![]), ("COMMIT", vec!["mv3$errors"])] {
        f.ok("BEGIN").await;
        f.ok("CREATE MATERIALIZED VIEW mv3 WITH (on_error = 'skip') AS SELECT 7 / v AS q FROM t")
            .await;
        f.ok(end).await;
        assert_eq!(f.ok(streams).await, expected);
    }
    f.db.keep_failed_rows().await;
    assert_eq!(f.ok("SELECT count(*) FROM mv3$errors").await, ["1"]);
    // It can be dropped by itself: then rows are counted only.
    f.ok("DROP STREAM mv3$errors").await;
    f.ok("INSERT INTO t VALUES (7, 0, NULL)").await;
    assert_eq!(f.ok("SELECT q FROM mv3").await, ["1"]);
    f.db.keep_failed_rows().await;
    let f = f.restart().await;
    assert_eq!(f.ok("SELECT q FROM mv3").await, ["1"]);
}
