//! Which rows are final.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::watermark::{Bound, ColumnWatermark};

/// Which rows are final: those of which a value is below a bound. Nothing that is still to come has such a value.
#[derive(Debug, Clone)]
pub struct Closing {
    /// Over the columns of an operator's input.
    pub value: Arc<dyn PhysicalExpr>,
    pub bound: Bound,
}

impl Closing {
    /// By the first column of a simple type that has a bound.
    pub fn by_first<'a>(
        watermarks: impl IntoIterator<Item = &'a ColumnWatermark>,
        schema: &SchemaRef,
    ) -> Option<Closing> {
        let is_simple = |known: &&ColumnWatermark| !schema.field(known.column).data_type().is_nested();
        let known = watermarks.into_iter().find(is_simple)?;
        let name = schema.field(known.column).name();
        Some(Closing {
            value: Arc::new(Column::new(name, known.column)),
            bound: known.bound.clone(),
        })
    }
}
