//! One source that is read.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;
use bytes::Bytes;
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::{Object, Relation};
use millrace_connectors::changes::Changes;
use millrace_connectors::connect;
use millrace_connectors::decode::BadRecord;
use millrace_connectors::news::New;
use millrace_connectors::source::{
    Columns, ConnectorError, Fetched, FileRead, FilesRead, Lag, Reader, Record,
};
use millrace_engine::{EventTime, Runtime, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, LogStore, ObjectId};
use tokio::sync::watch;

use super::records::{Errors, Files, Rows};
use super::splits::Splits;
use super::tables::Target;
use super::task::{End, Retry, Stopped, of_runtime, of_sql, told, write_down};
use super::{Note, Place, Progress, State, Times};
use crate::database::Database;

/// How often it is asked how far a source is behind.
const LAG_EVERY: Duration = Duration::from_millis(500);

/// A source at work.
pub(super) struct Reading {
    db: Weak<Database>,
    runtime: Runtime,
    id: ObjectId,
    name: String,
    relation: RelationId,
    /// If it is a table.
    table: Option<Target>,
    errors: Errors,
    /// If it is filled from files, what is kept of them, and where.
    files: Option<(Arc<Files>, Arc<LogStore>)>,
    timed: Option<Timed>,
    connector: ConnectorDef,
    rows: Arc<Rows>,
    progress: watch::Sender<Progress>,
}

/// What a stream with a watermark needs.
struct Timed {
    event_time: Arc<EventTime>,
    idle_timeout: Option<Duration>,
}

/// What was made of records.
struct Made {
    records: Vec<Record>,
    /// Columns that are not there.
    new: Vec<New>,
    changes: Changes,
    /// The watermarks that the rows let one assume, by split.
    assumed: BTreeMap<i32, i64>,
}

impl Reading {
    pub fn new(
        db: &Arc<Database>,
        object: &Object,
        relation: &Relation,
        connector: &ConnectorDef,
        rows: Rows,
        progress: watch::Sender<Progress>,
    ) -> SqlResult<Reading> {
        let timed = match (&relation.event_time, db.event_time(relation)?) {
            (Some(def), Some(spec)) => Some(Timed {
                event_time: Arc::new(EventTime::new(spec)),
                idle_timeout: def.idle_timeout(),
            }),
            _ => None,
        };
        Ok(Reading {
            db: Arc::downgrade(db),
            runtime: db.runtime().clone(),
            id: object.id,
            name: object.described(),
            relation: relation.info.id,
            table: relation.source_key().map(|_| Target::new(relation)),
            errors: Errors::new(db, relation, connector.stops_on_error()?),
            files: Files::new(db, relation).map(|files| (Arc::new(files), Arc::clone(db.store().logs()))),
            timed,
            connector: connector.clone(),
            rows: Arc::new(rows),
            progress,
        })
    }

    /// Reads until it is told to stop, or somebody must do something.
    pub async fn run(self, stopped: Stopped) {
        let mut retry = Retry::new(&self.db, self.id, &self.name, &self.progress);
        loop {
            let Err(end) = self.read_on(&stopped).await;
            if !retry.after(end, &stopped).await {
                return;
            }
        }
    }

    async fn read_on(&self, stopped: &Stopped) -> Result<Infallible, End> {
        let mut place = self.progress.borrow().place.clone();
        let before = self.files_before().await?;
        let (encoding, names) = (self.rows.encoding(), self.rows.names());
        let opening = connect::open(&self.connector, encoding, names, &place.position, &before);
        let mut reader = tokio::select! {
            opened = opening => opened?,
            () = told(stopped) => return Err(End::Stopped),
        };
        self.progress.send_modify(|progress| {
            progress.state = State::Running;
            progress.error = None;
        });
        let outcome = self.follow(reader.as_mut(), &mut place, stopped).await;
        reader.close().await;
        outcome
    }

    /// The files that were read before.
    async fn files_before(&self) -> Result<FilesRead, ConnectorError> {
        let Some((files, logs)) = &self.files else {
            return Ok(vec![]);
        };
        let (files, logs) = (Arc::clone(files), Arc::clone(logs));
        let read = tokio::task::spawn_blocking(move || files.read(&logs)).await;
        read.map_err(|error| ConnectorError::passing(error.to_string()))?
    }

