//! The generic join: several relations at once, one attribute after the other, incrementally.
//!
//! ```text
//!  a row of relation R changes: its attributes are bound
//!    for each attribute that is left:    every relation with bound attributes says how many values it has for it,
//!                                        that with the fewest proposes them, the others keep those that they have too
//!    all are bound:                      a row of the output, as often as the product of what each relation has
//! ```
//! Relations are worked off one after the other, so that a change meets those before it as they are and those after it as
//! they were: out = dR x S x T + (R + dR) x dS x T + (R + dR) x (S + dS) x dT. What a change costs is what a worst-case
//! optimal join of its rows with the others costs; nothing is made that a relation would then drop, and nothing is kept but
//! the relations (Faucet, section 2; H. Ngo, C. Ré, A. Rudra, "Skew strikes back", 2013).
//!
//! The search is depth first and suspended whenever a batch is full: no more is in memory, whatever there is to find.

mod image;
mod query;
mod search;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use millrace_planner::stage::generic_join::GenericJoinShape;
use millrace_resource::gate::Gate;
use millrace_storage::ChangeBatch;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::batches::{batch_of, weights_of};
use super::consolidate::consolidate_parts;
use super::expression::ErrorCounter;
use super::group_keys::GroupKeys;
use super::image::{Part, Parts};
use super::inputs::Inputs;
use super::instance::{Delivery, Operator, OperatorInstance};
use super::output::Output;
use crate::error::{OperatorError, Result};
pub use query::Found;
use search::Search;

/// Rows that are emitted in one batch.
const OUTPUT_ROWS_STEP: usize = 65_536;
/// Changes between two suspension points, where each makes little.
const CHANGES_STEP: usize = 1_024;

/// A value of an attribute: its number in the attribute's dictionary.
type Value = u32;
/// Up to four values.
type Key = u128;

/// See the module.
pub struct GenericJoinInstance {
    /// By attribute: its values, numbered. They only grow.
    dictionaries: Vec<GroupKeys>,
    /// Attributes of more than one column: NULL equals nothing there.
    is_shared: Vec<bool>,
    relations: Vec<Relation>,
    /// For a change of a relation, how the other attributes are found.
    plans: BTreeMap<usize, Plan>,
    /// The attribute of each column of the output.
    output: Vec<usize>,
    schema: SchemaRef,
}

/// A relation: its rows as often as they are there, and what extends some of their attributes by another one.
struct Relation {
    /// The attribute of each column.
    columns: Vec<usize>,
    /// Each of them once.
    attributes: Vec<usize>,
    rows: HashMap<Key, i64>,
    indexes: Vec<Index>,
}

/// For values of `bound`, the values of `attribute` in the same rows.
struct Index {
    bound: Vec<usize>,
    attribute: usize,
    /// Whether these are all attributes of the relation: then a value counts its rows, else the different ones.
    is_whole: bool,
    values: HashMap<Key, HashMap<Value, i64>>,
    /// Values in all of them.
    entries: usize,
}

/// How the rows of the output are found that a change of one relation makes.
struct Plan {
    /// Relations all of whose attributes the change binds.
    bound: Vec<usize>,
    steps: Vec<Step>,
}

/// Binds an attribute.
struct Step {
    attribute: usize,
    /// (relation, index): those that know of it by what is bound.
    asks: Vec<(usize, usize)>,
}

fn key(assignment: &[Value], attributes: &[usize]) -> Key {
    attributes
        .iter()
        .fold(0, |key, attribute| key << 32 | Key::from(assignment[*attribute]))
}

impl Relation {
    fn new(columns: &[usize]) -> Relation {
        let mut attributes = columns.to_vec();
        attributes.sort_unstable();
        attributes.dedup();
        Relation {
            columns: columns.to_vec(),
            attributes,
            rows: HashMap::new(),
            indexes: vec![],
        }
    }

    /// The index that extends these attributes by this one; made if it is not there.
    fn index(&mut self, bound: Vec<usize>, attribute: usize) -> usize {
        let known = self
            .indexes
            .iter()
            .position(|index| index.bound == bound && index.attribute == attribute);
        known.unwrap_or_else(|| {
            self.indexes.push(Index {
                is_whole: bound.len() + 1 == self.attributes.len(),
                bound,
                attribute,
                values: HashMap::new(),
                entries: 0,
            });
            self.indexes.len() - 1
        })
    }

