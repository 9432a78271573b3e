//! What is followed ends with the right to read it: over HTTP, in SUBSCRIBE, and in cursors of both kinds.

use std::time::Duration;

use tokio_postgres::Client;

use crate::http::{basic, request};
use crate::privileges::{denied, fixture, ok};
use crate::{Fixture, rows};

async fn fixture_of_views() -> (Fixture, Client) {
    let (fixture, first) = fixture().await;
    for statement in [
        "CREATE TABLE s.t (a int)",
        "CREATE MATERIALIZED VIEW s.mv AS SELECT a FROM s.t",
        "CREATE VIEW s.v AS SELECT a FROM s.t",
        "CREATE SUBSCRIPTION s.kept FROM s.t WITH (retention = '1 hour')",
        "INSERT INTO s.t VALUES (1)",
        "FLUSH",
        "GRANT SELECT ON s.t, s.mv, s.v, s.kept TO eve",
    ] {
        ok(&first, statement).await;
    }
    (fixture, first)
}

const FETCHED: &str = "FETCH ALL FROM c WITH (timeout = '50ms')";

#[tokio::test(flavor = "multi_thread")]
async fn cursors_end_with_the_right_to_read() {
    let (fixture, first) = fixture_of_views().await;
    for (declare, name, what) in [
        (
            "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE TO s.t",
            "s.t",
            "table t",
        ),
        (
            "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE TO s.mv",
            "s.mv",
            "materialized view mv",
        ),
        ("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE TO s.v", "s.v", "view v"),
        (
            "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE (SELECT count(*) AS n FROM s.v)",
            "s.v",
            "view v",
        ),
        (
            "DECLARE c SUBSCRIPTION CURSOR FOR s.kept FULL",
            "s.kept",
            "subscription kept",
        ),
    ] {
        let eve = fixture.role("eve").await;
        ok(&eve, declare).await;
        assert!(!ok(&eve, "FETCH 1 FROM c WITH (timeout = '10s')").await.is_empty());
        // What others are granted ends nothing.
        ok(&first, "GRANT SELECT ON s.t TO bob").await;
        ok(&eve, FETCHED).await;
        ok(&first, &format!("REVOKE SELECT ON {name} FROM eve")).await;
        let message = format!("permission denied for {what}");
        denied(&eve, FETCHED, &message).await;
        ok(&first, &format!("GRANT SELECT ON {name} TO eve")).await;
    }
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscribe_that_waits_ends_with_the_right_to_read() {
    let (fixture, first) = fixture_of_views().await;
    for end in ["REVOKE SELECT ON s.mv FROM eve", "ALTER ROLE eve NOLOGIN"] {
        let eve = fixture.role("eve").await;
        let waits = tokio::spawn(async move { rows(&eve, "SUBSCRIBE TO s.mv").await });
        followers(&first, 1).await;
        ok(&first, end).await;
        let ended = tokio::time::timeout(Duration::from_secs(20), waits).await;
        let error = ended.unwrap().unwrap().unwrap_err();
        assert!(error.starts_with("42501"), "{end}: {error}");
        ok(&first, "GRANT SELECT ON s.mv TO eve").await;
    }
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_over_http_ends_with_the_right_to_read() {
    let (fixture, first) = fixture_of_views().await;
    let address = fixture.server.http_addr();
    for (relation, end, again) in [
        (
            "s.mv",
            "REVOKE SELECT ON s.mv FROM eve",
            "GRANT SELECT ON s.mv TO eve",
        ),
        (
            "s.kept",
            "REVOKE SELECT ON s.kept FROM eve",
            "GRANT SELECT ON s.kept TO eve",
        ),
        (
            "SELECT count(*) AS n FROM s.v",
            "REVOKE SELECT ON s.v FROM eve",
            "GRANT SELECT ON s.v TO eve",
        ),
        ("s.mv", "ALTER ROLE eve NOLOGIN", "ALTER ROLE eve LOGIN"),
        (
            "s.mv",
            "DROP OWNED BY eve; DROP ROLE eve",
            "CREATE USER eve PASSWORD 'eve' SUPERUSER",
        ),
    ] {
        let body = format!("{{\"query\": \"{relation}\"}}");
        // The question mark: the answer is read to its end.
        let follows = tokio::spawn(async move {
            let path = "/api/subscribe?";
            request(
                address,
                "POST",
                path,
                Some(&basic("eve", "eve")),
                "application/json",
                &body,
            )
            .await
        });
        followers(&first, 1).await;
        for statement in end.split("; ") {
            ok(&first, statement).await;
        }
        let ended = tokio::time::timeout(Duration::from_secs(20), follows).await;
        let answer = ended.unwrap().unwrap();
        assert_eq!(answer.status, 200, "{end}: {}", answer.body);
        assert!(answer.body.contains("42501"), "{end}: {}", answer.body);
        ok(&first, again).await;
    }
    fixture.server.shutdown().await;
}

/// Waits until so many follow something.
async fn followers(first: &Client, count: usize) {
    loop {
        let known = ok(first, "SELECT count(*) FROM mr_catalog.subscribers").await;
        if known == [count.to_string()] {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
