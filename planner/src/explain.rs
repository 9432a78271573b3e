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
use std::time::Duration;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::expressions::Column;

use crate::stage::{
    AggregateCall, AggregateForm, Aggregation, AsofJoin, Closing, ExchangeForm, Faucet, GenericJoin, Join,
    LookupJoin, Nearest, Numbering, Operator, Output, Passage, Sliding, SlidingForm, Stage, StageGraph,
    TemporalFilter, TopN, UnnestColumn,
};
use crate::view::{OnError, Priority};

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
            Operator::Source { name, .. } => format!("Source: {name}"),
            _ => kind,
        });
    });
    match found.is_empty() {
        true => line(&stage.root),
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
    if !matches!(node, Operator::Project { .. } | Operator::Exchange { .. }) {
        let line = line(node);
        found(node, line.split(':').next().unwrap_or_default().to_owned());
    }
    for input in node.inputs() {
        collect_kinds(input, found);
    }
}

fn operator(text: &mut String, node: &Operator, depth: usize) {
    let _ = writeln!(text, "{}{}", "  ".repeat(depth), line(node));
    for input in node.inputs() {
        operator(text, input, depth + 1);
    }
}

/// An operator without its inputs.
fn line(node: &Operator) -> String {
    match node {
        Operator::Source { name, schema, .. } => format!("Source: {name} {}", columns(schema)),
        Operator::Values { rows, .. } => format!("Values: {} rows", rows.len()),
        Operator::Exchange { stages, .. } => {
            let from: Vec<String> = stages.iter().map(|stage| format!("stage {stage}")).collect();
            format!("Exchange: from {}", from.join(", "))
        }
        Operator::Filter { predicate, .. } => format!("Filter: {predicate}"),
        Operator::Project {
            expressions, schema, ..
        } => {
            let shown: Vec<String> = expressions
                .iter()
                .zip(schema.fields())
                .map(|(expression, field)| format!("{expression} as {}", field.name()))
                .collect();
            format!("Project: {}", shown.join(", "))
        }
        Operator::PartialAggregate(aggregation) => match aggregation.exchange {
            ExchangeForm::Partial => format!("PartialAggregate: {}", aggregates(aggregation)),
            ExchangeForm::Rows => "Consolidate: equal rows as one".to_owned(),
        },
        Operator::Aggregate(aggregation) => format!("Aggregate: {}", aggregates(aggregation)),
        Operator::Join(join) => joins(join),
        Operator::GenericJoin(join) => generic_join(join),
        Operator::Expand { projections, .. } => format!("Expand: {} grouping sets", projections.len()),
        Operator::Unnest { input, columns, .. } => {
            let mut lists = vec![];
            for column in columns {
                match column {
                    UnnestColumn::Elements(list) => lists.push(*list),
                    UnnestColumn::Pieces { column, delimiter } => {
                        let text = input.schema().field(*column).name();
                        return format!("Unnest: pieces of {text} between '{delimiter}'");
                    }
                    UnnestColumn::Kept(_) => {}
                }
            }
            format!("Unnest: {}", names(input.schema(), &lists))
        }
        Operator::TopN(top) => top_n(top),
        Operator::TemporalFilter(filter) => temporal_filter(filter),
        Operator::LookupJoin(join) => lookup_join(join),
        Operator::AsofJoin(join) => asof_join(join),
        Operator::Session(session) => format!(
            "Session: by {}, time {}, gap {:?}{}",
            names(session.input.schema(), &session.keys),
            session.input.schema().field(session.time).name(),
            Duration::from_micros(session.gap.unsigned_abs()),
            if session.closes.is_some() {
                ", closes at its end"
            } else {
                ""
            }
        ),
        Operator::Sliding(sliding) => slides(sliding),
        Operator::EmitOnClose(emit) => format!("EmitOnClose: by {}", value(&emit.closing)),
        Operator::EmitEvery(emit) => {
            format!(
                "EmitEvery: {:?}",
                Duration::from_micros(emit.every.unsigned_abs())
            )
        }
        Operator::Recompute(recompute) => format!(
            "Recompute: changed partitions of {}, order {}, functions [{}]{}",
            names(recompute.input.schema(), &recompute.partition_by),
            order(recompute.input.schema(), &recompute.order_by),
            recompute
                .functions
                .iter()
                .map(|function| function.name())
                .collect::<Vec<_>>()
                .join(", "),
            closes(recompute.closes.as_ref())
        ),
        Operator::Recursion(recursion) => format!(
            "Recursion: {}, {}",
            recursion.name,
            if recursion.distinct {
                "distinct rows"
            } else {
                "all rows"
            }
        ),
        Operator::WorkingTable { schema } => format!("WorkingTable: {}", columns(schema)),
    }
}

