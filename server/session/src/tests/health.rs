//! What `/ready` goes by: probes, and whether those who do the work are still there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_database::database::health::Condition;
use millrace_storage::{LogDevice, LogGroup};

use crate::tests::{Fixture, run};

/// Long enough for whatever is not stuck.
const WAIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_is_found_and_found_again_when_it_can() {
    let f = Fixture::new().await;
    f.db.look(Instant::now(), WAIT).await;
    assert_eq!(f.db.condition(), Condition::Well);
    let probe = f.path().join("PROBE");
    // The server looks by itself, too, and may write it again in between.
    while std::fs::create_dir(&probe).is_err() {
        let _ = std::fs::remove_file(&probe);
    }
    f.db.look(Instant::now(), WAIT).await;
    let Condition::HeldUp(why) = f.db.condition() else {
        panic!("{:?}", f.db.condition());
    };
    assert!(why.contains("PROBE"), "{why}");
    // What was there can be asked all the same.
    assert_eq!(f.ok("SELECT 1").await, ["1"]);
    std::fs::remove_dir(&probe).unwrap();
    f.db.look(Instant::now(), WAIT).await;
    assert_eq!(f.db.condition(), Condition::Well);
}

/// A device at which whoever writes the log comes to grief.
struct Fatal;

impl LogDevice for Fatal {
    fn begin(&self) {
        panic!("the log's writer dies of this");
    }

    fn end(&self, _: LogGroup) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_log_is_written_by_nobody_is_to_end() {
    let f = Fixture::new().await;
    f.ok("CREATE TABLE t (v INT)").await;
    f.ok("INSERT INTO t VALUES (1)").await;
    let fatal: Arc<dyn LogDevice> = Arc::new(Fatal);
    f.db.store().logs().set_device(Arc::downgrade(&fatal));
    let refused = run(&f.session, "INSERT INTO t VALUES (2)").await;
    assert!(refused.is_err(), "{refused:?}");
    let ended = tokio::spawn({
        let db = Arc::clone(&f.db);
        async move { db.ended().await }
    });
    // Whoever waited for the write was told before the thread was gone.
    while f.db.store().logs().is_writing() {
        tokio::task::yield_now().await;
    }
    f.db.look(Instant::now(), WAIT).await;
    assert!(matches!(f.db.condition(), Condition::Ended(_)));
    assert_eq!(ended.await.unwrap(), "the thread that writes the log has ended");
    // It does not get well again.
    f.db.look(Instant::now(), WAIT).await;
    assert!(matches!(f.db.condition(), Condition::Ended(_)));
    // What was acknowledged is there after a start, and nothing else.
    let f = f.killed().await;
    assert_eq!(f.ok("SELECT v FROM t").await, ["1"]);
}
