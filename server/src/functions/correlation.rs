//! `corr` by the mean and the deviations from it, also with GROUP BY.
//!
//! DataFusion's accumulator for groups takes differences of sums of squares. Of values that hardly differ nothing is left of
//! them but rounding, which may be negative: `corr` of a constant was NaN where PostgreSQL says NULL. Its accumulator for a
//! single group (Welford's) does not have that, so each group gets one.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::correlation::corr_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Signature};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Correlation(AggregateUDF);

/// The function.
pub fn udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Correlation(corr_udaf().as_ref().clone())))
}

impl AggregateUDFImpl for Correlation {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arg_types)
    }

    fn accumulator(&self, acc_args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.inner().accumulator(acc_args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.inner().state_fields(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.inner().documentation()
    }
}
