//! A flipped byte in any file of a data directory is found, where it is and what it means.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};

use super::*;
use crate::checkpoint::{Manifest, StoredChunk, StoredSource, StoredTable, encode_rows};
use crate::{ChangeBatch, LogNote, LogOwner, LogWrite, Store, StoreOptions};

const TABLE: u64 = 1;
const STREAM: u64 = 2;

/// A table of two rows, and a stream of which everything is kept.
struct Owner;

impl LogOwner for Owner {
    fn needed(&self, relation: u64) -> u64 {
        if relation == TABLE { u64::MAX } else { 0 }
    }

    fn settled(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn rows(&self, relation: u64) -> Option<u64> {
        (relation == TABLE).then_some(2)
    }

    fn spare_rows(&self) -> u64 {
        8
    }

    fn needs_note(&self, _: &LogNote) -> bool {
        false
    }
}

fn changes(rows: &[(i64, i64)]) -> ChangeBatch {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(value, _)| *value)));
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, weight)| *weight));
    let rows = RecordBatch::try_new(schema(), vec![values]).unwrap();
    ChangeBatch::new(rows, Some(weights)).unwrap()
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

/// A directory that was closed in order, with a file of every kind.
async fn filled(directory: &Path) {
    let options = StoreOptions {
        segment_bytes_max: 4 << 10,
        ..StoreOptions::default()
    };
    let store = Store::open(directory, options).unwrap();
    for relation in [TABLE, STREAM] {
        store.logs().create(relation, schema()).unwrap();
    }
    for step in 0..40 {
        let write = |relation, rows: &[(i64, i64)]| LogWrite {
            relation,
            changes: changes(rows),
        };
        let moved = write(
            TABLE,
            &[(step, 1), (step - 2, -1)][..if step < 2 { 1 } else { 2 }],
        );
        let more: Vec<(i64, i64)> = (0..20).map(|value| (value, 1)).collect();
        store
            .logs()
            .append(vec![moved, write(STREAM, &more)])
            .await
            .unwrap();
    }
    for _ in 0..50 {
        store.logs().maintain(0, &Owner);
        store.logs().shrink(&Owner);
    }
    let object = crate::catalog::tests::object(7, "t");
    store
        .catalog()
        .apply(vec![crate::CatalogChange::Put(object)])
        .unwrap();
    let record = checkpoint::EpochRecord {
        now: 5,
        ends: vec![(STREAM, 800)],
    };
    store.checkpoints().epochs().append(&record).unwrap();
    let mut draft = store.checkpoints().begin();
    let mut manifest = Manifest::new(draft.number(), 5, 6, 1);
    let rows = RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(0..100))]).unwrap();
    let chunk = StoredChunk {
        rows: 100,
        data: draft.put(encode_rows(&rows).unwrap()).await.unwrap(),
        alive: None,
    };
    for (relation, chunks) in [(STREAM, None), (TABLE, Some(vec![chunk]))] {
        manifest.sources.push(StoredSource {
            relation,
            end: store.logs().head(relation),
            watermark: None,
            rows: chunks.map(|chunks| StoredTable { chunks, tags: None }),
        });
    }
    draft
        .commit(manifest, BTreeSet::from([TABLE, STREAM]))
        .await
        .unwrap();
    // What the layer above has there.
    for (folder, name) in [("sinks/7", "3.base"), ("outbox/7", "step-0000000001.records")] {
        let folder = directory.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), "+{}\t{\"a\":1}\n").unwrap();
    }
    store.close().unwrap();
}

