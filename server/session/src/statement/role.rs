//! CREATE, ALTER and DROP ROLE, and GRANT and REVOKE of roles.

mod settings;

use std::sync::Arc;

use millrace_auth::Verifier;
use millrace_catalog::access::{denied, no_such_role};
use millrace_catalog::role::{BOOTSTRAP, Membership, RoleDef};
use millrace_catalog::{CatalogSnapshot, Object};
use millrace_database::clock::now_ms;
use millrace_database::database::ddl::DdlGuard;
use millrace_parser::ast::{
    AlterRole, CreateRole, DropRole, GrantRole, RoleChange, RoleName, RoleOption, Statement,
};
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::types::parse::datetime::timestamptz;
use millrace_storage::ObjectId;

use crate::notice::Severity;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::statement::done;

/// The role that a statement names.
///
/// # Errors
/// There is none, or everybody is meant.
pub(crate) fn named(session: &Session, catalog: &CatalogSnapshot, name: &RoleName) -> SqlResult<Arc<Object>> {
    let identity = session.settings.lock().identity();
    let by_id = |id: ObjectId| {
        let role = catalog.role_by_id(id).cloned();
        role.ok_or_else(|| no_such_role(&catalog.role_name(id)))
    };
    let name = match name {
        RoleName::Named(name) => millrace_parser::fold(name),
        RoleName::CurrentUser => return by_id(identity.current_user()),
        RoleName::SessionUser => return by_id(identity.session_user),
        RoleName::Public => "public".to_owned(),
    };
    catalog.role(&name).cloned().ok_or_else(|| no_such_role(&name))
}

/// The name of a role that is to be.
fn new_name(name: &RoleName) -> SqlResult<String> {
    let reserved = |name: &str| {
        SqlError::new(
            SqlState::ReservedName,
            format!("role name \"{name}\" is reserved"),
        )
    };
    let name = match name {
        RoleName::Named(name) => millrace_parser::fold(name),
        RoleName::Public => return Err(reserved("public")),
        RoleName::CurrentUser => return Err(reserved("current_user")),
        RoleName::SessionUser => return Err(reserved("session_user")),
    };
    match name.as_str() {
        "public" | "none" => Err(reserved(&name)),
        _ if name.starts_with("pg_") => {
            Err(reserved(&name).with_detail("Role names starting with \"pg_\" are reserved."))
        }
        _ => Ok(name),
    }
}

/// Who changes roles, and what of it they may.
struct Changer<'a> {
    session: &'a Session,
    catalog: Arc<CatalogSnapshot>,
    /// Whether privileges are enforced.
    is_checked: bool,
    id: ObjectId,
}

impl<'a> Changer<'a> {
    fn new(session: &'a Session) -> Self {
        let scope = session.scope();
        Changer {
            session,
            catalog: scope.catalog,
            is_checked: scope.acting.is_checked,
            id: scope.acting.role,
        }
    }

    fn is_superuser(&self) -> bool {
        !self.is_checked || self.catalog.is_superuser(self.id)
    }

    fn makes_roles(&self) -> bool {
        self.is_superuser()
            || self
                .catalog
                .role_def(self.id)
                .is_some_and(|role| role.create_role)
    }

