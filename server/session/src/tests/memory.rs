//! Limits as clients see them: memory_limit, shown, changed, and short; and what a session keeps.

use futures::StreamExt;
use millrace_postgres::error::SqlState;

use crate::limits::SESSION_OBJECTS_MAX;
use crate::outcome::Outcome;
use crate::tests::{Fixture, run};

#[tokio::test]
async fn the_limit_is_shown_and_altered() {
    let f = Fixture::new().await;
    assert_eq!(f.ok("SHOW memory_limit").await, ["auto"]);
    let limit = "SELECT bytes FROM mr_catalog.memory WHERE holder = 'process' AND name = 'limit'";
    let auto: u64 = f.ok(limit).await[0].parse().unwrap();
    let machine = millrace_resource::memory::machine_bytes().unwrap();
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
    let endless =
        "WITH RECURSIVE r(n) AS (SELECT id FROM t UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r";
    let error = f.error(endless).await;
    assert_eq!(error.code, SqlState::OutOfMemory, "{error:?}");
    assert!(
        error
            .message
            .contains("out of memory: RecursiveQuery exceeded memory_limit (it needs"),
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

/// An administrator's statements are small.
#[tokio::test]
async fn a_statement_whose_rows_are_more_than_memory_is_refused() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await;
    f.ok("INSERT INTO t SELECT i, 'r' FROM generate_series(1, 100000) AS g(i)")
        .await;
    f.other_session().database().runtime().memory().look();
    let used = "SELECT bytes FROM mr_catalog.memory WHERE holder = 'process' AND name = 'used'";
    let used: u64 = f.ok(used).await[0].parse().unwrap();
    // 100 MB more: each of these takes 400 MB at least.
    f.ok(&format!(
        "ALTER SYSTEM SET memory_limit = '{}kB'",
        (used + (100 << 20)) >> 10
    ))
    .await;
    let wide = "x".repeat(4_000);
    for sql in [
        "INSERT INTO t SELECT i, repeat('x', 4000) FROM generate_series(100001, 200000) AS g(i)".to_owned(),
        format!("INSERT INTO t SELECT i + 100000, '{wide}' FROM generate_series(1, 100000) AS g(i)"),
        format!("UPDATE t SET v = '{wide}'"),
        format!("CREATE TABLE u AS SELECT id, '{wide}' AS v FROM t"),
        format!("ALTER TABLE t ADD COLUMN w TEXT DEFAULT '{wide}'"),
        format!("DELETE FROM t RETURNING id, '{wide}'"),
    ] {
        let error = f.error(&sql).await;
        assert_eq!(error.code, SqlState::OutOfMemory, "{error:?}");
    }
    f.ok("ALTER SYSTEM RESET memory_limit").await;
    assert_eq!(f.ok("SELECT count(*), max(v) FROM t").await, ["100000|r"]);
}

/// Each row of such a window has nearly all the others: 400 MB together.
#[tokio::test]
async fn windows_with_frames_of_their_own_take_room_before_they_begin() {
    let f = Fixture::new().await;
    f.other_session().database().runtime().memory().look();
    let used = "SELECT bytes FROM mr_catalog.memory WHERE holder = 'process' AND name = 'used'";
    let used: u64 = f.ok(used).await[0].parse().unwrap();
    let limit = (used + (100 << 20)) >> 10;
    f.ok(&format!("ALTER SYSTEM SET memory_limit = '{limit}kB'"))
        .await;
    for (call, frame) in [
        (
            "array_agg(g)",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
        ),
        (
            "string_agg(g::text, '')",
            "ROWS BETWEEN 9000 PRECEDING AND 9000 FOLLOWING",
        ),
    ] {
        let select = |rows: u32| {
            format!(
                "SELECT count(x), min(x) IS NULL FROM (SELECT {call} OVER (ORDER BY g {frame}) AS x \
                 FROM generate_series(1, {rows}) AS s(g)) AS q"
            )
        };
        let error = f.error(&select(10_000)).await;
        assert_eq!(error.code, SqlState::OutOfMemory, "{error:?}");
        assert!(error.message.contains("A window function"), "{error:?}");
        assert_eq!(f.ok(&select(100)).await, ["100|f"]);
    }
    f.ok("ALTER SYSTEM RESET memory_limit").await;
}

#[tokio::test]
async fn small_statements_are_prepared_where_memory_is_short() {
    let f = Fixture::new().await;
    f.ok("ALTER SYSTEM SET memory_limit = '1MB'").await;
    f.other_session().database().runtime().memory().look();
    f.ok("PREPARE small AS SELECT 1").await;
    assert_eq!(f.ok("EXECUTE small").await, ["1"]);
    let large = format!("PREPARE large AS SELECT '{}'", "x".repeat(200_000));
    assert_eq!(f.error(&large).await.code, SqlState::OutOfMemory);
    f.ok("ALTER SYSTEM RESET memory_limit").await;
    f.ok(&large).await;
}

/// What is kept between statements stays, and writes wait where nine tenths are taken.
#[tokio::test]
async fn prepared_statements_leave_memory_for_writes() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (a int)").await;
    let session = f.other_session();
    let memory = session.database().runtime().memory();
    memory.look();
    let limit = memory.used() / 70 * 100 + (200 << 20);
    f.ok(&format!("ALTER SYSTEM SET memory_limit = '{}MB'", limit >> 20))
        .await;
    let text = "x".repeat(1 << 20);
    let mut refused = None;
    for number in 0..200 {
        let outcome = run(&session, &format!("PREPARE p{number} AS SELECT '{text}'")).await;
        if let Err(error) = outcome {
            refused = Some(error.code);
            break;
        }
    }
    assert_eq!(refused, Some(SqlState::OutOfMemory));
    assert!(memory.used() < memory.limit() / 10 * 9);
    f.ok("INSERT INTO t VALUES (1)").await;
    f.ok("ALTER SYSTEM RESET memory_limit").await;
}

