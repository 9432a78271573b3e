//! Checkpoints that are committed, abandoned, superseded and damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::buffer::BooleanBuffer;

use super::*;
use crate::{Store, StoreOptions};

fn open(directory: &Path) -> Store {
    Store::open(directory, StoreOptions::default()).unwrap()
}

fn rows(values: std::ops::Range<i64>) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter([("v", values)]).unwrap()
}

/// A checkpoint of one table with these blocks, the rows of each besides.
async fn commit(store: &Store, relation: u64, new: &[RecordBatch], old: &[StoredChunk]) -> Arc<Manifest> {
    let mut draft = store.checkpoints().begin();
    let mut manifest = Manifest::new(draft.number(), 5, 6, 1);
    let mut chunks = old.to_vec();
    for rows in new {
        chunks.push(StoredChunk {
            rows: rows.num_rows() as u64,
            data: draft.put(encode_rows(rows).unwrap()).await.unwrap(),
            alive: None,
        });
    }
    manifest.sources.push(StoredSource {
        relation,
        end: 10,
        watermark: None,
        rows: Some(StoredTable { chunks, tags: None }),
    });
    let exists = BTreeSet::from([1, 2, 3]);
    draft.commit(manifest, exists).await.unwrap();
    store.checkpoints().manifests().last().unwrap().clone()
}

fn chunks(manifest: &Manifest) -> Vec<StoredChunk> {
    manifest.sources[0].rows.as_ref().unwrap().chunks.clone()
}

async fn read(store: &Store, manifest: &Manifest) -> Vec<RecordBatch> {
    let mut read = vec![];
    for chunk in chunks(manifest) {
        let bytes = store.checkpoints().read(chunk.data).await.unwrap();
        read.push(decode_rows(bytes).unwrap());
    }
    read
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory.join("checkpoints")).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".epochs"))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn what_is_committed_is_there_after_a_restart_and_what_is_not_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        commit(&store, 1, &[rows(0..100), rows(100..105)], &[]).await;
        let mut abandoned = store.checkpoints().begin();
        abandoned.put(encode_rows(&rows(0..7)).unwrap()).await.unwrap();
        fs::write(dir.path().join("checkpoints/2.blocks#1"), "half").unwrap();
        fs::write(dir.path().join("checkpoints/2.manifest"), "{}").unwrap();
    }
    let store = open(dir.path());
    assert_eq!(names(dir.path()), ["1.blocks", "1.manifest"]);
    let manifests = store.checkpoints().manifests();
    assert_eq!((manifests.len(), manifests[0].epoch, manifests[0].now), (1, 5, 6));
    assert_eq!(read(&store, &manifests[0]).await, [rows(0..100), rows(100..105)]);
    // A number is never used for two checkpoints.
    assert_eq!(store.checkpoints().begin().number(), 2);
}

#[tokio::test]
async fn a_later_checkpoint_refers_to_blocks_and_files_go_when_nobody_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = commit(&store, 1, &[rows(0..100), rows(100..105)], &[]).await;
    let second = commit(&store, 1, &[rows(200..201)], &chunks(&first)).await;
    assert_eq!(names(dir.path()), ["1.blocks", "2.blocks", "2.manifest"]);
    assert_eq!(
        read(&store, &second).await,
        [rows(0..100), rows(100..105), rows(200..201)]
    );
    let files = store.checkpoints().files();
    assert!(files[&1].used_bytes > 0 && files[&1].used_bytes <= files[&1].bytes);
    commit(&store, 1, &[], &chunks(&second)[2..]).await;
    assert_eq!(names(dir.path()), ["2.blocks", "3.manifest"]);
    // Another relation's checkpoint leaves this one alone; that of one that was dropped goes.
    commit(&store, 2, &[rows(0..3)], &[]).await;
    assert_eq!(
        names(dir.path()),
        ["2.blocks", "3.manifest", "4.blocks", "4.manifest"]
    );
    commit(&store, 9, &[rows(0..3)], &[]).await;
    drop(store);
    let store = open(dir.path());
    assert_eq!(
        names(dir.path()),
        ["2.blocks", "3.manifest", "4.blocks", "4.manifest"]
    );
    assert_eq!(store.checkpoints().manifests().len(), 2);
    assert_eq!(store.checkpoints().begin().number(), 6);
}

