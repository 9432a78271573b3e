//! Objects as statements name them: their kinds and references.

use sqlparser::ast::ObjectName;

/// A kind of object in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// An append-only stream (a source is one).
    Stream,
    /// A table.
    Table,
    /// A view that is not materialized.
    View,
    /// A materialized view.
    MaterializedView,
    /// A sink.
    Sink,
    /// An index.
    Index,
    /// A schema.
    Schema,
    /// A database.
    Database,
    /// A subscription.
    Subscription,
    /// A function.
    Function,
    /// A sequence.
    Sequence,
    /// A secret.
    Secret,
    /// A type.
    Type,
    /// A domain.
    Domain,
}

/// An object, by kind and name.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectReference {
    /// What it is said to be.
    pub kind: ObjectKind,
    /// Its name.
    pub name: ObjectName,
}
