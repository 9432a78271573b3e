//! Casts of what operators give, as calls of a function.
//!
//! A physical cast asks what it casts twice whether it may be NULL: itself, and for its field. An operator asks its sides, so where
//! casts and operators take turns, in an expression or in projections that become one, the questions double with each turn: a chain
//! of thirty views that compare and cast did not end. A function says once and for all what it gives. (No issue was found.) A cast of a
//! column that a projection below computes is such a cast as soon as DataFusion makes one of the two projections, after this rule.
//!
//! Casts of numerics to double precision are among them as well: Arrow's gives a neighbour of the nearest for every tenth quotient.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::numeric::doubles;
use crate::times;

/// The rule that puts the function there.
#[derive(Debug)]
pub struct CastsAsCalls {
    function: Arc<ScalarUDF>,
}

impl Default for CastsAsCalls {
    fn default() -> Self {
        CastsAsCalls { function: function() }
    }
}

/// The function.
pub(super) fn function() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Held { signature }))
}

/// Its call with a value and a type.
pub(super) fn held(function: &ScalarUDF, value: Expr, target: &DataType) -> Result<Expr> {
    let target = Expr::Literal(ScalarValue::try_from(target)?, None);
    Ok(function.call(vec![value, target]))
}

impl OptimizerRule for CastsAsCalls {
    fn name(&self) -> &'static str {
        "casts_as_calls"
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
        let inputs: Vec<LogicalPlan> = match casts_columns(&plan)? {
            true => plan.inputs().into_iter().cloned().collect(),
            false => vec![],
        };
        plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|node| match node {
                Expr::Cast(Cast { expr, field })
                    if (is_operation(&expr)
                        || is_computed(&expr, &inputs)
                        || is_numeric_to_double(&expr, &field, &schema))
                        && is_plain(&field)
                        && !reads_clock(&expr) =>
                {
                    Ok(Transformed::yes(held(&self.function, *expr, field.data_type())?))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })
    }
}

/// Whether a numeric becomes a double precision: Arrow's cast does not give the nearest.
fn is_numeric_to_double(expression: &Expr, to: &Field, schema: &DFSchema) -> bool {
    let is_numeric = |of: DataType| matches!(of, DataType::Decimal128(..));
    to.data_type() == &DataType::Float64 && expression.get_type(schema).is_ok_and(is_numeric)
}

/// Whether an expression asks others for what it may be.
fn is_operation(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::BinaryExpr(_)
            | Expr::Not(_)
            | Expr::Negative(_)
            | Expr::Case(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
    )
}

/// Whether a node casts a column as it is.
fn casts_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expression| {
        let is_cast =
            |part: &Expr| matches!(part, Expr::Cast(Cast { expr, .. }) if matches!(&**expr, Expr::Column(_)));
        found |= expression.exists(|part| Ok(is_cast(part)))?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// Nodes below a cast that are looked at for where its column comes from.
const NODES_MAX: usize = 64;

/// Whether an expression is a column that a projection below computes.
fn is_computed(expression: &Expr, inputs: &[LogicalPlan]) -> bool {
    let Expr::Column(column) = expression else {
        return false;
    };
    let mut column = column.clone();
    let mut inputs: Vec<&LogicalPlan> = inputs.iter().collect();
    for _ in 0..NODES_MAX {
        let Some((input, at)) = inputs
            .iter()
            .find_map(|input| Some((*input, input.schema().maybe_index_of_column(&column)?)))
        else {
            return false;
        };
        match input {
            LogicalPlan::Projection(projection) => match projection.expr[at].clone().unalias() {
                Expr::Column(below) => column = below,
                Expr::Literal(..) => return false,
                _ => return true,
            },
            LogicalPlan::SubqueryAlias(alias) => {
                column = Column::from(alias.input.schema().qualified_field(at))
            }
            // Those that a projection is pushed through.
            LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) | LogicalPlan::Join(_) => {}
            _ => return false,
        }
        inputs = input.inputs();
    }
    true
}

/// Whether an expression depends on more than its columns. How a view follows the clock is read from operators and casts.
pub(super) fn reads_clock(expression: &Expr) -> bool {
    let found = expression.exists(|part| {
        Ok(match part {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            // The clock of a view is one.
            Expr::Placeholder(_) => true,
            _ => false,
        })
    });
    found.unwrap_or(true)
}

/// Whether a cast is to a type alone, and not to a field that says more.
pub(super) fn is_plain(field: &Field) -> bool {
    field.name().is_empty() && field.metadata().is_empty()
}

/// `held_cast(value, NULL of a type)`: the value in that type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Held {
    signature: Signature,
}

impl ScalarUDFImpl for Held {
    fn name(&self) -> &'static str {
        "held_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let target = arg_types.get(1).cloned();
        target.ok_or_else(|| exec_datafusion_err!("held_cast takes a value and a NULL of a type"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [value, target] = args.arg_fields else {
            return Err(exec_datafusion_err!(
                "held_cast takes a value and a NULL of a type"
            ));
        };
        let field = Field::new(self.name(), target.data_type().clone(), value.is_nullable());
        Ok(Arc::new(field.with_metadata(value.metadata().clone())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = (args.args.first())
            .ok_or_else(|| exec_datafusion_err!("held_cast takes a value and a NULL of a type"))?;
        let target = args.return_field.data_type();
        if target == &DataType::Float64 && matches!(value.data_type(), DataType::Decimal128(..)) {
            return Ok(match value {
                ColumnarValue::Array(values) => {
                    ColumnarValue::Array(Arc::new(doubles(values.as_primitive::<Decimal128Type>())))
                }
                ColumnarValue::Scalar(value) => {
                    let doubles = doubles(value.to_array()?.as_primitive::<Decimal128Type>());
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&doubles, 0)?)
                }
            });
        }
        if times::converts(&value.data_type(), target) {
            return Ok(match value {
                ColumnarValue::Array(values) => ColumnarValue::Array(times::convert(values, target)?),
                ColumnarValue::Scalar(value) => {
                    let one = times::convert(&value.to_array()?, target)?;
                    ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?)
                }
            });
        }
        value.cast_to(target, None)
    }
}
