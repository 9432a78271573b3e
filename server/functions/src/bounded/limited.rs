//! A function that is asked only for what fits.

use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, ExprSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::SqlError;
use millrace_resource::cpu::panic_message;
use millrace_resource::step;

use crate::names;

use super::growth::{self, Growth, Sizes};
use super::sizes::{Columns, of_constant};
use super::{BATCH_BYTES_MAX, MemoryBudget, VALUE_BYTES_MAX, is_exempt, pattern_matched, too_large, work};

/// A constant of more bytes than this is not worked out while a query is planned: plans are copied again and again, and what they
/// hold is in no account.
pub const FOLDED_BYTES_MAX: u64 = 64 << 10;

/// A function and its limits.
#[derive(Debug)]
pub struct Limited {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    budget: MemoryBudget,
    /// Of a call whose arguments are all constants, the bytes of its result at most.
    constant: Option<u64>,
    /// Whether the one value of such a call may become one for each row where it is used.
    is_repeated: bool,
    /// The function's own, but that of a large constant says that it must not be worked out early.
    signature: Signature,
}

impl PartialEq for Limited {
    fn eq(&self, other: &Limited) -> bool {
        self.inner == other.inner && self.constant == other.constant && self.is_repeated == other.is_repeated
    }
}

impl Eq for Limited {}

impl Hash for Limited {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
        self.constant.hash(state);
        self.is_repeated.hash(state);
    }
}

/// The function with its limits, or as it is if it needs none.
pub fn limited(function: &Arc<ScalarUDF>, budget: &MemoryBudget) -> Arc<ScalarUDF> {
    match is_exempt(function.name()) || function.inner().is::<Limited>() || function.as_async().is_some() {
        true => Arc::clone(function),
        false => Arc::new(ScalarUDF::from(Limited::new(
            Arc::clone(function),
            budget.clone(),
            None,
        ))),
    }
}

/// A call with limits, by what is known of its arguments.
pub fn limited_call(call: ScalarFunction, budget: &MemoryBudget) -> ScalarFunction {
    let function = match call.func.inner().downcast_ref::<Limited>() {
        Some(known) => Arc::clone(&known.inner),
        None => call.func,
    };
    if is_exempt(function.name()) || function.as_async().is_some() {
        return ScalarFunction::new_udf(function, call.args);
    }
    let constant = constant_call(&function, &call.args);
    let limited = Limited::new(function, budget.clone(), constant);
    ScalarFunction::new_udf(Arc::new(ScalarUDF::from(limited)), call.args)
}

/// A call that is where no value is repeated: its one result counts once, if its arguments are constants.
pub fn once(call: ScalarFunction) -> ScalarFunction {
    match call.func.inner().downcast_ref::<Limited>() {
        Some(known) if known.constant.is_some() && known.is_repeated => {
            let mut once = Limited::new(Arc::clone(&known.inner), known.budget.clone(), known.constant);
            once.is_repeated = false;
            ScalarFunction::new_udf(Arc::new(ScalarUDF::from(once)), call.args)
        }
        _ => call,
    }
}

/// The bytes of an expression's value at most, if it is a constant.
fn constant_bytes(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Literal(value, _) => Some(of_constant(value)),
        Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<Limited>() {
            Some(known) => known.constant,
            None => constant_call(&call.func, &call.args),
        },
        Expr::Alias(_)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::InList(_) => {
            let mut all = Some(0_u64);
            let visited = expr.apply_children(|child| {
                all = match (all, constant_bytes(child)) {
                    (Some(all), Some(bytes)) => Some(all.saturating_add(bytes)),
                    _ => None,
                };
                Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
            });
            visited.ok().and(all)
        }
        _ => None,
    }
}

fn constant_call(function: &ScalarUDF, args: &[Expr]) -> Option<u64> {
    if function.signature().volatility == Volatility::Volatile {
        return None;
    }
    let literals = args.iter().map(|arg| match arg {
        Expr::Literal(value, _) => Some(ColumnarValue::Scalar(value.clone())),
        _ => None,
    });
    let growth = growth::of(function.name());
    let bytes = args.iter().map(constant_bytes).collect::<Option<Vec<u64>>>()?;
    let sum = bytes.into_iter().fold(0, u64::saturating_add);
    Some(match (growth, literals.collect::<Option<Vec<_>>>()) {
        (growth, Some(literals)) => match Columns::new(&literals) {
            Ok(columns) => growth.sizes(&columns, 1, &DataType::Utf8).largest,
            Err(_) => u64::MAX,
        },
        // Printed, a byte may be as many as six, and a number more.
        (Growth::Sum(factor), None) => sum.saturating_mul(factor).saturating_mul(8),
        // What it does depends on values that are not known yet.
        (Growth::Rows(_), None) => u64::MAX,
    })
}

/// Whether values have a size of their own, whatever made them.
fn is_fixed(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_)
        )
}

impl Limited {
    fn new(inner: Arc<ScalarUDF>, budget: MemoryBudget, constant: Option<u64>) -> Limited {
        let mut signature = inner.signature().clone();
        if constant.is_some_and(|bytes| bytes > FOLDED_BYTES_MAX) {
            signature.volatility = Volatility::Volatile;
        }
        Limited {
            growth: growth::of(inner.name()),
            inner,
            budget,
            constant,
            is_repeated: true,
            signature,
        }
    }

