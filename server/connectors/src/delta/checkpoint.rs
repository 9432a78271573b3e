//! A checkpoint of a table's log: a Parquet file with an action a row, of which those are left that still count.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::json::{LineDelimitedWriter, ReaderBuilder};
use bytes::Bytes;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::arrow::{ArrowWriter, ProjectionMask};
use serde_json::Value;

use super::log;

/// How long it is remembered that a file was removed, so that whoever deletes files nobody needs finds it.
const REMOVED_MS: i64 = 7 * 86_400_000;

/// The rows of one checkpoint's file, of these kinds.
///
/// # Errors
/// It is not a file of Parquet.
pub(super) fn actions(content: Bytes, kinds: &[&str]) -> Result<Vec<Value>, String> {
    let mut all = vec![];
    each(content, Some(kinds), |action| {
        all.push(action);
        Ok(())
    })?;
    Ok(all)
}

/// Reads a checkpoint's file batch by batch.
fn each(
    content: Bytes,
    kinds: Option<&[&str]>,
    mut take: impl FnMut(Value) -> Result<(), String>,
) -> Result<(), String> {
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(content).map_err(|error| error.to_string())?;
    if let Some(kinds) = kinds {
        let schema = builder.parquet_schema();
        let fields = schema.root_schema().get_fields().iter().enumerate();
        let wanted = fields.filter(|(_, field)| kinds.contains(&field.name()));
        let mask = ProjectionMask::roots(schema, wanted.map(|(at, _)| at).collect::<Vec<_>>());
        builder = builder.with_projection(mask);
    }
    for batch in builder.build().map_err(|error| error.to_string())? {
        let batch = batch.map_err(|error| error.to_string())?;
        let mut lines = vec![];
        let mut writer = LineDelimitedWriter::new(&mut lines);
        writer.write(&batch).map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        log::actions(&lines)?.into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

/// What the versions behind a checkpoint say, the newest word of each.
#[derive(Default)]
struct Newer {
    protocol: Option<Value>,
    metadata: Option<Value>,
    transactions: BTreeMap<String, Value>,
    /// By path: whether it was added or removed last.
    files: BTreeMap<String, Value>,
}

impl Newer {
    fn take(&mut self, action: Value) -> Result<(), String> {
        let Value::Object(members) = action else {
            return Err("the log has an entry that is not an action".to_owned());
        };
        for (kind, value) in members {
            let text = |name: &str| value[name].as_str().map(str::to_owned).unwrap_or_default();
            match kind.as_str() {
                "protocol" => self.protocol = Some(Value::Object([(kind, value)].into_iter().collect())),
                "metaData" => self.metadata = Some(Value::Object([(kind, value)].into_iter().collect())),
                "txn" => {
                    let app = text("appId");
                    self.transactions
                        .insert(app, Value::Object([(kind, value)].into_iter().collect()));
                }
                "add" | "remove" => {
                    let path = text("path");
                    self.files
                        .insert(path, Value::Object([(kind, value)].into_iter().collect()));
                }
                // They are about their version alone.
                "commitInfo" | "cdc" => {}
                other => return Err(format!("the log has actions of kind \"{other}\"")),
            }
        }
        Ok(())
    }
}

/// The file of a checkpoint, of the one before and the versions since, and how many rows it has.
///
/// # Errors
/// There is something that is not understood.
pub(super) fn make(old: Vec<Bytes>, commits: &[Bytes], now_ms: i64) -> Result<(Vec<u8>, usize), String> {
    let mut newer = Newer::default();
    for commit in commits {
        log::actions(commit)?
            .into_iter()
            .try_for_each(|action| newer.take(action))?;
    }
    let mut out = Out::new()?;
    let is_remembered = |action: &Value| {
        let removed = &action["remove"];
        removed.is_null() || removed["deletionTimestamp"].as_i64().unwrap_or(now_ms) + REMOVED_MS > now_ms
    };
    for part in old {
        each(part, None, |action| {
            let has = |kind: &str| action.get(kind).is_some();
            let known = ["protocol", "metaData", "txn", "add", "remove"];
            if let Some(members) = action.as_object()
                && let Some(other) = members.keys().find(|kind| !known.contains(&kind.as_str()))
            {
                return Err(format!("the checkpoint has actions of kind \"{other}\""));
            }
            let path = |kind: &str| action[kind]["path"].as_str().unwrap_or_default();
            let is_old = has("protocol") && newer.protocol.is_some()
                || has("metaData") && newer.metadata.is_some()
                || has("txn")
                    && newer
                        .transactions
                        .contains_key(action["txn"]["appId"].as_str().unwrap_or_default())
                || has("add") && newer.files.contains_key(path("add"))
                || has("remove") && newer.files.contains_key(path("remove"));
            match is_old || !is_remembered(&action) {
                true => Ok(()),
                false => out.put(action),
            }
        })?;
    }
    let single = newer.protocol.into_iter().chain(newer.metadata);
    let files = newer.files.into_values().filter(is_remembered);
    for action in single.chain(newer.transactions.into_values()).chain(files) {
        out.put(action)?;
    }
    out.finish()
}

/// A file that is being written.
struct Out {
    schema: SchemaRef,
    writer: ArrowWriter<Vec<u8>>,
    waiting: Vec<Value>,
    rows: usize,
}

/// Rows that are written together.
const ROWS: usize = 1_024;

impl Out {
    fn new() -> Result<Out, String> {
        let schema = schema();
        let writer = ArrowWriter::try_new(vec![], Arc::clone(&schema), None);
        Ok(Out {
            schema,
            writer: writer.map_err(|error| error.to_string())?,
            waiting: vec![],
            rows: 0,
        })
    }

    fn put(&mut self, action: Value) -> Result<(), String> {
        self.waiting.push(action);
        self.rows += 1;
        match self.waiting.len() < ROWS {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> Result<(), String> {
        let rows = std::mem::take(&mut self.waiting);
        let batch = batch(&self.schema, &rows)?;
        self.writer.write(&batch).map_err(|error| error.to_string())
    }

    fn finish(mut self) -> Result<(Vec<u8>, usize), String> {
        self.write()?;
        let content = self.writer.into_inner().map_err(|error| error.to_string())?;
        Ok((content, self.rows))
    }
}

fn batch(schema: &SchemaRef, rows: &[Value]) -> Result<RecordBatch, String> {
    let mut decoder = ReaderBuilder::new(Arc::clone(schema))
        .with_batch_size(rows.len().max(1))
        .build_decoder()
        .map_err(|error| error.to_string())?;
    decoder.serialize(rows).map_err(|error| error.to_string())?;
    let batch = decoder.flush().map_err(|error| error.to_string())?;
    Ok(batch.unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema))))
}

/// The columns of a checkpoint: one for each kind of action.
fn schema() -> SchemaRef {
    let field = |name: &str, of: DataType| Field::new(name, of, true);
    let text = |name: &str| field(name, DataType::Utf8);
    let long = |name: &str| field(name, DataType::Int64);
    let int = |name: &str| field(name, DataType::Int32);
    let yes = |name: &str| field(name, DataType::Boolean);
    let record = |name: &str, fields: Vec<Field>| field(name, DataType::Struct(Fields::from(fields)));
    let list = |name: &str| field(name, DataType::List(Arc::new(field("element", DataType::Utf8))));
    let map = |name: &str| {
        let entry = Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            field("value", DataType::Utf8),
        ]);
        let entries = Field::new("key_value", DataType::Struct(entry), false);
        field(name, DataType::Map(Arc::new(entries), false))
    };
    Arc::new(Schema::new(vec![
        record("txn", vec![text("appId"), long("version"), long("lastUpdated")]),
        record(
            "add",
            vec![
                text("path"),
                map("partitionValues"),
                long("size"),
                long("modificationTime"),
                yes("dataChange"),
                map("tags"),
                text("stats"),
            ],
        ),
        record(
            "remove",
            vec![
                text("path"),
                long("deletionTimestamp"),
                yes("dataChange"),
                yes("extendedFileMetadata"),
                map("partitionValues"),
                long("size"),
            ],
        ),
        record(
            "metaData",
            vec![
                text("id"),
                text("name"),
                text("description"),
                record("format", vec![text("provider"), map("options")]),
                text("schemaString"),
                list("partitionColumns"),
                long("createdTime"),
                map("configuration"),
            ],
        ),
        record(
            "protocol",
            vec![
                int("minReaderVersion"),
                int("minWriterVersion"),
                list("readerFeatures"),
                list("writerFeatures"),
            ],
        ),
    ]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    const KINDS: [&str; 5] = ["protocol", "metaData", "txn", "add", "remove"];

    fn commit(actions: &[Value]) -> Bytes {
        let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
        lines.into()
    }

    fn add(path: &str) -> Value {
        json!({"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": true, "stats": "{}"}})
    }

    fn remove(path: &str, at: i64) -> Value {
        json!({"remove": {"path": path, "deletionTimestamp": at, "dataChange": true}})
    }

    fn read(content: &[u8]) -> BTreeSet<String> {
        let found = actions(Bytes::copy_from_slice(content), &KINDS).unwrap();
        (found.iter())
            .map(|action| {
                let (kind, value) = action.as_object().unwrap().iter().next().unwrap();
                let name = ["path", "appId", "id"]
                    .into_iter()
                    .find_map(|name| value[name].as_str());
                format!("{kind} {} {}", name.unwrap_or_default(), value["version"])
            })
            .collect()
    }

    #[test]
    fn what_counts_is_left() {
        let metadata = json!({"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": "s",
            "partitionColumns": [], "configuration": {"delta.a": "b"}, "createdTime": 1}});
        let features = json!(["timestampNtz"]);
        let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}});
        let transaction =
            |app: &str, version: i64| json!({"txn": {"appId": app, "version": version, "lastUpdated": 5}});
        let first = [
            commit(&[
                json!({"commitInfo": {"operation": "WRITE"}}),
                protocol.clone(),
                metadata.clone(),
                transaction("a", 0),
                add("f0"),
            ]),
            commit(&[transaction("a", 1), transaction("b", 9), add("f1"), add("f2")]),
            commit(&[remove("f1", 1_000), remove("f9", 1_000)]),
        ];
        let (old, rows) = make(vec![], &first, 2_000).unwrap();
        assert_eq!(rows, 8);
        let expected = [
            "protocol  null",
            "metaData m null",
            "txn a 1",
            "txn b 9",
            "add f0 null",
            "add f2 null",
            "remove f1 null",
            "remove f9 null",
        ];
        assert_eq!(read(&old), expected.map(str::to_owned).into());
        let all = actions(old.clone().into(), &KINDS).unwrap();
        let of = |kind: &str| all.iter().find_map(|action| action.get(kind)).unwrap().clone();
        assert_eq!(of("protocol"), protocol["protocol"]);
        assert_eq!(of("metaData")["configuration"], json!({"delta.a": "b"}));
        assert_eq!(
            actions(old.clone().into(), &["txn"])
                .unwrap()
                .iter()
                .filter(|action| action.get("txn").is_some())
                .count(),
            2
        );
        // What was removed long ago is forgotten, and what comes again is there.
        let second = [commit(&[
            transaction("a", 2),
            remove("f0", REMOVED_MS),
            add("f9"),
        ])];
        let (new, _) = make(vec![old.clone().into()], &second, 1_000 + REMOVED_MS).unwrap();
        let expected = [
            "protocol  null",
            "metaData m null",
            "txn a 2",
            "txn b 9",
            "add f2 null",
            "add f9 null",
            "remove f0 null",
        ];
        assert_eq!(read(&new), expected.map(str::to_owned).into());
        // What is not understood is not left out.
        let domain = [commit(&[json!({"domainMetadata": {"domain": "d"}})])];
        assert!(
            make(vec![old.into()], &domain, 0)
                .unwrap_err()
                .contains("domainMetadata")
        );
    }

    #[test]
    fn many_files_are_all_there() {
        let adds: Vec<Value> = (0..5_000).map(|at| add(&format!("f{at}"))).collect();
        let (content, rows) = make(vec![], &[commit(&adds)], 0).unwrap();
        assert_eq!((rows, read(&content).len()), (5_000, 5_000));
    }
}
