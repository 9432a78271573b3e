//! EXPLAIN ANALYZE MATERIALIZED VIEW, and of all VIEWS: counts what running views do for a while, by taking the difference of
//! what the runtime has counted before and after.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_catalog::Object;
use millrace_catalog::rights::Privileges;
use millrace_clarity::Scenario;
use millrace_clarity::epochs::{EpochSample, Trace};
use millrace_clarity::render::json::{Document, Watched, WatchedView, WatchedViews};
use millrace_clarity::render::view::{view_text, views_text};
use millrace_clarity::task_counts::TaskCounts;
use millrace_clarity::view::{Coordination, LogUse, ViewProfile, ViewStage, analyse_view};
use millrace_database::database::profiles::RecentView;
use millrace_engine::{ActivityCounts, PipelineStatus, ViewStatus, Watched as Seen};
use millrace_parser::ast::{ExplainFormat, ExplainOptions};
use millrace_planner::{RelationId, StageGraph, explain};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::units;
use millrace_resource::cpu::{process_cpu_time, stolen_time};
use millrace_resource::disk::Totals;
use millrace_resource::memory::{Holder, Use};
use millrace_schedule::driver::PipelineRecord;
use millrace_storage::ObjectKind;

use super::analyze::{check_memory, json, scenario};
use crate::forecasting::nanoseconds;
use crate::session::Session;

/// For how long a view is watched if the statement does not say.
const DURATION_DEFAULT: Duration = Duration::from_secs(5);
const DURATION_MAX: Duration = Duration::from_secs(3_600);

/// Watches a view that was planned as `graph`.
pub(super) async fn view(
    session: &Arc<Session>,
    object: &Object,
    graph: &StageGraph,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let duration = duration(options, DURATION_DEFAULT)?;
    let relation = RelationId(object.id.0);
    let asked = options.what_if.as_ref().map(scenario).transpose()?;
    let before = Moment::now(session);
    let views = before.counts(relation)?.views_from(relation);
    let watch = session.database().runtime().watch(&views);
    let begun = Instant::now();
    tokio::time::sleep(duration).await;
    let after = Moment::now(session);
    let seen = watch.seen(begun.elapsed());
    drop(watch);
    let (before, after) = (before.counts(relation)?, after.counts(relation)?);
    let mut profile = profile(session, &object.name, Some(graph), &before, &after);
    profile.in_flight_bytes = in_flight_bytes(session, relation);
    let mut trace = named(seen, relation, &profile, &after);
    trace.run.machine.cores = profile.cores;
    profile.trace = Some(trace);
    let role = session.scope().acting.role;
    let kept = session.database().profiles().keep_view(role, profile);
    shown(&kept, asked, options)
}

/// A view that was watched, in the form that was asked for.
pub(super) fn shown(
    kept: &RecentView,
    asked: Option<Scenario>,
    options: &ExplainOptions,
) -> SqlResult<Vec<String>> {
    let profile = &kept.profile;
    let memory = profile.trace.as_ref().and_then(|trace| trace.run.machine.memory);
    check_memory(memory, asked)?;
    let analysis = analyse_view(profile, asked);
    match options.format {
        ExplainFormat::Text => Ok(view_text(profile, &analysis)),
        _ => json(&Document::new(Watched {
            id: Some(kept.id),
            view: profile.clone(),
            analysis,
        })),
    }
}

/// Gives the stages their names: the view's own are called as in its plan, those of others by their view, and the log is the last.
fn named(seen: Seen, relation: RelationId, profile: &ViewProfile, after: &Counts<'_>) -> Trace {
    let Seen {
        mut trace,
        stages,
        has_log,
    } = seen;
    for (at, (view, stage)) in stages.iter().enumerate() {
        trace.run.stages[at].name = if *view == relation {
            let stages = profile.stages.get(*stage);
            stages.map(|stage| stage.name.clone()).unwrap_or_default()
        } else {
            let mut views = after.moment.views.iter();
            let name = views.find(|status| status.relation == *view);
            let name = name.map_or_else(String::new, |status| status.name.clone());
            format!("{name}, its stage {stage}")
        };
    }
    if has_log && let Some(log) = trace.run.stages.last_mut() {
        log.name = "the log of all streams and tables".to_owned();
    }
    trace
}

