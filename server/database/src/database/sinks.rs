//! The tasks that write sinks, one each.
//!
//! ```text
//!  start: names are settled (sink/directory) --> what there is against what was delivered: the difference is the first step
//!  then: the relation moved --> rollover is over --> step --> files --> commit (the fact) --> names --> ..
//! ```
//! What was delivered of a table or view is read from the files: their rows, added up. So it does not matter from where the
//! view came up after a crash, or whether it was filled again and rows are other ones now: what the files say is what the view
//! says, after the first step as after every other. Of a stream the fact says up to which offset it was delivered.
//!
//! So that not all files have to be read for that, a sink notes with each checkpoint of its relation how the files differ from
//! it (`sink/base`). A start from that checkpoint reads the files that came since, and compares them with what changed since.
//!
//! When something fails (no room, a file that is gone) the task says so, and starts again a little later.

mod delivered;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use millrace_catalog::sink::{SinkDef, SinkType};
use millrace_catalog::{Definition, Object};
use millrace_engine::{Changes, Checkpointed, Follower, Runtime};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_schedule::cpu::QueryClass;
use millrace_storage::{ChangeBatch, ObjectId, ObjectKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::clock::now_ms;
use crate::database::Database;
use crate::sink_files::base::{Bases, Counts};
use crate::sink_files::directory::{Directory, io_error};
use crate::sink_files::draft::Draft;
use crate::sink_files::encode::{Encoder, Op};

/// When a sink that failed tries again.
const RETRY: Duration = Duration::from_secs(1);

/// With more rows than these waiting for rollover at a checkpoint, a sink writes them before: what is noted stays small.
const AHEAD_MAX: usize = 262_144;

/// The fact that says what of a sink is committed.
pub fn fact(sink: ObjectId) -> String {
    format!("sink/{}", sink.0)
}

/// What is committed: the files below `next`. Its lasting form is JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Committed {
    next: u64,
    /// Of a stream, the first offset that is in none of them.
    offset: u64,
    rows: u64,
    bytes: u64,
    /// In milliseconds since 1970-01-01 00:00 UTC.
    at_ms: i64,
}

/// A sink as `mr_catalog.sinks` has it.
#[derive(Debug, Clone, Default)]
pub struct SinkStatus {
    /// Whether what was delivered before is known, so that changes are followed.
    pub is_running: bool,
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
    /// When files were committed last, in milliseconds since 1970-01-01 00:00 UTC; none: never.
    pub committed_at_ms: Option<i64>,
    /// Why it does not go on.
    pub error: Option<String>,
}

/// The tasks, by sink.
#[derive(Default)]
pub struct Sinks(Mutex<BTreeMap<ObjectId, Running>>);

struct Running {
    status: watch::Receiver<SinkStatus>,
    stop: watch::Sender<bool>,
    flushes: mpsc::UnboundedSender<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// The relation that it reads, and of a stream the first offset that it has not delivered.
    relation: ObjectId,
    needed: Arc<Mutex<u64>>,
}

impl Sinks {
    /// All of them.
    pub fn list(&self) -> Vec<(ObjectId, SinkStatus)> {
        let sinks = self.0.lock();
        sinks
            .iter()
            .map(|(id, sink)| (*id, sink.status.borrow().clone()))
            .collect()
    }

    /// The first offset of a stream that a sink has to deliver yet; none: no sink reads it.
    pub fn needed(&self, stream: ObjectId) -> Option<u64> {
        let sinks = self.0.lock();
        let needed = sinks.values().filter(|sink| sink.relation == stream);
        needed.map(|sink| *sink.needed.lock()).min()
    }

    /// Waits until all that is visible now is in committed files, of those sinks that can write.
    pub async fn flush(&self) {
        let answers: Vec<oneshot::Receiver<()>> = {
            let sinks = self.0.lock();
            let ask = |sink: &Running| {
                let (done, wait) = oneshot::channel();
                sink.flushes.send(done).ok().map(|()| wait)
            };
            sinks.values().filter_map(ask).collect()
        };
        for answer in answers {
            // One that fails, or is dropped meanwhile, is not waited for.
            let _ = answer.await;
        }
    }

    /// Stops one, which is dropped.
    pub async fn stop(&self, sink: ObjectId) {
        let running = self.0.lock().remove(&sink);
        if let Some(running) = running {
            running.stop.send_replace(true);
            // What is being committed is seen through.
            let _ = running.task.await;
        }
    }

