//! Constants that stand in each row of something that is made on the way: `length(CASE WHEN k > 5 THEN '40 kB of text' ELSE s END)`,
//! `max('40 kB of text')`. They are not seen in what comes out, and nobody asks for memory for them, so rows come in steps of
//! which they make a few megabytes.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CaseExpr, Literal};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, SendableRecordBatchStream,
};
use millrace_state::width::COPIED_BYTES_MAX;

use super::steps::in_steps;
use super::wrap::{Wrap, Wrapped};

/// Rows of a usual batch: where constants leave room for as many, nothing is done.
const ROWS: usize = 8_192;

/// A node whose input comes in steps; none if its constants are small.
///
/// # Errors
/// The node refuses its new input, which only a wrong one brings about.
pub fn stepped(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_aggregate = node.is::<AggregateExec>();
    let mut bytes = 0_usize;
    node.apply_expressions(&mut |expr| {
        if is_aggregate {
            bytes = bytes.saturating_add(constant(expr));
        }
        bytes = bytes.saturating_add(in_cases(expr)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let rows = (COPIED_BYTES_MAX / bytes.max(1)).max(1);
    if rows >= ROWS || node.children().is_empty() {
        return Ok(None);
    }
    let inputs = node.children().into_iter();
    let inputs = inputs
        .map(|input| Wrapped::around(input, InSteps { rows }))
        .collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(node).replace_children(inputs, options).map(Some)
}

/// The bytes of an expression that is a constant.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> usize {
    expr.downcast_ref::<Literal>()
        .map_or(0, |literal| literal.value().size())
}

/// The bytes of the largest constant that each CASE in an expression may give, together.
fn in_cases(expr: &Arc<dyn PhysicalExpr>) -> Result<usize> {
    let mut bytes = 0_usize;
    expr.apply(|part| {
        if let Some(case) = part.downcast_ref::<CaseExpr>() {
            let branches = case.when_then_expr().iter().map(|(_, then)| then);
            let given = branches.chain(case.else_expr()).map(constant);
            bytes = bytes.saturating_add(given.max().unwrap_or(0));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(bytes)
}

struct InSteps {
    rows: usize,
}

impl Wrap for InSteps {
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        _context: &TaskContext,
    ) -> Result<SendableRecordBatchStream> {
        let rows_max = self.rows;
        let next = move |batch: &RecordBatch| Ok(batch.slice(0, rows_max.min(batch.num_rows())));
        Ok(in_steps(rows, schema, next))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion::common::tree_node::Transformed;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    async fn ran(sql: &str) -> (bool, i64) {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
        let rows = RecordBatch::try_from_iter([("k", keys)]).unwrap();
        context.register_batch("t", rows).unwrap();
        let frame = context.sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let plan = plan
            .transform_up(|node| {
                Ok(match stepped(&node)? {
                    Some(node) => Transformed::yes(node),
                    None => Transformed::no(node),
                })
            })
            .unwrap();
        let batches = collect(plan.data, context.task_ctx()).await.unwrap();
        let answer = batches[0].column(0).as_primitive::<Int64Type>().value(0);
        (plan.transformed, answer)
    }

    #[tokio::test]
    async fn rows_come_in_steps_where_a_constant_on_the_way_is_large() {
        let large = "x".repeat(50_000);
        let sum = |text: &str| {
            format!("SELECT sum(length(CASE WHEN k >= 10 THEN '{text}' ELSE CAST(k AS VARCHAR) END)) FROM t")
        };
        assert_eq!(ran(&sum(&large)).await, (true, 19_990 * 50_000 + 10));
        assert_eq!(ran(&sum("small")).await, (false, 19_990 * 5 + 10));
        let chosen = format!("SELECT count(*) FROM t WHERE CASE WHEN k < 7 THEN '{large}' END > 'a'");
        assert_eq!(ran(&chosen).await, (true, 7));
        let listed = format!("SELECT count(*) FROM t WHERE CAST(k AS VARCHAR) IN ('{large}', '5')");
        assert_eq!(ran(&listed).await, (false, 1));
    }
}
