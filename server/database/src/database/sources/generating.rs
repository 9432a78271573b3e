//! A generator at work: it writes the rows of its stream from where the log ends.
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
use millrace_catalog::connector::Source;
use millrace_catalog::scope::{Acting, Scope};
use millrace_catalog::settings::Settings;
use millrace_catalog::{DEFAULT_SCHEMA, Object, Relation};
use millrace_engine::{EventTime, EventTimeSpec, Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ChangeBatch;
use tokio::sync::watch;

use super::task::{Stopped, told};
use super::{Progress, State};
use crate::database::Database;
use crate::database::rows::RowBuilder;

impl Database {
    /// In which the rows of an object are made that no session writes.
    pub(in crate::database) fn scope_of(&self, object: &Object) -> Scope {
        Scope {
            catalog: self.catalog(),
            database: object.database.clone(),
            search_path: vec![object.schema.clone(), DEFAULT_SCHEMA.to_owned()],
            zone: None,
            acting: Acting::SYSTEM,
            session: None,
            target: None,
            settings: Settings::default(),
            given: BTreeMap::new(),
            before: BTreeMap::new(),
        }
    }

    /// What fills a stream with what a generator makes.
    ///
    /// # Errors
    /// The generator's rows do not fit the stream.
    pub(super) fn filling(
        &self,
        object: &Object,
        relation: &Relation,
        scope: &Scope,
        source: Source,
        progress: watch::Sender<Progress>,
    ) -> SqlResult<Filling> {
        let rows = Rows {
            builder: RowBuilder::new(self, scope, relation, &source.given)?,
            source,
        };
        let logs = self.store().logs();
        let event_time = self.event_time(relation)?;
        let late = event_time.as_ref().and_then(|event_time| event_time.late);
        Ok(Filling {
            runtime: self.runtime().clone(),
            name: object.described(),
            stream: relation.info.id,
            head: logs.head(relation.info.id.0),
            late_head: late.map_or(0, |late| logs.head(late.0)),
            event_time,
            begun: self.runtime().now(),
            rows: Arc::new(rows),
            progress,
        })
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

/// A generator at work.
pub(super) struct Filling {
    runtime: Runtime,
    name: String,
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
    /// Makes rows until it is told to stop, or there are no more.
    pub async fn run(self, stopped: Stopped) {
        let outcome = tokio::select! {
            outcome = self.fill() => outcome,
            // What was being written is seen through by the runtime.
            () = told(&stopped) => return,
        };
        if let Err(error) = &outcome {
            tracing::error!(
                stream = self.name,
                error = error.message,
                "the generator of a stream stopped"
            );
        }
        self.progress.send_modify(|progress| {
            progress.state = match outcome {
                Ok(()) => State::Ended,
                Err(_) => State::Failed,
            };
            progress.error = outcome.err().map(|error| error.message);
        });
    }

    async fn fill(&self) -> SqlResult<()> {
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
                progress.state = State::Running;
                progress.rows = position;
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
                self.runtime.keep_up(&before).await?;
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
