//! What tells the state of one plan from that of another, so that a checkpoint is given to the plan that can go on with it.
//!
//! The identity is a list of lines, one for each operator that keeps something, in the order in which their state is stored,
//! and one for the view's rows:
//!
//! ```text
//! stage 1: aggregate/1 of (16390.0 Int64), partial, sum sum(Int64): Decimal128(38, 0), from stage 0 by hash (16390.0 Int64)
//! stage 1: view/1 16390.0 Int64, computed Decimal128(38, 0)
//! ```
//!
//! A line says what kind of operator it is, the version of what that kind keeps ([`Kind::version`]), where its columns come from, and
//! what decides which rows it keeps and where. It says nothing of names, of printed expressions, or of operators
//! without state: those may be worded otherwise from one version of millrace to the next, and the state is the same.
//!
//! A column is either one of a stored relation (`relation.column`), which the plan only passes on, or computed: a plan that
//! keeps other columns, or keeps them in another order, is another plan, also where the types are the same.
//!
//! Only plans of one and the same query are compared: a view that is replaced, or whose functions would be, is another view.
//! So what an expression computes need not be told apart.

mod columns;

use std::fmt::Write;

use arrow::compute::SortOptions;

use crate::stage::{
    AggregateCall, AggregateForm, Aggregation, ExchangeForm, JoinKind, Nearest, Numbering, Operator, Output,
    Passage, SlidingForm, StageGraph,
};
use columns::{Columns, type_name};

/// Kinds of operators that keep something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Aggregate,
    Join,
    GenericJoin,
    TopN,
    Recompute,
    Recursion,
    TemporalFilter,
    LookupJoin,
    AsofJoin,
    Session,
    Sliding,
    EmitOnClose,
    EmitEvery,
    /// The rows of the view itself.
    View,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Aggregate => "aggregate",
            Kind::Join => "join",
            Kind::GenericJoin => "generic join",
            Kind::TopN => "top n",
            Kind::Recompute => "window functions",
            Kind::Recursion => "recursion",
            Kind::TemporalFilter => "temporal filter",
            Kind::LookupJoin => "lookup join",
            Kind::AsofJoin => "asof join",
            Kind::Session => "session",
            Kind::Sliding => "sliding windows",
            Kind::EmitOnClose => "emit on close",
            Kind::EmitEvery => "emit every",
            Kind::View => "view",
        }
    }

    /// The version of what this kind keeps: it grows when the form of the state changes for a plan that stays the same. Then
    /// the operator reads the older forms too, or views that have it are filled again.
    fn version(self) -> u32 {
        match self {
            Kind::Aggregate
            | Kind::Join
            | Kind::GenericJoin
            | Kind::TopN
            | Kind::Recompute
            | Kind::Recursion
            | Kind::TemporalFilter
            | Kind::LookupJoin
            | Kind::AsofJoin
            | Kind::Session
            | Kind::Sliding
            | Kind::EmitOnClose
            | Kind::EmitEvery
            | Kind::View => 1,
        }
    }
}

/// The identity of a plan's state; see the module.
pub fn state_identity(graph: &StageGraph) -> Vec<String> {
    let columns = Columns::new(graph);
    let mut lines = vec![];
    for (number, stage) in graph.stages.iter().enumerate() {
        let mut writer = Lines {
            graph,
            columns: &columns,
            stage: number,
            lines: &mut lines,
        };
        writer.operator(&stage.root);
        if stage.output == Output::Materialize {
            let rows = columns.of(&stage.root);
            let form = if graph.append_only { ", append-only" } else { "" };
            let text = format!("{}{form}", rows.list(0..rows.len()));
            writer.line(Kind::View, &text);
        }
    }
    lines
}

