//! Topics of a real broker as streams and as sinks: what is read and written, that each record is there once whatever is killed, and what is
//! said when it cannot be.
//!
//! Needs the jars of a broker (`millrace_sql_tests::kafka::JARS`); it is skipped without them. `KAFKA_ROUNDS` is how often processes
//! are killed, `SEED` in which order.

#![allow(clippy::unwrap_used)]

mod avro_sinks;
mod changes;
mod kills;
mod schemas;
mod sink_kills;
mod sinks;
mod tables;
mod time;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use krafka::Compression;
use krafka::admin::CreatePartitionsOptions;
use krafka::consumer::TopicPartition;
use krafka::producer::Acks;
use krafka::{Kafka, Record};
use millrace_sql_tests::crash::serve_if_child;
use millrace_sql_tests::kafka::{Broker, JARS, USER, create_topic};
use millrace_sql_tests::outside::{Suite, refused, until};
use millrace_sql_tests::{Failure, connect, run, start};

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(broker) = Broker::start(&directory.path().join("broker")).unwrap() else {
        println!("skipped: {JARS} does not say where the jars of a Kafka broker are");
        return ExitCode::SUCCESS;
    };
    let mut suite = Suite::new(directory.path(), broker).unwrap();
    suite
        .test("formats", async |broker, place| formats(broker, place).await)
        .test("beginnings", async |broker, place| {
            beginnings(broker, place).await
        })
        .test("transactions", async |broker, place| {
            transactions(broker, place).await
        })
        .test("partitions", async |broker, place| {
            partitions(broker, place).await
        })
        .test("watermarks", async |broker, place| {
            time::watermarks(broker, place).await
        })
        .test("schemas", async |broker, place| {
            schemas::schemas(broker, place).await
        })
        .test("changes", async |broker, place| {
            changes::changes(broker, place).await
        })
        .test("tables", async |broker, place| {
            tables::tables(broker, place).await
        })
        .test("pauses", async |broker, place| time::pauses(broker, place).await)
        .test("refusals", async |broker, place| refusals(broker, place).await)
        .test("passwords", async |broker, place| passwords(broker, place).await)
        .test("kills", async |broker, place| kills::kills(broker, place).await)
        .test("sink_forms", async |broker, place| {
            sinks::forms(broker, place).await
        })
        .test("sink_types", async |broker, place| {
            sinks::types(broker, place).await
        })
        .test("sink_outbox", async |broker, place| {
            sinks::outbox(broker, place).await
        })
        .test("sink_refusals", async |broker, place| {
            sinks::refusals(broker, place).await
        })
        .test("sink_outage", async |broker, place| {
            sinks::outage(broker, place).await?;
            sinks::recreated(broker, &place.join("recreated")).await
        })
        .test("sink_copies", async |broker, place| {
            sinks::copies(broker, place).await
        })
        .test("sink_avro", async |broker, place| {
            avro_sinks::sinks(broker, place).await
        })
        .test("sink_kills", async |broker, place| {
            sink_kills::kills(broker, place).await
        })
        .outcome()
}

async fn send(kafka: &Kafka, records: impl IntoIterator<Item = Record>) -> Result<(), Failure> {
    let producer = kafka
        .producer()
        .acks(Acks::All)
        .linger(Duration::from_millis(2))
        .build()
        .await?;
    let mut handles = vec![];
    for record in records {
        handles.push(producer.enqueue(record).await?);
    }
    for handle in handles {
        let _ = handle.await?;
    }
    producer.close().await?;
    Ok(())
}

fn with(broker: &Broker, topic: &str, more: &str) -> String {
    format!(
        "WITH (connector = 'kafka', topic = '{topic}', properties.bootstrap.server = '{}'{more})",
        broker.address()
    )
}

