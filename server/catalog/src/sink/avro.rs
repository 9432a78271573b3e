//! The schemas of what a sink writes as Avro, from the columns of its relation.
//!
//! ```text
//!  boolean, int (smallint, integer), long, float, double, bytes    themselves
//!  numeric(p,s)                                                    bytes, decimal
//!  date, time, timestamp, timestamptz                              date, time-micros, local-timestamp-micros, timestamp-micros
//!  json, jsonb                                                     string, with the name that Debezium has for it
//!  array                                                           array
//!  everything else                                                 string, as SQL writes it
//! ```
//! Every value may be null and is null by default: so a reader with another version of the schema understands it when columns come and go.

use arrow::datatypes::{DataType, Field, Schema};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::type_name;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::SinkType;

/// What Debezium calls a text that is JSON.
pub const JSON_NAME: &str = "io.debezium.data.Json";

/// The schemas of the records of a topic, as texts of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AvroSchemas {
    /// None: records have no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub value: String,
}

impl AvroSchemas {
    /// Of a topic's records with these columns, of which some, by position, are the key.
    ///
    /// # Errors
    /// A column has a name that Avro does not allow.
    pub fn new(
        topic: &str,
        sink_type: SinkType,
        names: &[String],
        key: Option<&[usize]>,
        relation: &Schema,
    ) -> SqlResult<AvroSchemas> {
        if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("\"{wrong}\" cannot be the name of a field of Avro"),
            )
            .with_detail(
                "A field's name has letters of ASCII, digits and underscores, and begins with no digit.",
            )
            .with_hint("Rename the column in a query: CREATE SINK .. AS SELECT .."));
        }
        let namespace = namespace(topic);
        let field = |at: usize, may_be_null: bool| -> Value {
            let of = of_type(relation.field(at));
            match may_be_null {
                true => json!({"name": names[at], "type": ["null", of], "default": null}),
                false => json!({"name": names[at], "type": of}),
            }
        };
        let record = |name: &str, fields: Vec<Value>| json!({"type": "record", "name": name, "namespace": namespace, "fields": fields});
        let row = record("Value", (0..names.len()).map(|at| field(at, true)).collect());
        let value = match sink_type {
            SinkType::Debezium => record(
                "Envelope",
                vec![
                    json!({"name": "before", "type": ["null", row], "default": null}),
                    json!({"name": "after", "type": ["null", format!("{namespace}.Value")], "default": null}),
                    json!({"name": "op", "type": "string"}),
                ],
            ),
            SinkType::AppendOnly | SinkType::ForcedAppendOnly | SinkType::Changelog | SinkType::Upsert => row,
        };
        let of_key = |key: &[usize]| {
            let fields = key.iter().map(|at| field(*at, relation.field(*at).is_nullable()));
            record("Key", fields.collect()).to_string()
        };
        Ok(AvroSchemas {
            key: key.map(of_key),
            value: value.to_string(),
        })
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A topic's name as one that Avro allows.
fn namespace(topic: &str) -> String {
    let part = |part: &str| {
        let plain: String = (part.chars())
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        match plain.starts_with(|c: char| c.is_ascii_digit()) || plain.is_empty() {
            true => format!("_{plain}"),
            false => plain,
        }
    };
    topic.split('.').map(part).collect::<Vec<_>>().join(".")
}

fn of_type(field: &Field) -> Value {
    let name = type_name(field);
    match (field.data_type(), name.as_str()) {
        (DataType::List(item), _) => json!({"type": "array", "items": ["null", of_type(item)]}),
        (_, "boolean") => json!("boolean"),
        (_, "smallint" | "integer") => json!("int"),
        (_, "bigint") => json!("long"),
        (_, "real") => json!("float"),
        (_, "double precision") => json!("double"),
        (_, "bytea") => json!("bytes"),
        (_, "json" | "jsonb") => json!({"type": "string", "connect.name": JSON_NAME}),
        (DataType::Date32, _) => json!({"type": "int", "logicalType": "date"}),
        (DataType::Time64(_), _) => json!({"type": "long", "logicalType": "time-micros"}),
        (DataType::Timestamp(_, zone), _) => {
            let logical = match zone {
                Some(_) => "timestamp-micros",
                None => "local-timestamp-micros",
            };
            json!({"type": "long", "logicalType": logical})
        }
        (DataType::Decimal128(precision, scale), name) if *scale >= 0 && name.starts_with("numeric(") => {
            json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        }
        _ => json!("string"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_avro_allows() {
        assert_eq!(namespace("shop.public.1st-orders"), "shop.public._1st_orders");
        assert_eq!(namespace("a..b"), "a._.b");
        for (name, is) in [
            ("a", true),
            ("_1", true),
            ("1a", false),
            ("", false),
            ("ä", false),
            ("a b", false),
        ] {
            assert_eq!(is_name(name), is, "{name}");
        }
    }
}
