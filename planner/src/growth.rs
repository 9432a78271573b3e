//! What of a view grows without bound: state that holds rows, or a key each, of a stream that never ends.
//!
//! Such a view is accepted, since it may be what is wanted and the stream may be small, but its maker is told.

use std::collections::{BTreeSet, HashMap};

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::Aggregate;

use crate::relation::{RelationInfo, RelationKind};
use crate::stage::{AggregateForm, Aggregation, Join, JoinKind, Operator, Passage, StageGraph};

/// What of a view grows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// The stream for whose sake the view's own rows grow in number without bound, if they do.
    pub endless: Option<String>,
    /// The operators whose state does.
    pub state: Vec<GrowingState>,
}

/// An operator whose state grows without bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowingState {
    /// The operator, as the query has it: `GROUP BY (carrier)`.
    pub operator: String,
    /// What it keeps: `every group`.
    pub keeps: String,
    /// The stream that makes it grow.
    pub stream: String,
}

/// What of a view grows. `endless` says for whose sake the rows of another view grow; a stream's always do, a table's
/// never: it holds what its user lets stand.
pub fn growth(graph: &StageGraph, endless: &dyn Fn(&RelationInfo) -> Option<String>) -> Growth {
    let mut analysis = Analysis {
        graph,
        endless,
        stages: HashMap::new(),
        growth: Growth::default(),
    };
    for stage in &graph.stages {
        let grows = analysis.operator(&stage.root);
        analysis.stages.insert(stage.id, grows);
    }
    let last = graph.stages.last().map(|stage| stage.id);
    analysis.growth.endless = last.and_then(|last| analysis.stages.remove(&last)).flatten();
    analysis.growth
}

struct Analysis<'a> {
    graph: &'a StageGraph,
    endless: &'a dyn Fn(&RelationInfo) -> Option<String>,
    /// By stage, the stream for whose sake its output grows. Stages come after those that they read.
    stages: HashMap<usize, Option<String>>,
    growth: Growth,
}

