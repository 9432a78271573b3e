//! The first rows of each partition in an order.

use std::fmt::Write;

use arrow::datatypes::SchemaRef;

use super::closing::Closing;
use super::description::{Description, Note, State};
use super::operator::Operator;
use super::origins::{Origin, Origins};
use super::readable::readable_names;
use super::words::{closes, flags, names, order, state_order};

/// The first rows of each partition in an order: ORDER BY with LIMIT, `row_number() OVER (..) <= n`, DISTINCT ON. The rows
/// behind them are kept, for when one of the first goes.
#[derive(Debug, Clone)]
pub struct TopN {
    pub input: Operator,
    /// Input columns that tell partitions apart; empty: all rows are one.
    pub partition_by: Vec<usize>,
    pub numbering: Numbering,
    /// Whether a row's number is the last column of the output.
    pub with_number: bool,
    /// Input columns to order by. Equal rows are ordered by all their columns, so that the answer is definite.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// Rows numbered up to this are left out.
    pub skip: usize,
    /// Of the numbers after `skip`, how many; `None`: all.
    pub fetch: Option<usize>,
    /// Columns of the input that reach the output; what it has beyond them is computed to order by.
    pub width: usize,
    pub input_append_only: bool,
    /// Partitions to which nothing comes any more, and from which nothing goes: they are forgotten.
    pub closes: Option<Closing>,
    pub schema: SchemaRef,
}

/// How the rows of a partition are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// Each row has a number of its own.
    RowNumber,
    /// Rows that are equal in the order share the number of the first.
    Rank,
    /// As [`Numbering::Rank`], without gaps.
    DenseRank,
}

impl Description for TopN {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn inputs(&self) -> Vec<&Operator> {
        vec![&self.input]
    }

    fn line(&self) -> String {
        let fetch = self.fetch.map_or("all".to_owned(), |fetch| fetch.to_string());
        let partitions = if self.partition_by.is_empty() {
            String::new()
        } else {
            format!(
                " of each partition by {}",
                names(self.input.schema(), &self.partition_by)
            )
        };
        let numbering = match (self.numbering, self.with_number) {
            (Numbering::RowNumber, false) => "",
            (Numbering::RowNumber, true) => ", numbered",
            (Numbering::Rank, false) => ", by rank",
            (Numbering::Rank, true) => ", by rank, numbered",
            (Numbering::DenseRank, false) => ", by dense rank",
            (Numbering::DenseRank, true) => ", by dense rank, numbered",
        };
        format!(
            "TopN: fetch {fetch}, skip {}{partitions}, order {}{numbering}{}",
            self.skip,
            order(self.input.schema(), &self.order_by),
            closes(self.closes.as_ref())
        )
    }

    fn origins(&self, inputs: &[Vec<Origin>]) -> Vec<Origin> {
        let mut origins = inputs[0].clone();
        origins.truncate(self.width);
        origins
    }

    fn state(&self, inputs: &[Origins]) -> Option<State> {
        let rows = &inputs[0];
        let numbering = match self.numbering {
            Numbering::RowNumber => "row number",
            Numbering::Rank => "rank",
            Numbering::DenseRank => "dense rank",
        };
        let mut text = format!(
            "of ({}) by {numbering} in ({}), order ({}), skip {}, width {}",
            rows.all(),
            rows.list(self.partition_by.iter().copied()),
            state_order(&self.order_by),
            self.skip,
            self.width,
        );
        if let Some(fetch) = self.fetch {
            let _ = write!(text, ", fetch {fetch}");
        }
        flags(
            &mut text,
            &[
                (self.with_number, "with number"),
                (self.input_append_only, "append-only"),
                (self.closes.is_some(), "closes"),
            ],
        );
        Some(State {
            kind: "top n",
            version: 1,
            text,
        })
    }

    fn grows(&self, inputs: &[Option<String>], note: &mut Note<'_>) -> Option<String> {
        let stream = inputs[0].clone()?;
        if self.closes.is_some() {
            return Some(stream);
        }
        // Of rows that only arrive those behind the first ones are not kept.
        let is_bounded = self.input_append_only && self.fetch.is_some();
        if self.partition_by.is_empty() {
            if !is_bounded {
                note("ORDER BY .. LIMIT".into(), "every row", &stream);
            }
            return self.fetch.is_none().then_some(stream);
        }
        let names = readable_names(self.input.schema(), self.partition_by.iter().copied());
        let keeps = if is_bounded {
            "the first rows of every partition"
        } else {
            "every row"
        };
        note(format!("first rows by ({names})"), keeps, &stream);
        Some(stream)
    }

    fn goes_by_watermarks(&self) -> bool {
        self.closes.is_some()
    }

    fn takes_parts(&self) -> bool {
        true
    }
}