#[tokio::test]
async fn who_waits_is_listed_with_what_for() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY)").await;
    f.ok("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM t")
        .await;
    f.ok("CREATE TABLE large (v TEXT)").await;
    f.ok("INSERT INTO large SELECT 'value ' || i FROM generate_series(1, 10000) AS g(i)")
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
        // Who holds the most of what is lacking, which is none of those that wait.
        assert_eq!((columns[0], columns[1]), ("large", "null"));
        assert_eq!((columns[2], columns[3], columns[5]), ("memory", "1", "t"));
        let flow = "SELECT reason, waits_for, tasks_waiting, since <= now(), source FROM mr_catalog.flow";
        assert_eq!(f.ok(flow).await, ["backpressure: writes wait|memory|1|t|t"]);
        let feeds = "SELECT sources, rows_max, writes_waiting FROM mr_catalog.feeds";
        assert_eq!(f.ok(feeds).await, ["t|1048576|1", "large|1048576|0"]);
        f.ok("ALTER SYSTEM RESET memory_limit").await;
    };
    tokio::join!(waiting, watching);
    assert_eq!(f.ok("SELECT n FROM n").await, ["1"]);
    assert!(f.ok("SHOW BACKPRESSURE").await.is_empty());
    assert_eq!(
        f.ok("SELECT writes_waited FROM mr_catalog.feeds").await,
        ["1", "0"]
    );
}

