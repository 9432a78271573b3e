//! Fixed rows, inserted once, in the first epoch that the view sees.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;

use super::batches::batch_of;
use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Operator, OperatorInstance};
use super::output::Output;
use crate::error::{OperatorError, Result};

/// The rows, as expressions over nothing.
pub(super) struct ValuesInstance {
    pub rows: Vec<Vec<Arc<dyn PhysicalExpr>>>,
    pub schema: SchemaRef,
}

impl Operator for ValuesInstance {
    fn run<'a>(
        &'a mut self,
        _inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        _gate: &'a dyn Gate,
        _errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            if epoch.first {
                output.push(fixed_rows(&self.rows, &self.schema)?).await?;
            }
            Ok(())
        }
        .boxed()
    }
}

fn fixed_rows(rows: &[Vec<Arc<dyn PhysicalExpr>>], schema: &SchemaRef) -> Result<ChangeBatch> {
    let one_row = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(1)),
    )?;
    let mut columns = vec![];
    for (position, field) in schema.fields().iter().enumerate() {
        let values = rows
            .iter()
            .map(|row| {
                let value = row[position].evaluate(&one_row)?.into_array(1)?;
                arrow::compute::cast(&value, field.data_type()).map_err(OperatorError::from)
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let values: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
        columns.push(if values.is_empty() {
            arrow::array::new_empty_array(field.data_type())
        } else {
            arrow::compute::concat(&values)?
        });
    }
    Ok(ChangeBatch::insertions(batch_of(schema, columns, rows.len())?))
}
