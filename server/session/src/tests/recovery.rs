//! What clients see of a start from checkpoints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_catalog::{DEFAULT_DATABASE, DEFAULT_SCHEMA};
use millrace_database::tuning::RecoveryReads;
use millrace_postgres::error::SqlState;

use crate::tests::Fixture;

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

/// The directory of a relation's log below a data directory.
fn log_of(f: &Fixture, relation: &str, data: &Path) -> PathBuf {
    let catalog = f.db.catalog();
    let object = catalog.relation(DEFAULT_DATABASE, DEFAULT_SCHEMA, relation);
    data.join("log").join(object.unwrap().id.to_string())
}

/// The segments of a log, the oldest first.
fn segments(log: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    segments.sort();
    segments
}

fn flip_bit(path: &Path, byte: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[byte] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relation_whose_log_is_damaged_fails_to_load_and_the_others_do() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE TABLE u (id INT PRIMARY KEY, v INT)").await;
    f.ok("CREATE INDEX ON t (v)").await;
    f.ok("CREATE VIEW plain AS SELECT v FROM t").await;
    for (view, from) in [
        ("of_t", "plain"),
        ("of_u", "u"),
        ("of_both", "t JOIN u USING (id, v)"),
    ] {
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS n, sum(v) AS total FROM {from}"
        ))
        .await;
    }
    let sink = tempfile::tempdir().unwrap();
    f.ok(&format!(
        "CREATE SINK k FROM of_t WITH (connector = 'file', path = '{}', type = 'changelog') FORMAT PLAIN ENCODE JSON",
        sink.path().display()
    ))
    .await;
    for id in 0..20 {
        f.ok("BEGIN").await;
        f.ok(&format!("INSERT INTO t VALUES ({id}, 1)")).await;
        f.ok(&format!("INSERT INTO u VALUES ({id}, 1)")).await;
        f.ok("COMMIT").await;
    }
    let data = f.copied();
    let segment = segments(&log_of(&f, "t", data.path())).remove(0);
    let middle = std::fs::metadata(&segment).unwrap().len() as usize / 2;
    flip_bit(&segment, middle);
    let g = Fixture::open(data).await;
    assert_eq!(g.ok("SELECT count(*) FROM u").await, ["20"]);
    assert_eq!(g.ok("SELECT n, total FROM of_u").await, ["20|20"]);
    let failed = "SELECT view FROM mr_catalog.jobs WHERE state = 'failed' ORDER BY view";
    let jobs = g.ok(failed).await;
    assert!(
        jobs.starts_with(&["of_both", "of_t"].map(String::from)),
        "{jobs:?}"
    );
    assert!(jobs.contains(&"t".to_string()), "{jobs:?}");
    for statement in [
        "SELECT * FROM t",
        "INSERT INTO t VALUES (100, 1)",
        "UPDATE t SET v = 2",
        "DELETE FROM t",
        "COPY t FROM STDIN",
        "ALTER TABLE t ADD COLUMN w INT",
        "ALTER TABLE t RENAME TO w",
        "CREATE INDEX ON t (v)",
        "CREATE SINK w FROM t WITH (connector = 'file', path = '/tmp') FORMAT PLAIN ENCODE JSON",
        "COMMENT ON TABLE t IS 'x'",
        "CREATE MATERIALIZED VIEW more AS SELECT v FROM t",
    ] {
        let error = g.error(statement).await;
        assert_eq!(
            error.code,
            SqlState::ObjectNotInPrerequisiteState,
            "{statement}: {error:?}"
        );
        assert!(
            error.message.contains("table t failed to load"),
            "{statement}: {error:?}"
        );
    }
    let error = g.error("SELECT * FROM t").await;
    let why = error.detail.unwrap_or_default();
    assert!(why.contains("is damaged at byte"), "{why}");
    let error = g.error("SELECT * FROM plain").await;
    assert!(error.message.contains("view plain failed to load"), "{error:?}");
    let error = g.error("SELECT * FROM of_t").await;
    assert!(error.message.contains("of_t failed to load"), "{error:?}");
    let backup = tempfile::tempdir().unwrap();
    let error = g
        .error(&format!("BACKUP TO '{}/b'", backup.path().display()))
        .await;
    assert_eq!(error.code, SqlState::DataCorrupted, "{error:?}");
    g.ok("INSERT INTO u VALUES (100, 1)").await;
    g.ok("FLUSH").await;
    g.db.runtime().checkpoint().await;
    // With the file as it was, all is there again after the next start.
    let data = g.stop().await;
    flip_bit(&segment, middle);
    let g = Fixture::open(data).await;
    assert_eq!(g.ok(failed).await, [""; 0]);
    assert_eq!(g.ok("SELECT n FROM of_t").await, ["20"]);
    assert_eq!(g.ok("SELECT n, total FROM of_both").await, ["20|20"]);
    assert_eq!(g.ok("SELECT n FROM of_u").await, ["21"]);
    // Without it, what is left of it can be dropped.
    let data = g.stop().await;
    flip_bit(&segment, middle);
    let g = Fixture::open(data).await;
    g.ok("DROP TABLE t CASCADE").await;
    assert!(!segment.exists());
    assert_eq!(g.ok(failed).await, [""; 0]);
    g.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    let g = g.restart().await;
    assert_eq!(g.ok("SELECT count(*) FROM t").await, ["0"]);
    assert_eq!(g.ok("SELECT n FROM of_u").await, ["21"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_only_the_replay_finds_is_left_out_too() {
    let small = |options: &mut millrace_database::DatabaseOptions| {
        options.store.segment_bytes_max = 4 << 10;
    };
    let f = Fixture::open_with(tempfile::tempdir().unwrap(), small).await;
    f.db.stop_maintenance().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("CREATE TABLE u (id INT PRIMARY KEY)").await;
    f.ok("CREATE MATERIALIZED VIEW of_s AS SELECT count(*) AS n FROM s")
        .await;
    f.ok("CREATE MATERIALIZED VIEW of_u AS SELECT count(*) AS n FROM u")
        .await;
    f.ok("INSERT INTO u VALUES (1)").await;
    f.ok("INSERT INTO s VALUES (1)").await;
    f.ok("FLUSH").await;
    f.db.runtime().checkpoint().await;
    for _ in 0..60 {
        f.ok("INSERT INTO s VALUES (1)").await;
        let now = millrace_database::clock::now_ms();
        f.db.maintain(now, now).await;
    }
    let data = f.copied();
    let log = log_of(&f, "s", data.path());
    let segment = segments(&log).remove(0);
    assert!(segment.with_extension("idx").exists(), "it has no index");
    let middle = std::fs::metadata(&segment).unwrap().len() as usize / 2;
    flip_bit(&segment, middle);
    let g = Fixture::open_with(data, small).await;
    assert_eq!(g.ok("SELECT n FROM of_u").await, ["1"]);
    let error = g.error("SELECT n FROM of_s").await;
    assert!(error.message.contains("of_s failed to load"), "{error:?}");
    let error = g.error("SELECT v FROM s").await;
    let why = error.detail.unwrap_or_default();
    assert!(why.contains("is damaged at byte"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_become_few_blocks_once_a_checkpoint_has_them() {
    let small = |options: &mut millrace_database::DatabaseOptions| {
        options.store.segment_bytes_max = 8 << 10;
    };
    let f = Fixture::open_with(tempfile::tempdir().unwrap(), small).await;
    f.db.stop_maintenance().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS total FROM s")
        .await;
    let log = log_of(&f, "s", f.path());
    let bytes = || -> u64 {
        let segments = segments(&log).into_iter();
        segments.map(|path| std::fs::metadata(path).unwrap().len()).sum()
    };
    let insert = async |rows: std::ops::Range<i32>| {
        for v in rows {
            f.ok(&format!("INSERT INTO s VALUES ({v})")).await;
        }
        f.ok("FLUSH").await;
    };
    let maintain = async || {
        let now = millrace_database::clock::now_ms();
        f.db.maintain(now, now).await;
    };
    insert(0..90).await;
    let before = bytes();
    maintain().await;
    assert_eq!(bytes(), before, "they may be replayed, one by one");
    f.db.runtime().checkpoint().await;
    maintain().await;
    let after = bytes();
    assert!(after * 2 < before, "{before} bytes became {after}");
    // What comes now is behind the checkpoint.
    insert(90..190).await;
    let before = bytes();
    maintain().await;
    assert_eq!(bytes(), before);
    let g = Fixture::open_with(f.copied(), small).await;
    assert_eq!(g.ok("SELECT n, total FROM mv").await, ["190|17955"]);
    assert_eq!(g.ok("SELECT count(*), sum(v) FROM s").await, ["190|17955"]);
}
