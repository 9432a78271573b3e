//! GROUP BY, aggregates and DISTINCT.
//!
//! ```text
//!  input -> Project(group columns, arguments) -> PartialAggregate => hash(group) -> Aggregate -> Project(output types)
//! ```

mod arguments;
mod grouping_sets;

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::LoweredAggregateBuilder;
use datafusion::physical_expr::expressions::{Column, Literal};

use self::arguments::Arguments;
use self::grouping_sets::{GroupingSetColumns, expand, grouping_sets};
use super::Emit;
use super::fragment::{Fragment, Part, Placement};
use super::lower::{Lowering, arrow_schema, column};
use crate::error::{PlanError, Result};
use crate::reducer::{Reducer, reducer_of};
use crate::stage::aggregation::{AggregateCall, AggregateForm, Aggregation, ExchangeForm};
use crate::stage::closing::Closing;
use crate::stage::operator::Operator;
use crate::stage::partial_aggregate::PartialAggregate;
use crate::stage::partial_state::partial_schema;
use crate::stage::{Output, aggregate};
use crate::watermark::ColumnWatermark;

impl Lowering {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<Fragment> {
        self.aggregate_once(aggregate, None).map(|(fragment, _)| fragment)
    }

    /// As [`Lowering::aggregate`], for a view whose rows are emitted when they are final, and by how much later. Whether that
    /// is already so tells the second value.
    pub(super) fn aggregate_once(
        &mut self,
        aggregate: &Aggregate,
        once: Option<i64>,
    ) -> Result<(Fragment, bool)> {
        let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
        let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() else {
            return self.grouped(aggregate, &groups, None, once);
        };
        // A set that leaves out every column has a row even over nothing: it is an aggregate without groups of its own.
        let sets = grouping_sets(set, &groups)?;
        let is_total = |set: &GroupingSetColumns| set.left_out.iter().all(|left_out| *left_out);
        let (totals, sets): (Vec<_>, Vec<_>) = sets.into_iter().partition(is_total);
        let mut fragments = vec![];
        if !sets.is_empty() {
            fragments.push(self.grouped(aggregate, &groups, Some(&sets), None)?.0);
        }
        for total in totals {
            fragments.push(self.total(aggregate, groups.len(), total.id)?);
        }
        let united = Fragment {
            parts: fragments
                .into_iter()
                .flat_map(|fragment| fragment.parts)
                .collect(),
            append_only: false,
            key: Some((0..=groups.len()).collect()),
            // The row over everything is never final.
            watermarks: vec![],
            schema: arrow_schema(&aggregate.schema),
        };
        Ok((united, false))
    }

