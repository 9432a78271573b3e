//! What was granted, and to whom: the relations of roles and privileges.

use millrace_catalog::rights::{Class, Privileges};
use millrace_catalog::scope::Acting;
use millrace_catalog::{CatalogSnapshot, Object};
use millrace_storage::{ObjectId, ObjectKind};

use super::{Columns, fields, relations, same, texts};
use crate::pg_catalog::oid;

/// A relation of that name; `None`: it is another's.
pub(super) fn relation(
    catalog: &CatalogSnapshot,
    database: &str,
    viewer: Acting,
    name: &str,
) -> Option<Columns> {
    Some(match name {
        "role_table_grants" | "table_privileges" => tables(catalog, database),
        "role_column_grants" | "column_privileges" => columns(catalog, database),
        "role_routine_grants" | "routine_privileges" => routines(catalog, database),
        "role_usage_grants" | "usage_privileges" => usage(catalog, database),
        "enabled_roles" => enabled(catalog, viewer.role),
        "applicable_roles" => applicable(catalog, viewer.role, false),
        "administrable_role_authorizations" => applicable(catalog, viewer.role, true),
        _ => return None,
    })
}

/// One privilege of one role on an object.
struct Granted<'a> {
    object: &'a Object,
    grantor: String,
    grantee: String,
    privilege: &'static str,
    is_grantable: &'static str,
}

fn yes(is: bool) -> &'static str {
    if is { "YES" } else { "NO" }
}

/// What was granted on objects, a row for each privilege of each role.
fn granted<'a>(
    catalog: &CatalogSnapshot,
    objects: impl Iterator<Item = &'a Object>,
    wanted: Privileges,
) -> Vec<Granted<'a>> {
    let mut rows = vec![];
    for object in objects {
        let owner = object.rights.owner();
        for item in object.acl() {
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
                    is_grantable: yes(by_option || item.grantee == Some(owner)),
                });
            }
        }
    }
    rows
}

fn column<'a, T>(rows: &'a [T], of: impl Fn(&'a T) -> &'a str) -> arrow::array::ArrayRef {
    texts(rows.iter().map(|row| Some(of(row))))
}

fn tables(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let objects = relations(catalog, database)
        .into_iter()
        .map(|object| object.as_ref());
    let rows = granted(catalog, objects, Class::Table.all());
    vec![
        ("grantor", column(&rows, |row| &row.grantor)),
        ("grantee", column(&rows, |row| &row.grantee)),
        ("table_catalog", same(database, rows.len())),
        ("table_schema", column(&rows, |row| &row.object.schema)),
        ("table_name", column(&rows, |row| &row.object.name)),
        ("privilege_type", column(&rows, |row| row.privilege)),
        ("is_grantable", column(&rows, |row| row.is_grantable)),
        (
            "with_hierarchy",
            column(&rows, |row| yes(row.privilege == "SELECT")),
        ),
    ]
}

/// Columns have no privileges of their own: the table's are theirs.
fn columns(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let of_columns = Privileges::SELECT | Privileges::INSERT | Privileges::UPDATE | Privileges::REFERENCES;
    let objects = relations(catalog, database)
        .into_iter()
        .map(|object| object.as_ref());
    let of_tables = granted(catalog, objects, of_columns);
    let mut rows: Vec<(&Granted<'_>, String)> = vec![];
    for row in &of_tables {
        let names = fields(row.object);
        rows.extend(names.iter().map(|field| (row, field.name().clone())));
    }
    vec![
        ("grantor", column(&rows, |row| &row.0.grantor)),
        ("grantee", column(&rows, |row| &row.0.grantee)),
        ("table_catalog", same(database, rows.len())),
        ("table_schema", column(&rows, |row| &row.0.object.schema)),
        ("table_name", column(&rows, |row| &row.0.object.name)),
        ("column_name", column(&rows, |row| &row.1)),
        ("privilege_type", column(&rows, |row| row.0.privilege)),
        ("is_grantable", column(&rows, |row| row.0.is_grantable)),
    ]
}

fn routines(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let objects = catalog.functions(database).map(|object| object.as_ref());
    let rows = granted(catalog, objects, Privileges::EXECUTE);
    let specific = |row: &Granted<'_>| Some(format!("{}_{}", row.object.name, oid(row.object.id)));
    vec![
        ("grantor", column(&rows, |row| &row.grantor)),
        ("grantee", column(&rows, |row| &row.grantee)),
        ("specific_catalog", same(database, rows.len())),
        ("specific_schema", column(&rows, |row| &row.object.schema)),
        ("specific_name", texts(rows.iter().map(specific))),
        ("routine_catalog", same(database, rows.len())),
        ("routine_schema", column(&rows, |row| &row.object.schema)),
        ("routine_name", column(&rows, |row| &row.object.name)),
        ("privilege_type", column(&rows, |row| row.privilege)),
        ("is_grantable", column(&rows, |row| row.is_grantable)),
    ]
}

/// USAGE of sequences, and of secrets, which PostgreSQL has not.
fn usage(catalog: &CatalogSnapshot, database: &str) -> Columns {
    let objects = catalog.contents(database).map(|object| object.as_ref());
    let objects = objects.filter(|object| matches!(object.kind, ObjectKind::Sequence | ObjectKind::Secret));
    let rows = granted(catalog, objects, Privileges::USAGE);
    let kind = |row: &Granted<'_>| match row.object.kind {
        ObjectKind::Sequence => Some("SEQUENCE"),
        _ => Some("SECRET"),
    };
    vec![
        ("grantor", column(&rows, |row| &row.grantor)),
        ("grantee", column(&rows, |row| &row.grantee)),
        ("object_catalog", same(database, rows.len())),
        ("object_schema", column(&rows, |row| &row.object.schema)),
        ("object_name", column(&rows, |row| &row.object.name)),
        ("object_type", texts(rows.iter().map(kind))),
        ("privilege_type", column(&rows, |row| row.privilege)),
        ("is_grantable", column(&rows, |row| row.is_grantable)),
    ]
}

/// The roles whose privileges a role has.
fn enabled(catalog: &CatalogSnapshot, role: ObjectId) -> Columns {
    let names = catalog.roles().filter(|other| catalog.has_role(role, other.id));
    vec![("role_name", texts(names.map(|other| Some(other.name.clone()))))]
}

/// The memberships of those roles, or those of them that may be given to others.
fn applicable(catalog: &CatalogSnapshot, role: ObjectId, only_admin: bool) -> Columns {
    let mut rows: Vec<(String, String, bool)> = vec![];
    for member in catalog.roles().filter(|other| catalog.has_role(role, other.id)) {
        let of = member.role().into_iter().flat_map(|def| &def.member_of);
        let of = of.filter(|membership| membership.admin || !only_admin);
        rows.extend(of.map(|membership| {
            (
                member.name.clone(),
                catalog.role_name(membership.role),
                membership.admin,
            )
        }));
    }
    vec![
        ("grantee", column(&rows, |row| &row.0)),
        ("role_name", column(&rows, |row| &row.1)),
        ("is_grantable", column(&rows, |row| yes(row.2))),
    ]
}
