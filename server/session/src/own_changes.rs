//! What a transaction has changed in one relation, added up.
//!
//! A client that loads data inside a transaction makes thousands of statements of a row each, and each of them sees what came before.
//! So changes are added up as they come: a statement costs what it changes itself, and what COMMIT writes is a few batches, not one for
//! each statement. (A block of the log each would stay one for ever: what was written at once is not merged.)
//!
//! * Rows that were added are kept in batches, a small one put behind its neighbour: a row is copied a few times at most.
//! * A row that is taken away was added before, and is dead from then on; or it is one of those that are committed.
//! * A savepoint remembers how many changes there were. ROLLBACK TO adds up that many once more.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{concat, filter_record_batch, interleave, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use millrace_postgres::error::SqlResult;
use millrace_postgres::from_internal;
use millrace_storage::ChangeBatch;

/// Batches are put together until they have so many rows.
const BATCH_ROWS_MAX: usize = 32_768;

/// A row in a form that compares.
type RowKey = Box<[u8]>;

/// Changes of one relation, in the order in which they were made.
#[derive(Clone, Default)]
pub struct OwnChanges {
    log: Vec<ChangeBatch>,
    /// The first of them added up; the others are when somebody asks.
    net: Arc<Net>,
    counted: usize,
}

impl OwnChanges {
    /// These changes.
    pub fn of(changes: &[ChangeBatch]) -> OwnChanges {
        OwnChanges {
            log: changes.to_vec(),
            ..OwnChanges::default()
        }
    }

    /// How many changes there are, for [`back_to`](Self::back_to).
    pub fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Adds changes.
    pub fn extend(&mut self, changes: Vec<ChangeBatch>) {
        self.log.extend(changes);
    }

    /// Goes back to so many changes.
    pub fn back_to(&mut self, length: usize) {
        self.log.truncate(length);
        if self.counted > length {
            self.net = Arc::default();
            self.counted = 0;
        }
    }

    /// What they come to.
    ///
    /// # Errors
    /// They do not fit each other, which does not happen.
    pub fn net(&mut self) -> SqlResult<Arc<Net>> {
        for (number, change) in self.log.iter().enumerate().skip(self.counted) {
            Arc::make_mut(&mut self.net)
                .add(number, change)
                .map_err(from_internal::arrow)?;
            self.counted = number + 1;
        }
        Ok(Arc::clone(&self.net))
    }

    /// The changes as they are to be written: what they come to, in as few batches as possible.
    ///
    /// # Errors
    /// As [`net`](Self::net).
    pub fn into_batches(mut self) -> SqlResult<Vec<ChangeBatch>> {
        match self.log.len() {
            0 | 1 => Ok(self.log),
            _ => {
                let net = self.net()?;
                net.batches(&self.log).map_err(from_internal::arrow)
            }
        }
    }
}

/// Changes added up: rows that are there now and were not, and rows that were there and are not now.
#[derive(Clone, Default)]
pub struct Net {
    added: Vec<Added>,
    removed: Arc<HashMap<RowKey, Removed>>,
    /// What reads rows as keys, once a row was taken away.
    keys: Option<Keys>,
}

/// A committed row that was taken away.
#[derive(Debug, Clone, Copy)]
pub struct Removed {
    /// How often.
    pub count: i64,
    /// Where it is: the change, and the place in it.
    place: (usize, usize),
}

/// Rows that were added.
#[derive(Clone)]
struct Added {
    rows: RecordBatch,
    is_alive: Vec<bool>,
    dead: usize,
    /// Their keys, if rows were taken away.
    keys: Vec<RowKey>,
}

/// Where the rows are that were added and are alive: the batch, and the place in it.
#[derive(Clone)]
struct Keys {
    converter: Arc<RowConverter>,
    places: HashMap<RowKey, Vec<(usize, usize)>>,
}

impl Net {
    /// The rows that were added and are there.
    ///
    /// # Errors
    /// None, in effect.
    pub fn added(&self) -> Result<Vec<RecordBatch>, ArrowError> {
        let some = self
            .added
            .iter()
            .filter(|added| added.dead < added.rows.num_rows());
        some.map(|added| match added.dead {
            0 => Ok(added.rows.clone()),
            _ => filter_record_batch(&added.rows, &BooleanArray::from(added.is_alive.clone())),
        })
        .collect()
    }

