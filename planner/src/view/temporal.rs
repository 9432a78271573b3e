//! Conditions on `now()`: each compares an expression over columns with a function of the time that only grows, so that
//! it becomes true, or false, once in the life of a row.
//!
//! ```text
//!  ts > now() - INTERVAL '1 hour'     leaves when  now() - INTERVAL '1 hour' >= ts
//!  day <= current_date                enters when  current_date >= day
//!  day = current_date                 both
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator as Op, cast, col,
};

use super::clock::{clock_type, is_clock, misplaced, reads_clock, with_clock};
use super::fragment::{Fragment, Part, Placement};
use super::lower::Lowering;
use crate::error::{PlanError, Result};
use crate::stage::Output;
use crate::stage::operator::Operator;
use crate::stage::temporal_filter::{Passage, TemporalFilter, TimeBound};

/// The column of the time in the expressions of [`TimeBound::clock`].
const NOW: &str = "now";

impl Lowering {
    /// The rows that meet the predicate: at once, or as time goes by.
    pub(super) fn filtered(
        &mut self,
        fragment: Fragment,
        predicate: &Expr,
        schema: &DFSchema,
    ) -> Result<Fragment> {
        let (temporal, timeless): (Vec<Expr>, Vec<Expr>) =
            conjuncts(predicate).into_iter().partition(reads_clock);
        let mut fragment = fragment;
        if let Some(predicate) = conjunction(timeless) {
            fragment = fragment.filter(&self.in_turn(&predicate, schema)?);
        }
        if temporal.is_empty() {
            return Ok(fragment);
        }
        let mut bounds = vec![];
        for condition in &temporal {
            bounds.extend(self.bounds(condition, schema)?);
        }
        Ok(self.temporal_filter(fragment, bounds))
    }

    fn temporal_filter(&mut self, fragment: Fragment, bounds: Vec<TimeBound>) -> Fragment {
        let Fragment {
            parts,
            append_only,
            key,
            schema,
            ..
        } = fragment;
        let columns = match &key {
            Some(key) if !key.is_empty() => key.clone(),
            _ => (0..schema.fields().len()).collect(),
        };
        let output = if columns.is_empty() {
            Output::Single
        } else {
            Output::Hash(columns)
        };
        let leaves = bounds.iter().any(|bound| bound.passage == Passage::Leaves);
        let mut filtered = vec![];
        for part in parts {
            // A row and its retraction must meet where the row is kept.
            let part = match part.placement {
                Placement::Arrival => {
                    let alone = Fragment {
                        parts: vec![part],
                        append_only,
                        key: key.clone(),
                        watermarks: vec![],
                        schema: Arc::clone(&schema),
                    };
                    self.exchange(alone, output.clone()).parts
                }
                Placement::Hash(_) | Placement::Keyed => vec![part],
            };
            filtered.extend(part.into_iter().map(|part| Part {
                operator: Operator::TemporalFilter(Box::new(TemporalFilter {
                    input: part.operator,
                    bounds: bounds.clone(),
                    schema: Arc::clone(&schema),
                })),
                placement: part.placement,
            }));
        }
        Fragment {
            parts: filtered,
            append_only: append_only && !leaves,
            key,
            // What enters or leaves late has an old event time.
            watermarks: vec![],
            schema,
        }
    }

    /// What a condition says of when rows enter and leave.
    fn bounds(&self, condition: &Expr, schema: &DFSchema) -> Result<Vec<TimeBound>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
            return Err(misplaced());
        };
        let (value, op, clock) = match (reads_clock(left), reads_clock(right)) {
            (false, true) => (left, *op, right),
            (true, false) => match op.swap() {
                Some(swapped) => (right, swapped, left),
                None => return Err(misplaced()),
            },
            _ => return Err(misplaced()),
        };
        check_growth(clock, schema)?;
        let (value, clock) = without_nanoseconds(value, clock, schema)?;
        use Passage::{Enters, Leaves};
        // (passage, whether the time must pass the value to get there)
        let passages: &[(Passage, bool)] = match op {
            Op::Gt => &[(Leaves, false)],
            Op::GtEq => &[(Leaves, true)],
            Op::Lt => &[(Enters, true)],
            Op::LtEq => &[(Enters, false)],
            Op::Eq => &[(Enters, false), (Leaves, true)],
            _ => return Err(misplaced()),
        };
        let now = DFSchema::try_from(Schema::new(vec![Field::new(NOW, clock_type(), false)]))?;
        let told = self.expression(&with_clock(clock, &col(NOW))?, &now)?;
        let compared = self.expression(&value, schema)?;
        Ok(passages
            .iter()
            .map(|(passage, is_strict)| TimeBound {
                passage: *passage,
                value: Arc::clone(&compared),
                clock: Arc::clone(&told),
                is_strict: *is_strict,
                condition: shown(condition),
            })
            .collect())
    }
}

