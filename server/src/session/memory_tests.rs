//! Limits as clients see them: memory_limit, shown, changed, and short; and what a session keeps.

use crate::error::SqlState;
use crate::session::kept::KEPT_MAX;
use crate::session::tests::{Fixture, run};

#[tokio::test]
async fn the_limit_is_shown_and_altered() {
    let f = Fixture::new().await;
    assert_eq!(f.ok("SHOW memory_limit").await, ["auto"]);
    let limit = "SELECT bytes FROM mr_catalog.memory WHERE holder = 'process' AND name = 'limit'";
    let auto: u64 = f.ok(limit).await[0].parse().unwrap();
    let machine = millrace_runtime::memory::machine_bytes().unwrap();
    assert_eq!(auto, machine / 100 * 70);
    f.ok("ALTER SYSTEM SET memory_limit = '3GB'").await;
    assert_eq!(f.ok("SHOW memory_limit").await, ["3GB"]);
    assert_eq!(f.ok(limit).await, [(3_u64 << 30).to_string()]);
    let error = f.error("ALTER SYSTEM SET memory_limit = '7'").await;
    assert_eq!(error.code, SqlState::InvalidParameterValue);
    f.ok("ALTER SYSTEM RESET memory_limit").await;
    assert_eq!(f.ok(limit).await, [auto.to_string()]);
}

#[tokio::test]
async fn who_holds_memory_is_listed() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
    f.ok("CREATE MATERIALIZED VIEW lengths AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    f.ok("INSERT INTO t SELECT i, 'value ' || i FROM generate_series(1, 10000) AS g(i)")
        .await;
    f.ok("FLUSH").await;
    let of = |name: &str| {
        format!(
            "SELECT holder, state_bytes > 100000, bytes >= state_bytes FROM mr_catalog.memory WHERE name = '{name}'"
        )
    };
    assert_eq!(f.ok(&of("t")).await, ["table|t|t"]);
    assert_eq!(f.ok(&of("lengths")).await, ["view|t|t"]);
    let resident = "SELECT bytes > 1000000 FROM mr_catalog.memory WHERE name = 'resident'";
    f.other_session().database().runtime().memory().look();
    assert_eq!(f.ok(resident).await, ["t"]);
}

#[tokio::test]
async fn with_too_little_queries_and_writes_are_refused() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
    f.ok("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t")
        .await;
    f.ok("INSERT INTO t SELECT i, 'value ' || i FROM generate_series(1, 1000) AS g(i)")
        .await;
    // The process has more than that already.
    f.ok("ALTER SYSTEM SET memory_limit = '1MB'").await;
    f.other_session().database().runtime().memory().look();
    f.ok("SET write_timeout = '20ms'").await;
    let error = f.error("INSERT INTO t VALUES (2000, 'x')").await;
    assert_eq!(error.code, SqlState::OutOfMemory);
    let detail = error.detail.unwrap();
    assert!(
        detail.contains("memory_limit is 1.0 MB") && detail.contains("not accounted for"),
        "{detail}"
    );
    let error = f.error("SELECT a.id FROM t AS a JOIN t AS b ON a.v = b.v").await;
    assert_eq!(error.code, SqlState::OutOfMemory, "{error:?}");
    assert!(
        error.message.contains("memory_limit is 1.0 MB"),
        "{}",
        error.message
    );
    f.ok("BEGIN").await;
    let error = f.error("DELETE FROM t").await;
    assert_eq!(error.code, SqlState::OutOfMemory);
    f.ok("ROLLBACK").await;
    f.ok("ALTER SYSTEM RESET memory_limit").await;
    f.ok("INSERT INTO t VALUES (2000, 'x')").await;
    assert_eq!(f.ok("SELECT n FROM n").await, ["1001"]);
}

#[tokio::test]
async fn who_waits_is_listed_with_what_for() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY)").await;
    f.ok("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t")
        .await;
    assert!(f.ok("SHOW BACKPRESSURE").await.is_empty());
    f.ok("ALTER SYSTEM SET memory_limit = '1MB'").await;
    let other = f.other_session();
    other.database().runtime().memory().look();
    let waiting = async {
        run(&other, "SET write_timeout = 0").await.unwrap();
        run(&other, "INSERT INTO t VALUES (1)").await.unwrap();
    };
    let watching = async {
        let shown = loop {
            let shown = f.ok("SHOW BACKPRESSURE").await;
            if !shown.is_empty() {
                break shown;
            }
            tokio::task::yield_now().await;
        };
        let columns: Vec<&str> = shown[0].split('|').collect();
        assert_eq!((columns[2], columns[3], columns[5]), ("memory", "1", "t"));
        let flow = "SELECT reason, waits_for, tasks_waiting, since <= now(), source FROM mr_catalog.flow";
        assert_eq!(f.ok(flow).await, ["writes wait for room|memory|1|t|t"]);
        let feeds = "SELECT sources, rows_max, writes_waiting FROM mr_catalog.feeds";
        assert_eq!(f.ok(feeds).await, ["t|1048576|1"]);
        f.ok("ALTER SYSTEM RESET memory_limit").await;
    };
    tokio::join!(waiting, watching);
    assert_eq!(f.ok("SELECT n FROM n").await, ["1"]);
    assert!(f.ok("SHOW BACKPRESSURE").await.is_empty());
    assert_eq!(f.ok("SELECT writes_waited FROM mr_catalog.feeds").await, ["1"]);
}

#[tokio::test]
async fn a_session_keeps_so_many_statements() {
    let f = Fixture::new().await;
    for number in 0..KEPT_MAX {
        f.ok(&format!("PREPARE p{number} AS SELECT {number}")).await;
    }
    let error = f.error("PREPARE more AS SELECT 1").await;
    assert_eq!(error.code, SqlState::ProgramLimitExceeded);
    f.ok("DEALLOCATE p0").await;
    f.ok("PREPARE more AS SELECT 1").await;
    assert_eq!(f.ok("EXECUTE more").await, ["1"]);
}