    /// Whether they come to nothing.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0 && self.removed.is_empty()
    }

    /// How many were added and are there.
    pub fn rows(&self) -> usize {
        let added = self.added.iter();
        added.map(|added| added.rows.num_rows() - added.dead).sum()
    }

    /// The committed rows that are not there any more, by their keys.
    pub fn removed(&self) -> &Arc<HashMap<RowKey, Removed>> {
        &self.removed
    }

    fn add(&mut self, number: usize, change: &ChangeBatch) -> Result<(), ArrowError> {
        let rows = change.num_rows();
        if self.keys.is_none() && (0..rows).any(|row| change.weight(row) < 0) {
            self.begin_keys(&change.schema())?;
        }
        let keys = self.keys_of(&change.rows)?;
        let mut kept: Vec<u64> = vec![];
        let mut kept_keys: Vec<RowKey> = vec![];
        // What an UPDATE takes away was there before it.
        for (row, key) in keys.iter().enumerate() {
            for _ in change.weight(row)..0 {
                self.take_away(key, (number, row));
            }
        }
        for (row, index) in (0..rows).zip(0_u64..) {
            for _ in 0..change.weight(row) {
                match keys.get(row) {
                    Some(key) if self.bring_back(key) => {}
                    Some(key) => {
                        kept.push(index);
                        kept_keys.push(key.clone());
                    }
                    None => kept.push(index),
                }
            }
        }
        if kept.is_empty() {
            return Ok(());
        }
        let rows = match kept.len() == rows && change.weights.is_none() {
            true => change.rows.clone(),
            false => take_record_batch(&change.rows, &UInt64Array::from(kept))?,
        };
        self.append(rows, kept_keys);
        self.put_together()
    }

    /// From now on rows have keys.
    fn begin_keys(&mut self, schema: &SchemaRef) -> Result<(), ArrowError> {
        let fields = schema.fields().iter();
        let fields = fields
            .map(|field| SortField::new(field.data_type().clone()))
            .collect();
        self.keys = Some(Keys {
            converter: Arc::new(RowConverter::new(fields)?),
            places: HashMap::new(),
        });
        for added in std::mem::take(&mut self.added) {
            let keys = self.keys_of(&added.rows)?;
            self.append(added.rows, keys);
        }
        Ok(())
    }

    /// The rows in a form that compares, to be looked for in [`removed`](Self::removed); none as long as no row was taken away.
    ///
    /// # Errors
    /// They are not rows of the relation.
    pub fn keys_of(&self, rows: &RecordBatch) -> Result<Vec<RowKey>, ArrowError> {
        let Some(keys) = &self.keys else {
            return Ok(vec![]);
        };
        let rows = keys.converter.convert_columns(rows.columns())?;
        Ok(rows.iter().map(|row| row.as_ref().into()).collect())
    }

    fn take_away(&mut self, key: &RowKey, place: (usize, usize)) {
        let own = self.keys.as_mut().and_then(|keys| {
            let places = keys.places.get_mut(key)?;
            let place = places.pop();
            if places.is_empty() {
                keys.places.remove(key);
            }
            place
        });
        match own {
            Some((batch, place)) => {
                self.added[batch].is_alive[place] = false;
                self.added[batch].dead += 1;
            }
            None => {
                let removed = Arc::make_mut(&mut self.removed).entry(key.clone());
                removed.or_insert(Removed { count: 0, place }).count += 1;
            }
        }
    }

    /// Whether the row is a committed one that was taken away, and is there again.
    fn bring_back(&mut self, key: &RowKey) -> bool {
        if !self.removed.contains_key(key) {
            return false;
        }
        let removed = Arc::make_mut(&mut self.removed);
        if let Some(row) = removed.get_mut(key) {
            row.count -= 1;
            if row.count == 0 {
                removed.remove(key);
            }
        }
        true
    }

    fn append(&mut self, rows: RecordBatch, row_keys: Vec<RowKey>) {
        let batch = self.added.len();
        if let Some(keys) = &mut self.keys {
            for (place, key) in row_keys.iter().enumerate() {
                keys.places.entry(key.clone()).or_default().push((batch, place));
            }
        }
        self.added.push(Added {
            is_alive: vec![true; rows.num_rows()],
            dead: 0,
            keys: row_keys,
            rows,
        });
    }

    /// Puts the last batch behind the one before it, as long as that is not much larger.
    fn put_together(&mut self) -> Result<(), ArrowError> {
        while let [.., before, last] = self.added.as_slice() {
            let (first, rows) = (before.rows.num_rows(), last.rows.num_rows());
            if first > 2 * rows || first + rows > BATCH_ROWS_MAX {
                return Ok(());
            }
            self.join_last()?;
        }
        Ok(())
    }

    fn join_last(&mut self) -> Result<(), ArrowError> {
        let Some(last) = self.added.pop() else {
            return Ok(());
        };
        let batch = self.added.len();
        let Some(before) = self.added.last_mut() else {
            self.added.push(last);
            return Ok(());
        };
        let first = before.rows.num_rows();
        before.rows = joined(&before.rows, &last.rows)?;
        before.is_alive.extend(&last.is_alive);
        before.dead += last.dead;
        if let Some(keys) = &mut self.keys {
            let alive = last.keys.iter().zip(&last.is_alive).enumerate();
            for (place, (key, _)) in alive.filter(|(_, (_, is_alive))| **is_alive) {
                let places = keys
                    .places
                    .get_mut(key)
                    .map(Vec::as_mut_slice)
                    .unwrap_or_default();
                for known in places.iter_mut().filter(|known| **known == (batch, place)) {
                    *known = (batch - 1, first + place);
                }
            }
        }
        before.keys.extend(last.keys);
        Ok(())
    }

    /// What is to be written; `log` has the changes that were added up.
    fn batches(&self, log: &[ChangeBatch]) -> Result<Vec<ChangeBatch>, ArrowError> {
        let mut net = self.clone();
        while let [.., before, last] = net.added.as_slice() {
            if before.rows.num_rows() + last.rows.num_rows() > BATCH_ROWS_MAX {
                break;
            }
            net.join_last()?;
        }
        let mut added = net.added()?;
        let Some(schema) = log.first().map(ChangeBatch::schema) else {
            return Ok(vec![]);
        };
        let mut removed: Vec<Removed> = net.removed.values().copied().collect();
        removed.sort_by_key(|row| row.place);
        let mut all = vec![];
        for removed in removed.chunks(BATCH_ROWS_MAX) {
            let places: Vec<(usize, usize)> = removed.iter().map(|row| row.place).collect();
            let mut rows = interleaved(&schema, log, &places)?;
            let mut weights: Vec<i64> = removed.iter().map(|row| -row.count).collect();
            // A row that takes the place of another is changed with it.
            if net.removed.len() <= BATCH_ROWS_MAX
                && added.len() == 1
                && let Some(instead) = added.pop()
            {
                weights.extend(std::iter::repeat_n(1, instead.num_rows()));
                rows = joined(&rows, &instead)?;
            }
            all.push(ChangeBatch {
                rows,
                weights: Some(Int64Array::from(weights)),
            });
        }
        all.extend(added.into_iter().map(ChangeBatch::insertions));
        Ok(all)
    }
}

