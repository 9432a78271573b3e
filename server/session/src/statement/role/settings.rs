//! ALTER ROLE and ALTER DATABASE .. SET and RESET: with which settings sessions begin, and what they may take at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_catalog::Object;
use millrace_catalog::access::{denied, no_such_role};
use millrace_catalog::limits::{self, Limits};
use millrace_catalog::role::BOOTSTRAP;
use millrace_catalog::settings::{Settings, join_list};
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::{AlterRole, OptionEntry, RoleChange, SetValue};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

use super::{Changer, changed, named};
use crate::names;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// Of which sessions it is.
struct Whose {
    /// The role that it is of, or with which it is kept.
    role: Arc<Object>,
    of_all: bool,
    database: Option<ObjectId>,
}

/// Executes it.
pub(super) fn alter(
    session: &Session,
    guard: &DdlGuard<'_>,
    changer: &Changer<'_>,
    alter: &AlterRole,
) -> SqlResult<Outcome> {
    let whose = whose(session, changer, alter)?;
    let object = match &alter.change {
        RoleChange::Set { name, value } => set(changer, &whose, name, value)?,
        RoleChange::Reset(name) => reset(changer, &whose, name.as_deref())?,
        RoleChange::SetLimits(options) => {
            let mut said = vec![];
            for OptionEntry { name, value } in &options.0 {
                said.push((limit(&name.value.to_lowercase())?, Some(value.as_str())));
            }
            limited(changer, &whose, &said)?
        }
        RoleChange::ResetLimits(names) => {
            let names = names.iter().map(|name| Ok((limit(name)?, None)));
            limited(changer, &whose, &names.collect::<SqlResult<Vec<_>>>()?)?
        }
        RoleChange::Options(_) | RoleChange::Rename(_) => {
            return Err(SqlError::new(
                SqlState::SyntaxError,
                "ALTER ROLE ALL only changes settings",
            ));
        }
    };
    guard.put(object)?;
    done(match (&alter.name, &alter.database) {
        (None, Some(_)) => "ALTER DATABASE",
        _ => "ALTER ROLE",
    })
}

/// Finds it. A role changes its own settings; else it takes who may change the role, own the database, or do everything.
fn whose(session: &Session, changer: &Changer<'_>, alter: &AlterRole) -> SqlResult<Whose> {
    let scope = session.scope();
    let database = alter
        .database
        .as_ref()
        .map(|name| names::database(&scope, &millrace_parser::fold(name)))
        .transpose()?;
    let role = match &alter.name {
        Some(name) => {
            let role = named(session, &changer.catalog, name)?;
            if role.id != changer.id {
                changer.check_change(&role)?;
            }
            role
        }
        None => {
            match &database {
                Some(database) => scope.check_owner(database)?,
                None if changer.is_superuser() => {}
                None => return Err(denied("must be superuser to alter settings globally")),
            }
            let first = changer.catalog.role_by_id(BOOTSTRAP);
            Arc::clone(first.ok_or_else(|| SqlError::internal("the first role is gone"))?)
        }
    };
    Ok(Whose {
        role,
        of_all: alter.name.is_none(),
        database: database.map(|database| database.id),
    })
}

fn set(changer: &Changer<'_>, whose: &Whose, name: &str, value: &SetValue) -> SqlResult<Object> {
    let name = name.to_lowercase();
    let text = match value {
        SetValue::Default => return reset(changer, whose, Some(&name)),
        SetValue::Values(values) => match values.as_slice() {
            [value] => value.clone(),
            values if name == "search_path" => join_list(values),
            values => values.join(", "),
        },
    };
    if is_limit(&name) {
        return limited(changer, whose, &[(limit(&name)?, Some(&text))]);
    }
    match name.as_str() {
        "role" => {
            if changer.catalog.role(&text).is_none() {
                return Err(no_such_role(&text));
            }
        }
        // The value is looked at as SET would.
        _ => {
            Settings::new(&whose.role.name).set(&name, &text)?;
        }
    }
    with_settings(whose, |settings| {
        settings.insert(name, text);
    })
}

/// `None`: all. What limits a role it cannot take away itself.
fn reset(changer: &Changer<'_>, whose: &Whose, name: Option<&str>) -> SqlResult<Object> {
    let Some(name) = name else {
        let may = changer.check_change(&whose.role).is_ok() && is_of_role(whose);
        let mut object = with_settings(whose, BTreeMap::clear)?;
        if may {
            object = changed(&object, |role| role.limits = Limits::default())?;
        }
        return Ok(object);
    };
    if is_limit(name) {
        return limited(changer, whose, &[(limit(name)?, None)]);
    }
    with_settings(whose, |settings| {
        settings.remove(name);
    })
}

fn with_settings(whose: &Whose, change: impl FnOnce(&mut BTreeMap<String, String>)) -> SqlResult<Object> {
    changed(&whose.role, |role| {
        role.change_settings(whose.of_all, whose.database, change);
    })
}

/// Whether it is of one role everywhere.
fn is_of_role(whose: &Whose) -> bool {
    !whose.of_all && whose.database.is_none()
}

/// Whether the name is that of a limit, and of no setting of sessions.
fn is_limit(name: &str) -> bool {
    limits::NAMES.contains(&name)
}

fn limit(name: &str) -> SqlResult<&'static str> {
    Limits::named(name).ok_or_else(|| {
        SqlError::new(
            SqlState::UndefinedObject,
            format!("there is no limit \"{name}\" of a role"),
        )
        .with_hint(format!("There are {}.", limits::NAMES.join(", ")))
    })
}

/// The role with other limits, which it cannot change itself.
fn limited(changer: &Changer<'_>, whose: &Whose, said: &[(&str, Option<&str>)]) -> SqlResult<Object> {
    changer.check_change(&whose.role)?;
    if !is_of_role(whose) {
        return Err(
            SqlError::unsupported("limits of all roles or of one database are not supported")
                .with_hint("Alter each role: ALTER ROLE r SET (..)."),
        );
    }
    let mut limits = whose.role.role().map(|role| role.limits).unwrap_or_default();
    said.iter()
        .try_for_each(|(name, value)| limits.set(name, *value))?;
    changed(&whose.role, |role| role.limits = limits)
}