    /// The row over everything, with NULL for each group column.
    fn total(&mut self, aggregate: &Aggregate, groups: usize, id: u64) -> Result<Fragment> {
        let output = arrow_schema(&aggregate.schema);
        let input = self.node(&aggregate.input)?;
        let input_append_only = input.append_only;
        let mut arguments = Arguments::new(self, aggregate.input.schema());
        let rewritten = aggregate
            .aggr_expr
            .iter()
            .map(|call| arguments.rewrite(call))
            .collect::<Result<Vec<_>>>()?;
        let (expressions, schema) = arguments.finish()?;
        let input = input.project(expressions, Arc::clone(&schema));
        let logical_schema = DFSchema::from_unqualified_fields(schema.fields().clone(), Default::default())?;
        let mut calls = vec![];
        for (index, call) in rewritten.iter().enumerate() {
            let name = output.field(groups + 1 + index).name();
            calls.push(self.call(call, name, &schema, &logical_schema, input_append_only)?);
        }
        let values: SchemaRef = Arc::new(Schema::new(output.fields()[groups + 1..].to_vec()));
        let fragment = self.aggregation(input, 0, calls, Arc::clone(&values));
        let mut projection: Vec<Arc<dyn PhysicalExpr>> = vec![];
        for field in &output.fields()[..groups] {
            projection.push(Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)));
        }
        let id = ScalarValue::UInt64(Some(id)).cast_to(output.field(groups).data_type())?;
        projection.push(Arc::new(Literal::new(id)));
        projection.extend((0..values.fields().len()).map(|index| column(&values, index)));
        Ok(fragment.project(projection, output))
    }

    fn grouped(
        &mut self,
        aggregate: &Aggregate,
        groups: &[&Expr],
        sets: Option<&[GroupingSetColumns]>,
        once: Option<i64>,
    ) -> Result<(Fragment, bool)> {
        let input = self.node(&aggregate.input)?;
        let input_append_only = input.append_only;
        let mut arguments = Arguments::new(self, aggregate.input.schema());
        for group in groups {
            arguments.push(group)?;
        }
        if sets.is_some() {
            // The number of the grouping set is part of the key. Arguments see the columns as they were, so none of them
            // may share one with the key.
            let id_type = aggregate.schema.field(groups.len()).data_type();
            arguments.push(&Expr::Literal(ScalarValue::new_zero(id_type)?, None))?;
            arguments.seal();
        }
        let group_columns = groups.len() + usize::from(sets.is_some());
        let rewritten = aggregate
            .aggr_expr
            .iter()
            .map(|call| arguments.rewrite(call))
            .collect::<Result<Vec<_>>>()?;
        let (expressions, schema) = arguments.finish()?;
        let mut input = input.project(expressions, Arc::clone(&schema));
        let mut schema = schema;
        if let Some(sets) = sets {
            (input, schema) = expand(input, &schema, groups.len(), sets)?;
        }

        let logical_schema = DFSchema::from_unqualified_fields(schema.fields().clone(), Default::default())?;
        let mut calls = vec![];
        for (index, call) in rewritten.iter().enumerate() {
            let name = aggregate.schema.field(group_columns + index).name();
            calls.push(self.call(call, name, &schema, &logical_schema, input_append_only)?);
        }
        let output = arrow_schema(&aggregate.schema);
        if let Some(sliding) = self.sliding(&input, group_columns, &calls, &output, once)? {
            return Ok((sliding, once.is_some()));
        }
        Ok((self.aggregation(input, group_columns, calls, output), false))
    }

    pub(super) fn distinct(&mut self, input: &LogicalPlan) -> Result<Fragment> {
        let fragment = self.node(input)?;
        let schema = Arc::clone(&fragment.schema);
        let group_columns = schema.fields().len();
        Ok(self.aggregation(fragment, group_columns, vec![], schema))
    }

    /// Map half, exchange, reduce half. `input` has the group columns first.
    fn aggregation(
        &mut self,
        input: Fragment,
        group_columns: usize,
        calls: Vec<AggregateCall>,
        schema: SchemaRef,
    ) -> Fragment {
        let input_append_only = input.append_only;
        let merges = calls.iter().all(|call| call.form.merges() && !call.distinct);
        let exchange = if merges {
            ExchangeForm::Partial
        } else {
            ExchangeForm::Rows
        };
        let partial_schema = match exchange {
            ExchangeForm::Partial => partial_schema(&input.schema, group_columns, &calls),
            ExchangeForm::Rows => Arc::clone(&input.schema),
        };
        let watermarks: Vec<ColumnWatermark> = input
            .watermarks
            .iter()
            .filter(|known| known.column < group_columns)
            .cloned()
            .collect();
        let closes = Closing::by_first(&watermarks, &input.schema);
        let is_timed = |call: &AggregateCall| {
            let reducer = reducer_of(call.function.fun()).filter(|reducer| reducer.is_timed());
            matches!(call.form, AggregateForm::Reducer { .. }) && reducer.is_some()
        };
        let timer = match self.options.emit {
            Emit::Every(every) if calls.iter().any(is_timed) => Some(every),
            _ => None,
        };
        let half = |operator: Operator, schema: &SchemaRef| Aggregation {
            input: operator,
            group_columns,
            calls: calls.clone(),
            exchange,
            input_append_only,
            closes: closes.clone(),
            timer,
            schema: Arc::clone(schema),
        };
        let parts = input
            .parts
            .into_iter()
            .map(|part| Part {
                operator: Operator::PartialAggregate(Box::new(PartialAggregate(half(
                    part.operator,
                    &partial_schema,
                )))),
                placement: Placement::Arrival,
            })
            .collect();
        let partial = Fragment {
            parts,
            append_only: input_append_only,
            key: None,
            watermarks: vec![],
            schema: partial_schema,
        };
        let output = if group_columns == 0 {
            Output::Single
        } else {
            Output::Hash((0..group_columns).collect())
        };
        let exchanged = self.stages.exchange(partial, output);
        let operator = Operator::Aggregate(Box::new(aggregate::Aggregate(half(exchanged, &schema))));
        let group: Vec<usize> = (0..group_columns).collect();
        Fragment {
            parts: vec![Part {
                operator,
                placement: Placement::Hash(group.clone()),
            }],
            // A set of keys without aggregates only grows when its input does.
            append_only: input_append_only && calls.is_empty(),
            key: Some(group),
            watermarks,
            schema,
        }
    }

    fn call(
        &self,
        call: &Expr,
        name: &str,
        schema: &SchemaRef,
        logical_schema: &DFSchema,
        append_only: bool,
    ) -> Result<AggregateCall> {
        // The state keeps each value once, so that no accumulator has to, and some cannot.
        let (is_distinct, call) = without_distinct(call);
        let lowered =
            LoweredAggregateBuilder::new(&call, logical_schema, schema, &self.properties, &self.context)
                .with_name(name)
                .build()?;
        let function = lowered.aggregate;
        let arguments: Option<Vec<usize>> = function
            .expressions()
            .iter()
            .map(|e| e.downcast_ref::<Column>().map(Column::index))
            .collect();
        let filter = lowered
            .filter
            .as_ref()
            .and_then(|e| e.downcast_ref::<Column>().map(Column::index));
        let order_by = lowered
            .order_bys
            .iter()
            .filter_map(|sort| {
                sort.expr
                    .downcast_ref::<Column>()
                    .map(|column| (column.index(), sort.options))
            })
            .collect::<Vec<_>>();
        if matches!(function.fun().name(), "first_value" | "last_value" | "nth_value") && order_by.is_empty()
        {
            return Err(PlanError::not_incremental(
                format!("{} without ORDER BY", function.fun().name()),
                "without an order, the first row is not defined: use first_value(x ORDER BY y)",
            ));
        }
        // Literal arguments (a percentile, a separator) stay in the function; the forms of our own have none but count(1).
        let argument_types: Vec<DataType> = function
            .expressions()
            .iter()
            .map(|e| e.data_type(schema))
            .collect::<std::result::Result<_, _>>()?;
        let name = function.fun().name();
        let counts_nulls = function.expressions().iter().any(|e| {
            e.downcast_ref::<Literal>()
                .is_some_and(|literal| literal.value().is_null())
        });
        let form = if counts_nulls {
            AggregateForm::Values
        } else {
            form(name, &argument_types, arguments.is_some(), append_only)
        };
        // Of types with few values it is no sketch that DataFusion keeps, but which of them there are.
        let form = match form {
            AggregateForm::ApproxDistinct if !function.groups_accumulator_supported() => {
                AggregateForm::Values
            }
            other => other,
        };
        let reducer = reducer_of(function.fun());
        let keeps_state = |reducer: &&Arc<dyn Reducer>| {
            reducer.is_incremental()
                && (append_only || reducer.retracts())
                && arguments.is_some()
                && !is_distinct
                && order_by.is_empty()
        };
        let form = match reducer.filter(keeps_state) {
            Some(reducer) => AggregateForm::Reducer {
                append_only: append_only && reducer.merges(),
            },
            None if reducer.is_some_and(|reducer| reducer.is_timed())
                && matches!(self.options.emit, Emit::Every(_)) =>
            {
                return Err(PlanError::NotIncremental {
                    construct: format!("{}, which has a timer,", function.fun().name()),
                    hint: Some(
                        "Its state must be kept: over rows that only arrive, or with retract, and without DISTINCT and ORDER BY."
                            .to_owned(),
                    ),
                });
            }
            None => form,
        };
        // What no accumulator can be made for (DISTINCT with ORDER BY something else) is said now and not by the view.
        if form == AggregateForm::Values
            && let Err(error) = function.create_accumulator()
        {
            return Err(PlanError::NotIncremental {
                construct: format!("this form of {}", function.fun().name()),
                hint: Some(error.strip_backtrace()),
            });
        }
        // DISTINCT changes nothing for these.
        let distinct = is_distinct && !matches!(name, "min" | "max" | "bool_and" | "bool_or");
        let is_argument = |column: &usize| {
            arguments
                .as_ref()
                .is_none_or(|arguments| arguments.contains(column))
        };
        if distinct && !order_by.iter().all(|(column, _)| is_argument(column)) {
            return Err(PlanError::DataFusion(DataFusionError::Plan(
                "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list".into(),
            )));
        }
        Ok(AggregateCall {
            form,
            input_schema: Arc::clone(schema),
            arguments: arguments.unwrap_or_default(),
            filter,
            distinct,
            order_by,
            function,
        })
    }
}

