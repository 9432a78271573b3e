//! Aggregates over overlapping windows: HOP by panes.
//!
//! ```text
//!  Aggregate (k, window_start, window_end)                 Sliding (k), panes put together to windows
//!    PartialAggregate (k, window_start, window_end)          hash(k)
//!      Unnest: each row once a window              ==>         PartialAggregate (k, pane)
//!        Project: $hop(ts, slide, size, offset)                  Project: $window(ts, pane)    each row once
//! ```
//! A pane is as long as the greatest common divisor of slide and size, so that every window consists of whole panes, and
//! windows that overlap share them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullHandling, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::physical_expr::expressions::{Column, IsNotNullExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, column};
use crate::error::Result;
use crate::stage::Output;
use crate::stage::aggregation::{AggregateCall, AggregateForm, Aggregation, ExchangeForm};
use crate::stage::filter::Filter;
use crate::stage::operator::Operator;
use crate::stage::partial_aggregate::PartialAggregate;
use crate::stage::partial_state::partial_schema;
use crate::stage::project::Project;
use crate::stage::sliding::{Sliding, SlidingForm, WindowColumn};
use crate::stage::unnest::{Unnest, UnnestColumn};
use crate::watermark::ColumnWatermark;
use millrace_sql::streaming::windows::functions::function as window_function;

/// What tells of the windows of a HOP.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hop {
    slide: i64,
    size: i64,
    offset: i64,
    windows: Vec<WindowColumn>,
}

impl Lowering {
    /// The aggregation by panes, if the input's rows are those of overlapping windows and all calls can be put together from
    /// panes. `input` has the group columns first. `once`: rows are emitted when they are final, so much later than that.
    pub(super) fn sliding(
        &mut self,
        input: &Fragment,
        group_columns: usize,
        calls: &[AggregateCall],
        schema: &SchemaRef,
        once: Option<i64>,
    ) -> Result<Option<Fragment>> {
        if !self.options.slides || input.reads_working_table() || !calls.iter().all(is_of_panes) {
            return Ok(None);
        }
        let mut hop: Option<Hop> = None;
        let mut parts = vec![];
        for part in &input.parts {
            let Some((found, operator)) = by_panes(&part.operator, group_columns)? else {
                return Ok(None);
            };
            if hop.as_ref().is_some_and(|hop| *hop != found) {
                return Ok(None);
            }
            hop = Some(found);
            parts.push(operator);
        }
        let Some(hop) = hop else { return Ok(None) };
        // A pane knows no window: what is computed over its ends is not put together from panes.
        let is_window = |column: usize| hop.windows.iter().any(|window| window.column == column);
        let reads_window = |call: &AggregateCall| {
            let columns = (call.arguments.iter().copied()).chain(call.filter);
            let mut columns = columns.chain(call.order_by.iter().map(|(column, _)| *column));
            columns.any(is_window)
        };
        if calls.iter().any(reads_window) {
            return Ok(None);
        }
        let keys: Vec<usize> = (0..group_columns)
            .filter(|group| !hop.windows.iter().any(|window| window.column == *group))
            .collect();
        let watermarks: Vec<ColumnWatermark> = input
            .watermarks
            .iter()
            .filter(|known| known.column < group_columns)
            .cloned()
            .collect();
        let closes = hop.windows.iter().find_map(|window| {
            let known = watermarks.iter().find(|known| known.column == window.column)?;
            Some((*window, known.bound.clone()))
        });
        let closes = closes.map(|(window, bound)| (window.shift, bound.delayed(once.unwrap_or_default())));
        if once.is_some() && closes.is_none() {
            return Ok(None);
        }
        let exchange = match calls.iter().all(|call| call.form.merges()) {
            true => ExchangeForm::Partial,
            false => ExchangeForm::Rows,
        };
        let pane_schema = match exchange {
            ExchangeForm::Partial => partial_schema(&input.schema, group_columns, calls),
            ExchangeForm::Rows => Arc::clone(&input.schema),
        };
        let half = |operator: Operator, schema: &SchemaRef| Aggregation {
            input: operator,
            group_columns,
            calls: calls.to_vec(),
            exchange,
            input_append_only: input.append_only,
            closes: None,
            timer: None,
            schema: Arc::clone(schema),
        };
        let partial = Fragment {
            parts: parts
                .into_iter()
                .map(|operator| Part {
                    operator: Operator::PartialAggregate(Box::new(PartialAggregate(half(
                        operator,
                        &pane_schema,
                    )))),
                    placement: Placement::Arrival,
                })
                .collect(),
            append_only: input.append_only,
            key: None,
            watermarks: vec![],
            schema: Arc::clone(&pane_schema),
        };
        let (output, placement) = match keys.is_empty() {
            true => (Output::Single, Placement::Keyed),
            false => (Output::Hash(keys.clone()), Placement::Hash(keys)),
        };
        let exchanged = self.stages.exchange(partial, output);
        let subtracts = calls.iter().all(|call| subtracts(call, once.is_some()));
        let operator = Operator::Sliding(Box::new(Sliding {
            aggregation: half(exchanged, schema),
            windows: hop.windows,
            slide: hop.slide,
            size: hop.size,
            offset: hop.offset,
            pane: common_divisor(hop.slide, hop.size),
            form: if subtracts {
                SlidingForm::Subtract
            } else {
                SlidingForm::Merge
            },
            closes,
            once: once.is_some(),
        }));
        let delay = once.unwrap_or_default();
        let delayed = |known: ColumnWatermark| ColumnWatermark {
            bound: known.bound.delayed(delay),
            ..known
        };
        Ok(Some(Fragment {
            parts: vec![Part { operator, placement }],
            append_only: once.is_some(),
            key: Some((0..group_columns).collect()),
            watermarks: watermarks.into_iter().map(delayed).collect(),
            schema: Arc::clone(schema),
        }))
    }
}

