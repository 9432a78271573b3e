//! Rows whose time comes while the engine is down: they are there, or gone, from the first read after the start.

use std::sync::Arc;

use arrow::array::{AsArray, Date32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millrace_planner::OnError;
use millrace_sql_tests::Failure;
use millrace_sql_tests::engine::{Engine, Relations, parse};
use millrace_storage::ChangeBatch;

const DAY: i64 = 86_400_000_000;
/// 2028-02-27.
const FIRST_DAY: i32 = 21_241;

/// What a view over days, and one that counts its rows, show after a start from a checkpoint of the first day, on the second day.
async fn rows_after_a_restart(condition: &str, partitions: usize) -> Result<(usize, i64), Failure> {
    let directory = tempfile::tempdir()?;
    let mut engine = Engine::start(directory.path(), 2)?;
    engine.keep_checkpoints();
    let first = i64::from(FIRST_DAY) * DAY;
    engine.restart_at(first).await?;
    let mut relations = Relations::default();
    let schema = Arc::new(Schema::new(vec![Field::new("day", DataType::Date32, false)]));
    let days = engine
        .create_source(&mut relations, "days", schema.clone(), None)
        .await?;
    let query = parse(&format!("SELECT day FROM days WHERE {condition}"))?;
    let view = engine
        .create_view(&mut relations, "v", &query, partitions, OnError::default())
        .await?;
    let query = parse("SELECT count(*) AS n FROM v")?;
    let counting = engine
        .create_view(&mut relations, "counting", &query, partitions, OnError::default())
        .await?;
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Date32Array::from(vec![FIRST_DAY]))])?;
    let written = engine.write(vec![(days, ChangeBatch::insertions(rows))]).await?;
    engine.snapshot(&[view, counting], &written).await?;
    engine.checkpoint().await;
    engine.advance_to(first + DAY + DAY / 3).await?;
    let (restored, filled) = engine.reopen().await?;
    assert_eq!((restored, filled), (2, vec![]));
    let snapshot = engine.snapshot(&[view, counting], &written).await?;
    let rows = engine.read(&snapshot, view).await?;
    let counted = engine.read(&snapshot, counting).await?;
    let counted: i64 = (counted.iter())
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().iter())
        .sum();
    engine.shutdown().await;
    Ok((rows.iter().map(RecordBatch::num_rows).sum(), counted))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_after_a_start_sees_what_time_has_changed_meanwhile() {
    for round in 0..8 {
        let partitions = 1 + round % 3;
        let entered = rows_after_a_restart("day < current_date", partitions).await;
        assert_eq!(entered.unwrap(), (1, 1), "round {round}");
        let left = rows_after_a_restart("day >= current_date", partitions).await;
        assert_eq!(left.unwrap(), (0, 0), "round {round}");
    }
}
