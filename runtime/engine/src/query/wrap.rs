//! Nodes that change how rows come to an operator of DataFusion, or go from it, and neither what they are nor how they are divided.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

/// What a [`Wrapped`] node does with the rows of a partition.
pub trait Wrap: Send + Sync + 'static {
    /// The context in which what is below is executed.
    fn context(&self, context: Arc<TaskContext>) -> Arc<TaskContext> {
        context
    }

    /// The rows of a partition, as the schema of the node says.
    fn wrap(
        &self,
        rows: SendableRecordBatchStream,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<SendableRecordBatchStream>;
}

/// See the module. It is made where a plan is cut, so that its state is that of one run.
pub struct Wrapped {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    by: Arc<dyn Wrap>,
}

impl Wrapped {
    /// A node that says of itself what its input does.
    pub fn around(input: &Arc<dyn ExecutionPlan>, by: impl Wrap) -> Arc<dyn ExecutionPlan> {
        Self::with_properties(Arc::clone(input), Arc::clone(input.properties()), by)
    }

    /// One with columns of other types.
    pub fn with_properties(
        input: Arc<dyn ExecutionPlan>,
        properties: Arc<PlanProperties>,
        by: impl Wrap,
    ) -> Arc<dyn ExecutionPlan> {
        Arc::new(Wrapped {
            input,
            properties,
            by: Arc::new(by),
        })
    }
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped")
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for Wrapped {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wrapped")
    }
}

impl ExecutionPlan for Wrapped {
    fn name(&self) -> &'static str {
        "Wrapped"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Wrapped {
            input: children.swap_remove(0),
            properties: Arc::clone(&self.properties),
            by: Arc::clone(&self.by),
        }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let context = self.by.context(context);
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        self.by.wrap(rows, self.schema(), &context)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        None
    }
}
