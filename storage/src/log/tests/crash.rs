//! What a crash, or a bad disk, leaves in the files, and what opening makes of it.

use std::fs;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{Faults, FaultyDisk, snapshot};
use super::*;

fn segment(dir: &Path, relation: u64, first_offset: u64) -> PathBuf {
    dir.join("log")
        .join(relation.to_string())
        .join(super::segment::file_name(first_offset))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn truncate(path: &Path, bytes: u64) {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(bytes)
        .unwrap();
}

fn flip_bit(path: &Path, byte: u64, bit: u32) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte as usize] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

fn try_open(dir: &Path) -> Result<LogStore, StorageError> {
    LogStore::open(&dir.join("log"), options()).and_then(whole)
}

/// A log of relation 1 with the values 0, 1, .. in one block each; the file's size before each and at the end.
fn blocks(dir: &Path, count: i64) -> Vec<u64> {
    let log = open(dir);
    log.create(1, one_column()).unwrap();
    let path = segment(dir, 1, 0);
    let mut sizes = vec![size(&path)];
    for i in 0..count {
        append(&log, vec![write(1, &[i])]).unwrap();
        sizes.push(size(&path));
    }
    sizes
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    let path = segment(dir.path(), 1, 0);
    let whole = fs::read(&path).unwrap();
    for cut in sizes[2]..sizes[3] {
        as_after_a_crash(dir.path());
        fs::write(&path, &whole[..cut as usize]).unwrap();
        let log = open(dir.path());
        assert_eq!(contents(&log, 1), [0, 1], "cut at {cut}");
        assert_eq!(size(&path), sizes[2]);
        append(&log, vec![write(1, &[7])]).unwrap();
        assert_eq!(contents(&log, 1), [0, 1, 7]);
        drop(log);
        assert_eq!(contents(&open(dir.path()), 1), [0, 1, 7]);
    }
}

#[test]
fn a_tail_whose_bytes_never_reached_the_disk_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    let path = segment(dir.path(), 1, 0);
    let whole = fs::read(&path).unwrap();
    for hole in (sizes[2]..sizes[3]).step_by(64) {
        let mut bytes = whole.clone();
        bytes[hole as usize..].fill(0);
        bytes.resize(whole.len() + 4096, 0);
        as_after_a_crash(dir.path());
        fs::write(&path, bytes).unwrap();
        assert_eq!(contents(&open(dir.path()), 1), [0, 1], "nothing from {hole} on");
    }
}

#[test]
fn a_write_to_several_relations_torn_in_any_of_them_never_happened() {
    let dir = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    {
        let log = open(dir.path());
        for relation in 1..=3 {
            log.create(relation, one_column()).unwrap();
        }
        append(&log, vec![write(1, &[1]), write(2, &[2]), write(3, &[3])]).unwrap();
        sizes.extend((1..=3).map(|relation| size(&segment(dir.path(), relation, 0))));
        append(&log, vec![write(1, &[10, 11]), write(2, &[20]), write(3, &[30])]).unwrap();
    }
    for torn in 1..=3 {
        let path = segment(dir.path(), torn, 0);
        for cut in (sizes[torn as usize - 1]..size(&path)).step_by(11) {
            let copy = tempfile::tempdir().unwrap();
            snapshot(dir.path(), copy.path());
            as_after_a_crash(copy.path());
            truncate(&segment(copy.path(), torn, 0), cut);
            let log = open(copy.path());
            for relation in 1..=3 {
                assert_eq!(contents(&log, relation), [relation as i64], "{torn} cut at {cut}");
            }
            append(&log, vec![write(2, &[5]), write(3, &[6])]).unwrap();
            drop(log);
            assert_eq!(contents(&open(copy.path()), 3), [3, 6]);
        }
    }
}

