//! A PostgreSQL server at work: its transactions become writes over the tables that follow it.
//!
//! ```text
//!  slot --transactions--> changes of each table --> one write: all tables, a row of the server's stream, and the place as its note
//! ```
//! What was committed together is written together; where there is more than one transaction to be had, several are one write. A table
//! that is new is copied first, at a snapshot: of what is committed behind that nothing is left out, and nothing is taken twice.

mod copying;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use millrace_catalog::connector::postgres::{Postgres, PostgresDef};
use millrace_catalog::{Object, Relation};
use millrace_connectors::decode::BadRecord;
use millrace_connectors::postgres::{
    Event, Followed, Follower, Message, Server, TableInfo, lsn_text, made_again,
};
use millrace_connectors::source::{ConnectorError, Record};
use millrace_engine::{Runtime, TableLocks};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, ObjectId};
use tokio::sync::watch;

use super::following::{ByName, Following, Gathered, Made, news};
use super::place::{Note, Place};
use super::records::Errors;
use super::task::{End, Retry, Stopped, of_runtime, of_sql, told, write_down};
use super::{Progress, State};
use crate::database::Database;

/// After so many changes what is whole is written, though there is more.
const CHANGES_MAX: usize = 65_536;
/// A transaction may have so many bytes of values.
const TRANSACTION_BYTES_MAX: usize = 1 << 30;
/// How long dropping a slot may take.
const DROP: Duration = Duration::from_secs(5);
/// How often it is asked how far we are behind.
const LAG_EVERY: Duration = Duration::from_secs(2);
/// The same while nothing is read.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// How often a position is kept of a server that has nothing for us, so that it can remove its log.
const QUIET_EVERY: Duration = Duration::from_secs(5);

/// Looks whether a server can be followed.
///
/// # Errors
/// It cannot, or does not answer.
pub(super) async fn probe(def: &PostgresDef) -> Result<(), ConnectorError> {
    let server = Server::connect(def).await?;
    match server.slot(def).await? {
        Some(_) => Err(slot_is_there(def)),
        None => Ok(()),
    }
}

/// Removes the slot of a server that is followed no more.
///
/// # Errors
/// It does not answer.
pub(super) async fn drop_slot(def: &PostgresDef) -> Result<(), ConnectorError> {
    let dropping = async { Server::connect(def).await?.drop_slot(def).await };
    let dropped = tokio::time::timeout(DROP, dropping).await;
    dropped.unwrap_or_else(|_| Err(ConnectorError::passing("the server did not answer in time")))
}

/// Asks again and again what a server holds back for a source that reads nothing, until it is told to stop.
pub(super) async fn ask(def: &PostgresDef, progress: &watch::Sender<Progress>, stopped: &Stopped) {
    loop {
        let asking = async { Server::connect(def).await?.behind(def).await };
        let behind = tokio::select! {
            behind = asking => behind,
            () = told(stopped) => return,
        };
        progress.send_modify(|progress| progress.lag_bytes = behind.ok().flatten());
        tokio::select! {
            () = tokio::time::sleep(ASK_EVERY) => {}
            () = told(stopped) => return,
        }
    }
}

fn slot_is_there(def: &PostgresDef) -> ConnectorError {
    ConnectorError::lasting(
        format!("slot \"{}\" already exists", def.slot),
        format!(
            "Choose another slot.name, or drop the slot there if nobody needs it: SELECT pg_drop_replication_slot('{}').",
            def.slot
        ),
    )
}

/// See the module.
pub(super) struct Replicating {
    db: Weak<Database>,
    runtime: Runtime,
    id: ObjectId,
    name: String,
    stream: SchemaRef,
    errors: Errors,
    def: PostgresDef,
    progress: watch::Sender<Progress>,
}

/// A transaction that was committed.
#[derive(Debug, Clone, Copy)]
struct Transaction {
    lsn: i64,
    /// In microseconds since 1970-01-01 00:00 UTC.
    at: i64,
    changes: usize,
}

