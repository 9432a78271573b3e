//! One subscriber: the rows that there were when it came, the changes that wait for it, and how it reads them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::{ArrayRef, RecordBatch};
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_engine::{Changes, RuntimeError};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_postgres::units::size_text;
use millrace_storage::{ChangeBatch, ObjectId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::changes::{Changed, Epoch, INSERT};
use super::log::Reader;
use super::{Position, SubscriptionInfo};

/// Whose a queue is, and what it may hold.
pub(super) struct Origin {
    pub id: u64,
    pub relation: ObjectId,
    pub query: Option<Arc<str>>,
    pub name: String,
    pub session: i32,
    pub began_at_ms: i64,
    /// Columns that the relation had when the subscriber came.
    pub columns: usize,
    pub buffer_bytes: usize,
}

/// What waits for a subscriber.
pub(super) struct Queue {
    origin: Origin,
    state: Mutex<State>,
    filled: Notify,
}

struct State {
    snapshot: Option<Reading>,
    waiting: VecDeque<Arc<Epoch>>,
    waiting_bytes: usize,
    /// What changed while the snapshot is read, where it does not wait here.
    passed_bytes: usize,
    ended: Option<SqlError>,
    /// The last epoch of which the reader has everything.
    epoch: Option<u64>,
    /// Of what is kept, the newest epoch that its reader knew.
    newest: u64,
    rows: u64,
}

/// Rows of a snapshot on their way. It goes on where it was, also when a reader gave up waiting.
type Reading = BoxFuture<'static, (Changes, Result<Option<ChangeBatch>, RuntimeError>)>;

fn read_on(mut changes: Changes) -> Reading {
    async move {
        let next = changes.next().await;
        (changes, next)
    }
    .boxed()
}

impl Queue {
    /// `epoch`: the one in which it begins; `waiting`: what came since.
    pub(super) fn new(
        origin: Origin,
        snapshot: Option<Changes>,
        epoch: u64,
        waiting: Vec<Arc<Epoch>>,
    ) -> Queue {
        let state = State {
            epoch: snapshot.is_none().then_some(epoch),
            snapshot: snapshot.map(read_on),
            waiting_bytes: waiting.iter().map(|epoch| epoch.bytes).sum(),
            waiting: waiting.into(),
            passed_bytes: 0,
            ended: None,
            newest: epoch,
            rows: 0,
        };
        Queue {
            origin,
            state: Mutex::new(state),
            filled: Notify::new(),
        }
    }

    /// Adds a step. True: that was too much for it, and it has ended.
    pub(super) fn put(&self, epoch: &Arc<Epoch>) -> bool {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return false;
        }
        // One step may be as large as it is: else a large write would end those who are quick, too.
        let is_too_much = !state.waiting.is_empty()
            && state.waiting_bytes > 0
            && state.waiting_bytes.saturating_add(epoch.bytes) > self.origin.buffer_bytes;
        if is_too_much {
            let error = self.too_slow();
            state.end(error);
        } else {
            // Of epochs without a change the last one says it all.
            if epoch.changes.is_empty() && state.waiting.back().is_some_and(|last| last.changes.is_empty()) {
                state.waiting.pop_back();
            }
            state.waiting_bytes += epoch.bytes;
            state.waiting.push_back(Arc::clone(epoch));
        }
        drop(state);
        self.filled.notify_one();
        is_too_much
    }

    /// Something changed, in so many bytes, that its reader reads from elsewhere: it may not read the snapshot for long.
    pub(super) fn pass(&self, bytes: usize) {
        let mut state = self.state.lock();
        if state.snapshot.is_none() || state.ended.is_some() {
            return;
        }
        state.passed_bytes += bytes;
        if state.passed_bytes > self.origin.buffer_bytes {
            state.end(self.too_slow());
            drop(state);
            self.filled.notify_one();
        }
    }

    fn too_slow(&self) -> SqlError {
        SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!(
                "the subscription to {} ended because changes are read too slowly",
                self.origin.name
            ),
        )
        .with_detail(format!(
            "More than {} of changes wait to be read.",
            size_text(self.origin.buffer_bytes as u64)
        ))
        .with_hint("Subscribe again, read faster, or raise subscription_buffer.")
    }

    /// Ends it: what waits is given up.
    pub(super) fn end(&self, why: SqlError) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.end(why);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// The next rows of the snapshot, or that it is complete; none: it was read.
    fn poll_snapshot(&self, epoch: u64, context: &mut Context<'_>) -> Poll<SqlResult<Option<Event>>> {
        let mut state = self.state.lock();
        if let Some(why) = &state.ended {
            return Poll::Ready(Err(why.clone()));
        }
        let Some(reading) = &mut state.snapshot else {
            return Poll::Ready(Ok(None));
        };
        let (changes, next) = match reading.poll_unpin(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(read) => read,
        };
        match next {
            Ok(Some(batch)) => {
                state.snapshot = Some(read_on(changes));
                drop(state);
                Poll::Ready(self.event(epoch, &Changed::all(INSERT, batch.rows)).map(Some))
            }
            Ok(None) => {
                state.snapshot = None;
                state.epoch = Some(epoch);
                Poll::Ready(Ok(Some(Event::Complete { epoch })))
            }
            Err(error) => {
                let why = from_internal::runtime(error);
                state.end(why.clone());
                Poll::Ready(Err(why))
            }
        }
    }

    fn event(&self, epoch: u64, changed: &Changed) -> SqlResult<Event> {
        let columns: Vec<usize> = (0..self.origin.columns).collect();
        // Columns that were added since are not told.
        let rows = changed.rows.project(&columns).map_err(from_internal::arrow)?;
        self.state.lock().rows += rows.num_rows() as u64;
        Ok(Event::Changes {
            epoch,
            ops: Arc::clone(&changed.ops),
            rows,
        })
    }

    pub(super) fn info(&self, newest_epoch: u64) -> SubscriptionInfo {
        let state = self.state.lock();
        SubscriptionInfo {
            id: self.origin.id,
            relation: self.origin.relation,
            query: self.origin.query.clone(),
            session: self.origin.session,
            began_at_ms: self.origin.began_at_ms,
            epoch: state.epoch,
            newest_epoch: newest_epoch.max(state.newest),
            rows: state.rows,
            waiting_bytes: state.waiting_bytes as u64,
            error: state.ended.as_ref().map(|why| why.message.clone()),
        }
    }
}

