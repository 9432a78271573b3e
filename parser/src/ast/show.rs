//! SHOW.

use sqlparser::ast::ObjectName;

use super::object::ObjectReference;

/// `SHOW ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct ShowStatement {
    /// What is shown.
    pub target: ShowTarget,
    /// `FROM schema` of the lists of relations.
    pub schema: Option<ObjectName>,
    /// `LIKE 'pattern'`.
    pub like: Option<String>,
}

/// What SHOW shows.
#[derive(Debug, Clone, PartialEq)]
pub enum ShowTarget {
    /// `SHOW STREAMS`.
    Streams,
    /// `SHOW SOURCES`.
    Sources,
    /// `SHOW TABLES`.
    Tables,
    /// `SHOW VIEWS`.
    Views,
    /// `SHOW MATERIALIZED VIEWS`.
    MaterializedViews,
    /// `SHOW SINKS`.
    Sinks,
    /// `SHOW INDEXES [FROM relation]`.
    Indexes(Option<ObjectName>),
    /// `SHOW SUBSCRIPTIONS`.
    Subscriptions,
    /// `SHOW SECRETS`.
    Secrets,
    /// `SHOW FUNCTIONS`.
    Functions,
    /// `SHOW DATABASES`.
    Databases,
    /// `SHOW SCHEMAS`.
    Schemas,
    /// `SHOW CURSORS`.
    Cursors,
    /// `SHOW COLUMNS FROM x`.
    Columns(ObjectName),
    /// `SHOW CREATE kind x`.
    Create(ObjectReference),
    /// `SHOW JOBS`.
    Jobs,
    /// `SHOW PROCESSLIST`.
    Processlist,
    /// `SHOW WATERMARKS`.
    Watermarks,
    /// `SHOW BACKPRESSURE`.
    Backpressure,
    /// `SHOW BATCHES`.
    Batches,
    /// `SHOW SUSPENDED`.
    Suspended,
    /// `SHOW WORKERS`.
    Workers,
    /// `SHOW PARAMETERS`: settings of the whole system.
    Parameters,
    /// `SHOW ALL`: settings of the session.
    All,
    /// `SHOW name`: one setting, in lower case; `SHOW TIME ZONE` is `timezone` and
    /// `SHOW TRANSACTION ISOLATION LEVEL` is `transaction_isolation`.
    Variable(String),
}

impl ShowTarget {
    /// Whether it lists what is in schemas, so that `FROM schema` chooses one of them.
    pub fn is_of_schemas(&self) -> bool {
        matches!(
            self,
            ShowTarget::Streams
                | ShowTarget::Sources
                | ShowTarget::Tables
                | ShowTarget::Views
                | ShowTarget::MaterializedViews
                | ShowTarget::Sinks
                | ShowTarget::Subscriptions
                | ShowTarget::Secrets
        )
    }
}
