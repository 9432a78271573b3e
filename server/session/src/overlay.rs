//! A table as a transaction sees it: what is committed, and the transaction's own changes over it.
//!
//! Filters go on to what is committed, so that a key is looked up there as in any other statement.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, Statistics, internal_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, ChildrenPropertiesMode, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{StreamExt, stream};
use millrace_database::database::definitions::Widening;
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal::df;

use crate::own_changes::Net;

/// `base` with these changes; `base` itself when there are none.
pub fn provider(base: Arc<dyn TableProvider>, changes: &Arc<Net>) -> Arc<dyn TableProvider> {
    if changes.is_empty() {
        return base;
    }
    Arc::new(Overlay {
        base,
        changes: Arc::clone(changes),
    })
}

struct Overlay {
    base: Arc<dyn TableProvider>,
    changes: Arc<Net>,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Overlay {
    fn schema(&self) -> SchemaRef {
        self.base.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let own = Precision::Inexact(self.changes.rows());
        let base = self.base.statistics()?;
        let rows = base.num_rows.add(&own);
        Some(Statistics::new_unknown(&self.schema()).with_num_rows(rows))
    }

    /// The transaction's own rows are not filtered here.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let of_base = self.base.supports_filters_pushdown(filters)?.into_iter();
        let inexact = of_base.map(|support| match support {
            TableProviderFilterPushDown::Exact => TableProviderFilterPushDown::Inexact,
            other => other,
        });
        Ok(inexact.collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let removed = self.changes.removed();
        // Rows that are gone are known by all of their columns.
        let of_base = projection.filter(|_| removed.is_empty());
        let mut base = self.base.scan(state, of_base, filters, None).await?;
        if !removed.is_empty() && base.output_partitioning().partition_count() > 1 {
            base = Arc::new(CoalescePartitionsExec::new(base));
        }
        let projection = projection
            .cloned()
            .unwrap_or_else(|| (0..schema.fields().len()).collect());
        let shown = Arc::new(schema.project(&projection)?);
        // A column may have been renamed since the rows were made.
        let own = self.changes.added()?.into_iter().map(|rows| {
            let columns = projection.iter().map(|column| Arc::clone(rows.column(*column)));
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            RecordBatch::try_new_with_options(Arc::clone(&shown), columns.collect(), &options)
        });
        let own = own.collect::<std::result::Result<Vec<_>, _>>()?;
        if own.is_empty() && removed.is_empty() {
            return Ok(base);
        }
        Ok(Arc::new(OverlayExec::new(
            base,
            OwnRows {
                own,
                gone: match removed.is_empty() {
                    true => None,
                    false => Some(Gone {
                        changes: Arc::clone(&self.changes),
                        projection,
                    }),
                },
                schema: shown,
            },
        )))
    }
}

/// What a transaction's changes make of the rows of a scan.
#[derive(Clone)]
struct OwnRows {
    /// Rows that come behind those of the scan.
    own: Vec<RecordBatch>,
    gone: Option<Gone>,
    schema: SchemaRef,
}

/// Rows of the scan that are not there any more.
#[derive(Clone)]
struct Gone {
    changes: Arc<Net>,
    /// What is shown of the others.
    projection: Vec<usize>,
}

impl Gone {
    /// The rows that are still there. Each removal takes away one of equal rows: `seen` counts them.
    fn without(&self, rows: &RecordBatch, seen: &mut HashMap<Box<[u8]>, i64>) -> Result<RecordBatch> {
        let removed = self.changes.removed();
        let stays: BooleanArray = self
            .changes
            .keys_of(rows)?
            .into_iter()
            .map(|key| match removed.get(&key) {
                None => Some(true),
                Some(removed) => {
                    let seen = seen.entry(key).or_default();
                    *seen += 1;
                    Some(*seen > removed.count)
                }
            })
            .collect();
        let rows = match stays.true_count() == rows.num_rows() {
            true => rows.clone(),
            false => filter_record_batch(rows, &stays)?,
        };
        Ok(rows.project(&self.projection)?)
    }
}

/// A scan with a transaction's changes.
struct OverlayExec {
    base: Arc<dyn ExecutionPlan>,
    rows: OwnRows,
    properties: Arc<PlanProperties>,
}

impl OverlayExec {
    fn new(base: Arc<dyn ExecutionPlan>, rows: OwnRows) -> OverlayExec {
        let partitions = base.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&rows.schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        OverlayExec {
            base,
            rows,
            properties: Arc::new(properties),
        }
    }
}

impl fmt::Debug for OverlayExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayExec").finish_non_exhaustive()
    }
}

impl DisplayAs for OverlayExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnChanges")
    }
}

impl ExecutionPlan for OverlayExec {
    fn name(&self) -> &'static str {
        "OwnChanges"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.base]
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
        match children.pop() {
            Some(base) => Ok(Arc::new(OverlayExec::new(base, self.rows.clone()))),
            None => internal_err!("a transaction's changes are over a scan"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let base = self.base.execute(partition, context)?;
        let is_last = partition + 1 == self.properties.output_partitioning().partition_count();
        let own = match is_last {
            true => self.rows.own.clone(),
            false => vec![],
        };
        let (gone, mut seen) = (self.rows.gone.clone(), HashMap::new());
        let base = base.map(move |rows| match &gone {
            None => rows,
            Some(gone) => gone.without(&rows?, &mut seen),
        });
        let all = base.chain(stream::iter(own.into_iter().map(Ok)));
        let schema = Arc::clone(&self.rows.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, all)))
    }
}

/// A table that the transaction has made, before its own rows.
///
/// # Errors
/// None, in effect: there are no rows that could have another schema.
pub fn nothing(schema: &SchemaRef) -> SqlResult<Arc<dyn TableProvider>> {
    Ok(Arc::new(df(MemTable::try_new(Arc::clone(schema), vec![vec![]]))?))
}

/// `base`, which has the columns of before, with those that the transaction has added.
///
/// # Errors
/// The columns do not fit.
pub fn widened(
    base: Arc<dyn TableProvider>,
    widening: &Widening,
    schema: &SchemaRef,
) -> SqlResult<Arc<dyn TableProvider>> {
    let known = widening.before.fields().len();
    let mut columns: Vec<Expr> = vec![];
    for (index, field) in schema.fields().iter().enumerate() {
        let column = match index
            .checked_sub(known)
            .and_then(|added| widening.values.get(added))
        {
            Some(value) => Expr::Literal(df(value.cast_to(field.data_type()))?, None),
            None => Expr::Column(Column::new_unqualified(widening.before.field(index).name())),
        };
        columns.push(
            column.alias_with_metadata(field.name(), Some(FieldMetadata::from(field.metadata().clone()))),
        );
    }
    let plan = df(LogicalPlanBuilder::scan("base", provider_as_source(base), None)
        .and_then(|plan| plan.project(columns))
        .and_then(LogicalPlanBuilder::build))?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
