//! What streams are fed by that others keep: one task a stream, which goes on from where the log says.
//!
//! ```text
//!  reader --records--> decode --rows--> one write: rows, bad records, and the position as its note --> the log, the views
//!     ^                                                        |
//!     `---- from the newest note, after a restart -------------'
//! ```
//! A record is in the stream if and only if the position is behind it, so each is there once, whatever crash comes in between, and no
//! checkpoint is needed. When retention removes the newest note, the catalog has the position. A write waits for room as any other
//! does; meanwhile nothing is fetched.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, SchemaRef};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Object, Relation};
use millrace_connectors::connect;
use millrace_connectors::decode::{Given, RecordDecoder};
use millrace_connectors::source::{Fetched, Position, Reader, Record, SourceError};
use millrace_engine::{Runtime, RuntimeError, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_postgres::types::timestamptz;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, LogNote, ObjectId, StorageError};
use parking_lot::Mutex;
use rand::Rng;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::database::rows::RowBuilder;

/// How long is waited after a failure: twice as long each time, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How often it is asked how far a source is behind.
const LAG_EVERY: Duration = Duration::from_millis(500);
/// How much of a bad record is kept, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// How long a look at a source may take when a stream is made.
const PROBE: Duration = Duration::from_secs(15);

/// The columns of a stream of bad records, in their order: when each came, where it stands, what it is, and why it is no row.
pub fn error_columns() -> [(&'static str, DataType); 8] {
    [
        ("at", timestamptz()),
        ("partition", DataType::Int32),
        ("offset", DataType::Int64),
        ("key", DataType::Binary),
        ("value", DataType::Binary),
        ("bytes", DataType::Int64),
        ("code", DataType::Utf8),
        ("reason", DataType::Utf8),
    ]
}

/// The fact that holds the position of a source.
pub fn fact(stream: ObjectId) -> String {
    format!("source/{}", stream.0)
}

/// What is written down with rows that were read.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    source: ObjectId,
    position: Position,
}

/// What a source is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// It connects.
    #[default]
    Starting,
    Running,
    /// Something failed, and is tried again.
    Retrying,
    /// Somebody must do something.
    Failed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Retrying => "retrying",
            State::Failed => "failed",
        }
    }
}

/// How far a source is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub state: State,
    /// Records that became rows since the start, and those that did not.
    pub rows: u64,
    pub bad: u64,
    pub position: Position,
    /// Records that are there and were not read.
    pub lag_records: Option<u64>,
    /// The time of the newest record that was read, in milliseconds since 1970-01-01 00:00 UTC.
    pub newest_ms: Option<i64>,
    pub error: Option<String>,
}

/// The tasks, by stream, and what the logs said of their positions.
#[derive(Default)]
pub struct Sources {
    tasks: Mutex<BTreeMap<ObjectId, Task>>,
    found: Mutex<HashMap<ObjectId, Position>>,
}

struct Task {
    progress: Arc<Mutex<Progress>>,
    task: JoinHandle<()>,
}

impl Sources {
    /// All of them.
    pub fn list(&self) -> Vec<(ObjectId, Progress)> {
        let tasks = self.tasks.lock();
        let info = |(stream, task): (&ObjectId, &Task)| (*stream, task.progress.lock().clone());
        tasks.iter().map(info).collect()
    }

    /// Takes over what the logs know: the notes, the oldest first.
    pub(super) fn restore(&self, notes: &[LogNote]) {
        let mut found = self.found.lock();
        for note in notes {
            if let Ok(note) = serde_json::from_slice::<Note>(&note.note) {
                found.entry(note.source).or_default().advance(note.position);
            }
        }
    }

    /// Says where the source of a stream begins that is about to be made.
    pub fn begin(&self, stream: ObjectId, position: Position) {
        self.found.lock().insert(stream, position);
    }

    /// The position of a source that is running.
    pub(super) fn position(&self, stream: ObjectId) -> Option<Position> {
        let tasks = self.tasks.lock();
        tasks
            .get(&stream)
            .map(|task| task.progress.lock().position.clone())
    }

    /// Stops one, whose stream is dropped.
    pub async fn stop(&self, stream: ObjectId) {
        self.found.lock().remove(&stream);
        let task = self.tasks.lock().remove(&stream);
        if let Some(task) = task {
            task.task.abort();
            // What was being written is seen through by the runtime.
            let _ = task.task.await;
        }
    }

