//! EXPLAIN, what-if questions included.

use sqlparser::ast::ObjectName;

use super::Statement;

/// `EXPLAIN`.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// `ANALYZE`: run it, or look at the running view, and say what it took.
    pub analyze: bool,
    /// The list in parentheses.
    pub options: ExplainOptions,
    /// What is explained.
    pub target: ExplainTarget,
}

/// The options of EXPLAIN.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExplainOptions {
    /// `VERBOSE`.
    pub verbose: bool,
    /// `TYPE`.
    pub plan_type: ExplainType,
    /// `FORMAT`.
    pub format: ExplainFormat,
    /// `PREDICT`: expected times, before anything runs.
    pub predict: bool,
    /// `DURATION '10s'`: how long to watch a running view.
    pub duration: Option<String>,
    /// `WHAT IF (cores = 8, ..)`.
    pub what_if: Option<WhatIf>,
}

/// What EXPLAIN is to take for different; `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WhatIf {
    /// `cores = 8`: this many in all.
    pub cores: Option<usize>,
    /// `disks = 2`: this many.
    pub disks: Option<usize>,
    /// `disk = 'x2'`: every disk so fast.
    pub disk: Option<Speed>,
    /// `network = 'x2'`.
    pub network: Option<Speed>,
    /// `memory = '4GB'`: so much for what it holds.
    pub memory: Option<String>,
    /// `input = 'memory'`: it need be neither read nor decoded.
    pub input_in_memory: bool,
}

/// How fast a device is, next to what it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// `'x2'`: twice as fast. Positive and finite.
    Times(f64),
    /// `'infinite'`: it takes no time.
    Infinite,
}

/// Which plan EXPLAIN shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExplainType {
    /// The optimized logical plan.
    Logical,
    /// The physical plan of a query, the operators of a view; the default.
    #[default]
    Physical,
    /// The stages, cut at the exchanges.
    Stages,
}

/// How EXPLAIN's answer looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExplainFormat {
    /// Indented text; the default.
    #[default]
    Text,
    /// JSON.
    Json,
    /// A Graphviz graph.
    Dot,
}

/// What is explained.
#[derive(Debug, Clone, PartialEq)]
pub enum ExplainTarget {
    /// A statement.
    Statement(Box<Statement>),
    /// A running materialized view.
    MaterializedView(ObjectName),
    /// All materialized views that run, side by side.
    MaterializedViews,
    /// A run that was analysed before, by its number: it is not run again.
    Profile(u64),
    /// A running sink.
    Sink(ObjectName),
}
