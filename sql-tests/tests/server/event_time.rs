//! Event time against the batch oracle: random streams whose rows come out of order, some of them late, and views over windows.
//!
//! What is late never enters a stream. So a view that shows every change must equal its query over the stream, although it
//! has forgotten what is closed; and a view that waits for the end of windows must hold those rows of the answer that the
//! watermark has passed, each unchanged since it first appeared.
//!
//! `MILLRACE_SEED` is the seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_cli::test::{VirtualClock, virtual_clock};
use millrace_engine::clock::Clock;
use millrace_oracle::text::TextRow;
use millrace_sql_tests::{Failure, connect, run, seed, sorted_rows, start, start_on};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::{Client, SimpleQueryMessage};

/// Rows that are written, then compared, so many times.
const STEPS: usize = 5;
/// Rows of one write: enough that state is looked through for what is closed.
const ROWS: usize = 1_500;

/// Views, each with the condition under which a row of its answer is final. `{A}` and `{B}` are the streams' watermarks.
const VIEWS: [(&str, &str, &str); 14] = [
    (
        "tumble",
        "SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total FROM TUMBLE(a, ts, INTERVAL '10s') \
         GROUP BY k, window_start, window_end",
        "window_end <= {A}",
    ),
    (
        "hop",
        "SELECT k, window_start, min(v) AS least, count(DISTINCT v) AS different FROM HOP(a, ts, INTERVAL '4s', INTERVAL '10s') \
         GROUP BY k, window_start",
        "window_start + INTERVAL '10s' <= {A}",
    ),
    (
        "panes",
        "SELECT k, window_start, window_end, count(*) AS n, count(v) AS values, sum(v) AS total, min(v) AS least, max(v) AS most, \
         bool_and(v > 3) AS every FROM HOP(a, ts, INTERVAL '4s', INTERVAL '10s') WHERE v <> 7 GROUP BY k, window_start, window_end",
        "window_end <= {A}",
    ),
    (
        "panes_of_all",
        "SELECT min(k) AS k, window_end, sum(v) AS total, count(*) FILTER (WHERE k = 1) AS ones FROM HOP(a, ts, INTERVAL '500 milliseconds', INTERVAL '10s', \
         INTERVAL '200 milliseconds') GROUP BY window_end",
        "window_end <= {A}",
    ),
    (
        "moving_average",
        "SELECT k, window_start, round(avg(v)::numeric, 6) AS mean, round(stddev(v)::numeric, 6) AS deviation \
         FROM HOP(a, ts, INTERVAL '1s', INTERVAL '10s') GROUP BY k, window_start",
        "window_start + INTERVAL '10s' <= {A}",
    ),
    (
        "cumulate",
        "SELECT k, window_end, max(v) AS most FROM CUMULATE(a, ts, INTERVAL '5s', INTERVAL '20s') GROUP BY k, window_end",
        "window_end <= {A}",
    ),
    (
        "different",
        "SELECT DISTINCT k, window_start FROM TUMBLE(a, ts, INTERVAL '2s')",
        "window_start + INTERVAL '2s' <= {A}",
    ),
    (
        "first_rows",
        "SELECT k, v, window_start FROM (SELECT *, row_number() OVER (PARTITION BY k, window_start ORDER BY v, ts) AS n \
         FROM TUMBLE(a, ts, INTERVAL '2s')) AS ranked WHERE n <= 2",
        "window_start + INTERVAL '2s' <= {A}",
    ),
    (
        "shares",
        "SELECT k, v, window_start, rank() OVER (PARTITION BY k, window_start ORDER BY v) AS place \
         FROM TUMBLE(a, ts, INTERVAL '2s')",
        "window_start + INTERVAL '2s' <= {A}",
    ),
    (
        "visits",
        "SELECT k, window_start, window_end, count(*) AS n, min(v) AS least \
         FROM SESSION(a PARTITION BY k, ts, INTERVAL '300 milliseconds') GROUP BY k, window_start, window_end",
        "window_end < {A}",
    ),
    (
        "windows_met",
        "SELECT l.k, l.window_end, l.v AS lv, r.v AS rv FROM TUMBLE(a, ts, INTERVAL '1s') AS l \
         JOIN TUMBLE(b, ts, INTERVAL '1s') AS r ON l.k = r.k AND l.window_end = r.window_end",
        "window_end <= least({A}, {B})",
    ),
    (
        "windows_missed",
        "SELECT l.k, l.window_end, l.v AS lv, r.v AS rv FROM TUMBLE(a, ts, INTERVAL '1s') AS l \
         LEFT JOIN TUMBLE(b, ts, INTERVAL '1s') AS r ON l.k = r.k AND l.window_end = r.window_end",
        "window_end <= least({A}, {B})",
    ),
    (
        "near",
        "SELECT l.k, r.ts AS rts, l.v AS lv, r.v AS rv FROM a AS l JOIN b AS r ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '1s'",
        "rts < least({A}, {B})",
    ),
    (
        "united",
        "SELECT k, window_start, count(*) AS n FROM (SELECT k, ts FROM a UNION ALL SELECT k, ts FROM b) AS u (k, ts), \
         LATERAL (SELECT date_trunc('minute', ts) AS window_start) AS w GROUP BY k, window_start",
        "window_start + INTERVAL '1 minute' <= least({A}, {B})",
    ),
];

