//! Cycles of joins: three or more relations that are joined by equal columns, so that each closes what others leave open.
//!
//! A tree of binary joins over a cycle, such as the triangles of a graph, makes pairs that most often find no third: for n
//! edges up to n² of them, where there are at most n^1.5 triangles. A generic join (H. Ngo, C. Ré, A. Rudra, "Skew strikes
//! back", 2013; Faucet, section 2) never makes them. What is found here is what it needs: equal columns are one attribute.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::{Expr, Join as LogicalJoin, LogicalPlan};

/// Columns that a relation may have in a generic join.
const COLUMNS_MAX: usize = 4;

/// A column of a joined relation: which relation, which of its columns.
type Place = (usize, usize);

/// Relations that are joined, and which of their columns are equal.
#[derive(Default)]
struct Joined<'a> {
    relations: Vec<&'a LogicalPlan>,
    equal: Vec<(Place, Place)>,
}

/// A cyclic inner join by equal columns and nothing else.
pub(crate) struct CyclicJoin<'a> {
    pub relations: Vec<&'a LogicalPlan>,
    /// For each relation, the attribute of each of its columns.
    pub attributes: Vec<Vec<usize>>,
    /// By attribute.
    pub types: Vec<DataType>,
    pub names: Vec<String>,
    /// The attribute of each column of the output.
    pub output: Vec<usize>,
}

impl<'a> CyclicJoin<'a> {
    /// A join of relations of few columns, none of floats or nested types, if it is cyclic.
    pub fn of(join: &'a LogicalJoin) -> Option<CyclicJoin<'a>> {
        if !is_plain(join) {
            return None;
        }
        let mut joined = Joined::default();
        let output = flatten_join(join, &mut joined);
        let relations = joined.relations;
        let widths: Vec<usize> = (relations.iter())
            .map(|relation| relation.schema().fields().len())
            .collect();
        if widths.iter().any(|width| *width == 0 || *width > COLUMNS_MAX) {
            return None;
        }
        let attributes = attributes(&widths, &joined.equal);
        if relations.len() < 3 || !is_cyclic(&attributes) {
            return None;
        }
        let types = types(&relations, &attributes)?;
        Some(CyclicJoin {
            names: names(&relations, &attributes, types.len()),
            output: (output.iter())
                .map(|(relation, column)| attributes[*relation][*column])
                .collect(),
            relations,
            attributes,
            types,
        })
    }
}

/// Whether the columns that a relation shares with one other tell its rows apart: then binary joins multiply nothing there.
/// `keys`: by relation, columns whose values are unique together.
pub(crate) fn determines(keys: &[Option<Vec<usize>>], attributes: &[Vec<usize>]) -> bool {
    let is_determined = |number: usize| {
        let Some(key) = &keys[number] else {
            return false;
        };
        let mut others = attributes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        others.any(|(_, other)| {
            key.iter()
                .all(|column| other.contains(&attributes[number][*column]))
        })
    };
    (0..keys.len()).any(is_determined)
}

/// Whether a join is an inner one by equal columns and nothing else.
fn is_plain(join: &LogicalJoin) -> bool {
    join.join_type == JoinType::Inner
        && join.filter.is_none()
        && !join.null_aware
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.on.is_empty()
        && join.on.iter().all(|(left, right)| {
            position(join.left.schema(), left).is_some() && position(join.right.schema(), right).is_some()
        })
}

/// Which column an expression is, if it is one.
fn position(schema: &DFSchema, expression: &Expr) -> Option<usize> {
    match expression {
        Expr::Column(column) => schema.maybe_index_of_column(column),
        Expr::Alias(alias) => position(schema, &alias.expr),
        _ => None,
    }
}

/// Whether a plan is a plain join, but for the names and the order of its columns.
fn holds_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_plain(join),
        LogicalPlan::SubqueryAlias(alias) => holds_join(&alias.input),
        LogicalPlan::Projection(projection) => {
            let schema = projection.input.schema();
            holds_join(&projection.input)
                && projection
                    .expr
                    .iter()
                    .all(|expression| position(schema, expression).is_some())
        }
        _ => false,
    }
}

/// Takes joins apart; returns where each column of the output comes from.
fn flatten<'a>(plan: &'a LogicalPlan, joined: &mut Joined<'a>) -> Vec<Place> {
    match plan {
        LogicalPlan::Join(join) if holds_join(plan) => flatten_join(join, joined),
        LogicalPlan::SubqueryAlias(alias) if holds_join(plan) => flatten(&alias.input, joined),
        LogicalPlan::Projection(projection) if holds_join(plan) => {
            let places = flatten(&projection.input, joined);
            let schema = projection.input.schema();
            let columns = projection.expr.iter();
            columns
                .filter_map(|expression| position(schema, expression))
                .map(|column| places[column])
                .collect()
        }
        relation => {
            joined.relations.push(relation);
            let number = joined.relations.len() - 1;
            (0..relation.schema().fields().len())
                .map(|column| (number, column))
                .collect()
        }
    }
}

