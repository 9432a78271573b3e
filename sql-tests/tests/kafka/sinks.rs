//! Topics that sinks write.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use millrace_sql_tests::kafka::{Broker, USER, create_topic};
use millrace_sql_tests::outside::{refused, until};
use millrace_sql_tests::{Failure, connect, rows, run, start};
use tokio_postgres::Client;

use crate::with;

/// Keys and values of topics, in the order of each partition.
fn topics<const N: usize>(broker: &Broker, topics: [&str; N]) -> Result<[Vec<String>; N], Failure> {
    let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut all = broker.read(&topics)?;
    Ok(topics.map(|topic| {
        let written = all.remove(topic).unwrap_or_default().into_iter();
        written
            .map(|record| format!("{} {}", text(record.key), text(record.value)))
            .collect()
    }))
}

fn topic(broker: &Broker, topic: &str) -> Result<Vec<String>, Failure> {
    topics(broker, [topic]).map(|[topic]| topic)
}

fn expect(found: &[String], expected: &[&str]) -> Result<(), Failure> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:#?} instead of {expected:#?}").into()),
    }
}

pub async fn forms(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    for topic in ["sink_plain", "keyed", "forced", "upsert", "debezium", "query"] {
        create_topic(&kafka, topic, 1).await?;
    }
    create_topic(&kafka, "spread", 3).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (a INT, t TEXT)").await?;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, g TEXT, v INT)").await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW mv AS SELECT g, sum(v) AS v FROM t GROUP BY g",
    )
    .await?;
    run(&client, "INSERT INTO s VALUES (1, 'x'), (2, NULL)").await?;
    run(
        &client,
        "INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)",
    )
    .await?;
    for (sink, rest) in [
        ("s", "FORMAT PLAIN ENCODE JSON"),
        ("s", "FORMAT PLAIN ENCODE JSON"),
        ("t", "FORMAT PLAIN ENCODE JSON (force_append_only = 'true')"),
        ("mv", "FORMAT UPSERT ENCODE JSON"),
        ("mv", "FORMAT DEBEZIUM ENCODE JSON"),
        ("t", "FORMAT UPSERT ENCODE JSON"),
    ]
    .into_iter()
    .map(|(from, rest)| (format!("FROM {from}"), rest))
    .zip([
        with(broker, "sink_plain", ", type = 'append-only'"),
        with(
            broker,
            "keyed",
            ", primary_key = 't, a', properties.compression.codec = 'zstd'",
        ),
        with(broker, "forced", ""),
        with(broker, "upsert", ", primary_key = 'g', type = 'upsert'"),
        with(broker, "debezium", ", rollover_seconds = 0"),
        with(broker, "spread", ""),
    ])
    .map(|((from, rest), with)| (format!("{from} {with}"), rest))
    .chain([(
        format!(
            "AS SELECT a * 10 AS a FROM s WHERE a > 1 {}",
            with(broker, "query", "")
        ),
        "FORMAT PLAIN ENCODE JSON",
    )]) {
        let number = rows(&client, "SELECT count(*) FROM mr_catalog.sinks").await?[0][0].clone();
        let name = number.unwrap_or_default();
        run(&client, &format!("CREATE SINK k{name} {sink} {rest}")).await?;
    }
    run(&client, "FLUSH").await?;
    run(&client, "UPDATE t SET v = 11 WHERE id = 1").await?;
    run(&client, "FLUSH").await?;
    run(&client, "DELETE FROM t WHERE id = 2").await?;
    run(&client, "INSERT INTO s VALUES (3, E'\\t\"')").await?;
    run(&client, "FLUSH").await?;
    let [plain, keyed, mut forced, mut upserts, mut changes, query] = topics(
        broker,
        ["sink_plain", "keyed", "forced", "upsert", "debezium", "query"],
    )?;
    expect(
        &plain,
        &[
            r#"- {"a":1,"t":"x"}"#,
            r#"- {"a":2,"t":null}"#,
            r#"- {"a":3,"t":"\t\""}"#,
        ],
    )?;
    expect(
        &keyed,
        &[
            r#"{"t":"x","a":1} {"a":1,"t":"x"}"#,
            r#"{"t":null,"a":2} {"a":2,"t":null}"#,
            r#"{"t":"\t\"","a":3} {"a":3,"t":"\t\""}"#,
        ],
    )?;
    forced[..3].sort();
    expect(
        &forced,
        &[
            r#"- {"id":1,"g":"a","v":10}"#,
            r#"- {"id":2,"g":"b","v":20}"#,
            r#"- {"id":3,"g":"c","v":30}"#,
            r#"- {"id":1,"g":"a","v":11}"#,
        ],
    )?;
    upserts[..3].sort();
    expect(
        &upserts,
        &[
            r#"{"g":"a"} {"g":"a","v":10}"#,
            r#"{"g":"b"} {"g":"b","v":20}"#,
            r#"{"g":"c"} {"g":"c","v":30}"#,
            r#"{"g":"a"} {"g":"a","v":11}"#,
            r#"{"g":"b"} -"#,
        ],
    )?;
    changes[..3].sort();
    expect(
        &changes,
        &[
            r#"{"g":"a"} {"before":null,"after":{"g":"a","v":10},"op":"c"}"#,
            r#"{"g":"b"} {"before":null,"after":{"g":"b","v":20},"op":"c"}"#,
            r#"{"g":"c"} {"before":null,"after":{"g":"c","v":30},"op":"c"}"#,
            r#"{"g":"a"} {"before":{"g":"a","v":10},"after":{"g":"a","v":11},"op":"u"}"#,
            r#"{"g":"b"} {"before":{"g":"b","v":20},"after":null,"op":"d"}"#,
            r#"{"g":"b"} -"#,
        ],
    )?;
    expect(&query, &[r#"- {"a":20}"#, r#"- {"a":30}"#])?;
    // All records of a key are in one partition.
    let mut of_key: BTreeMap<Option<String>, i32> = BTreeMap::new();
    for record in broker.read(&["spread"])?.remove("spread").unwrap_or_default() {
        let partition = of_key.entry(record.key).or_insert(record.partition);
        assert_eq!(*partition, record.partition);
    }
    assert_eq!(of_key.len(), 3);
    until(
        &client,
        "SELECT name, relation, connector, type, format, path, state, files, rows, lag_rows, lag_seconds, error \
         FROM mr_catalog.sinks WHERE name IN ('k0', 'k3') ORDER BY name",
        "k0 s kafka append-only json sink_plain running 2 3 0 0 NULL, k3 mv kafka upsert json upsert running 3 6 0 0 NULL",
    )
    .await?;
    // A restart sends nothing again.
    let all = ["sink_plain", "upsert", "debezium", "query"];
    let before = topics(broker, all)?;
    drop(client);
    server.shutdown().await;
    std::fs::remove_dir_all(place.join("checkpoints"))?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "FLUSH").await?;
    assert_eq!(before, topics(broker, all)?);
    run(&client, "DROP SINK k3").await?;
    run(&client, "DELETE FROM t").await?;
    run(&client, "FLUSH").await?;
    let [upserts, changes] = topics(broker, ["upsert", "debezium"])?;
    assert_eq!(upserts, before[1], "a dropped sink goes on");
    assert_eq!(changes.len(), 10);
    server.shutdown().await;
    Ok(())
}

