//! `clock_timestamp()`: the time at which it is computed, which goes on within a statement and a transaction. `now()` is the time at
//! which the transaction began. In a view both are the view's clock.
//!
//! DataFusion's `now()` has nanoseconds, and whatever is compared with it is cast to them: no time behind the year 2262 can be.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types;

/// The functions.
pub fn udfs() -> [Arc<ScalarUDF>; 2] {
    let clock = Clock {
        signature: Signature::nullary(Volatility::Volatile),
    };
    [Arc::new(ScalarUDF::from(clock)), now()]
}

/// `now()`.
pub(crate) fn now() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Now {
        signature: Signature::nullary(Volatility::Stable),
        aliases: vec!["current_timestamp".to_owned()],
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Now {
    signature: Signature,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &'static str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(types::timestamptz())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name(), types::timestamptz(), false)))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let now = instant(Some(now.timestamp_micros()));
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(now, None)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(exec_datafusion_err!(
            "now() is evaluated when a statement is planned"
        ))
    }
}

fn instant(micros: Option<i64>) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(micros, Some(Arc::from("UTC")))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    signature: Signature,
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &'static str {
        "clock_timestamp"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(types::timestamptz())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the clock of the machine is what is asked for"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.ok().and_then(|now| i64::try_from(now.as_micros()).ok());
        let Some(micros) = micros else {
            return Err(exec_datafusion_err!("the clock of this machine is before 1970"));
        };
        Ok(ColumnarValue::Scalar(instant(Some(micros))))
    }
}
