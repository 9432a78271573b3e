//! What schemas of Kafka Connect say beside the types: what the values of a column stand for.

use std::collections::HashMap;

use millrace_postgres::error::SqlResult;

use super::unreadable;

/// What an event of Debezium says of its columns.
#[derive(Debug)]
pub(super) struct Connect {
    /// What stands before an event in JSON: its schema. After it stands `}`.
    pub before: String,
    /// Of columns the names of what their values stand for.
    pub names: HashMap<String, String>,
}

/// The type of a field, or the one that is not null.
fn concrete(of: &serde_json::Value) -> &serde_json::Value {
    match of {
        serde_json::Value::Array(variants) => variants
            .iter()
            .find(|variant| *variant != "null")
            .unwrap_or(&serde_json::Value::Null),
        one => one,
    }
}

impl Connect {
    /// Of a schema in Avro, where what a value means stands beside its type, as `connect.name` and `connect.parameters`.
    ///
    /// # Errors
    /// It is no JSON.
    pub fn of(text: &str) -> SqlResult<Connect> {
        use serde_json::{Value, json};
        let schema: Value = serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))?;
        let mut names = HashMap::new();
        let fields_of = |of: &Value| of["fields"].as_array().cloned().unwrap_or_default();
        let mut records: HashMap<String, Vec<Value>> = HashMap::new();
        let mut images = vec![];
        for image in fields_of(&schema) {
            let of = concrete(&image["type"]);
            let columns = match of {
                // The second of the two refers to the type of the first.
                Value::String(name) => {
                    let short = name.rsplit('.').next().unwrap_or_default();
                    records.get(short).cloned().unwrap_or_default()
                }
                record => {
                    let columns = fields_of(record);
                    if let Some(name) = record["name"].as_str() {
                        let short = name.rsplit('.').next().unwrap_or_default();
                        records.insert(short.to_owned(), columns.clone());
                    }
                    columns
                }
            };
            let columns: Vec<Value> = (columns.iter())
                .map(|column| {
                    let of = concrete(&column["type"]);
                    let is_logical = of.get("logicalType").is_some();
                    if let (Some(column), Some(name)) = (column["name"].as_str(), of["connect.name"].as_str())
                    {
                        names.insert(column.to_owned(), name.to_owned());
                    }
                    let kind = of.as_str().or_else(|| of["type"].as_str()).unwrap_or_default();
                    let is_bytes = matches!(kind, "bytes" | "fixed") && !is_logical;
                    json!({
                        "field": column["name"],
                        "type": if is_bytes { "bytes" } else { "other" },
                        // What has a logical type is written in words already.
                        "name": if is_logical { Value::Null } else { of["connect.name"].clone() },
                        "parameters": of.get("connect.parameters").cloned().unwrap_or_else(|| json!({})),
                    })
                })
                .collect();
            images.push(json!({ "field": image["name"], "fields": columns }));
        }
        let schema = json!({ "fields": images });
        Ok(Connect {
            before: format!("{{\"schema\":{schema},\"payload\":"),
            names,
        })
    }
}
