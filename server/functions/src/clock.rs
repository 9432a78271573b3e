//! `clock_timestamp()`: the time at which it is computed, which goes on within a statement and a transaction. `now()` is the time at
//! which the transaction began. In a view both are the view's clock.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;
use millrace_postgres::types;

/// The function.
pub fn udf() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Clock {
        signature: Signature::nullary(Volatility::Volatile),
    }))
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
        let zone = Some(Arc::from("UTC"));
        Ok(ColumnarValue::Scalar(ScalarValue::TimestampMicrosecond(
            Some(micros),
            zone,
        )))
    }
}
