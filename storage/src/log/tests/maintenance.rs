//! Retention, holds, rolling by time, and compaction: what goes, what stays, and what a crash in between leaves.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::disk::simulated::{Fault, Faults, SimulatedDisk};

fn small(disk: Arc<dyn Disk>, segment_bytes_max: u64) -> LogStore {
    let options = LogOptions {
        segment_bytes_max,
        ..options()
    };
    LogStore::open_with(Path::new("/simulated/log"), options, disk).unwrap()
}

fn new_disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, Path::new("/simulated"))
}

fn segments(disk: &SimulatedDisk, relation: u64) -> Vec<u64> {
    let directory = format!("/simulated/log/{relation}");
    let listed = super::segment::list(disk, Path::new(&directory)).unwrap();
    listed.into_iter().map(|(first, _)| first).collect()
}

/// The values that are kept, checking that they are those of their offsets.
fn kept(log: &LogStore, relation: u64) -> std::ops::Range<u64> {
    let first = log.first(relation);
    let mut next = first;
    for block in log.read(relation, 0, u64::MAX).unwrap() {
        let block = block.unwrap();
        assert_eq!(block.first_offset, next);
        for value in block.changes.rows.column(0).as_primitive::<Int64Type>().values() {
            assert_eq!(*value as u64, next);
            next += 1;
        }
    }
    assert_eq!(log.head(relation), next);
    first..next
}

/// Appends the value that is its offset.
fn grow(log: &LogStore, relation: u64) {
    append(log, vec![write(relation, &[log.head(relation) as i64])]).unwrap();
}

fn retain(retention_ms: Option<i64>, retention_bytes: Option<u64>) -> RelationOptions {
    RelationOptions {
        retention_ms,
        retention_bytes,
        ..RelationOptions::default()
    }
}

/// Who needs rows from this offset on.
struct Needs(u64);

impl LogOwner for Needs {
    fn needed(&self, _: u64) -> u64 {
        self.0
    }

    fn settled(&self, _: u64) -> u64 {
        self.0
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }
}

const NOTHING: &Needs = &Needs(u64::MAX);

#[test]
fn rows_go_when_their_time_is_over_and_never_while_they_are_needed() {
    let disk = new_disk(1);
    let log = small(Arc::new(disk.clone()), 1 << 20);
    log.create(1, one_column()).unwrap();
    log.set_options(1, retain(Some(8_000), None)).unwrap();
    // A row a second: a segment spans an eighth of the time.
    for second in 0..20 {
        log.maintain(second * 1000, &Needs(3));
        grow(&log, 1);
    }
    assert_eq!(
        kept(&log, 1),
        2..20,
        "rows from 3 on are needed, in the segment from 2 on"
    );
    let held = log.hold(1, 7).unwrap();
    log.maintain(20_000, NOTHING);
    assert_eq!(kept(&log, 1), 6..20);
    let reader = log.read(1, 0, u64::MAX).unwrap();
    drop(held);
    log.maintain(20_000, NOTHING);
    assert_eq!(kept(&log, 1).start, 6, "it is being read");
    assert_eq!(
        reader
            .map(|block| block.unwrap().changes.num_rows())
            .sum::<usize>(),
        14
    );
    log.maintain(20_000, NOTHING);
    assert_eq!(kept(&log, 1), 12..20);
    // All of it goes, also the segment that was written to.
    log.maintain(30_000, NOTHING);
    log.maintain(30_000, NOTHING);
    assert_eq!(kept(&log, 1), 20..20);
    assert_eq!(segments(&disk, 1), [20]);
    let log = small(Arc::new(disk.kill()), 1 << 20);
    assert_eq!((log.first(1), log.head(1)), (20, 20));
    grow(&log, 1);
    assert_eq!(kept(&log, 1), 20..21);
}

#[test]
fn the_oldest_rows_go_when_there_are_too_many() {
    let disk = new_disk(2);
    let log = small(Arc::new(disk.clone()), 1200);
    log.create(1, one_column()).unwrap();
    log.set_options(1, retain(None, Some(4_000))).unwrap();
    for _ in 0..60 {
        grow(&log, 1);
        log.maintain(0, NOTHING);
    }
    let found = kept(&log, 1);
    assert!(found.start > 30 && found.end == 60, "{found:?}");
    log.set_options(1, RelationOptions::default()).unwrap();
    for _ in 0..20 {
        grow(&log, 1);
        log.maintain(i64::MAX, NOTHING);
    }
    assert_eq!(kept(&log, 1), found.start..80);
}

