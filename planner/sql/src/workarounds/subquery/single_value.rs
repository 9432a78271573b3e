//! The value of a subquery that is used as an expression: an aggregate that fails over more than one row.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

/// What a subquery with several rows is answered with; the same words as PostgreSQL's.
const TOO_MANY: &str = "more than one row returned by a subquery used as an expression";

static SINGLE_VALUE: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::from(SingleValue::new())));

/// `single_value(x)`: NULL over no rows, the value over one, an error over more.
pub(super) fn single_value(argument: Expr) -> Expr {
    SINGLE_VALUE.call(vec![argument])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl SingleValue {
    fn new() -> Self {
        SingleValue {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &'static str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, argument_types: &[DataType]) -> Result<DataType> {
        Ok(argument_types[0].clone())
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        let field = Field::new(self.name(), arguments[0].data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(arguments[0].metadata().clone())))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new("value", arguments.return_type().clone(), true)),
            Arc::new(Field::new("rows", DataType::Int64, false)),
        ])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Single {
            value: ScalarValue::try_from(arguments.return_field.data_type())?,
            rows: 0,
        }))
    }
}

/// The first value, and how many there were.
#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: i64,
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = &values[0];
        if self.rows == 0 && !values.is_empty() {
            self.value = ScalarValue::try_from_array(values, 0)?;
        }
        self.rows += values.len() as i64;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.rows > 1 {
            return Err(DataFusionError::Execution(TOO_MANY.into()));
        }
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Int64(Some(self.rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let counts: &Int64Array = states[1].as_primitive::<Int64Type>();
        for row in 0..counts.len() {
            if self.rows == 0 && counts.value(row) > 0 {
                self.value = ScalarValue::try_from_array(&states[0], row)?;
            }
            self.rows += counts.value(row);
        }
        Ok(())
    }
}
