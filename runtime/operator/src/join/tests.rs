//! Pairs of rows that are large: how many are made at a time.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type};
use futures::executor::block_on;
use futures::future::BoxFuture;
use millrace_planner::stage::exchange::Exchange;
use millrace_planner::stage::operator::Operator;
use millrace_storage::rows_bytes;

use super::*;
use millrace_state::width::COPIED_BYTES_MAX;

struct Open;

impl Gate for Open {
    fn checkpoint(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Texts and numbers by a key.
fn join(kind: JoinKind) -> JoinInstance {
    let side = |value: &str, of: DataType| {
        let fields = vec![
            Field::new("k", DataType::Int64, true),
            Field::new(value, of, true),
        ];
        Operator::Exchange(Exchange {
            stages: vec![],
            schema: Arc::new(Schema::new(fields)),
        })
    };
    let (left, right) = (side("text", DataType::Utf8), side("number", DataType::Int64));
    let fields = [left.schema(), right.schema()].into_iter();
    let fields: Vec<_> = fields
        .flat_map(|schema| schema.fields().iter().cloned())
        .collect();
    JoinInstance::new(&Join {
        left,
        right,
        left_width: 2,
        right_width: 2,
        kind,
        keys: vec![(0, 0)],
        null_equals_null: false,
        filter: None,
        left_append_only: false,
        right_append_only: false,
        left_key: None,
        right_key: None,
        left_closes: None,
        right_closes: None,
        schema: Arc::new(Schema::new(fields)),
    })
    .unwrap()
}

fn texts(rows: &[(i64, String)]) -> ChangeBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let texts = rows.iter().map(|row| row.1.as_str());
    let texts: ArrayRef = Arc::new(arrow::array::StringArray::from_iter_values(texts));
    ChangeBatch::insertions(RecordBatch::try_from_iter([("k", keys), ("text", texts)]).unwrap())
}

fn numbers(count: i64) -> ChangeBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..count).map(|_| 7)));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    ChangeBatch::insertions(RecordBatch::try_from_iter([("k", keys), ("number", numbers)]).unwrap())
}

/// One wide row among many narrow ones: what a row takes on average says nothing of its copies.
#[test]
fn copies_of_a_wide_row_among_narrow_ones_are_few_at_a_time() {
    let wide = COPIED_BYTES_MAX / 8;
    let mut rows: Vec<(i64, String)> = (0..1_000).map(|row| (100 + row, "narrow".to_owned())).collect();
    rows.push((7, "x".repeat(wide)));
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Full] {
        for wide_first in [true, false] {
            let mut join = join(kind);
            let mut sides = [(LEFT, texts(&rows)), (RIGHT, numbers(50))];
            if !wide_first {
                sides.reverse();
            }
            let errors = ErrorCounter::default();
            let mut output = vec![];
            for (side, batch) in sides {
                block_on(join.begin(false, &Open, &errors, &mut output)).unwrap();
                block_on(join.advance(side, vec![batch], &Open, &errors, &mut output)).unwrap();
            }
            let most = COPIED_BYTES_MAX + 100_000;
            assert!(
                output.iter().all(|batch| rows_bytes(&batch.rows) <= most),
                "{kind:?}"
            );
            let mut found: Vec<i64> = vec![];
            for batch in &output {
                let texts = batch.rows.column(1).as_string::<i32>();
                let numbers = batch.rows.column(3).as_primitive::<Int64Type>();
                let pairs =
                    (0..batch.num_rows()).filter(|row| numbers.is_valid(*row) && texts.is_valid(*row));
                found.extend(pairs.map(|row| {
                    assert_eq!(texts.value(row).len(), wide);
                    numbers.value(row)
                }));
            }
            found.sort_unstable();
            assert_eq!(found, (0..50).collect::<Vec<_>>(), "{kind:?}");
        }
    }
}
