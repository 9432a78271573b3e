//! PREPARE, EXECUTE and DEALLOCATE as SQL.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::DFSchema;
use datafusion::logical_expr::ColumnarValue;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Ident, ObjectName};
use millrace_database::running::Running;
use millrace_functions::sql::rewrite;
use millrace_parser::Parsed;
use millrace_parser::ast::Statement;
use millrace_planner::Binder;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal::df;
use millrace_postgres::types;

use crate::limits::check_limit;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;
use crate::{names, position};

/// PREPARE name (types) AS statement.
pub fn prepare(
    session: &Session,
    name: &Ident,
    data_types: &[DataType],
    statement: ast::Statement,
    said: &str,
    running: &Running,
) -> SqlResult<Outcome> {
    check_preparable(&statement)?;
    let name = millrace_parser::fold(name);
    if session.prepared.lock().contains_key(&name) {
        return Err(SqlError::new(
            SqlState::DuplicatePreparedStatement,
            format!("prepared statement \"{name}\" already exists"),
        ));
    }
    let kept = session.prepared.lock().len();
    check_limit(kept, "prepared statements")?;
    let given = data_types
        .iter()
        .map(|data_type| {
            Ok(Some(types::pg_type(
                &types::from_sql(data_type)?.field("parameter", true),
            )))
        })
        .collect::<SqlResult<Vec<_>>>()?;
    let text = statement.to_string();
    let parsed = Parsed {
        statement: Statement::Sql(Box::new(statement)),
        text,
        offset: 0,
    };
    let mut prepared = session.make_prepared(Some(parsed), &given)?;
    if let Some(prepared) = Arc::get_mut(&mut prepared) {
        prepared.said = said.to_owned();
    }
    // One that was ended meanwhile leaves nothing.
    running.submit()?;
    session.prepared.lock().insert(name, prepared);
    done("PREPARE")
}

/// As in PostgreSQL, only queries and changes of rows can be prepared. So what is executed never is EXECUTE again.
fn check_preparable(statement: &ast::Statement) -> SqlResult<()> {
    if matches!(
        statement,
        ast::Statement::Query(_)
            | ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Merge(_)
    ) {
        return Ok(());
    }
    let text = statement.to_string();
    let word = text.split_whitespace().next().unwrap_or_default();
    Err(SqlError::new(
        SqlState::SyntaxError,
        format!("syntax error at or near \"{word}\""),
    )
    .with_detail("Only SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES can be prepared."))
}

/// EXECUTE name (values). The future is boxed because the executor of statements is behind it.
pub fn execute<'a>(
    session: &'a Arc<Session>,
    name: Option<&'a ObjectName>,
    parameters: &'a [Expr],
    running: Running,
) -> Pin<Box<dyn Future<Output = SqlResult<Outcome>> + Send + 'a>> {
    Box::pin(async move {
        let name = name.map(names::last).unwrap_or_default();
        let prepared = session
            .prepared
            .lock()
            .get(&name)
            .cloned()
            .ok_or_else(|| undefined(&name))?;
        if parameters.len() != prepared.param_types.len() {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .with_detail(format!(
                "Expected {} parameters but got {}.",
                prepared.param_types.len(),
                parameters.len()
            )));
        }
        let values = parameters
            .iter()
            .map(|expr| constant(session, expr))
            .collect::<SqlResult<Vec<_>>>()?;
        let mut typed = vec![];
        let types_now = session.types_now(&prepared.param_types);
        for (index, ((from, value), pg)) in values.into_iter().zip(&types_now).enumerate() {
            typed.push(match types::from_pg(pg) {
                Some(target) => {
                    let to = target.field("parameter", true);
                    if !is_literal(&parameters[index]) && !millrace_functions::cast::assignable(&from, &to) {
                        return Err(SqlError::new(
                            SqlState::DatatypeMismatch,
                            format!(
                                "parameter ${} of type {} cannot be coerced to the expected type {}",
                                index + 1,
                                types::plain_name(&from),
                                types::plain_name(&to)
                            ),
                        )
                        .with_hint("You will need to rewrite or cast the expression."));
                    }
                    let array = df(value.to_array())?;
                    let array = df(millrace_functions::cast::convert(&from, &to, &array))?;
                    df(ScalarValue::try_from_array(&array, 0))?
                }
                None => value,
            });
        }
        match &prepared.parsed {
            None => Ok(Outcome::Empty),
            Some(parsed) => {
                session.check_not_failed(&parsed.statement)?;
                session
                    .execute_within(parsed, &prepared.param_types, &typed, running)
                    .await
                    .map_err(|error| position::locate(error, parsed))
            }
        }
    })
}

/// Whether an expression is a literal, which takes the type that is wanted.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Nested(inner) => is_literal(inner),
        _ => false,
    }
}

/// The value of an expression without columns, and what is known of its type.
fn constant(session: &Session, expr: &Expr) -> SqlResult<(FieldRef, ScalarValue)> {
    let mut expr = expr.clone();
    crate::constants::replace(session, &mut expr)?;
    rewrite::expression(&mut expr)?;
    let scope = session.scope();
    let reader = session.database().reader(&scope);
    let state = session.database().statement_state();
    let empty = DFSchema::empty();
    let bound = df(Binder::new(&state, &reader).expression(&expr, &empty))?;
    let physical = df(millrace_functions::bounded::physical(&state, bound, &empty))?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let batch = arrow::array::RecordBatch::try_new_with_options(
        Arc::new(arrow::datatypes::Schema::empty()),
        vec![],
        &options,
    )
    .map_err(millrace_postgres::from_internal::arrow)?;
    let field = df(physical.return_field(&batch.schema()))?;
    let value = match df(physical.evaluate(&batch))? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(array) => df(ScalarValue::try_from_array(&array, 0))?,
    };
    Ok((field, value))
}

/// DEALLOCATE name, DEALLOCATE ALL.
pub(crate) fn deallocate(session: &Session, name: &Ident) -> SqlResult<Outcome> {
    if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
        session.prepared.lock().clear();
        return done("DEALLOCATE ALL");
    }
    let name = millrace_parser::fold(name);
    match session.prepared.lock().remove(&name) {
        Some(_) => done("DEALLOCATE"),
        None => Err(undefined(&name)),
    }
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidSqlStatementName,
        format!("prepared statement \"{name}\" does not exist"),
    )
}
