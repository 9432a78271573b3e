//! What all tasks have in common that read: they try again, stop when they are told, and write what they read with where they are.

use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering};

use millrace_connectors::source::ConnectorError;
use millrace_engine::{LateRows, Runtime, RuntimeError, TableLocks, WriteOptions, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::SqlError;
use millrace_postgres::from_internal;
use millrace_storage::{ChangeBatch, ObjectId};
use tokio::sync::watch;

use super::news::{Wanted, take_over};
use super::{Note, Progress, State};
use crate::backoff::Backoff;
use crate::database::Database;

/// Why nothing more is read.
pub(super) enum End {
    Failed(ConnectorError),
    /// Columns are to be added first; whoever does that starts it again.
    Wants(Wanted),
    Stopped,
}

impl From<ConnectorError> for End {
    fn from(error: ConnectorError) -> Self {
        End::Failed(error)
    }
}

/// Is set when somebody says stop.
pub(super) type Stopped = watch::Receiver<bool>;

/// Waits until somebody says stop.
pub(super) async fn told(stopped: &Stopped) {
    let _ = stopped.clone().wait_for(|stopped| *stopped).await;
}

/// How it goes on after a failure.
pub(super) struct Retry<'t> {
    db: Weak<Database>,
    /// What has the task.
    source: ObjectId,
    name: &'t str,
    progress: &'t watch::Sender<Progress>,
    backoff: Backoff,
}

impl<'t> Retry<'t> {
    pub fn new(
        db: &Weak<Database>,
        source: ObjectId,
        name: &'t str,
        progress: &'t watch::Sender<Progress>,
    ) -> Self {
        Retry {
            db: Weak::clone(db),
            source,
            name,
            progress,
            backoff: Backoff::new(),
        }
    }

    /// Waits until there is to be another attempt; false: there is to be none, since it was stopped, or somebody must do something first.
    pub async fn after(&mut self, end: End, stopped: &Stopped) -> bool {
        let error = match end {
            End::Failed(error) => error,
            End::Stopped => return false,
            End::Wants(wanted) => {
                self.progress
                    .send_modify(|progress| progress.state = State::Starting);
                take_over(Weak::clone(&self.db), self.source, wanted);
                return false;
            }
        };
        let shown = match &error.hint {
            Some(hint) => format!("{}. {hint}", error.message),
            None => error.message.clone(),
        };
        self.progress.send_modify(|progress| {
            progress.state = match error.is_final {
                true => State::Failed,
                false => State::Retrying,
            };
            progress.error = Some(shown.clone());
            progress.failures += 1;
            // How far behind it is now nobody knows.
            (progress.lag_records, progress.lag_bytes) = (None, None);
        });
        if error.is_final {
            tracing::error!(stream = self.name, error = shown, "a source failed");
            return false;
        }
        tracing::warn!(stream = self.name, error = shown, "a source is tried again");
        tokio::select! {
            () = self.backoff.wait() => true,
            () = told(stopped) => false,
        }
    }
}

/// Writes changes, and where the source is behind them. Who stops it either finds the write undone, and it stays so, or waits for it.
pub(super) async fn write_down(
    runtime: &Runtime,
    changes: Vec<(RelationId, ChangeBatch)>,
    locks: Option<&TableLocks>,
    note: &Note,
    stopped: &Stopped,
) -> Result<WriteToken, End> {
    const OPEN: u8 = 0;
    const SUBMITTED: u8 = 1;
    const GIVEN_UP: u8 = 2;
    let bytes = serde_json::to_vec(note).map_err(|error| ConnectorError::passing(error.to_string()))?;
    let gate = AtomicU8::new(OPEN);
    let pass = |to: u8| {
        let passed = gate.compare_exchange(OPEN, to, Ordering::AcqRel, Ordering::Acquire);
        passed.is_ok()
    };
    let may = || pass(SUBMITTED);
    let noted = |_: &LateRows| bytes.clone();
    let options = WriteOptions {
        locks,
        note: &noted,
        may: &may,
        watermark: (note.times.as_ref()).map(|times| (RelationId(note.source.0), times.watermark)),
        ..WriteOptions::default()
    };
    let writing = runtime.append_with(changes, &options);
    tokio::pin!(writing);
    let written = tokio::select! {
        written = &mut writing => written,
        () = told(stopped) => match pass(GIVEN_UP) {
            true => return Err(End::Stopped),
            false => writing.await,
        },
    };
    Ok(written.map_err(of_runtime)?)
}

pub(super) fn of_sql(error: SqlError) -> ConnectorError {
    ConnectorError::passing(error.message)
}

pub(super) fn of_runtime(error: RuntimeError) -> ConnectorError {
    ConnectorError::passing(from_internal::runtime(error).message)
}
