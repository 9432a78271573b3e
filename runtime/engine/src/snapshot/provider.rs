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
use millrace_state::row_table::RowTable;
use parking_lot::RwLock;

use super::Frozen;
use super::keys::keys_of;
use super::scan::SnapshotScan;
use crate::relation::Relation;

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
        let partitions: Vec<&RwLock<RowTable>> = match self.frozen.relation.as_ref() {
            Relation::Stream(_) => return Ok(None),
            Relation::Table(table) => vec![&table.rows],
            Relation::View(view) => view.contents.partitions.iter().collect(),
        };
        let schema = &self.schema;
        let Some(first) = partitions.first() else {
            return Ok(None);
        };
        let mut found = None;
        for (number, columns) in first.read().indexed_columns().into_iter().enumerate() {
            if !columns.is_empty()
                && let Some(keys) = keys_of(filters, schema, &columns)?
            {
                found = Some((number, keys));
                break;
            }
        }
        let Some((index, keys)) = found else {
            return Ok(None);
        };
        let mut batches = vec![];
        for partition in partitions {
            let table = partition.read();
            // Without its rows it has no index, nor soon after a start: a scan reads them.
            if table.is_spilled() || table.is_behind(index) {
                return Ok(None);
            }
            let matches = table
                .probe_at(index, &keys, self.frozen.version)
                .map_err(external)?;
            if !matches.rows.is_empty() {
                let rows = table.rows(&matches.rows).map_err(external)?;
                batches.push(known_columns(&rows, schema)?);
            }
        }
        // A worker that was lost meanwhile took its rows with it: those that were seen are found by a scan.
        Ok(self.frozen.is_current().then_some(batches))
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
