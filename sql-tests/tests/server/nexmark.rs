//! The 23 queries of Nexmark as materialized views over the three streams of its generator. Each equals what the same query
//! answers in batch, after all rows have come and after a restart; those with windows in event time also hold, with
//! EMIT ON WINDOW CLOSE, exactly the rows that are final.
//!
//! `MILLRACE_SEED` is the seed.

use millrace_oracle::text::TextRow;
use millrace_sql_tests::{Failure, connect, rows, run, seed, sorted_rows, start};
use tokio_postgres::Client;

/// Events of all kinds, and event time between them: half a minute less than seven.
const EVENTS: u64 = 40_000;
const GAP_NS: u64 = 10_000_000;

macro_rules! queries {
    ($($number:literal)*) => { [$((concat!("q", $number), include_str!(concat!("../../nexmark/q", $number, ".sql"))),)*] };
}

const QUERIES: [(&str, &str); 23] = queries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22);

/// Which rows of the answer are final at the watermarks `{bid}`, `{both}` (of persons and auctions).
const FINAL: [(&str, &str); 4] = [
    ("q5", "endtime <= {bid}"),
    // A bid at the end of a window may still be as high as the window's highest.
    (
        "q7",
        "date_bin(INTERVAL '10 seconds', date_time) + INTERVAL '10 seconds' < {bid}",
    ),
    ("q8", "endtime <= {both}"),
    ("q11", "endtime < {bid}"),
];

async fn make(client: &Client, seed: u64) -> Result<(), Failure> {
    let common = format!(
        "connector = 'nexmark', nexmark.event.num = {EVENTS}, nexmark.min.event.gap.in.ns = {GAP_NS}, seed = {seed}"
    );
    let watermark =
        "date_time TIMESTAMPTZ, extra TEXT, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds'";
    for (kind, columns) in [
        (
            "person",
            "id BIGINT, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT",
        ),
        (
            "auction",
            "id BIGINT, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMPTZ, seller BIGINT, category BIGINT",
        ),
        (
            "bid",
            "auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, p_time TIMESTAMPTZ AS PROCTIME()",
        ),
    ] {
        let stream = format!(
            "CREATE STREAM {kind} ({columns}, {watermark}) WITH ({common}, nexmark.table.type = '{kind}')"
        );
        run(client, &stream).await?;
    }
    Ok(())
}

async fn make_view(client: &Client, name: &str, query: &str) -> Result<(), Failure> {
    run(client, &format!("CREATE MATERIALIZED VIEW {name} AS {query}")).await?;
    if FINAL.iter().any(|(closed, _)| *closed == name) {
        let closed = format!("CREATE MATERIALIZED VIEW {name}_closed AS {query} EMIT ON WINDOW CLOSE");
        run(client, &closed).await?;
    }
    Ok(())
}

async fn watermark(client: &Client, streams: &[&str]) -> Result<String, Failure> {
    let mut known = vec![];
    for row in rows(client, "SHOW WATERMARKS").await? {
        if streams.iter().any(|stream| row[0].as_deref() == Some(stream)) {
            known.push(format!("TIMESTAMPTZ '{}'", row[1].as_deref().unwrap_or_default()));
        }
    }
    assert_eq!(known.len(), streams.len());
    Ok(format!("least({})", known.join(", ")))
}

async fn compare(client: &Client, what: &str) -> Result<(), Failure> {
    let (bid, both) = (
        watermark(client, &["bid"]).await?,
        watermark(client, &["person", "auction"]).await?,
    );
    for (name, query) in QUERIES {
        let equal = |shown: &[TextRow], answer: &[TextRow], name: &str| {
            let (more, less) = (shown.len(), answer.len());
            assert!(!answer.is_empty(), "{what}: {name} has no rows");
            let first = shown.iter().zip(answer).find(|(shown, answer)| shown != answer);
            assert!(
                shown == answer,
                "{what}: {name} has {more} rows, its query {less}; the first that differ: {first:?}"
            );
        };
        let shown = sorted_rows(client, &format!("SELECT * FROM {name}")).await?;
        let answer = sorted_rows(client, query).await?;
        equal(&shown, &answer, name);
        if let Some((_, condition)) = FINAL.iter().find(|(closed, _)| *closed == name) {
            let condition = condition.replace("{bid}", &bid).replace("{both}", &both);
            let closed = sorted_rows(client, &format!("SELECT * FROM {name}_closed")).await?;
            let answer =
                sorted_rows(client, &format!("SELECT * FROM ({query}) AS q WHERE {condition}")).await?;
            equal(&closed, &answer, &format!("{name}_closed"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_as_a_view_equals_its_batch_answer() -> Result<(), Failure> {
    let seed = seed();
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE TABLE side_input (key BIGINT PRIMARY KEY, value TEXT)",
    )
    .await?;
    let side = "INSERT INTO side_input SELECT i, 'value ' || i FROM generate_series(0, 9999) AS g (i)";
    run(&client, side).await?;
    run(
        &client,
        "CREATE FUNCTION count_char(s TEXT, c TEXT) RETURNS BIGINT LANGUAGE SQL AS $$ SELECT length(s) - length(replace(s, c, '')) $$",
    )
    .await?;
    // Half of the views are there while the rows come, the others are made over all of them.
    let early = |position: usize| (position as u64 + seed).is_multiple_of(2);
    make(&client, seed).await?;
    for (position, (name, query)) in QUERIES.iter().enumerate() {
        if early(position) {
            make_view(&client, name, query).await?;
        }
    }
    run(&client, "WAIT").await?;
    for (position, (name, query)) in QUERIES.iter().enumerate() {
        if !early(position) {
            make_view(&client, name, query).await?;
        }
    }
    let bids = rows(&client, "SELECT count(*) FROM bid").await?;
    assert_eq!(
        bids[0][0].as_deref(),
        Some((EVENTS / 50 * 46).to_string().as_str())
    );
    compare(&client, &format!("seed {seed}")).await?;
    drop(client);
    server.shutdown().await;

    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    compare(&client, &format!("seed {seed}, after a restart")).await?;
    server.shutdown().await;
    Ok(())
}