    /// Delivers what is visible and stops all of them.
    pub async fn stop_all(&self) {
        self.flush().await;
        let sinks: Vec<ObjectId> = self.0.lock().keys().copied().collect();
        for sink in sinks {
            self.stop(sink).await;
        }
    }
}

impl Database {
    /// The sinks.
    pub fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// What sinks read that was restored, as of its checkpoint. To be asked before the logs are replayed.
    pub(super) async fn restored_for_sinks(&self) -> SqlResult<BTreeMap<ObjectId, Checkpointed>> {
        let catalog = self.catalog();
        let mut restored = BTreeMap::new();
        for object in catalog.objects() {
            if let Definition::Sink(def) = &object.definition
                && catalog
                    .object(def.relation)
                    .is_some_and(|read| read.kind != ObjectKind::Stream)
                && let Some(checkpointed) = self.runtime.restored(RelationId(def.relation.0)).await?
            {
                restored.insert(object.id, checkpointed);
            }
        }
        let number = |sink| {
            restored
                .get(&sink)
                .map(|checkpointed: &Checkpointed| checkpointed.number)
        };
        let data = &self.options.data;
        Bases::keep(data, number).map_err(|error| io_error("clear", &data.join("sinks"), &error))?;
        Ok(restored)
    }

    /// Removes what a sink has in the data directory.
    pub(crate) fn forget_sink(&self, object: &Object) {
        if matches!(object.definition, Definition::Sink(_))
            && let Err(error) = Bases::of(&self.options.data, object.id).remove()
        {
            tracing::error!(%error, object = object.described(), "the record of a dropped sink could not be \
                 removed; the next start removes it");
        }
    }

    /// Starts to write a sink, if the object is one. `restored`: what it reads, if that was restored at this start.
    pub(crate) fn start_sink(self: &Arc<Self>, object: &Object, restored: Option<Checkpointed>) {
        let Definition::Sink(def) = &object.definition else {
            return;
        };
        let (tell, status) = watch::channel(SinkStatus::default());
        let (stop, stopped) = watch::channel(false);
        let (flushes, asked) = mpsc::unbounded_channel();
        let needed = Arc::default();
        let writing = Writing {
            db: Arc::downgrade(self),
            runtime: self.runtime().clone(),
            id: object.id,
            def: Arc::clone(def),
            directory: Directory::of(def),
            bases: Bases::of(&self.options.data, object.id),
            restored,
            committed: Committed::default(),
            status: tell,
            stopped,
            asked,
            needed: Arc::clone(&needed),
        };
        let running = Running {
            status,
            stop,
            flushes,
            relation: def.relation,
            needed,
            task: tokio::spawn(writing.run(object.described())),
        };
        self.sinks.0.lock().insert(object.id, running);
    }
}

/// Why a task leaves what it is at.
enum Leave {
    Stopped,
    Failed(SqlError),
}

impl<E: Into<SqlError>> From<E> for Leave {
    fn from(error: E) -> Self {
        Leave::Failed(error.into())
    }
}

/// A task.
struct Writing {
    db: Weak<Database>,
    runtime: Runtime,
    id: ObjectId,
    def: Arc<SinkDef>,
    directory: Directory,
    bases: Bases,
    /// What it reads as of the checkpoint that this was restored from, until it is compared with the files.
    restored: Option<Checkpointed>,
    committed: Committed,
    status: watch::Sender<SinkStatus>,
    stopped: watch::Receiver<bool>,
    asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    needed: Arc<Mutex<u64>>,
}

