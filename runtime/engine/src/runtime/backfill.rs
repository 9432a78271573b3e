//! Making views over rows that exist already, and making them again after a restart: the same path.
//!
//! ```text
//!  filling       the rows of each input at some version, in pieces, as epochs of a pipeline of the job's own
//!  catching up   what changed in the inputs since, again and again, until that is little
//!  attaching     the inputs' pipelines are joined and held; the last changes are fed; the views join and all goes on
//! ```
//!
//! Other views commit their epochs and are read until the last step, which is short: it begins when less than a piece is
//! left. A job whose inputs change faster than it follows at batch priority gets the priority of streams; if it still does
//! not come nearer, it attaches from where it is, and the pipeline waits for that. A view that is filled again, and for which its
//! readers wait, is filled at the priority of streams from the beginning.
//!
//! A job that lost a part with a worker, or an input of which was lost, starts again.
//!
//! Nobody sees the views until the end. So while they are filled, operators postpone what they would take back again and
//! keep their indexes only as far as they need them; when all that there was at the beginning is there, one epoch puts that
//! out, and from then on the views follow change by change.
//!
//! An operator may be fed its inputs at different versions on the way, since what it holds is a function of what each of
//! them has brought. At the end all are at one epoch. Where that is not so (a lookup join), it waits for the end.

pub(crate) mod input;
mod jobs;
mod refill;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::try_join_all;
use millrace_planner::{OnError, RelationId, StageGraph};
use millrace_resource::error::ResourceError;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::Event;
use millrace_schedule::id::PipelineId;
use millrace_schedule::template::ViewShape;
use millrace_storage::{ChangeBatch, rows_bytes};

use crate::error::{Result, RuntimeError};
use crate::feed::Part;
use crate::runtime::{Engine, Runtime};
use crate::worker::{PARTITIONS_DIVIDED, ViewInstance, ViewSpec, partitions_divided};
use input::Input;
use jobs::Filling;
pub(crate) use jobs::Jobs;
pub use jobs::{JobState, JobStatus};

/// Pieces that wait to be run.
const PIECES_WAITING_MAX: usize = 4;
/// Pieces of a log that are fed before the other inputs' turn comes again, which frees what is pinned for them.
const LOG_PIECES_A_STEP: u64 = 16;
/// So many times the rows has a piece of views whose state is on disk in part: each brings all of it to memory and back.
const DIVIDED_PIECE: usize = 8;
/// Rounds without coming nearer, after which a job is given more, or ended.
const VAIN_ROUNDS_MAX: usize = 3;

/// How a back-fill goes about it.
#[derive(Debug, Clone)]
pub struct BackfillOptions {
    /// Rows of one piece.
    pub piece_rows: usize,
    /// Rows to feed a second, apart from the last step; `None`: as many as there is time for.
    pub rows_per_second: Option<u64>,
}

impl Default for BackfillOptions {
    fn default() -> Self {
        BackfillOptions {
            piece_rows: 65_536,
            rows_per_second: None,
        }
    }
}