/// Drops columns that only the timeless conditions need before the rows are kept for the others.
pub(super) fn narrow(plan: LogicalPlan) -> Result<LogicalPlan> {
    let narrowed = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::Projection(projection) = &node else {
            return Ok(Transformed::no(node));
        };
        let LogicalPlan::Filter(filter) = projection.input.as_ref() else {
            return Ok(Transformed::no(node));
        };
        let (temporal, timeless): (Vec<Expr>, Vec<Expr>) =
            conjuncts(&filter.predicate).into_iter().partition(reads_clock);
        let (Some(temporal), Some(timeless)) = (conjunction(temporal), conjunction(timeless)) else {
            return Ok(Transformed::no(node));
        };
        let needed: HashSet<&Column> = projection
            .expr
            .iter()
            .chain([&temporal])
            .flat_map(Expr::column_refs)
            .collect();
        let columns = filter.input.schema().columns();
        let columns: Vec<Expr> = columns
            .into_iter()
            .filter(|column| needed.contains(column))
            .map(Expr::Column)
            .collect();
        let kept = LogicalPlanBuilder::from(Arc::clone(&filter.input))
            .filter(timeless)?
            .project(columns)?
            .filter(temporal)?
            .project(projection.expr.clone())?
            .build()?;
        Ok(Transformed::yes(kept))
    })?;
    Ok(narrowed.data)
}

/// The conjuncts of a predicate, a BETWEEN as its two.
fn conjuncts(predicate: &Expr) -> Vec<Expr> {
    let mut conjuncts = vec![];
    for conjunct in split_conjunction(predicate) {
        match conjunct {
            Expr::Between(between) if !between.negated && reads_clock(conjunct) => {
                let value = between.expr.as_ref();
                conjuncts.push(value.clone().gt_eq(between.low.as_ref().clone()));
                conjuncts.push(value.clone().lt_eq(between.high.as_ref().clone()));
            }
            other => conjuncts.push(other.clone()),
        }
    }
    conjuncts
}

/// A column of microseconds that was cast to nanoseconds to be compared with a date: the other side is cast instead, so
/// that times beyond the range of nanoseconds (9999-12-31) can be compared.
fn without_nanoseconds(value: &Expr, clock: &Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    if let Expr::Cast(Cast { expr, field }) = value
        && let DataType::Timestamp(TimeUnit::Nanosecond, zone) = field.data_type()
    {
        let from = expr.get_type(schema)?;
        if from == DataType::Timestamp(TimeUnit::Microsecond, zone.clone()) {
            return Ok((expr.as_ref().clone(), cast(clock.clone(), from)));
        }
    }
    Ok((value.clone(), clock.clone()))
}

/// Refuses a function of the time that may go back while time goes on.
fn check_growth(expression: &Expr, schema: &DFSchema) -> Result<()> {
    grain(expression, schema).map(|_| ())
}

/// In which steps a growing function of the time grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grain {
    Fine,
    /// Only its day counts: months can be added to it and it still grows.
    Days,
}

