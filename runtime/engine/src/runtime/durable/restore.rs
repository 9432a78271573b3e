//! Views and tables from a checkpoint, at the start.
//!
//! A view is restored from the newest checkpoint that has it, if its plan is the same and all that it reads is there as of
//! the same checkpoint; otherwise, or if a block is damaged, it is filled again, and so is what reads it. Parts are read
//! side by side. A source goes on from the offset at which its checkpoint has it: what is behind that in its log is fed
//! again ([`super::replay`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use futures::FutureExt;
use futures::future::try_join_all;
use millrace_planner::state_identity::{state_difference, state_identity};
use millrace_planner::{RelationId, StageGraph};
use millrace_resource::error::ResourceError;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::id::{Part, TaskId};
use millrace_state::chunk::{Chunk, Stored};
use millrace_state::row_table::TableImage;
use millrace_storage::checkpoint::{Checkpoints, Manifest, StoredImage, StoredSource, StoredView};
use tokio::sync::Semaphore;

use super::writer::parts_of;
use crate::checkpoint::decode;
use crate::checkpoint::encode::{Slices, known_slices};
use crate::error::{Result, RuntimeError};
use crate::relation::widen;
use crate::runtime::{Engine, Runtime};
use crate::worker::{ViewInstance, ViewSpec};

/// Parts of a view that are read at a time.
const RESTORED_AT_ONCE: usize = 8;

/// What there is to restore.
#[derive(Debug)]
pub struct Recovery {
    pub(super) files: Arc<Checkpoints>,
    /// The oldest first.
    manifests: Vec<Arc<Manifest>>,
    /// For each relation, the newest that has it.
    newest: HashMap<RelationId, usize>,
    /// Sources that go on from where their checkpoint has them, and views that were restored.
    restored: BTreeSet<RelationId>,
    /// For each source that is behind its log: where it is, and where the log ends.
    pub(super) behind: BTreeMap<RelationId, (u64, u64)>,
}

/// What became of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoredView {
    /// It is as of this epoch of the process that wrote the checkpoint.
    Restored { epoch: u64 },
    /// No checkpoint has it: it has to be filled.
    Absent,
    /// One has it, and it has to be filled all the same; why.
    Unusable(String),
}

/// What a checkpoint has of a source.
pub(crate) struct RestoredSource {
    pub end: u64,
    pub watermark: Option<i64>,
    /// Of a table.
    pub rows: Option<TableImage>,
}

impl Recovery {
    pub fn new(files: Arc<Checkpoints>) -> Recovery {
        let manifests = files.manifests();
        let mut newest = HashMap::new();
        for (place, manifest) in manifests.iter().enumerate() {
            newest.extend(manifest.relations().map(|id| (RelationId(id), place)));
        }
        for (number, why) in files.damaged() {
            tracing::warn!(number, why, "a checkpoint cannot be used: its views are refilled");
        }
        Recovery {
            files,
            manifests,
            newest,
            restored: BTreeSet::new(),
            behind: BTreeMap::new(),
        }
    }

    fn manifest(&self, id: RelationId) -> Option<&Arc<Manifest>> {
        self.manifests.get(*self.newest.get(&id)?)
    }

    fn source(&self, id: RelationId) -> Option<&StoredSource> {
        let manifest = self.manifest(id)?;
        manifest.sources.iter().find(|source| source.relation == id.0)
    }

    fn view(&self, id: RelationId) -> Option<(&Arc<Manifest>, &StoredView)> {
        let manifest = self.manifest(id)?;
        let view = manifest.views.iter().find(|view| view.relation == id.0)?;
        Some((manifest, view))
    }

    /// The checkpoint that a relation was restored from.
    pub fn number_of(&self, id: RelationId) -> Option<u64> {
        let manifest = self.manifest(id).filter(|_| self.restored.contains(&id));
        manifest.map(|manifest| manifest.number)
    }

    /// The latest time of the checkpoints that something was restored from.
    pub fn now(&self) -> Option<i64> {
        let restored = self.restored.iter().filter_map(|id| self.manifest(*id));
        restored.map(|manifest| manifest.now).max()
    }

