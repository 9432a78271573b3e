//! Functions that stand for what is none in DataFusion, so that it has limits too: `||` of texts, and constants that are large.

use std::sync::Arc;

use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::schema_name_from_exprs;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::functions::on_arrays;

/// What stands for `||`.
pub const JOINED: &str = "textcat";
/// What a large constant is in.
pub const CONSTANT: &str = "constant";

/// `||` of texts and of bytes.
pub fn joined() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Joined {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// The types that both sides of `||` become, if it is one of texts or bytes.
pub fn joined_types(left: &DataType, right: &DataType) -> Option<(DataType, DataType)> {
    let is_content = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
    };
    let coercer = BinaryTypeCoercer::new(left, &Operator::StringConcat, right);
    let types = coercer.get_input_types().ok()?;
    (is_content(&types.0) && types.0 == types.1).then_some(types)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    signature: Signature,
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &str {
        JOINED
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        // As columns are called that have no other name.
        match args {
            [left, right] => Ok(format!("{} || {}", left.schema_name(), right.schema_name())),
            _ => Ok(format!("{JOINED}({})", schema_name_from_exprs(args)?)),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [left, right] => match joined_types(left, right) {
                Some((left, right)) => Ok(vec![left, right]),
                None => Err(exec_datafusion_err!("{left} || {right} is no text")),
            },
            _ => Err(exec_datafusion_err!("|| has two sides")),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.coerce_types(arg_types).map(|types| types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, _| {
            Ok(concat_elements_dyn(&arrays[0], &arrays[1])?)
        })
    }
}

/// The function of a large constant: it answers with it.
pub fn constant() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Constant {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        CONSTANT
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(schema_name_from_exprs(args)?)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let first = arg_types.first().cloned();
        first.ok_or_else(|| exec_datafusion_err!("{CONSTANT} has an argument"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let first = args.arg_fields.first().cloned();
        first.ok_or_else(|| exec_datafusion_err!("{CONSTANT} has an argument"))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let first = args.args.pop();
        first.ok_or_else(|| exec_datafusion_err!("{CONSTANT} has an argument"))
    }
}