    /// Stops all of them.
    pub async fn stop_all(&self) {
        let streams: Vec<ObjectId> = self.tasks.lock().keys().copied().collect();
        for stream in streams {
            self.stop(stream).await;
        }
    }
}

/// What makes rows of a relation out of records.
struct Rows {
    decoder: RecordDecoder,
    builder: RowBuilder,
}

impl Rows {
    fn new(
        db: &Database,
        scope: &Scope,
        relation: &Relation,
        connector: &ConnectorDef,
    ) -> SqlResult<Option<Rows>> {
        let Some((format, columns)) = connector.records(&relation.columns)? else {
            return Ok(None);
        };
        let field = |position: &usize| Arc::clone(&relation.columns[*position].field);
        let members = columns
            .members
            .iter()
            .map(|(position, member)| (field(position), *member));
        let given: Vec<usize> = (columns.values.iter().copied())
            .chain(columns.members.iter().map(|(position, _)| *position))
            .collect();
        Ok(Some(Rows {
            decoder: RecordDecoder::new(
                format,
                columns.values.iter().map(field).collect(),
                members.collect(),
            ),
            builder: RowBuilder::new(db, scope, relation, &given)?,
        }))
    }

    fn build(&self, given: &Given, rows: usize) -> SqlResult<RecordBatch> {
        self.builder.build(given, rows).map_err(|failure| *failure.error)
    }
}

impl Database {
    /// Where the source of a stream begins, if it has one that is read.
    ///
    /// # Errors
    /// It cannot be reached, or its options do not fit the stream's columns.
    pub async fn probe_source(&self, scope: &Scope, relation: &Relation) -> SqlResult<Option<Position>> {
        let Some(connector) = &relation.connector else {
            return Ok(None);
        };
        if Rows::new(self, scope, relation, connector)?.is_none() {
            return Ok(None);
        }
        let beginning = Position::default();
        let opening = connect::open(connector, &beginning, relation.event_time.is_some());
        let opened = tokio::time::timeout(PROBE, opening).await.unwrap_or_else(|_| {
            Err(SourceError::passing(format!(
                "the source did not answer within {} seconds",
                PROBE.as_secs()
            )))
        });
        let reader = opened.map_err(SourceError::into_sql)?;
        let position = reader.position();
        reader.close().await;
        Ok(Some(position))
    }

    /// Starts to read what a stream is fed by, if it is.
    ///
    /// # Errors
    /// The options are not ones.
    pub(crate) fn start_source(self: &Arc<Self>, object: &Object) -> SqlResult<()> {
        let Some(relation) = object.relation() else {
            return Ok(());
        };
        let Some(connector) = &relation.connector else {
            return Ok(());
        };
        let scope = self.scope_of(object);
        let Some(rows) = Rows::new(self, &scope, relation, connector)? else {
            return Ok(());
        };
        let found = self.sources.found.lock().remove(&object.id).unwrap_or_default();
        let position = match self.store().catalog().fact(&fact(object.id))? {
            Some(bytes) => {
                let mut position: Position = serde_json::from_slice(&bytes).unwrap_or_default();
                position.advance(found);
                position
            }
            // Where it begins, of every split: what "latest" means is settled once.
            None => {
                self.put_position(object.id, &found)?;
                found
            }
        };
        let stops_on_error = connector.kafka()?.is_some_and(|kafka| kafka.stops_on_error);
        let errors = match relation.errors {
            Some(id) => self.catalog().object(id).and_then(|errors| {
                let relation = errors.relation()?;
                Some((relation.info.id, Arc::clone(relation.schema())))
            }),
            None => None,
        };
        let progress = Arc::new(Mutex::new(Progress {
            position,
            ..Progress::default()
        }));
        let reading = Reading {
            runtime: self.runtime().clone(),
            id: object.id,
            name: object.described(),
            stream: relation.info.id,
            errors,
            stops_on_error,
            is_timed: relation.event_time.is_some(),
            connector: connector.clone(),
            rows: Arc::new(rows),
            progress: Arc::clone(&progress),
        };
        let task = tokio::spawn(async move { reading.run().await });
        self.sources
            .tasks
            .lock()
            .insert(object.id, Task { progress, task });
        Ok(())
    }

