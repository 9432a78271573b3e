//! A table that is fed: from puts and deletes of keys to what they change, by what is there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};
use millrace_catalog::Relation;
use millrace_connectors::changes::Changes;
use millrace_connectors::decode::BadRecord;
use millrace_postgres::error::{SqlError, SqlResult, SqlState};
use millrace_postgres::from_internal;
use millrace_storage::ChangeBatch;

/// The table.
#[derive(Debug)]
pub(super) struct Target {
    schema: SchemaRef,
    key: Vec<usize>,
    /// Whether values of a row decide over others, or over the row.
    is_computed: bool,
}

/// A row of one of the batches.
type Place = (usize, usize);

/// What a key has.
#[derive(Debug, Clone, Default, PartialEq)]
enum State {
    #[default]
    Nothing,
    Row {
        place: Place,
        /// Columns whose values are in other rows.
        kept: Vec<(usize, Place)>,
    },
}

impl State {
    /// Where the value of a column is.
    fn value(&self, column: usize) -> Option<Place> {
        match self {
            State::Nothing => None,
            State::Row { place, kept } => {
                let kept = kept.iter().find(|(known, _)| *known == column);
                Some(kept.map_or(*place, |(_, place)| *place))
            }
        }
    }
}

impl Target {
    pub fn new(relation: &Relation) -> Target {
        let is_generated = relation.columns.iter().any(|column| column.generated.is_some());
        Target {
            schema: Arc::clone(relation.schema()),
            key: relation.key().to_vec(),
            is_computed: is_generated || !relation.checks.is_empty(),
        }
    }

    /// What becomes of the table, and which changes cannot be. `cleared` has its rows if they are gone before the changes; else `stored`
    /// is given the keys that changes are about, each once, and returns the places of those that the table has, and their rows.
    ///
    /// # Errors
    /// Those of `stored`; memory.
    pub fn resolve(
        &self,
        mut changes: Changes,
        cleared: Option<RecordBatch>,
        stored: impl FnOnce(&[ArrayRef]) -> SqlResult<(Vec<u32>, RecordBatch)>,
    ) -> SqlResult<(Vec<ChangeBatch>, Vec<BadRecord>)> {
        let mut bad = std::mem::take(&mut changes.bad);
        let (mut made, failed) = self.resolve_rest(changes, cleared.is_some(), stored)?;
        bad.extend(failed);
        if let Some(rows) = cleared.filter(|rows| rows.num_rows() > 0) {
            let weights = Some(vec![-1; rows.num_rows()].into());
            made.push(ChangeBatch { rows, weights });
        }
        Ok((made, bad))
    }

    fn resolve_rest(
        &self,
        changes: Changes,
        is_cleared: bool,
        stored: impl FnOnce(&[ArrayRef]) -> SqlResult<(Vec<u32>, RecordBatch)>,
    ) -> SqlResult<(Vec<ChangeBatch>, Vec<BadRecord>)> {
        if self.key.is_empty() {
            let rows = changes.puts.into_iter();
            return Ok((
                rows.map(|(_, rows)| ChangeBatch::insertions(rows)).collect(),
                vec![],
            ));
        }
        let stored = |keys: &[ArrayRef]| match is_cleared {
            true => Ok((vec![], RecordBatch::new_empty(Arc::clone(&self.schema)))),
            false => stored(keys),
        };
        self.resolve_keys(changes, stored).map_err(|error| match error {
            Failure::Arrow(error) => from_internal::arrow(error),
            Failure::Sql(error) => error,
        })
    }

