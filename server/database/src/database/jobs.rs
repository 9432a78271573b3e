//! Views that are being made: a job each, from the CREATE to the line in the catalog's journal.
//!
//! ```text
//!  queued --> running (the runtime back-fills) --> committing (the right to change definitions is held) --> done
//!     \          \--> failed: a job in the background stays in the list until it is cancelled
//!      \----------\-> cancelled: by CANCEL JOB, Ctrl-C, DROP .. CASCADE of an input, or the end of the server
//! ```
//!
//! The right to change definitions is held at the beginning, to plan, and at the end, to commit, and not in between: other
//! definitions change meanwhile. What a job reads, replaces and is going to call its views is therefore known here, and
//! statements that would be in its way ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_catalog::{Definition, Object};
use millrace_engine::{BackfillOptions, JobState, ViewSpec};
use millrace_planner::RelationId;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{CatalogChange, ObjectId, ObjectKind};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::database::Database;
use crate::database::ddl::{DdlGuard, gone_facts, take_down};
use crate::running::Running;

/// Back-fills that run at once; more wait for their turn.
const RUNNING_MAX: usize = 4;
/// Jobs in the background, those that wait and those that failed among them. Others have a client each, which waits for them.
pub const BACKGROUND_MAX: usize = 64;

/// What a job makes.
pub struct Making {
    /// The materialized views, each after what it reads. The first gives the job its number and name.
    pub specs: Vec<ViewSpec>,
    /// What the catalog gets when they are live.
    pub put: Vec<Object>,
    /// What goes out of the catalog in the same step.
    pub removed: Vec<ObjectId>,
}

#[derive(Debug, Clone)]
enum Phase {
    Queued,
    Running,
    Committing,
    Cancelled,
    Done(SqlResult<()>),
}

/// See the module.
pub struct Job {
    /// Its number: the identity of the first view that it makes.
    pub id: ObjectId,
    put: Vec<Arc<Object>>,
    removed: Vec<ObjectId>,
    made: Vec<RelationId>,
    started: Instant,
    is_background: bool,
    /// The statement that waits for it.
    running: Option<Running>,
    phase: watch::Sender<Phase>,
}

/// A job as SHOW JOBS has it.
#[derive(Debug, Clone)]
pub struct JobInfo {
    pub id: ObjectId,
    pub view: String,
    pub state: &'static str,
    /// Input rows.
    pub rows_done: u64,
    pub rows_total: u64,
    pub elapsed: Duration,
    pub time_left: Option<Duration>,
    /// Bytes of the view's state that are on disk because memory is short.
    pub on_disk_bytes: u64,
    /// Why it failed.
    pub error: Option<String>,
}

impl JobInfo {
    /// How much of the known input was fed, in percent with one digit behind the point.
    pub fn percent(&self) -> f64 {
        match self.rows_total {
            0 => 0.0,
            total => (1_000.0 * self.rows_done as f64 / total as f64).round() / 10.0,
        }
    }
}

/// The jobs of a database.
pub struct Jobs {
    jobs: Mutex<BTreeMap<ObjectId, Arc<Job>>>,
    running: Semaphore,
}

impl Default for Jobs {
    fn default() -> Self {
        Jobs {
            jobs: Mutex::default(),
            running: Semaphore::new(RUNNING_MAX),
        }
    }
}

impl Jobs {
    /// Those that are not done, failed or cancelled.
    pub fn active(&self) -> Vec<Arc<Job>> {
        let jobs = self.jobs.lock();
        jobs.values().filter(|job| job.is_active()).cloned().collect()
    }

    /// The job that is about to give this name to something.
    pub fn making(&self, database: &str, schema: &str, name: &str) -> Option<Arc<Job>> {
        self.active().into_iter().find(|job| {
            job.put
                .iter()
                .any(|object| object.name == name && object.schema == schema && object.database == database)
        })
    }

    /// The jobs that read, replace or change one of these, or that make something in one of these schemas or databases.
    pub fn over(&self, objects: &[Arc<Object>]) -> Vec<Arc<Job>> {
        let mut jobs = self.active();
        jobs.retain(|job| objects.iter().any(|object| job.needs(object)));
        jobs
    }

    /// Refuses to change objects that a job is about to replace.
    ///
    /// # Errors
    /// 55006.
    pub fn check_unlocked(&self, ids: &[ObjectId]) -> SqlResult<()> {
        for job in self.active() {
            if job.replaces(ids) {
                return Err(SqlError::new(
                    SqlState::ObjectInUse,
                    format!("job {} is about to replace this with a new definition", job.id),
                )
                .with_hint(format!("Wait for it, or use CANCEL JOB {}.", job.id)));
            }
        }
        Ok(())
    }