    /// Refuses to change a role.
    fn check_change(&self, of: &Object) -> SqlResult<()> {
        let is_superuser = of.role().is_some_and(|role| role.superuser);
        if is_superuser && !self.is_superuser() {
            return Err(denied(
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        match self.makes_roles() {
            true => Ok(()),
            false => Err(denied("permission denied")),
        }
    }

    /// Refuses to let others become members of a role.
    fn check_admin(&self, of: &Object) -> SqlResult<()> {
        let is_superuser = of.role().is_some_and(|role| role.superuser);
        if is_superuser && !self.is_superuser() {
            return Err(denied("must be superuser to alter superusers"));
        }
        match self.makes_roles() || self.catalog.is_admin_of(self.id, of.id) {
            true => Ok(()),
            false => Err(denied(format!("must have admin option on role \"{}\"", of.name))),
        }
    }
}

/// Executes CREATE ROLE.
pub async fn create(session: &Arc<Session>, create: &CreateRole) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let changer = Changer::new(session);
    let name = new_name(&create.name)?;
    if !changer.makes_roles() {
        return Err(denied("permission denied to create role"));
    }
    if changer.catalog.role(&name).is_some() {
        return Err(SqlError::new(
            SqlState::DuplicateObject,
            format!("role \"{name}\" already exists"),
        ));
    }
    let mut role = RoleDef {
        login: create.is_user,
        ..RoleDef::default()
    };
    apply(&changer, &mut role, &create.options)?;
    let id = guard.next_id()?;
    let mut put = vec![];
    let mut members: Vec<(&RoleName, bool)> = vec![];
    for option in &create.options {
        match option {
            RoleOption::InRole(roles) => {
                for of in roles {
                    let of = named(session, &changer.catalog, of)?;
                    changer.check_admin(&of)?;
                    join(&mut role, of.id, false, changer.id);
                }
            }
            RoleOption::Members(roles) => members.extend(roles.iter().map(|role| (role, false))),
            RoleOption::Admins(roles) => members.extend(roles.iter().map(|role| (role, true))),
            _ => {}
        }
    }
    for (member, admin) in members {
        let member = named(session, &changer.catalog, member)?;
        if role
            .member_of
            .iter()
            .any(|of| changer.catalog.member_of(of.role).contains(&member.id))
        {
            return Err(circle(&name, &member.name));
        }
        put.push(changed(&member, |member| join(member, id, admin, changer.id))?);
    }
    let statement = Statement::CreateRole(Box::new(create.clone())).to_string();
    put.insert(0, role.into_object(id, &name, statement, now_ms()));
    guard.put_all(put)?;
    if !session.database().tuning().access_control {
        session.notice(
            Severity::Warning,
            "access_control is off: every role may do everything",
        );
    }
    done("CREATE ROLE")
}

/// Takes what options say into a role.
fn apply(changer: &Changer<'_>, role: &mut RoleDef, options: &[RoleOption]) -> SqlResult<()> {
    for option in options {
        match option {
            RoleOption::Superuser(value) => {
                if *value != role.superuser && !changer.is_superuser() {
                    return Err(denied("must be superuser to create superusers"));
                }
                role.superuser = *value;
            }
            RoleOption::CreateDb(value) => role.create_db = *value,
            RoleOption::CreateRole(value) => role.create_role = *value,
            RoleOption::Inherit(value) => role.inherit = *value,
            RoleOption::Login(value) => role.login = *value,
            RoleOption::Replication(true) => {
                return Err(SqlError::unsupported(
                    "REPLICATION is not supported: there are no replication connections",
                ));
            }
            RoleOption::BypassRls(true) => {
                return Err(SqlError::unsupported(
                    "BYPASSRLS is not supported: there is no row-level security",
                ));
            }
            RoleOption::Replication(false) | RoleOption::BypassRls(false) => {}
            RoleOption::Password(password) => {
                role.verifier = match password {
                    Some(password) => verifier(changer.session, &password.0)?,
                    None => None,
                };
            }
            RoleOption::ValidUntil(text) => role.valid_until_us = time(text)?,
            RoleOption::ConnectionLimit(limit) => role.connections_max = u32::try_from(*limit).ok(),
            RoleOption::InRole(_) | RoleOption::Members(_) | RoleOption::Admins(_) => {}
        }
    }
    Ok(())
}

/// What is kept of a password, or of a verifier that somebody else has made of one.
fn verifier(session: &Session, password: &str) -> SqlResult<Option<Verifier>> {
    if password.is_empty() {
        session.notice(
            Severity::Notice,
            "empty string is not a valid password, clearing password",
        );
        return Ok(None);
    }
    let is_md5 = password
        .strip_prefix("md5")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if is_md5 {
        return Err(
            SqlError::unsupported("passwords hashed with MD5 are not supported")
                .with_hint("Give the password itself, or its SCRAM-SHA-256 verifier."),
        );
    }
    Ok(Some(password.parse().unwrap_or_else(|_| Verifier::of(password))))
}

/// The end of something; none: it has no end.
pub(super) fn time(text: &str) -> SqlResult<Option<i64>> {
    match text.trim().eq_ignore_ascii_case("infinity") {
        true => Ok(None),
        false => timestamptz(text).map(Some),
    }
}

/// A role with a change.
pub(super) fn changed(of: &Object, change: impl FnOnce(&mut RoleDef)) -> SqlResult<Object> {
    let mut role = of
        .role()
        .cloned()
        .ok_or_else(|| SqlError::internal(format!("{} is no role", of.name)))?;
    change(&mut role);
    let mut object = role.into_object(of.id, &of.name, of.sql.clone(), of.created_at_ms);
    object.comment.clone_from(&of.comment);
    Ok(object)
}

/// Makes a role a member of another.
fn join(member: &mut RoleDef, of: ObjectId, admin: bool, grantor: ObjectId) {
    match member
        .member_of
        .iter_mut()
        .find(|membership| membership.role == of)
    {
        Some(known) => known.admin |= admin,
        None => member.member_of.push(Membership {
            role: of,
            admin,
            grantor,
        }),
    }
}

fn circle(role: &str, member: &str) -> SqlError {
    SqlError::new(
        SqlState::InvalidGrantOperation,
        format!("role \"{role}\" is a member of role \"{member}\""),
    )
}

/// Executes ALTER ROLE.
pub async fn alter(session: &Arc<Session>, alter: &AlterRole) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let changer = Changer::new(session);
    let object = match (&alter.change, &alter.name) {
        (RoleChange::Options(options), Some(name)) => {
            let role = named(session, &changer.catalog, name)?;
            let only_password = matches!(options.as_slice(), [RoleOption::Password(_)]);
            if !(role.id == changer.id && only_password) {
                changer.check_change(&role)?;
            }
            check_options(&role, options)?;
            let mut new = changed(&role, |_| ())?;
            if let Some(mut def) = role.role().cloned() {
                apply(&changer, &mut def, options)?;
                new = changed(&role, |role| *role = def)?;
            }
            new
        }
        (RoleChange::Rename(to), Some(name)) => {
            let role = named(session, &changer.catalog, name)?;
            changer.check_change(&role)?;
            renamed(session, &changer, &role, to)?
        }
        _ => return settings::alter(session, &guard, &changer, alter),
    };
    guard.put(object)?;
    done("ALTER ROLE")
}

/// The role of the start can always log in and do everything: by it a server is recovered.
fn check_options(role: &Object, options: &[RoleOption]) -> SqlResult<()> {
    let joins = options.iter().find(|option| {
        matches!(
            option,
            RoleOption::InRole(_) | RoleOption::Members(_) | RoleOption::Admins(_)
        )
    });
    if let Some(option) = joins {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            format!("ALTER ROLE .. {option} is not supported"),
        )
        .with_hint("Use GRANT role TO role."));
    }
    let takes_away =
        |option: &&RoleOption| matches!(option, RoleOption::Superuser(false) | RoleOption::Login(false));
    match options.iter().find(takes_away) {
        Some(option) if role.id == BOOTSTRAP => Err(denied(format!(
            "role \"{}\" cannot be altered to {option}",
            role.name
        ))
        .with_detail("A server is recovered by it.")),
        _ => Ok(()),
    }
}

