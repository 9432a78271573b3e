//! Reading what a subscription keeps: from where somebody was, or from what there is.

use std::sync::{Arc, Weak};

use millrace_catalog::sink::SinkDef;
use millrace_catalog::{Definition, Object};
use millrace_engine::WriteToken;
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use tokio::sync::Notify;

use super::changes::{Changed, Epoch, INSERT};
use super::log::{Newest, SubscriptionLog, epoch_at};
use super::queue::{Origin, Queue};
use super::{Position, Subscription, Subscriptions, Wish, stopping};
use crate::clock::now_ms;
use crate::database::Database;

/// Where a reader of a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With the rows that there are.
    Rows,
    /// With what changes from now on.
    Now,
    /// With the oldest change that is kept.
    Oldest,
    /// Behind an epoch.
    Epoch(u64),
    /// With the rows as of an epoch.
    RowsOf(u64),
    /// Where somebody was.
    Position(Position),
}

/// What `mr_catalog.subscriptions` has of one besides its state as a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptInfo {
    /// Everything behind this epoch is there.
    pub oldest_epoch: u64,
    /// The last epoch.
    pub newest_epoch: u64,
    /// Rows in the log.
    pub rows: u64,
    /// How many read it now.
    pub readers: u64,
}

impl Subscriptions {
    /// What a subscription keeps.
    pub(in crate::database) fn kept(&self, id: ObjectId) -> Option<Arc<SubscriptionLog>> {
        self.kept.lock().get(&id).cloned()
    }

    /// What there is to say of what a subscription keeps; none: it is not known yet. It reads a row of its log.
    pub fn kept_info(&self, id: ObjectId) -> Option<KeptInfo> {
        let kept = self.kept(id)?;
        let newest = kept.newest()?;
        Some(KeptInfo {
            oldest_epoch: kept.oldest(newest).ok()?,
            newest_epoch: newest.epoch,
            rows: newest.end.saturating_sub(kept.logs().first(id.0)),
            readers: kept
                .queues
                .lock()
                .iter()
                .filter(|queue| queue.strong_count() > 0)
                .count() as u64,
        })
    }

    /// The logs of subscriptions, each with the offset up to which it is whole.
    pub(in crate::database) fn logs(&self) -> Vec<(ObjectId, u64)> {
        let kept = self.kept.lock();
        let end = |kept: &Arc<SubscriptionLog>| kept.newest().map_or(0, |newest| newest.end);
        kept.iter().map(|(id, kept)| (*id, end(kept))).collect()
    }

    /// Ends the readers of a subscription, which is dropped.
    pub(in crate::database) fn forget(&self, object: &Object) {
        if let Some(kept) = self.kept.lock().remove(&object.id) {
            kept.end(super::task::ended(kept.name(), "dropped"));
        }
    }
}

impl Database {
    /// What a sink keeps, if it is a subscription.
    pub(in crate::database) fn keep_steps(
        &self,
        object: &Object,
        def: &SinkDef,
    ) -> Option<Arc<SubscriptionLog>> {
        let sink = def.kept()?;
        let mut all = self.subscriptions.kept.lock();
        let kept = all.entry(object.id).or_insert_with(|| {
            let logs = Arc::clone(self.store().logs());
            Arc::new(SubscriptionLog::new(
                object,
                (sink, def.columns.len()),
                self.runtime(),
                logs,
            ))
        });
        Some(Arc::clone(kept))
    }

    /// Begins to read a subscription.
    ///
    /// # Errors
    /// 72000: what is wanted is not kept any more; it does not go on, or is gone.
    pub async fn read_subscription(
        self: &Arc<Self>,
        object: &Object,
        from: Begin,
        wish: Wish,
    ) -> SqlResult<Subscription> {
        object.check_up()?;
        let Definition::Sink(def) = &object.definition else {
            return Err(super::not_followed(object));
        };
        let kept = self.subscriptions.kept(object.id).ok_or_else(stopping)?;
        // What the session has written is among what it reads.
        self.visible(object, wish.after.as_ref()).await?;
        if matches!(from, Begin::Rows | Begin::Now) {
            self.sinks().flush_one(object.id).await;
        }
        let (mut rows, mut first) = (None, vec![]);
        let begins = match from {
            Begin::Rows => {
                let (epoch, all) = self.sinks().rows_of(object).await?;
                rows = Some(all);
                epoch
            }
            Begin::RowsOf(epoch) => {
                let found = self.rows_as_of(object, Some(epoch), wish.after.as_ref()).await?;
                let inserted = found.batches.into_iter().map(|rows| Changed::all(INSERT, rows));
                let step = Epoch::new(found.epoch, inserted.collect(), kept.account());
                first.push(Arc::new(step));
                found.epoch
            }
            _ => self.place(&kept, object, from).await?,
        };
        let origin = Origin {
            id: self.subscriptions.next_number(),
            relation: object.id,
            query: None,
            name: object.described(),
            session: wish.session,
            began_at_ms: now_ms(),
            columns: def.columns.len(),
            buffer_bytes: wish.buffer_bytes,
        };
        let queue = Arc::new(Queue::new(origin, rows, begins, first));
        {
            let mut queues = kept.queues.lock();
            queues.retain(|queue: &Weak<Queue>| queue.strong_count() > 0);
            queues.push(Arc::downgrade(&queue));
        }
        let position = Position {
            following: kept.identity(),
            epoch: begins,
        };
        let subscription = Subscription::new(queue, position, Arc::new(Notify::new()));
        Ok(subscription.of_kept(kept.reader(begins)))
    }

    /// Waits until what a subscription follows shows these writes.
    pub(super) async fn visible(&self, object: &Object, after: Option<&WriteToken>) -> SqlResult<()> {
        if let Definition::Sink(def) = &object.definition {
            let relation = RelationId(def.relation.0);
            drop(self.runtime().snapshot(&[relation], after).await?);
        }
        Ok(())
    }

    /// The epoch behind which somebody begins.
    pub(super) async fn place(
        &self,
        kept: &Arc<SubscriptionLog>,
        object: &Object,
        from: Begin,
    ) -> SqlResult<u64> {
        // One that never ran knows nothing, and may not run for long.
        if kept.newest().is_none() {
            self.sinks().check_begun(object).await?;
        }
        let newest = kept.ready().await?;
        let epoch = match from {
            Begin::Rows | Begin::Now => return Ok(newest.epoch),
            Begin::Oldest => return oldest(kept, newest).await,
            Begin::Position(position) if position.following != kept.identity() => return Err(kept.gone()),
            Begin::Position(position) => position.epoch,
            Begin::Epoch(epoch) | Begin::RowsOf(epoch) => epoch,
        };
        // Epochs are times: one that is over, in which nothing changed, is as good as another.
        if epoch > newest.epoch.max(epoch_at(self.runtime().now())) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("epoch {epoch} of {} is still to come", kept.name()),
            )
            .with_detail(format!("The newest is {}.", newest.epoch)));
        }
        match epoch < oldest(kept, newest).await? {
            true => Err(kept.gone()),
            false => Ok(epoch.min(newest.epoch)),
        }
    }
}

/// The epoch behind which everything is there.
async fn oldest(kept: &Arc<SubscriptionLog>, newest: Newest) -> SqlResult<u64> {
    let (runtime, place) = (kept.runtime().clone(), kept.place());
    let kept = Arc::clone(kept);
    runtime.use_files(&place, move || kept.oldest(newest)).await?
}
