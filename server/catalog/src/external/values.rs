//! How many values a column of files may have: the metadata of Parquet files say between which values it lies, and nothing of how many
//! there are.

use std::sync::Arc;

use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use millrace_planner::query::values::count_values;

/// The scan, with the number of values of each column of which the least and the greatest are known.
pub(super) fn counted(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let source = plan
        .downcast_ref::<DataSourceExec>()
        .map(|scan| scan.data_source().as_ref());
    let Some(config) = source.and_then(|source| source.downcast_ref::<FileScanConfig>()) else {
        return plan;
    };
    let mut statistics = config.statistics();
    count_values(&mut statistics);
    let config = FileScanConfigBuilder::from(config.clone()).with_statistics(statistics);
    DataSourceExec::from_data_source(config.build())
}
