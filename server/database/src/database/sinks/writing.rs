//! The task of one sink.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrace_catalog::connector::private_hosts::PrivateHosts;
use millrace_catalog::sink::{SinkDef, Target};
use millrace_engine::{Changes, Checkpointed, Follower, Runtime};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ObjectId, ObjectKind};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::shipping::Shipping;
use super::{Committed, SinkStatus, fact};
use crate::clock::now_ms;
use crate::database::Database;
use crate::database::subscriptions::log::{self, SubscriptionLog};
use crate::sink_files::base::Bases;
use crate::sink_files::directory::{Directory, io_error};
use crate::sink_files::draft::{Draft, Limits};
use crate::sink_files::encode::Encoder;
use crate::sink_files::outbox;

/// When a sink that failed tries again.
const RETRY: Duration = Duration::from_secs(1);

/// With more rows than these waiting for rollover at a checkpoint, a sink writes them before: what is noted stays small.
const AHEAD_MAX: usize = 262_144;

/// Why a task leaves what it is at.
pub(super) enum Leave {
    Stopped,
    /// It tries again.
    Failed(SqlError),
    /// It does not.
    Ended(SqlError),
}

impl<E: Into<SqlError>> From<E> for Leave {
    fn from(error: E) -> Self {
        Leave::Failed(error.into())
    }
}

/// What somebody wants of a task. It is dropped where the task cannot answer.
pub(super) enum Ask {
    /// To be told when all that is visible now is delivered.
    Flush(oneshot::Sender<()>),
    /// All rows as of the step that was taken last, and its epoch.
    Rows(oneshot::Sender<(u64, Changes)>),
}

/// How a task is asked and answers.
pub(super) struct Wires {
    pub status: watch::Sender<SinkStatus>,
    pub stopped: watch::Receiver<bool>,
    pub asked: mpsc::UnboundedReceiver<Ask>,
    pub needed: Arc<Mutex<u64>>,
    /// Where the steps of a subscription are kept.
    pub kept: Option<Arc<SubscriptionLog>>,
}

/// A task.
pub(super) struct Writing {
    db: Weak<Database>,
    pub(super) runtime: Runtime,
    pub(super) id: ObjectId,
    /// As errors have it.
    pub(super) name: String,
    pub(super) def: Arc<SinkDef>,
    pub(super) data: PathBuf,
    pub(super) directory: Directory,
    pub(super) private_hosts: Arc<PrivateHosts>,
    limits: Limits,
    pub(super) bases: Bases,
    /// What it reads as of the checkpoint that this was restored from, until it is compared with the files.
    restored: Option<Checkpointed>,
    pub(super) committed: Committed,
    /// What sends the steps to another system, if they go to one.
    pub(super) shipping: Option<Shipping>,
    status: watch::Sender<SinkStatus>,
    stopped: watch::Receiver<bool>,
    asked: mpsc::UnboundedReceiver<Ask>,
    needed: Arc<Mutex<u64>>,
    /// Where the steps of a subscription are kept.
    pub(super) kept: Option<Arc<SubscriptionLog>>,
}

impl Writing {
    /// Of a sink, with what it reads if that was restored at this start.
    pub fn new(
        db: &Arc<Database>,
        id: ObjectId,
        name: String,
        def: &Arc<SinkDef>,
        restored: Option<Checkpointed>,
        wires: Wires,
    ) -> Self {
        let data = &db.options.data;
        let (directory, limits) = outbox::steps(&def.target, data, id);
        Writing {
            db: Arc::downgrade(db),
            runtime: db.runtime().clone(),
            id,
            name,
            def: Arc::clone(def),
            data: data.clone(),
            private_hosts: Arc::clone(&db.options.private_hosts),
            directory,
            limits,
            bases: Bases::of(data, id),
            restored,
            committed: Committed::default(),
            shipping: None,
            status: wires.status,
            stopped: wires.stopped,
            asked: wires.asked,
            needed: wires.needed,
            kept: wires.kept,
        }
    }

