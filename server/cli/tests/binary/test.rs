//! `millrace test`: which files it runs, what it tells, what it writes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::{millrace, run, text_of};

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
fn what_succeeds_and_was_to_fail_is_told() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "one.slt", "statement error\nSELECT 1\n");
    let (status, out, _) = run(&["test", text_of(root.path())]);
    assert_eq!(status, 1, "{out}");
    for expected in [
        "one.slt (1 of 1 record)",
        "query was to fail, and did not:\n[SQL] SELECT 1",
        "0 passed, 1 failed: 1 record, 1 of them failed, in ",
    ] {
        assert!(out.contains(expected), "{expected} is missing in\n{out}");
    }
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
fn a_value_with_line_breaks_is_one_line_of_the_answer() {
    let root = tempfile::tempdir().unwrap();
    let query = "query TI\nSELECT a, length(a) FROM (VALUES ('one' || chr(10) || chr(10) || 'three'), ('x')) v (a) ORDER BY a\n";
    write(
        root.path(),
        "breaks.slt",
        &format!("{query}\nquery I\nSELECT 2\n----\n2\n"),
    );
    let path = root.path().join("breaks.slt");
    for protocol in ["simple", "extended"] {
        let (status, out, _) = run(&["test", "--complete", "--protocol", protocol, text_of(&path)]);
        assert_eq!(status, 0, "{out}");
        let completed = fs::read_to_string(&path).unwrap();
        let expected = format!("{query}----\none  three 10\nx 1\n\nquery I\nSELECT 2\n----\n2\n");
        assert_eq!(completed, expected);
    }

    // One value a line is what the file says, and the answer has not the places where values end.
    let by_value = "control resultmode valuewise\n\nquery TT\nSELECT 'a b', 'c'\n----\na b\nd\n";
    write(root.path(), "by_value.slt", by_value);
    // And here, that a part of it does not count.
    let ignored = "query TT\nSELECT 'a b', 'c'\n----\na <slt:ignore> d\n";
    write(root.path(), "ignored.slt", ignored);
    for (name, text) in [("by_value.slt", by_value), ("ignored.slt", ignored)] {
        let path = root.path().join(name);
        assert_eq!(run(&["test", "--complete", text_of(&path)]).0, 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn files_that_are_named_twice_run_once() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "good.slt", GOOD);
    write(root.path(), "good.restart.slt", RESTART);
    let paths = [
        root.path().to_owned(),
        root.path().join("good.slt"),
        root.path().join("good.restart.slt"),
        root.path()
            .join("../")
            .join(root.path().file_name().unwrap())
            .join("good.slt"),
    ];
    let mut arguments = vec!["test"];
    arguments.extend(paths.iter().map(|path| text_of(path)));
    let (status, out, error) = run(&arguments);
    assert_eq!(status, 0, "{out}{error}");
    assert!(out.contains("1 passed, 0 failed: 3 records"), "{out}");
}

#[test]
fn what_came_before_an_interruption_is_told_and_written() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.slt", GOOD);
    // Nobody waits for its last statement to its end; the one before says that it is there.
    let fifo = root.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let waiting = format!(
        "system ok\necho there > {}\n\nstatement ok\nSELECT pg_sleep(3600)\n",
        text_of(&fifo)
    );
    write(root.path(), "b.slt", &waiting);
    write(root.path(), "c.slt", GOOD);
    let junit = root.path().join("junit.xml");
    let mut child = millrace(&["test", text_of(root.path()), "--junit", text_of(&junit)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("ok    "), "{first}");
    assert!(junit.exists());
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "there\n");
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    let said = said.join("\n");
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    for expected in [
        "b.slt (1 of 2 records)",
        "interrupted: what follows was not run",
        "1 passed, 2 failed: 5 records",
        "1 of the files that failed were not run",
    ] {
        assert!(said.contains(expected), "{expected} is missing in\n{said}");
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert_eq!(junit.matches("<testsuite ").count(), 3, "{junit}");
    assert_eq!(junit.matches("<failure ").count(), 2, "{junit}");
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_runs() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a.slt", GOOD);
    let nowhere = root.path().join("none/junit.xml");
    let (status, out, error) = run(&["test", text_of(root.path()), "--junit", text_of(&nowhere)]);
    assert_eq!((status, out.as_str()), (1, ""), "{error}");
    assert!(error.contains("none/junit.xml: No such file"), "{error}");
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
