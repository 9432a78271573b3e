//! Making a view over rows that exist already, and making it again after a restart: the same path.
//!
//! 1. The pipelines that the view reads are brought to rest and joined. What they have committed is the snapshot.
//! 2. The snapshot is fed in pieces, as epochs of a pipeline of the view's own, at batch priority.
//! 3. The view joins the pipeline, which goes on.
//!
//! Writes go on meanwhile: they are logged and acknowledged, and wait for their epoch until step 3.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millrace_planner::RelationId;
use millrace_storage::ChangeBatch;

use crate::driver::{Event, PipelineId};
use crate::error::{Result, RuntimeError};
use crate::feed::Part;
use crate::relation::Relation;
use crate::runtime::{Inner, Runtime, ViewSpec};
use crate::snapshot::{Frozen, FrozenRows, Snapshot};
use crate::worker::ViewInstance;

/// Rows of one piece of a back-fill.
const PIECE_ROWS: usize = 65_536;
/// Pieces that wait to be run.
const PIECES_WAITING_MAX: usize = 4;

/// A back-fill under way.
#[derive(Debug, Clone)]
pub struct JobStatus {
    pub relation: RelationId,
    pub name: String,
    /// Input rows fed so far.
    pub rows_done: u64,
    /// Input rows in all (an upper bound).
    pub rows_total: u64,
}

/// Cleans up a back-fill, whether it ended or was given up.
struct Job {
    inner: Arc<Inner>,
    view: RelationId,
    pipeline: PipelineId,
    is_live: bool,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.inner.jobs.lock().remove(&self.view);
        self.inner.feeds.lock().remove_pipeline(self.pipeline);
        self.inner.versions.remove_pipeline(self.pipeline);
        if !self.is_live {
            self.inner.post(Event::JobRemoved { view: self.view });
            self.inner.timers.remove(&self.inner, self.view);
            if let Ok(worker) = self.inner.worker() {
                worker.uninstall(self.view);
            }
        }
    }
}

impl Runtime {
    /// Makes a view; returns when it is back-filled and live. Dropping the future gives it up and leaves nothing.
    ///
    /// # Errors
    /// An input is not known, the plan cannot be run, or running it failed.
    pub async fn create_view(&self, spec: ViewSpec) -> Result<()> {
        let (id, name) = (spec.id, spec.name.clone());
        let inputs: Vec<RelationId> = spec.graph.inputs.iter().map(|input| input.id).collect();
        for input in &inputs {
            self.inner.relation(*input)?;
        }
        let view = Arc::new(ViewInstance::new(spec)?);
        let held = self.inner.quiesce(inputs.clone()).await?;
        let snapshot = self.snapshot(&inputs, None).await?;
        self.inner.worker()?.install(Arc::clone(&view));
        if view.graph.keeps_time() {
            self.inner.timers.install(id);
        }
        let pipeline = self.inner.new_pipeline();
        self.inner.post(Event::JobAdded {
            view: id,
            pipeline,
            tasks: view.tasks(),
        });
        let mut job = Job {
            inner: Arc::clone(&self.inner),
            view: id,
            pipeline,
            is_live: false,
        };
        let mut rows_total = 0;
        for input in &inputs {
            rows_total += snapshot.frozen(*input)?.rows_max();
        }
        let status = JobStatus {
            relation: id,
            name,
            rows_done: 0,
            rows_total,
        };
        self.inner.jobs.lock().insert(id, status);

        // An empty piece first: rows that are there without any input appear with it.
        self.feed(&job, vec![]).await?;
        for input in &inputs {
            self.feed_relation(&job, &snapshot, *input).await?;
        }
        // All is cut; when the back-fill's own pipeline is idle, all is done, and nothing of it will start again.
        self.settled(&job, 0).await?;
        let job_held = self.inner.quiesce(vec![id]).await?;
        if let Some(why) = view.failure() {
            return Err(RuntimeError::ViewFailed {
                view: view.name.clone(),
                why,
            });
        }
        self.inner
            .relations
            .write()
            .insert(id, Arc::new(Relation::View(Arc::clone(&view))));
        job.is_live = true;
        job_held.keep();
        held.resume(vec![(id, view.tasks())], vec![]);
        // The driver may still be at another thread's events: the view is made when it is visible.
        let mut progress = self.inner.versions.progress();
        while self.inner.versions.pipeline_of(id).is_none() {
            progress.changed().await.map_err(|_| RuntimeError::ShuttingDown)?;
        }
        Ok(())
    }

    /// Back-fills under way.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.inner.jobs.lock().values().cloned().collect()
    }

    async fn feed_relation(&self, job: &Job, snapshot: &Snapshot, relation: RelationId) -> Result<()> {
        let frozen = snapshot.frozen(relation)?;
        match &frozen.rows {
            FrozenRows::Table(views) => {
                for view in views {
                    for chunk in 0..view.num_chunks() {
                        self.feed_rows(job, relation, view.batch(chunk, None)?).await?;
                    }
                }
            }
            FrozenRows::Log(_) => {
                let mut reader = Some(Box::new(self.log_reader(frozen)?));
                while let Some(mut current) = reader.take() {
                    let (current, block) = self
                        .inner
                        .io
                        .spawn_blocking(move || {
                            let block = current.next();
                            (current, block)
                        })
                        .await
                        .map_err(|error| RuntimeError::Internal(error.to_string()))?;
                    if let Some(block) = block {
                        self.feed_rows(job, relation, block?.changes.rows).await?;
                        reader = Some(current);
                    }
                }
            }
        }
        Ok(())
    }

    fn log_reader(&self, frozen: &Frozen) -> Result<millrace_storage::LogReader> {
        Ok(self.inner.logs.read(frozen.relation.id().0, 0, frozen.version)?)
    }

    async fn feed_rows(&self, job: &Job, relation: RelationId, rows: RecordBatch) -> Result<()> {
        for start in (0..rows.num_rows()).step_by(PIECE_ROWS) {
            let piece = rows.slice(start, PIECE_ROWS.min(rows.num_rows() - start));
            let count = piece.num_rows() as u64;
            let changes = ChangeBatch::insertions(piece);
            self.feed(
                job,
                vec![Part {
                    relation,
                    changes,
                    end: 0,
                }],
            )
            .await?;
            if let Some(status) = self.inner.jobs.lock().get_mut(&job.view) {
                status.rows_done += count;
            }
        }
        Ok(())
    }

    async fn feed(&self, job: &Job, parts: Vec<Part>) -> Result<()> {
        self.inner.feeds.lock().submit_durable(job.pipeline, parts);
        self.inner.post(Event::InputArrived {
            pipeline: job.pipeline,
        });
        self.settled(job, PIECES_WAITING_MAX).await
    }

    /// Waits until at most so many pieces wait to be cut.
    async fn settled(&self, job: &Job, waiting_max: usize) -> Result<()> {
        let mut progress = self.inner.versions.progress();
        loop {
            progress.borrow_and_update();
            if self.inner.feeds.lock().len(job.pipeline) <= waiting_max {
                return Ok(());
            }
            progress.changed().await.map_err(|_| RuntimeError::ShuttingDown)?;
        }
    }
}
