//! ORDER BY with LIMIT and OFFSET: Top-N on one partition.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::logical_expr::{FetchType, Limit, LogicalPlan, SkipType, SortExpr};

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema};
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::operator::Operator;
use crate::stage::top_n::{Numbering, TopN};

impl Lowering {
    pub(super) fn limit(&mut self, limit: &Limit) -> Result<Fragment> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(PlanError::not_incremental(
                "LIMIT or OFFSET that is not a constant",
                "use a number",
            ));
        };
        self.first_rows(skip, fetch, &limit.input)
    }

    fn first_rows(&mut self, skip: usize, fetch: Option<usize>, input: &LogicalPlan) -> Result<Fragment> {
        let (order, sorted): (&[SortExpr], &LogicalPlan) = match input {
            // Columns that only the order needs are dropped above the sort: the rows are the same.
            LogicalPlan::Projection(projection) => {
                let fragment = self.first_rows(skip, fetch, &projection.input)?;
                return self.project(projection, fragment);
            }
            LogicalPlan::Sort(sort) => (&sort.expr, &sort.input),
            other => (&[], other),
        };
        let fragment = self.node(sorted)?;
        let width = fragment.schema.fields().len();
        let key = fragment.key.clone();
        let input_append_only = fragment.append_only;
        let (fragment, columns) =
            self.with_columns(fragment, sorted.schema(), order.iter().map(|sort| &sort.expr))?;
        let order_by = sort_columns(columns, order);
        let schema = arrow_schema(input.schema());
        let exchanged = self.stages.exchange(fragment, Output::Single);
        let operator = Operator::TopN(Box::new(TopN {
            input: exchanged,
            partition_by: vec![],
            numbering: Numbering::RowNumber,
            with_number: false,
            order_by,
            skip,
            fetch,
            width,
            input_append_only,
            closes: None,
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Keyed,
            }],
            append_only: false,
            key,
            watermarks: vec![],
            schema,
        })
    }
}

/// Columns to order by, with their directions.
pub(super) fn sort_columns(columns: Vec<usize>, order: &[SortExpr]) -> Vec<(usize, SortOptions)> {
    let options = |sort: &SortExpr| SortOptions {
        descending: !sort.asc,
        nulls_first: sort.nulls_first,
    };
    columns.into_iter().zip(order.iter().map(options)).collect()
}
