//! What a table is: the actions that make one, and whether one that is there can be appended to.

use millrace_catalog::connector::delta::has_local_times;
use serde_json::{Value, json};

/// The feature of tables with timestamps without a zone.
const LOCAL_TIMES: &str = "timestampNtz";
/// Features that change nothing for whoever appends, or of which it is looked whether they are used.
const FEATURES: [&str; 4] = [LOCAL_TIMES, "appendOnly", "invariants", "checkConstraints"];

/// What makes a table of these columns. `id`: what nobody else is called, with a UUID at its end.
pub(super) fn creation(id: &str, schema: &Value, now_ms: i64) -> [Value; 2] {
    let protocol = match has_local_times(schema) {
        true => json!({
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [LOCAL_TIMES],
            "writerFeatures": [LOCAL_TIMES],
        }),
        false => json!({"minReaderVersion": 1, "minWriterVersion": 2}),
    };
    let metadata = json!({
        "id": id.trim_start_matches("millrace-"),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_string(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": now_ms,
    });
    [json!({ "protocol": protocol }), json!({ "metaData": metadata })]
}

/// Looks whether rows of these columns can be appended to a table.
///
/// # Errors
/// Why they cannot.
pub(super) fn fits(protocol: &Value, metadata: &Value, ours: &Value) -> Result<(), String> {
    understood(protocol)?;
    if (metadata["partitionColumns"].as_array()).is_some_and(|columns| !columns.is_empty()) {
        return Err("it is partitioned".to_owned());
    }
    if let Some(configuration) = metadata["configuration"].as_object()
        && let Some(name) = configuration
            .keys()
            .find(|name| name.starts_with("delta.constraints."))
    {
        return Err(format!("it has the constraint {name}"));
    }
    let theirs: Value = metadata["schemaString"]
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or("its schema cannot be read")?;
    let fields = |schema: &Value| schema["fields"].as_array().cloned().unwrap_or_default();
    let theirs = fields(&theirs);
    for column in &theirs {
        let name = column["name"].as_str().unwrap_or_default();
        if column["nullable"] != json!(true) {
            return Err(format!("its column \"{name}\" is NOT NULL"));
        }
        let special = [
            "delta.invariants",
            "delta.generationExpression",
            "delta.identity.start",
        ];
        if let Some(special) = special
            .iter()
            .find(|special| column["metadata"].get(**special).is_some())
        {
            return Err(format!("its column \"{name}\" has {special}"));
        }
    }
    for column in &fields(ours) {
        let name = column["name"].as_str().unwrap_or_default();
        let there = theirs.iter().find(|there| there["name"] == column["name"]);
        let there = there.ok_or_else(|| format!("it has no column \"{name}\""))?;
        if there["type"] != column["type"] {
            let shown = |of: &Value| of.as_str().map_or_else(|| of.to_string(), str::to_owned);
            return Err(format!(
                "its column \"{name}\" is of type {}, and that of the sink is {}",
                shown(&there["type"]),
                shown(&column["type"])
            ));
        }
    }
    Ok(())
}

/// Whether all that a writer has to know is known here.
fn understood(protocol: &Value) -> Result<(), String> {
    let version = |name: &str| protocol[name].as_u64().unwrap_or_default();
    let versions = (version("minReaderVersion"), version("minWriterVersion"));
    match versions {
        (1, 1..=2) => Ok(()),
        (1 | 3, 7) => {
            let lists = ["readerFeatures", "writerFeatures"].map(|name| protocol[name].as_array());
            let mut features = lists.into_iter().flatten().flatten().filter_map(Value::as_str);
            match features.find(|feature| !FEATURES.contains(feature)) {
                Some(feature) => Err(format!(
                    "it has the feature \"{feature}\", which is not supported"
                )),
                None => Ok(()),
            }
        }
        (reader, writer) => Err(format!(
            "it needs version {reader} of the protocol for readers and {writer} for writers; 1 with 1 or 2, and 3 with 7, are supported"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, of: &str) -> Value {
        json!({"name": name, "type": of, "nullable": true, "metadata": {}})
    }

    fn schema(columns: &[Value]) -> Value {
        json!({"type": "struct", "fields": columns})
    }

    #[test]
    fn what_was_made_here_can_be_written() {
        for of in ["long", "timestamp_ntz"] {
            let ours = schema(&[column("a", of)]);
            let [protocol, metadata] = creation("millrace-1", &ours, 0);
            assert_eq!(fits(&protocol["protocol"], &metadata["metaData"], &ours), Ok(()));
            assert_eq!(metadata["metaData"]["id"], json!("1"));
        }
    }

    #[test]
    fn what_is_not_understood_is_not_written() {
        let ours = schema(&[column("a", "long")]);
        let protocol = || json!({"minReaderVersion": 1, "minWriterVersion": 2});
        let metadata = |theirs: &Value, name: &str, value: Value| {
            let mut metadata =
                json!({"schemaString": theirs.to_string(), "partitionColumns": [], "configuration": {}});
            metadata[name] = value;
            metadata
        };
        let plain = |theirs: &Value| metadata(theirs, "name", json!("t"));
        let with = |more: Value| {
            let mut wrong = column("b", "string");
            for (name, value) in more.as_object().unwrap() {
                wrong[name] = value.clone();
            }
            schema(&[column("a", "long"), wrong])
        };
        assert_eq!(fits(&protocol(), &plain(&with(json!({}))), &ours), Ok(()));
        let vectors = json!({
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        });
        let constraint = json!({"delta.constraints.c": "a > 1"});
        let generated = json!({"metadata": {"delta.generationExpression": "a"}});
        for (protocol, metadata, expected) in [
            (
                json!({"minReaderVersion": 2, "minWriterVersion": 5}),
                plain(&ours),
                "version 2",
            ),
            (json!({}), plain(&ours), "version"),
            (vectors, plain(&ours), "deletionVectors"),
            (
                protocol(),
                metadata(&ours, "partitionColumns", json!(["a"])),
                "partitioned",
            ),
            (
                protocol(),
                metadata(&ours, "configuration", constraint),
                "constraint",
            ),
            (
                protocol(),
                metadata(&ours, "schemaString", json!("{")),
                "cannot be read",
            ),
            (
                protocol(),
                plain(&schema(&[column("b", "long")])),
                "no column \"a\"",
            ),
            (
                protocol(),
                plain(&schema(&[column("a", "string")])),
                "is of type string",
            ),
            (protocol(), plain(&with(json!({"nullable": false}))), "NOT NULL"),
            (protocol(), plain(&with(generated)), "generationExpression"),
        ] {
            let why = fits(&protocol, &metadata, &ours).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