async fn formats(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    for topic in ["json", "csv", "raw"] {
        create_topic(&kafka, topic, 1).await?;
    }
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let json = with(broker, "json", ", include.key = 'k'");
    run(
        &client,
        &format!(
            "CREATE STREAM j (a INT NOT NULL, b TEXT, j JSONB, k TEXT, twice INT GENERATED ALWAYS AS (a * 2)) \
             INCLUDE offset AS o INCLUDE headers AS h INCLUDE timestamp AS ts {json} FORMAT PLAIN ENCODE JSON"
        ),
    )
    .await?;
    let csv = with(broker, "csv", "");
    run(
        &client,
        &format!("CREATE STREAM c (a INT, b TEXT) {csv} FORMAT PLAIN ENCODE CSV (delimiter = ';')"),
    )
    .await?;
    let raw = with(broker, "raw", ", format = 'bytes'");
    run(&client, &format!("CREATE STREAM r (v BYTEA) {raw}")).await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(a) AS a FROM j",
    )
    .await?;

    let json = [
        Record::new("json", r#"{"a": 1, "b": "x", "j": [1], "unknown": 7}"#)
            .key("k1")
            .header("from", "test"),
        Record::new("json", "no json"),
        Record::new("json", r#"{"a": null}"#),
        Record::new("json", r#"{"a": 99999999999}"#),
        Record::tombstone("json", "k2"),
        Record::new("json", "{\n\"a\":\n2}"),
    ];
    send(&kafka, json).await?;
    send(
        &kafka,
        ["1;x", "\"2\";\"a;b\"", "3", "4;NULL"].map(|value| Record::new("csv", value)),
    )
    .await?;
    send(
        &kafka,
        [Record::new("raw", vec![0u8, 255]), Record::new("raw", vec![])],
    )
    .await?;

    until(&client, "SELECT * FROM total", "2 3").await?;
    until(
        &client,
        "SELECT a, b, j, k, o, h, twice, ts > now() - interval '1 hour' AS t FROM j ORDER BY o",
        "1 x [1] k1 0 {\"from\": \"test\"} 2 t, 2 NULL NULL NULL 5 {} 4 t",
    )
    .await?;
    until(
        &client,
        "SELECT \"offset\", code, bytes FROM \"j$errors\" ORDER BY 1",
        "1 22032 7, 2 23502 11, 3 22003 18, 4 22P02 NULL",
    )
    .await?;
    until(&client, "SELECT * FROM c ORDER BY a", "1 x, 2 a;b, 4 NULL").await?;
    until(
        &client,
        "SELECT \"offset\", convert_from(value, 'UTF8') FROM \"c$errors\"",
        "2 3",
    )
    .await?;
    until(&client, "SELECT v FROM r ORDER BY v", "\\x, \\x00ff").await?;
    until(
        &client,
        "SELECT name, connector, state, rows, bad_records, errors, lag_records, position, error FROM mr_catalog.sources ORDER BY 1",
        "c kafka running 3 1 c$errors 0 {\"0\":4} NULL, j kafka running 2 4 j$errors 0 {\"0\":6} NULL, \
         r kafka running 2 0 r$errors 0 {\"0\":2} NULL",
    )
    .await?;
    // What was read is not read again, and what comes then is.
    drop(client);
    server.shutdown().await;
    for compression in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let producer = kafka.producer().compression(compression).build().await?;
        for _ in 0..10 {
            let _ = producer.send(Record::new("json", r#"{"a": 10}"#)).await?;
        }
        producer.close().await?;
    }
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, "SELECT * FROM total", "42 403").await?;
    until(&client, "SELECT count(*), count(DISTINCT o) FROM j", "42 42").await?;
    run(&client, "DROP STREAM c").await?;
    until(
        &client,
        "SELECT count(*) FROM pg_class WHERE relname = 'c$errors'",
        "0",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}

async fn beginnings(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "old", 2).await?;
    let at = |n: i64| {
        Record::new("old", format!("{n}"))
            .partition((n % 2) as i32)
            .timestamp(1_000_000 + n)
    };
    send(&kafka, (0..10).map(at)).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    for (name, options) in [
        ("all_of_it", ""),
        ("earliest", ", scan.startup.mode = 'earliest'"),
        ("latest", ", scan.startup.mode = 'latest'"),
        ("by_time", ", scan.startup.timestamp.millis = 1000006"),
        (
            "after",
            ", scan.startup.mode = 'timestamp', scan.startup.timestamp.millis = 9000000",
        ),
        (
            "by_offset",
            ", scan.startup.specific-offsets = 'partition:0,offset:3;partition:1,offset:5'",
        ),
    ] {
        let options = with(broker, "old", &format!(", format = 'csv'{options}"));
        let options = options.replace("scan.startup.specific-offsets", "'scan.startup.specific-offsets'");
        run(&client, &format!("CREATE STREAM {name} (n INT) {options}")).await?;
    }
    for (offsets, expected) in [
        ("partition:2,offset:0", "has no partition 2"),
        (
            "partition:0,offset:99",
            "can be read from offset 0 to 5, and not from 99",
        ),
    ] {
        let options = format!(", format = 'csv', 'scan.startup.specific-offsets' = '{offsets}'");
        let error = refused(
            &client,
            &format!("CREATE STREAM none (n INT) {}", with(broker, "old", &options)),
        )
        .await?;
        assert!(error.contains(expected), "{error}");
    }
    send(&kafka, (10..12).map(at)).await?;
    // Of partition 1 of these nothing was read, and what "latest" was stays.
    create_topic(&kafka, "quiet", 2).await?;
    let quiet = |n: i32| Record::new("quiet", n.to_string()).partition(n % 2);
    send(&kafka, (0..4).map(quiet)).await?;
    let options = with(broker, "quiet", ", format = 'csv', scan.startup.mode = 'latest'");
    for name in ["quiet", "silent"] {
        run(&client, &format!("CREATE STREAM {name} (n INT) {options}")).await?;
        if name == "quiet" {
            send(&kafka, [quiet(4)]).await?;
            until(&client, "SELECT sum(n) FROM quiet", "4").await?;
        }
    }
    drop(client);
    server.shutdown().await;
    send(&kafka, [quiet(5), quiet(6)]).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(&client, "SELECT count(*), sum(n) FROM quiet", "3 15").await?;
    until(&client, "SELECT count(*), sum(n) FROM silent", "2 11").await?;
    for (name, expected) in [
        ("all_of_it", "12 66"),
        ("earliest", "12 66"),
        ("latest", "2 21"),
        ("by_time", "6 51"),
        ("after", "2 21"),
        ("by_offset", "4 35"),
    ] {
        until(&client, &format!("SELECT count(*), sum(n) FROM {name}"), expected)
            .await
            .map_err(|e| format!("{name}: {e}"))?;
    }
    server.shutdown().await;
    Ok(())
}

async fn transactions(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "tx", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM tx (n INT) {}",
            with(broker, "tx", ", format = 'csv'")
        ),
    )
    .await?;
    let dirty = with(
        broker,
        "tx",
        ", format = 'csv', properties.isolation.level = 'read_uncommitted'",
    );
    run(&client, &format!("CREATE STREAM dirty (n INT) {dirty}")).await?;
    let producer = kafka.producer().build_transactional("t1").await?;
    for (n, commits) in [(1, true), (10, false), (100, true)] {
        producer.begin()?;
        let _ = producer.send(Record::new("tx", n.to_string())).await?;
        match commits {
            true => producer.commit().await?,
            false => producer.abort().await?,
        }
    }
    until(&client, "SELECT count(*), sum(n) FROM tx", "2 101").await?;
    until(&client, "SELECT count(*), sum(n) FROM dirty", "3 111").await?;
    producer.close().await?;
    server.shutdown().await;
    Ok(())
}

