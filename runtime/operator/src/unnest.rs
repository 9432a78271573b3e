//! UNNEST in views: a row once for each element of its lists, with its weight. Rows come out step by step, however long the lists
//! are, and where the lists are computed that is done step by step, too.

mod expansion;
mod lists;

use arrow::datatypes::SchemaRef;
use datafusion::common::NullHandling;
use futures::FutureExt;
use futures::future::BoxFuture;
use millrace_planner::stage::unnest::UnnestColumn;
use millrace_resource::gate::Gate;
use millrace_schedule::cpu::CHUNK_ROWS;
use millrace_state::steps::Steps;
use millrace_storage::ChangeBatch;

use super::batches::chunks;
use super::expression::ErrorCounter;
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::{Output, Stepping};
use crate::error::Result;
pub use expansion::Expansion;

/// Bytes of lists that are made at a time, unless those of one row are more.
const LIST_BYTES_STEP: usize = 4 << 20;

/// Rows that are emitted in one batch.
const OUTPUT_ROWS_STEP: usize = 65_536;

/// Of how many rows lists are computed at a time.
pub fn list_steps() -> Steps {
    Steps::new(1, CHUNK_ROWS, LIST_BYTES_STEP)
}

/// See the module.
pub(super) struct UnnestInstance {
    pub columns: Vec<UnnestColumn>,
    pub null_handling: NullHandling,
    pub schema: SchemaRef,
}

impl Operator for UnnestInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let mut unnesting = Unnesting {
                columns: &self.columns,
                null_handling: self.null_handling,
                schema: &self.schema,
                gate,
                output,
            };
            let is_element = |column: &UnnestColumn| matches!(column, UnnestColumn::Elements(_));
            let input = &mut inputs[0];
            if self.columns.iter().any(is_element)
                && let Some((projection, projected)) = input.projection()
            {
                // It may make the lists: of so few rows at a time that these fit.
                let mut listing = Stepping {
                    apply: |rows: &ChangeBatch, made: &mut Vec<ChangeBatch>, errors: &ErrorCounter| {
                        made.push(projection.of(rows, errors)?);
                        Ok(())
                    },
                    steps: &mut list_steps(),
                    gate,
                    errors,
                    output: &mut unnesting,
                };
                return projected.run(epoch, gate, errors, &mut listing).await;
            }
            input.run(epoch, gate, errors, &mut unnesting).await
        }
        .boxed()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Multiplied
    }
}

/// Unnests each batch in steps, and is suspended after each until there is space for the next (Faucet, section 4).
struct Unnesting<'a> {
    columns: &'a [UnnestColumn],
    null_handling: NullHandling,
    schema: &'a SchemaRef,
    gate: &'a dyn Gate,
    output: &'a mut dyn Output,
}

impl Output for Unnesting<'_> {
    fn push(&mut self, batch: ChangeBatch) -> BoxFuture<'_, Result<()>> {
        async move {
            for chunk in chunks(&batch) {
                let mut expansion = Expansion::of(chunk, self.columns, self.null_handling)?;
                while let Some(rows) = expansion.next(self.columns, self.schema, OUTPUT_ROWS_STEP)? {
                    if rows.num_rows() > 0 {
                        self.output.push(rows).await?;
                    }
                    self.gate.checkpoint().await;
                }
            }
            Ok(())
        }
        .boxed()
    }
}
