//! SHOW CREATE: the object of a name, which must be of the kind that is said.

use std::sync::Arc;

use millrace_catalog::scope::Scope;
use millrace_catalog::{Object, kind_name};
use millrace_parser::ast::{ObjectKind as Kind, ObjectReference};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectKind;

use crate::names;
use crate::session::Session;

/// The object.
///
/// # Errors
/// There is none of the name, or it is of another kind.
pub(super) fn object(
    session: &Session,
    scope: &Scope,
    reference: &ObjectReference,
) -> SqlResult<Arc<Object>> {
    let name = &reference.name;
    let object = match reference.kind {
        Kind::Secret => return names::secret(session, scope, name),
        Kind::Function => return names::function(session, scope, name),
        Kind::Type | Kind::Domain => return names::user_type(session, scope, name),
        Kind::Schema => return names::schema(scope, &names::last(name)),
        Kind::Database => return names::database(scope, &names::last(name)),
        _ => names::resolve(session, scope, name)?,
    };
    let is_it = match reference.kind {
        Kind::Stream => object.kind == ObjectKind::Stream,
        Kind::Table => matches!(object.kind, ObjectKind::Table | ObjectKind::ExternalTable),
        Kind::View => object.kind == ObjectKind::View,
        Kind::MaterializedView => object.kind == ObjectKind::MaterializedView,
        Kind::Sink => object.kind == ObjectKind::Sink,
        Kind::Index => object.kind == ObjectKind::Index,
        Kind::Sequence => object.kind == ObjectKind::Sequence,
        Kind::Subscription => object.kind == ObjectKind::Subscription,
        Kind::Secret | Kind::Function | Kind::Schema | Kind::Database | Kind::Type | Kind::Domain => true,
    };
    if is_it {
        return Ok(object);
    }
    let said = reference.kind.to_string().to_lowercase();
    let article = if reference.kind == Kind::Index { "an" } else { "a" };
    let kind = match object.kind {
        ObjectKind::ExternalTable => "TABLE".to_owned(),
        kind => kind_name(kind).to_uppercase(),
    };
    let message = format!("\"{}\" is not {article} {said}", object.name);
    Err(SqlError::new(SqlState::WrongObjectType, message)
        .with_hint(format!("SHOW CREATE {kind} {name} shows it.")))
}
