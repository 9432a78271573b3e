//! Temporary tables go with their session, with the server, and are in no backup.

use std::time::Duration;

use millrace_postgres::error::SqlState;

use crate::tests::{Fixture, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_tables_are_their_sessions() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (x INT)").await;
    f.ok("CREATE TEMP TABLE t (id SERIAL PRIMARY KEY, y TEXT UNIQUE)")
        .await;
    f.ok("INSERT INTO t (y) VALUES ('own')").await;
    let other = f.other_session();
    run(&other, "CREATE TEMP TABLE t AS SELECT 'other' AS y")
        .await
        .unwrap();
    assert_eq!(f.ok("SELECT y FROM t").await, ["own"]);
    assert_eq!(run(&other, "SELECT y FROM t").await.unwrap(), ["other"]);
    let schema = f.ok("SELECT nspname FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE c.oid = 't'::regclass").await;
    let theirs = format!("SELECT * FROM {}.t", schema[0]);
    assert_eq!(
        run(&other, &theirs).await.unwrap_err().code,
        SqlState::UndefinedTable
    );
    assert_eq!(f.ok(&theirs).await, ["1|own"]);

    // A kill leaves nothing of them, nor does a backup.
    let g = f.killed().await;
    assert_eq!(
        g.ok("SELECT count(*) FROM pg_class WHERE relname = 't' OR relpersistence = 't'")
            .await,
        ["1"]
    );
    assert_eq!(g.db.store().logs().relations().len(), 1);
    let directory = tempfile::tempdir().unwrap();
    let (backup, data) = (directory.path().join("backup"), directory.path().join("data"));
    f.ok(&format!("BACKUP TO '{}'", backup.display())).await;
    millrace_storage::restore(&backup, &data).unwrap();
    let logs = std::fs::read_dir(data.join("log")).unwrap();
    assert_eq!(logs.count(), 1);

    // The end of a session takes them along.
    drop(other);
    let count = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'";
    tokio::time::timeout(Duration::from_secs(60), async {
        while f.ok(count).await != ["1"] {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(f.ok("SELECT y FROM t").await, ["own"]);
}
