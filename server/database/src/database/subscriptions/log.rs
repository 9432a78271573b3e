//! The steps of a subscription that are kept: a log of their rows, and the newest in memory.
//!
//! ```text
//!  sink's task --> outbox --> log: epoch, step, op, row (retention removes the oldest) --> each reader, from where it was
//!                                  `--> the newest steps, once for all readers ---------> those who keep up
//! ```
//! A reader has a place in the log and nothing that waits for it, so that it may be as slow as retention allows. An epoch here is a number
//! that only grows, over restarts too: the milliseconds since 1970 at which the step was taken, or one more than the last. A step is one
//! or more writes; what readers see ends with a whole one. What of the log they may read begins behind `since`, and behind the first step
//! of which retention left something.

mod reader;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, SchemaRef};
use millrace_catalog::Object;
use millrace_catalog::sink::SubscriptionSink;
use millrace_engine::Runtime;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_resource::memory::{Account, Holder};
use millrace_storage::{LogStore, ObjectId};
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

pub(super) use self::reader::Reader;
use super::changes::Epoch;
use super::queue::Queue;

/// So much of the newest steps is kept in memory for all readers of a subscription.
const NEWEST_BYTES_MAX: usize = 4 << 20;

/// The epoch of a step that is taken at this time, in microseconds since 1970-01-01 UTC by the clock of `now()`.
pub(crate) fn epoch_after(last: u64, now: i64) -> u64 {
    epoch_at(now).max(last + 1)
}

/// The epoch that a moment is in.
pub(super) fn epoch_at(now: i64) -> u64 {
    u64::try_from(now.div_euclid(1_000)).unwrap_or(0)
}

/// What is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::database) struct Newest {
    /// The last epoch.
    pub epoch: u64,
    /// The offset of the log behind it.
    pub end: u64,
    /// The epoch as of which it began: of what was before nothing is known.
    pub since: u64,
}

/// What readers wait for.
#[derive(Debug, Clone, Default)]
struct State {
    /// None: it is not known yet.
    newest: Option<Newest>,
    ended: Option<SqlError>,
}

/// The newest steps, all behind an epoch.
#[derive(Default)]
struct Cache {
    behind: u64,
    steps: VecDeque<Arc<Epoch>>,
    bytes: usize,
}

/// See the module.
pub(in crate::database) struct SubscriptionLog {
    id: ObjectId,
    /// As errors have it.
    name: String,
    sink: SubscriptionSink,
    /// Columns of a row.
    columns: usize,
    runtime: Runtime,
    logs: Arc<LogStore>,
    account: Arc<Account>,
    state: watch::Sender<State>,
    cache: Mutex<Cache>,
    pub(super) queues: Mutex<Vec<Weak<Queue>>>,
}

impl SubscriptionLog {
    /// What is kept by a subscription, of which nothing is known yet.
    pub(super) fn new(
        object: &Object,
        (sink, columns): (&SubscriptionSink, usize),
        runtime: &Runtime,
        logs: Arc<LogStore>,
    ) -> SubscriptionLog {
        let account = runtime.memory().account(Holder::Clients, "what clients send");
        SubscriptionLog {
            id: object.id,
            name: object.described(),
            sink: sink.clone(),
            columns,
            runtime: runtime.clone(),
            logs,
            account,
            state: watch::Sender::new(State::default()),
            cache: Mutex::default(),
            queues: Mutex::default(),
        }
    }

    /// As errors have it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What no other subscription anywhere is called.
    pub fn identity(&self) -> Uuid {
        self.sink.subscription.parse().unwrap_or_default()
    }

