//! What tests of the runtime share.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use millrace_planner::{RelationInfo, RelationTable};
use millrace_sql::CatalogReader;

/// The relations that queries may name.
#[derive(Default)]
pub struct Relations(pub BTreeMap<String, RelationInfo>);

impl CatalogReader for Relations {
    fn table(&self, name: &TableReference) -> Result<Arc<dyn TableProvider>> {
        match self.0.get(name.table()) {
            Some(info) => Ok(Arc::new(RelationTable::new(info.clone()))),
            None => Err(DataFusionError::Plan(format!("no {name}"))),
        }
    }
}
