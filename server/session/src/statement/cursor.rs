//! DECLARE, FETCH and CLOSE, over queries.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, CloseCursor, Declare, FetchDirection};
use millrace_database::running::Running;
use millrace_parser::ast::Fetch;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use crate::cursor::Cursor;
use crate::limits::check_limit;
use crate::outcome::{CommandTag, Outcome};
use crate::query::{Providers, renamed};
use crate::session::Session;
use crate::statement::{done, select};
use crate::transaction::Transaction;

/// DECLARE name CURSOR FOR query.
pub async fn declare(
    session: &Arc<Session>,
    statements: Vec<Declare>,
    text: &str,
    running: Running,
) -> SqlResult<Outcome> {
    for statement in statements {
        let (Some(name), Some(query)) = (statement.names.first(), statement.for_query) else {
            return Err(SqlError::unsupported("DECLARE declares cursors only"));
        };
        let name = millrace_parser::fold(name);
        let hold = statement.hold == Some(true);
        if statement.binary == Some(true) {
            return Err(SqlError::unsupported("binary cursors are not supported"));
        }
        if statement.scroll == Some(true) {
            return Err(SqlError::unsupported("scrolling cursors are not supported")
                .with_hint("Declare it with NO SCROLL: rows can only be fetched forward."));
        }
        let in_transaction =
            matches!(&*session.transaction.lock(), Transaction::Active(active) if !active.implicit);
        if !hold && !in_transaction {
            return Err(SqlError::new(
                SqlState::NoActiveSqlTransaction,
                "DECLARE CURSOR can only be used in transaction blocks",
            )
            .with_hint("Use BEGIN first, or declare it WITH HOLD."));
        }
        if session.cursors.lock().contains_key(&name) {
            return Err(SqlError::new(
                SqlState::DuplicateCursor,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let kept = session.cursors.lock().len();
        check_limit(kept, "cursors")?;
        let scope = session.scope();
        let mut statement = ast::Statement::Query(query);
        let (plan, names) = select::bind(session, &scope, &mut statement, select::Purpose::Run)?;
        let physical = session.physical_plan(plan, &Providers::new()).await?;
        let stream = session.start(physical)?;
        let schema = renamed(&stream.schema(), &names);
        session
            .cursors
            .lock()
            .insert(name, Cursor::new(hold, text.to_string(), schema, stream));
    }
    // The cursor's stream outlives this statement; each FETCH has its own right to run.
    drop(running);
    done("DECLARE CURSOR")
}

/// FETCH count FROM name.
pub(crate) async fn fetch(session: &Arc<Session>, fetch: &Fetch, running: Running) -> SqlResult<Outcome> {
    let name = millrace_parser::fold(&fetch.cursor);
    let count = count(&fetch.direction)?;
    let cursor = (session.cursors.lock().get(&name).cloned()).ok_or_else(|| undefined(&name))?;
    let Some(rows) = cursor.fetch(count) else {
        return Err(
            SqlError::new(SqlState::ObjectInUse, format!("cursor \"{name}\" is in use"))
                .with_detail("The rows of the previous FETCH have not all been read."),
        );
    };
    let (schema, stream) = session.guarded(rows, &[], running);
    Ok(Outcome::Rows {
        schema,
        stream,
        tag: CommandTag::sent("FETCH"),
    })
}

fn count(direction: &FetchDirection) -> SqlResult<usize> {
    let number = |value: &ast::Value| match value {
        ast::Value::Number(text, _) => text.parse::<usize>().map_err(|_| {
            SqlError::new(
                SqlState::SyntaxError,
                format!("FETCH takes a count of rows, not {text}"),
            )
        }),
        other => Err(SqlError::new(
            SqlState::SyntaxError,
            format!("FETCH takes a count of rows, not {other}"),
        )),
    };
    match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Ok(1),
        FetchDirection::All | FetchDirection::ForwardAll => Ok(usize::MAX),
        FetchDirection::Count { limit } => number(&limit.value),
        FetchDirection::Forward { limit: Some(limit) } => number(&limit.value),
        other => Err(SqlError::new(
            SqlState::ObjectNotInPrerequisiteState,
            "cursor can only scan forward",
        )
        .with_detail(format!("FETCH {other} would move backward or skip rows."))),
    }
}

/// CLOSE name, CLOSE ALL.
pub fn close(session: &Session, which: &CloseCursor) -> SqlResult<Outcome> {
    match which {
        CloseCursor::All => {
            session.cursors.lock().clear();
            done("CLOSE CURSOR ALL")
        }
        CloseCursor::Specific { name } => {
            let name = millrace_parser::fold(name);
            match session.cursors.lock().remove(&name) {
                Some(_) => done("CLOSE CURSOR"),
                None => Err(undefined(&name)),
            }
        }
    }
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidCursorName,
        format!("cursor \"{name}\" does not exist"),
    )
}
