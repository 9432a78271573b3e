//! `generate_series` of numbers as an array: integers of the type of its ends, and numerics. Series of times are
//! [`crate::zoned_shift::SERIES`].

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Builder, Int32Builder, Int64Builder, ListBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::functions_nested::range::gen_series_udf;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_postgres::error::{SqlError, SqlState};
use millrace_postgres::types;

use crate::arguments::on_arrays;

/// Numerics of one series.
const NUMERICS_MAX: usize = 10_000_000;

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Series {
        times: gen_series_udf(),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// The type of the elements of a series with these ends; `None`: they are no numbers.
///
/// # Errors
/// There is no such series.
pub fn element(ends: &[DataType]) -> Result<Option<DataType>> {
    let is_text = |end: &DataType| matches!(end, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    let is_number = |end: &DataType| end.is_numeric() || end.is_null() || is_text(end);
    if !ends.iter().all(is_number) {
        return Ok(None);
    }
    let no_function = |code: SqlState, what: &str| {
        let names: Vec<String> = (ends.iter())
            .map(|given| types::plain_name(&Field::new("", given.clone(), true)))
            .collect();
        let message = format!("function generate_series({}) {what}", names.join(", "));
        SqlError::new(code, message).with_hint("You might need to add explicit type casts.")
    };
    if ends.iter().any(DataType::is_floating) || !(2..=3).contains(&ends.len()) {
        return Err(no_function(SqlState::UndefinedFunction, "does not exist").into());
    }
    let scales = ends.iter().filter_map(|end| match end {
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    });
    if let Some(scale) = scales.max() {
        return Ok(Some(DataType::Decimal128(38, scale)));
    }
    let has = |wanted: &[DataType]| ends.iter().any(|end| wanted.contains(end));
    if has(&[DataType::Int64, DataType::UInt64, DataType::UInt32]) {
        Ok(Some(DataType::Int64))
    } else if has(&[DataType::Int32]) {
        Ok(Some(DataType::Int32))
    } else {
        Err(no_function(SqlState::AmbiguousFunction, "is not unique").into())
    }
}

/// The error of a series that stands still.
fn no_step() -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, "step size cannot equal zero")
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    /// DataFusion's, for times.
    times: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        "generate_series"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(element) = element(arg_types)? {
            let wide = match element {
                // So that each end can be read as a numeric of the series.
                DataType::Decimal128(..) => element,
                DataType::Int32 => DataType::Int32,
                _ => DataType::Int64,
            };
            return Ok(vec![wide; arg_types.len()]);
        }
        let fields: Vec<FieldRef> = (arg_types.iter())
            .map(|data_type| Arc::new(Field::new("", data_type.clone(), true)) as _)
            .collect();
        let fields = fields_with_udf(&fields, self.times.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match element(arg_types)? {
            Some(element) => Ok(DataType::new_list(element, true)),
            None => self.times.return_type(arg_types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        match element(&types)? {
            None => self.times.invoke_with_args(args),
            Some(DataType::Decimal128(precision, scale)) => on_arrays(&args, |arrays, rows| {
                numerics(arrays, rows, DataType::Decimal128(precision, scale), scale)
            }),
            Some(element) => on_arrays(&args, |arrays, rows| integers(arrays, rows, &element)),
        }
    }
}

/// The steps from one number to another.
fn steps(from: i128, to: i128, step: i128) -> Result<impl Iterator<Item = i128>> {
    if step == 0 {
        return Err(no_step().into());
    }
    let next = move |at: &i128| at.checked_add(step);
    let is_in = move |at: &i128| if step > 0 { *at <= to } else { *at >= to };
    Ok(std::iter::successors(Some(from), next).take_while(is_in))
}

fn integers(arrays: &[ArrayRef], rows: usize, element: &DataType) -> Result<ArrayRef> {
    let wide: Vec<ArrayRef> = (arrays.iter())
        .map(|array| cast(array, &DataType::Int64))
        .collect::<Result<_, _>>()?;
    let value = |argument: usize, row: usize| match wide.get(argument) {
        None => Some(1),
        Some(values) => {
            let values = values.as_primitive::<Int64Type>();
            values.is_valid(row).then(|| i128::from(values.value(row)))
        }
    };
    // A builder for each of the two types, of which one is used.
    let mut narrow = ListBuilder::new(Int32Builder::new());
    let mut long = ListBuilder::new(Int64Builder::new());
    let is_narrow = *element == DataType::Int32;
    for row in 0..rows {
        let ends = (value(0, row), value(1, row), value(2, row));
        let (Some(from), Some(to), Some(step)) = ends else {
            narrow.append(false);
            long.append(false);
            continue;
        };
        for at in steps(from, to, step)? {
            match is_narrow {
                true => narrow.values().append_option(i32::try_from(at).ok()),
                false => long.values().append_option(i64::try_from(at).ok()),
            }
        }
        narrow.append(true);
        long.append(true);
    }
    Ok(match is_narrow {
        true => Arc::new(narrow.finish()),
        false => Arc::new(long.finish()),
    })
}

fn numerics(arrays: &[ArrayRef], rows: usize, element: DataType, scale: i8) -> Result<ArrayRef> {
    let one = 10_i128.pow(u32::try_from(scale).unwrap_or(0));
    let value = |argument: usize, row: usize| match arrays.get(argument) {
        None => Some(one),
        Some(values) => {
            let values = values.as_primitive::<Decimal128Type>();
            values.is_valid(row).then(|| values.value(row))
        }
    };
    let mut lists = ListBuilder::new(Decimal128Builder::new().with_data_type(element));
    for row in 0..rows {
        let ends = (value(0, row), value(1, row), value(2, row));
        let (Some(from), Some(to), Some(step)) = ends else {
            lists.append(false);
            continue;
        };
        for (count, at) in steps(from, to, step)?.enumerate() {
            if count >= NUMERICS_MAX {
                return Err(SqlError::new(
                    SqlState::ProgramLimitExceeded,
                    format!("generate_series of more than {NUMERICS_MAX} numerics"),
                )
                .into());
            }
            lists.values().append_value(at);
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}