    /// The time of the oldest checkpoint.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.manifests.iter().map(|manifest| manifest.now).min()
    }

    /// The first file of the epoch log that may have epochs to replay.
    pub(super) fn epochs_from(&self) -> Option<u64> {
        self.manifests.iter().map(|manifest| manifest.epochs_from).min()
    }

    /// The time of the checkpoint that a source goes on from.
    pub(super) fn time_of(&self, source: RelationId) -> Option<i64> {
        let manifest = self.manifest(source).filter(|_| self.restored.contains(&source));
        manifest.map(|manifest| manifest.now)
    }

    /// The slices that the checkpoints refer to.
    pub(super) fn slices(&self) -> Slices {
        let mut slices = Slices::new();
        for (id, place) in &self.newest {
            let views = self.manifests[*place].views.iter();
            for view in views.filter(|view| view.relation == id.0) {
                for image in &view.images {
                    known_slices(part(*id, image), image, &mut slices);
                }
            }
        }
        slices
    }

    /// Why a view cannot be what its checkpoint has, if so.
    fn refusal(&self, stored: &StoredView, graph: &StageGraph) -> Option<String> {
        if stored.partitions != graph.partitions {
            return Some(format!(
                "the checkpoint has {} partitions, the plan has {}",
                stored.partitions, graph.partitions
            ));
        }
        if let Some(state) = &stored.state
            && let Some(difference) = state_difference(state, &state_identity(graph))
        {
            return Some(difference);
        }
        let id = RelationId(stored.relation);
        let is_of_other = |input: &RelationId| {
            self.newest.get(input) != self.newest.get(&id) || !self.restored.contains(input)
        };
        let mut inputs = graph.inputs.iter().map(|input| (input.id, &input.name));
        let (_, name) = inputs.find(|(input, _)| is_of_other(input))?;
        Some(format!("{name}, which it reads, is from a different checkpoint"))
    }
}

fn part(view: RelationId, image: &StoredImage) -> Part {
    Part {
        view,
        stage: image.stage,
        partition: image.partition,
    }
}

impl Engine {
    /// What the newest checkpoint has of a source whose log ends at `head`; none: it has to be read from the beginning.
    pub async fn restored_source(&self, id: RelationId, head: u64) -> Option<RestoredSource> {
        let (files, stored) = {
            let recovery = self.checkpoints.recovery.lock();
            let recovery = recovery.as_ref()?;
            (Arc::clone(&recovery.files), recovery.source(id)?.clone())
        };
        let rows = match &stored.rows {
            None => None,
            Some(rows) => match decode::table(&files, rows).await {
                Ok(rows) => Some(rows),
                Err(error) => {
                    tracing::warn!(relation = id.0, %error, "the rows of a table cannot be read from the \
                     checkpoint: reading its log instead");
                    None
                }
            },
        };
        let mut recovery = self.checkpoints.recovery.lock();
        let recovery = recovery.as_mut()?;
        recovery.restored.insert(id);
        if stored.end < head {
            recovery.behind.insert(id, (stored.end, head));
        }
        Some(RestoredSource {
            end: stored.end,
            watermark: stored.watermark,
            rows,
        })
    }

    /// Gives a new view the state that the checkpoint has, and makes it part of its inputs' pipeline.
    async fn bring_back(
        self: &Arc<Self>,
        spec: ViewSpec,
        stored: StoredView,
        files: Arc<Checkpoints>,
    ) -> Result<()> {
        let incarnation = self.jobs.next_incarnation.fetch_add(1, Ordering::Relaxed);
        let inputs = spec.graph.inputs.iter().map(|input| input.id).collect();
        let view = Arc::new(ViewInstance::new(
            spec,
            incarnation,
            &self.machine.memory,
            self.machine.spill.clone(),
        )?);
        let images: HashMap<Part, StoredImage> = (stored.images.into_iter())
            .map(|image| (part(view.id, &image), image))
            .collect();
        let mut restoring = vec![];
        // Each is in memory as a whole, before parts of the view leave for it.
        let places = Arc::new(Semaphore::new(RESTORED_AT_ONCE));
        for part in parts_of(&view) {
            let image = images.get(&part).cloned();
            let image = image.ok_or_else(|| {
                RuntimeError::Internal(format!("a part of it is not in the checkpoint: {part:?}"))
            })?;
            let (engine, view, files) = (Arc::clone(self), Arc::clone(&view), Arc::clone(&files));
            let places = Arc::clone(&places);
            let restored = self.machine.io.spawn(async move {
                let _place = places.acquire().await;
                engine.restore_part(&view, part, &image, &files).await
            });
            restoring.push(restored.map(|joined| match joined {
                Ok(restored) => restored,
                Err(error) => Err(RuntimeError::Internal(error.to_string())),
            }));
        }
        try_join_all(restoring).await?;
        view.begin_restored(stored.failed_rows);
        self.install(&view);
        if view.graph.keeps_time() {
            self.timers.install(view.id);
            for Part { stage, partition, .. } in parts_of(&view) {
                let task = TaskId {
                    view: view.id,
                    stage,
                    partition,
                    epoch: 0,
                };
                self.timers.set(task, view.due(stage, partition));
            }
        }
        let held = self.quiesce(inputs).await?;
        self.adopt(std::slice::from_ref(&view))?;
        held.resume(vec![Arc::clone(&view.shape)], vec![]);
        for partition in 0..view.contents.partitions.len() {
            let view = Arc::clone(&view);
            self.workers
                .spawn_indexing(view.id, move || view.make_indexes(partition))?;
        }
        Ok(())
    }

