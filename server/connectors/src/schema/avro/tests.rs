//! What Avro's own library writes is read, and what is broken is answered.

use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::schema::registry::Language;

fn registered(text: &str, references: &[&str]) -> Registered {
    Registered {
        language: Language::Avro,
        text: text.to_owned(),
        references: references
            .iter()
            .map(|text| (String::new(), (*text).to_owned()))
            .collect(),
    }
}

const SHAPES: &str = r#"{"type": "record", "name": "shop.Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "small", "type": "int"},
    {"name": "ok", "type": ["null", "boolean"]},
    {"name": "real", "type": "float"},
    {"name": "wide", "type": "double"},
    {"name": "raw", "type": "bytes"},
    {"name": "name", "type": ["string", "null"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B\u0061"]}},
    {"name": "again", "type": "Kind"},
    {"name": "four", "type": {"type": "fixed", "name": "other.Four", "size": 4}},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "by_name", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
    {"name": "next", "type": ["null", "Order"]},
    {"name": "nothing", "type": "null"}
]}"#;

/// Any value of a type, less deep than that.
fn any(schema: &Schema, root: &Schema, kind: &Schema, random: &mut StdRng, depth: usize) -> Value {
    let again = |schema: &Schema, random: &mut StdRng| any(schema, root, kind, random, depth + 1);
    match schema {
        Schema::Null => Value::Null,
        Schema::Boolean => Value::Boolean(random.random()),
        Schema::Int => Value::Int(random.random::<i32>() >> random.random_range(0..31)),
        Schema::Long => Value::Long(random.random::<i64>() >> random.random_range(0..63)),
        Schema::Float => Value::Float(*[0.0, -1.5, 3e30, 0.1].get(random.random_range(0..4)).unwrap()),
        Schema::Double => Value::Double(f64::from(random.random::<i32>()) / 8.0),
        Schema::Bytes => Value::Bytes((0..random.random_range(0..9)).map(|_| random.random()).collect()),
        Schema::String => {
            let letters = ['a', 'ü', '"', '\\', '\n', '\u{1}', '😀'];
            let length = random.random_range(0..6);
            Value::String(
                (0..length)
                    .map(|_| letters[random.random_range(0..letters.len())])
                    .collect(),
            )
        }
        Schema::Enum(named) => {
            let number = random.random_range(0..named.symbols.len());
            Value::Enum(number as u32, named.symbols[number].clone())
        }
        Schema::Fixed(fixed) => Value::Fixed(fixed.size, (0..fixed.size).map(|_| random.random()).collect()),
        Schema::Array(array) => {
            let length = if depth > 6 { 0 } else { random.random_range(0..4) };
            Value::Array((0..length).map(|_| again(&array.items, random)).collect())
        }
        Schema::Map(map) => {
            let length = if depth > 6 { 0 } else { random.random_range(0..3) };
            Value::Map(
                (0..length)
                    .map(|n| (format!("k{n}"), again(&map.types, random)))
                    .collect(),
            )
        }
        Schema::Union(union) => {
            let number = if depth > 6 { 0 } else { random.random_range(0..2) };
            Value::Union(number as u32, Box::new(again(&union.variants()[number], random)))
        }
        Schema::Record(record) => Value::Record(
            (record.fields.iter())
                .map(|field| (field.name.clone(), again(&field.schema, random)))
                .collect(),
        ),
        Schema::Ref { name } if name.name() == "Order" => again(root, random),
        Schema::Ref { .. } => again(kind, random),
        other => panic!("{other:?}"),
    }
}

