//! The task that follows one relation for all of its subscribers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_catalog::Object;
use millrace_engine::{Follower, Runtime, RuntimeError};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_resource::memory::{Account, Holder};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use uuid::Uuid;

use super::changes::{self, Epoch};
use super::log::gone;
use super::queries::{MadeView, QueryView};
use super::queue::{Origin, Queue};
use super::{Following, Position, Subscription, Wish, stopping};
use crate::clock::now_ms;
use crate::database::Database;

/// For so long a relation is followed after its last subscriber has left.
const LINGER: Duration = Duration::from_secs(30);
/// So much of the newest changes is kept for those who come back.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// What others see of a task.
#[derive(Default)]
pub(super) struct Status {
    pub epoch: AtomicU64,
    /// Of a stream, the offset up to which it was read; 0 before the first step.
    pub offset: AtomicU64,
    pub queues: Mutex<Vec<Weak<Queue>>>,
}

pub(super) enum Asked {
    Join {
        wish: Wish,
        /// The epoch that the first step has to reach.
        least: u64,
        columns: usize,
        answer: oneshot::Sender<SqlResult<Subscription>>,
    },
    /// Answered when what is followed can be read.
    Ready(oneshot::Sender<SqlResult<()>>),
    Stop(SqlError),
}

impl Database {
    /// Starts the task of a relation; `made`: the view that is to be made first.
    pub(super) fn follow(self: &Arc<Self>, object: &Object, made: Option<MadeView>) -> Following {
        let (asked, asks) = mpsc::unbounded_channel();
        let status = Arc::new(Status::default());
        let relation = RelationId(object.id.0);
        let head = self.store().logs().head(object.id.0);
        let query = made.as_ref().map(|made| Arc::clone(&made.view));
        let task = Task {
            db: Arc::downgrade(self),
            runtime: self.runtime().clone(),
            object: object.clone(),
            key: object.relation().and_then(|relation| relation.info.key.clone()),
            query: query.clone(),
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
            waiting: vec![],
        };
        Following {
            query,
            asked,
            status,
            task: tokio::spawn(task.run(made)),
        }
    }
}

struct Task {
    db: Weak<Database>,
    runtime: Runtime,
    object: Object,
    /// What tells the rows of the relation apart, if that is known.
    key: Option<Vec<usize>>,
    /// If it is a query: its view.
    query: Option<Arc<QueryView>>,
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
    /// Those who wait until it can be read.
    waiting: Vec<oneshot::Sender<SqlResult<()>>>,
}

/// Why a task does not go on.
enum Leave {
    /// Nobody has followed for a while.
    Unused,
    Failed(SqlError),
}

impl Task {
    async fn run(mut self, made: Option<MadeView>) {
        let left = match made {
            None => self.follow().await,
            Some(made) => match self.make(made).await {
                Ok(()) => self.follow().await,
                Err(left) => left,
            },
        };
        self.end(left);
        if self.query.is_some() {
            self.drop_view().await;
        }
    }

    /// Tells everybody why it has ended.
    fn end(&mut self, left: Leave) {
        let Leave::Failed(why) = left else { return };
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
        // Whoever asked may have gone.
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(Err(why.clone()));
        }
        while let Ok(asked) = self.asks.try_recv() {
            match asked {
                Asked::Join { answer, .. } => drop(answer.send(Err(why.clone()))),
                Asked::Ready(answer) => drop(answer.send(Err(why.clone()))),
                Asked::Stop(_) => {}
            }
        }
    }

    /// Makes the view of a query. Whoever waits for it may go; when all have, it is given up.
    async fn make(&mut self, made: MadeView) -> Result<(), Leave> {
        let Some(db) = self.db.upgrade() else {
            return Err(Leave::Unused);
        };
        let filled = db.fill(made);
        tokio::pin!(filled);
        loop {
            let is_waited_for = !self.waiting.is_empty();
            let waiting = self.waiting.iter_mut().map(oneshot::Sender::closed);
            let all_gone = futures::future::join_all(waiting);
            tokio::select! {
                biased;
                asked = self.asks.recv() => match asked {
                    Some(Asked::Ready(answer)) => self.waiting.push(answer),
                    // Nobody joins before it is ready.
                    Some(Asked::Join { .. }) => {}
                    Some(Asked::Stop(why)) => return Err(Leave::Failed(why)),
                    None => return Err(Leave::Failed(stopping())),
                },
                _ = all_gone, if is_waited_for => {
                    self.waiting.clear();
                    if self.leave() {
                        return Err(Leave::Unused);
                    }
                }
                filled = &mut filled => match filled {
                    Ok(()) => break,
                    Err(why) => return Err(Leave::Failed(why)),
                },
            }
        }
        Ok(())
    }

    /// Removes the view of a query.
    async fn drop_view(&self) {
        let id = RelationId(self.object.id.0);
        if let Err(error) = self.runtime.drop_relations(&[id]).await {
            tracing::debug!(%error, "the view of a subscription was not in the runtime when it was removed");
        }
    }

    async fn follow(&mut self) -> Leave {
        if let Err(error) = self.first_step().await {
            return Leave::Failed(self.why(error));
        }
        for waiting in self.waiting.drain(..) {
            // Whoever waited may have gone.
            let _ = waiting.send(Ok(()));
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
                    Some(Asked::Ready(answer)) => {
                        drop(answer.send(Ok(())));
                        Ok(())
                    }
                    Some(Asked::Stop(why)) => return Leave::Failed(why),
                    None => return Leave::Failed(stopping()),
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
                .compute_async(QueryClass::Batch, Tenant::default(), collected)?
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
                return Ok(Err(gone(&self.described())));
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
            id: db.subscriptions.next_number(),
            relation: self.object.id,
            query: self.query.as_ref().map(|query| Arc::clone(&query.text)),
            name: self.described(),
            session: wish.session,
            began_at_ms: now_ms(),
            columns,
            buffer_bytes: wish.buffer_bytes,
        };
        let queue = Arc::new(Queue::new(origin, rows, begins.epoch, waiting));
        self.status.queues.lock().push(Arc::downgrade(&queue));
        Ok(Ok(Subscription::new(queue, begins, Arc::clone(&self.left))))
    }

    fn described(&self) -> String {
        match &self.query {
            Some(_) => "a query".to_owned(),
            None => self.object.described(),
        }
    }

    /// What subscribers are told of a failure.
    fn why(&self, error: RuntimeError) -> SqlError {
        let what = self.described();
        let again = "Subscribe again.";
        match error {
            RuntimeError::UnknownRelation(_) => {
                let object = &self.object;
                let catalog = self.db.upgrade().map(|db| db.catalog());
                let now = catalog
                    .as_ref()
                    .and_then(|catalog| catalog.relation(&object.database, &object.schema, &object.name));
                match now {
                    Some(now) if now.id != object.id => ended(&what, "replaced").with_hint(again),
                    _ => ended(&what, "dropped"),
                }
            }
            error @ RuntimeError::RowsLost { .. } => {
                SqlError::new(SqlState::ObjectNotInPrerequisiteState, error.to_string()).with_hint(again)
            }
            error => from_internal::runtime(error),
        }
    }
}

/// What subscribers are told when what they follow is gone.
pub(super) fn ended(what: &str, how: &str) -> SqlError {
    SqlError::new(
        SqlState::ObjectNotInPrerequisiteState,
        format!("the subscription ended because {what} was {how}"),
    )
}