/// What is different about another plan's state, for whoever has to fill a view again: the first line of each that the other
/// has not.
pub fn state_difference(stored: &[String], planned: &[String]) -> Option<String> {
    if stored == planned {
        return None;
    }
    let first = |lines: &[String], others: &[String]| {
        let line = lines.iter().find(|line| !others.contains(line));
        line.map_or_else(|| "nothing more".to_owned(), |line| format!("\"{line}\""))
    };
    Some(format!(
        "the checkpoint has {}, the plan has {}",
        first(stored, planned),
        first(planned, stored)
    ))
}

/// The lines of one stage.
struct Lines<'a> {
    graph: &'a StageGraph,
    columns: &'a Columns,
    stage: usize,
    lines: &'a mut Vec<String>,
}

impl Lines<'_> {
    fn line(&mut self, kind: Kind, text: &str) {
        let (stage, name, version) = (self.stage, kind.name(), kind.version());
        self.lines.push(format!("stage {stage}: {name}/{version} {text}"));
    }

    /// The operator's line, then those of what it reads: the order in which the parts of its state are stored.
    fn operator(&mut self, operator: &Operator) {
        if let Some((kind, text)) = self.kept(operator) {
            let partitioned = self.partitioned(operator);
            self.line(kind, &format!("{text}{partitioned}"));
        }
        for input in operator.inputs() {
            self.operator(input);
        }
    }

    /// By what the rows that an operator reads were brought to its partition.
    fn partitioned(&self, operator: &Operator) -> String {
        let mut text = String::new();
        for input in operator.inputs() {
            if let Operator::Exchange { stages, .. } = input {
                for stage in stages {
                    let upstream = &self.graph.stages[*stage];
                    let by = match &upstream.output {
                        Output::Hash(keys) => {
                            let rows = self.columns.of(&upstream.root);
                            format!("hash ({})", rows.list(keys.iter().copied()))
                        }
                        Output::Single => "one partition".to_owned(),
                        Output::Materialize => "the view".to_owned(),
                    };
                    let _ = write!(text, ", from stage {stage} by {by}");
                }
            } else if !input.inputs().is_empty() {
                text += &self.partitioned(input);
            }
        }
        text
    }

    /// What an operator keeps; nothing: it keeps nothing.
    fn kept(&self, operator: &Operator) -> Option<(Kind, String)> {
        Some(match operator {
            // These keep nothing.
            Operator::Source { .. }
            | Operator::Values { .. }
            | Operator::Exchange { .. }
            | Operator::WorkingTable { .. }
            | Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Expand { .. }
            | Operator::Unnest { .. }
            | Operator::PartialAggregate(_) => return None,
            Operator::Aggregate(aggregation) => (Kind::Aggregate, self.aggregation(aggregation)),
            Operator::Join(join) => {
                let (left, right) = (self.columns.of(&join.left), self.columns.of(&join.right));
                let mut text = format!(
                    "{} of ({}) and ({})",
                    join_kind(join.kind),
                    left.all(),
                    right.all()
                );
                for (from, to) in &join.keys {
                    let _ = write!(text, ", {from} = {to}");
                }
                flags(
                    &mut text,
                    &[
                        (join.null_equals_null, "NULL matches NULL"),
                        (join.left_append_only, "left append-only"),
                        (join.right_append_only, "right append-only"),
                        (join.left_closes.is_some(), "left closes"),
                        (join.right_closes.is_some(), "right closes"),
                    ],
                );
                (Kind::Join, text)
            }
            Operator::GenericJoin(join) => {
                let mut text = String::from("of");
                for (input, attributes) in join.inputs.iter().zip(&join.shape.attributes) {
                    let _ = write!(text, " ({}) as {attributes:?}", self.columns.of(input).all());
                }
                (Kind::GenericJoin, text)
            }
            Operator::TopN(top) => {
                let rows = self.columns.of(&top.input);
                let numbering = match top.numbering {
                    Numbering::RowNumber => "row number",
                    Numbering::Rank => "rank",
                    Numbering::DenseRank => "dense rank",
                };
                let mut text = format!(
                    "of ({}) by {numbering} in ({}), order ({}), skip {}, width {}",
                    rows.all(),
                    rows.list(top.partition_by.iter().copied()),
                    order(&top.order_by),
                    top.skip,
                    top.width,
                );
                if let Some(fetch) = top.fetch {
                    let _ = write!(text, ", fetch {fetch}");
                }
                flags(
                    &mut text,
                    &[
                        (top.with_number, "with number"),
                        (top.input_append_only, "append-only"),
                        (top.closes.is_some(), "closes"),
                    ],
                );
                (Kind::TopN, text)
            }
            Operator::Recompute(recompute) => {
                let rows = self.columns.of(&recompute.input);
                let mut text = format!(
                    "of ({}) in ({}), order ({}), {} functions",
                    rows.all(),
                    rows.list(recompute.partition_by.iter().copied()),
                    order(&recompute.order_by),
                    recompute.functions.len(),
                );
                flags(
                    &mut text,
                    &[
                        (recompute.input_append_only, "append-only"),
                        (recompute.closes.is_some(), "closes"),
                    ],
                );
                (Kind::Recompute, text)
            }
            Operator::Recursion(recursion) => {
                let mut text = self.columns.of(&recursion.base).all();
                flags(&mut text, &[(recursion.distinct, "distinct")]);
                (Kind::Recursion, text)
            }
            Operator::TemporalFilter(filter) => {
                let mut text = format!("of ({})", self.columns.of(&filter.input).all());
                for bound in &filter.bounds {
                    let passage = match bound.passage {
                        Passage::Enters => "enters",
                        Passage::Leaves => "leaves",
                    };
                    let strict = if bound.is_strict { " strictly" } else { "" };
                    let _ = write!(text, ", {passage}{strict}");
                }
                (Kind::TemporalFilter, text)
            }
            Operator::LookupJoin(join) => {
                let (left, right) = (self.columns.of(&join.left), self.columns.of(&join.right));
                let mut text = format!("of ({}) and ({})", left.all(), right.all());
                for (from, to) in &join.keys {
                    let _ = write!(text, ", {from} = {to}");
                }
                flags(
                    &mut text,
                    &[
                        (join.is_outer, "outer"),
                        (join.left_append_only, "left append-only"),
                        (join.right_append_only, "right append-only"),
                    ],
                );
                (Kind::LookupJoin, text)
            }
            Operator::AsofJoin(join) => {
                let (left, right) = (self.columns.of(&join.left), self.columns.of(&join.right));
                let nearest = match join.nearest {
                    Nearest::AtOrBefore => "at or before",
                    Nearest::Before => "before",
                    Nearest::AtOrAfter => "at or after",
                    Nearest::After => "after",
                };
                let (from, to) = join.times;
                let mut text = format!(
                    "of ({}) and ({}), nearest {nearest} of {from} and {to}",
                    left.all(),
                    right.all()
                );
                for (from, to) in &join.keys {
                    let _ = write!(text, ", {from} = {to}");
                }
                flags(
                    &mut text,
                    &[
                        (join.is_outer, "outer"),
                        (join.left_append_only, "left append-only"),
                        (join.right_append_only, "right append-only"),
                    ],
                );
                (Kind::AsofJoin, text)
            }
            Operator::Session(session) => {
                let rows = self.columns.of(&session.input);
                let mut text = format!(
                    "of ({}) in ({}), time {}, gap {}, width {}",
                    rows.all(),
                    rows.list(session.keys.iter().copied()),
                    session.time,
                    session.gap,
                    session.width,
                );
                flags(
                    &mut text,
                    &[
                        (session.input_append_only, "append-only"),
                        (session.closes.is_some(), "closes"),
                    ],
                );
                (Kind::Session, text)
            }
            Operator::Sliding(sliding) => {
                let form = match sliding.form {
                    SlidingForm::Subtract => "subtract",
                    SlidingForm::Merge => "merge",
                };
                let mut text = format!(
                    "{}, slide {}, size {}, offset {}, pane {}, {form}",
                    self.aggregation(&sliding.aggregation),
                    sliding.slide,
                    sliding.size,
                    sliding.offset,
                    sliding.pane,
                );
                for window in &sliding.windows {
                    let _ = write!(text, ", window {} + {}", window.column, window.shift);
                }
                flags(
                    &mut text,
                    &[(sliding.closes.is_some(), "closes"), (sliding.once, "once")],
                );
                (Kind::Sliding, text)
            }
            Operator::EmitOnClose(emit) => (
                Kind::EmitOnClose,
                format!("of ({})", self.columns.of(&emit.input).all()),
            ),
            Operator::EmitEvery(emit) => (
                Kind::EmitEvery,
                format!(
                    "of ({}), every {}",
                    self.columns.of(&emit.input).all(),
                    emit.every
                ),
            ),
        })
    }

    fn aggregation(&self, aggregation: &Aggregation) -> String {
        // Of partial states it is the map stage's input that says what a group column is.
        let rows = self.columns.of(&aggregation.input);
        let exchange = match aggregation.exchange {
            ExchangeForm::Partial => "partial",
            ExchangeForm::Rows => "rows",
        };
        let mut text = format!("of ({}), {exchange}", rows.list(0..aggregation.group_columns));
        for call in &aggregation.calls {
            let _ = write!(text, ", {}", call_text(call));
        }
        flags(
            &mut text,
            &[
                (aggregation.input_append_only, "append-only"),
                (aggregation.closes.is_some(), "closes"),
            ],
        );
        if let Some(timer) = aggregation.timer {
            let _ = write!(text, ", every {timer}");
        }
        text
    }
}

