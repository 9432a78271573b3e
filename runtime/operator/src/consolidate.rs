//! Equal rows as one: what came and went is left out.

use arrow::array::{ArrayRef, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::row::{RowConverter, SortField};
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use millrace_state::compare::rows_equal;
use millrace_state::row_table::row_hashes;
use millrace_state::width::COPIED_BYTES_MAX;
use millrace_storage::{ChangeBatch, rows_bytes};

use super::batches::concat;
use crate::error::{OperatorError, Result};

/// Equal rows as one, with the sum of their weights; rows that cancel out are left out.
pub fn consolidate(batches: Vec<ChangeBatch>) -> Result<Option<ChangeBatch>> {
    let Some(batch) = concat(batches)? else {
        return Ok(None);
    };
    if batch.num_rows() == 1 {
        return Ok(Some(batch).filter(|batch| batch.weight(0) != 0));
    }
    let first = first_equal(batch.rows.columns(), batch.num_rows())?;
    let is_first = |row: usize| first[row] as usize == row;
    if (0..batch.num_rows()).all(is_first) {
        return Ok(Some(batch));
    }
    let mut weights = vec![0; batch.num_rows()];
    for (row, first) in first.iter().enumerate() {
        weights[*first as usize] += batch.weight(row);
    }
    let kept: Vec<usize> = (0..weights.len()).filter(|row| weights[*row] != 0).collect();
    if kept.is_empty() {
        return Ok(None);
    }
    let positions = UInt32Array::from_iter_values(kept.iter().map(|row| *row as u32));
    let rows = arrow::compute::take_record_batch(&batch.rows, &positions)?;
    let weights = Int64Array::from_iter_values(kept.iter().map(|row| weights[*row]));
    Ok(Some(ChangeBatch {
        rows,
        weights: Some(weights),
    }))
}

/// As [`consolidate`], in as many batches as no copy of more than so many bytes takes: equal rows are in one of them, by their hash.
pub fn consolidate_parts(batches: Vec<ChangeBatch>) -> Result<Vec<ChangeBatch>> {
    let bytes: usize = batches.iter().map(|batch| rows_bytes(&batch.rows)).sum();
    let parts = bytes.div_ceil(COPIED_BYTES_MAX) as u64;
    in_parts(batches, parts)
}

fn in_parts(batches: Vec<ChangeBatch>, parts: u64) -> Result<Vec<ChangeBatch>> {
    if parts <= 1 {
        return Ok(consolidate(batches)?.into_iter().collect());
    }
    let hashes = batches
        .iter()
        .map(|batch| row_hashes(batch.rows.columns(), batch.num_rows()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut consolidated = vec![];
    for part in 0..parts {
        let mut pieces = vec![];
        for (batch, hashes) in batches.iter().zip(&hashes) {
            let rows = (0_u32..)
                .zip(hashes)
                .filter_map(|(row, hash)| (hash % parts == part).then_some(row));
            let positions = UInt32Array::from_iter_values(rows);
            if !positions.is_empty() {
                pieces.push(taken(batch, &positions)?);
            }
        }
        consolidated.extend(consolidate(pieces)?);
    }
    Ok(consolidated)
}

fn taken(batch: &ChangeBatch, positions: &UInt32Array) -> Result<ChangeBatch> {
    let weights = batch.weights.as_ref();
    let weights = weights.map(|weights| positions.values().iter().map(|row| weights.value(*row as usize)));
    Ok(ChangeBatch {
        rows: arrow::compute::take_record_batch(&batch.rows, positions)?,
        weights: weights.map(Int64Array::from_iter_values),
    })
}

/// Of each row, the first one that equals it.
fn first_equal(columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
    first_equal_hashed(columns, &row_hashes(columns, rows)?)
}

/// As [`first_equal`], where the rows' hashes are known.
pub(super) fn first_equal_hashed(columns: &[ArrayRef], hashes: &[u64]) -> Result<Vec<u32>> {
    match by_hash(columns, hashes)? {
        Some(first) => Ok(first),
        None => by_value(columns, hashes.len()),
    }
}

/// The first one with the same hash, if they are equal wherever there is one; and if there are columns.
fn by_hash(columns: &[ArrayRef], hashes: &[u64]) -> Result<Option<Vec<u32>>> {
    if columns.is_empty() {
        return Ok(None);
    }
    let mut table: HashTable<u32> = HashTable::with_capacity(hashes.len());
    let mut first = Vec::with_capacity(hashes.len());
    let (mut again, mut before) = (vec![], vec![]);
    for (row, hash) in (0_u32..).zip(hashes) {
        let entry = table.entry(
            *hash,
            |known| hashes[*known as usize] == *hash,
            |known| hashes[*known as usize],
        );
        first.push(match entry {
            Entry::Occupied(known) => {
                again.push(row);
                before.push(*known.get());
                *known.get()
            }
            Entry::Vacant(vacant) => *vacant.insert(row).get(),
        });
    }
    if again.is_empty() {
        return Ok(Some(first));
    }
    let pairs = again.len();
    let (again, before) = (UInt32Array::from(again), UInt32Array::from(before));
    let side = |positions: &UInt32Array| {
        let columns = columns.iter().map(|column| take(column, positions, None));
        columns
            .collect::<Result<Vec<_>, _>>()
            .map_err(OperatorError::from)
    };
    let equal = rows_equal(&side(&again)?, &side(&before)?, pairs)?;
    Ok((equal.true_count() == equal.len()).then_some(first))
}

/// The same by the values themselves, as comparable bytes.
fn by_value(columns: &[ArrayRef], rows: usize) -> Result<Vec<u32>> {
    if columns.is_empty() {
        return Ok(vec![0; rows]);
    }
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let values = converter.convert_columns(columns)?;
    let mut known = HashMap::with_capacity(rows);
    Ok((0_u32..)
        .zip(&values)
        .map(|(row, value)| *known.entry(value).or_insert(row))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn batch(rows: &[(Option<i64>, String, i64)]) -> ChangeBatch {
        let k: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0)));
        let v: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)));
        let weights = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
        let rows = RecordBatch::try_from_iter_with_nullable([("k", k, true), ("v", v, true)]).unwrap();
        ChangeBatch::new(rows, Some(weights)).unwrap()
    }

    #[test]
    fn equal_rows_become_one_and_what_cancels_out_is_gone() {
        let mut random = StdRng::seed_from_u64(1);
        let mut most_parts = 0;
        for _ in 0..200 {
            let mut model: BTreeMap<(Option<i64>, String), i64> = BTreeMap::new();
            let batches = (0..random.random_range(1..4)).map(|_| {
                let rows = (0..random.random_range(1..20)).map(|_| {
                    let k = random.random_bool(0.8).then(|| random.random_range(0..3));
                    let (v, weight) = (random.random_range(0..3), random.random_range(-2..3));
                    *model.entry((k, v.to_string())).or_default() += weight;
                    (k, v.to_string(), weight)
                });
                batch(&rows.collect::<Vec<_>>())
            });
            let batches: Vec<ChangeBatch> = batches.collect();
            let parts = random.random_range(0..4);
            let consolidated = in_parts(batches, parts).unwrap();
            assert!(consolidated.len() as u64 <= parts.max(1));
            most_parts = most_parts.max(consolidated.len());
            model.retain(|_, weight| *weight != 0);
            let mut shown = BTreeMap::new();
            for batch in consolidated {
                let k = batch.rows.column(0).as_primitive::<Int64Type>();
                let v = batch.rows.column(1).as_string::<i32>();
                for row in 0..batch.num_rows() {
                    let key = (k.is_valid(row).then(|| k.value(row)), v.value(row).to_owned());
                    assert!(
                        shown.insert(key, batch.weight(row)).is_none(),
                        "a row is there twice"
                    );
                }
            }
            shown.retain(|_, weight| *weight != 0);
            assert_eq!(shown, model);
        }
        assert_eq!(most_parts, 3);
    }

    #[test]
    fn both_ways_find_the_same_rows() {
        let rows: Vec<_> = (0..50)
            .map(|row| (Some(row % 7), (row % 3).to_string(), 1))
            .collect();
        let batch = batch(&rows);
        let columns = batch.rows.columns();
        assert_eq!(
            by_hash(columns, &row_hashes(columns, 50).unwrap()).unwrap(),
            Some(by_value(columns, 50).unwrap())
        );
    }
}
