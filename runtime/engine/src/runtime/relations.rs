//! Relations come and go: sources, their columns, indexes.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use millrace_operator::Failures;
use millrace_planner::RelationId;
use millrace_resource::memory::StateCharge;
use millrace_schedule::driver::Event;
use millrace_state::row_table::{RowTable, make_indexes};
use millrace_storage::{ChangeBatch, LogStore};
use parking_lot::RwLock;

use super::Runtime;
use crate::error::{Result, RuntimeError};
use crate::event_time::{EventTime, EventTimeSpec, SetBack, WatermarkStatus};
use crate::relation::{Relation, Stream, Table, widen};
use crate::runtime::durable::restore::{RestoredSource, widen_image};
use crate::runtime::write::TableLocks;

/// A stream or table to make known.
pub struct SourceSpec {
    pub id: RelationId,
    pub name: String,
    pub schema: SchemaRef,
    pub kind: SourceKind,
}

/// What kind of source it is.
pub enum SourceKind {
    /// Rows that are only added; `event_time`: a time of theirs that has a watermark.
    Stream { event_time: Option<EventTimeSpec> },
    /// `key`: columns of the primary key, empty for none.
    Table { key: Vec<usize> },
}

impl Runtime {
    /// The rows on which expressions of a view failed since this was asked; none if there is no such view.
    pub fn take_failed_rows(&self, view: RelationId) -> Failures {
        match self.engine.relation(view).as_deref() {
            Ok(Relation::View(view)) => view.errors.take_rows(),
            _ => Failures::default(),
        }
    }

    /// Changes as the log of a relation has them, with all columns that the relation has by now.
    ///
    /// # Errors
    /// The relation is not known, or has not these columns.
    pub fn widened(&self, relation: RelationId, changes: ChangeBatch) -> Result<ChangeBatch> {
        self.engine.relation(relation)?.widen_changes(changes)
    }

    /// Makes a stream or table known and reads its log, which must exist in the log store. Its rows are visible when this
    /// returns.
    ///
    /// # Errors
    /// The log is damaged.
    pub async fn create_source(&self, spec: SourceSpec) -> Result<()> {
        self.create_widened_source(spec, vec![]).await
    }

    /// As [`Runtime::create_source`], for one whose last columns were added after the first rows. `missing` is what older
    /// rows have in them, one value each. The log store must have been told of the columns.
    ///
    /// # Errors
    /// The log is damaged.
    pub async fn create_widened_source(&self, spec: SourceSpec, missing: Vec<ScalarValue>) -> Result<()> {
        let SourceSpec {
            id,
            name,
            schema,
            kind,
        } = spec;
        let head = self.engine.logs.head(id.0);
        let restored = self.engine.restored_source(id, head).await;
        // What is behind this comes with the epochs.
        let committed = restored.as_ref().map_or(head, |restored| restored.end);
        let relation = match kind {
            SourceKind::Stream { event_time } => {
                let event_time = event_time.map(|spec| Arc::new(EventTime::new(spec)));
                if let Some(event_time) = event_time.clone() {
                    let from = restored.as_ref().map_or(0, |restored| restored.end);
                    let known = restored
                        .and_then(|restored| event_time.spec.checkpointed(restored.end, restored.watermark));
                    event_time.advance(known);
                    let logs = Arc::clone(&self.engine.logs);
                    let (schema, missing) = (Arc::clone(&schema), missing.clone());
                    let watermark = self
                        .engine
                        .machine
                        .io
                        .spawn_blocking(move || {
                            logged_watermark(&logs, id, &schema, from..head, &missing, &event_time)
                        })
                        .await
                        .map_err(|error| RuntimeError::Internal(error.to_string()))??;
                    let watermark = if committed == head { watermark } else { known };
                    if let Some(watermark) = watermark {
                        self.engine.writes.feeds.lock().set_watermark(id, watermark);
                    }
                }
                Relation::Stream(Stream {
                    id,
                    name,
                    schema,
                    missing,
                    event_time,
                    values: Arc::default(),
                })
            }
            SourceKind::Table { key } => {
                let logs = Arc::clone(&self.engine.logs);
                let table_schema = Arc::clone(&schema);
                let table_key = key.clone();
                let table_missing = missing.clone();
                let rows = self
                    .engine
                    .machine
                    .io
                    .spawn_blocking(move || {
                        replay(
                            &logs,
                            id,
                            table_schema,
                            &table_key,
                            (committed, head),
                            &table_missing,
                            restored,
                        )
                    })
                    .await
                    .map_err(|error| RuntimeError::Internal(error.to_string()))??;
                let writer = Arc::default();
                let account = self.engine.account_of(id, &format!("table \"{name}\""));
                let charge = Arc::new(StateCharge::new(&account));
                charge.set(rows.memory_bytes());
                Relation::Table(Table {
                    id,
                    name,
                    schema,
                    key,
                    missing,
                    rows: Arc::new(RwLock::new(rows)),
                    charge,
                    writer,
                })
            }
        };
        let relation = Arc::new(relation);
        if let Relation::Table(table) = relation.as_ref() {
            let (rows, charge) = (Arc::clone(&table.rows), Arc::clone(&table.charge));
            self.engine.workers.spawn_indexing(id, move || {
                make_indexes(&rows)?;
                charge.set(rows.read().memory_bytes());
                Ok(())
            })?;
        }
        self.engine.relations.write().insert(id, relation);
        let pipeline = self.engine.decisions.new_pipeline();
        self.engine.post(Event::SourceAdded {
            relation: id,
            pipeline,
        });
        self.engine.writes.feeds.lock().attach(id, pipeline);
        self.engine.versions.attach(id, pipeline, Some(committed));
        Ok(())
    }

