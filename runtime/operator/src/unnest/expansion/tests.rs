//! Expansions against rows made one by one, and how many are made at a time.

use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
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
    let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(id), Arc::new(a), Arc::new(b)]).unwrap();
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
