//! Group keys to dense group numbers.
//!
//! For one epoch (the map half) by DataFusion's `GroupValues`, which are fast; for good (the reduce half) by a
//! [`RowTable`] that only grows, whose row numbers are the groups' numbers: it takes less than half of the memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use millrace_state::row_table::{RowTable, TableImage, row_hashes};

use super::batches::nullable;
use super::consolidate::first_equal_hashed;
use crate::error::{OperatorError, Result};

pub(crate) struct GroupKeys {
    schema: SchemaRef,
    keys: Keys,
    len: usize,
}

enum Keys {
    /// Grouping by nothing: one group, number 0.
    Nothing,
    Passing(Box<dyn GroupValues>),
    Kept(Box<RowTable>),
}

impl GroupKeys {
    /// For one epoch. The first `columns` of the schema are the key. Any of them may be NULL, whatever the schema says: that is what an
    /// expression that failed leaves, and DataFusion's groups keep no NULLs of columns that cannot be.
    pub fn passing(schema: &SchemaRef, columns: usize) -> Result<Self> {
        let schema: SchemaRef = nullable(&Arc::new(Schema::new(schema.fields()[..columns].to_vec())));
        let keys = match columns {
            0 => Keys::Nothing,
            _ => Keys::Passing(new_group_values(Arc::clone(&schema), &GroupOrdering::None)?),
        };
        Ok(GroupKeys { schema, keys, len: 0 })
    }

    /// For good.
    pub fn kept(schema: &SchemaRef, columns: usize) -> Result<Self> {
        let schema: SchemaRef = nullable(&Arc::new(Schema::new(schema.fields()[..columns].to_vec())));
        let keys = match columns {
            0 => Keys::Nothing,
            _ => {
                let mut table = RowTable::new(Arc::clone(&schema), None);
                table.add_index((0..columns).collect())?;
                Keys::Kept(Box::new(table))
            }
        };
        Ok(GroupKeys { schema, keys, len: 0 })
    }

