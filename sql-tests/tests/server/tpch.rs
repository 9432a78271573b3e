//! TPC-H at scale factor 0.01: the 22 queries as materialized views, refreshed by random inserts and deletes of orders.
//! After each refresh every view equals what plain DataFusion answers.
//!
//! `MILLRACE_SEED` is the seed.

use arrow::array::RecordBatch;
use millrace_oracle::rows::difference;
use millrace_planner::OnError;
use millrace_sql_tests::batch::Batch;
use millrace_sql_tests::engine::Engine;
use millrace_sql_tests::seed;
use millrace_sql_tests::tpch::{Tpch, queries};
use rand::SeedableRng;
use rand::rngs::StdRng;

const SCALE: f64 = 0.01;
const REFRESHES: usize = 5;
/// Orders that a refresh deletes or inserts.
const ORDERS: usize = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answers_after_every_refresh() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::start(directory.path(), 2).unwrap();
    let mut batch = Batch::new(engine.state(), 1);
    let mut tpch = Tpch::load(&engine, &mut batch, SCALE).await.unwrap();
    let mut views = vec![];
    for query in queries(SCALE).unwrap() {
        let planned = batch
            .plan(&query.query)
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", query.name));
        let id = engine
            .create_view(
                &mut tpch.relations,
                &query.name,
                &query.query,
                2,
                OnError::default(),
            )
            .await;
        let id = id.unwrap_or_else(|error| panic!("{}: {error}", query.name));
        views.push((query, planned, id));
    }
    let ids: Vec<_> = views.iter().map(|view| view.2).collect();
    let mut token = engine.runtime().acknowledged();
    let (mut empty, mut changed) = (vec![], 0);
    let mut before: Vec<Vec<RecordBatch>> = vec![];
    for refresh in 0..=REFRESHES {
        let snapshot = engine.snapshot(&ids, &token).await.unwrap();
        let mut shown = vec![];
        for id in &ids {
            shown.push(engine.read(&snapshot, *id).await.unwrap());
        }
        for ((query, planned, _), shown) in views.iter_mut().zip(&shown) {
            let expected = batch.run(planned).await.unwrap();
            if expected.iter().all(|rows| rows.num_rows() == 0) {
                empty.push(query.number);
            }
            if let Some(difference) = difference(shown, &expected).unwrap() {
                panic!("seed {seed}, refresh {refresh}, {}: {difference}", query.name);
            }
        }
        let moved = before
            .iter()
            .zip(&shown)
            .filter(|(before, shown)| difference(before, shown).unwrap().is_some());
        changed += moved.count();
        before = shown;
        let changes = tpch.refresh(&mut random, ORDERS).unwrap();
        token = engine.write(changes).await.unwrap();
        tpch.show(&batch).unwrap();
    }
    // So few rows leave some queries without an answer, and a refresh does not touch all of them; but most.
    empty.dedup();
    assert!(empty.len() <= 2 * (REFRESHES + 1), "no rows: {empty:?}");
    assert!(changed >= 8 * REFRESHES, "only {changed} views changed");
    engine.shutdown().await;
}
