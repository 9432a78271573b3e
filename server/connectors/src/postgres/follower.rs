//! What was committed behind a position, as the slot has it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_catalog::connector::postgres::PostgresDef;
use pgwire_replication::{Lsn, PgWireError, ReplicationClient, ReplicationEvent};

use super::pgoutput::{self, Message, TableInfo};
use super::{ANSWER, SILENCE, at, of_stream, replication, silent, silent_for};
use crate::source::ConnectorError;

/// What comes out of the slot.
pub struct Follower {
    client: ReplicationClient,
    tables: BTreeMap<u32, Arc<TableInfo>>,
    /// When the server last said something.
    heard: Instant,
}

/// One thing that comes.
#[derive(Debug)]
pub enum Event {
    Begin,
    /// With the tables that it changes, as they were then: a transaction may alter them between two changes.
    Change(Message, Vec<Arc<TableInfo>>),
    /// With the positions of its record and behind it, its time in microseconds since 1970-01-01 00:00 UTC.
    Commit {
        lsn: i64,
        end: i64,
        at: i64,
    },
    /// The server is this far, and has nothing else for us.
    Quiet {
        lsn: i64,
    },
}

impl Follower {
    /// Follows what was committed after a position.
    ///
    /// # Errors
    /// The slot is not there, or in use.
    pub async fn start(def: &PostgresDef, from: i64) -> Result<Follower, ConnectorError> {
        let config = replication(def, from).await?;
        let starting = async {
            let mut client = ReplicationClient::connect(config).await?;
            client.wait_started().await?;
            Ok::<_, PgWireError>(client)
        };
        let started = tokio::time::timeout(ANSWER, starting).await;
        let client = started
            .map_err(|_| silent(&def.place))?
            .map_err(|error| of_stream(&def.place, &error))?;
        Ok(Follower {
            client,
            tables: BTreeMap::new(),
            heard: Instant::now(),
        })
    }

    /// What comes next. If the call is dropped, nothing is lost.
    ///
    /// # Errors
    /// The connection is lost, or nothing came for too long; the server tells what we do not understand.
    pub async fn next(&mut self, def: &PostgresDef) -> Result<Event, ConnectorError> {
        loop {
            let until = tokio::time::Instant::from_std(self.heard + SILENCE);
            let received = tokio::time::timeout_at(until, self.client.recv()).await;
            let received = received.map_err(|_| silent_for(&def.place, SILENCE))?;
            self.heard = Instant::now();
            let received = received.map_err(|error| of_stream(&def.place, &error))?;
            let Some(event) = received else {
                return Err(ConnectorError::passing(format!(
                    "{} has ended the connection",
                    at(&def.place)
                )));
            };
            return Ok(match event {
                ReplicationEvent::Begin { .. } => Event::Begin,
                ReplicationEvent::Commit {
                    lsn,
                    end_lsn,
                    commit_time_micros,
                } => Event::Commit {
                    lsn: lsn.as_u64() as i64,
                    end: end_lsn.as_u64() as i64,
                    at: commit_time_micros + POSTGRES_EPOCH,
                },
                ReplicationEvent::KeepAlive { wal_end, .. } => Event::Quiet {
                    lsn: wal_end.as_u64() as i64,
                },
                ReplicationEvent::XLogData { data, .. } => {
                    let message = pgoutput::decode(&data).map_err(|why| {
                        ConnectorError::passing(format!(
                            "{} sent a message that is not understood: {why}",
                            at(&def.place)
                        ))
                    })?;
                    match message {
                        Message::Table(table) => {
                            self.tables.insert(table.id, Arc::new(table));
                            continue;
                        }
                        Message::Other => continue,
                        message => {
                            let table = |id: u32| self.tables.get(&id).cloned();
                            let tables: Option<Vec<_>> = message.tables().into_iter().map(table).collect();
                            let tables = tables.ok_or_else(|| {
                                ConnectorError::passing("a change is of a table that was not described")
                            })?;
                            Event::Change(message, tables)
                        }
                    }
                }
                ReplicationEvent::Message { .. } | ReplicationEvent::StoppedAt { .. } => continue,
            });
        }
    }

    /// Everything up to here is kept by us.
    pub fn confirm(&self, lsn: i64) {
        self.client.update_applied_lsn(Lsn::from_u64(lsn as u64));
    }

    /// Gives the connection back.
    pub async fn close(mut self) {
        let closing = tokio::time::timeout(Duration::from_secs(2), self.client.shutdown()).await;
        if !matches!(closing, Ok(Ok(()))) {
            tracing::debug!("a connection that followed PostgreSQL was not closed cleanly");
        }
    }
}

/// 2000-01-01, in microseconds since 1970-01-01.
const POSTGRES_EPOCH: i64 = 946_684_800_000_000;
