//! What an error says of rows is for whoever may read them: DETAIL of a constraint that is violated shows a row, or its key. It may be
//! another's row, or have values that the statement has not given.

use millrace_catalog::rights::Privileges;
use millrace_postgres::error::{SqlError, SqlState};

use crate::session::Session;

/// What PostgreSQL says of a foreign key in place of the values.
const REFERENCED: &str = " is still referenced from table ";
const MISSING: &str = " is not present in table ";

/// An error as whoever acts may see it: without a row, or a key, of a relation that it may not select from.
pub(crate) fn withheld(session: &Session, mut error: SqlError) -> SqlError {
    let shows_rows = matches!(
        error.code,
        SqlState::NotNullViolation
            | SqlState::CheckViolation
            | SqlState::UniqueViolation
            | SqlState::ForeignKeyViolation
    );
    let Some(detail) = error.detail.as_deref().filter(|_| shows_rows) else {
        return error;
    };
    let scope = session.scope();
    if scope.is_superuser() {
        return error;
    }
    let about = error.about.as_deref();
    let relation = about.and_then(|about| {
        scope
            .catalog
            .relation(&scope.database, &about.schema, &about.table)
    });
    // It is the other table's key that others still refer to.
    let is_parent = error.code == SqlState::ForeignKeyViolation && detail.contains(REFERENCED);
    let key = relation.and_then(|child| {
        let mut keys = child.relation()?.foreign_keys.iter();
        keys.find(|key| Some(&key.name) == about.and_then(|about| about.constraint.as_ref()))
    });
    let parent = key.and_then(|key| scope.catalog.object(key.table));
    let shown = if is_parent { parent } else { relation };
    if shown.is_some_and(|shown| scope.may(shown, Privileges::SELECT)) {
        return error;
    }
    error.detail = match (error.code, is_parent) {
        (SqlState::ForeignKeyViolation, true) => {
            relation.map(|child| format!("Key{REFERENCED}\"{}\".", child.name))
        }
        (SqlState::ForeignKeyViolation, false) => {
            parent.map(|parent| format!("Key{MISSING}\"{}\".", parent.name))
        }
        _ => None,
    };
    error
}