    /// Writes until it is stopped.
    pub async fn run(mut self) {
        self.keep_writing().await;
        if let Some(shipping) = self.shipping.take() {
            let is_delivered = shipping.has(self.committed.next);
            shipping.stop().await;
            if is_delivered {
                self.note_delivered().await;
            }
        }
    }

    /// Writes down that the target has all steps, which else the next step says: for whoever asks while it is paused.
    async fn note_delivered(&mut self) {
        let committed = &mut self.committed;
        let before = committed.outbox;
        committed.outbox.delivered = committed.next;
        committed.outbox.delivered_rows = committed.rows;
        let (id, committed) = (self.id, self.committed);
        let Some(db) = self.db.upgrade() else { return };
        // Nothing is left of one that was dropped.
        if committed.outbox == before || db.catalog().object(id).is_none() {
            return;
        }
        let write = move || {
            let value =
                serde_json::to_vec(&committed).map_err(|error| SqlError::internal(error.to_string()))?;
            Ok(db.store().catalog().put_fact(&fact(id), &value)?)
        };
        if let Err(Leave::Failed(error)) = self.on_disk(write).await {
            tracing::debug!(
                sink = id.0,
                error = error.message,
                "what a sink delivered is not written down"
            );
        }
    }

    async fn keep_writing(&mut self) {
        loop {
            let error = match self.follow().await {
                Ok(()) | Err(Leave::Stopped) => return,
                Err(Leave::Failed(error)) => error,
                Err(Leave::Ended(error)) => {
                    let shown = shown(&error);
                    tracing::error!(sink = self.name, error = shown, "a sink failed");
                    self.status.send_modify(|status| {
                        status.is_running = false;
                        status.has_ended = true;
                        status.error = Some(shown);
                    });
                    return;
                }
            };
            if self.status.borrow().error.as_ref() != Some(&error.message) {
                tracing::error!(
                    sink = self.name,
                    error = error.message,
                    "a sink failed and will retry"
                );
            }
            self.status.send_modify(|status| {
                status.is_running = false;
                status.error = Some(error.message);
            });
            // It would keep rows that have gone since.
            self.restored = None;
            let retry = tokio::time::sleep(RETRY);
            tokio::pin!(retry);
            loop {
                tokio::select! {
                    biased;
                    _ = self.stopped.wait_for(|stopped| *stopped) => return,
                    // Dropping the sender answers whoever waits.
                    asked = self.asked.recv() => if asked.is_none() { return },
                    () = &mut retry => break,
                }
            }
        }
    }

