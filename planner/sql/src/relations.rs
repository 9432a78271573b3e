//! How the binder plans the relations that DataFusion plans wrongly or not at all: UNNEST, and those that stand for set operations
//! that count copies and for the terms of recursive queries.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::postgres::unnest::unnest;
use crate::workarounds::counted_sets::relation;
use crate::workarounds::recursive_numbers;

/// See the module.
#[derive(Debug)]
struct RelationForms;

impl RelationPlanner for RelationForms {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let planned = match relation {
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_ordinality,
                ..
            } => unnest(alias, array_exprs, with_ordinality, context)?,
            TableFactor::Function {
                name, args, alias, ..
            } if relation::is_multiset(&name) => {
                PlannedRelation::new(relation::plan(&name, args, context)?, alias)
            }
            TableFactor::Function {
                name, args, alias, ..
            } if recursive_numbers::is_term(&name) => {
                PlannedRelation::new(recursive_numbers::plan(args, context)?, alias)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// The planner's own relation planners, before those of the session.
pub fn planners(others: &[Arc<dyn RelationPlanner>]) -> Vec<Arc<dyn RelationPlanner>> {
    let own: Arc<dyn RelationPlanner> = Arc::new(RelationForms);
    std::iter::once(own).chain(others.iter().cloned()).collect()
}
