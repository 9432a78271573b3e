//! GRANT and REVOKE of privileges, and ALTER DEFAULT PRIVILEGES.

use std::sync::Arc;

use millrace_catalog::access::denied;
use millrace_catalog::rights::{self, AclItem, Class, DefaultAcl, Privileges};
use millrace_catalog::scope::Scope;
use millrace_catalog::{CatalogSnapshot, Object, kind_name};
use millrace_parser::ast::{
    AlterDefaultPrivileges, DropBehavior, Grant, GrantKind, GrantTarget, ObjectName, RoleName,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;
use crate::statement::role::{changed, check_grantor, named};

fn class_of(kind: GrantKind) -> Class {
    match kind {
        GrantKind::Table => Class::Table,
        GrantKind::Sequence => Class::Sequence,
        GrantKind::Function => Class::Function,
        GrantKind::Schema => Class::Schema,
        GrantKind::Database => Class::Database,
        GrantKind::Secret => Class::Secret,
    }
}

/// The privileges of these names; none: all that there are.
fn privileges(names: &[String], class: Class) -> SqlResult<Privileges> {
    if names.is_empty() {
        return Ok(class.all());
    }
    names.iter().try_fold(Privileges::NONE, |all, name| {
        let privilege = Privileges::named(name).ok_or_else(|| {
            SqlError::new(
                SqlState::SyntaxError,
                format!("unrecognized privilege type \"{}\"", name.to_lowercase()),
            )
        })?;
        match class.all().has(privilege) {
            true => Ok(all | privilege),
            false => Err(SqlError::new(
                SqlState::InvalidGrantOperation,
                format!("invalid privilege type {privilege} for {}", class.name()),
            )),
        }
    })
}

/// Those who are named; none of them: everybody.
fn grantees(
    session: &Session,
    catalog: &CatalogSnapshot,
    names: &[RoleName],
    grant_option: bool,
) -> SqlResult<Vec<Option<ObjectId>>> {
    names
        .iter()
        .map(|name| match name {
            RoleName::Public if grant_option => Err(SqlError::new(
                SqlState::InvalidGrantOperation,
                "grant options can only be granted to roles",
            )),
            RoleName::Public => Ok(None),
            name => named(session, catalog, name).map(|role| Some(role.id)),
        })
        .collect()
}

/// Executes GRANT and REVOKE.
pub async fn execute(session: &Arc<Session>, grant: &Grant) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    check_grantor(
        session,
        &scope.catalog,
        scope.acting.role,
        grant.granted_by.as_ref(),
    )?;
    let is_grant = grant.revoke.is_none();
    let grantees = grantees(
        session,
        &scope.catalog,
        &grant.grantees,
        is_grant && grant.grant_option,
    )?;
    let mut put = vec![];
    for object in targets(session, &scope, &grant.on)? {
        session.database().jobs().check_unlocked(&[object.id])?;
        let class = Class::of(object.kind).ok_or_else(|| {
            SqlError::new(
                SqlState::WrongObjectType,
                format!("{} has no privileges", object.described()),
            )
        })?;
        let wanted = privileges(&grant.privileges, class)?;
        let (grantor, allowed) = grantor(session, &scope, &object, wanted, grant)?;
        let mut items = object.acl();
        for grantee in &grantees {
            match grant.revoke {
                None => rights::grant(
                    &mut items,
                    AclItem {
                        grantee: *grantee,
                        grantor,
                        privileges: allowed,
                        options: match grant.grant_option {
                            true => allowed,
                            false => Privileges::NONE,
                        },
                    },
                ),
                Some(behavior) => {
                    let how = Taking {
                        owner: object.rights.owner(),
                        grantor,
                        behavior,
                        only_options: grant.grant_option,
                    };
                    revoke(&mut items, *grantee, allowed, how)?;
                }
            }
        }
        let mut new = object.as_ref().clone();
        new.rights.acl = Some(items);
        put.push(new);
    }
    guard.put_all(put)?;
    done(if is_grant { "GRANT" } else { "REVOKE" })
}

