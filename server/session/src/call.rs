//! Counting statements for `pg_stat_statements`: each when it has ended without an error, with its rows and the time in which the server
//! worked at it. Time in which a client takes rows and asks for no others is not among it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use millrace_database::Database;
use millrace_database::statements::Key;

use crate::session::Session;

/// A statement that gives rows, or takes them.
pub(crate) struct Call {
    db: Arc<Database>,
    key: Key,
    rows: Arc<AtomicU64>,
    took: Duration,
}

impl Call {
    /// One of which the rows are still to come; so much was done for it so far.
    pub(crate) fn begun(session: &Arc<Session>, rows: Arc<AtomicU64>, took: Duration) -> Option<Call> {
        Some(Call {
            db: Arc::clone(session.database()),
            key: key(session)?,
            rows,
            took,
        })
    }

    /// It has ended, so much later, with so many rows.
    pub(crate) fn ended(self, rows: u64, later: Duration) {
        self.db.statements().count(&self.key, rows, self.took + later);
    }
}

/// The statement that was executed last, for whom the session acts.
pub(crate) fn key(session: &Session) -> Option<Key> {
    let db = session.database();
    let user = session.settings.lock().identity().current_user();
    let database = db.catalog().database(&session.info().database)?.id;
    let activity = session.activity.lock();
    Some(db.statements().key(user, database, &activity.as_ref()?.statement))
}

/// How long rows were waited for.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Since when the next ones are.
    asked: Option<Instant>,
    pub took: Duration,
}

impl Awaited {
    /// The next rows.
    pub fn poll<S: Stream + Unpin>(
        &mut self,
        rows: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Option<S::Item>> {
        let asked = *self.asked.get_or_insert_with(Instant::now);
        let next = rows.poll_next_unpin(context);
        if next.is_ready() {
            self.asked = None;
            self.took += asked.elapsed();
        }
        next
    }
}

/// Rows, and for how long they were waited for. Whoever asks for no more has had all that it wanted: it counts, unless it failed.
pub(crate) struct Timed<T> {
    rows: BoxStream<'static, T>,
    call: Option<Call>,
    awaited: Awaited,
}

impl<T, E> Stream for Timed<Result<T, E>> {
    type Item = Result<T, E>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Timed { rows, awaited, .. } = &mut *self;
        let Poll::Ready(next) = awaited.poll(rows, context) else {
            return Poll::Pending;
        };
        match &next {
            Some(Ok(_)) => {}
            Some(Err(_)) => self.call = None,
            None => self.end(),
        }
        Poll::Ready(next)
    }
}

impl<T> Timed<T> {
    pub(crate) fn new(rows: BoxStream<'static, T>, call: Option<Call>) -> Self {
        Timed {
            rows,
            call,
            awaited: Awaited::default(),
        }
    }

    fn end(&mut self) {
        if let Some(call) = self.call.take() {
            let rows = call.rows.load(Ordering::Acquire);
            call.ended(rows, self.awaited.took);
        }
    }
}

impl<T> Drop for Timed<T> {
    fn drop(&mut self) {
        self.end();
    }
}