    /// Takes a job up, unless there are too many in the background.
    ///
    /// # Errors
    /// 54000.
    fn add(&self, job: &Arc<Job>) -> SqlResult<()> {
        let mut jobs = self.jobs.lock();
        let background = jobs.values().filter(|job| job.is_background).count();
        if job.is_background && background >= BACKGROUND_MAX {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                format!("too many background jobs: the limit is {background}"),
            )
            .with_hint(
                "Wait until some are done, or use CANCEL JOB, also for failed ones; SHOW JOBS lists them. \
                 With background_ddl = off the statement itself waits.",
            ));
        }
        jobs.insert(job.id, Arc::clone(job));
        Ok(())
    }

    /// Waits until one more back-fill may run.
    pub(in crate::database) async fn turn(&self) -> SqlResult<SemaphorePermit<'_>> {
        let turn = self.running.acquire().await;
        turn.map_err(|error| SqlError::internal(error.to_string()))
    }

    fn get(&self, id: ObjectId) -> Option<Arc<Job>> {
        self.jobs.lock().get(&id).cloned()
    }
}

impl Job {
    /// What the job makes, in words.
    pub fn described(&self) -> String {
        format!("Job {} is creating {}", self.id, self.put[0].described())
    }

    /// The streams that are made with its views.
    fn new_streams(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.put.iter().filter(|object| object.kind == ObjectKind::Stream)
    }

    fn is_active(&self) -> bool {
        matches!(
            *self.phase.borrow(),
            Phase::Queued | Phase::Running | Phase::Committing
        )
    }

    fn replaces(&self, ids: &[ObjectId]) -> bool {
        let changes = |id: &ObjectId| {
            self.removed.contains(id)
                || self
                    .put
                    .iter()
                    .any(|object| object.id == *id && !self.made.contains(&RelationId(id.0)))
        };
        ids.iter().any(changes)
    }

    fn needs(&self, object: &Object) -> bool {
        use millrace_storage::ObjectKind;
        match object.kind {
            ObjectKind::Schema => self
                .put
                .iter()
                .any(|made| made.schema == object.name && made.database == object.database),
            ObjectKind::Database => self.put.iter().any(|made| made.database == object.name),
            _ => self.replaces(&[object.id]) || self.put.iter().any(|made| made.depends.contains(&object.id)),
        }
    }

    /// Gives the job up, unless it is past that. Its name is free at once.
    pub fn cancel(&self) -> bool {
        self.phase.send_if_modified(|phase| {
            let may = matches!(phase, Phase::Queued | Phase::Running);
            if may {
                *phase = Phase::Cancelled;
            }
            may
        })
    }

    fn enter(&self, next: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let may = !matches!(phase, Phase::Cancelled);
            if may {
                *phase = next;
            }
            may
        })
    }

    async fn cancelled(&self) {
        let mut phase = self.phase.subscribe();
        // The sender is in `self`, so that this ends only when it is so.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Cancelled)).await;
    }

    /// Waits until the job is over and nothing is left to do for it.
    ///
    /// # Errors
    /// Why it failed; 57014 if it was cancelled.
    pub async fn wait(&self) -> SqlResult<()> {
        let mut phase = self.phase.subscribe();
        let done = phase.wait_for(|phase| matches!(phase, Phase::Done(_))).await;
        match done.as_deref() {
            Ok(Phase::Done(result)) => result.clone(),
            _ => Err(SqlError::internal("a job ended before it was done")),
        }
    }

    fn error(&self) -> Option<String> {
        match &*self.phase.borrow() {
            Phase::Done(Err(error)) => Some(error.message.clone()),
            _ => None,
        }
    }
}

/// Cancels a job when it is dropped: whoever waited for it is gone.
pub struct Waiting(pub Arc<Job>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl DdlGuard<'_> {
    /// Begins to make views. The names must be free, and what is read must be there: both stay so until the job is done.
    ///
    /// # Errors
    /// There are too many jobs in the background.
    pub fn start_job(
        &self,
        making: Making,
        options: BackfillOptions,
        is_background: bool,
    ) -> SqlResult<Arc<Job>> {
        let Making { specs, put, removed } = making;
        let first = specs
            .first()
            .ok_or_else(|| SqlError::internal("a job without a view"))?;
        let job = Arc::new(Job {
            id: ObjectId(first.id.0),
            put: put.into_iter().map(Arc::new).collect(),
            removed,
            made: specs.iter().map(|spec| spec.id).collect(),
            started: Instant::now(),
            is_background,
            running: self.running().filter(|_| !is_background).cloned(),
            phase: watch::Sender::new(Phase::Queued),
        });
        let db = Arc::clone(self.database());
        db.jobs.add(&job)?;
        tokio::spawn(run(db, Arc::clone(&job), specs, options));
        Ok(job)
    }
}

