//! Topics that sinks write as Avro, with a real registry: read back by streams of our own, and by Confluent's client.

use std::path::Path;
use std::process::Command;

use millrace_sql_tests::kafka::{Broker, create_topic};
use millrace_sql_tests::outside::{line, refused, until};
use millrace_sql_tests::registry::{REGISTRY, Registry};
use millrace_sql_tests::{Failure, connect, run, start};
use serde_json::{Value, json};

use crate::with;

/// The records of a topic as Confluent's client has them; none: it is not installed.
fn read(broker: &Broker, registry: &Registry, topic: &str) -> Result<Option<Vec<Value>>, Failure> {
    let read = Command::new("python3")
        .args(["-c", include_str!("../../src/kafka/read_avro.py")])
        .args([broker.address().as_str(), registry.address(), topic])
        .output()?;
    let text = String::from_utf8(read.stdout)?;
    if !read.status.success() {
        return Err(format!("{topic}: {text} {}", String::from_utf8_lossy(&read.stderr)).into());
    }
    if text.starts_with("skipped") {
        println!("{}", text.trim());
        return Ok(None);
    }
    Ok(Some(
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
    ))
}

pub async fn sinks(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let Some(registry) = Registry::start(&place.join("registry")).await? else {
        println!("skipped: {REGISTRY} does not say where a schema registry is");
        return Ok(());
    };
    let kafka = broker.client().await?;
    for topic in ["avro.rows", "avro_upsert", "avro_events", "avro_strict"] {
        create_topic(&kafka, topic, 1).await?;
    }
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let format = |envelope: &str| {
        format!(
            "FORMAT {envelope} ENCODE AVRO (schema.registry = '{}')",
            registry.address()
        )
    };
    run(
        &client,
        "CREATE STREAM s (id BIGINT, ok BOOLEAN, small SMALLINT, r REAL, d DOUBLE PRECISION, raw BYTEA, t TEXT, j JSONB, day DATE, \
         at TIMESTAMP, moment TIMESTAMPTZ, clock TIME, price NUMERIC(9, 2), big NUMERIC, u UUID, tags TEXT[], numbers INT[], ts3 TIMESTAMP(3), \
         span INTERVAL)",
    )
    .await?;
    run(
        &client,
        "CREATE TABLE k (g TEXT, n INT, v NUMERIC(20, 3), PRIMARY KEY (n, g))",
    )
    .await?;
    // Whoever looks has registered nothing.
    let rows_sink = format!(
        "CREATE SINK rows FROM s {} {}",
        with(broker, "avro.rows", ""),
        format("PLAIN")
    );
    run(&client, &rows_sink).await?;
    for (name, topic, envelope) in [
        ("upserts", "avro_upsert", "UPSERT"),
        ("events", "avro_events", "DEBEZIUM"),
    ] {
        let more = ", rollover_seconds = 0";
        run(
            &client,
            &format!(
                "CREATE SINK {name} FROM k {} {}",
                with(broker, topic, more),
                format(envelope)
            ),
        )
        .await?;
    }
    run(
        &client,
        "INSERT INTO s VALUES \
         (1, true, -3, '0.1', 'NaN', '\\x00ff', E'a\"ü\\n', '{\"a\": [1, 123456789012345678901234567890]}', '1969-12-31', '2024-02-29 12:34:56.789', \
          '2024-02-29 12:34:56.789+00', '23:59:59.999999', -1234567.89, 12345678901234567890.5, \
          'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{x,NULL,y}', '{1,2}', '2024-01-01 00:00:00.5', '1 day'), \
         (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), \
         (9223372036854775807, false, 32767, '-1e30', '1e300', '', '', '\"x\"', '9999-12-31', '0001-01-01 00:00:00', '1900-01-01 00:00:00+00', \
          '00:00:00', 0, 0, '00000000-0000-0000-0000-000000000000', '{}', '{}', NULL, '-1 month 2.5 seconds')",
    )
    .await?;
    for change in [
        "INSERT INTO k VALUES ('a', 1, 1.5), ('b', 2, NULL)",
        "UPDATE k SET v = -123456789.125 WHERE n = 1",
        "DELETE FROM k WHERE n = 2",
    ] {
        run(&client, change).await?;
        run(&client, "FLUSH").await?;
    }
    until(
        &client,
        "SELECT name, format, state, error FROM mr_catalog.sinks ORDER BY name",
        "events avro running NULL, rows avro running NULL, upserts avro running NULL",
    )
    .await?;

    // Our own streams read the same.
    let back = "CREATE STREAM back (id BIGINT, ok BOOLEAN, small SMALLINT, r REAL, d DOUBLE PRECISION, raw BYTEA, t TEXT, j TEXT, day DATE, \
                at TIMESTAMP, moment TIMESTAMPTZ, clock TIME, price NUMERIC(9, 2), big NUMERIC, u UUID, tags TEXT[], numbers INT[], ts3 TIMESTAMP(3), \
                span INTERVAL)";
    run(
        &client,
        &format!("{back} {} {}", with(broker, "avro.rows", ""), format("PLAIN")),
    )
    .await?;
    let columns = "id, ok, small, r, d, raw, t, j::text, day, at, moment, clock, price, big, u, tags, numbers, ts3, span";
    let expected = line(&client, &format!("SELECT {columns} FROM s ORDER BY id")).await?;
    until(
        &client,
        &format!("SELECT {columns} FROM back ORDER BY id"),
        &expected,
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE STREAM told (*) {} {}",
            with(broker, "avro.rows", ""),
            format("PLAIN")
        ),
    )
    .await?;
    until(
        &client,
        "SELECT id, price, moment, tags FROM told WHERE id = 1",
        &line(&client, "SELECT id, price, moment, tags FROM s WHERE id = 1").await?,
    )
    .await?;
    for (name, topic, envelope) in [("k2", "avro_upsert", "UPSERT"), ("k3", "avro_events", "DEBEZIUM")] {
        run(
            &client,
            &format!(
                "CREATE TABLE {name} (g TEXT, n INT, v NUMERIC(20, 3), PRIMARY KEY (n, g)) {} {}",
                with(broker, topic, ""),
                format(envelope)
            ),
        )
        .await?;
        until(
            &client,
            &format!("SELECT g, n, v FROM {name}"),
            "a 1 -123456789.125",
        )
        .await?;
    }

    // So does somebody else's client.
    if let Some(found) = read(broker, &registry, "avro.rows")? {
        let first = &found[0]["value"];
        for (column, expected) in [
            ("id", json!(1)),
            ("ok", json!(true)),
            ("small", json!(-3)),
            ("d", json!("nan")),
            ("t", json!("a\"ü\n")),
            ("j", json!("{\"a\": [1, 123456789012345678901234567890]}")),
            ("day", json!("1969-12-31")),
            ("at", json!("2024-02-29 12:34:56.789000")),
            ("moment", json!("2024-02-29 12:34:56.789000+00:00")),
            ("clock", json!("23:59:59.999999")),
            ("price", json!("-1234567.89")),
            ("big", json!("12345678901234567890.5")),
            ("tags", json!(["x", null, "y"])),
            ("numbers", json!([1, 2])),
            ("span", json!("1 day")),
        ] {
            assert_eq!(first[column], expected, "{column}");
        }
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|record| record["key"].is_null()));
        let empty = found[1]["value"].as_object().unwrap();
        assert!(
            empty.iter().all(|(name, value)| value.is_null() || name == "id"),
            "{empty:?}"
        );
    }
    if let Some(found) = read(broker, &registry, "avro_upsert")? {
        assert_eq!(
            found,
            [
                json!({"key": {"n": 1, "g": "a"}, "value": {"g": "a", "n": 1, "v": "1.500"}}),
                json!({"key": {"n": 2, "g": "b"}, "value": {"g": "b", "n": 2, "v": null}}),
                json!({"key": {"n": 1, "g": "a"}, "value": {"g": "a", "n": 1, "v": "-123456789.125"}}),
                json!({"key": {"n": 2, "g": "b"}, "value": null}),
            ]
        );
    }
    if let Some(found) = read(broker, &registry, "avro_events")? {
        assert_eq!(
            found[2]["value"],
            json!({"before": {"g": "a", "n": 1, "v": "1.500"}, "after": {"g": "a", "n": 1, "v": "-123456789.125"}, "op": "u"})
        );
        assert_eq!(found[3]["value"]["op"], json!("d"));
        assert_eq!(found[4]["value"], Value::Null);
        assert_eq!(found.len(), 5);
    }

    // What readers of before could not read is not written.
    let http = reqwest::Client::new();
    let config = format!("{}/config/avro_strict-value", registry.address());
    run(
        &client,
        "CREATE MATERIALIZED VIEW narrow AS SELECT id, t AS x FROM s",
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW other AS SELECT id, small AS x FROM s",
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW more AS SELECT id, t AS x, day FROM s",
    )
    .await?;
    let strict = |from: &str| {
        format!(
            "CREATE SINK strict FROM {from} {} {}",
            with(broker, "avro_strict", ""),
            format("PLAIN")
        )
    };
    run(&client, &strict("narrow")).await?;
    run(&client, "FLUSH").await?;
    run(&client, "DROP SINK strict").await?;
    let set = http
        .put(&config)
        .header("Content-Type", "application/vnd.schemaregistry.v1+json")
        .body(r#"{"compatibility": "BACKWARD"}"#)
        .send()
        .await?;
    assert!(set.status().is_success(), "{}", set.text().await?);
    let error = refused(&client, &strict("other")).await?;
    assert!(
        error.contains("refuses the schema for subject avro_strict-value"),
        "{error}"
    );
    run(&client, &strict("more")).await?;
    run(&client, "FLUSH").await?;
    until(
        &client,
        "SELECT state, error FROM mr_catalog.sinks WHERE name = 'strict'",
        "running NULL",
    )
    .await?;
    for (from, more, expected) in [
        (
            "SELECT id AS \"a b\" FROM s",
            format("PLAIN"),
            "cannot be the name of a field of Avro",
        ),
        (
            "SELECT id FROM s",
            "FORMAT PLAIN ENCODE AVRO".to_owned(),
            "schema.registry",
        ),
        (
            "SELECT id FROM s",
            "FORMAT PLAIN ENCODE JSON (schema.registry = 'http://127.0.0.1:1')".to_owned(),
            "are for ENCODE AVRO",
        ),
        (
            "SELECT id FROM s",
            "FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://127.0.0.1:1')".to_owned(),
            "the schema registry at http://127.0.0.1:1",
        ),
    ] {
        let error = refused(
            &client,
            &format!(
                "CREATE SINK x AS {from} {} {more}",
                with(broker, "avro_strict", "")
            ),
        )
        .await?;
        if !error.contains(expected) {
            return Err(format!("{from} {more}: {error}").into());
        }
    }
    // After a restart the same schemas are there, and the same numbers.
    drop(client);
    server.shutdown().await;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "INSERT INTO s (id) VALUES (3)").await?;
    run(&client, "FLUSH").await?;
    until(&client, "SELECT count(*), count(DISTINCT id) FROM back", "4 4").await?;
    let versions = http.get(format!(
        "{}/subjects/avro.rows-value/versions",
        registry.address()
    ));
    assert_eq!(versions.send().await?.text().await?, "[1]");
    drop(client);
    server.shutdown().await;
    Ok(())
}
