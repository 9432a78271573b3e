//! `generate_series` over constants: its rows are known when the view is planned.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::source_as_provider;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::TableScan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;

use crate::error::{PlanError, Result};

/// Rows of a series that a plan may hold.
const SERIES_ROWS_MAX: usize = 100_000;
/// Rows made at a time.
const BATCH_ROWS: usize = 8_192;

/// Constant expressions, row by row.
type FixedRows = Vec<Vec<Arc<dyn PhysicalExpr>>>;

/// The rows of the scan, if it is one of a series.
///
/// # Errors
/// There are more than a plan may hold.
pub(super) fn rows(scan: &TableScan) -> Result<Option<FixedRows>> {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return Ok(None);
    };
    let Some(series) = provider.downcast_ref::<GenerateSeriesTable>() else {
        return Ok(None);
    };
    let generator = series.as_generator(BATCH_ROWS)?;
    let mut rows: FixedRows = vec![];
    while let Some(batch) = generator.write().generate_next_batch()? {
        if rows.len() + batch.num_rows() > SERIES_ROWS_MAX {
            return Err(PlanError::not_incremental(
                format!("generate_series of more than {SERIES_ROWS_MAX} rows"),
                "insert the series into a table, and read the table",
            ));
        }
        let projection: Vec<usize> = match &scan.projection {
            Some(columns) => columns.clone(),
            None => (0..batch.num_columns()).collect(),
        };
        for row in 0..batch.num_rows() {
            let values = projection
                .iter()
                .map(|column| -> Result<Arc<dyn PhysicalExpr>> {
                    let value = ScalarValue::try_from_array(batch.column(*column), row)?;
                    Ok(Arc::new(Literal::new(value)))
                })
                .collect::<Result<Vec<_>>>()?;
            rows.push(values);
        }
    }
    Ok(Some(rows))
}
