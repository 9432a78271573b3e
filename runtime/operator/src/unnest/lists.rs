//! Lists of rows: their lengths and elements, however they lie in memory, and texts that are cut into pieces as if they were lists.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field};
use datafusion::common::NullHandling;
use millrace_planner::stage::unnest::UnnestColumn;
use millrace_storage::ChangeBatch;

use crate::error::{OperatorError, Result};

/// The elements of all rows, one behind the other, and where those of each row end: if there is one list only, and no row in which it
/// is NULL, which may have elements that do not count.
pub(super) fn of_one_list(
    batch: &ChangeBatch,
    columns: &[UnnestColumn],
) -> Result<Option<(ArrayRef, OffsetBuffer<i32>)>> {
    let is_list = |column: &&UnnestColumn| !matches!(column, UnnestColumn::Kept(_));
    let mut lists = columns.iter().filter(is_list);
    Ok(match (lists.next(), lists.next()) {
        (Some(UnnestColumn::Pieces { column, delimiter }), None) => {
            Some(pieces(batch.rows.column(*column).as_string(), delimiter)?)
        }
        (Some(UnnestColumn::Elements(column)), None) => {
            let list = as_list(batch.rows.column(*column))?;
            let ends = list.offsets().clone();
            let (first, last) = (ends[0] as usize, ends[list.len()] as usize);
            (list.null_count() == 0).then(|| (list.values().slice(first, last - first), ends))
        }
        _ => None,
    })
}

/// What is before, between and behind the delimiters in each text; nothing, if it is empty or NULL.
pub(super) fn pieces(texts: &StringArray, delimiter: &str) -> Result<(ArrayRef, OffsetBuffer<i32>)> {
    let bytes = texts.value_offsets()[texts.len()] - texts.value_offsets()[0];
    let mut values = Vec::with_capacity(bytes as usize);
    // Of pieces in `values`, and of texts in pieces.
    let mut ends = vec![0];
    let mut ends_of_texts = Vec::with_capacity(texts.len() + 1);
    ends_of_texts.push(0);
    for text in texts {
        let text = text.unwrap_or_default();
        let mut add = |piece: &[u8]| {
            values.extend_from_slice(piece);
            ends.push(values.len() as i32);
        };
        match delimiter.as_bytes() {
            _ if text.is_empty() => {}
            [delimiter] => text.as_bytes().split(|byte| byte == delimiter).for_each(&mut add),
            _ => text.split(delimiter).for_each(|piece| add(piece.as_bytes())),
        }
        ends_of_texts.push(ends.len() as i32 - 1);
    }
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    let pieces = StringArray::try_new(ends, Buffer::from_vec(values), None)?;
    Ok((
        Arc::new(pieces),
        OffsetBuffer::new(ScalarBuffer::from(ends_of_texts)),
    ))
}

/// How many rows a row's list makes by itself.
pub(super) fn length(list: &ListArray, row: usize, null_handling: NullHandling) -> usize {
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
pub(super) fn elements(list: &ListArray, rows: &[u32], positions: &[u32]) -> Result<ArrayRef> {
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
    take(list.values(), &indices, None).map_err(OperatorError::from)
}

pub(super) fn as_list(array: &ArrayRef) -> Result<ListArray> {
    if let Some(list) = array.as_list_opt::<i32>() {
        return Ok(list.clone());
    }
    let element = match array.data_type() {
        DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => field.clone(),
        _ => Arc::new(Field::new_list_field(DataType::Null, true)),
    };
    let list = arrow::compute::cast(array, &DataType::List(element))?;
    Ok(list.as_list::<i32>().clone())
}