    /// Has the catalog keep the positions of sources before notes are removed from the logs of these relations.
    pub(super) fn keep_position(&self, relation: u64) -> Result<(), StorageError> {
        let catalog = self.catalog();
        let of = catalog.objects().find(|object| {
            object.relation().is_some_and(|stream| {
                let late = stream.event_time.as_ref().and_then(|time| time.late_stream());
                stream.connector.is_some()
                    && [Some(object.id), stream.errors, late].contains(&Some(ObjectId(relation)))
            })
        });
        let Some((stream, position)) =
            of.and_then(|object| Some((object.id, self.sources.position(object.id)?)))
        else {
            return Ok(());
        };
        self.put_position(stream, &position)
    }

    fn put_position(&self, stream: ObjectId, position: &Position) -> Result<(), StorageError> {
        let bytes = serde_json::to_vec(position).unwrap_or_default();
        self.store().catalog().put_fact(&fact(stream), &bytes)
    }
}

/// One source at work.
struct Reading {
    runtime: Runtime,
    id: ObjectId,
    name: String,
    stream: RelationId,
    /// The stream of bad records, and its columns.
    errors: Option<(RelationId, SchemaRef)>,
    stops_on_error: bool,
    /// Whether the stream has a watermark.
    is_timed: bool,
    connector: ConnectorDef,
    rows: Arc<Rows>,
    progress: Arc<Mutex<Progress>>,
}

impl Reading {
    async fn run(&self) {
        let mut wait = RETRY.0;
        loop {
            let began = Instant::now();
            let error = match self.read_on().await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            // What went well for a while begins anew.
            if began.elapsed() > RETRY.1 {
                wait = RETRY.0;
            }
            let shown = match &error.hint {
                Some(hint) => format!("{}. {hint}", error.message),
                None => error.message.clone(),
            };
            {
                let mut progress = self.progress.lock();
                progress.state = match error.is_final {
                    true => State::Failed,
                    false => State::Retrying,
                };
                progress.error = Some(shown.clone());
            }
            if error.is_final {
                tracing::error!(stream = self.name, error = shown, "a source failed");
                return;
            }
            tracing::warn!(stream = self.name, error = shown, "a source is tried again");
            let jitter = rand::rng().random_range(0.5..1.0);
            tokio::time::sleep(wait.mul_f64(jitter)).await;
            wait = (wait * 2).min(RETRY.1);
        }
    }

    async fn read_on(&self) -> Result<std::convert::Infallible, SourceError> {
        let mut position = self.progress.lock().position.clone();
        let mut reader = connect::open(&self.connector, &position, self.is_timed).await?;
        {
            let mut progress = self.progress.lock();
            progress.state = State::Running;
            progress.error = None;
        }
        let outcome = self.follow(reader.as_mut(), &mut position).await;
        reader.close().await;
        outcome
    }

    async fn follow(
        &self,
        reader: &mut dyn Reader,
        position: &mut Position,
    ) -> Result<std::convert::Infallible, SourceError> {
        let mut before: Option<WriteToken> = None;
        let mut asked: Option<Instant> = None;
        loop {
            let fetched = reader.next().await?;
            if asked.is_none_or(|asked| asked.elapsed() > LAG_EVERY) || fetched.records.is_empty() {
                self.progress.lock().lag_records = reader.lag().await.records;
                asked = Some(Instant::now());
            }
            if fetched.records.is_empty() {
                continue;
            }
            let written = self.write(fetched, position).await?;
            // Two writes are under way: one is written while the other goes through the views.
            if let Some(before) = before.replace(written) {
                self.runtime.wait_for(&before).await.map_err(of_runtime)?;
            }
        }
    }

