//! Has checkpoints of all pipelines written, in the background.
//!
//! ```text
//!  the interval is over --> driver: the next epoch of each pipeline that moved on is a checkpoint --> its tasks put images
//!        ^                                                                                                    |
//!        `--- write what is new, sync, commit <--- images, and tables as of the epoch (pinned) <--- it is complete
//! ```
//!
//! No epoch waits for a file: images share their rows with the tables that they show, and tables stay readable as of the
//! epoch while they are written. One checkpoint is written at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::join_all;
use millrace_planner::RelationId;
use millrace_planner::state_identity::state_identity;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::driver::Event;
use millrace_schedule::id::{Part, PipelineId};
use millrace_state::row_table::{TableImage, TableView};
use millrace_storage::checkpoint::{Checkpoints, Manifest, StoredSource, StoredView, Written};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::checkpoint::encode::{Encoder, Slices};
use crate::error::Result;
use crate::relation::Relation;
use crate::runtime::Engine;
use crate::runtime::follow::Checkpointed;
use crate::snapshot::Frozen;
use crate::versions::{Committed, Pin};
use crate::worker::{Image, ViewInstance};

/// Checkpoints that are remembered for inspection.
const REMEMBERED: usize = 256;
/// When a pipeline that was asked for a checkpoint and had none is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// A pipeline at rest is written again when the epoch log has so many files since: so that they can go.
const EPOCH_FILES_MAX: u64 = 32;

/// How a checkpoint came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointState {
    Writing,
    Done,
    Failed(String),
}

/// A checkpoint as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRecord {
    pub number: u64,
    pub pipeline: PipelineId,
    /// The epoch as of which it is.
    pub epoch: u64,
    /// Views and sources in it.
    pub views: usize,
    pub sources: usize,
    pub state: CheckpointState,
    /// Bytes that had to be written, bytes of all that it refers to, and files of blocks that count.
    pub bytes_written: u64,
    pub bytes_total: u64,
    pub files: usize,
    /// From the request to the end of its epoch, and from there to its commit.
    pub waited: Duration,
    pub written_in: Duration,
    /// When its epoch ended, in milliseconds since 1970-01-01 00:00 UTC.
    pub taken_at_ms: i64,
}

/// How long a checkpoint waits for those who want to see it before it counts.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// A view with what its tasks keep.
type ImagesOfView = (Arc<ViewInstance>, Vec<(Part, Arc<Image>)>);

/// A pipeline after an epoch, before it is written.
struct Taken {
    pipeline: PipelineId,
    committed: Committed,
    views: Vec<ImagesOfView>,
    tables: BTreeMap<RelationId, TableView>,
    /// Tables and views that somebody wants to see.
    shown: Vec<Frozen>,
    _pin: Arc<Pin>,
    epochs_from: u64,
    waited: Duration,
    at: Instant,
}

/// What a pipeline's last checkpoint had.
#[derive(PartialEq, Eq)]
struct Last {
    epoch: u64,
    relations: Vec<RelationId>,
    epochs_from: u64,
}

#[derive(Default)]
struct State {
    /// Pipelines that were asked for a checkpoint, and when.
    wanted: BTreeMap<PipelineId, Instant>,
    last: BTreeMap<PipelineId, Last>,
    records: VecDeque<CheckpointRecord>,
    totals: CheckpointTotals,
}

/// All checkpoints since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointTotals {
    pub written: u64,
    pub failed: u64,
    pub bytes_written: u64,
}

/// See the module.
pub struct Durable {
    pub files: Arc<Checkpoints>,
    interval: watch::Sender<Option<Duration>>,
    state: Mutex<State>,
    taken: mpsc::UnboundedSender<Taken>,
    requests: mpsc::UnboundedSender<oneshot::Sender<()>>,
    /// Who wants to see each checkpoint of a relation before it counts.
    told: Mutex<BTreeMap<RelationId, Vec<mpsc::UnboundedSender<Checkpointed>>>>,
}

/// What the task that writes waits for.
pub struct Inbox {
    taken: mpsc::UnboundedReceiver<Taken>,
    requests: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    interval: watch::Receiver<Option<Duration>>,
}

impl Durable {
    /// Nothing is written before [`Durable::start`].
    pub fn new(files: Arc<Checkpoints>, interval: Option<Duration>) -> (Durable, Inbox) {
        let (taken, taken_inbox) = mpsc::unbounded_channel();
        let (requests, requests_inbox) = mpsc::unbounded_channel();
        let (interval, interval_inbox) = watch::channel(interval);
        let durable = Durable {
            files,
            interval,
            state: Mutex::default(),
            taken,
            requests,
            told: Mutex::default(),
        };
        let inbox = Inbox {
            taken: taken_inbox,
            requests: requests_inbox,
            interval: interval_inbox,
        };
        (durable, inbox)
    }

