//! Writing: changes to streams and tables, atomic and durable, then handed to their pipeline.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::row::{OwnedRow, RowConverter, SortField};
use millrace_operator::{concat, consolidate};
use millrace_planner::RelationId;
use millrace_schedule::id::PipelineId;
use millrace_state::row_table::{RowTable, split};
use millrace_storage::{Appended, ChangeBatch, LogWrite, rows_bytes};
use parking_lot::{Mutex, RwLockReadGuard};
use tokio::sync::OwnedMutexGuard;

use crate::error::{Result, RuntimeError};
use crate::event_time::{EventTime, Judged, LateRows};
use crate::feed::{Feeds, Part};
use crate::relation::{Relation, Table};
use crate::runtime::backpressure::Backpressure;
use crate::runtime::seen_through::SeenThrough;
use crate::runtime::{Engine, Runtime};
use crate::snapshot::{Frozen, Snapshot};

/// Writes on their way into epochs.
#[derive(Default)]
pub(crate) struct Writes {
    pub feeds: Mutex<Feeds>,
    /// Where writes wait for space in them.
    pub(super) backpressure: Mutex<BTreeMap<PipelineId, Backpressure>>,
    /// Every write that was acknowledged, by whomever.
    pub acknowledged: Mutex<WriteToken>,
}

/// What a write is known by: a read that comes `after` it sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteToken {
    /// Log offsets after the write.
    pub(crate) ends: BTreeMap<RelationId, u64>,
    /// Rows that did not enter their streams.
    pub late: LateRows,
}

/// What is written down with a write, and lasts if and only if the write does; it is told which rows do not enter their streams.
/// Nothing is written down where it is empty.
pub type Note<'a> = &'a (dyn Fn(&LateRows) -> Vec<u8> + Sync);

/// What there may be to say of a write besides its changes.
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Those of the tables that are changed.
    pub locks: Option<&'a TableLocks>,
    /// If nothing is written, neither is the note.
    pub note: Note<'a>,
    /// How long it waits for room at most; `None`: until there is some.
    pub wait_max: Option<Duration>,
    /// Asked at the last moment, when nothing is left to wait for: if it says no, nothing is written, and if it says yes, the write
    /// is handed to the log before anything else happens.
    pub may: &'a (dyn Fn() -> bool + Sync),
    /// The watermark that the write lets one assume of this stream, in microseconds, whatever its rows do: they come from several
    /// places, of which others may be behind. The note must tell it too ([`EventTimeSpec::of_note`](crate::EventTimeSpec)).
    pub watermark: Option<(RelationId, Option<i64>)>,
}

impl Default for WriteOptions<'_> {
    fn default() -> Self {
        WriteOptions {
            locks: None,
            note: &|_| vec![],
            wait_max: None,
            may: &|| true,
            watermark: None,
        }
    }
}

