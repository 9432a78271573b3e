//! Topics as tables: rows that come, change and go.

use std::path::Path;

use krafka::Record;
use millrace_sql_tests::kafka::{Broker, create_topic};
use millrace_sql_tests::outside::{refused, until};
use millrace_sql_tests::{Failure, connect, rows, run, start};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::{send, with};

fn upsert(topic: &str, key: &str, value: Option<&str>) -> Record {
    match value {
        Some(value) => Record::new(topic, value.to_owned()).key(key.to_owned()),
        None => Record::tombstone(topic, key.to_owned()),
    }
}

pub async fn tables(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    for topic in ["plain", "rows", "texts", "events", "many", "documents"] {
        create_topic(&kafka, &format!("table-{topic}"), 1).await?;
    }
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let create = |table: &str, topic: &str, more: &str, format: &str| {
        format!(
            "CREATE TABLE {table} {} {format}",
            with(broker, &format!("table-{topic}"), more)
        )
    };
    // A row takes the place of the one with its key; without a key rows only come.
    run(
        &client,
        &create(
            "plain (id INT PRIMARY KEY, v TEXT)",
            "plain",
            "",
            "FORMAT PLAIN ENCODE CSV",
        ),
    )
    .await?;
    run(
        &client,
        &create("heap (id INT, v TEXT)", "plain", "", "FORMAT PLAIN ENCODE CSV"),
    )
    .await?;
    send(
        &kafka,
        ["1,a", "2,b", "1,c"].map(|value| Record::new("table-plain", value)),
    )
    .await?;
    until(&client, "SELECT * FROM plain ORDER BY id", "1 c, 2 b").await?;
    until(&client, "SELECT * FROM heap ORDER BY v", "1 a, 2 b, 1 c").await?;
    // By the key of the record.
    let upserts = "FORMAT UPSERT ENCODE JSON";
    run(
        &client,
        &create(
            "rows (a INT, b TEXT, v NUMERIC(30, 10), up INT AS (a + 1), PRIMARY KEY (a, b))",
            "rows",
            "",
            upserts,
        ),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(v) AS v FROM rows",
    )
    .await?;
    let key = r#"{"a": 1, "b": "x"}"#;
    let other = r#"{"b": "y", "a": 2, "more": 5}"#;
    send(
        &kafka,
        [
            upsert(
                "table-rows",
                key,
                Some(r#"{"v": 12345678901234567890.0123456789}"#),
            ),
            upsert("table-rows", other, Some(r#"{"a": 9, "b": "z", "v": 1}"#)),
            upsert("table-rows", other, Some(r#"{"v": 2}"#)),
            upsert("table-rows", r#"{"a": 3, "b": "z"}"#, Some(r#"{"v": 3}"#)),
            upsert("table-rows", r#"{"a": 3, "b": "z"}"#, None),
            upsert("table-rows", r#"{"a": 4, "b": "never"}"#, None),
        ],
    )
    .await?;
    until(
        &client,
        "SELECT a, b, v, up FROM rows ORDER BY a",
        "1 x 12345678901234567890.0123456789 2, 2 y 2.0000000000 3",
    )
    .await?;
    until(&client, "SELECT n FROM total", "2").await?;
    // What is no row, and what is no key.
    send(
        &kafka,
        [
            upsert("table-rows", r#"{"a": 5}"#, Some(r#"{"v": 1}"#)),
            upsert("table-rows", r#"{"a": 5}"#, None),
            upsert("table-rows", "5", Some(r#"{"v": 1}"#)),
            upsert("table-rows", "{", Some(r#"{"v": 1}"#)),
            upsert("table-rows", key, Some("[]")),
            upsert("table-rows", key, Some(r#"{"v": "x"}"#)),
            Record::new("table-rows", r#"{"v": 1}"#),
            upsert("table-rows", key, Some(r#"{"v": 7}"#)),
        ],
    )
    .await?;
    until(&client, "SELECT v FROM rows WHERE a = 1", "7.0000000000").await?;
    until(
        &client,
        "SELECT count(*), min(\"offset\"), max(\"offset\") FROM \"rows$errors\"",
        "7 6 12",
    )
    .await?;
    // Keys that are a text or a value, and keys that are a column.
    run(
        &client,
        &create(
            "texts (id TEXT PRIMARY KEY, v INT)",
            "texts",
            ", key.format = 'text'",
            upserts,
        ),
    )
    .await?;
    run(
        &client,
        &create("values_ (id TEXT PRIMARY KEY, v INT)", "texts", "", upserts),
    )
    .await?;
    run(
        &client,
        &create(
            "raw (v INT, PRIMARY KEY (k)) INCLUDE key AS k",
            "texts",
            "",
            upserts,
        ),
    )
    .await?;
    send(
        &kafka,
        [
            upsert("table-texts", "\"a\"", Some(r#"{"v": 1}"#)),
            upsert("table-texts", "\"b\"", Some(r#"{"v": 2}"#)),
            upsert("table-texts", "\"a\"", None),
            upsert("table-texts", "b", Some(r#"{"v": 3}"#)),
        ],
    )
    .await?;
    until(&client, "SELECT id, v FROM texts ORDER BY v", "\"b\" 2, b 3").await?;
    until(&client, "SELECT id, v FROM values_ ORDER BY v", "b 2").await?;
    until(
        &client,
        "SELECT convert_from(k, 'UTF8'), v FROM raw ORDER BY v",
        "\"b\" 2, b 3",
    )
    .await?;
    // Changes as Debezium tells them.
    run(
        &client,
        &create(
            "events (id INT PRIMARY KEY, v TEXT, n NUMERIC(10, 2), d DATE)",
            "events",
            "",
            "FORMAT DEBEZIUM ENCODE JSON",
        ),
    )
    .await?;
    let schema = r#"{"fields": [{"field": "after", "fields": [{"field": "id", "type": "int32"}, {"field": "v", "type": "string"},
        {"field": "n", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"field": "d", "type": "int32", "name": "io.debezium.time.Date"}]}]}"#;
    let event = |payload: &str| {
        Record::new(
            "table-events",
            format!(r#"{{"schema": {schema}, "payload": {payload}}}"#),
        )
    };
    send(
        &kafka,
        [
            event(r#"{"op": "r", "after": {"id": 1, "v": "long", "n": "MDk=", "d": 1}}"#),
            event(r#"{"op": "c", "after": {"id": 2, "v": "b", "n": null, "d": null}}"#),
            event(r#"{"op": "u", "before": null, "after": {"id": 1, "v": "__debezium_unavailable_value", "n": "AA==", "d": 2}}"#),
            event(r#"{"op": "u", "before": {"id": 2}, "after": {"id": 3, "v": "b", "n": null, "d": null}}"#),
            event(r#"{"op": "c", "after": {"id": 4, "v": "gone", "n": null, "d": null}}"#),
            event(r#"{"op": "d", "before": {"id": 4}, "after": null}"#),
            upsert("table-events", "{\"id\": 4}", None),
            event(r#"{"op": "t"}"#),
            event(r#"{"op": "u", "after": {"id": 9, "v": "__debezium_unavailable_value", "n": null, "d": null}}"#),
        ],
    )
    .await?;
    until(
        &client,
        "SELECT * FROM events ORDER BY id",
        "1 long 0.00 1970-01-03, 3 b NULL NULL",
    )
    .await?;
    until(
        &client,
        "SELECT \"offset\" FROM \"events$errors\" ORDER BY 1",
        "7, 8",
    )
    .await?;
    // The value that did not change was written before.
    drop(client);
    server.shutdown().await;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    send(
        &kafka,
        [
            event(
                r#"{"op": "u", "after": {"id": 1, "v": "__debezium_unavailable_value", "n": null, "d": 3}}"#,
            ),
            event(r#"{"op": "u", "after": {"id": 3, "v": "c", "n": null, "d": 3}}"#),
        ],
    )
    .await?;
    until(
        &client,
        "SELECT * FROM events ORDER BY id",
        "1 long NULL 1970-01-04, 3 c NULL 1970-01-04",
    )
    .await?;
    until(&client, "SELECT count(*) FROM \"events$errors\"", "2").await?;
    // JSON is sent as its text.
    run(
        &client,
        &create(
            "documents (id INT PRIMARY KEY, j JSONB)",
            "documents",
            "",
            "FORMAT DEBEZIUM ENCODE JSON",
        ),
    )
    .await?;
    send(
        &kafka,
        [
            r#"{"op": "c", "after": {"id": 1, "j": "{\"a\": [1, \"x\"]}"}}"#,
            r#"{"op": "c", "after": {"id": 2, "j": "\"text\""}}"#,
            r#"{"op": "c", "after": {"id": 3, "j": "broken"}}"#,
            r#"{"op": "c", "after": {"id": 4, "j": null}}"#,
        ]
        .map(|value| Record::new("table-documents", value)),
    )
    .await?;
    until(
        &client,
        "SELECT id, j FROM documents ORDER BY id",
        "1 {\"a\": [1, \"x\"]}, 2 \"text\", 4 NULL",
    )
    .await?;
    // A column that is added is filled from then on.
    run(&client, "ALTER TABLE events ADD COLUMN extra INT").await?;
    send(
        &kafka,
        [event(
            r#"{"op": "u", "after": {"id": 3, "v": "d", "n": null, "d": 3, "extra": 5}}"#,
        )],
    )
    .await?;
    until(
        &client,
        "SELECT id, v, extra FROM events ORDER BY id",
        "1 long NULL, 3 d 5",
    )
    .await?;
    // Tables are among what is fed, and what is kept of bad records is not.
    let shown = rows(&client, "SHOW SOURCES").await?;
    let cell = |row: &Vec<Option<String>>, at: usize| row[at].clone().unwrap_or_default();
    let fed: Vec<String> = shown
        .iter()
        .map(|row| format!("{} {} {}", cell(row, 0), cell(row, 4), cell(row, 5)))
        .collect();
    assert!(fed.contains(&"events kafka running".to_owned()), "{fed:?}");
    assert!(!fed.iter().any(|row| row.contains("$errors")), "{fed:?}");
    many(&kafka, &client, broker).await?;
    for (statement, expected) in [
        ("INSERT INTO plain VALUES (1)", "cannot insert into table"),
        ("UPDATE plain SET v = 'x'", "cannot update table"),
        ("DELETE FROM plain", "cannot delete from table"),
        ("TRUNCATE plain", "table \"plain\""),
        ("CREATE UNIQUE INDEX ON plain (v)", "unique index"),
        ("ALTER TABLE plain RENAME COLUMN v TO w", "cannot be renamed"),
        (
            "CREATE TABLE x (a INT) WITH (connector = 'datagen', rate = 1)",
            "Use CREATE STREAM",
        ),
    ] {
        let error = refused(&client, statement).await?;
        if !error.contains(expected) {
            return Err(format!("{statement}: {error}").into());
        }
    }
    for (table, more, format, expected) in [
        ("x (a INT)", "", upserts, "primary key"),
        (
            "x (a INT PRIMARY KEY)",
            "",
            "FORMAT UPSERT ENCODE CSV",
            "encodings that name the columns",
        ),
        (
            "x (a INT PRIMARY KEY)",
            ", key.format = 'avro'",
            upserts,
            "key.format",
        ),
        (
            "x (a INT, b INT, PRIMARY KEY (a, b))",
            ", key.format = 'text'",
            upserts,
            "of one column",
        ),
        (
            "x (a INT PRIMARY KEY)",
            ", key.format = 'text'",
            "FORMAT PLAIN ENCODE JSON",
            "FORMAT UPSERT",
        ),
        ("x (a INT PRIMARY KEY, b INT UNIQUE)", "", upserts, "UNIQUE"),
        (
            "x (a INT PRIMARY KEY, b INT, c INT AS (a), PRIMARY KEY (c))",
            "",
            upserts,
            "primary key",
        ),
        ("x", "", upserts, "needs its columns"),
    ] {
        let error = refused(&client, &create(table, "rows", more, format)).await?;
        if !error.contains(expected) {
            return Err(format!("{table} {more} {format}: {error}").into());
        }
    }
    server.shutdown().await;
    Ok(())
}

/// Many changes of few keys: the table has what the last of each key says, and the view over it too.
async fn many(
    kafka: &krafka::Kafka,
    client: &tokio_postgres::Client,
    broker: &Broker,
) -> Result<(), Failure> {
    let seed = millrace_sql_tests::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let options = with(broker, "table-many", "");
    run(
        client,
        &format!("CREATE TABLE many (id INT PRIMARY KEY, v INT) {options} FORMAT UPSERT ENCODE JSON"),
    )
    .await?;
    run(client, "CREATE MATERIALIZED VIEW sums AS SELECT id % 3 AS m, count(*) AS n, sum(v) AS v FROM many GROUP BY 1").await?;
    let mut expected = std::collections::BTreeMap::new();
    for _ in 0..20 {
        let mut records = vec![];
        for _ in 0..random.random_range(1..400) {
            let (id, v) = (random.random_range(0..50), random.random_range(0..1000));
            if random.random_bool(0.3) {
                expected.remove(&id);
                records.push(upsert("table-many", &id.to_string(), None));
            } else {
                expected.insert(id, v);
                records.push(upsert(
                    "table-many",
                    &id.to_string(),
                    Some(&format!(r#"{{"v": {v}}}"#)),
                ));
            }
        }
        send(kafka, records).await?;
    }
    expected.insert(-1, 0);
    send(kafka, [upsert("table-many", "-1", Some(r#"{"v": 0}"#))]).await?;
    until(client, "SELECT v FROM many WHERE id = -1", "0").await?;
    let expected: Vec<String> = expected.iter().map(|(id, v)| format!("{id} {v}")).collect();
    until(client, "SELECT id, v FROM many ORDER BY id", &expected.join(", ")).await?;
    let difference = "SELECT count(*) FROM (SELECT id % 3, count(*), sum(v) FROM many GROUP BY 1 EXCEPT SELECT * FROM sums) d";
    until(client, difference, "0").await
}