#[tokio::test]
async fn damage_is_an_error_and_never_rows() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let manifest = commit(&store, 1, &[rows(0..100), rows(100..105)], &[]).await;
    let path = dir.path().join("checkpoints/1.blocks");
    let whole = fs::read(&path).unwrap();
    let block = chunks(&manifest)[1].data;
    for place in [block.at, block.at + block.bytes / 2, block.at + block.bytes - 1] {
        let mut damaged = whole.clone();
        damaged[place as usize] ^= 4;
        fs::write(&path, &damaged).unwrap();
        let error = store.checkpoints().read(block).await.unwrap_err();
        assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
        assert!(store.checkpoints().read(chunks(&manifest)[0].data).await.is_ok());
    }
    fs::write(&path, &whole[..block.at as usize + 3]).unwrap();
    assert!(store.checkpoints().read(block).await.is_err());
    fs::remove_file(&path).unwrap();
    assert!(store.checkpoints().read(block).await.is_err());
    let nowhere = BlockRef {
        at: u64::MAX,
        ..block
    };
    assert!(store.checkpoints().read(nowhere).await.is_err());
    drop(store);
    let path = dir.path().join("checkpoints/1.manifest");
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..whole.len() - 1], b"", &[&whole[..], b" "].concat()] {
        fs::write(&path, damaged).unwrap();
        let store = open(dir.path());
        assert!(store.checkpoints().manifests().is_empty());
        let told = store.checkpoints().damaged();
        assert!(told.len() == 1 && told[0].0 == 1, "{told:?}");
        drop(store);
        // What is damaged is left for whoever wants to look, until the next checkpoint.
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn manifests_of_the_version_before_are_read_and_of_later_ones_refused() {
    let manifest = Manifest::new(3, 4, 5, 6);
    let bytes = manifest.encode().unwrap();
    assert_eq!(Manifest::decode(&bytes), Ok(manifest));
    let of_version = |version: u32| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let now = "\"version\":2";
        assert!(text.contains(now), "{text}");
        text.replacen(now, &format!("\"version\":{version}"), 1)
    };
    let before = Manifest::decode(of_version(1).as_bytes()).unwrap();
    assert_eq!(before.epoch, 4);
    for version in [0, 3] {
        let error = Manifest::decode(of_version(version).as_bytes()).unwrap_err();
        assert!(error.contains(&format!("version {version}")), "{error}");
    }
}

#[test]
fn marks_are_what_they_were() {
    for len in [0, 1, 7, 8, 9, 64, 100] {
        let marks = BooleanBuffer::collect_bool(len + 3, |row| row % 3 == 0).slice(3, len);
        let bytes = pack_marks(&marks);
        assert_eq!(
            bytes,
            pack_marks(&BooleanBuffer::collect_bool(len, |row| row % 3 == 0))
        );
        assert_eq!(unpack_marks(bytes.clone().into(), len), Some(marks));
        assert_eq!(unpack_marks(bytes.into(), len + 8), None);
    }
}

#[test]
fn what_a_mark_lets_go_is_all_that_came_before_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let record = |now: i64| EpochRecord {
        now,
        ends: vec![(1, now as u64)],
    };
    let log = EpochLog::open(dir.path(), 0).unwrap();
    let bytes = || -> u64 {
        let entries = fs::read_dir(dir.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    };
    let mut marked = vec![];
    for now in 0..10_000 {
        if now % 1_000 == 0 {
            let mark = log.mark().unwrap();
            marked.push((mark, now));
            log.remove_before(mark).unwrap();
            assert!(bytes() <= 100_000, "{} bytes at {now}", bytes());
            assert!(log.read(mark).unwrap().len() <= 3_000);
        }
        log.append(&record(now)).unwrap();
        if now % 100 != 99 {
            continue;
        }
        let (mark, since) = *marked.last().unwrap();
        let read = log.read(mark).unwrap();
        let behind: Vec<i64> = read
            .iter()
            .map(|record| record.now)
            .filter(|at| *at >= since)
            .collect();
        assert_eq!(behind.len() as i64, now + 1 - since);
    }
    let marks: Vec<u64> = marked.iter().map(|(mark, _)| *mark).collect();
    assert!(marks.is_sorted() && marks[9] >= marks[0] + 3, "{marks:?}");
}

#[test]
fn epochs_are_read_up_to_what_is_torn_and_go_on_in_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let record = |now: i64| EpochRecord {
        now,
        ends: vec![(1, now as u64), (2, 7)],
    };
    let log = EpochLog::open(dir.path(), 0).unwrap();
    for now in 1..4 {
        log.append(&record(now)).unwrap();
    }
    let path = dir.path().join("1.epochs");
    let whole = fs::read(&path).unwrap();
    let bytes = record(1).encode().len();
    for cut in 0..bytes {
        fs::write(&path, &whole[..whole.len() - 1 - cut]).unwrap();
        assert_eq!(log.read(0).unwrap(), [record(1), record(2)], "{cut}");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() - bytes - 3] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let log = EpochLog::open(dir.path(), 0).unwrap();
    assert_eq!(log.current(), 2);
    log.append(&record(9)).unwrap();
    assert_eq!(log.read(0).unwrap(), [record(1), record(9)]);
    assert_eq!(log.read(2).unwrap(), [record(9)]);
    log.remove_before(2).unwrap();
    assert!(!path.exists());
    // An impossible length is no reason to ask for memory.
    assert_eq!(EpochRecord::decode(&[0xff; 64]), None);
}
