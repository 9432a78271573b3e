//! Arguments of functions as arrays and constants.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types;

/// The first value of an array; of a list with all that its type says of the elements.
pub fn constant(values: &ArrayRef) -> Result<ScalarValue> {
    match values.as_list_opt::<i32>() {
        Some(list) => Ok(ScalarValue::List(Arc::new(list.slice(0, 1)))),
        None => ScalarValue::try_from_array(values, 0),
    }
}

/// No function of this name takes such arguments.
pub(crate) fn no_such(name: &str, given: &[DataType]) -> SqlError {
    let names: Vec<String> = (given.iter())
        .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
        .collect();
    let message = format!("function {name}({}) does not exist", names.join(", "));
    SqlError::new(SqlState::UndefinedFunction, message)
        .with_hint("You might need to add explicit type casts.")
}

/// A function's values by its arguments as arrays. If all of these are constants they have one row, and so has the answer,
/// which is a constant then.
pub(crate) fn on_arrays(
    args: &ScalarFunctionArgs,
    apply: impl FnOnce(&[ArrayRef], usize) -> Result<ArrayRef>,
) -> Result<ColumnarValue> {
    let is_constant = args
        .args
        .iter()
        .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let rows = if is_constant { 1 } else { args.number_rows };
    let arrays = args
        .args
        .iter()
        .map(|arg| arg.to_array(rows))
        .collect::<Result<Vec<_>>>()?;
    let values = apply(&arrays, rows)?;
    Ok(match is_constant {
        true => ColumnarValue::Scalar(constant(&values)?),
        false => ColumnarValue::Array(values),
    })
}
