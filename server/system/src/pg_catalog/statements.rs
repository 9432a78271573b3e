//! `pg_stat_statements` and `pg_stat_statements_info`, as version 1.10 of PostgreSQL's extension has them, and
//! `pg_stat_statements_reset()`.
//!
//! Columns of buffers, blocks, WAL and JIT are left out: there is nothing that they could count. Planning is not measured apart, as with
//! `pg_stat_statements.track_planning = off`, and statements inside of others are not counted.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use millrace_catalog::access::denied;
use millrace_catalog::role::MONITOR;
use millrace_catalog::scope::{Acting, Scope};
use millrace_database::Database;
use millrace_database::sessions::Sessions;
use millrace_database::statements::{Counts, Key};
use millrace_postgres::error::SqlResult;

use super::activity::HIDDEN;
use super::oid;
use super::roles::role_oid;
use super::table::{Row, provider};

const RESET: &str = "pg_stat_statements_reset";

/// One row a statement, role and database. Others' texts are hidden.
///
/// # Errors
/// The rows could not be put together.
pub fn relation(database: &Database, viewer: Acting) -> SqlResult<Arc<dyn TableProvider>> {
    let catalog = database.catalog();
    let sees_all = !viewer.is_checked || catalog.has_role(viewer.role, MONITOR);
    let statements = database.statements().all().into_iter();
    let rows = statements.map(|(key, text, counts)| {
        let sees = sees_all || catalog.has_role(viewer.role, key.user);
        row(&key, sees.then_some(text), &counts)
    });
    provider(&schema(), &rows.collect::<Vec<Row>>())
}

/// How often statements had to go to make room, and since when they are counted.
///
/// # Errors
/// The row could not be put together.
pub fn info(database: &Database) -> SqlResult<Arc<dyn TableProvider>> {
    let (cleared, since_ms) = database.statements().info();
    let since = chrono::DateTime::from_timestamp_millis(since_ms);
    let row = Row::from([
        ("dealloc", cleared.to_string()),
        (
            "stats_reset",
            since.map(|since| since.to_rfc3339()).unwrap_or_default(),
        ),
    ]);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = Schema::new(vec![
        Field::new("dealloc", DataType::Int64, true),
        Field::new("stats_reset", time, true),
    ]);
    provider(&Arc::new(schema), &[row])
}

fn schema() -> Arc<Schema> {
    let mut fields: Vec<Field> = [
        ("userid", DataType::Int32),
        ("dbid", DataType::Int32),
        ("toplevel", DataType::Boolean),
        ("queryid", DataType::Int64),
        ("query", DataType::Utf8),
    ]
    .map(|(name, data_type)| Field::new(name, data_type, true))
    .into();
    for (calls, what) in [("plans", "plan"), ("calls", "exec")] {
        fields.push(Field::new(calls, DataType::Int64, false));
        for measure in ["total", "min", "max", "mean", "stddev"] {
            fields.push(Field::new(
                format!("{measure}_{what}_time"),
                DataType::Float64,
                false,
            ));
        }
    }
    fields.push(Field::new("rows", DataType::Int64, false));
    Arc::new(Schema::new(fields))
}

fn row(key: &Key, text: Option<String>, counts: &Counts) -> Row {
    let mut row = Row::from([
        ("userid", role_oid(key.user).to_string()),
        ("dbid", oid(key.database).to_string()),
        ("toplevel", "t".to_owned()),
        ("calls", counts.calls.to_string()),
        ("total_exec_time", counts.total_ms.to_string()),
        ("min_exec_time", counts.min_ms.to_string()),
        ("max_exec_time", counts.max_ms.to_string()),
        ("mean_exec_time", counts.mean_ms.to_string()),
        ("stddev_exec_time", counts.stddev_ms().to_string()),
        ("rows", counts.rows.to_string()),
    ]);
    match text {
        Some(text) => {
            row.insert("queryid", key.query.to_string());
            row.insert("query", text);
        }
        None => {
            row.insert("query", HIDDEN.to_owned());
        }
    }
    row
}

/// `pg_stat_statements_reset([userid [, dbid [, queryid]]])`: 0 stands for all.
pub fn udfs(sessions: &Arc<Sessions>) -> Vec<ScalarUDF> {
    vec![made(sessions, true)]
}

/// Whether a function is the one of here.
pub fn asks_statement(name: &str) -> bool {
    name == RESET
}

/// The function of that name for a statement, which knows who calls it; `None`: it is another.
pub fn of_statement(sessions: &Arc<Sessions>, scope: &Scope, name: &str) -> Option<Arc<ScalarUDF>> {
    let may = !scope.acting.is_checked || scope.catalog.is_superuser(scope.acting.role);
    asks_statement(name).then(|| Arc::new(made(sessions, may)))
}

fn made(sessions: &Arc<Sessions>, may: bool) -> ScalarUDF {
    let exact = |count| TypeSignature::Exact(vec![DataType::Int64; count]);
    let forms = vec![TypeSignature::Nullary, exact(1), exact(2), exact(3)];
    ScalarUDF::from(Reset {
        sessions: Arc::clone(sessions),
        may,
        signature: Signature::one_of(forms, Volatility::Volatile),
    })
}

#[derive(Debug)]
struct Reset {
    sessions: Arc<Sessions>,
    /// Whether the caller has the right to.
    may: bool,
    signature: Signature,
}

impl PartialEq for Reset {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sessions, &other.sessions) && self.may == other.may
    }
}

impl Eq for Reset {}

impl Hash for Reset {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.sessions).hash(state);
    }
}

impl ScalarUDFImpl for Reset {
    fn name(&self) -> &str {
        RESET
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !self.may {
            return Err(denied(format!("permission denied for function {RESET}")).into());
        }
        let columns = (args.args.iter())
            .map(|argument| argument.to_array(args.number_rows))
            .collect::<Result<Vec<_>>>()?;
        let columns: Vec<_> = columns
            .iter()
            .map(|column| column.as_primitive::<Int64Type>())
            .collect();
        for row in 0..args.number_rows {
            // As in PostgreSQL, of no argument NULL can be one: nothing is done then.
            if columns.iter().any(|column| column.is_null(row)) {
                continue;
            }
            let wanted = |place: usize| columns.get(place).map_or(0, |column| column.value(row));
            let (user, database, query) = (wanted(0), wanted(1), wanted(2));
            let fits = |wanted: i64, found: i64| wanted == 0 || wanted == found;
            self.sessions
                .statements
                .reset([user, database, query] == [0; 3], |key| {
                    fits(user, role_oid(key.user))
                        && fits(database, oid(key.database))
                        && fits(query, key.query)
                });
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(String::new()))))
    }
}
