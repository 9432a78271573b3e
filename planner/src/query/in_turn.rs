//! [`millrace_sql::in_turn`] in the plans of SELECTs: what AND and OR have decided is not computed any more.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode, PhysicalGroupBy};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use millrace_sql::in_turn::{condition, in_turn};

/// Puts conditions in turn. Last of the physical rules: the others know AND by DataFusion's expression alone.
#[derive(Debug)]
pub struct InTurns;

impl PhysicalOptimizerRule for InTurns {
    fn name(&self) -> &str {
        "conditions_in_turn"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            Ok(match changed(&node)? {
                Some(node) => Transformed::yes(node),
                None => Transformed::no(node),
            })
        })
        .map(|transformed| transformed.data)
    }
}

fn changed(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let Some(predicate) = condition(filter.predicate(), &filter.input().schema())? else {
            return Ok(None);
        };
        let filter = FilterExecBuilder::from(filter).with_predicate(predicate);
        return Ok(Some(Arc::new(filter.build()?)));
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        let mut is_changed = false;
        let mut expressions = vec![];
        for ProjectionExpr { expr, alias } in projection.expr() {
            let expr = in_turn(Arc::clone(expr), &schema)?;
            is_changed |= expr.transformed;
            expressions.push(ProjectionExpr {
                expr: expr.data,
                alias: alias.clone(),
            });
        }
        return match is_changed {
            true => {
                let input = Arc::clone(projection.input());
                Ok(Some(Arc::new(ProjectionExec::try_new(expressions, input)?)))
            }
            false => Ok(None),
        };
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return of_aggregate(aggregate);
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = join.filter().map(of_join).transpose()?.flatten() else {
            return Ok(None);
        };
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter));
        return Ok(Some(Arc::new(join.build()?)));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let Some(filter) = join.filter().map(of_join).transpose()?.flatten() else {
            return Ok(None);
        };
        return join.builder().with_filter(Some(filter)).build_exec().map(Some);
    }
    Ok(None)
}

/// What is grouped by, what is aggregated, and what FILTER says. What merges states computes none of it.
fn of_aggregate(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if aggregate.mode().input_mode() != AggregateInputMode::Raw {
        return Ok(None);
    }
    let schema = aggregate.input().schema();
    let mut is_changed = false;
    let mut in_turn = |expression: &Arc<dyn PhysicalExpr>, schema: &Schema| -> Result<_> {
        let expression = in_turn(Arc::clone(expression), schema)?;
        is_changed |= expression.transformed;
        Ok(expression.data)
    };
    let by = aggregate.group_expr();
    let keys = by.expr().iter();
    let keys = keys.map(|(key, name)| Ok((in_turn(key, &schema)?, name.clone())));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    let mut functions = vec![];
    for function in aggregate.aggr_expr() {
        let all = function.all_expressions();
        let arguments = all.args.iter().map(|argument| in_turn(argument, &schema));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let order = all.order_by_exprs.iter().map(|key| in_turn(key, &schema));
        let changed = function.with_new_expressions(arguments, order.collect::<Result<_>>()?);
        functions.push(changed.map_or_else(|| Arc::clone(function), Arc::new));
    }
    let mut filters = vec![];
    for filter in aggregate.filter_expr() {
        filters.push(match filter {
            Some(filter) => Some(in_turn(filter, &schema)?),
            None => None,
        });
    }
    if !is_changed {
        return Ok(None);
    }
    let group_by = PhysicalGroupBy::new(
        keys,
        by.null_expr().to_vec(),
        by.groups().to_vec(),
        by.has_grouping_set(),
    );
    let changed = AggregateExec::try_new(
        *aggregate.mode(),
        group_by,
        functions,
        filters,
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    Ok(Some(Arc::new(
        changed.with_limit_options(aggregate.limit_options()),
    )))
}

fn of_join(filter: &JoinFilter) -> Result<Option<JoinFilter>> {
    let expression = condition(filter.expression(), filter.schema())?;
    Ok(expression.map(|expression| {
        JoinFilter::new(
            expression,
            filter.column_indices().to_vec(),
            Arc::clone(filter.schema()),
        )
    }))
}
