//! The catalog against reopening, torn and damaged files, and the loss of either of its two copies.

mod simulated;

use std::fs;
use std::path::{Path, PathBuf};

use super::journal::append_raw;
use super::*;

const CACHE_BYTES: u64 = 8 << 20;

pub(crate) fn object(id: u64, name: &str) -> CatalogObject {
    CatalogObject {
        id: ObjectId(id),
        kind: ObjectKind::MaterializedView,
        database: "millrace".to_owned(),
        schema: "public".to_owned(),
        name: name.to_owned(),
        sql: format!("CREATE MATERIALIZED VIEW {name} AS\n SELECT 'ü', 1"),
        comment: id.is_multiple_of(2).then(|| "line\nbreak \"quoted\"".to_owned()),
        created_at_ms: 1_763_700_000_000,
        properties: [("columns".to_owned(), serde_json::json!([1, null, {"a": 1.5}]))].into(),
    }
}

fn open(dir: &Path) -> Catalog {
    Catalog::open(dir, CACHE_BYTES).unwrap()
}

fn put(catalog: &Catalog, id: u64, name: &str) {
    catalog.apply(vec![CatalogChange::Put(object(id, name))]).unwrap();
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.objects().into_iter().map(|object| object.name).collect()
}

fn journal_path(dir: &Path) -> PathBuf {
    dir.join("catalog.journal")
}

#[test]
fn objects_and_facts_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    {
        let catalog = open(dir.path());
        put(&catalog, 1, "a");
        put(&catalog, 2, "b");
        put(&catalog, 3, "c");
        catalog
            .apply(vec![
                CatalogChange::Remove(ObjectId(1)),
                CatalogChange::Put(object(2, "renamed")),
                CatalogChange::PutFact {
                    key: "k".to_owned(),
                    value: vec![0, 255, 16],
                },
            ])
            .unwrap();
        catalog.put_fact("gone", b"x").unwrap();
        catalog
            .apply(vec![CatalogChange::RemoveFact {
                key: "gone".to_owned(),
            }])
            .unwrap();
    }
    let catalog = open(dir.path());
    assert_eq!(catalog.objects(), vec![object(2, "renamed"), object(3, "c")]);
    assert_eq!(catalog.get(ObjectId(3)), Some(object(3, "c")));
    assert_eq!(catalog.get(ObjectId(1)), None);
    assert_eq!(catalog.fact("k").unwrap(), Some(vec![0, 255, 16]));
    assert_eq!(catalog.fact("gone").unwrap(), None);
}

#[test]
fn ids_are_never_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut given = Vec::new();
    for clean in [true, false, true] {
        let catalog = open(dir.path());
        for _ in 0..RESERVED_IDS + 3 {
            given.push(catalog.next_id().unwrap());
        }
        if clean {
            catalog.close().unwrap();
        }
    }
    let catalog = open(dir.path());
    let own = catalog.next_id().unwrap().0 + 2;
    given.push(ObjectId(own - 2));
    put(&catalog, own, "chosen by somebody else");
    given.push(ObjectId(own));
    given.push(catalog.next_id().unwrap());
    let mut unique = given.clone();
    unique.dedup();
    assert_eq!(given, unique);
    assert!(given.is_sorted());
    assert_eq!(given[0], ObjectId(16_384));
    // A clean stop leaves no gap.
    assert_eq!(
        given[RESERVED_IDS as usize + 3].0,
        given[RESERVED_IDS as usize + 2].0 + 1
    );
}

#[test]
fn an_asynchronous_fact_survives_a_clean_stop_and_yields_to_a_later_durable_one() {
    let dir = tempfile::tempdir().unwrap();
    {
        let catalog = open(dir.path());
        catalog.put_fact_async("head", b"1").unwrap();
        catalog.put_fact_async("head", b"2").unwrap();
        assert_eq!(catalog.fact("head").unwrap(), Some(b"2".to_vec()));
        catalog.close().unwrap();
    }
    let catalog = open(dir.path());
    assert_eq!(catalog.fact("head").unwrap(), Some(b"2".to_vec()));
    catalog.put_fact("head", b"3").unwrap();
    assert_eq!(catalog.fact("head").unwrap(), Some(b"3".to_vec()));
}

#[test]
fn the_index_is_made_again_when_it_is_missing_or_damaged() {
    let dir = tempfile::tempdir().unwrap();
    {
        let catalog = open(dir.path());
        put(&catalog, 1, "a");
        catalog.put_fact("k", b"v").unwrap();
    }
    let index = dir.path().join("catalog.sled");
    fs::remove_dir_all(&index).unwrap();
    assert_eq!(names(&open(dir.path())), ["a"]);
    let db = index.join("db");
    let mut bytes = fs::read(&db).unwrap();
    bytes.fill(0x5a);
    fs::write(&db, bytes).unwrap();
    fs::write(index.join("conf"), "nonsense").unwrap();
    let catalog = open(dir.path());
    assert_eq!(names(&catalog), ["a"]);
    assert_eq!(catalog.fact("k").unwrap(), Some(b"v".to_vec()));
}

