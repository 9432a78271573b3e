//! Where flow control is placed: behind the operators that may multiply rows (Faucet, section 4).
//!
//! A stage with a faucet puts out its rows in batches while it makes them, and the stages behind it take an epoch in parts.
//! For that each batch has to be a change by itself:
//!
//! * its rows must be *settled*: none is taken back before it came. What comes out of keyed state is, and what a linear
//!   operator makes of it; rows that were spread by arrival are not, since a deletion may be in another task than what it
//!   deletes, unless they are brought together by a hash and consolidated, as those of a table are before an UNNEST;
//! * the operators behind it must be indifferent to whether changes come at once or in turn. Those that look at an epoch as
//!   a whole (windows, joins in time, EMIT, recursion) are not, or would do their work again with every batch.

use std::collections::BTreeMap;

use crate::relation::RelationInfo;
use crate::relation_id::RelationId;
use crate::stage::{ExchangeForm, Explosion, Faucet, Join, JoinKind, Operator, Output, Stage};

/// Marks the stages that may have a faucet.
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
        if is_settled && goes_on {
            stages[number].faucet = faucet(&stage.root, stages);
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
        Operator::PartialAggregate(aggregation) => {
            // All changes of equal rows as one: behind a hash they are all in one task.
            let is_whole = aggregation.group_columns == 0 && aggregation.exchange == ExchangeForm::Rows;
            let is_hashed = matches!(aggregation.input, Operator::Exchange { .. });
            (is_whole && is_hashed) || is_settled(&aggregation.input, stages, inputs)
        }
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

/// What makes rows multiply in a stage, if they come out as they are made. Whatever multiplies them for sure comes before what
/// may.
fn faucet(node: &Operator, stages: &[Stage]) -> Option<Faucet> {
    let placed = |reason| Faucet {
        reason,
        is_placed: true,
    };
    let own = match node {
        Operator::Join(join) => multiplies(join),
        Operator::GenericJoin(_) => Some(placed(Explosion::CyclicJoin)),
        Operator::Unnest { .. } => Some(placed(Explosion::Unnest)),
        Operator::Recursion(recursion) => Some(placed(Explosion::Recursion {
            name: recursion.name.clone(),
        })),
        Operator::Exchange { stages: upstream, .. } => {
            let faucets = upstream
                .iter()
                .filter_map(|stage| Some((*stage, stages[*stage].faucet.as_ref()?.is_placed)));
            // Of several the first that is there.
            let found = faucets.min_by_key(|(_, is_placed)| !is_placed);
            found.map(|(stage, is_placed)| Faucet {
                reason: Explosion::Upstream { stage },
                is_placed,
            })
        }
        _ => None,
    };
    let below = match node {
        Operator::Filter { .. }
        | Operator::Project { .. }
        | Operator::Expand { .. }
        | Operator::Unnest { .. }
        | Operator::PartialAggregate(_)
        | Operator::Join(_) => {
            let inputs = node.inputs().into_iter();
            let below = inputs.filter_map(|input| faucet(input, stages));
            below.min_by_key(|faucet| !faucet.is_placed)
        }
        _ => None,
    };
    let found = match (own, below) {
        (Some(own), Some(below)) if below.is_placed && !own.is_placed => below,
        (Some(own), _) => own,
        (None, below) => below?,
    };
    let combines = matches!(node, Operator::PartialAggregate(aggregation) if aggregation.exchange == ExchangeForm::Partial);
    Some(match found.reason {
        // What is combined at once is no more than there are groups, most often.
        Explosion::Unnest if combines => Faucet {
            is_placed: false,
            ..found
        },
        _ => found,
    })
}

fn multiplies(join: &Join) -> Option<Faucet> {
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
    let names = |side: &Operator, columns: &[usize]| -> Vec<String> {
        let names = columns.iter().map(|column| side.schema().field(*column).name());
        names.cloned().collect()
    };
    let (is_left, is_right) = (
        is_unique(&join.left_key, &left),
        is_unique(&join.right_key, &right),
    );
    let reason = match (is_left, is_right) {
        // Each row meets one at most.
        (true, true) => return None,
        (false, false) if join.keys.is_empty() => Explosion::CrossJoin,
        (false, false) => Explosion::ManyToMany {
            keys: names(&join.left, &left),
        },
        (true, false) => Explosion::OneToMany {
            keys: names(&join.left, &left),
        },
        (false, true) => Explosion::OneToMany {
            keys: names(&join.right, &right),
        },
    };
    Some(Faucet {
        is_placed: !matches!(reason, Explosion::OneToMany { .. }),
        reason,
    })
}