fn flatten_join<'a>(join: &'a LogicalJoin, joined: &mut Joined<'a>) -> Vec<Place> {
    let mut left = flatten(&join.left, joined);
    let right = flatten(&join.right, joined);
    for (l, r) in &join.on {
        let (l, r) = (position(join.left.schema(), l), position(join.right.schema(), r));
        if let (Some(l), Some(r)) = (l, r) {
            joined.equal.push((left[l], right[r]));
        }
    }
    left.extend(right);
    left
}

/// For each relation, for each of its columns, its attribute: columns that are equal are one.
fn attributes(widths: &[usize], equal: &[(Place, Place)]) -> Vec<Vec<usize>> {
    let mut next = 0;
    let mut attributes: Vec<Vec<usize>> = (widths.iter())
        .map(|width| {
            next += width;
            (next - width..next).collect()
        })
        .collect();
    for (left, right) in equal {
        let (keep, replace) = (attributes[left.0][left.1], attributes[right.0][right.1]);
        for attribute in attributes.iter_mut().flatten().filter(|of| **of == replace) {
            *attribute = keep;
        }
    }
    // Numbered without gaps, in the order in which they are met.
    let mut numbers = BTreeMap::new();
    for attribute in attributes.iter_mut().flatten() {
        let number = numbers.len();
        *attribute = *numbers.entry(*attribute).or_insert(number);
    }
    attributes
}

/// Whether the relations form a cycle: what is left when attributes of one relation only, and relations within others, are
/// taken away again and again (Graham's reduction).
fn is_cyclic(attributes: &[Vec<usize>]) -> bool {
    let mut edges: Vec<BTreeSet<usize>> = attributes.iter().map(|of| of.iter().copied().collect()).collect();
    loop {
        let before: usize = edges.iter().map(|edge| edge.len() + 1).sum();
        for number in 0..edges.len() {
            let alone: Vec<usize> = edges[number]
                .iter()
                .copied()
                .filter(|attribute| {
                    let mut others = edges.iter().enumerate().filter(|(other, _)| *other != number);
                    !others.any(|(_, edge)| edge.contains(attribute))
                })
                .collect();
            edges[number].retain(|attribute| !alone.contains(attribute));
        }
        if let Some(within) = (0..edges.len()).find(|number| {
            let mut others = edges.iter().enumerate().filter(|(other, _)| other != number);
            others.any(|(_, edge)| edges[*number].is_subset(edge))
        }) {
            edges.remove(within);
        }
        let after: usize = edges.iter().map(|edge| edge.len() + 1).sum();
        if after == before {
            return edges.len() > 1;
        }
    }
}

/// The type of each attribute, if its columns have one, and one by which equal values are equal.
fn types(relations: &[&LogicalPlan], attributes: &[Vec<usize>]) -> Option<Vec<DataType>> {
    let mut types: BTreeMap<usize, DataType> = BTreeMap::new();
    for (relation, attributes) in relations.iter().zip(attributes) {
        for (field, attribute) in relation.schema().fields().iter().zip(attributes) {
            let data_type = field.data_type();
            if data_type.is_floating() || data_type.is_nested() {
                return None;
            }
            if types.entry(*attribute).or_insert_with(|| data_type.clone()) != data_type {
                return None;
            }
        }
    }
    Some(types.into_values().collect())
}

/// A name for each attribute: that of its first column, with a number if there is one of that name.
fn names(relations: &[&LogicalPlan], attributes: &[Vec<usize>], count: usize) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for (relation, attributes) in relations.iter().zip(attributes) {
        for (field, attribute) in relation.schema().fields().iter().zip(attributes) {
            if *attribute == names.len() {
                let namesakes = names
                    .iter()
                    .filter(|name| name.split('#').next() == Some(field.name()))
                    .count();
                names.push(match namesakes {
                    0 => field.name().clone(),
                    more => format!("{}#{}", field.name(), more + 1),
                });
            }
        }
    }
    names.truncate(count);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triangles_and_squares_are_cycles_and_paths_and_stars_are_not() {
        assert!(is_cyclic(&[vec![0, 1], vec![1, 2], vec![0, 2]]));
        assert!(is_cyclic(&[vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 0]]));
        // A tail does not open a cycle.
        assert!(is_cyclic(&[vec![0, 1], vec![1, 2], vec![0, 2], vec![2, 3]]));
        assert!(!is_cyclic(&[vec![0, 1], vec![1, 2], vec![2, 3]]));
        assert!(!is_cyclic(&[vec![0, 1], vec![0, 2], vec![0, 3]]));
        // The relation over all three holds the cycle.
        assert!(!is_cyclic(&[vec![0, 1], vec![1, 2], vec![0, 2], vec![0, 1, 2]]));
        // Two relations over the same two attributes.
        assert!(!is_cyclic(&[vec![0, 1], vec![0, 1]]));
    }

    #[test]
    fn equal_columns_are_one_attribute() {
        let found = attributes(
            &[2, 2, 2],
            &[((0, 1), (1, 0)), ((0, 0), (2, 0)), ((1, 1), (2, 1))],
        );
        assert_eq!(found, [vec![0, 1], vec![1, 2], vec![0, 2]]);
    }
}
