//! Those who follow a relation, and the one task that follows it for all of them.
//!
//! ```text
//!  relation --> task: an epoch was committed --> step: what changed --> ops (changes) --> one shared batch --> queue of each
//!                                                                                                            subscriber --> client
//! ```
//! A step is a whole number of epochs, and carries the last of them. A subscriber that joins gets all rows as of the step
//! before, which it reads at its own pace, and then every step. A queue that is longer than its subscriber allows is
//! emptied, and ends with an error: nobody waits for a client that does not read. The task stays for a while when the last
//! subscriber has left, with the newest changes, so that one that lost its connection can go on where it was.
//!
//! A query is followed as a materialized view that only its task knows (`queries`).
//!
//! What CREATE SUBSCRIPTION made is followed by a sink, whose target is a log of the server: its readers read that (`durable`, `log`).

pub(in crate::database) mod changes;
mod durable;
mod history;
pub(in crate::database) mod log;
mod queries;
mod queue;
mod task;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millrace_catalog::Object;
use millrace_engine::WriteToken;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::database::Database;

pub use self::durable::{Begin, KeptInfo};
pub use self::history::AsOf;
use self::log::SubscriptionLog;
use self::queries::QueryView;
pub use self::queue::{Event, Subscription};
use self::task::{Asked, Status};

/// What no other subscription anywhere is called.
pub fn new_identity() -> String {
    Uuid::new_v4().to_string()
}

/// Where a subscriber was: what server-sent events have as their id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Which following of the relation it was: epochs of another one mean something else.
    pub following: Uuid,
    /// The last epoch of which everything was received.
    pub epoch: u64,
}

/// How somebody wants to follow.
#[derive(Debug, Clone)]
pub struct Wish {
    /// Whether all rows that there are come first.
    pub snapshot: bool,
    /// Changes that wait for the reader may be so many bytes, besides those of one step.
    pub buffer_bytes: usize,
    /// Writes that the snapshot has to contain.
    pub after: Option<WriteToken>,
    /// To go on where a former subscription was, in place of a snapshot.
    pub resume: Option<Position>,
    /// The number of the session that follows.
    pub session: i32,
}

/// A client that follows something, as `mr_catalog.subscribers` has it.
#[derive(Debug, Clone)]
pub struct SubscriptionInfo {
    /// Its number, unique in this process.
    pub id: u64,
    pub relation: ObjectId,
    /// The query that is followed; none: a relation of the catalog is.
    pub query: Option<Arc<str>>,
    pub session: i32,
    /// In milliseconds since 1970-01-01 UTC.
    pub began_at_ms: i64,
    /// The last epoch of which the reader has everything; none: it still reads the snapshot.
    pub epoch: Option<u64>,
    /// The newest epoch that was followed.
    pub newest_epoch: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Bytes that wait for the reader.
    pub waiting_bytes: u64,
    /// Why it has ended, if its reader does not know yet.
    pub error: Option<String>,
}

/// The tasks, by relation, and what was counted.
#[derive(Default)]
pub struct Subscriptions {
    followings: Mutex<BTreeMap<ObjectId, Following>>,
    /// What is kept, by subscription.
    kept: Mutex<BTreeMap<ObjectId, Arc<SubscriptionLog>>>,
    next: AtomicU64,
    too_slow: Arc<AtomicU64>,
}

struct Following {
    /// If it is of a query: the view that was made for it.
    query: Option<Arc<QueryView>>,
    asked: mpsc::UnboundedSender<Asked>,
    status: Arc<Status>,
    task: JoinHandle<()>,
}

