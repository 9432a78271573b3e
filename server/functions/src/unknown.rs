//! A function that does not exist. The planner takes it for one until it asks for its type: only then the types of the arguments are
//! known, which PostgreSQL names: `function foo(integer, text) does not exist`.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::names::did_you_mean;
use millrace_postgres::types::{plain_name, resolution};

/// What stands for a function of this name.
pub fn function(name: &str) -> Arc<ScalarUDF> {
    let any = TypeSignature::OneOf(vec![TypeSignature::VariadicAny, TypeSignature::Nullary]);
    Arc::new(ScalarUDF::from(Unknown {
        name: name.to_owned(),
        signature: Signature::new(any, Volatility::Immutable),
    }))
}

/// Whether a function is one that stands for none.
pub fn is(function: &ScalarUDF) -> bool {
    function.inner().is::<Unknown>()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Unknown {
    name: String,
    signature: Signature,
}

impl Unknown {
    fn error(&self, arguments: &[String]) -> SqlError {
        let message = format!("function {}({}) does not exist", self.name, arguments.join(", "));
        let hint = did_you_mean(&self.name, resolution::functions()).unwrap_or_else(|| {
            "No function matches the given name and argument types. You might need to add explicit type casts."
                .to_owned()
        });
        SqlError::new(SqlState::UndefinedFunction, message).with_hint(hint)
    }
}

/// A type as errors name it: literals have none in quotes, and the smallest that fits in digits.
fn type_of(field: &FieldRef, literal: Option<&ScalarValue>) -> String {
    match literal {
        Some(ScalarValue::Utf8(_) | ScalarValue::Null) => "unknown".to_owned(),
        Some(ScalarValue::Int64(Some(number))) if i32::try_from(*number).is_ok() => "integer".to_owned(),
        _ => plain_name(field),
    }
}

impl ScalarUDFImpl for Unknown {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Err(self.error(&[]).into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let fields = args.arg_fields.iter().zip(args.scalar_arguments);
        let types: Vec<String> = fields.map(|(field, literal)| type_of(field, *literal)).collect();
        Err(self.error(&types).into())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(self.error(&[]).into())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn the_types_of_the_arguments_are_told() {
        let field = |data_type| Arc::new(Field::new("x", data_type, true));
        let fields = [
            field(DataType::Int64),
            field(DataType::Int64),
            field(DataType::Utf8),
            field(DataType::Utf8),
        ];
        let (number, text) = (ScalarValue::Int64(Some(1)), ScalarValue::Utf8(Some("a".into())));
        let literals = [Some(&number), None, Some(&text), None];
        let error = function("foo")
            .return_field_from_args(ReturnFieldArgs {
                arg_fields: &fields,
                scalar_arguments: &literals,
            })
            .expect_err("there is none");
        assert!(
            error
                .to_string()
                .contains("function foo(integer, bigint, unknown, text) does not exist"),
            "{error}"
        );
    }
}
