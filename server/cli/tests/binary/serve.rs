//! `millrace serve`: how it is stopped, and what it logs. Servers for the other tests.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::{millrace, run, text_of};

/// A server on free ports, ready: the process, the port of its PostgreSQL clients, and the folder that its log is in.
pub fn start_in(data: &Path, arguments: &[&str]) -> (Child, String, tempfile::TempDir) {
    let logs = tempfile::tempdir().unwrap();
    let base = [
        "serve",
        "--pg",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        text_of(data),
    ];
    let mut child = millrace(&[&base, arguments].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(logs.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains(" is ready"), "{line}");
    let port = line
        .split(" -p ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    (child, port, logs)
}

/// A data directory with rows and a checkpoint, whose server was stopped in order.
pub fn filled() -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    let (mut child, port, _logs) = start_in(data.path(), &["--stop-at-eof"]);
    for sql in [
        "CREATE TABLE t (a INT PRIMARY KEY, b TEXT)",
        "CREATE MATERIALIZED VIEW m AS SELECT b, count(*) FROM t GROUP BY b",
        "INSERT INTO t SELECT i, 'b' || i % 7 FROM generate_series(1, 1000) AS g(i)",
        "CHECKPOINT",
    ] {
        let (status, _, error) = run(&["sql", "-p", &port, "-c", sql]);
        assert_eq!(status, 0, "{sql}: {error}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    data
}

#[test]
fn it_stops_in_order_when_its_input_ends() {
    let data = tempfile::tempdir().unwrap();
    let (mut child, _, _) = start_in(data.path(), &["--stop-at-eof"]);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(data.path().join("catalog.journal").exists());
}

#[test]
fn the_log_is_json_and_has_what_took_long() {
    let data = tempfile::tempdir().unwrap();
    let (mut child, port, logs) = start_in(data.path(), &["--stop-at-eof", "--log-format", "json"]);
    for (sql, expected) in [
        ("SELECT 'before'", 0),
        ("ALTER SYSTEM SET log_min_duration_statement = 0", 0),
        ("SELECT 'quick'", 0),
        ("SELECT 1/0", 1),
        ("ALTER SYSTEM SET log_min_duration_statement = '1h'", 0),
        ("SELECT 'after'", 0),
        ("SET log_min_duration_statement = 0", 1),
    ] {
        let (status, out, error) = run(&["sql", "-p", &port, "-c", sql]);
        assert_eq!(status, expected, "{sql}: {out}{error}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(logs.path().join("log")).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let slow: Vec<_> = lines
        .iter()
        .filter(|line| line["target"] == "millrace::slow")
        .collect();
    let said = |what: &str| {
        slow.iter()
            .find(|line| line["statement"].as_str().unwrap().contains(what))
    };
    assert!(
        said("quick").is_some_and(|line| line["succeeded"] == true && line["user"] == "millrace"),
        "{log}"
    );
    assert!(said("quick").unwrap()["duration_ms"].as_f64().unwrap() > 0.0);
    assert!(
        said("1/0").is_some_and(|line| line["succeeded"] == false),
        "{log}"
    );
    assert!(said("before").is_none() && said("after").is_none(), "{log}");
    assert!(
        lines
            .iter()
            .all(|line| line["target"].is_string() && line["timestamp"].is_string()),
        "{log}"
    );
}