fn grain(expression: &Expr, schema: &DFSchema) -> Result<Grain> {
    match expression {
        clock if is_clock(clock) => Ok(Grain::Fine),
        Expr::Alias(alias) => grain(&alias.expr, schema),
        Expr::Cast(Cast { expr, field }) => {
            let inner = grain(expr, schema)?;
            match (expr.get_type(schema)?, field.data_type()) {
                (DataType::Timestamp(..), DataType::Date32) => Ok(Grain::Days),
                (DataType::Date32, DataType::Int32 | DataType::Int64) => Ok(Grain::Days),
                (DataType::Int32 | DataType::Int64, DataType::Date32) => Ok(inner),
                (from, to) if is_time_or_number(&from) && is_time_or_number(to) => Ok(inner),
                _ => Err(not_growing(expression)),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (op, left.as_ref(), right.as_ref()) {
            (Op::Plus, inner, Expr::Literal(offset, _)) | (Op::Plus, Expr::Literal(offset, _), inner) => {
                moved(expression, inner, offset, schema)
            }
            (Op::Minus, inner, Expr::Literal(offset, _)) => moved(expression, inner, offset, schema),
            _ => Err(not_growing(expression)),
        },
        Expr::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
            ("int_add", [inner, Expr::Literal(offset, _)] | [Expr::Literal(offset, _), inner])
            | ("int_subtract" | "date_pli" | "date_mii", [inner, Expr::Literal(offset, _)]) => {
                moved(expression, inner, offset, schema)
            }
            ("date_trunc", [Expr::Literal(unit, _), inner]) => {
                grain(inner, schema)?;
                let unit = text(unit).unwrap_or_default().to_ascii_lowercase();
                let is_fine = matches!(
                    unit.as_str(),
                    "microsecond"
                        | "microseconds"
                        | "millisecond"
                        | "milliseconds"
                        | "second"
                        | "minute"
                        | "hour"
                );
                Ok(if is_fine { Grain::Fine } else { Grain::Days })
            }
            (
                "date_bin",
                [Expr::Literal(_, _), inner] | [Expr::Literal(_, _), inner, Expr::Literal(_, _)],
            ) => grain(inner, schema).map(|_| Grain::Fine),
            ("date_part" | "pg_extract", [Expr::Literal(part, _), inner])
                if text(part).is_some_and(|part| part.eq_ignore_ascii_case("epoch")) =>
            {
                grain(inner, schema).map(|_| Grain::Fine)
            }
            // Local time of a zone with daylight saving goes back once a year.
            ("timezone", [Expr::Literal(zone, _), inner])
                if text(zone).is_some_and(|zone| {
                    ["utc", "gmt", "z"]
                        .iter()
                        .any(|known| zone.eq_ignore_ascii_case(known))
                }) =>
            {
                grain(inner, schema)
            }
            _ => Err(not_growing(expression)),
        },
        _ => Err(not_growing(expression)),
    }
}

/// The grain of `inner` plus or minus a constant.
fn moved(whole: &Expr, inner: &Expr, offset: &ScalarValue, schema: &DFSchema) -> Result<Grain> {
    let grain = grain(inner, schema)?;
    let (months, nanoseconds) = match offset {
        ScalarValue::IntervalMonthDayNano(Some(interval)) => (interval.months, interval.nanoseconds),
        ScalarValue::IntervalYearMonth(Some(months)) => (*months, 0),
        ScalarValue::IntervalDayTime(Some(interval)) => (0, i64::from(interval.milliseconds)),
        ScalarValue::DurationMicrosecond(Some(_)) | ScalarValue::DurationNanosecond(Some(_)) => (0, 1),
        number if number.data_type().is_numeric() && !number.is_null() => (0, 0),
        _ => return Err(not_growing(whole)),
    };
    // The 30th of March less a month is later than the 31st less a month, at an earlier hour.
    if months != 0 && grain == Grain::Fine {
        return Err(PlanError::not_incremental(
            "now() plus or minus months",
            "months vary in length, so a row could leave and return; use days (INTERVAL '30 days'), or \
             start from a day (current_date - INTERVAL '1 month')",
        ));
    }
    Ok(if nanoseconds == 0 { grain } else { Grain::Fine })
}

fn is_time_or_number(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    ) || data_type.is_numeric()
}

/// The condition with its intervals as one reads them.
fn shown(condition: &Expr) -> String {
    let readable = condition.clone().transform_up(|inner| {
        Ok(match &inner {
            Expr::Literal(value @ ScalarValue::IntervalMonthDayNano(Some(_)), _) => {
                let array = value.to_array()?;
                let text = arrow::util::display::array_value_to_string(&array, 0)?;
                Transformed::yes(Expr::Column(Column::from_name(format!("INTERVAL '{text}'"))))
            }
            _ => Transformed::no(inner),
        })
    });
    readable.map_or_else(|_| condition.to_string(), |readable| readable.data.to_string())
}

fn text(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

fn not_growing(expression: &Expr) -> PlanError {
    PlanError::not_incremental(
        format!("{expression} in a comparison"),
        "the side with now() must increase with time: now(), current_date, date_trunc('..', now()), or one \
         of them plus or minus a constant",
    )
}