/// Cleans up a back-fill, whether it ended or was cancelled.
struct Job {
    engine: Arc<Engine>,
    /// The views that it fills; the first names it.
    views: Vec<Arc<ViewInstance>>,
    pipeline: PipelineId,
    options: BackfillOptions,
    /// When the rate limit allows the next piece.
    next_piece: Option<tokio::time::Instant>,
    is_live: bool,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.engine.jobs.statuses.lock().remove(&self.id());
        if self.engine.jobs.urgent.lock().remove(&self.pipeline) {
            self.engine.tell_urgent();
        }
        self.engine.writes.feeds.lock().remove_pipeline(self.pipeline);
        self.engine.versions.remove_pipeline(self.pipeline);
        if !self.is_live {
            self.engine.post(Event::JobRemoved { view: self.id() });
            for view in &self.views {
                self.engine.timers.remove(view.id);
            }
            for view in &self.views {
                self.engine.uninstall(view.id);
                self.engine.checkpoints.store.remove(view.id);
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
        self.create_views(vec![spec], BackfillOptions::default()).await
    }

    /// Makes views that may read each other, in that order, at one epoch; returns when they are back-filled and live.
    /// Dropping the future gives it up and leaves nothing.
    ///
    /// # Errors
    /// An input is not known, a plan cannot be run, or running it failed.
    pub async fn create_views(&self, mut specs: Vec<ViewSpec>, mut options: BackfillOptions) -> Result<()> {
        let made: Vec<RelationId> = specs.iter().map(|spec| spec.id).collect();
        let first = *made
            .first()
            .ok_or_else(|| RuntimeError::Internal("a back-fill without a view".into()))?;
        let inputs: Vec<RelationId> = (specs.iter().flat_map(|spec| &spec.graph.inputs))
            .map(|input| input.id)
            .filter(|id| !made.contains(id))
            .collect();
        let _filling = Filling::begin(&self.engine.jobs, &made);
        loop {
            self.engine.jobs.lost.lock().remove(&first);
            self.until(|engine| !engine.versions.is_abandoned(&inputs))
                .await?;
            let is_disturbed = |engine: &Engine| {
                engine.jobs.lost.lock().contains(&first)
                    || engine.versions.is_abandoned(&inputs)
                    || engine.jobs.dropped(&made).is_some()
            };
            tokio::select! {
                biased;
                filled = self.fill(specs.clone(), options.clone()) => match filled {
                    Err(error) if error.is_out_of_memory() && self.divide(&mut specs) => {
                        options.piece_rows *= DIVIDED_PIECE;
                    }
                    filled => {
                        filled?;
                        break;
                    }
                },
                disturbed = self.until(is_disturbed) => disturbed?,
            }
            if let Some(dropped) = self.engine.jobs.dropped(&made) {
                return Err(RuntimeError::UnknownRelation(dropped));
            }
        }
        // The driver may still be at another thread's events: a view is made when it is visible.
        self.until(|engine| {
            let is_there = |id: &RelationId| engine.versions.pipeline_of(*id).is_some();
            made.iter().all(|id| is_there(id) || engine.has_failed(*id))
        })
        .await
    }

    /// Gives views for which there was no memory more partitions, if that may help: then part of their state can be on disk.
    fn divide(&self, specs: &mut [ViewSpec]) -> bool {
        let memory = self.memory();
        let mut is_divided = false;
        for ViewSpec { name, graph, .. } in specs {
            if self.engine.machine.spill.is_some() && graph.partitions < PARTITIONS_DIVIDED {
                tracing::warn!(view = %name, "the state of the view is larger than memory: refilling it \
                 with more partitions");
                graph.partitions = partitions_divided(memory.limit());
                is_divided = true;
            }
        }
        if is_divided {
            memory.note_divided();
        }
        is_divided
    }

    /// Waits for something that shows when the versions have made progress.
    pub(crate) async fn until(&self, is_so: impl Fn(&Engine) -> bool) -> Result<()> {
        let mut progress = self.engine.versions.progress();
        loop {
            progress.borrow_and_update();
            if is_so(&self.engine) {
                return Ok(());
            }
            progress
                .changed()
                .await
                .map_err(|_| RuntimeError::SHUTTING_DOWN)?;
        }
    }

    /// One attempt. When it returns well the views are about to be attached.
    async fn fill(&self, specs: Vec<ViewSpec>, options: BackfillOptions) -> Result<()> {
        let views = specs
            .into_iter()
            .map(|spec| {
                let incarnation = self.engine.jobs.next_incarnation.fetch_add(1, Ordering::Relaxed);
                ViewInstance::new(
                    spec,
                    incarnation,
                    self.memory(),
                    self.engine.machine.spill.clone(),
                )
                .map(Arc::new)
            })
            .collect::<Result<Vec<_>>>()?;
        let made: BTreeSet<RelationId> = views.iter().map(|view| view.id).collect();
        let mut inputs: Vec<Input> = vec![];
        for info in views.iter().flat_map(|view| &view.graph.inputs) {
            if !made.contains(&info.id) && inputs.iter().all(|input| input.relation != info.id) {
                self.engine.relation(info.id)?;
                inputs.push(Input::new(info.id));
            }
        }
        // The rows of the largest input are then looked up in the others, and not the other way round.
        inputs.sort_by_key(|input| self.rows(input.relation));
        let is_final = |graph: &StageGraph| graph.awaits_all() || graph.on_error == OnError::Fail;
        if views.iter().any(|view| is_final(&view.graph)) {
            // Such a view cannot show later what was there when it was made, or must not fail over a row that is gone: all that was
            // acknowledged is to be in its inputs.
            let relations: Vec<RelationId> = inputs.iter().map(|input| input.relation).collect();
            drop(self.snapshot(&relations, Some(&self.acknowledged())).await?);
        }
        let is_telling = options.rows_per_second.is_none() && views.len() == 1;
        let begun = Instant::now();
        let mut job = self.begin(views, options)?;
        // Whoever reads a view that is filled again waits for it.
        if job.views.iter().any(|view| self.engine.relation(view.id).is_ok()) {
            job.hurry();
        }
        // An empty piece first: rows that are there without any input appear with it.
        job.feed(vec![]).await?;
        let total = (inputs.iter())
            .filter_map(|input| self.rows(input.relation))
            .sum();
        job.update(|status| status.rows_total = total);
        let all = inputs.len();
        for entered in 1..=all {
            job.approach(self, &mut inputs[..entered], entered == all).await?;
        }
        job.end_bulk().await?;
        job.set_state(JobState::Attaching);
        let held = self
            .engine
            .quiesce(inputs.iter().map(|input| input.relation).collect())
            .await?;
        job.next_piece = None;
        job.options.rows_per_second = None;
        for input in &mut inputs {
            job.step(self, input, u64::MAX).await?;
        }
        // All is cut; when the back-fill's own pipeline is idle, all is done, and nothing of it will start again.
        job.settled(0).await?;
        let awaits_all =
            |view: &Arc<ViewInstance>| view.graph.awaits_all() || view.graph.goes_by_watermarks();
        if job.views.iter().any(awaits_all) {
            drop(self.engine.quiesce(vec![job.id()]).await?);
            for view in &job.views {
                view.end_filling();
                self.engine.tell_filling(view);
            }
            // One more epoch, for what waited until all was there. The rows came in any order of their times: until now
            // no watermark could be told.
            {
                let mut feeds = self.engine.writes.feeds.lock();
                let watermarks = feeds.watermarks().clone();
                feeds.tell_watermarks(job.pipeline, watermarks);
            }
            job.feed(vec![]).await?;
            job.settled(0).await?;
        }
        let job_held = self.engine.quiesce(vec![job.id()]).await?;
        job.check()?;
        self.engine.adopt(&job.views)?;
        let elapsed = is_telling.then(|| begun.elapsed());
        job.views.iter().for_each(|view| view.is_filled(elapsed));
        job.is_live = true;
        job_held.keep();
        held.resume(job.shapes(), vec![]);
        Ok(())
    }

    /// Back-fills under way.
    pub fn jobs(&self) -> Vec<JobStatus> {
        self.engine.jobs.statuses.lock().values().cloned().collect()
    }

    /// Installs the views and gives them a pipeline of their own.
    fn begin(&self, views: Vec<Arc<ViewInstance>>, options: BackfillOptions) -> Result<Job> {
        let first = views
            .first()
            .ok_or_else(|| RuntimeError::Internal("a back-fill without a view".into()))?;
        let status = JobStatus {
            relation: first.id,
            name: first.name.clone(),
            state: JobState::Filling,
            rows_done: 0,
            rows_total: 0,
            started: Instant::now(),
            is_urgent: false,
        };
        for view in &views {
            view.begin_bulk()?;
            self.engine.install(view);
            if view.graph.keeps_time() {
                self.engine.timers.install(view.id);
            }
        }
        let job = Job {
            engine: Arc::clone(&self.engine),
            views,
            pipeline: self.engine.decisions.new_pipeline(),
            options,
            next_piece: None,
            is_live: false,
        };
        self.engine.jobs.statuses.lock().insert(job.id(), status);
        self.engine.post(Event::JobAdded {
            views: job.shapes(),
            pipeline: job.pipeline,
        });
        Ok(job)
    }
}

impl Job {
    fn id(&self) -> RelationId {
        self.views[0].id
    }

