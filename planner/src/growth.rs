//! What of a view grows without bound: state that holds rows, or a key each, of a stream that never ends.
//!
//! Such a view is accepted, since it may be what is wanted and the stream may be small, but its maker is told.

use std::collections::HashMap;

use crate::relation::{RelationInfo, RelationKind};
use crate::stage::StageGraph;
use crate::stage::operator::Operator;

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
            Operator::Source(source) => {
                let info = self.graph.inputs.iter().find(|info| info.id == source.relation)?;
                match info.kind {
                    RelationKind::Stream => Some(info.name.clone()),
                    RelationKind::Table => None,
                    RelationKind::View => (self.endless)(info),
                }
            }
            Operator::Exchange(exchange) => {
                (exchange.stages.iter()).find_map(|stage| self.stages.get(stage).cloned().flatten())
            }
            other => {
                let inputs = other.inputs().into_iter();
                let inputs: Vec<Option<String>> = inputs.map(|input| self.operator(input)).collect();
                let mut note =
                    |operator: String, keeps: &str, stream: &str| self.note(operator, keeps, stream);
                other.description().grows(&inputs, &mut note)
            }
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
