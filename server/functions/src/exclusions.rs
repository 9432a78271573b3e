//! Frames of windows that DataFusion has not: with EXCLUDE, and such that move, of aggregates that cannot take values back.
//!
//! DataFusion's frames are one run of rows. A function over `ROWS .. EXCLUDE TIES` becomes a window function of its own, named
//! after both, which takes the rows that are left one run after the other:
//!
//! ```text
//!   frame      [----------------------]        runs: [-----]        [---]
//!   excluded          [---------]
//! ```
//!
//! Sums and counts go with the frame, and what is excluded is taken out and put in again; other aggregates start again for every
//! row. DataFusion's [`Accumulator::retract_batch`] would not do for all of them: `min` takes back only what came first.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::make_comparator;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{SortOptions, filter};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, internal_err, not_impl_err, plan_err};
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawWindowExpr};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, Expr, PartitionEvaluator, Signature, Volatility, WindowFrameBound,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::expressions::{Column, Literal};
use datafusion::scalar::ScalarValue;
use millrace_parser::ast::Exclusion;
use millrace_postgres::error::{SqlError, SqlState};

use crate::bounded::work::is_wanted;

/// Takes the mark of an EXCLUDE, which the parser has put among the columns of PARTITION BY, and puts the function that it
/// makes of another in the place of that. It comes before DataFusion's own planners, which plan `count(*)` as soon as they see it.
#[derive(Debug)]
pub struct Exclusions;

impl ExprPlanner for Exclusions {
    fn plan_window(&self, mut raw: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        let mut exclusion = None;
        raw.partition_by.retain(|expr| {
            let Expr::IsNull(text) = expr else { return true };
            let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = text.as_ref() else {
                return true;
            };
            let found = Exclusion::of_mark(text);
            exclusion = exclusion.or(found);
            found.is_none()
        });
        if exclusion.is_none() && !moves_alone(&raw) {
            return Ok(PlannerResult::Original(raw));
        }
        let Some(function) = Function::of(&raw.func_def) else {
            // Others do not look at the frame.
            return Ok(PlannerResult::Original(raw));
        };
        if raw.distinct {
            return not_impl_err!("DISTINCT is not implemented for window functions");
        }
        if raw.null_treatment.is_some() {
            return not_impl_err!("IGNORE NULLS is not supported with EXCLUDE");
        }
        let has_filter = raw.filter.is_some();
        let mut args = raw.args;
        for argument in &mut args {
            // count(*) counts rows.
            #[expect(deprecated, reason = "DataFusion's planner makes it of the star")]
            if matches!(argument, Expr::Wildcard { .. }) {
                *argument = Expr::Literal(COUNT_STAR_EXPANSION, None);
            }
        }
        args.extend(raw.filter.map(|filter| *filter));
        let fun = WindowUDF::from(Excluding::new(function, exclusion, has_filter));
        Ok(PlannerResult::Planned(Expr::WindowFunction(Box::new(
            WindowFunction {
                fun: WindowFunctionDefinition::WindowUDF(Arc::new(fun)),
                params: WindowFunctionParams {
                    args,
                    partition_by: raw.partition_by,
                    order_by: raw.order_by,
                    window_frame: raw.window_frame,
                    filter: None,
                    null_treatment: None,
                    distinct: false,
                },
            },
        ))))
    }
}

/// Whether it is an aggregate over a frame whose first row moves, which DataFusion cannot move.
fn moves_alone(raw: &RawWindowExpr) -> bool {
    const MOVED: [&str; 24] = [
        "array_agg",
        "avg",
        "corr",
        "count",
        "covar_pop",
        "covar_samp",
        "max",
        "median",
        "min",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "stddev",
        "stddev_pop",
        "sum",
        "var",
        "var_pop",
        "bit_xor",
    ];
    let is_fixed =
        matches!(&raw.window_frame.start_bound, WindowFrameBound::Preceding(count) if count.is_null());
    let is_aggregate = matches!(raw.func_def, WindowFunctionDefinition::AggregateUDF(_));
    is_aggregate && !is_fixed && !raw.distinct && !MOVED.contains(&raw.func_def.name())
}

/// What is computed over the rows that are left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Function {
    Aggregate(Arc<AggregateUDF>),
    First,
    Last,
    Nth,
}

