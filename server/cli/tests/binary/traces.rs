//! `millrace serve --otlp-endpoint`: what a collector gets that decodes with OpenTelemetry's own messages (`collector.py`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::run;
use crate::serve::start_in;

/// A collector: what it prints, and its address.
struct Collector {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    endpoint: String,
}

impl Collector {
    /// `None`, and a line that says so: there is no Python with OpenTelemetry's messages.
    fn start() -> Option<Collector> {
        let python = std::env::var_os("MILLRACE_PYTHON");
        let python = python.filter(|python| {
            let mut asked = Command::new(python);
            asked
                .args(["-c", "import opentelemetry.proto.trace.v1.trace_pb2"])
                .stderr(Stdio::null());
            asked.status().is_ok_and(|status| status.success())
        });
        let Some(python) = python else {
            println!("skipped: MILLRACE_PYTHON does not name a Python that has opentelemetry-proto");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary/collector.py");
        let mut process = Command::new(python)
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap();
        Some(Collector {
            process,
            lines,
            endpoint: format!("http://127.0.0.1:{port}"),
        })
    }

    /// The spans that come until there are so many statements.
    fn spans(&mut self, statements: usize) -> Vec<Value> {
        let (mut spans, mut found) = (vec![], 0);
        while found < statements {
            let span: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            found += usize::from(span["parent"] == "");
            spans.push(span);
        }
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn each_statement_is_a_span() {
    let Some(mut collector) = Collector::start() else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let endpoint = collector.endpoint.clone();
    let (mut child, port, _logs) = start_in(data.path(), &["--stop-at-eof", "--otlp-endpoint", &endpoint]);
    let statements = [
        ("CREATE ROLE ann PASSWORD 'abracadabra'", "CREATE", 0),
        ("SELECT 4711 + 1", "SELECT", 0),
        ("SELECT 1/0", "SELECT", 1),
        (
            "EXPLAIN ANALYZE SELECT count(*) FROM generate_series(1, 1000) AS g(i)",
            "EXPLAIN",
            0,
        ),
    ];
    for (sql, _, expected) in statements {
        let (status, out, error) = run(&["sql", "-p", &port, "-c", sql]);
        assert_eq!(status, expected, "{sql}: {out}{error}");
    }
    // What waits when the server stops is sent, too.
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let spans = collector.spans(statements.len());
    for span in &spans {
        assert_eq!(span["path"], "/v1/traces");
        assert_eq!(span["type"], "application/x-protobuf");
        assert_eq!(span["service"], "millrace");
        assert_eq!(span["unknown"], Value::Array(vec![]), "{span}");
        assert_eq!(span["trace"].as_str().unwrap().len(), 32, "{span}");
        assert_eq!(span["id"].as_str().unwrap().len(), 16, "{span}");
        assert!(
            span["start"].as_u64() <= span["end"].as_u64() && span["start"].as_u64() > Some(0),
            "{span}"
        );
        assert!(
            !span.to_string().contains("abracadabra") && !span.to_string().contains("4711"),
            "{span}"
        );
    }
    let (own, inside): (Vec<&Value>, Vec<&Value>) = spans.iter().partition(|span| span["parent"] == "");
    let names: Vec<(&str, bool)> = own
        .iter()
        .map(|span| (span["name"].as_str().unwrap(), span["error"] == true))
        .collect();
    let expected: Vec<(&str, bool)> = statements
        .iter()
        .map(|(_, name, status)| (*name, *status != 0))
        .collect();
    assert_eq!(names, expected);
    assert_eq!(own[1]["attributes"]["db.query.text"], "SELECT $1 + $2");
    assert_eq!(own[1]["attributes"]["user.name"], "millrace");
    let traces: BTreeMap<&str, &&Value> = own
        .iter()
        .map(|span| (span["trace"].as_str().unwrap(), span))
        .collect();
    assert_eq!(traces.len(), own.len());
    // The stages of the run, inside of its statement.
    assert!(inside.len() >= 2 && inside[0]["name"] == "plan", "{inside:?}");
    for span in inside {
        assert_eq!(
            (&span["trace"], &span["parent"]),
            (&own[3]["trace"], &own[3]["id"])
        );
        assert!(
            span["start"].as_u64() >= own[3]["start"].as_u64()
                && span["end"].as_u64() <= own[3]["end"].as_u64()
        );
    }
}

#[test]
fn a_collector_that_is_not_there_holds_up_nothing() {
    let data = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let (mut child, port, logs) = start_in(data.path(), &["--stop-at-eof", "--otlp-endpoint", &endpoint]);
    for _ in 0..3 {
        let (status, out, error) = run(&["sql", "-p", &port, "-c", "SELECT 1"]);
        assert_eq!(status, 0, "{out}{error}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let log = std::fs::read_to_string(logs.path().join("log")).unwrap();
    assert_eq!(log.matches("spans cannot be sent").count(), 1, "{log}");
    let (status, _, error) = run(&["serve", "--otlp-endpoint", "nowhere"]);
    assert!(status == 2 && error.contains("it is a URL"), "{error}");
}
