//! A generic join's state for the checkpoint store: the rows of each relation, as values of its attributes, and how often
//! each is there.

use super::{GenericJoinInstance, Key, Value};
use crate::error::Result;
use crate::image::{Part, Parts, number_at, numbers};

/// The values in a key of so many.
fn values_of(key: Key, count: usize) -> impl Iterator<Item = Value> {
    (0..count).rev().map(move |place| (key >> (32 * place)) as Value)
}

impl GenericJoinInstance {
    pub(super) fn add_parts(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        for relation in &self.relations {
            let count = relation.attributes.len();
            let mut columns = vec![];
            for (place, attribute) in relation.attributes.iter().enumerate() {
                let values = relation.rows.keys();
                let values: Vec<usize> = values
                    .filter_map(|key| values_of(*key, count).nth(place))
                    .map(|value| value as usize)
                    .collect();
                columns.extend(self.dictionaries[*attribute].values(&values)?);
            }
            columns.push(numbers(relation.rows.values().copied()));
            parts.push(Part::Columns(columns));
        }
        Ok(())
    }

    pub(super) fn take_parts(&mut self, parts: &mut Parts) -> Result<()> {
        for relation in &mut self.relations {
            let mut columns = parts.columns(relation.attributes.len() + 1)?;
            let Some(counts) = columns.pop() else { continue };
            let mut values = vec![];
            for (column, attribute) in columns.iter().zip(&relation.attributes) {
                let dictionary = &mut self.dictionaries[*attribute];
                values.push(dictionary.intern(std::slice::from_ref(column), counts.len())?);
            }
            let mut assignment = vec![0; self.is_shared.len()];
            for row in 0..counts.len() {
                for (values, attribute) in values.iter().zip(&relation.attributes) {
                    assignment[*attribute] = values[row] as Value;
                }
                relation.change(&assignment, number_at(&counts, row));
            }
        }
        Ok(())
    }
}