    fn resolve_keys(
        &self,
        changes: Changes,
        stored: impl FnOnce(&[ArrayRef]) -> SqlResult<(Vec<u32>, RecordBatch)>,
    ) -> Result<(Vec<ChangeBatch>, Vec<BadRecord>), Failure> {
        let fields =
            (self.key.iter()).map(|column| SortField::new(self.schema.field(*column).data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        // The key columns of all, the deletes first.
        let mut key_columns: Vec<Vec<ArrayRef>> = vec![];
        // When, whether it is a put, of which batch of those, which row.
        let mut events: Vec<(usize, bool, usize, usize)> = vec![];
        for (places, keys) in &changes.deletes {
            events.extend(
                places
                    .iter()
                    .enumerate()
                    .map(|(row, at)| (*at, false, key_columns.len(), row)),
            );
            key_columns.push(keys.columns().to_vec());
        }
        let deletes = key_columns.len();
        for (places, rows) in &changes.puts {
            events.extend(
                places
                    .iter()
                    .enumerate()
                    .map(|(row, at)| (*at, true, key_columns.len(), row)),
            );
            key_columns.push(
                self.key
                    .iter()
                    .map(|column| Arc::clone(rows.column(*column)))
                    .collect(),
            );
        }
        events.sort_unstable();
        let keys: Vec<_> = (key_columns.iter())
            .map(|columns| converter.convert_columns(columns))
            .collect::<Result<_, _>>()?;
        let mut known: HashMap<OwnedRow, usize> = HashMap::new();
        let mut distinct: Vec<Place> = vec![];
        let mut of_event = Vec::with_capacity(events.len());
        for (_, _, batch, row) in &events {
            let key = match known.entry(keys[*batch].row(*row).owned()) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    distinct.push((*batch, *row));
                    *entry.insert(distinct.len() - 1)
                }
            };
            of_event.push(key);
        }
        if distinct.is_empty() {
            return Ok((vec![], vec![]));
        }
        let probes = (0..self.key.len()).map(|column| {
            let arrays: Vec<&dyn Array> = key_columns.iter().map(|columns| &*columns[column]).collect();
            interleave(&arrays, &distinct)
        });
        let probes = probes.collect::<Result<Vec<_>, _>>()?;
        let (found, there) = stored(&probes)?;
        let mut before = vec![State::Nothing; distinct.len()];
        for (row, key) in found.iter().enumerate() {
            before[*key as usize] = State::Row {
                place: (0, row),
                kept: vec![],
            };
        }
        let mut after = before.clone();
        let mut bad = vec![];
        // The row of the key that a change has left for another.
        let mut moved = (usize::MAX, 0, State::Nothing);
        for ((at, is_put, batch, row), key) in events.into_iter().zip(of_event) {
            if !is_put {
                moved = (at, key, std::mem::take(&mut after[key]));
                continue;
            }
            let kept = changes.kept.get(&at).map_or(&[] as &[String], Vec::as_slice);
            let has_moved = moved.0 == at;
            let before = if has_moved { &moved.2 } else { &after[key] };
            match self.kept(kept, before) {
                Ok(kept) => {
                    // The stored rows are the first batch.
                    let place = (batch - deletes + 1, row);
                    after[key] = State::Row { place, kept };
                }
                Err(error) => {
                    // Both count, or none.
                    if has_moved {
                        after[moved.1] = std::mem::take(&mut moved.2);
                    }
                    bad.push(BadRecord { at, error });
                }
            }
        }
        let batches: Vec<&RecordBatch> = std::iter::once(&there)
            .chain(changes.puts.iter().map(|(_, rows)| rows))
            .collect();
        let changed = || {
            before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before != after)
        };
        let gone: Vec<&State> = changed().map(|(before, _)| before).collect();
        let come: Vec<&State> = changed().map(|(_, after)| after).collect();
        let mut made = vec![];
        for (states, weight) in [(gone, -1), (come, 1)] {
            let rows = self.rows(&batches, &states)?;
            if rows.num_rows() > 0 {
                let weights = (weight < 0).then(|| vec![weight; rows.num_rows()].into());
                made.push(ChangeBatch { rows, weights });
            }
        }
        Ok((made, bad))
    }

    /// Where the values are that stay as they were.
    fn kept(&self, names: &[String], before: &State) -> SqlResult<Vec<(usize, Place)>> {
        if names.is_empty() {
            return Ok(vec![]);
        }
        if self.is_computed {
            return Err(SqlError::unsupported(
                "an event without the values that did not change is not supported with generated columns and CHECK",
            ));
        }
        let column = |name: &String| -> SqlResult<(usize, Place)> {
            let column = self.schema.index_of(name).map_err(from_internal::arrow)?;
            let place = before.value(column).ok_or_else(|| {
                SqlError::new(
                    SqlState::NotNullViolation,
                    format!("the event has no value for column \"{name}\", and there is no row that has it"),
                )
            })?;
            Ok((column, place))
        };
        names.iter().map(column).collect()
    }

    /// The rows that states have.
    fn rows(&self, batches: &[&RecordBatch], states: &[&State]) -> Result<RecordBatch, ArrowError> {
        let columns = (0..self.schema.fields().len()).map(|column| {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| &**batch.column(column)).collect();
            let places: Vec<Place> = states.iter().filter_map(|state| state.value(column)).collect();
            interleave(&arrays, &places)
        });
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect::<Result<_, _>>()?)
    }
}