/// Every file below a directory, with its content.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in list(directory).unwrap() {
        if path.is_dir() {
            found.append(&mut files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

#[tokio::test]
async fn a_flipped_byte_is_found_in_every_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let before = files(dir.path());
    let checked = check(dir.path()).unwrap();
    assert_eq!(checked.findings, []);
    assert_eq!(checked.files, before.len() as u64);
    assert_eq!(
        checked.bytes,
        before.values().map(|bytes| bytes.len() as u64).sum::<u64>()
    );
    assert_eq!(files(dir.path()), before, "it changed something");

    let mut kinds = BTreeSet::new();
    for (path, content) in &before {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let extension = name.rsplit('.').next().unwrap().to_owned();
        // Its own pid is in it.
        if name == "LOCK" {
            continue;
        }
        let is_index = path.components().any(|part| part.as_os_str() == "catalog.sled");
        let (step, mut flipped) = (content.len() / 23 + 1, content.clone());
        for at in (0..content.len()).step_by(step) {
            flipped[at] ^= 4;
            fs::write(path, &flipped).unwrap();
            flipped[at] ^= 4;
            let found = match check(dir.path()) {
                Ok(checked) => checked.findings,
                // It is no data directory any more, or one of another version.
                Err(_) if name == "FORMAT" => continue,
                Err(error) => panic!("{name} at {at}: {error}"),
            };
            // What lies between the blocks of a checkpoint means nothing.
            if found.is_empty() && extension == "blocks" && content[at] == 0 {
                continue;
            }
            let worst = found.iter().map(|finding| finding.severity).max();
            let expected = match extension.as_str() {
                _ if is_index
                    || name == "SUMS"
                    || name == "HEADS"
                    || path.components().any(|part| part.as_os_str() == "sinks") =>
                {
                    Severity::Mended
                }
                "idx" | "manifest" | "blocks" | "epochs" => Severity::Mended,
                // The last segment of a log, in which nothing was written yet.
                "seg" if !content.windows(4).any(|bytes| bytes == b"MLRB") => Severity::Mended,
                _ => Severity::Lost,
            };
            assert_eq!(worst, Some(expected), "{name} at {at}: {found:?}");
            let own = found.iter().find(|finding| finding.path == *path);
            let own = own.unwrap_or_else(|| panic!("{name} at {at}: {found:?}"));
            assert!(own.offset <= at as u64, "{name} at {at}: {found:?}");
            // Of a whole file there is one checksum.
            let is_whole = own.offset == 0;
            assert!(
                is_whole || at as u64 - own.offset < 4096,
                "{name} at {at}: {found:?}"
            );
        }
        fs::write(path, content).unwrap();
        kinds.insert(if is_index { "sled".to_owned() } else { extension });
    }
    let expected = [
        "FIRST", "FORMAT", "HEADS", "SUMS", "base", "blocks", "epochs", "idx", "journal", "manifest",
        "records", "seg", "sled",
    ];
    assert_eq!(kinds, expected.map(str::to_owned).into());
    assert_eq!(check(dir.path()).unwrap().findings, []);
}

#[tokio::test]
async fn a_damaged_index_of_the_catalog_is_made_again_or_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let path = dir.path().join("catalog.sled/db");
    // As after a crash.
    fs::remove_file(dir.path().join("SUMS")).unwrap();
    let content = fs::read(&path).unwrap();
    let mut found = 0;
    for at in (0..content.len()).step_by(content.len() / 40 + 1) {
        let mut flipped = content.clone();
        flipped[at] ^= 4;
        fs::write(&path, flipped).unwrap();
        let worst = check(dir.path()).unwrap().worst();
        assert!(matches!(worst, None | Some(Severity::Mended)), "{at}: {worst:?}");
        found += usize::from(worst.is_some());
    }
    assert!(found > 0);
    fs::remove_dir_all(dir.path().join("catalog.sled")).unwrap();
    assert_eq!(check(dir.path()).unwrap().worst(), Some(Severity::Mended));
    fs::remove_file(dir.path().join("catalog.journal")).unwrap();
    assert_eq!(check(dir.path()).unwrap().worst(), Some(Severity::Lost));
}

#[tokio::test]
async fn missing_files_are_found_and_other_directories_refused() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let before = files(dir.path());
    for (path, content) in before.iter().filter(|(path, _)| {
        path.extension()
            .is_some_and(|e| e == "seg" || e == "base" || e == "blocks" || e == "manifest" || e == "epochs")
            || path.ends_with("log/HEADS")
    }) {
        fs::remove_file(path).unwrap();
        assert!(check(dir.path()).unwrap().worst().is_some(), "{}", path.display());
        fs::write(path, content).unwrap();
    }
    // So are directories as a whole.
    for (gone, severity) in [
        ("log/1", Severity::Lost),
        ("log/2", Severity::Lost),
        ("checkpoints", Severity::Mended),
    ] {
        let (gone, away) = (dir.path().join(gone), dir.path().join("lost+found"));
        fs::rename(&gone, &away).unwrap();
        assert_eq!(
            check(dir.path()).unwrap().worst(),
            Some(severity),
            "{}",
            gone.display()
        );
        fs::rename(&away, &gone).unwrap();
    }
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert!(matches!(check(dir.path()), Err(StorageError::InUse { .. })));
    drop(store);
    let other = tempfile::tempdir().unwrap();
    assert!(matches!(check(other.path()), Err(StorageError::NoData { .. })));
    assert!(list(other.path()).unwrap().is_empty());
    assert!(matches!(
        check(&other.path().join("none")),
        Err(StorageError::Io { .. })
    ));
}