fn renamed(
    session: &Session,
    changer: &Changer<'_>,
    role: &Object,
    to: &millrace_parser::ast::Ident,
) -> SqlResult<Object> {
    if role.id.0 < FIRST_MADE {
        return Err(denied(format!("role \"{}\" cannot be renamed", role.name)));
    }
    let identity = session.settings.lock().identity();
    if role.id == identity.session_user {
        return Err(SqlError::unsupported("session user cannot be renamed"));
    }
    if role.id == identity.current_user() {
        return Err(SqlError::unsupported("current user cannot be renamed"));
    }
    let to = new_name(&RoleName::Named(to.clone()))?;
    if changer.catalog.role(&to).is_some() {
        return Err(SqlError::new(
            SqlState::DuplicateObject,
            format!("role \"{to}\" already exists"),
        ));
    }
    let mut object = changed(role, |_| ())?;
    object.sql = format!("CREATE ROLE {}", millrace_parser::quote_identifier(&to));
    object.name = to;
    Ok(object)
}

/// Identities below this are those of roles that are there without being made.
const FIRST_MADE: u64 = 16_384;

/// Executes DROP ROLE.
pub async fn drop(session: &Arc<Session>, drop: &DropRole) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let changer = Changer::new(session);
    if !changer.makes_roles() {
        return Err(denied("permission denied to drop role"));
    }
    let mut gone = std::collections::BTreeSet::new();
    for name in &drop.names {
        if !matches!(name, RoleName::Named(_)) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "cannot use special role specifier in DROP ROLE",
            ));
        }
        let role = match named(session, &changer.catalog, name) {
            Err(error) if drop.if_exists && error.code == SqlState::UndefinedObject => {
                session.notice(Severity::Notice, format!("{}, skipping", error.message));
                continue;
            }
            found => found?,
        };
        changer.check_change(&role)?;
        check_drop(session, &changer, &role)?;
        gone.insert(role.id);
    }
    let mut put = vec![];
    for other in changer.catalog.roles() {
        let touches = |of: &Membership| gone.contains(&of.role) || gone.contains(&of.grantor);
        let is_touched = other
            .role()
            .is_some_and(|role| role.member_of.iter().any(touches));
        if !gone.contains(&other.id) && is_touched {
            put.push(changed(other, |role| {
                role.member_of.retain(|of| !gone.contains(&of.role));
                for of in &mut role.member_of {
                    if gone.contains(&of.grantor) {
                        of.grantor = BOOTSTRAP;
                    }
                }
            })?);
        }
    }
    if gone.is_empty() {
        return done("DROP ROLE");
    }
    if !put.is_empty() {
        guard.put_all(put)?;
    }
    guard.drop(&gone).await?;
    done("DROP ROLE")
}