    /// Adds a row so many times, or takes it away.
    fn change(&mut self, assignment: &[Value], weight: i64) {
        let key_of_all = key(assignment, &self.attributes);
        let count = self.rows.entry(key_of_all).or_default();
        let was_there = *count != 0;
        *count += weight;
        let is_there = *count != 0;
        if !is_there {
            self.rows.remove(&key_of_all);
        }
        for index in &mut self.indexes {
            let change = match index.is_whole {
                true => weight,
                false => i64::from(is_there) - i64::from(was_there),
            };
            if change != 0 {
                index.change(assignment, change);
            }
        }
    }

    /// Bytes, as far as the tables' sizes tell.
    fn memory_bytes(&self) -> usize {
        const ENTRY: usize = size_of::<(Value, i64)>() + 1;
        let rows = self.rows.capacity() * (size_of::<(Key, i64)>() + 1);
        let indexes = self.indexes.iter().map(|index| {
            let keys = index.values.capacity() * (size_of::<(Key, HashMap<Value, i64>)>() + 1);
            // A table is three quarters full on average.
            keys + index.entries * ENTRY * 4 / 3
        });
        rows + indexes.sum::<usize>()
    }
}

impl Index {
    fn change(&mut self, assignment: &[Value], change: i64) {
        let key = key(assignment, &self.bound);
        let values = self.values.entry(key).or_default();
        let value = assignment[self.attribute];
        let count = values.entry(value).or_insert_with(|| {
            self.entries += 1;
            0
        });
        *count += change;
        if *count == 0 {
            values.remove(&value);
            self.entries -= 1;
            if values.is_empty() {
                self.values.remove(&key);
            }
        }
    }
}

impl Operator for GenericJoinInstance {
    fn run<'a>(
        &'a mut self,
        inputs: &'a mut [OperatorInstance],
        epoch: &'a mut Inputs,
        gate: &'a dyn Gate,
        errors: &'a ErrorCounter,
        output: &'a mut dyn Output,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            for (relation, input) in inputs.iter_mut().enumerate() {
                let batches = input.collect(epoch, gate, errors).await?;
                self.advance(relation, batches, gate, output).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn delivery(&self) -> Delivery {
        Delivery::Lazy
    }

    fn state_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn image(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        self.add_parts(parts)
    }

    fn restore(&mut self, parts: &mut Parts) -> Result<()> {
        self.take_parts(parts)
    }
}

impl GenericJoinInstance {
    /// # Errors
    /// The relations do not hang together, or a type has no dictionary.
    pub fn new(shape: &GenericJoinShape) -> Result<Self> {
        let all = 0..shape.attributes.len();
        Self::of(shape, all)
    }

    /// As [`GenericJoinInstance::new`], for changes of these relations only.
    fn of(shape: &GenericJoinShape, changing: Range<usize>) -> Result<Self> {
        let dictionary = |(name, data_type): (&String, &arrow::datatypes::DataType)| {
            let schema = Arc::new(Schema::new(vec![Field::new(name, data_type.clone(), true)]));
            GroupKeys::kept(&schema, 1)
        };
        let dictionaries = (shape.names.iter().zip(&shape.types))
            .map(dictionary)
            .collect::<Result<Vec<_>>>()?;
        let mut relations: Vec<Relation> = shape.attributes.iter().map(|of| Relation::new(of)).collect();
        let columns = |attribute: usize| {
            let all = shape.attributes.iter().flatten();
            all.filter(|of| **of == attribute).count()
        };
        let plans = changing
            .map(|changed| Ok((changed, plan_for(changed, &mut relations, dictionaries.len())?)))
            .collect::<Result<_>>()?;
        Ok(GenericJoinInstance {
            is_shared: (0..dictionaries.len())
                .map(|attribute| columns(attribute) > 1)
                .collect(),
            dictionaries,
            relations,
            plans,
            output: shape.output.clone(),
            schema: Arc::clone(&shape.schema),
        })
    }

    /// Bytes of what is kept, for a view or for a query.
    pub fn memory_bytes(&self) -> usize {
        let dictionaries = self.dictionaries.iter().map(GroupKeys::memory_bytes);
        let relations = self.relations.iter().map(Relation::memory_bytes);
        dictionaries.chain(relations).sum()
    }

    /// Joins what changed in one relation, keeps it, and pushes what that changes.
    pub async fn advance(
        &mut self,
        relation: usize,
        batches: Vec<ChangeBatch>,
        gate: &dyn Gate,
        output: &mut dyn Output,
    ) -> Result<()> {
        let grows = batches.iter().all(|batch| batch.weights.is_none());
        let batches: Vec<ChangeBatch> = match grows {
            true => batches,
            // A row that came and went within the epoch is left out.
            false => consolidate_parts(batches)?,
        };
        for batch in &batches {
            let changes = self.changes(relation, batch)?;
            gate.checkpoint().await;
            let mut search = Search::new(self.dictionaries.len(), &self.output, OUTPUT_ROWS_STEP);
            for (number, (assignment, weight)) in changes.iter().enumerate() {
                if number.is_multiple_of(CHANGES_STEP) {
                    gate.checkpoint().await;
                }
                search.begin(assignment, *weight);
                while !self.search(relation, &mut search) {
                    if search.is_full() {
                        output.push(self.rows(search.take())?).await?;
                    }
                    gate.checkpoint().await;
                }
            }
            if search.found() > 0 {
                output.push(self.rows(search.take())?).await?;
            }
            for (assignment, weight) in &changes {
                self.relations[relation].change(assignment, *weight);
            }
        }
        Ok(())
    }

