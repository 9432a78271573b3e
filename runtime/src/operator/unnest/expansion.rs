//! Rows with their lists, one row for each element: several lists of one row are read side by side, the shorter ones continued with
//! NULL. Where there is one list, its elements are put out as they lie in memory; where that list would be a text cut into pieces, it
//! is not made. An expansion is an iterator: it makes no more rows than are asked for (Faucet, section 4), and fewer where what is
//! kept of a row would be many copies of something large.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringArray, UInt32Array, UInt64Array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::common::NullHandling;
use millrace_planner::stage::UnnestColumn;
use millrace_storage::ChangeBatch;

use crate::error::{Result, RuntimeError};
use crate::operator::{CHUNK_ROWS, batch_of};
use crate::state::row_table::arrow_error;
use crate::state::width::{COPIED_BYTES_MAX, Widths};

/// Bytes of lists that are made at a time, unless those of one row are more.
const LIST_BYTES_STEP: usize = 4 << 20;

/// Of how many rows lists are computed at a time, so that the lists fit: from one row on, as long as they are small.
#[derive(Debug)]
pub(crate) struct ListSteps {
    rows: usize,
}

impl Default for ListSteps {
    fn default() -> Self {
        ListSteps { rows: 1 }
    }
}

impl ListSteps {
    /// The rows of the next step, of so many that are left.
    pub fn next(&self, left: usize) -> usize {
        self.rows.min(left)
    }

    /// So many rows' lists took so many bytes.
    pub fn made(&mut self, rows: usize, bytes: usize) {
        let row_bytes = bytes / rows.max(1) + 1;
        self.rows = (LIST_BYTES_STEP / row_bytes).min(8 * rows).clamp(1, CHUNK_ROWS);
    }
}

/// How far an expansion is: the elements of its rows that were not put out yet begin here.
#[derive(Debug, Default)]
struct At {
    row: usize,
    position: usize,
}

/// Some rows with all of their elements, or some elements of one row.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    rows: Range<usize>,
    positions: Range<usize>,
}

/// See the module.
pub(crate) struct Expansion {
    batch: ChangeBatch,
    lists: Lists,
    /// By row: how many rows it makes.
    lengths: Vec<usize>,
    /// Of what is kept.
    kept: Widths,
    at: At,
}

enum Lists {
    /// The elements of all rows, one behind the other.
    One { elements: ArrayRef, starts: Vec<usize> },
    /// By column of the output.
    Several(Vec<Option<ListArray>>),
}

impl Expansion {
    /// Of rows with these lists, and what is kept of the rows.
    ///
    /// # Errors
    /// A column is no list.
    pub fn of(batch: ChangeBatch, columns: &[UnnestColumn], null_handling: NullHandling) -> Result<Self> {
        let is_kept = columns.iter().filter_map(|column| match column {
            UnnestColumn::Kept(index) => Some(*index),
            _ => None,
        });
        let kept = Widths::of(&batch.rows.schema(), is_kept);
        if null_handling == NullHandling::Drop
            && let Some((elements, ends)) = of_one_list(&batch, columns)?
        {
            let first = ends[0];
            return Ok(Expansion {
                batch,
                lengths: ends.lengths().collect(),
                lists: Lists::One {
                    elements,
                    starts: ends.iter().map(|end| (end - first) as usize).collect(),
                },
                kept,
                at: At::default(),
            });
        }
        let lists = columns
            .iter()
            .map(|column| match column {
                UnnestColumn::Elements(index) => as_list(batch.rows.column(*index)).map(Some),
                UnnestColumn::Kept(_) => Ok(None),
                UnnestColumn::Pieces { .. } => Err(RuntimeError::Internal(
                    "a text is split next to other lists".into(),
                )),
            })
            .collect::<Result<Vec<Option<ListArray>>>>()?;
        let longest = |row: usize| {
            let lengths = lists.iter().flatten();
            let lengths = lengths.map(|list| length(list, row, null_handling));
            lengths.max().unwrap_or(0)
        };
        Ok(Expansion {
            lengths: (0..batch.num_rows()).map(longest).collect(),
            batch,
            lists: Lists::Several(lists),
            kept,
            at: At::default(),
        })
    }

