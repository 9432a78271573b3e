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
//! A line says what kind of operator it is, the version of what that kind keeps (`State::version`), where its columns come from, and
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

use crate::stage::description::State;
use crate::stage::operator::Operator;
use crate::stage::origins::Origins;
use crate::stage::{Output, StageGraph};
use columns::Columns;

/// The rows of the view itself: what kind of state they are, and the version of its form, as in [`State`].
const VIEW: (&str, u32) = ("view", 1);

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
            writer.line(VIEW.0, VIEW.1, &text);
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
    fn line(&mut self, kind: &str, version: u32, text: &str) {
        let stage = self.stage;
        self.lines.push(format!("stage {stage}: {kind}/{version} {text}"));
    }

    /// The operator's line, then those of what it reads: the order in which the parts of its state are stored.
    fn operator(&mut self, operator: &Operator) {
        let inputs = operator.inputs().into_iter();
        let inputs: Vec<Origins> = inputs.map(|input| self.columns.of(input)).collect();
        if let Some(State { kind, version, text }) = operator.description().state(&inputs) {
            let partitioned = self.partitioned(operator);
            self.line(kind, version, &format!("{text}{partitioned}"));
        }
        for input in operator.inputs() {
            self.operator(input);
        }
    }

    /// By what the rows that an operator reads were brought to its partition.
    fn partitioned(&self, operator: &Operator) -> String {
        let mut text = String::new();
        for input in operator.inputs() {
            if let Operator::Exchange(exchange) = input {
                for stage in &exchange.stages {
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
}