fn check_drop(session: &Session, changer: &Changer<'_>, role: &Object) -> SqlResult<()> {
    let identity = session.settings.lock().identity();
    if role.id == identity.current_user() {
        return Err(SqlError::new(
            SqlState::ObjectInUse,
            "current user cannot be dropped",
        ));
    }
    if role.id == identity.session_user {
        return Err(SqlError::new(
            SqlState::ObjectInUse,
            "session user cannot be dropped",
        ));
    }
    let needing = match role.id.0 < FIRST_MADE {
        true => vec!["the server itself".to_owned()],
        false => changer.catalog.needing_role(role.id),
    };
    match needing.is_empty() {
        true => Ok(()),
        false => Err(SqlError::new(
            SqlState::DependentObjectsStillExist,
            format!(
                "role \"{}\" cannot be dropped because some objects depend on it",
                role.name
            ),
        )
        .with_detail(needing.join("\n"))),
    }
}

/// Executes GRANT and REVOKE of roles.
pub async fn grant(session: &Arc<Session>, grant: &GrantRole) -> SqlResult<Outcome> {
    let guard = session.ddl().await?;
    let changer = Changer::new(session);
    check_grantor(session, &changer.catalog, changer.id, grant.granted_by.as_ref())?;
    for of in &grant.roles {
        let of = named(session, &changer.catalog, of)?;
        changer.check_admin(&of)?;
        for member in &grant.members {
            let catalog = guard.catalog();
            let member = named(session, &catalog, member)?;
            match grant.revoke {
                true => revoke_one(session, &guard, grant, &of, &member)?,
                false => grant_one(&changer, &guard, grant, &of, &member)?,
            }
        }
    }
    done(if grant.revoke { "REVOKE ROLE" } else { "GRANT ROLE" })
}

/// `GRANTED BY` can only name the current user, as in PostgreSQL.
pub(super) fn check_grantor(
    session: &Session,
    catalog: &CatalogSnapshot,
    current: ObjectId,
    granted_by: Option<&RoleName>,
) -> SqlResult<()> {
    match granted_by {
        Some(role) if named(session, catalog, role)?.id != current => Err(SqlError::new(
            SqlState::FeatureNotSupported,
            "grantor must be current user",
        )),
        _ => Ok(()),
    }
}

fn grant_one(
    changer: &Changer<'_>,
    guard: &DdlGuard<'_>,
    grant: &GrantRole,
    of: &Object,
    member: &Object,
) -> SqlResult<()> {
    if guard.catalog().member_of(of.id).contains(&member.id) {
        return Err(circle(&of.name, &member.name));
    }
    guard.put(changed(member, |member| {
        join(member, of.id, grant.admin, changer.id)
    })?)
}

fn revoke_one(
    session: &Session,
    guard: &DdlGuard<'_>,
    grant: &GrantRole,
    of: &Object,
    member: &Object,
) -> SqlResult<()> {
    let is_member = member
        .role()
        .is_some_and(|role| role.member_of.iter().any(|known| known.role == of.id));
    if !is_member {
        session.notice(
            Severity::Warning,
            format!("role \"{}\" is not a member of role \"{}\"", member.name, of.name),
        );
        return Ok(());
    }
    guard.put(changed(member, |member| match grant.admin {
        true => {
            for known in member.member_of.iter_mut().filter(|known| known.role == of.id) {
                known.admin = false;
            }
        }
        false => member.member_of.retain(|known| known.role != of.id),
    })?)
}