/// How privileges are taken away.
#[derive(Clone, Copy)]
struct Taking {
    /// Who owns the object.
    owner: ObjectId,
    /// Who gave what is taken away.
    grantor: ObjectId,
    behavior: DropBehavior,
    /// Whether only the right to grant them is taken.
    only_options: bool,
}

/// Takes privileges away, with what was granted further by them.
fn revoke(
    items: &mut Vec<AclItem>,
    grantee: Option<ObjectId>,
    privileges: Privileges,
    how: Taking,
) -> SqlResult<()> {
    rights::revoke(items, grantee, how.grantor, privileges, how.only_options);
    // An owner never loses the right to grant.
    let Some(grantee) = grantee.filter(|grantee| *grantee != how.owner) else {
        return Ok(());
    };
    // What it may still let others have, from whomever.
    let left = items
        .iter()
        .filter(|item| item.grantee == Some(grantee))
        .fold(Privileges::NONE, |all, item| all | item.options);
    let lost = privileges & !left;
    let further: Vec<Option<ObjectId>> = items
        .iter()
        .filter(|item| {
            item.grantor == grantee && item.grantee != Some(grantee) && item.privileges.has_any(lost)
        })
        .map(|item| item.grantee)
        .collect();
    if further.is_empty() {
        return Ok(());
    }
    if how.behavior == DropBehavior::Restrict {
        return Err(
            SqlError::new(SqlState::DependentObjectsStillExist, "dependent privileges exist")
                .with_hint("Use CASCADE to revoke them too."),
        );
    }
    let next = Taking {
        grantor: grantee,
        only_options: false,
        ..how
    };
    further
        .into_iter()
        .try_for_each(|further| revoke(items, further, lost, next))
}

/// In whose name privileges are granted or revoked, and which of them.
fn grantor(
    session: &Session,
    scope: &Scope,
    object: &Object,
    wanted: Privileges,
    grant: &Grant,
) -> SqlResult<(ObjectId, Privileges)> {
    let (catalog, role) = (&scope.catalog, scope.acting.role);
    if !scope.acting.is_checked || catalog.owns(role, object) {
        return Ok((object.rights.owner(), wanted));
    }
    let may = catalog.grantable(role, object) & wanted;
    if may.is_empty() && catalog.privileges(role, object).is_empty() {
        return Err(denied(format!(
            "permission denied for {} {}",
            kind_name(object.kind),
            object.name
        )));
    }
    if may != wanted {
        let verb = if grant.revoke.is_some() {
            "revoked"
        } else {
            "granted"
        };
        let what = match may.is_empty() {
            true => format!("no privileges were {verb} for \"{}\"", object.name),
            false => format!("not all privileges were {verb} for \"{}\"", object.name),
        };
        session.notice(Severity::Warning, what);
    }
    // Whoever of its roles holds the right.
    let holder = catalog.privileged_as(role).into_iter().find(|id| {
        let mut items = object.acl().into_iter();
        items.any(|item| item.grantee == Some(*id) && item.options.has_any(may))
    });
    Ok((holder.unwrap_or(role), may))
}

fn targets(session: &Session, scope: &Scope, target: &GrantTarget) -> SqlResult<Vec<Arc<Object>>> {
    match target {
        GrantTarget::Named(kind, given) => given
            .iter()
            .map(|name| object(session, scope, *kind, name))
            .collect(),
        GrantTarget::AllIn(kind, schemas) => {
            let mut all = vec![];
            for name in schemas {
                let name = millrace_parser::fold(name);
                names::schema(scope, &name)?;
                let wanted = scope.catalog.contents(&scope.database).filter(|object| {
                    object.schema == name && Class::of(object.kind) == Some(class_of(*kind))
                });
                all.extend(wanted.cloned());
            }
            Ok(all)
        }
    }
}

