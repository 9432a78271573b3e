//! What streams with a connector are filled by: one task each, which writes the rows from where the log ends.
//!
//! ```text
//!  log's end --> position --> rows --> append (as any write: judged, logged, fed) --> the write before last is visible --> ..
//! ```
//! The position is that of the log, so that it is part of every cut and of nothing else: after a restart, a crash too, exactly
//! those rows come that would have come. Where rows can be late the log does not tell how many were made; they are made
//! again from the first, and judged, until as many have passed as there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::FieldRef;
use futures::future::join_all;
use millrace_catalog::connector::Source;
use millrace_catalog::scope::Scope;
use millrace_catalog::settings::Settings;
use millrace_catalog::{DEFAULT_SCHEMA, Object};
use millrace_engine::{EventTime, EventTimeSpec, Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ChangeBatch, ObjectId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::database::rows::RowBuilder;

/// The tasks, by stream.
#[derive(Default)]
pub struct Generators(Mutex<BTreeMap<ObjectId, Feed>>);

struct Feed {
    rows_max: Option<u64>,
    rate: Option<u64>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

/// How far a generator is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Rows that were made and written, late ones too.
    pub position: u64,
    /// When the next rows are due, in microseconds, if there is a rate.
    due: Option<i64>,
    /// Whether there are no more rows to come, or none can come.
    pub ended: bool,
    pub failure: Option<String>,
}

/// A generator as `mr_catalog.generators` has it.
#[derive(Debug, Clone)]
pub struct GeneratorInfo {
    pub stream: ObjectId,
    pub rows_max: Option<u64>,
    pub rate: Option<u64>,
    pub progress: Progress,
}

impl Generators {
    /// All of them.
    pub fn list(&self) -> Vec<GeneratorInfo> {
        let feeds = self.0.lock();
        let info = |(stream, feed): (&ObjectId, &Feed)| GeneratorInfo {
            stream: *stream,
            rows_max: feed.rows_max,
            rate: feed.rate,
            progress: feed.progress.borrow().clone(),
        };
        feeds.iter().map(info).collect()
    }

    /// Waits for those that have an end and no rate.
    pub async fn ended(&self) {
        self.wait(|feed| feed.rows_max.is_some() && feed.rate.is_none(), |_| false)
            .await;
    }

    /// Waits until all that is due by now is written.
    pub async fn follow(&self, now: i64) {
        let is_ahead = move |progress: &Progress| progress.due.is_some_and(|due| due > now);
        self.wait(|feed| feed.rate.is_some(), is_ahead).await;
    }

    async fn wait(&self, which: impl Fn(&Feed) -> bool, is_enough: impl Fn(&Progress) -> bool) {
        let waits: Vec<watch::Receiver<Progress>> = {
            let feeds = self.0.lock();
            feeds
                .values()
                .filter(|feed| which(feed))
                .map(|feed| feed.progress.clone())
                .collect()
        };
        let is_enough = &is_enough;
        join_all(waits.into_iter().map(|mut progress| async move {
            // One that is stopped meanwhile is not waited for.
            let _ = progress
                .wait_for(|progress| progress.ended || is_enough(progress))
                .await;
        }))
        .await;
    }

    /// Stops one, whose stream is dropped.
    pub async fn stop(&self, stream: ObjectId) {
        let feed = self.0.lock().remove(&stream);
        if let Some(feed) = feed {
            feed.task.abort();
            // What was being written is seen through by the runtime.
            let _ = feed.task.await;
        }
    }

    /// Stops all of them.
    pub async fn stop_all(&self) {
        let streams: Vec<ObjectId> = self.0.lock().keys().copied().collect();
        for stream in streams {
            self.stop(stream).await;
        }
    }
}

impl Database {
    /// In which the rows of an object are made that no session writes.
    pub(super) fn scope_of(&self, object: &Object) -> Scope {
        Scope {
            catalog: self.catalog(),
            database: object.database.clone(),
            search_path: vec![object.schema.clone(), DEFAULT_SCHEMA.to_owned()],
            zone: None,
            session: None,
            settings: Settings::default(),
        }
    }

    /// Starts to fill a stream, if it has a connector.
    ///
    /// # Errors
    /// The connector's options are not ones.
    pub(crate) fn start_generator(&self, object: &Object) -> SqlResult<()> {
        let Some(relation) = object.relation() else {
            return Ok(());
        };
        let Some(connector) = &relation.connector else {
            return Ok(());
        };
        let Some(source) = connector.source(&relation.columns)? else {
            return Ok(());
        };
        let scope = self.scope_of(object);
        let rows = Rows {
            builder: RowBuilder::new(self, &scope, relation, &source.given)?,
            source,
        };
        let (tell, progress) = watch::channel(Progress::default());
        let logs = self.store().logs();
        let event_time = self.event_time(relation)?;
        let late = event_time.as_ref().and_then(|event_time| event_time.late);
        let feed = Filling {
            runtime: self.runtime().clone(),
            stream: relation.info.id,
            head: logs.head(relation.info.id.0),
            late_head: late.map_or(0, |late| logs.head(late.0)),
            event_time,
            begun: self.runtime().now(),
            rows: Arc::new(rows),
            progress: tell,
        };
        let (rows_max, rate) = (feed.rows.source.generator.rows_max(), feed.rows.source.rate);
        let name = object.described();
        let task = tokio::spawn(async move {
            let outcome = feed.run().await;
            if let Err(error) = &outcome {
                tracing::error!(
                    stream = name,
                    error = error.message,
                    "the generator of a stream stopped"
                );
            }
            feed.progress.send_modify(|progress| {
                progress.ended = true;
                progress.failure = outcome.err().map(|error| error.message);
            });
        });
        let feed = Feed {
            rows_max,
            rate,
            progress,
            task,
        };
        self.generators.0.lock().insert(object.id, feed);
        Ok(())
    }

    /// Makes the first rows of a stream with a connector, to see whether they fit it.
    ///
    /// # Errors
    /// The connector's options are not ones, or its rows do not fit the stream.
    pub fn try_generator(&self, scope: &Scope, relation: &millrace_catalog::Relation) -> SqlResult<()> {
        let Some(connector) = &relation.connector else {
            return Ok(());
        };
        let Some(source) = connector.source(&relation.columns)? else {
            return Ok(());
        };
        let rows = Rows {
            builder: RowBuilder::new(self, scope, relation, &source.given)?,
            source,
        };
        let first = rows.source.generator.rows_max().map_or(1, |rows| rows.min(1));
        rows.make(0, first).map(|_| ())
    }
}

/// Whole rows of a stream by their position.
struct Rows {
    source: Source,
    builder: RowBuilder,
}

impl Rows {
    fn make(&self, first: u64, end: u64) -> SqlResult<RecordBatch> {
        let rows = usize::try_from(end - first).unwrap_or(usize::MAX);
        let made = self
            .source
            .generator
            .generate(first, rows)
            .map_err(millrace_postgres::from_internal::arrow)?;
        let fields: Vec<FieldRef> = made.schema().fields().iter().cloned().collect();
        let given: Vec<_> = fields.into_iter().zip(made.columns().iter().cloned()).collect();
        self.builder.build(&given, rows).map_err(|failure| *failure.error)
    }

    /// Where the write ends that has row `position`.
    fn end_of_write(&self, position: u64) -> u64 {
        let rows = self.source.write_rows();
        let end = (position / rows + 1).saturating_mul(rows);
        self.source.generator.rows_max().map_or(end, |max| end.min(max))
    }
}

struct Filling {
    runtime: Runtime,
    stream: RelationId,
    /// Rows in the log, and in that of late rows if they are kept.
    head: u64,
    late_head: u64,
    event_time: Option<EventTimeSpec>,
    /// Since when the rate counts.
    begun: i64,
    rows: Arc<Rows>,
    progress: watch::Sender<Progress>,
}

impl Filling {
    async fn run(&self) -> SqlResult<()> {
        let first = self.position().await?;
        let mut position = first;
        let mut before: Option<WriteToken> = None;
        loop {
            let end = self.rows.end_of_write(position);
            let due = self.rows.source.rate.map(|rate| {
                let since = u128::from(end - first) * 1_000_000 / u128::from(rate);
                self.begun
                    .saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
            });
            self.progress.send_modify(|progress| {
                progress.position = position;
                progress.due = due;
            });
            if end <= position {
                return Ok(());
            }
            if let Some(due) = due {
                self.runtime.clock_reaches(due).await;
            }
            let rows = ChangeBatch::insertions(self.make(position, end).await?);
            let written = self.runtime.append(vec![(self.stream, rows)], None).await?;
            // Two writes are under way: one is written while the other goes through the views.
            if let Some(before) = before.replace(written) {
                self.runtime.wait_for(&before).await?;
            }
            position = end;
        }
    }

    async fn make(&self, first: u64, end: u64) -> SqlResult<RecordBatch> {
        let rows = Arc::clone(&self.rows);
        let made = tokio::task::spawn_blocking(move || rows.make(first, end)).await;
        made.map_err(|error| SqlError::internal(format!("making rows: {error}")))?
    }

    /// How many rows were made for what is in the log.
    async fn position(&self) -> SqlResult<u64> {
        let Some(spec) = &self.event_time else {
            return Ok(self.head);
        };
        let judge = EventTime::new(spec.clone());
        let (mut position, mut passed, mut late) = (0, 0, 0);
        loop {
            let end = self.rows.end_of_write(position);
            if end <= position || (passed >= self.head && late >= self.late_head) {
                break;
            }
            let rows = self.make(position, end).await?;
            let judged = judge.judge(&rows, i64::MIN)?;
            // A write of which all rows are late may have been the last one.
            if passed >= self.head && judged.accepted.num_rows() > 0 {
                break;
            }
            passed += judged.accepted.num_rows() as u64;
            late += judged.late.num_rows() as u64;
            judge.submit(&judged);
            position = end;
        }
        if passed == self.head {
            return Ok(position);
        }
        Err(SqlError::new(
            SqlState::DataCorrupted,
            format!(
                "the log has {} rows, which does not match the connector's options",
                self.head
            ),
        ))
    }
}
