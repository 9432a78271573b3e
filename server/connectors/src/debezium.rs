//! Change events of Debezium as JSON, with the schema of the event or without.
//!
//! What a value means is told by the names in the schema (`io.debezium.time.Date`, say); without one, numbers stand for no times.

use std::collections::HashMap;

use arrow::datatypes::{DataType, FieldRef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::types::type_name;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::about::{About, Kept, Members, broken, document, invalid};
use crate::news::News;
use crate::written;

/// What stands for a value that is kept elsewhere (TOAST) and was not changed.
const UNCHANGED: &str = "__debezium_unavailable_value";
/// The same of a bytea.
const UNCHANGED_BYTES: &str = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==";

#[derive(Deserialize)]
struct Enveloped<'a> {
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    before: Option<Members<'a>>,
    #[serde(borrow, default)]
    after: Option<Members<'a>>,
    #[serde(default)]
    op: Option<String>,
}

#[derive(Deserialize)]
struct FieldSchema {
    #[serde(default)]
    field: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<serde_json::Value>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    parameters: HashMap<String, String>,
    #[serde(default)]
    fields: Vec<FieldSchema>,
}

/// How the value of a column is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// As our own JSON has it.
    Plainly,
    Days,
    /// Since midnight, in so many parts of a second.
    Time(i64),
    /// Since 1970-01-01 00:00 UTC, in so many parts of a second.
    Since(i64),
    /// A length of time in microseconds.
    Micros,
    /// Two's complement in base64, with so many digits behind the point.
    Decimal(i64),
    /// The same in an object that has the digits.
    ScaledDecimal,
    Bytes,
}

impl FieldSchema {
    /// The type of SQL that has the values.
    fn sql_type(&self) -> Option<&'static str> {
        match self.name.as_deref() {
            Some("org.apache.kafka.connect.data.Decimal") => return Some("numeric"),
            Some("org.apache.kafka.connect.data.Date") => return Some("date"),
            Some("org.apache.kafka.connect.data.Time") => return Some("time"),
            Some("org.apache.kafka.connect.data.Timestamp") => return Some("timestamp"),
            Some(name) if sql_type(name).is_some() => return sql_type(name),
            _ => {}
        }
        Some(match self.kind.as_ref()?.as_str()? {
            "boolean" => "boolean",
            "int8" | "int16" => "smallint",
            "int32" => "integer",
            "int64" => "bigint",
            "float" | "float32" => "real",
            "double" | "float64" => "double precision",
            "bytes" => "bytea",
            "string" => "text",
            _ => "jsonb",
        })
    }

    fn written(&self) -> Written {
        let scale = || self.parameters.get("scale").and_then(|scale| scale.parse().ok());
        match self.name.as_deref() {
            Some("io.debezium.time.Date" | "org.apache.kafka.connect.data.Date") => Written::Days,
            Some("io.debezium.time.Time" | "org.apache.kafka.connect.data.Time") => Written::Time(1_000),
            Some("io.debezium.time.MicroTime") => Written::Time(1_000_000),
            Some("io.debezium.time.NanoTime") => Written::Time(1_000_000_000),
            Some("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp") => {
                Written::Since(1_000)
            }
            Some("io.debezium.time.MicroTimestamp") => Written::Since(1_000_000),
            Some("io.debezium.time.NanoTimestamp") => Written::Since(1_000_000_000),
            Some("io.debezium.time.MicroDuration") => Written::Micros,
            Some("org.apache.kafka.connect.data.Decimal") => Written::Decimal(scale().unwrap_or(0)),
            Some("io.debezium.data.VariableScaleDecimal") => Written::ScaledDecimal,
            _ if self.kind.as_ref().and_then(|kind| kind.as_str()) == Some("bytes") => Written::Bytes,
            _ => Written::Plainly,
        }
    }
}

/// The type of SQL for what has this name in a schema, if its type there does not say that.
pub(crate) fn sql_type(name: &str) -> Option<&'static str> {
    Some(match name.strip_prefix("io.debezium.")? {
        "time.Date" => "date",
        "time.Time" | "time.MicroTime" | "time.NanoTime" => "time",
        "time.Timestamp" | "time.MicroTimestamp" | "time.NanoTimestamp" => "timestamp",
        "time.ZonedTimestamp" => "timestamptz",
        "time.MicroDuration" => "interval",
        "data.VariableScaleDecimal" => "numeric",
        "data.Json" => "jsonb",
        "data.Uuid" => "uuid",
        _ => return None,
    })
}