/// Watches all views of the database that may be read, at the same time.
pub(super) async fn views(session: &Arc<Session>, options: &ExplainOptions) -> SqlResult<Vec<String>> {
    let duration = duration(options, DURATION_DEFAULT)?;
    let asked = options.what_if.as_ref().map(scenario).transpose()?;
    if asked.is_some_and(|asked| asked.memory.is_some()) {
        check_memory(None, asked)?;
    }
    let before = Moment::now(session);
    tokio::time::sleep(duration).await;
    let after = Moment::now(session);
    let scope = session.scope();
    let may_be_seen = |object: &&Arc<Object>| {
        object.kind == ObjectKind::MaterializedView
            && object.database == scope.database
            && scope.check(object, Privileges::SELECT).is_ok()
    };
    let views = scope.catalog.objects().filter(may_be_seen);
    let watched: Vec<WatchedView> = views
        .map(|object| {
            let relation = RelationId(object.id.0);
            let counts = before
                .counts(relation)
                .and_then(|before| Ok((before, after.counts(relation)?)));
            let (failure, analysis) = match counts {
                Ok((before, after)) => {
                    let profile = profile(session, &object.name, None, &before, &after);
                    (None, Some(analyse_view(&profile, asked)))
                }
                Err(why) => (Some(why.detail.unwrap_or(why.message)), None),
            };
            WatchedView {
                relation: object.id.0,
                name: object.display_name(),
                failure,
                analysis,
            }
        })
        .collect();
    match options.format {
        ExplainFormat::Text => Ok(views_text(&watched, nanos(duration, Duration::ZERO))),
        _ => json(&Document::new(WatchedViews { views: watched })),
    }
}

/// What a view did between two moments; `graph` tells what its stages are called.
fn profile(
    session: &Session,
    name: &str,
    graph: Option<&StageGraph>,
    before: &Counts<'_>,
    after: &Counts<'_>,
) -> ViewProfile {
    let between = |of: fn(&Moment) -> Duration| nanos(of(after.moment), of(before.moment));
    ViewProfile {
        view: name.to_owned(),
        watched: nanos(
            after.moment.at.saturating_duration_since(before.moment.at),
            Duration::ZERO,
        ),
        cores: session.database().cores(),
        epochs: after.pipeline.committed - before.pipeline.committed.min(after.pipeline.committed),
        group_size: after.pipeline.group_size,
        coordination: coordination(before, after),
        samples: samples(before, after),
        forgotten: forgotten(before, after),
        stages: stages(graph, &before.view.activity, &after.view.activity),
        pipeline_busy: after.pipeline_busy.saturating_sub(before.pipeline_busy),
        outside: between(Moment::outside),
        stolen: between(|moment| moment.stolen),
        rows: after.view.rows as u64,
        state_bytes: after.view.state_bytes as u64,
        on_disk_bytes: after.view.on_disk_bytes as u64,
        in_flight_bytes: 0,
        freshness_target: after
            .view
            .freshness_target
            .map(|target| nanos(target, Duration::ZERO)),
        log: log(session, &before.moment.log, &after.moment.log),
        trace: None,
    }
}

/// For how long to watch; `default` if the statement does not say.
pub(super) fn duration(options: &ExplainOptions, default: Duration) -> SqlResult<Duration> {
    let Some(text) = &options.duration else {
        return Ok(default);
    };
    let found = units::duration(text).ok();
    found
        .filter(|duration| !duration.is_zero() && *duration <= DURATION_MAX)
        .ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("invalid value for EXPLAIN option \"duration\": \"{text}\""),
            )
            .with_hint("Give a time with its unit, such as 5s, at most 1h.")
        })
}

/// What the runtime has counted, all at about the same time.
struct Moment {
    at: Instant,
    views: Vec<ViewStatus>,
    pipelines: Vec<PipelineStatus>,
    /// Writes of the log, of all streams and tables.
    log: Totals,
    /// Of the process on processors, and of its tasks on slots.
    process: Duration,
    tasks: Duration,
    /// By the machine's host, of each processor.
    stolen: Duration,
}

/// What of that is a view's and its pipeline's.
struct Counts<'a> {
    moment: &'a Moment,
    view: &'a ViewStatus,
    pipeline: &'a PipelineRecord,
    /// Time of the tasks of all the pipeline's views.
    pipeline_busy: u64,
}

impl Moment {
    fn now(session: &Session) -> Moment {
        let runtime = session.database().runtime();
        let workers = runtime.workers();
        Moment {
            at: Instant::now(),
            views: runtime.views(),
            pipelines: runtime.pipelines(),
            log: runtime.disks().data().totals().log,
            process: process_cpu_time().unwrap_or_default(),
            stolen: stolen_time(),
            tasks: workers
                .iter()
                .map(|worker| Duration::from_nanos(worker.cpu_ns))
                .sum(),
        }
    }

    /// What was computed and is no task's.
    fn outside(&self) -> Duration {
        self.process.saturating_sub(self.tasks)
    }

