//! Order, concurrency, segments, dropping, and the queue's limits.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::faults::{Faults, FaultyDisk};
use super::*;

#[test]
fn offsets_follow_the_order_of_submission() {
    const THREADS: u64 = 6;
    const WRITES: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let small = LogOptions {
        segment_bytes_max: 20_000,
        ..options()
    };
    let log = LogStore::open(&dir.path().join("log"), small).unwrap();
    for relation in 1..=3 {
        log.create(relation, one_column()).unwrap();
    }
    let expected: Mutex<BTreeMap<u64, Vec<i64>>> = Mutex::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let appenders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (log, expected) = (&log, &expected);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(thread);
                    for i in 0..WRITES {
                        let mut writes = Vec::new();
                        for relation in [1, 2, 3].choose_multiple(&mut random, 2) {
                            let count = random.random_range(1..5);
                            let value = (thread * WRITES + i) as i64;
                            writes.push(write(*relation, &vec![value; count]));
                        }
                        let prepared = log.prepare(writes.clone(), &[]).unwrap();
                        let mut order = expected.lock();
                        let receipt = log.submit(prepared);
                        let mut offsets = Vec::new();
                        for LogWrite { relation, changes } in &writes {
                            let relation_order = order.entry(*relation).or_default();
                            offsets.push(relation_order.len() as u64);
                            let values = changes.rows.column(0).as_primitive::<Int64Type>();
                            relation_order.extend(values.values());
                        }
                        drop(order);
                        let appended = receipt.wait().unwrap();
                        let first: Vec<_> = appended.iter().map(|part| part.first_offset).collect();
                        assert_eq!(first, offsets);
                        // Acknowledged is visible.
                        assert!(
                            log.head(appended[0].relation) >= appended[0].first_offset + appended[0].rows
                        );
                    }
                })
            })
            .collect();
        // Whoever reads meanwhile sees a prefix.
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let seen: Vec<i64> = log
                    .read(1, 0, u64::MAX)
                    .unwrap()
                    .flat_map(|b| {
                        b.unwrap()
                            .changes
                            .rows
                            .column(0)
                            .as_primitive::<Int64Type>()
                            .values()
                            .to_vec()
                    })
                    .collect();
                let expected = expected.lock().get(&1).cloned().unwrap_or_default();
                assert_eq!(seen, expected[..seen.len()]);
            }
        });
        for appender in appenders {
            appender.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    let expected = expected.into_inner();
    let check = |log: &LogStore| {
        for (relation, values) in &expected {
            assert_eq!(&contents(log, *relation), values);
        }
    };
    check(&log);
    drop(log);
    assert!(
        fs::read_dir(dir.path().join("log/1")).unwrap().count() > 2,
        "segments were rolled"
    );
    check(&open(dir.path()));
}

#[test]
fn writing_goes_on_after_reopening_in_the_same_segment() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).create(1, one_column()).unwrap();
    for i in 0..5 {
        let log = open(dir.path());
        let appended = append(&log, vec![write(1, &[i])]).unwrap();
        assert_eq!(appended[0].first_offset, i as u64);
    }
    assert_eq!(contents(&open(dir.path()), 1), [0, 1, 2, 3, 4]);
    assert_eq!(fs::read_dir(dir.path().join("log/1")).unwrap().count(), 1);
}

#[test]
fn every_durability_keeps_what_was_acknowledged() {
    for durability in [Durability::Fsync, Durability::Group, Durability::Off] {
        let dir = tempfile::tempdir().unwrap();
        let options = LogOptions {
            durability,
            group_commit_delay_ms_max: 5,
            ..options()
        };
        {
            let log = LogStore::open(&dir.path().join("log"), options.clone()).unwrap();
            log.create(1, one_column()).unwrap();
            let receipts: Vec<_> = (0..10).map(|i| log.append(vec![write(1, &[i])])).collect();
            for receipt in receipts {
                receipt.wait().unwrap();
            }
        }
        let log = LogStore::open(&dir.path().join("log"), options).unwrap();
        assert_eq!(contents(&log, 1), (0..10).collect::<Vec<_>>(), "{durability:?}");
    }
}

