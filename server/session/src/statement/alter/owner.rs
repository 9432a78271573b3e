//! ALTER .. OWNER TO.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_catalog::access::denied;
use millrace_catalog::rights::{AclItem, Rights};
use millrace_catalog::scope::{Acting, Scope};
use millrace_catalog::{Object, kind_name};
use millrace_parser::ast::{AlterRelation, GrantKind, ObjectKind as Kind, RoleName};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::{ObjectId, ObjectKind};

use crate::names;
use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::role::named;
use crate::statement::{done, grant};

/// Gives an object to another role, with the indexes, sequences and streams that are a part of it.
pub(super) async fn execute(
    session: &Arc<Session>,
    alter: &AlterRelation,
    to: &RoleName,
) -> SqlResult<Outcome> {
    let (tag, kind, wanted): (&'static str, GrantKind, &[ObjectKind]) = match alter.kind {
        Kind::Stream => ("ALTER STREAM", GrantKind::Table, &[ObjectKind::Stream]),
        Kind::Table => (
            "ALTER TABLE",
            GrantKind::Table,
            &[
                ObjectKind::Table,
                ObjectKind::ExternalTable,
                ObjectKind::Stream,
                ObjectKind::View,
                ObjectKind::MaterializedView,
                ObjectKind::Sequence,
            ],
        ),
        Kind::View => ("ALTER VIEW", GrantKind::Table, &[ObjectKind::View]),
        Kind::MaterializedView => (
            "ALTER MATERIALIZED VIEW",
            GrantKind::Table,
            &[ObjectKind::MaterializedView],
        ),
        Kind::Sink => ("ALTER SINK", GrantKind::Table, &[ObjectKind::Sink]),
        Kind::Sequence => ("ALTER SEQUENCE", GrantKind::Sequence, &[ObjectKind::Sequence]),
        Kind::Function => ("ALTER FUNCTION", GrantKind::Function, &[ObjectKind::Function]),
        Kind::Secret => ("ALTER SECRET", GrantKind::Secret, &[ObjectKind::Secret]),
        Kind::Type => (
            "ALTER TYPE",
            GrantKind::Table,
            &[ObjectKind::Type, ObjectKind::Domain],
        ),
        Kind::Domain => ("ALTER DOMAIN", GrantKind::Table, &[ObjectKind::Domain]),
        Kind::Schema => ("ALTER SCHEMA", GrantKind::Schema, &[ObjectKind::Schema]),
        Kind::Database => ("ALTER DATABASE", GrantKind::Database, &[ObjectKind::Database]),
        Kind::Subscription => (
            "ALTER SUBSCRIPTION",
            GrantKind::Table,
            &[ObjectKind::Subscription],
        ),
        Kind::Index => {
            return Err(
                SqlError::unsupported("ALTER of this kind of object does not change its owner")
                    .with_hint("An index belongs to the owner of its table."),
            );
        }
    };
    let guard = session.ddl().await?;
    let scope = session.scope();
    let found = match alter.kind {
        Kind::Type | Kind::Domain => names::user_type(session, &scope, &alter.name),
        _ => grant::object(session, &scope, kind, &alter.name),
    };
    let object = match found {
        Err(error) if alter.if_exists && error.code == SqlState::UndefinedTable => {
            session.notice(
                Severity::Notice,
                format!("relation \"{}\" does not exist, skipping", alter.name),
            );
            return done(tag);
        }
        found => found?,
    };
    if !wanted.contains(&object.kind) {
        return Err(SqlError::new(
            SqlState::WrongObjectType,
            format!("\"{}\" is not a {}", object.name, kind_name(wanted[0])),
        ));
    }
    let to = named(session, &scope.catalog, to)?;
    session.database().jobs().check_unlocked(&[object.id])?;
    check(&scope, &object, &to)?;
    let put = with_parts(&scope, &object)
        .into_iter()
        .map(|object| given(&object, to.id))
        .collect();
    guard.put_all(put)?;
    done(tag)
}

/// Whoever gives something away owns it, may act as whoever gets it, and that one may make such a thing there.
fn check(scope: &Scope, object: &Object, to: &Object) -> SqlResult<()> {
    scope.check_owner(object)?;
    if scope.is_superuser() {
        return Ok(());
    }
    if !scope.catalog.member_of(scope.acting.role).contains(&to.id) {
        return Err(denied(format!("must be member of role \"{}\"", to.name)));
    }
    let of_new = Scope {
        acting: Acting {
            role: to.id,
            is_checked: true,
        },
        ..scope.clone()
    };
    of_new.check_create(&object.schema)
}

/// The object, and what belongs to it alone.
pub(super) fn with_parts(scope: &Scope, object: &Arc<Object>) -> Vec<Arc<Object>> {
    let mut ids = BTreeSet::from([object.id]);
    for other in scope.catalog.objects() {
        let is_part = matches!(other.kind, ObjectKind::Index | ObjectKind::Sequence);
        if is_part && other.depends.contains(&object.id) {
            ids.insert(other.id);
        }
    }
    if let Some(relation) = object.relation() {
        ids.extend(relation.beside());
        ids.extend(scope.catalog.history_of(object.id).map(|history| history.id));
    }
    ids.iter()
        .filter_map(|id| scope.catalog.object(*id).cloned())
        .collect()
}

/// The object under its new owner: what the old one had and granted, the new one has and has granted.
pub(in crate::statement) fn given(object: &Object, to: ObjectId) -> Object {
    let from = object.rights.owner();
    let instead = |id: ObjectId| if id == from { to } else { id };
    let mut new = object.clone();
    let acl = object.rights.acl.as_ref().map(|items| {
        let mut merged: Vec<AclItem> = vec![];
        for item in items {
            millrace_catalog::rights::grant(
                &mut merged,
                AclItem {
                    grantee: item.grantee.map(instead),
                    grantor: instead(item.grantor),
                    ..item.clone()
                },
            );
        }
        merged
    });
    new.rights = Rights {
        acl,
        ..Rights::of(to)
    };
    new
}