impl Analysis<'_> {
    /// The stream for whose sake the operator's rows grow in number without bound; notes state on the way.
    fn operator(&mut self, operator: &Operator) -> Option<String> {
        match operator {
            Operator::Source { relation, .. } => {
                let info = self.graph.inputs.iter().find(|info| info.id == *relation)?;
                match info.kind {
                    RelationKind::Stream => Some(info.name.clone()),
                    RelationKind::Table => None,
                    RelationKind::View => (self.endless)(info),
                }
            }
            Operator::Exchange { stages, .. } => stages
                .iter()
                .find_map(|stage| self.stages.get(stage).cloned().flatten()),
            Operator::Aggregate(aggregation) => self.aggregate(aggregation),
            Operator::Join(join) => self.join(join),
            Operator::GenericJoin(join) => {
                let inputs: Vec<Option<String>> =
                    (join.inputs.iter()).map(|input| self.operator(input)).collect();
                let stream = inputs.into_iter().flatten().next()?;
                let names = join.shape.names.join(", ");
                self.note(format!("JOIN ({names})"), "every row", &stream);
                Some(stream)
            }
            Operator::TopN(top) => {
                let stream = self.operator(&top.input)?;
                if top.closes.is_some() {
                    return Some(stream);
                }
                // Of rows that only arrive those behind the first ones are not kept.
                let is_bounded = top.input_append_only && top.fetch.is_some();
                if top.partition_by.is_empty() {
                    if !is_bounded {
                        self.note("ORDER BY .. LIMIT".into(), "every row", &stream);
                    }
                    return top.fetch.is_none().then_some(stream);
                }
                let names = names(top.input.schema(), top.partition_by.iter().copied());
                let keeps = if is_bounded {
                    "the first rows of every partition"
                } else {
                    "every row"
                };
                self.note(format!("first rows by ({names})"), keeps, &stream);
                Some(stream)
            }
            Operator::Recompute(recompute) => {
                let stream = self.operator(&recompute.input)?;
                if recompute.closes.is_some() {
                    return Some(stream);
                }
                let names = names(recompute.input.schema(), recompute.partition_by.iter().copied());
                let over = match names.is_empty() {
                    true => "OVER ()".to_owned(),
                    false => format!("OVER (PARTITION BY {names})"),
                };
                self.note(over, "every row", &stream);
                Some(stream)
            }
            Operator::Session(session) => {
                let stream = self.operator(&session.input)?;
                if session.closes.is_none() {
                    let names = names(session.input.schema(), session.keys.iter().copied());
                    self.note(format!("SESSION ({names})"), "every row", &stream);
                }
                Some(stream)
            }
            Operator::Sliding(sliding) => {
                let stream = self.operator(&sliding.aggregation.input)?;
                if sliding.closes.is_none() {
                    let schema = sliding.aggregation.input.schema();
                    let names = names(schema, 0..sliding.aggregation.group_columns);
                    self.note(format!("GROUP BY ({names})"), "every group", &stream);
                }
                Some(stream)
            }
            Operator::Recursion(recursion) => {
                let (base, body) = (self.operator(&recursion.base), self.operator(&recursion.body));
                let stream = base.or(body)?;
                self.note(format!("WITH RECURSIVE {}", recursion.name), "every row", &stream);
                Some(stream)
            }
            Operator::TemporalFilter(filter) => {
                let stream = self.operator(&filter.input)?;
                // What leaves is forgotten, and what is to enter waits for a while only.
                let leaves = filter.bounds.iter().any(|bound| bound.passage == Passage::Leaves);
                (!leaves).then_some(stream)
            }
            Operator::LookupJoin(join) => {
                let (left, right) = (self.operator(&join.left), self.operator(&join.right));
                if let Some(stream) = &right {
                    self.note("JOIN .. FOR SYSTEM_TIME AS OF".into(), "every row", stream);
                }
                if let Some(stream) = left.as_ref().filter(|_| !join.left_append_only) {
                    self.note(
                        "JOIN .. FOR SYSTEM_TIME AS OF".into(),
                        "the match of every row",
                        stream,
                    );
                }
                left
            }
            Operator::AsofJoin(join) => {
                let (left, right) = (self.operator(&join.left), self.operator(&join.right));
                for stream in left
                    .iter()
                    .chain(right.iter().filter(|right| left.as_ref() != Some(*right)))
                {
                    self.note("ASOF JOIN".into(), "every row", stream);
                }
                left
            }
            // The others keep nothing, and put out no more than comes in.
            other => {
                let streams: Vec<Option<String>> = (other.inputs().into_iter())
                    .map(|input| self.operator(input))
                    .collect();
                streams.into_iter().flatten().next()
            }
        }
    }

    fn aggregate(&mut self, aggregation: &Aggregation) -> Option<String> {
        let stream = self.operator(&aggregation.input)?;
        if aggregation.closes.is_some() {
            return Some(stream);
        }
        if aggregation.group_columns > 0 {
            let names = names(&aggregation.schema, 0..aggregation.group_columns);
            let operator = match aggregation.calls.is_empty() {
                true => format!("DISTINCT ({names})"),
                false => format!("GROUP BY ({names})"),
            };
            self.note(operator, "every group", &stream);
            return Some(stream);
        }
        for call in &aggregation.calls {
            let keeps_values = call.distinct
                || matches!(
                    call.form,
                    AggregateForm::Values | AggregateForm::Min | AggregateForm::Max
                );
            if keeps_values {
                self.note(readable(call.function.name()), "every value", &stream);
            }
        }
        None
    }

    fn join(&mut self, join: &Join) -> Option<String> {
        let (left, right) = (self.operator(&join.left), self.operator(&join.right));
        let kept_left = left.iter().filter(|_| join.left_closes.is_none());
        let kept_right = right.iter().filter(|_| join.right_closes.is_none());
        let kept: BTreeSet<&String> = kept_left.chain(kept_right).collect();
        for stream in kept {
            self.note("JOIN".into(), "every row", stream);
        }
        match join.kind {
            JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left,
            JoinKind::RightSemi | JoinKind::RightAnti => right,
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => left.or(right),
        }
    }

    fn note(&mut self, operator: String, keeps: &str, stream: &str) {
        let state = GrowingState {
            operator,
            keeps: keeps.to_owned(),
            stream: stream.to_owned(),
        };
        if !self.growth.state.contains(&state) {
            self.growth.state.push(state);
        }
    }
}

