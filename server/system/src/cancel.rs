//! `pg_cancel_backend(pid)` and `pg_terminate_backend(pid)`: one session ends the statement of another, or all of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_database::sessions::Sessions;

/// `name(int) -> bool`: false if there is no such session.
pub fn udfs(sessions: &Arc<Sessions>) -> Vec<ScalarUDF> {
    let udf = |name, end| {
        ScalarUDF::from(EndBackend {
            name,
            end,
            sessions: Arc::clone(sessions),
            signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
        })
    };
    vec![
        udf("pg_cancel_backend", Sessions::cancel),
        udf("pg_terminate_backend", Sessions::terminate),
    ]
}

#[derive(Debug)]
struct EndBackend {
    name: &'static str,
    end: fn(&Sessions, i32) -> bool,
    sessions: Arc<Sessions>,
    signature: Signature,
}

impl PartialEq for EndBackend {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.sessions, &other.sessions)
    }
}

impl Eq for EndBackend {}

impl Hash for EndBackend {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        Arc::as_ptr(&self.sessions).hash(state);
    }
}

impl ScalarUDFImpl for EndBackend {
    fn name(&self) -> &str {
        self.name
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
        let cancel = |id: i64| i32::try_from(id).is_ok_and(|id| (self.end)(&self.sessions, id));
        let cancelled: BooleanArray = ids.map(|id| id.map(cancel)).collect();
        Ok(ColumnarValue::Array(Arc::new(cancelled)))
    }
}
