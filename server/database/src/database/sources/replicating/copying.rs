//! Tables that are copied before their changes are followed.

use std::sync::Arc;

use millrace_connectors::postgres::{self, Server, Snapshot, lsn_text};
use millrace_connectors::source::ConnectorError;
use millrace_storage::{ChangeBatch, StorageError};

use super::{Replicating, Transaction, lsn, slot_is_there};
use crate::database::sources::facts;
use crate::database::sources::following::{ByName, Following, Gathered};
use crate::database::sources::place::Place;
use crate::database::sources::task::{End, Stopped, of_runtime};

impl Replicating {
    /// Copies the tables that were not, and makes the slot.
    pub(super) async fn copy_new(
        &self,
        server: &Server,
        tables: &ByName,
        place: &mut Place,
        stopped: &Stopped,
    ) -> Result<(), End> {
        let def = &self.def;
        let again = "Rows already read are kept. To start over, create a new stream and tables.";
        let of_storage = |error: StorageError| ConnectorError::passing(error.to_string());
        let db = self.db.upgrade().ok_or(End::Stopped)?;
        let [_, _, making] = facts(self.id);
        let new: Vec<&Arc<Following>> = (tables.values().flatten())
            .filter(|table| !place.tables.contains_key(&table.id.0))
            .collect();
        let snapshot = match (lsn(place), server.slot(def).await?) {
            (None, slot) => {
                // One that was made before a crash is of no use: its snapshot is gone.
                if slot.is_some() {
                    match db.store().catalog().fact(&making).map_err(of_storage)? {
                        Some(_) => server.drop_slot(def).await?,
                        None => return Err(slot_is_there(def).into()),
                    }
                }
                db.store().catalog().put_fact(&making, b"1").map_err(of_storage)?;
                postgres::snapshot(def, false).await?
            }
            (Some(_), None) => {
                let what = format!("slot \"{}\" was dropped: changes since then are lost", def.slot);
                return Err(ConnectorError::lasting(what, again).into());
            }
            (Some(_), Some(slot)) if slot.is_lost => {
                let what = format!(
                    "slot \"{}\" has lost changes that were not read (max_slot_wal_keep_size)",
                    def.slot
                );
                return Err(ConnectorError::lasting(what, again).into());
            }
            (Some(at), Some(slot)) if slot.confirmed > at => {
                let what = format!(
                    "slot \"{}\" is at {} but was read up to {}: it was recreated, or another client reads it",
                    def.slot,
                    lsn_text(slot.confirmed),
                    lsn_text(at)
                );
                return Err(ConnectorError::lasting(what, again).into());
            }
            _ if new.is_empty() => return Ok(()),
            _ => postgres::snapshot(def, true).await?,
        };
        place.position.splits.entry(0).or_insert(snapshot.lsn);
        let mut rows = 0;
        for table in &new {
            let (copied, oid) = self.copy(server, &snapshot, table).await?;
            rows += copied;
            place.tables.insert(table.id.0, snapshot.lsn);
            place.oids.extend(oid.map(|oid| (table.id.0, oid)));
        }
        let copied = Transaction {
            lsn: snapshot.lsn,
            at: self.runtime.now(),
            changes: rows,
        };
        // With this it is so: until then a start copies again.
        self.write(vec![], &[copied], &[], place, stopped).await
    }

    /// Copies one table; returns how many rows it has, and which table it is.
    async fn copy(
        &self,
        server: &Server,
        snapshot: &Snapshot,
        table: &Arc<Following>,
    ) -> Result<(usize, Option<u32>), ConnectorError> {
        let locks = self
            .runtime
            .lock_tables(&[table.relation])
            .await
            .map_err(of_runtime)?;
        // What a copy that was broken off has left.
        let left = self.rows_of(&locks, table)?;
        if left.num_rows() > 0 {
            let gone = ChangeBatch {
                weights: Some(vec![-1; left.num_rows()].into()),
                rows: left,
            };
            let gone = self.runtime.append(vec![(table.relation, gone)], Some(&locks));
            gone.await.map_err(of_runtime)?;
        }
        let (mut copied, mut read, mut failed) = (0, 0, 0);
        let columns = table.column_names();
        let upstream = (&*table.upstream.schema, &*table.upstream.name);
        let mut copying = server.copy(&self.def, snapshot, upstream, &columns).await?;
        while let Some(rows) = copying.next().await? {
            let gathered = Gathered::copied(table, read, rows);
            read += gathered.len();
            let made = self.make(table, gathered).await?;
            let position = |_: usize| snapshot.lsn;
            failed += made.changes.bad.len() as u64;
            let mut changes = Vec::from_iter(self.bad(&made, &made.changes.bad, &position)?);
            for (_, rows) in made.changes.puts {
                copied += rows.num_rows();
                changes.push((table.relation, ChangeBatch::insertions(rows)));
            }
            self.runtime
                .append(changes, Some(&locks))
                .await
                .map_err(of_runtime)?;
        }
        self.progress.send_modify(|progress| progress.bad += failed);
        Ok((copied, copying.oid()))
    }
}
