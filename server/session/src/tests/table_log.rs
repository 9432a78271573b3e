//! The log of a table that is changed again and again is not much larger than its rows, and has all of them.

use std::path::Path;

use crate::tests::Fixture;

/// Rows of the table.
const ROWS: usize = 1_000;

/// UPDATEs of one row: `MILLRACE_UPDATES=10000000` for more.
fn updates() -> usize {
    let given = std::env::var("MILLRACE_UPDATES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(6_000)
}

fn bytes_below(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes_below(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    bytes.sum()
}

async fn maintained(f: &Fixture, now: &mut i64) {
    f.ok("CHECKPOINT").await;
    for _ in 0..3 {
        *now += 1_000;
        f.db.maintain(*now, *now).await;
    }
}

/// The bytes of the only log that there is.
fn log_bytes(f: &Fixture) -> u64 {
    bytes_below(&f.path().join("log"))
}

async fn table(f: &Fixture) {
    f.db.stop_maintenance().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, w TEXT)")
        .await;
    f.ok(&format!(
        "INSERT INTO t SELECT i, 0, 'row ' || i FROM generate_series(1, {ROWS}) AS g(i)"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_updates_leave_what_their_rows_take() {
    let f = Fixture::new().await;
    table(&f).await;
    f.ok("CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n, sum(v) AS v, max(w) AS w FROM t")
        .await;
    let mut now = 0;
    maintained(&f, &mut now).await;
    let fresh = log_bytes(&f);
    let updates = updates();
    for update in 0..updates {
        // No plan is made anew for what differs in a parameter only.
        f.ok(&format!(
            "UPDATE t SET v = v + 1 WHERE id = {}",
            1 + update * 7 % ROWS
        ))
        .await;
        if update % 2_000 == 1_999 {
            maintained(&f, &mut now).await;
        }
    }
    maintained(&f, &mut now).await;
    let grown = log_bytes(&f);
    // A thousand changes more than there are rows stay: each is a block of its own here, of some 300 bytes.
    assert!(grown <= 2 * fresh + (512 << 10), "{fresh} bytes became {grown}");
    let answer = format!("{ROWS}|{updates}|row 999");
    let (of_table, of_view) = ("SELECT count(*), sum(v), max(w) FROM t", "SELECT n, v, w FROM mv");
    assert_eq!(f.ok(of_table).await, std::slice::from_ref(&answer));
    let logs = f.db.store().logs();
    let table =
        f.db.catalog()
            .objects()
            .find(|object| object.name == "t")
            .map(|object| object.id.0);
    let changes = |f: &Fixture| {
        let id = table.unwrap();
        f.db.store().logs().head(id) - f.db.store().logs().first(id)
    };
    assert!(logs.first(table.unwrap()) > 0);
    assert!(changes(&f) <= 2 * ROWS as u64 + 2_000, "{} changes", changes(&f));
    // A backup of it is whole.
    let backups = tempfile::tempdir().unwrap();
    let backup = backups.path().join("b");
    f.ok(&format!("BACKUP TO '{}'", backup.display())).await;
    // Also without any checkpoint, the log has all rows.
    let f = f.killed().await;
    assert_eq!(f.ok(of_view).await, std::slice::from_ref(&answer));
    let directory = f.stop().await;
    std::fs::remove_dir_all(directory.path().join("checkpoints")).unwrap();
    let f = Fixture::open(directory).await;
    f.db.stop_maintenance().await;
    assert_eq!(f.ok(of_table).await, std::slice::from_ref(&answer));
    assert_eq!(f.ok(of_view).await, [answer]);
    // A view that is made later says nothing of rows that were removed: none were.
    f.ok("CREATE MATERIALIZED VIEW later AS SELECT sum(v) AS v FROM t")
        .await;
    assert_eq!(f.ok("SELECT v FROM later").await, [updates.to_string()]);
    f.ok("UPDATE t SET v = v + 1 WHERE id = 1").await;
    assert_eq!(f.ok("SELECT v FROM later").await, [(updates + 1).to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_that_no_checkpoint_has() {
    let f = Fixture::new().await;
    table(&f).await;
    // Who follows a table reads its rows.
    let out = tempfile::tempdir().unwrap();
    f.ok(&format!(
        "CREATE SINK k FROM t WITH (connector = 'file', path = '{}', rollover_seconds = 0, type = 'changelog') \
         FORMAT PLAIN ENCODE JSON",
        out.path().display()
    ))
    .await;
    for _ in 0..4 {
        f.ok("UPDATE t SET v = v + 1").await;
    }
    let mut now = 0;
    for _ in 0..3 {
        now += 1_000;
        f.db.maintain(now, now).await;
    }
    let id =
        f.db.catalog()
            .objects()
            .find(|object| object.name == "t")
            .map(|object| object.id.0);
    let first = |f: &Fixture| f.db.store().logs().first(id.unwrap());
    assert_eq!(first(&f), 0);
    maintained(&f, &mut now).await;
    assert!(first(&f) > 0);
    f.ok("ALTER TABLE t ADD COLUMN x INT DEFAULT 7").await;
    for _ in 0..4 {
        f.ok("UPDATE t SET v = v + 1, x = x + 1 WHERE id % 2 = 0").await;
        f.ok("UPDATE t SET v = v + 1 WHERE id % 2 = 1").await;
    }
    let before = first(&f);
    maintained(&f, &mut now).await;
    assert!(first(&f) > before);
    let answer = f.ok("SELECT count(*), sum(v), sum(x) FROM t").await;
    assert_eq!(answer, ["1000|8000|9000"]);
    let directory = f.stop().await;
    std::fs::remove_dir_all(directory.path().join("checkpoints")).unwrap();
    let f = Fixture::open(directory).await;
    assert_eq!(f.ok("SELECT count(*), sum(v), sum(x) FROM t").await, answer);
    f.ok("FLUSH").await;
}
