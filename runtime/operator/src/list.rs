//! The list of operators: for each one of a plan, what runs it. A new operator has a line here, and all else in its folder.

use std::sync::Arc;

use millrace_planner::stage::exchange::Exchange;
use millrace_planner::stage::expand::Expand;
use millrace_planner::stage::filter::Filter;
use millrace_planner::stage::operator::Operator as Plan;
use millrace_planner::stage::project::Project;
use millrace_planner::stage::source::Source;
use millrace_planner::stage::unnest::Unnest;
use millrace_planner::stage::values::Values;

use super::aggregate::AggregateInstance;
use super::asof::AsofJoinInstance;
use super::emit::EmitInstance;
use super::exchange::ExchangeInstance;
use super::expand::ExpandInstance;
use super::filter::FilterInstance;
use super::generic_join::GenericJoinInstance;
use super::instance::{Operator, OperatorInstance};
use super::join::JoinInstance;
use super::lookup::LookupJoinInstance;
use super::partial_aggregate::PartialAggregate;
use super::project::ProjectInstance;
use super::projection::{Projection, steps_of};
use super::recompute::RecomputeInstance;
use super::recursion::RecursionInstance;
use super::session::SessionInstance;
use super::sliding::SlidingInstance;
use super::source::SourceInstance;
use super::temporal::TemporalInstance;
use super::top_n::TopNInstance;
use super::unnest::UnnestInstance;
use super::values::ValuesInstance;
use super::working_table::WorkingTableInstance;
use crate::error::Result;

impl OperatorInstance {
    /// The instance of a plan's operator, and of all that it reads, on a partition, with empty state.
    ///
    /// # Errors
    /// The plan asks for what DataFusion cannot build: an accumulator or a row format.
    pub fn new(plan: &Plan, partition: usize) -> Result<OperatorInstance> {
        let inputs = plan.inputs().into_iter();
        let inputs = inputs.map(|input| OperatorInstance::new(input, partition));
        Ok(OperatorInstance::of(
            operator(plan, partition)?,
            inputs.collect::<Result<_>>()?,
        ))
    }
}

/// The list.
fn operator(plan: &Plan, partition: usize) -> Result<Box<dyn Operator>> {
    Ok(match plan {
        Plan::Source(Source { projection, .. }) => Box::new(SourceInstance {
            projection: projection.clone(),
        }),
        Plan::Values(Values { rows, schema }) => Box::new(ValuesInstance {
            rows: rows.clone(),
            schema: Arc::clone(schema),
        }),
        Plan::Exchange(Exchange { stages, .. }) => Box::new(ExchangeInstance {
            stages: stages.clone(),
        }),
        Plan::WorkingTable(_) => Box::new(WorkingTableInstance),
        Plan::Filter(Filter { predicate, .. }) => Box::new(FilterInstance {
            predicate: Arc::clone(predicate),
        }),
        Plan::Project(Project {
            expressions, schema, ..
        }) => Box::new(ProjectInstance {
            projection: Projection::new(expressions, schema),
            steps: steps_of(expressions, schema),
        }),
        Plan::Expand(Expand {
            projections, schema, ..
        }) => Box::new(ExpandInstance {
            projections: (projections.iter())
                .map(|expressions| Projection::new(expressions, schema))
                .collect(),
            steps: steps_of(projections.iter().flatten(), schema),
        }),
        Plan::Unnest(Unnest {
            columns,
            null_handling,
            schema,
            ..
        }) => Box::new(UnnestInstance {
            columns: columns.clone(),
            null_handling: *null_handling,
            schema: Arc::clone(schema),
        }),
        Plan::PartialAggregate(plan) => Box::new(PartialAggregate::new(&plan.0)),
        Plan::Aggregate(plan) => Box::new(AggregateInstance::new(&plan.0, partition)),
        Plan::Join(plan) => Box::new(JoinInstance::new(plan)?),
        Plan::GenericJoin(plan) => Box::new(GenericJoinInstance::new(&plan.shape)?),
        Plan::TopN(plan) => Box::new(TopNInstance::new(plan)?),
        Plan::Recompute(plan) => Box::new(RecomputeInstance::new(plan)?),
        Plan::Recursion(plan) => Box::new(RecursionInstance::new(plan)?),
        Plan::TemporalFilter(plan) => Box::new(TemporalInstance::new(plan)?),
        Plan::LookupJoin(plan) => Box::new(LookupJoinInstance::new(plan)?),
        Plan::AsofJoin(plan) => Box::new(AsofJoinInstance::new(plan)?),
        Plan::Sliding(plan) => Box::new(SlidingInstance::new(plan)?),
        Plan::Session(plan) => Box::new(SessionInstance::new(plan)?),
        Plan::EmitOnClose(plan) => Box::new(EmitInstance::on_close(plan)?),
        Plan::EmitEvery(plan) => Box::new(EmitInstance::every(plan)?),
    })
}
