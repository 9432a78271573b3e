//! Walks over the operators of a stage: what they read, what they put out, and what holds of a tree of them.

use arrow::datatypes::SchemaRef;

use super::{Operator, Stage};
use crate::relation_id::RelationId;

impl Operator {
    /// Columns of the operator's output.
    pub fn schema(&self) -> &SchemaRef {
        match self {
            Operator::Source { schema, .. }
            | Operator::Values { schema, .. }
            | Operator::Exchange { schema, .. }
            | Operator::WorkingTable { schema }
            | Operator::Filter { schema, .. }
            | Operator::Project { schema, .. }
            | Operator::Expand { schema, .. }
            | Operator::Unnest { schema, .. } => schema,
            Operator::PartialAggregate(aggregation) | Operator::Aggregate(aggregation) => &aggregation.schema,
            Operator::Join(join) => &join.schema,
            Operator::GenericJoin(join) => &join.shape.schema,
            Operator::TopN(top) => &top.schema,
            Operator::Recompute(recompute) => &recompute.schema,
            Operator::Recursion(recursion) => &recursion.schema,
            Operator::TemporalFilter(filter) => &filter.schema,
            Operator::LookupJoin(join) => &join.schema,
            Operator::AsofJoin(join) => &join.schema,
            Operator::Session(session) => &session.schema,
            Operator::Sliding(sliding) => &sliding.aggregation.schema,
            Operator::EmitOnClose(emit) => &emit.schema,
            Operator::EmitEvery(emit) => &emit.schema,
        }
    }

    /// Whether the output can change by time alone.
    pub fn keeps_time(&self) -> bool {
        matches!(self, Operator::TemporalFilter(_) | Operator::EmitEvery(_))
            || matches!(self, Operator::Aggregate(aggregation) if aggregation.timer.is_some())
            || self.inputs().into_iter().any(Operator::keeps_time)
    }

    /// See [`StageGraph::goes_by_watermarks`].
    pub(super) fn goes_by_watermarks(&self) -> bool {
        let own = match self {
            Operator::EmitOnClose(_) => true,
            Operator::Aggregate(aggregation) => aggregation.closes.is_some(),
            Operator::Join(join) => join.left_closes.is_some() || join.right_closes.is_some(),
            Operator::TopN(top) => top.closes.is_some(),
            Operator::Recompute(recompute) => recompute.closes.is_some(),
            Operator::Session(session) => session.closes.is_some(),
            Operator::Sliding(sliding) => sliding.closes.is_some(),
            _ => false,
        };
        own || self.inputs().into_iter().any(Operator::goes_by_watermarks)
    }

    /// See [`StageGraph::awaits_all`].
    pub(super) fn awaits_all(&self) -> bool {
        matches!(self, Operator::LookupJoin(_) | Operator::EmitEvery(_))
            || self.inputs().into_iter().any(Operator::awaits_all)
    }

    /// The operators that it reads, left to right.
    pub fn inputs(&self) -> Vec<&Operator> {
        match self {
            Operator::Source { .. }
            | Operator::Values { .. }
            | Operator::Exchange { .. }
            | Operator::WorkingTable { .. } => vec![],
            Operator::Filter { input, .. }
            | Operator::Project { input, .. }
            | Operator::Expand { input, .. }
            | Operator::Unnest { input, .. } => {
                vec![input]
            }
            Operator::TopN(top) => vec![&top.input],
            Operator::Recompute(recompute) => vec![&recompute.input],
            Operator::TemporalFilter(filter) => vec![&filter.input],
            Operator::Session(session) => vec![&session.input],
            Operator::Sliding(sliding) => vec![&sliding.aggregation.input],
            Operator::EmitOnClose(emit) => vec![&emit.input],
            Operator::EmitEvery(emit) => vec![&emit.input],
            Operator::LookupJoin(join) => vec![&join.left, &join.right],
            Operator::AsofJoin(join) => vec![&join.left, &join.right],
            Operator::PartialAggregate(aggregation) | Operator::Aggregate(aggregation) => {
                vec![&aggregation.input]
            }
            Operator::Join(join) => vec![&join.left, &join.right],
            Operator::GenericJoin(join) => join.inputs.iter().collect(),
            Operator::Recursion(recursion) => vec![&recursion.base, &recursion.body],
        }
    }

    /// Whether it is a part of a recursion's body. A recursion itself is not: its working table is its own affair.
    pub fn reads_working_table(&self) -> bool {
        match self {
            Operator::WorkingTable { .. } => true,
            Operator::Recursion(_) => false,
            other => other.inputs().into_iter().any(Operator::reads_working_table),
        }
    }
}

impl Stage {
    /// The stages whose output it reads, in order.
    pub fn upstream(&self) -> Vec<usize> {
        fn collect(operator: &Operator, found: &mut Vec<usize>) {
            if let Operator::Exchange { stages, .. } = operator {
                found.extend(stages);
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
                Operator::Source { relation, .. } => Some(*relation),
                other => other.inputs().into_iter().find_map(find),
            }
        }
        find(&self.root)
    }
}
