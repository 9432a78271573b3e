//! What roles may take: limits that hold whatever a session says, and settings with which sessions begin.

use crate::{Fixture, rows};

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_whatever_the_session_says() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute(
            "CREATE USER ann PASSWORD 'ann'; CREATE USER bob PASSWORD 'bob';
             CREATE TABLE t (id int PRIMARY KEY, v text);
             INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 50000) AS s(g)",
        )
        .await
        .unwrap();
    // What cannot spill needs what it needs.
    let large = "SELECT count(*) FROM t a JOIN t b ON a.v || a.id = b.v || b.id";
    let (ann, bob) = (fixture.role("ann").await, fixture.role("bob").await);
    assert_eq!(rows(&ann, large).await.unwrap(), ["50000"]);
    let limit =
        "ALTER ROLE ann SET (memory_limit = '1MB', query_priority_max = 'batch', statement_timeout = '1s')";
    rows(&first, limit).await.unwrap();
    // Sessions that are there meet it, and nobody else does.
    let error = rows(&ann, large).await.unwrap_err();
    assert!(
        error.starts_with("53200") && error.contains("memory_limit of role \"ann\""),
        "{error}"
    );
    assert_eq!(rows(&bob, large).await.unwrap(), ["50000"]);
    assert_eq!(rows(&ann, "SELECT count(*) FROM t").await.unwrap(), ["50000"]);

    for set in ["SET statement_timeout = 0", "SET query_priority = 'stream'"] {
        rows(&ann, set).await.unwrap();
        rows(&bob, set).await.unwrap();
    }
    let error = rows(&ann, "SELECT pg_sleep(3600)").await.unwrap_err();
    assert!(error.starts_with("57014"), "{error}");
    let shown = rows(&first, "SHOW PROCESSLIST").await.unwrap();
    let of = |user: &str| {
        let user = format!("|{user}|");
        shown
            .iter()
            .find(|row| row.contains(&user))
            .cloned()
            .unwrap_or_default()
    };
    assert!(of("ann").contains("|batch|"), "{shown:?}");
    assert!(of("bob").contains("|stream|"), "{shown:?}");

    rows(&first, "ALTER ROLE ann RESET ALL").await.unwrap();
    assert_eq!(rows(&ann, large).await.unwrap(), ["50000"]);
    fixture.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_begin_with_what_is_said_of_them_most_closely() {
    let fixture = Fixture::new().await;
    let first = fixture.first().await;
    first
        .batch_execute("CREATE USER ann PASSWORD 'ann'; CREATE DATABASE other")
        .await
        .unwrap();
    let value = async || {
        let client = fixture.role("ann").await;
        rows(&client, "SHOW lock_timeout").await.unwrap().remove(0)
    };
    // As PostgreSQL 15: all, of the database, of the role, of the role in the database.
    for (sql, expected) in [
        ("ALTER ROLE ALL SET lock_timeout = '1s'", "1s"),
        ("ALTER DATABASE millrace SET lock_timeout = '2s'", "2s"),
        ("ALTER DATABASE other SET lock_timeout = '9s'", "2s"),
        ("ALTER ROLE ann SET lock_timeout = '3s'", "3s"),
        ("ALTER ROLE ann IN DATABASE other SET lock_timeout = '9s'", "3s"),
        (
            "ALTER ROLE ann IN DATABASE millrace SET lock_timeout = '4s'",
            "4s",
        ),
        ("ALTER ROLE ann IN DATABASE millrace RESET lock_timeout", "3s"),
        ("ALTER ROLE ann RESET ALL", "2s"),
        ("ALTER DATABASE millrace RESET ALL", "1s"),
        ("ALTER ROLE ALL SET lock_timeout TO DEFAULT", "0"),
    ] {
        rows(&first, sql).await.unwrap();
        assert_eq!(value().await, expected, "{sql}");
    }
    fixture.server.shutdown().await;
}
