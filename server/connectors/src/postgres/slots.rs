//! The replication slot, and snapshots that are taken with one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_catalog::connector::postgres::PostgresDef;
use pgwire_replication::{Lsn, ReplicationClient};
use tokio_postgres::error::SqlState;

use super::{
    ANSWER, Server, at, literal, of_client, of_stream, quoted, replication, silent, texts, while_busy,
};
use crate::source::ConnectorError;

/// How long a slot may be in use that is to be dropped, and how often that is asked.
const SLOT_FREED: Duration = Duration::from_secs(4);
const SLOT_RETRY: Duration = Duration::from_millis(50);

/// A replication slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Up to where we have said that we have everything.
    pub confirmed: i64,
    pub is_lost: bool,
}

/// A moment in the server's history, as long as this is kept.
pub struct Snapshot {
    pub lsn: i64,
    pub(super) name: String,
    /// The connection that exported it.
    _held: ReplicationClient,
}

impl Server {
    /// The slot, if it is there.
    ///
    /// # Errors
    /// It is of another kind.
    pub async fn slot(&self, def: &PostgresDef) -> Result<Option<Slot>, ConnectorError> {
        let sql = format!(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint, coalesce(wal_status, ''), coalesce(plugin, ''), coalesce(database, '')
             FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let rows = self.rows(def, &sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
        if text(2).is_empty() || text(3).is_empty() {
            // By an attempt of ours that was broken off, perhaps.
            let what = format!("slot \"{}\" of {} is being made", def.slot, at(&def.place));
            return Err(ConnectorError::passing(what));
        }
        if text(2) != "pgoutput" || text(3) != def.place.database {
            return Err(ConnectorError::lasting(
                format!(
                    "slot \"{}\" of {} is for something else",
                    def.slot,
                    at(&def.place)
                ),
                "Choose another slot.name.",
            ));
        }
        Ok(Some(Slot {
            confirmed: text(0).parse().unwrap_or_default(),
            is_lost: text(1) == "lost",
        }))
    }

    /// Removes the slot. What has read from it until now may still be going, and is waited for.
    ///
    /// # Errors
    /// Somebody uses it.
    pub async fn drop_slot(&self, def: &PostgresDef) -> Result<(), ConnectorError> {
        let sql = format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let until = Instant::now() + SLOT_FREED;
        loop {
            let dropped = tokio::time::timeout(ANSWER, texts(&self.client, &sql)).await;
            match dropped.map_err(|_| silent(&def.place))? {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && Instant::now() < until => {
                    tokio::time::sleep(SLOT_RETRY).await;
                }
                Err(error) => return Err(of_client(&def.place, &error)),
            }
        }
    }

    /// How much of the server's log is not confirmed, in bytes; none: there is no slot, or it holds nothing back any more.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn behind(&self, def: &PostgresDef) -> Result<Option<u64>, ConnectorError> {
        let sql = format!(
            "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE slot_name = {}",
            literal(&def.slot)
        );
        let rows = self.rows(def, &sql).await?;
        Ok(rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok()))
    }
}

/// Makes the slot, or a temporary one, and a snapshot of what was there before everything that the slot has.
///
/// # Errors
/// The server refuses.
pub async fn snapshot(def: &PostgresDef, is_temporary: bool) -> Result<Snapshot, ConnectorError> {
    let config = replication(def, 0).await?;
    let connecting = tokio::time::timeout(ANSWER, ReplicationClient::connect_gated(config)).await;
    let mut client = connecting
        .map_err(|_| silent(&def.place))?
        .map_err(|error| of_stream(&def.place, &error))?;
    let (slot, temporary) = match is_temporary {
        true => (
            format!(
                "{}_{:08x}",
                def.slot.chars().take(50).collect::<String>(),
                rand::random::<u32>()
            ),
            "TEMPORARY ",
        ),
        false => (def.slot.clone(), ""),
    };
    let sql = format!(
        "CREATE_REPLICATION_SLOT {} {temporary}LOGICAL pgoutput EXPORT_SNAPSHOT",
        quoted(&slot)
    );
    // Transactions that are under way there end first, and that may take long. Until then the slot is there, and nowhere.
    let busy = format!(
        "SELECT 1 FROM pg_replication_slots WHERE slot_name = {} AND confirmed_flush_lsn IS NULL",
        literal(&slot)
    );
    let rows = while_busy(&def.place, &busy, client.simple_query(&sql)).await?;
    let rows = rows.map_err(|error| of_stream(&def.place, &error))?;
    let text = |at: usize| -> Option<String> {
        let cell: &Option<Bytes> = rows.first()?.get(at)?;
        Some(String::from_utf8_lossy(cell.as_ref()?).into_owned())
    };
    let (Some(lsn), Some(name)) = (text(1).and_then(|lsn| Lsn::parse(&lsn).ok()), text(2)) else {
        return Err(ConnectorError::passing(format!(
            "{} made a slot without a snapshot",
            at(&def.place)
        )));
    };
    Ok(Snapshot {
        lsn: lsn.as_u64() as i64,
        name,
        _held: client,
    })
}
