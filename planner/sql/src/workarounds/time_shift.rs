//! Times plus or minus lengths of time, and casts between dates and timestamps, as calls of functions.
//!
//! What DataFusion knows of the values of a time of day makes it add the length to their least and greatest, for which it has an
//! `unreachable!`. And Arrow adds to infinity as to any number, and casts it so, which is out of range then; PostgreSQL's infinity stays. (No issue was
//! found.) Only for queries that run once: of a view, the operator tells how its watermarks move.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::kernels::zip::zip;
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit, TimestampMicrosecondType};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr as PhysicalBinary, Column};
use datafusion::scalar::ScalarValue;

use super::nested_cast;
use crate::times;

/// The rule that puts the functions there.
#[derive(Debug)]
pub struct TimesAsCalls {
    later: Arc<ScalarUDF>,
    earlier: Arc<ScalarUDF>,
    cast: Arc<ScalarUDF>,
}

impl Default for TimesAsCalls {
    fn default() -> Self {
        let function = |operator| {
            let signature = Signature::any(2, Volatility::Immutable);
            Arc::new(ScalarUDF::from(Shift { operator, signature }))
        };
        TimesAsCalls {
            later: function(Operator::Plus),
            earlier: function(Operator::Minus),
            cast: nested_cast::function(),
        }
    }
}

impl OptimizerRule for TimesAsCalls {
    fn name(&self) -> &'static str {
        "times_as_calls"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let names = NamePreserver::new(&plan);
        let schema = merge_schema(&plan.inputs());
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|node| self.one(node, &schema))?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    }
}

impl TimesAsCalls {
    fn one(&self, node: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match node {
            Expr::Cast(Cast { expr, field })
                if (expr.get_type(schema)).is_ok_and(|from| times::converts(&from, field.data_type()))
                    && nested_cast::is_plain(&field)
                    && !nested_cast::reads_clock(&expr) =>
            {
                Ok(Transformed::yes(nested_cast::held(
                    &self.cast,
                    *expr,
                    field.data_type(),
                )?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::Plus | Operator::Minus) && is_shift(&left, op, &right, schema) =>
            {
                let function = match op {
                    Operator::Plus => &self.later,
                    _ => &self.earlier,
                };
                Ok(Transformed::yes(function.call(vec![*left, *right])))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn is_shift(left: &Expr, operator: Operator, right: &Expr, schema: &DFSchema) -> bool {
    let (Ok(left), Ok(right)) = (left.get_type(schema), right.get_type(schema)) else {
        return false;
    };
    let is_time = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Time64(_) | DataType::Timestamp(TimeUnit::Microsecond, _)
        )
    };
    let is_length = |data_type: &DataType| matches!(data_type, DataType::Interval(_));
    is_time(&left) && is_length(&right) || operator == Operator::Plus && is_length(&left) && is_time(&right)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shift {
    operator: Operator,
    signature: Signature,
}

impl ScalarUDFImpl for Shift {
    fn name(&self) -> &'static str {
        match self.operator {
            Operator::Plus => "shifted_later",
            _ => "shifted_earlier",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let [left, right] = arg_types else {
            return Err(exec_datafusion_err!("{} takes two arguments", self.name()));
        };
        BinaryTypeCoercer::new(left, &self.operator, right).get_result_type()
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = (args.arg_fields.iter())
            .map(|field| field.data_type().clone())
            .collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.return_type(&types)?,
            is_nullable,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let sides = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let moved = match sides.iter().find_map(infinite) {
            None => self.moved(&sides)?,
            Some((mask, times)) => {
                let finite = |side: &ArrayRef| match side.data_type() == times.data_type() {
                    true => nullif(side, &mask),
                    false => Ok(Arc::clone(side)),
                };
                let finite = sides.iter().map(finite).collect::<Result<Vec<_>, _>>()?;
                zip(&mask, &times, &self.moved(&finite)?)?
            }
        };
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?),
            false => ColumnarValue::Array(moved),
        })
    }
}

impl Shift {
    fn moved(&self, sides: &[ArrayRef]) -> Result<ArrayRef> {
        let fields = ["left", "right"].iter().zip(sides);
        let fields = fields.map(|(name, side)| Field::new(*name, side.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let rows = RecordBatch::try_new(schema, sides.to_vec())?;
        let side = |name, index| Arc::new(Column::new(name, index)) as Arc<dyn PhysicalExpr>;
        let sum = PhysicalBinary::new(side("left", 0), self.operator, side("right", 1));
        sum.evaluate(&rows)?.into_array(rows.num_rows())
    }
}

/// Which of these times are infinite, if one is.
fn infinite(times: &ArrayRef) -> Option<(BooleanArray, ArrayRef)> {
    let micros = times.as_primitive_opt::<TimestampMicrosecondType>()?;
    let is_infinite = |time: Option<i64>| time.is_some_and(|time| matches!(time, i64::MAX | i64::MIN));
    if !micros.iter().any(is_infinite) {
        return None;
    }
    let mask: Vec<bool> = micros.iter().map(is_infinite).collect();
    Some((BooleanArray::from(mask), Arc::clone(times)))
}
