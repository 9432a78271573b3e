//! EXPLAIN (TYPE STAGES): the stage DAG as text.
//!
//! ```text
//! Stage 1 (4 partitions): materialize, key (carrier)
//!   Aggregate: group (carrier), calls [count(*): count]
//!     Exchange: from stage 0
//! Stage 0 (4 partitions): hash (carrier) -> stage 1
//!   PartialAggregate: group (carrier), calls [count(*): count]
//!     Source: flights [carrier]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::stage::flow::Faucet;
use crate::stage::operator::Operator;
use crate::stage::policy::{OnError, Priority};
use crate::stage::words::names;
use crate::stage::{Output, Stage, StageGraph};

/// The DAG, last stage first, as one reads a query plan.
pub fn stages(graph: &StageGraph) -> String {
    stages_with(graph, &BTreeMap::new())
}

/// The same of a view that runs; with what its faucets do now, by stage.
pub fn stages_with(graph: &StageGraph, faucets: &BTreeMap<usize, String>) -> String {
    let mut text = String::new();
    if graph.priority == Priority::Batch {
        let _ = writeln!(text, "Priority: batch");
    }
    if graph.on_error != OnError::default() {
        let _ = writeln!(text, "On error: {}", graph.on_error.name());
    }
    for stage in graph.stages.iter().rev() {
        let partitions = graph.partitions;
        let plural = if partitions == 1 {
            "partition"
        } else {
            "partitions"
        };
        let _ = writeln!(
            text,
            "Stage {} ({partitions} {plural}): {}",
            stage.id,
            output(graph, stage)
        );
        if let Some(Faucet { reason, is_placed }) = &stage.faucet {
            let limits = graph.flow;
            let when = if *is_placed { "" } else { " if rows multiply" };
            let _ = writeln!(text, "  Faucet{when}: {limits}, because {reason}");
            if let Some(now) = faucets.get(&stage.id) {
                let _ = writeln!(text, "    now: {now}");
            }
        }
        operator(&mut text, &stage.root, 1);
    }
    text
}

fn output(graph: &StageGraph, stage: &Stage) -> String {
    let reader = || {
        graph
            .stages
            .iter()
            .find(|reader| reader.upstream().contains(&stage.id))
            .map_or(String::new(), |reader| format!(" -> stage {}", reader.id))
    };
    match &stage.output {
        Output::Hash(columns) => format!("hash {}{}", names(stage.root.schema(), columns), reader()),
        Output::Single => format!("single{}", reader()),
        Output::Materialize => {
            let key = match &graph.key {
                Some(key) => format!(", key {}", names(&graph.schema, key)),
                None => String::new(),
            };
            let form = if graph.append_only { ", append-only" } else { "" };
            format!("materialize{key}{form}")
        }
    }
}

/// A stage in a few words: its operators, the last first, without those that only pass rows on.
/// `PartialAggregate, Source: bid`
pub fn stage_name(stage: &Stage) -> String {
    let mut found = vec![];
    collect_kinds(&stage.root, &mut |node, kind| {
        found.push(match node {
            Operator::Source(source) => format!("Source: {}", source.name),
            _ => kind,
        });
    });
    match found.is_empty() {
        true => stage.root.description().line(),
        false => found.join(", "),
    }
}

/// The kinds of a stage's operators, as in [`stage_name`], without the names of its sources.
pub fn stage_operators(stage: &Stage) -> Vec<String> {
    let mut found = vec![];
    collect_kinds(&stage.root, &mut |_, kind| found.push(kind));
    found
}

fn collect_kinds(node: &Operator, found: &mut impl FnMut(&Operator, String)) {
    if !matches!(node, Operator::Project(_) | Operator::Exchange(_)) {
        let line = node.description().line();
        found(node, line.split(':').next().unwrap_or_default().to_owned());
    }
    for input in node.inputs() {
        collect_kinds(input, found);
    }
}

fn operator(text: &mut String, node: &Operator, depth: usize) {
    let _ = writeln!(text, "{}{}", "  ".repeat(depth), node.description().line());
    for input in node.inputs() {
        operator(text, input, depth + 1);
    }
}
