//! Views made while writers run: other views go on, and the new one is right from its first epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::Relations;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_engine::{
    BackfillOptions, JobState, Runtime, RuntimeError, RuntimeOptions, SourceKind, SourceSpec, ViewSpec,
    WriteToken,
};
use millrace_planner::query::physical_optimizer_rules;
use millrace_planner::{Binder, RelationId, RelationInfo, RelationKind, StageGraph, ViewOptions, plan_view};
use millrace_storage::{ChangeBatch, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const S: RelationId = RelationId(1);
const T: RelationId = RelationId(2);
const U: RelationId = RelationId(3);
/// A view over `t` that is there from the start.
const OLD: RelationId = RelationId(10);
const OLD_SQL: &str = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k";

/// Pieces so small that every back-fill has many.
const SMALL: BackfillOptions = BackfillOptions {
    piece_rows: 7,
    rows_per_second: None,
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

type Row = (i64, i64, i64);

fn batch(rows: &[(Row, i64)]) -> ChangeBatch {
    let column = |value: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(
            rows.iter().map(|(row, _)| value(row)),
        ))
    };
    let columns = vec![column(|row| row.0), column(|row| row.1), column(|row| row.2)];
    let rows_only = RecordBatch::try_new(schema(), columns).unwrap();
    if rows.iter().all(|(_, weight)| *weight == 1) {
        return ChangeBatch::insertions(rows_only);
    }
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, weight)| *weight));
    ChangeBatch::new(rows_only, Some(weights)).unwrap()
}

struct Fixture {
    runtime: Runtime,
    relations: Relations,
    context: SessionContext,
    _store: Store,
    _directory: tempfile::TempDir,
}

fn context() -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_physical_optimizer_rules(physical_optimizer_rules())
        .build();
    SessionContext::new_with_state(state)
}

impl Fixture {
    /// Stream `s`, tables `t` and `u`, with so many rows each, and the view `old`.
    async fn new(rows: i64) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let runtime = Runtime::start(RuntimeOptions::new(2), Arc::clone(store.logs())).unwrap();
        let mut relations = Relations::default();
        for (id, name, is_stream) in [(S, "s", true), (T, "t", false), (U, "u", false)] {
            store.logs().create(id.0, schema()).unwrap();
            let kind = match is_stream {
                true => SourceKind::Stream { event_time: None },
                false => SourceKind::Table { key: vec![0] },
            };
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: schema(),
                kind,
            };
            runtime.create_source(spec).await.unwrap();
            let info = RelationInfo {
                id,
                name: name.into(),
                kind: if is_stream {
                    RelationKind::Stream
                } else {
                    RelationKind::Table
                },
                schema: schema(),
                key: (!is_stream).then(|| vec![0]),
                append_only: is_stream,
                watermarks: vec![],
            };
            relations.0.insert(name.into(), info);
            let all: Vec<(Row, i64)> = (0..rows).map(|id| ((id, id % 5, id % 11), 1)).collect();
            let locks = runtime.lock_tables(&[id]).await.unwrap();
            runtime
                .append(vec![(id, batch(&all))], Some(&locks))
                .await
                .unwrap();
        }
        let mut fixture = Fixture {
            runtime,
            relations,
            context: context(),
            _store: store,
            _directory: directory,
        };
        let spec = fixture.plan(OLD, "old", OLD_SQL);
        fixture.runtime.create_view(spec).await.unwrap();
        fixture
    }

    /// Plans a view, which later ones may read.
    fn plan(&mut self, id: RelationId, name: &str, sql: &str) -> ViewSpec {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let state = self.context.state();
        let plan = Binder::new(&state, &self.relations)
            .statement(&statement)
            .unwrap();
        let graph: StageGraph = plan_view(&state, plan, ViewOptions::new(3)).unwrap();
        let info = RelationInfo {
            id,
            name: name.into(),
            kind: RelationKind::View,
            schema: Arc::clone(&graph.schema),
            key: graph.key.clone(),
            append_only: graph.append_only,
            watermarks: vec![],
        };
        self.relations.0.insert(name.into(), info);
        ViewSpec {
            id,
            name: name.into(),
            graph,
            definition: None,
        }
    }

    /// At one epoch, the view holds what its query answers over the others.
    async fn check(&self, view: RelationId, sql: &str) {
        let mut ids = vec![view, S, T, U, OLD];
        ids.dedup();
        let snapshot = self.runtime.snapshot(&ids, None).await.unwrap();
        let context = context();
        for (name, id) in [("s", S), ("t", T), ("u", U), ("old", OLD), ("the_view", view)] {
            let provider = snapshot.table_provider(id).unwrap();
            context.register_table(name, provider).unwrap();
        }
        let found = rows(&context, "SELECT * FROM the_view").await;
        assert_eq!(found, rows(&context, sql).await, "{sql}");
    }
}