fn aggregates(aggregation: &Aggregation) -> String {
    let group: Vec<usize> = (0..aggregation.group_columns).collect();
    let schema = &aggregation
        .calls
        .first()
        .map_or(&aggregation.schema, |call| &call.input_schema);
    let calls: Vec<String> = aggregation.calls.iter().map(call).collect();
    let form = if aggregation.input_append_only {
        ", append-only input"
    } else {
        ""
    };
    format!(
        "group {}, calls [{}]{form}{}{}",
        names(schema, &group),
        calls.join(", "),
        closes(aggregation.closes.as_ref()),
        aggregation.timer.map_or(String::new(), |every| format!(
            ", timer {:?}",
            Duration::from_micros(every.unsigned_abs())
        ))
    )
}

fn slides(sliding: &Sliding) -> String {
    let micros = |length: i64| Duration::from_micros(length.unsigned_abs());
    let form = match sliding.form {
        SlidingForm::Subtract => "by subtracting panes",
        SlidingForm::Merge => "by merging panes",
    };
    let closes = match (&sliding.closes, sliding.once) {
        (None, _) => "",
        (Some(_), false) => ", closes at its end",
        (Some(_), true) => ", emitted when it closes",
    };
    format!(
        "Sliding: windows of {:?} every {:?} from panes of {:?}, {form}; {}{closes}",
        micros(sliding.size),
        micros(sliding.slide),
        micros(sliding.pane),
        aggregates(&sliding.aggregation)
    )
}

fn call(call: &AggregateCall) -> String {
    let form = match call.form {
        AggregateForm::Count if call.distinct => "set of values",
        AggregateForm::Count => "count",
        _ if call.distinct => "set of values",
        AggregateForm::Sum | AggregateForm::Average => "sum and count",
        AggregateForm::Variance { .. } | AggregateForm::StandardDeviation { .. } => "moments",
        AggregateForm::BoolAnd | AggregateForm::BoolOr => "counts",
        AggregateForm::MinAppendOnly | AggregateForm::MaxAppendOnly => "best value",
        AggregateForm::Min | AggregateForm::Max => "ordered values",
        AggregateForm::ApproxDistinct => "sketch",
        AggregateForm::Reducer { .. } => "state",
        AggregateForm::Values => "values",
    };
    format!("{}: {form}", call.function.name())
}

fn joins(join: &Join) -> String {
    let (left, right) = (join.left.schema(), join.right.schema());
    let keys: Vec<String> = join
        .keys
        .iter()
        .map(|(l, r)| format!("{} = {}", left.field(*l).name(), right.field(*r).name()))
        .collect();
    let filter = join
        .filter
        .as_ref()
        .map_or(String::new(), |filter| format!(", filter {filter}"));
    let form = |append_only: bool| if append_only { "append-only" } else { "changing" };
    format!(
        "Join: {:?} on ({}){filter}, left {}{}, right {}{}",
        join.kind,
        keys.join(", "),
        form(join.left_append_only),
        closes(join.left_closes.as_ref()),
        form(join.right_append_only),
        closes(join.right_closes.as_ref())
    )
}