/// Whether a call has DISTINCT, and the call without it.
fn without_distinct(call: &Expr) -> (bool, Expr) {
    match call {
        Expr::AggregateFunction(function) if function.params.distinct => {
            let mut function = function.clone();
            function.params.distinct = false;
            (true, Expr::AggregateFunction(function))
        }
        other => (false, other.clone()),
    }
}

/// The cheapest form in which an aggregate can be maintained.
fn form(name: &str, types: &[DataType], arguments_are_columns: bool, append_only: bool) -> AggregateForm {
    use AggregateForm::*;
    if name == "count" && types.len() == 1 {
        return Count;
    }
    if !arguments_are_columns || types.len() != 1 {
        return Values;
    }
    let summable = matches!(
        types[0],
        DataType::Int64 | DataType::UInt64 | DataType::Float64 | DataType::Decimal128(_, _)
    );
    match name {
        "sum" if summable => Sum,
        "avg" if matches!(types[0], DataType::Float64 | DataType::Decimal128(_, _)) => Average,
        "var" | "var_samp" | "var_sample" if types[0] == DataType::Float64 => Variance { sample: true },
        "var_pop" | "var_population" if types[0] == DataType::Float64 => Variance { sample: false },
        "stddev" | "stddev_samp" if types[0] == DataType::Float64 => StandardDeviation { sample: true },
        "stddev_pop" if types[0] == DataType::Float64 => StandardDeviation { sample: false },
        "bool_and" if types[0] == DataType::Boolean => BoolAnd,
        "bool_or" if types[0] == DataType::Boolean => BoolOr,
        "min" if append_only => MinAppendOnly,
        "max" if append_only => MaxAppendOnly,
        "min" => Min,
        "max" => Max,
        "approx_distinct" if append_only => ApproxDistinct,
        _ => Values,
    }
}