impl State {
    fn end(&mut self, why: SqlError) {
        // Rows of the snapshot are kept for as long as it is read.
        self.snapshot = None;
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.ended = Some(why);
    }
}

/// What a subscriber reads.
pub enum Event {
    /// Rows, and what happened to each of them up to this epoch.
    Changes {
        epoch: u64,
        /// Texts: `insert`, `delete`, `update_delete` or `update_insert`.
        ops: ArrayRef,
        rows: RecordBatch,
    },
    /// Everything up to this epoch was read.
    Complete { epoch: u64 },
}

/// A relation that somebody follows, for as long as this lives.
pub struct Subscription {
    queue: Arc<Queue>,
    begins: Position,
    /// The step that is being read, and how many pieces of it were.
    current: Option<(Arc<Epoch>, usize)>,
    /// Where changes come from that are kept; none: they wait in the queue.
    kept: Option<Box<Reader>>,
    /// Dropped last: who hears of it looks whether the queue is still used.
    _left: Left,
}

/// Says that a subscriber has gone.
struct Left(Arc<Notify>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Subscription {
    pub(super) fn new(queue: Arc<Queue>, begins: Position, left: Arc<Notify>) -> Subscription {
        Subscription {
            queue,
            begins,
            current: None,
            kept: None,
            _left: Left(left),
        }
    }

    /// The same, whose changes are read from where they are kept.
    pub(super) fn of_kept(self, reader: Reader) -> Subscription {
        Subscription {
            kept: Some(Box::new(reader)),
            ..self
        }
    }

    /// Where a subscriber that has everything up to an epoch can go on.
    pub fn position(&self, epoch: u64) -> Position {
        Position { epoch, ..self.begins }
    }

    /// What comes next. Dropping the future loses nothing.
    ///
    /// # Errors
    /// It has ended: the relation is gone, the reader was too slow, or the server stops.
    pub async fn next(&mut self) -> SqlResult<Event> {
        loop {
            if let Some((step, read)) = self.current.take() {
                let Some(changed) = step.changes.get(read) else {
                    self.queue.state.lock().epoch = Some(step.epoch);
                    return Ok(Event::Complete { epoch: step.epoch });
                };
                let event = self.queue.event(step.epoch, changed);
                self.current = Some((step, read + 1));
                return event;
            }
            let (queue, epoch) = (Arc::clone(&self.queue), self.begins.epoch);
            let snapshot = std::future::poll_fn(move |context| queue.poll_snapshot(epoch, context));
            if let Some(event) = snapshot.await? {
                return Ok(event);
            }
            if let Some(step) = self.take()? {
                self.current = Some((step, 0));
                continue;
            }
            if let Some(reader) = &mut self.kept {
                let event = reader.next().await?;
                let newest = reader.newest();
                return self.told(event, newest);
            }
            self.queue.filled.notified().await;
        }
    }

    /// Whether nothing more is there yet, so that [`Self::next`] waits for a change.
    pub fn is_idle(&self) -> bool {
        let Some(reader) = &self.kept else { return true };
        let state = self.queue.state.lock();
        state.snapshot.is_none() && state.waiting.is_empty() && self.current.is_none() && reader.is_idle()
    }

    /// Notes what is told of what is kept.
    fn told(&self, event: Event, newest: u64) -> SqlResult<Event> {
        let mut state = self.queue.state.lock();
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        state.newest = newest;
        match &event {
            Event::Changes { rows, .. } => state.rows += rows.num_rows() as u64,
            Event::Complete { epoch } => state.epoch = Some(*epoch),
        }
        Ok(event)
    }

    fn take(&self) -> SqlResult<Option<Arc<Epoch>>> {
        let mut state = self.queue.state.lock();
        if let Some(why) = &state.ended {
            return Err(why.clone());
        }
        let step = state.waiting.pop_front();
        if let Some(step) = &step {
            state.waiting_bytes -= step.bytes;
        }
        Ok(step)
    }
}