impl Function {
    /// The function, if it looks at its frame.
    fn of(definition: &WindowFunctionDefinition) -> Option<Function> {
        Some(match (definition.name(), definition) {
            ("first_value", _) => Function::First,
            ("last_value", _) => Function::Last,
            ("nth_value", _) => Function::Nth,
            (_, WindowFunctionDefinition::AggregateUDF(function)) => {
                Function::Aggregate(Arc::clone(function))
            }
            (_, WindowFunctionDefinition::WindowUDF(_)) => return None,
        })
    }

    fn name(&self) -> &str {
        match self {
            Function::Aggregate(function) => function.name(),
            Function::First => "first_value",
            Function::Last => "last_value",
            Function::Nth => "nth_value",
        }
    }
}

/// The window function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Excluding {
    /// As a plan shows it.
    name: String,
    function: Function,
    exclusion: Option<Exclusion>,
    /// Whether the last argument says which rows count.
    has_filter: bool,
    signature: Signature,
}

impl Excluding {
    fn new(function: Function, exclusion: Option<Exclusion>, has_filter: bool) -> Excluding {
        let filter = if has_filter { " filter" } else { "" };
        let words = exclusion.map_or("no others", Exclusion::words);
        Excluding {
            name: format!("{}{filter} exclude {words}", function.name()),
            function,
            exclusion,
            has_filter,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }

    /// The arguments of the function itself.
    fn own<'a, T>(&self, args: &'a [T]) -> &'a [T] {
        &args[..args.len() - usize::from(self.has_filter)]
    }

    /// Its aggregate over arguments of these types. Constants stay what they are: some aggregates look at them.
    fn aggregate(
        &self,
        function: &Arc<AggregateUDF>,
        fields: &[FieldRef],
        given: &[Arc<dyn PhysicalExpr>],
    ) -> Result<AggregateFunctionExpr> {
        let fields: Vec<Field> = (fields.iter().enumerate())
            .map(|(number, field)| field.as_ref().clone().with_name(format!("argument {number}")))
            .collect();
        let args = (fields.iter().enumerate())
            .map(|(number, field)| match given.get(number) {
                Some(constant) if constant.downcast_ref::<Literal>().is_some() => Arc::clone(constant),
                _ => Arc::new(Column::new(field.name(), number)) as Arc<dyn PhysicalExpr>,
            })
            .collect();
        AggregateExprBuilder::new(Arc::clone(function), args)
            .schema(Arc::new(Schema::new(fields)))
            .alias(&self.name)
            .build()
    }
}

