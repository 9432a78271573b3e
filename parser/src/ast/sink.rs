//! CREATE SINK and CREATE SUBSCRIPTION.

use sqlparser::ast::{ObjectName, Query};

use super::options::{FormatEncode, Options};
use super::view::Emit;

/// `CREATE SINK`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSink {
    /// The sink's name.
    pub name: ObjectName,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// What it reads.
    pub input: SinkInput,
    /// `WITH (..)`.
    pub options: Options,
    /// `FORMAT .. ENCODE ..`.
    pub format: Option<FormatEncode>,
    /// When results are emitted.
    pub emit: Emit,
}

/// What a sink reads.
#[derive(Debug, Clone, PartialEq)]
pub enum SinkInput {
    /// `FROM name`.
    Relation(ObjectName),
    /// `AS query`.
    Query(Box<Query>),
}

/// `CREATE SUBSCRIPTION s FROM mv | AS query WITH (retention = ..)`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateSubscription {
    /// The subscription's name.
    pub name: ObjectName,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// What it reads.
    pub input: SinkInput,
    /// `WITH (..)`.
    pub options: Options,
}