#[test]
fn an_index_of_another_time_yields_to_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), 1, "a");
    let old = fs::read(journal_path(dir.path())).unwrap();
    put(&open(dir.path()), 2, "b");
    fs::write(journal_path(dir.path()), old).unwrap();
    assert_eq!(names(&open(dir.path())), ["a"]);
    assert_eq!(names(&open(dir.path())), ["a"]);
}

#[test]
fn a_lost_journal_is_made_again_from_the_index() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), 1, "a");
    fs::remove_file(journal_path(dir.path())).unwrap();
    put(&open(dir.path()), 2, "b");
    fs::remove_dir_all(dir.path().join("catalog.sled")).unwrap();
    assert_eq!(names(&open(dir.path())), ["a", "b"]);
}

#[test]
fn a_torn_last_line_is_cut_wherever_it_was_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = journal_path(dir.path());
    put(&open(dir.path()), 1, "a");
    let whole = fs::read(&path).unwrap();
    put(&open(dir.path()), 2, "b");
    let longer = fs::read(&path).unwrap();
    // As it is when the kill comes before the index knows of the line.
    let line = &longer[whole.len()..];
    for cut in [0, 1, 8, 9, 10, line.len() / 2, line.len() - 1] {
        for tail in [&b""[..], &[0; 20]] {
            fs::remove_dir_all(dir.path().join("catalog.sled")).unwrap();
            fs::write(&path, &whole).unwrap();
            append_raw(&path, &line[..cut]);
            append_raw(&path, tail);
            assert_eq!(names(&open(dir.path())), ["a"], "cut at {cut}");
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }
}

#[test]
fn a_damaged_last_line_that_was_durable_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(dir.path()), 1, "a");
    let path = journal_path(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = Catalog::open(dir.path(), CACHE_BYTES).unwrap_err();
    assert!(
        matches!(error, StorageError::CorruptJournal { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn damage_in_the_middle_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    {
        let catalog = open(dir.path());
        for id in 1..=4 {
            put(&catalog, id, "x");
        }
    }
    let path = journal_path(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    let third_line = bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .nth(1)
        .unwrap()
        .0
        + 1;
    bytes[third_line + 30] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let error = Catalog::open(dir.path(), CACHE_BYTES).unwrap_err();
    match &error {
        StorageError::CorruptJournal {
            path: named, line, ..
        } => assert_eq!((named, *line), (&path, 3)),
        other => panic!("{other}"),
    }
    assert_eq!(fs::read(&path).unwrap(), bytes, "damage is not touched");
}

#[test]
fn a_large_journal_is_compacted_and_says_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = journal_path(dir.path());
    {
        let catalog = open(dir.path());
        catalog.inner.lock().compaction_bytes_min = 2_000;
        for i in 0..60 {
            put(&catalog, 1 + i % 3, &format!("version{i}"));
            catalog.put_fact("turn", &[i as u8]).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() < 10_000);
    }
    for _ in 0..2 {
        let catalog = open(dir.path());
        assert_eq!(names(&catalog), ["version57", "version58", "version59"]);
        assert_eq!(catalog.fact("turn").unwrap(), Some(vec![59]));
        drop(catalog);
        let _ = fs::remove_dir_all(dir.path().join("catalog.sled"));
    }
}

/// Damaged in any way, the index is made again from the journal: it may refuse, panic, or tell something else.
#[test]
fn whatever_is_wrong_with_the_index_it_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    {
        let catalog = open(dir.path());
        for id in 1..=20 {
            put(&catalog, id, &format!("view_{id}"));
        }
        catalog.put_fact("k", b"v").unwrap();
    }
    let index = dir.path().join("catalog.sled");
    let files: Vec<PathBuf> = walk(&index);
    assert!(files.len() >= 2, "{files:?}");
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let check = |how: &str| {
        let catalog = open(dir.path());
        assert_eq!(catalog.objects().len(), 20, "{how}");
        assert_eq!(catalog.fact("k").unwrap().as_deref(), Some(&b"v"[..]), "{how}");
        put(&catalog, 20, "again");
        put(&catalog, 20, "view_20");
    };
    let restore = || {
        for (file, bytes) in files.iter().zip(&whole) {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
    };
    for (file, bytes) in files.iter().zip(&whole) {
        for damage in 0..6 {
            fs::remove_dir_all(&index).unwrap();
            restore();
            let mut bytes = bytes.clone();
            let middle = bytes.len() / 2;
            match damage {
                0 => bytes.clear(),
                1 => bytes.truncate(middle),
                2 => bytes.fill(0xff),
                3 => bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x55),
                4 => bytes.iter_mut().take(64).for_each(|byte| *byte = 0x80),
                _ => bytes.extend([0xab; 5000]),
            }
            fs::write(file, bytes).unwrap();
            check(&format!("{}, damage {damage}", file.display()));
        }
    }
    fs::remove_dir_all(&index).unwrap();
    fs::write(&index, "a file in its place").unwrap();
    check("a file");
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(walk(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}
