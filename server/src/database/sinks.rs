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
//! When something fails (no room, a file that is gone) the task says so, and begins anew a little later.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::{RecordBatch, UInt32Array};
use millrace_planner::RelationId;
use millrace_runtime::{Changes, Follower, QueryClass, Runtime};
use millrace_storage::{ChangeBatch, ObjectId, ObjectKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::catalog::{Definition, Object};
use crate::database::{Database, now_ms};
use crate::error::{SqlError, SqlResult, SqlState, from_internal};
use crate::sink::decode::Decoder;
use crate::sink::directory::{Directory, io_error};
use crate::sink::draft::Draft;
use crate::sink::encode::{Encoder, Op};
use crate::sink::{SinkDef, SinkType};

/// When a sink that failed tries again.
const RETRY: Duration = Duration::from_secs(1);
/// Rows that are compared with what was delivered at once.
const KEYS_AT_ONCE: usize = 1_024;

/// The fact that says what of a sink is committed.
pub(crate) fn fact(sink: ObjectId) -> String {
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
    pub(crate) fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Starts to write a sink, if the object is one.
    pub(crate) fn start_sink(self: &Arc<Self>, object: &Object) {
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
                tracing::error!(sink = name, error = error.message, "it does not go on for now");
            }
            self.status.send_modify(|status| {
                status.is_running = false;
                status.error = Some(error.message);
            });
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
                    format!("what is known of the sink's files cannot be read: {error}"),
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
        let mut follower = self.runtime.follow(relation, self.committed.offset);
        let mut first = Some(if is_stream {
            HashMap::new()
        } else {
            self.delivered(&encoder).await?
        });
        let rollover = Duration::from_millis(self.def.rollover_ms);
        let mut last = tokio::time::Instant::now() - rollover;
        let mut waiting: Vec<oneshot::Sender<()>> = vec![];
        loop {
            if first.is_none() && waiting.is_empty() {
                let is_due = async {
                    follower.moved().await?;
                    tokio::time::sleep_until(last + rollover).await;
                    Ok::<(), Leave>(())
                };
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return Err(Leave::Stopped),
                    asked = self.asked.recv() => match asked {
                        Some(asked) => waiting.push(asked),
                        None => return Err(Leave::Stopped),
                    },
                    due = is_due => due?,
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
        let object = object.ok_or_else(|| SqlError::internal("what a sink reads is not in the catalog"))?;
        let relation = object.relation().ok_or_else(|| {
            SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                format!("{} is set aside", object.described()),
            )
        })?;
        let encoder = Encoder::new(&self.def, relation.schema())?;
        Ok((Arc::new(encoder), object.kind == ObjectKind::Stream))
    }

    /// What the committed files say together: how often each row is there.
    async fn delivered(&self, encoder: &Arc<Encoder>) -> Result<HashMap<Box<[u8]>, i64>, Leave> {
        let mut counts: HashMap<Box<[u8]>, i64> = HashMap::new();
        for number in 0..self.committed.next {
            self.check_running()?;
            let path = self.directory.file(number);
            let content = self.runtime.read_file(&path).await?;
            let content = content.map_err(|error| {
                let error = io_error("read", &path, &error);
                match error.code {
                    SqlState::UndefinedFile => error
                        .with_detail("Without it is not known which rows the sink has delivered.")
                        .with_hint("Put it back, or drop the sink and create it again."),
                    _ => error,
                }
            })?;
            let encoder = Arc::clone(encoder);
            let decoder = self.compute(move || Decoder::new(encoder, path, content));
            let (mut decoder, mut has_more) = (decoder.await?, true);
            while has_more {
                self.check_running()?;
                let count = move || {
                    let has_more = decoder.piece(&mut |op, key| {
                        let change = if op == Op::Insert { 1 } else { -1 };
                        match counts.get_mut(key) {
                            Some(count) => *count += change,
                            None => {
                                counts.insert(Box::from(key), change);
                            }
                        }
                    })?;
                    Ok((decoder, counts, has_more))
                };
                (decoder, counts, has_more) = self.compute(count).await?;
            }
        }
        counts.retain(|_, count| *count != 0);
        Ok(counts)
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

    /// Writes what it takes from what was delivered to what there is. `all`: all rows that there are.
    async fn write_difference(
        &self,
        encoder: &Arc<Encoder>,
        mut all: Changes,
        mut delivered: HashMap<Box<[u8]>, i64>,
        mut draft: Draft,
    ) -> Result<Draft, Leave> {
        // Rows that come have to wait until it is known which go.
        let mut missing: Vec<Box<[u8]>> = vec![];
        while let Some(batch) = all.next().await? {
            self.check_running()?;
            for from in (0..batch.rows.num_rows()).step_by(KEYS_AT_ONCE) {
                let encoder = Arc::clone(encoder);
                let piece = batch
                    .rows
                    .slice(from, KEYS_AT_ONCE.min(batch.rows.num_rows() - from));
                let compare = move || {
                    for key in encoder.keys(&encoder.conform(&piece)?)? {
                        match delivered.get_mut(&key) {
                            Some(count) if *count > 0 => *count -= 1,
                            _ => missing.push(key),
                        }
                    }
                    Ok((delivered, missing))
                };
                (delivered, missing) = self.compute(compare).await?;
            }
        }
        if self.def.sink_type == SinkType::Changelog {
            let mut gone: Vec<(Box<[u8]>, i64)> =
                delivered.into_iter().filter(|(_, count)| *count > 0).collect();
            gone.sort_unstable();
            let gone = gone
                .into_iter()
                .flat_map(|(key, count)| std::iter::repeat_n(key, usize::try_from(count).unwrap_or(0)));
            draft = self.write_keys(Op::Delete, gone.collect(), draft).await?;
        }
        self.write_keys(Op::Insert, missing, draft).await
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

    /// The draft, once it has room for rows.
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

/// The rows of changes that came or went, each as often as it did.
fn rows_of(op: Op, changes: &ChangeBatch) -> SqlResult<Option<RecordBatch>> {
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
        positions.extend(std::iter::repeat_n(
            position,
            usize::try_from(weight).unwrap_or(0),
        ));
    }
    if positions.is_empty() {
        return Ok(None);
    }
    let taken = arrow::compute::take_record_batch(&changes.rows, &UInt32Array::from(positions));
    taken.map(Some).map_err(from_internal::arrow)
}
