//! Where the columns of a plan's operators come from.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::relation_id::RelationId;
use crate::stage::{JoinKind, Operator, StageGraph, UnnestColumn};

/// Where a column's values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// They are those of a column of a stored relation.
    Stored(RelationId, usize),
    Computed,
}

/// The columns of one operator's output.
#[derive(Debug, Clone)]
pub(super) struct Origins(Vec<(Origin, DataType)>);

impl Origins {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, to be shown.
    pub fn all(&self) -> String {
        self.list(0..self.len())
    }

    /// Some of them, to be shown.
    pub fn list(&self, columns: impl IntoIterator<Item = usize>) -> String {
        let columns = columns.into_iter().map(|column| match self.0.get(column) {
            Some((Origin::Stored(relation, place), data_type)) => {
                format!("{}.{place} {}", relation.0, type_name(data_type))
            }
            Some((Origin::Computed, data_type)) => format!("computed {}", type_name(data_type)),
            None => "unknown".to_owned(),
        });
        columns.collect::<Vec<_>>().join(", ")
    }
}

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
        let mut origins = self.passed_on(operator);
        origins.resize(operator.schema().fields().len(), Origin::Computed);
        origins
    }

    /// As many as are known; the columns behind them are computed.
    fn passed_on(&self, operator: &Operator) -> Vec<Origin> {
        match operator {
            Operator::Source {
                relation, projection, ..
            } => projection
                .iter()
                .map(|column| Origin::Stored(*relation, *column))
                .collect(),
            Operator::Values { .. } | Operator::WorkingTable { .. } | Operator::Recursion(_) => vec![],
            Operator::Exchange { stages, .. } => {
                let known = stages
                    .iter()
                    .map(|stage| self.stages.get(*stage).cloned().unwrap_or_default());
                known.reduce(in_common).unwrap_or_default()
            }
            Operator::Filter { input, .. } => self.origins(input),
            Operator::Project {
                input, expressions, ..
            } => projected(&self.origins(input), expressions),
            Operator::Expand {
                input, projections, ..
            } => {
                let input = self.origins(input);
                let projections = projections.iter();
                let known = projections.map(|expressions| projected(&input, expressions));
                known.reduce(in_common).unwrap_or_default()
            }
            Operator::Unnest { input, columns, .. } => {
                let input = self.origins(input);
                let columns = columns.iter().map(|column| match column {
                    UnnestColumn::Kept(column) => at(&input, *column),
                    UnnestColumn::Elements(_) | UnnestColumn::Pieces { .. } => Origin::Computed,
                });
                columns.collect()
            }
            Operator::PartialAggregate(aggregation) | Operator::Aggregate(aggregation) => {
                let mut input = self.origins(&aggregation.input);
                input.truncate(aggregation.group_columns);
                input
            }
            Operator::Sliding(_) => vec![],
            Operator::Join(join) => {
                let (mut left, mut right) = (self.origins(&join.left), self.origins(&join.right));
                left.truncate(join.left_width);
                right.truncate(join.right_width);
                match join.kind {
                    JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                        left.extend(right);
                        left
                    }
                    JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => left,
                    JoinKind::RightSemi | JoinKind::RightAnti => right,
                }
            }
            Operator::GenericJoin(join) => {
                // An attribute is what its first relation says.
                let origin_of = |attribute: usize| {
                    let relations = join.inputs.iter().zip(&join.shape.attributes);
                    for (input, attributes) in relations {
                        if let Some(column) = attributes.iter().position(|of| *of == attribute) {
                            return at(&self.origins(input), column);
                        }
                    }
                    Origin::Computed
                };
                join.shape.output.iter().map(|of| origin_of(*of)).collect()
            }
            Operator::TopN(top) => {
                let mut input = self.origins(&top.input);
                input.truncate(top.width);
                input
            }
            Operator::Recompute(recompute) => self.origins(&recompute.input),
            Operator::TemporalFilter(filter) => self.origins(&filter.input),
            Operator::LookupJoin(join) => {
                let (mut left, mut right) = (self.origins(&join.left), self.origins(&join.right));
                left.truncate(join.left_width);
                right.truncate(join.right_width);
                left.extend(right);
                left
            }
            Operator::AsofJoin(join) => {
                let (mut left, mut right) = (self.origins(&join.left), self.origins(&join.right));
                left.truncate(join.left_width);
                right.truncate(join.right_width);
                left.extend(right);
                left
            }
            Operator::Session(session) => {
                let mut input = self.origins(&session.input);
                input.truncate(session.width);
                input
            }
            Operator::EmitOnClose(emit) => self.origins(&emit.input),
            Operator::EmitEvery(emit) => self.origins(&emit.input),
        }
    }
}

fn at(origins: &[Origin], column: usize) -> Origin {
    origins.get(column).copied().unwrap_or(Origin::Computed)
}

fn in_common(one: Vec<Origin>, other: Vec<Origin>) -> Vec<Origin> {
    let pairs = one.into_iter().zip(other);
    let pairs = pairs.map(|(one, other)| if one == other { one } else { Origin::Computed });
    pairs.collect()
}

fn projected(input: &[Origin], expressions: &[std::sync::Arc<dyn PhysicalExpr>]) -> Vec<Origin> {
    let origins = expressions
        .iter()
        .map(|expression| match expression.downcast_ref::<Column>() {
            Some(column) => at(input, column.index()),
            None => Origin::Computed,
        });
    origins.collect()
}

/// A type's name, in words of our own: Arrow has changed how it shows types before.
pub(super) fn type_name(data_type: &DataType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    match data_type {
        DataType::Timestamp(of, None) => format!("Timestamp({})", unit(of)),
        DataType::Timestamp(of, Some(zone)) => format!("Timestamp({}, {zone})", unit(of)),
        DataType::Time64(of) | DataType::Time32(of) => format!("Time({})", unit(of)),
        DataType::Decimal128(precision, scale) => format!("Decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("Decimal256({precision}, {scale})"),
        DataType::List(field) | DataType::LargeList(field) => {
            format!("List({})", type_name(field.data_type()))
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| type_name(field.data_type()));
            format!("Struct({})", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Interval(_) => "Interval".to_owned(),
        // Their names are those of the variants: Int64, Utf8, Boolean.
        other => format!("{other:?}"),
    }
}
