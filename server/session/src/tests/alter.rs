//! Definitions that change while others read and write, and after a kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_postgres::error::SqlState;

use crate::tests::{Fixture, run};

/// Readers never see a view that is being replaced missing, empty or half: its rows and those of the view over it are of
/// the same definition.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_no_gap_while_a_view_is_replaced() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY)").await;
    f.ok("INSERT INTO t SELECT i FROM generate_series(1, 50) AS g(i)")
        .await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT id, 0 AS version FROM t")
        .await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT version, count(*) AS n FROM mv GROUP BY version")
        .await;
    let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut readers = vec![];
    for _ in 0..3 {
        let (session, stop, reads) = (f.other_session(), Arc::clone(&stop), Arc::clone(&reads));
        readers.push(tokio::spawn(async move {
            let sql = "SELECT count(*) >= 50, count(DISTINCT mv.version), count(DISTINCT over.version), \
                       bool_and(mv.version = over.version) FROM mv CROSS JOIN over";
            while !stop.load(Ordering::Acquire) {
                let rows = run(&session, sql).await.unwrap();
                assert_eq!(rows, ["t|1|1|t"]);
                reads.fetch_add(1, Ordering::AcqRel);
            }
        }));
    }
    let writer = {
        let (session, stop) = (f.other_session(), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut id = 1000;
            while !stop.load(Ordering::Acquire) {
                run(&session, &format!("INSERT INTO t VALUES ({id})"))
                    .await
                    .unwrap();
                id += 1;
            }
        })
    };
    for version in 1..=12 {
        f.ok(&format!(
            "CREATE OR REPLACE MATERIALIZED VIEW mv AS SELECT {version} AS version, id FROM t"
        ))
        .await;
        let before = reads.load(Ordering::Acquire);
        while reads.load(Ordering::Acquire) < before + 3 {
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Release);
    writer.await.unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    let rows = f.ok("SELECT version FROM over").await;
    assert_eq!(rows, ["12"]);
    let f = f.killed().await;
    assert_eq!(f.ok("SELECT DISTINCT version FROM mv").await, ["12"]);
    assert_eq!(
        f.ok("SELECT (SELECT n FROM over) = (SELECT count(*) FROM t)")
            .await,
        ["t"]
    );
}

/// Columns come while rows do, and nothing is lost; views over the relation go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn columns_are_added_while_rows_are_written() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE STREAM s (id INT, v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW mt AS SELECT count(*) AS n, sum(v) AS total FROM t")
        .await;
    f.ok("CREATE MATERIALIZED VIEW ms AS SELECT * FROM s WHERE v = 1")
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = vec![];
    for writer in 0..2 {
        let (session, stop) = (f.other_session(), Arc::clone(&stop));
        writers.push(tokio::spawn(async move {
            let mut written = 0;
            while !stop.load(Ordering::Acquire) {
                let id = writer * 1_000_000 + written;
                let insert = format!(
                    "BEGIN; INSERT INTO t (id, v) VALUES ({id}, 1); INSERT INTO s (id, v) VALUES ({id}, 1); \
                     UPDATE t SET v = 2 WHERE id = {id}; COMMIT"
                );
                match run(&session, &insert).await {
                    Ok(_) => written += 1,
                    // The statement was bound before the column came.
                    Err(error) => {
                        assert_eq!(error.code, SqlState::SerializationFailure, "{error:?}");
                        run(&session, "ROLLBACK").await.unwrap();
                    }
                }
            }
            written
        }));
    }
    let mut views = vec![];
    for column in 0..8 {
        f.ok(&format!(
            "ALTER TABLE t ADD COLUMN c{column} INT DEFAULT {column}"
        ))
        .await;
        f.ok(&format!(
            "ALTER STREAM s ADD COLUMN c{column} TEXT DEFAULT 'x{column}'"
        ))
        .await;
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW v{column} AS SELECT count(c{column}) AS n, max(c{column}) AS hi FROM t"
        ))
        .await;
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW w{column} AS SELECT count(c{column}) AS n, max(c{column}) AS hi FROM s"
        ))
        .await;
        views.push(column);
    }
    stop.store(true, Ordering::Release);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let check = async |f: &Fixture| {
        assert_eq!(
            f.ok("SELECT * FROM mt").await,
            [format!("{written}|{}", 2 * written)]
        );
        assert_eq!(f.ok("SELECT count(*) FROM ms").await, [written.to_string()]);
        for column in &views {
            assert_eq!(
                f.ok(&format!("SELECT * FROM v{column}")).await,
                [format!("{written}|{column}")]
            );
            assert_eq!(
                f.ok(&format!("SELECT * FROM w{column}")).await,
                [format!("{written}|x{column}")]
            );
            assert_eq!(
                f.ok(&format!("SELECT count(*) FROM s WHERE c{column} = 'x{column}'"))
                    .await,
                [written.to_string()]
            );
        }
    };
    check(&f).await;
    let killed = f.killed().await;
    check(&killed).await;
    // What was there before a column came can be changed and deleted as any other row.
    killed.ok("DELETE FROM t WHERE id < 1000000").await;
    let left = killed.ok("SELECT count(*) FROM t").await;
    assert_eq!(killed.ok("SELECT n FROM v7").await, left);
}

