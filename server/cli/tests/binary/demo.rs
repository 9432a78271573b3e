//! `millrace demo` to a pipe, from the first line to the last.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::serve::hang_up;
use crate::{millrace, run};

/// What the demo says when these statements come from somebody else in its second act; it has to end well.
fn disturbed_by(statements: &[&str]) -> String {
    let mut child = millrace(&["demo"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("== 2 of 10") {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let port = said
        .split(" -p ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    for statement in statements {
        let (status, _, error) = run(&["sql", "-p", &port, "-c", statement]);
        assert_eq!(status, 0, "{statement}: {error}");
    }
    out.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    said
}

#[test]
fn what_others_change_is_told_and_it_goes_on() {
    let said = disturbed_by(&[
        "DROP MATERIALIZED VIEW maker_miles",
        "ALTER STREAM flights ADD COLUMN mine INT",
        "TRUNCATE airlines",
    ]);
    for expected in [
        "\nmaker_miles: changed by you (",
        "== 10 of 10",
        "Changed by you: maker_miles; the other views equal their queries",
        "27,004 flights in ",
        "check: 3 views equal their queries",
        "; changed by you: maker_miles",
    ] {
        assert!(said.contains(expected), "{expected} is missing in\n{said}");
    }
    let said = disturbed_by(&[
        "CREATE OR REPLACE MATERIALIZED VIEW carrier_delays AS SELECT carrier, count(*) AS departed, avg(dep_delay) AS mean_delay, \
         count(*) AS late FROM flights WHERE dep_delay > 100 GROUP BY carrier",
    ]);
    assert!(
        said.contains("\ncarrier_delays: changed by you (it has another query)"),
        "{said}"
    );
    assert!(said.contains("check: 3 views equal their queries"), "{said}");
}

#[test]
fn nothing_of_it_stays_when_its_terminal_is_closed() {
    let place = tempfile::tempdir().unwrap();
    let mut child = millrace(&["demo"])
        .env("TMPDIR", place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.as_mut().unwrap());
    let mut said = String::new();
    while !said.contains("== 2 of 10") {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    hang_up(&mut child);
    assert!(child.wait().unwrap().code().is_some());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn without_its_stream_it_ends_in_order() {
    let said = disturbed_by(&["DROP STREAM flights CASCADE"]);
    for expected in [
        "flights: changed by you (",
        "flights cannot be sent any more",
        "check: 0 views",
    ] {
        assert!(said.contains(expected), "{expected} is missing in\n{said}");
    }
    assert!(!said.contains("== 10 of 10"), "{said}");
}

#[test]
fn the_story_is_told_in_plain_lines_to_a_pipe() {
    let (status, out, error) = run(&["demo"]);
    assert_eq!(status, 0, "{out}\n{error}");
    assert!(!out.contains('\x1b'), "{out}");
    let mut rest = out.as_str();
    for expected in [
        "psql:  psql -h 127.0.0.1 -p ",
        "look:  http://127.0.0.1:",
        "== 1 of 10: A view is a query that stays answered",
        "CREATE MATERIALIZED VIEW carrier_delays AS",
        "freshness, from sending a batch to reading it in a view: p50 ",
        "UPDATE airlines SET name = 'American Airlines Inc.' WHERE carrier = 'US';",
        " US Airways Inc. ",
        "| gone",
        "The view was right ",
        "== 6 of 10: First, nothing beside the view",
        "== 7 of 10: Heavy SELECTs on all cores, paused for the view",
        "ALTER SYSTEM SET scheduler_policy = 'lma';",
        "ALTER SYSTEM SET scheduler_policy = 'fifo';",
        " SELECTs, in turn | ",
        "== 9 of 10: kill -9, and back",
        " killed ",
        ", all there",
        "All four views equal their queries",
        "27,004 flights in ",
        "check: 4 views equal their queries",
    ] {
        let (_, after) = rest
            .split_once(expected)
            .unwrap_or_else(|| panic!("{expected} is missing in\n{rest}"));
        rest = after;
    }
}

#[test]
fn heavy_queries_run_beside_it() {
    let (status, out, error) = run(&["demo", "--noisy", "--noisy-seconds", "0.1"]);
    assert_eq!(status, 0, "{out}\n{error}");
    let summary = out.rsplit("reading it in the view:").next().unwrap();
    for expected in [
        "nothing else",
        "(scheduler_policy = lma)",
        "(scheduler_policy = fifo)",
    ] {
        assert!(summary.contains(expected), "{expected} is missing in\n{out}");
    }
}
