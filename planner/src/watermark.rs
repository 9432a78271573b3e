//! Watermarks in plans: what is known of the event times that are still to come.
//!
//! A stream's watermark W is a promise: no row with an event time before W will be added to it. From there a plan derives, for
//! columns of what its operators emit, a [`Bound`]: no row that is still to change has a value below it. So a row whose
//! value is below the bound of any of its columns is final, and an operator may forget what only such rows need.
//!
//! ```text
//!  bid            ts          >= W
//!  TUMBLE         window_end  >= $window(W, ..)         functions that never go back carry a bound along
//!  GROUP BY       window_end  >= the same               a group below it is closed
//!  JOIN on ends   window_end  >= the least of both      a pair is new if either of its rows is
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::kernels::cmp::lt;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::relation_id::RelationId;

/// The watermarks of streams, in microseconds since 1970-01-01 00:00 (UTC, where the column has a zone). A stream that has
/// had no row has none.
pub type Watermarks = BTreeMap<RelationId, i64>;

/// A lower bound of the values that are still to come, as a function of the streams' watermarks. It never goes back.
#[derive(Debug, Clone)]
pub enum Bound {
    /// The watermark of a stream, as a value of its event time's type.
    Stream {
        relation: RelationId,
        data_type: DataType,
        /// By how much it is held back, in microseconds.
        delay: i64,
    },
    /// A function of a bound that never goes back: over one column, of the bound's type.
    Of {
        input: Box<Bound>,
        data_type: DataType,
        function: Arc<dyn PhysicalExpr>,
    },
    /// The first element of a list, the smallest of its elements.
    FirstOf(Box<Bound>),
    Least(Vec<Bound>),
}

/// A bound of one column.
#[derive(Debug, Clone)]
pub struct ColumnWatermark {
    pub column: usize,
    pub bound: Bound,
}

impl Bound {
    /// The bound that holds under these watermarks; `None`: anything may still come.
    ///
    /// # Errors
    /// A function fails on a watermark.
    pub fn value(&self, watermarks: &Watermarks) -> Result<Option<ScalarValue>> {
        match self {
            Bound::Stream {
                relation,
                data_type,
                delay,
            } => {
                let Some(watermark) = watermarks.get(relation) else {
                    return Ok(None);
                };
                let micros = ScalarValue::Int64(Some(watermark.saturating_sub(*delay)));
                let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
                micros.cast_to(&time)?.cast_to(data_type).map(Some)
            }
            Bound::Of {
                input,
                data_type,
                function,
            } => {
                let Some(value) = input.value(watermarks)? else {
                    return Ok(None);
                };
                let schema = Schema::new(vec![Field::new("watermark", data_type.clone(), true)]);
                let row = RecordBatch::try_new(Arc::new(schema), vec![value.to_array()?])?;
                // Beyond the range of times nothing is known.
                let Ok(value) = function.evaluate(&row) else {
                    return Ok(None);
                };
                let value = ScalarValue::try_from_array(&value.into_array(1)?, 0)?;
                Ok(Some(value).filter(|value| !value.is_null()))
            }
            Bound::FirstOf(list) => {
                let Some(ScalarValue::List(list)) = list.value(watermarks)? else {
                    return Ok(None);
                };
                let elements = list.value(0);
                if elements.is_empty() {
                    return Ok(None);
                }
                ScalarValue::try_from_array(&elements, 0).map(Some)
            }
            Bound::Least(bounds) => {
                let mut least: Option<ScalarValue> = None;
                for bound in bounds {
                    let Some(value) = bound.value(watermarks)? else {
                        return Ok(None);
                    };
                    least = match least {
                        Some(known) if known <= value => Some(known),
                        _ => Some(value),
                    };
                }
                Ok(least)
            }
        }
    }

    /// The bound as it is when every watermark is held back by this many microseconds.
    pub fn delayed(&self, by: i64) -> Bound {
        match self {
            Bound::Stream {
                relation,
                data_type,
                delay,
            } => Bound::Stream {
                relation: *relation,
                data_type: data_type.clone(),
                delay: delay.saturating_add(by),
            },
            Bound::Of {
                input,
                data_type,
                function,
            } => Bound::Of {
                input: Box::new(input.delayed(by)),
                data_type: data_type.clone(),
                function: Arc::clone(function),
            },
            Bound::FirstOf(list) => Bound::FirstOf(Box::new(list.delayed(by))),
            Bound::Least(bounds) => Bound::Least(bounds.iter().map(|bound| bound.delayed(by)).collect()),
        }
    }

    /// Which of these values are below a bound's value. NULL never is.
    ///
    /// # Errors
    /// The values are of another type than the bound.
    pub fn below(value: &ScalarValue, values: &ArrayRef) -> Result<BooleanArray> {
        let below = lt(values, &value.to_scalar()?)?;
        Ok(match below.null_count() {
            0 => below,
            _ => prep_null_mask_filter(&below),
        })
    }
}

