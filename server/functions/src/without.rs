//! DataFusion's aggregates without a part of theirs that answers wrongly.
//!
//! * `array_agg` and `string_agg` are never turned around. Where two aggregates of a query want opposite orders, DataFusion
//!   sorts once and has one of them read from the other end. With DISTINCT these two then put their values out in the wrong
//!   order: `array_agg(x ORDER BY x DESC), array_agg(DISTINCT x ORDER BY x)` gave both in the first one's. Without a reverse
//!   each sorts for itself, also where the rows come in some order: of `array_agg(x ORDER BY x DESC)` over ascending rows DataFusion said
//!   that they need no sorting. Their values have limits too ([`aggregates`]).
//! * `min` and `max` of floats have an accumulator for each group. The one for all groups compares so that NaN is neither less nor greater
//!   than a number: whether it was the answer depended on the order of the rows.
//! * `corr` has an accumulator for each group. The one for all groups takes differences of sums of squares. Of values that
//!   hardly differ nothing is left of them but rounding, which may be negative: `corr` of a constant was NaN where PostgreSQL
//!   says NULL. The one for a single group (Welford's) does not have that.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::{array_agg, correlation, min_max, string_agg};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion::scalar::ScalarValue;

use super::bounded::{MemoryBudget, aggregates};

/// What an aggregate goes without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LeftOut {
    Reverse,
    GroupsAccumulator,
    /// The accumulator for all groups, of floats.
    GroupsOfFloats,
}

#[derive(Debug)]
struct Without {
    function: AggregateUDF,
    left_out: LeftOut,
    budget: MemoryBudget,
}

impl PartialEq for Without {
    fn eq(&self, other: &Without) -> bool {
        self.function == other.function && self.left_out == other.left_out
    }
}

impl Eq for Without {}

impl Hash for Without {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
        self.left_out.hash(state);
    }
}

/// The functions. Those whose values grow take memory from the budget.
pub fn udafs(budget: &MemoryBudget) -> Vec<Arc<AggregateUDF>> {
    [
        (array_agg::array_agg_udaf(), LeftOut::Reverse),
        (string_agg::string_agg_udaf(), LeftOut::Reverse),
        (correlation::corr_udaf(), LeftOut::GroupsAccumulator),
        (min_max::min_udaf(), LeftOut::GroupsOfFloats),
        (min_max::max_udaf(), LeftOut::GroupsOfFloats),
    ]
    .into_iter()
    .map(|(function, left_out)| {
        let function = Without {
            function: function.as_ref().clone(),
            left_out,
            budget: budget.clone(),
        };
        Arc::new(AggregateUDF::from(function))
    })
    .collect()
}

impl Without {
    /// The name of one whose values grow with the rows.
    fn grown(&self) -> &'static str {
        match self.function.name() {
            "string_agg" => "string_agg",
            _ => "array_agg",
        }
    }
}

impl AggregateUDFImpl for Without {
    fn reverse_expr(&self) -> ReversedUDAF {
        match self.left_out {
            LeftOut::Reverse => ReversedUDAF::NotSupported,
            LeftOut::GroupsAccumulator | LeftOut::GroupsOfFloats => self.function.inner().reverse_expr(),
        }
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        // Of one that cannot be turned around DataFusion says that it benefits from the opposite order, too.
        let benefits = beneficial_ordering && self.left_out != LeftOut::Reverse;
        let ordered = self.function.clone().with_beneficial_ordering(benefits)?;
        let without = |function| Without {
            function,
            left_out: self.left_out,
            budget: self.budget.clone(),
        };
        Ok(ordered.map(|ordered| Arc::new(without(ordered)) as Arc<dyn AggregateUDFImpl>))
    }

    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.inner().return_type(arg_types)
    }

    fn return_field(&self, arg_fields: &[FieldRef]) -> Result<FieldRef> {
        self.function.inner().return_field(arg_fields)
    }

    fn accumulator(&self, acc_args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let accumulator = self.function.inner().accumulator(acc_args)?;
        Ok(match self.left_out {
            LeftOut::Reverse => aggregates::of_one_group(self.grown(), accumulator, self.budget.clone()),
            LeftOut::GroupsAccumulator | LeftOut::GroupsOfFloats => accumulator,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.function.inner().state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        let is_left_out = match self.left_out {
            LeftOut::Reverse => false,
            LeftOut::GroupsAccumulator => true,
            LeftOut::GroupsOfFloats => args.return_field.data_type().is_floating(),
        };
        !is_left_out && self.function.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let accumulator = self.function.inner().create_groups_accumulator(args)?;
        Ok(match self.left_out {
            LeftOut::Reverse => aggregates::of_all_groups(self.grown(), accumulator, self.budget.clone()),
            LeftOut::GroupsAccumulator | LeftOut::GroupsOfFloats => accumulator,
        })
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.function.inner().order_sensitivity()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.inner().coerce_types(arg_types)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match self.left_out {
            LeftOut::Reverse => self.accumulator(args),
            _ => self.function.inner().create_sliding_accumulator(args),
        }
    }

    fn is_descending(&self) -> Option<bool> {
        self.function.inner().is_descending()
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        self.function.inner().value_from_stats(statistics)
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.function.inner().set_monotonicity(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function.inner().supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.inner().documentation()
    }
}