/// Runs a job to its end.
async fn run(db: Arc<Database>, job: Arc<Job>, specs: Vec<ViewSpec>, options: BackfillOptions) {
    let filled = async {
        let _turn = db.jobs.turn().await?;
        job.enter(Phase::Running);
        for object in job.new_streams() {
            if let Some(stream) = object.relation() {
                db.create_source(&object.name, stream).await?;
            }
        }
        db.runtime().create_views(specs, options).await?;
        for object in &job.put {
            if let Definition::Index(index) = &object.definition {
                let relation = RelationId(index.relation.0);
                db.runtime().create_index(relation, index.columns.clone()).await?;
            }
        }
        Ok(db.ddl().await)
    };
    let outcome = tokio::select! {
        biased;
        () = job.cancelled() => Err(cancelled(&job)),
        filled = filled => filled,
    };
    let result = match outcome {
        // From here on the statement that waits for it cannot be cancelled any more.
        Ok(guard)
            if job
                .running
                .as_ref()
                .is_none_or(|running| running.submit().is_ok())
                && job.enter(Phase::Committing) =>
        {
            commit(&guard, &job).await
        }
        Ok(_) => Err(cancelled(&job)),
        Err(error) => Err(error),
    };
    if result.is_err() {
        let made: Vec<Arc<Object>> = (job.put.iter())
            .filter(|object| job.made.contains(&RelationId(object.id.0)))
            .chain(job.new_streams())
            .cloned()
            .collect();
        take_down(&db, &made).await;
    }
    let is_kept = match &result {
        Err(error) if job.is_background && error.code != SqlState::QueryCanceled => {
            tracing::error!(
                job = job.id.0,
                view = job.put[0].name,
                error = error.message,
                "a job failed"
            );
            true
        }
        _ => false,
    };
    if !is_kept {
        db.jobs.jobs.lock().remove(&job.id);
    }
    job.phase.send_replace(Phase::Done(result));
}

/// Makes what was filled part of the catalog, and takes down what it replaces. Readers find either.
async fn commit(guard: &DdlGuard<'_>, job: &Job) -> SqlResult<()> {
    let db = guard.database();
    let catalog = db.catalog();
    let gone: Vec<Arc<Object>> = job
        .removed
        .iter()
        .rev()
        .filter_map(|id| catalog.object(*id).cloned())
        .collect();
    let mut changes = gone_facts(&gone);
    changes.extend(
        job.put
            .iter()
            .map(|object| CatalogChange::Put(object.to_stored())),
    );
    let is_view = |object: &&Arc<Object>| object.kind == ObjectKind::MaterializedView;
    for view in job.put.iter().filter(is_view) {
        changes.push(db.beginnings(&catalog, view)?);
    }
    db.detach_sinks(&job.put).await;
    let applied = db.store().catalog().apply(changes);
    if applied.is_ok() {
        db.publish(job.put.iter().cloned(), &job.removed);
    }
    let catalog = db.catalog();
    for object in job.put.iter().filter_map(|object| catalog.object(object.id)) {
        db.start_sink(object, None);
    }
    applied?;
    take_down(db, &gone).await;
    Ok(())
}

fn cancelled(job: &Job) -> SqlError {
    SqlError::new(
        SqlState::QueryCanceled,
        format!(
            "canceling statement due to user request: job {} was cancelled",
            job.id
        ),
    )
}

