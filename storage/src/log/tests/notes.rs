//! Notes: there if and only if their write is.

use super::*;

fn noted(log: &LogStore, relations: &[u64], value: i64, note: &[u8]) {
    let writes = relations.iter().map(|id| write(*id, &[value])).collect();
    let prepared = log.prepare(writes, note).unwrap();
    log.submit(prepared).wait().unwrap();
}

fn found(log: &LogStore) -> Vec<Vec<u8>> {
    log.take_notes().into_iter().map(|note| note.note).collect()
}

#[test]
fn a_note_comes_and_goes_with_its_write() {
    let dir = tempfile::tempdir().unwrap();
    {
        let log = open(dir.path());
        log.create(1, one_column()).unwrap();
        log.create(2, one_column()).unwrap();
        noted(&log, &[1], 1, b"first");
        append(&log, vec![write(1, &[2])]).unwrap();
        noted(&log, &[2, 1], 3, b"a note of both, of some length");
        noted(&log, &[], 4, b"of nothing");
        assert_eq!(
            found(&log),
            [[0; 0]; 0],
            "only what is found at the start is told"
        );
        noted(&log, &[1, 2], 5, b"torn");
    }
    let path = dir.path().join("log/2").join(super::segment::file_name(0));
    let bytes = std::fs::read(&path).unwrap();
    as_after_a_crash(dir.path());
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let log = open(dir.path());
    assert_eq!(contents(&log, 1), [1, 2, 3]);
    assert_eq!(contents(&log, 2), [3]);
    assert_eq!(
        found(&log),
        [b"first".to_vec(), b"a note of both, of some length".to_vec()]
    );
    assert!(found(&log).is_empty());
}

#[test]
fn a_reader_is_told_the_note_with_the_first_block_of_its_write() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    noted(&log, &[1], 1, b"first");
    append(&log, vec![write(1, &[2])]).unwrap();
    let blocks = log.read(1, 0, 2).unwrap().map(|block| block.unwrap().note);
    assert_eq!(blocks.collect::<Vec<_>>(), [b"first".to_vec(), vec![]]);
}

#[test]
fn the_newest_of_each_relation_is_told_however_many_others_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let others = 100_001;
    {
        let log = open(dir.path());
        log.create(1, one_column()).unwrap();
        log.create(2, one_column()).unwrap();
        noted(&log, &[1], 1, b"older");
        noted(&log, &[1], 2, b"newest of the first");
        let mut last = None;
        for value in 0..others {
            let prepared = log.prepare(vec![write(2, &[value])], b"x").unwrap();
            last = Some(log.submit(prepared));
        }
        last.unwrap().wait().unwrap();
    }
    let found = found(&open(dir.path()));
    assert_eq!(found[0], b"newest of the first");
    assert_eq!(found.len(), 100_001);
}
