//! Ending a statement from outside: cancellation and the statement timeout.
//!
//! Each statement has a number. A cancel request names the number that runs at that moment, so that one that comes too
//! late does nothing to the next statement.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::error::{SqlError, SqlResult, SqlState};

#[derive(Debug)]
struct Shared {
    /// The statement that runs, or ran last.
    current: AtomicU64,
    /// The newest statement that was cancelled.
    cancelled: watch::Sender<u64>,
}

/// Cancels what a session runs. May be used from any thread.
#[derive(Debug, Clone)]
pub struct CancelHandle(Arc<Shared>);

/// The right of one statement to run, and how it learns that it must end.
#[derive(Debug, Clone)]
pub struct Running {
    number: u64,
    cancelled: watch::Receiver<u64>,
    deadline: Option<tokio::time::Instant>,
}

impl Default for CancelHandle {
    fn default() -> Self {
        CancelHandle(Arc::new(Shared {
            current: AtomicU64::new(0),
            cancelled: watch::Sender::new(0),
        }))
    }
}

impl CancelHandle {
    /// Cancels the statement that runs; nothing happens when none does.
    pub fn cancel(&self) {
        let current = self.0.current.load(Ordering::Acquire);
        self.0.cancelled.send_if_modified(|cancelled| {
            let newer = *cancelled < current;
            *cancelled = (*cancelled).max(current);
            newer
        });
    }

    /// Begins a statement.
    pub fn begin(&self, timeout: Option<Duration>) -> Running {
        let number = self.0.current.fetch_add(1, Ordering::AcqRel) + 1;
        Running {
            number,
            cancelled: self.0.cancelled.subscribe(),
            deadline: timeout.map(|timeout| tokio::time::Instant::now() + timeout),
        }
    }
}

impl Running {
    /// Returns when the statement must end, with the reason.
    pub async fn ended(&self) -> SqlError {
        let mut cancelled = self.cancelled.clone();
        let number = self.number;
        let cancel = async move {
            if cancelled
                .wait_for(|cancelled| *cancelled >= number)
                .await
                .is_err()
            {
                // The session is gone, and with it everybody who could cancel.
                std::future::pending::<()>().await;
            }
        };
        match self.deadline {
            Some(deadline) => tokio::select! {
                () = cancel => cancelled_by_user(),
                () = tokio::time::sleep_until(deadline) => {
                    SqlError::new(SqlState::QueryCanceled, "canceling statement due to statement timeout")
                }
            },
            None => {
                cancel.await;
                cancelled_by_user()
            }
        }
    }

    /// Runs something until it is done or must end.
    ///
    /// # Errors
    /// Its own, or 57014.
    pub async fn run<T>(&self, work: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
        tokio::select! {
            biased;
            result = work => result,
            error = self.ended() => Err(error),
        }
    }
}

fn cancelled_by_user() -> SqlError {
    SqlError::new(SqlState::QueryCanceled, "canceling statement due to user request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancel_ends_the_statement_that_runs_and_no_other() {
        let handle = CancelHandle::default();
        handle.cancel();
        let first = handle.begin(None);
        handle.cancel();
        let error = first
            .run(std::future::pending::<SqlResult<()>>())
            .await
            .unwrap_err();
        assert_eq!(error.code, SqlState::QueryCanceled);
        let second = handle.begin(None);
        assert_eq!(second.run(async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_timeout_ends_it_too() {
        let handle = CancelHandle::default();
        let running = handle.begin(Some(Duration::from_millis(1)));
        let error = running
            .run(std::future::pending::<SqlResult<()>>())
            .await
            .unwrap_err();
        assert_eq!(error.message, "canceling statement due to statement timeout");
    }
}
