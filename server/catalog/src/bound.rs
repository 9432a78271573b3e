//! What the names in a view's query mean.
//!
//! A view keeps, beside its text, which object each name in it was when the view was made, and how that object's columns
//! were called. So the text goes on meaning the same when objects or columns are renamed, when two views swap their names,
//! and when a table gets more columns: `SELECT *` has the columns that it had.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Column;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use millrace_storage::ObjectId;
use serde::{Deserialize, Serialize};

/// The plan of a view.
#[derive(Debug)]
pub struct BoundView {
    /// The plan and the columns.
    pub provider: Arc<dyn TableProvider>,
    /// Whether the plan stays right: what it names cannot change under it. One over the system's relations, or with functions that
    /// ask who calls them, is right for one statement alone.
    pub lasts: bool,
}

/// A name in a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundName {
    /// As the query writes it, folded: `t` or `shop.t`.
    pub name: String,
    /// What it means.
    pub object: ObjectId,
    /// The object's columns under the names by which the query knows them, each with its position.
    pub columns: Vec<(String, usize)>,
}

impl BoundName {
    /// A name that means this object as it is now.
    pub fn now(name: String, object: ObjectId, provider: &dyn TableProvider) -> Self {
        let schema = provider.schema();
        let columns = schema.fields().iter().enumerate();
        BoundName {
            name,
            object,
            columns: columns
                .map(|(position, field)| (field.name().clone(), position))
                .collect(),
        }
    }

    /// The object's provider with the columns that the query knows.
    ///
    /// # Errors
    /// The object has not so many columns any more.
    pub fn known(&self, provider: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
        let schema = provider.schema();
        let is_same = schema.fields().len() == self.columns.len()
            && self
                .columns
                .iter()
                .enumerate()
                .all(|(position, (name, at))| position == *at && schema.field(position).name() == name);
        if is_same {
            return Ok(provider);
        }
        let scan = LogicalPlanBuilder::scan(self.name.as_str(), provider_as_source(provider), None)?;
        let columns = scan.schema().columns();
        let expressions = self
            .columns
            .iter()
            .map(|(name, position)| {
                let column: &Column = columns.get(*position).ok_or_else(|| {
                    datafusion::error::DataFusionError::Plan(format!(
                        "\"{}\" has no column {}",
                        self.name,
                        position + 1
                    ))
                })?;
                Ok(Expr::Column(column.clone()).alias(name))
            })
            .collect::<Result<Vec<Expr>>>()?;
        Ok(Arc::new(ViewTable::new(
            scan.project(expressions)?.build()?,
            None,
        )))
    }
}
