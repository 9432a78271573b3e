//! The log store: all logs of a data directory and the thread that writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};

use crate::disk::{Disk, OsDisk};
use crate::log::base;
use crate::log::block::{self, Members};
use crate::log::copy::LogCopy;
use crate::log::device::LogDevice;
use crate::log::heads::{self, Heads};
use crate::log::hold::LogHold;
use crate::log::merge;
use crate::log::prepared::{PreparedPart, PreparedWrite};
use crate::log::queue::{AppendReceipt, Queue};
use crate::log::reader::LogReader;
use crate::log::recovery;
use crate::log::relation::{self, RelationLog};
use crate::log::segment;
use crate::log::settings::LogSettings;
use crate::log::types::{LogNote, LogOwner, LogWrite, RelationOptions};
use crate::log::writer::Writer;
use crate::{ChangeBatch, Durability, StorageError, disk};

/// How often it is written down how far the logs go, while they do: a write of it costs two syncs.
const HEADS_MS: i64 = 10_000;

/// How the log behaves; see [`StoreOptions`](crate::StoreOptions) for the meaning of each.
#[derive(Debug, Clone)]
pub struct LogOptions {
    pub durability: Durability,
    pub segment_bytes_max: u64,
    pub group_commit_delay_ms_max: u64,
    pub queue_bytes_max: usize,
}

/// The logs of all relations. See the [module](crate::log) for what it promises.
#[derive(Debug)]
pub struct LogStore {
    directory: PathBuf,
    disk: Arc<dyn Disk>,
    relations: RwLock<BTreeMap<u64, Arc<RelationLog>>>,
    /// Logs that were damaged when they were to be opened, and what was found.
    damaged: RwLock<BTreeMap<u64, StorageError>>,
    /// What was found when the logs were opened.
    notes: Mutex<Vec<LogNote>>,
    /// Held while a log is made or dropped, so that `relations` is never locked during I/O.
    changing: Mutex<()>,
    /// Held during [`maintain`](Self::maintain).
    maintaining: Mutex<()>,
    /// What [`heads`] has on disk, and when it was written, in milliseconds as [`maintain`](Self::maintain) was told.
    written_heads: Mutex<Heads>,
    heads_written_ms: AtomicI64,
    segment_bytes_max: u64,
    settings: Arc<LogSettings>,
    queue: Arc<Queue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl LogStore {
    /// Where the logs are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Opens the logs below `directory`, or makes it; recovers them, and starts the writer. Damaged logs are not opened.
    pub(crate) fn open(directory: &Path, options: LogOptions) -> Result<LogStore, StorageError> {
        LogStore::open_with(directory, options, Arc::new(OsDisk))
    }

    pub(super) fn open_with(
        directory: &Path,
        options: LogOptions,
        disk: Arc<dyn Disk>,
    ) -> Result<LogStore, StorageError> {
        if !disk.exists(directory) {
            disk.create_directory(directory)
                .map_err(|e| StorageError::io("create", directory, e))?;
            disk::sync_parent(&*disk, directory)?;
        }
        let recovered = recovery::recover(directory, &disk)?;
        let queue = Arc::new(Queue::new(options.queue_bytes_max));
        let settings = Arc::new(LogSettings::new(options.durability));
        let writer = Writer {
            queue: queue.clone(),
            settings: Arc::clone(&settings),
            segment_bytes_max: options.segment_bytes_max,
            delay_max: Duration::from_millis(options.group_commit_delay_ms_max),
            next_write_id: recovered.next_write_id,
            loose: BTreeMap::new(),
        };
        let thread = thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|e| StorageError::io("start the writer of", directory, e))?;
        Ok(LogStore {
            directory: directory.to_owned(),
            disk,
            relations: RwLock::new(recovered.relations),
            damaged: RwLock::new(recovered.damaged),
            notes: Mutex::new(recovered.notes),
            changing: Mutex::new(()),
            maintaining: Mutex::new(()),
            written_heads: Mutex::new(recovered.heads),
            heads_written_ms: AtomicI64::new(i64::MIN),
            segment_bytes_max: options.segment_bytes_max,
            settings,
            queue,
            writer: Mutex::new(Some(thread)),
        })
    }

