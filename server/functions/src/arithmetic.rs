//! Operators as PostgreSQL has them: integers that fail on overflow, division, and literals beside typed expressions.
//!
//! DataFusion's integer operators wrap around, and its floats become infinities. An expression planner puts functions in their
//! place wherever both sides are integers or floats, gives divisions of floats and numerics to [`division`], reads quoted literals by the type of the other side,
//! and takes integer literals for what they are: `integer` where they fit. The rest keeps DataFusion's operators.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Datum, Float64Array, Scalar};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DECIMAL128_MAX_SCALE, DataType, Field, FieldRef, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    lit,
};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types::{self, ANNOTATION, is_text, sql_name};
use millrace_sql::times;
use millrace_sql::workarounds::case_type::agreed;

use crate::digits::range;
use crate::quoted::{is_number, narrowed, read_beside};
use crate::{cast, division, names};

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

    fn name(self, of: Numbers) -> &'static str {
        match (of, self) {
            (Numbers::Integers, Operation::Add) => "int_add",
            (Numbers::Integers, Operation::Subtract) => "int_subtract",
            (Numbers::Integers, Operation::Multiply) => "int_multiply",
            (Numbers::Floats, Operation::Add) => "float_add",
            (Numbers::Floats, Operation::Subtract) => "float_subtract",
            (Numbers::Floats, Operation::Multiply) => "float_multiply",
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

/// What is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Numbers {
    Integers,
    Floats,
}

impl Numbers {
    /// What two types are, if they are of one kind.
    fn of(left: &DataType, right: &DataType) -> Option<Self> {
        if wider(left, right).is_some() {
            return Some(Numbers::Integers);
        }
        wider_float(left, right).map(|_| Numbers::Floats)
    }

    /// The type of the outcome.
    fn output(self, left: &DataType, right: &DataType) -> Option<DataType> {
        match self {
            Numbers::Integers => wider(left, right),
            Numbers::Floats => wider_float(left, right),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    numbers: Numbers,
    signature: Signature,
}

const OPERATIONS: [(Operation, Numbers); 6] = [
    (Operation::Add, Numbers::Integers),
    (Operation::Subtract, Numbers::Integers),
    (Operation::Multiply, Numbers::Integers),
    (Operation::Add, Numbers::Floats),
    (Operation::Subtract, Numbers::Floats),
    (Operation::Multiply, Numbers::Floats),
];

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    OPERATIONS
        .into_iter()
        .map(|(operation, numbers)| udf(operation, numbers))
        .chain([division::udf()])
        .collect()
}

/// The negative of an integer expression, which is out of range for the least there is; DataFusion gives that one back.
pub(crate) fn negative(value: Expr, of: &DataType) -> Result<Expr> {
    let zero = Expr::Literal(ScalarValue::new_zero(of)?, None);
    Ok(udf(Operation::Subtract, Numbers::Integers).call(vec![zero, value]))
}

fn udf(operation: Operation, numbers: Numbers) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Checked {
        operation,
        numbers,
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

/// The wider of two floats; a `real` beside a `real` stays one.
fn wider_float(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (DataType::Float32, DataType::Float32) => Some(DataType::Float32),
        (DataType::Float32 | DataType::Float64, DataType::Float32 | DataType::Float64) => {
            Some(DataType::Float64)
        }
        _ => None,
    }
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
        self.operation.name(self.numbers)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        names::called(self.name(), args)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [left, right] => self
                .numbers
                .output(left, right)
                .ok_or_else(|| exec_datafusion_err!("{} does not take {left} and {right}", self.name())),
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
            (false, false) | (true, true) => apply(&left, &right),
            (false, true) => apply(&left, &Scalar::new(Arc::clone(&right))),
            (true, false) => apply(&Scalar::new(Arc::clone(&left)), &right),
        };
        let out = out.map_err(|error| overflow(error, target))?;
        if self.numbers == Numbers::Floats {
            let is_product = self.operation == Operation::Multiply;
            check_floats(&out, (&left, left_scalar), (&right, right_scalar), is_product)?;
        }
        Ok(match left_scalar && right_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&out, 0)?),
            false => ColumnarValue::Array(out),
        })
    }
}

/// Refuses infinities of finite numbers, and products that have become zero. `bool`: one value stands for all rows.
fn check_floats(
    out: &ArrayRef,
    left: (&ArrayRef, bool),
    right: (&ArrayRef, bool),
    is_product: bool,
) -> Result<()> {
    let side = |(values, is_scalar): (&ArrayRef, bool)| -> Result<(Float64Array, bool)> {
        let wide = arrow::compute::cast(values, &DataType::Float64)?;
        Ok((wide.as_primitive::<Float64Type>().clone(), is_scalar))
    };
    let is_odd = |value: f64| value.is_infinite() || is_product && value == 0.0;
    let has_odd = match out.data_type() {
        DataType::Float32 => {
            let values = out.as_primitive::<Float32Type>().values();
            values.iter().any(|value| is_odd(f64::from(*value)))
        }
        _ => out
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .any(|value| is_odd(*value)),
    };
    if !has_odd {
        return Ok(());
    }
    let ((out, _), left, right) = (side((out, false))?, side(left)?, side(right)?);
    let of_row = |(values, is_scalar): &(Float64Array, bool), row: usize| {
        values.value(if *is_scalar { 0 } else { row })
    };
    for row in (0..out.len()).filter(|row| out.is_valid(*row)) {
        let (value, left, right) = (out.value(row), of_row(&left, row), of_row(&right, row));
        if value.is_infinite() && left.is_finite() && right.is_finite() {
            return Err(range("overflow").into());
        }
        if is_product && value == 0.0 && left != 0.0 && right != 0.0 {
            return Err(range("underflow").into());
        }
    }
    Ok(())
}

