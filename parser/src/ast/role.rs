//! Roles, their membership, and the tokens of programs.

use std::fmt;

use sqlparser::ast::Ident;

use super::alter::DropBehavior;
use super::options::Options;
use super::settings::SetValue;

/// A password or another secret: it is printed by nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A role as statements name it.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleName {
    /// By its name.
    Named(Ident),
    /// `CURRENT_USER` or `CURRENT_ROLE`.
    CurrentUser,
    /// `SESSION_USER`.
    SessionUser,
    /// `PUBLIC`: everybody.
    Public,
}

/// What CREATE ROLE and ALTER ROLE say of a role.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleOption {
    /// `[NO]SUPERUSER`.
    Superuser(bool),
    /// `[NO]CREATEDB`.
    CreateDb(bool),
    /// `[NO]CREATEROLE`.
    CreateRole(bool),
    /// `[NO]INHERIT`.
    Inherit(bool),
    /// `[NO]LOGIN`.
    Login(bool),
    /// `[NO]REPLICATION`.
    Replication(bool),
    /// `[NO]BYPASSRLS`.
    BypassRls(bool),
    /// `PASSWORD 'text' | NULL`.
    Password(Option<Secret>),
    /// `VALID UNTIL 'time'`.
    ValidUntil(String),
    /// `CONNECTION LIMIT n`.
    ConnectionLimit(i32),
    /// `IN ROLE r, ..`: what the new role becomes a member of.
    InRole(Vec<RoleName>),
    /// `ROLE r, ..`: who becomes a member of the new role.
    Members(Vec<RoleName>),
    /// `ADMIN r, ..`: the same, and may let others become members.
    Admins(Vec<RoleName>),
}

/// `CREATE ROLE | USER | GROUP name [[WITH] options]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRole {
    /// The name.
    pub name: RoleName,
    /// `USER`: it can log in, if the options do not say otherwise.
    pub is_user: bool,
    /// The options.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE | USER name [IN DATABASE d] ..`, and `ALTER DATABASE d SET | RESET ..`, which is of all roles in it.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterRole {
    /// The role; none: `ALL`.
    pub name: Option<RoleName>,
    /// `IN DATABASE`.
    pub database: Option<Ident>,
    /// What is changed.
    pub change: RoleChange,
}

/// What ALTER ROLE changes.
#[derive(Debug, Clone, PartialEq)]
pub enum RoleChange {
    /// `[WITH] options`.
    Options(Vec<RoleOption>),
    /// `RENAME TO name`.
    Rename(Ident),
    /// `SET setting TO value`.
    Set {
        /// The setting.
        name: String,
        /// Its value at the start of a session.
        value: SetValue,
    },
    /// `RESET setting`, or `None` for `RESET ALL`.
    Reset(Option<String>),
    /// `SET (limit = value, ..)`.
    SetLimits(Options),
    /// `RESET (limit, ..)`.
    ResetLimits(Vec<String>),
}

/// `DROP ROLE | USER [IF EXISTS] name, ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropRole {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// The roles.
    pub names: Vec<RoleName>,
}

/// `GRANT role, .. TO role, .. [WITH ADMIN OPTION]`, and the REVOKE of it.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantRole {
    /// The roles of which others become members.
    pub roles: Vec<RoleName>,
    /// Who becomes a member.
    pub members: Vec<RoleName>,
    /// `WITH ADMIN OPTION`; of a REVOKE: only that goes.
    pub admin: bool,
    /// `GRANTED BY`: who grants, which can only be the current user.
    pub granted_by: Option<RoleName>,
    /// Whether it is a REVOKE.
    pub revoke: bool,
}

/// `REASSIGN OWNED BY role, .. TO role`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReassignOwned {
    /// Whose objects.
    pub from: Vec<RoleName>,
    /// Who owns them from now on.
    pub to: RoleName,
}

/// `DROP OWNED BY role, .. [CASCADE | RESTRICT]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropOwned {
    /// Whose objects, and whose privileges.
    pub by: Vec<RoleName>,
    /// What becomes of what depends on them.
    pub behavior: DropBehavior,
}

/// `CREATE TOKEN name FOR role [VALID UNTIL 'time']`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateToken {
    /// By which it is dropped.
    pub name: Ident,
    /// As whom its bearer acts.
    pub role: RoleName,
    /// When it ends.
    pub valid_until: Option<String>,
}

/// `DROP TOKEN [IF EXISTS] name`.
#[derive(Debug, Clone, PartialEq)]
pub struct DropToken {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: Ident,
}