/// Transactions that are written together.
#[derive(Default)]
struct Batch {
    tables: BTreeMap<ObjectId, Gathered>,
    /// Of each change the position of its transaction.
    positions: Vec<i64>,
    transactions: Vec<Transaction>,
    bytes: usize,
}

impl Replicating {
    pub fn new(
        db: &Arc<Database>,
        object: &Object,
        relation: &Relation,
        def: PostgresDef,
        progress: watch::Sender<Progress>,
    ) -> Replicating {
        Replicating {
            db: Arc::downgrade(db),
            runtime: db.runtime().clone(),
            id: object.id,
            name: object.described(),
            stream: Arc::clone(relation.schema()),
            errors: Errors::new(db, relation, def.stops_on_error),
            def,
            progress,
        }
    }

    /// Follows until it is told to stop, or somebody must do something.
    pub async fn run(self, stopped: Stopped) {
        let mut retry = Retry::new(&self.db, self.id, &self.name, &self.progress);
        loop {
            let Err(end) = self.follow(&stopped).await;
            if !retry.after(end, &stopped).await {
                break;
            }
        }
        if self.progress.borrow().state == State::Failed {
            ask(&self.def, &self.progress, &stopped).await;
        }
    }

    async fn follow(&self, stopped: &Stopped) -> Result<Infallible, End> {
        let mut place = self.progress.borrow().place.clone();
        let beginning = async {
            let tables = self.tables().map_err(of_sql)?;
            let server = Server::connect(&self.def).await?;
            if place
                .position
                .of
                .as_ref()
                .is_some_and(|system| *system != server.system)
            {
                return Err(End::Failed(ConnectorError::lasting(
                    format!(
                        "another PostgreSQL server is at {}:{} now",
                        self.def.place.host, self.def.place.port
                    ),
                    "Rows already read are kept. Create another stream for the new server.",
                )));
            }
            place.position.of = Some(server.system.clone());
            let followed = self.followed(&tables, &place);
            for table in tables.values().flatten() {
                let is_copied = place.tables.contains_key(&table.id.0);
                let new = table.check(&self.def, &server, is_copied).await?;
                // Of one that is not copied yet all columns are; what others lack comes with the first change that has it.
                if !is_copied && let Some(wanted) = table.consider(new)? {
                    return Err(End::Wants(wanted));
                }
            }
            server.publish(&self.def, &followed).await?;
            self.copy_new(&server, &tables, &mut place, stopped).await?;
            let follower = Follower::start(&self.def, lsn(&place).unwrap_or_default()).await?;
            Ok::<_, End>((tables, server, follower))
        };
        let (tables, server, mut follower) = tokio::select! {
            begun = beginning => begun?,
            () = told(stopped) => return Err(End::Stopped),
        };
        self.progress.send_modify(|progress| {
            progress.state = State::Running;
            progress.error = None;
        });
        let outcome = self
            .stream(&server, &mut follower, &tables, &mut place, stopped)
            .await;
        follower.close().await;
        outcome
    }

    /// The tables as the server knows them. One that was dropped here meanwhile needs nothing.
    fn followed(&self, tables: &ByName, place: &Place) -> Vec<Followed> {
        let catalog = self.db.upgrade().map(|db| db.catalog());
        let is_here = |table: &&Arc<Following>| {
            (catalog.as_ref()).is_some_and(|catalog| catalog.object(table.id).is_some())
        };
        let followed = |table: &Arc<Following>| Followed {
            schema: table.upstream.schema.clone(),
            name: table.upstream.name.clone(),
            columns: table.column_names(),
            is_copied: place.tables.contains_key(&table.id.0),
            oid: place.oids.get(&table.id.0).copied(),
        };
        tables.values().flatten().filter(is_here).map(followed).collect()
    }