    /// Makes an empty log, durable on return. Dictionaries are refused, at any depth.
    pub fn create(&self, relation: u64, schema: SchemaRef) -> Result<(), StorageError> {
        segment::check_schema(&schema)?;
        let _changing = self.changing.lock();
        self.check_open()?;
        if self.contains(relation) || self.disk.exists(&self.directory.join(relation.to_string())) {
            return Err(StorageError::RelationExists { relation });
        }
        let log = RelationLog::create(&self.directory, relation, schema, self.disk.clone())?;
        self.relations.write().insert(relation, Arc::new(log));
        Ok(())
    }

    /// Drops a log, durably. Readers of it go on; its files go with the last of them. Writes to it that wait
    /// fail. The id must not be used again. Of a damaged log everything goes at once.
    pub fn remove(&self, relation: u64) -> Result<(), StorageError> {
        let _changing = self.changing.lock();
        self.check_open()?;
        if self.damage(relation).is_some() {
            let directory = self.directory.join(relation.to_string());
            if !self.disk.exists(&directory) {
                self.damaged.write().remove(&relation);
                return Ok(());
            }
            relation::mark_dropped(&*self.disk, &directory)?;
            self.damaged.write().remove(&relation);
            return self
                .disk
                .remove_directory(&directory)
                .map_err(|e| StorageError::io("remove", &directory, e));
        }
        self.log(relation)?.mark_dropped()?;
        self.relations.write().remove(&relation);
        Ok(())
    }

    /// Whether the relation has a log, be it damaged.
    pub fn contains(&self, relation: u64) -> bool {
        self.relations.read().contains_key(&relation) || self.damage(relation).is_some()
    }

    /// All relations that have a log, be it damaged, sorted. After a crash between a change of the catalog and that of the
    /// log, this is how the owner of both finds what to remove.
    pub fn relations(&self) -> Vec<u64> {
        let mut relations: Vec<u64> = self.relations.read().keys().copied().collect();
        relations.extend(self.damaged.read().keys());
        relations.sort_unstable();
        relations
    }

    /// The damage of a log that was not opened with the store. Whatever is asked of it is answered with this; it
    /// can be dropped.
    pub fn damage(&self, relation: u64) -> Option<StorageError> {
        self.damaged.read().get(&relation).cloned()
    }

    /// Has the next open read all of the log in which an error was found, so that it is found then, and the log is not opened. False:
    /// it is not the error of a log that was opened without reading all of it.
    ///
    /// # Errors
    /// The log's directory cannot be written.
    pub fn distrust(&self, error: &StorageError) -> Result<bool, StorageError> {
        let StorageError::Corrupt { path, .. } = error else {
            return Ok(false);
        };
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        let mut logs = logs.into_iter();
        match logs.find(|log| path.parent() == Some(&log.directory)) {
            Some(log) => log.remove_indexes(),
            None => Ok(false),
        }
    }

    /// The schema that the log was made with, and the columns that [`widen`](Self::widen) added.
    pub fn schema(&self, relation: u64) -> Result<SchemaRef, StorageError> {
        Ok(self.log(relation)?.widest.read().clone())
    }

    /// Says that a relation has more columns than its log was made with: from now on they may be written, and are read
    /// where they were. This is not kept: whoever knows the columns says it after each open, before the log is read.
    ///
    /// # Errors
    /// The relation has no log, or the schema does not begin with the columns that it has already.
    pub fn widen(&self, relation: u64, schema: &SchemaRef) -> Result<(), StorageError> {
        segment::check_schema(schema)?;
        let log = self.log(relation)?;
        let mut widest = log.widest.write();
        let is_wider = schema.fields().len() >= widest.fields().len()
            && schema
                .fields()
                .iter()
                .zip(widest.fields())
                .all(|(new, old)| new.data_type() == old.data_type());
        if !is_wider {
            return Err(StorageError::SchemaMismatch {
                relation,
                why: "columns can only be added after the existing ones".to_owned(),
            });
        }
        *widest = Arc::clone(schema);
        Ok(())
    }