impl WriteToken {
    /// Adds another write.
    pub fn merge(&mut self, other: &WriteToken) {
        for (relation, end) in &other.ends {
            let known = self.ends.entry(*relation).or_default();
            *known = (*known).max(*end);
        }
        self.late.add(&other.late, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// The exclusive right to change some tables. Released when the last clone is dropped.
#[derive(Clone)]
pub struct TableLocks {
    relations: Vec<RelationId>,
    guards: Vec<Arc<OwnedMutexGuard<()>>>,
}

impl TableLocks {
    pub fn contains(&self, relation: RelationId) -> bool {
        self.relations.contains(&relation)
    }

    /// The tables.
    pub fn relations(&self) -> impl Iterator<Item = RelationId> {
        self.relations.iter().copied()
    }

    /// These and others: for tables that nobody else can be waiting for.
    #[must_use]
    pub fn and(mut self, others: TableLocks) -> TableLocks {
        self.relations.extend(others.relations);
        self.guards.extend(others.guards);
        self
    }
}

impl Runtime {
    /// Waits for the exclusive right to change these tables; streams need none and are skipped.
    ///
    /// # Errors
    /// A relation is not known.
    pub async fn lock_tables(&self, ids: &[RelationId]) -> Result<TableLocks> {
        let mut ids = ids.to_vec();
        // Everyone asks in the same order, so nobody waits in a circle.
        ids.sort_unstable();
        ids.dedup();
        let mut guards = vec![];
        for id in &ids {
            if let Relation::Table(table) = self.engine.relation(*id)?.as_ref() {
                guards.push(Arc::new(Arc::clone(&table.writer).lock_owned().await));
            }
        }
        Ok(TableLocks {
            relations: ids,
            guards,
        })
    }

    /// The newest rows of locked tables.
    ///
    /// # Errors
    /// A table was dropped meanwhile.
    pub async fn latest(&self, locks: &TableLocks) -> Result<Snapshot> {
        let mut relations = BTreeMap::new();
        let wanted: Vec<(RelationId, bool)> = locks.relations.iter().map(|id| (*id, true)).collect();
        let Some((epoch, _, pin)) = self.engine.versions.pin(&wanted, &BTreeMap::new()) else {
            return Err(RuntimeError::Internal(
                "a pin without conditions was refused".into(),
            ));
        };
        for id in &locks.relations {
            let relation = self.engine.relation(*id)?;
            let newest = match relation.as_ref() {
                Relation::Table(_) => u64::MAX - 1,
                _ => self.engine.logs.head(id.0),
            };
            let engine = &self.engine;
            relations.insert(
                *id,
                Frozen::new(&relation, newest, &pin, &engine.logs, engine.machine.data()),
            );
        }
        Ok(Snapshot::new(epoch, relations))
    }

    /// The newest rows of a locked table that have these values in the columns of its key, each with the place of its key.
    ///
    /// # Errors
    /// The table was dropped meanwhile, or has no key.
    pub fn rows_of_keys(
        &self,
        locks: &TableLocks,
        table: RelationId,
        keys: &[ArrayRef],
    ) -> Result<(Vec<u32>, RecordBatch)> {
        let relation = self.engine.relation(table)?;
        let Relation::Table(table) = relation.as_ref() else {
            return Err(RuntimeError::Internal("only a table has keys".into()));
        };
        if !locks.contains(table.id) {
            return Err(RuntimeError::Internal(format!(
                "table {} was read without its lock",
                table.name
            )));
        }
        let (stored, index) = key_index(table)?;
        let found = stored.probe(index, keys, false)?;
        Ok((found.probe, stored.rows(&found.rows)?))
    }

    /// All rows of a locked table, the newest.
    ///
    /// # Errors
    /// The table was dropped meanwhile.
    pub fn rows_of_table(&self, locks: &TableLocks, table: RelationId) -> Result<RecordBatch> {
        let relation = self.engine.relation(table)?;
        match relation.as_ref() {
            Relation::Table(table) if locks.contains(table.id) => {
                let stored = table.rows.read();
                Ok(stored.rows(&stored.live_row_numbers())?)
            }
            _ => Err(RuntimeError::Internal("only a locked table is read whole".into())),
        }
    }

    /// Writes changes to several relations at once: all or nothing, durable when it returns. Tables must be locked.
    ///
    /// # Errors
    /// Two rows of a table would have one key; the log cannot be written (disk full); nothing is kept then.
    pub async fn append(
        &self,
        changes: Vec<(RelationId, ChangeBatch)>,
        locks: Option<&TableLocks>,
    ) -> Result<WriteToken> {
        let options = WriteOptions {
            locks,
            ..WriteOptions::default()
        };
        self.append_with(changes, &options).await
    }

    /// As [`append`](Self::append), with what else there is to say.
    ///
    /// # Errors
    /// As [`append`](Self::append); it waited for longer than `options.wait_max`; `may` said no.
    pub async fn append_with(
        &self,
        changes: Vec<(RelationId, ChangeBatch)>,
        options: &WriteOptions<'_>,
    ) -> Result<WriteToken> {
        let changes = one_batch_each(changes)?;
        if changes.is_empty() {
            return Ok(WriteToken::default());
        }
        let relations: Vec<RelationId> = changes.iter().map(|(relation, _)| *relation).collect();
        self.engine
            .wait_for_backpressure(&relations, options.wait_max)
            .await?;
        loop {
            match self.append_once(changes.clone(), options).await? {
                Some(token) => return Ok(token),
                // What was submitted meanwhile has made a row of this write late.
                None => continue,
            }
        }
    }

    /// One attempt; `None`: a row became late before it was submitted.
    async fn append_once(
        &self,
        changes: Vec<(RelationId, ChangeBatch)>,
        options: &WriteOptions<'_>,
    ) -> Result<Option<WriteToken>> {
        let WriteOptions { locks, note, may, .. } = *options;
        let mut writes: Vec<(Arc<Relation>, ChangeBatch)> = vec![];
        let mut judgements: Vec<(Arc<EventTime>, Judged)> = vec![];
        let mut watermarks = vec![];
        for (id, batch) in changes {
            let relation = self.engine.relation(id)?;
            // The statement may have been bound before a column was added.
            let batch = relation.widen_changes(batch)?;
            if let Relation::Table(table) = relation.as_ref() {
                if !locks.is_some_and(|locks| locks.contains(id)) {
                    return Err(RuntimeError::Internal(format!(
                        "table {} was changed without its lock",
                        table.name
                    )));
                }
                check_keys(table, &batch)?;
            }
            let rows = RecordBatch::try_new(relation.schema(), batch.rows.columns().to_vec())?;
            let Some(event_time) = relation.event_time().cloned() else {
                watermarks.push(None);
                writes.push((
                    relation,
                    ChangeBatch {
                        rows,
                        weights: batch.weights,
                    },
                ));
                continue;
            };
            let mut judged = event_time.judge(&rows, self.engine.timers.now())?;
            if let Some((_, watermark)) = options.watermark.filter(|(of, _)| *of == id) {
                // Without a row there is no block that could tell it after a restart.
                judged.watermark = watermark.filter(|_| judged.accepted.num_rows() > 0);
            }
            if judged.accepted.num_rows() > 0 {
                // First, since the first block has the note, which may have the watermark.
                let first = match options.watermark.is_some_and(|(of, _)| of == id) {
                    true => 0,
                    false => writes.len(),
                };
                watermarks.insert(first, judged.watermark);
                writes.insert(
                    first,
                    (relation, ChangeBatch::insertions(judged.accepted.clone())),
                );
            }
            if let (Some(late), true) = (event_time.spec.late, judged.late.num_rows() > 0) {
                let late = self.engine.relation(late)?;
                let rows = judged.late_rows(&late.schema())?;
                watermarks.push(None);
                writes.push((late, ChangeBatch::insertions(rows)));
            }
            judgements.push((event_time, judged));
        }
        let mut late = LateRows::default();
        for (_, judged) in &judgements {
            late.add(&judged.told, 0);
        }
        if writes.is_empty() {
            if !may() {
                return Err(RuntimeError::Ended);
            }
            judgements
                .iter()
                .for_each(|(event_time, judged)| event_time.submit(judged));
            return Ok(Some(WriteToken {
                late,
                ..WriteToken::default()
            }));
        }
        self.share_a_pipeline(&writes).await?;
        let log_writes = writes
            .iter()
            .map(|(r, changes)| LogWrite {
                relation: r.id().0,
                changes: changes.clone(),
            })
            .collect();
        let prepared = self.engine.logs.prepare(log_writes, &note(&late))?;
        let parts: Vec<Part> = writes
            .iter()
            .zip(watermarks)
            .map(|((r, changes), watermark)| Part {
                relation: r.id(),
                changes: changes.clone(),
                end: 0,
                watermark,
                charge: self.engine.charge_input(r, changes),
            })
            .collect();
        let (sequence, receipt) = {
            // Under one lock, so that the order in the feed is the order in the log.
            let mut feeds = self.engine.writes.feeds.lock();
            // All or nothing: none is submitted if one cannot be.
            if !judgements
                .iter()
                .all(|(event_time, judged)| event_time.is_valid(judged))
            {
                return Ok(None);
            }
            let first = writes[0].0.id();
            let pipeline = feeds
                .pipeline_of(first)
                .ok_or(RuntimeError::UnknownRelation(first))?;
            if !may() {
                return Err(RuntimeError::Ended);
            }
            judgements
                .iter()
                .for_each(|(event_time, judged)| event_time.submit(judged));
            (feeds.submit(pipeline, parts), self.engine.logs.submit(prepared))
        };
        // From here the write may become durable whether or not the caller stays: it is seen through, and keeps the locks until then.
        let engine = Arc::clone(&self.engine);
        let locks = locks.cloned();
        let completion = async move {
            let outcome = receipt.await;
            let token = engine.complete(&writes, sequence, outcome);
            drop(locks);
            token
        };
        let token = SeenThrough::new(completion, &self.engine.machine.io).await?;
        Ok(Some(WriteToken { late, ..token }))
    }

    /// A write over relations of different pipelines joins them: what is written together is read together.
    async fn share_a_pipeline(&self, writes: &[(Arc<Relation>, ChangeBatch)]) -> Result<()> {
        let ids: Vec<RelationId> = writes.iter().map(|(relation, _)| relation.id()).collect();
        let pipelines: HashSet<_> = ids
            .iter()
            .filter_map(|id| self.engine.versions.pipeline_of(*id))
            .collect();
        if pipelines.len() > 1 {
            self.engine.quiesce(ids).await?.resume(vec![], vec![]);
        }
        Ok(())
    }
}

impl Engine {
    /// Somebody waits for what was written, which may be in the epochs of these relations.
    pub fn hurry(&self, relations: &[RelationId]) {
        let pipelines: HashSet<PipelineId> = relations
            .iter()
            .filter_map(|id| self.versions.pipeline_of(*id))
            .collect();
        for pipeline in pipelines {
            self.workers.hurry(pipeline);
        }
    }

    /// Makes a durable write part of its tables and lets it be cut, or forgets it.
    fn complete(
        self: &Arc<Self>,
        writes: &[(Arc<Relation>, ChangeBatch)],
        sequence: u64,
        outcome: Result<Vec<Appended>, millrace_storage::StorageError>,
    ) -> Result<WriteToken> {
        let appended = match outcome {
            Ok(appended) => appended,
            Err(error) => {
                let relations = writes.iter().map(|(relation, _)| relation.id());
                let pipeline = self.writes.feeds.lock().withdraw(sequence, relations);
                // What was behind it in the queue may be cut now.
                if let Some(pipeline) = pipeline {
                    self.workers.input_arrived(pipeline);
                }
                return Err(error.into());
            }
        };
        let ends: Vec<(RelationId, u64)> = (writes.iter().zip(&appended))
            .map(|((relation, _), part)| (relation.id(), part.first_offset + part.rows))
            .collect();
        let mut applied = Ok(());
        for ((relation, changes), (_, end)) in writes.iter().zip(&ends) {
            if let Relation::Stream(stream) = relation.as_ref() {
                stream.values.note(&changes.rows, 0..changes.rows.num_columns());
            }
            if let Relation::Table(table) = relation.as_ref() {
                let low_water = self.versions.low_water(table.id, true);
                // It is durable all the same, and those behind it wait for that to be told.
                applied = applied.and(table.rows.write().apply(changes, *end, low_water));
                let measure = || table.rows.read().memory_bytes();
                table.charge.moved(rows_bytes(&changes.rows), measure);
            }
        }
        let (now, bytes_max) = (self.workers.now(), self.machine.memory.cut_bytes_max());
        let arrived = {
            let mut feeds = self.writes.feeds.lock();
            let pipeline = feeds.acknowledge(sequence, &ends, now);
            pipeline.map(|pipeline| (pipeline, feeds.has_whole_cut(pipeline, bytes_max)))
        };
        if let Some((pipeline, is_whole)) = arrived {
            self.workers.input_arrived(pipeline);
            if is_whole {
                self.workers.hurry(pipeline);
            }
        }
        applied?;
        let token = WriteToken {
            late: LateRows::default(),
            ends: ends.into_iter().collect(),
        };
        self.writes.acknowledged.lock().merge(&token);
        Ok(token)
    }
}

/// What the write does to each relation in all: of a row that a transaction inserts and deletes again nothing is left.
fn one_batch_each(changes: Vec<(RelationId, ChangeBatch)>) -> Result<Vec<(RelationId, ChangeBatch)>> {
    let mut by_relation: BTreeMap<RelationId, Vec<ChangeBatch>> = BTreeMap::new();
    for (relation, batch) in changes {
        if batch.num_rows() > 0 {
            by_relation.entry(relation).or_default().push(batch);
        }
    }
    let mut whole = vec![];
    for (relation, batches) in by_relation {
        let grows_only = batches.iter().all(|batch| batch.weights.is_none());
        let batch = if grows_only {
            concat(batches)?
        } else {
            consolidate(batches)?
        };
        whole.extend(batch.map(|batch| (relation, batch)));
    }
    Ok(whole)
}

/// The rows of a table, and the index over its key.
fn key_index(table: &Table) -> Result<(RwLockReadGuard<'_, RowTable>, usize)> {
    let stored = table.rows.read();
    let Some(index) = stored.index_over(&table.key) else {
        return Err(RuntimeError::Internal(format!(
            "table {} has no index over its key",
            table.name
        )));
    };
    if !stored.is_behind(index) {
        return Ok((stored, index));
    }
    // After a restart, before its index is made.
    drop(stored);
    table.rows.write().catch_up(index)?;
    Ok((table.rows.read(), index))
}

/// Refuses a change after which two rows would have one key.
fn check_keys(table: &Table, changes: &ChangeBatch) -> Result<()> {
    if table.key.is_empty() {
        return Ok(());
    }
    let (inserted, deleted) = match &changes.weights {
        None => (changes.rows.clone(), changes.rows.slice(0, 0)),
        Some(weights) => split(&changes.rows, weights)?,
    };
    if inserted.num_rows() == 0 {
        return Ok(());
    }
    let keys_of = |rows: &RecordBatch| -> Vec<ArrayRef> {
        table
            .key
            .iter()
            .map(|column| Arc::clone(rows.column(*column)))
            .collect()
    };
    let fields = table
        .key
        .iter()
        .map(|column| SortField::new(table.schema.field(*column).data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let deleted_keys: HashSet<OwnedRow> = converter
        .convert_columns(&keys_of(&deleted))?
        .iter()
        .map(|row| row.owned())
        .collect();
    let inserted_keys = keys_of(&inserted);
    let rows = converter.convert_columns(&inserted_keys)?;
    let duplicate = |row: usize| RuntimeError::DuplicateKey {
        relation: table.id,
        key: key_text(table, &inserted_keys, row),
    };
    let mut seen = HashSet::with_capacity(inserted.num_rows());
    for (position, row) in rows.iter().enumerate() {
        if !seen.insert(row) {
            return Err(duplicate(position));
        }
    }
    let (stored, index) = key_index(table)?;
    for probe in stored.probe(index, &inserted_keys, false)?.probe {
        if !deleted_keys.contains(&rows.row(probe as usize).owned()) {
            return Err(duplicate(probe as usize));
        }
    }
    Ok(())
}

/// `(id, day)=(1, 2013-01-01)`, as PostgreSQL prints a key.
fn key_text(table: &Table, keys: &[ArrayRef], row: usize) -> String {
    let names: Vec<&str> = table
        .key
        .iter()
        .map(|column| table.schema.field(*column).name().as_str())
        .collect();
    let values: Vec<String> = keys
        .iter()
        .map(|key| arrow::util::display::array_value_to_string(key, row).unwrap_or_else(|_| "?".to_owned()))
        .collect();
    format!("({})=({})", names.join(", "), values.join(", "))
}