impl Subscriptions {
    /// All of them.
    pub fn list(&self) -> Vec<SubscriptionInfo> {
        let followings = self.followings.lock();
        let mut all = vec![];
        for following in followings.values() {
            let newest = following.status.epoch.load(Ordering::Acquire);
            let queues = following.status.queues.lock();
            all.extend(
                queues
                    .iter()
                    .filter_map(Weak::upgrade)
                    .map(|queue| queue.info(newest)),
            );
        }
        for kept in self.kept.lock().values() {
            let newest = kept.newest().map_or(0, |newest| newest.epoch);
            let queues = kept.queues.lock();
            all.extend(
                queues
                    .iter()
                    .filter_map(Weak::upgrade)
                    .map(|queue| queue.info(newest)),
            );
        }
        all.sort_by_key(|info| info.id);
        all
    }

    /// The number of one more client.
    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many relations are followed.
    pub fn followed(&self) -> usize {
        self.followings.lock().len()
    }

    /// Subscriptions that ended because their readers were too slow, since the start.
    pub fn too_slow(&self) -> u64 {
        self.too_slow.load(Ordering::Relaxed)
    }

    /// The first offset of a stream that has to be followed yet; none: nobody follows it.
    pub fn needed(&self, stream: ObjectId) -> Option<u64> {
        let followings = self.followings.lock();
        // A view that is not filled yet reads from the beginning.
        let is_filling = |following: &Following| {
            let reads = |query: &Arc<QueryView>| query.inputs.contains(&stream);
            following.status.epoch.load(Ordering::Acquire) == 0 && following.query.as_ref().is_some_and(reads)
        };
        if followings.values().any(is_filling) {
            return Some(0);
        }
        let following = followings.get(&stream)?;
        Some(following.status.offset.load(Ordering::Acquire))
    }

    /// Ends all of them, because the server stops.
    pub async fn stop_all(&self) {
        let followings = std::mem::take(&mut *self.followings.lock());
        for following in followings.into_values() {
            following.stop(stopping()).await;
        }
        for kept in std::mem::take(&mut *self.kept.lock()).into_values() {
            kept.end(stopping());
        }
    }
}

impl Following {
    /// Ends it, and waits until nothing is left of it.
    async fn stop(self, why: SqlError) {
        // One that has ended by itself does not hear it.
        let _ = self.asked.send(Asked::Stop(why));
        let _ = self.task.await;
    }
}

impl Database {
    /// Those who follow relations.
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// Begins to follow a materialized view, a table or a stream.
    ///
    /// # Errors
    /// It is something else, it is gone, or what is to be resumed is not known any more.
    pub async fn subscribe(self: &Arc<Self>, object: &Object, wish: Wish) -> SqlResult<Subscription> {
        object.check_up()?;
        let relation = object.relation().ok_or_else(|| not_followed(object))?;
        let columns = relation.schema().fields().len();
        let snapshot = self
            .runtime()
            .snapshot(&[relation.info.id], wish.after.as_ref())
            .await?;
        let (answer, answered) = oneshot::channel();
        let mut asked = Asked::Join {
            wish,
            least: snapshot.epoch(),
            columns,
            answer,
        };
        drop(snapshot);
        {
            let mut followings = self.subscriptions.followings.lock();
            if self.is_closing() {
                return Err(stopping());
            }
            loop {
                let following = followings
                    .entry(object.id)
                    .or_insert_with(|| self.follow(object, None));
                match following.asked.send(asked) {
                    Ok(()) => break,
                    // It has ended, and is about to be removed.
                    Err(mpsc::error::SendError(back)) => {
                        asked = back;
                        followings.remove(&object.id);
                    }
                }
            }
        }
        answered
            .await
            .unwrap_or_else(|_| Err(SqlError::internal("the task of a subscription has ended")))
    }
}

/// What cannot be followed.
fn not_followed(object: &Object) -> SqlError {
    SqlError::new(
        SqlState::WrongObjectType,
        format!("cannot subscribe to {}", object.described()),
    )
    .with_hint("A view, a table, a stream or a query can be followed.")
}

fn stopping() -> SqlError {
    SqlError::new(SqlState::AdminShutdown, "the server is shutting down")
}
