//! Joins whose condition holds for no row make nothing for as long as they like, and so come to no suspension point: a batch of one
//! side is compared with all rows of the other. Their condition looks at each batch whether anybody still waits for the query.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use millrace_resource::cpu::is_unwanted;

/// A join whose condition ends it when nobody waits for it any more; none if it has no such condition.
///
/// # Errors
/// The join refuses its condition, which only a wrong one brings about.
pub fn looking(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(around(filter)));
        return Ok(Some(Arc::new(join.build()?)));
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>()
        && let Some(filter) = join.filter()
    {
        return join
            .builder()
            .with_filter(Some(around(filter)))
            .build_exec()
            .map(Some);
    }
    Ok(None)
}

fn around(filter: &JoinFilter) -> JoinFilter {
    let looks = Arc::new(Wanted {
        inner: Arc::clone(filter.expression()),
    });
    JoinFilter::new(
        looks,
        filter.column_indices().to_vec(),
        Arc::clone(filter.schema()),
    )
}

/// An expression that fails once nobody waits for the query any more.
#[derive(Debug, Eq)]
struct Wanted {
    inner: Arc<dyn PhysicalExpr>,
}

impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Hash for Wanted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl Display for Wanted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Wanted {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match is_unwanted() {
            true => exec_err!("the query was cancelled"),
            false => self.inner.evaluate(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(inner) => Ok(Arc::new(Wanted { inner })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
