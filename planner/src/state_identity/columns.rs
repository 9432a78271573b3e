//! Where the columns of a plan's operators come from.

use crate::stage::StageGraph;
use crate::stage::operator::Operator;
use crate::stage::origins::{Origin, Origins, in_common};

/// The columns of a plan.
pub(super) struct Columns {
    /// By stage, of its root.
    stages: Vec<Vec<Origin>>,
}

impl Columns {
    pub fn new(graph: &StageGraph) -> Self {
        let mut columns = Columns { stages: vec![] };
        // Stages are in topological order.
        for stage in &graph.stages {
            let origins = columns.origins(&stage.root);
            columns.stages.push(origins);
        }
        columns
    }

    /// Those of an operator's output.
    pub fn of(&self, operator: &Operator) -> Origins {
        let origins = self.origins(operator);
        let types = operator.schema().fields().iter();
        let types = types.map(|field| field.data_type().clone());
        Origins(origins.into_iter().zip(types).collect())
    }

    fn origins(&self, operator: &Operator) -> Vec<Origin> {
        let mut origins = match operator {
            Operator::Exchange(exchange) => {
                let known = exchange.stages.iter();
                let known = known.map(|stage| self.stages.get(*stage).cloned().unwrap_or_default());
                known.reduce(in_common).unwrap_or_default()
            }
            other => {
                let inputs = other.inputs().into_iter();
                let inputs: Vec<Vec<Origin>> = inputs.map(|input| self.origins(input)).collect();
                other.description().origins(&inputs)
            }
        };
        origins.resize(operator.schema().fields().len(), Origin::Computed);
        origins
    }
}
