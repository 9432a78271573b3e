//! Functions of whole partitions: OVER windows.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::window::WindowExpr;

use super::closing::Closing;
use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::readable::readable_names;
use super::words::{closes, flags, names, order, state_order};

/// A function of each partition of rows as a whole (OVER windows): computed again for the partitions that changed.
#[derive(Debug, Clone)]
pub struct Recompute {
    pub input: Operator,
    /// Input columns that tell partitions apart; empty: all rows are one.
    pub partition_by: Vec<usize>,
    /// Input columns that order a partition's rows. Equal rows are ordered by all their columns, so that what is computed
    /// again is what was emitted before.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// Each makes one column from the rows of one partition, in their order.
    pub functions: Vec<Arc<dyn WindowExpr>>,
    pub input_append_only: bool,
    /// As in [`super::top_n::TopN`].
    pub closes: Option<Closing>,
    pub schema: SchemaRef,
}

impl Description for Recompute {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        let functions: Vec<&str> = self.functions.iter().map(|function| function.name()).collect();
        format!(
            "Recompute: changed partitions of {}, order {}, functions [{}]{}",
            names(self.input.schema(), &self.partition_by),
            order(self.input.schema(), &self.order_by),
            functions.join(", "),
            closes(self.closes.as_ref())
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        inputs[0].clone()
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let rows = &inputs[0];
        let mut text = format!(
            "of ({}) in ({}), order ({}), {} functions",
            rows.all(),
            rows.list(self.partition_by.iter().copied()),
            state_order(&self.order_by),
            self.functions.len(),
        );
        flags(
            &mut text,
            &[
                (self.input_append_only, "append-only"),
                (self.closes.is_some(), "closes"),
            ],
        );
        Some(State {
            kind: "window functions",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let stream = inputs[0].clone()?;
        if self.closes.is_some() {
            return Some(stream);
        }
        let names = readable_names(self.input.schema(), self.partition_by.iter().copied());
        let over = match names.is_empty() {
            true => "OVER ()".to_owned(),
            false => format!("OVER (PARTITION BY {names})"),
        };
        note(over, "every row", &stream);
        Some(stream)
    }

    fn goes_by_watermarks(&self) -> bool {
        self.closes.is_some()
    }
}