/// Rows around a time that goes on: most in order, some behind, a few long gone, some without a time.
fn values(random: &mut StdRng, second: f64) -> String {
    let rows: Vec<String> = (0..ROWS)
        .map(|row| {
            let at = second + row as f64 * 0.05;
            let behind = match random.random_range(0..20) {
                0 => random.random_range(0.0..60.0),
                1..=6 => random.random_range(0.0..8.0),
                _ => 0.0,
            };
            let (k, v) = (random.random_range(0..5), random.random_range(0..50));
            let micros = ((at - behind) * 1e6) as i64;
            match random.random_range(0..500) {
                0 => format!("({k}, {v}, NULL)"),
                _ => format!(
                    "({k}, {v}, TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL '{micros} microseconds')"
                ),
            }
        })
        .collect();
    rows.join(", ")
}

async fn watermarks(client: &Client) -> Result<BTreeMap<String, String>, Failure> {
    let mut known = BTreeMap::new();
    for message in client.simple_query("SHOW WATERMARKS").await? {
        if let SimpleQueryMessage::Row(row) = message {
            let (name, watermark) = (row.get(0).unwrap_or_default(), row.get(1));
            let watermark = watermark.unwrap_or("-infinity");
            known.insert(name.to_owned(), format!("TIMESTAMPTZ '{watermark}'"));
        }
    }
    Ok(known)
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<TextRow>, Failure> {
    sorted_rows(client, sql).await
}

/// Every view as it is, and its answer.
async fn compare(
    client: &Client,
    seen: &mut BTreeMap<String, Vec<TextRow>>,
    what: &str,
) -> Result<(), Failure> {
    let known = watermarks(client).await?;
    for (name, query, condition) in VIEWS {
        let condition = condition.replace("{A}", &known["a"]).replace("{B}", &known["b"]);
        let shown = rows(client, &format!("SELECT * FROM {name}")).await?;
        let answer = rows(client, query).await?;
        assert!(
            shown == answer,
            "{what}: {name} has {} rows, its query {}",
            shown.len(),
            answer.len()
        );
        let closed = rows(client, &format!("SELECT * FROM {name}_closed")).await?;
        let answer = rows(client, &format!("SELECT * FROM ({query}) AS q WHERE {condition}")).await?;
        assert!(
            closed == answer,
            "{what}: {name}_closed has {} rows, the final ones are {}",
            closed.len(),
            answer.len()
        );
        // What was shown once stays.
        let before = seen.insert(name.to_owned(), closed.clone()).unwrap_or_default();
        let mut left = closed.into_iter();
        assert!(
            before.iter().all(|row| left.any(|other| other == *row)),
            "{what}: {name}_closed has taken back a row"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_over_windows_equal_the_batch_answer() -> Result<(), Failure> {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE STREAM a (k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '5 seconds')",
    )
    .await?;
    run(
        &client,
        "CREATE STREAM b (k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts - INTERVAL '2 seconds')",
    )
    .await?;
    let mut seen = BTreeMap::new();
    // Some views are there from the beginning, the others are made over rows that exist.
    let made_at: Vec<usize> = VIEWS.iter().map(|_| random.random_range(0..2)).collect();
    let mut second = 0.0;
    for step in 0..STEPS {
        for ((name, query, _), made_at) in VIEWS.iter().zip(&made_at) {
            if *made_at == step {
                run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
                run(
                    &client,
                    &format!("CREATE MATERIALIZED VIEW {name}_closed AS {query} EMIT ON WINDOW CLOSE"),
                )
                .await?;
            }
        }
        for stream in ["a", "b"] {
            if random.random_range(0..5) > 0 || step == 0 {
                let values = values(&mut random, second);
                run(&client, &format!("INSERT INTO {stream} VALUES {values}")).await?;
            }
        }
        second += ROWS as f64 * 0.05;
        if step > 0 {
            compare(&client, &mut seen, &format!("seed {seed}, step {step}")).await?;
        }
    }
    let late = rows(&client, "SELECT sum(late_rows) > 0 FROM mr_catalog.watermarks").await?;
    assert_eq!(late[0][0].as_deref(), Some("t"), "some rows were late");
    drop(client);
    server.shutdown().await;

    // After a restart, everything is as it was, and goes on.
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    compare(&client, &mut seen, &format!("seed {seed}, after a restart")).await?;
    let values = values(&mut random, second);
    run(&client, &format!("INSERT INTO a VALUES {values}")).await?;
    run(&client, &format!("INSERT INTO b VALUES {values}")).await?;
    compare(&client, &mut seen, &format!("seed {seed}, going on")).await?;
    server.shutdown().await;
    Ok(())
}

/// Hours of event time leave no more behind than minutes do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_windows_leave_no_state() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    for stream in ["a", "b"] {
        run(
            &client,
            &format!("CREATE STREAM {stream} (k INT, v INT, ts TIMESTAMPTZ, WATERMARK FOR ts AS ts)"),
        )
        .await?;
    }
    // Only their state is looked at: what views show is theirs to keep.
    for (name, query, _) in VIEWS {
        let query = format!("SELECT count(*) AS n FROM ({query}) AS q WHERE k < 0");
        run(&client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
    }
    let mut state = vec![];
    for hour in 0..6 {
        for quarter in 0..4 {
            let start = (hour * 4 + quarter) * 900;
            for stream in ["a", "b"] {
                let rows = format!(
                    "SELECT i % 5, i % 50, TIMESTAMPTZ '2026-01-01' + i * INTERVAL '200 milliseconds' \
                     FROM generate_series({}, {}) AS g (i)",
                    start * 5,
                    (start + 900) * 5 - 1
                );
                run(&client, &format!("INSERT INTO {stream} {rows}")).await?;
            }
        }
        let bytes = rows(
            &client,
            "SELECT name, state_bytes FROM mr_catalog.views ORDER BY name",
        )
        .await?;
        state.push(bytes);
    }
    let bytes = |rows: &[TextRow]| -> BTreeMap<String, u64> {
        let pairs = rows
            .iter()
            .map(|row| (row[0].clone().unwrap(), row[1].as_ref().unwrap().parse().unwrap()));
        pairs.collect()
    };
    let (first, last) = (bytes(&state[1]), bytes(&state[5]));
    for (name, bytes) in last {
        let before = first[&name];
        assert!(
            bytes <= before + before / 2 + 65_536,
            "the state of {name} grew from {before} bytes after two hours to {bytes} after six"
        );
    }
    server.shutdown().await;
    Ok(())
}

/// Overlapping windows over a table, whose rows change: put together from panes, and each by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panes_follow_a_table_that_changes() -> Result<(), Failure> {
    const QUERIES: [&str; 4] = [
        "SELECT k, window_start, count(*) AS n, sum(v) AS total, min(v) AS least, max(s) AS most, round(avg(x)::numeric, 6) AS mean, \
         round(stddev_pop(x)::numeric, 6) AS deviation, round(sum(x)::numeric, 6) AS whole \
         FROM HOP(t, ts, INTERVAL '3s', INTERVAL '12s') GROUP BY k, window_start",
        "SELECT window_start, window_end, max(x) AS most, bool_or(v > 90) AS some FROM HOP(t, ts, INTERVAL '5s', INTERVAL '12s') \
         WHERE k < 3 GROUP BY window_start, window_end HAVING count(*) > 2",
        "SELECT k % 2 AS parity, window_end, sum(v * 2) AS total FROM HOP(t, ts, INTERVAL '2s', INTERVAL '9s') GROUP BY k % 2, window_end",
        // So few rows a window that a sketch keeps each value.
        "SELECT k, window_start, approx_median(x) AS middle, approx_percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC) AS low, \
         approx_distinct(v::smallint) AS different, bit_and(v) AS common, bit_or(v) AS some, bit_xor(v) AS odd \
         FROM HOP(t, ts, INTERVAL '2s', INTERVAL '8s') GROUP BY k, window_start",
    ];
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, x DOUBLE PRECISION, s TEXT, ts TIMESTAMP)",
    )
    .await?;
    let rows_of = |random: &mut StdRng| -> String {
        let rows: Vec<String> = (0..300)
            .map(|_| {
                let (id, k, v) = (
                    random.random_range(0..1_000),
                    random.random_range(0..5),
                    random.random_range(0..100),
                );
                let (x, second) = (random.random_range(-1e3..1e3), random.random_range(0.0..120.0));
                let time = match random.random_range(0..40) {
                    0 => "NULL".to_owned(),
                    _ => format!("TIMESTAMP '2026-01-01' + INTERVAL '{second:.3} seconds'"),
                };
                format!("({id}, {k}, {v}, {x}, 'text {v}', {time})")
            })
            .collect();
        rows.join(", ")
    };
    for step in 0..8 {
        if step == 1 {
            for (form, setting) in [("panes", "panes"), ("plain", "recompute")] {
                run(&client, &format!("SET sliding_windows = '{setting}'")).await?;
                for (number, query) in QUERIES.iter().enumerate() {
                    run(
                        &client,
                        &format!("CREATE MATERIALIZED VIEW {form}{number} AS {query}"),
                    )
                    .await?;
                }
            }
        }
        let upsert =
            "ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = excluded.v, x = excluded.x, ts = excluded.ts";
        let values = rows_of(&mut random);
        run(
            &client,
            &format!("INSERT INTO t SELECT DISTINCT ON (column1) * FROM (VALUES {values}) AS n {upsert}"),
        )
        .await?;
        let gone = random.random_range(0..7);
        run(&client, &format!("DELETE FROM t WHERE id % 7 = {gone}")).await?;
        if step == 6 {
            run(&client, "DELETE FROM t").await?;
        }
        for (number, query) in QUERIES.iter().enumerate().filter(|_| step > 0) {
            let answer = rows(&client, query).await?;
            for form in ["panes", "plain"] {
                let shown = rows(&client, &format!("SELECT * FROM {form}{number}")).await?;
                assert!(
                    shown == answer,
                    "seed {seed}, step {step}: {form}{number} has {} rows, its query {}",
                    shown.len(),
                    answer.len()
                );
            }
        }
    }
    server.shutdown().await;
    Ok(())
}

