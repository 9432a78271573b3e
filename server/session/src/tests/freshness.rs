//! Views with a target for their freshness: what waits for company, and who does not wait for it. The targets are an hour, so that what must not
//! wait would never end.

use crate::tests::{Fixture, run};

const VIEW: &str = "SELECT count(*) AS n, sum(v) AS total FROM t";

async fn fixture() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok(&format!(
        "CREATE MATERIALIZED VIEW mv WITH (freshness = '1 hour') AS {VIEW}"
    ))
    .await;
    f
}

/// Fills what the first epoch, which is cut at once, would take.
async fn first_epoch(f: &Fixture) {
    f.ok("INSERT INTO t VALUES (0, 0)").await;
    f.ok("FLUSH").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_wrote_it_reads_at_once() {
    let f = fixture().await;
    for id in 1..=20 {
        f.ok(&format!("INSERT INTO t VALUES ({id}, 10)")).await;
        assert_eq!(
            f.ok("SELECT n, total FROM mv").await,
            [format!("{id}|{}", id * 10)]
        );
    }
    f.ok("BEGIN").await;
    f.ok("UPDATE t SET v = 11 WHERE id = 1").await;
    f.ok("DELETE FROM t WHERE id = 2").await;
    f.ok("COMMIT").await;
    assert_eq!(f.ok("SELECT n, total FROM mv").await, ["19|191"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_waits_for_company() {
    let f = fixture().await;
    first_epoch(&f).await;
    let other = f.other_session();
    f.ok("INSERT INTO t VALUES (1, 10)").await;
    // Who reads the table sees all of it, and cuts an epoch; who reads the view alone does not.
    assert_eq!(run(&other, "SELECT n, total FROM mv").await.unwrap(), ["1|0"]);
    assert_eq!(run(&other, "SELECT sum(total) FROM mv").await.unwrap(), ["0"]);
    assert_eq!(
        run(&other, "SELECT n, total FROM mv WHERE n = 1").await.unwrap(),
        ["1|0"]
    );
    assert_eq!(run(&other, "SELECT count(*) FROM t").await.unwrap(), ["2"]);
    assert_eq!(run(&other, "SELECT n, total FROM mv").await.unwrap(), ["2|10"]);
    // Who joins both sees them as of one epoch, with all that is in the table.
    f.ok("INSERT INTO t VALUES (2, 10)").await;
    let both = "SELECT n, (SELECT count(*) FROM t) AS m FROM mv";
    assert_eq!(run(&other, both).await.unwrap(), ["3|3"]);
    // A view that is to be as fresh as can be makes the one beside it so too.
    f.ok("CREATE MATERIALIZED VIEW fresh AS SELECT max(v) AS most FROM t")
        .await;
    f.ok("INSERT INTO t VALUES (3, 99)").await;
    assert_eq!(run(&other, "SELECT most FROM fresh").await.unwrap(), ["99"]);
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_cut_waits_for_no_company() {
    let f = fixture().await;
    f.ok("CREATE STREAM s (v INT)").await;
    f.ok("CREATE MATERIALIZED VIEW ms WITH (freshness = '1 hour') AS SELECT count(*) AS n FROM s")
        .await;
    f.ok("INSERT INTO s VALUES (0)").await;
    f.ok("FLUSH").await;
    let rows = 300_000;
    f.ok(&format!(
        "INSERT INTO s SELECT v FROM generate_series(1, {rows}) AS g(v)"
    ))
    .await;
    let other = f.other_session();
    while run(&other, "SELECT n FROM ms").await.unwrap() != [(rows + 1).to_string()] {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_has_a_target_for_those_that_say_none() {
    let f = fixture().await;
    f.ok("CREATE MATERIALIZED VIEW plain AS SELECT count(*) AS n FROM t")
        .await;
    f.ok("CREATE MATERIALIZED VIEW at_once WITH (freshness = '0') AS SELECT count(*) AS n FROM t")
        .await;
    let targets = "SELECT name, freshness_target_us FROM mr_catalog.relations WHERE kind = 'materialized view' ORDER BY name";
    assert_eq!(
        f.ok(targets).await,
        ["at_once|null", "mv|3600000000", "plain|null"]
    );
    f.ok("ALTER SYSTEM SET freshness_target = '30 min'").await;
    assert_eq!(
        f.ok(targets).await,
        ["at_once|null", "mv|3600000000", "plain|1800000000"]
    );
    assert_eq!(f.ok("SHOW freshness_target").await, ["1800s"]);
    f.ok("DROP MATERIALIZED VIEW at_once").await;
    first_epoch(&f).await;
    let other = f.other_session();
    f.ok("INSERT INTO t VALUES (1, 10)").await;
    assert_eq!(run(&other, "SELECT n FROM plain").await.unwrap(), ["1"]);
    // The setting holds for what waits already.
    f.ok("ALTER SYSTEM SET freshness_target = 'none'").await;
    assert_eq!(run(&other, "SELECT n FROM plain").await.unwrap(), ["2"]);
    let kept = "SELECT freshness_met BETWEEN 0 AND 1 FROM mr_catalog.relations WHERE name = 'mv'";
    assert_eq!(f.ok(kept).await, ["t"]);
    drop(other);
    let g = f.restart().await;
    assert_eq!(g.ok(targets).await, ["mv|3600000000", "plain|null"]);
    assert_eq!(g.ok("SELECT n FROM mv").await, ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_no_company() {
    let f = fixture().await;
    f.ok("ALTER SYSTEM SET checkpoint_interval = 'off'").await;
    first_epoch(&f).await;
    // Many epochs are cut again, as they were, and writes that were in none.
    for id in 1..=200 {
        f.ok(&format!("INSERT INTO t VALUES ({id}, 10)")).await;
        if id < 150 || id % 7 == 0 {
            f.ok("SELECT n FROM mv").await;
        }
    }
    let g = f.killed().await;
    assert_eq!(g.ok("SELECT n, total FROM mv").await, ["201|2000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_can_be_altered() {
    let f = fixture().await;
    first_epoch(&f).await;
    let other = f.other_session();
    f.ok("INSERT INTO t VALUES (1, 10)").await;
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["1"]);
    // What waits already does not wait any longer.
    f.ok("ALTER MATERIALIZED VIEW mv SET (freshness = '0')").await;
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["2"]);
    f.ok("ALTER MATERIALIZED VIEW mv SET (freshness = '30 min')")
        .await;
    let target = "SELECT freshness_target_us FROM mr_catalog.relations WHERE name = 'mv'";
    assert_eq!(f.ok(target).await, ["1800000000"]);
    f.ok("INSERT INTO t VALUES (2, 10)").await;
    f.ok("FLUSH").await;
    f.ok("INSERT INTO t VALUES (3, 10)").await;
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["3"]);
    // A transaction alters it when it commits.
    f.ok("BEGIN").await;
    f.ok("ALTER MATERIALIZED VIEW mv RESET (freshness)").await;
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["3"]);
    f.ok("COMMIT").await;
    assert_eq!(run(&other, "SELECT n FROM mv").await.unwrap(), ["4"]);
    f.ok("BEGIN").await;
    f.ok("CREATE MATERIALIZED VIEW young AS SELECT max(v) AS most FROM t")
        .await;
    f.ok("ALTER MATERIALIZED VIEW young SET (freshness = '20 min')")
        .await;
    f.ok("COMMIT").await;
    let targets = "SELECT name, freshness_target_us FROM mr_catalog.relations WHERE kind = 'materialized view' ORDER BY name";
    assert_eq!(f.ok(targets).await, ["mv|null", "young|1200000000"]);
    for (wrong, code) in [
        ("SET (freshness = '2 hours')", "22023"),
        ("SET (freshness = '5')", "22023"),
        ("SET (freshness = '1 s', freshness = '2 s')", "42601"),
        ("SET (on_error = 'fail')", "0A000"),
        ("RESET (history)", "0A000"),
    ] {
        let sql = format!("ALTER MATERIALIZED VIEW mv {wrong}");
        assert_eq!(f.error(&sql).await.code.code(), code, "{wrong}");
    }
    f.ok("ALTER MATERIALIZED VIEW mv SET (freshness = '1 hour')")
        .await;
    drop(other);
    let g = f.restart().await;
    assert_eq!(g.ok(targets).await, ["mv|3600000000", "young|1200000000"]);
}