    async fn restore_part(
        &self,
        view: &Arc<ViewInstance>,
        part: Part,
        stored: &StoredImage,
        files: &Checkpoints,
    ) -> Result<()> {
        let image = decode::image(files, stored).await?;
        let view = Arc::clone(view);
        let task = self.workers.spawn_for(part.view, QueryClass::Stream, move |_| {
            async move {
                let turn = view.turn_to_restore(part.stage, part.partition).await;
                // What was read is what was written, but by whom is not known.
                let restored = std::panic::catch_unwind(AssertUnwindSafe(|| {
                    view.restore(part.stage, part.partition, &image, || true)?;
                    view.restore_rows(part.partition, &image)
                }));
                restored.unwrap_or_else(|_| {
                    Err(RuntimeError::Internal(
                        "its state does not match this plan".into(),
                    ))
                })?;
                drop(turn);
                view.make_room().await;
                Ok(())
            }
            .boxed()
        })?;
        task.await
    }
}

impl Runtime {
    /// How many partitions the checkpoint of a view has, if there is one: their number stays as it is.
    pub fn checkpointed_partitions(&self, view: RelationId) -> Option<usize> {
        let recovery = self.engine.checkpoints.recovery.lock();
        let (_, stored) = recovery.as_ref()?.view(view)?;
        Some(stored.partitions)
    }

    /// Brings a view back from its checkpoint, if that can be. To be asked before [`Runtime::replay`], after what it reads
    /// was made known. A view that goes by `now()` is not, if the checkpoint is of a time that is still to come: the clock was
    /// wrong then; unless it `cannot_be_filled`.
    ///
    /// # Errors
    /// The runtime is shutting down. Whatever is wrong with the checkpoint is an answer.
    pub async fn restore_view(&self, spec: ViewSpec, cannot_be_filled: bool) -> Result<RestoredView> {
        let id = spec.id;
        let (files, stored, epoch) = {
            let recovery = self.engine.checkpoints.recovery.lock();
            let Some(recovery) = recovery.as_ref() else {
                return Ok(RestoredView::Absent);
            };
            let Some((manifest, stored)) = recovery.view(id) else {
                return Ok(RestoredView::Absent);
            };
            if let Some(why) = recovery.refusal(stored, &spec.graph) {
                return Ok(RestoredView::Unusable(why));
            }
            if spec.graph.keeps_time() && !cannot_be_filled && self.engine.timers.is_to_come(manifest.now) {
                let why = "its checkpoint is dated in the future: the clock was wrong when it was written";
                return Ok(RestoredView::Unusable(why.to_owned()));
            }
            (Arc::clone(&recovery.files), stored.clone(), manifest.epoch)
        };
        match self.engine.bring_back(spec, stored, files).await {
            Ok(()) => {}
            Err(RuntimeError::Resource(ResourceError::ShuttingDown)) => {
                return Err(RuntimeError::SHUTTING_DOWN);
            }
            Err(error) => return Ok(RestoredView::Unusable(error.to_string())),
        }
        self.until(|engine| engine.versions.pipeline_of(id).is_some())
            .await?;
        if let Some(recovery) = self.engine.checkpoints.recovery.lock().as_mut() {
            recovery.restored.insert(id);
        }
        Ok(RestoredView::Restored { epoch })
    }
}

/// An image of a table that has more columns now.
///
/// # Errors
/// It has fewer.
pub(crate) fn widen_image(
    image: TableImage,
    schema: &SchemaRef,
    missing: &[ScalarValue],
) -> Result<TableImage> {
    let mut chunks = vec![];
    for (chunk, alive) in image.chunks() {
        let chunk = if chunk.rows.num_columns() == schema.fields().len() {
            Arc::clone(chunk)
        } else {
            let rows = widen(chunk.rows.clone(), schema, missing)?;
            Arc::new(Chunk::restored(rows, alive, Stored::default()))
        };
        chunks.push((chunk, alive.cloned()));
    }
    Ok(TableImage::new(chunks, None))
}
