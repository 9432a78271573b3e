//! Records whose schemas are in a real registry.

use std::path::Path;

use apache_avro::Schema;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use krafka::Record;
use millrace_sql_tests::kafka::{Broker, create_topic};
use millrace_sql_tests::outside::{line, refused, until};
use millrace_sql_tests::registry::{REGISTRY, Registry};
use millrace_sql_tests::{Failure, connect, run, start};
use prost_reflect::{DynamicMessage, Value as Field};
use serde_json::json;

use crate::{send, with};

const BID: &str = r#"{"type": "record", "name": "Bid", "fields": [
    {"name": "auction", "type": "long"},
    {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "by", "type": {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}}
]}"#;
/// The same with a column more, and one less.
const NEWER: &str = r#"{"type": "record", "name": "Bid", "fields": [
    {"name": "auction", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "by", "type": {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}},
    {"name": "note", "type": "string"}
]}"#;

/// As the serializers of a registry write it.
fn framed(id: u32, content: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(id.to_be_bytes());
    bytes.extend(content);
    bytes
}

pub fn avro(id: u32, schema: &str, value: Value) -> Result<Vec<u8>, Failure> {
    let schema = Schema::parse_str(schema)?;
    let writer = GenericDatumWriter::builder(&schema).build()?;
    Ok(framed(id, writer.write_value_to_vec(value)?))
}