impl Writing {
    async fn run(mut self, name: String) {
        loop {
            let error = match self.follow().await {
                Ok(()) | Err(Leave::Stopped) => return,
                Err(Leave::Failed(error)) => error,
            };
            if self.status.borrow().error.as_ref() != Some(&error.message) {
                tracing::error!(sink = name, error = error.message, "a sink failed and will retry");
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
                    // Whoever asks is answered by that this is dropped.
                    asked = self.asked.recv() => if asked.is_none() { return },
                    () = &mut retry => break,
                }
            }
        }
    }

    /// Writes until it is stopped or something fails.
    async fn follow(&mut self) -> Result<(), Leave> {
        let stored = self.db()?.store().catalog().fact(&fact(self.id))?;
        self.committed = match stored {
            None => Committed::default(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                SqlError::new(
                    SqlState::DataCorrupted,
                    format!("the record of the sink's files cannot be read: {error}"),
                )
            })?,
        };
        *self.needed.lock() = self.committed.offset;
        self.tell();
        let (directory, next) = (self.directory.clone(), self.committed.next);
        self.on_disk(move || directory.settle(next)).await?;
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
        let (mut follower, mut first) = if is_stream {
            let follower = self.runtime.follow(relation, self.committed.offset);
            (follower, Some(Counts::new()))
        } else if let Some((checkpoint, base)) = self.base_of(noted.as_ref()).await? {
            let mut delivered = self.delivered(&encoder, base.next).await?;
            for (key, count) in base.ahead {
                *delivered.entry(key).or_default() -= count;
            }
            delivered.retain(|_, count| *count != 0);
            let follower = self.runtime.follow_from(checkpoint);
            noted = None;
            (follower, Some(delivered))
        } else {
            let delivered = self.delivered(&encoder, 0).await?;
            (self.runtime.follow(relation, 0), Some(delivered))
        };
        let mut checkpoints = None;
        let rollover = Duration::from_millis(self.def.rollover_ms);
        let mut last = tokio::time::Instant::now() - rollover;
        let mut waiting: Vec<oneshot::Sender<()>> = vec![];
        loop {
            if first.is_none() && waiting.is_empty() {
                let checkpoint = async {
                    match &mut checkpoints {
                        Some(checkpoints) => next_of(checkpoints).await,
                        None => std::future::pending().await,
                    }
                };
                let is_due = async {
                    follower.moved().await?;
                    tokio::time::sleep_until(last + rollover).await;
                    Ok::<(), Leave>(())
                };
                let checkpoint = tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return Err(Leave::Stopped),
                    asked = self.asked.recv() => {
                        waiting.push(asked.ok_or(Leave::Stopped)?);
                        None
                    }
                    checkpoint = checkpoint => Some(checkpoint),
                    due = is_due => {
                        due?;
                        None
                    }
                };
                if let Some(checkpoint) = checkpoint {
                    if self.note(&encoder, &follower, &checkpoint, AHEAD_MAX).await? {
                        continue;
                    }
                    noted = Some(checkpoint);
                }
            }
            while let Ok(asked) = self.asked.try_recv() {
                waiting.push(asked);
            }
            let changes = follower.step().await?;
            let draft = Draft::new(&self.def, &encoder, self.committed.next);
            let draft = match first.take().filter(|delivered| !delivered.is_empty()) {
                Some(delivered) => self.write_difference(&encoder, changes, delivered, draft).await?,
                None => self.write(changes, draft).await?,
            };
            last = tokio::time::Instant::now();
            self.commit(draft, &follower).await?;
            if let Some(checkpoint) = noted.take() {
                self.note(&encoder, &follower, &checkpoint, usize::MAX).await?;
            }
            if !is_stream && checkpoints.is_none() {
                checkpoints = Some(self.runtime.checkpoints_of(relation));
            }
            self.status.send_modify(|status| {
                status.is_running = true;
                status.error = None;
            });
            for done in waiting.drain(..) {
                // Whoever asked may have gone.
                let _ = done.send(());
            }
        }
    }

    /// How rows are written, and whether they are those of a stream.
    fn encoder(&self) -> Result<(Arc<Encoder>, bool), Leave> {
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

    /// Writes all changes: rows that go before rows that come.
    async fn write(&self, mut changes: Changes, mut draft: Draft) -> Result<Draft, Leave> {
        if self.def.sink_type == SinkType::Changelog {
            draft = self.write_of(Op::Delete, &mut changes, draft).await?;
            changes.rewind();
        }
        self.write_of(Op::Insert, &mut changes, draft).await
    }

    async fn write_of(&self, op: Op, changes: &mut Changes, mut draft: Draft) -> Result<Draft, Leave> {
        while let Some(batch) = changes.next().await? {
            let encoder = draft.encoder();
            let rows = self.compute(move || match rows_of(op, &batch)? {
                Some(rows) => encoder.conform(&rows).map(Some),
                None => Ok(None),
            });
            let Some(rows) = rows.await? else { continue };
            let mut done = 0;
            while done < rows.num_rows() {
                draft = self.with_room(draft).await?;
                let piece = rows.slice(done, draft.room().min(rows.num_rows() - done));
                done += piece.num_rows();
                draft = self
                    .compute(move || draft.encode(op, &piece).map(|()| draft))
                    .await?;
            }
        }
        Ok(draft)
    }

    async fn write_keys(&self, op: Op, mut keys: Vec<Box<[u8]>>, mut draft: Draft) -> Result<Draft, Leave> {
        keys.reverse();
        while !keys.is_empty() {
            draft = self.with_room(draft).await?;
            let piece: Vec<Box<[u8]>> = keys
                .drain(keys.len().saturating_sub(draft.room())..)
                .rev()
                .collect();
            draft = self
                .compute(move || draft.encode_keys(op, &piece).map(|()| draft))
                .await?;
        }
        Ok(draft)
    }

    /// The draft, once it has space for rows.
    async fn with_room(&self, mut draft: Draft) -> Result<Draft, Leave> {
        self.check_running()?;
        if draft.room() == 0 {
            draft = self.compute(move || draft.end_if_full().map(|()| draft)).await?;
            draft = self.on_disk(move || draft.proceed().map(|()| draft)).await?;
        }
        Ok(draft)
    }

    /// Runs what takes a processor as batch work.
    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> Result<T, Leave> {
        let done = self.runtime.compute(QueryClass::Batch, work)?;
        Ok(done.await??)
    }

    /// Runs what reads and writes files as a disk monotask of the device that they are on.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> Result<T, Leave> {
        let place = self.directory.file(0);
        Ok(self.runtime.use_files(&place, work).await??)
    }

    /// Makes files count: the commit point is the fact.
    async fn commit(&mut self, mut draft: Draft, follower: &Follower) -> Result<(), Leave> {
        let (db, directory, fact) = (self.db()?, self.directory.clone(), fact(self.id));
        let mut committed = Committed {
            offset: follower.offset(),
            ..self.committed
        };
        let is_new = committed != self.committed;
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
                let value =
                    serde_json::to_vec(&committed).map_err(|error| SqlError::internal(error.to_string()))?;
                db.store().catalog().put_fact(&fact, &value)?;
                directory.publish(numbers)?;
                Ok(committed)
            })
            .await?;
        *self.needed.lock() = self.committed.offset;
        self.tell();
        Ok(())
    }

    /// The database, unless it is gone.
    fn db(&self) -> Result<Arc<Database>, Leave> {
        self.db.upgrade().ok_or(Leave::Stopped)
    }

    fn check_running(&self) -> Result<(), Leave> {
        match *self.stopped.borrow() {
            true => Err(Leave::Stopped),
            false => Ok(()),
        }
    }

    fn tell(&self) {
        let committed = self.committed;
        self.status.send_modify(|status| {
            status.files = committed.next;
            status.rows = committed.rows;
            status.bytes = committed.bytes;
            status.committed_at_ms = (committed.next > 0).then_some(committed.at_ms);
        });
    }
}

/// The next checkpoint; never, if there are none.
async fn next_of(checkpoints: &mut mpsc::UnboundedReceiver<Checkpointed>) -> Checkpointed {
    match checkpoints.recv().await {
        Some(checkpoint) => checkpoint,
        None => std::future::pending().await,
    }
}

fn times(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// The rows of changes that came or went, each as often as it did.
pub(crate) fn rows_of(op: Op, changes: &ChangeBatch) -> SqlResult<Option<RecordBatch>> {
    if changes.weights.is_none() {
        return Ok((op == Op::Insert).then(|| changes.rows.clone()));
    }
    let mut positions: Vec<u32> = vec![];
    for row in 0..changes.num_rows() {
        let weight = match op {
            Op::Insert => changes.weight(row),
            Op::Delete => -changes.weight(row),
        };
        let position = u32::try_from(row).map_err(|error| SqlError::internal(error.to_string()))?;
        positions.extend(std::iter::repeat_n(position, times(weight)));
    }
    if positions.is_empty() {
        return Ok(None);
    }
    let taken = arrow::compute::take_record_batch(&changes.rows, &UInt32Array::from(positions));
    taken.map(Some).map_err(from_internal::arrow)
}
