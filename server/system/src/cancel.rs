//! `pg_cancel_backend(pid)` and `pg_terminate_backend(pid)`: one session ends the statement of another, or all of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use millrace_catalog::CatalogSnapshot;
use millrace_catalog::access::denied;
use millrace_catalog::role::SIGNAL_BACKEND;
use millrace_catalog::scope::Scope;
use millrace_database::sessions::Sessions;
use millrace_postgres::error::SqlResult;
use millrace_storage::ObjectId;

/// `name(int) -> bool`: false if there is no such session.
pub fn udfs(sessions: &Arc<Sessions>) -> Vec<ScalarUDF> {
    ENDS.iter().map(|end| made(end, sessions, None)).collect()
}

/// Whether a function is one of these.
pub fn asks_statement(name: &str) -> bool {
    ENDS.iter().any(|(known, ..)| *known == name)
}

/// The function of that name for a statement, which knows who calls it; `None`: it is none of these.
pub fn of_statement(sessions: &Arc<Sessions>, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>> {
    let end = ENDS.iter().find(|(known, ..)| *known == name)?;
    let caller = scope.acting.is_checked.then(|| Caller {
        catalog: Arc::clone(&scope.catalog),
        role: scope.acting.role,
    });
    Some(Arc::new(made(end, sessions, caller)))
}

/// A function's name, what it does to a session, and how an error calls that.
type End = (&'static str, fn(&Sessions, i32) -> bool, &'static str);

const ENDS: [End; 2] = [
    ("pg_cancel_backend", Sessions::cancel, "cancel query"),
    ("pg_terminate_backend", Sessions::terminate, "terminate process"),
];

fn made((name, end, what): &End, sessions: &Arc<Sessions>, caller: Option<Caller>) -> ScalarUDF {
    ScalarUDF::from(EndBackend {
        name,
        end: *end,
        what,
        caller,
        sessions: Arc::clone(sessions),
        signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
    })
}

/// Who calls, where privileges are enforced.
#[derive(Debug, Clone)]
struct Caller {
    catalog: Arc<CatalogSnapshot>,
    role: ObjectId,
}

impl Caller {
    /// Refuses to end a session of somebody else.
    fn check(&self, of: ObjectId, what: &str) -> SqlResult<()> {
        let is_superuser = self.catalog.is_superuser(of);
        if is_superuser && !self.catalog.is_superuser(self.role) {
            return Err(denied(format!("must be a superuser to {what} of a superuser")));
        }
        let may = self.catalog.has_role(self.role, of) || self.catalog.has_role(self.role, SIGNAL_BACKEND);
        match may {
            true => Ok(()),
            false => Err(denied(format!(
                "must be a member of the role whose {what} is asked for or member of pg_signal_backend"
            ))),
        }
    }
}

#[derive(Debug)]
struct EndBackend {
    name: &'static str,
    end: fn(&Sessions, i32) -> bool,
    what: &'static str,
    caller: Option<Caller>,
    sessions: Arc<Sessions>,
    signature: Signature,
}

impl PartialEq for EndBackend {
    fn eq(&self, other: &Self) -> bool {
        let caller = |end: &EndBackend| end.caller.as_ref().map(|caller| caller.role);
        self.name == other.name
            && Arc::ptr_eq(&self.sessions, &other.sessions)
            && caller(self) == caller(other)
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
        let cancel = |id: i64| -> SqlResult<bool> {
            let Some((id, session)) = i32::try_from(id)
                .ok()
                .and_then(|id| Some((id, self.sessions.get(id)?)))
            else {
                return Ok(false);
            };
            if let Some(caller) = &self.caller {
                caller.check(session.user(), self.what)?;
            }
            Ok((self.end)(&self.sessions, id))
        };
        let cancelled = ids
            .map(|id| id.map(cancel).transpose())
            .collect::<SqlResult<BooleanArray>>()?;
        Ok(ColumnarValue::Array(Arc::new(cancelled)))
    }
}