    /// The changed rows of a relation that can be in a result, as values of their attributes; the others are 0.
    fn changes(&mut self, relation: usize, batch: &ChangeBatch) -> Result<Vec<(Vec<Value>, i64)>> {
        let Relation { columns, .. } = &self.relations[relation];
        let rows = batch.num_rows();
        let mut is_wanted = vec![true; rows];
        let mut values = vec![];
        for (column, attribute) in columns.iter().enumerate() {
            let array = batch.rows.column(column);
            if self.is_shared[*attribute]
                && let Some(nulls) = array.logical_nulls()
            {
                (is_wanted.iter_mut().zip(nulls.iter())).for_each(|(wanted, valid)| *wanted &= valid);
            }
            values.push(self.dictionaries[*attribute].intern(std::slice::from_ref(array), rows)?);
        }
        let mut changes = vec![];
        for (row, weight) in weights_of(batch).values().iter().enumerate() {
            let mut assignment = vec![0; self.dictionaries.len()];
            let mut is_bound = vec![false; assignment.len()];
            for (values, attribute) in values.iter().zip(columns) {
                let value = Value::try_from(values[row]).map_err(|_| {
                    OperatorError::Internal("an attribute of a join has more than 4 billion values".into())
                })?;
                // Two columns of one relation may have to be equal.
                is_wanted[row] &= !is_bound[*attribute] || assignment[*attribute] == value;
                assignment[*attribute] = value;
                is_bound[*attribute] = true;
            }
            if is_wanted[row] {
                changes.push((assignment, *weight));
            }
        }
        Ok(changes)
    }

    fn rows(&self, (found, weights): (Vec<Vec<usize>>, Vec<i64>)) -> Result<ChangeBatch> {
        let columns = (self.output.iter().zip(&found))
            .map(|(attribute, values)| {
                let columns = self.dictionaries[*attribute].values(values)?;
                columns
                    .into_iter()
                    .next()
                    .ok_or_else(|| OperatorError::Internal("an attribute of a join without values".into()))
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let rows = batch_of(&self.schema, columns, weights.len())?;
        let is_plain = weights.iter().all(|weight| *weight == 1);
        Ok(ChangeBatch {
            rows,
            weights: (!is_plain).then(|| Int64Array::from(weights)),
        })
    }
}

/// In which order attributes are bound after a change of one relation: that of which most relations know next.
fn plan_for(changed: usize, relations: &mut [Relation], attributes: usize) -> Result<Plan> {
    let mut bound = relations[changed].attributes.clone();
    let is_known = |relation: &Relation, attribute: usize, bound: &[usize]| {
        relation.attributes.contains(&attribute)
            && (relation.attributes.len() == 1 || relation.attributes.iter().any(|of| bound.contains(of)))
    };
    let others = || (0..relations.len()).filter(|other| *other != changed);
    let others: Vec<usize> = others().collect();
    let first = others.iter().copied().filter(|other| {
        let mut attributes = relations[*other].attributes.iter();
        attributes.all(|attribute| bound.contains(attribute))
    });
    let first = first.collect();
    let mut steps = vec![];
    while bound.len() < attributes {
        let asked = |attribute: &usize| {
            let knows = others
                .iter()
                .filter(|other| is_known(&relations[**other], *attribute, &bound));
            knows.count()
        };
        let left = (0..attributes).filter(|attribute| !bound.contains(attribute));
        // Of several the first.
        let next = left.rev().max_by_key(asked).filter(|next| asked(next) > 0);
        let Some(attribute) = next else {
            return Err(OperatorError::Internal(
                "a generic join of relations that do not hang together".into(),
            ));
        };
        let mut asks = vec![];
        for other in &others {
            if is_known(&relations[*other], attribute, &bound) {
                let of = relations[*other].attributes.iter().copied();
                let known = of.filter(|of| bound.contains(of)).collect();
                asks.push((*other, relations[*other].index(known, attribute)));
            }
        }
        steps.push(Step { attribute, asks });
        bound.push(attribute);
    }
    Ok(Plan { bound: first, steps })
}
