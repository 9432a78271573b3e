//! Where flow control is placed: behind the operators that may multiply rows (Faucet, section 4).
//!
//! A stage with a faucet emits its rows in batches while it makes them, and the stages behind it take an epoch in parts.
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
use crate::stage::flow::{Explosion, Faucet};
use crate::stage::operator::Operator;
use crate::stage::{Output, Stage};

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
        Operator::Source(source) => (inputs.get(&source.relation)).is_some_and(|input| input.append_only),
        Operator::Exchange(exchange) => exchange.stages.iter().all(|stage| stages[*stage]),
        other => {
            let mut below = other.inputs().into_iter();
            other.description().settles() || below.all(|input| is_settled(input, stages, inputs))
        }
    }
}

/// Whether an epoch's input may come in parts.
fn takes_parts(node: &Operator) -> bool {
    node.description().takes_parts() && node.inputs().into_iter().all(takes_parts)
}

/// What makes rows multiply in a stage, if they come out as they are made. Whatever multiplies them for sure comes before what
/// may.
fn faucet(node: &Operator, stages: &[Stage]) -> Option<Faucet> {
    let operator = node.description();
    let own = match node {
        Operator::Exchange(exchange) => {
            let faucets = (exchange.stages.iter())
                .filter_map(|stage| Some((*stage, stages[*stage].faucet.as_ref()?.is_placed)));
            // Of several the first that is there.
            let found = faucets.min_by_key(|(_, is_placed)| !is_placed);
            found.map(|(stage, is_placed)| Faucet {
                reason: Explosion::Upstream { stage },
                is_placed,
            })
        }
        _ => operator.multiplies(),
    };
    let below = match operator.passes_on() {
        true => {
            let inputs = node.inputs().into_iter();
            let below = inputs.filter_map(|input| faucet(input, stages));
            below.min_by_key(|faucet| !faucet.is_placed)
        }
        false => None,
    };
    let found = match (own, below) {
        (Some(own), Some(below)) if below.is_placed && !own.is_placed => below,
        (Some(own), _) => own,
        (None, below) => below?,
    };
    Some(match found.reason {
        // What is combined at once is no more than there are groups, most often.
        Explosion::Unnest if operator.combines() => Faucet {
            is_placed: false,
            ..found
        },
        _ => found,
    })
}
