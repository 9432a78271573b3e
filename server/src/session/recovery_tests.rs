//! What clients see of a start from checkpoints.

use std::time::Duration;

use crate::database::tuning::RecoveryReads;
use crate::session::tests::Fixture;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_the_checkpoint_until_the_log_is_replayed() {
    let f = Fixture::new().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM t")
        .await;
    f.ok("CREATE MATERIALIZED VIEW of_s AS SELECT count(*) AS n FROM s")
        .await;
    f.ok("INSERT INTO t VALUES (1, 10), (2, 20); INSERT INTO s VALUES (1)")
        .await;
    f.ok("FLUSH").await;
    f.db.runtime().checkpoint().await;
    f.ok("INSERT INTO t VALUES (3, 30); DELETE FROM t WHERE id = 1; INSERT INTO s VALUES (2)")
        .await;
    f.ok("FLUSH").await;
    // No epoch is cut before the interval is over, so that the replay waits.
    let g = Fixture::open_with(f.copied(), |options| {
        options.tuning.recovery_reads = RecoveryReads::Checkpoint;
        options.tuning.batch_interval = Some(Duration::from_secs(3_600));
    })
    .await;
    g.ok("SET read_consistency = 'snapshot'").await;
    let both = "SELECT (SELECT n FROM mv), (SELECT total FROM mv), (SELECT n FROM of_s)";
    assert_eq!(g.ok(both).await, ["2|30|1"]);
    let jobs = g.ok("SHOW JOBS").await;
    for view in ["mv", "of_s"] {
        let is_marked = |job: &String| job.contains(&format!("|{view}|replaying|"));
        assert!(jobs.iter().any(is_marked), "{view}: {jobs:?}");
    }
    let states = "SELECT view, state, why_filled FROM mr_catalog.recovery ORDER BY view";
    assert_eq!(g.ok(states).await, ["mv|replaying|null", "of_s|replaying|null"]);
    g.ok("ALTER SYSTEM SET batch_interval = 'auto'").await;
    g.ok("FLUSH").await;
    assert_eq!(g.ok(both).await, ["2|50|2"]);
    assert!(g.ok("SHOW JOBS").await.is_empty());
    assert_eq!(g.ok(states).await, ["mv|restored|null", "of_s|restored|null"]);
    assert_eq!(f.ok(both).await, ["2|50|2"]);
}