    fn shapes(&self) -> Vec<Arc<ViewShape>> {
        self.views.iter().map(|view| Arc::clone(&view.shape)).collect()
    }

    /// From now on the job runs at the priority of streams; returns whether it did already.
    fn hurry(&self) -> bool {
        if self.engine.jobs.urgent.lock().insert(self.pipeline) {
            self.engine.tell_urgent();
        }
        self.update(|status| std::mem::replace(&mut status.is_urgent, true))
            .unwrap_or(true)
    }

    /// Feeds the inputs until little is left of them, or until it is in vain.
    async fn approach(&mut self, runtime: &Runtime, inputs: &mut [Input], is_all: bool) -> Result<()> {
        let log_rows_max = self.options.piece_rows as u64 * LOG_PIECES_A_STEP;
        let (mut nearest, mut vain_rounds) = (u64::MAX, 0);
        loop {
            let (mut fed, mut left) = (0, 0);
            for input in inputs.iter_mut() {
                let (rows, later) = self.step(runtime, input, log_rows_max).await?;
                fed += rows;
                left += later;
            }
            // What is under way counts too: else it would have to be worked off while the pipeline is held.
            self.settled(0).await?;
            drop(self.engine.quiesce(vec![self.id()]).await?);
            self.check()?;
            if left == 0 && is_all {
                self.end_bulk().await?;
                self.set_state(JobState::CatchingUp);
            }
            // The changes that came while so many rows were fed are fewer: so is the next round.
            if left == 0 && fed <= self.options.piece_rows as u64 {
                return Ok(());
            }
            let distance = fed + left;
            if distance < nearest {
                (nearest, vain_rounds) = (distance, 0);
                continue;
            }
            vain_rounds += 1;
            if vain_rounds == VAIN_ROUNDS_MAX {
                if self.hurry() {
                    return Ok(());
                }
                (nearest, vain_rounds) = (u64::MAX, 0);
            }
        }
    }

