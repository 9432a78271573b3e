//! Members and fields of records that are not columns yet: told, or taken.

use std::path::Path;

use apache_avro::types::Value;
use krafka::Record;
use millrace_sql_tests::kafka::{Broker, create_topic};
use millrace_sql_tests::outside::{line, until};
use millrace_sql_tests::registry::{REGISTRY, Registry};
use millrace_sql_tests::{Failure, connect, run, start};
use serde_json::json;

use crate::schemas::{avro, record, text};
use crate::{send, with};

/// The columns of a relation.
fn columns(name: &str) -> String {
    format!(
        "SELECT column_name FROM information_schema.columns WHERE table_name = '{name}' ORDER BY column_name"
    )
}

pub async fn changes(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    for topic in ["drift_json", "drift_upsert", "drift_events"] {
        create_topic(&kafka, topic, 2).await?;
    }
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let options = |topic: &str, policy: &str| with(broker, topic, &format!(", schema_change = '{policy}'"));
    run(
        &client,
        &format!(
            "CREATE STREAM j (a INT) INCLUDE partition AS p {} FORMAT PLAIN ENCODE JSON",
            options("drift_json", "add")
        ),
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE STREAM js (a INT) {} FORMAT PLAIN ENCODE JSON",
            options("drift_json", "stop")
        ),
    )
    .await?;
    for (name, topic, envelope) in [("u", "drift_upsert", "UPSERT"), ("e", "drift_events", "DEBEZIUM")] {
        run(
            &client,
            &format!(
                "CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT) {} FORMAT {envelope} ENCODE JSON",
                options(topic, "add")
            ),
        )
        .await?;
    }
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(a) AS a FROM j",
    )
    .await?;
    let rows = (0..400).map(|n| match n % 4 {
        0 => format!("{{\"a\": {n}}}"),
        1 => format!("{{\"a\": {n}, \"x\": {n}, \"p\": 9}}"),
        2 => format!("{{\"a\": {n}, \"y\": \"t{n}\"}}"),
        _ => format!("{{\"a\": {n}, \"x\": {n}, \"z\": [{n}]}}"),
    });
    send(&kafka, rows.map(|row| Record::new("drift_json", row))).await?;
    until(&client, "SELECT n, a FROM v", "400 79800").await?;
    until(
        &client,
        "SELECT count(x), sum(x), count(y), count(z) FROM j",
        "200 40000 100 100",
    )
    .await?;
    until(
        &client,
        "SELECT count(*), count(DISTINCT a) FROM j WHERE p IN (0, 1)",
        "400 400",
    )
    .await?;
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'js'",
        "failed",
    )
    .await?;
    let upsert = |key: u32, value: &str| {
        Record::new("drift_upsert", value.to_owned()).key(format!("{{\"id\": {key}}}"))
    };
    send(
        &kafka,
        [
            upsert(1, r#"{"v": "a"}"#),
            upsert(2, r#"{"v": "b", "w": 5}"#),
            upsert(1, r#"{"v": "c", "w": null, "x": false}"#),
        ],
    )
    .await?;
    until(&client, &columns("u"), "id, v, w, x").await?;
    until(
        &client,
        "SELECT id, v, w, x FROM u ORDER BY id",
        "1 c NULL f, 2 b 5 NULL",
    )
    .await?;
    let schema = json!({"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [
        {"field": "id", "type": "int32"}, {"field": "v", "type": "string"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"}, {"field": "small", "type": "int16"}]}]});
    let event = |payload: serde_json::Value, schema: Option<&serde_json::Value>| {
        let event = match schema {
            Some(schema) => json!({"schema": schema, "payload": payload}),
            None => payload,
        };
        Record::new("drift_events", event.to_string()).partition(0)
    };
    send(
        &kafka,
        [
            event(
                json!({"before": null, "after": {"id": 1, "v": "a"}, "op": "c"}),
                None,
            ),
            event(
                json!({"before": null, "after": {"id": 2, "v": "b", "day": 19782, "small": 3}, "op": "c"}),
                Some(&schema),
            ),
            event(
                json!({"before": null, "after": {"id": 1, "v": "c", "free": "x"}, "op": "u"}),
                None,
            ),
        ],
    )
    .await?;
    until(&client, &columns("e"), "day, free, id, small, v").await?;
    until(
        &client,
        "SELECT id, v, day, small, free FROM e ORDER BY id",
        "1 c NULL NULL x, 2 b 2024-02-29 3 NULL",
    )
    .await?;
    let types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'e' ORDER BY column_name";
    assert_eq!(
        line(&client, types).await?,
        "day date, free text, id integer, small smallint, v text"
    );
    let Some(registry) = Registry::start(&place.join("registry")).await? else {
        println!("skipped: {REGISTRY} does not say where a schema registry is");
        return Ok(());
    };
    create_topic(&kafka, "drift_avro", 1).await?;
    let one = r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}"#;
    let two = r#"{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}, {"name": "t", "type": "string"}]}"#;
    let first = registry
        .register("drift_avro-value", "AVRO", one, json!([]))
        .await?;
    run(
        &client,
        &format!(
            "CREATE STREAM r (*) {} FORMAT PLAIN ENCODE AVRO (schema.registry = '{}')",
            options("drift_avro", "add"),
            registry.address()
        ),
    )
    .await?;
    send(
        &kafka,
        [Record::new(
            "drift_avro",
            avro(first, one, record(vec![("a", Value::Long(1))]))?,
        )],
    )
    .await?;
    until(&client, "SELECT * FROM r", "1").await?;
    let second = registry
        .register("drift_avro-value", "AVRO", two, json!([]))
        .await?;
    // Its type is known though it is null.
    let newer = record(vec![
        ("a", Value::Long(2)),
        ("at", Value::Union(0, Box::new(Value::Null))),
        ("t", text("x")),
    ]);
    send(&kafka, [Record::new("drift_avro", avro(second, two, newer)?)]).await?;
    until(&client, "SELECT a FROM r ORDER BY a", "1, 2").await?;
    until(
        &client,
        "SELECT a, at::date, t FROM r ORDER BY a",
        "1 NULL NULL, 2 NULL x",
    )
    .await?;
    drop(client);
    server.shutdown().await;
    Ok(())
}
