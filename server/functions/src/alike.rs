//! `coalesce`, `nullif`, `greatest` and `least` of uuid, json, jsonb and enums: what they give is of that type too.
//!
//! DataFusion's know these types as the texts that hold them. Everything else is as there, under the same names.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, lit,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types::enumeration::is_enum;
use millrace_postgres::types::{ANNOTATION, SqlType, sql_name};

use crate::{cast, enums};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike {
    inner: Arc<ScalarUDF>,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::core::{coalesce, greatest, least, nullif};
    [coalesce(), nullif(), greatest(), least()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::from(Alike { inner })))
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

fn is_typed(value: Option<&ScalarValue>, field: &Field) -> bool {
    let is_annotated = field.metadata().contains_key(ANNOTATION);
    is_annotated || !matches!(value, Some(ScalarValue::Utf8(_) | ScalarValue::Null))
}

impl ScalarUDFImpl for Alike {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let typed = args.arg_fields.iter().zip(args.scalar_arguments);
        let typed = typed.filter(|(field, value)| is_typed(**value, field));
        let common = common(typed.map(|(field, _)| field.as_ref()));
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

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
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
        self.inner.invoke_with_args(args)
    }
}
