//! REASSIGN OWNED and DROP OWNED: what is to be done before a role can go.
//!
//! Both are about the database of the session, and what belongs to none.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_catalog::Object;
use millrace_catalog::access::denied;
use millrace_catalog::scope::Scope;
use millrace_parser::ast::{DropBehavior, DropOwned, ReassignOwned, RoleName};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::alter::owner::given;
use crate::statement::done;
use crate::statement::drop::Dropping;
use crate::statement::role::{changed, named};

/// The roles that are named, whose privileges whoever acts must have.
fn roles(session: &Session, scope: &Scope, names: &[RoleName], what: &str) -> SqlResult<BTreeSet<ObjectId>> {
    let mut found = BTreeSet::new();
    for name in names {
        let role = named(session, &scope.catalog, name)?;
        if !scope.has_role(role.id) {
            return Err(
                denied(format!("permission denied to {what} objects")).with_detail(format!(
                    "Only roles with privileges of role \"{}\" may {what} objects owned by it.",
                    role.name
                )),
            );
        }
        if role.id.0 < FIRST_MADE {
            return Err(SqlError::new(
                SqlState::DependentObjectsStillExist,
                format!(
                    "cannot {what} objects owned by role {} because they are required by the database system",
                    role.name
                ),
            ));
        }
        found.insert(role.id);
    }
    Ok(found)
}

/// Identities below this are those of roles that are there without being made.
const FIRST_MADE: u64 = 16_384;

/// What the statements are about.
fn objects(scope: &Scope) -> impl Iterator<Item = &Arc<Object>> {
    let of_session = |object: &&Arc<Object>| {
        object.kind != ObjectKind::User && (object.database.is_empty() || object.database == scope.database)
    };
    scope.catalog.objects().filter(of_session)
}

/// Executes REASSIGN OWNED.
pub async fn reassign(session: &Arc<Session>, reassign: &ReassignOwned) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let from = roles(session, &scope, &reassign.from, "reassign")?;
    let to = named(session, &scope.catalog, &reassign.to)?;
    if !scope.has_role(to.id) {
        return Err(
            denied("permission denied to reassign objects").with_detail(format!(
                "Only roles with privileges of role \"{}\" may reassign objects to it.",
                to.name
            )),
        );
    }
    let owned = objects(&scope).filter(|object| from.contains(&object.rights.owner()));
    let owned: Vec<&Arc<Object>> = owned.collect();
    let ids: Vec<ObjectId> = owned.iter().map(|object| object.id).collect();
    session.database().jobs().check_unlocked(&ids)?;
    guard.put_all(owned.into_iter().map(|object| given(object, to.id)).collect())?;
    done("REASSIGN OWNED")
}

/// What is of others in schemas that are dropped, which goes with them.
fn others_inside(scope: &Scope, targets: &[Arc<Object>], behavior: DropBehavior) -> SqlResult<Vec<ObjectId>> {
    let schemas: Vec<&Arc<Object>> = targets
        .iter()
        .filter(|object| object.kind == ObjectKind::Schema)
        .collect();
    let is_inside = |object: &&Arc<Object>| {
        schemas.iter().any(|schema| schema.name == object.schema)
            && !targets.iter().any(|target| target.id == object.id)
    };
    let inside: Vec<&Arc<Object>> = scope
        .catalog
        .contents(&scope.database)
        .filter(is_inside)
        .collect();
    if let (Some(first), DropBehavior::Restrict) = (inside.first(), behavior) {
        return Err(SqlError::new(
            SqlState::DependentObjectsStillExist,
            format!(
                "cannot drop schema {} because other objects depend on it",
                first.schema
            ),
        )
        .with_detail(format!(
            "{} depends on schema {}",
            first.described(),
            first.schema
        ))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    Ok(inside.into_iter().map(|object| object.id).collect())
}

/// Executes DROP OWNED: what the roles own, and what they may do.
pub async fn drop(session: &Arc<Session>, drop: &DropOwned) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let by = roles(session, &session.scope(), &drop.by, "drop")?;
    let scope = session.scope();
    let is_owned =
        |object: &&Arc<Object>| object.kind != ObjectKind::Database && by.contains(&object.rights.owner());
    let targets: Vec<Arc<Object>> = objects(&scope).filter(is_owned).cloned().collect();
    if !targets.is_empty() {
        let mut contained: BTreeSet<ObjectId> = targets.iter().map(|object| object.id).collect();
        contained.extend(others_inside(&scope, &targets, drop.behavior)?);
        let dropping = Dropping {
            targets,
            contained,
            is_of_schemas: false,
            behavior: drop.behavior,
        };
        dropping.execute(session, &guard, &scope).await?;
    }
    let scope = session.scope();
    let mut put = vec![];
    for object in objects(&scope) {
        let mut new = object.as_ref().clone();
        let Some(items) = &mut new.rights.acl else {
            continue;
        };
        let before = items.len();
        items.retain(|item| {
            let is_theirs = |role: ObjectId| by.contains(&role) && object.rights.owner() != role;
            !item.grantee.is_some_and(is_theirs) && !is_theirs(item.grantor)
        });
        if items.len() < before {
            put.push(new);
        }
    }
    for role in scope.catalog.roles() {
        let mut defaults = role.role().map(|def| def.defaults.clone()).unwrap_or_default();
        let before = defaults.clone();
        match by.contains(&role.id) {
            true => defaults.clear(),
            false => {
                for defaults in &mut defaults {
                    defaults
                        .items
                        .retain(|item| !item.grantee.is_some_and(|grantee| by.contains(&grantee)));
                }
            }
        }
        if defaults != before {
            put.push(changed(role, |def| def.defaults = defaults)?);
        }
    }
    if !put.is_empty() {
        guard.put_all(put)?;
    }
    done("DROP OWNED")
}