    /// Adds a column behind those that a stream or table has; rows that there are have `value` in it. When it returns it
    /// can be written and read. The lock of the table is to be kept until everybody knows the column: no write to the
    /// table is under way meanwhile. A stream's writes are widened when they are cut.
    ///
    /// # Errors
    /// The relation is not known or not locked, or is a view.
    pub fn add_column(
        &self,
        locks: &TableLocks,
        id: RelationId,
        field: FieldRef,
        value: ScalarValue,
    ) -> Result<()> {
        if !locks.contains(id) {
            return Err(RuntimeError::Internal(format!(
                "relation {id} was altered without its lock"
            )));
        }
        let relation = self.engine.relation(id)?;
        let widened = |schema: &SchemaRef| -> SchemaRef {
            let fields = schema.fields().iter().cloned().chain([Arc::clone(&field)]);
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        };
        let wider = match relation.as_ref() {
            Relation::View(_) => return Err(RuntimeError::UnknownRelation(id)),
            Relation::Stream(stream) => Relation::Stream(Stream {
                id,
                name: stream.name.clone(),
                schema: widened(&stream.schema),
                missing: stream.missing.iter().cloned().chain([value]).collect(),
                event_time: stream.event_time.clone(),
                values: Arc::clone(&stream.values),
            }),
            Relation::Table(table) => {
                let schema = widened(&table.schema);
                table.rows.write().widen(&schema, std::slice::from_ref(&value))?;
                Relation::Table(Table {
                    id,
                    name: table.name.clone(),
                    schema,
                    key: table.key.clone(),
                    missing: table.missing.iter().cloned().chain([value]).collect(),
                    rows: Arc::clone(&table.rows),
                    charge: Arc::clone(&table.charge),
                    writer: Arc::clone(&table.writer),
                })
            }
        };
        self.engine.logs.widen(id.0, &wider.schema())?;
        self.engine.relations.write().insert(id, Arc::new(wider));
        Ok(())
    }

    /// The watermarks of streams, and how many rows were late.
    pub fn watermarks(&self) -> Vec<WatermarkStatus> {
        let relations = self.engine.relations.read();
        let mut known: Vec<WatermarkStatus> = relations
            .values()
            .filter_map(|relation| Some(relation.event_time()?.status(relation.id())))
            .collect();
        known.sort_by_key(|status| status.relation);
        known
    }

    /// Whether watermarks decide what a view shows or what it has forgotten.
    pub fn goes_by_watermarks(&self, view: RelationId) -> bool {
        let relation = self.engine.relation(view);
        relation.is_ok_and(
            |relation| matches!(relation.as_ref(), Relation::View(view) if view.graph.goes_by_watermarks()),
        )
    }

