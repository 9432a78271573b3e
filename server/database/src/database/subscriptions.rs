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

mod changes;
mod queue;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_catalog::Object;
use millrace_engine::{Follower, Runtime, RuntimeError, WriteToken};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Account, Holder};
use millrace_schedule::cpu::QueryClass;
use millrace_storage::ObjectId;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::clock::now_ms;
use crate::database::Database;

use self::changes::Epoch;
pub use self::queue::{Event, Subscription};
use self::queue::{Origin, Queue};

/// For so long a relation is followed after its last subscriber has left.
const LINGER: Duration = Duration::from_secs(30);
/// So much of the newest changes is kept for those who come back.
const KEPT_BYTES_MAX: usize = 4 << 20;

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

/// A subscription as `mr_catalog.subscriptions` has it.
#[derive(Debug, Clone)]
pub struct SubscriptionInfo {
    /// Its number, unique in this process.
    pub id: u64,
    pub relation: ObjectId,
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
    next: AtomicU64,
    too_slow: Arc<AtomicU64>,
}

struct Following {
    asked: mpsc::UnboundedSender<Asked>,
    status: Arc<Status>,
    task: JoinHandle<()>,
}

/// What others see of a task.
#[derive(Default)]
struct Status {
    epoch: AtomicU64,
    /// Of a stream, the offset up to which it was read; 0 before the first step.
    offset: AtomicU64,
    queues: Mutex<Vec<Weak<Queue>>>,
}

enum Asked {
    Join {
        wish: Wish,
        /// The epoch that the first step has to reach.
        least: u64,
        columns: usize,
        answer: oneshot::Sender<SqlResult<Subscription>>,
    },
    Stop,
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
        all.sort_by_key(|info| info.id);
        all
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
        let following = followings.get(&stream)?;
        Some(following.status.offset.load(Ordering::Acquire))
    }

    /// Ends all of them, because the server stops.
    pub async fn stop_all(&self) {
        let followings = std::mem::take(&mut *self.followings.lock());
        for following in followings.into_values() {
            // One that has ended by itself does not hear it.
            let _ = following.asked.send(Asked::Stop);
            let _ = following.task.await;
        }
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
                    .or_insert_with(|| self.follow(object, relation.info.key.clone()));
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

    fn follow(self: &Arc<Self>, object: &Object, key: Option<Vec<usize>>) -> Following {
        let (asked, asks) = mpsc::unbounded_channel();
        let status = Arc::new(Status::default());
        let relation = RelationId(object.id.0);
        let head = self.store().logs().head(object.id.0);
        let task = Task {
            db: Arc::downgrade(self),
            runtime: self.runtime().clone(),
            object: object.clone(),
            key,
            account: self
                .runtime()
                .memory()
                .account(Holder::Clients, "what clients send"),
            follower: self.runtime().follow(relation, head),
            position: Position {
                following: Uuid::new_v4(),
                epoch: 0,
            },
            status: Arc::clone(&status),
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_since: u64::MAX,
            left: Arc::default(),
            asks,
        };
        Following {
            asked,
            status,
            task: tokio::spawn(task.run()),
        }
    }
}

/// What cannot be followed.
fn not_followed(object: &Object) -> SqlError {
    SqlError::new(
        SqlState::WrongObjectType,
        format!("cannot subscribe to {}", object.described()),
    )
    .with_hint("A materialized view, a table or a stream can be followed.")
}

fn stopping() -> SqlError {
    SqlError::new(SqlState::AdminShutdown, "the server is shutting down")
}

struct Task {
    db: Weak<Database>,
    runtime: Runtime,
    object: Object,
    /// What tells the rows of the relation apart, if that is known.
    key: Option<Vec<usize>>,
    account: Arc<Account>,
    follower: Follower,
    /// The step that was taken last.
    position: Position,
    status: Arc<Status>,
    /// The newest changes; from which epoch on they are all.
    kept: VecDeque<Arc<Epoch>>,
    kept_bytes: usize,
    kept_since: u64,
    /// Told when a subscriber leaves.
    left: Arc<Notify>,
    asks: mpsc::UnboundedReceiver<Asked>,
}

/// Why a task does not go on.
enum Leave {
    /// Nobody has followed for a while.
    Unused,
    Failed(SqlError),
}

impl Task {
    async fn run(mut self) {
        let why = match self.follow().await {
            Leave::Unused => return,
            Leave::Failed(why) => why,
        };
        if let Some(db) = self.db.upgrade() {
            // What asks from here on begins anew.
            let mut followings = db.subscriptions.followings.lock();
            let is_this = |following: &Following| Arc::ptr_eq(&following.status, &self.status);
            if followings.get(&self.object.id).is_some_and(is_this) {
                followings.remove(&self.object.id);
            }
        }
        for queue in self.queues() {
            queue.end(why.clone());
        }
        self.asks.close();
        while let Ok(asked) = self.asks.try_recv() {
            if let Asked::Join { answer, .. } = asked {
                // Whoever asked may have gone.
                let _ = answer.send(Err(why.clone()));
            }
        }
    }