    /// How often there are checkpoints from now on; `None`: only when they are asked for.
    pub fn set_interval(&self, interval: Option<Duration>) {
        self.interval.send_if_modified(|current| {
            let is_other = *current != interval;
            *current = interval;
            is_other
        });
    }

    /// Whether there are checkpoints without being asked for.
    pub fn is_on(&self) -> bool {
        self.interval.borrow().is_some()
    }

    /// Resolves when all that is committed at this moment is in a checkpoint, or cannot be written.
    pub fn request(&self) -> impl Future<Output = ()> + Send + use<> {
        let (done, wait) = oneshot::channel();
        // A task that is gone answers nobody.
        let _ = self.requests.send(done);
        wait.map(|_| ())
    }

    /// The last checkpoints, the newest last.
    pub fn records(&self) -> Vec<CheckpointRecord> {
        self.state.lock().records.iter().cloned().collect()
    }

    /// What was written since the start.
    pub fn totals(&self) -> CheckpointTotals {
        self.state.lock().totals
    }

    /// An epoch is complete, and all images of it are there: takes them, if the pipeline was asked.
    pub fn complete(&self, engine: &Engine, pipeline: PipelineId, epoch: u64, views: &[RelationId]) {
        let mut state = self.state.lock();
        let Some(asked) = state.wanted.get(&pipeline).copied() else {
            return;
        };
        let Some((committed, pin)) = engine.versions.pin_pipeline(pipeline) else {
            return;
        };
        // After a loss epochs that were committed before settle once more: the next one will do.
        if committed.epoch != epoch {
            return;
        }
        // No epoch is written down meanwhile: both are decisions, one after the other.
        let epochs_from = match self.files.epochs().mark() {
            Ok(from) => from,
            Err(error) => {
                tracing::warn!(%error, "a checkpoint is put off");
                return;
            }
        };
        let views: Vec<ImagesOfView> = (views.iter())
            .filter_map(|view| images(engine, *view, epoch))
            .collect();
        let taken = Taken {
            pipeline,
            shown: self.shown(engine, &committed, &views),
            views,
            tables: tables(engine, &committed),
            committed,
            _pin: pin,
            epochs_from,
            waited: asked.elapsed(),
            at: Instant::now(),
        };
        state.wanted.remove(&pipeline);
        // A task that is gone writes nothing.
        let _ = self.taken.send(taken);
    }

    /// Has somebody see each checkpoint of a relation before it counts.
    pub fn tell(&self, relation: RelationId, teller: mpsc::UnboundedSender<Checkpointed>) {
        let mut told = self.told.lock();
        for tellers in told.values_mut() {
            tellers.retain(|teller| !teller.is_closed());
        }
        told.retain(|_, tellers| !tellers.is_empty());
        told.entry(relation).or_default().push(teller);
    }

    /// The relations of a checkpoint that somebody wants to see, as of it.
    fn shown(&self, engine: &Engine, committed: &Committed, views: &[ImagesOfView]) -> Vec<Frozen> {
        let wanted: Vec<RelationId> = self.told.lock().keys().copied().collect();
        let shown = wanted.into_iter().filter_map(|id| {
            let end = committed.ends.get(&id).copied();
            let is_view = views.iter().any(|(view, _)| view.id == id);
            let version = end.or(is_view.then_some(committed.epoch))?;
            let relation = engine.relation(id).ok()?;
            let (_, versions, pin) = engine.versions.pin(&[(id, !is_view)], &BTreeMap::new())?;
            let logs = &engine.logs;
            let frozen = Frozen::new(&relation, version, &pin, logs, engine.machine.data());
            (versions == [version]).then_some(frozen)
        });
        shown.collect()
    }

    /// Shows a checkpoint to those who want to see it; resolves when they have.
    fn show(&self, number: u64, shown: Vec<Frozen>) -> impl Future<Output = ()> + Send + use<> {
        let told = self.told.lock();
        let mut seen = vec![];
        for relation in shown {
            for teller in told.get(&relation.relation.id()).into_iter().flatten() {
                let (sender, receiver) = oneshot::channel();
                let checkpointed = Checkpointed {
                    number,
                    relation: relation.clone(),
                    _seen: sender,
                };
                // Who is gone need not be waited for.
                if teller.send(checkpointed).is_ok() {
                    seen.push(receiver);
                }
            }
        }
        join_all(seen).map(|_| ())
    }

