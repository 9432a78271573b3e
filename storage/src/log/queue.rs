//! The queue before the writer. Its mutex is the order of all writes: who enters first gets the lower offset.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::StorageError;
use crate::log::prepared::{PreparedPart, PreparedWrite};
use crate::log::types::Appended;

/// Writes of so many bytes wait for no company: the disk would stand still meanwhile, and that costs more than a sync.
const ALONE_BYTES: usize = 1 << 20;

/// What a write resolves to.
pub(super) type WriteResult = Result<Vec<Appended>, StorageError>;

/// Resolves when the write is durable, or has failed. Dropping it does not take the write back.
#[derive(Debug)]
#[must_use = "a write is durable only when its receipt says so"]
pub struct AppendReceipt {
    outcome: Result<oneshot::Receiver<WriteResult>, StorageError>,
}

impl AppendReceipt {
    /// A receipt for a write that never entered the queue.
    pub(super) fn failed(error: StorageError) -> Self {
        AppendReceipt { outcome: Err(error) }
    }

    /// Blocks the thread until the outcome is known. Not for threads that drive async tasks.
    pub fn wait(self) -> Result<Vec<Appended>, StorageError> {
        self.outcome?.blocking_recv().unwrap_or(Err(StorageError::Closed))
    }
}

impl Future for AppendReceipt {
    type Output = Result<Vec<Appended>, StorageError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().outcome {
            Err(error) => Poll::Ready(Err(error.clone())),
            Ok(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|outcome| outcome.unwrap_or(Err(StorageError::Closed))),
        }
    }
}

/// A write on its way to the writer.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) parts: Vec<PreparedPart>,
    pub(super) bytes: usize,
    receipt: oneshot::Sender<WriteResult>,
}

impl Submission {
    /// Tells the caller. Nobody may be listening any more, which is fine.
    pub(super) fn acknowledge(self, outcome: WriteResult) {
        let _ = self.receipt.send(outcome);
    }

    /// The ids of the relations that it writes to.
    pub(super) fn relations(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.relation.id)
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    room: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Submission>,
    /// When the first of those was submitted.
    since: Option<Instant>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Queue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            room: Condvar::new(),
            bytes_max,
        }
    }

    /// Enters a write; blocks while the queue is full. A write larger than the queue enters an empty one.
    pub(super) fn submit(&self, write: PreparedWrite) -> AppendReceipt {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        while state.bytes > 0 && state.bytes + write.bytes > self.bytes_max && !state.closed {
            self.room.wait(&mut state);
        }
        if state.closed {
            return AppendReceipt::failed(StorageError::Closed);
        }
        state.bytes += write.bytes;
        state.since.get_or_insert_with(Instant::now);
        state.waiting.push_back(Submission {
            parts: write.parts,
            bytes: write.bytes,
            receipt: sender,
        });
        self.arrived.notify_one();
        AppendReceipt {
            outcome: Ok(receiver),
        }
    }

    /// All that waits, as soon as something does, and since when; `None` when the queue is closed and empty. Fewer than
    /// `company` wait up to `delay` for more, unless
    /// they are [`ALONE_BYTES`].
    pub(super) fn take(&self, company: usize, delay: Duration) -> Option<(Instant, VecDeque<Submission>)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            self.arrived.wait(&mut state);
        }
        if !delay.is_zero() {
            let too_few = |state: &mut State| {
                state.waiting.len() < company
                    && state.bytes < ALONE_BYTES.min(self.bytes_max)
                    && !state.closed
            };
            let _ = self.arrived.wait_while_for(&mut state, too_few, delay);
        }
        state.bytes = 0;
        let group = std::mem::take(&mut state.waiting);
        self.room.notify_all();
        let since = state.since.take().unwrap_or_else(Instant::now);
        Some((since, group))
    }

    /// Fails the writes of `failed`, and whatever of `rest` and of the queue depends on them: writes to the same
    /// relations, and to the relations of those. The others stay, in order. The answers are given before anything can
    /// enter behind them, so that who submits later could have known.
    pub(super) fn fail(
        &self,
        failed: Vec<Submission>,
        error: &StorageError,
        rest: &mut VecDeque<Submission>,
    ) {
        let mut state = self.state.lock();
        let mut tainted: BTreeSet<u64> = failed.iter().flat_map(Submission::relations).collect();
        let mut doomed = failed;
        for waiting in [rest, &mut state.waiting] {
            for submission in std::mem::take(waiting) {
                if submission.relations().any(|relation| tainted.contains(&relation)) {
                    tainted.extend(submission.relations());
                    doomed.push(submission);
                } else {
                    waiting.push_back(submission);
                }
            }
        }
        state.bytes = state.waiting.iter().map(|submission| submission.bytes).sum();
        if state.waiting.is_empty() {
            state.since = None;
        }
        for submission in doomed {
            submission.acknowledge(Err(error.clone()));
        }
        self.room.notify_all();
    }

    /// Refuses new writes. What waits is still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_all();
        self.room.notify_all();
    }

    /// Refuses new writes and drops what waits, whose receipts then say `Closed`. For a writer that died.
    pub(super) fn abandon(&self) {
        self.close();
        self.state.lock().waiting.clear();
    }
}