    /// Has the views emit what they postponed. Nothing of them is under way then.
    async fn end_bulk(&mut self) -> Result<()> {
        if self.views.iter().all(|view| !view.is_bulk()) {
            return Ok(());
        }
        drop(self.engine.quiesce(vec![self.id()]).await?);
        for view in &self.views {
            view.end_bulk();
            self.engine.tell_filling(view);
        }
        self.feed(vec![]).await?;
        self.settled(0).await?;
        drop(self.engine.quiesce(vec![self.id()]).await?);
        self.check()?;
        let parts = (self.views.iter())
            .flat_map(|view| (0..view.contents.partitions.len()).map(move |partition| (view, partition)));
        try_join_all(parts.map(|(view, partition)| self.index(view, partition))).await?;
        Ok(())
    }

    /// Makes the index of a partition's rows; again elsewhere if the worker is lost that was to.
    async fn index(&self, view: &Arc<ViewInstance>, partition: usize) -> Result<()> {
        loop {
            let view = Arc::clone(view);
            let indexing = self
                .engine
                .workers
                .spawn_for(view.id, QueryClass::Batch, move |_| {
                    async move { view.index_contents(partition) }.boxed()
                })?;
            match indexing.await {
                Err(RuntimeError::Resource(ResourceError::WorkerLost(_))) => {}
                outcome => return outcome,
            }
        }
    }

    /// Feeds what changed in an input since the last step; of a log at most so many rows. Returns the rows that were fed
    /// and those that are left.
    async fn step(&mut self, runtime: &Runtime, input: &mut Input, log_rows_max: u64) -> Result<(u64, u64)> {
        let (mut step, left) = input.next(runtime, log_rows_max).await?;
        let disk = Arc::clone(self.engine.machine.data());
        let piece_bytes = self.engine.machine.memory.cut_bytes_max();
        let (mut gathered, mut rows, mut bytes, mut fed) = (vec![], 0, 0, 0);
        loop {
            let changes = step.next(&disk).await?;
            let is_last = changes.is_none();
            if let Some(changes) = changes {
                rows += changes.num_rows();
                bytes += rows_bytes(&changes.rows);
                gathered.push(changes);
            }
            if is_last || rows >= self.options.piece_rows || bytes >= piece_bytes {
                fed += rows as u64;
                self.feed_rows(input.relation, std::mem::take(&mut gathered))
                    .await?;
                (rows, bytes) = (0, 0);
            }
            if is_last {
                return Ok((fed, left));
            }
        }
    }

