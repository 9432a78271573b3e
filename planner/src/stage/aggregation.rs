//! Grouping and aggregates: what both halves of GROUP BY and overlapping windows are told.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::closing::Closing;
use super::operator::Operator;
use super::origins::{Origin, Origins, type_name};
use super::words::{closes, flags, names, state_order};

/// Grouping and aggregates, for both halves.
#[derive(Debug, Clone)]
pub struct Aggregation {
    pub input: Operator,
    /// Columns `0..group_columns` of the input are the group key.
    pub group_columns: usize,
    pub calls: Vec<AggregateCall>,
    /// How the map stage's rows look to the reduce stage.
    pub exchange: ExchangeForm,
    pub input_append_only: bool,
    /// Groups to which nothing comes any more: they are forgotten.
    pub closes: Option<Closing>,
    /// Every so many microseconds the time is told to reducers, also where nothing came.
    pub timer: Option<i64>,
    pub schema: SchemaRef,
}

/// What the map stage of an aggregation sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeForm {
    /// One row a group: its key and the partial state of every aggregate.
    Partial,
    /// The rows themselves, equal ones consolidated into one with a weight: some aggregate has no partial form
    /// under deletion.
    Rows,
}

/// One aggregate of an aggregation.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    pub form: AggregateForm,
    /// Columns of the aggregation's input.
    pub input_schema: SchemaRef,
    /// Input columns of the arguments, if all are columns.
    pub arguments: Vec<usize>,
    /// Input column of the FILTER condition.
    pub filter: Option<usize>,
    pub distinct: bool,
    /// Input columns of ORDER BY inside the call, with direction.
    pub order_by: Vec<(usize, arrow::compute::SortOptions)>,
    /// DataFusion's own, for its types, and for its accumulator where the form is [`AggregateForm::Values`].
    pub function: Arc<AggregateFunctionExpr>,
}

/// How an aggregate is maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateForm {
    Count,
    Sum,
    Average,
    /// Population (`false`) or sample (`true`).
    Variance {
        sample: bool,
    },
    StandardDeviation {
        sample: bool,
    },
    BoolAnd,
    BoolOr,
    /// Minimum over rows that only arrive: the smallest so far.
    MinAppendOnly,
    MaxAppendOnly,
    /// An ordered multiset of values a group: the first or the last one is the answer.
    Min,
    Max,
    /// `approx_distinct` over rows that only arrive: the registers of a HyperLogLog sketch.
    ApproxDistinct,
    /// A reducer of a program's own: a state of its making. Over rows that only arrive it is begun where they do.
    Reducer {
        append_only: bool,
    },
    /// An ordered multiset of argument rows a group, fed to DataFusion's accumulator when the group is touched.
    Values,
}

impl AggregateForm {
    /// Whether partial states of this form merge without the values themselves.
    pub fn merges(self) -> bool {
        !matches!(
            self,
            AggregateForm::Min
                | AggregateForm::Max
                | AggregateForm::Reducer { append_only: false }
                | AggregateForm::Values
        )
    }
}

impl Aggregation {
    /// Its groups and calls, as EXPLAIN has them.
    pub(super) fn words(&self) -> String {
        let group: Vec<usize> = (0..self.group_columns).collect();
        let schema = &self.calls.first().map_or(&self.schema, |call| &call.input_schema);
        let calls: Vec<String> = self.calls.iter().map(call).collect();
        let form = if self.input_append_only {
            ", append-only input"
        } else {
            ""
        };
        format!(
            "group {}, calls [{}]{form}{}{}",
            names(schema, &group),
            calls.join(", "),
            closes(self.closes.as_ref()),
            self.timer.map_or(String::new(), |every| format!(
                ", timer {:?}",
                Duration::from_micros(every.unsigned_abs())
            ))
        )
    }

    /// How its state is told from others: its keys, its aggregates, and how they are kept.
    pub(crate) fn state_text(&self, input: &Origins) -> String {
        // Of partial states it is the map stage's input that says what a group column is.
        let exchange = match self.exchange {
            ExchangeForm::Partial => "partial",
            ExchangeForm::Rows => "rows",
        };
        let mut text = format!("of ({}), {exchange}", input.list(0..self.group_columns));
        for call in &self.calls {
            let _ = write!(text, ", {}", call_text(call));
        }
        flags(
            &mut text,
            &[
                (self.input_append_only, "append-only"),
                (self.closes.is_some(), "closes"),
            ],
        );
        if let Some(timer) = self.timer {
            let _ = write!(text, ", every {timer}");
        }
        text
    }

    /// The group columns are those of the input.
    pub(super) fn key_origins(&self, input: &[Origin]) -> Vec<Origin> {
        input[..self.group_columns.min(input.len())].to_vec()
    }
}

fn call(call: &AggregateCall) -> String {
    let form = match call.form {
        AggregateForm::Count if call.distinct => "set of values",
        AggregateForm::Count => "count",
        _ if call.distinct => "set of values",
        AggregateForm::Sum | AggregateForm::Average => "sum and count",
        AggregateForm::Variance { .. } | AggregateForm::StandardDeviation { .. } => "moments",
        AggregateForm::BoolAnd | AggregateForm::BoolOr => "counts",
        AggregateForm::MinAppendOnly | AggregateForm::MaxAppendOnly => "best value",
        AggregateForm::Min | AggregateForm::Max => "ordered values",
        AggregateForm::ApproxDistinct => "sketch",
        AggregateForm::Reducer { .. } => "state",
        AggregateForm::Values => "values",
    };
    format!("{}: {form}", call.function.name())
}

fn call_text(call: &AggregateCall) -> String {
    let form = match call.form {
        AggregateForm::Count => "count",
        AggregateForm::Sum => "sum",
        AggregateForm::Average => "average",
        AggregateForm::Variance { sample: true } => "sample variance",
        AggregateForm::Variance { sample: false } => "population variance",
        AggregateForm::StandardDeviation { sample: true } => "sample deviation",
        AggregateForm::StandardDeviation { sample: false } => "population deviation",
        AggregateForm::BoolAnd => "bool and",
        AggregateForm::BoolOr => "bool or",
        AggregateForm::MinAppendOnly => "min so far",
        AggregateForm::MaxAppendOnly => "max so far",
        AggregateForm::Min => "min",
        AggregateForm::Max => "max",
        AggregateForm::ApproxDistinct => "approximate distinct",
        AggregateForm::Reducer { append_only: true } => "reducer over arrivals",
        AggregateForm::Reducer { append_only: false } => "reducer",
        AggregateForm::Values => "values",
    };
    let arguments = call.function.expressions();
    let types = arguments
        .iter()
        .filter_map(|argument| argument.data_type(&call.input_schema).ok())
        .map(|data_type| type_name(&data_type));
    let mut text = format!(
        "{form} {}({}): {}",
        call.function.fun().name(),
        types.collect::<Vec<_>>().join(", "),
        type_name(call.function.field().data_type()),
    );
    if !call.order_by.is_empty() {
        let _ = write!(text, " order ({})", state_order(&call.order_by));
    }
    flags(
        &mut text,
        &[(call.distinct, "distinct"), (call.filter.is_some(), "filtered")],
    );
    text
}