    /// Where the log of a stream ends, once nothing that was written to it waits to be cut.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn settled(&self, stream: RelationId) -> Result<u64> {
        self.until(|engine| {
            let is_waiting = engine.writes.feeds.lock().has_waiting(stream);
            if is_waiting {
                engine.hurry(&[stream]);
            }
            !is_waiting
        })
        .await?;
        Ok(self.engine.logs.head(stream.0))
    }

    /// Sets the watermark of a stream back, if nothing was written to it since its log ended at that offset; returns whether that
    /// was so. No view may go by it.
    ///
    /// # Errors
    /// The stream is gone, or has no watermark.
    pub fn set_watermark_back(&self, stream: RelationId, set: SetBack) -> Result<bool> {
        let relation = self.engine.relation(stream)?;
        let event_time = relation
            .event_time()
            .ok_or(RuntimeError::UnknownRelation(stream))?;
        // Under this lock, as submissions are.
        let mut feeds = self.engine.writes.feeds.lock();
        if feeds.has_waiting(stream) || self.engine.logs.head(stream.0) != set.offset {
            return Ok(false);
        }
        event_time.set_back(set.watermark);
        feeds.set_watermark_back(stream, set.watermark);
        Ok(true)
    }

    /// Adds an index for key look-ups to a table or view.
    ///
    /// # Errors
    /// The relation is a stream or not known.
    pub async fn create_index(&self, relation: RelationId, columns: Vec<usize>) -> Result<()> {
        match self.engine.relation(relation)?.as_ref() {
            Relation::Stream(_) => return Err(RuntimeError::UnknownRelation(relation)),
            Relation::Table(table) => {
                table.rows.write().add_index(columns)?;
            }
            Relation::View(view) => {
                for partition in &view.contents.partitions {
                    partition.write().add_index(columns.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Forgets relations, which are given together with all that depends on them. Reads under way go on.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn drop_relations(&self, ids: &[RelationId]) -> Result<()> {
        let held = self.engine.quiesce(ids.to_vec()).await?;
        for id in ids {
            self.engine.relations.write().remove(id);
            self.engine.writes.feeds.lock().detach(*id);
            self.engine.writes.acknowledged.lock().ends.remove(id);
            self.engine.versions.detach(*id);
            self.engine.timers.remove(*id);
            self.engine.uninstall(*id);
            self.engine.checkpoints.store.remove(*id);
            self.engine.versions.give_up(*id);
        }
        self.engine.jobs.give_up(ids);
        self.engine.versions.notify();
        held.resume(vec![], ids.to_vec());
        Ok(())
    }
}

/// The watermark of a stream, after these rows of its log.
fn logged_watermark(
    logs: &LogStore,
    id: RelationId,
    schema: &SchemaRef,
    offsets: Range<u64>,
    missing: &[ScalarValue],
    event_time: &EventTime,
) -> Result<Option<i64>> {
    for block in logs.read(id.0, offsets.start, offsets.end)? {
        let block = block?;
        let rows = widen(block.changes.rows, schema, missing)?;
        event_time.advance(event_time.assumed_of_log(block.first_offset, &block.note, &rows)?);
    }
    Ok(event_time.watermark())
}

/// The rows of a table from its checkpoint, if it has one, and its log. Readers begin at the offset `committed`.
fn replay(
    logs: &LogStore,
    id: RelationId,
    schema: SchemaRef,
    key: &[usize],
    (committed, head): (u64, u64),
    missing: &[ScalarValue],
    restored: Option<RestoredSource>,
) -> Result<RowTable> {
    let identity = if key.is_empty() {
        (0..schema.fields().len()).collect()
    } else {
        key.to_vec()
    };
    let mut rows = RowTable::new(Arc::clone(&schema), Some(identity));
    let mut from = 0;
    if let Some(RestoredSource {
        end,
        rows: Some(image),
        ..
    }) = restored
    {
        let widened = widen_image(image, &schema, missing);
        match widened.and_then(|image| Ok(rows.restore_rows(&image)?)) {
            Ok(()) => from = end,
            Err(error) => {
                tracing::warn!(relation = id.0, %error, "the rows of a table in the checkpoint do not match \
                 its columns: reading its log instead");
            }
        }
    }
    for block in logs.read(id.0, from, head)? {
        let block = block?;
        let end = block.first_offset + block.changes.num_rows() as u64;
        let changes = ChangeBatch {
            rows: widen(block.changes.rows, &schema, missing)?,
            weights: block.changes.weights,
        };
        rows.apply(&changes, end, end.min(committed))?;
    }
    Ok(rows)
}