fn names(schema: &SchemaRef, columns: impl Iterator<Item = usize>) -> String {
    let names: Vec<String> = columns
        .map(|column| schema.field(column).name())
        .filter(|name| *name != Aggregate::INTERNAL_GROUPING_ID)
        .map(|name| readable(name))
        .collect();
    names.join(", ")
}

/// The name of a computed column with its casts as one writes them: `t.ts::date`, which is `pg_cast(t.ts,Utf8("date"))`
/// inside, and its sums: `(t.n - 1)`, which is `int_subtract(t.n,Int64(1))`.
fn readable(name: &str) -> String {
    let mut name = name.to_owned();
    while let Some(start) = name.rfind("pg_cast(") {
        let inside = start + "pg_cast(".len();
        let Some(comma) = name[inside..].find(",Utf8(\"").map(|at| inside + at) else {
            break;
        };
        let of_type = comma + ",Utf8(\"".len();
        let Some(end) = name[of_type..].find("\"))").map(|at| of_type + at) else {
            break;
        };
        let cast = format!("{}::{}", &name[inside..comma], &name[of_type..end]);
        name.replace_range(start..end + 3, &cast);
    }
    for (call, sign) in [("int_add(", '+'), ("int_subtract(", '-'), ("int_multiply(", '*')] {
        while let Some(start) = name.rfind(call) {
            let inside = start + call.len();
            let Some((comma, end)) = two_arguments(&name[inside..]) else {
                break;
            };
            let (left, right) = name[inside..inside + end].split_at(comma);
            let sum = format!("({left} {sign} {})", &right[1..]);
            name.replace_range(start..=inside + end, &sum);
        }
    }
    plain_literals(name)
}

/// Where the comma between two arguments is, and the parenthesis behind them.
fn two_arguments(text: &str) -> Option<(usize, usize)> {
    let (mut depth, mut comma) = (0, None);
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return Some((comma?, position)),
            ')' => depth -= 1,
            ',' if depth == 0 => comma = comma.or(Some(position)),
            _ => {}
        }
    }
    None
}

/// Constants as one writes them: `0.5`, which is `Decimal128(0.5,1,1)` inside, and `','` for `Utf8(",")`.
fn plain_literals(mut name: String) -> String {
    for (kind, is_text) in [
        ("Utf8(\"", true),
        ("Int64(", false),
        ("Int32(", false),
        ("Float64(", false),
        ("Decimal128(", false),
    ] {
        let mut from = 0;
        while let Some(start) = name[from..].find(kind).map(|at| from + at) {
            let inside = start + kind.len();
            let close = if is_text { "\")" } else { ")" };
            let Some(end) = name[inside..].find(close).map(|at| inside + at) else {
                break;
            };
            let value = match is_text {
                true => format!("'{}'", &name[inside..end]),
                false => name[inside..end].split(',').next().unwrap_or_default().to_owned(),
            };
            name.replace_range(start..end + close.len(), &value);
            from = start + value.len();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_and_sums_are_shown_as_they_are_written() {
        assert_eq!(readable(r#"pg_cast(t.ts,Utf8("date"))"#), "t.ts::date");
        assert_eq!(
            readable(r#"f(pg_cast(pg_cast(t.a,Utf8("text")),Utf8("integer")))"#),
            "f(t.a::text::integer)"
        );
        assert_eq!(readable("t.k"), "t.k");
        assert_eq!(readable("int_subtract(x.n,Int64(1)) / Int64(3)"), "(x.n - 1) / 3");
        assert_eq!(
            readable("int_add(int_multiply(a.b,f(a.c,Int64(2))),int_subtract(a.d,int_subtract(a.e,a.f)))"),
            "((a.b * f(a.c,2)) + (a.d - (a.e - a.f)))"
        );
        assert_eq!(
            readable(
                r#"string_agg(pg_cast(o.id,Utf8("text")),Utf8(",")) FILTER (WHERE o.amount > Int64(5))"#
            ),
            "string_agg(o.id::text,',') FILTER (WHERE o.amount > 5)"
        );
        assert_eq!(
            readable("percentile_cont(Decimal128(0.5,1,1))"),
            "percentile_cont(0.5)"
        );
    }
}