async fn rows(context: &SessionContext, sql: &str) -> Vec<String> {
    let plan = context
        .sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let mut rows = vec![];
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| arrow::util::display::array_value_to_string(column, row).unwrap();
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    rows
}

/// Changes `s`, `t` and `u` at random until it is told to stop: inserts, updates, deletes, and all three in one write.
async fn write(runtime: Runtime, seed: u64, stop: Arc<AtomicBool>) -> WriteToken {
    let mut random = StdRng::seed_from_u64(seed);
    let mut after = WriteToken::default();
    let start: BTreeMap<i64, Row> = (0..300).map(|id| (id, (id, id % 5, id % 11))).collect();
    let mut tables = [(T, start.clone()), (U, start)];
    while !stop.load(Ordering::Acquire) {
        let mut changes = vec![];
        for (id, model) in &mut tables {
            let mut rows: Vec<(Row, i64)> = vec![];
            for _ in 0..random.random_range(0..6) {
                let key = random.random_range(0..350);
                if rows.iter().any(|(row, _)| row.0 == key) {
                    continue;
                }
                if let Some(old) = model.remove(&key) {
                    rows.push((old, -1));
                }
                if random.random_bool(0.8) {
                    let row = (key, random.random_range(0..5), random.random_range(0..11));
                    model.insert(key, row);
                    rows.push((row, 1));
                }
            }
            if !rows.is_empty() {
                changes.push((*id, batch(&rows)));
            }
        }
        if random.random_bool(0.5) {
            let row = (random.random_range(0..9), random.random_range(0..5), 1);
            changes.push((S, batch(&[(row, 1)])));
        }
        let locks = runtime.lock_tables(&[T, U]).await.unwrap();
        after.merge(&runtime.append(changes, Some(&locks)).await.unwrap());
    }
    after
}

const QUERIES: &[&str] = &[
    "SELECT id, v FROM t WHERE v > 3",
    "SELECT k, v FROM s",
    "SELECT k, count(*) AS n, max(v) AS hi FROM s GROUP BY k",
    "SELECT t.id, u.v FROM t JOIN u ON t.id = u.id",
    "SELECT t.id, u.v FROM t LEFT JOIN u ON t.id = u.id AND u.v > 5",
    "SELECT s.id, u.v FROM s JOIN u ON s.id = u.id",
    "SELECT n, count(*) AS groups FROM old GROUP BY n",
    "SELECT t.id, old.total FROM t JOIN old ON t.k = old.k",
    "SELECT a.id FROM t a WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = a.k AND u.v > a.v)",
    "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5",
];

/// All the views at once, over relations that change all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn views_made_while_writers_run_are_right() {
    let mut fixture = Fixture::new(300).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(fixture.runtime.clone(), 1, Arc::clone(&stop)));
    let mut making = vec![];
    for (number, sql) in QUERIES.iter().enumerate() {
        let id = RelationId(100 + number as u64);
        let spec = fixture.plan(id, &format!("v{number}"), sql);
        let runtime = fixture.runtime.clone();
        making.push((
            id,
            sql,
            tokio::spawn(async move { runtime.create_views(vec![spec], SMALL).await }),
        ));
    }
    for (id, sql, making) in making {
        making.await.unwrap().unwrap();
        // Right when it is made, with the writer still running.
        fixture.check(id, sql).await;
    }
    stop.store(true, Ordering::Release);
    let after = writer.await.unwrap();
    fixture.runtime.wait_for(&after).await.unwrap();
    for (number, sql) in QUERIES.iter().enumerate() {
        fixture.check(RelationId(100 + number as u64), sql).await;
    }
    assert!(fixture.runtime.jobs().is_empty());
    fixture.runtime.shutdown().await;
}