    fn counts(&self, relation: RelationId) -> SqlResult<Counts<'_>> {
        let gone = || {
            SqlError::new(
                SqlState::ObjectNotInPrerequisiteState,
                "the materialized view is not running",
            )
        };
        let view = self
            .views
            .iter()
            .find(|view| view.relation == relation)
            .ok_or_else(gone)?;
        if let Some(why) = &view.failure {
            return Err(gone().with_detail(why.clone()));
        }
        let PipelineStatus { pipeline, .. } = self
            .pipelines
            .iter()
            .find(|status| status.pipeline.views.contains(&relation))
            .ok_or_else(gone)?;
        let of_pipeline = |view: &&ViewStatus| pipeline.views.contains(&view.relation);
        let activity = self
            .views
            .iter()
            .filter(of_pipeline)
            .flat_map(|view| view.activity.iter().flatten());
        Ok(Counts {
            moment: self,
            view,
            pipeline,
            pipeline_busy: activity.map(|counts| counts.busy_ns).sum(),
        })
    }
}

impl Counts<'_> {
    /// The views of the pipeline, this one first.
    fn views_from(&self, relation: RelationId) -> Vec<RelationId> {
        let others = self.pipeline.views.iter().filter(|view| **view != relation);
        std::iter::once(relation).chain(others.copied()).collect()
    }
}

fn nanos(after: Duration, before: Duration) -> u64 {
    nanoseconds(after.saturating_sub(before))
}

fn log(session: &Session, before: &Totals, after: &Totals) -> Option<LogUse> {
    let groups = after.monotasks - before.monotasks;
    (groups > 0).then(|| LogUse {
        disk: session.database().runtime().disks().data().name().to_owned(),
        groups,
        bytes: after.bytes - before.bytes,
        queue: nanos(after.queue, before.queue),
        service: nanos(after.service, before.service),
    })
}

fn coordination(before: &Counts<'_>, after: &Counts<'_>) -> Coordination {
    let mut sums = Coordination::default();
    let groups = after.pipeline.groups.iter();
    for group in groups.filter(|group| group.last_epoch > before.pipeline.committed) {
        sums.scheduling += group.costs.scheduling_ns;
        sums.waited += group.costs.waited_ns;
        sums.execution += group.costs.execution_ns;
    }
    sums
}

fn samples(before: &Counts<'_>, after: &Counts<'_>) -> Vec<EpochSample> {
    let committed = before.pipeline.committed + 1..=after.pipeline.committed;
    let epochs = after.pipeline.epochs.iter();
    epochs
        .filter(|epoch| committed.contains(&epoch.epoch) && epoch.rows > 0)
        .map(|epoch| EpochSample {
            epoch: epoch.epoch,
            rows: epoch.rows,
            busy: epoch.busy_ns,
            waited: epoch.waited_ns,
            elapsed: epoch.elapsed_ns,
        })
        .collect()
}

/// Of the epochs between, those that are too many to be remembered.
fn forgotten(before: &Counts<'_>, after: &Counts<'_>) -> u64 {
    let first = after.pipeline.epochs.first();
    first.map_or(0, |first| {
        first.epoch.saturating_sub(before.pipeline.committed + 1)
    })
}

/// Bytes that a view holds besides its state.
fn in_flight_bytes(session: &Session, relation: RelationId) -> u64 {
    let accounts = session.database().runtime().memory().accounts().into_iter();
    let mut of_view = accounts.filter(|account| account.holder == Holder::Relation(relation));
    of_view.next().map_or(0, |account| {
        (account.total() - account.bytes[Use::State as usize]) as u64
    })
}

fn stages(
    graph: Option<&StageGraph>,
    before: &[Vec<ActivityCounts>],
    after: &[Vec<ActivityCounts>],
) -> Vec<ViewStage> {
    let counts = after.iter().zip(before);
    counts
        .enumerate()
        .map(|(id, (after, before))| ViewStage {
            id,
            name: graph
                .and_then(|graph| graph.stages.get(id))
                .map(explain::stage_name)
                .unwrap_or_default(),
            partitions: (after.iter().zip(before))
                .map(|(after, before)| task_counts(after).since(task_counts(before)))
                .collect(),
        })
        .collect()
}

/// What the runtime counted of some tasks, as the time model has it.
pub(super) fn task_counts(activity: &ActivityCounts) -> TaskCounts {
    TaskCounts {
        tasks: activity.tasks,
        rows_in: activity.rows_in,
        rows_out: activity.rows_out,
        busy: activity.busy_ns,
        queue: activity.queue_ns,
    }
}