#[test]
fn a_write_over_two_logs_stays_whole_when_one_of_them_forgets_it() {
    let disk = new_disk(3);
    let log = small(Arc::new(disk.clone()), 1000);
    for relation in [1, 2] {
        log.create(relation, one_column()).unwrap();
    }
    log.set_options(1, retain(None, Some(0))).unwrap();
    for value in 0..20 {
        append(&log, vec![write(1, &[value]), write(2, &[value])]).unwrap();
    }
    log.maintain(0, NOTHING);
    let first = kept(&log, 1);
    assert!(first.start > 10, "{first:?}");
    let log = small(Arc::new(disk.crash()), 1000);
    assert_eq!(kept(&log, 1), first);
    assert_eq!(kept(&log, 2), 0..20);
}

#[test]
fn small_neighbours_are_put_together_under_a_reader() {
    let disk = new_disk(4);
    let log = small(Arc::new(disk.clone()), 1000);
    log.create(1, one_column()).unwrap();
    for _ in 0..30 {
        grow(&log, 1);
    }
    drop(log);
    let disk = disk.crash();
    // Larger segments are allowed now.
    let log = small(Arc::new(disk.clone()), 8_000);
    let before = segments(&disk, 1);
    assert!(before.len() > 10);
    let mut reader = log.read(1, 0, u64::MAX).unwrap();
    let mut read = 0;
    for _ in 0..10 {
        read += reader.next().map_or(0, |block| block.unwrap().changes.num_rows());
        log.maintain(0, NOTHING);
    }
    read += reader
        .map(|block| block.unwrap().changes.num_rows())
        .sum::<usize>();
    assert_eq!(read, 30);
    let after = segments(&disk, 1);
    assert!(after.len() * 2 < before.len(), "{after:?}");
    assert_eq!(kept(&log, 1), 0..30);
    log.maintain(0, NOTHING);
    assert_eq!(segments(&disk, 1), after, "what was put together is left alone");
    let log = small(Arc::new(disk.crash()), 8_000);
    assert_eq!(kept(&log, 1), 0..30);
}

#[test]
fn a_crash_or_an_error_at_every_operation_of_maintenance_keeps_what_is_needed() {
    for (fault, at) in [Fault::Off, Fault::Device, Fault::Full]
        .into_iter()
        .flat_map(|fault| (1..60).map(move |at| (fault, at)))
    {
        let what = format!("{fault:?} at {at}");
        let mut random = StdRng::seed_from_u64(at);
        let disk = new_disk(at);
        let log = small(Arc::new(disk.clone()), 1000);
        log.create(1, one_column()).unwrap();
        (0..30).for_each(|_| grow(&log, 1));
        drop(log);
        let disk = disk.crash();
        let log = small(Arc::new(disk.clone()), 6_000);
        log.set_options(1, retain(None, Some(6_000))).unwrap();
        disk.set_faults(Faults {
            at: Some((disk.operations() + at, fault)),
            ..Faults::default()
        });
        let needed = random.random_range(0..30);
        for _ in 0..5 {
            log.maintain(0, &Needs(needed));
        }
        if fault != Fault::Off {
            let found = kept(&log, 1);
            assert!(found.start <= needed && found.end == 30, "{what}: {found:?}");
        }
        let disk = disk.crash();
        let log = small(Arc::new(disk.clone()), 6_000);
        let found = kept(&log, 1);
        assert!(found.start <= needed && found.end == 30, "{what}: {found:?}");
        log.set_options(1, retain(None, Some(6_000))).unwrap();
        for _ in 0..5 {
            log.maintain(0, &Needs(needed));
        }
        grow(&log, 1);
        let found = kept(&log, 1);
        assert!(found.start <= needed && found.end == 31, "{what}: {found:?}");
        let log = small(Arc::new(disk.crash()), 6_000);
        assert_eq!(kept(&log, 1), found, "{what}");
    }
}