    /// Feeds changes in pieces of at most so many rows as one has, and so many bytes as an epoch may take.
    async fn feed_rows(&mut self, relation: RelationId, changes: Vec<ChangeBatch>) -> Result<()> {
        let piece_rows = match self.options.rows_per_second {
            Some(rate) => self
                .options
                .piece_rows
                .min(usize::try_from(rate.max(1)).unwrap_or(usize::MAX)),
            None => self.options.piece_rows,
        };
        let piece_bytes = self.engine.machine.memory.cut_bytes_max();
        let (mut piece, mut rows, mut bytes) = (vec![], 0, 0);
        for changes in changes {
            let row_bytes = rows_bytes(&changes.rows) / changes.num_rows().max(1) + 1;
            let mut fed = 0;
            while fed < changes.num_rows() {
                let fit = ((piece_bytes - bytes) / row_bytes).max(1);
                let taken = (piece_rows - rows).min(changes.num_rows() - fed).min(fit);
                piece.push(changes.slice(fed, taken));
                fed += taken;
                rows += taken;
                bytes += taken * row_bytes;
                if rows == piece_rows || bytes + row_bytes > piece_bytes {
                    self.feed_piece(relation, std::mem::take(&mut piece)).await?;
                    (rows, bytes) = (0, 0);
                }
            }
        }
        self.feed_piece(relation, piece).await
    }

    async fn feed_piece(&mut self, relation: RelationId, changes: Vec<ChangeBatch>) -> Result<()> {
        let rows = changes.iter().map(ChangeBatch::num_rows).sum::<usize>() as u64;
        if rows == 0 {
            return Ok(());
        }
        self.keep_to_rate(rows).await;
        let source = self.engine.relation(relation)?;
        let parts = changes.into_iter().map(|changes| Part {
            relation,
            charge: self.engine.charge_input(&source, &changes),
            changes,
            end: 0,
            watermark: None,
        });
        let parts = parts.collect();
        self.feed(parts).await?;
        self.check()?;
        self.update(|status| {
            status.rows_done += rows;
            status.rows_total = status.rows_total.max(status.rows_done);
        });
        Ok(())
    }

    /// Waits until the rate limit allows a piece of so many rows.
    async fn keep_to_rate(&mut self, rows: u64) {
        let Some(rate) = self.options.rows_per_second else {
            return;
        };
        let now = tokio::time::Instant::now();
        let start = self.next_piece.map_or(now, |next| next.max(now));
        tokio::time::sleep_until(start).await;
        self.next_piece = Some(start + Duration::from_secs_f64(rows as f64 / rate.max(1) as f64));
    }

    async fn feed(&self, parts: Vec<Part>) -> Result<()> {
        self.engine
            .writes
            .feeds
            .lock()
            .submit_durable(self.pipeline, parts);
        self.engine.workers.input_arrived(self.pipeline);
        let is_crowded = self.engine.machine.memory.is_crowded();
        self.settled(if is_crowded { 0 } else { PIECES_WAITING_MAX })
            .await
    }

    /// Waits until at most so many pieces wait to be cut.
    async fn settled(&self, waiting_max: usize) -> Result<()> {
        let mut progress = self.engine.versions.progress();
        loop {
            progress.borrow_and_update();
            if self.engine.writes.feeds.lock().len(self.pipeline) <= waiting_max {
                return Ok(());
            }
            progress
                .changed()
                .await
                .map_err(|_| RuntimeError::SHUTTING_DOWN)?;
        }
    }

    /// Ends the job if one of its views failed.
    fn check(&self) -> Result<()> {
        for view in &self.views {
            if let Some(error) = view.failed() {
                return Err(error);
            }
            if view.has_large_parts() {
                return Err(view.account.out_of_memory().into());
            }
        }
        Ok(())
    }

    fn set_state(&self, state: JobState) {
        self.update(|status| status.state = state);
        if state == JobState::Attaching {
            self.hurry();
        }
    }

    fn update<T>(&self, change: impl FnOnce(&mut JobStatus) -> T) -> Option<T> {
        self.engine.jobs.statuses.lock().get_mut(&self.id()).map(change)
    }
}