/// A back-fill that would take days does not keep other views of its pipeline from their epochs, nor their readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_views_go_on_during_a_back_fill() {
    let mut fixture = Fixture::new(300).await;
    let spec = fixture.plan(
        RelationId(100),
        "slow",
        "SELECT t.id FROM t JOIN u ON t.id = u.id",
    );
    let runtime = fixture.runtime.clone();
    let slowly = BackfillOptions {
        piece_rows: 1,
        rows_per_second: Some(1),
    };
    let job = tokio::spawn(async move { runtime.create_views(vec![spec], slowly).await });
    let mut progress = vec![];
    while progress.is_empty() {
        tokio::task::yield_now().await;
        progress = fixture.runtime.jobs();
    }
    assert_eq!(progress[0].state, JobState::Filling);
    let before = fixture.runtime.epochs_total();
    for round in 0..5 {
        let locks = fixture.runtime.lock_tables(&[T]).await.unwrap();
        let change = batch(&[((1000 + round, 1, 1), 1)]);
        let written = fixture
            .runtime
            .append(vec![(T, change)], Some(&locks))
            .await
            .unwrap();
        fixture.runtime.wait_for(&written).await.unwrap();
        fixture.check(OLD, OLD_SQL).await;
    }
    assert!(fixture.runtime.epochs_total() >= before + 5);
    assert_eq!(fixture.runtime.jobs().len(), 1, "the back-fill is not done");

    // Given up, it leaves nothing, and the same view can be made.
    job.abort();
    assert!(job.await.unwrap_err().is_cancelled());
    assert!(fixture.runtime.jobs().is_empty());
    assert!(fixture.runtime.rows(RelationId(100)).is_none());
    let sql = "SELECT t.id FROM t JOIN u ON t.id = u.id";
    let spec = fixture.plan(RelationId(101), "fast", sql);
    fixture.runtime.create_view(spec).await.unwrap();
    fixture.check(RelationId(101), sql).await;
    fixture.runtime.shutdown().await;
}

/// Views that read each other are made together, at one epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn views_over_each_other_are_made_together() {
    let mut fixture = Fixture::new(300).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(fixture.runtime.clone(), 2, Arc::clone(&stop)));
    let joined = "SELECT t.k AS k, u.v AS v FROM t JOIN u ON t.id = u.id";
    let first = fixture.plan(RelationId(100), "joined", joined);
    let second = fixture.plan(
        RelationId(101),
        "sums",
        "SELECT k, sum(v) AS total, count(*) AS n FROM joined GROUP BY k",
    );
    fixture
        .runtime
        .create_views(vec![first, second], SMALL)
        .await
        .unwrap();
    fixture.check(RelationId(100), joined).await;
    let sums = format!("SELECT k, sum(v) AS total, count(*) AS n FROM ({joined}) j GROUP BY k");
    fixture.check(RelationId(101), &sums).await;
    stop.store(true, Ordering::Release);
    let after = writer.await.unwrap();
    fixture.runtime.wait_for(&after).await.unwrap();
    fixture.check(RelationId(101), &sums).await;
    fixture.runtime.shutdown().await;
}

/// An input that is dropped during the back-fill ends it, and the rest goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_an_input_ends_the_back_fill() {
    let mut fixture = Fixture::new(300).await;
    let spec = fixture.plan(
        RelationId(100),
        "slow",
        "SELECT old.n, u.id FROM u JOIN old ON u.k = old.k",
    );
    let runtime = fixture.runtime.clone();
    let slowly = BackfillOptions {
        piece_rows: 1,
        rows_per_second: Some(1_000),
    };
    let job = tokio::spawn(async move { runtime.create_views(vec![spec], slowly).await });
    while fixture.runtime.jobs().is_empty() {
        tokio::task::yield_now().await;
    }
    fixture.runtime.drop_relations(&[OLD]).await.unwrap();
    let error = job.await.unwrap().unwrap_err();
    assert!(matches!(error, RuntimeError::UnknownRelation(OLD)), "{error}");
    assert!(fixture.runtime.jobs().is_empty());
    fixture.runtime.shutdown().await;
}