/// What an event is about.
///
/// # Errors
/// It is no event, or one that does not change a row; it has no value for a column of the key; a value is not what the schema says.
pub(crate) fn change(value: &[u8], values: &[FieldRef], key: &[FieldRef]) -> SqlResult<About> {
    let broken = |error: serde_json::Error| broken("value", &error);
    let whole: &RawValue = serde_json::from_slice(value).map_err(broken)?;
    let enveloped: Enveloped<'_> = serde_json::from_str(whole.get()).map_err(broken)?;
    let (schema, payload) = match (enveloped.schema, enveloped.payload) {
        (schema, Some(payload)) => (schema, payload),
        // The value of a tombstone that has a schema.
        (Some(_), None) => return Ok(About::default()),
        (None, None) => (None, whole),
    };
    let event: Event<'_> = serde_json::from_str(payload.get()).map_err(broken)?;
    let fields = match schema {
        Some(schema) => {
            serde_json::from_str::<FieldSchema>(schema.get())
                .map_err(broken)?
                .fields
        }
        None => vec![],
    };
    let written_in = |image: &str| -> HashMap<&str, Written> {
        let of = fields.iter().find(|field| field.field.as_deref() == Some(image));
        let columns = of.map_or(&[] as &[FieldSchema], |of| &of.fields);
        (columns.iter())
            .filter_map(|column| Some((column.field.as_deref()?, column.written())))
            .collect()
    };
    let before = event
        .before
        .map(|before| converted(before, &written_in("before"), key));
    let after = event
        .after
        .map(|after| converted(after, &written_in("after"), values));
    match event.op.as_deref() {
        Some("c" | "r" | "u") => {
            let (row, kept) = after.ok_or_else(|| invalid("the event has no row after the change"))??;
            let gone = match before.transpose()? {
                // Only if the key has changed; without an image of before it has not.
                Some((before, _)) if key_of(&before, key) != key_of(&row, key) && has_key(&before, key) => {
                    Some(document_of(&before)?)
                }
                _ => None,
            };
            if let Some(name) = kept
                .iter()
                .find(|name| key.iter().any(|field| field.name() == *name))
            {
                return Err(invalid(&format!(
                    "the event has no value for column \"{name}\" of the key"
                )));
            }
            Ok(About {
                row: Some(document_of(&row)?),
                gone,
                kept,
            })
        }
        Some("d") => {
            let (before, _) = before.ok_or_else(|| invalid("the event has no row before the change"))??;
            Ok(About {
                gone: Some(document_of(&before)?),
                ..About::default()
            })
        }
        Some("m") => Ok(About::default()),
        Some(op) => Err(
            SqlError::unsupported(format!("an event with op \"{op}\" is not supported"))
                .with_hint("Those of rows are c, r, u and d."),
        ),
        None => Err(invalid("the value is not an event of Debezium: it has no \"op\"")),
    }
}

/// Tells the columns that the row of an event has after the change. What is no event is told elsewhere.
pub(crate) fn add_columns(at: usize, value: &[u8], news: &mut News<'_>) {
    let Ok(whole) = serde_json::from_slice::<&RawValue>(value) else {
        return;
    };
    let Ok(enveloped) = serde_json::from_str::<Enveloped<'_>>(whole.get()) else {
        return;
    };
    let payload = match (&enveloped.schema, enveloped.payload) {
        (_, Some(payload)) => payload,
        (None, None) => whole,
        (Some(_), None) => return,
    };
    #[derive(Deserialize)]
    struct Row<'a> {
        #[serde(borrow, default)]
        after: Option<&'a RawValue>,
    }
    let Ok(Row { after: Some(after) }) = serde_json::from_str(payload.get()) else {
        return;
    };
    let schema = enveloped
        .schema
        .and_then(|schema| serde_json::from_str::<FieldSchema>(schema.get()).ok());
    let Some(schema) = schema else {
        return news.add_members(at, after.get().as_bytes());
    };
    let row = (schema.fields.iter()).find(|field| field.field.as_deref() == Some("after"));
    for column in row.into_iter().flat_map(|row| &row.fields) {
        if let Some(name) = &column.field {
            news.add(at, name, column.sql_type());
        }
    }
}

