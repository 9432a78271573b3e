//! The list of operators of a plan. A new one has its name here, and says all else of itself in its own file.

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

/// Makes the enum of the operators: those that are small, and those that are boxed.
macro_rules! operators {
    (small: $($small:ident),*; boxed: $($boxed:ident),*;) => {
        /// An incremental operator over change batches. Expressions refer to the input's columns by position.
        #[derive(Debug, Clone)]
        pub enum Operator {
            $($small($small),)*
            $($boxed(Box<$boxed>),)*
        }

        impl Operator {
            /// What it says of itself.
            pub(crate) fn description(&self) -> &dyn Description {
                match self {
                    $(Operator::$small(operator) => operator,)*
                    $(Operator::$boxed(operator) => operator.as_ref(),)*
                }
            }
        }
    };
}

operators! {
    small: Source, Values, Exchange, WorkingTable, Filter, Project, Expand, Unnest;
    boxed: PartialAggregate, Aggregate, Join, GenericJoin, TopN, Recompute, Recursion, TemporalFilter, LookupJoin,
        AsofJoin, Session, Sliding, EmitOnClose, EmitEvery;
}

impl Operator {
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