    async fn follow(&mut self) -> Leave {
        if let Err(error) = self.first_step().await {
            return Leave::Failed(self.why(error));
        }
        loop {
            let is_used = !self.queues().is_empty();
            let left = Arc::clone(&self.left);
            let unused = async {
                match is_used {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(LINGER).await,
                }
            };
            let stepped = tokio::select! {
                biased;
                asked = self.asks.recv() => match asked {
                    Some(Asked::Join { wish, least, columns, answer }) => {
                        // Whoever asked may have gone.
                        self.join(wish, least, columns).await.map(|joined| drop(answer.send(joined)))
                    }
                    Some(Asked::Stop) | None => return Leave::Failed(stopping()),
                },
                passed = self.follower.passed() => match passed {
                    Ok(()) => self.step().await,
                    Err(error) => Err(error),
                },
                () = left.notified() => Ok(()),
                () = unused => match self.leave() {
                    true => return Leave::Unused,
                    false => Ok(()),
                },
            };
            if let Err(error) = stepped {
                return Leave::Failed(self.why(error));
            }
        }
    }

    /// Whether nobody has asked meanwhile, so that this is over.
    fn leave(&self) -> bool {
        let Some(db) = self.db.upgrade() else { return true };
        let mut followings = db.subscriptions.followings.lock();
        if !self.asks.is_empty() {
            return false;
        }
        followings.remove(&self.object.id);
        true
    }

    /// Those who follow.
    fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues = self.status.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.iter().filter_map(Weak::upgrade).collect()
    }

    /// The rows that there are. They are not read: whoever wants them reads them.
    async fn first_step(&mut self) -> Result<(), RuntimeError> {
        let changes = self.follower.step().await?;
        drop(changes);
        self.taken();
        self.kept_since = self.position.epoch;
        Ok(())
    }

    fn taken(&mut self) {
        self.position.epoch = self.follower.epoch();
        self.status.epoch.store(self.position.epoch, Ordering::Release);
        self.status
            .offset
            .store(self.follower.offset(), Ordering::Release);
    }

    /// Takes what changed, and gives it to those who follow.
    async fn step(&mut self) -> Result<(), RuntimeError> {
        let changes = self.follower.step().await?;
        let (key, account) = (self.key.clone(), Arc::clone(&self.account));
        let epoch = self.follower.epoch();
        let collected = changes::collect(changes, epoch, key, account);
        let collected = Arc::new(
            self.runtime
                .compute_async(QueryClass::Batch, collected)?
                .await??,
        );
        self.taken();
        let too_slow = self.db.upgrade().map(|db| Arc::clone(&db.subscriptions.too_slow));
        for queue in self.queues() {
            if queue.put(&collected)
                && let Some(too_slow) = &too_slow
            {
                too_slow.fetch_add(1, Ordering::Relaxed);
            }
        }
        if collected.changes.is_empty() {
            return Ok(());
        }
        self.kept_bytes += collected.bytes;
        self.kept.push_back(collected);
        while self.kept_bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.kept.pop_front()
        {
            self.kept_bytes -= oldest.bytes;
            self.kept_since = oldest.epoch;
        }
        Ok(())
    }

    /// Somebody comes.
    async fn join(
        &mut self,
        wish: Wish,
        least: u64,
        columns: usize,
    ) -> Result<SqlResult<Subscription>, RuntimeError> {
        while self.position.epoch < least {
            self.follower.passed().await?;
            self.step().await?;
        }
        let position = self.position;
        let mut waiting = vec![];
        let mut begins = position;
        if let Some(resume) = wish.resume {
            let is_known = resume.following == position.following
                && (self.kept_since..=position.epoch).contains(&resume.epoch);
            if !is_known {
                return Ok(Err(SqlError::new(
                    SqlState::ObjectNotInPrerequisiteState,
                    format!(
                        "what changed in {} since then is not kept any more",
                        self.object.described()
                    ),
                )
                .with_hint("Subscribe again with a snapshot.")));
            }
            waiting.extend(
                self.kept
                    .iter()
                    .filter(|epoch| epoch.epoch > resume.epoch)
                    .cloned(),
            );
            begins = resume;
        }
        let rows = match wish.snapshot && wish.resume.is_none() {
            true => Some(self.follower.everything()?),
            false => None,
        };
        let Some(db) = self.db.upgrade() else {
            return Ok(Err(stopping()));
        };
        let origin = Origin {
            id: db.subscriptions.next.fetch_add(1, Ordering::Relaxed) + 1,
            relation: self.object.id,
            name: self.object.described(),
            session: wish.session,
            began_at_ms: now_ms(),
            columns,
            buffer_bytes: wish.buffer_bytes,
        };
        let queue = Arc::new(Queue::new(origin, rows, begins.epoch, waiting));
        self.status.queues.lock().push(Arc::downgrade(&queue));
        Ok(Ok(Subscription::new(queue, begins, Arc::clone(&self.left))))
    }

    /// What subscribers are told of a failure.
    fn why(&self, error: RuntimeError) -> SqlError {
        let what = self.object.described();
        let again = "Subscribe again.";
        match error {
            RuntimeError::UnknownRelation(_) => {
                let object = &self.object;
                let catalog = self.db.upgrade().map(|db| db.catalog());
                let now = catalog
                    .as_ref()
                    .and_then(|catalog| catalog.relation(&object.database, &object.schema, &object.name));
                let ended = |how: &str| {
                    SqlError::new(
                        SqlState::ObjectNotInPrerequisiteState,
                        format!("the subscription ended because {what} was {how}"),
                    )
                };
                match now {
                    Some(now) if now.id != object.id => ended("replaced").with_hint(again),
                    _ => ended("dropped"),
                }
            }
            error @ RuntimeError::RowsLost { .. } => {
                SqlError::new(SqlState::ObjectNotInPrerequisiteState, error.to_string()).with_hint(again)
            }
            error => from_internal::runtime(error),
        }
    }
}
