//! The relations of roles: `pg_authid`, `pg_roles`, `pg_auth_members` and their like. Of a password is shown only that there is one.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millrace_catalog::rights::{AclItem, DefaultAcl};
use millrace_catalog::{CatalogSnapshot, Object};
use millrace_storage::ObjectId;

use crate::pg_catalog::relations::flag;
use crate::pg_catalog::table::Row;
use crate::pg_catalog::{FIRST_OID, oid};

/// What is shown in place of a password.
const STARS: &str = "********";
/// Oids of default privileges: from this on.
const DEFAULT_ACL_OID: i64 = 1_800_000_000;

/// The oid of a role: those that PostgreSQL has, too, have the same as there.
pub fn role_oid(id: ObjectId) -> i64 {
    match i64::try_from(id.0) {
        Ok(small) if small < FIRST_OID => small,
        _ => oid(id),
    }
}

/// The oid of an object's owner.
pub fn owner_oid(object: &Object) -> String {
    role_oid(object.rights.owner()).to_string()
}

/// The columns of a relation of roles; `None`: it is none.
pub fn schema(name: &str) -> Option<SchemaRef> {
    let texts = || DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)));
    let oids = || DataType::List(Arc::new(Field::new("item", DataType::Int32, true)));
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let (number, text, yes) = (|| DataType::Int32, || DataType::Utf8, || DataType::Boolean);
    let columns: Vec<(&str, DataType)> = match name {
        "pg_authid" => vec![
            ("oid", number()),
            ("rolname", text()),
            ("rolsuper", yes()),
            ("rolinherit", yes()),
            ("rolcreaterole", yes()),
            ("rolcreatedb", yes()),
            ("rolcanlogin", yes()),
            ("rolreplication", yes()),
            ("rolbypassrls", yes()),
            ("rolconnlimit", number()),
            ("rolpassword", text()),
            ("rolvaliduntil", time()),
        ],
        "pg_roles" => vec![
            ("rolname", text()),
            ("rolsuper", yes()),
            ("rolinherit", yes()),
            ("rolcreaterole", yes()),
            ("rolcreatedb", yes()),
            ("rolcanlogin", yes()),
            ("rolreplication", yes()),
            ("rolconnlimit", number()),
            ("rolpassword", text()),
            ("rolvaliduntil", time()),
            ("rolbypassrls", yes()),
            ("rolconfig", texts()),
            ("oid", number()),
        ],
        "pg_user" | "pg_shadow" => vec![
            ("usename", text()),
            ("usesysid", number()),
            ("usecreatedb", yes()),
            ("usesuper", yes()),
            ("userepl", yes()),
            ("usebypassrls", yes()),
            ("passwd", text()),
            ("valuntil", time()),
            ("useconfig", texts()),
        ],
        "pg_group" => vec![("groname", text()), ("grosysid", number()), ("grolist", oids())],
        "pg_auth_members" => vec![
            ("roleid", number()),
            ("member", number()),
            ("grantor", number()),
            ("admin_option", yes()),
        ],
        "pg_db_role_setting" => vec![
            ("setdatabase", number()),
            ("setrole", number()),
            ("setconfig", texts()),
        ],
        "pg_default_acl" => vec![
            ("oid", number()),
            ("defaclrole", number()),
            ("defaclnamespace", number()),
            ("defaclobjtype", text()),
            ("defaclacl", texts()),
        ],
        _ => return None,
    };
    let fields: Vec<Field> = columns
        .into_iter()
        .map(|(name, data_type)| Field::new(name, data_type, true))
        .collect();
    Some(Arc::new(Schema::new(fields)))
}

/// The rows of a relation of roles; `None`: it is none.
pub fn rows(catalog: &CatalogSnapshot, name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "pg_authid" | "pg_roles" => catalog
            .roles()
            .map(|role| authid(role, name == "pg_roles"))
            .collect(),
        "pg_user" | "pg_shadow" => catalog
            .roles()
            .filter(|role| role.role().is_some_and(|role| role.login))
            .map(|role| user(role))
            .collect(),
        "pg_group" => groups(catalog),
        "pg_auth_members" => members(catalog),
        "pg_db_role_setting" => settings(catalog),
        "pg_default_acl" => default_acls(catalog),
        _ => return None,
    })
}

/// A list of texts as an array.
pub(super) fn array(texts: impl IntoIterator<Item = String>) -> String {
    let quoted: Vec<String> = texts
        .into_iter()
        .map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
        .collect();
    format!("{{{}}}", quoted.join(","))
}

fn time(micros: i64) -> Option<String> {
    chrono::DateTime::from_timestamp_micros(micros).map(|time| time.to_rfc3339())
}

fn config(role: &Object) -> Option<String> {
    let role = role.role()?;
    let limits = role.limits.shown().into_iter();
    let limits = limits.map(|(name, value)| format!("{name}={value}"));
    let pairs: Vec<String> = pairs(&role.settings).chain(limits).collect();
    (!pairs.is_empty()).then(|| array(pairs))
}

fn pairs(settings: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    settings.iter().map(|(name, value)| format!("{name}={value}"))
}

