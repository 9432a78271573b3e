//! Every row once for each element of its lists.

use arrow::datatypes::SchemaRef;
use datafusion::common::NullHandling;

use super::description::Description;
use super::flow::{Explosion, Faucet};
use super::operator::Operator;
use super::origins::{Origin, at};
use super::words::names;

/// Every row once for each element of its lists; lists of one row are read side by side.
#[derive(Debug, Clone)]
pub struct Unnest {
    pub input: Box<Operator>,
    /// For each column of the output, in order.
    pub columns: Vec<UnnestColumn>,
    /// What becomes of a row whose lists are all NULL or empty.
    pub null_handling: NullHandling,
    pub schema: SchemaRef,
}

/// Where a column of an [`Unnest`] comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnnestColumn {
    /// The input's column, repeated.
    Kept(usize),
    /// The elements of the input's list column.
    Elements(usize),
    /// The pieces of the input's text column between delimiters, as `string_to_array` cuts it; there is no other list, and
    /// rows without elements are dropped.
    Pieces { column: usize, delimiter: String },
}

impl Description for Unnest {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        let mut lists = vec![];
        for column in &self.columns {
            match column {
                UnnestColumn::Elements(list) => lists.push(*list),
                UnnestColumn::Pieces { column, delimiter } => {
                    let text = self.input.schema().field(*column).name();
                    return format!("Unnest: pieces of {text} between '{delimiter}'");
                }
                UnnestColumn::Kept(_) => {}
            }
        }
        format!("Unnest: {}", names(self.input.schema(), &lists))
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let columns = self.columns.iter().map(|column| match column {
            UnnestColumn::Kept(column) => at(&inputs[0], *column),
            UnnestColumn::Elements(_) | UnnestColumn::Pieces { .. } => Origin::Computed,
        });
        columns.collect()
    }

    fn settles(&self) -> bool {
        false
    }

    fn takes_parts(&self) -> bool {
        true
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn multiplies(&self) -> Option<Faucet> {
        Some(Faucet::placed(Explosion::Unnest))
    }
}
