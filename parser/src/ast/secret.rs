//! Secrets that the catalog keeps, for connectors.

use sqlparser::ast::ObjectName;

use super::role::Secret;

/// `CREATE SECRET [IF NOT EXISTS] name [WITH (backend = 'meta')] AS 'value'`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSecret {
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// The value.
    pub value: Secret,
}

/// `ALTER SECRET [IF EXISTS] name [WITH (backend = 'meta')] AS 'value'`: another value for it.
#[derive(Debug, Clone, PartialEq)]
pub struct AlterSecret {
    /// `IF EXISTS`.
    pub if_exists: bool,
    /// Its name.
    pub name: ObjectName,
    /// The value.
    pub value: Secret,
}
