//! A full disk and a failing one, while the store runs.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{Faults, FaultyDisk};
use super::*;

fn faulty(dir: &Path, segment_bytes_max: u64) -> (Arc<Faults>, LogStore) {
    let faults = Arc::new(Faults::default());
    let options = LogOptions {
        segment_bytes_max,
        ..options()
    };
    let disk = Arc::new(FaultyDisk(faults.clone()));
    let log = LogStore::open_with(&dir.join("log"), options, disk).unwrap();
    (faults, log)
}

#[test]
fn a_disk_full_at_any_byte_takes_back_the_whole_write_and_the_next_one_works() {
    // Large segments, and segments so small that the write makes new ones.
    for segment_bytes_max in [1 << 20, 1200] {
        let dir = tempfile::tempdir().unwrap();
        let (faults, log) = faulty(dir.path(), segment_bytes_max);
        log.create(1, one_column()).unwrap();
        log.create(2, one_column()).unwrap();
        let both = |value: i64| vec![write(1, &[value]), write(2, &[value]), write(1, &[value])];
        let mut kept = vec![0];
        append(&log, both(0)).unwrap();
        let before = faults.bytes_written();
        append(&log, both(1)).unwrap();
        kept.push(1);
        let needed = faults.bytes_written() - before;
        let mut failures = 0;
        for room in (0..needed).step_by(7) {
            faults.set_room(Some(room));
            match append(&log, both(room as i64)) {
                Err(StorageError::Full { .. }) => failures += 1,
                // A write that happens to need no new segments may fit.
                Ok(_) => kept.push(room as i64),
                Err(error) => panic!("{error}"),
            }
            faults.set_room(None);
            if room % 5 == 0 {
                append(&log, both(-1)).unwrap();
                kept.push(-1);
            }
        }
        assert!(failures > 100);
        let check = |log: &LogStore| {
            let twice: Vec<i64> = kept.iter().flat_map(|value| [*value, *value]).collect();
            assert_eq!(contents(log, 1), twice);
            assert_eq!(contents(log, 2), kept);
        };
        check(&log);
        drop(log);
        check(&open(dir.path()));
    }
}

#[test]
fn what_was_queued_behind_a_failed_write_fails_if_it_depends_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let (faults, log) = faulty(dir.path(), 1 << 20);
    for relation in 1..=4 {
        log.create(relation, one_column()).unwrap();
    }
    faults.close_gate();
    let held = log.append(vec![write(4, &[0])]);
    faults.await_writer_at_gate();
    // One batch larger than all the others together is the one for which there is no space.
    let large: Vec<i64> = (0..4000).collect();
    let good = log.append(vec![write(1, &[1])]);
    let fails = log.append(vec![write(1, &large)]);
    let same = log.append(vec![write(1, &[2]), write(2, &[2])]);
    let by_way_of_2 = log.append(vec![write(2, &[3])]);
    let other = log.append(vec![write(3, &[4])]);
    faults.set_room(Some(20_000));
    faults.open_gate();
    held.wait().unwrap();
    good.wait().unwrap();
    for receipt in [fails, same, by_way_of_2] {
        let error = receipt.wait().unwrap_err();
        assert!(matches!(error, StorageError::Full { .. }), "{error}");
    }
    // The failed write's beginning used up the room, so this one comes too late as well, or not.
    let other = other.wait();
    faults.set_room(None);
    append(&log, vec![write(1, &[5]), write(2, &[5])]).unwrap();
    assert_eq!(contents(&log, 1), [1, 5]);
    assert_eq!(contents(&log, 2), [5]);
    assert_eq!(contents(&log, 3), if other.is_ok() { vec![4] } else { vec![] });
}