impl WindowUDFImpl for Excluding {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let own = self.own(types);
        let mut coerced = match &self.function {
            Function::Aggregate(function) if !own.is_empty() => {
                let fields: Vec<FieldRef> = (own.iter())
                    .map(|data_type| Arc::new(Field::new("argument", data_type.clone(), true)))
                    .collect();
                let fields = fields_with_udf(&fields, function.as_ref())?;
                fields.iter().map(|field| field.data_type().clone()).collect()
            }
            Function::Nth if own.len() == 2 => vec![own[0].clone(), DataType::Int64],
            _ => own.to_vec(),
        };
        if self.has_filter {
            coerced.push(DataType::Boolean);
        }
        Ok(coerced)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let fields = self.own(args.input_fields());
        let field = match &self.function {
            Function::Aggregate(function) => function.return_field(fields)?,
            _ => match fields.first() {
                Some(field) => Arc::clone(field),
                None => return plan_err!("{} needs an argument", self.function.name()),
            },
        };
        let field = field.as_ref().clone().with_name(args.name());
        // Count has a value where all rows are excluded, and is told so by its aggregate.
        let is_nullable = match &self.function {
            Function::Aggregate(function) => function.is_nullable(),
            _ => true,
        };
        Ok(Arc::new(field.with_nullable(is_nullable)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        let fields = self.own(args.input_fields());
        let of = match &self.function {
            Function::Aggregate(function) => Of::Aggregate(Box::new(Aggregate::new(self.aggregate(
                function,
                fields,
                args.input_exprs(),
            )?)?)),
            Function::First => Of::Place(Place::First),
            Function::Last => Of::Place(Place::Last),
            Function::Nth => Of::Place(Place::Nth),
        };
        Ok(Box::new(Evaluator {
            of,
            exclusion: self.exclusion,
            arguments: fields.len(),
            has_filter: self.has_filter,
            row: 0,
            peers: 0..0,
            counted: None,
        }))
    }
}

#[derive(Debug, Clone, Copy)]
enum Place {
    First,
    Last,
    Nth,
}

#[derive(Debug)]
enum Of {
    Aggregate(Box<Aggregate>),
    Place(Place),
}

/// One partition, row by row.
#[derive(Debug)]
struct Evaluator {
    of: Of,
    exclusion: Option<Exclusion>,
    /// Of all values the function's own come first, then FILTER, then those of ORDER BY.
    arguments: usize,
    has_filter: bool,
    row: usize,
    /// The rows that ORDER BY cannot tell from it.
    peers: Range<usize>,
    /// The rows that FILTER lets through.
    counted: Option<BooleanArray>,
}

impl PartitionEvaluator for Evaluator {
    fn uses_window_frame(&self) -> bool {
        true
    }

    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        is_wanted()?;
        let (own, rest) = values.split_at(self.arguments);
        let (filters, order) = rest.split_at(usize::from(self.has_filter));
        let row = self.row;
        self.row += 1;
        if row == 0 {
            self.counted = filters.first().map(|filter| filter.as_boolean().clone());
        }
        let rows = values.first().map_or(frame.end, Array::len);
        let looks_at_peers = matches!(self.exclusion, Some(Exclusion::Group | Exclusion::Ties));
        if looks_at_peers && row >= self.peers.end {
            self.peers = row..peers_end(order, row, rows)?;
        }
        let frame = frame.start..frame.end.max(frame.start);
        let within = |run: Range<usize>| {
            let start = run.start.clamp(frame.start, frame.end);
            start..run.end.clamp(start, frame.end)
        };
        let excluded: Vec<Range<usize>> = match self.exclusion {
            None => vec![],
            Some(Exclusion::CurrentRow) => vec![within(row..row + 1)],
            Some(Exclusion::Group) => vec![within(self.peers.clone())],
            Some(Exclusion::Ties) => vec![within(self.peers.start..row), within(row + 1..self.peers.end)],
        };
        let excluded: Vec<Range<usize>> = excluded.into_iter().filter(|run| !run.is_empty()).collect();
        match &mut self.of {
            Of::Aggregate(aggregate) => aggregate.over(own, &self.counted, &frame, &excluded),
            Of::Place(place) => {
                let left = left(&frame, &excluded);
                let count: usize = left.iter().map(Range::len).sum();
                let number = match place {
                    Place::First => 1,
                    Place::Last => count,
                    Place::Nth => {
                        let number = ScalarValue::try_from_array(&own[1], row)?;
                        match number {
                            ScalarValue::Int64(Some(number)) if number > 0 => {
                                usize::try_from(number).unwrap_or(usize::MAX)
                            }
                            ScalarValue::Int64(None) => 0,
                            _ => {
                                return Err(SqlError::new(
                                    SqlState::InvalidArgumentForNthValue,
                                    "argument of nth_value must be greater than zero",
                                )
                                .into());
                            }
                        }
                    }
                };
                match nth(&left, number) {
                    Some(row) => ScalarValue::try_from_array(&own[0], row),
                    None => ScalarValue::try_from(own[0].data_type()),
                }
            }
        }
    }
}

/// The row behind the last one that ORDER BY cannot tell from this one.
fn peers_end(order: &[ArrayRef], row: usize, rows: usize) -> Result<usize> {
    let columns = order
        .iter()
        .map(|column| make_comparator(column, column, SortOptions::default()))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let is_peer = |other: &usize| columns.iter().all(|compare| compare(row, *other).is_eq());
    Ok((row + 1..rows).find(|other| !is_peer(other)).unwrap_or(rows))
}

/// The runs of the frame that are not excluded.
fn left(frame: &Range<usize>, excluded: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut left, mut from) = (vec![], frame.start);
    for run in excluded {
        left.push(from..run.start);
        from = run.end;
    }
    left.push(from..frame.end);
    left.retain(|run| !run.is_empty());
    left
}

/// The row with a number, from 1 on, in some runs.
fn nth(runs: &[Range<usize>], number: usize) -> Option<usize> {
    let mut before = number.checked_sub(1)?;
    for run in runs {
        if before < run.len() {
            return Some(run.start + before);
        }
        before -= run.len();
    }
    None
}