    /// The next rows, so many at most; there may be none in a batch of them. `columns` as they were given at the beginning.
    ///
    /// # Errors
    /// The rows do not fit the schema.
    pub fn next(
        &mut self,
        columns: &[UnnestColumn],
        schema: &SchemaRef,
        rows_max: usize,
    ) -> Result<Option<ChangeBatch>> {
        let piece = self.next_piece(rows_max);
        piece.map(|piece| self.rows(piece, columns, schema)).transpose()
    }

    /// What makes the next rows, so many at most.
    fn next_piece(&mut self, rows_max: usize) -> Option<Piece> {
        let At { row, position: from } = self.at;
        let length = *self.lengths.get(row)?;
        let copied = |row: usize| self.kept.row_bytes(&self.batch.rows, row);
        let fit = rows_max.min(COPIED_BYTES_MAX / copied(row)).max(1);
        if length > fit {
            let to = length.min(from + fit);
            self.at = match to == length {
                true => At {
                    row: row + 1,
                    position: 0,
                },
                false => At { row, position: to },
            };
            return Some(Piece {
                rows: row..row + 1,
                positions: from..to,
            });
        }
        let (mut made, mut bytes, mut end) = (0, 0, row);
        while let Some(length) = self.lengths.get(end) {
            let copies = length.saturating_mul(copied(end));
            if made + length > rows_max || (end > row && bytes + copies > COPIED_BYTES_MAX) {
                break;
            }
            (made, bytes, end) = (made + length, bytes + copies, end + 1);
        }
        self.at.row = end;
        Some(Piece {
            rows: row..end,
            positions: 0..rows_max,
        })
    }

    /// The rows that a piece makes.
    fn rows(&self, piece: Piece, columns: &[UnnestColumn], schema: &SchemaRef) -> Result<ChangeBatch> {
        let Piece { rows, positions } = piece;
        let positions_of = |row: usize| positions.start..self.lengths[row].min(positions.end);
        let made = rows.clone().map(|row| positions_of(row).len()).sum::<usize>();
        // Which row each element is of; where nothing else of it is needed, that is not looked at.
        let is_kept = |column: &UnnestColumn| matches!(column, UnnestColumn::Kept(_));
        let is_needed = self.batch.weights.is_some()
            || columns.iter().any(is_kept)
            || matches!(self.lists, Lists::Several(_));
        let taken: UInt32Array = match is_needed {
            true => (rows.clone())
                .flat_map(|row| std::iter::repeat_n(row as u32, positions_of(row).len()))
                .collect(),
            false => UInt32Array::from(Vec::<u32>::new()),
        };
        let positions: Vec<u32> = match &self.lists {
            Lists::Several(_) => (rows.clone())
                .flat_map(|row| positions_of(row).map(|position| position as u32))
                .collect(),
            Lists::One { .. } => vec![],
        };
        let column = |(number, column): (usize, &UnnestColumn)| match (column, &self.lists) {
            (UnnestColumn::Kept(index), _) => {
                take(self.batch.rows.column(*index), &taken, None).map_err(arrow_error)
            }
            (_, Lists::One { elements, starts }) => {
                let first = positions_of(rows.start).start;
                Ok(elements.slice(starts[rows.start] + first, made))
            }
            (_, Lists::Several(lists)) => match &lists[number] {
                Some(list) => self::elements(list, taken.values(), &positions),
                None => Err(RuntimeError::Internal("a list was not looked at".into())),
            },
        };
        let output = columns.iter().enumerate().map(column);
        let output = output.collect::<Result<Vec<ArrayRef>>>()?;
        Ok(ChangeBatch {
            rows: batch_of(schema, output, made)?,
            weights: weights_at(&self.batch, &taken)?,
        })
    }
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
    use millrace_storage::rows_bytes;