#[test]
fn what_a_failed_sync_may_have_lost_is_written_again_and_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (faults, log) = faulty(dir.path(), 1 << 20);
    for relation in 1..=3 {
        log.create(relation, one_column()).unwrap();
        append(&log, vec![write(relation, &[0])]).unwrap();
    }
    // Only the file that there is cannot be synced: nobody notices.
    faults.fail_syncs_of(Some("log/1/00000000000000000000.seg"));
    append(&log, vec![write(1, &[1]), write(2, &[1])]).unwrap();
    append(&log, vec![write(1, &[2])]).unwrap();
    assert_eq!(contents(&log, 1), [0, 1, 2]);
    // None can.
    faults.fail_syncs_of(Some("log/1"));
    let error = append(&log, vec![write(1, &[3]), write(2, &[3])]).unwrap_err();
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
    append(&log, vec![write(3, &[1])]).unwrap();
    append(&log, vec![write(1, &[4])]).unwrap_err();
    // Relation 2 shared the write, which is nowhere; it can be written to.
    append(&log, vec![write(2, &[4])]).unwrap();
    let check = |log: &LogStore, last: &[i64]| {
        assert_eq!(contents(log, 1), [&[0, 1, 2], last].concat());
        assert_eq!(contents(log, 2), [0, 1, 4]);
        assert_eq!(contents(log, 3), [0, 1]);
    };
    check(&log, &[]);
    faults.fail_syncs_of(None);
    append(&log, vec![write(1, &[5])]).unwrap();
    check(&log, &[5]);
    log.close().unwrap();
    drop(log);
    let log = open(dir.path());
    check(&log, &[5]);
    append(&log, vec![write(1, &[6])]).unwrap();
    check(&log, &[5, 6]);
}

#[test]
fn a_failed_sync_while_a_segment_is_closed_moves_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions {
        durability: Durability::Off,
        segment_bytes_max: 2500,
        ..options()
    };
    let faults = Arc::new(Faults::default());
    let disk = Arc::new(FaultyDisk(faults.clone()));
    let log = LogStore::open_with(&dir.path().join("log"), options, disk).unwrap();
    log.create(1, one_column()).unwrap();
    append(&log, vec![write(1, &[0])]).unwrap();
    let mut reader = log.read(1, 0, u64::MAX).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().first_offset, 0);
    faults.fail_syncs_of(Some("log/1"));
    let mut kept = vec![0];
    while append(&log, vec![write(1, &[kept.len() as i64])]).is_ok() {
        kept.push(kept.len() as i64);
    }
    assert!(kept.len() > 3);
    assert_eq!(contents(&log, 1), kept);
    faults.fail_syncs_of(None);
    for _ in 0..10 {
        append(&log, vec![write(1, &[kept.len() as i64])]).unwrap();
        kept.push(kept.len() as i64);
    }
    assert_eq!(contents(&log, 1), kept);
    drop(log);
    assert_eq!(contents(&open(dir.path()), 1), kept);
}

#[test]
fn random_fullness_under_load_keeps_exactly_what_was_acknowledged() {
    for seed in 0..15 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let (faults, log) = faulty(dir.path(), 4000);
        for relation in 1..=3 {
            log.create(relation, one_column()).unwrap();
        }
        let mut kept = [const { Vec::new() }; 4];
        for round in 0..20 {
            let room = random.random_bool(0.7).then(|| random.random_range(0..3000));
            faults.set_room(room);
            let submitted: Vec<_> = (0..random.random_range(1..6))
                .map(|i| {
                    let value = round * 10 + i;
                    let relations: Vec<u64> = (1..=3).filter(|_| random.random_bool(0.5)).collect();
                    let writes = relations
                        .iter()
                        .map(|relation| write(*relation, &[value]))
                        .collect();
                    (value, relations, log.append(writes))
                })
                .collect();
            for (value, relations, receipt) in submitted {
                if receipt.wait().is_ok() {
                    relations
                        .iter()
                        .for_each(|relation| kept[*relation as usize].push(value));
                }
            }
        }
        faults.set_room(None);
        drop(log);
        let log = open(dir.path());
        for relation in 1..=3 {
            assert_eq!(contents(&log, relation), kept[relation as usize], "seed {seed}");
        }
    }
}