    /// Columns of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn logs(&self) -> &Arc<LogStore> {
        &self.logs
    }

    /// The number of its log.
    pub fn log(&self) -> u64 {
        self.id.0
    }

    /// For what is read of it.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Where its log is, for whoever schedules the disk.
    pub fn place(&self) -> PathBuf {
        self.logs.directory().join(self.id.0.to_string())
    }

    /// Opens the log, or makes it; whether it was made. `schema`: none, if what it follows is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open_log(&self, schema: Option<SchemaRef>) -> SqlResult<bool> {
        let log = self.id.0;
        let is_new = !self.logs.contains(log);
        if is_new && let Some(schema) = schema {
            self.logs.create(log, schema)?;
        }
        self.logs.set_options(log, self.sink.kept.for_log())?;
        Ok(is_new)
    }

    /// What is whole; none: it is not known yet.
    pub fn newest(&self) -> Option<Newest> {
        self.state.borrow().newest
    }

    /// Everything up to this epoch is in the log now, and nothing else.
    pub fn reach(&self, epoch: u64, since: u64) {
        let end = self.logs.head(self.id.0);
        let newest = Newest { epoch, end, since };
        {
            let mut cache = self.cache.lock();
            if cache.behind == 0 || cache.behind < since {
                *cache = Cache {
                    behind: epoch,
                    ..Cache::default()
                };
            }
        }
        self.state.send_if_modified(|state| {
            let is_new = state.newest != Some(newest);
            state.newest = Some(newest);
            is_new
        });
    }

    /// Keeps a step at hand that is in the log, unless it is a part of one: those are large.
    pub fn remember(&self, step: Epoch, is_whole: bool) {
        // Whoever still reads the rows that there were holds an old version of them.
        for queue in self.queues.lock().iter().filter_map(Weak::upgrade) {
            queue.pass(step.bytes);
        }
        let mut cache = self.cache.lock();
        if is_whole {
            if cache.behind == 0 {
                cache.behind = step.epoch - 1;
            }
            cache.bytes += step.bytes;
            cache.steps.push_back(Arc::new(step));
        } else {
            *cache = Cache {
                behind: step.epoch,
                ..Cache::default()
            };
        }
        while cache.bytes > NEWEST_BYTES_MAX
            && let Some(oldest) = cache.steps.pop_front()
        {
            cache.bytes -= oldest.bytes;
            cache.behind = oldest.epoch;
        }
    }

    /// The steps behind an epoch up to another, if they are at hand.
    fn remembered(&self, behind: u64, to: u64) -> Option<Vec<Arc<Epoch>>> {
        let cache = self.cache.lock();
        let is_known = cache.behind > 0 && behind >= cache.behind;
        let wanted = |step: &&Arc<Epoch>| step.epoch > behind && step.epoch <= to;
        is_known.then(|| cache.steps.iter().filter(wanted).cloned().collect())
    }

    /// Ends all readers.
    pub fn end(&self, why: SqlError) {
        self.state.send_modify(|state| state.ended = Some(why.clone()));
        for queue in self.queues.lock().drain(..).filter_map(|queue| queue.upgrade()) {
            queue.end(why.clone());
        }
    }

    /// A reader that has everything up to an epoch.
    pub(super) fn reader(self: &Arc<Self>, epoch: u64) -> Reader {
        Reader::new(self, epoch)
    }

    /// Waits until it is known what is whole.
    ///
    /// # Errors
    /// It has ended.
    pub async fn ready(&self) -> SqlResult<Newest> {
        let mut changed = self.state.subscribe();
        let known = changed
            .wait_for(|state| state.newest.is_some() || state.ended.is_some())
            .await;
        let state = known.map_err(|_| SqlError::internal("a subscription has no state"))?;
        match (&state.ended, state.newest) {
            (Some(why), _) => Err(why.clone()),
            (None, newest) => newest.ok_or_else(|| SqlError::internal("a subscription has no newest epoch")),
        }
    }

    /// The epoch behind which everything is there. It reads a row of the log.
    ///
    /// # Errors
    /// The log is damaged.
    pub fn oldest(&self, newest: Newest) -> SqlResult<u64> {
        let first = self.logs.first(self.id.0);
        let kept = match first {
            0 => 0,
            first if first >= newest.end => newest.epoch,
            // Retention may have taken rows of the same step.
            first => self.epoch_of(first)?,
        };
        Ok(kept.max(newest.since))
    }

    /// The epoch of the row at an offset.
    fn epoch_of(&self, offset: u64) -> SqlResult<u64> {
        let mut rows = self.logs.read(self.id.0, offset, offset + 1)?;
        let block = rows.next().ok_or_else(|| self.gone())??;
        let epochs = block.changes.rows.column(0).as_primitive::<Int64Type>();
        Ok(u64::try_from(epochs.value(0)).unwrap_or(0))
    }

    /// The offset of the first row behind an epoch, of what begins at the first offset.
    fn offset_behind(&self, epoch: u64, first: u64, end: u64) -> SqlResult<u64> {
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.epoch_of(middle)? > epoch {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }

    /// The epoch and the number of the last step in the log; none: nothing is left of it, or it never had one.
    ///
    /// # Errors
    /// The log is damaged.
    pub fn last_row(&self) -> SqlResult<Option<(u64, u64)>> {
        let head = self.logs.head(self.id.0);
        if head <= self.logs.first(self.id.0) {
            return Ok(None);
        }
        let mut rows = self.logs.read(self.id.0, head - 1, head)?;
        let Some(block) = rows.next().transpose()? else {
            return Ok(None);
        };
        let number = |column: usize| {
            let numbers = block.changes.rows.column(column).as_primitive::<Int64Type>();
            u64::try_from(numbers.value(0)).unwrap_or(0)
        };
        Ok(Some((number(0), number(1))))
    }

    /// The error for whoever wants changes that are not there any more.
    pub fn gone(&self) -> SqlError {
        gone(&self.name)
    }
}

/// The error for whoever wants to go on where nobody knows what changed since.
pub(super) fn gone(what: &str) -> SqlError {
    SqlError::new(
        SqlState::SnapshotTooOld,
        format!("changes of {what} since then are no longer kept"),
    )
    .with_hint("Subscribe again with a snapshot.")
}
