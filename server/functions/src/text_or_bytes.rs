//! `btrim`, `ltrim`, `rtrim`, `position` and `overlay` of `bytea`. DataFusion has them of texts, and those stay as they are.
//!
//! A quoted literal beside bytes is read as bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{is_text, parse};

use crate::arguments::{no_such, on_arrays};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Function {
    Trim { left: bool, right: bool },
    Position,
    Overlay,
}

impl Function {
    /// How many of the first arguments are bytes, and how many numbers there may be behind them.
    fn arguments(self) -> (usize, std::ops::RangeInclusive<usize>) {
        match self {
            Function::Trim { .. } | Function::Position => (2, 0..=0),
            Function::Overlay => (2, 1..=2),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOrBytes {
    inner: Arc<ScalarUDF>,
    function: Function,
    signature: Signature,
}

/// The functions.
pub fn udfs() -> Vec<Arc<ScalarUDF>> {
    use datafusion::functions::string::{btrim, ltrim, rtrim};
    let trim = |left, right| Function::Trim { left, right };
    [
        (btrim(), trim(true, true)),
        (ltrim(), trim(true, false)),
        (rtrim(), trim(false, true)),
    ]
    .map(|(inner, function)| of(inner, function))
    .into_iter()
    .chain([
        of(datafusion::functions::unicode::strpos(), Function::Position),
        of(datafusion::functions::core::overlay(), Function::Overlay),
    ])
    .collect()
}

fn of(inner: Arc<ScalarUDF>, function: Function) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(TextOrBytes {
        inner,
        function,
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

impl TextOrBytes {
    /// Whether the arguments are those of the function over bytes.
    ///
    /// # Errors
    /// There are bytes among them, and what does not go with bytes.
    fn is_of_bytes(&self, given: &[DataType]) -> SqlResult<bool> {
        let (bytes, numbers) = self.function.arguments();
        let (first, behind) = given.split_at(bytes.min(given.len()));
        if !first.iter().any(DataType::is_binary) {
            return Ok(false);
        }
        let may_be_bytes = |given: &DataType| given.is_binary() || given.is_null() || is_text(given);
        let may_be_number = |given: &DataType| given.is_integer() || given.is_null();
        let fits = first.len() == bytes
            && first.iter().all(may_be_bytes)
            && numbers.contains(&behind.len())
            && behind.iter().all(may_be_number);
        match fits {
            true => Ok(true),
            false => Err(no_such(self.name(), given)),
        }
    }

    fn types(fields: &[FieldRef]) -> Vec<DataType> {
        fields.iter().map(|field| field.data_type().clone()).collect()
    }
}

impl ScalarUDFImpl for TextOrBytes {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if self.is_of_bytes(given)? {
            // A literal is read by the function itself.
            let kept = |given: &DataType| match given.is_integer() {
                true => DataType::Int64,
                false => given.clone(),
            };
            return Ok(given.iter().map(kept).collect());
        }
        let fields: Vec<FieldRef> = given
            .iter()
            .map(|given| Arc::new(Field::new("", given.clone(), true)))
            .collect();
        Ok(Self::types(&fields_with_udf(&fields, self.inner.as_ref())?))
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(match (self.is_of_bytes(given)?, self.function) {
            (false, _) => self.inner.return_type(given)?,
            (true, Function::Position) => DataType::Int32,
            (true, _) => DataType::Binary,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let given = Self::types(args.arg_fields);
        if !self.is_of_bytes(&given)? {
            return self.inner.return_field_from_args(args);
        }
        // Only a literal has no type of its own.
        let mut pairs = args.arg_fields.iter().zip(args.scalar_arguments);
        let is_foreign = |(field, value): (&FieldRef, &Option<&ScalarValue>)| {
            is_text(field.data_type()) && value.is_none()
        };
        if pairs.any(is_foreign) {
            return Err(no_such(self.name(), &given).into());
        }
        Ok(Arc::new(Field::new(self.name(), self.return_type(&given)?, true)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let types = args.iter().map(|arg| info.get_data_type(arg));
        let types = types.collect::<Result<Vec<_>>>()?;
        match self.is_of_bytes(&types)? {
            true => Ok(ExprSimplifyResult::Original(args)),
            false => self.inner.simplify(args, info),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !self.is_of_bytes(&Self::types(&args.arg_fields))? {
            return self.inner.invoke_with_args(args);
        }
        on_arrays(&args, |arrays, rows| self.of_bytes(arrays, rows))
    }
}

fn bytes_of(values: &ArrayRef) -> Result<BinaryArray> {
    let values = match is_text(values.data_type()) {
        true => {
            let texts = cast(values, &DataType::Utf8)?;
            let field = Field::new("", DataType::Binary, true);
            parse::column(&field, texts.as_string::<i32>()).map_err(|cell| *cell.error)?
        }
        false => cast(values, &DataType::Binary)?,
    };
    Ok(values.as_binary::<i32>().clone())
}

impl TextOrBytes {
    fn of_bytes(&self, arrays: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let (first, second) = (bytes_of(&arrays[0])?, bytes_of(&arrays[1])?);
        let pairs = first.iter().zip(second.iter());
        Ok(match self.function {
            Function::Trim { left, right } => {
                let trimmed = pairs.map(|pair| match pair {
                    (Some(bytes), Some(which)) => Some(trimmed(bytes, which, left, right)),
                    _ => None,
                });
                Arc::new(trimmed.collect::<BinaryArray>())
            }
            Function::Position => {
                let places = pairs.map(|pair| match pair {
                    (Some(bytes), Some(part)) => {
                        let found = memchr::memmem::find(bytes, part).map_or(0, |at| at + 1);
                        i32::try_from(found).ok()
                    }
                    _ => None,
                });
                Arc::new(places.collect::<Int32Array>())
            }
            Function::Overlay => {
                let numbers = arrays[2..].iter().map(|array| cast(array, &DataType::Int64));
                let numbers = numbers.collect::<std::result::Result<Vec<_>, _>>()?;
                let laid = pairs.enumerate().take(rows).map(|(row, pair)| {
                    let numbers = numbers.iter().map(|array| {
                        let array = array.as_primitive::<Int64Type>();
                        array.is_valid(row).then(|| array.value(row))
                    });
                    match (pair, numbers.collect::<Option<Vec<i64>>>()) {
                        ((Some(bytes), Some(part)), Some(numbers)) => {
                            overlaid(bytes, part, &numbers).map(Some)
                        }
                        _ => Ok(None),
                    }
                });
                Arc::new(BinaryArray::from_iter(laid.collect::<SqlResult<Vec<_>>>()?))
            }
        })
    }
}

fn trimmed<'a>(bytes: &'a [u8], which: &[u8], left: bool, right: bool) -> &'a [u8] {
    let stays = |byte: &u8| !which.contains(byte);
    let first = match left {
        true => bytes.iter().position(stays).unwrap_or(bytes.len()),
        false => 0,
    };
    let end = match right {
        true => bytes.iter().rposition(stays).map_or(first, |last| last + 1),
        false => bytes.len(),
    };
    &bytes[first..end.max(first)]
}

fn overlaid(bytes: &[u8], part: &[u8], numbers: &[i64]) -> SqlResult<Vec<u8>> {
    let from = numbers.first().copied().unwrap_or(1);
    let length = numbers
        .get(1)
        .copied()
        .unwrap_or_else(|| i64::try_from(part.len()).unwrap_or(i64::MAX));
    if from <= 0 {
        return Err(SqlError::new(
            SqlState::SubstringError,
            "negative substring length not allowed",
        ));
    }
    let within =
        |place: i64| usize::try_from(place.max(0)).map_or(bytes.len(), |place| place.min(bytes.len()));
    let behind = within((from - 1).saturating_add(length));
    Ok([&bytes[..within(from - 1)], part, &bytes[behind..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_trimmed_at_the_ends() {
        assert_eq!(trimmed(&[0, 1, 0, 2, 0], &[0], true, true), [1, 0, 2]);
        assert_eq!(trimmed(&[0, 1, 0], &[0], true, false), [1, 0]);
        assert_eq!(trimmed(&[0, 1, 0], &[0], false, true), [0, 1]);
        assert!(trimmed(&[0, 0], &[0], true, true).is_empty());
    }

    #[test]
    fn bytes_are_put_in_the_place_of_others() {
        assert_eq!(overlaid(&[1, 2, 3], &[9], &[2]).unwrap(), [1, 9, 3]);
        assert_eq!(overlaid(&[1, 2, 3], &[9], &[2, 2]).unwrap(), [1, 9]);
        assert_eq!(overlaid(&[1, 2, 3], &[9], &[2, 0]).unwrap(), [1, 9, 2, 3]);
        assert_eq!(overlaid(&[1], &[9], &[7]).unwrap(), [1, 9]);
        assert!(overlaid(&[1], &[9], &[0]).is_err());
    }
}