/// The watermarks of projected columns.
pub(crate) fn project(
    watermarks: &[ColumnWatermark],
    expressions: &[Arc<dyn PhysicalExpr>],
    input: &Schema,
) -> Vec<ColumnWatermark> {
    expressions
        .iter()
        .enumerate()
        .filter_map(|(column, expression)| {
            let bound = bound_of(expression, watermarks, input)?;
            Some(ColumnWatermark { column, bound })
        })
        .collect()
}

/// The watermarks of a union: columns that have one in every input.
pub(crate) fn of_union(inputs: &[Vec<ColumnWatermark>]) -> Vec<ColumnWatermark> {
    let Some((first, others)) = inputs.split_first() else {
        return vec![];
    };
    let in_all = |ColumnWatermark { column, bound }: &ColumnWatermark| {
        let mut bounds = vec![bound.clone()];
        for other in others {
            bounds.push(other.iter().find(|known| known.column == *column)?.bound.clone());
        }
        let (column, bound) = (*column, Bound::Least(bounds));
        Some(ColumnWatermark { column, bound })
    };
    first.iter().filter_map(in_all).collect()
}

/// The bound of an expression's values, if it never goes back while a column with a bound goes on.
pub(crate) fn bound_of(
    expression: &Arc<dyn PhysicalExpr>,
    watermarks: &[ColumnWatermark],
    input: &Schema,
) -> Option<Bound> {
    let column = growing(expression, input)?;
    let known = watermarks.iter().find(|known| known.column == column)?;
    if expression.downcast_ref::<Column>().is_some() {
        return Some(known.bound.clone());
    }
    let data_type = input.field(column).data_type().clone();
    if data_type.is_nested() {
        return None;
    }
    applied(&known.bound, data_type, expression)
}

/// The bound of a function, of one column, of values with this bound.
pub(crate) fn applied(
    bound: &Bound,
    data_type: DataType,
    expression: &Arc<dyn PhysicalExpr>,
) -> Option<Bound> {
    if expression.downcast_ref::<Column>().is_some() {
        return Some(bound.clone());
    }
    let function = Arc::clone(expression)
        .transform_up(|inner| {
            Ok(match inner.downcast_ref::<Column>() {
                Some(_) => Transformed::yes(Arc::new(Column::new("watermark", 0)) as Arc<dyn PhysicalExpr>),
                None => Transformed::no(inner),
            })
        })
        .ok()?
        .data;
    Some(Bound::Of {
        input: Box::new(bound.clone()),
        data_type,
        function,
    })
}

/// The one column of which the expression is a function that never goes back.
pub fn growing(expression: &Arc<dyn PhysicalExpr>, input: &Schema) -> Option<usize> {
    if let Some(column) = expression.downcast_ref::<Column>() {
        return Some(column.index());
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(input).ok()?;
        let is_growing = is_time(&from) && is_time(cast.cast_type());
        return growing(cast.expr(), input).filter(|_| is_growing);
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        let (grows, by) = match (binary.op(), literal(binary.left()), literal(binary.right())) {
            (Operator::Plus | Operator::Minus, None, Some(by)) => (binary.left(), by),
            (Operator::Plus, Some(by), None) => (binary.right(), by),
            _ => return None,
        };
        return growing(grows, input).filter(|_| is_fixed_length(by));
    }
    let call = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let grows = match (call.name(), call.args()) {
        ("$window" | "$shift" | "$hop" | "$cumulate", [time, ..]) => time,
        ("date_trunc", [unit, time]) if literal(unit).is_some() => time,
        ("date_bin", [step, time]) if literal(step).is_some() => time,
        ("date_bin", [step, time, origin]) if literal(step).is_some() && literal(origin).is_some() => time,
        ("pg_cast" | "held_cast", [time, _]) => {
            let from = time.data_type(input).ok()?;
            if !is_time(&from) || !is_time(call.return_type()) {
                return None;
            }
            time
        }
        _ => return None,
    };
    growing(grows, input)
}

fn literal(expression: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expression.downcast_ref::<Literal>().map(Literal::value)
}

fn is_time(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}

/// Whether adding it to a time keeps the order of times: months have different lengths.
fn is_fixed_length(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => interval.months == 0,
        ScalarValue::IntervalDayTime(Some(_))
        | ScalarValue::DurationSecond(Some(_))
        | ScalarValue::DurationMillisecond(Some(_))
        | ScalarValue::DurationMicrosecond(Some(_))
        | ScalarValue::DurationNanosecond(Some(_)) => true,
        _ => false,
    }
}
