//! `pg_cancel_backend(pid)`: one session ends the statement of another.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::database::sessions::Sessions;

/// `pg_cancel_backend(int) -> bool`: false if there is no such session.
pub fn udf(sessions: &Arc<Sessions>) -> ScalarUDF {
    ScalarUDF::from(CancelBackend {
        sessions: Arc::clone(sessions),
        signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
    })
}

#[derive(Debug)]
struct CancelBackend {
    sessions: Arc<Sessions>,
    signature: Signature,
}

impl PartialEq for CancelBackend {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sessions, &other.sessions)
    }
}

impl Eq for CancelBackend {}

impl Hash for CancelBackend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.sessions).hash(state);
    }
}

impl ScalarUDFImpl for CancelBackend {
    fn name(&self) -> &str {
        "pg_cancel_backend"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ids = args.args[0].to_array(args.number_rows)?;
        let ids = ids.as_primitive::<Int64Type>().iter();
        let cancel = |id: i64| i32::try_from(id).is_ok_and(|id| self.sessions.cancel(id));
        let cancelled: BooleanArray = ids.map(|id| id.map(cancel)).collect();
        Ok(ColumnarValue::Array(Arc::new(cancelled)))
    }
}
