//! Functions that stand for what is none in DataFusion, so that it has limits too: `||` of texts, constants that are large, and
//! texts that are compared with a pattern.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::expr::schema_name_from_exprs;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::arguments::on_arrays;
use crate::names::{CONSTANT, JOINED, MATCHED};

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

/// The sides of `||`, of which the left one may be such a call itself: a long chain is one call, and not as deep as it is long.
pub fn sides(left: Expr, right: Expr) -> Vec<Expr> {
    let mut sides = match left {
        Expr::ScalarFunction(call) if call.func.name() == JOINED => call.args,
        other => vec![other],
    };
    sides.push(right);
    sides
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
        let sides: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(sides.join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let (first, others) = arg_types
            .split_first()
            .ok_or_else(|| exec_datafusion_err!("|| has two sides"))?;
        let joined = others.iter().try_fold(first.clone(), |left, right| {
            let types = joined_types(&left, right);
            types
                .map(|(joined, _)| joined)
                .ok_or_else(|| exec_datafusion_err!("{left} || {right} is not text"))
        })?;
        Ok(vec![joined; arg_types.len()])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.coerce_types(arg_types).map(|mut types| types.swap_remove(0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        on_arrays(&args, |arrays, _| {
            let texts: Option<Vec<&StringArray>> = arrays.iter().map(|array| array.as_string_opt()).collect();
            if let Some(texts) = texts {
                return Ok(Arc::new(joined_texts(&texts)));
            }
            let (first, others) = arrays
                .split_first()
                .ok_or_else(|| exec_datafusion_err!("|| has two sides"))?;
            let joined = others.iter().try_fold(ArrayRef::clone(first), |left, right| {
                concat_elements_dyn(&left, right)
            });
            Ok(joined?)
        })
    }
}

/// The texts of each row, one behind the other; NULL if one of them is. Arrow's own takes room for all of the buffers of its arguments, of
/// which they may be a small slice.
fn joined_texts(sides: &[&StringArray]) -> StringArray {
    let rows = sides.first().map_or(0, |side| side.len());
    let bytes = sides.iter().map(|side| {
        let offsets = side.value_offsets();
        (offsets[side.len()] - offsets[0]) as usize
    });
    let mut joined = StringBuilder::with_capacity(rows, bytes.sum());
    for row in 0..rows {
        if sides.iter().any(|side| side.is_null(row)) {
            joined.append_null();
            continue;
        }
        for side in sides {
            // What a builder is given it takes.
            let _ = joined.write_str(side.value(row));
        }
        joined.append_value("");
    }
    joined.finish()
}

/// The function of a large constant: it answers with it.
pub fn constant() -> Arc<ScalarUDF> {
    same(CONSTANT, 1)
}

/// The function of a text that is about to be compared with a pattern, its second argument: it answers with the text.
pub fn matched() -> Arc<ScalarUDF> {
    same(MATCHED, 2)
}

fn same(name: &'static str, arguments: usize) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Same {
        name,
        signature: Signature::any(arguments, Volatility::Immutable),
    }))
}

/// A function that answers with its first argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Same {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Same {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(schema_name_from_exprs(&args[..1])?)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let first = arg_types.first().cloned();
        first.ok_or_else(|| exec_datafusion_err!("{} has an argument", self.name))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let first = args.arg_fields.first().cloned();
        first.ok_or_else(|| exec_datafusion_err!("{} has an argument", self.name))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let first = args.args.into_iter().next();
        first.ok_or_else(|| exec_datafusion_err!("{} has an argument", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_slices_take_what_is_theirs() {
        let long =
            StringArray::from_iter((0..100_000).map(|row| (row % 7 != 0).then(|| format!("text {row}"))));
        let short = StringArray::from(vec!["x"; 100_000]);
        let (left, right) = (long.slice(1_000, 20), short.slice(5, 20));
        let joined = joined_texts(&[&left, &right, &left]);
        let expected = (1_000..1_020).map(|row| (row % 7 != 0).then(|| format!("text {row}xtext {row}")));
        assert_eq!(joined, StringArray::from_iter(expected));
        assert!(joined.get_array_memory_size() < 4_000);
    }
}
