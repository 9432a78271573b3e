//! The list of operators of a plan. A new one has two lines here, and says all else of itself in its own file.

use arrow::datatypes::SchemaRef;

use super::aggregate::Aggregate;
use super::asof_join::AsofJoin;
use super::description::Description;
use super::emit::{EmitEvery, EmitOnClose};
use super::exchange::Exchange;
use super::expand::Expand;
use super::filter::Filter;
use super::generic_join::GenericJoin;
use super::join::Join;
use super::lookup_join::LookupJoin;
use super::partial_aggregate::PartialAggregate;
use super::project::Project;
use super::recompute::Recompute;
use super::recursion::Recursion;
use super::session::Session;
use super::sliding::Sliding;
use super::source::Source;
use super::temporal_filter::TemporalFilter;
use super::top_n::TopN;
use super::unnest::Unnest;
use super::values::Values;
use super::working_table::WorkingTable;

/// An incremental operator over change batches. Expressions refer to the input's columns by position.
#[derive(Debug, Clone)]
pub enum Operator {
    Source(Source),
    Values(Values),
    Exchange(Exchange),
    WorkingTable(WorkingTable),
    Filter(Filter),
    Project(Project),
    Expand(Expand),
    Unnest(Unnest),
    PartialAggregate(Box<PartialAggregate>),
    Aggregate(Box<Aggregate>),
    Join(Box<Join>),
    GenericJoin(Box<GenericJoin>),
    TopN(Box<TopN>),
    Recompute(Box<Recompute>),
    Recursion(Box<Recursion>),
    TemporalFilter(Box<TemporalFilter>),
    LookupJoin(Box<LookupJoin>),
    AsofJoin(Box<AsofJoin>),
    Session(Box<Session>),
    Sliding(Box<Sliding>),
    EmitOnClose(Box<EmitOnClose>),
    EmitEvery(Box<EmitEvery>),
}

impl Operator {
    /// What it says of itself.
    pub(crate) fn description(&self) -> &dyn Description {
        match self {
            Operator::Source(operator) => operator,
            Operator::Values(operator) => operator,
            Operator::Exchange(operator) => operator,
            Operator::WorkingTable(operator) => operator,
            Operator::Filter(operator) => operator,
            Operator::Project(operator) => operator,
            Operator::Expand(operator) => operator,
            Operator::Unnest(operator) => operator,
            Operator::PartialAggregate(operator) => operator.as_ref(),
            Operator::Aggregate(operator) => operator.as_ref(),
            Operator::Join(operator) => operator.as_ref(),
            Operator::GenericJoin(operator) => operator.as_ref(),
            Operator::TopN(operator) => operator.as_ref(),
            Operator::Recompute(operator) => operator.as_ref(),
            Operator::Recursion(operator) => operator.as_ref(),
            Operator::TemporalFilter(operator) => operator.as_ref(),
            Operator::LookupJoin(operator) => operator.as_ref(),
            Operator::AsofJoin(operator) => operator.as_ref(),
            Operator::Session(operator) => operator.as_ref(),
            Operator::Sliding(operator) => operator.as_ref(),
            Operator::EmitOnClose(operator) => operator.as_ref(),
            Operator::EmitEvery(operator) => operator.as_ref(),
        }
    }

    /// Columns of the operator's output.
    pub fn schema(&self) -> &SchemaRef {
        self.description().schema()
    }

    /// The operators that it reads, left to right.
    pub fn inputs(&self) -> Vec<&Operator> {
        self.description().inputs()
    }

    /// Whether the output can change by time alone.
    pub fn keeps_time(&self) -> bool {
        self.any(&|operator| operator.keeps_time())
    }

    /// See [`super::StageGraph::goes_by_watermarks`].
    pub(super) fn goes_by_watermarks(&self) -> bool {
        self.any(&|operator| operator.goes_by_watermarks())
    }

    /// See [`super::StageGraph::awaits_all`].
    pub(super) fn awaits_all(&self) -> bool {
        self.any(&|operator| operator.awaits_all())
    }

    /// Whether it holds for the operator, or one that it reads.
    fn any(&self, holds: &dyn Fn(&dyn Description) -> bool) -> bool {
        let operator = self.description();
        holds(operator) || operator.inputs().into_iter().any(|input| input.any(holds))
    }

    /// Whether it is a part of a recursion's body. A recursion itself is not: its working table is its own affair.
    pub fn reads_working_table(&self) -> bool {
        match self {
            Operator::WorkingTable(_) => true,
            Operator::Recursion(_) => false,
            other => other.inputs().into_iter().any(Operator::reads_working_table),
        }
    }
}
