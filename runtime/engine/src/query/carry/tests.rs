//! Joins of a few wide rows with many: what they emit, in which pieces, and what is refused.

use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use millrace_storage::rows_bytes;

use super::*;

const WIDE_BYTES: usize = COPIED_BYTES_MAX / 16;
const ROWS: i64 = 100;

/// `wide (k, s)` with one row, and `narrow (k, i)` with a hundred of the same key.
fn context(pool_bytes: usize) -> SessionContext {
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(pool_bytes)));
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config_rt(config, environment.build_arc().unwrap());
    let key = |rows: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..rows).map(|_| 7))) };
    let wide: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(WIDE_BYTES)]));
    let numbers = Some((0..WIDE_BYTES as i32 / 4).map(Some));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([numbers]));
    let wide = RecordBatch::try_from_iter([("k", key(1)), ("s", wide), ("l", lists)]).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let narrow = RecordBatch::try_from_iter([("k", key(ROWS)), ("i", numbers)]).unwrap();
    context.register_batch("wide", wide).unwrap();
    context.register_batch("narrow", narrow).unwrap();
    context
}

async fn run(context: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>> {
    let plan = context
        .sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    let schema = plan.schema();
    let carried = plan
        .transform_up(|node| {
            Ok(match carried(&node)? {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(node),
            })
        })
        .unwrap();
    assert!(carried.transformed, "{sql}");
    let batches = collect(carried.data, context.task_ctx()).await?;
    assert!(batches.iter().all(|batch| batch.schema() == schema), "{sql}");
    Ok(batches)
}

#[tokio::test]
async fn copies_of_a_wide_row_are_made_a_few_at_a_time() {
    let context = context(usize::MAX);
    for sql in [
        "SELECT i, s FROM wide JOIN narrow ON wide.k = narrow.k",
        "SELECT i, s FROM narrow LEFT JOIN wide ON wide.k = narrow.k",
        "SELECT i, s FROM wide FULL JOIN narrow ON wide.k = narrow.k",
        "SELECT i, s FROM wide CROSS JOIN narrow",
        "SELECT i, s FROM wide JOIN narrow ON wide.k <= narrow.i + 7",
        "SELECT i, s FROM narrow LEFT JOIN wide ON wide.k <= narrow.i + 7",
    ] {
        let batches = run(&context, sql).await.unwrap();
        let mut found: Vec<i64> = vec![];
        for batch in &batches {
            assert!(rows_bytes(batch) <= COPIED_BYTES_MAX + 1_000, "{sql}");
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            found.extend(numbers.values().iter());
            let texts = batch.column(1).as_string::<i32>();
            assert!(
                texts.iter().all(|text| text.unwrap().len() == WIDE_BYTES),
                "{sql}"
            );
        }
        found.sort_unstable();
        assert_eq!(found, (0..ROWS).collect::<Vec<_>>(), "{sql}");
    }
}

#[tokio::test]
async fn a_limit_makes_no_more_copies_than_it_takes() {
    let context = context(usize::MAX);
    let batches = run(&context, "SELECT s FROM wide CROSS JOIN narrow LIMIT 3")
        .await
        .unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
}

#[tokio::test]
async fn what_a_join_copies_by_itself_has_room_first_or_is_refused() {
    for (sql, copies) in [
        (
            "SELECT i FROM wide JOIN narrow ON wide.k = narrow.k AND wide.s > arrow_cast(narrow.i, 'Utf8')",
            8_192,
        ),
        (
            "SELECT i FROM wide JOIN narrow ON wide.s > arrow_cast(narrow.i, 'Utf8')",
            8_192,
        ),
        ("SELECT i, l FROM wide CROSS JOIN narrow", 1_024),
        ("SELECT i, l FROM wide JOIN narrow ON wide.k = narrow.k", 1_024),
    ] {
        let enough = context(WIDE_BYTES * (copies + 200));
        let batches = run(&enough, sql).await.unwrap();
        let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(rows, ROWS as usize, "{sql}");
        let error = run(&context(WIDE_BYTES * (copies - 24)), sql).await.unwrap_err();
        let message = error.to_string();
        assert!(
            matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)),
            "{sql}: {message}"
        );
        assert!(
            message.contains("Copies of wide rows in a join"),
            "{sql}: {message}"
        );
    }
}

#[test]
fn parts_of_large_buffers_are_made_compact() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![
        "a long text that is not inside its view";
        100
    ]));
    let few = texts.slice(40, 3);
    let of_own = compact(&few);
    assert_eq!(&of_own, &few);
    assert!(of_own.as_string::<i32>().values().len() < texts.as_string::<i32>().values().len() / 10);
    let most = texts.slice(0, 90);
    assert_eq!(
        compact(&most).as_string::<i32>().values().len(),
        texts.as_string::<i32>().values().len()
    );
}

#[tokio::test]
async fn rows_without_columns_are_counted_where_a_join_collects_them() {
    let context = context(usize::MAX);
    let sql = "SELECT count(*) FROM narrow a CROSS JOIN narrow b CROSS JOIN narrow c WHERE a.i < 10";
    let batches = run(&context, sql).await.unwrap();
    assert_eq!(
        batches[0].column(0).as_primitive::<Int64Type>().values(),
        &[10 * ROWS * ROWS]
    );
    let empty = "SELECT count(*) FROM narrow a CROSS JOIN narrow b CROSS JOIN narrow c WHERE a.i < 0";
    let batches = run(&context, empty).await.unwrap();
    assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().values(), &[0]);

    // What a join collects is one batch.
    let rows = context
        .sql("SELECT FROM narrow a CROSS JOIN narrow b")
        .await
        .unwrap();
    let rows = rows.create_physical_plan().await.unwrap();
    assert!(rows.schema().fields().is_empty());
    let counted = collect(Wrapped::around(&rows, Counted), context.task_ctx())
        .await
        .unwrap();
    let sizes: Vec<usize> = counted.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(sizes, [(ROWS * ROWS) as usize]);
}
