//! `row_number()`, `rank()`, `dense_rank()` and `ntile(n)` with the types that PostgreSQL gives them: DataFusion counts with
//! unsigned numbers, which PostgreSQL has not.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, new_null_array};
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};

/// The functions.
pub fn udwfs() -> Vec<Arc<WindowUDF>> {
    use datafusion::functions_window::{ntile, rank, row_number};
    let signed = |inner: Arc<WindowUDF>, target| Arc::new(WindowUDF::from(Signed { inner, target }));
    vec![
        signed(row_number::row_number_udwf(), DataType::Int64),
        signed(rank::rank_udwf(), DataType::Int64),
        signed(rank::dense_rank_udwf(), DataType::Int64),
        signed(ntile::ntile_udwf(), DataType::Int32),
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
        match is_of_rows(args.input_exprs()) {
            true => args.input_exprs().to_vec(),
            false => self.inner.expressions(args),
        }
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> Result<Box<dyn PartitionEvaluator>> {
        if is_of_rows(args.input_exprs()) {
            return Ok(Box::new(Tiles));
        }
        Ok(Box::new(Cast {
            inner: self.inner.partition_evaluator_factory(args)?,
            target: self.target.clone(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        // `ntile` of NULL is NULL.
        let is_nullable = args.input_fields().iter().any(|field| field.is_nullable());
        let field = self.inner.field(args)?;
        let field = field.as_ref().clone().with_data_type(self.target.clone());
        let is_nullable = is_nullable || field.is_nullable();
        Ok(Arc::new(field.with_nullable(is_nullable)))
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

/// Whether the number of parts is NULL, or computed from rows: DataFusion takes numbers alone.
fn is_of_rows(arguments: &[Arc<dyn PhysicalExpr>]) -> bool {
    arguments.iter().any(|argument| {
        argument
            .downcast_ref::<Literal>()
            .is_none_or(|literal| literal.value().is_null())
    })
}

/// `ntile(n)` with the number that the first row has.
#[derive(Debug)]
struct Tiles;

impl PartitionEvaluator for Tiles {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some(given) = values.first() else {
            return plan_err!("ntile takes the number of parts");
        };
        let given = arrow::compute::cast(given, &DataType::Int64)?;
        let given = given.as_primitive::<Int64Type>();
        if rows == 0 || given.is_null(0) {
            return Ok(new_null_array(&DataType::Int32, rows));
        }
        let parts = usize::try_from(given.value(0)).unwrap_or_default();
        if parts == 0 {
            return Err(SqlError::new(
                SqlState::InvalidArgumentForNtile,
                "argument of ntile must be greater than zero",
            )
            .into());
        }
        // The first parts have a row more.
        let (each, longer) = (rows / parts, rows % parts);
        let part = |row: usize| match row < longer * (each + 1) {
            true => row / (each + 1),
            false => longer + (row - longer * (each + 1)) / each,
        };
        let numbers = (0..rows).map(|row| i32::try_from(part(row) + 1).unwrap_or(i32::MAX));
        Ok(Arc::new(Int32Array::from_iter_values(numbers)))
    }
}