    /// Writes until it is stopped or something fails.
    async fn follow(&mut self) -> Result<(), Leave> {
        self.committed = self.db()?.stored_of_sink(self.id)?.0;
        self.set_needed();
        self.tell();
        self.fall_behind();
        let begins = self.begins().await?;
        let (directory, next) = (self.directory.clone(), self.committed.next);
        let (def, data, id) = (Arc::clone(&self.def), self.data.clone(), self.id);
        let settle = move || {
            let made = outbox::create(&def.target, &data, id);
            made.map_err(|error| io_error("make", &outbox::of(&data, id), &error))?;
            directory.settle(next)
        };
        self.on_disk(settle).await?;
        if !begins {
            self.ship();
        }
        // A view that is not yet where it was would seem to have lost what the files have of it.
        let ready = async {
            self.runtime.caught_up().await?;
            self.runtime.follow_clock().await
        };
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return Err(Leave::Stopped),
            ready = ready => ready?,
        }
        let (encoder, is_stream) = self.encoder()?;
        let relation = RelationId(self.def.relation.0);
        let mut noted = self.restored.take();
        let (mut follower, mut first) = if begins {
            let follower = self.begin(&encoder, is_stream).await?;
            self.ship();
            noted = None;
            (follower, None)
        } else if is_stream {
            let follower = self.runtime.follow(relation, self.committed.offset);
            (follower, Some(self.tally()))
        } else if let Some((checkpoint, base)) = self.base_of(noted.as_ref()).await? {
            let mut delivered = self.delivered(&encoder, Some(base.next)).await?;
            for (key, count) in base.ahead {
                delivered.add(&key, -count);
            }
            let follower = self.runtime.follow_from(checkpoint);
            noted = None;
            (follower, Some(delivered))
        } else {
            let delivered = self.delivered(&encoder, None).await?;
            (self.runtime.follow(relation, 0), Some(delivered))
        };
        // Two steps of a subscription at once would be one epoch.
        let early = match self.kept.is_some() {
            true => self.until_delivered().await?,
            false => vec![],
        };
        let mut checkpoints = (begins && !is_stream).then(|| self.runtime.checkpoints_of(relation));
        let rollover = Duration::from_millis(self.def.rollover_ms);
        let mut last = tokio::time::Instant::now() - rollover;
        // Those who wait for a step, and for what was taken to be delivered.
        let (mut waiting, mut taken): (Vec<oneshot::Sender<()>>, Vec<oneshot::Sender<()>>) = (vec![], vec![]);
        let mut wanted = vec![];
        for asked in early {
            match asked {
                Ask::Flush(done) => waiting.push(done),
                Ask::Rows(answer) if first.is_none() => self.answer(&follower, answer)?,
                Ask::Rows(answer) => wanted.push(answer),
            }
        }
        loop {
            let can_step = self.is_delivered();
            if first.is_none() && (waiting.is_empty() || !can_step) {
                let checkpoint = async {
                    match &mut checkpoints {
                        Some(checkpoints) => next_of(checkpoints).await,
                        None => std::future::pending().await,
                    }
                };
                let status = &self.status;
                let is_due = async {
                    follower.moved().await?;
                    fall_behind(status);
                    match can_step {
                        true => tokio::time::sleep_until(last + rollover).await,
                        false => std::future::pending().await,
                    }
                    Ok::<(), Leave>(())
                };
                let heard = async {
                    match &mut self.shipping {
                        Some(shipping) => shipping.changed().await,
                        None => std::future::pending().await,
                    }
                };
                let woken = tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return Err(Leave::Stopped),
                    asked = self.asked.recv() => {
                        Woken::Asked(asked.ok_or(Leave::Stopped)?)
                    }
                    checkpoint = checkpoint => Woken::Checkpoint(checkpoint),
                    () = heard => Woken::Heard,
                    due = is_due => {
                        due?;
                        Woken::Due
                    }
                };
                match woken {
                    Woken::Due => {}
                    // While nothing is delivered, dropping the sender answers whoever waits.
                    Woken::Asked(asked) => {
                        match asked {
                            Ask::Flush(_) if self.is_failing() => {}
                            Ask::Flush(done) => waiting.push(done),
                            Ask::Rows(answer) => self.answer(&follower, answer)?,
                        }
                        continue;
                    }
                    Woken::Heard => {
                        self.hear(&mut waiting, &mut taken)?;
                        if self.is_delivered() {
                            self.fold(&encoder, &follower, is_stream).await?;
                        }
                        continue;
                    }
                    Woken::Checkpoint(checkpoint) => {
                        let rows_max = AHEAD_MAX;
                        if self.note(&encoder, &follower, &checkpoint, rows_max).await? || !can_step {
                            continue;
                        }
                        noted = Some(checkpoint);
                    }
                }
            }
            while let Ok(asked) = self.asked.try_recv() {
                match asked {
                    Ask::Flush(done) => waiting.push(done),
                    Ask::Rows(answer) => wanted.push(answer),
                }
            }
            taken.append(&mut waiting);
            let changes = follower.step().await?;
            let draft = Draft::new(&self.directory, &encoder, self.limits, self.committed.next);
            let draft = match first.take().filter(|delivered| !delivered.is_empty()) {
                Some(delivered) => self.write_difference(&encoder, changes, delivered, draft).await?,
                None => self.write(changes, draft).await?,
            };
            last = tokio::time::Instant::now();
            self.commit(draft, &follower).await?;
            for answer in wanted.drain(..) {
                self.answer(&follower, answer)?;
            }
            if let Some(checkpoint) = noted.take() {
                self.note(&encoder, &follower, &checkpoint, usize::MAX).await?;
            }
            if !is_stream && checkpoints.is_none() {
                checkpoints = Some(self.runtime.checkpoints_of(relation));
            }
            self.hear(&mut waiting, &mut taken)?;
        }
    }

    /// Begins to send to another system, or goes on.
    fn ship(&mut self) {
        match &self.shipping {
            Some(shipping) => shipping.send(self.committed),
            None if matches!(self.def.target, Target::Files(_)) => {}
            None => self.shipping = Some(Shipping::start(self)),
        }
    }

    /// Waits until the target has all steps that were taken; returns what was asked meanwhile.
    async fn until_delivered(&mut self) -> Result<Vec<Ask>, Leave> {
        let mut stopped = self.stopped.clone();
        let mut asks = vec![];
        while !self.is_delivered() {
            let Some(shipping) = &mut self.shipping else {
                break;
            };
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return Err(Leave::Stopped),
                asked = self.asked.recv() => asks.push(asked.ok_or(Leave::Stopped)?),
                () = shipping.changed() => self.hear(&mut vec![], &mut vec![])?,
            }
            // Dropping the sender answers whoever waits.
            if self.is_failing() {
                asks.clear();
            }
        }
        Ok(asks)
    }

    /// Gives somebody all rows as of the step that was taken last, with its epoch.
    fn answer(&self, follower: &Follower, answer: oneshot::Sender<(u64, Changes)>) -> Result<(), Leave> {
        // Whoever asked may have gone.
        let _ = answer.send((self.committed.outbox.epoch, follower.everything()?));
        Ok(())
    }

    /// Whether the target has all steps that were taken.
    fn is_delivered(&self) -> bool {
        match &self.shipping {
            Some(shipping) => shipping.has(self.committed.next),
            None => true,
        }
    }

    fn is_failing(&self) -> bool {
        self.shipping
            .as_ref()
            .is_some_and(|shipping| shipping.error().is_some())
    }

    /// Takes notice of what was delivered, or of why it was not.
    fn hear(
        &mut self,
        waiting: &mut Vec<oneshot::Sender<()>>,
        taken: &mut Vec<oneshot::Sender<()>>,
    ) -> Result<(), Leave> {
        if let Some(shipping) = &self.shipping
            && let Some(error) = shipping.error()
        {
            // Dropping the sender answers whoever waits.
            waiting.clear();
            taken.clear();
            if error.is_final {
                return Err(Leave::Ended(error.into_sql()));
            }
            self.status.send_modify(|status| {
                status.is_running = false;
                status.error = Some(shown(&error.into_sql()));
            });
        } else if self.is_delivered() {
            self.committed.outbox.delivered_rows = self.committed.rows;
            self.status.send_modify(|status| {
                status.is_running = true;
                status.error = None;
                status.behind_since_ms = None;
            });
            for done in taken.drain(..) {
                // Whoever asked may have gone.
                let _ = done.send(());
            }
        }
        self.tell();
        Ok(())
    }

    /// From now on, or from before, there is something that the target does not have.
    fn fall_behind(&self) {
        fall_behind(&self.status);
    }

    /// How rows are written, and whether they are those of a stream.
    pub(super) fn encoder(&self) -> Result<(Arc<Encoder>, bool), Leave> {
        let catalog = self.db()?.catalog();
        let object = catalog.object(self.def.relation);
        let object =
            object.ok_or_else(|| SqlError::internal("the source of a sink is not in the catalog"))?;
        let relation = object.relation().ok_or_else(|| {
            SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                format!("{} failed to load", object.described()),
            )
        })?;
        let encoder = Encoder::new(&self.def, relation.schema())?;
        Ok((Arc::new(encoder), object.kind == ObjectKind::Stream))
    }

    /// Runs what takes a processor as batch work.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> Result<T, Leave> {
        let done = self.runtime.compute(QueryClass::Batch, work)?;
        Ok(done.await??)
    }

    /// Runs what reads and writes files as a disk monotask of the device that they are on.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> Result<T, Leave> {
        let place = self.directory.file(0);
        Ok(self.runtime.use_files(&place, work).await??)
    }

    /// Makes files count: the commit point is the fact.
    async fn commit(&mut self, mut draft: Draft, follower: &Follower) -> Result<(), Leave> {
        let (db, directory, fact) = (self.db()?, self.directory.clone(), fact(self.id));
        let delivered = self.shipping.as_ref().and_then(Shipping::delivered);
        let mut committed = Committed {
            offset: follower.offset(),
            ..self.committed
        };
        let is_new = committed != self.committed;
        let (is_kept, now) = (self.kept.is_some(), self.runtime.now());
        let draft = self.compute(move || draft.end().map(|()| draft)).await?;
        self.committed = self
            .on_disk(move || {
                let (numbers, rows, bytes) = draft.finish()?;
                if numbers.is_empty() && !is_new {
                    return Ok(committed);
                }
                committed.next = numbers.end;
                committed.rows += rows;
                committed.bytes += bytes;
                committed.at_ms = now_ms();
                if is_kept {
                    committed.outbox.epoch = log::epoch_after(committed.outbox.epoch, now);
                }
                committed.outbox.delivered = delivered.unwrap_or(committed.outbox.delivered);
                let value =
                    serde_json::to_vec(&committed).map_err(|error| SqlError::internal(error.to_string()))?;
                db.store().catalog().put_fact(&fact, &value)?;
                directory.publish(numbers)?;
                Ok(committed)
            })
            .await?;
        self.set_needed();
        if let Some(shipping) = &self.shipping {
            shipping.send(self.committed);
        }
        self.tell();
        Ok(())
    }

    /// What is delivered of a stream may go.
    pub(super) fn set_needed(&self) {
        *self.needed.lock() = self.committed.offset;
    }

    /// The database, unless it is gone.
    pub(super) fn db(&self) -> Result<Arc<Database>, Leave> {
        self.db.upgrade().ok_or(Leave::Stopped)
    }

    pub(super) fn check_running(&self) -> Result<(), Leave> {
        match *self.stopped.borrow() {
            true => Err(Leave::Stopped),
            false => Ok(()),
        }
    }

    pub(super) fn tell(&self) {
        let now = self.committed.status(&self.def.target);
        self.status.send_modify(|status| {
            (status.files, status.rows, status.bytes) = (now.files, now.rows, now.bytes);
            status.waiting_rows = now.waiting_rows;
            status.committed_at_ms = now.committed_at_ms;
        });
    }
}

/// What a task was waiting for.
enum Woken {
    Due,
    Heard,
    Checkpoint(Checkpointed),
    Asked(Ask),
}

fn fall_behind(status: &watch::Sender<SinkStatus>) {
    status.send_if_modified(|status| {
        let is_new = status.behind_since_ms.is_none();
        status.behind_since_ms = status.behind_since_ms.or_else(|| Some(now_ms()));
        is_new
    });
}

/// An error and what to do, in a line.
fn shown(error: &SqlError) -> String {
    match &error.hint {
        Some(hint) => format!("{}. {hint}", error.message),
        None => error.message.clone(),
    }
}

/// The next checkpoint; never, if there are none.
async fn next_of(checkpoints: &mut mpsc::UnboundedReceiver<Checkpointed>) -> Checkpointed {
    match checkpoints.recv().await {
        Some(checkpoint) => checkpoint,
        None => std::future::pending().await,
    }
}