/// The kernels do not say of which type the value was to be.
fn overflow(error: ArrowError, target: &DataType) -> datafusion::error::DataFusionError {
    match error {
        ArrowError::ArithmeticOverflow(_) => {
            let name = millrace_postgres::types::type_name(&Field::new("", target.clone(), true));
            millrace_postgres::error::SqlError::new(
                millrace_postgres::error::SqlState::NumericValueOutOfRange,
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
    functions: [(Operation, Numbers, Arc<ScalarUDF>); 6],
    divide: Arc<ScalarUDF>,
}

impl Default for CheckedIntegers {
    fn default() -> Self {
        let with_function = |(operation, numbers)| (operation, numbers, udf(operation, numbers));
        CheckedIntegers {
            functions: OPERATIONS.map(with_function),
            divide: division::udf(),
        }
    }
}

impl ExprPlanner for CheckedIntegers {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        expr.left = agreed(expr.left, schema)?.data;
        expr.right = agreed(expr.right, schema)?.data;
        if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(expr));
        }
        // What has no type yet is a parameter: the operator infers it. DataFusion names all of an expression to say its type: of a
        // long chain of operators that takes long, so it is asked once.
        let (Ok((_, mut left)), Ok((_, mut right))) =
            (expr.left.to_field(schema), expr.right.to_field(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let arithmetic = is_arithmetic(&expr.op);
        if arithmetic {
            signed(&mut expr.left, &mut left, schema)?;
            signed(&mut expr.right, &mut right, schema)?;
        }
        let is_bytes = |field: &Field| field.data_type() == &DataType::Binary;
        let joins_bytes = expr.op == BinaryOperator::StringConcat && (is_bytes(&left) || is_bytes(&right));
        if arithmetic || is_comparison(&expr.op) || joins_bytes {
            if let Some(literal) = read_beside(&expr.left, &mut expr.right, &mut right)? {
                (_, left) = literal.to_field(schema)?;
                expr.left = literal;
            } else if let Some(literal) = read_beside(&expr.right, &mut expr.left, &mut left)? {
                (_, right) = literal.to_field(schema)?;
                expr.right = literal;
            }
        }
        if !arithmetic {
            if is_comparison(&expr.op) {
                (expr.left, expr.right) = comparable(expr.left, expr.right, schema)?;
            }
            return Ok(PlannerResult::Original(expr));
        }
        let foreign = |data_type: &DataType| is_number(data_type) || data_type == &DataType::Boolean;
        if foreign(left.data_type()) && foreign(right.data_type()) {
            expr.left = narrowed(expr.left);
            expr.right = narrowed(expr.right);
        }
        let widened = |expr: &mut Expr, own: &FieldRef, other: &Field| -> Result<FieldRef> {
            // A `real` beside another number is a `double precision`.
            let is_real = |field: &Field| field.data_type() == &DataType::Float32;
            if is_real(own) && !is_real(other) && is_number(other.data_type()) {
                return cast_in_place(expr, own, &DataType::Float64, schema);
            }
            // It may be another than it was.
            match expr {
                Expr::Literal(..) => Ok(expr.to_field(schema)?.1),
                _ => Ok(Arc::clone(own)),
            }
        };
        let (left, right) = (
            widened(&mut expr.left, &left, &right)?,
            widened(&mut expr.right, &right, &left)?,
        );
        if !defined(&left, &expr.op, &right) {
            let error = SqlError::new(
                SqlState::UndefinedFunction,
                format!(
                    "operator does not exist: {} {} {}",
                    types::plain_name(&left),
                    expr.op,
                    types::plain_name(&right)
                ),
            );
            return Err(error
                .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
                .into());
        }
        let (left, right) = (left.data_type().clone(), right.data_type().clone());
        if expr.op == BinaryOperator::Divide && division::quotient(&left, &right).is_some() {
            return Ok(PlannerResult::Planned(
                self.divide.call(vec![expr.left, expr.right]),
            ));
        }
        if let (BinaryOperator::Multiply, DataType::Decimal128(_, one), DataType::Decimal128(_, other)) =
            (&expr.op, &left, &right)
            && one.saturating_add(*other) > DECIMAL128_MAX_SCALE
        {
            return Err(SqlError::new(
                SqlState::NumericValueOutOfRange,
                "value overflows numeric format",
            )
            .with_detail(format!(
                "The product has {} digits after the point, and a numeric has at most {DECIMAL128_MAX_SCALE}.",
                i32::from(*one) + i32::from(*other)
            ))
            .with_hint("Cast a factor to numeric(p, s) with fewer digits after the point.")
            .into());
        }
        let is_float = |data_type: &DataType| matches!(data_type, DataType::Float32 | DataType::Float64);
        // An integer or a numeric beside a `double precision` is one.
        let mut numbers = Numbers::of(&left, &right);
        if numbers.is_none() && is_number(&left) && is_number(&right) {
            if is_float(&left) {
                expr.right = expr.right.cast_to(&DataType::Float64, schema)?;
                numbers = Some(Numbers::Floats);
            } else if is_float(&right) {
                expr.left = expr.left.cast_to(&DataType::Float64, schema)?;
                numbers = Some(Numbers::Floats);
            }
        }
        let (Some(operation), Some(numbers)) = (Operation::of(&expr.op), numbers) else {
            return Ok(PlannerResult::Original(expr));
        };
        let (.., function) = self
            .functions
            .iter()
            .find(|(known, of, _)| *known == operation && *of == numbers)
            .expect("there is a function for every operation");
        Ok(PlannerResult::Planned(function.call(vec![expr.left, expr.right])))
    }
}

/// The sides of a comparison in the type in which PostgreSQL compares them, where DataFusion has another: numerics beside floats are
/// floats, dates beside timestamps are timestamps of microseconds.
///
/// # Errors
/// A cast is not possible.
pub(crate) fn comparable(left: Expr, right: Expr, schema: &DFSchema) -> Result<(Expr, Expr)> {
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok((left, right));
    };
    let Some(common) = compared_as(&left_type, &right_type) else {
        return Ok((left, right));
    };
    let cast = |expr: Expr, own: DataType| {
        if own == common {
            Ok(expr)
        } else if times::converts(&own, &common)
            && !matches!(expr, Expr::Literal(..))
            && !cast::reads_clock(&expr)?
        {
            // It may be infinite.
            let target = sql_name(&Field::new("", common.clone(), true));
            Ok(cast::udf().call(vec![expr, lit(target)]))
        } else {
            expr.cast_to(&common, schema)
        }
    };
    Ok((cast(left, left_type)?, cast(right, right_type)?))
}

/// The type in which values of two types are compared; `None`: DataFusion's choice.
fn compared_as(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Date32, Decimal128, Float32, Float64, Int16, Int32, Int64, Timestamp};
    match (left, right) {
        (Float32 | Float64, Decimal128(..) | Int16 | Int32 | Int64)
        | (Decimal128(..) | Int16 | Int32 | Int64, Float32 | Float64) => Some(Float64),
        (Date32, Timestamp(unit, zone)) | (Timestamp(unit, zone), Date32) => {
            Some(Timestamp(*unit, zone.clone()))
        }
        (Timestamp(unit, zone @ Some(_)), Timestamp(_, None))
        | (Timestamp(_, None), Timestamp(unit, zone @ Some(_))) => Some(Timestamp(*unit, zone.clone())),
        _ => None,
    }
}