    async fn follow(
        &self,
        reader: &mut dyn Reader,
        place: &mut Place,
        stopped: &Stopped,
    ) -> Result<Infallible, End> {
        // What was known before somebody has set the watermark back does not count.
        let set_back = self.set_back();
        let times = place.times.take().filter(|times| times.set_back == set_back);
        let idle_timeout = self.timed.as_ref().and_then(|timed| timed.idle_timeout);
        let mut splits = Splits::new(idle_timeout, times.unwrap_or_default().splits);
        splits.are_active(reader.position().splits.into_keys(), Instant::now());
        let mut before: Option<WriteToken> = None;
        let mut asked: Option<Instant> = None;
        loop {
            let fetched = tokio::select! {
                fetched = reader.next() => fetched?,
                () = told(stopped) => return Err(End::Stopped),
            };
            let now = Instant::now();
            if asked.is_none_or(|asked| asked.elapsed() > LAG_EVERY) || fetched.is_empty() {
                let Lag { splits: behind } = reader.lag().await;
                // Whoever has something to be read, or may have, is waited for.
                let is_active = |(split, lag): (&i32, &Option<u64>)| (*lag != Some(0)).then_some(*split);
                splits.are_active(behind.iter().filter_map(is_active), now);
                let sum = behind.values().copied().collect::<Option<Vec<u64>>>();
                self.progress.send_modify(|progress| {
                    progress.lag_records = sum.map(|lags| lags.into_iter().sum());
                });
                asked = Some(now);
            }
            if fetched.is_empty() {
                continue;
            }
            splits.are_active(fetched.position.splits.keys().copied(), now);
            let all: Vec<i32> = reader.position().splits.into_keys().collect();
            let written = self.write(fetched, &all, place, &mut splits, stopped).await?;
            // Two writes are under way: one is written while the other goes through the views.
            if let Some(before) = before.replace(written) {
                tokio::select! {
                    waited = self.runtime.keep_up(&before) => waited.map_err(of_runtime)?,
                    () = told(stopped) => return Err(End::Stopped),
                }
            }
        }
    }

    /// Writes what was read, with how far that goes.
    async fn write(
        &self,
        fetched: Fetched,
        all: &[i32],
        place: &mut Place,
        splits: &mut Splits,
        stopped: &Stopped,
    ) -> Result<WriteToken, End> {
        let Fetched {
            records,
            columns,
            position: moved,
            files,
        } = fetched;
        let times = records.iter().filter_map(|record| record.timestamp_ms);
        let newest = times
            .chain(columns.as_ref().map(|columns| columns.timestamp_ms))
            .max();
        let Made {
            records,
            new,
            mut changes,
            assumed,
        } = tokio::select! {
            made = self.make(records, columns) => made?,
            () = told(stopped) => return Err(End::Stopped),
        };
        if let Some(watch) = self.rows.watch() {
            let place = |at: usize| self.errors.place(&records[at]);
            if let Some(wanted) = watch.consider(self.id, new, place)? {
                return Err(End::Wants(wanted));
            }
        }
        let mut bad = std::mem::take(&mut changes.bad);
        let batches = changes.puts.iter().chain(&changes.deletes);
        let mut count: u64 = batches.map(|(_, batch)| batch.num_rows() as u64).sum();
        let mut locks = None;
        let changed = match &self.table {
            None => (changes.puts.into_iter())
                .map(|(_, rows)| ChangeBatch::insertions(rows))
                .collect(),
            Some(table) => {
                let tables = [self.relation];
                let locked = tokio::select! {
                    locked = self.runtime.lock_tables(&tables) => locked.map_err(of_runtime)?,
                    () = told(stopped) => return Err(End::Stopped),
                };
                let stored = |keys: &[ArrayRef]| {
                    let rows = self.runtime.rows_of_keys(&locked, self.relation, keys);
                    rows.map_err(from_internal::runtime)
                };
                let (changed, failed) = table.resolve(changes, None, stored).map_err(of_sql)?;
                count -= failed.len() as u64;
                bad.extend(failed);
                locks = Some(locked);
                changed
            }
        };
        let mut changes: Vec<(RelationId, ChangeBatch)> = (changed.into_iter())
            .map(|changed| (self.relation, changed))
            .collect();
        let broken = broken_files(&files);
        let told = bad.iter().map(|bad| (&records[bad.at], &bad.error));
        let told = told.chain(broken.iter().map(|(record, error)| (record, error)));
        let told: Vec<(&Record, &SqlError)> = told.collect();
        changes.extend(self.errors.of(&told, self.runtime.now())?);
        if let Some((kept, _)) = &self.files {
            changes.extend(kept.of(&files, self.runtime.now())?);
        }
        // The whole place, so that the newest note is enough.
        let mut next = place.clone();
        next.position.advance(moved);
        next.times = self.timed.is_some().then(|| {
            let watermarks = splits.with(&assumed);
            Times {
                watermark: splits.combined(all.iter().copied(), &watermarks, Instant::now()),
                splits: watermarks,
                set_back: self.set_back(),
            }
        });
        let note = Note {
            source: self.id,
            position: next.position.clone(),
            times: next.times.clone(),
            tables: BTreeMap::new(),
            oids: BTreeMap::new(),
        };
        let written = write_down(&self.runtime, changes, locks.as_ref(), &note, stopped).await?;
        if let Some(times) = &next.times {
            splits.set(times.splits.clone());
        }
        place.clone_from(&next);
        self.progress.send_modify(|progress| {
            progress.rows += count;
            progress.bad += told.len() as u64;
            progress.newest_ms = newest.or(progress.newest_ms);
            progress.place = next;
        });
        Ok(written)
    }

