//! Streams of PostgreSQL servers, and tables that follow those there.

use std::convert::Infallible;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName};
use millrace_catalog::connector::ConnectorDef;
use millrace_catalog::connector::postgres::Postgres;
use millrace_catalog::{ColumnDef, Object};
use millrace_database::database::sources::State;
use millrace_parser::ast::ColumnDefinition;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::{SqlType, timestamptz};
use tokio::sync::oneshot;

use super::New;
use crate::names;
use crate::session::Session;

/// The columns of a stream that has a row for each transaction of a server.
pub(super) fn columns_of(
    connector: Option<&ConnectorDef>,
    given: &[ColumnDefinition],
) -> SqlResult<Option<Vec<ColumnDef>>> {
    match connector.map(ConnectorDef::postgres).transpose()?.flatten() {
        None => Ok(None),
        Some(Postgres::Table(_)) => Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            "a PostgreSQL table can only be followed by a table, not by a stream",
        )
        .with_hint("Use CREATE TABLE: rows can be updated and deleted upstream.")),
        Some(Postgres::Server(_)) if !given.is_empty() => Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            "the stream of a PostgreSQL server has fixed columns: lsn, committed_at and changes",
        )
        .with_hint("Omit the columns: CREATE SOURCE pg WITH (..).")),
        Some(Postgres::Server(_)) => {
            let columns = [
                ("lsn", DataType::Utf8),
                ("committed_at", timestamptz()),
                ("changes", DataType::Int64),
            ];
            let column =
                |(name, data_type)| ColumnDef::plain(Arc::new(SqlType::plain(data_type).field(name, true)));
            Ok(Some(columns.map(column).into()))
        }
    }
}

/// The stream of the server that a table follows.
pub(super) fn source_of(session: &Session, new: &New<'_>) -> SqlResult<Option<Arc<Object>>> {
    let connector = new.connector.as_ref();
    let Some(Postgres::Table(upstream)) = connector.map(ConnectorDef::postgres).transpose()?.flatten() else {
        return Ok(None);
    };
    if session.transaction_is_open() {
        return Err(SqlError::new(
            SqlState::ActiveSqlTransaction,
            "CREATE TABLE .. FROM .. TABLE cannot run inside a transaction block",
        ));
    }
    if new.key.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidTableDefinition,
            "a table that follows another needs a primary key",
        )
        .with_hint("Use the upstream primary key."));
    }
    let parts = match millrace_parser::parse_expression(&upstream.source) {
        Ok(Expr::Identifier(name)) => vec![name],
        Ok(Expr::CompoundIdentifier(parts)) => parts,
        _ => {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("\"{}\" is not the name of a stream", upstream.source),
            ));
        }
    };
    let scope = session.scope();
    let object = names::resolve(session, &scope, &ObjectName::from(parts))?;
    scope.check_read(&object)?;
    let connector = object.relation().and_then(|relation| relation.connector.as_ref());
    match connector.map(ConnectorDef::postgres).transpose()?.flatten() {
        Some(Postgres::Server(_)) => {
            let sources = session.database().sources().list();
            let source = sources.iter().find(|source| source.stream == object.id);
            match source.map(|source| source.progress.state) {
                Some(state @ (State::Paused | State::Failed)) => Err(SqlError::new(
                    SqlState::ObjectNotInPrerequisiteState,
                    format!("{} is {}", object.described(), state.name()),
                )
                .with_hint(format!("RESUME STREAM {}", object.name))),
                _ => Ok(Some(object)),
            }
        }
        _ => Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("{} is not the stream of a PostgreSQL server", object.described()),
        )
        .with_hint("Use CREATE SOURCE pg WITH (connector = 'postgres-cdc', ..).")),
    }
}

/// Has the table filled, and waits until it is; if it cannot be, or the statement ends before, nothing is left of it.
pub(super) async fn fill(session: &Arc<Session>, source: &Arc<Object>, table: &Object) -> SqlResult<()> {
    // The definition is there; the statement can still be ended.
    let may_go_on = session.running().reopen();
    let db = Arc::clone(session.database());
    let (source, table) = (Arc::clone(source), table.id);
    // A statement that is ended is dropped where it waits: what undoes it is a task of its own, and sees that by its end of this.
    let (waits, ended) = oneshot::channel::<Infallible>();
    let filling = tokio::spawn(async move {
        let begun = match may_go_on {
            // Not given up half way: it stops a task, and starts another.
            Ok(()) => db.restart_source(&source, async || Ok(())).await,
            error => error,
        };
        let filled = match begun {
            Ok(()) => tokio::select! {
                copied = db.table_is_copied(source.id, table) => copied,
                _ = ended => Err(SqlError::new(SqlState::QueryCanceled, "the statement was ended")),
            },
            error => error,
        };
        if filled.is_err() {
            db.drop_unfilled(&source, table).await?;
        }
        filled
    });
    let filled = filling.await;
    drop(waits);
    filled.map_err(|error| SqlError::internal(format!("filling: {error}")))?
}
