//! The writer: the one thread that writes to segments.
//!
//! It takes all writes that wait, as a group, and then, as one disk monotask ([`super::device`]) up to the syncs:
//! 1. writes their blocks, write by write, each behind the last of its relation;
//! 2. syncs every file that it touched, once (not under `Durability::Off`);
//! 3. publishes the blocks to readers and acknowledges the writes.
//!
//! A write that fails in step 1 is rolled back in all of its relations, and the writes before it are completed. If
//! the device failed, it is then tried once more, in new segments. A file that cannot be synced in step 2 is given up:
//! what was written to it goes to a new segment (see `tail`), and nobody notices. If that fails too, so do all writes of
//! the group that have a part there, and what stands on them, in all of their relations. Whatever fails, fails together
//! with all that waits and depends on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::log::block::Frame;
use crate::log::blocks::BlockEntry;
use crate::log::device::LogGroup;
use crate::log::queue::{Queue, Submission};
use crate::log::relation::RelationLog;
use crate::log::settings::LogSettings;
use crate::log::tail::Tail;
use crate::log::types::Appended;
use crate::{Durability, StorageError};

pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) settings: Arc<LogSettings>,
    pub(super) segment_bytes_max: u64,
    /// How long a group may wait for company at most.
    pub(super) delay_max: Duration,
    pub(super) next_write_id: u64,
    /// Relations with writes that were shared with others and not synced. If one of them is synced all must be: else
    /// the others' loss would make recovery take the write back, and with it what was synced behind it.
    pub(super) loose: BTreeMap<u64, Arc<RelationLog>>,
}

/// Where the tails of a write's relations were before it.
type Marks = BTreeMap<u64, (Arc<RelationLog>, Tail)>;

/// Where the blocks of a write went.
struct Placed {
    marks: Marks,
    appended: Vec<Appended>,
    /// For each part of the write.
    blocks: Vec<Vec<BlockEntry>>,
}

