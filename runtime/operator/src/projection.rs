//! Expressions over each row by itself: what a projection makes of a batch. An UNNEST may ask for it in steps.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::steps::Steps;
use millrace_state::width::{COPIED_BYTES_MAX, differs_in_size};
use millrace_storage::ChangeBatch;

use super::batches::{batch_of, filter_changes};
use super::expression::{ErrorCounter, Failed, evaluate_noting};
use crate::error::Result;

/// Rows of the first step where values may be large.
const FIRST_ROWS: usize = 64;

/// Of how many rows projections by these expressions are made at a time.
pub(crate) fn steps_of<'a>(
    expressions: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    schema: &SchemaRef,
) -> Steps {
    let mut expressions = expressions.into_iter().zip(schema.fields().iter().cycle());
    let is_made = |expression: &dyn PhysicalExpr| !expression.is::<Column>() && !expression.is::<Literal>();
    let is_wide = expressions
        .any(|(expression, field)| is_made(expression.as_ref()) && differs_in_size(field.data_type()));
    let first = if is_wide { FIRST_ROWS } else { CHUNK_ROWS };
    Steps::new(first, CHUNK_ROWS, COPIED_BYTES_MAX)
}

/// Columns that are computed from rows.
pub(crate) struct Projection {
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
}

impl Projection {
    pub fn new(expressions: &[Arc<dyn PhysicalExpr>], schema: &SchemaRef) -> Self {
        Projection {
            expressions: expressions.to_vec(),
            schema: Arc::clone(schema),
        }
    }

    /// The columns over a batch; without the rows on which an expression failed, if the view leaves those out.
    pub fn of(&self, batch: &ChangeBatch, errors: &ErrorCounter) -> Result<ChangeBatch> {
        let mut failed = Failed::default();
        let columns = (self.expressions.iter().zip(self.schema.fields()))
            .map(|(expression, field)| {
                evaluate_noting(expression, &batch.rows, field.data_type(), errors, &mut failed)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let projected = ChangeBatch {
            rows: batch_of(&self.schema, columns, batch.num_rows())?,
            weights: batch.weights.clone(),
        };
        match failed.kept(batch.num_rows(), errors) {
            Some(kept) => filter_changes(&projected, &kept),
            None => Ok(projected),
        }
    }
}