    /// The offset behind the last durable row; 0 if the relation has no log.
    pub fn head(&self, relation: u64) -> u64 {
        self.log(relation).map_or(0, |log| log.index.read().head)
    }

    /// The bytes of a relation's files; 0 if it has no log.
    pub fn bytes(&self, relation: u64) -> u64 {
        let Ok(log) = self.log(relation) else { return 0 };
        let closed: u64 = log.closed_segments().iter().map(|segment| segment.bytes).sum();
        let open = log.tail.lock().written_bytes;
        closed + open
    }

    /// Checks and encodes a write: all the work that needs no order. The parts become durable together, or
    /// not at all, and with them `note`, which may be empty: see [`take_notes`](Self::take_notes). Without rows there is
    /// no note.
    pub fn prepare(&self, writes: Vec<LogWrite>, note: &[u8]) -> Result<PreparedWrite, StorageError> {
        let mut checked = Vec::with_capacity(writes.len());
        let mut members = Members::new();
        for write in writes {
            let log = self.log(write.relation)?;
            ChangeBatch::new(write.changes.rows.clone(), write.changes.weights.clone())?;
            let rows = fit(&log, &write.changes)?;
            let ranges = block::block_ranges(&write.changes)?;
            if !ranges.is_empty() {
                *members.entry(write.relation).or_default() += ranges.len() as u32;
            }
            checked.push((log, rows, write.changes.weights, ranges));
        }
        let blocks: usize = checked.iter().map(|(.., ranges)| ranges.len()).sum();
        for (what, count) in [
            ("the number of blocks of a write", blocks),
            ("the number of relations of a write", members.len()),
        ] {
            let limit = u64::from(u16::MAX);
            if count as u64 > limit {
                return Err(StorageError::TooLarge {
                    what,
                    found: count as u64,
                    limit,
                });
            }
        }
        if blocks == 1 {
            members.clear();
        }
        let mut prepared = PreparedWrite {
            parts: Vec::with_capacity(checked.len()),
            bytes: 0,
        };
        let mut part = 0;
        for (relation, rows, weights, ranges) in checked {
            let mut frames = Vec::with_capacity(ranges.len());
            for (start, length) in ranges {
                let rows = rows.slice(start, length);
                let weights = weights.as_ref().map(|weights| weights.slice(start, length));
                // `fit` has counted them.
                let columns = match rows.num_columns() {
                    first if first == relation.schema.fields().len() => 0,
                    more => more as u16,
                };
                let place = (part, blocks as u16);
                let note = if part == 0 { note } else { &[] };
                let frame = block::encode(&rows, weights.as_ref(), place, columns, &members, note)?;
                prepared.bytes += frame.bytes();
                frames.push(frame);
                part += 1;
            }
            prepared.parts.push(PreparedPart {
                relation,
                rows: rows.num_rows() as u64,
                frames,
            });
        }
        Ok(prepared)
    }

    /// Gives a write its place in the order: behind all that were submitted before. Quick, unless the queue
    /// is full (`queue_bytes_max`), when it waits for the writer.
    pub fn submit(&self, write: PreparedWrite) -> AppendReceipt {
        self.queue.submit(write)
    }

    /// [`prepare`](Self::prepare) and [`submit`](Self::submit). Errors come through the receipt.
    pub fn append(&self, writes: Vec<LogWrite>) -> AppendReceipt {
        match self.prepare(writes, &[]) {
            Ok(prepared) => self.submit(prepared),
            Err(error) => AppendReceipt::failed(error),
        }
    }

    /// The notes of the writes that were found when the logs were opened, the oldest first; only once.
    pub fn take_notes(&self) -> Vec<LogNote> {
        std::mem::take(&mut self.notes.lock())
    }

    /// Changes what an acknowledged write survives, where its relations do not say otherwise. Writes that wait are
    /// acknowledged by the new rule.
    pub fn set_durability(&self, durability: Durability) {
        self.settings.set_durability(durability);
    }

