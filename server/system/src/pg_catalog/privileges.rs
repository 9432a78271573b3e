//! Functions that say who may do what: `has_table_privilege(..)` and its like, and `pg_has_role(..)`.
//!
//! They answer by the privileges that there are, whether they are enforced or not. Each has PostgreSQL's forms: with a user before
//! the object, or without one for the current user; both by name or by oid.

use arrow::array::ArrayRef;
use millrace_catalog::access::no_such_role;
use millrace_catalog::rights::{Class, Privileges};
use millrace_catalog::{CatalogSnapshot, Object};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use crate::pg_catalog::functions::{Decide, Seen, text};
use crate::pg_catalog::roles::role_oid;
use crate::pg_catalog::{definitions, namespace_oid, oid};

/// The functions, by name.
pub(super) const DECIDED: &[(&str, Decide)] = &[
    ("has_table_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Table)
    }),
    ("has_sequence_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Sequence)
    }),
    ("has_schema_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Schema)
    }),
    ("has_database_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Database)
    }),
    ("has_secret_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Secret)
    }),
    ("has_any_column_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Table)
    }),
    ("has_function_privilege", |seen, args, row| {
        on_object(seen, args, row, Class::Function)
    }),
    // Columns have no privileges of their own: the table's are theirs.
    ("has_column_privilege", |seen, args, row| {
        let mut args = args.to_vec();
        if args.len() < 3 {
            return Err(wrong_arguments("has_column_privilege"));
        }
        args.remove(args.len() - 2);
        on_object(seen, &args, row, Class::Table)
    }),
    ("pg_has_role", has_role),
];

fn wrong_arguments(name: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedFunction,
        format!("function {name}() does not take these arguments"),
    )
}

/// The role that a name or an oid means.
fn role(catalog: &CatalogSnapshot, given: &str) -> SqlResult<ObjectId> {
    let found = match given.parse::<i64>() {
        Ok(wanted) => catalog.roles().find(|role| role_oid(role.id) == wanted),
        Err(_) => catalog.role(given),
    };
    found.map(|role| role.id).ok_or_else(|| no_such_role(given))
}

fn object<'a>(seen: &'a Seen, given: &str, class: Class) -> SqlResult<Option<&'a Object>> {
    let catalog = &seen.catalog;
    if let Ok(wanted) = given.parse::<i64>() {
        return Ok(match class {
            Class::Schema => catalog
                .schemas(&seen.database)
                .find(|schema| namespace_oid(catalog, &seen.database, &schema.name) == wanted)
                .map(|schema| schema.as_ref()),
            _ => definitions::object(catalog, wanted)
                .or_else(|| catalog.objects().find(|object| oid(object.id) == wanted))
                .map(|object| object.as_ref()),
        });
    }
    let missing = |what: &str, state| SqlError::new(state, format!("{what} \"{given}\" does not exist"));
    match class {
        Class::Table | Class::Sequence => seen.relation(given).map(|object| Some(object.as_ref())),
        Class::Schema => match catalog.schema(&seen.database, given) {
            Some(schema) => Ok(Some(schema)),
            None if millrace_catalog::SYSTEM_SCHEMAS.contains(&given) => Ok(None),
            None => Err(missing("schema", SqlState::InvalidSchemaName)),
        },
        Class::Database => catalog
            .database(given)
            .map(|database| Some(database.as_ref()))
            .ok_or_else(|| missing("database", SqlState::InvalidCatalogName)),
        Class::Secret => {
            let parts = millrace_parser::name_parts(given);
            let found = match parts.as_slice() {
                [name] => {
                    (seen.search_path.iter()).find_map(|schema| catalog.secret(&seen.database, schema, name))
                }
                [schema, name] => catalog.secret(&seen.database, schema, name),
                _ => None,
            };
            let found = found.ok_or_else(|| missing("secret", SqlState::UndefinedObject))?;
            Ok(Some(found))
        }
        Class::Function => {
            let name = given.split('(').next().unwrap_or(given);
            let parts = millrace_parser::name_parts(name);
            let found = match parts.as_slice() {
                [name] => (seen.search_path.iter())
                    .find_map(|schema| catalog.function(&seen.database, schema, name)),
                [schema, name] => catalog.function(&seen.database, schema, name),
                _ => None,
            };
            Ok(found.map(|function| function.as_ref()))
        }
    }
}

/// The texts of a row; `None`: one of them is NULL.
fn texts(args: &[ArrayRef], row: usize) -> Option<Vec<String>> {
    (0..args.len())
        .map(|position| text(args, position, row))
        .collect()
}

fn on_object(seen: &Seen, args: &[ArrayRef], row: usize, class: Class) -> SqlResult<Option<bool>> {
    let Some(given) = texts(args, row) else {
        return Ok(None);
    };
    let (user, named, wanted) = match given.as_slice() {
        [object, wanted] => (seen.role, object, wanted),
        [user, object, wanted] => (role(&seen.catalog, user)?, object, wanted),
        _ => return Err(wrong_arguments(&format!("has_{}_privilege", class.name()))),
    };
    let found = object(seen, named, class)?;
    let mut has_one = false;
    for name in wanted.split(',').map(str::trim) {
        let lower = name.to_lowercase();
        let (name, with_option) = match lower.strip_suffix("with grant option") {
            Some(name) => (name.trim_end().to_owned(), true),
            None => (lower, false),
        };
        let privilege = Privileges::named(&name)
            .filter(|privilege| class.all().has(*privilege))
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("unrecognized privilege type: \"{name}\""),
                )
            })?;
        let has = match found {
            Some(object) if with_option => seen.catalog.grantable(user, object),
            Some(object) => seen.catalog.privileges(user, object),
            // What is the system's is there for everybody to read.
            None => Privileges::SELECT | Privileges::USAGE | Privileges::EXECUTE,
        };
        has_one |= has.has(privilege);
    }
    Ok(Some(has_one))
}

fn has_role(seen: &Seen, args: &[ArrayRef], row: usize) -> SqlResult<Option<bool>> {
    let Some(given) = texts(args, row) else {
        return Ok(None);
    };
    let (user, of, wanted) = match given.as_slice() {
        [of, wanted] => (seen.role, of, wanted),
        [user, of, wanted] => (role(&seen.catalog, user)?, of, wanted),
        _ => return Err(wrong_arguments("pg_has_role")),
    };
    let of = role(&seen.catalog, of)?;
    let catalog = &seen.catalog;
    let mut has_one = false;
    for name in wanted.split(',').map(str::trim) {
        has_one |= match name.to_lowercase().as_str() {
            "usage" => catalog.has_role(user, of),
            "member" => catalog.is_superuser(user) || catalog.member_of(user).contains(&of),
            "member with grant option"
            | "member with admin option"
            | "usage with grant option"
            | "usage with admin option" => catalog.is_admin_of(user, of),
            _ => {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    format!("unrecognized privilege type: \"{name}\""),
                ));
            }
        };
    }
    Ok(Some(has_one))
}