/// What a sink writes, a source reads as the same rows.
pub async fn types(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "types", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let columns = "n INT, b BOOLEAN, i2 SMALLINT, i8 BIGINT, f4 REAL, f8 DOUBLE PRECISION, d NUMERIC(38,9), d0 NUMERIC, \
                   t TEXT, vc VARCHAR(20), ba BYTEA, da DATE, ti TIME, ts TIMESTAMP, tz TIMESTAMPTZ, iv INTERVAL, u UUID, \
                   j JSON, jb JSONB, ai INT[], at TEXT[], an NUMERIC(10,2)[]";
    run(&client, &format!("CREATE STREAM a ({columns})")).await?;
    let options = with(broker, "types", "");
    run(
        &client,
        &format!("CREATE SINK k FROM a {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        &format!("CREATE STREAM b ({columns}) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(&client, r#"INSERT INTO a VALUES
        (1, true, -32768, 9223372036854775807, 1.5, 0.1, 12345678901234567890123456789.123456789, 1.25, E'a"\\\n\té', 'v',
         '\x00ff0a', '2026-11-25', '23:59:59.999999', '2026-11-25 12:34:56.789012', '2026-11-25 12:34:56.789012+02',
         '1 year 2 months 3 days 04:05:06.789', '6f1c0c7e-3b1f-4a57-9c7e-0d4b1c2d3e4f', E'{"a" :\n[1,\t2]}', '{"b": null, "a": 1e2}',
         '{1,NULL,3}', '{"a,b",NULL,"NULL",""}', '{1.10,-2.25}'),
        (2, false, 0, -9223372036854775808, 'NaN', '-Infinity', -0.000000001, -7, '', '', '', '0001-01-01', '00:00',
         '1969-12-31 23:59:59.999999', '1900-01-01 00:00+00', '-1 day', '00000000-0000-0000-0000-000000000000', '[]', '"x"',
         '{}', '{}', '{}'),
        (3, NULL, NULL, NULL, 1e-30, '1e300', NULL, NULL, NULL, NULL, NULL, '9999-12-31', NULL, NULL, NULL, NULL, NULL, 'true', '"7"',
         NULL, NULL, NULL),
        (4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"#)
    .await?;
    until(&client, "SELECT count(*) FROM b", "4").await?;
    until(&client, "SELECT count(*) FROM \"b$errors\"", "0").await?;
    let names: Vec<&str> = columns
        .split(", ")
        .filter_map(|column| column.split_whitespace().next())
        .filter(|name| !name.ends_with(')'))
        .collect();
    for name in names {
        // A value of type json may have other spaces; it is the same document.
        let shown = match name {
            "j" => "j::jsonb".to_owned(),
            _ => name.to_owned(),
        };
        let of = |stream: &str| format!("SELECT n, {shown} FROM {stream} ORDER BY n");
        let (sent, read) = (rows(&client, &of("a")).await?, rows(&client, &of("b")).await?);
        if sent != read {
            return Err(format!("{name}: {read:?} instead of {sent:?}").into());
        }
    }
    server.shutdown().await;
    Ok(())
}

/// The names in the outboxes of all sinks, once they are as many as expected.
async fn outboxes(data: &Path, expected: usize) -> Result<Vec<String>, Failure> {
    let began = Instant::now();
    loop {
        let mut names = vec![];
        for sink in std::fs::read_dir(data.join("outbox"))? {
            for file in std::fs::read_dir(sink?.path())? {
                names.push(file?.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        if names.len() == expected {
            return Ok(names);
        }
        if began.elapsed() > Duration::from_secs(30) {
            return Err(format!("{names:?} in the outboxes").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What was delivered does not fill the disk, and is still known.
pub async fn outbox(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "sink_rows", 1).await?;
    create_topic(&kafka, "many", 1).await?;
    let data = place.join("data");
    let mut server = start(&data).await?;
    let mut client = connect(server.pg_addr()).await?;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, v INT, pad TEXT)").await?;
    run(&client, "CREATE STREAM s (a INT)").await?;
    // One more than there are in a step, and more bytes than steps may have before they are added up.
    run(
        &client,
        "INSERT INTO s SELECT i FROM generate_series(0, 100000) AS g(i)",
    )
    .await?;
    run(
        &client,
        "INSERT INTO t SELECT i, 0, repeat('x', 200) FROM generate_series(1, 6000) AS g(i)",
    )
    .await?;
    for (from, topic, format) in [("t", "sink_rows", "UPSERT"), ("s", "many", "PLAIN")] {
        let options = with(broker, topic, "");
        let create = format!("CREATE SINK {topic} FROM {from} {options} FORMAT {format} ENCODE JSON");
        run(&client, &create).await?;
    }
    run(&client, "FLUSH").await?;
    let expected = ["step-0000000001.records", "sum-0000000001.records"];
    assert_eq!(outboxes(&data, 2).await?, expected);
    let [rows, many] = topics(broker, ["sink_rows", "many"])?;
    assert_eq!((rows.len(), many.len()), (6_000, 100_001));
    // The sum says what was delivered, with the steps behind it.
    for round in 1..3 {
        drop(client);
        server.shutdown().await;
        std::fs::remove_dir_all(data.join("checkpoints"))?;
        server = start(&data).await?;
        client = connect(server.pg_addr()).await?;
        run(&client, "FLUSH").await?;
        run(
            &client,
            &format!("UPDATE t SET v = v + 1, pad = '' WHERE id = {round}"),
        )
        .await?;
        run(&client, "FLUSH").await?;
        let [rows, many] = topics(broker, ["sink_rows", "many"])?;
        assert_eq!((rows.len(), many.len()), (6_000 + round, 100_001));
        let expected = format!("{{\"id\":{round}}} {{\"id\":{round},\"v\":1,\"pad\":\"\"}}");
        assert_eq!(rows.last(), Some(&expected));
    }
    // A server that was restored from a backup does not know what was delivered since.
    let backup = place.join("backup");
    run(&client, &format!("BACKUP TO '{}'", backup.display())).await?;
    run(&client, "INSERT INTO s VALUES (-1)").await?;
    run(&client, "UPDATE t SET v = v + 1 WHERE id = 3").await?;
    run(&client, "FLUSH").await?;
    drop(client);
    server.shutdown().await;
    let server = start(&backup.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    until(
        &client,
        "SELECT name, error LIKE '%0000000001.records%' OR error LIKE '%is a copy or an older one%' FROM mr_catalog.sinks \
         ORDER BY name",
        "many t, sink_rows t",
    )
    .await?;
    run(&client, "DROP SINK sink_rows").await?;
    run(&client, "DROP SINK many").await?;
    assert_eq!(outboxes(&backup.join("data"), 0).await?, [""; 0]);
    server.shutdown().await;
    Ok(())
}

pub async fn refusals(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "out", 1).await?;
    create_topic(&kafka, "two_parts", 2).await?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (a INT, t TEXT)").await?;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, v INT)").await?;
    run(&client, "CREATE TABLE n (id INT)").await?;
    let out = |more: &str| with(broker, "out", more);
    for (from, options, expected) in [
        ("s", out(""), "needs a format"),
        ("s", out("") + " FORMAT AVRO ENCODE JSON", "FORMAT AVRO is not supported"),
        ("s", out("") + " FORMAT PLAIN ENCODE AVRO", "schema.registry"),
        ("s", out(", topik = 'x'") + " FORMAT PLAIN ENCODE JSON", "Perhaps you meant \"topic\""),
        ("s", out(", path = '/tmp'") + " FORMAT PLAIN ENCODE JSON", "has no option \"path\""),
        ("s", out(", scan.startup.mode = 'latest'") + " FORMAT PLAIN ENCODE JSON", "has no option \"scan.startup.mode\""),
        ("s", out(", type = 'upsert'") + " FORMAT PLAIN ENCODE JSON", "cannot be combined"),
        ("s", out("") + " FORMAT UPSERT ENCODE JSON", "no key that is known to be unique"),
        ("n", out("") + " FORMAT DEBEZIUM ENCODE JSON", "no key that is known to be unique"),
        ("t", out(", primary_key = 'v'") + " FORMAT UPSERT ENCODE JSON", "primary_key must have the columns id"),
        ("t", out(", primary_key = 'idd'") + " FORMAT UPSERT ENCODE JSON", "Perhaps you meant \"id\""),
        ("t", out(", primary_key = 'id,id'") + " FORMAT UPSERT ENCODE JSON", "more than once"),
        ("t", out("") + " FORMAT PLAIN ENCODE JSON", "cannot be append-only"),
        ("t", out(", force_append_only = 'true'") + " FORMAT UPSERT ENCODE JSON", "cannot be combined with type = 'upsert'"),
        ("s", out(", properties.sasl.password = 'hidden'") + " FORMAT PLAIN ENCODE JSON", "is not supported: everybody"),
        ("s", out(", progress.topic = 'out'") + " FORMAT PLAIN ENCODE JSON", "progress.topic"),
        ("s", out(", progress.topic = 'two_parts'") + " FORMAT PLAIN ENCODE JSON", "has 2 partitions"),
        ("s", with(broker, "nothing", "") + " FORMAT PLAIN ENCODE JSON", "topic \"nothing\" does not exist"),
        ("s", "WITH (connector = 'kafka', topic = 'x', properties.bootstrap.server = '127.0.0.1:1') FORMAT PLAIN ENCODE JSON".to_owned(), "127.0.0.1:1"),
        ("s", "WITH (connector = 'kafka', properties.bootstrap.server = '127.0.0.1:1') FORMAT PLAIN ENCODE JSON".to_owned(), "needs option \"topic\""),
    ] {
        let error = refused(&client, &format!("CREATE SINK x FROM {from} {options}")).await?;
        if !error.contains(expected) {
            return Err(format!("{options}: {error}").into());
        }
    }
    let (right, wrong) = (place.join("right"), place.join("wrong"));
    std::fs::write(&right, USER.1)?;
    std::fs::write(&wrong, "wrong")?;
    let create = |file: &Path| {
        format!(
            "CREATE SINK secret FROM s WITH (connector = 'kafka', topic = 'out', properties.bootstrap.server = '{}', \
             properties.security.protocol = 'SASL_PLAINTEXT', properties.sasl.mechanism = 'SCRAM-SHA-512', \
             properties.sasl.username = '{}', properties.sasl.password.file = '{}') FORMAT PLAIN ENCODE JSON",
            broker.sasl_address(),
            USER.0,
            file.display()
        )
    };
    let error = refused(&client, &create(&wrong)).await?;
    if !error.contains("refused to let us in") {
        return Err(error.into());
    }
    run(&client, &create(&right)).await?;
    run(&client, "INSERT INTO s VALUES (1, 'x')").await?;
    run(&client, "FLUSH").await?;
    expect(&topic(broker, "out")?, &[r#"- {"a":1,"t":"x"}"#])?;
    server.shutdown().await;
    Ok(())
}

/// Waits until a query answers something that has these words.
async fn until_has(client: &Client, sql: &str, words: &str) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let found = format!("{:?}", rows(client, sql).await?);
        if found.contains(words) {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(format!("{sql}: {found} has not {words}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const STATE: &str = "SELECT state, error FROM mr_catalog.sinks";

/// A broker that is away holds up nobody but the sink.
pub async fn outage(broker: &mut Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "away", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE TABLE t (id INT PRIMARY KEY, v INT)").await?;
    let options = with(broker, "away", "");
    run(
        &client,
        &format!("CREATE SINK k FROM t {options} FORMAT UPSERT ENCODE JSON"),
    )
    .await?;
    run(&client, "INSERT INTO t VALUES (1, 1)").await?;
    run(&client, "FLUSH").await?;
    broker.kill()?;
    run(&client, "INSERT INTO t VALUES (2, 2)").await?;
    until_has(&client, STATE, "failing").await?;
    run(&client, "UPDATE t SET v = 3 WHERE id = 2").await?;
    run(&client, "UPDATE t SET v = 4 WHERE id = 2").await?;
    // None of these waits for the broker.
    run(&client, "FLUSH").await?;
    run(&client, "CHECKPOINT").await?;
    until(
        &client,
        "SELECT lag_rows, lag_seconds > 0 FROM mr_catalog.sinks",
        "1 t",
    )
    .await?;
    let error = refused(
        &client,
        &format!("CREATE SINK k2 FROM t {options} FORMAT UPSERT ENCODE JSON"),
    )
    .await?;
    assert!(error.contains(&broker.address()), "{error}");
    drop(client);
    server.shutdown().await;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    until_has(&client, STATE, "failing").await?;
    broker.run()?;
    until(
        &client,
        "SELECT state, lag_rows, error FROM mr_catalog.sinks",
        "running 0 NULL",
    )
    .await?;
    run(&client, "FLUSH").await?;
    let found = topic(broker, "away")?;
    // What came while it was away may have become one step, or two.
    let expected = [
        r#"{"id":1} {"id":1,"v":1}"#,
        r#"{"id":2} {"id":2,"v":2}"#,
        r#"{"id":2} {"id":2,"v":4}"#,
    ];
    expect(&found, &expected)?;
    // A topic of the same name is another topic.
    let kafka = broker.client().await?;
    kafka.admin().delete_topics(["away"], Default::default()).await?;
    run(&client, "INSERT INTO t VALUES (5, 5)").await?;
    until_has(&client, STATE, "does not exist").await?;
    let began = Instant::now();
    while create_topic(&kafka, "away", 1).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_has(&client, STATE, "deleted and recreated").await?;
    until(&client, "SELECT state FROM mr_catalog.sinks", "failed").await?;
    assert_eq!(topic(broker, "away")?, [""; 0]);
    run(&client, "DROP SINK k").await?;
    server.shutdown().await;
    Ok(())
}

/// A topic that was deleted and recreated while there was nothing to be written gets no step.
pub async fn recreated(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "again", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (a INT)").await?;
    let sink = |more: &str| {
        let options = with(broker, "again", more);
        format!("CREATE SINK k FROM s {options} FORMAT PLAIN ENCODE JSON")
    };
    let error = refused(&client, &sink(", delivery = 'at_least_once'")).await?;
    assert!(error.contains("delivers exactly once"), "{error}");
    run(&client, &sink("")).await?;
    run(&client, "INSERT INTO s VALUES (1)").await?;
    run(&client, "FLUSH").await?;
    kafka.admin().delete_topics(["again"], Default::default()).await?;
    let began = Instant::now();
    while create_topic(&kafka, "again", 1).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    run(&client, "INSERT INTO s VALUES (2)").await?;
    until_has(&client, STATE, "deleted and recreated").await?;
    assert_eq!(topic(broker, "again")?, [""; 0]);
    server.shutdown().await;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => {
                std::fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

/// Two servers with one sink: one of them writes, the other says so and stops.
pub async fn copies(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "copies", 1).await?;
    let (first, second) = (place.join("first"), place.join("second"));
    let server = start(&first).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "CREATE STREAM s (a INT)").await?;
    let options = with(broker, "copies", "");
    run(
        &client,
        &format!("CREATE SINK k FROM s {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(&client, "INSERT INTO s VALUES (1)").await?;
    run(&client, "FLUSH").await?;
    drop(client);
    server.shutdown().await;
    copy(&first, &second)?;
    let one = start(&first).await?;
    let client_of_one = connect(one.pg_addr()).await?;
    until(&client_of_one, "SELECT state FROM mr_catalog.sinks", "running").await?;
    let two = start(&second).await?;
    let client_of_two = connect(two.pg_addr()).await?;
    until(&client_of_two, "SELECT state FROM mr_catalog.sinks", "running").await?;
    run(&client_of_two, "INSERT INTO s VALUES (2)").await?;
    run(&client_of_two, "FLUSH").await?;
    run(&client_of_one, "INSERT INTO s VALUES (3)").await?;
    until_has(&client_of_one, STATE, "another server writes for this sink").await?;
    until(&client_of_one, "SELECT state FROM mr_catalog.sinks", "failed").await?;
    run(&client_of_two, "INSERT INTO s VALUES (4)").await?;
    run(&client_of_two, "FLUSH").await?;
    let expected = [r#"- {"a":1}"#, r#"- {"a":2}"#, r#"- {"a":4}"#];
    expect(&topic(broker, "copies")?, &expected)?;
    drop((client_of_one, client_of_two));
    one.shutdown().await;
    two.shutdown().await;
    // The one that was left behind is not what the topic has.
    let one = start(&first).await?;
    let client = connect(one.pg_addr()).await?;
    until_has(&client, STATE, "its data directory is a copy").await?;
    // With as many steps as there are it has other ones.
    run(&client, "FLUSH").await?;
    expect(&topic(broker, "copies")?, &expected)?;
    one.shutdown().await;
    Ok(())
}