fn is_arithmetic(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{
        BitwiseAnd, BitwiseOr, Divide, Minus, Modulo, Multiply, PGBitwiseShiftLeft, PGBitwiseShiftRight,
        PGBitwiseXor, Plus,
    };
    matches!(
        operator,
        Plus | Minus
            | Multiply
            | Divide
            | Modulo
            | BitwiseAnd
            | BitwiseOr
            | PGBitwiseXor
            | PGBitwiseShiftLeft
            | PGBitwiseShiftRight
    )
}

fn is_comparison(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether there may be an arithmetic operator: not between a number and a text, or with booleans, nor a sum of two times.
/// What carries an annotation has operators of its own.
fn defined(left: &Field, operator: &BinaryOperator, right: &Field) -> bool {
    let is_time = |field: &Field| matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32);
    if is_time(left) && is_time(right) && operator != &BinaryOperator::Minus {
        return false;
    }
    let foreign = |field: &Field| {
        (is_text(field.data_type()) || field.data_type() == &DataType::Boolean)
            && !field.metadata().contains_key(ANNOTATION)
    };
    let plain = |field: &Field| is_number(field.data_type()) || foreign(field);
    !(plain(left) && plain(right) && (foreign(left) || foreign(right)))
}

/// What counts rows (`row_number()`, `rank()`) is unsigned in DataFusion and a `bigint` in PostgreSQL.
fn signed(expr: &mut Expr, field: &mut FieldRef, schema: &DFSchema) -> Result<()> {
    if field.data_type() == &DataType::UInt64 {
        *field = cast_in_place(expr, field, &DataType::Int64, schema)?;
    }
    Ok(())
}

/// Casts an expression whose field is known, and says what its field is then.
fn cast_in_place(expr: &mut Expr, field: &Field, to: &DataType, schema: &DFSchema) -> Result<FieldRef> {
    *expr = std::mem::take(expr).cast_to(to, schema)?;
    Ok(Arc::new(field.clone().with_data_type(to.clone())))
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