fn expected(value: &Value) -> serde_json::Value {
    use serde_json::{Value as J, json};
    match value {
        Value::Null => J::Null,
        Value::Boolean(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Long(value) => json!(value),
        Value::Float(value) => serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap(),
        Value::Double(value) => json!(value),
        Value::Bytes(value) | Value::Fixed(_, value) => {
            json!(format!(
                "\\x{}",
                value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            ))
        }
        Value::String(value) | Value::Enum(_, value) => json!(value),
        Value::Union(_, value) => expected(value),
        Value::Array(values) => values.iter().map(expected).collect(),
        Value::Map(values) => J::Object(values.iter().map(|(k, v)| (k.clone(), expected(v))).collect()),
        Value::Record(values) => J::Object(values.iter().map(|(k, v)| (k.clone(), expected(v))).collect()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_library_writes_is_read() {
    let schema = Schema::parse_str(SHAPES).unwrap();
    let Schema::Record(record) = &schema else {
        unreachable!()
    };
    let kind = record
        .fields
        .iter()
        .find(|field| field.name == "kind")
        .unwrap()
        .schema
        .clone();
    let layout = Layout::new(&registered(SHAPES, &[]), false).unwrap();
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let value = any(&schema, &schema, &kind, &mut random, 0);
        let writer = GenericDatumWriter::builder(&schema).build().unwrap();
        let bytes = writer.write_value_to_vec(value.clone()).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&layout.document(&bytes).unwrap()).unwrap();
        assert_eq!(found, expected(&value), "seed {seed}");
        // Whatever happens to the bytes, there is an answer.
        for _ in 0..20 {
            let mut broken = bytes.clone();
            match random.random_range(0..3) {
                0 => broken.truncate(random.random_range(0..bytes.len())),
                1 => {
                    let at = random.random_range(0..bytes.len());
                    broken[at] = random.random();
                }
                _ => broken.push(random.random()),
            }
            if let Ok(document) = layout.document(&broken) {
                serde_json::from_slice::<serde_json::Value>(&document).unwrap();
            }
        }
    }
}

#[test]
fn times_and_numbers_are_as_sql_writes_them() {
    let text = r#"{"type": "record", "name": "r", "fields": [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "f", "type": {"type": "fixed", "size": 3, "name": "F", "logicalType": "decimal", "precision": 5, "scale": 1}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "i", "type": {"type": "fixed", "size": 12, "name": "D", "logicalType": "duration"}}
    ]}"#;
    let layout = Layout::new(&registered(text, &[]), false).unwrap();
    let mut bytes = vec![4, 0xff, 0x85, 0, 0, 123, 1, 0x80, 0xe3, 0xc3, 0xde, 0x1b, 2, 0];
    bytes.push(72);
    bytes.extend(b"00000000-0000-0000-0000-000000000001");
    bytes.extend([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    let found = String::from_utf8(layout.document(&bytes).unwrap()).unwrap();
    assert_eq!(
        found,
        "{\"d\":-1.23,\"f\":12.3,\"day\":\"1969-12-31\",\"t\":\"01:02:03.000000\",\
         \"ms\":\"1970-01-01 00:00:00.001Z\",\"local\":\"1970-01-01 00:00:00\",\
         \"u\":\"00000000-0000-0000-0000-000000000001\",\"i\":\"1 months 2 days 3 milliseconds\"}"
    );
}

#[test]
fn nothing_is_read_without_end() {
    // A list that goes on in itself, and a list of what takes no space.
    let list = r#"{"type": "record", "name": "l", "fields": [{"name": "next", "type": ["null", "l"]}]}"#;
    let layout = Layout::new(&registered(list, &[]), false).unwrap();
    assert!(layout.document(&[2, 2, 2, 0]).is_ok());
    let error = layout.document(&vec![2; 1_000_000]).unwrap_err();
    assert!(error.message.contains("nested"), "{error:?}");
    let nulls = r#"{"type": "array", "items": "null"}"#;
    let layout = Layout::new(&registered(nulls, &[]), false).unwrap();
    let error = layout
        .document(&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0])
        .unwrap_err();
    assert_eq!(error.code, SqlState::ProgramLimitExceeded);
    let empty = r#"{"type": "record", "name": "e", "fields": [{"name": "x", "type": "e"}]}"#;
    let layout = Layout::new(&registered(empty, &[]), false).unwrap();
    assert!(layout.document(&[]).is_err());
}

#[test]
fn types_of_other_schemas_are_found() {
    let other = r#"{"type": "record", "name": "a.b.Other", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "Third"]}]}"#;
    let third = r#"{"type": "enum", "name": "a.b.Third", "symbols": ["S"]}"#;
    let text =
        r#"{"type": "record", "name": "R", "namespace": "a.b", "fields": [{"name": "o", "type": "Other"}]}"#;
    let layout = Layout::new(&registered(text, &[third, other]), false).unwrap();
    let found = layout.document(&[14, 2, 0]).unwrap();
    assert_eq!(String::from_utf8(found).unwrap(), r#"{"o":{"x":7,"y":"S"}}"#);
    assert!(Layout::new(&registered(text, &[third]), false).is_err());
    assert!(Layout::new(&registered("{", &[]), false).is_err());
}
