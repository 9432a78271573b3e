//! Jobs: making views while other statements go on, and giving them up.

use std::sync::Arc;

use millrace_database::database::jobs::BACKGROUND_MAX;
use millrace_postgres::error::SqlState;

use crate::session::Session;
use crate::tests::{Fixture, run};

/// So slow that it is not done before it is cancelled.
const SLOWLY: &str = "SET backfill_rate_limit = 1";

async fn with_rows() -> Fixture {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (id INT PRIMARY KEY, v INT)").await;
    f.ok("INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 100) AS g(i)")
        .await;
    f.ok("CREATE MATERIALIZED VIEW other AS SELECT v, count(*) AS n FROM t GROUP BY v")
        .await;
    f
}

/// The number of the one job, once it feeds rows.
async fn running_job(session: &Arc<Session>) -> String {
    loop {
        let rows = run(
            session,
            "SELECT id FROM mr_catalog.jobs WHERE state = 'filling' AND rows_done > 0",
        )
        .await
        .unwrap();
        if let [id] = rows.as_slice() {
            return id.clone();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_the_background_goes_on_and_others_too() {
    let f = with_rows().await;
    f.ok("SET background_ddl = on").await;
    f.ok(SLOWLY).await;
    f.ok("CREATE MATERIALIZED VIEW slow AS SELECT id FROM t WHERE v = 1")
        .await;
    let id = running_job(&f.session).await;
    // Writes are seen, other definitions change, the name is taken, inputs stay.
    f.ok("INSERT INTO t VALUES (1000, 3)").await;
    assert_eq!(f.ok("SELECT n FROM other WHERE v = 3").await, ["15"]);
    f.ok("RESET backfill_rate_limit").await;
    f.ok("CREATE MATERIALIZED VIEW fast AS SELECT count(*) AS n FROM t")
        .await;
    let error = f.error("CREATE TABLE slow (a INT)").await;
    assert_eq!(error.code, SqlState::DuplicateTable);
    assert_eq!(
        error.detail.unwrap(),
        format!("Job {id} is creating materialized view slow.")
    );
    let error = f.error("DROP TABLE t").await;
    assert_eq!(error.code, SqlState::DependentObjectsStillExist);
    f.ok("CREATE MATERIALIZED VIEW IF NOT EXISTS slow AS SELECT 1 AS one")
        .await;
    assert!(
        f.session.take_notices()[0]
            .message
            .contains("already exists, skipping")
    );
    assert_eq!(f.error("SELECT * FROM slow").await.code, SqlState::UndefinedTable);

    assert_eq!(f.error("CANCEL JOB 999").await.code, SqlState::UndefinedObject);
    f.ok(&format!("CANCEL JOB {id}")).await;
    let left = f
        .ok(&format!("SELECT count(*) FROM mr_catalog.jobs WHERE id = {id}"))
        .await;
    assert_eq!(left, ["0"]);
    f.ok("CREATE MATERIALIZED VIEW slow AS SELECT count(*) AS n FROM t")
        .await;
    f.ok("WAIT").await;
    assert_eq!(f.ok("SELECT * FROM slow").await, ["101"]);
    let f = f.restart().await;
    assert_eq!(f.ok("SELECT * FROM slow").await, ["101"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_cancelled_leaves_nothing() {
    let f = with_rows().await;
    let (creating, other) = (f.other_session(), f.other_session());
    run(&creating, SLOWLY).await.unwrap();
    let sql = "CREATE MATERIALIZED VIEW slow AS SELECT id FROM t";
    // By its number, and by the client that waits for it.
    for by_number in [true, false] {
        let session = Arc::clone(&creating);
        let create = tokio::spawn(async move { run(&session, sql).await });
        let id = running_job(&other).await;
        if by_number {
            run(&other, &format!("CANCEL JOB {id}")).await.unwrap();
        } else {
            creating.cancel_handle().cancel();
        }
        assert_eq!(create.await.unwrap().unwrap_err().code, SqlState::QueryCanceled);
        // At once: the name is free, and nothing holds the input.
        run(&other, "CREATE MATERIALIZED VIEW slow AS SELECT id FROM t")
            .await
            .unwrap();
        run(&other, "DROP MATERIALIZED VIEW slow").await.unwrap();
    }
    drop((creating, other));
    let f = f.restart().await;
    assert_eq!(f.ok("SELECT name FROM mr_catalog.views").await, ["other"]);
    f.ok("DROP TABLE t CASCADE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_input_with_cascade_cancels_the_job() {
    let f = with_rows().await;
    let creating = f.other_session();
    run(&creating, SLOWLY).await.unwrap();
    let create =
        tokio::spawn(
            async move { run(&creating, "CREATE MATERIALIZED VIEW slow AS SELECT id FROM t").await },
        );
    running_job(&f.session).await;
    f.ok("DROP TABLE t CASCADE").await;
    assert_eq!(create.await.unwrap().unwrap_err().code, SqlState::QueryCanceled);
    assert!(f.ok("SHOW JOBS").await.is_empty());
    assert!(f.ok("SHOW MATERIALIZED VIEWS").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_views_are_made_at_a_time() {
    let f = with_rows().await;
    f.ok("SET background_ddl = on").await;
    f.ok(SLOWLY).await;
    for number in 0..6 {
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW slow{number} AS SELECT id FROM t"
        ))
        .await;
    }
    let states = "SELECT state, count(*) FROM mr_catalog.jobs GROUP BY state ORDER BY state";
    while f.ok(states).await != ["filling|4", "queued|2"] {
        tokio::task::yield_now().await;
    }
    // In the background there are only so many; a client that waits for its view itself is none of them.
    for number in 6..BACKGROUND_MAX {
        f.ok(&format!(
            "CREATE MATERIALIZED VIEW slow{number} AS SELECT id FROM t"
        ))
        .await;
    }
    let error = f.error("CREATE MATERIALIZED VIEW more AS SELECT id FROM t").await;
    assert_eq!(error.code, SqlState::ProgramLimitExceeded, "{error:?}");
    assert!(
        error
            .message
            .contains("too many background jobs: the limit is 64"),
        "{}",
        error.message
    );
    assert!(error.hint.unwrap().contains("CANCEL JOB"));
    let waiting = f.other_session();
    run(&waiting, SLOWLY).await.unwrap();
    let waits =
        tokio::spawn(async move { run(&waiting, "CREATE MATERIALIZED VIEW more AS SELECT id FROM t").await });
    while f.ok(states).await != ["filling|4", "queued|61"] {
        tokio::task::yield_now().await;
    }
    waits.abort();
    // The next one begins when one has been abandoned.
    let cancelled = f
        .ok("SELECT min(id) FROM mr_catalog.jobs WHERE state = 'filling'")
        .await;
    f.ok(&format!("CANCEL JOB {}", cancelled[0])).await;
    while f.ok(states).await != ["filling|4", "queued|59"] {
        tokio::task::yield_now().await;
    }
    f.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_server_ends_jobs() {
    let f = with_rows().await;
    f.ok("SET background_ddl = on").await;
    f.ok(SLOWLY).await;
    f.ok("CREATE MATERIALIZED VIEW slow AS SELECT id FROM t").await;
    running_job(&f.session).await;
    let f = f.restart().await;
    assert_eq!(f.ok("SELECT name FROM mr_catalog.views").await, ["other"]);
    assert!(f.ok("SHOW JOBS").await.is_empty());
}

/// What a job reads or replaces does not change its definition meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_not_undermined() {
    let f = with_rows().await;
    let (creating, replacing) = (f.other_session(), f.other_session());
    run(&creating, SLOWLY).await.unwrap();
    let create =
        tokio::spawn(
            async move { run(&creating, "CREATE MATERIALIZED VIEW over AS SELECT n FROM other").await },
        );
    let id = running_job(&f.session).await;
    let error = f
        .error("CREATE OR REPLACE MATERIALIZED VIEW other AS SELECT v, 1 AS n FROM t")
        .await;
    assert_eq!(error.code, SqlState::ObjectInUse);
    assert!(error.hint.unwrap().contains(&format!("CANCEL JOB {id}")));
    // Names may change: what the job reads is known by its identity.
    f.ok("ALTER MATERIALIZED VIEW other RENAME TO renamed").await;
    f.ok(&format!("CANCEL JOB {id}")).await;
    create.await.unwrap().unwrap_err();

    run(&replacing, SLOWLY).await.unwrap();
    let replace = tokio::spawn(async move {
        run(
            &replacing,
            "CREATE OR REPLACE MATERIALIZED VIEW renamed AS SELECT v, id AS n FROM t",
        )
        .await
    });
    let id = running_job(&f.session).await;
    for sql in [
        "ALTER MATERIALIZED VIEW renamed RENAME TO again",
        "CREATE MATERIALIZED VIEW over AS SELECT n FROM renamed",
        "CREATE INDEX i ON renamed (v)",
        "COMMENT ON MATERIALIZED VIEW renamed IS 'x'",
        "CREATE OR REPLACE MATERIALIZED VIEW renamed AS SELECT 1 AS n",
    ] {
        assert_eq!(f.error(sql).await.code, SqlState::ObjectInUse, "{sql}");
    }
    // The old one is there until the new one is, and again when it is not to be.
    assert_eq!(f.ok("SELECT sum(n) FROM renamed").await, ["100"]);
    f.ok(&format!("CANCEL JOB {id}")).await;
    replace.await.unwrap().unwrap_err();
    f.ok("INSERT INTO t VALUES (500, 1)").await;
    assert_eq!(f.ok("SELECT sum(n) FROM renamed").await, ["101"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_outlive_their_worker() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS groups, sum(n) AS rows FROM other")
        .await;
    let workers = "SELECT id, state FROM mr_catalog.workers";
    assert_eq!(f.ok(workers).await, ["0|running"]);
    f.ok("KILL WORKER 0").await;
    assert_eq!(f.ok("SELECT * FROM over").await, ["7|100"]);
    f.ok("INSERT INTO t VALUES (1000, 8)").await;
    assert_eq!(f.ok("SELECT * FROM over").await, ["8|101"]);
    assert_eq!(f.ok(workers).await, ["1|running"]);
    let error = f.error("KILL WORKER 0").await;
    assert_eq!(error.code, SqlState::UndefinedObject);
    assert_eq!(error.message, "worker 0 does not exist");
    f.ok("DROP TABLE t CASCADE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_come_and_go() {
    let f = with_rows().await;
    f.ok("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS groups, sum(n) AS rows FROM other")
        .await;
    let staying = "SELECT id, partitions > 0 FROM mr_catalog.workers WHERE state = 'running' ORDER BY id";
    let error = f.error("DROP WORKER 0").await;
    assert_eq!(error.code, SqlState::ObjectNotInPrerequisiteState);
    assert_eq!(error.message, "cannot remove worker 0: it is the last one");
    f.ok("ADD WORKER").await;
    f.ok("INSERT INTO t VALUES (1000, 8)").await;
    assert_eq!(f.ok("SELECT * FROM over").await, ["8|101"]);
    let workers = f.ok(staying).await;
    assert_eq!(workers.len(), 2, "{workers:?}");
    f.ok("DROP WORKER 0").await;
    f.ok("INSERT INTO t VALUES (1001, 9)").await;
    assert_eq!(f.ok("SELECT * FROM over").await, ["9|102"]);
    assert_eq!(f.ok(staying).await, ["1|t"]);
    let error = f.error("DROP WORKER 7").await;
    assert_eq!(error.code, SqlState::UndefinedObject);
    f.ok("DROP TABLE t CASCADE").await;
}