    /// Two pipelines became one.
    pub fn join(&self, into: PipelineId, from: PipelineId) {
        let mut state = self.state.lock();
        state.last.remove(&from);
        if let Some(asked) = state.wanted.remove(&from) {
            state.wanted.entry(into).or_insert(asked);
        }
    }

    /// Starts the task that writes. `slices`: what the checkpoints that count have.
    pub fn start(engine: &Arc<Engine>, inbox: Inbox, slices: Slices) {
        let weak = Arc::downgrade(engine);
        engine.machine.io.spawn(run(weak, inbox, slices));
    }

    /// Asks every pipeline for a checkpoint that has moved on since its last one.
    fn ask(&self, engine: &Arc<Engine>) {
        let pipelines = engine.decisions.driver.lock().heads();
        let epochs_current = self.files.epochs().current();
        let due: Vec<PipelineId> = {
            let mut state = self.state.lock();
            let exists = |id: &PipelineId| pipelines.iter().any(|head| head.pipeline == *id);
            state.wanted.retain(|id, _| exists(id));
            state.last.retain(|id, _| exists(id));
            let due = pipelines
                .iter()
                .filter(|head| match state.last.get(&head.pipeline) {
                    Some(last) => {
                        last.epoch != head.committed
                            || last.relations != head.relations
                            || last.epochs_from + EPOCH_FILES_MAX < epochs_current
                    }
                    None => true,
                });
            let due: Vec<PipelineId> = due.map(|head| head.pipeline).collect();
            for id in &due {
                state.wanted.entry(*id).or_insert_with(Instant::now);
            }
            due
        };
        for pipeline in due {
            engine.post(Event::CheckpointDue { pipeline });
        }
    }

    fn is_idle(&self) -> bool {
        self.state.lock().wanted.is_empty()
    }

    /// Writes a checkpoint, and remembers how that went.
    async fn write(&self, engine: &Arc<Engine>, mut taken: Taken, slices: &mut Slices) {
        let draft = self.files.begin();
        let seen = self.show(draft.number(), std::mem::take(&mut taken.shown));
        let (pipeline, epoch) = (taken.pipeline, taken.committed.epoch);
        let mut relations: Vec<RelationId> = taken.committed.ends.keys().copied().collect();
        relations.extend(taken.views.iter().map(|(view, _)| view.id));
        relations.sort_unstable();
        let record = CheckpointRecord {
            number: draft.number(),
            pipeline,
            epoch,
            views: taken.views.len(),
            sources: taken.committed.ends.len(),
            state: CheckpointState::Writing,
            bytes_written: 0,
            bytes_total: 0,
            files: 0,
            waited: taken.waited,
            written_in: Duration::ZERO,
            taken_at_ms: now_ms() - taken.at.elapsed().as_millis() as i64,
        };
        {
            let mut state = self.state.lock();
            if state.records.len() == REMEMBERED {
                state.records.pop_front();
            }
            state.records.push_back(record);
        }
        let (at, epochs_from) = (taken.at, taken.epochs_from);
        let encoder = Encoder::new(&engine.workers, draft, self.files.files(), slices);
        let written = write(engine, encoder, taken, seen).await;
        let mut state = self.state.lock();
        let record = state.records.back_mut();
        if let Some(record) = record.filter(|record| record.state == CheckpointState::Writing) {
            record.written_in = at.elapsed();
            match &written {
                Ok((written, _)) => {
                    record.state = CheckpointState::Done;
                    record.bytes_written = written.bytes_written;
                    record.bytes_total = written.bytes_total;
                    record.files = written.files;
                }
                Err(error) => record.state = CheckpointState::Failed(error.to_string()),
            }
        }
        match written {
            Ok((written, of_parts)) => {
                state.totals.written += 1;
                state.totals.bytes_written += written.bytes_written;
                let last = Last {
                    epoch,
                    relations,
                    epochs_from,
                };
                state.last.insert(pipeline, last);
                slices.extend(of_parts);
            }
            Err(error) => {
                state.totals.failed += 1;
                tracing::error!(%error, epoch, "a checkpoint cannot be written; the previous one stays valid");
            }
        }
    }
}