/// Names that were given, swapped and taken over come back after a kill, and views keep their meaning.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_kept_through_a_kill() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE a (x INT)").await;
    f.ok("CREATE TABLE b (x INT)").await;
    f.ok("INSERT INTO a VALUES (1); INSERT INTO b VALUES (2)").await;
    f.ok("CREATE MATERIALIZED VIEW over_a AS SELECT a.x FROM a").await;
    f.ok("ALTER TABLE a SWAP WITH b").await;
    f.ok("ALTER TABLE a RENAME COLUMN x TO y").await;
    let f = f.killed().await;
    assert_eq!(f.ok("SELECT y FROM a").await, ["2"]);
    f.ok("INSERT INTO b VALUES (10)").await;
    assert_eq!(f.ok("SELECT x FROM over_a ORDER BY x").await, ["1", "10"]);
    f.ok("ALTER TABLE b RENAME x TO z").await;
    f.ok("INSERT INTO b VALUES (11)").await;
    let f = f.restart().await;
    assert_eq!(f.ok("SELECT x FROM over_a ORDER BY x").await, ["1", "10", "11"]);
    assert_eq!(
        f.error("DROP TABLE b").await.code,
        SqlState::DependentObjectsStillExist
    );
    f.ok("DROP TABLE a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_grows_without_bound_is_said() {
    let f = Fixture::new().await;
    f.ok("CREATE STREAM s (k INT)").await;
    f.ok("CREATE MATERIALIZED VIEW one AS SELECT count(*) AS n FROM s")
        .await;
    assert!(f.session.take_notices().is_empty());
    f.ok("CREATE MATERIALIZED VIEW many AS SELECT k, count(*) AS n FROM s GROUP BY k")
        .await;
    let said: Vec<String> = f
        .session
        .take_notices()
        .into_iter()
        .map(|notice| notice.message)
        .collect();
    assert_eq!(
        said,
        [
            "the state of materialized view \"many\" grows without bound: GROUP BY (k) keeps every group of \
             stream \"s\"; if old rows are not needed, remove them with a condition such as ts > now() - \
             INTERVAL '1 day'"
        ]
    );
}

