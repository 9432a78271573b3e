//! Where flow control is placed: behind the operators that may multiply rows (Faucet, section 4).
//!
//! A stage with a faucet puts out its rows in batches while it makes them, and the stages behind it take an epoch in parts.
//! For that each batch has to be a change by itself:
//!
//! * its rows must be *settled*: none is taken back before it came. What comes out of keyed state is, and what a linear
//!   operator makes of it; rows that were spread by arrival are not, since a deletion may be in another task than what it
//!   deletes;
//! * the operators behind it must be indifferent to whether changes come at once or in turn. Those that look at an epoch as
//!   a whole (windows, joins in time, EMIT, recursion) are not, or would do their work again with every batch.

use std::collections::BTreeMap;

use crate::relation::{RelationId, RelationInfo};
use crate::stage::{Explosion, Join, JoinKind, Operator, Output, Stage};

/// Marks the stages that get a faucet.
pub(super) fn place(stages: &mut [Stage], inputs: &BTreeMap<RelationId, RelationInfo>) {
    let mut settled: Vec<bool> = vec![];
    for number in 0..stages.len() {
        let stage = &stages[number];
        let is_settled = is_settled(&stage.root, &settled, inputs);
        settled.push(is_settled);
        let reader = stages.iter().find(|reader| reader.upstream().contains(&stage.id));
        let goes_on = match stage.output {
            Output::Materialize => true,
            _ => reader.is_some_and(|reader| takes_parts(&reader.root)),
        };
        if is_settled && goes_on && !stage.upstream().is_empty() {
            stages[number].faucet = explosion(&stage.root, stages);
        }
    }
}

fn is_settled(node: &Operator, stages: &[bool], inputs: &BTreeMap<RelationId, RelationInfo>) -> bool {
    match node {
        Operator::Source { relation, .. } => inputs.get(relation).is_some_and(|input| input.append_only),
        Operator::Exchange { stages: upstream, .. } => upstream.iter().all(|stage| stages[*stage]),
        Operator::Filter { input, .. }
        | Operator::Project { input, .. }
        | Operator::Expand { input, .. }
        | Operator::Unnest { input, .. } => is_settled(input, stages, inputs),
        Operator::PartialAggregate(aggregation) => is_settled(&aggregation.input, stages, inputs),
        _ => true,
    }
}

/// Whether an epoch's input may come in parts.
fn takes_parts(node: &Operator) -> bool {
    let takes = matches!(
        node,
        Operator::Exchange { .. }
            | Operator::Filter { .. }
            | Operator::Project { .. }
            | Operator::Expand { .. }
            | Operator::Unnest { .. }
            | Operator::PartialAggregate(_)
            | Operator::Aggregate(_)
            | Operator::Join(_)
            | Operator::GenericJoin(_)
            | Operator::TopN(_)
    );
    takes && node.inputs().into_iter().all(takes_parts)
}

/// What makes rows multiply in a stage, if they come out as they are made.
fn explosion(node: &Operator, stages: &[Stage]) -> Option<Explosion> {
    let own = match node {
        Operator::Join(join) => multiplies(join),
        Operator::GenericJoin(_) => Some(Explosion::CyclicJoin),
        Operator::Exchange { stages: upstream, .. } => (upstream.iter())
            .find(|stage| stages[**stage].faucet.is_some())
            .map(|stage| Explosion::Upstream { stage: *stage }),
        _ => None,
    };
    if own.is_some() {
        return own;
    }
    match node {
        Operator::Filter { .. }
        | Operator::Project { .. }
        | Operator::Expand { .. }
        | Operator::Unnest { .. }
        | Operator::PartialAggregate(_)
        | Operator::Join(_) => node
            .inputs()
            .into_iter()
            .find_map(|input| explosion(input, stages)),
        _ => None,
    }
}

fn multiplies(join: &Join) -> Option<Explosion> {
    if !matches!(
        join.kind,
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full
    ) {
        return None;
    }
    let (left, right): (Vec<usize>, Vec<usize>) = join.keys.iter().copied().unzip();
    let is_unique = |key: &Option<Vec<usize>>, columns: &[usize]| {
        (key.as_ref()).is_some_and(|key| key.iter().all(|column| columns.contains(column)))
    };
    if is_unique(&join.left_key, &left) || is_unique(&join.right_key, &right) {
        return None;
    }
    if join.keys.is_empty() {
        return Some(Explosion::CrossJoin);
    }
    let schema = join.left.schema();
    let names = left.iter().map(|column| schema.field(*column).name().clone());
    Some(Explosion::ManyToMany {
        keys: names.collect(),
    })
}
