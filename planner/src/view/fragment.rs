//! A part of a plan while it is lowered: operators that no exchange has closed yet.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::stage::exchange::Exchange;
use crate::stage::filter::Filter;
use crate::stage::operator::Operator;
use crate::stage::project::Project;
use crate::stage::{Output, Stage};
use crate::watermark::{self, ColumnWatermark};

/// How rows of an open part are spread over the tasks of its stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Placement {
    /// By arrival: a row and its later retraction may be in different tasks. Only linear operators may follow.
    Arrival,
    /// By a hash of these output columns.
    Hash(Vec<usize>),
    /// Each row comes from keyed state, and its retraction from the same task, but by columns that are not in the output.
    Keyed,
}

/// One open tree of operators and the placement of its rows.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub operator: Operator,
    pub placement: Placement,
}

/// The rows of a logical node: the union of its parts.
#[derive(Debug, Clone)]
pub(super) struct Fragment {
    pub parts: Vec<Part>,
    pub append_only: bool,
    /// Columns that are unique together.
    pub key: Option<Vec<usize>>,
    /// What is known of the values that are still to come.
    pub watermarks: Vec<ColumnWatermark>,
    pub schema: SchemaRef,
}

impl Fragment {
    /// Whether it is a part of a recursion's body.
    pub fn reads_working_table(&self) -> bool {
        self.parts.iter().any(|part| part.operator.reads_working_table())
    }

    /// Filters every part.
    pub fn filter(self, predicate: &Arc<dyn PhysicalExpr>) -> Fragment {
        let schema = Arc::clone(&self.schema);
        let parts = self
            .parts
            .into_iter()
            .map(|part| Part {
                operator: Operator::Filter(Filter {
                    input: Box::new(part.operator),
                    predicate: Arc::clone(predicate),
                    schema: Arc::clone(&schema),
                }),
                placement: part.placement,
            })
            .collect();
        Fragment { parts, ..self }
    }

    /// Projects every part; placement and key follow the columns that are kept as they are.
    pub fn project(self, expressions: Vec<Arc<dyn PhysicalExpr>>, schema: SchemaRef) -> Fragment {
        let position_of = |input_column: usize| {
            expressions.iter().position(|e| {
                e.downcast_ref::<Column>()
                    .is_some_and(|column| column.index() == input_column)
            })
        };
        let key = self
            .key
            .and_then(|key| key.into_iter().map(position_of).collect());
        let watermarks = watermark::project(&self.watermarks, &expressions, &self.schema);
        let parts = self
            .parts
            .into_iter()
            .map(|part| {
                let placement = match part.placement {
                    Placement::Hash(columns) => columns
                        .into_iter()
                        .map(position_of)
                        .collect::<Option<_>>()
                        .map_or(Placement::Keyed, Placement::Hash),
                    other => other,
                };
                let operator = Operator::Project(Project {
                    input: Box::new(part.operator),
                    expressions: expressions.clone(),
                    schema: Arc::clone(&schema),
                });
                Part { operator, placement }
            })
            .collect();
        Fragment {
            parts,
            append_only: self.append_only,
            key,
            watermarks,
            schema,
        }
    }
}

/// The stages that are closed so far.
#[derive(Debug, Default)]
pub(super) struct Stages {
    pub stages: Vec<Stage>,
}

impl Stages {
    /// Closes every part of a fragment with `output` and reads them all behind the exchange. The body of a recursion runs
    /// in one task, so that there is nothing to exchange inside it.
    pub fn exchange(&mut self, mut fragment: Fragment, output: Output) -> Operator {
        if fragment.reads_working_table()
            && let Some(part) = fragment.parts.pop()
        {
            return part.operator;
        }
        let schema = Arc::clone(&fragment.schema);
        let stages = fragment
            .parts
            .into_iter()
            .map(|part| self.close(part.operator, output.clone()))
            .collect();
        Operator::Exchange(Exchange { stages, schema })
    }

    /// Closes one tree; returns the stage's number.
    pub fn close(&mut self, root: Operator, output: Output) -> usize {
        let id = self.stages.len();
        self.stages.push(Stage {
            id,
            root,
            output,
            faucet: None,
        });
        id
    }
}

/// The placement of rows behind an exchange.
pub(super) fn placement_after(output: &Output) -> Placement {
    match output {
        Output::Hash(columns) => Placement::Hash(columns.clone()),
        Output::Single => Placement::Hash(vec![]),
        Output::Materialize => Placement::Keyed,
    }
}