fn authid(object: &Object, is_view: bool) -> Row {
    let role = object.role().cloned().unwrap_or_default();
    let limit = role.connections_max.map_or(-1, i64::from);
    let mut row = Row::from([
        ("oid", role_oid(object.id).to_string()),
        ("rolname", object.name.clone()),
        ("rolsuper", flag(role.superuser)),
        ("rolinherit", flag(role.inherit)),
        ("rolcreaterole", flag(role.create_role)),
        ("rolcreatedb", flag(role.create_db)),
        ("rolcanlogin", flag(role.login)),
        ("rolreplication", flag(false)),
        ("rolbypassrls", flag(false)),
        ("rolconnlimit", limit.to_string()),
    ]);
    if is_view || role.verifier.is_some() {
        row.insert("rolpassword", STARS.to_owned());
    }
    if let Some(time) = role.valid_until_us.and_then(time) {
        row.insert("rolvaliduntil", time);
    }
    if let Some(config) = config(object) {
        row.insert("rolconfig", config);
    }
    row
}

fn user(object: &Object) -> Row {
    let role = object.role().cloned().unwrap_or_default();
    let mut row = Row::from([
        ("usename", object.name.clone()),
        ("usesysid", role_oid(object.id).to_string()),
        ("usecreatedb", flag(role.create_db)),
        ("usesuper", flag(role.superuser)),
        ("userepl", flag(false)),
        ("usebypassrls", flag(false)),
        ("passwd", STARS.to_owned()),
    ]);
    if let Some(time) = role.valid_until_us.and_then(time) {
        row.insert("valuntil", time);
    }
    if let Some(config) = config(object) {
        row.insert("useconfig", config);
    }
    row
}

fn groups(catalog: &CatalogSnapshot) -> Vec<Row> {
    let is_group = |role: &&Arc<Object>| role.role().is_some_and(|role| !role.login);
    let row = |group: &Arc<Object>| {
        let is_member = |role: &&Arc<Object>| {
            let mut of = role.role().into_iter().flat_map(|role| &role.member_of);
            of.any(|membership| membership.role == group.id)
        };
        let members: Vec<String> = catalog
            .roles()
            .filter(is_member)
            .map(|role| role_oid(role.id).to_string())
            .collect();
        Row::from([
            ("groname", group.name.clone()),
            ("grosysid", role_oid(group.id).to_string()),
            ("grolist", format!("{{{}}}", members.join(","))),
        ])
    };
    catalog.roles().filter(is_group).map(row).collect()
}

fn members(catalog: &CatalogSnapshot) -> Vec<Row> {
    let of_role = |member: &Arc<Object>| {
        let memberships = member.role().map(|role| role.member_of.clone());
        let member = role_oid(member.id).to_string();
        let row = move |membership: millrace_catalog::role::Membership| {
            Row::from([
                ("roleid", role_oid(membership.role).to_string()),
                ("member", member.clone()),
                ("grantor", role_oid(membership.grantor).to_string()),
                ("admin_option", flag(membership.admin)),
            ])
        };
        memberships.unwrap_or_default().into_iter().map(row)
    };
    catalog.roles().flat_map(of_role).collect()
}

fn settings(catalog: &CatalogSnapshot) -> Vec<Row> {
    let row = |role: &Arc<Object>| {
        Some(Row::from([
            ("setdatabase", "0".to_owned()),
            ("setrole", role_oid(role.id).to_string()),
            ("setconfig", config(role)?),
        ]))
    };
    let elsewhere = catalog.roles().flat_map(|role| {
        let said = role.role().into_iter().flat_map(|def| &def.settings_elsewhere);
        said.filter_map(|said| {
            let database = match said.database {
                Some(id) => oid(catalog.object(id)?.id),
                None => 0,
            };
            let role = if said.of_all { 0 } else { role_oid(role.id) };
            Some(Row::from([
                ("setdatabase", database.to_string()),
                ("setrole", role.to_string()),
                ("setconfig", array(pairs(&said.settings))),
            ]))
        })
    });
    catalog.roles().filter_map(row).chain(elsewhere).collect()
}

fn default_acls(catalog: &CatalogSnapshot) -> Vec<Row> {
    let mut rows = vec![];
    for role in catalog.roles() {
        for DefaultAcl { schema, class, items } in role.role().into_iter().flat_map(|role| &role.defaults) {
            // The schema of the start has the oid that PostgreSQL's has.
            let schema = schema.and_then(|id| catalog.object(id));
            let schema = schema.map_or(0, |schema| {
                super::namespace_oid(catalog, &schema.database, &schema.name)
            });
            let number = i64::try_from(rows.len()).unwrap_or_default();
            rows.push(Row::from([
                ("oid", (DEFAULT_ACL_OID + number).to_string()),
                ("defaclrole", role_oid(role.id).to_string()),
                ("defaclnamespace", schema.to_string()),
                ("defaclobjtype", class.letter().to_owned()),
                ("defaclacl", acl_array(catalog, items)),
            ]));
        }
    }
    rows
}

/// A list of privileges as an array.
pub fn acl_array(catalog: &CatalogSnapshot, items: &[AclItem]) -> String {
    let name = |id: ObjectId| match catalog.role_by_id(id) {
        Some(role) => role_name(&role.name),
        // One that is gone.
        None => role_oid(id).to_string(),
    };
    array(items.iter().map(|item| item.text(name)))
}

/// The name of a role as lists of privileges have it.
pub(super) fn role_name(name: &str) -> String {
    let is_plain = name
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || character == '_');
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// What was granted on an object; `None`: nobody has said anything.
pub fn acl_of(catalog: &CatalogSnapshot, object: &Object) -> Option<String> {
    let items = object.acl();
    let is_said = object.rights.acl.is_some() || object.has_public_default();
    is_said.then(|| acl_array(catalog, &items))
}
