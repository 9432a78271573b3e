//! Statements that are too large, that name themselves, or that take long to plan: refused, or nobody else's trouble.

use std::sync::mpsc;

use millrace_postgres::error::{SqlError, SqlState};

use crate::tests::{Fixture, run};

/// A chain of WITH queries, each of which reads the one before so many times.
fn chain(length: usize, times: usize) -> String {
    let read = |n: usize| -> String {
        let names: Vec<_> = (0..times).map(|t| format!("q{n} r{t}")).collect();
        names.join(", ")
    };
    let queries = (1..length).map(|n| format!(", q{n} AS (SELECT r0.a FROM {})", read(n - 1)));
    let queries: String = queries.collect();
    format!(
        "WITH q0 AS (SELECT 1 AS a){queries} SELECT a FROM q{}",
        length - 1
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn chains_of_queries_and_views_have_a_limit() {
    let f = Fixture::new().await;
    assert_eq!(f.ok(&chain(200, 1)).await, ["1"]);
    assert_eq!(f.ok(&chain(6, 2)).await, ["1"]);
    for too_long in [chain(501, 1), chain(50_000, 1), chain(30, 2), chain(400, 3)] {
        let error = f.error(&too_long).await;
        assert_eq!(error.code, SqlState::StatementTooComplex, "{error:?}");
    }
    f.ok("CREATE VIEW v0 AS SELECT 1 AS a").await;
    let mut refused = None;
    for n in 1..40 {
        let sql = format!("CREATE VIEW v{n} AS SELECT x.a FROM v{0} x, v{0} y", n - 1);
        if let Err(error) = run(&f.session, &sql).await {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused.unwrap().code, SqlState::StatementTooComplex);
    let from: Vec<_> = (0..20_000).map(|n| format!("(SELECT 1) t{n}")).collect();
    let error = f.error(&format!("SELECT 1 FROM {}", from.join(", "))).await;
    assert_eq!(error.code, SqlState::StatementTooComplex);
}

/// What cannot be interrupted keeps nobody waiting but its own session, and is ended for its client at once.
#[tokio::test(flavor = "multi_thread")]
async fn long_computations_of_statements_are_nobody_elses_trouble() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (a INT)").await;
    let others: Vec<_> = (0..5).map(|_| f.other_session()).collect();
    let mut held = vec![];
    for session in &others {
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let running = tokio::spawn({
            let session = std::sync::Arc::clone(session);
            async move {
                let compute = move || {
                    begun.send(()).map_err(|_| SqlError::internal("nobody waits"))?;
                    let _ = released.recv();
                    Ok(())
                };
                session.compute(compute).await
            }
        });
        tokio::task::spawn_blocking(move || begins.recv())
            .await
            .unwrap()
            .unwrap();
        held.push((running, release));
    }
    f.ok("INSERT INTO t VALUES (1)").await;
    assert_eq!(f.ok("SELECT a FROM t").await, ["1"]);
    for session in &others {
        session.cancel_handle().cancel();
    }
    let mut releases = vec![];
    for (running, release) in held {
        let ended = running.await.unwrap().unwrap_err();
        assert_eq!(ended.code, SqlState::QueryCanceled);
        releases.push(release);
    }
    // The session itself goes on when nothing of it runs any more.
    let next = tokio::spawn({
        let session = std::sync::Arc::clone(&others[0]);
        async move { run(&session, "SELECT 7").await }
    });
    assert!(!next.is_finished());
    drop(releases);
    assert_eq!(next.await.unwrap().unwrap(), ["7"]);
}
