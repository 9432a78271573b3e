//! OVER windows: rows are exchanged by PARTITION BY; a partition that changed is computed again by DataFusion's operator.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, SortExpr, Window};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
    SendableRecordBatchStream,
};
use datafusion::physical_planner::create_window_expr;

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema, column};
use crate::error::{PlanError, Result};
use crate::stage::{Operator, Output, Recompute};

impl Lowering {
    pub(super) fn window(&mut self, window: &Window) -> Result<Fragment> {
        let functions = window
            .window_expr
            .iter()
            .map(window_function)
            .collect::<Result<Vec<_>>>()?;
        let Some(first) = functions.first() else {
            return Err(PlanError::Internal("a window node without functions".into()));
        };
        let fragment = self.node(&window.input)?;
        let input_append_only = fragment.append_only;
        let key = fragment.key.clone();
        let input_schema: SchemaRef = Arc::clone(&fragment.schema);
        let logical = window.input.schema();

        // The node's functions share an order; partitions are told apart by what they all partition by.
        let shared: Vec<&Expr> = first
            .params
            .partition_by
            .iter()
            .filter(|e| {
                functions
                    .iter()
                    .all(|function| function.params.partition_by.contains(e))
            })
            .collect();
        let (fragment, partition_by) = self.with_columns(fragment, logical, shared.into_iter())?;
        // Expressions to partition by are further columns, dropped again below.
        let computed = fragment.schema.fields().len() - input_schema.fields().len();
        let rows_schema = Arc::clone(&fragment.schema);
        let windows = window
            .window_expr
            .iter()
            .map(|e| create_window_expr(e, logical, &self.properties, &self.context))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let mut order: Vec<PhysicalSortExpr> = vec![];
        for e in &first.params.partition_by {
            order.push(PhysicalSortExpr {
                expr: self.expression(e, logical)?,
                options: Default::default(),
            });
        }
        for SortExpr {
            expr,
            asc,
            nulls_first,
        } in &first.params.order_by
        {
            let options = arrow::compute::SortOptions {
                descending: !asc,
                nulls_first: *nulls_first,
            };
            order.push(PhysicalSortExpr {
                expr: self.expression(expr, logical)?,
                options,
            });
        }
        // Equal rows in a definite order: what is computed again must be what was put out before.
        for index in 0..input_schema.fields().len() {
            order.push(PhysicalSortExpr {
                expr: column(&input_schema, index),
                options: Default::default(),
            });
        }
        let rows: Arc<dyn ExecutionPlan> = Arc::new(PartitionRows::new(Arc::clone(&rows_schema)));
        let sorted: Arc<dyn ExecutionPlan> = match LexOrdering::new(order) {
            Some(order) => Arc::new(SortExec::new(order, rows)),
            None => rows,
        };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(WindowAggExec::try_new(windows, sorted, false)?);
        let schema = arrow_schema(&window.schema);
        let width = input_schema.fields().len();
        let fields: Vec<_> = rows_schema
            .fields()
            .iter()
            .chain(&schema.fields()[width..])
            .cloned()
            .collect();
        let output_schema: SchemaRef = Arc::new(Schema::new(fields));
        let output = if partition_by.is_empty() {
            Output::Single
        } else {
            Output::Hash(partition_by.clone())
        };
        let placement = if partition_by.is_empty() {
            Placement::Keyed
        } else {
            Placement::Hash(partition_by.clone())
        };
        let exchanged = self.stages.exchange(fragment, output);
        let operator = Operator::Recompute(Box::new(Recompute {
            input: exchanged,
            partition_by,
            plan,
            input_append_only,
            schema: Arc::clone(&output_schema),
        }));
        let fragment = Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key,
            schema: Arc::clone(&output_schema),
        };
        if computed == 0 {
            return Ok(Fragment { schema, ..fragment });
        }
        let kept = (0..width).chain(width + computed..output_schema.fields().len());
        Ok(fragment.project(kept.map(|index| column(&output_schema, index)).collect(), schema))
    }
}

fn window_function(expression: &Expr) -> Result<&WindowFunction> {
    match expression {
        Expr::Alias(alias) => window_function(&alias.expr),
        Expr::WindowFunction(function) => Ok(function),
        other => Err(PlanError::Internal(format!("not a window function: {other}"))),
    }
}

/// The leaf of a [`Recompute`] plan: stands for the rows of one partition and is replaced by them before each run.
#[derive(Debug)]
pub struct PartitionRows {
    properties: Arc<PlanProperties>,
}

impl PartitionRows {
    pub fn new(schema: SchemaRef) -> Self {
        PartitionRows {
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
        }
    }
}

impl DisplayAs for PartitionRows {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionRows")
    }
}

impl ExecutionPlan for PartitionRows {
    fn name(&self) -> &'static str {
        "PartitionRows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> datafusion::error::Result<TreeNodeRecursion>,
    ) -> datafusion::error::Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> datafusion::error::Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> datafusion::error::Result<SendableRecordBatchStream> {
        Err(DataFusionError::Internal(
            "the rows of a partition were not put in".into(),
        ))
    }
}
