//! Streams that forget: what goes, what views keep, and what a restart makes of it.

use crate::session::tests::Fixture;

/// A row each second of the next so many, from `*now` on.
async fn seconds(f: &Fixture, now: &mut i64, rows: i64) {
    for _ in 0..rows {
        f.db.upkeep(*now).await;
        f.ok(&format!("INSERT INTO s VALUES ({}, {now})", *now / 1000))
            .await;
        *now += 1_000;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_stream_go_unless_a_view_reads_it() {
    let f = Fixture::new().await;
    f.db.stop_upkeep().await;
    f.ok(
        "CREATE STREAM s (v BIGINT, ms BIGINT, ts TIMESTAMPTZ GENERATED ALWAYS AS (to_timestamp_millis(ms)), \
         WATERMARK FOR ts AS ts) WITH (retention = '8 seconds')",
    )
    .await;
    let mut now = 0;
    seconds(&f, &mut now, 20).await;
    f.db.upkeep(now).await;
    let kept = "SELECT min(v), max(v), count(*) FROM s";
    assert_eq!(f.ok(kept).await, ["12|19|8"]);
    // A late row is late after a restart too, whoever was removed.
    f.ok("ALTER STREAM s SET (retention = '1 ms')").await;
    for _ in 0..2 {
        f.db.upkeep(now + 1_000_000).await;
    }
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    let f = f.restart().await;
    f.db.stop_upkeep().await;
    f.ok("INSERT INTO s VALUES (5, 5000)").await;
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    // What a view has once seen it has after every restart.
    f.ok("ALTER STREAM s SET (retention = '4 seconds')").await;
    seconds(&f, &mut now, 3).await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM s")
        .await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT n FROM mv").await;
    seconds(&f, &mut now, 5).await;
    f.db.upkeep(now + 1_000_000).await;
    assert_eq!(f.ok("SELECT n, total FROM mv").await, ["8|188"]);
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["8"]);
    let f = f.restart().await;
    f.db.stop_upkeep().await;
    assert_eq!(f.ok("SELECT n, total FROM mv").await, ["8|188"]);
    f.ok("DROP MATERIALIZED VIEW mv CASCADE").await;
    for _ in 0..2 {
        f.db.upkeep(now + 1_000_000).await;
    }
    assert_eq!(f.ok("SELECT count(*) FROM s").await, ["0"]);
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM s")
        .await;
    assert_eq!(f.ok("SELECT n FROM mv").await, ["0"]);
    seconds(&f, &mut now, 1).await;
    assert_eq!(f.ok("SELECT n FROM mv").await, ["1"]);
}