/// A write whose blocks are in the files.
struct Written {
    submission: Submission,
    placed: Placed,
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        // If this thread panics, nobody must wait for it forever.
        let _abandon = AbandonOnDrop(self.queue.clone());
        let (mut company, mut delay) = (0, Duration::ZERO);
        while let Some((queued, group)) = self.queue.take(company, delay) {
            // Who wrote with the last group is likely to write with the next; and to wait for longer than a sync takes
            // would cost more than a sync of one's own.
            let started = Instant::now();
            company = match self.settings.durability() {
                Durability::Group => group.len(),
                Durability::Fsync | Durability::Off => 0,
            };
            self.commit(group, queued, started);
            delay = started.elapsed().min(self.delay_max);
        }
    }

    fn commit(&mut self, mut group: VecDeque<Submission>, queued: Instant, started: Instant) {
        let turn = self.settings.turn(LogGroup {
            queued,
            started,
            bytes: group.iter().map(|submission| submission.bytes as u64).sum(),
        });
        let mut written = Vec::with_capacity(group.len());
        let mut retried = false;
        while let Some(mut submission) = group.pop_front() {
            match self.write(&mut submission) {
                Ok(placed) => {
                    retried = false;
                    written.push(Written { submission, placed });
                }
                Err(error @ StorageError::Io { .. }) if !retried => {
                    tracing::warn!(%error, "a write to the log failed and is tried again in a new segment");
                    retried = true;
                    for part in &submission.parts {
                        part.relation.leave_segment();
                    }
                    group.push_front(submission);
                    self.complete(std::mem::take(&mut written), &mut group);
                }
                Err(error) => {
                    tracing::warn!(%error, "a write to the log failed and was rolled back");
                    retried = false;
                    self.complete(std::mem::take(&mut written), &mut group);
                    self.queue.fail(vec![submission], &error, &mut group);
                }
            }
        }
        let failed = self.sync(&mut written);
        drop(turn);
        self.settle(written, failed, &mut group);
    }

    /// Writes all blocks of a write, or none.
    fn write(&mut self, submission: &mut Submission) -> Result<Placed, StorageError> {
        for part in &submission.parts {
            part.relation.prepare(0, u64::MAX)?;
        }
        let write_id = self.next_write_id;
        self.next_write_id += 1;
        let mut marks = Marks::new();
        match self.write_parts(submission, write_id, &mut marks) {
            Ok((appended, blocks)) => Ok(Placed {
                marks,
                appended,
                blocks,
            }),
            Err(error) => {
                let relations = relations_of(&marks);
                let mut gone = true;
                for (relation, mark) in marks.into_values() {
                    gone &= relation.roll_back(mark);
                }
                if !gone {
                    failed_together(&relations);
                }
                Err(error)
            }
        }
    }

    fn write_parts(
        &self,
        submission: &mut Submission,
        write_id: u64,
        marks: &mut Marks,
    ) -> Result<(Vec<Appended>, Vec<Vec<BlockEntry>>), StorageError> {
        let mut appended = Vec::with_capacity(submission.parts.len());
        let mut blocks = Vec::with_capacity(submission.parts.len());
        for part in &mut submission.parts {
            let relation = &part.relation;
            let bytes = part.frames.iter().map(|frame| frame.bytes() as u64).sum();
            relation.prepare(bytes, self.segment_bytes_max)?;
            // Not before: a segment that was closed with all that it had is left for good. Maintenance may be replacing it.
            if !part.frames.is_empty() {
                marks
                    .entry(relation.id)
                    .or_insert_with(|| (relation.clone(), relation.tail.lock().clone()));
            }
            let first_offset = relation.tail.lock().next_offset;
            let mut entries = Vec::with_capacity(part.frames.len());
            for frame in &mut part.frames {
                entries.push(relation.write(frame, write_id, self.settings.now_ms())?);
            }
            appended.push(Appended {
                relation: relation.id,
                first_offset,
                rows: part.rows,
            });
            blocks.push(entries);
        }
        Ok((appended, blocks))
    }

    /// Syncs what was written, publishes and acknowledges it, in order.
    fn complete(&mut self, mut written: Vec<Written>, rest: &mut VecDeque<Submission>) {
        let failed = self.sync(&mut written);
        self.settle(written, failed, rest);
    }

    /// Publishes and acknowledges what was synced, in order. What could not be fails, with what depends on it in `rest` and
    /// in the queue.
    fn settle(
        &self,
        written: Vec<Written>,
        failed: Option<(BTreeSet<u64>, StorageError)>,
        rest: &mut VecDeque<Submission>,
    ) {
        let Some((mut tainted, error)) = failed else {
            let _publishing = self.settings.publishing.lock();
            written.into_iter().for_each(Written::publish);
            return;
        };
        let mut failed = Vec::new();
        let mut cuts = Marks::new();
        let publishing = self.settings.publishing.lock();
        for written in written {
            if written.submission.relations().any(|id| tainted.contains(&id)) {
                tainted.extend(written.submission.relations());
                for (id, mark) in written.placed.marks {
                    // The first is the lowest.
                    cuts.entry(id).or_insert(mark);
                }
                failed.push(written.submission);
            } else {
                written.publish();
            }
        }
        drop(publishing);
        let relations = relations_of(&cuts);
        for (relation, mark) in cuts.into_values() {
            relation.cut(mark);
        }
        failed_together(&relations);
        self.queue.fail(failed, &error, rest);
    }

    /// The relations to sync after these writes.
    fn due(&mut self, written: &[Written]) -> BTreeMap<u64, Arc<RelationLog>> {
        let default = self.settings.durability();
        let mut relations = BTreeMap::new();
        for written in written {
            let parts = written
                .submission
                .parts
                .iter()
                .filter(|part| !part.frames.is_empty());
            let own: BTreeMap<u64, Arc<RelationLog>> = parts
                .map(|part| (part.relation.id, Arc::clone(&part.relation)))
                .collect();
            let is_synced =
                |log: &Arc<RelationLog>| log.options.read().durability.unwrap_or(default) != Durability::Off;
            if own.values().any(is_synced) {
                relations.extend(own);
            } else if own.len() > 1 {
                self.loose.extend(own);
            }
        }
        if relations.keys().any(|id| self.loose.contains_key(id)) {
            relations.extend(self.loose.iter().map(|(id, log)| (*id, Arc::clone(log))));
        }
        relations
    }

    /// Syncs each relation that was written to, once; the relations where that could not be done, and why.
    fn sync(&mut self, written: &mut [Written]) -> Option<(BTreeSet<u64>, StorageError)> {
        let relations = self.due(written);
        let synced_loose = relations.keys().any(|id| self.loose.contains_key(id));
        let mut failed: Option<(BTreeSet<u64>, StorageError)> = None;
        for (id, relation) in relations {
            let group = &mut *written;
            match relation.sync(move || frames_of(group, id)) {
                Ok(None) => {}
                Ok(Some(moved)) => {
                    let moved: BTreeMap<u64, BlockEntry> = moved
                        .into_iter()
                        .map(|entry| (entry.first_offset, entry))
                        .collect();
                    written.iter_mut().for_each(|written| written.moved(id, &moved));
                }
                Err(error) => {
                    tracing::error!(relation = id, %error, "written data could not be made durable");
                    failed
                        .get_or_insert_with(|| (BTreeSet::new(), error))
                        .0
                        .insert(id);
                }
            }
        }
        match &mut failed {
            // What stands on one of them stands on all.
            Some((failed, _)) if failed.iter().any(|id| self.loose.contains_key(id)) => {
                failed.extend(self.loose.keys());
            }
            None if synced_loose => self.loose.clear(),
            _ => {}
        }
        failed
    }
}

fn relations_of(marks: &Marks) -> Vec<Arc<RelationLog>> {
    marks.values().map(|(relation, _)| Arc::clone(relation)).collect()
}

/// Notes in each of these logs that blocks of a failed write may be in the others.
fn failed_together(relations: &[Arc<RelationLog>]) {
    for relation in relations {
        relation.failed_with(relations);
    }
}

/// The blocks of one relation, in order.
fn frames_of(written: &mut [Written], relation: u64) -> Vec<&mut Frame> {
    let parts = written
        .iter_mut()
        .flat_map(|written| &mut written.submission.parts);
    let own = parts.filter(|part| part.relation.id == relation);
    own.flat_map(|part| &mut part.frames).collect()
}

impl Written {
    /// Notes where the blocks of a relation are now, by offset.
    fn moved(&mut self, relation: u64, moved: &BTreeMap<u64, BlockEntry>) {
        for (part, entries) in self.submission.parts.iter().zip(&mut self.placed.blocks) {
            if part.relation.id == relation {
                for entry in entries {
                    *entry = moved.get(&entry.first_offset).copied().unwrap_or(*entry);
                }
            }
        }
    }

    /// Shows it to readers, and tells the caller.
    fn publish(self) {
        for (part, entries) in self.submission.parts.iter().zip(&self.placed.blocks) {
            part.relation.publish(entries);
        }
        self.submission.acknowledge(Ok(self.placed.appended));
    }
}

struct AbandonOnDrop(Arc<Queue>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
