//! `row_number() OVER (PARTITION BY a ORDER BY b) <= n`, and likewise rank and dense_rank: the first rows of each partition.
//!
//! A window that is filtered by its own number need not number the rows behind the last wanted one, so it is a Top-N with
//! partitions: a change costs the logarithm of the partition and what it moves among the first rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Operator as Comparison, Projection, Window};

use super::fragment::{Fragment, Part, Placement};
use super::limit::sort_columns;
use super::lower::{Lowering, arrow_schema};
use crate::error::Result;
use crate::stage::Output;
use crate::stage::closing::Closing;
use crate::stage::operator::Operator;
use crate::stage::top_n::{Numbering, TopN};
use crate::watermark::ColumnWatermark;

/// The numbers that a filter lets through.
struct Bounds {
    skip: usize,
    last: usize,
    /// What else it asks for.
    rest: Vec<Expr>,
}

impl Lowering {
    /// The filter (and the projection above it) as a Top-N, if it bounds the number of a ranking window.
    pub(super) fn ranked(
        &mut self,
        filter: &Filter,
        projection: Option<&Projection>,
    ) -> Result<Option<Fragment>> {
        let Some((columns, window)) = over_window(&filter.input)? else {
            return Ok(None);
        };
        let [expression] = window.window_expr.as_slice() else {
            return Ok(None);
        };
        let Some((function, numbering)) = ranking(expression) else {
            return Ok(None);
        };
        let width = window.input.schema().fields().len();
        let number = Column::from(window.schema.qualified_field(width));
        let filtered = filter.input.schema();
        let predicate = substitute(&filter.predicate, filtered, &columns)?;
        let Some(bounds) = bounds(&predicate, &number) else {
            return Ok(None);
        };
        let (outputs, output_schema) = match projection {
            Some(projection) => {
                let outputs = projection
                    .expr
                    .iter()
                    .map(|expression| substitute(expression, filtered, &columns))
                    .collect::<Result<Vec<_>>>()?;
                (outputs, &projection.schema)
            }
            None => (columns, filtered),
        };
        let names_number = |expression: &Expr| expression.column_refs().contains(&number);
        let with_number = bounds.rest.iter().chain(&outputs).any(names_number);
        let mut fragment = self.top_rows(window, function, numbering, &bounds, with_number)?;
        let schema = if with_number {
            &window.schema
        } else {
            window.input.schema()
        };
        if let Some(predicate) = conjunction(bounds.rest) {
            let predicate = self.in_turn(&predicate, schema)?;
            fragment = fragment.filter(&predicate);
        }
        let outputs = outputs
            .iter()
            .map(|expression| self.expression(expression, schema))
            .collect::<Result<Vec<_>>>()?;
        Ok(Some(fragment.project(outputs, arrow_schema(output_schema))))
    }

    fn top_rows(
        &mut self,
        window: &Window,
        function: &WindowFunction,
        numbering: Numbering,
        bounds: &Bounds,
        with_number: bool,
    ) -> Result<Fragment> {
        let fragment = self.node(&window.input)?;
        let width = fragment.schema.fields().len();
        let (key, input_append_only) = (fragment.key.clone(), fragment.append_only);
        let logical = window.input.schema();
        let partitions = function.params.partition_by.len();
        let wanted = function
            .params
            .partition_by
            .iter()
            .chain(function.params.order_by.iter().map(|sort| &sort.expr));
        let (fragment, mut partition_by) = self.with_columns(fragment, logical, wanted)?;
        let order_by = sort_columns(partition_by.split_off(partitions), &function.params.order_by);
        let mut fields = fragment.schema.fields()[..width].to_vec();
        if with_number {
            fields.push(Arc::clone(&window.schema.fields()[width]));
        }
        let schema = Arc::new(Schema::new(fields));
        let (output, placement) = if partition_by.is_empty() {
            (Output::Single, Placement::Keyed)
        } else if partition_by.iter().all(|column| *column < width) {
            (
                Output::Hash(partition_by.clone()),
                Placement::Hash(partition_by.clone()),
            )
        } else {
            (Output::Hash(partition_by.clone()), Placement::Keyed)
        };
        let watermarks: Vec<ColumnWatermark> = fragment
            .watermarks
            .iter()
            .filter(|known| partition_by.contains(&known.column))
            .cloned()
            .collect();
        let closes = Closing::by_first(&watermarks, &fragment.schema);
        let exchanged = self.stages.exchange(fragment, output);
        let operator = Operator::TopN(Box::new(TopN {
            input: exchanged,
            partition_by,
            numbering,
            with_number,
            order_by,
            skip: bounds.skip,
            fetch: Some(bounds.last.saturating_sub(bounds.skip)),
            width,
            input_append_only,
            closes,
            schema: Arc::clone(&schema),
        }));
        Ok(Fragment {
            parts: vec![Part { operator, placement }],
            append_only: false,
            key,
            watermarks: watermarks
                .into_iter()
                .filter(|known| known.column < width)
                .collect(),
            schema,
        })
    }
}