/// An aggregate over what is left of frames.
#[derive(Debug)]
struct Aggregate {
    function: AggregateFunctionExpr,
    /// What has the rows of [`frame`](Self::frame), if they can be taken out of it in any order.
    moving: Option<Box<dyn Accumulator>>,
    frame: Range<usize>,
}

impl Aggregate {
    fn new(function: AggregateFunctionExpr) -> Result<Aggregate> {
        Ok(Aggregate {
            moving: moving(&function)?,
            function,
            frame: 0..0,
        })
    }

    fn over(
        &mut self,
        values: &[ArrayRef],
        counted: &Option<BooleanArray>,
        frame: &Range<usize>,
        excluded: &[Range<usize>],
    ) -> Result<ScalarValue> {
        let take = |run: &Range<usize>| -> Result<Vec<ArrayRef>> {
            values
                .iter()
                .map(|column| {
                    let column = column.slice(run.start, run.len());
                    Ok(match counted {
                        None => column,
                        Some(counted) => filter(&column, &counted.slice(run.start, run.len()))?,
                    })
                })
                .collect()
        };
        let left = left(frame, excluded);
        let rows = |runs: &[Range<usize>]| runs.iter().map(Range::len).sum::<usize>();
        // What moves the frame has to be done either way.
        let by_moving = rows(excluded) <= rows(&left);
        let Some(moving) = self.moving.as_mut().filter(|_| by_moving) else {
            let mut fresh = self.function.create_accumulator()?;
            for run in &left {
                fresh.update_batch(&take(run)?)?;
            }
            return fresh.evaluate();
        };
        if frame.start < self.frame.start || frame.start > self.frame.end || frame.end < self.frame.end {
            *moving = match self::moving(&self.function)? {
                Some(moving) => moving,
                None => return internal_err!("values could be taken back, and cannot any more"),
            };
            moving.update_batch(&take(frame)?)?;
        } else {
            if frame.end > self.frame.end {
                moving.update_batch(&take(&(self.frame.end..frame.end))?)?;
            }
            if frame.start > self.frame.start {
                moving.retract_batch(&take(&(self.frame.start..frame.start))?)?;
            }
        }
        self.frame = frame.clone();
        for run in excluded {
            moving.retract_batch(&take(run)?)?;
        }
        let value = moving.evaluate()?;
        for run in excluded {
            moving.update_batch(&take(run)?)?;
        }
        Ok(value)
    }
}

/// What takes values back in any order, if the function can.
fn moving(function: &AggregateFunctionExpr) -> Result<Option<Box<dyn Accumulator>>> {
    match function.fun().name() {
        "count" | "sum" | "avg" => function.create_sliding_accumulator().map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use arrow::array::Int64Array;
    use millrace_resource::cpu::CpuScheduler;
    use millrace_resource::error::ResourceError;
    use millrace_schedule::cpu::QueryClass;

    use super::*;

    /// A partition is one step for whoever runs the query, however many rows and frames it has.
    #[test]
    fn a_partition_that_nobody_waits_for_ends() {
        let cpu = CpuScheduler::start(1, None).unwrap();
        let (tell, told) = mpsc::channel();
        let task = cpu.spawn::<(), ResourceError>(QueryClass::Interactive, move |_| {
            Box::pin(async move {
                let mut evaluator = Evaluator {
                    of: Of::Place(Place::First),
                    exclusion: None,
                    arguments: 1,
                    has_filter: false,
                    row: 0,
                    peers: 0..0,
                    counted: None,
                };
                let values: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1, 2, 3]))];
                let mut row = || evaluator.evaluate(&values, &(0..3));
                tell.send(row().map(|_| ()).map_err(|error| error.to_string()))
                    .unwrap();
                let error = loop {
                    if let Err(error) = row() {
                        break error.to_string();
                    }
                };
                tell.send(Err(error)).unwrap();
                Ok(())
            })
        });
        assert_eq!(told.recv().unwrap(), Ok(()));
        drop(task);
        let patience = Duration::from_secs(60);
        let error = told.recv_timeout(patience).unwrap().unwrap_err();
        assert!(error.contains("canceling statement"), "{error}");
        cpu.stop();
    }
}
