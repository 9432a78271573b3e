//! What a SELECT is optimised with.

mod barrier;
mod computed_keys;
mod fence;
pub mod generic_join;
mod in_turn;
pub mod values;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use millrace_sql::complexity::check_plan;
use millrace_sql::workarounds::nested_cast::CastsAsCalls;
use millrace_sql::workarounds::time_shift::TimesAsCalls;

use barrier::PutBarriers;
use computed_keys::ComputedKeys;
use fence::Fenced;
use in_turn::InTurns;

/// DataFusion's physical rules, those `Fenced` that push filters down, `PutBarriers` before them and `InTurns` behind.
pub fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let barriers: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(PutBarriers);
    let rules = PhysicalOptimizer::new().rules.into_iter().map(|rule| {
        if rule.name().starts_with("FilterPushdown") {
            Arc::new(Fenced::new(rule))
        } else {
            rule
        }
    });
    let in_turns: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(InTurns);
    std::iter::once(barriers)
        .chain(rules)
        .chain(std::iter::once(in_turns))
        .collect()
}

/// Says, on the thread that plans, whether the plan is still wanted. Rules ask before each operation of a plan; a session's state
/// has it among the extensions of its configuration, for views.
#[derive(Debug, Clone, Copy)]
pub struct Wanted(pub fn() -> bool);

impl Default for Wanted {
    fn default() -> Self {
        Wanted(|| true)
    }
}

/// DataFusion's logical rules, some of them kept from plans that they make wrong, and at last [`CastsAsCalls`]. They end when the
/// plan is not wanted any more, or has become too large.
///
/// * `ExtractEquijoinPredicate` adds plain equalities to the keys of a join in which NULL keys are equal (`a IS NOT DISTINCT
///   FROM b`), whose NULLs then match too.
/// * `EliminateCrossJoin` makes one join order of such joins and others, and gives all of them one way with NULLs.
/// * `PushDownFilter` moves a condition without columns (`1 > (SELECT ..)`) below an aggregate, which has a row even over
///   nothing if it has no groups.
pub fn logical_optimizer_rules(wanted: Wanted) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let size: Arc<dyn OptimizerRule + Send + Sync> = Arc::new(Size);
    let rules = Optimizer::new().rules.into_iter();
    std::iter::once(size)
        .chain(rules)
        .map(|rule| -> Arc<dyn OptimizerRule + Send + Sync> {
            let applies: fn(&LogicalPlan) -> bool = match rule.name() {
                "extract_equijoin_predicate" => |plan| !joins_nulls(plan),
                "eliminate_cross_join" => |plan| !plan.exists(|node| Ok(joins_nulls(node))).unwrap_or(true),
                "push_down_filter" => |plan| !filters_groups_as_a_whole(plan),
                _ => |_| true,
            };
            Arc::new(Guarded {
                rule,
                applies,
                wanted,
            })
        })
        .chain([Arc::new(CastsAsCalls::default()) as Arc<dyn OptimizerRule + Send + Sync>])
        .collect()
}

/// Those of a plan that runs once: [`TimesAsCalls`] and `ComputedKeys` behind the others.
pub fn optimizer_rules_of_select(wanted: Wanted) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = logical_optimizer_rules(wanted);
    rules.push(Arc::new(TimesAsCalls::default()));
    rules.push(Arc::new(ComputedKeys));
    rules
}

/// Whether a plan is a join by keys whose NULLs are equal.
fn joins_nulls(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty())
}

/// Whether a plan filters an aggregate by a condition without columns.
fn filters_groups_as_a_whole(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Filter(filter)
        if matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_))
            && split_conjunction(&filter.predicate).iter().any(|condition| condition.column_refs().is_empty()))
}

/// Refuses a plan that has become too large: rules may double it, at each of its levels.
#[derive(Debug)]
struct Size;

impl OptimizerRule for Size {
    fn name(&self) -> &'static str {
        "size"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check_plan(&plan)?;
        Ok(Transformed::no(plan))
    }
}

/// A rule that leaves some plans alone.
#[derive(Debug)]
struct Guarded {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    applies: fn(&LogicalPlan) -> bool,
    wanted: Wanted,
}

impl OptimizerRule for Guarded {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !(self.wanted.0)() {
            return exec_err!("planning was cancelled");
        }
        if (self.applies)(&plan) {
            self.rule.rewrite(plan, config)
        } else {
            Ok(Transformed::no(plan))
        }
    }
}