/// Two sessions write to tables that keys connect, and a third alters them: no row refers to one that is not there, at no moment and
/// not after a kill, and a view over both sides agrees with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_hold_while_tables_are_written_and_altered() {
    let seed: u64 = match std::env::var("MILLRACE_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 7,
    };
    println!("seed {seed}");
    let f = Fixture::new().await;
    f.ok("CREATE TABLE parent (id INT PRIMARY KEY, v INT)").await;
    f.ok(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, \
         q INT REFERENCES parent ON DELETE SET NULL, up INT REFERENCES child ON DELETE CASCADE)",
    )
    .await;
    f.ok("CREATE MATERIALIZED VIEW orphans AS SELECT child.id FROM child LEFT JOIN parent ON parent.id = child.p \
          WHERE child.p IS NOT NULL AND parent.id IS NULL")
        .await;
    let mut writers = vec![];
    for writer in 0..2_u64 {
        let session = f.other_session();
        writers.push(tokio::spawn(async move {
            let mut state = seed * 2 + writer + 1;
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut done, mut refused) = (0, 0);
            for _ in 0..150 {
                let (a, b, c) = (next(12), next(12), next(40));
                let sql = match next(8) {
                    0 => format!("INSERT INTO parent VALUES ({a}, {b})"),
                    1 => format!("INSERT INTO child (id, p, q) VALUES ({c}, {a}, {b})"),
                    2 => format!("INSERT INTO child (id, p, up) SELECT {c}, {a}, max(id) FROM child"),
                    3 => format!("UPDATE parent SET id = {b} WHERE id = {a}"),
                    4 => format!("UPDATE child SET q = {a}, p = {b} WHERE id % 5 = {}", next(5)),
                    5 => format!("DELETE FROM parent WHERE id = {a}"),
                    6 => format!("DELETE FROM child WHERE id = {c}"),
                    _ => format!(
                        "BEGIN; INSERT INTO parent VALUES ({a}, 0) ON CONFLICT (id) DO NOTHING; \
                         INSERT INTO child (id, p) VALUES ({c}, {a}); DELETE FROM parent WHERE id = {b}; COMMIT"
                    ),
                };
                match run(&session, &sql).await {
                    Ok(_) => done += 1,
                    Err(error) => {
                        let expected = [
                            SqlState::ForeignKeyViolation,
                            SqlState::UniqueViolation,
                            SqlState::SerializationFailure,
                            SqlState::UndefinedTable,
                            SqlState::DeadlockDetected,
                        ];
                        assert!(expected.contains(&error.code), "{sql}: {error:?}");
                        run(&session, "ROLLBACK").await.unwrap();
                        refused += 1;
                    }
                }
            }
            (done, refused)
        }));
    }
    let no_orphans = "SELECT (SELECT count(*) FROM child WHERE p NOT IN (SELECT id FROM parent)), \
                      (SELECT count(*) FROM child WHERE q NOT IN (SELECT id FROM parent)), \
                      (SELECT count(*) FROM child WHERE up NOT IN (SELECT id FROM child)), \
                      (SELECT count(*) FROM orphans)";
    for step in 0..6 {
        assert_eq!(f.ok(no_orphans).await, ["0|0|0|0"], "step {step}");
        for sql in [
            "ALTER TABLE parent ALTER v TYPE BIGINT",
            "ALTER TABLE child ADD CHECK (id >= 0)",
            "ALTER TABLE parent ALTER v TYPE INT",
        ] {
            if let Err(error) = run(&f.session, sql).await {
                assert_eq!(error.code, SqlState::SerializationFailure, "{sql}: {error:?}");
            }
        }
    }
    for writer in writers {
        let (done, refused) = writer.await.unwrap();
        assert!(done > 20 && refused > 20, "{done} done, {refused} refused");
    }
    assert_eq!(f.ok(no_orphans).await, ["0|0|0|0"]);
    let rows = "SELECT (SELECT string_agg(child::text, ' ') FROM (SELECT id || ':' || coalesce(p, -1) AS child FROM child ORDER BY id) c)";
    let before = f.ok(rows).await;
    let g = f.killed().await;
    assert_eq!(g.ok(rows).await, before);
    assert_eq!(g.ok(no_orphans).await, ["0|0|0|0"]);
    assert_eq!(
        g.error("INSERT INTO child (id, p) VALUES (500, 500)").await.code,
        SqlState::ForeignKeyViolation
    );
}