#[test]
fn what_stood_on_an_unfinished_write_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let before;
    {
        let log = open(dir.path());
        for relation in 1..=4 {
            log.create(relation, one_column()).unwrap();
        }
        append(&log, vec![write(4, &[4])]).unwrap();
        before = size(&segment(dir.path(), 1, 0));
        append(&log, vec![write(1, &[1]), write(2, &[1])]).unwrap();
        append(&log, vec![write(2, &[2]), write(3, &[2])]).unwrap();
        append(&log, vec![write(3, &[3])]).unwrap();
        append(&log, vec![write(4, &[5])]).unwrap();
    }
    // The first write loses its block in relation 1, so the second stands on nothing in relation 2, and the
    // third in relation 3. Relation 4 has nothing to do with it.
    as_after_a_crash(dir.path());
    truncate(&segment(dir.path(), 1, 0), before);
    let log = open(dir.path());
    for relation in 1..=3 {
        assert_eq!(contents(&log, relation), [0; 0]);
    }
    assert_eq!(contents(&log, 4), [4, 5]);
}

#[test]
fn a_large_write_torn_between_its_blocks_never_happened() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<i64> = (0..150_000).collect();
    {
        let log = open(dir.path());
        log.create(1, one_column()).unwrap();
        append(&log, vec![write(1, &[1])]).unwrap();
        append(&log, vec![write(1, &numbers)]).unwrap();
    }
    as_after_a_crash(dir.path());
    let path = segment(dir.path(), 1, 0);
    truncate(&path, size(&path) - 100);
    assert_eq!(contents(&open(dir.path()), 1), [1]);
}

#[test]
fn any_flipped_bit_in_what_was_durable_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    let path = segment(dir.path(), 1, 0);
    let whole = fs::read(&path).unwrap();
    for byte in 0..sizes[2] {
        flip_bit(&path, byte, (byte % 8) as u32);
        match try_open(dir.path()) {
            Err(StorageError::Corrupt {
                path: named, offset, ..
            }) => {
                assert_eq!(named, path);
                let block = sizes
                    .iter()
                    .rev()
                    .find(|start| **start <= byte)
                    .copied()
                    .unwrap_or(0);
                assert_eq!(offset, block, "byte {byte}");
            }
            other => panic!("byte {byte}: {other:?}"),
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(contents(&open(dir.path()), 1), [0, 1, 2]);
}

#[test]
fn a_damaged_log_is_not_opened_and_the_others_are() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    {
        let log = open(dir.path());
        log.create(2, one_column()).unwrap();
        append(&log, vec![write(1, &[3]), write(2, &[3])]).unwrap();
        append(&log, vec![write(2, &[4])]).unwrap();
    }
    let path = segment(dir.path(), 1, 0);
    flip_bit(&path, sizes[1] + 30, 0);
    let log = open(dir.path());
    let damage = log.damage(1).unwrap();
    assert!(
        matches!(&damage, StorageError::Corrupt { path: named, offset, .. } if *named == path && *offset == sizes[1]),
        "{damage}"
    );
    assert_eq!(
        contents(&log, 2),
        [3, 4],
        "what it shares with the damaged one is kept"
    );
    append(&log, vec![write(2, &[5])]).unwrap();
    assert_eq!((log.relations(), log.contains(1)), (vec![1, 2], true));
    let same = |error: StorageError| error.to_string() == damage.to_string();
    assert!(append(&log, vec![write(1, &[9])]).is_err_and(same));
    assert!(log.read(1, 0, 9).is_err_and(same));
    assert!(log.copies(|| Ok(())).is_err_and(same));
    assert!(log.create(1, one_column()).is_err());
    log.maintain(1_000_000, &Everything);
    drop(log);
    // Its files are as they were: who has a better copy of one is served.
    flip_bit(&path, sizes[1] + 30, 0);
    let log = open(dir.path());
    assert_eq!(contents(&log, 1), [0, 1, 2, 3]);
    assert_eq!(contents(&log, 2), [3, 4, 5]);
    drop(log);
    flip_bit(&path, sizes[1] + 30, 0);
    let log = open(dir.path());
    log.remove(1).unwrap();
    assert_eq!((log.relations(), log.damage(1).is_some()), (vec![2], false));
    assert!(!path.parent().unwrap().exists());
    drop(log);
    assert_eq!(contents(&open(dir.path()), 2), [3, 4, 5]);
}

