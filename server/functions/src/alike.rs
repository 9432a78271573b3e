//! `coalesce`, `nullif`, `greatest` and `least` of uuid, json, jsonb and enums: what they give is of that type too. And `ARRAY[..]`, in which
//! quoted literals may stand as in these.
//!
//! DataFusion's know these types as the texts that hold them. Everything else is as there, under the same names, but for
//! `coalesce`: DataFusion writes it as a CASE that has each argument twice. Where that would be a wrong answer (a volatile argument
//! would be evaluated twice) or a needless one (nothing behind the first argument can fail), it stays a function.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::is_not_null;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::functions_nested::make_array::make_array_udf;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, lit,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types::enumeration::is_enum;
use millrace_postgres::types::{ANNOTATION, SqlType, is_text, sql_name};

use crate::arguments::on_arrays;
use crate::{cast, enums};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::core::{coalesce, greatest, least, nullif, nvl};
    [coalesce(), nvl(), nullif(), greatest(), least(), make_array_udf()]
        .into_iter()
        .map(|inner| {
            let signature = Signature::user_defined(inner.signature().volatility);
            Arc::new(ScalarUDF::from(Alike { inner, signature }))
        })
        .collect()
}

/// The type that the fields have in common, if it is held as a text. What has no type of its own is not among them.
fn common<'a>(mut fields: impl Iterator<Item = &'a Field>) -> Option<SqlType> {
    let named = |field: &Field| {
        let name = field.metadata().get(ANNOTATION)?;
        let is_named = matches!(name.as_str(), "uuid" | "json" | "jsonb") || is_enum(field);
        is_named.then(|| SqlType {
            data_type: DataType::Utf8,
            ..SqlType::of(field)
        })
    };
    let first = named(fields.next()?)?;
    fields
        .all(|field| named(field).as_ref() == Some(&first))
        .then_some(first)
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_))
}

/// The type of the values, where a text is among them: a quoted literal, which is read as such a value before anything is cast (see
/// [`crate::sql::alike_literals`]); other texts are refused. `None`: DataFusion casts the texts.
fn beside_texts(types: &[DataType]) -> Option<&DataType> {
    let has_input = |data_type: &DataType| {
        is_list(data_type)
            || matches!(
                data_type,
                DataType::Binary
                    | DataType::Boolean
                    | DataType::Decimal128(..)
                    | DataType::Date32
                    | DataType::Time64(_)
                    | DataType::Timestamp(..)
                    | DataType::Interval(_)
            )
    };
    let of_values = types.iter().find(|data_type| has_input(data_type))?;
    types.iter().any(is_text).then_some(of_values)
}

fn is_typed(value: Option<&ScalarValue>, field: &Field) -> bool {
    let is_annotated = field.metadata().contains_key(ANNOTATION);
    is_annotated || !matches!(value, Some(ScalarValue::Utf8(_) | ScalarValue::Null))
}

/// How many nodes the arguments of a `coalesce` may have that is written as a CASE.
const NODES_MAX: usize = 100;

/// The arguments with those of a `coalesce` among them in its place: `coalesce(coalesce(a, b), c)` is `coalesce(a, b, c)`.
fn flattened(args: Vec<Expr>) -> Vec<Expr> {
    let inner = |expr: Expr| match expr {
        Expr::ScalarFunction(call) if call.func.name() == "coalesce" => call.args,
        other => vec![other],
    };
    args.into_iter().flat_map(inner).collect()
}

/// Whether `coalesce` of these is to be evaluated as a function, and not as a CASE that evaluates an argument only where all before
/// it are NULL, but has all of them but the last twice.
fn is_eager(args: &[Expr]) -> bool {
    let cannot_fail = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::Literal(..));
    let Some((_, repeated)) = args.split_last() else {
        return false;
    };
    args.iter().skip(1).all(cannot_fail)
        || repeated.iter().any(Expr::is_volatile)
        || repeated.iter().map(nodes).sum::<usize>() > NODES_MAX
}

/// How many expressions an expression is made of, itself included.
fn nodes(expr: &Expr) -> usize {
    let mut count = 0;
    // The visitor does not fail.
    let _ = expr.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    count
}

