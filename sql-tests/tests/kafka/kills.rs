//! Records come while the server and the broker are killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use krafka::Record;
use millrace_sql_tests::crash::Process;
use millrace_sql_tests::kafka::{Broker, contents, create_topic};
use millrace_sql_tests::outside::{rounds, until};
use millrace_sql_tests::{Failure, connect, rows, run, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::with;

/// The server and the broker are killed in any order while records come; at the end each is there once.
pub async fn kills(broker: &mut Broker, place: &Path) -> Result<(), Failure> {
    let rounds = rounds("KAFKA_ROUNDS");
    let seed = seed();
    println!("kills: {rounds} rounds, SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let kafka = broker.client().await?;
    create_topic(&kafka, "kills", 3).await?;
    create_topic(&kafka, "kills-keyed", 3).await?;
    let mut server = Process::start(place, 1, false)?;
    let client = connect(server.pg).await?;
    let options = with(
        broker,
        "kills",
        ", format = 'csv', include.partition = 'p', include.offset = 'o', watermark.idle_timeout = 'off'",
    );
    run(
        &client,
        &format!(
            "CREATE STREAM kills (n BIGINT, ts TIMESTAMPTZ, p INT, o BIGINT, WATERMARK FOR ts AS ts) {options}"
        ),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW minutes AS SELECT window_end, count(*) AS n, sum(n) AS s
         FROM TUMBLE(kills, ts, INTERVAL '1 minute') GROUP BY window_end EMIT ON WINDOW CLOSE",
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW sums AS SELECT p, count(*) AS n, sum(n) AS s FROM kills GROUP BY p",
    )
    .await?;
    let options = with(broker, "kills-keyed", "");
    run(
        &client,
        &format!("CREATE TABLE keyed (k INT PRIMARY KEY, v BIGINT) {options} FORMAT UPSERT ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW tens AS SELECT k / 10 AS d, count(*) AS n, sum(v) AS s FROM keyed GROUP BY 1",
    )
    .await?;
    drop(client);
    let stop = Arc::new(AtomicBool::new(false));
    let producing = {
        let stop = Arc::clone(&stop);
        let producer = kafka
            .producer()
            .delivery_timeout(Duration::from_secs(120))
            .linger(Duration::from_millis(1))
            .build()
            .await?;
        tokio::spawn(async move {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let partition = number % 3;
                // The clocks of partitions are half a minute apart.
                let seconds = i64::try_from(number / 10 + 30 * partition).unwrap();
                let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap();
                let record = Record::new("kills", format!("{number},{}", time.to_rfc3339()));
                // What is not acknowledged may be there: the topic itself says what is.
                let _ = producer.enqueue(record.partition(partition as i32)).await;
                let key = number * 7919 % 97;
                let record = match number % 5 {
                    0 => Record::tombstone("kills-keyed", key.to_string()),
                    _ => Record::new("kills-keyed", format!(r#"{{"v": {number}}}"#)).key(key.to_string()),
                };
                let _ = producer.enqueue(record.partition((key % 3) as i32)).await;
                if number.is_multiple_of(50) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            let _ = producer.flush().await;
            let _ = producer.close().await;
        })
    };
    for _ in 0..rounds {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..1500))).await;
        if random.random_bool(0.2) {
            let client = connect(server.pg).await?;
            run(&client, "PAUSE STREAM kills").await?;
            if random.random_bool(0.5) {
                run(&client, "RESUME STREAM kills").await?;
            } else {
                server.kill()?;
                server = Process::start(place, 1, false)?;
                run(&connect(server.pg).await?, "RESUME STREAM kills").await?;
            }
        } else if random.random_bool(0.3) {
            broker.kill()?;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..500))).await;
            broker.run()?;
        } else {
            server.kill()?;
            server = Process::start(place, random.random_range(1..3), false)?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    producing.await?;
    let kafka = broker.client().await?;
    let topic = contents(&kafka, "kills").await?;
    let topic: BTreeMap<(i32, i64), Option<String>> = topic
        .into_iter()
        .map(|(place, (_, value))| (place, value))
        .collect();
    let client = connect(server.pg).await?;
    until(&client, "SELECT count(*) FROM kills", &topic.len().to_string()).await?;
    let found = rows(
        &client,
        "SELECT p, o, n, to_char(ts, 'YYYY-MM-DD\"T\"HH24:MI:SS+00:00') FROM kills",
    )
    .await?;
    let found: BTreeMap<(i32, i64), Option<String>> = (found.into_iter())
        .map(|row| {
            let number = |at: usize| row[at].as_deref().unwrap_or_default().to_owned();
            (
                (number(0).parse().unwrap(), number(1).parse().unwrap()),
                Some(format!("{},{}", number(2), number(3))),
            )
        })
        .collect();
    if found != topic {
        let missing: Vec<_> = topic
            .iter()
            .filter(|(place, _)| !found.contains_key(place))
            .take(5)
            .collect();
        return Err(format!("{} of {} records; missing: {missing:?}", found.len(), topic.len()).into());
    }
    let expected = rows(
        &client,
        "SELECT p, count(*), sum(n) FROM kills GROUP BY p ORDER BY p",
    )
    .await?;
    let view = rows(&client, "SELECT p, n, s FROM sums ORDER BY p").await?;
    if view != expected {
        return Err(format!("the view has {view:?} instead of {expected:?}").into());
    }
    let expected = "SELECT window_end, count(*), sum(n) FROM TUMBLE(kills, ts, INTERVAL '1 minute')
        WHERE window_end <= (SELECT min(m) FROM (SELECT max(ts) AS m FROM kills GROUP BY p) w)
        GROUP BY window_end ORDER BY window_end";
    let expected = rows(&client, expected).await?;
    let view = rows(
        &client,
        "SELECT window_end, n, s FROM minutes ORDER BY window_end",
    )
    .await?;
    if view != expected {
        return Err(format!("the closed windows are {view:?} instead of {expected:?}").into());
    }
    // Of each key what its last record says.
    let mut last = BTreeMap::new();
    let keyed = contents(&kafka, "kills-keyed").await?;
    for (key, value) in keyed.values() {
        let key: u64 = key.as_deref().unwrap_or_default().parse()?;
        match value {
            Some(value) => last.insert(key, value.replace("{\"v\": ", "").replace('}', "")),
            None => last.remove(&key),
        };
    }
    let last: Vec<String> = last.iter().map(|(key, value)| format!("{key} {value}")).collect();
    until(&client, "SELECT k, v FROM keyed ORDER BY k", &last.join(", ")).await?;
    let difference = "SELECT count(*) FROM (SELECT k / 10, count(*), sum(v) FROM keyed GROUP BY 1 EXCEPT SELECT * FROM tens) d";
    until(&client, difference, "0").await?;
    println!("kills: {} changes of {} keys", keyed.len(), last.len());
    println!("kills: {} records, {} closed windows", topic.len(), view.len());
    server.kill()
}
