//! UNNEST: a row once for each element of its lists, with its weight. Several lists of one row are read side by side, the
//! shorter ones continued with NULL.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::NullHandling;
use millrace_planner::stage::UnnestColumn;
use millrace_storage::ChangeBatch;

use super::batch_of;
use crate::error::Result;
use crate::state::row_table::arrow_error;

/// The rows of a batch, unnested.
pub(super) fn unnest(
    batch: &ChangeBatch,
    columns: &[UnnestColumn],
    null_handling: NullHandling,
    schema: &SchemaRef,
) -> Result<ChangeBatch> {
    let lists = columns
        .iter()
        .map(|column| match column {
            UnnestColumn::Elements(index) => as_list(batch.rows.column(*index)).map(Some),
            UnnestColumn::Kept(_) => Ok(None),
        })
        .collect::<Result<Vec<Option<ListArray>>>>()?;
    let mut rows: Vec<u32> = vec![];
    let mut positions: Vec<u32> = vec![];
    for row in 0..batch.num_rows() {
        let lengths = lists
            .iter()
            .flatten()
            .map(|list| length(list, row, null_handling));
        let longest = lengths.max().unwrap_or(0);
        rows.extend(std::iter::repeat_n(row as u32, longest));
        positions.extend(0..longest as u32);
    }
    let taken = UInt32Array::from(rows);
    let output = columns
        .iter()
        .zip(&lists)
        .map(|(column, list)| match (column, list) {
            (UnnestColumn::Kept(index), _) => {
                take(batch.rows.column(*index), &taken, None).map_err(arrow_error)
            }
            (UnnestColumn::Elements(_), Some(list)) => elements(list, taken.values(), &positions),
            (UnnestColumn::Elements(_), None) => Err(crate::error::RuntimeError::Internal(
                "a list was not looked at".into(),
            )),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    let weights = match &batch.weights {
        Some(weights) => {
            let weights = take(weights, &taken, None).map_err(arrow_error)?;
            Some(weights.as_primitive::<arrow::datatypes::Int64Type>().clone())
        }
        None => None,
    };
    let weights: Option<Int64Array> = weights;
    Ok(ChangeBatch {
        rows: batch_of(schema, output, taken.len())?,
        weights,
    })
}

/// How many rows a row's list makes by itself.
fn length(list: &ListArray, row: usize, null_handling: NullHandling) -> usize {
    let elements = if list.is_null(row) {
        0
    } else {
        list.value_length(row) as usize
    };
    match null_handling {
        NullHandling::PreserveAndExpandEmpty => elements.max(1),
        NullHandling::Preserve if list.is_null(row) => 1,
        NullHandling::Drop | NullHandling::Preserve => elements,
    }
}

/// For each output row the element at its position in its row's list, or NULL behind the end.
fn elements(list: &ListArray, rows: &[u32], positions: &[u32]) -> Result<ArrayRef> {
    let offsets = list.value_offsets();
    let indices: UInt64Array = rows
        .iter()
        .zip(positions)
        .map(|(row, position)| {
            let row = *row as usize;
            let index = offsets[row] as u64 + u64::from(*position);
            (!list.is_null(row) && index < offsets[row + 1] as u64).then_some(index)
        })
        .collect();
    take(list.values(), &indices, None).map_err(arrow_error)
}

fn as_list(array: &ArrayRef) -> Result<ListArray> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Ok(list.clone());
    }
    let element = match array.data_type() {
        DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => field.clone(),
        _ => std::sync::Arc::new(Field::new_list_field(DataType::Null, true)),
    };
    let list = arrow::compute::cast(array, &DataType::List(element)).map_err(arrow_error)?;
    Ok(list.as_list::<i32>().clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::RecordBatch;
    use arrow::datatypes::{Int64Type, Schema};

    use super::*;

    fn unnested(null_handling: NullHandling) -> Vec<(i64, Option<i64>, Option<i64>, i64)> {
        let id = Int64Array::from(vec![1, 2, 3, 4]);
        let a = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(10), None, Some(12)]),
            Some(vec![]),
            None,
            Some(vec![Some(40)]),
        ]);
        let b = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(7)]),
            Some(vec![]),
            None,
            Some(vec![Some(8), Some(9)]),
        ]);
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("a", a.data_type().clone(), true),
            Field::new("b", b.data_type().clone(), true),
        ]);
        let rows =
            RecordBatch::try_new(Arc::new(schema), vec![Arc::new(id), Arc::new(a), Arc::new(b)]).unwrap();
        let batch = ChangeBatch::new(rows, Some(Int64Array::from(vec![1, -1, 2, -3]))).unwrap();
        let output: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
        ]));
        let columns = [
            UnnestColumn::Kept(0),
            UnnestColumn::Elements(1),
            UnnestColumn::Elements(2),
        ];
        let result = unnest(&batch, &columns, null_handling, &output).unwrap();
        let column = |index: usize| result.rows.column(index).as_primitive::<Int64Type>().clone();
        let value = |array: &Int64Array, row: usize| array.is_valid(row).then(|| array.value(row));
        (0..result.num_rows())
            .map(|row| {
                (
                    column(0).value(row),
                    value(&column(1), row),
                    value(&column(2), row),
                    result.weight(row),
                )
            })
            .collect()
    }

    #[test]
    fn each_element_has_the_weight_of_its_row() {
        let rows = [
            (1, Some(10), Some(7), 1),
            (1, None, None, 1),
            (1, Some(12), None, 1),
            (4, Some(40), Some(8), -3),
            (4, None, Some(9), -3),
        ];
        assert_eq!(unnested(NullHandling::Drop), rows);
        let mut kept = rows.to_vec();
        kept.insert(3, (2, None, None, -1));
        kept.insert(4, (3, None, None, 2));
        assert_eq!(unnested(NullHandling::PreserveAndExpandEmpty), kept);
    }
}