    /// The tables that follow the server now.
    fn tables(&self) -> SqlResult<ByName> {
        let mut tables = ByName::new();
        let Some(db) = self.db.upgrade() else {
            return Ok(tables);
        };
        for object in db.catalog().objects() {
            let relation = object.relation().filter(|_| object.depends.contains(&self.id));
            let Some((relation, connector)) =
                relation.and_then(|relation| Some((relation, relation.connector.as_ref()?)))
            else {
                continue;
            };
            if let Some(Postgres::Table(upstream)) = connector.postgres()? {
                let name = (upstream.schema.clone(), upstream.name.clone());
                let table = Following::new(&db, object, relation, upstream, self.def.schema_change)?;
                tables.entry(name).or_default().push(Arc::new(table));
            }
        }
        Ok(tables)
    }

    fn rows_of(&self, locks: &TableLocks, table: &Following) -> Result<RecordBatch, ConnectorError> {
        self.runtime
            .rows_of_table(locks, table.relation)
            .map_err(of_runtime)
    }

    async fn make(&self, table: &Arc<Following>, gathered: Gathered) -> Result<Made, ConnectorError> {
        let table = Arc::clone(table);
        let work = move || table.make(gathered);
        let computed = self
            .runtime
            .compute(QueryClass::Stream, work)
            .map_err(of_runtime)?;
        computed.await.map_err(of_runtime)
    }

    /// What becomes of changes that are no rows.
    fn bad(
        &self,
        made: &Made,
        bad: &[BadRecord],
        position: &dyn Fn(usize) -> i64,
    ) -> Result<Option<(RelationId, ChangeBatch)>, ConnectorError> {
        let record = |bad: &BadRecord| Record {
            split: 0,
            offset: position(bad.at),
            timestamp_ms: None,
            key: Some(made.name.clone().into()),
            value: made.text(bad.at).map(Into::into),
            headers: vec![],
        };
        let records: Vec<Record> = bad.iter().map(record).collect();
        let told: Vec<(&Record, &SqlError)> = records.iter().zip(bad.iter().map(|bad| &bad.error)).collect();
        self.errors.of(&told, self.runtime.now())
    }

    async fn stream(
        &self,
        server: &Server,
        follower: &mut Follower,
        tables: &ByName,
        place: &mut Place,
        stopped: &Stopped,
    ) -> Result<Infallible, End> {
        let mut batch = Batch::default();
        // The changes of the transaction that is under way.
        let (mut open, mut open_bytes, mut is_inside) = (vec![], 0, false);
        let (mut asked, mut kept) = (Instant::now(), Instant::now());
        let mut told_of = BTreeSet::new();
        loop {
            // What is whole waits for more only if there is more already.
            let is_whole = !batch.transactions.is_empty();
            let event = tokio::select! {
                biased;
                event = follower.next(&self.def) => Some(event?),
                () = std::future::ready(()), if is_whole => None,
                () = told(stopped) => return Err(End::Stopped),
                () = tokio::time::sleep(LAG_EVERY) => None,
            };
            let is_all = event.is_none();
            match event {
                Some(Event::Begin) => (open, open_bytes, is_inside) = (vec![], 0, true),
                Some(Event::Change(message, of)) => {
                    open_bytes += message.bytes();
                    if open_bytes > TRANSACTION_BYTES_MAX {
                        let most = TRANSACTION_BYTES_MAX >> 20;
                        return Err(End::Failed(ConnectorError::lasting(
                            format!("a transaction has more than {most} MB of values"),
                            "An upstream transaction is written as a whole and must fit into memory.",
                        )));
                    }
                    open.push((message, of));
                }
                Some(Event::Commit { lsn, end, at }) => {
                    if let Some(end) = news(&open, tables, (lsn, place)) {
                        // What was committed before is written, so that it goes on with this transaction.
                        if !batch.transactions.is_empty() {
                            let whole = std::mem::take(&mut batch);
                            self.write_batch(whole, tables, place, stopped).await?;
                        }
                        return Err(end);
                    }
                    let before = batch.positions.len();
                    is_inside = false;
                    for (message, of) in open.drain(..) {
                        self.gather(&mut batch, &message, &of, tables, (lsn, place), &mut told_of)?;
                    }
                    batch.bytes += open_bytes;
                    place.position.splits.insert(0, end);
                    batch.transactions.push(Transaction {
                        lsn,
                        at,
                        changes: batch.positions.len() - before,
                    });
                }
                Some(Event::Quiet { lsn: quiet }) => {
                    let is_idle = !is_whole && !is_inside && kept.elapsed() > QUIET_EVERY;
                    if is_idle && Some(quiet) > lsn(place) {
                        place.position.splits.insert(0, quiet);
                        self.keep(place)?;
                        follower.confirm(quiet);
                        kept = Instant::now();
                    }
                }
                None => {}
            }
            if asked.elapsed() > LAG_EVERY {
                let behind = server.behind(&self.def).await?;
                self.progress.send_modify(|progress| progress.lag_bytes = behind);
                server.check(&self.def, &self.followed(tables, place)).await?;
                asked = Instant::now();
            }
            let is_enough = batch.positions.len() >= CHANGES_MAX || batch.bytes > TRANSACTION_BYTES_MAX / 4;
            if !batch.transactions.is_empty() && (is_all || is_enough) {
                let whole = std::mem::take(&mut batch);
                self.write_batch(whole, tables, place, stopped).await?;
                follower.confirm(lsn(place).unwrap_or_default());
            }
        }
    }

