//! `millrace demo` to a pipe, from the first line to the last.

use crate::run;

#[test]
fn the_story_is_told_in_plain_lines_to_a_pipe() {
    let (status, out, error) = run(&["demo"]);
    assert_eq!(status, 0, "{out}\n{error}");
    assert!(!out.contains('\x1b'), "{out}");
    let mut rest = out.as_str();
    for expected in [
        "psql:  psql -h 127.0.0.1 -p ",
        "look:  http://127.0.0.1:",
        "== 1 of 9: A view is a query that stays answered",
        "CREATE MATERIALIZED VIEW carrier_delays AS",
        "freshness, from sending a batch to reading it in a view: p50 ",
        "UPDATE airlines SET name = 'American Airlines Inc.' WHERE carrier = 'US';",
        " US Airways Inc. ",
        "| gone",
        "The view was right ",
        "== 6 of 9: Heavy SELECTs on all cores, paused for the view",
        "ALTER SYSTEM SET scheduler_policy = 'lma';",
        "ALTER SYSTEM SET scheduler_policy = 'fifo';",
        " SELECTs, in turn | ",
        "== 8 of 9: kill -9, and back",
        " killed ",
        ", all there",
        "All four views equal their queries",
        "27,004 flights in ",
        "check: the 4 views equal their queries",
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