async fn partitions(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "grows", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let options = with(
        broker,
        "grows",
        ", format = 'csv', scan.startup.mode = 'latest', include.partition = 'p'",
    );
    run(&client, &format!("CREATE STREAM grows (n INT, p INT) {options}")).await?;
    let admin = kafka.admin();
    admin
        .create_partitions([("grows", 3)], CreatePartitionsOptions::default())
        .await?;
    send(
        &kafka,
        (0..9).map(|n| Record::new("grows", n.to_string()).partition(n % 3)),
    )
    .await?;
    until(
        &client,
        "SELECT p, count(*), sum(n) FROM grows GROUP BY p ORDER BY p",
        "0 3 9, 1 3 12, 2 3 15",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}

async fn refusals(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "gone", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    for (columns, options, expected) in [
        ("a INT", with(broker, "nothing", ", format = 'json'"), "topic \"nothing\" does not exist"),
        ("a INT", with(broker, "gone", ""), "needs option \"format\""),
        ("a INT", with(broker, "gone", ", format = 'json', topik = 'x'"), "has no option \"topik\""),
        ("a INT", with(broker, "gone", ", format = 'bytes'"), "is of type integer"),
        ("a BYTEA, b INT", with(broker, "gone", ", format = 'bytes'"), "needs one column"),
        ("a INT", with(broker, "gone", ", format = 'json', include.key = 'b'"), "it must be the name of a column".trim_start()),
        ("a INT, k INT", with(broker, "gone", ", format = 'json', include.key = 'k'"), "is of type integer"),
        ("a INT", "WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = '127.0.0.1:1', format = 'json')".to_owned(), "127.0.0.1:1"),
        ("a INT", "WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = 'localhost', format = 'json')".to_owned(), "host:port"),
        ("a INT", format!("{} FORMAT UPSERT ENCODE JSON", with(broker, "gone", "")), "need a table with a primary key"),
        ("a INT", format!("{} FORMAT AVRO ENCODE JSON", with(broker, "gone", "")), "FORMAT AVRO is not supported"),
    ] {
        let error = refused(&client, &format!("CREATE STREAM x ({columns}) {options}")).await?;
        if !error.to_lowercase().contains(&expected.to_lowercase()) {
            return Err(format!("{options}: {error}").into());
        }
    }
    let options = with(broker, "gone", ", format = 'csv', on_error = 'fail'");
    run(&client, &format!("CREATE STREAM strict (n INT) {options}")).await?;
    let options = with(broker, "gone", ", format = 'csv'");
    run(&client, &format!("CREATE STREAM gone (n INT) {options}")).await?;
    let error = refused(&client, "INSERT INTO gone VALUES (1)").await?;
    assert!(error.contains("connector \"kafka\""), "{error}");
    send(&kafka, ["1", "x", "2"].map(|value| Record::new("gone", value))).await?;
    until(&client, "SELECT count(*), sum(n) FROM gone", "2 3").await?;
    until(
        &client,
        "SELECT state, rows FROM mr_catalog.sources WHERE name = 'strict'",
        "failed 0",
    )
    .await?;
    let timed = "(ts TIMESTAMPTZ, WATERMARK FOR ts AS ts)";
    create_topic(&kafka, "one", 1).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM timed {timed} {}",
            with(broker, "one", ", format = 'csv', late = 'stream'")
        ),
    )
    .await?;
    send(&kafka, [Record::new("one", "2026-01-02")]).await?;
    // Rows of one write do not make each other late.
    until(&client, "SELECT count(*) FROM timed", "1").await?;
    send(
        &kafka,
        ["2026-01-01", "2026-01-03"].map(|value| Record::new("one", value)),
    )
    .await?;
    until(&client, "SELECT count(*) FROM timed", "2").await?;
    until(&client, "SELECT ts::date FROM \"timed$late\"", "2026-01-01").await?;
    // Records that are gone before they were read.
    create_topic(&kafka, "short", 1).await?;
    run(
        &client,
        &format!(
            "CREATE STREAM short (n INT) {}",
            with(broker, "short", ", format = 'csv'")
        ),
    )
    .await?;
    send(&kafka, ["1", "2"].map(|value| Record::new("short", value))).await?;
    until(&client, "SELECT sum(n) FROM short", "3").await?;
    drop(client);
    server.shutdown().await;
    send(&kafka, ["4", "8", "16"].map(|value| Record::new("short", value))).await?;
    let before = [(TopicPartition::new("short", 0), 4)];
    let _ = kafka.admin().delete_records(before, Default::default()).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until(
        &client,
        "SELECT state, error LIKE '%records 2 to 3 were removed before they were read%' FROM mr_catalog.sources WHERE name = 'short'",
        "failed t",
    )
    .await?;
    until(&client, "SELECT sum(n) FROM short", "3").await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'strict'",
        "failed",
    )
    .await?;
    // A topic of the same name is another topic.
    let admin = kafka.admin();
    admin.delete_topics(["gone"], Default::default()).await?;
    let began = Instant::now();
    while create_topic(&kafka, "gone", 1).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    send(&kafka, (0..9).map(|n| Record::new("gone", n.to_string()))).await?;
    until(
        &client,
        "SELECT state, error LIKE '%deleted and recreated%' FROM mr_catalog.sources WHERE name = 'gone'",
        "failed t",
    )
    .await?;
    until(&client, "SELECT count(*), sum(n) FROM gone", "2 3").await?;
    // How far it is behind is not known any more, and that is not nothing.
    until(
        &client,
        "SELECT lag_records, lag FROM mr_catalog.sources WHERE name = 'gone'",
        "NULL NULL",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}

