//! What streams are fed by: one task a stream, of one registry.
//!
//! ```text
//!  reader --records--> decode --rows--> one write: rows, bad records, and the place as its note --> the log, the views
//!     ^                                                        |
//!     `---- from the newest note, after a restart -------------'
//! ```
//! A record is in the stream if and only if the place is behind it, so each is there once, whatever crash comes in between, and no
//! checkpoint is needed. When retention removes the newest note, the catalog has the place. A write waits for room as any other
//! does; meanwhile nothing is fetched. Rows of a generator are a function of their number, and the log tells how many there are.

mod filling;
mod following;
mod generating;
mod news;
mod place;
mod reading;
mod records;
mod replicating;
mod splits;
mod tables;
mod task;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::postgres::Postgres;
use millrace_catalog::scope::Scope;
use millrace_catalog::{Object, Relation};
use millrace_connectors::connect;
use millrace_connectors::source::{ConnectorError, Position};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, LogNote, ObjectId, StorageError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) use self::place::{noted, source_of};
pub(super) use self::records::kept_rows;
pub use self::records::{error_columns, file_columns};
pub use millrace_connectors::connect::columns as known_columns;

use self::place::{Note, Place, Times};
use self::reading::Reading;
use self::records::{Rows, check_columns};
use self::replicating::Replicating;
use crate::database::Database;

/// How long a look at a source may take when a stream is made.
const PROBE: Duration = Duration::from_secs(15);

/// The facts that hold the place of a source, that it is paused, and that its slot is being made.
pub fn facts(stream: ObjectId) -> [String; 3] {
    ["source", "paused", "slot"].map(|what| format!("{what}/{}", stream.0))
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
    /// Somebody has said so.
    Paused,
    /// There is no more to come.
    Ended,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Retrying => "retrying",
            State::Failed => "failed",
            State::Paused => "paused",
            State::Ended => "ended",
        }
    }
}

/// How far a source is.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub state: State,
    /// Records that became rows, and those that did not: since the start, or, of a generator, since the stream was made.
    pub rows: u64,
    pub bad: u64,
    pub place: Place,
    /// Records that are there and were not read, where there are such.
    pub lag_records: Option<u64>,
    /// What a PostgreSQL server holds back of its log because we have not confirmed it.
    pub lag_bytes: Option<u64>,
    /// The time of the newest record that was read, in milliseconds since 1970-01-01 00:00 UTC.
    pub newest_ms: Option<i64>,
    pub error: Option<String>,
    /// How often it has failed since it was started.
    failures: u32,
    /// When the next rows of a generator are due, in microseconds, if it has a rate.
    due: Option<i64>,
}

impl Progress {
    /// How far what was read is behind, in milliseconds: nothing if there is nothing else to be read.
    pub fn lag_ms(&self, now_ms: i64) -> Option<i64> {
        match self.lag_records? {
            0 => Some(0),
            _ => Some((now_ms - self.newest_ms?).max(0)),
        }
    }
}

/// What a generator was told.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub rows_max: Option<u64>,
    /// Rows a second.
    pub rate: Option<u64>,
}

/// A source as `mr_catalog` has it.
#[derive(Debug, Clone)]
pub struct SourceInfo {
    pub stream: ObjectId,
    /// If it is a generator.
    pub made: Option<Made>,
    pub progress: Progress,
}

/// The tasks, by stream, and what the logs said of their places.
#[derive(Default)]
pub struct Sources {
    tasks: Mutex<BTreeMap<ObjectId, Task>>,
    found: Mutex<HashMap<ObjectId, Place>>,
    /// Held while one is stopped to be started again.
    restarting: tokio::sync::Mutex<()>,
}

/// One source. It is asked to stop, so that what is being written is counted.
struct Task {
    made: Option<Made>,
    progress: watch::Receiver<Progress>,
    stop: watch::Sender<bool>,
    /// None: it is paused.
    running: Option<JoinHandle<()>>,
    /// Of one that is paused: what asks how much a server holds back for it.
    asking: Option<JoinHandle<()>>,
}

impl Sources {
    /// All of them.
    pub fn list(&self) -> Vec<SourceInfo> {
        let tasks = self.tasks.lock();
        let info = |(stream, task): (&ObjectId, &Task)| {
            let mut progress = task.progress.borrow().clone();
            if task.running.is_none() {
                progress.state = State::Paused;
                progress.lag_records = None;
                progress.lag_bytes = progress.lag_bytes.filter(|_| task.asking.is_some());
            }
            SourceInfo {
                stream: *stream,
                made: task.made,
                progress,
            }
        };
        tasks.iter().map(info).collect()
    }

