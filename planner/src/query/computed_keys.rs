//! What rows are ordered by, and divided into windows by, computed as columns before.
//!
//! DataFusion does not know whether rows are in the order of a comparison with what a function gives, and refuses its own plan
//! (`PARTITION BY abs(x) > 1`). And conditions are computed in turn ([`millrace_sql::in_turn`]) where a projection has them.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunction};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, Sort, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule that puts the columns there.
#[derive(Debug)]
pub struct ComputedKeys;

impl OptimizerRule for ComputedKeys {
    fn name(&self) -> &'static str {
        "computed_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut computed = Computed::default();
        let changed = match &plan {
            LogicalPlan::Sort(sort) => {
                let expr = sort.expr.iter().map(|key| computed.key(key)).collect();
                LogicalPlan::Sort(Sort {
                    expr,
                    input: computed.beneath(&sort.input)?,
                    fetch: sort.fetch,
                })
            }
            LogicalPlan::Window(window) => {
                let functions = window.window_expr.iter();
                let functions = functions.map(|function| computed.window(function));
                let functions = functions.collect::<Result<Vec<_>>>()?;
                LogicalPlan::Window(Window::try_new(functions, computed.beneath(&window.input)?)?)
            }
            _ => return Ok(Transformed::no(plan)),
        };
        if computed.keys.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let columns = plan.schema().iter().map(Column::from).map(Expr::Column);
        let changed = LogicalPlanBuilder::from(changed).project(columns)?.build()?;
        Ok(Transformed::yes(changed))
    }
}

/// Whether a key has an operator in it: what is a column, or a function of columns, is left as it is.
fn is_operation(key: &Expr) -> bool {
    let found = key.exists(|part| {
        Ok(matches!(
            part,
            Expr::BinaryExpr(_)
                | Expr::Not(_)
                | Expr::Negative(_)
                | Expr::InList(_)
                | Expr::Between(_)
                | Expr::Like(_)
                | Expr::SimilarTo(_)
        ))
    });
    found.unwrap_or(false)
}

/// The keys of a node that become columns.
#[derive(Default)]
struct Computed {
    keys: Vec<Expr>,
}

impl Computed {
    fn column(&mut self, key: &Expr) -> Expr {
        if !is_operation(key) {
            return key.clone();
        }
        let place = self.keys.iter().position(|known| known == key);
        let place = place.unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        });
        Expr::Column(Column::new_unqualified(name(place)))
    }

    fn key(&mut self, key: &SortKey) -> SortKey {
        SortKey {
            expr: self.column(&key.expr),
            ..key.clone()
        }
    }

    /// A window function over the columns, with the name that it had.
    fn window(&mut self, function: &Expr) -> Result<Expr> {
        let name = function.schema_name().to_string();
        let changed = function.clone().transform_up(|node| {
            Ok(match node {
                Expr::WindowFunction(mut function) => {
                    let WindowFunction { params, .. } = function.as_mut();
                    params.partition_by = params.partition_by.iter().map(|key| self.column(key)).collect();
                    params.order_by = params.order_by.iter().map(|key| self.key(key)).collect();
                    Transformed::yes(Expr::WindowFunction(function))
                }
                node => Transformed::no(node),
            })
        })?;
        Ok(match changed.data != *function {
            true => changed.data.unalias().alias(name),
            false => changed.data,
        })
    }

    /// The input, with the keys behind its columns.
    fn beneath(&self, input: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if self.keys.is_empty() {
            return Ok(Arc::clone(input));
        }
        let columns = input.schema().iter().map(Column::from).map(Expr::Column);
        let keys = self.keys.iter().enumerate();
        let keys = keys.map(|(place, key)| key.clone().alias(name(place)));
        let all = columns.chain(keys).collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(
            all,
            Arc::clone(input),
        )?)))
    }
}

fn name(place: usize) -> String {
    format!("__key_{place}")
}
