//! GRANT and REVOKE of privileges, now and for what is made later.

use sqlparser::ast::{Ident, ObjectName};

use super::alter::DropBehavior;
use super::role::RoleName;

/// `GRANT privileges ON objects TO roles [WITH GRANT OPTION]`, and the REVOKE of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The privileges, by name; empty: `ALL`.
    pub privileges: Vec<String>,
    /// On what.
    pub on: GrantTarget,
    /// Who has them from now on, or has them no more.
    pub grantees: Vec<RoleName>,
    /// `WITH GRANT OPTION`; of a REVOKE: `GRANT OPTION FOR`.
    pub grant_option: bool,
    /// `GRANTED BY`: who grants, which can only be the current user.
    pub granted_by: Option<RoleName>,
    /// Whether it is a REVOKE, and what it does about what was granted further.
    pub revoke: Option<DropBehavior>,
}

/// What GRANT is on.
#[derive(Debug, Clone, PartialEq)]
pub enum GrantTarget {
    /// Objects by name.
    Named(GrantKind, Vec<ObjectName>),
    /// `ALL kind IN SCHEMA name, ..`.
    AllIn(GrantKind, Vec<Ident>),
}

/// A kind of objects that have the same privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantKind {
    /// Tables, streams, views and what else is read and written as they are.
    Table,
    /// Sequences.
    Sequence,
    /// Functions.
    Function,
    /// Schemas.
    Schema,
    /// Databases.
    Database,
    /// Secrets.
    Secret,
}

/// `ALTER DEFAULT PRIVILEGES [FOR ROLE r, ..] [IN SCHEMA s, ..] GRANT | REVOKE ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterDefaultPrivileges {
    /// Of the objects that these make; empty: the current user.
    pub roles: Vec<RoleName>,
    /// In these schemas; empty: in all.
    pub schemas: Vec<Ident>,
    /// The kind of objects.
    pub kind: GrantKind,
    /// The privileges, by name; empty: `ALL`.
    pub privileges: Vec<String>,
    /// Who has them.
    pub grantees: Vec<RoleName>,
    /// `WITH GRANT OPTION`, or of a REVOKE `GRANT OPTION FOR`.
    pub grant_option: bool,
    /// Whether it is a REVOKE.
    pub revoke: bool,
}