    /// Takes over what the logs know: the notes, the oldest first.
    pub(super) fn restore(&self, notes: &[LogNote]) {
        let mut found = self.found.lock();
        for note in notes {
            if let Ok(note) = serde_json::from_slice::<Note>(&note.note) {
                let Note {
                    source,
                    position,
                    times,
                    tables,
                    oids,
                } = note;
                let place = Place {
                    position,
                    times,
                    tables,
                    oids,
                };
                found.entry(source).or_default().advance(place);
            }
        }
    }

    /// Says where the source of a stream begins that is about to be made.
    pub fn begin(&self, stream: ObjectId, position: Position) {
        let place = Place {
            position,
            ..Place::default()
        };
        self.found.lock().insert(stream, place);
    }

    /// The place of a source; none of one that could not be started, or has not begun.
    fn place(&self, stream: ObjectId) -> Option<Place> {
        let tasks = self.tasks.lock();
        let place = tasks.get(&stream)?.progress.borrow().place.clone();
        Some(place).filter(|place| !place.position.is_beginning())
    }

    /// Waits for generators that have an end and no rate.
    pub async fn ended(&self) {
        let is_finite = |made: &Made| made.rows_max.is_some() && made.rate.is_none();
        self.wait(is_finite, |_| false).await;
    }

    /// Waits until all rows of generators that are due by now are written.
    pub async fn follow(&self, now: i64) {
        let is_ahead = move |progress: &Progress| progress.due.is_some_and(|due| due > now);
        self.wait(|made| made.rate.is_some(), is_ahead).await;
    }

    async fn wait(&self, which: impl Fn(&Made) -> bool, is_enough: impl Fn(&Progress) -> bool) {
        let waits: Vec<watch::Receiver<Progress>> = {
            let tasks = self.tasks.lock();
            (tasks.values())
                .filter(|task| task.running.is_some() && task.made.as_ref().is_some_and(&which))
                .map(|task| task.progress.clone())
                .collect()
        };
        let is_enough = &is_enough;
        join_all(waits.into_iter().map(|mut progress| async move {
            // One that is stopped meanwhile is not waited for.
            let _ = progress
                .wait_for(|progress| {
                    matches!(progress.state, State::Ended | State::Failed) || is_enough(progress)
                })
                .await;
        }))
        .await;
    }

    /// Stops one, whose stream is dropped.
    pub async fn stop(&self, stream: ObjectId) {
        self.halt(stream).await;
        self.tasks.lock().remove(&stream);
        self.found.lock().remove(&stream);
    }

    /// Stops all of them.
    pub async fn stop_all(&self) {
        let streams: Vec<ObjectId> = self.tasks.lock().keys().copied().collect();
        for stream in streams {
            self.stop(stream).await;
        }
    }

    /// Stops one for now; what it was writing is written, and counts: it is started again from there.
    async fn halt(&self, stream: ObjectId) {
        let stopped = {
            let mut tasks = self.tasks.lock();
            tasks.get_mut(&stream).map(|task| {
                task.stop.send_replace(true);
                [task.running.take(), task.asking.take()]
            })
        };
        for work in stopped.into_iter().flatten().flatten() {
            let _ = work.await;
        }
        if let Some(place) = self.place(stream) {
            self.found.lock().insert(stream, place);
        }
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
        if let Some(Postgres::Server(def)) = connector.postgres()? {
            let probing = replicating::probe(&def);
            let probed = tokio::time::timeout(PROBE, probing).await;
            let probed =
                probed.unwrap_or_else(|_| Err(ConnectorError::passing("the server did not answer in time")));
            return probed.map(|()| None).map_err(ConnectorError::into_sql);
        }
        let Some(rows) = Rows::new(self, scope, relation, connector)? else {
            return Ok(None);
        };
        let beginning = Position::default();
        let nothing = vec![];
        let opening = connect::open(connector, rows.encoding(), rows.names(), &beginning, &nothing);
        let opened = tokio::time::timeout(PROBE, opening).await.unwrap_or_else(|_| {
            Err(ConnectorError::passing(format!(
                "the source did not answer within {} seconds",
                PROBE.as_secs()
            )))
        });
        let mut reader = opened.map_err(ConnectorError::into_sql)?;
        let position = reader.position();
        reader.close().await;
        check_columns(connector, relation).await?;
        Ok(Some(position))
    }

