//! ALTER SEQUENCE: the options of CREATE SEQUENCE, and RESTART.

use std::sync::Arc;

use millrace_catalog::scope::Scope;
use millrace_catalog::{Definition, Object};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::SequenceClauses;
use millrace_postgres::error::{SqlError, SqlResult};

use crate::session::Session;
use crate::statement::create_sequence;

/// Gives a sequence other options. RESTART is done at once, as setval() is: ROLLBACK does not undo it.
pub(super) fn set(
    session: &Session,
    scope: &Scope,
    guard: &DdlGuard<'_>,
    object: &Object,
    clauses: &SequenceClauses,
) -> SqlResult<()> {
    let Definition::Sequence(before) = &object.definition else {
        return Err(SqlError::internal("ALTER SEQUENCE of something else"));
    };
    let mut definition = before.altered(clauses.data_type.as_ref(), &clauses.options)?;
    if let Some(column) = &clauses.owned_by {
        definition.owner = create_sequence::owned_by(session, scope, column)?;
    }
    let next = match &clauses.restart {
        Some(value) => Some(definition.restart(value.as_ref())?),
        None => None,
    };
    let mut new = object.clone();
    new.depends = definition.owner.into_iter().collect();
    new.definition = Definition::Sequence(Arc::new(definition));
    new.restate();
    guard.put(new)?;
    session
        .database()
        .sequences()
        .altered(object.id, next, session.id())
}