    /// Has the writer say to whoever schedules the device when it uses it, from the next group of writes on.
    pub fn set_device(&self, device: Weak<dyn LogDevice>) {
        self.settings.set_device(device);
    }

    /// Says what is particular about the log of a relation. This is not kept: it is said after each open.
    ///
    /// # Errors
    /// The relation has no log.
    pub fn set_options(&self, relation: u64, options: RelationOptions) -> Result<(), StorageError> {
        *self.log(relation)?.options.write() = options;
        Ok(())
    }

    /// The offset of the first row that is kept: 0 unless retention has removed rows.
    pub fn first(&self, relation: u64) -> u64 {
        self.log(relation).map_or(0, |log| log.index.read().first)
    }

    /// Keeps rows from `offset` on, or from [`first`](Self::first) if that is later, until the hold is dropped.
    ///
    /// # Errors
    /// The relation has no log.
    pub fn hold(&self, relation: u64, offset: u64) -> Result<LogHold, StorageError> {
        Ok(LogHold::new(self.log(relation)?, offset))
    }

    /// Keeps all that there is of all logs.
    pub(crate) fn hold_all(&self) -> Vec<LogHold> {
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        logs.into_iter().map(|log| LogHold::new(log, 0)).collect()
    }

    /// All logs as of one moment between two writes, and what `beside` gives at that moment: what was written down before a write is in it
    /// if the write is, and what is written down of a write is not in it before the write is. Without a damaged log it would not be all.
    pub(crate) fn copies<T>(
        &self,
        beside: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<(T, Vec<LogCopy>), StorageError> {
        let _changing = self.changing.lock();
        self.check_open()?;
        if let Some(damage) = self.damaged.read().values().next() {
            return Err(damage.clone());
        }
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        let _publishing = self.settings.publishing.lock();
        let beside = beside()?;
        let copy = |log| LogCopy::new(LogHold::new(log, 0));
        Ok((beside, logs.into_iter().map(copy).collect()))
    }

    /// Where each log ends: the offset behind its last durable row.
    pub(crate) fn heads(&self) -> BTreeMap<u64, u64> {
        let relations = self.relations.read();
        let head = |log: &RelationLog| log.index.read().head;
        relations.iter().map(|(id, log)| (*id, head(log))).collect()
    }

    /// Tells the time, in milliseconds since 1970-01-01 UTC, and does what is due: closes old segments, removes what
    /// retention lets go, puts small segments together, merges small blocks, writes indexes. To be called about once a second. What fails
    /// is logged, and tried again the next time.
    pub fn maintain(&self, now_ms: i64, owner: &dyn LogOwner) {
        let _maintaining = self.maintaining.lock();
        self.settings.set_now_ms(now_ms);
        if self.check_open().is_err() {
            return;
        }
        let since = self.heads_written_ms.load(Ordering::Relaxed);
        // A clock that was put back is no reason to wait.
        if !(0..HEADS_MS).contains(&now_ms.saturating_sub(since)) {
            self.heads_written_ms.store(now_ms, Ordering::Relaxed);
            if let Err(error) = self.write_heads() {
                tracing::warn!(%error, "how far the logs go could not be written down");
            }
        }
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        let mut merge_bytes_left = merge::ROUND_BYTES_MAX;
        for log in &logs {
            let maintained = log.maintain(now_ms, owner, self.segment_bytes_max, &mut merge_bytes_left);
            if let Err(error) = maintained.and_then(|()| self.index_segment(log)) {
                tracing::warn!(relation = log.id, %error, "maintenance of a log failed");
            }
        }
    }

    /// Whether writes are taken: the writer's thread runs.
    pub fn is_writing(&self) -> bool {
        let writer = self.writer.lock();
        writer.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Gives the logs of tables a base that have many more changes than rows. It may take long: a log is read several times. To be
    /// called after [`maintain`](Self::maintain). What fails is logged, and tried again the next time.
    pub fn shrink(&self, owner: &dyn LogOwner) {
        let _maintaining = self.maintaining.lock();
        if self.check_open().is_err() {
            return;
        }
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        for log in &logs {
            if owner.is_stopping() {
                return;
            }
            if let Err(error) = log.shrink(owner, base::PENDING_MAX) {
                tracing::warn!(relation = log.id, %error, "the log of a table could not be made smaller");
            }
        }
    }

    /// Writes an index of a closed segment that has none, once all writes that have a part in it are durable.
    fn index_segment(&self, log: &RelationLog) -> Result<(), StorageError> {
        let Some(blocks) = log.without_index(self.segment_bytes_max) else {
            return Ok(());
        };
        match self.durable_heads() {
            Some(heads) => log.write_index(blocks, heads),
            None => Ok(()),
        }
    }

    /// Reads rows `from_offset..to_offset`, or up to the durable head if that is less, and from
    /// [`first`](Self::first) on if that is more.
    pub fn read(&self, relation: u64, from_offset: u64, to_offset: u64) -> Result<LogReader, StorageError> {
        Ok(LogReader::new(self.log(relation)?, from_offset, to_offset))
    }

    /// Completes the writes that wait, refuses all that follow, and syncs every log.
    pub fn close(&self) -> Result<(), StorageError> {
        let _changing = self.changing.lock();
        self.queue.close();
        let thread = self.writer.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the log's writer has panicked; what it acknowledged is safe");
        }
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        logs.iter().try_for_each(|log| log.sync(Vec::new).map(|_| ()))?;
        self.write_heads()
    }

    /// Writes down how far the logs are durable, if all that readers see of them is, and if that is news.
    fn write_heads(&self) -> Result<(), StorageError> {
        let Some(mut heads) = self.durable_heads() else {
            return Ok(());
        };
        // A damaged log stays one until it is dropped: what was known of it is kept.
        let mut written = self.written_heads.lock();
        let damaged = self.damaged.read();
        heads.extend(
            written
                .iter()
                .filter(|(id, _)| damaged.contains_key(id))
                .map(|(id, head)| (*id, *head)),
        );
        drop(damaged);
        if *written == heads {
            return Ok(());
        }
        heads::write(&*self.disk, &self.directory, &heads)?;
        *written = heads;
        Ok(())
    }

    /// Where each log ends, if all of that is durable.
    fn durable_heads(&self) -> Option<Heads> {
        let logs: Vec<_> = self.relations.read().values().cloned().collect();
        let heads: Heads = {
            // A write is published in all of its relations, or in none.
            let _publishing = self.settings.publishing.lock();
            logs.iter().map(|log| (log.id, log.index.read().head)).collect()
        };
        let is_durable = |log: &Arc<RelationLog>| log.tail.lock().durable_offset >= heads[&log.id];
        logs.iter().all(is_durable).then_some(heads)
    }

    pub(super) fn log(&self, relation: u64) -> Result<Arc<RelationLog>, StorageError> {
        let log = self.relations.read().get(&relation).cloned();
        log.ok_or_else(|| {
            let damage = self.damage(relation);
            damage.unwrap_or(StorageError::UnknownRelation { relation })
        })
    }

    fn check_open(&self) -> Result<(), StorageError> {
        if self.writer.lock().is_some() {
            Ok(())
        } else {
            Err(StorageError::Closed)
        }
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the log did not close cleanly; the next start recovers it");
        }
    }
}

/// The rows under the log's own schema. Names may differ, types and nulls may not: what is written must be
/// readable.
fn fit(log: &RelationLog, changes: &ChangeBatch) -> Result<RecordBatch, StorageError> {
    let options = RecordBatchOptions::new().with_row_count(Some(changes.num_rows()));
    let mismatch = |why: String| StorageError::SchemaMismatch {
        relation: log.id,
        why,
    };
    let columns = match changes.rows.num_columns() {
        first if first == log.schema.fields().len() => 0,
        more => u16::try_from(more).unwrap_or(u16::MAX),
    };
    let schema = log.schema_of(columns).ok_or_else(|| {
        mismatch(format!(
            "it has {columns} columns, a number that the relation never had"
        ))
    })?;
    RecordBatch::try_new_with_options(schema, changes.rows.columns().to_vec(), &options)
        .map_err(|e| mismatch(e.to_string()))
}
