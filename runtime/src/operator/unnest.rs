//! UNNEST: a row once for each element of its lists, with its weight. Several lists of one row are read side by side, the
//! shorter ones continued with NULL. Where there is one list, its elements are put out as they lie in memory; where that list would
//! be a text cut into pieces, it is not made.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringArray, UInt32Array, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::common::NullHandling;
use millrace_planner::stage::UnnestColumn;
use millrace_storage::ChangeBatch;

use super::batch_of;
use crate::error::{Result, RuntimeError};
use crate::state::row_table::arrow_error;

/// The rows of a batch, unnested.
pub(super) fn unnest(
    batch: &ChangeBatch,
    columns: &[UnnestColumn],
    null_handling: NullHandling,
    schema: &SchemaRef,
) -> Result<ChangeBatch> {
    if null_handling == NullHandling::Drop
        && let Some((elements, ends)) = of_one_list(batch, columns)?
    {
        return put_out(batch, columns, &elements, &ends, schema);
    }
    let lists = columns
        .iter()
        .map(|column| match column {
            UnnestColumn::Elements(index) => as_list(batch.rows.column(*index)).map(Some),
            UnnestColumn::Kept(_) => Ok(None),
            UnnestColumn::Pieces { .. } => {
                Err(RuntimeError::Internal("a text is cut beside other lists".into()))
            }
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
            (_, Some(list)) => elements(list, taken.values(), &positions),
            (_, None) => Err(RuntimeError::Internal("a list was not looked at".into())),
        })
        .collect::<Result<Vec<ArrayRef>>>()?;
    Ok(ChangeBatch {
        rows: batch_of(schema, output, taken.len())?,
        weights: weights_at(batch, &taken)?,
    })
}

/// The weights of these rows.
fn weights_at(batch: &ChangeBatch, rows: &UInt32Array) -> Result<Option<Int64Array>> {
    let Some(weights) = &batch.weights else {
        return Ok(None);
    };
    let weights = take(weights, rows, None).map_err(arrow_error)?;
    Ok(Some(weights.as_primitive::<Int64Type>().clone()))
}

/// The elements of all rows, one behind the other, and where those of each row end: if there is one list only, and no row in which it
/// is NULL, which may have elements that do not count.
fn of_one_list(
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

/// Each row once for each of its elements, which are there already.
fn put_out(
    batch: &ChangeBatch,
    columns: &[UnnestColumn],
    elements: &ArrayRef,
    ends: &OffsetBuffer<i32>,
    schema: &SchemaRef,
) -> Result<ChangeBatch> {
    let is_kept = |column: &UnnestColumn| matches!(column, UnnestColumn::Kept(_));
    // Which row each element is of; where nothing else of it is needed, that is not looked at.
    let rows = match columns.iter().any(is_kept) || batch.weights.is_some() {
        true => ends
            .lengths()
            .enumerate()
            .flat_map(|(row, length)| std::iter::repeat_n(row as u32, length))
            .collect(),
        false => UInt32Array::from(Vec::<u32>::new()),
    };
    let output = columns.iter().map(|column| match column {
        UnnestColumn::Kept(index) => take(batch.rows.column(*index), &rows, None).map_err(arrow_error),
        _ => Ok(Arc::clone(elements)),
    });
    let output = output.collect::<Result<Vec<ArrayRef>>>()?;
    Ok(ChangeBatch {
        rows: batch_of(schema, output, elements.len())?,
        weights: weights_at(batch, &rows)?,
    })
}

/// What is before, between and behind the delimiters in each text; nothing, if it is empty or NULL.
fn pieces(texts: &StringArray, delimiter: &str) -> Result<(ArrayRef, OffsetBuffer<i32>)> {
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
    let pieces = StringArray::try_new(ends, Buffer::from_vec(values), None).map_err(arrow_error)?;
    Ok((
        Arc::new(pieces),
        OffsetBuffer::new(ScalarBuffer::from(ends_of_texts)),
    ))
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
        _ => Arc::new(Field::new_list_field(DataType::Null, true)),
    };
    let list = arrow::compute::cast(array, &DataType::List(element)).map_err(arrow_error)?;
    Ok(list.as_list::<i32>().clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use arrow::datatypes::Schema;

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

    /// One list, by itself: elements and ids, of a part of the rows.
    fn of_one(list: ArrayRef, column: UnnestColumn, part: std::ops::Range<usize>) -> Vec<(String, i64, i64)> {
        let id: Int64Array = (1..=list.len() as i64).collect();
        let weights: Int64Array = (1..=list.len() as i64).map(|id| -id).collect();
        let schema = Schema::new(vec![
            Field::new("list", list.data_type().clone(), true),
            Field::new("id", DataType::Int64, false),
        ]);
        let rows = RecordBatch::try_new(Arc::new(schema), vec![list, Arc::new(id)]).unwrap();
        let batch = ChangeBatch {
            rows: rows.slice(part.start, part.len()),
            weights: Some(weights.slice(part.start, part.len())),
        };
        let output: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("element", DataType::Utf8, true),
            Field::new("id", DataType::Int64, false),
        ]));
        let columns = [column, UnnestColumn::Kept(1)];
        let result = unnest(&batch, &columns, NullHandling::Drop, &output).unwrap();
        let ids = result.rows.column(1).as_primitive::<Int64Type>();
        let row = |row: usize| {
            let element = result.rows.column(0).as_string::<i32>().value(row);
            (element.to_owned(), ids.value(row), result.weight(row))
        };
        (0..result.num_rows()).map(row).collect()
    }

    #[test]
    fn texts_are_cut_where_they_are_and_as_lists() {
        let texts = [
            Some("not looked at"),
            Some("a b"),
            Some(""),
            None,
            Some(" c  "),
            Some("dé"),
            Some("- and--or -"),
            Some("nor this"),
        ];
        for delimiter in [" ", "--", "é", "--or -"] {
            let cut = |text: &'static str| -> Vec<&str> {
                match text {
                    "" => vec![],
                    text => text.split(delimiter).collect(),
                }
            };
            let expected: Vec<(String, i64, i64)> = texts[1..7]
                .iter()
                .zip(2..)
                .flat_map(|(text, id)| {
                    let pieces = cut(text.unwrap_or_default()).into_iter();
                    pieces.map(move |piece| (piece.to_owned(), id, -id))
                })
                .collect();
            let pieces = UnnestColumn::Pieces {
                column: 0,
                delimiter: delimiter.to_owned(),
            };
            let found = of_one(Arc::new(StringArray::from(texts.to_vec())), pieces, 1..7);
            assert_eq!(found, expected, "{delimiter:?}");
            // With NULL among the lists, and without.
            for part in [1..7, 4..7] {
                let mut lists = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
                for text in texts {
                    match text {
                        Some(text) => lists.append_value(cut(text).into_iter().map(Some)),
                        None => lists.append_null(),
                    }
                }
                let found = of_one(Arc::new(lists.finish()), UnnestColumn::Elements(0), part.clone());
                let expected = expected.iter().filter(|row| row.1 > part.start as i64);
                assert!(found.iter().eq(expected), "{delimiter:?}, {part:?}");
            }
        }
    }
}
