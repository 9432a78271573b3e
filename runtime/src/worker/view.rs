//! A view on a worker: its stages' operators with their state, and its contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use millrace_planner::{RelationId, StageGraph};
use parking_lot::{Mutex, RwLock};

use crate::ViewSpec;
use crate::error::Result;
use crate::operator::{Combiner, CombinerCounts, ErrorCounter, OperatorInstance, nullable};
use crate::schedule::template::{StageInput, ViewShape, is_reduce};
use crate::state::RowTable;

/// The rows of a view, partition by partition.
#[derive(Debug)]
pub struct ViewContents {
    pub schema: SchemaRef,
    pub key: Option<Vec<usize>>,
    pub partitions: Vec<RwLock<RowTable>>,
}

/// See the module.
pub struct ViewInstance {
    pub id: RelationId,
    pub name: String,
    pub graph: StageGraph,
    pub shape: Arc<ViewShape>,
    /// For each stage, for each partition: the operators with their state. Maps have none and are made for each task.
    reduces: Vec<Vec<Mutex<Option<OperatorInstance>>>>,
    pub contents: Arc<ViewContents>,
    pub errors: ErrorCounter,
    failure: Mutex<Option<String>>,
    /// Whether it waits for rows that existed before it.
    is_filling: AtomicBool,
    /// For each stage, whether its fixed rows are still to come.
    first: Vec<AtomicBool>,
    /// For each stage, whether it pays to combine rows before the exchange.
    combiners: Vec<Arc<Combiner>>,
}

impl ViewInstance {
    /// Operators with empty state and empty contents.
    ///
    /// # Errors
    /// The plan asks for an operator that cannot be built.
    pub fn new(spec: ViewSpec) -> Result<Self> {
        let ViewSpec { id, name, graph } = spec;
        let awaits_all = graph.awaits_all();
        let mut reduces = vec![];
        for stage in &graph.stages {
            let mut instances = vec![];
            if is_reduce(&stage.root) {
                for partition in 0..graph.partitions {
                    instances.push(Mutex::new(Some(OperatorInstance::new(&stage.root, partition)?)));
                }
            } else {
                // Built once here so that a plan that cannot run is refused now.
                OperatorInstance::new(&stage.root, 0)?;
            }
            reduces.push(instances);
        }
        let schema = nullable(&graph.schema);
        let identity = (!graph.append_only).then(|| match &graph.key {
            Some(key) if !key.is_empty() => key.clone(),
            _ => (0..schema.fields().len()).collect(),
        });
        let mut partitions = vec![];
        for _ in 0..graph.partitions {
            let mut table = RowTable::new(Arc::clone(&schema), identity.clone());
            if let Some(key) = graph.key.as_ref().filter(|key| !key.is_empty()) {
                table.add_index(key.clone())?;
            }
            partitions.push(RwLock::new(table));
        }
        let first = graph.stages.iter().map(|_| AtomicBool::new(true)).collect();
        let contents = Arc::new(ViewContents {
            schema,
            key: graph.key.clone(),
            partitions,
        });
        let shape = Arc::new(ViewShape::of(id, &graph));
        Ok(ViewInstance {
            id,
            name,
            shape,
            reduces,
            contents,
            errors: ErrorCounter::default(),
            failure: Mutex::default(),
            is_filling: AtomicBool::new(awaits_all),
            combiners: graph.stages.iter().map(|_| Arc::default()).collect(),
            graph,
            first,
        })
    }

    /// Whether a stage makes rows out of nothing.
    pub fn is_fixed(&self, stage: usize) -> bool {
        self.shape.stages[stage].input == StageInput::Fixed
    }

    /// Takes the operators of a partition for one task; a map's are made anew.
    pub(super) fn take(&self, stage: usize, partition: usize) -> Result<Option<OperatorInstance>> {
        match self.reduces[stage].get(partition) {
            Some(instance) => Ok(instance.lock().take()),
            None => OperatorInstance::new(&self.graph.stages[stage].root, partition).map(Some),
        }
    }

    /// Brings a reduce's operators back.
    pub(super) fn put_back(&self, stage: usize, partition: usize, operators: OperatorInstance) {
        if let Some(instance) = self.reduces[stage].get(partition) {
            *instance.lock() = Some(operators);
        }
    }

    /// Whether a reduce has nothing to do in an epoch that brings no input, at its time.
    pub(super) fn idle_without_input(&self, stage: usize, partition: usize, now: i64) -> bool {
        self.reduces[stage].get(partition).is_none_or(|instance| {
            instance.lock().as_ref().is_none_or(|operators| {
                operators.idle_without_input() && operators.due().is_none_or(|due| due > now)
            })
        })
    }

    /// Whether the stage's output can change by time alone.
    pub(super) fn keeps_time(&self, stage: usize) -> bool {
        self.graph.stages[stage].root.keeps_time()
    }

    /// When the output of a partition next changes without input.
    pub(super) fn due(&self, stage: usize, partition: usize) -> Option<i64> {
        let instance = self.reduces[stage].get(partition)?.lock();
        instance.as_ref().and_then(OperatorInstance::due)
    }

    /// Whether the fixed rows of a stage are still to come.
    pub fn is_first(&self, stage: usize) -> bool {
        self.first[stage].load(Ordering::Relaxed)
    }

    /// True once for each stage.
    pub(super) fn take_first(&self, stage: usize) -> bool {
        self.first[stage].swap(false, Ordering::Relaxed)
    }

    /// What a stage's tasks have learned of combining rows.
    pub fn combiner(&self, stage: usize) -> Arc<Combiner> {
        Arc::clone(&self.combiners[stage])
    }

    /// For each stage that combined rows or passed them on, how many.
    pub fn combiner_counts(&self) -> Vec<(usize, CombinerCounts)> {
        let counts = self.combiners.iter().map(|combiner| combiner.counts());
        let stages = counts.enumerate();
        stages
            .filter(|(_, counts)| counts.combined + counts.passed > 0)
            .collect()
    }

    pub fn set_combining(&self, is_on: bool) {
        self.combiners.iter().for_each(|combiner| combiner.set(is_on));
    }

    pub(super) fn is_filling(&self) -> bool {
        self.is_filling.load(Ordering::Acquire)
    }

    /// All rows that existed before the view were brought to it, and it is at rest.
    pub fn end_filling(&self) {
        self.is_filling.store(false, Ordering::Release);
    }

    /// Sets the view aside: it stays readable as an error until it is dropped.
    pub fn fail(&self, why: String) {
        self.failure.lock().get_or_insert(why);
    }

    /// Why the view was set aside, if it was.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Bytes of keyed state and contents.
    pub fn state_bytes(&self) -> usize {
        let operators: usize = self
            .reduces
            .iter()
            .flatten()
            .map(|instance| instance.lock().as_ref().map_or(0, OperatorInstance::state_bytes))
            .sum();
        operators
            + self
                .contents
                .partitions
                .iter()
                .map(|table| table.read().memory_bytes())
                .sum::<usize>()
    }

    /// Rows of the view now.
    pub fn rows(&self) -> usize {
        self.contents
            .partitions
            .iter()
            .map(|table| table.read().live_rows())
            .sum()
    }
}
