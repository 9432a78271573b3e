//! What was granted, and to whom: the relations of roles and privileges.

use millrace_catalog::Object;
use millrace_catalog::rights::{Class, Privileges};
use millrace_storage::{ObjectId, ObjectKind};

use super::routines::specific;
use super::{Asked, OF_TABLE, fields, yes};
use crate::pg_catalog::table::Row;

/// The rows of a relation; `None`: it is another's.
pub(super) fn rows(asked: &Asked<'_>, name: &str) -> Option<Vec<Row>> {
    let (of, to) = match name.strip_prefix("role_") {
        Some(of) => (of.strip_suffix("_grants"), To::Roles),
        None => (name.strip_suffix("_privileges"), To::RolesAndPublic),
    };
    Some(match (of, name) {
        (Some("table"), _) => tables(asked, to),
        (Some("column"), _) => columns(asked, to),
        (Some("routine"), _) => routines(asked, to),
        (Some("usage"), _) => usage(asked, to),
        (_, "enabled_roles") => enabled(asked),
        (_, "applicable_roles") => applicable(asked, false),
        (_, "administrable_role_authorizations") => applicable(asked, true),
        _ => return None,
    })
}

/// Whose privileges are shown, beside those that one has given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// The roles whose privileges one has.
    Roles,
    RolesAndPublic,
}

/// One privilege of one role on an object.
struct Granted<'a> {
    object: &'a Object,
    grantor: String,
    grantee: String,
    privilege: &'static str,
    is_grantable: bool,
}

impl Granted<'_> {
    fn row(&self) -> Row {
        Row::from([
            ("grantor", self.grantor.clone()),
            ("grantee", self.grantee.clone()),
            ("privilege_type", self.privilege.to_owned()),
            ("is_grantable", yes(self.is_grantable)),
        ])
    }
}

/// What was granted on objects, a row for each privilege of each role.
fn granted<'a>(
    asked: &Asked<'_>,
    objects: impl Iterator<Item = &'a Object>,
    wanted: Privileges,
    to: To,
) -> Vec<Granted<'a>> {
    let catalog = asked.catalog;
    let is_own = |role: ObjectId| !asked.viewer.is_checked || catalog.has_role(asked.viewer.role, role);
    let mut rows = vec![];
    for object in objects {
        let owner = object.rights.owner();
        for item in object.acl() {
            let is_shown = is_own(item.grantor)
                || match item.grantee {
                    Some(role) => is_own(role),
                    None => to == To::RolesAndPublic,
                };
            if !is_shown {
                continue;
            }
            let grantee = item
                .grantee
                .map_or_else(|| "PUBLIC".to_owned(), |id| catalog.role_name(id));
            for privilege in (item.privileges & wanted).names() {
                let by_option = Privileges::named(privilege).is_some_and(|one| item.options.has(one));
                rows.push(Granted {
                    object,
                    grantor: catalog.role_name(item.grantor),
                    grantee: grantee.clone(),
                    privilege,
                    is_grantable: by_option || item.grantee == Some(owner),
                });
            }
        }
    }
    rows
}

fn tables(asked: &Asked<'_>, to: To) -> Vec<Row> {
    let objects = asked.relations().map(|object| object.as_ref());
    let row = |granted: Granted<'_>| {
        let mut row = granted.row();
        row.extend(asked.named(OF_TABLE, granted.object));
        row.insert("with_hierarchy", yes(granted.privilege == "SELECT"));
        row
    };
    let granted = granted(asked, objects, Class::Table.all(), to);
    granted.into_iter().map(row).collect()
}

/// Columns have no privileges of their own: the table's are theirs.
fn columns(asked: &Asked<'_>, to: To) -> Vec<Row> {
    let of_columns = Privileges::SELECT | Privileges::INSERT | Privileges::UPDATE | Privileges::REFERENCES;
    let objects = asked.relations().map(|object| object.as_ref());
    let mut rows = vec![];
    for granted in granted(asked, objects, of_columns, to) {
        for field in fields(granted.object) {
            let mut row = granted.row();
            row.extend(asked.named(OF_TABLE, granted.object));
            row.insert("column_name", field.name().clone());
            rows.push(row);
        }
    }
    rows
}

fn routines(asked: &Asked<'_>, to: To) -> Vec<Row> {
    let objects = asked.catalog.functions(asked.database);
    let objects = objects.map(|object| object.as_ref());
    let row = |granted: Granted<'_>| {
        let object = granted.object;
        let mut row = granted.row();
        let names = ["specific_catalog", "specific_schema", "specific_name"];
        row.extend(asked.three(names, &object.schema, &specific(object)));
        row.extend(asked.named(["routine_catalog", "routine_schema", "routine_name"], object));
        row
    };
    let granted = granted(asked, objects, Privileges::EXECUTE, to);
    granted.into_iter().map(row).collect()
}

/// USAGE of sequences, and of secrets, which PostgreSQL has not.
fn usage(asked: &Asked<'_>, to: To) -> Vec<Row> {
    let objects = asked.catalog.contents(asked.database);
    let objects = objects
        .map(|object| object.as_ref())
        .filter(|object| matches!(object.kind, ObjectKind::Sequence | ObjectKind::Secret));
    let row = |granted: Granted<'_>| {
        let kind = match granted.object.kind {
            ObjectKind::Sequence => "SEQUENCE",
            _ => "SECRET",
        };
        let mut row = granted.row();
        row.extend(asked.named(["object_catalog", "object_schema", "object_name"], granted.object));
        row.insert("object_type", kind.to_owned());
        row
    };
    let granted = granted(asked, objects, Privileges::USAGE, to);
    granted.into_iter().map(row).collect()
}

/// The roles whose privileges a role has.
fn enabled(asked: &Asked<'_>) -> Vec<Row> {
    let role = asked.viewer.role;
    let names = asked.catalog.roles();
    let names = names.filter(|other| asked.catalog.has_role(role, other.id));
    names
        .map(|other| Row::from([("role_name", other.name.clone())]))
        .collect()
}

/// The memberships of those roles, or those of them that may be given to others.
fn applicable(asked: &Asked<'_>, only_admin: bool) -> Vec<Row> {
    let (catalog, role) = (asked.catalog, asked.viewer.role);
    let mut rows = vec![];
    for member in catalog.roles().filter(|other| catalog.has_role(role, other.id)) {
        let of = member.role().into_iter().flat_map(|def| &def.member_of);
        for membership in of.filter(|membership| membership.admin || !only_admin) {
            rows.push(Row::from([
                ("grantee", member.name.clone()),
                ("role_name", catalog.role_name(membership.role)),
                ("is_grantable", yes(membership.admin)),
            ]));
        }
    }
    rows
}