pub fn record(fields: Vec<(&str, Value)>) -> Value {
    Value::Record(
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

pub fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn bid(auction: i64, price: Option<i16>) -> Value {
    let price = match price {
        Some(price) => Value::Union(1, Box::new(Value::Decimal(price.to_be_bytes().into()))),
        None => Value::Union(0, Box::new(Value::Null)),
    };
    record(vec![
        ("auction", Value::Long(auction)),
        ("price", price),
        ("at", Value::TimestampMillis(1_000 * auction)),
        ("tags", Value::Array(vec![text("a"), text("b")])),
        ("by", record(vec![("name", text("ann"))])),
    ])
}

pub async fn schemas(broker: &Broker, place: &Path) -> Result<(), Failure> {
    let Some(registry) = Registry::start(&place.join("registry")).await? else {
        println!("skipped: {REGISTRY} does not say where a schema registry is");
        return Ok(());
    };
    plain(broker, &registry, &place.join("plain")).await?;
    keyed(broker, &registry, &place.join("keyed")).await?;
    protobuf(broker, &registry, &place.join("protobuf")).await
}

async fn plain(broker: &Broker, registry: &Registry, place: &Path) -> Result<(), Failure> {
    let kafka = broker.client().await?;
    create_topic(&kafka, "bids", 1).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let options = with(broker, "bids", "");
    let format = |more: &str| {
        format!(
            "FORMAT PLAIN ENCODE AVRO (schema.registry = '{}'{more})",
            registry.address()
        )
    };
    let columns = "(auction BIGINT, price NUMERIC(9, 2), at TIMESTAMPTZ, tags TEXT[], by JSONB)";
    // Nobody has said yet what there is: then columns have to be written.
    let error = refused(&client, &format!("CREATE STREAM x (*) {options} {}", format(""))).await?;
    assert!(error.contains("* stands for the columns of a schema"), "{error}");
    run(
        &client,
        &format!("CREATE STREAM early {columns} {options} {}", format("")),
    )
    .await?;
    let first = registry.register("bids-value", "AVRO", BID, json!([])).await?;
    for (create, expected) in [
        (
            format!("(auction BIGINT, prise INT) {options} {}", format("")),
            "Perhaps you meant \"price\"",
        ),
        (
            format!("{columns} {options} FORMAT PLAIN ENCODE AVRO"),
            "schema.registry",
        ),
        (
            format!(
                "{columns} {options} {}",
                format(", schema.registry.username = 'x'")
            ),
            "schema.registry.password.env",
        ),
        (
            format!("{columns} {options} {}", format(", message = 'x'")),
            "ENCODE PROTOBUF",
        ),
        (
            format!("{columns} {options} FORMAT PLAIN ENCODE AVRO (schema.registry = 'http://127.0.0.1:1')"),
            "the schema registry at http://127.0.0.1:1",
        ),
        (
            format!("{columns} {options} FORMAT PLAIN ENCODE JSON (schema.registry = 'http://127.0.0.1:1')"),
            "are for ENCODE AVRO",
        ),
    ] {
        let error = refused(&client, &format!("CREATE STREAM x {create}")).await?;
        if !error.contains(expected) {
            return Err(format!("{create}: {error}").into());
        }
    }
    run(
        &client,
        &format!(
            "CREATE STREAM bids (*) INCLUDE offset AS o {options} {}",
            format("")
        ),
    )
    .await?;
    assert_eq!(
        line(
            &client,
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'bids' ORDER BY ordinal_position",
        )
        .await?,
        "auction bigint, price numeric, at timestamp with time zone, tags ARRAY, by jsonb, o bigint"
    );
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(price) AS s FROM bids",
    )
    .await?;
    let good = avro(first, BID, bid(1, Some(-1234)))?;
    let records = [
        good.clone(),
        avro(first, BID, bid(2, None))?,
        b"no schema".to_vec(),
        framed(9_999_999, vec![1]),
        good[..good.len() - 2].to_vec(),
        avro(first, BID, bid(3, Some(500)))?,
    ];
    send(&kafka, records.map(|value| Record::new("bids", value))).await?;
    until(&client, "SELECT * FROM v", "3 -7.34").await?;
    for stream in ["bids", "early"] {
        until(
            &client,
            &format!("SELECT auction, price, at = to_timestamp(auction), tags, by ->> 'name' FROM {stream} ORDER BY auction"),
            "1 -12.34 t {a,b} ann, 2 NULL t {a,b} ann, 3 5.00 t {a,b} ann",
        )
        .await?;
    }
    until(
        &client,
        "SELECT \"offset\", reason LIKE '%number of a schema', reason LIKE '%has no schema 9999999', reason LIKE '%ends too soon' \
         FROM \"bids$errors\" ORDER BY 1",
        "2 t f f, 3 f t f, 4 f f t",
    )
    .await?;
    // A schema that changes: what is not there any more is NULL, what is new is taken over by ALTER.
    let second = registry.register("bids-value", "AVRO", NEWER, json!([])).await?;
    run(&client, "ALTER STREAM bids ADD COLUMN note TEXT").await?;
    let newer = record(vec![
        ("auction", Value::Long(4)),
        ("at", Value::TimestampMicros(4_000_000)),
        ("tags", Value::Array(vec![])),
        ("by", record(vec![("name", text("bob"))])),
        ("note", text("new")),
    ]);
    send(
        &kafka,
        [avro(second, NEWER, newer)?, avro(first, BID, bid(5, Some(1)))?]
            .map(|value| Record::new("bids", value)),
    )
    .await?;
    until(
        &client,
        "SELECT auction, price, at = to_timestamp(auction), note FROM bids WHERE auction > 3 ORDER BY 1",
        "4 NULL t new, 5 0.01 t NULL",
    )
    .await?;
    drop(client);
    server.shutdown().await;
    // After a restart schemas are asked for again.
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    send(&kafka, [Record::new("bids", avro(first, BID, bid(6, Some(2)))?)]).await?;
    until(
        &client,
        "SELECT count(*), count(DISTINCT o), max(auction) FROM bids",
        "6 6 6",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}

/// Keys with a schema of their own, and events of Debezium.
async fn keyed(broker: &Broker, registry: &Registry, place: &Path) -> Result<(), Failure> {
    const KEY: &str = r#"{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}"#;
    const VALUE: &str =
        r#"{"type": "record", "name": "Value", "fields": [{"name": "name", "type": ["null", "string"]}]}"#;
    const EVENT: &str = r#"{"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "int"},
            {"name": "at", "type": ["null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}]},
            {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2,
                "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}},
            {"name": "raw", "type": ["null", "bytes"]}
        ]}]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"}
    ]}"#;
    let kafka = broker.client().await?;
    for topic in ["people", "orders", "named"] {
        create_topic(&kafka, topic, 1).await?;
    }
    let key = registry.register("people-key", "AVRO", KEY, json!([])).await?;
    let value = registry
        .register("people-value", "AVRO", VALUE, json!([]))
        .await?;
    let event = registry
        .register("orders-value", "AVRO", EVENT, json!([]))
        .await?;
    registry.register("named-value", "AVRO", VALUE, json!([])).await?;
    let server = start(place).await?;
    let client = connect(server.pg_addr()).await?;
    let format = |envelope: &str, more: &str| {
        format!(
            "FORMAT {envelope} ENCODE AVRO (schema.registry = '{}'{more})",
            registry.address()
        )
    };
    run(
        &client,
        &format!(
            "CREATE TABLE people (*, PRIMARY KEY (id)) {} {}",
            with(broker, "people", ""),
            format("UPSERT", "")
        ),
    )
    .await?;
    run(
        &client,
        &format!(
            "CREATE TABLE named (id INT PRIMARY KEY, name TEXT) {} {}",
            with(broker, "named", ", key.format = 'text'"),
            // The key is not of the registry.
            format("UPSERT", "")
        ),
    )
    .await
    .unwrap_err();
    run(
        &client,
        &format!(
            "CREATE TABLE orders (*, PRIMARY KEY (id)) {} {}",
            with(broker, "orders", ""),
            format("DEBEZIUM", "")
        ),
    )
    .await?;
    assert_eq!(
        line(
            &client,
            "SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) \
             FROM information_schema.columns WHERE table_name IN ('people', 'orders') GROUP BY 1 ORDER BY 1",
        )
        .await?,
        "orders id integer, at timestamp without time zone, day date, total numeric, raw bytea, people id integer, name text"
    );
    let person = |id: i32, name: Option<&str>| -> Result<Record, Failure> {
        let of_key = avro(key, KEY, record(vec![("id", Value::Int(id))]))?;
        Ok(match name {
            Some(name) => {
                let name = Value::Union(1, Box::new(text(name)));
                Record::new("people", avro(value, VALUE, record(vec![("name", name)]))?).key(of_key)
            }
            None => Record::tombstone("people", of_key),
        })
    };
    send(
        &kafka,
        [
            person(1, Some("ann"))?,
            person(2, Some("bob"))?,
            person(1, Some("eve"))?,
            person(2, None)?,
        ],
    )
    .await?;
    until(&client, "SELECT * FROM people", "1 eve").await?;
    let some = |value: Value| Value::Union(1, Box::new(value));
    let none = || Value::Union(0, Box::new(Value::Null));
    let row = |id: i32, total: u8| {
        some(record(vec![
            ("id", Value::Int(id)),
            ("at", some(Value::Long(1_500_000))),
            ("day", some(Value::Int(1))),
            ("total", Value::Decimal(vec![total].into())),
            ("raw", some(Value::Bytes(vec![0, 255]))),
        ]))
    };
    let change = |before: Value, after: Value, op: &str| -> Result<Record, Failure> {
        let event_of = record(vec![("before", before), ("after", after), ("op", text(op))]);
        Ok(Record::new("orders", avro(event, EVENT, event_of)?))
    };
    let changes = [
        change(none(), row(1, 100), "c")?,
        change(none(), row(2, 7), "r")?,
        change(row(1, 100), row(1, 101), "u")?,
        change(row(2, 7), none(), "d")?,
    ];
    send(&kafka, changes).await?;
    until(
        &client,
        "SELECT * FROM orders",
        "1 1970-01-01 00:00:01.5 1970-01-02 1.01 \\x00ff",
    )
    .await?;
    until(&client, "SELECT count(*) FROM \"orders$errors\"", "0").await?;
    server.shutdown().await;
    Ok(())
}

