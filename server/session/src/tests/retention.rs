//! Streams that forget: what goes, what views keep, and what a restart makes of it.

use crate::tests::Fixture;

/// A row each second of the next so many, from `*now` on.
async fn seconds(f: &Fixture, now: &mut i64, rows: i64) {
    for _ in 0..rows {
        f.db.maintain(*now, *now).await;
        f.ok(&format!("INSERT INTO s VALUES ({}, {now})", *now / 1000))
            .await;
        *now += 1_000;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_stream_go_unless_a_view_reads_it() {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok(
        "CREATE STREAM s (v BIGINT, ms BIGINT, ts TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp_millis(ms)), \
         WATERMARK FOR ts AS ts) WITH (retention = '8 seconds')",
    )
    .await;
    let mut now = 0;
    seconds(&f, &mut now, 20).await;
    f.db.maintain(now, now).await;
    let kept = "SELECT min(v), max(v), count(*) FROM s";
    assert_eq!(f.ok(kept).await, ["12|19|8"]);
    // A late row is late after a restart too, whoever was removed.
    f.ok("ALTER STREAM s SET (retention = '1 ms')").await;
    for _ in 0..2 {
        f.db.maintain(now + 1_000_000, now + 1_000_000).await;
    }
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    let f = f.restart().await;
    f.db.stop_maintenance().await;
    f.ok("INSERT INTO s VALUES (5, 5000)").await;
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    // What a view has once seen it has after every restart.
    f.ok("ALTER STREAM s SET (retention = '4 seconds')").await;
    seconds(&f, &mut now, 3).await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM s")
        .await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT n FROM mv").await;
    seconds(&f, &mut now, 5).await;
    f.db.maintain(now + 1_000_000, now + 1_000_000).await;
    assert_eq!(f.ok("SELECT n, total FROM mv").await, ["8|188"]);
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["8"]);
    let f = f.restart().await;
    f.db.stop_maintenance().await;
    assert_eq!(f.ok("SELECT n, total FROM mv").await, ["8|188"]);
    f.ok("DROP MATERIALIZED VIEW mv CASCADE").await;
    for _ in 0..2 {
        f.db.maintain(now + 1_000_000, now + 1_000_000).await;
    }
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM s")
        .await;
    assert_eq!(f.ok("SELECT n FROM mv").await, ["0"]);
    seconds(&f, &mut now, 1).await;
    assert_eq!(f.ok("SELECT n FROM mv").await, ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_go_that_the_views_have_in_their_checkpoints() {
    let f = Fixture::new().await;
    f.db.stop_maintenance().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE STREAM s (v BIGINT, ms BIGINT) WITH (retention = '4 seconds')")
        .await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM s")
        .await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT n + 1 AS n1 FROM mv")
        .await;
    let mut now = 0;
    seconds(&f, &mut now, 20).await;
    f.db.maintain(now, now).await;
    let rows = "SELECT min(v), max(v), count(*) FROM s";
    assert_eq!(f.ok(rows).await, ["0|19|20"], "no checkpoint has any of them");
    f.ok("FLUSH").await;
    f.db.runtime().checkpoint().await;
    seconds(&f, &mut now, 2).await;
    f.db.maintain(now, now).await;
    assert_eq!(f.ok(rows).await, ["19|21|3"]);
    // One that is made later has what is left, and is told.
    f.session.take_notices();
    f.ok("CREATE MATERIALIZED VIEW later AS SELECT count(*) AS n FROM s")
        .await;
    let notices = f.session.take_notices();
    assert!(
        notices
            .iter()
            .any(|notice| { notice.message.contains("does not include the first") })
    );
    let later = f.ok("SELECT n FROM later").await;
    assert_eq!(later, f.ok("SELECT count(*) FROM s").await);
    // It is in no checkpoint: nothing goes until it is.
    f.db.maintain(now + 1_000_000, now + 1_000_000).await;
    assert_eq!(f.ok("SELECT count(*) FROM s").await, later);
    let both = "SELECT n, total, (SELECT n1 FROM over) FROM mv";
    let killed = f.killed().await;
    killed.db.stop_maintenance().await;
    assert_eq!(
        killed.ok(both).await,
        ["22|231|23"],
        "as of the checkpoint, and the log behind it"
    );
    assert_eq!(killed.ok("SELECT n FROM later").await, later);
    killed.ok("INSERT INTO s VALUES (9, 9)").await;
    assert_eq!(killed.ok(both).await, ["23|240|24"]);
    // Without its checkpoint the view cannot be what it was.
    f.ok("FLUSH").await;
    f.db.runtime().checkpoint().await;
    let data = f.copied();
    for entry in std::fs::read_dir(data.path().join("checkpoints")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "blocks") {
            std::fs::write(path, "damaged").unwrap();
        }
    }
    let damaged = Fixture::open(data).await;
    damaged.db.stop_maintenance().await;
    let error = damaged.error("SELECT n FROM mv").await;
    assert!(error.message.contains("failed to load"), "{error:?}");
    assert!(
        error
            .detail
            .unwrap_or_default()
            .contains("retention has removed the first")
    );
    let jobs = damaged
        .ok("SELECT view, state FROM mr_catalog.jobs ORDER BY view")
        .await;
    assert_eq!(jobs, ["mv|failed", "over|failed"]);
    // Of what this one was made of nothing has gone since.
    assert_eq!(damaged.ok("SELECT n FROM later").await, later);
    let id = damaged
        .ok("SELECT id FROM mr_catalog.jobs WHERE view = 'mv'")
        .await;
    let error = damaged.error(&format!("CANCEL JOB {}", id[0])).await;
    assert!(error.message.contains("mv failed to load"), "{error:?}");
    damaged.ok("DROP MATERIALIZED VIEW mv CASCADE").await;
    // The checkpoint that has it could not be used: nothing goes until it is in another one.
    damaged.db.maintain(now + 1_000_000, now + 1_000_000).await;
    assert_eq!(damaged.ok("SELECT count(*) FROM s").await, later);
    damaged.ok("FLUSH").await;
    damaged.db.runtime().checkpoint().await;
    for _ in 0..2 {
        damaged.db.maintain(now + 1_000_000, now + 1_000_000).await;
    }
    assert_eq!(damaged.ok("SELECT count(*) FROM s").await, ["0"]);
    assert_eq!(damaged.ok("SELECT n FROM later").await, later);
    damaged
        .ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM s")
        .await;
    let left = damaged.ok("SELECT count(*) FROM s").await;
    assert_eq!(damaged.ok("SELECT n FROM mv").await, left);
}