/// The task that writes.
async fn run(engine: Weak<Engine>, mut inbox: Inbox, mut slices: Slices) {
    let mut asked: Vec<oneshot::Sender<()>> = vec![];
    let mut last_asked = tokio::time::Instant::now();
    loop {
        let interval = *inbox.interval.borrow_and_update();
        let pause = match (asked.is_empty(), interval) {
            (true, interval) => interval,
            (false, interval) => Some(interval.map_or(RETRY, |interval| interval.min(RETRY))),
        };
        let is_time = async {
            match pause {
                Some(pause) => tokio::time::sleep_until(last_asked + pause).await,
                None => std::future::pending().await,
            }
        };
        let (mut taken, mut is_due) = (None, false);
        tokio::select! {
            biased;
            next = inbox.taken.recv() => match next {
                Some(next) => taken = Some(next),
                None => return,
            },
            request = inbox.requests.recv() => match request {
                Some(request) => {
                    asked.push(request);
                    is_due = true;
                }
                None => return,
            },
            changed = inbox.interval.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = is_time => is_due = true,
        }
        let Some(engine) = engine.upgrade() else { return };
        let Some(durable) = engine.checkpoints.durable.as_ref() else {
            return;
        };
        if let Some(taken) = taken {
            durable.write(&engine, taken, &mut slices).await;
        }
        if is_due {
            last_asked = tokio::time::Instant::now();
            durable.ask(&engine);
        }
        if durable.is_idle() && inbox.taken.is_empty() {
            for done in asked.drain(..) {
                // Whoever asked may have gone.
                let _ = done.send(());
            }
        }
    }
}

/// Writes all of a checkpoint and commits it.
async fn write(
    engine: &Arc<Engine>,
    mut encoder: Encoder<'_>,
    taken: Taken,
    seen: impl Future<Output = ()>,
) -> Result<(Written, Slices)> {
    let Committed {
        epoch,
        ends,
        now,
        watermarks,
    } = taken.committed;
    let mut manifest = Manifest::new(encoder.draft.number(), epoch, now, taken.epochs_from);
    manifest.written_at_ms = now_ms();
    let mut tables = taken.tables;
    for (relation, end) in ends.into_iter().collect::<BTreeMap<_, _>>() {
        let rows = match tables.remove(&relation) {
            None => None,
            Some(view) => {
                let part = Part {
                    view: relation,
                    stage: 0,
                    partition: 0,
                };
                let task = engine.workers.spawn(QueryClass::Batch, move |_| {
                    async move {
                        let chunks = view.chunks().iter();
                        let chunks = chunks.map(|chunk| (Arc::clone(chunk), chunk.alive_at(view.version)));
                        Ok(TableImage::new(chunks, None))
                    }
                    .boxed()
                })?;
                let image = task.await?;
                Some(encoder.table(part, &mut 0, &image).await?)
            }
        };
        manifest.sources.push(StoredSource {
            relation: relation.0,
            end,
            watermark: watermarks.get(&relation).copied(),
            rows,
        });
    }
    for (view, parts) in taken.views {
        let mut images = vec![];
        for (part, image) in parts {
            images.push(encoder.image(part, &image).await?);
        }
        manifest.views.push(StoredView {
            relation: view.id.0,
            state: Some(state_identity(&view.graph)),
            partitions: view.graph.partitions,
            inputs: view.graph.inputs.iter().map(|input| input.id.0).collect(),
            failed_rows: view.errors.rows(),
            images,
        });
    }
    // Who does not get to it in time goes without.
    let _ = tokio::time::timeout(SEEN_WITHIN, seen).await;
    let exists: BTreeSet<u64> = engine.relations.read().keys().map(|id| id.0).collect();
    let Encoder { draft, slices, .. } = encoder;
    Ok((draft.commit(manifest, exists).await?, slices))
}

/// The images of a view as of an epoch; none if it has failed, or if one is not there.
fn images(engine: &Engine, view: RelationId, epoch: u64) -> Option<ImagesOfView> {
    let relation = engine.relation(view).ok()?;
    let Relation::View(view) = relation.as_ref() else {
        return None;
    };
    if view.failure().is_some() {
        return None;
    }
    let mut images = vec![];
    for part in parts_of(view) {
        images.push((part, engine.checkpoints.store.get_at(part, epoch)?));
    }
    Some((Arc::clone(view), images))
}

/// The tasks of a view that keep something.
pub(super) fn parts_of(view: &ViewInstance) -> Vec<Part> {
    let stages = view.shape.stages.iter().enumerate();
    let stages = stages.filter(|(_, stage)| stage.is_stateful());
    let parts = stages.flat_map(|(number, stage)| {
        let partitions = view.shape.partitions_of(stage);
        partitions.map(move |partition| Part {
            view: view.id,
            stage: number,
            partition,
        })
    });
    parts.collect()
}

fn tables(engine: &Engine, committed: &Committed) -> BTreeMap<RelationId, TableView> {
    let tables = committed.ends.iter().filter_map(|(id, end)| {
        let relation = engine.relation(*id).ok()?;
        let Relation::Table(table) = relation.as_ref() else {
            return None;
        };
        let view = table.rows.read().view(*end);
        Some((*id, view))
    });
    tables.collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "when a checkpoint was written is for people to read, nothing follows from it"
)]
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