    use super::*;

    /// All rows of a batch, unnested so many at a time.
    fn unnest(
        batch: &ChangeBatch,
        columns: &[UnnestColumn],
        null_handling: NullHandling,
        schema: &SchemaRef,
        rows_max: usize,
    ) -> ChangeBatch {
        let mut expansion = Expansion::of(batch.clone(), columns, null_handling).unwrap();
        let mut pieces = vec![];
        while let Some(rows) = expansion.next(columns, schema, rows_max).unwrap() {
            assert!(rows.num_rows() <= rows_max);
            pieces.push(rows);
        }
        ChangeBatch::concat(&pieces).unwrap()
    }

    fn unnested(null_handling: NullHandling, rows_max: usize) -> Vec<(i64, Option<i64>, Option<i64>, i64)> {
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
        let result = unnest(&batch, &columns, null_handling, &output, rows_max);
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
        let mut kept = rows.to_vec();
        kept.insert(3, (2, None, None, -1));
        kept.insert(4, (3, None, None, 2));
        for rows_max in [1, 2, 3, 4, 100] {
            assert_eq!(unnested(NullHandling::Drop, rows_max), rows);
            assert_eq!(
                unnested(NullHandling::PreserveAndExpandEmpty, rows_max),
                kept,
                "{rows_max} at a time"
            );
        }
    }

    /// Copies of something large come a few at a time; what is small beside it does not suffer.
    #[test]
    fn copies_of_a_large_value_are_few_at_a_time() {
        let large = "x".repeat(COPIED_BYTES_MAX / 8);
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", &large, "b", "c"]));
        let hundred = || Some((0..100).map(Some).collect::<Vec<_>>());
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
            hundred(),
            hundred(),
            hundred(),
            hundred(),
        ]));
        let rows = RecordBatch::try_from_iter([("text", texts), ("list", lists)]).unwrap();
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("text", DataType::Utf8, true),
            Field::new("element", DataType::Int64, true),
        ]));
        let columns = [UnnestColumn::Kept(0), UnnestColumn::Elements(1)];
        let batch = ChangeBatch::insertions(rows);
        let mut expansion = Expansion::of(batch, &columns, NullHandling::Drop).unwrap();
        let mut pieces = vec![];
        while let Some(rows) = expansion.next(&columns, &schema, 1_000).unwrap() {
            assert!(rows_bytes(&rows.rows) <= COPIED_BYTES_MAX + 1_000 * 16);
            pieces.push(rows.num_rows());
        }
        let of_large = std::iter::repeat_n(8, 12).chain([4]);
        let expected: Vec<usize> = std::iter::once(100).chain(of_large).chain([200]).collect();
        assert_eq!(pieces, expected);
    }

    /// One list, by itself: elements and ids, of a part of the rows.
    fn of_one(
        list: ArrayRef,
        column: UnnestColumn,
        part: std::ops::Range<usize>,
        rows_max: usize,
    ) -> Vec<(String, i64, i64)> {
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
        let result = unnest(&batch, &columns, NullHandling::Drop, &output, rows_max);
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
            for rows_max in [1, 2, 100] {
                let texts = Arc::new(StringArray::from(texts.to_vec()));
                let found = of_one(texts, pieces.clone(), 1..7, rows_max);
                assert_eq!(found, expected, "{delimiter:?}, {rows_max} at a time");
            }
            // With NULL among the lists, and without.
            for part in [1..7, 4..7] {
                let mut lists = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
                for text in texts {
                    match text {
                        Some(text) => lists.append_value(cut(text).into_iter().map(Some)),
                        None => lists.append_null(),
                    }
                }
                let found = of_one(
                    Arc::new(lists.finish()),
                    UnnestColumn::Elements(0),
                    part.clone(),
                    3,
                );
                let expected = expected.iter().filter(|row| row.1 > part.start as i64);
                assert!(found.iter().eq(expected), "{delimiter:?}, {part:?}");
            }
        }
    }
}
