//! `avg`: that of numerics is [`crate::numeric_average`]'s, that of intervals [`crate::interval_sum`]'s, and that of floats over frames
//! that move [`crate::float_frames`]'; everything else is DataFusion's, under the same name.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, GroupsAccumulator, ReversedUDAF, Signature,
    TypeSignature, TypeSignatureClass, Volatility,
};

use crate::float_frames::over_frame;
use crate::interval_sum::{self, is_interval};
use crate::numeric_average::{Averages, OneAverage, average_type, state_fields};

/// `avg`.
pub fn udaf() -> Arc<AggregateUDF> {
    let inner = avg_udaf();
    let interval = Coercion::new_exact(TypeSignatureClass::Interval);
    let signatures = vec![
        TypeSignature::Coercible(vec![interval]),
        inner.signature().type_signature.clone(),
    ];
    Arc::new(AggregateUDF::from(Average {
        inner,
        signature: Signature::one_of(signatures, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(interval @ DataType::Interval(_)) => Ok(interval.clone()),
            Some(of) => average_type(of).map_or_else(|| self.inner.return_type(arg_types), Ok),
            None => self.inner.return_type(arg_types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match of_numerics(&args)? {
            Some(averages) => Ok(Box::new(OneAverage::of(averages))),
            None if is_interval(args.return_type()) => interval_sum::accumulator(&args, true),
            None => self.inner.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.input_fields.first().map(|field| field.data_type()) {
            Some(of @ DataType::Decimal128(..)) if !args.is_distinct => Ok(state_fields(args.name, of)),
            Some(DataType::Interval(_)) => Ok(interval_sum::state_fields(args.name)),
            _ => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_interval(args.return_type()) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match of_numerics(&args)? {
            Some(averages) => Ok(Box::new(averages)),
            None => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if let Some(averages) = of_numerics(&args)? {
            return Ok(Box::new(OneAverage::of(averages)));
        }
        if is_interval(args.return_type()) {
            return interval_sum::accumulator(&args, true);
        }
        match over_frame(&args, true) {
            Some(frame) => Ok(frame),
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }

    fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }
}

/// What averages numerics; `None`: they are something else, or each counts once.
fn of_numerics(args: &AccumulatorArgs) -> Result<Option<Averages>> {
    match args.exprs {
        [value] if !args.is_distinct => {
            let of = value.data_type(args.schema)?;
            Ok(Averages::of(&of, args.return_type()))
        }
        _ => Ok(None),
    }
}
