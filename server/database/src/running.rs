//! Ending a statement from outside: cancellation, the statement timeout, and the end of its session.
//!
//! Each statement has a number. A cancel request names the number that runs at that moment, so that one that comes too
//! late does nothing to the next statement.
//!
//! ```text
//!  open --- ended from outside ---> ended: what it was about to do is not done, and its client gets the error
//!     \---- its write is handed on -> submitted: it is seen through, and its client gets what became of it
//! ```
//!
//! Which of the two it is, is decided once, by one exchange of one word: whoever hands on a write ([`Running::submit`])
//! and whoever ends the statement ([`Running::run`]) may be on different threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use tokio::sync::watch;

#[derive(Debug)]
struct Shared {
    /// The statement that runs, or ran last.
    current: AtomicU64,
    /// The newest statement that was cancelled.
    cancelled: watch::Sender<u64>,
    /// Whether the session is to end.
    terminated: watch::Sender<bool>,
}

/// Cancels what a session runs. May be used from any thread.
#[derive(Debug, Clone)]
pub struct CancelHandle(Arc<Shared>);

/// It may still be ended.
const OPEN: u8 = 0;
/// It was ended.
const ENDED: u8 = 1;
/// Its write was handed on: it is too late to end it.
const SUBMITTED: u8 = 2;

/// The right of one statement to run, and how it learns that it must end.
#[derive(Debug, Clone)]
pub struct Running {
    number: u64,
    cancelled: watch::Receiver<u64>,
    terminated: watch::Receiver<bool>,
    deadline: Option<tokio::time::Instant>,
    point: Arc<AtomicU8>,
}

impl Default for CancelHandle {
    fn default() -> Self {
        CancelHandle(Arc::new(Shared {
            current: AtomicU64::new(0),
            cancelled: watch::Sender::new(0),
            terminated: watch::Sender::new(false),
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

    /// Ends the session: the statement that runs, if it can still be ended, and the connection after it.
    pub fn terminate(&self) {
        self.0.terminated.send_replace(true);
    }

    /// Whether the session is to end.
    pub fn is_terminated(&self) -> bool {
        *self.0.terminated.borrow()
    }

    /// Returns when the session is to end.
    pub async fn terminated(&self) {
        // The sender is in `self`, so that this ends only when it is so.
        let _ = self
            .0
            .terminated
            .subscribe()
            .wait_for(|terminated| *terminated)
            .await;
    }

    /// Begins a statement.
    pub fn begin(&self, timeout: Option<Duration>) -> Running {
        let number = self.0.current.fetch_add(1, Ordering::AcqRel) + 1;
        Running {
            number,
            cancelled: self.0.cancelled.subscribe(),
            terminated: self.0.terminated.subscribe(),
            deadline: timeout.map(|timeout| tokio::time::Instant::now() + timeout),
            point: Arc::new(AtomicU8::new(OPEN)),
        }
    }
}

impl Running {
    /// Returns when the statement must end, with the reason.
    pub async fn ended(&self) -> SqlError {
        let mut cancelled = self.cancelled.clone();
        let mut terminated = self.terminated.clone();
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
        let terminate = async move {
            if terminated.wait_for(|terminated| *terminated).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let timeout = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = terminate => terminated_by_administrator(),
            () = cancel => cancelled_by_user(),
            () = timeout => timed_out(),
        }
    }

    /// Why the statement must end, if it must.
    fn reason(&self) -> Option<SqlError> {
        if *self.terminated.borrow() {
            Some(terminated_by_administrator())
        } else if *self.cancelled.borrow() >= self.number {
            Some(cancelled_by_user())
        } else if self
            .deadline
            .is_some_and(|deadline| deadline <= tokio::time::Instant::now())
        {
            Some(timed_out())
        } else {
            None
        }
    }

    /// The point of no return: what the statement writes is handed on next. From here on it is not ended any more.
    ///
    /// # Errors
    /// It was ended before: nothing may be handed on.
    pub fn submit(&self) -> SqlResult<()> {
        let submitted = self
            .point
            .compare_exchange(OPEN, SUBMITTED, Ordering::AcqRel, Ordering::Acquire);
        match submitted {
            Ok(_) | Err(SUBMITTED) => Ok(()),
            Err(_) => Err(self.reason().unwrap_or_else(cancelled_by_user)),
        }
    }

    /// A part of the statement is done that lasts by itself, such as a chunk of a COPY: the rest can be ended again.
    ///
    /// # Errors
    /// It was to be ended meanwhile.
    pub fn reopen(&self) -> SqlResult<()> {
        let _ = self
            .point
            .compare_exchange(SUBMITTED, OPEN, Ordering::AcqRel, Ordering::Acquire);
        match self.reason() {
            Some(reason) if self.end() => Err(reason),
            _ => Ok(()),
        }
    }

    /// Ends the statement; false: it is too late for that.
    fn end(&self) -> bool {
        let ended = self
            .point
            .compare_exchange(OPEN, ENDED, Ordering::AcqRel, Ordering::Acquire);
        matches!(ended, Ok(_) | Err(ENDED))
    }

    /// Runs something until it is done or must end.
    ///
    /// # Errors
    /// Its own, or 57014.
    pub async fn run<T>(&self, work: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
        let mut work = pin!(work);
        let reason = tokio::select! {
            biased;
            result = &mut work => return result,
            reason = self.ended() => reason,
        };
        if self.end() {
            return Err(reason);
        }
        work.await
    }
}

fn cancelled_by_user() -> SqlError {
    SqlError::new(SqlState::QueryCanceled, "canceling statement due to user request")
}

fn timed_out() -> SqlError {
    SqlError::new(
        SqlState::QueryCanceled,
        "canceling statement due to statement timeout",
    )
}

/// What a session hears that an administrator ends.
pub fn terminated_by_administrator() -> SqlError {
    SqlError::new(
        SqlState::AdminShutdown,
        "terminating connection due to administrator command",
    )
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
        assert_eq!(running.submit().unwrap_err(), error);
    }

    #[tokio::test]
    async fn what_was_submitted_is_seen_through() {
        let handle = CancelHandle::default();
        let running = handle.begin(None);
        let (done, waits) = tokio::sync::oneshot::channel::<i32>();
        let work = async {
            running.submit()?;
            handle.cancel();
            handle.terminate();
            Ok(waits.await.unwrap_or_default())
        };
        let (result, ()) = tokio::join!(running.run(work), async {
            tokio::task::yield_now().await;
            done.send(7).unwrap();
        });
        assert_eq!(result.unwrap(), 7);
        // What comes after a part that lasts is ended.
        assert_eq!(running.reopen().unwrap_err().code, SqlState::AdminShutdown);
        assert!(running.submit().is_err());
    }

    #[tokio::test]
    async fn a_terminated_session_runs_nothing_more() {
        let handle = CancelHandle::default();
        handle.terminate();
        let running = handle.begin(None);
        let error = running
            .run(std::future::pending::<SqlResult<()>>())
            .await
            .unwrap_err();
        assert_eq!(error.code, SqlState::AdminShutdown);
        handle.terminated().await;
    }
}