/// A server that ran under a date of next year: after its clock was set right, `now()` is what the clock says, and what views have
/// lost by that date is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_wrong_does_not_hold_the_time() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let year = 365 * 86_400_000_000;
    let right = virtual_clock();
    let wrong = Arc::new(VirtualClock::new(right.now() + year));
    let server = start_on(directory.path(), &wrong).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE TABLE t (id INT, ts TIMESTAMPTZ);
         CREATE MATERIALIZED VIEW recent AS SELECT id FROM t WHERE ts > now() - INTERVAL '1 hour';
         CREATE MATERIALIZED VIEW number AS SELECT count(*) AS n FROM t;
         INSERT INTO t VALUES (1, '2026-01-01 00:30:00Z'), (2, '2027-01-01 00:30:00Z'), (3, '2025-01-01 00:00:00Z')",
    )
    .await?;
    assert_eq!(
        rows(&client, "SELECT id FROM recent").await?,
        [vec![Some("2".to_owned())]]
    );
    drop(client);
    server.shutdown().await;

    right.advance_to(right.now() + 60_000_000);
    let server = start_on(directory.path(), &right).await?;
    let client = connect(server.pg_addr()).await?;
    let now = rows(&client, "SELECT now()::timestamp").await?;
    assert_eq!(now, [vec![Some("2026-01-01 00:01:00".to_owned())]]);
    let both = [vec![Some("1".to_owned())], vec![Some("2".to_owned())]];
    assert_eq!(rows(&client, "SELECT id FROM recent").await?, both);
    // What does not go by the time comes from the checkpoint.
    let recovered = rows(&client, "SELECT view, state FROM mr_catalog.recovery").await?;
    let state = |view: &str, state: &str| vec![Some(view.to_owned()), Some(state.to_owned())];
    assert_eq!(
        recovered,
        [state("number", "restored"), state("recent", "filled")]
    );
    run(&client, "INSERT INTO t VALUES (4, '2026-01-01 00:00:30Z')").await?;
    right.advance_to(right.now() + 5_400_000_000);
    run(&client, "FLUSH").await?;
    drop(client);
    server.shutdown().await;

    // And time goes on from there.
    let server = start_on(directory.path(), &right).await?;
    let client = connect(server.pg_addr()).await?;
    let only = [vec![Some("2".to_owned())]];
    assert_eq!(rows(&client, "SELECT id FROM recent").await?, only);
    let recovered = rows(&client, "SELECT view, state FROM mr_catalog.recovery").await?;
    assert_eq!(
        recovered,
        [state("number", "restored"), state("recent", "restored")]
    );
    drop(client);
    server.shutdown().await;
    Ok(())
}
