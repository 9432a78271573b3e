//! SUBSCRIBE, DECLARE over changes, and FETCH.

use sqlparser::ast::{Expr, FetchDirection, Ident, ObjectName, Query};

/// `SUBSCRIBE [TO] x | (query) [ENVELOPE UPSERT [(KEY (..))]] [WITH (SNAPSHOT, PROGRESS)] [AS OF epoch]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// What is watched.
    pub target: SubscribeTarget,
    /// Whether the rows that exist come first; the default.
    pub snapshot: bool,
    /// Whether epochs without a change are told, too.
    pub progress: bool,
    /// `ENVELOPE UPSERT`: the newest row of each key, or that it is gone. The columns of the key; empty: those that are known.
    pub upsert: Option<Vec<Ident>>,
    /// `AS OF`: the epoch to begin after.
    pub as_of: Option<Expr>,
}

/// What a SUBSCRIBE watches.
#[derive(Debug, Clone, PartialEq)]
pub enum SubscribeTarget {
    /// A relation.
    Relation(ObjectName),
    /// A query.
    Query(Box<Query>),
}

/// `DECLARE c [NO SCROLL] CURSOR [WITH HOLD] FOR SUBSCRIBE ..`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclareSubscribeCursor {
    /// The cursor's name.
    pub name: Ident,
    /// `WITH HOLD`.
    pub hold: bool,
    /// The subscription that it reads.
    pub subscribe: Subscribe,
}

/// `DECLARE c SUBSCRIPTION CURSOR FOR s [SINCE .. | FULL]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeclareSubscriptionCursor {
    /// The cursor's name.
    pub name: Ident,
    /// The subscription.
    pub subscription: ObjectName,
    /// Where it begins.
    pub start: SubscriptionStart,
}

/// Where a cursor over a subscription begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SubscriptionStart {
    /// With what changes from now on.
    #[default]
    Now,
    /// `FULL`: with the rows that exist.
    Full,
    /// `SINCE expr`.
    Since(Box<Expr>),
}

/// `FETCH | MOVE [direction] [FROM | IN] cursor [WITH (timeout = ..)]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetch {
    /// The cursor's name.
    pub cursor: Ident,
    /// How many rows, and which.
    pub direction: FetchDirection,
    /// `timeout`: how long to wait for a row of a subscription.
    pub timeout: Option<String>,
    /// Whether it is MOVE: rows are passed over, and only counted.
    pub only_moves: bool,
}
