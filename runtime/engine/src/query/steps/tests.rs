//! Projections and window functions that make wide rows: in which pieces, and what is refused.

use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::*;

const WIDE_BYTES: usize = COPIED_BYTES_MAX / 16;

/// `t (k, s)` with so many rows, the first of each ten wide.
fn context(pool_bytes: usize, rows: i64) -> SessionContext {
    let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(pool_bytes)));
    let config = SessionConfig::new().with_target_partitions(1);
    let context = SessionContext::new_with_config_rt(config, environment.build_arc().unwrap());
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let texts = (0..rows).map(|row| match row % 10 {
        0 => "x".repeat(WIDE_BYTES),
        _ => "y".into(),
    });
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let rows = RecordBatch::try_from_iter([("k", keys), ("s", texts)]).unwrap();
    context.register_batch("t", rows).unwrap();
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
    let plan = plan
        .transform_up(|node| {
            Ok(match stepped(&node)? {
                Some(node) => Transformed::yes(node),
                None => Transformed::no(node),
            })
        })
        .unwrap();
    assert!(plan.transformed, "{sql}");
    collect(plan.data, context.task_ctx()).await
}

/// The lengths of the texts of a column.
fn lengths(batches: &[RecordBatch], column: usize) -> Vec<i64> {
    let mut lengths = vec![];
    for batch in batches {
        let texts = cast(batch.column(column), &DataType::LargeUtf8).unwrap();
        let texts = texts.as_string::<i64>();
        lengths.extend(texts.iter().map(|text| text.map_or(-1, |text| text.len() as i64)));
    }
    lengths
}

#[tokio::test]
async fn a_projection_that_widens_rows_makes_a_few_megabytes_at_a_time() {
    let context = context(usize::MAX, 1_000);
    let sql = format!(
        "SELECT k, repeat(CAST(k % 10 AS VARCHAR), {}) AS wide FROM t",
        WIDE_BYTES / 4
    );
    let batches = run(&context, &sql).await.unwrap();
    let first = FIRST_ROWS * WIDE_BYTES / 4;
    assert!(
        batches
            .iter()
            .all(|batch| rows_bytes(batch) <= COPIED_BYTES_MAX.max(first) + 100_000)
    );
    assert_eq!(lengths(&batches, 1), vec![WIDE_BYTES as i64 / 4; 1_000]);
    let keys = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values());
    assert!(keys.copied().eq(0..1_000));
}

#[tokio::test]
async fn running_windows_make_a_few_megabytes_at_a_time() {
    let context = context(usize::MAX, 100);
    for (function, own) in [
        ("first_value(s)", None),
        ("max(s)", None),
        ("lag(s)", None),
        ("string_agg(s, ',')", Some(WIDE_BYTES)),
    ] {
        let sql = format!("SELECT k, {function} OVER (PARTITION BY k / 50 ORDER BY k) AS wide FROM t");
        let batches = run(&context, &sql).await.unwrap();
        let whole = context.sql(&sql).await.unwrap().collect().await.unwrap();
        assert_eq!(lengths(&batches, 1), lengths(&whole, 1), "{sql}");
        // What one step may add to a text that grows is not known before.
        let most = COPIED_BYTES_MAX + 16 * own.unwrap_or(0) + 100_000;
        for batch in &batches {
            let made: i64 = lengths(std::slice::from_ref(batch), 1).iter().sum();
            assert!(
                made <= most as i64,
                "{sql}: {made} bytes in {} rows",
                batch.num_rows()
            );
        }
    }
}

#[tokio::test]
async fn windows_that_need_all_rows_take_room_for_what_they_make() {
    let rows = 200;
    // The input has 20 texts of a megabyte.
    let context = context(320 * WIDE_BYTES, rows);
    for (frame, fits) in [
        ("PARTITION BY k / 5", true),
        ("", false),
        (
            "ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            false,
        ),
        // The rows of such frames are waited for as well.
        (
            "ORDER BY k ROWS BETWEEN 9000 PRECEDING AND 9223372036854775807 FOLLOWING",
            false,
        ),
        ("ORDER BY k RANGE BETWEEN 5 PRECEDING AND 9000 FOLLOWING", false),
    ] {
        for function in ["first_value(s)", "max(s)", "array_agg(k)", "count(s)"] {
            let sql = format!("SELECT k, {function} OVER ({frame}) AS wide FROM t");
            let outcome = run(&context, &sql).await;
            if fits || ["array_agg(k)", "count(s)"].contains(&function) {
                let rows: usize = outcome.unwrap().iter().map(RecordBatch::num_rows).sum();
                assert_eq!(rows, 200, "{sql}");
            } else {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("A window function"), "{sql}: {error}");
            }
        }
    }
}

/// Their values are made at once when the last row of their partition has come.
#[tokio::test]
async fn rows_that_wait_for_others_take_room_for_what_is_made_of_them() {
    let context = context(320 * WIDE_BYTES, 200);
    let default = "z".repeat(WIDE_BYTES);
    for (call, fits) in [
        (
            "first_value(s) OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING)".to_owned(),
            true,
        ),
        (
            "first_value(s) OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND 8000 FOLLOWING)".to_owned(),
            false,
        ),
        ("lead(s) OVER (ORDER BY k)".to_owned(), true),
        ("lag(s, 8000) OVER (ORDER BY k)".to_owned(), true),
        (format!("lead(s, 3, '{default}') OVER (ORDER BY k)"), true),
        (format!("lead(s, 8000, '{default}') OVER (ORDER BY k)"), false),
        (format!("lag(s, -9000, '{default}') OVER (ORDER BY k)"), false),
        (
            "lead(nullif(s, 'y')) IGNORE NULLS OVER (ORDER BY k)".to_owned(),
            false,
        ),
        (
            "lag(nullif(s, 'y')) IGNORE NULLS OVER (ORDER BY k)".to_owned(),
            true,
        ),
    ] {
        let outcome = run(&context, &format!("SELECT k, {call} AS wide FROM t")).await;
        let call: String = call.chars().take(90).collect();
        match outcome {
            Ok(batches) => {
                assert!(fits, "{call}");
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 200);
            }
            Err(error) => {
                assert!(!fits, "{call}: {error}");
                assert!(error.to_string().contains("A window function"), "{call}: {error}");
            }
        }
    }
}

/// A default is beside as many rows as there are.
#[tokio::test]
async fn a_wide_default_is_put_beside_a_few_rows_at_a_time() {
    let context = context(usize::MAX, 1_000);
    let default = "z".repeat(WIDE_BYTES);
    let sql = format!("SELECT k, lag('y', 2000, '{default}') OVER (ORDER BY k) AS wide FROM t");
    let batches = run(&context, &sql).await.unwrap();
    assert_eq!(lengths(&batches, 1), vec![WIDE_BYTES as i64; 1_000]);
    for batch in &batches {
        let made: i64 = lengths(std::slice::from_ref(batch), 1).iter().sum();
        assert!(made <= COPIED_BYTES_MAX as i64, "{made} bytes at once");
    }
}

#[tokio::test]
async fn what_windows_keep_of_their_input_is_charged_and_given_back() {
    let context = context(usize::MAX, 1_000);
    // Half of it would do for the input alone.
    let pool = Arc::clone(&context.task_ctx().runtime_env().memory_pool);
    let sql = "SELECT count(*) OVER () AS n, s FROM t";
    run(&context, sql).await.unwrap();
    assert_eq!(pool.reserved(), 0);
    let context = super::tests::context(50 * WIDE_BYTES, 1_000);
    let error = run(&context, sql).await.unwrap_err().to_string();
    assert!(error.contains("A window function"), "{error}");
}