#[test]
fn half_of_a_write_is_dropped_though_the_log_of_the_other_half_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    {
        let log = open(dir.path());
        log.create(2, one_column()).unwrap();
        append(&log, vec![write(2, &[4])]).unwrap();
    }
    let path = segment(dir.path(), 1, 0);
    let before = size(&path);
    append(&open(dir.path()), vec![write(1, &[3]), write(2, &[5])]).unwrap();
    // The crash came before its part was in the log that is damaged elsewhere.
    as_after_a_crash(dir.path());
    truncate(&path, before);
    flip_bit(&path, sizes[1] + 30, 0);
    let log = open(dir.path());
    assert!(log.damage(1).is_some());
    assert_eq!(contents(&log, 2), [4]);
    drop(log);
    // Of a log that tells nothing any more, nothing is concluded.
    append(&open(dir.path()), vec![write(2, &[6])]).unwrap();
    fs::remove_file(&path).unwrap();
    let log = open(dir.path());
    assert!(log.damage(1).is_some());
    assert_eq!(contents(&log, 2), [4, 6]);
}

/// The last block looks the same when it was torn and when it was damaged; that it was durable is written down.
#[test]
fn damage_of_the_last_block_is_not_taken_for_a_torn_write() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = blocks(dir.path(), 3);
    let path = segment(dir.path(), 1, 0);
    let whole = fs::read(&path).unwrap();
    for byte in sizes[2]..sizes[3] {
        flip_bit(&path, byte, (byte % 8) as u32);
        let damaged = fs::read(&path).unwrap();
        let log = LogStore::open(&dir.path().join("log"), options()).unwrap();
        let Some(StorageError::Corrupt { why, .. }) = log.damage(1) else {
            panic!("byte {byte}");
        };
        assert!(why.contains("durable up to offset 3"), "{why}");
        drop(log);
        assert_eq!(fs::read(&path).unwrap(), damaged, "nothing is cut off");
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(contents(&open(dir.path()), 1), [0, 1, 2]);
}

#[test]
fn a_log_that_is_gone_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    blocks(dir.path(), 3);
    let directory = dir.path().join("log/1");
    let away = dir.path().join("away");
    fs::rename(&directory, &away).unwrap();
    for _ in 0..2 {
        let log = LogStore::open(&dir.path().join("log"), options()).unwrap();
        assert!(
            log.damage(1)
                .is_some_and(|error| error.to_string().contains("not there"))
        );
        assert!(!directory.exists());
    }
    fs::rename(&away, &directory).unwrap();
    assert_eq!(contents(&open(dir.path()), 1), [0, 1, 2]);
    // Who drops it is not asked for it.
    let log = open(dir.path());
    log.remove(1).unwrap();
    drop(log);
    assert!(open(dir.path()).relations().is_empty());
}

#[test]
fn what_says_how_far_the_logs_go_may_be_damaged_itself() {
    let dir = tempfile::tempdir().unwrap();
    blocks(dir.path(), 3);
    let path = heads::path(&dir.path().join("log"));
    flip_bit(&path, size(&path) / 2, 0);
    assert_eq!(contents(&open(dir.path()), 1), [0, 1, 2]);
}

#[test]
fn damage_under_a_running_store_is_reported_by_the_reader() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    for i in 0..3 {
        append(&log, vec![write(1, &[i])]).unwrap();
    }
    let path = segment(dir.path(), 1, 0);
    let middle = size(&path) - (size(&path) / 3);
    flip_bit(&path, middle, 0);
    let found: Vec<_> = log.read(1, 0, 3).unwrap().collect();
    assert_eq!(found.iter().filter(|block| block.is_err()).count(), 1);
    let named = found
        .iter()
        .any(|b| matches!(b, Err(StorageError::Corrupt { path: named, .. }) if *named == path));
    assert!(named, "{found:?}");
    truncate(&path, middle);
    assert!(
        log.read(1, 2, 3)
            .unwrap()
            .all(|b| matches!(b, Err(StorageError::Corrupt { .. })))
    );
}

