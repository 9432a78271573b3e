//! Partitions whose clocks differ, and sources that are paused.

use std::path::Path;
use std::time::Duration;

use krafka::Record;
use millrace_sql_tests::kafka::{Broker, create_topic};
use millrace_sql_tests::outside::{refused, until};
use millrace_sql_tests::{Failure, connect, rows, run, start};

use crate::{send, with};

/// A record of partition `p`, with a time of 2026-01-01.
fn at(topic: &str, p: i32, time: &str) -> Record {
    Record::new(topic, format!("2026-01-01 {time}Z")).partition(p)
}

const WATERMARK: &str =
    "SELECT to_char(watermark, 'HH24:MI') FROM mr_catalog.watermarks WHERE relation = 'clocks'";

pub async fn watermarks(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "clocks", 2).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let options = with(
        broker,
        "clocks",
        ", format = 'csv', include.partition = 'p', late = 'stream', watermark.idle_timeout = 'off'",
    );
    let create = format!("CREATE STREAM clocks (ts TIMESTAMPTZ, p INT, WATERMARK FOR ts AS ts) {options}");
    run(&client, &create).await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW hours AS SELECT window_end, count(*) AS n
         FROM TUMBLE(clocks, ts, INTERVAL '1 hour') GROUP BY window_end EMIT ON WINDOW CLOSE",
    )
    .await?;
    let hours = "SELECT to_char(window_end, 'HH24'), n FROM hours ORDER BY 1";
    let count = "SELECT count(*) FROM clocks";
    send(&kafka, [at("clocks", 0, "12:00"), at("clocks", 0, "13:00")]).await?;
    until(&client, count, "2").await?;
    until(&client, WATERMARK, "NULL").await?;
    // What a partition has that is read later is not late, however far behind it is.
    send(&kafka, [at("clocks", 1, "10:00")]).await?;
    until(&client, count, "3").await?;
    until(&client, WATERMARK, "10:00").await?;
    until(&client, hours, "").await?;
    send(&kafka, [at("clocks", 1, "11:30")]).await?;
    until(&client, WATERMARK, "11:30").await?;
    until(&client, hours, "11 1").await?;
    send(&kafka, [at("clocks", 0, "11:00")]).await?;
    until(
        &client,
        "SELECT p, to_char(ts, 'HH24:MI') FROM \"clocks$late\"",
        "0 11:00",
    )
    .await?;
    // All of that is known after a restart.
    drop(client);
    server.shutdown().await;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, WATERMARK, "11:30").await?;
    until(&client, hours, "11 1").await?;
    send(&kafka, [at("clocks", 0, "15:00"), at("clocks", 1, "11:40")]).await?;
    until(&client, count, "6").await?;
    until(&client, WATERMARK, "11:40").await?;
    send(&kafka, [at("clocks", 1, "14:20")]).await?;
    until(&client, hours, "11 1, 12 2, 13 1, 14 1").await?;
    until(&client, WATERMARK, "14:20").await?;
    // Set back by hand, the partitions begin anew.
    run(&client, "DROP MATERIALIZED VIEW hours").await?;
    run(
        &client,
        "ALTER STREAM clocks SET WATERMARK TO '2026-01-01 09:00Z'",
    )
    .await?;
    send(&kafka, [at("clocks", 0, "16:00")]).await?;
    until(&client, count, "8").await?;
    until(&client, WATERMARK, "09:00").await?;
    drop(client);
    server.shutdown().await;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, WATERMARK, "09:00").await?;
    send(&kafka, [at("clocks", 1, "09:30")]).await?;
    until(&client, WATERMARK, "09:30").await?;
    until(&client, count, "9").await?;
    // A partition without records is not waited for for ever.
    run(&client, "DROP STREAM clocks").await?;
    create_topic(&kafka, "silent", 3).await?;
    let options = with(
        broker,
        "silent",
        ", format = 'csv', watermark.idle_timeout = '100ms'",
    );
    let create = format!("CREATE STREAM clocks (ts TIMESTAMPTZ, WATERMARK FOR ts AS ts) {options}");
    run(&client, &create).await?;
    let mut minute = 0;
    while rows(&client, WATERMARK).await?[0][0].is_none() {
        assert!(minute < 59, "the silent partitions are still waited for");
        send(&kafka, [at("silent", 2, &format!("12:{minute:02}"))]).await?;
        minute += 1;
        until(&client, count, &minute.to_string()).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let error = refused(
        &client,
        &create.replace("clocks (", "x (").replace("100ms", "soon"),
    )
    .await?;
    assert!(error.contains("watermark.idle_timeout"), "{error}");
    server.shutdown().await;
    Ok(())
}

pub async fn pauses(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "pauses", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let options = with(broker, "pauses", ", format = 'csv', on_error = 'fail'");
    run(&client, &format!("CREATE STREAM pauses (n INT) {options}")).await?;
    run(&client, "CREATE STREAM alone (n INT)").await?;
    let sum = "SELECT count(*), sum(n) FROM pauses";
    let state = "SELECT state FROM mr_catalog.sources WHERE name = 'pauses'";
    send(&kafka, [Record::new("pauses", "1")]).await?;
    until(&client, sum, "1 1").await?;
    run(&client, "PAUSE STREAM pauses").await?;
    run(&client, "PAUSE STREAM pauses").await?;
    until(&client, state, "paused").await?;
    send(&kafka, [Record::new("pauses", "2")]).await?;
    drop(client);
    server.shutdown().await;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, state, "paused").await?;
    until(&client, sum, "1 1").await?;
    run(&client, "RESUME STREAM pauses").await?;
    until(&client, sum, "2 3").await?;
    until(&client, state, "running").await?;
    // What has failed can be tried again: here the reason is still there.
    send(&kafka, [Record::new("pauses", "x"), Record::new("pauses", "4")]).await?;
    until(&client, state, "failed").await?;
    run(&client, "RESUME STREAM pauses").await?;
    until(&client, state, "failed").await?;
    until(&client, sum, "2 3").await?;
    for (statement, expected) in [
        ("PAUSE STREAM alone", "nothing feeds"),
        ("RESUME STREAM nobody", "does not exist"),
        (
            "BEGIN; PAUSE STREAM pauses",
            "cannot run inside a transaction block",
        ),
    ] {
        let error = refused(&client, statement).await?;
        assert!(error.contains(expected), "{statement}: {error}");
    }
    server.shutdown().await;
    Ok(())
}
