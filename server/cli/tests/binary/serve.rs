//! `millrace serve`: how it is stopped, and what it logs. Servers for the other tests.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

/// As a terminal does when it is closed: what it showed cannot be written any more, and the system and the shell both say so.
pub fn hang_up(child: &mut Child) {
    drop((child.stdout.take(), child.stderr.take()));
    for _ in 0..2 {
        signal("HUP", child);
    }
}

pub fn signal(name: &str, child: &Child) {
    let status = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn it_stops_in_order_when_its_terminal_is_closed() {
    let data = tempfile::tempdir().unwrap();
    let spawned = |program: &mut Command| {
        let mut child = program
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains(" is ready"), "{line}");
        child
    };
    let free = "127.0.0.1:0";
    let arguments = [
        "serve",
        "--pg",
        free,
        "--http",
        free,
        "--data",
        text_of(data.path()),
    ];
    let mut child = spawned(&mut millrace(&arguments));
    hang_up(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(data.path().join("SUMS").exists());
    // `nohup` is for what goes on then.
    let binary = millrace(&arguments);
    let mut nohup = Command::new("sh");
    nohup
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(binary.get_program())
        .args(binary.get_args());
    let mut child = spawned(&mut nohup);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let of = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1
    };
    assert_eq!((of("SigIgn:"), of("SigCgt:")), (1, 0), "{status}");
    signal("TERM", &child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Each line of the log is an object with what every line has.
fn objects(log: &str) -> Vec<serde_json::Value> {
    let parsed = log.lines().map(|line| {
        let object: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for member in ["timestamp", "level", "target"] {
            assert!(object[member].is_string(), "{member} is missing: {line}");
        }
        object
    });
    parsed.collect()
}

#[test]
fn why_it_does_not_start_is_json_where_the_log_is() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("thesis.tex"), "x").unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    for (arguments, status, expected) in [
        (&["--pg", free, "--http", &taken][..], 1, "cannot listen on"),
        (&["--pg", free, "--http", free][..], 1, "thesis.tex"),
        (&["--pg", "nowhere"][..], 2, "invalid value"),
        (
            &["--config", "/nowhere/millrace.toml"][..],
            1,
            "configuration file",
        ),
        (&["--nonsense"][..], 2, "unexpected argument '--nonsense'"),
    ] {
        let base = ["serve", "--log-format=json", "--data", text_of(data.path())];
        let (found, _, error) = run(&[&base[..], arguments].concat());
        assert_eq!(found, status, "{error}");
        let said = objects(&error);
        let last = said.last().unwrap();
        assert!(last["message"].as_str().unwrap().contains(expected), "{error}");
        assert_eq!(last["level"], "ERROR");
        // The variable says the same.
        let mut command = millrace(&["serve", "--data", text_of(data.path())]);
        let output = command
            .args(arguments)
            .env("MILLRACE_LOG_FORMAT", "json")
            .output()
            .unwrap();
        objects(&String::from_utf8(output.stderr).unwrap());
        // And for people it is a line for people.
        let (_, _, error) = run(&[&["serve", "--data", text_of(data.path())], arguments].concat());
        assert!(
            serde_json::from_str::<serde_json::Value>(&error).is_err(),
            "{error}"
        );
    }
    let mut command = millrace(&["serve", "--log-format", "json", "--pg", free, "--http", &taken]);
    let output = command.env("MILLRACE_LOG", "=[").output().unwrap();
    let said = objects(&String::from_utf8(output.stderr).unwrap());
    assert!(
        said[0]["message"].as_str().unwrap().contains("MILLRACE_LOG"),
        "{said:?}"
    );
}

#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let data = directory.path().join("data");
    let mut child = millrace(&[
        "serve",
        "--stop-at-eof",
        "--pg",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        text_of(&data),
    ])
    .env("NOTIFY_SOCKET", &path)
    .stdin(Stdio::piped())
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let heard = || {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    assert!(heard().starts_with("READY=1\nSTATUS=PostgreSQL on 127.0.0.1:"));
    drop(child.stdin.take());
    assert!(heard().starts_with("STOPPING=1\nSTATUS="));
    assert!(child.wait().unwrap().success());
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
    let lines = objects(&log);
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
}

#[test]
fn what_failed_in_a_view_is_logged_in_the_words_of_sql() {
    let data = tempfile::tempdir().unwrap();
    let (mut child, port, logs) = start_in(data.path(), &["--stop-at-eof", "--log-format", "json"]);
    for sql in [
        "CREATE TABLE t (v INT)",
        "CREATE MATERIALIZED VIEW goes_on AS SELECT 10 / v AS q FROM t",
        "CREATE MATERIALIZED VIEW ends WITH (on_error = 'fail') AS SELECT (100000 * v)::smallint AS q FROM t",
        "INSERT INTO t VALUES (0), (1)",
    ] {
        let (status, out, error) = run(&["sql", "-p", &port, "-c", sql]);
        assert_eq!(status, 0, "{sql}: {out}{error}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let log = fs::read_to_string(logs.path().join("log")).unwrap();
    let lines = objects(&log);
    let said = |message: &str| -> Vec<_> {
        let lines = lines
            .iter()
            .filter(|line| line["message"].as_str() == Some(message));
        lines.map(|line| line["error"].as_str().unwrap()).collect()
    };
    let mut rows = said("an expression of a view failed on a row");
    rows.sort_unstable();
    assert_eq!(rows, ["division by zero", "smallint out of range"], "{log}");
    assert_eq!(
        said("a view failed; the others continue"),
        ["an expression failed on a row (on_error = 'fail'): smallint out of range"]
    );
}