#[test]
fn what_waits_shares_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let log = open_with(dir.path(), Arc::new(FaultyDisk(faults.clone())));
    log.create(1, one_column()).unwrap();
    let before = faults.syncs();
    faults.close_gate();
    let first = log.append(vec![write(1, &[0])]);
    faults.await_writer_at_gate();
    let rest: Vec<_> = (1..20).map(|i| log.append(vec![write(1, &[i])])).collect();
    faults.open_gate();
    first.wait().unwrap();
    for receipt in rest {
        receipt.wait().unwrap();
    }
    assert_eq!(faults.syncs() - before, 2);
}

#[test]
fn a_full_queue_makes_the_caller_wait_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tiny = LogOptions {
        queue_bytes_max: 1,
        ..options()
    };
    let log = LogStore::open(&dir.path().join("log"), tiny).unwrap();
    log.create(1, one_column()).unwrap();
    let receipts: Vec<_> = (0..50).map(|i| log.append(vec![write(1, &[i])])).collect();
    for receipt in receipts {
        receipt.wait().unwrap();
    }
    assert_eq!(contents(&log, 1), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_reader_outlives_the_drop_and_then_the_files_go() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    append(&log, vec![write(1, &[1, 2]), write(1, &[3])]).unwrap();
    let mut reader = log.read(1, 0, u64::MAX).unwrap();
    log.remove(1).unwrap();
    assert!(!log.contains(1));
    assert!(matches!(
        log.read(1, 0, 1),
        Err(StorageError::UnknownRelation { relation: 1 })
    ));
    assert!(matches!(
        append(&log, vec![write(1, &[4])]),
        Err(StorageError::UnknownRelation { .. })
    ));
    assert!(matches!(log.remove(1), Err(StorageError::UnknownRelation { .. })));
    assert_eq!(
        reader
            .by_ref()
            .map(|block| block.unwrap().changes.num_rows())
            .sum::<usize>(),
        3
    );
    assert!(matches!(
        log.create(1, one_column()),
        Err(StorageError::RelationExists { .. })
    ));
    drop(reader);
    // The log's writer may be looking at the relation right now.
    let begin = std::time::Instant::now();
    while dir.path().join("log/1").exists() {
        assert!(begin.elapsed().as_secs() < 30, "the files stay");
        std::thread::yield_now();
    }
}

#[test]
fn a_drop_is_finished_and_a_half_made_log_forgotten_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    {
        let log = open(dir.path());
        log.create(1, one_column()).unwrap();
        log.create(2, one_column()).unwrap();
        append(&log, vec![write(1, &[1]), write(2, &[2])]).unwrap();
    }
    fs::write(dir.path().join("log/1/DROPPED"), "").unwrap();
    fs::create_dir(dir.path().join("log/3.creating")).unwrap();
    let log = open(dir.path());
    assert_eq!(log.relations(), [2]);
    assert!(!dir.path().join("log/1").exists());
    assert!(!dir.path().join("log/3.creating").exists());
    // The write's other half went with its relation: this half is whole.
    assert_eq!(contents(&log, 2), [2]);
}

#[test]
fn a_receipt_is_a_future() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    let mut receipt = Box::pin(log.append(vec![write(1, &[1])]));
    log.close().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let outcome = receipt.as_mut().poll(&mut context);
    assert!(matches!(outcome, std::task::Poll::Ready(Ok(appended)) if appended[0].rows == 1));
    let mut refused = Box::pin(log.append(vec![write(1, &[2])]));
    let outcome = refused.as_mut().poll(&mut context);
    assert!(matches!(
        outcome,
        std::task::Poll::Ready(Err(StorageError::Closed))
    ));
}