/// Whether the value over a window can be told from those of its panes.
fn is_of_panes(call: &AggregateCall) -> bool {
    let is_of_panes = match call.form {
        AggregateForm::Values => merges_small_states(call),
        AggregateForm::Reducer { .. } => false,
        _ => true,
    };
    is_of_panes && !call.distinct
}

/// Whether DataFusion's accumulators have states that are small beside the values, and merge to what the values would give: as
/// exactly, or, of sketches, as nearly.
fn merges_small_states(call: &AggregateCall) -> bool {
    match call.function.fun().name() {
        "approx_median" | "approx_percentile_cont" | "approx_percentile_cont_with_weight" => true,
        "bit_and" | "bit_or" | "bit_xor" => true,
        // Where it is exact. A sketch of its own for each pane is made only over rows that do not go.
        "approx_distinct" => !call.function.groups_accumulator_supported(),
        _ => false,
    }
}

/// Whether a pane can be taken away from a window again. Floating-point sums come out in other bits by another way, which
/// only does not matter where a window's value is emitted once and never taken back.
fn subtracts(call: &AggregateCall, once: bool) -> bool {
    let is_float = || {
        let argument = call.arguments.first();
        argument.is_some_and(|argument| call.input_schema.field(*argument).data_type() == &DataType::Float64)
    };
    match call.form {
        AggregateForm::Count | AggregateForm::BoolAnd | AggregateForm::BoolOr => true,
        AggregateForm::Sum | AggregateForm::Average => once || !is_float(),
        AggregateForm::Variance { .. } | AggregateForm::StandardDeviation { .. } => once,
        _ => false,
    }
}

fn common_divisor(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        _ => common_divisor(b, a % b),
    }
}