    /// The function without limits.
    #[cfg(test)]
    pub fn inner(&self) -> &Arc<ScalarUDF> {
        &self.inner
    }

    /// Checks the sizes of all values. Returns what the call may take.
    fn check(&self, args: &ScalarFunctionArgs) -> Result<u64> {
        let name = self.inner.name();
        let rows = args.number_rows;
        let all_constant = are_constants(&args.args);
        let data_type = args.return_field.data_type();
        let fixed = is_fixed(data_type);
        if fixed && !work::is_known(name) {
            // Constants are repeated for each row where others are not.
            let constants = args.args.iter().map(|value| match value {
                ColumnarValue::Scalar(value) if !all_constant => of_constant(value),
                _ => 0,
            });
            let bytes = constants.fold(0, u64::saturating_add).saturating_mul(rows as u64);
            fits_a_batch(name, bytes, rows, "for a constant in all rows")?;
            return Ok(bytes);
        }
        let columns = Columns::new(&args.args)?;
        let made_rows = if all_constant { 1 } else { rows };
        work::check(name, &columns, made_rows)?;
        if fixed {
            return Ok(columns.repeated(made_rows));
        }
        let Sizes { largest, all } = self.growth.sizes(&columns, made_rows, data_type);
        if largest > VALUE_BYTES_MAX {
            return Err(too_large(name, VALUE_BYTES_MAX, "for a value").into());
        }
        // One value for all rows becomes one for each where it is used.
        let used = match all_constant && self.is_repeated {
            true => largest.saturating_mul(rows as u64),
            false => all,
        };
        fits_a_batch(name, used, rows, "for the values of a batch of rows")?;
        Ok(used.saturating_add(columns.repeated(made_rows)))
    }
}

/// Whether all arguments are one value for all rows.
fn are_constants(args: &[ColumnarValue]) -> bool {
    args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)))
}

/// Whether so many bytes may be made for a batch: of fewer rows, if its step is to be shorter; at all.
fn fits_a_batch(name: &str, bytes: u64, rows: usize, why: &str) -> Result<()> {
    if !step::allows(usize::try_from(bytes).unwrap_or(usize::MAX), rows) {
        return Err(DataFusionError::ResourcesExhausted(format!(
            "{name}() makes too much of {rows} rows in one step"
        )));
    }
    match bytes <= BATCH_BYTES_MAX {
        true => Ok(()),
        false => Err(too_large(name, BATCH_BYTES_MAX, why).into()),
    }
}

impl ScalarUDFImpl for Limited {
    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // DataFusion takes a negative constant for a very large one.
        if matches!(self.inner.name(), "lpad" | "rpad")
            && let Some(ColumnarValue::Scalar(ScalarValue::Int64(Some(length)))) = args.args.get_mut(1)
        {
            *length = (*length).max(0);
        }
        let bytes = self.check(&args)?;
        let _budget = self.budget.ask(self.inner.name(), bytes)?;
        // Some functions make their constants as many as there are rows.
        let is_one = !args.args.is_empty()
            && are_constants(&args.args)
            && self.inner.signature().volatility != Volatility::Volatile;
        if is_one {
            args.number_rows = args.number_rows.min(1);
        }
        // One that panics has failed, as with an error.
        let called = AssertUnwindSafe(|| self.inner.invoke_with_args(args));
        let made = std::panic::catch_unwind(called).unwrap_or_else(|panic| {
            let why = panic_message(&*panic);
            Err(SqlError::internal(format!("{} failed: {why}", self.inner.name())).into())
        });
        match made? {
            ColumnarValue::Array(values) if is_one && values.len() == 1 => {
                ScalarValue::try_from_array(&values, 0).map(ColumnarValue::Scalar)
            }
            made => Ok(made),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, info)? {
            // Other functions may stand there now.
            ExprSimplifyResult::Simplified(expr) => {
                let limited = expr.transform_up(|expr| {
                    Ok(match expr {
                        Expr::ScalarFunction(call) => {
                            Transformed::yes(Expr::ScalarFunction(limited_call(call, &self.budget)))
                        }
                        other => Transformed::yes(pattern_matched(other, &self.budget)),
                    })
                });
                ExprSimplifyResult::Simplified(limited?.data)
            }
            original => original,
        })
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let updated = self.inner.inner().with_updated_config(config)?;
        let mut limited = Limited::new(Arc::new(updated), self.budget.clone(), self.constant);
        limited.is_repeated = self.is_repeated;
        Some(ScalarUDF::from(limited))
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        #[expect(
            deprecated,
            reason = "DataFusion asks functions for it as long as it is there"
        )]
        self.inner.display_name(args)
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match names::has_own_name(self.name()) {
            true => self.inner.schema_name(args),
            false => names::called(self.name(), args),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        #[expect(
            deprecated,
            reason = "DataFusion asks functions for it as long as it is there"
        )]
        self.inner.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.struct_field_mapping(literals)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}
