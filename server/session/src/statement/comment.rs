//! COMMENT ON.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CommentObject, ObjectName};
use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object};
use millrace_database::database::rows::positions;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Executes COMMENT.
pub async fn execute(
    session: &Arc<Session>,
    kind: CommentObject,
    name: &ObjectName,
    comment: Option<String>,
    if_exists: bool,
) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let object = match target(session, &scope, &kind, name) {
        Ok(found) => found,
        Err(error)
            if if_exists && matches!(error.code, SqlState::UndefinedTable | SqlState::UndefinedColumn) =>
        {
            return done("COMMENT");
        }
        Err(error) => return Err(error),
    };
    let (object, column) = object;
    scope.check_owner(&object)?;
    session.database().jobs().check_unlocked(&[object.id])?;
    // An empty comment is none, as in PostgreSQL.
    let comment = comment.filter(|text| !text.is_empty());
    let mut changed: Object = object.as_ref().clone();
    match (column, &mut changed.definition) {
        (None, _) => changed.comment = comment,
        (Some(column), Definition::Relation(relation)) => {
            let position = positions(relation, &[column])?[0];
            relation.columns[position].comment = comment;
        }
        (Some(_), _) => {
            return Err(SqlError::unsupported(format!(
                "comments on columns of {} are not supported",
                object.described()
            )));
        }
    }
    guard.put(changed)?;
    done("COMMENT")
}

fn target(
    session: &Session,
    scope: &Scope,
    kind: &CommentObject,
    name: &ObjectName,
) -> SqlResult<(Arc<Object>, Option<String>)> {
    let wanted: &[ObjectKind] = match kind {
        CommentObject::Column => {
            let mut relation = name.clone();
            let column = ObjectName(relation.0.pop().into_iter().collect());
            if relation.0.is_empty() {
                return Err(SqlError::new(
                    SqlState::SyntaxError,
                    "column name must be qualified",
                ));
            }
            return Ok((
                names::resolve(session, scope, &relation)?,
                Some(names::last(&column)),
            ));
        }
        CommentObject::Table => &[ObjectKind::Table, ObjectKind::Stream, ObjectKind::ExternalTable],
        CommentObject::View => &[ObjectKind::View],
        CommentObject::MaterializedView => &[ObjectKind::MaterializedView],
        CommentObject::Index => &[ObjectKind::Index],
        CommentObject::Type | CommentObject::Domain => {
            return Ok((names::user_type(session, scope, name)?, None));
        }
        CommentObject::Schema => return Ok((names::schema(scope, &names::last(name))?, None)),
        CommentObject::Database => return Ok((names::database(scope, &names::last(name))?, None)),
        other => {
            return Err(SqlError::unsupported(format!(
                "COMMENT ON {other} is not supported"
            )));
        }
    };
    let object = names::resolve(session, scope, name)?;
    if wanted.contains(&object.kind) {
        Ok((object, None))
    } else {
        Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("\"{}\" is not a {}", object.name, kind.to_string().to_lowercase()),
        )
        .with_detail(format!("It is a {}.", millrace_catalog::kind_name(object.kind))))
    }
}