/// The operator with each row once, with the start of its pane for each column that tells of a window.
fn by_panes(operator: &Operator, group_columns: usize) -> Result<Option<(Hop, Operator)>> {
    let Operator::Project(Project {
        input,
        expressions,
        schema,
    }) = operator
    else {
        return Ok(None);
    };
    // The projections above the windows, as one.
    let mut expressions = expressions.clone();
    let mut below: &Operator = input;
    while let Operator::Project(Project {
        input,
        expressions: inner,
        ..
    }) = below
    {
        expressions = expressions
            .iter()
            .map(|outer| over(outer, inner))
            .collect::<DataFusionResult<_>>()?;
        below = input;
    }
    let Operator::Unnest(Unnest {
        input,
        columns,
        null_handling: NullHandling::Drop,
        ..
    }) = below
    else {
        return Ok(None);
    };
    let mut lists = columns
        .iter()
        .enumerate()
        .filter_map(|(position, column)| match column {
            UnnestColumn::Elements(list) => Some((position, *list)),
            UnnestColumn::Kept(_) | UnnestColumn::Pieces { .. } => None,
        });
    let (Some((window, list)), None) = (lists.next(), lists.next()) else {
        return Ok(None);
    };
    let (inner, source): (Vec<_>, &Operator) = match input.as_ref() {
        Operator::Project(Project {
            input, expressions, ..
        }) => (expressions.clone(), input),
        _ => return Ok(None),
    };
    let Some((call, [slide, size, offset])) = lengths::<3>(&inner[list], "$hop") else {
        return Ok(None);
    };
    let mut windows = vec![];
    for (position, expression) in expressions.iter().enumerate() {
        if !collect_columns(expression)
            .iter()
            .any(|column| column.index() == window)
        {
            continue;
        }
        let Some(shift) = shift_of(expression, window).filter(|_| position < group_columns) else {
            return Ok(None);
        };
        windows.push(WindowColumn {
            column: position,
            shift,
        });
    }
    if windows.is_empty() {
        return Ok(None);
    }
    let start = pane_start(call, common_divisor(slide, size), offset, source.schema())?;
    let mut projected = vec![];
    for (position, expression) in expressions.iter().enumerate() {
        if windows.iter().any(|window| window.column == position) {
            projected.push(Arc::clone(&start));
            continue;
        }
        let kept: Vec<Option<usize>> = columns
            .iter()
            .map(|column| match column {
                UnnestColumn::Kept(kept) => Some(*kept),
                UnnestColumn::Elements(_) | UnnestColumn::Pieces { .. } => None,
            })
            .collect();
        let expression = Arc::clone(expression).transform_up(|node| {
            let column = node.downcast_ref::<Column>().map(Column::index);
            Ok(match column.and_then(|column| kept[column]) {
                Some(kept) => Transformed::yes(Arc::clone(&inner[kept])),
                None => Transformed::no(node),
            })
        })?;
        projected.push(expression.data);
    }
    let first = windows[0].column;
    let projected = Operator::Project(Project {
        input: Box::new(source.clone()),
        expressions: projected,
        schema: Arc::clone(schema),
    });
    // A row without a time is in no window.
    let filtered = Operator::Filter(Filter {
        predicate: Arc::new(IsNotNullExpr::new(column(schema, first))),
        input: Box::new(projected),
        schema: Arc::clone(schema),
    });
    let hop = Hop {
        slide,
        size,
        offset,
        windows,
    };
    Ok(Some((hop, filtered)))
}

/// An expression over what a projection emits, as one over what it reads.
fn over(
    outer: &Arc<dyn PhysicalExpr>,
    inner: &[Arc<dyn PhysicalExpr>],
) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
    // Not into what is put in, whose columns are others already.
    let replaced = Arc::clone(outer).transform_up(|node| {
        Ok(match node.downcast_ref::<Column>() {
            Some(column) => Transformed::yes(Arc::clone(&inner[column.index()])),
            None => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}

/// By how much a column tells a time later than a window's start, if it is a column of windows.
fn shift_of(expression: &Arc<dyn PhysicalExpr>, window: usize) -> Option<i64> {
    let is_start =
        |e: &Arc<dyn PhysicalExpr>| e.downcast_ref::<Column>().is_some_and(|c| c.index() == window);
    if is_start(expression) {
        return Some(0);
    }
    let (call, [shift]) = lengths::<1>(expression, "$shift")?;
    is_start(call.args().first()?).then_some(shift)
}

/// A call of one of the functions of windows, with its lengths in microseconds.
fn lengths<'a, const N: usize>(
    expression: &'a Arc<dyn PhysicalExpr>,
    name: &str,
) -> Option<(&'a ScalarFunctionExpr, [i64; N])> {
    let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
    if call.fun().name() != name {
        return None;
    }
    let lengths =
        call.args()
            .get(1..)?
            .iter()
            .map(|length| match length.downcast_ref::<Literal>()?.value() {
                ScalarValue::Int64(length) => *length,
                ScalarValue::Int32(length) => length.map(i64::from),
                _ => None,
            });
    let lengths: Vec<i64> = lengths.collect::<Option<_>>()?;
    Some((call, lengths.try_into().ok()?))
}

/// The start of the pane of the time of which the call tells the windows.
fn pane_start(
    call: &ScalarFunctionExpr,
    pane: i64,
    offset: i64,
    input: &Schema,
) -> Result<Arc<dyn PhysicalExpr>> {
    let function = window_function("$window")
        .ok_or_else(|| crate::PlanError::Internal("the window function does not exist".into()))?;
    let mut arguments = vec![Arc::clone(&call.args()[0])];
    for length in [pane, offset, 0] {
        arguments.push(Arc::new(Literal::new(ScalarValue::Int64(Some(length)))));
    }
    let options = Arc::new(call.config_options().clone());
    Ok(Arc::new(ScalarFunctionExpr::try_new(
        function, arguments, input, options,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_consists_of_whole_panes() {
        assert_eq!(common_divisor(2, 10), 2);
        assert_eq!(common_divisor(4, 10), 2);
        assert_eq!(common_divisor(7, 10), 1);
        assert_eq!(common_divisor(10, 10), 10);
    }
}
