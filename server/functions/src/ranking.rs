//! `row_number()`, `rank()`, `dense_rank()` and `ntile(n)` with the types that PostgreSQL gives them: DataFusion counts with
//! unsigned numbers, which PostgreSQL has not. `lag` and `lead` whose default is wider than their values: of the default's type.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, Volatility, WindowUDF,
    WindowUDFImpl,
};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::scalar::ScalarValue;

/// The functions.
pub fn udwfs() -> Vec<Arc<WindowUDF>> {
    use datafusion::functions_window::{lead_lag, ntile, rank, row_number};
    let signed = |inner: Arc<WindowUDF>, target| Arc::new(WindowUDF::from(Signed { inner, target }));
    vec![
        signed(row_number::row_number_udwf(), DataType::Int64),
        signed(rank::rank_udwf(), DataType::Int64),
        signed(rank::dense_rank_udwf(), DataType::Int64),
        signed(ntile::ntile_udwf(), DataType::Int32),
        Arc::new(WindowUDF::from(Shifted::new(lead_lag::lag_udwf()))),
        Arc::new(WindowUDF::from(Shifted::new(lead_lag::lead_udwf()))),
    ]
}

/// A window function whose answers are cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    inner: Arc<WindowUDF>,
    target: DataType,
}

impl WindowUDFImpl for Signed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(Cast {
            inner: self.inner.partition_evaluator_factory(args)?,
            target: self.target.clone(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.inner.field(args)?;
        Ok(Arc::new(
            field.as_ref().clone().with_data_type(self.target.clone()),
        ))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        ReversedUDWF::NotSupported
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

/// `lag` or `lead`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shifted {
    inner: Arc<WindowUDF>,
    signature: Signature,
}

impl Shifted {
    fn new(inner: Arc<WindowUDF>) -> Shifted {
        Shifted {
            inner,
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl WindowUDFImpl for Shifted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let mut types = types.to_vec();
        match types.as_mut_slice() {
            [_] | [_, _] => {}
            // A number without a point is of the values' type, whatever it is.
            [value, _, default] if !default.is_integer() => {
                if let Some(common) = comparison_coercion(value, default) {
                    (*value, *default) = (common.clone(), common);
                }
            }
            [_, _, _] => {}
            _ => {
                return plan_err!(
                    "function {} with {} arguments does not exist",
                    self.name(),
                    types.len()
                );
            }
        }
        Ok(types)
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        self.inner.partition_evaluator_factory(args)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        self.inner.reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct Cast {
    inner: Box<dyn PartitionEvaluator>,
    target: DataType,
}

impl PartitionEvaluator for Cast {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let numbers = self.inner.evaluate_all(values, rows)?;
        Ok(arrow::compute::cast(&numbers, &self.target)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.target)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        let numbers = self.inner.evaluate_all_with_rank(rows, ranks)?;
        Ok(arrow::compute::cast(&numbers, &self.target)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
