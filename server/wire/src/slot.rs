//! What the wires are given by the server: the database, while there is one, and the signal to stop.

use std::sync::Arc;

use millrace_database::Database;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use parking_lot::RwLock;
use tokio::sync::watch;

/// Waits until the signal is given, or nobody is left who could give it.
pub async fn signalled(signal: &mut watch::Receiver<bool>) {
    // An error means that the server is gone: that is a signal too.
    let _ = signal.wait_for(|given| *given).await;
}

/// The database of a server: not there while it is being opened, nor after it was closed.
#[derive(Default)]
pub struct DatabaseSlot {
    state: RwLock<SlotState>,
}

#[derive(Default)]
enum SlotState {
    #[default]
    Opening,
    Open(Arc<Database>),
    Closed,
}

impl DatabaseSlot {
    /// The database.
    ///
    /// # Errors
    /// It is still recovering (57P03) or closed already (57P01).
    pub fn get(&self) -> SqlResult<Arc<Database>> {
        match &*self.state.read() {
            SlotState::Open(database) => Ok(Arc::clone(database)),
            SlotState::Opening => Err(SqlError::new(
                SqlState::CannotConnectNow,
                "the database system is starting up",
            )
            .with_hint("Try again in a moment.")),
            SlotState::Closed => Err(SqlError::new(
                SqlState::AdminShutdown,
                "the database system is shutting down",
            )),
        }
    }

    /// It is open now.
    pub fn open(&self, database: Arc<Database>) {
        *self.state.write() = SlotState::Open(database);
    }

    /// It is there no longer; returns it if it was open.
    pub fn close(&self) -> Option<Arc<Database>> {
        match std::mem::replace(&mut *self.state.write(), SlotState::Closed) {
            SlotState::Open(database) => Some(database),
            SlotState::Opening | SlotState::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_answers_for_a_database_that_is_not_there() {
        let slot = DatabaseSlot::default();
        assert_eq!(
            slot.get().err().map(|error| error.code),
            Some(SqlState::CannotConnectNow)
        );
        assert!(slot.close().is_none());
        assert_eq!(
            slot.get().err().map(|error| error.code),
            Some(SqlState::AdminShutdown)
        );
    }
}