#[test]
fn only_the_last_segment_may_have_a_torn_tail() {
    let dir = tempfile::tempdir().unwrap();
    let small = LogOptions {
        segment_bytes_max: 1000,
        ..options()
    };
    {
        let log = LogStore::open(&dir.path().join("log"), small).unwrap();
        log.create(1, one_column()).unwrap();
        for i in 0..10 {
            append(&log, vec![write(1, &[i])]).unwrap();
        }
    }
    let segments = super::segment::list(&OsDisk, &dir.path().join("log/1")).unwrap();
    assert!(segments.len() > 2);
    let (_, first) = &segments[0];
    let whole = fs::read(first).unwrap();
    truncate(first, size(first) - 1);
    assert!(matches!(try_open(dir.path()), Err(StorageError::Corrupt { .. })));
    fs::write(first, &whole).unwrap();
    // A segment in the middle, or the first, cannot be missing.
    for i in [0, 1] {
        let copy = tempfile::tempdir().unwrap();
        snapshot(dir.path(), copy.path());
        fs::remove_file(segment(copy.path(), 1, segments[i].0)).unwrap();
        assert!(matches!(try_open(copy.path()), Err(StorageError::Corrupt { .. })));
    }
    // One that was being made when the crash came is no loss.
    for bytes in [&b""[..], b"MLRS", &[0; 200]] {
        fs::write(segment(dir.path(), 1, 10), bytes).unwrap();
        let log = open(dir.path());
        assert_eq!(contents(&log, 1), (0..10).collect::<Vec<_>>());
        assert!(!segment(dir.path(), 1, 10).exists());
    }
    // But one with blocks is.
    let (_, last) = &segments[segments.len() - 1];
    flip_bit(last, 20, 0);
    assert!(matches!(
        try_open(dir.path()),
        Err(StorageError::Corrupt { offset: 0, .. })
    ));
}

#[test]
fn a_kill_at_any_moment_keeps_what_was_acknowledged_and_whole_writes_only() {
    for seed in 0..10 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let small = LogOptions {
            segment_bytes_max: 3000,
            ..options()
        };
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk(faults.clone()));
        let log = LogStore::open_with(&dir.path().join("log"), small, disk).unwrap();
        for relation in 1..=3 {
            log.create(relation, one_column()).unwrap();
        }
        let acknowledged = random.random_range(0..12);
        for i in 0..acknowledged {
            append(&log, (1..=3).map(|relation| write(relation, &[i])).collect()).unwrap();
        }
        // The writer is held with a group of several writes half written.
        faults.close_gate();
        let first = log.append((1..=3).map(|relation| write(relation, &[acknowledged])).collect());
        faults.await_writer_at_gate();
        let copy = tempfile::tempdir().unwrap();
        snapshot(dir.path(), copy.path());
        faults.open_gate();
        let rest: Vec<_> = (1..4)
            .map(|i| {
                log.append(
                    (1..=3)
                        .map(|relation| write(relation, &[acknowledged + i]))
                        .collect(),
                )
            })
            .collect();
        first.wait().unwrap();
        for receipt in rest {
            receipt.wait().unwrap();
        }
        drop(log);
        assert_prefix(copy.path(), acknowledged);
        // And after a disk that lied about its syncs: the end of a file is gone. Writes are whole even then.
        let torn = random.random_range(1..=3);
        let (_, last) = super::segment::list(&OsDisk, &dir.path().join(format!("log/{torn}")))
            .unwrap()
            .pop()
            .unwrap();
        as_after_a_crash(dir.path());
        truncate(&last, size(&last) - random.random_range(0..300));
        assert_prefix(dir.path(), acknowledged.min(1));
    }
}

fn assert_prefix(dir: &Path, at_least: i64) {
    let log = open(dir);
    let found = contents(&log, 1);
    assert!(found.len() as i64 >= at_least, "{found:?}");
    assert_eq!(found, (0..found.len() as i64).collect::<Vec<_>>());
    for relation in 2..=3 {
        assert_eq!(contents(&log, relation), found);
    }
}
