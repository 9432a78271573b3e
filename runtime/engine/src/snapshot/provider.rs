//! A relation at a version as a DataFusion table. Filters that name the values of all columns of an index become a look-up.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::Frozen;
use super::keys::keys_of;
use super::look_up::Found;
use super::scan::SnapshotScan;

pub(super) struct SnapshotTable {
    frozen: Frozen,
    /// The first columns of the relation, under the names by which they are known.
    schema: SchemaRef,
}

impl SnapshotTable {
    pub fn new(frozen: Frozen, known: &SchemaRef) -> Result<Self, crate::RuntimeError> {
        let actual = frozen.schema();
        if known.fields().len() > actual.fields().len() {
            return Err(crate::RuntimeError::Internal(format!(
                "{} columns of relation {} are asked for, it has {}",
                known.fields().len(),
                frozen.relation.id(),
                actual.fields().len()
            )));
        }
        let fields: Vec<_> = (known.fields().iter().zip(actual.fields()))
            .map(|(known, actual)| match known.name() == actual.name() {
                true => Arc::clone(actual),
                false => Arc::new(actual.as_ref().clone().with_name(known.name())),
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(SnapshotTable { frozen, schema })
    }

    /// The rows that an index finds for the filters; `None` if no index applies.
    fn look_up(&self, filters: &[Expr]) -> Result<Option<Vec<RecordBatch>>> {
        for (index, columns) in self.frozen.indexes().into_iter().enumerate() {
            if columns.is_empty() {
                continue;
            }
            let Some(keys) = keys_of(filters, &self.schema, &columns)? else {
                continue;
            };
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let Some(found) = self.frozen.found(index, &keys, &all).map_err(external)? else {
                return Ok(None);
            };
            let batches = found.into_iter().map(|Found { rows, columns }| {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            });
            return Ok(Some(batches.collect::<Result<_, _>>()?));
        }
        Ok(None)
    }
}

/// The first columns, under the names of the schema.
pub(super) fn known_columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = rows.columns()[..schema.fields().len()].to_vec();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}

fn external(error: impl Into<crate::RuntimeError>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}

impl std::fmt::Debug for SnapshotTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotTable")
            .field("version", &self.frozen.version)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for SnapshotTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        let rows = Precision::Inexact(self.frozen.rows_max());
        Some(Statistics::new_unknown(&self.schema).with_num_rows(rows))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(batches) = self.look_up(filters)? {
            return Ok(MemorySourceConfig::try_new_exec(
                &[batches],
                self.schema(),
                projection.cloned(),
            )?);
        }
        Ok(Arc::new(SnapshotScan::new(
            self.frozen.clone(),
            &self.schema,
            projection.cloned(),
            state.config().target_partitions(),
        )?))
    }
}