    pub fn columns(&self) -> usize {
        self.schema.fields().len()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The group of each row.
    pub fn intern(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
        match &mut self.keys {
            Keys::Nothing => {
                self.len = 1;
                Ok(vec![0; rows])
            }
            Keys::Passing(values) => {
                let mut groups = Vec::with_capacity(rows);
                values.intern(keys, &mut groups)?;
                self.len = values.len();
                Ok(groups)
            }
            Keys::Kept(table) => {
                let keys: Vec<ArrayRef> = keys.iter().map(without_negative_zero).collect();
                let groups = intern(table, &keys, rows)?;
                self.len = table.live_rows();
                Ok(groups)
            }
        }
    }

    /// The keys of these groups, which are kept.
    pub fn values(&self, groups: &[usize]) -> Result<Vec<ArrayRef>> {
        match &self.keys {
            Keys::Nothing => Ok(vec![]),
            Keys::Passing(_) => Err(OperatorError::Internal(
                "passing groups are taken all at once".into(),
            )),
            Keys::Kept(table) => {
                let rows: Vec<u32> = groups.iter().map(|group| *group as u32).collect();
                Ok(table.gather(&rows, &(0..self.columns()).collect::<Vec<_>>())?)
            }
        }
    }

    /// All keys of passing groups, by group number; leaves nothing.
    pub fn take_all(&mut self) -> Result<Vec<ArrayRef>> {
        self.len = 0;
        match &mut self.keys {
            Keys::Nothing => Ok(vec![]),
            Keys::Passing(values) => Ok(values.emit(EmitTo::All)?),
            Keys::Kept(_) => Err(OperatorError::Internal("kept groups were taken".into())),
        }
    }

    /// Keeps only these groups, renumbered in the order given.
    pub fn retain(&mut self, groups: &[usize]) -> Result<()> {
        if matches!(self.keys, Keys::Nothing) {
            return Ok(());
        }
        let kept = self.values(groups)?;
        *self = GroupKeys::kept(&self.schema, self.columns())?;
        self.intern(&kept, groups.len())?;
        Ok(())
    }

    /// Kept keys for the checkpoint store.
    pub fn image(&mut self) -> TableImage {
        match &mut self.keys {
            Keys::Kept(table) => table.image(),
            Keys::Nothing | Keys::Passing(_) => TableImage::default(),
        }
    }

    /// Makes kept keys what an image shows.
    pub fn restore(&mut self, image: &TableImage) -> Result<()> {
        self.len = match &mut self.keys {
            Keys::Kept(table) => {
                table.restore(image)?;
                table.live_rows()
            }
            Keys::Nothing | Keys::Passing(_) => 1,
        };
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        match &self.keys {
            Keys::Nothing => 0,
            Keys::Passing(values) => values.size(),
            Keys::Kept(table) => table.memory_bytes(),
        }
    }
}

/// The rows' numbers in the table; those that are not there are added.
fn intern(table: &mut RowTable, keys: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
    let hashes = row_hashes(keys, rows)?;
    let matches = table.probe_hashed(0, keys, &hashes)?;
    let mut groups = vec![usize::MAX; rows];
    for (probe, row) in matches.probe.iter().zip(&matches.rows) {
        groups[*probe as usize] = *row as usize;
    }
    let missing: Vec<u32> = (0..rows as u32)
        .filter(|row| groups[*row as usize] == usize::MAX)
        .collect();
    if missing.is_empty() {
        return Ok(groups);
    }
    let (columns, hashes) = pick(keys, &hashes, &missing)?;
    let first = first_equal_hashed(&columns, &hashes)?;
    let new: Vec<u32> = (0..missing.len() as u32)
        .filter(|row| first[*row as usize] == *row)
        .collect();
    let (columns, hashes) = pick(&columns, &hashes, &new)?;
    let batch = RecordBatch::try_new(Arc::clone(table.schema()), columns)?;
    let base = table.insert_hashed(batch, &hashes, 0)? as usize;
    let mut number = vec![0; missing.len()];
    for (place, row) in new.iter().enumerate() {
        number[*row as usize] = base + place;
    }
    for (row, first) in missing.iter().zip(&first) {
        groups[*row as usize] = number[*first as usize];
    }
    Ok(groups)
}

/// Some of the rows with their hashes.
fn pick(columns: &[ArrayRef], hashes: &[u64], rows: &[u32]) -> Result<(Vec<ArrayRef>, Vec<u64>)> {
    if rows.len() == hashes.len() {
        return Ok((columns.to_vec(), hashes.to_vec()));
    }
    let positions = UInt32Array::from(rows.to_vec());
    let columns = columns.iter().map(|column| take(column, &positions, None));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok((columns, rows.iter().map(|row| hashes[*row as usize]).collect()))
}

/// Zero has two signs and is one value, to GROUP BY too; DataFusion's groups are of the positive one.
fn without_negative_zero(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float16 => Arc::new(column.as_primitive::<Float16Type>().unary::<_, Float16Type>(
            |value| {
                if value.to_bits() << 1 == 0 {
                    Default::default()
                } else {
                    value
                }
            },
        )),
        DataType::Float32 => Arc::new(
            column
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|value| value + 0.0),
        ),
        DataType::Float64 => Arc::new(
            column
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(|value| value + 0.0),
        ),
        _ => Arc::clone(column),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};
    use arrow::datatypes::Field;

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("f", DataType::Float64, true),
            Field::new("s", DataType::Utf8, true),
        ]))
    }

    fn rows(values: &[(Option<f64>, &str)]) -> Vec<ArrayRef> {
        vec![
            Arc::new(Float64Array::from_iter(values.iter().map(|value| value.0))),
            Arc::new(StringArray::from_iter_values(values.iter().map(|value| value.1))),
        ]
    }

    #[test]
    fn kept_groups_keep_their_numbers_and_can_be_swept() {
        let mut keys = GroupKeys::kept(&schema(), 2).unwrap();
        let first = rows(&[(Some(1.0), "a"), (None, "a"), (Some(1.0), "a"), (Some(0.0), "b")]);
        assert_eq!(keys.intern(&first, 4).unwrap(), [0, 1, 0, 2]);
        let second = rows(&[(Some(-0.0), "b"), (Some(2.0), "a"), (None, "a"), (Some(2.0), "a")]);
        assert_eq!(keys.intern(&second, 4).unwrap(), [2, 3, 1, 3]);
        assert_eq!(keys.len(), 4);
        keys.retain(&[3, 1]).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys.intern(&second, 4).unwrap(), [2, 0, 1, 0]);
        let values = keys.values(&[1, 0]).unwrap();
        assert!(values[0].is_null(0) && values[0].as_primitive::<Float64Type>().value(1) == 2.0);
    }

    #[test]
    fn keys_that_cannot_be_null_are_null_where_an_expression_failed() {
        let fields = schema()
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_nullable(false))
            .collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let mut keys = GroupKeys::passing(&schema, 2).unwrap();
        assert_eq!(keys.intern(&rows(&[(Some(3.0), "a")]), 1).unwrap(), [0]);
        assert_eq!(
            keys.intern(&rows(&[(None, "a"), (Some(0.0), "a"), (None, "a")]), 3)
                .unwrap(),
            [1, 2, 1]
        );
        let all = keys.take_all().unwrap();
        assert!(all[0].is_null(1) && all[0].as_primitive::<Float64Type>().value(2) == 0.0);
    }

    #[test]
    fn both_kinds_number_groups_alike() {
        let keys: Vec<_> = (0..500)
            .map(|row| (Some(f64::from(row % 37)), ["x", "y", "z"][row as usize % 3]))
            .collect();
        let keys = rows(&keys);
        let passing = GroupKeys::passing(&schema(), 2)
            .unwrap()
            .intern(&keys, 500)
            .unwrap();
        let kept = GroupKeys::kept(&schema(), 2).unwrap().intern(&keys, 500).unwrap();
        assert_eq!(passing, kept);
    }
}