/// An object of a kind that has privileges.
pub(super) fn object(
    session: &Session,
    scope: &Scope,
    kind: GrantKind,
    name: &ObjectName,
) -> SqlResult<Arc<Object>> {
    let found = match kind {
        GrantKind::Table | GrantKind::Sequence => names::resolve(session, scope, name)?,
        GrantKind::Schema => names::schema(scope, &names::last(name))?,
        GrantKind::Database => names::database(scope, &names::last(name))?,
        GrantKind::Function => names::function(session, scope, name)?,
        GrantKind::Secret => names::secret(session, scope, name)?,
    };
    if kind == GrantKind::Sequence && Class::of(found.kind) != Some(Class::Sequence) {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("\"{}\" is not a sequence", found.name),
        ));
    }
    Ok(found)
}

/// Executes ALTER DEFAULT PRIVILEGES.
pub async fn defaults(session: &Arc<Session>, alter: &AlterDefaultPrivileges) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let scope = session.scope();
    let class = class_of(alter.kind);
    if class == Class::Schema && !alter.schemas.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidGrantOperation,
            "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS",
        ));
    }
    let wanted = privileges(&alter.privileges, class)?;
    let is_option = !alter.revoke && alter.grant_option;
    let grantees = grantees(session, &scope.catalog, &alter.grantees, is_option)?;
    let schemas: Vec<Option<ObjectId>> = match alter.schemas.as_slice() {
        [] => vec![None],
        names => names
            .iter()
            .map(|name| names::schema(&scope, &millrace_parser::fold(name)).map(|schema| Some(schema.id)))
            .collect::<SqlResult<_>>()?,
    };
    let makers = match alter.roles.as_slice() {
        [] => vec![named(session, &scope.catalog, &RoleName::CurrentUser)?],
        names => names
            .iter()
            .map(|name| named(session, &scope.catalog, name))
            .collect::<SqlResult<_>>()?,
    };
    let mut put = vec![];
    for maker in &makers {
        if !scope.has_role(maker.id) {
            return Err(denied(format!("must be member of role \"{}\"", maker.name)));
        }
        put.push(changed(maker, |role| {
            for schema in &schemas {
                let items = items_of(&mut role.defaults, *schema, class, maker.id);
                for grantee in &grantees {
                    match alter.revoke {
                        true => rights::revoke(items, *grantee, maker.id, wanted, alter.grant_option),
                        false => rights::grant(
                            items,
                            AclItem {
                                grantee: *grantee,
                                grantor: maker.id,
                                privileges: wanted,
                                options: if is_option { wanted } else { Privileges::NONE },
                            },
                        ),
                    }
                }
            }
            // What says nothing is not kept.
            role.defaults.retain(|defaults| match defaults.schema {
                None => !is_same(&defaults.items, &defaults.class.default_acl(maker.id)),
                Some(_) => !defaults.items.is_empty(),
            });
        })?);
    }
    guard.put_all(put)?;
    done("ALTER DEFAULT PRIVILEGES")
}

fn is_same(one: &[AclItem], other: &[AclItem]) -> bool {
    one.len() == other.len() && one.iter().all(|item| other.contains(item))
}

/// What is said so far; of all schemas it begins with what there is without a word.
fn items_of(
    defaults: &mut Vec<DefaultAcl>,
    schema: Option<ObjectId>,
    class: Class,
    owner: ObjectId,
) -> &mut Vec<AclItem> {
    let known = defaults
        .iter()
        .position(|known| known.schema == schema && known.class == class);
    let at = known.unwrap_or_else(|| {
        defaults.push(DefaultAcl {
            schema,
            class,
            items: match schema {
                None => class.default_acl(owner),
                Some(_) => vec![],
            },
        });
        defaults.len() - 1
    });
    &mut defaults[at].items
}
