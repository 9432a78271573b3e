//! `date_bin(width, time, origin)`: DataFusion's, which takes months and widths below zero too.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::datetime::date_bin;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DateBin { inner: date_bin() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DateBin {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DateBin {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        check(&args.args)?;
        self.inner.invoke_with_args(args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// Refuses a width that is none, where there is something to be binned. DataFusion takes no other than a constant.
fn check(args: &[ColumnarValue]) -> SqlResult<()> {
    let is_null = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(value) if value.is_null());
    let Some(ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width)))) = args.first() else {
        return Ok(());
    };
    if args.iter().any(is_null) {
        return Ok(());
    }
    if width.months != 0 {
        return Err(SqlError::unsupported(
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let nanos = i128::from(width.days) * 86_400_000_000_000 + i128::from(width.nanoseconds);
    if nanos <= 0 {
        return Err(SqlError::new(
            SqlState::DatetimeFieldOverflow,
            "stride must be greater than zero",
        ));
    }
    Ok(())
}