    /// Has the catalog keep a place at which there was nothing to be written.
    fn keep(&self, place: &Place) -> Result<(), ConnectorError> {
        let Some(db) = self.db.upgrade() else {
            return Ok(());
        };
        let kept = db.put_place(self.id, place);
        kept.map_err(|error| ConnectorError::passing(error.to_string()))?;
        self.progress
            .send_modify(|progress| progress.place.clone_from(place));
        Ok(())
    }

    /// Takes a change of a transaction into what is to be written.
    fn gather(
        &self,
        batch: &mut Batch,
        message: &Message,
        of: &[Arc<TableInfo>],
        tables: &ByName,
        (at, place): (i64, &mut Place),
        told_of: &mut BTreeSet<String>,
    ) -> Result<(), ConnectorError> {
        for info in of {
            if told_of.insert(format!("{}/{}.{}", info.id, info.schema, info.name)) {
                check_identity(tables, info, (at, place))?;
            }
            let name = (info.schema.clone(), info.name.clone());
            for table in tables.get(&name).into_iter().flatten() {
                // What the copy has already is not taken again.
                if place.tables.get(&table.id.0).is_none_or(|since| at < *since) {
                    continue;
                }
                if told_of.insert(format!("{}/{info:?}", table.id.0)) {
                    table.tell_of_columns(&self.name, info, told_of)?;
                }
                let sequence = batch.positions.len();
                batch.positions.push(at);
                let gathered = (batch.tables.entry(table.id)).or_insert_with(|| Gathered::of(table));
                gathered.take(table, info, message, sequence)?;
            }
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        mut batch: Batch,
        tables: &ByName,
        place: &Place,
        stopped: &Stopped,
    ) -> Result<(), End> {
        let mut work = vec![];
        for table in tables.values().flatten() {
            if let Some(gathered) = batch.tables.remove(&table.id) {
                work.push((table, self.make(table, gathered).await?));
            }
        }
        self.write(work, &batch.transactions, &batch.positions, place, stopped)
            .await
    }

    /// Writes what tables get, with rows for the transactions and the place.
    async fn write(
        &self,
        work: Vec<(&Arc<Following>, Made)>,
        transactions: &[Transaction],
        positions: &[i64],
        place: &Place,
        stopped: &Stopped,
    ) -> Result<(), End> {
        let ids: Vec<RelationId> = work.iter().map(|(table, _)| table.relation).collect();
        let locks = tokio::select! {
            locked = self.runtime.lock_tables(&ids) => locked.map_err(of_runtime)?,
            () = told(stopped) => return Err(End::Stopped),
        };
        let position = |at: usize| positions.get(at).copied().unwrap_or_default();
        let mut changes = vec![(RelationId(self.id.0), self.transaction_rows(transactions)?)];
        let (mut rows, mut failed) = (0, 0);
        for (table, mut made) in work {
            let decoded = std::mem::take(&mut made.changes);
            let batches = decoded.puts.iter().chain(&decoded.deletes);
            rows += batches.map(|(_, batch)| batch.num_rows() as u64).sum::<u64>();
            let stored = |keys: &[ArrayRef]| {
                let rows = self.runtime.rows_of_keys(&locks, table.relation, keys);
                rows.map_err(from_internal::runtime)
            };
            let cleared = match made.is_cleared {
                true => Some(self.rows_of(&locks, table)?),
                false => None,
            };
            let (changed, bad) = table.target.resolve(decoded, cleared, stored).map_err(of_sql)?;
            failed += bad.len() as u64;
            changes.extend(self.bad(&made, &bad, &position)?);
            changes.extend(changed.into_iter().map(|changed| (table.relation, changed)));
        }
        let note = Note {
            source: self.id,
            position: place.position.clone(),
            times: None,
            tables: place.tables.clone(),
            oids: place.oids.clone(),
        };
        let written = write_down(&self.runtime, changes, Some(&locks), &note, stopped).await?;
        drop(locks);
        self.progress.send_modify(|progress| {
            progress.rows += rows;
            progress.bad += failed;
            let newest = transactions.last().map(|transaction| transaction.at / 1_000);
            progress.newest_ms = newest.or(progress.newest_ms);
            progress.place.clone_from(place);
        });
        // What is written goes through the views before there is much more.
        tokio::select! {
            waited = self.runtime.keep_up(&written) => Ok(waited.map_err(of_runtime)?),
            () = told(stopped) => Err(End::Stopped),
        }
    }

    /// Rows of the server's stream.
    fn transaction_rows(&self, transactions: &[Transaction]) -> Result<ChangeBatch, ConnectorError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(
                transactions.iter().map(|transaction| lsn_text(transaction.lsn)),
            )),
            Arc::new(
                TimestampMicrosecondArray::from_iter_values(
                    transactions.iter().map(|transaction| transaction.at),
                )
                .with_timezone("UTC"),
            ),
            Arc::new(Int64Array::from_iter_values(
                transactions.iter().map(|transaction| transaction.changes as i64),
            )),
        ];
        let cast = (columns.iter().zip(self.stream.fields()))
            .map(|(column, field)| arrow::compute::cast(column, field.data_type()));
        let rows = cast
            .collect::<Result<Vec<_>, _>>()
            .and_then(|columns| RecordBatch::try_new(Arc::clone(&self.stream), columns));
        let rows = rows.map_err(|error| ConnectorError::passing(error.to_string()))?;
        Ok(ChangeBatch::insertions(rows))
    }
}

/// Refuses the changes of another table than the one that was copied: it was dropped and made again, or its name is another's now. Which one
/// a server of before has copied is not known: then it is the first that comes.
fn check_identity(
    tables: &ByName,
    info: &TableInfo,
    (at, place): (i64, &mut Place),
) -> Result<(), ConnectorError> {
    for table in tables.values().flatten() {
        // What the copy has already may be of a table that had the name before.
        if place.tables.get(&table.id.0).is_none_or(|since| at < *since) {
            continue;
        }
        let upstream = &table.upstream;
        let has_name = upstream.schema == info.schema && upstream.name == info.name;
        match place.oids.get(&table.id.0) {
            Some(oid) if (*oid == info.id) != has_name => {
                return Err(made_again(&upstream.schema, &upstream.name));
            }
            None if has_name => drop(place.oids.insert(table.id.0, info.id)),
            _ => {}
        }
    }
    Ok(())
}

/// Up to where the server's log was read.
fn lsn(place: &Place) -> Option<i64> {
    place.position.splits.get(&0).copied()
}
