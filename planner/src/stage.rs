//! The stage DAG: all that crosses from planning to execution.
//!
//! ```text
//!  stage 0 (map)                       stage 1 (reduce)
//!  Source -> Filter -> Project         Exchange <- stage 0
//!         -> PartialAggregate          -> Aggregate (keyed state) -> Project
//!         => hash(k)                   => materialize
//! ```
//!
//! A stage is a tree of operators between exchanges. Its leaves are either one [`Operator::Source`] (a map stage) or
//! [`Operator::Exchange`]s (a reduce stage), never both: what is partitioned by arrival does not meet keyed state.
//! Every stage runs as `StageGraph::partitions` tasks an epoch.

pub mod aggregate;
pub mod aggregation;
pub mod asof_join;
pub mod closing;
pub(crate) mod description;
pub mod emit;
pub mod exchange;
pub mod expand;
pub mod filter;
pub mod flow;
pub mod generic_join;
pub mod join;
pub mod lookup_join;
pub mod operator;
pub(crate) mod origins;
pub mod partial_aggregate;
pub(crate) mod partial_state;
pub mod policy;
pub mod project;
pub mod readable;
pub mod recompute;
pub mod recursion;
pub mod session;
pub mod sliding;
pub mod source;
pub mod temporal_filter;
pub mod top_n;
pub mod unnest;
pub mod values;
pub(crate) mod words;
pub mod working_table;

use arrow::datatypes::SchemaRef;

use crate::relation::RelationInfo;
use crate::relation_id::RelationId;
use crate::watermark::ColumnWatermark;
use flow::{Faucet, FlowLimits};
use operator::Operator;
use policy::{OnError, Priority};

/// A view's plan.
#[derive(Debug, Clone)]
pub struct StageGraph {
    /// In topological order; the last one materializes.
    pub stages: Vec<Stage>,
    /// Columns of the view. Any may be NULL: an expression that fails on a row is NULL there.
    pub schema: SchemaRef,
    /// Columns whose values are unique together in the view, if the plan proves it.
    pub key: Option<Vec<usize>>,
    /// Whether the view's rows are only ever added.
    pub append_only: bool,
    /// What is known of the rows that are still to change.
    pub watermarks: Vec<ColumnWatermark>,
    /// The relations that it reads.
    pub inputs: Vec<RelationInfo>,
    /// Partitions of keyed state: fixed for the life of the view.
    pub partitions: usize,
    /// How much may be in flight behind a stage with a [`Stage::faucet`].
    pub flow: FlowLimits,
    pub priority: Priority,
    /// How old what readers see may be, in microseconds; none: as the server's setting says.
    pub freshness_us: Option<u64>,
    pub on_error: OnError,
    /// Whether the rows on which an expression fails are kept.
    pub keeps_errors: bool,
}

impl StageGraph {
    /// Whether the view can change by time alone.
    pub fn keeps_time(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.keeps_time())
    }

    /// Whether watermarks decide what the view shows or what it may forget.
    pub fn goes_by_watermarks(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.goes_by_watermarks())
    }

    /// Whether rows that exist already can be emitted only when all of them are there.
    pub fn awaits_all(&self) -> bool {
        self.stages.iter().any(|stage| stage.root.awaits_all())
    }
}

/// Operators between two exchanges.
#[derive(Debug, Clone)]
pub struct Stage {
    pub id: usize,
    pub root: Operator,
    pub output: Output,
    /// Where its output may go on batch by batch while it is made; `None`: it goes on as a whole.
    pub faucet: Option<Faucet>,
}

/// Where a stage's rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// To the next stage, by a hash of these columns; equal keys meet in one partition.
    Hash(Vec<usize>),
    /// To the next stage's partition 0.
    Single,
    /// Into the view's contents.
    Materialize,
}

impl Stage {
    /// The stages whose output it reads, in order.
    pub fn upstream(&self) -> Vec<usize> {
        fn collect(operator: &Operator, found: &mut Vec<usize>) {
            if let Operator::Exchange(exchange) = operator {
                found.extend(&exchange.stages);
            }
            for input in operator.inputs() {
                collect(input, found);
            }
        }
        let mut found = vec![];
        collect(&self.root, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The relation that a map stage reads.
    pub fn source(&self) -> Option<RelationId> {
        fn find(operator: &Operator) -> Option<RelationId> {
            match operator {
                Operator::Source(source) => Some(source.relation),
                other => other.inputs().into_iter().find_map(find),
            }
        }
        find(&self.root)
    }
}
