//! What clients see of a start from checkpoints.

use std::time::Duration;

use crate::database::tuning::RecoveryReads;
use crate::session::tests::Fixture;

/// Writes behind the checkpoint, an epoch each.
const WRITES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_the_checkpoint_until_the_log_is_replayed() {
    let f = Fixture::new().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM t")
        .await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT n, total FROM mv")
        .await;
    f.ok("INSERT INTO t VALUES (1, 10), (2, 20)").await;
    f.ok("FLUSH").await;
    f.db.runtime().checkpoint().await;
    for id in 0..WRITES {
        f.ok(&format!("INSERT INTO t VALUES ({}, 10)", id + 3)).await;
        assert_eq!(f.ok("SELECT n FROM mv").await, [(id + 3).to_string()]);
    }
    // Once the cutter knows of it, no epoch is cut before the interval is over: the replay waits.
    let g = Fixture::open_with(f.copied(), |options| {
        options.tuning.recovery_reads = RecoveryReads::Checkpoint;
        options.tuning.batch_interval = Some(Duration::from_secs(3_600));
    })
    .await;
    let read = g.ok("SELECT n, total FROM mv").await;
    let (n, total) = read[0].split_once('|').unwrap();
    let (n, total): (usize, usize) = (n.parse().unwrap(), total.parse().unwrap());
    assert!((2..WRITES + 2).contains(&n), "all is replayed: {read:?}");
    assert_eq!(total, 30 + 10 * (n - 2), "a prefix of the writes");
    let jobs = g.ok("SHOW JOBS").await;
    for view in ["mv", "over"] {
        let is_marked = |job: &String| job.contains(&format!("|{view}|replaying|"));
        assert!(jobs.iter().any(is_marked), "{view}: {jobs:?}");
    }
    let states = "SELECT view, state, why_filled FROM mr_catalog.recovery ORDER BY view";
    assert_eq!(g.ok(states).await, ["mv|replaying|null", "over|replaying|null"]);
    g.ok("ALTER SYSTEM SET batch_interval = 'auto'").await;
    g.ok("FLUSH").await;
    let all = [format!("{}|{}", WRITES + 2, 30 + 10 * WRITES)];
    assert_eq!(g.ok("SELECT n, total FROM mv").await, all);
    assert_eq!(g.ok("SELECT n, total FROM over").await, all);
    assert!(g.ok("SHOW JOBS").await.is_empty());
    assert_eq!(g.ok(states).await, ["mv|restored|null", "over|restored|null"]);
}
