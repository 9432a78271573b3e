//! One reader of the steps that are kept, and its place among them.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::{Int8Type, Int64Type};
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_catalog::sink::LOG_COLUMNS;
use millrace_engine::RuntimeError;
use millrace_postgres::error::{SqlError, SqlResult};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Charge, Use};
use millrace_storage::rows_bytes;
use tokio::sync::watch;

use super::{Newest, State, SubscriptionLog};
use crate::database::subscriptions::changes::OPS;
use crate::database::subscriptions::queue::Event;

/// So much is read of the log at once: there may be many readers.
const PIECE_ROWS: usize = 4_096;
const PIECE_BYTES: usize = 512 << 10;

/// What was read of the log.
struct Read {
    rows: Option<RecordBatch>,
    /// Where the next row is.
    offset: u64,
    /// Up to which it was to be read.
    to: Newest,
    charge: Charge,
}

/// See the module.
pub(in crate::database::subscriptions) struct Reader {
    kept: Arc<SubscriptionLog>,
    changed: watch::Receiver<State>,
    /// Everything up to this epoch is among the events.
    epoch: u64,
    /// The offset behind what was read of the log; none: it is still to be looked for.
    offset: Option<u64>,
    /// The epoch of which a part was read.
    partial: Option<u64>,
    /// It goes on where it was, also when a reader gave up waiting.
    reading: Option<BoxFuture<'static, SqlResult<Read>>>,
    events: VecDeque<Event>,
    /// For rows that were read and not handed on.
    charge: Option<Charge>,
}

impl Reader {
    pub(super) fn new(kept: &Arc<SubscriptionLog>, epoch: u64) -> Reader {
        Reader {
            kept: Arc::clone(kept),
            changed: kept.state.subscribe(),
            epoch,
            offset: None,
            partial: None,
            reading: None,
            events: VecDeque::new(),
            charge: None,
        }
    }

    /// The newest epoch that there is.
    pub fn newest(&self) -> u64 {
        self.kept.newest().map_or(self.epoch, |newest| newest.epoch)
    }

    /// Whether nothing more is there yet.
    pub fn is_idle(&self) -> bool {
        let is_newest = self
            .kept
            .newest()
            .is_some_and(|newest| newest.epoch <= self.epoch);
        is_newest && self.events.is_empty() && self.reading.is_none()
    }

    /// What comes next. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The subscription has ended, or what is wanted is not kept any more.
    pub async fn next(&mut self) -> SqlResult<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            self.charge = None;
            if let Some(reading) = &mut self.reading {
                let read = reading.await;
                self.reading = None;
                self.take(read?)?;
                continue;
            }
            let state = self.changed.borrow_and_update().clone();
            if let Some(why) = state.ended {
                return Err(why);
            }
            let newest = state.newest.filter(|newest| newest.epoch > self.epoch);
            let Some(newest) = newest else {
                if self.changed.changed().await.is_err() {
                    return Err(SqlError::internal("a subscription has no state"));
                }
                continue;
            };
            if self.epoch < newest.since {
                return Err(self.kept.gone());
            }
            if self.partial.is_none()
                && let Some(steps) = self.kept.remembered(self.epoch, newest.epoch)
            {
                for step in steps {
                    for changed in &step.changes {
                        self.events.push_back(Event::Changes {
                            epoch: step.epoch,
                            ops: Arc::clone(&changed.ops),
                            rows: changed.rows.clone(),
                        });
                    }
                    self.events.push_back(Event::Complete { epoch: step.epoch });
                }
                self.epoch = newest.epoch;
                self.offset = Some(newest.end);
                continue;
            }
            let read = read(Arc::clone(&self.kept), self.epoch, self.offset, newest);
            self.reading = Some(read.boxed());
        }
    }

    /// Makes events of rows of the log.
    fn take(&mut self, read: Read) -> SqlResult<()> {
        self.offset = Some(read.offset);
        if let Some(rows) = &read.rows {
            let epochs = rows.column(0).as_primitive::<Int64Type>();
            let mut at = 0;
            while at < rows.num_rows() {
                let same = epochs.values()[at..].partition_point(|epoch| *epoch == epochs.value(at));
                let epoch = u64::try_from(epochs.value(at)).unwrap_or(0);
                if let Some(before) = self.partial.filter(|before| *before != epoch) {
                    self.complete(before);
                }
                self.partial = Some(epoch);
                self.events.push_back(event(epoch, &rows.slice(at, same))?);
                at += same;
            }
        }
        if read.offset >= read.to.end {
            if let Some(epoch) = self.partial {
                self.complete(epoch);
            }
            self.epoch = self.epoch.max(read.to.epoch);
        }
        self.charge = Some(read.charge);
        Ok(())
    }

    fn complete(&mut self, epoch: u64) {
        self.events.push_back(Event::Complete { epoch });
        self.epoch = epoch;
        self.partial = None;
    }
}

/// Rows of one epoch, as they are in the log.
fn event(epoch: u64, rows: &RecordBatch) -> SqlResult<Event> {
    let ops = rows.column(2).as_primitive::<Int8Type>();
    let ops = ops.values().iter().map(|op| {
        let name = usize::try_from(*op).ok().and_then(|op| OPS.get(op));
        name.ok_or_else(|| SqlError::internal(format!("a subscription has a change of kind {op}")))
    });
    let ops = ops.collect::<SqlResult<Vec<_>>>()?;
    let columns: Vec<usize> = (LOG_COLUMNS.len()..rows.num_columns()).collect();
    Ok(Event::Changes {
        epoch,
        ops: Arc::new(StringArray::from_iter_values(ops)),
        rows: rows.project(&columns).map_err(from_internal::arrow)?,
    })
}

/// Reads on, from an offset or from behind an epoch, up to what is whole.
async fn read(kept: Arc<SubscriptionLog>, epoch: u64, offset: Option<u64>, to: Newest) -> SqlResult<Read> {
    let (runtime, place) = (kept.runtime.clone(), kept.place());
    let work = move || {
        let log = kept.id.0;
        // What is there now stays until it is read.
        let _hold = kept.logs.hold(log, 0)?;
        let first = kept.logs.first(log);
        let from = match offset {
            Some(offset) if offset < first => return Err(kept.gone()),
            Some(offset) => offset,
            None if kept.oldest(to)? > epoch => return Err(kept.gone()),
            None => kept.offset_behind(epoch, first, to.end)?,
        };
        let mut reader = kept.logs.read(log, from, to.end)?;
        let rows = reader.next_rows(PIECE_ROWS, PIECE_BYTES).transpose()?;
        let rows = rows.map(|changes| changes.rows);
        let bytes = rows.as_ref().map_or(0, rows_bytes);
        kept.account.room(bytes).map_err(RuntimeError::from)?;
        Ok(Read {
            offset: match &rows {
                Some(rows) => from + rows.num_rows() as u64,
                None => to.end,
            },
            rows,
            to,
            charge: kept.account.charge(Use::Result, bytes),
        })
    };
    runtime.use_files(&place, work).await?
}
