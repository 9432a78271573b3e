//! Integer `+`, `-` and `*` that fail on overflow, as PostgreSQL's do.
//!
//! DataFusion's operators wrap around. An expression planner puts these functions in their place wherever both sides are
//! integers; everything else keeps DataFusion's operators.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Datum, Scalar};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
}

impl Operation {
    fn of(operator: &BinaryOperator) -> Option<Self> {
        match operator {
            BinaryOperator::Plus => Some(Operation::Add),
            BinaryOperator::Minus => Some(Operation::Subtract),
            BinaryOperator::Multiply => Some(Operation::Multiply),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Operation::Add => "int_add",
            Operation::Subtract => "int_subtract",
            Operation::Multiply => "int_multiply",
        }
    }

    fn apply(self, left: &dyn Datum, right: &dyn Datum) -> std::result::Result<ArrayRef, ArrowError> {
        match self {
            Operation::Add => add(left, right),
            Operation::Subtract => sub(left, right),
            Operation::Multiply => mul(left, right),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    [Operation::Add, Operation::Subtract, Operation::Multiply]
        .into_iter()
        .map(udf)
        .collect()
}

fn udf(operation: Operation) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Checked {
        operation,
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

/// The type of the outcome: the wider of the two.
fn wider(left: &DataType, right: &DataType) -> Option<DataType> {
    let width = |data_type: &DataType| match data_type {
        DataType::Int16 => Some(16),
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        _ => None,
    };
    let (left_width, right_width) = (width(left)?, width(right)?);
    Some(if left_width >= right_width {
        left.clone()
    } else {
        right.clone()
    })
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] => wider(left, right).ok_or_else(|| {
                exec_datafusion_err!("{} takes two integers, not {left} and {right}", self.name())
            }),
            _ => Err(exec_datafusion_err!("{} takes two arguments", self.name())),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let target = args.return_field.data_type();
        let side = |value: &ColumnarValue| -> Result<(ArrayRef, bool)> {
            let (array, is_scalar) = match value {
                ColumnarValue::Array(array) => (Arc::clone(array), false),
                ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
            };
            let array = if array.data_type() == target {
                array
            } else {
                arrow::compute::cast(&array, target)?
            };
            Ok((array, is_scalar))
        };
        let [left, right] = args.args.as_slice() else {
            return Err(exec_datafusion_err!("{} takes two arguments", self.name()));
        };
        let ((left, left_scalar), (right, right_scalar)) = (side(left)?, side(right)?);
        let apply = |left: &dyn Datum, right: &dyn Datum| self.operation.apply(left, right);
        let out = match (left_scalar, right_scalar) {
            (false, false) => apply(&left, &right),
            (false, true) => apply(&left, &Scalar::new(right)),
            (true, false) => apply(&Scalar::new(left), &right),
            (true, true) => {
                let out = apply(&left, &right).map_err(|error| overflow(error, target))?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?));
            }
        };
        Ok(ColumnarValue::Array(
            out.map_err(|error| overflow(error, target))?,
        ))
    }
}

/// The kernels do not say of which type the value was to be.
fn overflow(error: ArrowError, target: &DataType) -> datafusion::error::DataFusionError {
    match error {
        ArrowError::ArithmeticOverflow(_) => {
            let name = crate::types::type_name(&arrow::datatypes::Field::new("", target.clone(), true));
            crate::error::SqlError::new(
                crate::error::SqlState::NumericValueOutOfRange,
                format!("{name} out of range"),
            )
            .into()
        }
        other => other.into(),
    }
}

/// Puts the functions in the place of the operators.
#[derive(Debug)]
pub struct CheckedIntegers {
    functions: [(Operation, Arc<ScalarUDF>); 3],
}

impl Default for CheckedIntegers {
    fn default() -> Self {
        let with_function = |operation| (operation, udf(operation));
        CheckedIntegers {
            functions: [Operation::Add, Operation::Subtract, Operation::Multiply].map(with_function),
        }
    }
}

impl ExprPlanner for CheckedIntegers {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let Some(operation) = Operation::of(&expr.op) else {
            return Ok(PlannerResult::Original(expr));
        };
        // What has no type yet is a parameter: the operator infers it.
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if wider(&left, &right).is_none() {
            return Ok(PlannerResult::Original(expr));
        }
        let (_, function) = self
            .functions
            .iter()
            .find(|(known, _)| *known == operation)
            .expect("there is a function for every operation");
        Ok(PlannerResult::Planned(function.call(vec![expr.left, expr.right])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int32Array;

    #[test]
    fn the_wider_type_wins() {
        assert_eq!(wider(&DataType::Int16, &DataType::Int64), Some(DataType::Int64));
        assert_eq!(wider(&DataType::Int32, &DataType::Int16), Some(DataType::Int32));
        assert_eq!(wider(&DataType::Int32, &DataType::Float64), None);
    }

    #[test]
    fn overflow_is_an_error() {
        let most: ArrayRef = Arc::new(Int32Array::from(vec![1, i32::MAX]));
        assert!(
            Operation::Add
                .apply(&most, &Scalar::new(Int32Array::from(vec![1])))
                .is_err()
        );
        assert!(
            Operation::Subtract
                .apply(&most, &Scalar::new(Int32Array::from(vec![1])))
                .is_ok()
        );
        assert!(Operation::Multiply.apply(&most, &most).is_err());
    }
}