fn call_text(call: &AggregateCall) -> String {
    let form = match call.form {
        AggregateForm::Count => "count",
        AggregateForm::Sum => "sum",
        AggregateForm::Average => "average",
        AggregateForm::Variance { sample: true } => "sample variance",
        AggregateForm::Variance { sample: false } => "population variance",
        AggregateForm::StandardDeviation { sample: true } => "sample deviation",
        AggregateForm::StandardDeviation { sample: false } => "population deviation",
        AggregateForm::BoolAnd => "bool and",
        AggregateForm::BoolOr => "bool or",
        AggregateForm::MinAppendOnly => "min so far",
        AggregateForm::MaxAppendOnly => "max so far",
        AggregateForm::Min => "min",
        AggregateForm::Max => "max",
        AggregateForm::ApproxDistinct => "approximate distinct",
        AggregateForm::Reducer { append_only: true } => "reducer over arrivals",
        AggregateForm::Reducer { append_only: false } => "reducer",
        AggregateForm::Values => "values",
    };
    let arguments = call.function.expressions();
    let types = arguments
        .iter()
        .filter_map(|argument| argument.data_type(&call.input_schema).ok())
        .map(|data_type| type_name(&data_type));
    let mut text = format!(
        "{form} {}({}): {}",
        call.function.fun().name(),
        types.collect::<Vec<_>>().join(", "),
        type_name(call.function.field().data_type()),
    );
    if !call.order_by.is_empty() {
        let _ = write!(text, " order ({})", order(&call.order_by));
    }
    flags(
        &mut text,
        &[(call.distinct, "distinct"), (call.filter.is_some(), "filtered")],
    );
    text
}

fn join_kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::LeftSemi => "left semi",
        JoinKind::LeftAnti => "left anti",
        JoinKind::LeftMark => "left mark",
        JoinKind::RightSemi => "right semi",
        JoinKind::RightAnti => "right anti",
    }
}

fn order(columns: &[(usize, SortOptions)]) -> String {
    let columns = columns.iter().map(|(column, options)| {
        let direction = if options.descending { "desc" } else { "asc" };
        let nulls = if options.nulls_first { " nulls first" } else { "" };
        format!("{column} {direction}{nulls}")
    });
    columns.collect::<Vec<_>>().join(", ")
}

fn flags(text: &mut String, flags: &[(bool, &str)]) {
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        let _ = write!(text, ", {name}");
    }
}
