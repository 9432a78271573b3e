//! A running coroutine's result.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;

use super::Shared;
use super::task::{TaskRecord, TaskState};
use crate::error::ResourceError;

/// A running coroutine's result. Dropping it cancels the coroutine: at once if it waits for a slot, else at its next
/// suspension point.
pub struct CpuTask<T, E = ResourceError> {
    task: Option<async_task::FallibleTask<Result<T, E>>>,
    shared: Arc<Shared>,
    record: Arc<TaskRecord>,
}

impl<T, E> CpuTask<T, E> {
    pub(super) fn new(
        task: async_task::FallibleTask<Result<T, E>>,
        shared: Arc<Shared>,
        record: Arc<TaskRecord>,
    ) -> Self {
        CpuTask {
            task: Some(task),
            shared,
            record,
        }
    }

    /// Lets the task run on without anyone waiting.
    pub fn detach(mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }

    /// CPU time so far.
    pub fn cpu(&self) -> Duration {
        self.record.cpu()
    }
}

impl<T, E> Drop for CpuTask<T, E> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        if task.is_finished() {
            return;
        }
        self.record.unwant();
        drop(task);
        let is_queued = matches!(
            self.record.notes.lock().state,
            TaskState::Ready | TaskState::Paused
        );
        if is_queued {
            // What it holds is freed now, not when its turn would come. Outside the lock: a destructor may wake others.
            let cancelled = self.shared.take(|record| std::ptr::eq(record, &*self.record));
            drop(cancelled);
        }
    }
}

impl<T, E: From<ResourceError>> Future for CpuTask<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.task {
            // None: its slots were stopped before it ended.
            Some(task) => (task.poll_unpin(context))
                .map(|outcome| outcome.unwrap_or_else(|| Err(self.shared.stopped().into()))),
            None => Poll::Pending,
        }
    }
}