/// The first of the values of each row that is not NULL.
fn first_not_null(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    on_arrays(args, |arrays, _| {
        let mut arrays = arrays.iter();
        let first = arrays
            .next()
            .ok_or_else(|| exec_datafusion_err!("coalesce must have at least one argument"))?;
        let mut values: ArrayRef = Arc::clone(first);
        for other in arrays {
            if values.logical_null_count() == 0 {
                break;
            }
            values = zip(&is_not_null(&values)?, &values, other)?;
        }
        Ok(values)
    })
}

impl ScalarUDFImpl for Alike {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match beside_texts(arg_types) {
            Some(of_values) if self.is_array() => Ok(DataType::List(Arc::new(Field::new_list_field(
                of_values.clone(),
                true,
            )))),
            Some(of_values) => Ok(of_values.clone()),
            None => self.inner.return_type(arg_types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let typed = args.arg_fields.iter().zip(args.scalar_arguments);
        let typed = typed.filter(|(field, value)| is_typed(**value, field));
        let common = common(typed.map(|(field, _)| field.as_ref()));
        let types = args.arg_fields.iter().map(|field| field.data_type().clone());
        if let Some(of_values) = beside_texts(&types.collect::<Vec<_>>()) {
            let mut fields = args.arg_fields.iter();
            let field = fields.find(|field| field.data_type() == of_values);
            let field = field.map_or_else(
                || Field::new(self.name(), of_values.clone(), true),
                |field| field.as_ref().clone().with_nullable(true).with_name(self.name()),
            );
            return Ok(Arc::new(match self.is_array() {
                true => {
                    let item = Arc::new(field.with_name(Field::LIST_FIELD_DEFAULT_NAME));
                    Field::new(self.name(), DataType::List(item), false)
                }
                false => field,
            }));
        }
        if self.is_array() {
            return self.inner.return_field_from_args(args);
        }
        let field = self.inner.return_field_from_args(args)?;
        Ok(match common {
            Some(common) => Arc::new(
                common
                    .field(field.name(), field.is_nullable())
                    .with_data_type(field.data_type().clone()),
            ),
            None => field,
        })
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match beside_texts(arg_types) {
            Some(_) => Ok(arg_types.to_vec()),
            None => {
                let fields = arg_types.iter();
                let fields = fields.map(|data_type| Arc::new(Field::new("", data_type.clone(), true)));
                let wanted = fields_with_udf(&fields.collect::<Vec<_>>(), self.inner.as_ref())?;
                Ok(wanted.iter().map(|field| field.data_type().clone()).collect())
            }
        }
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if self.is_array() {
            return self.inner.simplify(args, info);
        }
        let args = match self.is_coalesce() {
            true => flattened(args),
            false => args,
        };
        if self.is_coalesce() && args.len() > 1 && is_eager(&args) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let mut fields = vec![];
        for arg in &args {
            let value = match arg {
                Expr::Literal(value, _) => Some(value),
                _ => None,
            };
            let (_, field) = arg.to_field(info.schema())?;
            if is_typed(value, &field) {
                fields.push(field);
            }
        }
        let common = common(fields.iter().map(AsRef::as_ref));
        Ok(match (self.inner.simplify(args, info)?, common) {
            // What it becomes is a text.
            (ExprSimplifyResult::Simplified(expr), Some(common)) => {
                let field = common.field("", true);
                let function = match is_enum(&field) {
                    true => enums::held(),
                    false => cast::udf(),
                };
                ExprSimplifyResult::Simplified(function.call(vec![expr, lit(sql_name(&field))]))
            }
            (simplified, _) => simplified,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.is_coalesce() {
            true => first_not_null(&args),
            false => self.inner.invoke_with_args(args),
        }
    }
}

impl Alike {
    /// Whether it gives all of them.
    fn is_array(&self) -> bool {
        self.name() == "make_array"
    }

    /// Whether it is `coalesce`, or what DataFusion calls `nvl` if it has two arguments.
    fn is_coalesce(&self) -> bool {
        matches!(self.name(), "coalesce" | "nvl")
    }
}