    /// Starts what feeds an object, if it is one that is fed and nobody has paused that.
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
        let (stop, stopped) = watch::channel(false);
        let is_paused = self.is_paused(object.id)?;
        let (tell, progress) = watch::channel(Progress::default());
        let at = |place: Place| tell.send_modify(|progress| progress.place = place);
        let mut made = None;
        let work: BoxFuture<'static, ()> = if let Some(source) = connector.source(&relation.columns)? {
            made = Some(Made {
                rows_max: source.generator.rows_max(),
                rate: source.rate,
            });
            let filling = self.filling(object, relation, &scope, source, tell)?;
            Box::pin(filling.run(stopped))
        } else if let Some(Postgres::Server(def)) = connector.postgres()? {
            at(self.beginning(object.id)?);
            let replicating = Replicating::new(self, object, relation, *def, tell);
            Box::pin(replicating.run(stopped))
        } else if let Some(rows) = Rows::new(self, &scope, relation, connector)? {
            at(self.beginning(object.id)?);
            let reading = Reading::new(self, object, relation, connector, rows, tell)?;
            Box::pin(reading.run(stopped))
        } else {
            return Ok(());
        };
        let task = Task {
            made,
            progress,
            stop,
            running: (!is_paused).then(|| tokio::spawn(work)),
            asking: None,
        };
        self.sources.tasks.lock().insert(object.id, task);
        if is_paused {
            self.ask_for(object)?;
        }
        Ok(())
    }

    /// Has it asked what the server of a source that is paused holds back for it.
    fn ask_for(&self, object: &Object) -> SqlResult<()> {
        let connector = object.relation().and_then(|relation| relation.connector.as_ref());
        let Some(Postgres::Server(def)) = connector.map(ConnectorDef::postgres).transpose()?.flatten() else {
            return Ok(());
        };
        let mut tasks = self.sources.tasks.lock();
        if let Some(task) = tasks.get_mut(&object.id) {
            let mut last = task.progress.borrow().clone();
            last.lag_bytes = None;
            let (tell, progress) = watch::channel(last);
            let (stop, stopped) = watch::channel(false);
            (task.progress, task.stop) = (progress, stop);
            task.asking = Some(tokio::spawn(async move {
                replicating::ask(&def, &tell, &stopped).await
            }));
        }
        Ok(())
    }

    /// As [`start_source`](Self::start_source), where nothing else depends on it: what cannot be started has failed.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn start_source_or_say(self: &Arc<Self>, object: &Object) -> SqlResult<()> {
        let Err(error) = self.start_source(object) else {
            return Ok(());
        };
        tracing::error!(
            stream = object.described(),
            error = error.message,
            "a source cannot be started"
        );
        let (_, progress) = watch::channel(Progress {
            state: State::Failed,
            error: Some(error.message.clone()),
            ..Progress::default()
        });
        let task = Task {
            made: None,
            progress,
            stop: watch::channel(false).0,
            running: Some(tokio::spawn(async {})),
            asking: None,
        };
        self.sources.tasks.lock().insert(object.id, task);
        Err(error)
    }

    /// From where a source is read.
    fn beginning(&self, stream: ObjectId) -> Result<Place, StorageError> {
        let found = self.sources.found.lock().remove(&stream).unwrap_or_default();
        match self.store().catalog().fact(&facts(stream)[0])? {
            Some(bytes) => {
                let mut place = Place::of_fact(&bytes).unwrap_or_default();
                if !found.position.is_beginning() {
                    // Either may be the newer one.
                    let kept = place.position.clone();
                    place.advance(found);
                    place.position.at_least(&kept);
                }
                Ok(place)
            }
            // Where it begins, of every split: what "latest" means is settled once.
            None => {
                self.put_place(stream, &found)?;
                Ok(found)
            }
        }
    }

    /// Stops what feeds an object that is dropped. What it has elsewhere goes with it, if that can be.
    pub(crate) async fn stop_source(&self, object: &Object) {
        let place = self.sources.place(object.id);
        self.sources.stop(object.id).await;
        let connector = object.relation().and_then(|relation| relation.connector.as_ref());
        let followed = connector.and_then(|connector| connector.postgres().ok().flatten());
        if let (Some(Postgres::Server(def)), Some(_)) = (followed, place)
            && let Err(error) = replicating::drop_slot(&def).await
        {
            tracing::error!(
                stream = object.described(),
                slot = def.slot,
                error = error.message,
                "the replication slot of a dropped stream could not be dropped; its server keeps its log for it"
            );
        }
    }

    /// Stops what feeds a stream until it is resumed, also over a restart.
    ///
    /// # Errors
    /// It is fed by nothing; the catalog cannot be written.
    pub async fn pause_source(&self, object: &Object) -> SqlResult<()> {
        self.known_source(object)?;
        self.store().catalog().put_fact(&facts(object.id)[1], b"1")?;
        self.sources.halt(object.id).await;
        self.ask_for(object)
    }

    /// Goes on with what feeds a stream: from where it was paused, or where it failed.
    ///
    /// # Errors
    /// It is fed by nothing; the catalog cannot be written.
    pub async fn resume_source(self: &Arc<Self>, object: &Object) -> SqlResult<()> {
        self.known_source(object)?;
        let key = facts(object.id)[1].clone();
        let catalog = self.store().catalog();
        catalog.apply(vec![CatalogChange::RemoveFact { key }])?;
        self.restart_source(object, async || Ok(())).await
    }

    fn is_paused(&self, source: ObjectId) -> Result<bool, StorageError> {
        Ok(self.store().catalog().fact(&facts(source)[1])?.is_some())
    }

    /// Does something while nothing is fed into a relation.
    ///
    /// # Errors
    /// Those of what is done.
    pub async fn restart_source<T>(
        self: &Arc<Self>,
        object: &Object,
        during: impl AsyncFnOnce() -> SqlResult<T>,
    ) -> SqlResult<T> {
        // One after the other, or there would be two tasks.
        let _turn = self.sources.restarting.lock().await;
        let feeder = self.feeder(object);
        if let Some(feeder) = feeder {
            self.sources.halt(feeder).await;
        }
        let outcome = during().await;
        if let Some(object) = feeder.and_then(|feeder| self.catalog().object(feeder).cloned()) {
            // What a generator has made is told by the log.
            if let Some(relation) = object.relation() {
                self.runtime().settled(relation.info.id).await?;
            }
            self.start_source_or_say(&object)?;
        }
        outcome
    }

    /// What has the task that feeds an object: itself, or the stream of a server that a table follows.
    fn feeder(&self, object: &Object) -> Option<ObjectId> {
        let tasks = self.sources.tasks.lock();
        let is_fed = object
            .relation()
            .is_some_and(|relation| relation.connector.is_some());
        let candidates = std::iter::once(&object.id).chain(&object.depends);
        candidates.copied().find(|id| is_fed && tasks.contains_key(id))
    }

    fn known_source(&self, object: &Object) -> SqlResult<()> {
        let refused = |what: String| Err(SqlError::new(SqlState::WrongObjectType, what));
        match self.feeder(object) {
            Some(feeder) if feeder == object.id => Ok(()),
            Some(feeder) => {
                let name = self.catalog().object(feeder).map(|feeder| feeder.described());
                let name = name.unwrap_or_default();
                refused(format!("{} is fed by {name}", object.described()))
                    .map_err(|error| error.with_hint("Name that one."))
            }
            None => refused(format!("nothing feeds {}", object.described())).map_err(|error| {
                error.with_hint(
                    "Only relations with connector 'kafka', 'postgres-cdc', 'file', 's3', 'datagen', 'nexmark' or 'ysb' are sources.",
                )
            }),
        }
    }

    /// Has the catalog keep the places of sources before notes are removed from the logs of these relations.
    pub(super) fn keep_position(&self, relation: u64) -> Result<(), StorageError> {
        let catalog = self.catalog();
        let of = catalog.objects().find(|object| {
            object.relation().is_some_and(|stream| {
                stream
                    .connector
                    .as_ref()
                    .is_some_and(|connector| connector.is_read())
                    && (std::iter::once(object.id).chain(stream.beside())).any(|id| id == ObjectId(relation))
            })
        });
        let Some((stream, place)) = of.and_then(|object| Some((object.id, self.sources.place(object.id)?)))
        else {
            return Ok(());
        };
        self.put_place(stream, &place)
    }

    /// Has the catalog keep the place of a source, so that no older note tells it; false: it is not known here, and notes may.
    pub(super) fn keep_place(&self, source: ObjectId) -> bool {
        match self.sources.place(source) {
            Some(place) => self.put_place(source, &place).is_ok(),
            None => self.catalog().object(source).is_none(),
        }
    }

    fn put_place(&self, stream: ObjectId, place: &Place) -> Result<(), StorageError> {
        let bytes = serde_json::to_vec(place).unwrap_or_default();
        self.store().catalog().put_fact(&facts(stream)[0], &bytes)
    }
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
                file: None,
            },
            times: None,
            tables: BTreeMap::new(),
            oids: BTreeMap::new(),
        };
        LogNote {
            written_at_ms: 0,
            write_id: 0,
            note: serde_json::to_vec(&note).unwrap(),
        }
    }

    #[test]
    fn a_place_is_put_together_from_notes() {
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
        assert_eq!(found[&ObjectId(1)].position.splits, [(0, 9), (1, 7)].into());
        assert_eq!(found[&ObjectId(2)].position.splits, [(0, 50)].into());
        assert_eq!(found.len(), 2);
    }

    #[tokio::test]
    async fn what_could_not_be_started_keeps_the_place_that_the_log_told() {
        let sources = Sources::default();
        sources.restore(&[note(1, &[(0, 5)])]);
        let task = Task {
            made: None,
            progress: watch::channel(Progress::default()).1,
            stop: watch::channel(false).0,
            running: Some(tokio::spawn(async {})),
            asking: None,
        };
        sources.tasks.lock().insert(ObjectId(1), task);
        assert_eq!(sources.place(ObjectId(1)), None);
        sources.halt(ObjectId(1)).await;
        assert_eq!(
            sources.found.lock()[&ObjectId(1)].position.splits,
            [(0, 5)].into()
        );
    }
}