    /// Where somebody has set the stream's watermark back.
    fn set_back(&self) -> Option<u64> {
        let timed = self.timed.as_ref()?;
        Some(timed.event_time.spec.set_back?.offset)
    }

    /// Makes changes of records, or of columns that were read together.
    async fn make(&self, records: Vec<Record>, columns: Option<Columns>) -> Result<Made, ConnectorError> {
        self.rows.prepare(&records).await?;
        let rows = Arc::clone(&self.rows);
        let event_time = self.timed.as_ref().map(|timed| Arc::clone(&timed.event_time));
        let now = self.runtime.now();
        let work = move || {
            let mut new = rows.news(&records, columns.as_ref());
            let (records, changes) = match columns {
                Some(columns) => (as_records(&columns), rows.changes_of(&columns)),
                None => {
                    let (mut records, refused) = rows.without_impossible(records, &new);
                    if !refused.is_empty() {
                        new = rows.news(&records, None);
                    }
                    let mut changes = rows.changes(&records);
                    for (record, error) in refused {
                        let at = records.len();
                        changes.bad.push(BadRecord { at, error });
                        records.push(record);
                    }
                    (records, changes)
                }
            };
            let mut assumed: BTreeMap<i32, i64> = BTreeMap::new();
            for (places, batch) in &changes.puts {
                let Some(event_time) = &event_time else { break };
                let splits = places.iter().map(|at| records[*at].split);
                let found = event_time
                    .assumed_by_place(batch, splits, now)
                    .map_err(of_runtime)?;
                for (split, watermark) in found {
                    let known = assumed.entry(split).or_insert(watermark);
                    *known = watermark.max(*known);
                }
            }
            Ok(Made {
                records,
                new,
                changes,
                assumed,
            })
        };
        let computed = self
            .runtime
            .compute(QueryClass::Stream, work)
            .map_err(of_runtime)?;
        computed.await.map_err(of_runtime)?
    }
}

/// Rows of a file of columns, each as a record without a value: where it stands.
fn as_records(columns: &Columns) -> Vec<Record> {
    let path = Bytes::copy_from_slice(columns.file.as_bytes());
    let record = |row| Record {
        split: 0,
        offset: (columns.first + row) as i64,
        timestamp_ms: Some(columns.timestamp_ms),
        key: Some(path.clone()),
        value: None,
        headers: vec![],
    };
    (0..columns.rows.num_rows() as u64).map(record).collect()
}

/// Files of which the rest could not be read, each as a record, and why.
fn broken_files(files: &[FileRead]) -> Vec<(Record, SqlError)> {
    let broken = |file: &FileRead| {
        let (at, why) = file.broken.as_ref()?;
        let record = Record {
            split: 0,
            offset: *at as i64,
            timestamp_ms: None,
            key: Some(Bytes::copy_from_slice(file.path.as_bytes())),
            value: None,
            headers: vec![],
        };
        let error = SqlError::new(SqlState::DataCorrupted, why.clone());
        Some((record, error))
    };
    files.iter().filter_map(broken).collect()
}
