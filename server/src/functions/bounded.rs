//! Functions whose output can be much larger than their input, with a limit on it.
//!
//! PostgreSQL refuses a value of more than a gigabyte and makes the rows of a series one by one. DataFusion makes a whole
//! batch of values at once, and a server that runs out of memory there is dead: the sizes are looked at before.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, FieldRef, Int64Type, IntervalMonthDayNanoType};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::error::{SqlError, SqlState};

/// The largest value that one of them makes, in bytes.
const VALUE_BYTES_MAX: u64 = 256 << 20;
/// The most that it makes for the rows of one batch together, in bytes.
const BATCH_BYTES_MAX: u64 = 1 << 30;

/// How the size of a value follows from the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Size {
    /// `repeat(text, n)`
    Repeated,
    /// `lpad(text, n, ..)`
    Padded,
    /// `array_repeat(element, n)`
    ArrayRepeated,
    /// `array_resize(array, n, ..)`
    ArrayResized,
    /// `generate_series(from, to, step)`, which has one element more than `range`
    Series,
}

/// The functions, by DataFusion's names.
const BOUNDED: [(&str, Size); 7] = [
    ("repeat", Size::Repeated),
    ("lpad", Size::Padded),
    ("rpad", Size::Padded),
    ("array_repeat", Size::ArrayRepeated),
    ("array_resize", Size::ArrayResized),
    ("generate_series", Size::Series),
    ("range", Size::Series),
];

/// Puts the limits on functions that are registered already.
///
/// # Errors
/// One of them is not there.
pub fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, size) in BOUNDED {
        let inner = registry.udf(name)?;
        registry.register_udf(Arc::new(ScalarUDF::from(Bounded { inner, size })))?;
    }
    Ok(())
}

/// A function of DataFusion, asked only for what fits.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    size: Size,
}

impl Bounded {
    /// Checks the sizes of all values.
    fn check(&self, args: &ScalarFunctionArgs) -> Result<()> {
        let is_scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let arrays = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<Vec<_>>>()?;
        let mut total = 0_u64;
        for row in 0..rows {
            let bytes = self.size.bytes(&arrays, row).unwrap_or(0);
            if bytes > VALUE_BYTES_MAX {
                return Err(too_large(self.name(), VALUE_BYTES_MAX, "of a value"));
            }
            total = total.saturating_add(bytes);
        }
        if total > BATCH_BYTES_MAX {
            return Err(too_large(
                self.name(),
                BATCH_BYTES_MAX,
                "of the values of a batch of rows",
            ));
        }
        Ok(())
    }
}

fn too_large(name: &str, limit: u64, of: &str) -> datafusion::error::DataFusionError {
    let message = format!(
        "the result of {name} is too large: {} MB {of} is the limit",
        limit >> 20
    );
    SqlError::new(SqlState::ProgramLimitExceeded, message).into()
}

impl Size {
    /// The size of a row's value in bytes, about; `None` if an argument is NULL or of no type that is known.
    fn bytes(self, args: &[ArrayRef], row: usize) -> Option<u64> {
        let times = || {
            let number = integer(args.get(1)?, row)?;
            u64::try_from(number).ok()
        };
        Some(match self {
            Size::Repeated => times()?.saturating_mul(text_length(&args[0], row)?),
            Size::Padded => times()?,
            Size::ArrayRepeated => {
                let array = &args[0];
                let element = (array.get_buffer_memory_size() / array.len().max(1)).max(1) as u64;
                times()?.saturating_mul(element)
            }
            Size::ArrayResized => times()?.saturating_mul(8),
            Size::Series => series_length(args, row)?.saturating_mul(8),
        })
    }
}

fn integer(array: &ArrayRef, row: usize) -> Option<i64> {
    if array.is_null(row) {
        return None;
    }
    let one = arrow::compute::cast(&array.slice(row, 1), &DataType::Int64).ok()?;
    one.is_valid(0).then(|| one.as_primitive::<Int64Type>().value(0))
}

fn text_length(array: &ArrayRef, row: usize) -> Option<u64> {
    if array.is_null(row) {
        return None;
    }
    let length = match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).len(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).len(),
        DataType::Utf8View => array.as_string_view().value(row).len(),
        _ => return None,
    };
    Some(length as u64)
}

/// Elements of a series, or a few more.
fn series_length(args: &[ArrayRef], row: usize) -> Option<u64> {
    let (from, to, step) = match args {
        [to] => (0, integer(to, row)?, 1),
        [from, to] => (integer(from, row)?, integer(to, row)?, 1),
        [from, to, step] => match step.data_type() {
            DataType::Interval(_) => {
                if step.is_null(row) {
                    return None;
                }
                let whole = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
                let step = arrow::compute::cast(&step.slice(row, 1), &whole).ok()?;
                let step = step.as_primitive::<IntervalMonthDayNanoType>().value(0);
                let days = i64::from(step.months) * 28 + i64::from(step.days);
                let nanoseconds = days
                    .saturating_mul(86_400_000_000_000)
                    .saturating_add(step.nanoseconds);
                (nanoseconds_of(from, row)?, nanoseconds_of(to, row)?, nanoseconds)
            }
            _ => (integer(from, row)?, integer(to, row)?, integer(step, row)?),
        },
        _ => return None,
    };
    // No step is an error of its own, and a step away from the end makes nothing.
    if step == 0 || (step > 0) != (to >= from) {
        return Some(1);
    }
    Some((to.abs_diff(from) / step.unsigned_abs()).saturating_add(1))
}

fn nanoseconds_of(array: &ArrayRef, row: usize) -> Option<i64> {
    let micros = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let one = arrow::compute::cast(&array.slice(row, 1), &micros).ok()?;
    let one = arrow::compute::cast(&one, &DataType::Int64).ok()?;
    one.is_valid(0)
        .then(|| one.as_primitive::<Int64Type>().value(0).saturating_mul(1_000))
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.check(&args)?;
        self.inner.invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};

    use super::*;

    fn numbers(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn sizes_follow_the_arguments() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["abc", "", "x"]));
        let times = numbers(&[Some(5), Some(i64::MAX), None]);
        let args = [text, times];
        assert_eq!(Size::Repeated.bytes(&args, 0), Some(15));
        assert_eq!(Size::Repeated.bytes(&args, 1), Some(0));
        assert_eq!(Size::Repeated.bytes(&args, 2), None);
        let args = [numbers(&[Some(i64::MIN)]), numbers(&[Some(i64::MAX)])];
        assert_eq!(series_length(&args, 0), Some(u64::MAX));
        let args = [numbers(&[Some(9)]), numbers(&[Some(1)]), numbers(&[Some(-2)])];
        assert_eq!(series_length(&args, 0), Some(5));
        let args = [numbers(&[Some(1)]), numbers(&[Some(9)]), numbers(&[Some(-2)])];
        assert_eq!(series_length(&args, 0), Some(1));
    }
}