impl Database {
    /// The jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The jobs as SHOW JOBS lists them, by number.
    pub fn job_infos(&self) -> Vec<JobInfo> {
        let running: BTreeMap<RelationId, _> = self
            .runtime()
            .jobs()
            .into_iter()
            .map(|status| (status.relation, status))
            .collect();
        let jobs: Vec<Arc<Job>> = self.jobs.jobs.lock().values().cloned().collect();
        let on_disk = self.runtime().memory().on_disk();
        let on_disk = |view: ObjectId| on_disk.get(&RelationId(view.0)).map_or(0, |bytes| *bytes as u64);
        let recovering = self.recovering_infos(&on_disk);
        let failed = self.failed_infos();
        jobs.into_iter()
            .map(|job| {
                let status = running.get(&RelationId(job.id.0));
                let error = job.error();
                let state = match (&error, status.map(|status| status.state)) {
                    (Some(_), _) => "failed",
                    (None, None) => "queued",
                    (None, Some(JobState::Filling)) => "filling",
                    (None, Some(JobState::CatchingUp | JobState::Attaching)) => "catching up",
                };
                JobInfo {
                    id: job.id,
                    view: job.put[0].display_name(),
                    state,
                    rows_done: status.map_or(0, |status| status.rows_done),
                    rows_total: status.map_or(0, |status| status.rows_total),
                    elapsed: job.started.elapsed(),
                    time_left: status.and_then(millrace_engine::JobStatus::time_left),
                    on_disk_bytes: on_disk(job.id),
                    error,
                }
            })
            .chain(recovering)
            .chain(failed)
            .collect()
    }

    /// What is being made, and is not in the catalog yet.
    pub fn being_made(&self) -> Vec<Arc<Object>> {
        let jobs = self.jobs.jobs.lock();
        jobs.values().flat_map(|job| job.put.iter().cloned()).collect()
    }

    /// Views that show a checkpoint until the log behind it is replayed.
    fn recovering_infos(&self, on_disk: &dyn Fn(ObjectId) -> u64) -> Vec<JobInfo> {
        let catching_up = self.views_catching_up();
        let catalog = self.catalog();
        let views = self.recovery().views().into_iter();
        let views = views.filter(|view| catching_up.contains(&view.id));
        views
            .filter_map(|view| {
                Some(JobInfo {
                    id: view.id,
                    view: catalog.object(view.id)?.display_name(),
                    state: "replaying",
                    rows_done: 0,
                    rows_total: 0,
                    elapsed: self.recovery().since_start(),
                    time_left: None,
                    on_disk_bytes: on_disk(view.id),
                    error: None,
                })
            })
            .collect()
    }

    /// Objects that failed to load at startup.
    fn failed_infos(&self) -> Vec<JobInfo> {
        let catalog = self.catalog();
        let objects = catalog.objects();
        objects
            .filter_map(|object| match &object.definition {
                Definition::FailedToLoad(why) => Some(JobInfo {
                    id: object.id,
                    view: object.display_name(),
                    state: "failed",
                    rows_done: 0,
                    rows_total: 0,
                    elapsed: self.recovery().since_start(),
                    time_left: None,
                    on_disk_bytes: 0,
                    error: Some(why.clone()),
                }),
                _ => None,
            })
            .collect()
    }

    /// CANCEL JOB: cancels a job, or removes one that failed; returns when nothing is left of it.
    ///
    /// # Errors
    /// There is no such job, or it is too late.
    pub async fn cancel_job(&self, id: ObjectId) -> SqlResult<()> {
        let job = self.jobs.get(id).ok_or_else(|| {
            if let Some(object) = self.catalog().object(id)
                && let Err(error) = object.check_up()
            {
                let message = format!(
                    "{} failed to load at startup: it has no job to cancel",
                    object.described()
                );
                return SqlError { message, ..error };
            }
            SqlError::new(SqlState::UndefinedObject, format!("job {id} does not exist"))
                .with_hint("SHOW JOBS lists the jobs.")
        })?;
        if job.error().is_some() {
            self.jobs.jobs.lock().remove(&id);
            return Ok(());
        }
        if !job.cancel() && job.is_active() {
            return Err(SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                format!("job {id} is too far to be cancelled: its view is becoming visible"),
            ));
        }
        // What it ended with is for whoever began it.
        let _ = job.wait().await;
        Ok(())
    }

    /// Cancels the jobs, and waits for their ends.
    pub async fn cancel_jobs(&self, jobs: &[Arc<Job>]) {
        for job in jobs {
            job.cancel();
        }
        for job in jobs {
            let _ = job.wait().await;
        }
    }

    /// WAIT: until the jobs of this moment are over. Returns what failed among those in the background.
    pub async fn wait_for_jobs(&self) -> Vec<String> {
        let active = self.jobs.active();
        let mut failed = vec![];
        for job in active {
            if let Err(error) = job.wait().await
                && job.is_background
            {
                failed.push(format!("job {} failed: {}", job.id, error.message));
            }
        }
        failed
    }
}