/// Members in our own words.
type Row = std::collections::BTreeMap<String, Box<RawValue>>;

fn document_of(row: &Row) -> SqlResult<Bytes> {
    let members: Members<'_> = row.iter().map(|(name, value)| (name.clone(), &**value)).collect();
    document(&members)
}

fn key_of<'a>(row: &'a Row, key: &[FieldRef]) -> Vec<Option<&'a str>> {
    key.iter()
        .map(|field| row.get(field.name()).map(|value| value.get()))
        .collect()
}

fn has_key(row: &Row, key: &[FieldRef]) -> bool {
    key_of(row, key)
        .iter()
        .all(|value| value.is_some_and(|value| value != "null"))
}

/// The columns that are wanted, as our own JSON has them, and those that stay as they were.
fn converted(
    image: Members<'_>,
    written: &HashMap<&str, Written>,
    wanted: &[FieldRef],
) -> SqlResult<(Row, Kept)> {
    let (mut row, mut kept) = (Row::new(), vec![]);
    for (name, value) in image {
        let Some(field) = wanted.iter().find(|field| *field.name() == name) else {
            continue;
        };
        let text = value.get().trim();
        let is_unchanged =
            matches!(text.trim_matches('"'), UNCHANGED | UNCHANGED_BYTES) && text.starts_with('"');
        let made = if is_unchanged {
            kept.push(name.clone());
            Some(stand_in(field.data_type()).to_owned())
        } else {
            let how = written.get(name.as_str()).copied().unwrap_or(Written::Plainly);
            in_our_words(text, how, field).map_err(|error| {
                let message = format!("column \"{name}\": {}", error.message);
                SqlError::new(error.code, message).with_hint_opt(error.hint)
            })?
        };
        let made = match made {
            Some(made) => {
                let made = RawValue::from_string(made);
                made.map_err(|error| invalid(&format!("column \"{name}\" has no JSON: {error}")))?
            }
            None => value.to_owned(),
        };
        row.insert(name, made);
    }
    Ok((row, kept))
}

/// What any column of the type may have, until its own value is put there.
fn stand_in(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::List(_) => "[]",
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => "\"{}\"",
        DataType::Binary | DataType::BinaryView | DataType::LargeBinary => "\"\\\\x00\"",
        _ => "0",
    }
}

/// A value as our own JSON has it; `None`: it is.
fn in_our_words(text: &str, written: Written, field: &FieldRef) -> SqlResult<Option<String>> {
    if text == "null" {
        return Ok(None);
    }
    let number = || -> SqlResult<i64> {
        text.parse().map_err(|_| {
            invalid(&format!(
                "{text} is not a whole number, which the schema says it is"
            ))
        })
    };
    let made = match written {
        // JSON is sent as its text.
        Written::Plainly if text.starts_with('"') && matches!(&*type_name(field), "json" | "jsonb") => {
            let inner: String =
                serde_json::from_str(text).map_err(|_| invalid("a JSON value is not a text"))?;
            return Ok(Some(inner));
        }
        Written::Plainly => {
            let is_time = matches!(
                field.data_type(),
                DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_) | DataType::Time32(_)
            );
            if is_time && text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                return Err(invalid(&format!(
                    "a number stands for a {}, and the event has no schema that says of what",
                    type_name(field)
                ))
                .with_hint(
                    "Have Debezium send schemas (value.converter.schemas.enable) or times as text \
                     (time.precision.mode = isostring).",
                ));
            }
            let is_bytes = matches!(
                field.data_type(),
                DataType::Binary | DataType::BinaryView | DataType::LargeBinary
            );
            // Whether letters are bytes themselves, base64 or digits is not told by them, unless they begin as those of bytea do.
            if is_bytes && text.starts_with('"') && !text.starts_with(r#""\\x"#) {
                return Err(invalid(&format!(
                    "a text stands for a {}, and the event has no schema that says how",
                    type_name(field)
                ))
                .with_hint(
                    "Have Debezium send schemas (value.converter.schemas.enable), with binary.handling.mode = bytes.",
                ));
            }
            return Ok(None);
        }
        Written::Days => written::date(number()?)?,
        Written::Since(parts) => {
            // Without a zone: a timestamp has none, and for timestamptz it is UTC.
            let zone = if matches!(field.data_type(), DataType::Timestamp(_, Some(_))) {
                "Z"
            } else {
                ""
            };
            format!("{}{zone}", written::moment(number()?, parts)?)
        }
        Written::Time(parts) => written::time_of_day(number()?, parts)?,
        Written::Micros => format!("{} microseconds", number()?),
        Written::Decimal(scale) => {
            let digits: String =
                serde_json::from_str(text).map_err(|_| invalid("a decimal is not in base64"))?;
            decimal(&digits, scale)?
        }
        Written::ScaledDecimal => {
            #[derive(Deserialize)]
            struct Scaled {
                scale: i64,
                value: String,
            }
            let scaled: Scaled =
                serde_json::from_str(text).map_err(|_| invalid("a decimal has no scale and value"))?;
            decimal(&scaled.value, scaled.scale)?
        }
        Written::Bytes => {
            let bytes: String = serde_json::from_str(text).map_err(|_| invalid("bytes are not in base64"))?;
            let bytes = STANDARD
                .decode(bytes)
                .map_err(|_| invalid("bytes are not in base64"))?;
            written::hexadecimal(&bytes)
        }
    };
    Ok(Some(serde_json::Value::from(made).to_string()))
}

