//! The writer: the one thread that writes to segments.
//!
//! It takes all writes that wait, as a group, and then:
//! 1. writes their blocks, write by write, each behind the last of its relation;
//! 2. syncs every file that it touched, once (not under `Durability::Off`);
//! 3. publishes the blocks to readers and acknowledges the writes.
//!
//! If a write fails in step 1, it is rolled back in all of its relations; the writes before it are completed;
//! then it fails, together with all that waits and depends on it. If a sync fails in step 2, the relations of
//! every write that touched that file are poisoned: whether those writes are kept is known only when the
//! files are read again, at the next start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::log::queue::{Queue, Submission};
use crate::log::relation::{BlockEntry, RelationLog, Tail};
use crate::log::types::Appended;
use crate::{Durability, StorageError};

pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) durability: Durability,
    pub(super) segment_bytes_max: u64,
    /// How long a group may wait for company.
    pub(super) delay: Duration,
    pub(super) next_write_id: u64,
}

/// A write whose blocks are in the files.
struct Written {
    submission: Submission,
    appended: Vec<Appended>,
    blocks: Vec<Vec<BlockEntry>>,
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        // If this thread panics, nobody must wait for it for ever.
        let _abandon = AbandonOnDrop(self.queue.clone());
        while let Some(group) = self.queue.take(self.delay) {
            self.commit(group);
        }
    }

    fn commit(&mut self, mut group: VecDeque<Submission>) {
        let mut written = Vec::with_capacity(group.len());
        let mut failure = None;
        while let Some(mut submission) = group.pop_front() {
            match self.write(&mut submission) {
                Ok((appended, blocks)) => written.push(Written {
                    submission,
                    appended,
                    blocks,
                }),
                Err(error) => {
                    tracing::warn!(%error, "a write to the log failed and was rolled back");
                    failure = Some((submission, error));
                    break;
                }
            }
        }
        self.complete(written);
        if let Some((submission, error)) = failure {
            self.queue.fail(submission, error, group);
        }
    }

    /// Writes all blocks of a write, or none.
    fn write(
        &mut self,
        submission: &mut Submission,
    ) -> Result<(Vec<Appended>, Vec<Vec<BlockEntry>>), StorageError> {
        for part in &submission.parts {
            part.relation.check_writable()?;
        }
        let write_id = self.next_write_id;
        self.next_write_id += 1;
        let mut marks: BTreeMap<u64, (Arc<RelationLog>, Tail)> = BTreeMap::new();
        let result = self.write_parts(submission, write_id, &mut marks);
        if result.is_err() {
            for (relation, mark) in marks.into_values() {
                relation.roll_back(mark);
            }
        }
        result
    }

    fn write_parts(
        &self,
        submission: &mut Submission,
        write_id: u64,
        marks: &mut BTreeMap<u64, (Arc<RelationLog>, Tail)>,
    ) -> Result<(Vec<Appended>, Vec<Vec<BlockEntry>>), StorageError> {
        let mut appended = Vec::with_capacity(submission.parts.len());
        let mut blocks = Vec::with_capacity(submission.parts.len());
        for part in &mut submission.parts {
            let relation = &part.relation;
            let bytes = part.frames.iter().map(|frame| frame.bytes() as u64).sum();
            marks
                .entry(relation.id)
                .or_insert_with(|| (relation.clone(), relation.tail.lock().clone()));
            relation.roll(bytes, self.segment_bytes_max)?;
            let first_offset = relation.tail.lock().next_offset;
            let mut entries = Vec::with_capacity(part.frames.len());
            for frame in &mut part.frames {
                entries.push(relation.write(frame, write_id)?);
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
    fn complete(&self, written: Vec<Written>) {
        let mut poisoned = self.sync(&written);
        for Written {
            submission,
            appended,
            blocks,
        } in written
        {
            let error = submission
                .relations()
                .find_map(|relation| poisoned.get(&relation).cloned());
            if let Some(error) = error {
                for part in &submission.parts {
                    part.relation
                        .poison("a write that it shared with another relation could not be synced");
                    poisoned.entry(part.relation.id).or_insert_with(|| error.clone());
                }
                submission.acknowledge(Err(error));
                continue;
            }
            for (part, entries) in submission.parts.iter().zip(&blocks) {
                part.relation.publish(entries);
            }
            submission.acknowledge(Ok(appended));
        }
    }

    /// Syncs each relation that was written to, once; returns those where that failed.
    fn sync(&self, written: &[Written]) -> BTreeMap<u64, StorageError> {
        let mut poisoned = BTreeMap::new();
        if self.durability == Durability::Off {
            return poisoned;
        }
        let mut seen = BTreeSet::new();
        for part in written.iter().flat_map(|written| &written.submission.parts) {
            if !part.frames.is_empty()
                && seen.insert(part.relation.id)
                && let Err(error) = part.relation.sync()
            {
                tracing::error!(relation = part.relation.id, %error, "the log is closed for writing");
                poisoned.insert(part.relation.id, error);
            }
        }
        poisoned
    }
}

struct AbandonOnDrop(Arc<Queue>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
