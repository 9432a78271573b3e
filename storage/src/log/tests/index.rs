//! Indexes of closed segments: an open reads nothing of these, believes no wrong one, and damage is found by whoever reads it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::log::index;

const BLOCK_ROWS: i64 = 100;

fn small(dir: &Path) -> LogStore {
    let options = LogOptions {
        segment_bytes_max: 8 << 10,
        ..options()
    };
    LogStore::open_with(&dir.join("log"), options, Arc::new(OsDisk)).unwrap()
}

/// Appends blocks of values that are their offsets, each of a write over both relations.
fn fill(log: &LogStore, blocks: i64) {
    for _ in 0..blocks {
        let head = log.head(1) as i64;
        let content: Vec<i64> = (head..head + BLOCK_ROWS).collect();
        append(log, vec![write(1, &content), write(2, &[head])]).unwrap();
    }
}

fn index_all(log: &LogStore) {
    for _ in 0..100 {
        log.maintain(0, &Everything);
    }
}

fn indexes(dir: &Path) -> Vec<u64> {
    let mut found: Vec<u64> = (index::list(&OsDisk, &dir.join("log/1")).unwrap().into_iter())
        .map(|(first, _)| first)
        .collect();
    found.sort_unstable();
    found
}

fn segments(dir: &Path) -> Vec<u64> {
    let listed = segment::list(&OsDisk, &dir.join("log/1")).unwrap();
    listed.into_iter().map(|(first, _)| first).collect()
}

/// Flips a bit in the middle of a segment's file.
fn damage(dir: &Path, segment: u64) {
    let path = dir.join("log/1").join(segment::file_name(segment));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&path, bytes).unwrap();
}

fn sample(dir: &Path) -> (Vec<u64>, i64) {
    let log = small(dir);
    log.create(1, one_column()).unwrap();
    log.create(2, one_column()).unwrap();
    fill(&log, 60);
    index_all(&log);
    log.close().unwrap();
    let segments = segments(dir);
    assert!(segments.len() > 5, "{segments:?}");
    assert_eq!(indexes(dir), segments[..segments.len() - 1]);
    (segments, 60 * BLOCK_ROWS)
}

/// A log of 40 writes with a note each, its closed segments indexed.
fn noted(dir: &Path) {
    let log = small(dir);
    log.create(1, one_column()).unwrap();
    let rows: Vec<i64> = (0..BLOCK_ROWS).collect();
    for number in 0..40 {
        let prepared = log.prepare(vec![write(1, &rows)], format!("note {number}").as_bytes());
        log.submit(prepared.unwrap()).wait().unwrap();
    }
    index_all(&log);
    log.close().unwrap();
}

/// The bytes of an index with notes.
pub(super) fn some_index() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    noted(dir.path());
    std::fs::read(index::path(&dir.path().join("log/1"), 0)).unwrap()
}

#[test]
fn what_has_an_index_is_not_read_at_open_and_checked_when_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (segments, rows) = sample(dir.path());
    damage(dir.path(), segments[2]);
    let log = small(dir.path());
    assert_eq!(log.head(1), rows as u64);
    let last = log.read(1, segments[3], u64::MAX).unwrap();
    let read: usize = last.map(|block| block.unwrap().changes.num_rows()).sum();
    assert_eq!(
        read as u64,
        rows as u64 - segments[3],
        "what is behind the damage is there"
    );
    let error = log.read(1, 0, u64::MAX).unwrap().find_map(Result::err).unwrap();
    match &error {
        StorageError::Corrupt { path, offset, .. } => {
            assert!(path.ends_with(segment::file_name(segments[2])), "{path:?}");
            assert!(*offset > 0);
        }
        other => panic!("{other}"),
    }
    fill(&log, 1);
    assert!(log.distrust(&error).unwrap());
    log.close().unwrap();
    // Without the index the open finds it.
    let log = small(dir.path());
    assert_eq!(
        log.damage(1).map(|found| found.to_string()),
        Some(error.to_string())
    );
    assert!(!log.distrust(&error).unwrap(), "all of it was read");
}

#[test]
fn indexes_that_are_damaged_or_of_other_segments_are_passed_over() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let (segments, rows) = sample(dir.path());
    let of = |segment: u64| index::path(&dir.path().join("log/1"), segment);
    let whole = std::fs::read(of(segments[1])).unwrap();
    for _ in 0..30 {
        let mut bytes = whole.clone();
        match random.random_range(0..4) {
            0 => bytes.truncate(random.random_range(0..bytes.len())),
            1 => bytes.extend([0; 7]),
            2 => bytes = std::fs::read(of(segments[3])).unwrap(),
            _ => {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
            }
        }
        std::fs::write(of(segments[1]), bytes).unwrap();
        let log = small(dir.path());
        assert_eq!(contents(&log, 1), (0..rows).collect::<Vec<_>>());
        assert_eq!(log.relations(), [1, 2]);
        drop(log);
    }
    assert!(
        !indexes(dir.path()).contains(&segments[1]),
        "what is not believed goes"
    );
    let log = small(dir.path());
    index_all(&log);
    assert_eq!(
        indexes(dir.path()),
        segments[..segments.len() - 1],
        "and is rebuilt"
    );
}

#[test]
fn no_index_is_believed_when_a_log_has_lost_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (segments, _) = sample(dir.path());
    // The last segment was durable and is gone, as from a disk that lies about syncs.
    let last = *segments.last().unwrap();
    let path = dir.path().join("log/1").join(segment::file_name(last));
    as_after_a_crash(dir.path());
    std::fs::write(&path, [0; 40]).unwrap();
    let log = small(dir.path());
    let head = log.head(1);
    assert_eq!(head, last);
    assert_eq!(
        log.head(2),
        head / BLOCK_ROWS as u64,
        "a write is whole in both logs, or gone"
    );
    assert!(indexes(dir.path()).is_empty());
    let more: Vec<i64> = (head as i64..head as i64 + 10).collect();
    append(&log, vec![write(1, &more)]).unwrap();
    index_all(&log);
    drop(log);
    let log = small(dir.path());
    assert_eq!(contents(&log, 1), (0..head as i64 + 10).collect::<Vec<_>>());
}

#[test]
fn notes_and_write_ids_come_from_indexes_too() {
    let dir = tempfile::tempdir().unwrap();
    noted(dir.path());
    assert!(indexes(dir.path()).len() > 3);
    let log = small(dir.path());
    let notes = log.take_notes();
    let texts: Vec<_> = notes
        .iter()
        .map(|note| String::from_utf8_lossy(&note.note).into_owned())
        .collect();
    assert_eq!(
        texts,
        (0..40).map(|number| format!("note {number}")).collect::<Vec<_>>()
    );
    let last = notes.last().unwrap().write_id;
    append(&log, vec![write(1, &[1])]).unwrap();
    let newest = log
        .read(1, 0, u64::MAX)
        .unwrap()
        .last()
        .unwrap()
        .unwrap()
        .write_id;
    assert!(newest > last);
}