    /// Writes what was read, with how far that goes.
    async fn write(&self, fetched: Fetched, position: &mut Position) -> Result<WriteToken, SourceError> {
        let (rows, errors) = (Arc::clone(&self.rows), self.errors.clone());
        let stops = self.stops_on_error;
        let Fetched {
            records,
            position: moved,
        } = fetched;
        let newest = records.iter().filter_map(|record| record.timestamp_ms).max();
        let now = self.runtime.now();
        let work = move || {
            let build = |given: &Given, count: usize| rows.build(given, count);
            let (good, bad) = rows.decoder.rows(&records, &build);
            if let (true, Some(first)) = (stops, bad.first()) {
                let record = &records[first.at];
                return Err(SourceError::lasting(
                    format!(
                        "record {} of partition {} is no row: {}",
                        record.offset, record.split, first.error.message
                    ),
                    "on_error = 'skip' keeps such records in a stream of their own, and goes on.",
                ));
            }
            let bad: Vec<(&Record, &str, String)> = (bad.iter())
                .map(|bad| (&records[bad.at], bad.error.code.code(), reason(&bad.error)))
                .collect();
            let count = bad.len() as u64;
            let errors = match (errors, bad.is_empty()) {
                (Some((id, schema)), false) => Some((id, bad_rows(&schema, &bad, now)?)),
                _ => None,
            };
            Ok((good, errors, count))
        };
        let computed = self
            .runtime
            .compute(QueryClass::Stream, work)
            .map_err(of_runtime)?;
        let (good, errors, bad) = computed.await.map_err(of_runtime)??;
        let count: u64 = good.iter().map(|batch| batch.num_rows() as u64).sum();
        let mut changes: Vec<(RelationId, ChangeBatch)> = (good.into_iter())
            .map(|rows| (self.stream, ChangeBatch::insertions(rows)))
            .collect();
        changes.extend(errors.map(|(id, rows)| (id, ChangeBatch::insertions(rows))));
        let note = Note {
            source: self.id,
            position: moved.clone(),
        };
        let note = serde_json::to_vec(&note).map_err(|error| SourceError::passing(error.to_string()))?;
        let written = self
            .runtime
            .append_unless_ended(changes, None, &|_| note.clone(), None, &|| true)
            .await
            .map_err(of_runtime)?;
        position.advance(moved);
        let mut progress = self.progress.lock();
        progress.rows += count;
        progress.bad += bad;
        progress.newest_ms = newest.or(progress.newest_ms);
        progress.position.clone_from(position);
        Ok(written)
    }
}

fn of_runtime(error: RuntimeError) -> SourceError {
    SourceError::passing(from_internal::runtime(error).message)
}

fn reason(error: &millrace_postgres::error::SqlError) -> String {
    match &error.detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    }
}

/// Bad records as rows of their stream.
fn bad_rows(
    schema: &SchemaRef,
    bad: &[(&Record, &str, String)],
    now: i64,
) -> Result<RecordBatch, SourceError> {
    let kept = |bytes: &Option<bytes::Bytes>| {
        let bytes = bytes.as_ref()?;
        Some(bytes.slice(..bytes.len().min(KEPT_BYTES_MAX)))
    };
    let bytes = |record: &Record| record.value.as_ref().map(|value| value.len() as i64);
    let records = || bad.iter().map(|(record, ..)| *record);
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(TimestampMicrosecondArray::from_value(now, bad.len()).with_timezone("UTC")),
        Arc::new(Int32Array::from_iter_values(records().map(|record| record.split))),
        Arc::new(Int64Array::from_iter_values(
            records().map(|record| record.offset),
        )),
        Arc::new(BinaryArray::from_iter(records().map(|record| kept(&record.key)))),
        Arc::new(BinaryArray::from_iter(
            records().map(|record| kept(&record.value)),
        )),
        Arc::new(Int64Array::from_iter(records().map(bytes))),
        Arc::new(StringArray::from_iter_values(
            bad.iter().map(|(_, code, _)| *code),
        )),
        Arc::new(StringArray::from_iter_values(
            bad.iter().map(|(.., reason)| reason),
        )),
    ];
    let cast = columns
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| arrow::compute::cast(column, field.data_type()));
    let batch = cast
        .collect::<Result<Vec<_>, _>>()
        .and_then(|columns| RecordBatch::try_new(Arc::clone(schema), columns));
    batch.map_err(|error| SourceError::passing(format!("keeping bad records: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(source: u64, splits: &[(i32, i64)]) -> LogNote {
        let note = Note {
            source: ObjectId(source),
            position: Position {
                of: Some("t".to_owned()),
                splits: splits.iter().copied().collect(),
            },
        };
        LogNote {
            written_at_ms: 0,
            write_id: 0,
            note: serde_json::to_vec(&note).unwrap(),
        }
    }

    #[test]
    fn a_position_is_put_together_from_notes() {
        let sources = Sources::default();
        let other = LogNote {
            note: br#"{"definitions": 3}"#.to_vec(),
            ..note(1, &[])
        };
        sources.restore(&[
            note(1, &[(0, 5)]),
            note(2, &[(0, 50)]),
            other,
            note(1, &[(1, 7)]),
            note(1, &[(0, 9)]),
        ]);
        let found = sources.found.lock();
        assert_eq!(found[&ObjectId(1)].splits, [(0, 9), (1, 7)].into());
        assert_eq!(found[&ObjectId(2)].splits, [(0, 50)].into());
        assert_eq!(found.len(), 2);
    }
}
