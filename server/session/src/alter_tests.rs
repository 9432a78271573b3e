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