fn generic_join(join: &GenericJoin) -> String {
    let shape = &join.shape;
    let inputs: Vec<String> = (shape.attributes.iter())
        .map(|attributes| {
            let names = attributes.iter().map(|of| shape.names[*of].as_str());
            format!("({})", names.collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!("GenericJoin: {}", inputs.join(", "))
}

fn order(schema: &SchemaRef, order_by: &[(usize, SortOptions)]) -> String {
    let shown: Vec<String> = order_by
        .iter()
        .map(|(column, options)| {
            let direction = if options.descending { " DESC" } else { "" };
            format!("{}{direction}", schema.field(*column).name())
        })
        .collect();
    format!("({})", shown.join(", "))
}

fn top_n(top: &TopN) -> String {
    let fetch = top.fetch.map_or("all".to_owned(), |fetch| fetch.to_string());
    let partitions = if top.partition_by.is_empty() {
        String::new()
    } else {
        format!(
            " of each partition by {}",
            names(top.input.schema(), &top.partition_by)
        )
    };
    let numbering = match (top.numbering, top.with_number) {
        (Numbering::RowNumber, false) => "",
        (Numbering::RowNumber, true) => ", numbered",
        (Numbering::Rank, false) => ", by rank",
        (Numbering::Rank, true) => ", by rank, numbered",
        (Numbering::DenseRank, false) => ", by dense rank",
        (Numbering::DenseRank, true) => ", by dense rank, numbered",
    };
    format!(
        "TopN: fetch {fetch}, skip {}{partitions}, order {}{numbering}{}",
        top.skip,
        order(top.input.schema(), &top.order_by),
        closes(top.closes.as_ref())
    )
}

/// By what rows become final, after which their state is forgotten.
fn closes(closing: Option<&Closing>) -> String {
    closing.map_or(String::new(), |closing| format!(", closes by {}", value(closing)))
}

fn value(closing: &Closing) -> String {
    let column = closing.value.downcast_ref::<Column>();
    column.map_or_else(|| closing.value.to_string(), |column| column.name().to_owned())
}

/// `k = k`, for each pair of keys.
fn key_pairs(left: &SchemaRef, right: &SchemaRef, keys: &[(usize, usize)]) -> String {
    let pairs: Vec<String> = keys
        .iter()
        .map(|(l, r)| format!("{} = {}", left.field(*l).name(), right.field(*r).name()))
        .collect();
    format!("({})", pairs.join(", "))
}

fn outer(is_outer: bool) -> &'static str {
    if is_outer { "Left" } else { "Inner" }
}

fn lookup_join(join: &LookupJoin) -> String {
    let filter = join
        .filter
        .as_ref()
        .map_or(String::new(), |filter| format!(", filter {filter}"));
    let kept = if join.left_append_only {
        "append-only: not stored"
    } else {
        "changing: its output is stored"
    };
    format!(
        "LookupJoin: {} on {}{filter}, left {kept}",
        outer(join.is_outer),
        key_pairs(join.left.schema(), join.right.schema(), &join.keys)
    )
}

fn asof_join(join: &AsofJoin) -> String {
    let (left, right) = (join.left.schema(), join.right.schema());
    let comparison = match join.nearest {
        Nearest::AtOrBefore => ">=",
        Nearest::Before => ">",
        Nearest::AtOrAfter => "<=",
        Nearest::After => "<",
    };
    format!(
        "AsofJoin: {} on {}, nearest {} {comparison} {}",
        outer(join.is_outer),
        key_pairs(left, right, &join.keys),
        left.field(join.times.0).name(),
        right.field(join.times.1).name()
    )
}

fn temporal_filter(filter: &TemporalFilter) -> String {
    let mut conditions: Vec<&str> = filter
        .bounds
        .iter()
        .map(|bound| bound.condition.as_str())
        .collect();
    conditions.dedup();
    let passes = |passage| filter.bounds.iter().any(|bound| bound.passage == passage);
    let rows = match (passes(Passage::Enters), passes(Passage::Leaves)) {
        (true, true) => "rows enter and leave",
        (true, false) => "rows enter",
        _ => "rows leave",
    };
    format!("TemporalFilter: {}, {rows}", conditions.join(" AND "))
}

fn names(schema: &SchemaRef, positions: &[usize]) -> String {
    let names: Vec<&str> = positions
        .iter()
        .map(|position| schema.field(*position).name().as_str())
        .collect();
    format!("({})", names.join(", "))
}

fn columns(schema: &SchemaRef) -> String {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    format!("[{}]", names.join(", "))
}
