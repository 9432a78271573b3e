//! As whom a session acts: the user who logged in, the one of SET SESSION AUTHORIZATION, and the role of SET ROLE.
//!
//! They are settings, so that a transaction that fails, SET LOCAL and RESET do with them what they do with all others. What they may
//! become is decided here, wherever it is said: by SET, by `set_config`, in the start-up packet or by ALTER ROLE .. SET.

use std::sync::Arc;

use millrace_catalog::access::denied;
use millrace_catalog::rights::Privileges;
use millrace_catalog::scope::Acting;
use millrace_catalog::settings::{Identity, NO_ROLE, Settings};
use millrace_catalog::{CatalogSnapshot, DEFAULT_USER, Object};
use millrace_database::Database;
use millrace_database::sessions::SessionInfo;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_storage::ObjectId;

/// The role of a session that begins; `info` gets its name. Whoever calls has found out that it is who it says.
///
/// # Errors
/// There is no such role, it may not log in or not to this database, or it has too many sessions.
pub(crate) fn login(db: &Arc<Database>, info: &mut SessionInfo) -> SqlResult<Arc<Object>> {
    let admitted = admitted(db, info);
    if let Err(error) = &admitted {
        let SessionInfo { user, peer, .. } = info;
        tracing::warn!(target: "millrace::audit", event = "login failed", user, peer, code = error.code.code());
    }
    admitted
}

fn admitted(db: &Arc<Database>, info: &mut SessionInfo) -> SqlResult<Arc<Object>> {
    if info.user.is_empty() {
        info.user = DEFAULT_USER.to_owned();
    }
    let catalog = db.catalog();
    let refused = |message: String| SqlError::new(SqlState::InvalidAuthorizationSpecification, message);
    let Some(user) = catalog.login_role(&info.user) else {
        return Err(refused(format!("role \"{}\" does not exist", info.user))
            .with_hint("Connect as user \"millrace\", for example: psql -U millrace -d millrace"));
    };
    info.user.clone_from(&user.name);
    let Some(role) = user.role() else {
        return Err(SqlError::internal("a role is none"));
    };
    if !role.login {
        return Err(refused(format!(
            "role \"{}\" is not permitted to log in",
            user.name
        )));
    }
    if let Some(most) = role.connections_max
        && !role.superuser
    {
        let sessions = db.sessions();
        let own = sessions.iter().filter(|session| session.user() == user.id);
        if own.count() >= most as usize {
            return Err(SqlError::new(
                SqlState::TooManyConnections,
                format!("too many connections for role \"{}\"", user.name),
            ));
        }
    }
    if db.tuning().access_control
        && let Some(database) = catalog.database(&info.database)
        && !catalog.privileges(user.id, database).has(Privileges::CONNECT)
    {
        return Err(
            denied(format!("permission denied for database \"{}\"", info.database))
                .with_detail("User does not have CONNECT privilege."),
        );
    }
    Ok(Arc::clone(user))
}

/// Sets something with which a session begins.
///
/// # Errors
/// There is no such setting, or not with this value.
pub(crate) fn start_with(db: &Database, settings: &mut Settings, name: &str, value: &str) -> SqlResult<()> {
    match name.to_lowercase().as_str() {
        "role" => change(&db.catalog(), settings, "role", Some(value), None),
        _ => settings.set(name, value).map(|_| ()),
    }
}

/// Who acts in a session in which `login` has logged in. Once one of the roles that it is by is gone, it may do nothing.
pub(crate) fn acting(
    db: &Database,
    catalog: &CatalogSnapshot,
    login: ObjectId,
    identity: Identity,
) -> Acting {
    let roles = [login, identity.session_user, identity.current_user()];
    let are_there = roles.iter().all(|role| catalog.role_by_id(*role).is_some());
    Acting {
        role: if are_there {
            identity.current_user()
        } else {
            ObjectId(0)
        },
        is_checked: db.tuning().access_control,
    }
}

/// Changes one of the settings that say who the session is; `None`: to what it was at the start. `login`: who logged in, whom the session
/// always may be.
///
/// # Errors
/// There is no such role, or the session may not act as it.
pub(crate) fn change(
    catalog: &CatalogSnapshot,
    settings: &mut Settings,
    name: &str,
    value: Option<&str>,
    login: Option<ObjectId>,
) -> SqlResult<()> {
    if name == "is_superuser" {
        return Err(SqlError::new(
            SqlState::CantChangeRuntimeParam,
            "parameter \"is_superuser\" cannot be changed",
        ));
    }
    let unknown = |name: &str| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("role \"{name}\" does not exist"),
        )
    };
    if name == "session_authorization" {
        let role = match value {
            Some(wanted) => catalog.role(wanted).ok_or_else(|| unknown(wanted))?,
            None => login
                .and_then(|login| catalog.role_by_id(login))
                .ok_or_else(|| unknown(&settings.get(name).unwrap_or_default()))?,
        };
        if login != Some(role.id) && !login.is_some_and(|login| catalog.is_superuser(login)) {
            return Err(denied("permission denied to set session authorization"));
        }
        settings.identify(
            Identity::of(role.id),
            &role.name,
            None,
            catalog.is_superuser(role.id),
        );
        return Ok(());
    }
    let mut identity = Identity::of(settings.identity().session_user);
    let user = catalog
        .role_by_id(identity.session_user)
        .ok_or_else(|| unknown(&settings.get("session_authorization").unwrap_or_default()))?;
    match value {
        None | Some(NO_ROLE) => settings.identify(identity, &user.name, None, catalog.is_superuser(user.id)),
        Some(wanted) => {
            let role = catalog.role(wanted).ok_or_else(|| unknown(wanted))?;
            if !catalog.is_superuser(user.id) && !catalog.member_of(user.id).contains(&role.id) {
                return Err(denied(format!("permission denied to set role \"{wanted}\"")));
            }
            identity.role = Some(role.id);
            settings.identify(identity, &user.name, Some(wanted), catalog.is_superuser(role.id));
        }
    }
    Ok(())
}