enum Failure {
    Arrow(ArrowError),
    Sql(SqlError),
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Failure::Arrow(error)
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Sql(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{AsArray, Int32Array, RecordBatchOptions};
    use arrow::datatypes::{DataType, Field, Int32Type, Schema};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    type Model = BTreeMap<i32, (i32, i32)>;

    fn batch(schema: &SchemaRef, columns: Vec<Vec<i32>>) -> RecordBatch {
        let rows = columns[0].len();
        let columns = columns
            .into_iter()
            .map(|values| Arc::new(Int32Array::from(values)) as ArrayRef);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options).unwrap()
    }

    fn rows_of(batch: &RecordBatch) -> Vec<(i32, (i32, i32))> {
        let column = |at: usize| batch.column(at).as_primitive::<Int32Type>().values().to_vec();
        let (k, a, b) = (column(0), column(1), column(2));
        (0..k.len()).map(|row| (k[row], (a[row], b[row]))).collect()
    }

    #[test]
    fn the_last_change_of_each_key_counts() {
        let seed = 7;
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let fields = ["k", "a", "b"].map(|name| Field::new(name, DataType::Int32, true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let key_schema: SchemaRef = Arc::new(Schema::new(vec![fields[0].clone()]));
        let target = Target {
            schema: Arc::clone(&schema),
            key: vec![0],
            is_computed: false,
        };
        let mut table = Model::new();
        for _ in 0..500 {
            let mut expected = table.clone();
            let mut changes = Changes::default();
            let mut failed = vec![];
            let (mut put, mut deleted) = ((vec![], vec![vec![]; 3]), (vec![], vec![]));
            for at in 0..random.random_range(0..12) {
                let (key, a, b) = (
                    random.random_range(0..5),
                    random.random_range(0..3),
                    random.random_range(0..3),
                );
                if random.random_bool(0.3) {
                    deleted.0.push(at);
                    deleted.1.push(key);
                    expected.remove(&key);
                    continue;
                }
                let old = expected.get(&key).copied();
                put.0.push(at);
                // What is kept has another value in the event.
                let keeps = random.random_bool(0.3);
                for (column, value) in [key, a, if keeps { -9 } else { b }].into_iter().enumerate() {
                    put.1[column].push(value);
                }
                if keeps {
                    changes.kept.insert(at, vec!["b".to_owned()]);
                }
                match (keeps, old) {
                    (true, None) => failed.push(at),
                    (true, Some((_, old))) => drop(expected.insert(key, (a, old))),
                    (false, _) => drop(expected.insert(key, (a, b))),
                }
                if random.random_bool(0.2) {
                    let whole = std::mem::replace(&mut put, (vec![], vec![vec![]; 3]));
                    changes.puts.push((whole.0, batch(&schema, whole.1)));
                }
            }
            if !put.0.is_empty() {
                changes.puts.push((put.0, batch(&schema, put.1)));
            }
            if !deleted.0.is_empty() {
                changes
                    .deletes
                    .push((deleted.0, batch(&key_schema, vec![deleted.1])));
            }
            let stored = |keys: &[ArrayRef]| {
                let keys = keys[0].as_primitive::<Int32Type>();
                let (mut places, mut columns) = (vec![], vec![vec![]; 3]);
                for (place, key) in keys.values().iter().enumerate() {
                    if let Some((a, b)) = table.get(key) {
                        places.push(place as u32);
                        for (column, value) in [*key, *a, *b].into_iter().enumerate() {
                            columns[column].push(value);
                        }
                    }
                }
                Ok((places, batch(&schema, columns)))
            };
            let (made, bad) = target.resolve(changes, None, stored).unwrap();
            assert_eq!(bad.iter().map(|bad| bad.at).collect::<Vec<_>>(), failed);
            for change in &made {
                for (key, values) in rows_of(&change.rows) {
                    let is_gone = change.weights.is_some();
                    let before = if is_gone {
                        table.remove(&key)
                    } else {
                        table.insert(key, values)
                    };
                    assert_eq!(before, is_gone.then_some(values), "key {key}");
                }
            }
            assert_eq!(table, expected);
        }
    }
}
