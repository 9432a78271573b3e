//! Who is served when.

use std::sync::mpsc;

use millrace_storage::{LogDevice, LogGroup};

use super::*;
use crate::memory::{Holder, Resident, Use};

fn disk(concurrency: usize) -> Arc<DiskScheduler> {
    DiskScheduler::new("test", 0, concurrency, &Memory::new(None, Resident::Unknown))
}

fn moved(bytes: u64) -> Moved {
    Moved { bytes, rows: 0 }
}

/// Occupies the device until what is returned is dropped.
async fn occupy(disk: &Arc<DiskScheduler>) -> (mpsc::Sender<()>, tokio::task::JoinHandle<DiskUse>) {
    let (release, released) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel::<()>();
    let disk = Arc::clone(disk);
    let first = tokio::spawn(async move {
        let work = move || {
            begun.send(()).unwrap();
            // An error: the sender is gone, which is the sign.
            let _ = released.recv();
            ((), moved(1))
        };
        disk.serve(Phase::Read, 0, work).await.unwrap().1
    });
    begins.await.unwrap();
    (release, first)
}

#[tokio::test]
async fn no_more_are_in_flight_than_fit_and_phases_take_turns() {
    let disk = disk(1);
    let order = Arc::new(Mutex::new(vec![]));
    let (release, first) = occupy(&disk).await;
    let requests = [
        ("read 1", Phase::Read),
        ("gone", Phase::Read),
        ("read 2", Phase::Read),
        ("write 1", Phase::Write),
        ("write 2", Phase::Write),
        ("reread", Phase::Reread),
    ];
    let mut waiting: Vec<_> = requests
        .iter()
        .map(|&(name, phase)| {
            let order = Arc::clone(&order);
            Box::pin(disk.serve(phase, 0, move || {
                order.lock().push(name);
                ((), moved(1))
            }))
        })
        .collect();
    // They are in the queue once they have been polled.
    for request in &mut waiting {
        assert!(futures::poll!(request).is_pending());
    }
    // One that has gone is passed over.
    drop(waiting.remove(1));
    assert!(order.lock().is_empty());
    drop(release);
    let used = first.await.unwrap();
    assert!(used.service > Duration::ZERO && used.moved.bytes == 1);
    for served in futures::future::join_all(waiting).await {
        let (_, used) = served.unwrap();
        assert!(used.started >= used.queued);
    }
    let expected = ["write 1", "reread", "read 1", "write 2", "read 2"];
    // What has gone takes its turn, and does nothing in it.
    assert_eq!(*order.lock(), expected);
}

fn log_group(bytes: u64) -> LogGroup {
    let now = Instant::now();
    LogGroup {
        queued: now,
        started: now,
        bytes,
    }
}

#[tokio::test]
async fn the_log_does_not_wait_and_leaves_a_place() {
    let disk = disk(2);
    let (release_first, first) = occupy(&disk).await;
    // It begins though others are in flight, and takes the second place.
    disk.begin();
    let mut waits = Box::pin(disk.serve(Phase::Read, 0, || ((), moved(1))));
    assert!(futures::poll!(&mut waits).is_pending());
    assert_eq!(disk.shared.state.lock().in_flight, 1);
    assert!(disk.shared.next(&mut disk.shared.state.lock()).is_none());
    // Its end is what the second one waits for.
    disk.end(log_group(77));
    waits.await.unwrap();
    drop(release_first);
    first.await.unwrap();
    let totals = disk.totals();
    assert_eq!((totals.log.monotasks, totals.log.bytes), (1, 77));
    assert_eq!(totals.write, Totals::default());
    assert_eq!(disk.shared.state.lock().log_in_flight, 0);
}

#[tokio::test]
async fn writes_to_the_log_without_end_are_not_the_end_of_queries() {
    let disk = disk(1);
    disk.begin();
    disk.serve(Phase::Read, 0, || ((), moved(5))).await.unwrap();
    disk.end(log_group(1));
}

#[tokio::test]
async fn a_panic_ends_its_request_alone() {
    let disk = disk(1);
    let panics = disk.serve(Phase::Read, 0, || -> ((), Moved) { panic!("a wrong turn") });
    assert!(panics.await.is_err());
    let (seven, _) = disk.serve(Phase::Write, 0, || (7, moved(0))).await.unwrap();
    assert_eq!(seven, 7);
}

#[tokio::test]
async fn a_rate_stands_for_a_slower_device() {
    let disk = disk(2);
    disk.set_bytes_per_second(Some(100_000));
    let begin = Instant::now();
    let requests = (0..4).map(|_| disk.serve(Phase::Read, 0, || ((), moved(500))));
    let served = futures::future::join_all(requests).await;
    let elapsed = begin.elapsed();
    // Two thousand bytes at a hundred thousand a second, however many are in flight.
    assert!(elapsed >= Duration::from_millis(20), "{elapsed:?}");
    let mut times: Vec<(Duration, Duration)> = (served.into_iter())
        .map(|served| served.unwrap().1)
        .map(|used| (used.queue(), used.service))
        .collect();
    times.sort();
    assert!(
        times
            .iter()
            .all(|(_, service)| *service >= Duration::from_millis(5))
    );
    // They are served one after the other.
    assert!(times[3].0 >= Duration::from_millis(9), "{times:?}");
}

#[tokio::test]
async fn a_read_waits_for_memory_and_writes_go_first() {
    let memory = Memory::new(Some(1_000_000), Resident::Unknown);
    let disk = DiskScheduler::new("test", 0, 2, &memory);
    let order = Arc::new(Mutex::new(vec![]));
    // 700 of the 800 kB that there are before memory is short.
    let account = memory.account(Holder::Query(1), "a query");
    let held = account.charge(Use::Query, 700_000);
    let (release, first) = occupy(&disk).await;
    let serve = |name: &'static str, phase, buffer_bytes| {
        let order = Arc::clone(&order);
        Box::pin(disk.serve(phase, buffer_bytes, move || {
            order.lock().push(name);
            ((), moved(1))
        }))
    };
    let mut large = serve("large read", Phase::Read, 200_000);
    assert!(futures::poll!(&mut large).is_pending());
    // There is a place, but no room for the buffer; what fits goes past it once it is its phase's turn.
    let (small, write) = (
        serve("reread", Phase::Reread, 50_000),
        serve("write", Phase::Write, 0),
    );
    small.await.unwrap();
    write.await.unwrap();
    assert!(futures::poll!(&mut large).is_pending());
    // Short of memory nothing is read as long as something else is in flight.
    let more = account.charge(Use::Query, 250_000);
    let mut small = serve("reread", Phase::Reread, 1);
    assert!(futures::poll!(&mut small).is_pending());
    serve("write", Phase::Write, 0).await.unwrap();
    assert_eq!(*order.lock(), ["reread", "write", "write"]);
    drop(more);
    drop(held);
    drop(release);
    first.await.unwrap();
    large.await.unwrap();
    small.await.unwrap();
    // Whatever the memory: with nothing in flight something begins.
    let _held = account.charge(Use::Query, 5_000_000);
    serve("alone", Phase::Read, 9_000_000).await.unwrap();
    assert_eq!(order.lock().last(), Some(&"alone"));
}
