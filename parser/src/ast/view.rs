//! CREATE MATERIALIZED VIEW, and when results are emitted.

use sqlparser::ast::{Expr, Ident, ObjectName, Query};

use super::options::Options;

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateMaterializedView {
    /// The view's name.
    pub name: ObjectName,
    /// `OR REPLACE`.
    pub or_replace: bool,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// The names in parentheses after the view's name.
    pub columns: Vec<Ident>,
    /// `WITH (..)`.
    pub options: Options,
    /// The query.
    pub query: Box<Query>,
    /// The query as it was written, without the EMIT clause. `Display` prints this.
    pub query_text: String,
    /// When results are emitted.
    pub emit: Emit,
}

/// When a view hands on its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Emit {
    /// Every change at once; the default.
    #[default]
    Changes,
    /// Once a window is closed, each result once.
    OnWindowClose {
        /// `WITH DELAY`: how much later than the watermark says.
        delay: Option<Expr>,
    },
    /// At this interval.
    Every(Expr),
}
