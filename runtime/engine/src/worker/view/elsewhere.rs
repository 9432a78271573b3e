//! A view whose partitions are on several machines: which of it is here, what is applied to its rows from elsewhere, and what comes
//! back after a machine was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_schedule::id::{TaskId, WorkerId};
use millrace_storage::{ChangeBatch, rows_bytes};

use super::{Image, Slot, ViewInstance};
use crate::error::Result;

impl ViewInstance {
    /// Drops the operators of a partition, which is on a worker that does not share this memory. Nothing of it runs here.
    pub(crate) fn let_go(&self, partition: usize) {
        // What is on its way to the disk does not come back here.
        self.generations[partition].fetch_add(1, Ordering::AcqRel);
        for (stage, instances) in self.reduces.iter().enumerate() {
            if let Some(instance) = instances.get(partition) {
                *instance.lock() = Slot::Empty;
                self.eviction.let_go(stage, partition);
                self.measure(stage, partition);
            }
        }
    }

    /// Workers here were told a template of this version.
    pub(in crate::worker) fn prepared(&self, version: u64) {
        self.template.fetch_max(version, Ordering::AcqRel);
    }

    /// Whether what the tasks of a stage keep on a partition is here as the template of this version left it.
    pub(in crate::worker) fn has_state(&self, stage: usize, partition: usize, version: u64) -> bool {
        if self.template.load(Ordering::Acquire) < version {
            return false;
        }
        let is_last = stage + 1 == self.graph.stages.len();
        let is_lost = is_last && self.are_rows_lost[partition].load(Ordering::Acquire);
        let slot = self.reduces[stage].get(partition);
        !is_lost && slot.is_none_or(|slot| !matches!(&*slot.lock(), Slot::Empty))
    }

    /// Whether the rows of a partition were lost, and are not back yet.
    pub(crate) fn are_rows_lost(&self, partition: usize) -> bool {
        self.are_rows_lost[partition].load(Ordering::Acquire)
    }

    /// Puts the view's rows of a partition in place.
    ///
    /// # Errors
    /// The image is not one of this view.
    pub(crate) fn restore_rows(&self, partition: usize, image: &Image) -> Result<()> {
        if let Some(image) = &image.contents {
            let mut contents = self.contents.partitions[partition].write();
            contents.restore_rows(image)?;
            self.are_rows_lost[partition].store(false, Ordering::Release);
        }
        self.measure(self.graph.stages.len() - 1, partition);
        Ok(())
    }

    /// How far the view is, as the coordinator says.
    pub(crate) fn set_filling(&self, is_filling: bool, is_bulk: bool, first: &[bool]) {
        self.is_filling.store(is_filling, Ordering::Release);
        self.is_bulk.store(is_bulk, Ordering::Release);
        for (stage, is_first) in self.first.iter().zip(first) {
            stage.store(*is_first, Ordering::Relaxed);
        }
    }

    /// Applies what a task elsewhere emitted to the view's rows; returns how many bytes of changes that was. Nothing is if
    /// the worker does not count any more.
    ///
    /// # Errors
    /// The rows are not those of this view.
    pub(crate) fn apply(
        &self,
        task: TaskId,
        low_water: u64,
        changes: &[ChangeBatch],
        counts: impl Fn() -> bool,
    ) -> Result<usize> {
        let mut contents = self.contents.partitions[task.partition].write();
        // A worker is taken out before its partitions are lost: one that counts, seen under the lock, applies to what is here.
        if !counts() || self.failure().is_some() {
            return Ok(0);
        }
        let mut bytes = 0;
        for batch in changes {
            let batch = ChangeBatch {
                rows: batch
                    .rows
                    .clone()
                    .with_schema(Arc::clone(&self.contents.schema))?,
                weights: batch.weights.clone(),
            };
            contents.apply(&batch, task.epoch, low_water)?;
            bytes += rows_bytes(&batch.rows);
        }
        Ok(bytes)
    }

    /// A worker of another process keeps so many bytes of it, in memory and on disk; `None`: nothing any more.
    pub(crate) fn kept_by(&self, worker: WorkerId, bytes: Option<(u64, u64)>) {
        let mut elsewhere = self.elsewhere.lock();
        match bytes {
            Some(bytes) => elsewhere.insert(worker, bytes),
            None => elsewhere.remove(&worker),
        };
    }

    /// Bytes that are kept elsewhere: in memory, and on disk.
    pub fn bytes_elsewhere(&self) -> (usize, usize) {
        let elsewhere = self.elsewhere.lock();
        let bytes = elsewhere.values();
        bytes.fold((0, 0), |(memory, disk), (m, d)| {
            (memory + *m as usize, disk + *d as usize)
        })
    }
}
