//! `pg_domain(value, 'domain', is_not_null, 'check', condition, ..)`: the value, if it may be one of the domain.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};

/// The function's name.
pub const NAME: &str = "pg_domain";

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(PgDomain {
        signature: Signature::new(TypeSignature::VariadicAny, Volatility::Immutable),
    }))
}

/// A value that is NULL where the domain has none.
pub fn is_null(domain: &str) -> SqlError {
    SqlError::new(
        SqlState::NotNullViolation,
        format!("domain {domain} does not allow null values"),
    )
}

/// A value that a CHECK does not allow.
pub fn violates(domain: &str, check: &str) -> SqlError {
    SqlError::new(
        SqlState::CheckViolation,
        format!("value for domain {domain} violates check constraint \"{check}\""),
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgDomain {
    signature: Signature,
}

fn text(value: Option<&ColumnarValue>) -> Result<&str> {
    match value {
        Some(ColumnarValue::Scalar(ScalarValue::Utf8(Some(text)))) => Ok(text),
        _ => Err(exec_datafusion_err!("{NAME} takes a value, names and conditions")),
    }
}

impl ScalarUDFImpl for PgDomain {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(exec_datafusion_err!("{NAME} tells its type by its arguments"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(args.arg_fields[0].as_ref().clone().with_name(NAME)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let domain = text(args.args.get(1))?;
        let values = &args.args[0];
        let has_null = match values {
            ColumnarValue::Scalar(value) => value.is_null(),
            ColumnarValue::Array(values) => values.logical_null_count() > 0,
        };
        let is_not_null = matches!(
            args.args.get(2),
            Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
        );
        if has_null && is_not_null {
            return Err(is_null(domain).into());
        }
        for pair in args.args.get(3..).unwrap_or_default().chunks(2) {
            let [name, condition] = pair else {
                return Err(exec_datafusion_err!("{NAME} takes a condition for each name"));
            };
            let met = condition.to_array(rows)?;
            let met = arrow::compute::cast(&met, &DataType::Boolean)?;
            let met = met.as_boolean();
            if (0..met.len()).any(|row| met.is_valid(row) && !met.value(row)) {
                return Err(violates(domain, text(Some(name))?).into());
            }
        }
        Ok(values.clone())
    }
}