async fn protobuf(broker: &Broker, registry: &Registry, place: &Path) -> Result<(), Failure> {
    const COMMON: &str =
        "syntax = \"proto3\"; package shop; message Money { int64 cents = 1; string currency = 2; }";
    const ORDER: &str = "syntax = \"proto3\"; package shop; import \"common.proto\"; import \"google/protobuf/timestamp.proto\";
        message Unused { string x = 1; }
        message Order { int64 id = 1; optional string note = 2; repeated string tags = 3; shop.Money total = 4; bytes raw = 5;
            enum State { NEW = 0; PAID = 1; } State state = 6; map<string, int32> counts = 7; google.protobuf.Timestamp at = 8; uint64 big = 9; }";
    let kafka = broker.client().await?;
    create_topic(&kafka, "proto", 1).await?;
    registry.register("common", "PROTOBUF", COMMON, json!([])).await?;
    let references = json!([{ "name": "common.proto", "subject": "common", "version": 1 }]);
    let id = registry
        .register("proto-value", "PROTOBUF", ORDER, references)
        .await?;
    let directory = place.join("schemas");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("common.proto"), COMMON)?;
    std::fs::write(directory.join("order.proto"), ORDER)?;
    let mut compiler = protox::Compiler::new([&directory])?;
    compiler.include_imports(true).open_file("order.proto")?;
    let pool = compiler.descriptor_pool();
    let order = pool.get_message_by_name("shop.Order").unwrap();
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    let options = with(broker, "proto", "");
    let format = |message: &str| {
        format!(
            "FORMAT PLAIN ENCODE PROTOBUF (message = '{message}', schema.registry = '{}')",
            registry.address()
        )
    };
    let error = refused(
        &client,
        &format!("CREATE STREAM x (*) {options} {}", format("shop.Ordr")),
    )
    .await?;
    assert!(error.contains("it has no message \"shop.Ordr\""), "{error}");
    let debezium = format("shop.Order").replace("PLAIN", "DEBEZIUM");
    let create = format!("CREATE TABLE x (id BIGINT PRIMARY KEY) {options} {debezium}");
    let error = refused(&client, &create).await?;
    assert!(error.contains("ENCODE JSON and AVRO"), "{error}");
    run(
        &client,
        &format!("CREATE STREAM p (*) {options} {}", format("shop.Order")),
    )
    .await?;
    let mut message = DynamicMessage::new(order.clone());
    for (name, value) in [
        ("id", Field::I64(i64::MAX)),
        ("tags", Field::List(vec![Field::String("a".to_owned())])),
        ("raw", Field::Bytes(vec![0, 255].into())),
        ("state", Field::EnumNumber(1)),
        ("big", Field::U64(u64::MAX)),
    ] {
        message.set_field_by_name(name, value);
    }
    let money = message
        .get_field_by_name_mut("total")
        .unwrap()
        .as_message_mut()
        .unwrap();
    money.set_field_by_name("cents", Field::I64(5));
    let at = message
        .get_field_by_name_mut("at")
        .unwrap()
        .as_message_mut()
        .unwrap();
    at.set_field_by_name("seconds", Field::I64(1));
    at.set_field_by_name("nanos", Field::I32(500_000_000));
    let bytes = |message: &DynamicMessage, path: &[u8]| {
        let mut content = path.to_vec();
        content.extend(prost_reflect::prost::Message::encode_to_vec(message));
        framed(id, content)
    };
    // The second message of the file, as one number; and the first, which is another.
    let records = [
        bytes(&message, &[2, 2]),
        bytes(&message, &[0]),
        bytes(&DynamicMessage::new(order), &[2, 2]),
        framed(id, vec![2, 2, 0xff]),
    ];
    send(&kafka, records.map(|value| Record::new("proto", value))).await?;
    until(
        &client,
        "SELECT id, note, tags, total ->> 'cents', raw, state, counts, at = to_timestamp(1.5), big FROM p ORDER BY id DESC",
        &format!("{} NULL {{a}} 5 \\x00ff PAID {{}} t {}, 0 NULL {{}} NULL \\x NEW {{}} NULL 0", i64::MAX, u64::MAX),
    )
    .await?;
    until(
        &client,
        "SELECT \"offset\", reason LIKE '%is a shop.Unused, not a shop.Order', reason LIKE '%not as its schema says%' \
         FROM \"p$errors\" ORDER BY 1",
        "1 t f, 3 f t",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}
