//! Statements about roles and privileges. A password is printed as stars.

use std::fmt::{self, Display, Formatter};

use crate::ast::{
    AlterDefaultPrivileges, AlterRole, CreateRole, CreateToken, DropBehavior, DropOwned, DropRole, DropToken,
    Grant, GrantKind, GrantRole, GrantTarget, ReassignOwned, RoleChange, RoleName, RoleOption, STARS,
    SetVariable,
};
use crate::display::{joined, settings, when};
use crate::identifier::quote_literal;

impl Display for RoleName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RoleName::Named(name) => name.fmt(f),
            RoleName::CurrentUser => f.write_str("CURRENT_USER"),
            RoleName::SessionUser => f.write_str("SESSION_USER"),
            RoleName::Public => f.write_str("PUBLIC"),
        }
    }
}

impl Display for RoleOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut flag = |value: bool, name: &str| write!(f, "{}{name}", if value { "" } else { "NO" });
        match self {
            RoleOption::Superuser(value) => flag(*value, "SUPERUSER"),
            RoleOption::CreateDb(value) => flag(*value, "CREATEDB"),
            RoleOption::CreateRole(value) => flag(*value, "CREATEROLE"),
            RoleOption::Inherit(value) => flag(*value, "INHERIT"),
            RoleOption::Login(value) => flag(*value, "LOGIN"),
            RoleOption::Replication(value) => flag(*value, "REPLICATION"),
            RoleOption::BypassRls(value) => flag(*value, "BYPASSRLS"),
            RoleOption::Password(Some(_)) => write!(f, "PASSWORD {STARS}"),
            RoleOption::Password(None) => f.write_str("PASSWORD NULL"),
            RoleOption::ValidUntil(time) => write!(f, "VALID UNTIL {}", quote_literal(time)),
            RoleOption::ConnectionLimit(limit) => write!(f, "CONNECTION LIMIT {limit}"),
            RoleOption::InRole(roles) => write!(f, "IN ROLE {}", joined(roles)),
            RoleOption::Members(roles) => write!(f, "ROLE {}", joined(roles)),
            RoleOption::Admins(roles) => write!(f, "ADMIN {}", joined(roles)),
        }
    }
}

fn options(f: &mut Formatter<'_>, options: &[RoleOption]) -> fmt::Result {
    options.iter().try_for_each(|option| write!(f, " {option}"))
}

impl Display for CreateRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.is_user { "USER" } else { "ROLE" };
        write!(f, "CREATE {kind} {}", self.name)?;
        options(f, &self.options)
    }
}

impl Display for AlterRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.database) {
            (Some(name), None) => write!(f, "ALTER ROLE {name}")?,
            (Some(name), Some(database)) => write!(f, "ALTER ROLE {name} IN DATABASE {database}")?,
            (None, None) => f.write_str("ALTER ROLE ALL")?,
            (None, Some(database)) => write!(f, "ALTER DATABASE {database}")?,
        }
        match &self.change {
            RoleChange::Options(given) => options(f, given),
            RoleChange::Rename(name) => write!(f, " RENAME TO {name}"),
            RoleChange::Set { name, value } => {
                let set = SetVariable {
                    local: false,
                    name: name.clone(),
                    value: value.clone(),
                };
                write!(f, " {set}")
            }
            RoleChange::SetLimits(limits) => write!(f, " SET {limits}"),
            RoleChange::ResetLimits(names) => write!(f, " RESET ({})", names.join(", ")),
            RoleChange::Reset(None) => f.write_str(" RESET ALL"),
            RoleChange::Reset(Some(name)) => write!(f, " RESET {}", settings::variable(name)),
        }
    }
}

impl Display for DropRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let exists = when(self.if_exists, "IF EXISTS ");
        write!(f, "DROP ROLE {exists}{}", joined(&self.names))
    }
}

impl Display for ReassignOwned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "REASSIGN OWNED BY {} TO {}", joined(&self.from), self.to)
    }
}

impl Display for DropOwned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let cascade = when(self.behavior == DropBehavior::Cascade, " CASCADE");
        write!(f, "DROP OWNED BY {}{cascade}", joined(&self.by))
    }
}

impl Display for GrantRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (roles, members) = (joined(&self.roles), joined(&self.members));
        let by = granted_by(self.granted_by.as_ref());
        match self.revoke {
            true => {
                let only = when(self.admin, "ADMIN OPTION FOR ");
                write!(f, "REVOKE {only}{roles} FROM {members}{by}")
            }
            false => {
                let admin = when(self.admin, " WITH ADMIN OPTION");
                write!(f, "GRANT {roles} TO {members}{admin}{by}")
            }
        }
    }
}

impl Display for CreateToken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE TOKEN {} FOR {}", self.name, self.role)?;
        match &self.valid_until {
            Some(time) => write!(f, " VALID UNTIL {}", quote_literal(time)),
            None => Ok(()),
        }
    }
}

impl Display for DropToken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP TOKEN {}{}",
            when(self.if_exists, "IF EXISTS "),
            self.name
        )
    }
}

fn privileges(names: &[String]) -> String {
    match names {
        [] => "ALL".to_owned(),
        names => names.join(", "),
    }
}

impl GrantKind {
    /// The kind as GRANT names it.
    pub fn name(self) -> &'static str {
        match self {
            GrantKind::Table => "TABLE",
            GrantKind::Sequence => "SEQUENCE",
            GrantKind::Function => "FUNCTION",
            GrantKind::Schema => "SCHEMA",
            GrantKind::Database => "DATABASE",
            GrantKind::Secret => "SECRET",
        }
    }
}

impl Display for GrantTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            GrantTarget::Named(kind, names) => write!(f, "{} {}", kind.name(), joined(names)),
            GrantTarget::AllIn(kind, schemas) => {
                write!(f, "ALL {}S IN SCHEMA {}", kind.name(), joined(schemas))
            }
        }
    }
}

fn granted_by(role: Option<&RoleName>) -> String {
    role.map_or(String::new(), |role| format!(" GRANTED BY {role}"))
}

impl Display for Grant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (names, grantees) = (privileges(&self.privileges), joined(&self.grantees));
        let by = granted_by(self.granted_by.as_ref());
        match self.revoke {
            Some(behavior) => {
                let only = when(self.grant_option, "GRANT OPTION FOR ");
                let cascade = when(behavior == DropBehavior::Cascade, " CASCADE");
                write!(
                    f,
                    "REVOKE {only}{names} ON {} FROM {grantees}{by}{cascade}",
                    self.on
                )
            }
            None => {
                let option = when(self.grant_option, " WITH GRANT OPTION");
                write!(f, "GRANT {names} ON {} TO {grantees}{option}{by}", self.on)
            }
        }
    }
}

impl Display for AlterDefaultPrivileges {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ALTER DEFAULT PRIVILEGES")?;
        if !self.roles.is_empty() {
            write!(f, " FOR ROLE {}", joined(&self.roles))?;
        }
        if !self.schemas.is_empty() {
            write!(f, " IN SCHEMA {}", joined(&self.schemas))?;
        }
        let (names, grantees) = (privileges(&self.privileges), joined(&self.grantees));
        let kind = self.kind.name();
        match self.revoke {
            true => {
                let only = when(self.grant_option, "GRANT OPTION FOR ");
                write!(f, " REVOKE {only}{names} ON {kind}S FROM {grantees}")
            }
            false => {
                let option = when(self.grant_option, " WITH GRANT OPTION");
                write!(f, " GRANT {names} ON {kind}S TO {grantees}{option}")
            }
        }
    }
}