async fn passwords(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "secret", 1).await?;
    send(&kafka, [Record::new("secret", "7")]).await?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let (right, wrong) = (place.join("right"), place.join("wrong"));
    std::fs::write(&right, USER.1)?;
    std::fs::write(&wrong, "wrong")?;
    let file = |path: &Path| format!("properties.sasl.password.file = '{}'", path.display());
    let secret = |name: &str| format!("properties.sasl.password = SECRET {name}");
    run(&client, &format!("CREATE SECRET pw_right AS '{}'", USER.1)).await?;
    run(&client, "CREATE SECRET pw_wrong AS 'wrong'").await?;
    let places = [
        ("plain", "PLAIN", file(&right), file(&wrong)),
        ("scram", "SCRAM-SHA-512", file(&right), file(&wrong)),
        ("kept", "SCRAM-SHA-512", secret("pw_right"), secret("pw_wrong")),
    ];
    for (name, mechanism, right, wrong) in places {
        let create = |password: &str| {
            format!(
                "CREATE STREAM {name} (n INT) WITH (connector = 'kafka', topic = 'secret', \
                 properties.bootstrap.server = '{}', properties.security.protocol = 'SASL_PLAINTEXT', \
                 properties.sasl.mechanism = '{mechanism}', properties.sasl.username = '{}', \
                 {password}, format = 'csv')",
                broker.sasl_address(),
                USER.0
            )
        };
        let error = refused(&client, &create(&wrong)).await?;
        if !error.contains("refused to let us in") {
            return Err(format!("{mechanism}: {error}").into());
        }
        run(&client, &create(&right)).await?;
        until(&client, &format!("SELECT n FROM {name}"), "7").await?;
    }
    server.shutdown().await;
    Ok(())
}