/// Rows behind others, under the names of the first: a column may have been renamed in between.
fn joined(first: &RecordBatch, second: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = first.columns().iter().zip(second.columns());
    let columns = columns.map(|(first, second)| concat(&[first.as_ref(), second.as_ref()]));
    RecordBatch::try_new(first.schema(), columns.collect::<Result<_, _>>()?)
}

/// Rows of several changes, by the change and the place in it.
fn interleaved(
    schema: &SchemaRef,
    log: &[ChangeBatch],
    places: &[(usize, usize)],
) -> Result<RecordBatch, ArrowError> {
    let columns = (0..schema.fields().len()).map(|column| {
        let parts: Vec<&dyn Array> = log
            .iter()
            .map(|change| change.rows.column(column).as_ref())
            .collect();
        interleave(&parts, places)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{ArrayRef, AsArray, Int32Array};
    use arrow::datatypes::Int32Type;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn change(rows: &[(i32, i64)]) -> ChangeBatch {
        let values: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0)));
        let weights = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
        let weights = rows.iter().any(|row| row.1 != 1).then_some(weights);
        ChangeBatch::new(RecordBatch::try_from_iter([("v", values)]).unwrap(), weights).unwrap()
    }

    fn values(rows: &RecordBatch) -> Vec<i32> {
        rows.column(0).as_primitive::<Int32Type>().values().to_vec()
    }

    /// What changes come to, by value.
    fn sums<'a>(changes: impl IntoIterator<Item = &'a ChangeBatch>) -> BTreeMap<i32, i64> {
        let mut sums = BTreeMap::new();
        for change in changes {
            for (row, value) in values(&change.rows).into_iter().enumerate() {
                *sums.entry(value).or_default() += change.weight(row);
            }
        }
        sums.retain(|_, sum| *sum != 0);
        sums
    }

    #[test]
    fn many_small_changes_are_a_few_batches() {
        let mut own = OwnChanges::default();
        for value in 0..3_000 {
            own.extend(vec![change(&[(value, 1)])]);
            assert!(own.net().unwrap().added.len() <= 13, "{value}");
        }
        let batches = own.clone().into_batches().unwrap();
        assert_eq!(batches.len(), 1);
        assert_eq!(values(&batches[0].rows), (0..3_000).collect::<Vec<_>>());
        // The rows change one by one: each is there once, and nothing is left of those between.
        for value in 0..3_000 {
            own.extend(vec![change(&[(value, -1), (value + 10_000, 1)])]);
        }
        let batches = own.into_batches().unwrap();
        assert!(batches.iter().all(|batch| batch.weights.is_none()));
        assert_eq!(sums(&batches), (10_000..13_000).map(|value| (value, 1)).collect());
    }

    #[test]
    fn what_comes_back_was_not_changed() {
        let mut own = OwnChanges::default();
        own.extend(vec![change(&[(1, -1), (2, 1)])]);
        assert_eq!(own.net().unwrap().removed().len(), 1);
        own.extend(vec![change(&[(2, -1), (1, 1)])]);
        assert!(own.net().unwrap().removed().is_empty());
        assert!(own.into_batches().unwrap().is_empty());
    }

    #[test]
    fn a_rows_change_is_one_batch() {
        let mut own = OwnChanges::default();
        for value in 0..10 {
            own.extend(vec![change(&[(value, -1), (value + 100, 1)])]);
        }
        assert_eq!(own.into_batches().unwrap().len(), 1);
    }

    #[test]
    fn they_come_to_what_they_are_and_can_go_back() {
        let seed = rand::random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..50 {
            let (mut own, mut made): (OwnChanges, Vec<ChangeBatch>) = Default::default();
            for _ in 0..random.random_range(1..60) {
                if random.random_ratio(1, 10) {
                    let length = random.random_range(0..=own.len());
                    own.back_to(length);
                    made.truncate(length);
                    continue;
                }
                let rows: Vec<(i32, i64)> = (0..random.random_range(1..8))
                    .map(|_| {
                        (
                            random.random_range(0..12),
                            [1, 1, 1, 2, -1, -2][random.random_range(0..6)],
                        )
                    })
                    .collect();
                made.push(change(&rows));
                own.extend(vec![change(&rows)]);
                let net = own.net().unwrap();
                let mut shown = sums(&[]);
                for added in net.added().unwrap() {
                    for value in values(&added) {
                        *shown.entry(value).or_default() += 1;
                    }
                }
                for removed in net.removed().values() {
                    let (change, row) = removed.place;
                    *shown.entry(values(&made[change].rows)[row]).or_default() -= removed.count;
                }
                shown.retain(|_, sum| *sum != 0);
                assert_eq!(shown, sums(&made));
            }
            assert_eq!(sums(&own.into_batches().unwrap()), sums(&made));
        }
    }
}
