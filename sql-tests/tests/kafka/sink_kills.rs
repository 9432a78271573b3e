//! Rows change while the server and the broker are killed: what a topic has is what the view was, step after step, each once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::kafka::{Broker, Written, create_topic};
use millrace_sql_tests::outside::{rounds, until, write_until_told};
use millrace_sql_tests::{Failure, connect, rows, run, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::with;

/// Rows of the table.
const KEYS: u32 = 400;

/// The server and the broker are killed in any order, and checkpoints are lost, so that views are filled again.
pub async fn kills(broker: &mut Broker, place: &Path) -> Result<(), Failure> {
    let rounds = rounds("KAFKA_ROUNDS");
    let seed = seed();
    println!("sink_kills: {rounds} rounds, MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let kafka = broker.client().await?;
    for topic in ["k_plain", "k_upsert", "k_debezium"] {
        create_topic(&kafka, topic, 3).await?;
    }
    let mut server = Process::start(place, 1, false)?;
    let client = connect(server.pg).await?;
    run(&client, "CREATE STREAM s (a BIGINT)").await?;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT, pad TEXT)").await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW sums AS SELECT id % 50 AS g, count(*) AS n, sum(v) AS v FROM t GROUP BY id % 50",
    )
    .await?;
    for (from, topic, format) in [
        ("s", "k_plain", "PLAIN"),
        ("sums", "k_upsert", "UPSERT"),
        ("t", "k_debezium", "DEBEZIUM"),
    ] {
        let options = with(broker, topic, ", rollover_seconds = 0.02");
        let create = format!("CREATE SINK {topic} FROM {from} {options} FORMAT {format} ENCODE JSON");
        run(&client, &create).await?;
    }
    drop(client);
    let (told, address) = watch::channel(Some(server.pg));
    let writing = tokio::spawn(write(address, random.random()));
    for round in 0..rounds {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..1500))).await;
        // Of the first three each kind is one.
        let what = match round {
            0..3 => round,
            _ => random.random_range(0..3),
        };
        if what == 0 {
            broker.kill()?;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
            broker.run()?;
            continue;
        }
        server.kill()?;
        if what == 1 {
            std::fs::remove_dir_all(place.join("checkpoints"))?;
        }
        server = Process::start(place, random.random_range(1..3), false)?;
        told.send_replace(Some(server.pg));
    }
    told.send_replace(None);
    writing.await?;
    let client = connect(server.pg).await?;
    until(
        &client,
        "SELECT count(*) FROM mr_catalog.sinks WHERE state = 'running'",
        "3",
    )
    .await?;
    run(&client, "FLUSH").await?;
    let mut topics = broker.read(&["k_plain", "k_upsert", "k_debezium"])?;
    let mut topic = |name: &str| topics.remove(name).unwrap_or_default();
    plain(&client, topic("k_plain")).await?;
    let upserts = newest(&topic("k_upsert"))?;
    compare(&client, "SELECT g, n, v FROM sums", &upserts).await?;
    let changes = applied(&topic("k_debezium"))?;
    compare(&client, "SELECT id, v, pad FROM t", &changes).await?;
    let steps = rows(
        &client,
        "SELECT name, files, rows FROM mr_catalog.sinks ORDER BY 1",
    )
    .await?;
    println!("sink_kills: {steps:?}");
    server.kill()
}

/// Changes rows until it is told to end. What is not acknowledged may be there: the server itself says what is.
async fn write(address: watch::Receiver<Option<SocketAddr>>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut number = 0_u64;
    let statement = move || {
        number += 1;
        match random.random_range(0..10) {
            0 => format!("DELETE FROM t WHERE id % 17 = {}", random.random_range(0..17)),
            1..4 => {
                format!("INSERT INTO s SELECT {number} * 100 + i FROM generate_series(0, 19) AS g(i)")
            }
            _ => {
                let first = random.random_range(0..KEYS);
                format!(
                    "INSERT INTO t SELECT i, {number}, repeat('x', 200) FROM generate_series({first}, {}) AS g(i) \
                     ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",
                    first + 30
                )
            }
        }
    };
    write_until_told(address, statement).await;
}

/// Each row of the stream is there once.
async fn plain(client: &Client, records: Vec<Written>) -> Result<(), Failure> {
    let mut found: Vec<String> = (records.into_iter())
        .map(|record| record.value.ok_or("a record without a value"))
        .collect::<Result<_, _>>()?;
    let mut expected: Vec<String> = rows(client, "SELECT a FROM s")
        .await?
        .into_iter()
        .map(|row| format!("{{\"a\":{}}}", row[0].as_deref().unwrap_or_default()))
        .collect();
    found.sort();
    expected.sort();
    if expected.is_empty() || found != expected {
        return Err(format!("{} records of {} rows", found.len(), expected.len()).into());
    }
    Ok(())
}

/// What upserts leave behind. Each of them changes something: one that is there twice does not.
fn newest(records: &[Written]) -> Result<BTreeMap<String, String>, Failure> {
    let mut newest = BTreeMap::new();
    for record in records {
        let key = record.key.clone().ok_or("a record without a key")?;
        let before = match &record.value {
            Some(value) => newest.insert(key, value.clone()),
            None => newest.remove(&key),
        };
        if before == record.value {
            return Err(format!("a record changes nothing: {record:?}").into());
        }
    }
    Ok(newest)
}

/// What changes leave behind, each of which begins with what the one before left.
fn applied(records: &[Written]) -> Result<BTreeMap<String, String>, Failure> {
    let mut rows: BTreeMap<String, String> = BTreeMap::new();
    let mut gone = None;
    for record in records {
        let key = record.key.clone().ok_or("a record without a key")?;
        let Some(value) = &record.value else {
            // Behind each deletion, and only there.
            if gone.take() != Some(key) {
                return Err(format!("a tombstone without a deletion: {record:?}").into());
            }
            continue;
        };
        let value: serde_json::Value = serde_json::from_str(value)?;
        let text = |member: &str| (!value[member].is_null()).then(|| value[member].to_string());
        let (before, after) = (text("before"), text("after"));
        let op = match (&before, &after) {
            (None, Some(_)) => "c",
            (Some(_), Some(_)) => "u",
            (Some(_), None) => "d",
            (None, None) => "",
        };
        if rows.get(&key) != before.as_ref() || before == after || value["op"] != op || gone.is_some() {
            return Err(format!("{record:?} comes after {:?}", rows.get(&key)).into());
        }
        match after {
            Some(after) => rows.insert(key, after),
            None => {
                gone = Some(key.clone());
                rows.remove(&key)
            }
        };
    }
    Ok(rows)
}

async fn compare(client: &Client, sql: &str, topic: &BTreeMap<String, String>) -> Result<(), Failure> {
    let as_json = |value: &str| -> Result<Vec<String>, Failure> {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(value)?;
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(object.values().map(text).collect())
    };
    let mut found = topic
        .values()
        .map(|value| as_json(value))
        .collect::<Result<Vec<_>, _>>()?;
    let mut expected: Vec<Vec<String>> = (rows(client, sql).await?.into_iter())
        .map(|row| row.into_iter().map(Option::unwrap_or_default).collect())
        .collect();
    // An object's members may come in another order than the columns.
    for row in found.iter_mut().chain(&mut expected) {
        row.sort();
    }
    found.sort();
    expected.sort();
    if expected.is_empty() || found != expected {
        return Err(format!("{sql}: {} rows, and {} in the topic", expected.len(), found.len()).into());
    }
    Ok(())
}
