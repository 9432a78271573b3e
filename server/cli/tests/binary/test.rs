//! `millrace test`: which files it runs, what it tells, what it writes.

use std::fs;
use std::path::Path;

use crate::{run, text_of};

fn write(directory: &Path, name: &str, text: &str) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const GOOD: &str =
    "statement ok\nCREATE TABLE t (a INT)\n\nstatement count 2\nINSERT INTO t VALUES (1), (2)\n";
const RESTART: &str = "query I\nSELECT sum(a) FROM t\n----\n3\n";
/// Two records of four fail.
const BAD: &str = "\
statement ok
CREATE TABLE t (a INT, b TEXT)

query I
SELECT count(*) FROM t
----
7

statement error no such words
SELECT x FROM t

statement ok
INSERT INTO t VALUES (1, 'one')
";

#[test]
fn directories_are_run_and_every_failure_is_told() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "good.slt", GOOD);
    write(root.path(), "good.restart.slt", RESTART);
    write(root.path(), "below/bad.slt", BAD);
    let junit = root.path().join("junit.xml");
    let arguments = [
        "test",
        text_of(root.path()),
        "--jobs",
        "2",
        "--junit",
        text_of(&junit),
    ];
    let (status, out, _) = run(&arguments);
    assert_eq!(status, 1, "{out}");
    for expected in [
        "FAIL  ",
        "below/bad.slt (2 of 4 records)",
        "below/bad.slt:4",
        "below/bad.slt:9",
        "good.slt (",
        "1 passed, 1 failed: 7 records, 2 of them failed, in ",
    ] {
        assert!(out.contains(expected), "{expected} is missing in\n{out}");
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert_eq!(junit.matches("<testcase ").count(), 7);
    assert_eq!(junit.matches("<failure ").count(), 2);
}

#[test]
fn answers_are_written_where_there_are_any() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "bad.slt", BAD);
    let path = root.path().join("bad.slt");
    let (status, out, _) = run(&["test", "--complete", text_of(&path)]);
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("2 answers written"), "{out}");
    let completed = fs::read_to_string(&path).unwrap();
    assert!(
        completed.contains("SELECT count(*) FROM t\n----\n0\n"),
        "{completed}"
    );
    assert!(
        completed.contains("statement error column \"x\" does not exist\n"),
        "{completed}"
    );

    // A statement that must succeed and does not stays as it is, and fails.
    let refused = "statement ok\nSELECT 1/0\n\nquery I\nSELECT 1\n";
    write(root.path(), "bad.slt", refused);
    let (status, out, _) = run(&["test", "--complete", text_of(&path)]);
    assert_eq!(status, 1, "{out}");
    let completed = fs::read_to_string(&path).unwrap();
    assert_eq!(completed, format!("{refused}----\n1\n"));
}

#[test]
fn what_cannot_be_run_is_said() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "empty/notes.txt", "");
    write(root.path(), "wrong.slt", "statement maybe\nSELECT 1\n");
    fs::write(root.path().join("binary.slt"), [0xff, 0xfe]).unwrap();
    for (name, status, expected) in [
        ("none.slt", 2, "No such file"),
        ("empty", 2, "there are no .slt files"),
        ("empty/notes.txt", 2, "must end with .slt"),
        ("wrong.slt", 1, "wrong.slt:1"),
        ("binary.slt", 1, "UTF-8"),
    ] {
        let (found, out, error) = run(&["test", text_of(&root.path().join(name))]);
        assert_eq!(found, status, "{name}: {out}{error}");
        assert!(format!("{out}{error}").contains(expected), "{name}: {out}{error}");
    }
}