/// A number of two's complement in base64, and how many of its digits are behind the point.
fn decimal(base64: &str, scale: i64) -> SqlResult<String> {
    let bytes = STANDARD
        .decode(base64)
        .map_err(|_| invalid("a decimal is not in base64"))?;
    written::decimal(&bytes, scale)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    fn fields(fields: &[(&str, DataType)]) -> Vec<FieldRef> {
        let field =
            |(name, data_type): &(&str, DataType)| Arc::new(Field::new(*name, data_type.clone(), true));
        fields.iter().map(field).collect()
    }

    fn about(event: &str, columns: &[(&str, DataType)]) -> Result<(String, String, Kept), String> {
        let columns = fields(columns);
        let text = |bytes: Option<Bytes>| {
            bytes.map_or(String::new(), |bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        match change(event.as_bytes(), &columns, &columns[..1]) {
            Ok(About { row, gone, kept }) => Ok((text(row), text(gone), kept)),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn events_say_what_is_there_and_what_is_gone() {
        let columns = [("id", DataType::Int32), ("v", DataType::Utf8)];
        let is = |event: &str, row: &str, gone: &str| {
            let found = about(event, &columns).unwrap();
            assert_eq!((found.0.as_str(), found.1.as_str()), (row, gone), "{event}");
        };
        let row = r#"{"id":1,"v":"a"}"#;
        is(
            r#"{"op":"c","before":null,"after":{"id":1,"v":"a","x":2}}"#,
            row,
            "",
        );
        is(r#"{"op":"r","after":{"id":1,"v":"a"}}"#, row, "");
        is(
            r#"{"op":"u","before":{"id":1,"v":"b"},"after":{"id":1,"v":"a"}}"#,
            row,
            "",
        );
        is(
            r#"{"op":"u","before":{"id":7},"after":{"id":1,"v":"a"}}"#,
            row,
            r#"{"id":7}"#,
        );
        is(
            r#"{"op":"u","before":{"id":null},"after":{"id":1,"v":"a"}}"#,
            row,
            "",
        );
        is(
            r#"{"op":"d","before":{"id":1,"v":"a"},"after":null}"#,
            "",
            r#"{"id":1}"#,
        );
        is(r#"{"op":"m"}"#, "", "");
        is(
            r#"{"schema":{},"payload":{"op":"c","after":{"id":1,"v":"a"}}}"#,
            row,
            "",
        );
        is(r#"{"schema":{},"payload":null}"#, "", "");
        for wrong in [
            "",
            "7",
            "[]",
            "{}",
            r#"{"op":"c"}"#,
            r#"{"op":"d","after":{"id":1}}"#,
            r#"{"op":"t"}"#,
            r#"{"op":5}"#,
            r#"{"op":"c","after":[1]}"#,
            r#"{"op":"u","after":{"id":"__debezium_unavailable_value"}}"#,
        ] {
            assert!(about(wrong, &columns).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_not_changed_is_told_by_name() {
        let columns = [
            ("id", DataType::Int32),
            ("v", DataType::Utf8),
            ("b", DataType::Binary),
        ];
        let event = r#"{"op":"u","after":{"id":1,"v":"__debezium_unavailable_value","b":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}}"#;
        let (_, _, kept) = about(event, &columns).unwrap();
        assert_eq!(kept, ["b", "v"]);
    }

    #[test]
    fn bytes_without_a_schema_are_told_by_their_digits_alone() {
        let columns = [("id", DataType::Int32), ("b", DataType::Binary)];
        let event = |value: &str| format!(r#"{{"op":"c","after":{{"id":1,"b":{value}}}}}"#);
        let error = about(&event("\"AAE=\""), &columns).unwrap_err();
        assert!(error.contains("has no schema"), "{error}");
        for value in [r#""\\x0001""#, "null"] {
            let (row, ..) = about(&event(value), &columns).unwrap();
            assert!(row.contains(value), "{row}");
        }
    }

    #[test]
    fn values_are_what_the_schema_says() {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let one = |schema: &str, value: &str, data_type: &DataType| {
            let schema = format!(
                r#"{{"fields":[{{"field":"after","fields":[{{"field":"id","type":"int32"}},{{"field":"v",{schema}}}]}}]}}"#
            );
            let event =
                format!(r#"{{"schema":{schema},"payload":{{"op":"c","after":{{"id":1,"v":{value}}}}}}}"#);
            let found = about(&event, &[("id", DataType::Int32), ("v", data_type.clone())]);
            found.map(|(row, ..)| {
                row.replace(r#"{"id":1,"v":"#, "")
                    .trim_end_matches('}')
                    .to_owned()
            })
        };
        let named = |name: &str| format!(r#""name":"{name}""#);
        for (schema, value, data_type, expected) in [
            (
                named("io.debezium.time.Date"),
                "-1",
                &DataType::Date32,
                "\"1969-12-31\"",
            ),
            (
                named("io.debezium.time.Timestamp"),
                "-1",
                &timestamp,
                "\"1969-12-31 23:59:59.999\"",
            ),
            (
                named("io.debezium.time.MicroTimestamp"),
                "1500000",
                &timestamp,
                "\"1970-01-01 00:00:01.500\"",
            ),
            (
                named("io.debezium.time.NanoTimestamp"),
                "1500",
                &zoned,
                "\"1970-01-01 00:00:00.000001500Z\"",
            ),
            (
                named("io.debezium.time.MicroTime"),
                "3600000001",
                &DataType::Utf8,
                "\"01:00:00.000001\"",
            ),
            (
                named("io.debezium.time.Time"),
                "5",
                &DataType::Utf8,
                "\"00:00:00.005000\"",
            ),
            (
                named("io.debezium.time.ZonedTimestamp"),
                "\"2026-01-01T00:00:00Z\"",
                &zoned,
                "\"2026-01-01T00:00:00Z\"",
            ),
            (
                r#""name":"org.apache.kafka.connect.data.Decimal","type":"bytes","parameters":{"scale":"2"}"#
                    .to_owned(),
                "\"/84=\"",
                &DataType::Decimal128(5, 2),
                "\"-0.50\"",
            ),
            (
                named("io.debezium.data.VariableScaleDecimal"),
                r#"{"scale":0,"value":"MDk="}"#,
                &DataType::Decimal128(5, 0),
                "\"12345\"",
            ),
            (
                r#""type":"bytes""#.to_owned(),
                "\"AAE=\"",
                &DataType::Binary,
                "\"\\\\x0001\"",
            ),
            (named("io.debezium.time.Date"), "null", &DataType::Date32, "null"),
            (r#""type":"string""#.to_owned(), "\"x\"", &DataType::Utf8, "\"x\""),
        ] {
            assert_eq!(one(&schema, value, data_type).unwrap(), expected, "{schema}");
        }
        for (schema, value, data_type) in [
            (named("io.debezium.time.Date"), "\"x\"", &DataType::Date32),
            (
                named("io.debezium.time.Date"),
                "9223372036854775807",
                &DataType::Date32,
            ),
            (named("io.debezium.time.MicroTime"), "-5", &DataType::Utf8),
            (r#""type":"int32""#.to_owned(), "7", &DataType::Date32),
            (r#""type":"bytes""#.to_owned(), "\"*\"", &DataType::Binary),
            (r#""type":"string""#.to_owned(), "\"AAE=\"", &DataType::Binary),
        ] {
            assert!(one(&schema, value, data_type).is_err(), "{schema} {value}");
        }
    }
}