/// The window below projections, and the plan's columns as expressions over it.
pub(super) fn over_window(plan: &LogicalPlan) -> Result<Option<(Vec<Expr>, &Window)>> {
    match plan {
        LogicalPlan::Window(window) => {
            let columns = window.schema.columns().into_iter().map(Expr::Column);
            Ok(Some((columns.collect(), window)))
        }
        LogicalPlan::SubqueryAlias(alias) => over_window(&alias.input),
        LogicalPlan::Projection(projection) => {
            let Some((columns, window)) = over_window(&projection.input)? else {
                return Ok(None);
            };
            let columns = projection
                .expr
                .iter()
                .map(|expression| substitute(expression, projection.input.schema(), &columns))
                .collect::<Result<Vec<_>>>()?;
            Ok(Some((columns, window)))
        }
        _ => Ok(None),
    }
}

/// The expression with what the columns of `schema` stand for in their place.
fn substitute(expression: &Expr, schema: &DFSchema, columns: &[Expr]) -> Result<Expr> {
    let substituted = expression.clone().transform(|inner| {
        Ok(match &inner {
            Expr::Column(column) => Transformed::yes(columns[schema.index_of_column(column)?].clone()),
            _ => Transformed::no(inner),
        })
    })?;
    Ok(substituted.data.unalias())
}

fn ranking(expression: &Expr) -> Option<(&WindowFunction, Numbering)> {
    match expression {
        Expr::Alias(alias) => ranking(&alias.expr),
        Expr::WindowFunction(function) => {
            let numbering = match function.fun.name() {
                "row_number" => Numbering::RowNumber,
                "rank" => Numbering::Rank,
                "dense_rank" => Numbering::DenseRank,
                _ => return None,
            };
            Some((function, numbering))
        }
        _ => None,
    }
}

/// The bounds that the predicate sets to the number; `None` without an upper one.
fn bounds(predicate: &Expr, number: &Column) -> Option<Bounds> {
    let (mut skip, mut last, mut rest) = (0_usize, None::<usize>, vec![]);
    let mut at_most = |bound: usize| last = Some(last.map_or(bound, |last: usize| last.min(bound)));
    for condition in split_conjunction(predicate) {
        match compared(condition, number) {
            Some((Comparison::LtEq, bound)) => at_most(bound),
            Some((Comparison::Lt, bound)) => at_most(bound.saturating_sub(1)),
            Some((Comparison::Gt, bound)) => skip = skip.max(bound),
            Some((Comparison::GtEq, bound)) => skip = skip.max(bound.saturating_sub(1)),
            Some((Comparison::Eq, bound)) => {
                at_most(bound);
                skip = skip.max(bound.saturating_sub(1));
            }
            _ => rest.push(condition.clone()),
        }
    }
    Some(Bounds {
        skip,
        last: last?,
        rest,
    })
}

/// A comparison of the number with a constant.
fn compared(condition: &Expr, number: &Column) -> Option<(Comparison, usize)> {
    let Expr::BinaryExpr(binary) = condition else {
        return None;
    };
    let is_number = |e: &Expr| match e {
        Expr::Column(column) => column == number,
        Expr::Cast(cast) => {
            cast.field.data_type().is_integer()
                && matches!(cast.expr.as_ref(), Expr::Column(column) if column == number)
        }
        _ => false,
    };
    match (binary.left.as_ref(), binary.right.as_ref()) {
        (left, Expr::Literal(value, _)) if is_number(left) => Some((binary.op, constant(value)?)),
        (Expr::Literal(value, _), right) if is_number(right) => Some((binary.op.swap()?, constant(value)?)),
        _ => None,
    }
}

/// A whole number. No row has one below 1, so a negative bound says what 0 says.
fn constant(value: &ScalarValue) -> Option<usize> {
    if value.is_null() || !value.data_type().is_integer() {
        return None;
    }
    match value.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(Some(value)) => Some(usize::try_from(value.max(0)).unwrap_or(0)),
        _ => None,
    }
}