/// The rows of an UNNEST are made while the client takes them: what is in flight does not follow from the lists.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_query_unnests_is_in_flight_a_few_batches_at_a_time() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, a INT[])").await;
    f.ok("INSERT INTO t SELECT i, ARRAY[i, i + 1, NULL] FROM generate_series(1, 4000) AS g(i)")
        .await;
    f.ok("SET flow_batches = 3").await;
    f.ok("SET flow_batch_rows = 500").await;
    // A hundred million rows, and 800 MB of lists.
    let large = "SELECT t.id, g.x FROM t, generate_series(1, 25000) AS g(x) WHERE t.a[1] <= g.x + t.id";
    let listed = "SELECT id, generate_series(1, 25000 + id) AS x FROM t";
    let in_order = "SELECT t.id, u.x FROM t, unnest(t.a) AS u(x) ORDER BY t.id, u.x";
    let explained = f
        .ok(&format!("EXPLAIN (TYPE PHYSICAL) {listed}"))
        .await
        .join("\n");
    let faucet = "UnnestExec: 3 batches of 500 rows in flight, because UNNEST makes a row of each element";
    assert!(explained.contains(faucet), "{explained}");
    let other = f.other_session();
    run(&other, "SET flow_batches = 3").await.unwrap();
    run(&other, "SET flow_batch_rows = 500").await.unwrap();
    for sql in [large, listed] {
        let mut rows = other.run(sql).await.unwrap();
        let Ok(Outcome::Rows { mut stream, .. }) = rows.next().await.unwrap() else {
            panic!("no rows");
        };
        let taken = stream.next().await.unwrap().unwrap();
        assert!(taken.num_rows() > 0);
        // The client takes no more: the query waits, and is listed.
        let waiting = loop {
            let shown = f.ok("SHOW BACKPRESSURE").await;
            if !shown.is_empty() {
                break shown;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        assert!(waiting[0].starts_with("query "), "{waiting:?}");
        let held: u64 = f
            .ok("SELECT sum(bytes) FROM mr_catalog.memory WHERE holder = 'query'")
            .await[0]
            .parse()
            .unwrap();
        assert!(held < 12 << 20, "{sql}: {held} bytes are held");
        if sql == listed {
            assert_eq!(taken.num_rows(), 500);
            let flow =
                "SELECT reason, waits_for, tasks_waiting, query > 0, since <= now() FROM mr_catalog.flow";
            let waits = "the client does not read its rows|3 batches not yet read by the client|1|t|t";
            assert_eq!(f.ok(flow).await, [waits]);
        }
        drop((stream, rows));
    }
    // As many rows, and the same ones, as DataFusion's own operator makes.
    let counted = "SELECT count(*), sum(x), sum(id) FROM (SELECT id, generate_series(id % 7, id % 90) AS x FROM t) AS q";
    let (flowing, ordered) = (f.ok(counted).await, f.ok(in_order).await);
    f.ok("SET flow_batches = off").await;
    let explained = f
        .ok(&format!("EXPLAIN (TYPE PHYSICAL) {listed}"))
        .await
        .join("\n");
    assert!(!explained.contains("in flight"), "{explained}");
    assert_eq!((f.ok(counted).await, f.ok(in_order).await), (flowing, ordered));
    f.stop().await;
}

#[tokio::test]
async fn a_session_keeps_so_many_statements() {
    let f = Fixture::new().await;
    for number in 0..SESSION_OBJECTS_MAX {
        f.ok(&format!("PREPARE p{number} AS SELECT {number}")).await;
    }
    let error = f.error("PREPARE more AS SELECT 1").await;
    assert_eq!(error.code, SqlState::ProgramLimitExceeded);
    f.ok("DEALLOCATE p0").await;
    f.ok("PREPARE more AS SELECT 1").await;
    assert_eq!(f.ok("EXECUTE more").await, ["1"]);
}

/// Every view of the database as its rows, in order, and as a query says.
async fn as_the_query_says(f: &Fixture, views: &[(&str, &str)], when: &str) {
    for (name, query) in views {
        let shown = f.ok(&format!("SELECT * FROM {name} ORDER BY 1, 2")).await;
        let expected = f.ok(&format!("SELECT * FROM ({query}) AS q ORDER BY 1, 2")).await;
        assert_eq!(shown, expected, "{name}, {when}");
    }
}

#[tokio::test]
async fn what_is_on_the_disk_is_in_checkpoints_and_comes_back_after_a_restart() {
    let views = [
        ("sums", "SELECT k, sum(v) AS s FROM t GROUP BY k"),
        ("pairs", "SELECT t.id, l.name FROM t LEFT JOIN l ON t.k = l.k"),
        (
            "best",
            "SELECT k, id FROM (SELECT k, id, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) AS x WHERE r <= 3",
        ),
        ("plain", "SELECT id, v FROM t WHERE v > 10"),
    ];
    let by_chance = |options: &mut millrace_database::DatabaseOptions| options.spill_by_chance = true;
    let mut f = Fixture::open_with(tempfile::tempdir().unwrap(), by_chance).await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)").await;
    f.ok("CREATE TABLE l (k INT PRIMARY KEY, name TEXT)").await;
    for (name, query) in views {
        f.ok(&format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await;
    }
    let mut on_disk = 0;
    for round in 0..4 {
        for step in 0..10 {
            let first = (round * 10 + step) * 20;
            f.ok(&format!(
                "INSERT INTO t SELECT i, i % 37, i % 101 FROM generate_series({first}, {}) AS g(i)",
                first + 19
            ))
            .await;
            f.ok(&format!("UPDATE t SET v = v + 1 WHERE id % 13 = {step}"))
                .await;
            f.ok(&format!("DELETE FROM t WHERE id = {}", first / 2)).await;
            f.ok(&format!(
                "INSERT INTO l VALUES ({}, 'label {step}') ON CONFLICT DO NOTHING",
                first % 37
            ))
            .await;
        }
        as_the_query_says(&f, &views, &format!("round {round}")).await;
        let bytes = f
            .ok("SELECT coalesce(sum(on_disk_bytes), 0) FROM mr_catalog.views")
            .await;
        on_disk += bytes[0].parse::<u64>().unwrap();
        f.db.runtime().checkpoint().await;
        f = Fixture::open_with(f.stop().await, by_chance).await;
        let states = f.ok("SELECT DISTINCT state FROM mr_catalog.recovery").await;
        assert_eq!(states, ["restored"], "round {round}");
        as_the_query_says(&f, &views, &format!("after restart {round}")).await;
    }
    assert!(on_disk > 0);
}

#[tokio::test]
async fn parts_that_leave_while_others_are_restored_are_restored_too() {
    let views = [
        ("sums", "SELECT k, sum(v) AS s FROM t GROUP BY k"),
        (
            "best",
            "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM t) AS x WHERE r <= 3",
        ),
    ];
    let in_many_parts = |options: &mut millrace_database::DatabaseOptions| {
        options.spill_by_chance = true;
        options.cores = 8;
    };
    let mut f = Fixture::open_with(tempfile::tempdir().unwrap(), in_many_parts).await;
    f.ok("CREATE STREAM t (k INT, v INT)").await;
    for (name, query) in views {
        for copy in 0..4 {
            f.ok(&format!("CREATE MATERIALIZED VIEW {name}{copy} AS {query}"))
                .await;
        }
    }
    let views: Vec<(String, &str)> = (views.iter())
        .flat_map(|(name, query)| (0..4).map(move |copy| (format!("{name}{copy}"), *query)))
        .collect();
    let views: Vec<(&str, &str)> = views
        .iter()
        .map(|(name, query)| (name.as_str(), *query))
        .collect();
    for round in 0..5 {
        f.ok(&format!(
            "INSERT INTO t SELECT i % 64, {round} * 1000 + i FROM generate_series(1, 400) AS g(i)"
        ))
        .await;
        as_the_query_says(&f, &views, &format!("round {round}")).await;
        f.db.runtime().checkpoint().await;
        f = Fixture::open_with(f.stop().await, in_many_parts).await;
        let states = f.ok("SELECT DISTINCT state FROM mr_catalog.recovery").await;
        assert_eq!(states, ["restored"], "round {round}");
    }
}

/// What prepared statements and settings take is known, and bounded.
#[tokio::test]
async fn what_is_kept_for_a_client_is_charged() {
    let f = Fixture::new().await;
    let held = "SELECT coalesce(sum(bytes), 0) FROM mr_catalog.memory WHERE holder = 'clients'";
    let before: u64 = f.ok(held).await[0].parse().unwrap();
    let text = "x".repeat(1 << 20);
    f.ok(&format!("PREPARE p AS SELECT '{text}'")).await;
    let with: u64 = f.ok(held).await[0].parse().unwrap();
    assert!(with >= before + (4 << 20), "{before} {with}");
    f.ok("DEALLOCATE p").await;
    let after: u64 = f.ok(held).await[0].parse().unwrap();
    assert!(after + (4 << 20) <= with, "{after} {with}");

    let value = "y".repeat(16_000);
    for number in 0..65 {
        f.ok(&format!("SET my.s{number} = '{value}'")).await;
    }
    let error = f.error(&format!("SET my.s65 = '{value}'")).await;
    assert_eq!(error.code, SqlState::ProgramLimitExceeded);
    // In the place of another one there is room.
    f.ok(&format!("SET my.s64 = '{value}'")).await;

    for number in 0..SESSION_OBJECTS_MAX {
        f.ok(&format!("LISTEN c{number}")).await;
    }
    f.ok("LISTEN c7").await;
    assert_eq!(
        f.error("LISTEN another").await.code,
        SqlState::ProgramLimitExceeded
    );
}
