//! The batch oracle: after random changes every view equals what plain DataFusion answers for the same query over the
//! same rows. Seeds are printed with a failure; `MILLRACE_ORACLE_CASES` sets how many are tried, `MILLRACE_SEED` the
//! first.

mod aggregates;
mod flow;
mod hosts;
mod relational;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Relations;
use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::TryStreamExt;
use millrace_engine::{QueryOptions, Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewSpec};
use millrace_oracle::plain::{Plain, config};
use millrace_oracle::rows::difference;
use millrace_oracle::{cases, seed};
use millrace_planner::query::physical_optimizer_rules;
use millrace_planner::{Binder, PlanError, RelationId, RelationInfo, RelationKind, ViewOptions, plan_view};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::{ChangeBatch, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Queries that a view can be; all over stream `s` and tables `t`, `u`.
const QUERIES: &[&str] = &[
    "SELECT * FROM t",
    "SELECT id, v * 2 AS w, name FROM t WHERE v > 3",
    "SELECT k, v FROM s WHERE v IS NOT NULL",
    "SELECT k, count(*) AS n, count(v) AS m, sum(v) AS total, avg(v) AS mean FROM s GROUP BY k",
    "SELECT k, min(v) AS lo, max(v) AS hi, max(name) AS last FROM s GROUP BY k",
    "SELECT k, count(*) AS n, sum(v) AS total, min(v) AS lo, max(name) AS hi FROM t GROUP BY k",
    "SELECT count(*) AS n, sum(v) AS total, min(f) AS lo, max(d) AS hi, sum(d) AS money, avg(d) AS mean FROM t",
    "SELECT count(*) AS n, sum(v) AS total FROM s WHERE k = 77",
    "SELECT k, avg(f) AS mean, sum(f) AS total, stddev(f) AS sd, var_pop(f) AS var FROM t GROUP BY k",
    "SELECT k, count(DISTINCT v) AS n, sum(DISTINCT v) AS total, count(DISTINCT name) AS names FROM t GROUP BY k",
    "SELECT k, bool_and(b) AS every, bool_or(b) AS some, count(*) FILTER (WHERE b) AS yes FROM t GROUP BY k",
    "SELECT k, first_value(v ORDER BY id) AS first, last_value(v ORDER BY id) AS last FROM t GROUP BY k",
    "SELECT k, median(v) AS middle, string_agg(name, ',' ORDER BY id) AS names FROM t GROUP BY k",
    "SELECT DISTINCT k, name FROM t",
    "SELECT DISTINCT name FROM s",
    "SELECT k % 2 AS odd, sum(v + 1) AS total FROM t GROUP BY k % 2 HAVING count(*) > 2",
    "SELECT t.id, t.k, u.label FROM t JOIN u ON t.k = u.k",
    "SELECT s.name, u.label, s.v FROM s JOIN u ON s.k = u.k WHERE s.v > 2",
    "SELECT u.label, count(*) AS n, sum(s.v) AS total FROM s JOIN u ON s.k = u.k GROUP BY u.label",
    "SELECT a.id AS a, b.id AS b FROM t a JOIN t b ON a.k = b.k AND a.id < b.id",
    "SELECT t.id, u.k FROM t CROSS JOIN u WHERE t.v < u.k",
    "SELECT t.id, u.label FROM t LEFT JOIN u ON t.k = u.k",
    "SELECT t.id, u.k, u.label FROM t RIGHT JOIN u ON t.k = u.k AND t.v > 2",
    "SELECT t.id, t.k, u.k AS uk, u.label FROM t FULL JOIN u ON t.k = u.k",
    "SELECT s.name, u.label FROM s LEFT JOIN u ON s.k = u.k AND s.v < u.k",
    "SELECT u.k, count(t.id) AS n FROM u LEFT JOIN t ON t.k = u.k GROUP BY u.k",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.v > t.v)",
    "SELECT k, label FROM u WHERE k IN (SELECT k FROM s)",
    "SELECT id FROM t WHERE v > 5 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    "SELECT id, v FROM t WHERE v > (SELECT avg(v) FROM s)",
    "SELECT id FROM t WHERE v >= (SELECT max(x.v) FROM t x WHERE x.k = t.k)",
    "SELECT k FROM t INTERSECT SELECT k FROM s",
    "SELECT k FROM t EXCEPT SELECT k FROM s",
    "SELECT t.id, u.k FROM t LEFT JOIN u ON t.v < u.k",
    "SELECT k, v FROM t UNION ALL SELECT k, v FROM s",
    "SELECT k, v FROM t UNION SELECT k, v FROM s",
    "SELECT k, sum(v) AS total FROM (SELECT k, v FROM t UNION ALL SELECT k, v FROM s) AS both GROUP BY k",
    "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM t GROUP BY k) AS counted GROUP BY n",
    "SELECT t.id, c.n FROM t JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) AS c ON t.k = c.k",
    "SELECT CASE WHEN v > 5 THEN 'big' WHEN v IS NULL THEN NULL ELSE 'small' END AS size, count(*) AS n FROM t GROUP BY 1",
    "SELECT 1 AS one, 'x' AS letter",
    "SELECT id, v FROM t ORDER BY v DESC, id LIMIT 5",
    "SELECT id, v FROM t ORDER BY v + k NULLS FIRST, id OFFSET 3 LIMIT 4",
    "SELECT v, name, k FROM s ORDER BY v, name, k LIMIT 7",
    "SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS place FROM t",
    "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS two FROM t",
    "SELECT id, lag(v) OVER (ORDER BY id) AS before, rank() OVER (ORDER BY id) AS place FROM t",
    "SELECT id, k FROM (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) x WHERE r <= 2",
    "SELECT DISTINCT ON (k) k, id, v FROM t ORDER BY k, v DESC, id",
    "SELECT k, b, count(*) AS n, sum(v) AS total FROM t GROUP BY ROLLUP (k, b)",
    "SELECT k, name, count(*) AS n, max(k) AS hi FROM t GROUP BY GROUPING SETS ((k), (name), (k))",
    "SELECT k, b, grouping(k) AS g, count(*) AS n FROM t GROUP BY CUBE (k, b)",
    "SELECT k, covar_samp(v, f) AS c, approx_distinct(name) AS names FROM t GROUP BY k",
    "SELECT k, approx_distinct(name) AS names, approx_distinct(v) FILTER (WHERE b) AS vs, approx_distinct(d) AS ds FROM s GROUP BY k",
    "SELECT approx_distinct(name) AS names, approx_distinct(v) AS vs FROM s",
];

fn rows_schema(extra: bool) -> SchemaRef {
    let mut fields = vec![];
    if extra {
        fields.push(Field::new("id", DataType::Int64, false));
    }
    fields.extend([
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("d", DataType::Decimal128(12, 2), true),
        Field::new("b", DataType::Boolean, true),
        Field::new("name", DataType::Utf8, true),
    ]);
    Arc::new(Schema::new(fields))
}

fn label_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("label", DataType::Utf8, true),
    ]))
}

/// One row of `s` and `t` without the id.
type Row = (
    Option<i64>,
    Option<i64>,
    Option<f64>,
    Option<i128>,
    Option<bool>,
    Option<String>,
);

fn random_row(random: &mut StdRng) -> Row {
    let maybe = |random: &mut StdRng| random.random_bool(0.9);
    (
        maybe(random).then(|| random.random_range(0..5)),
        maybe(random).then(|| random.random_range(-3..10)),
        maybe(random).then(|| f64::from(random.random_range(-100..100)) / 8.0),
        maybe(random).then(|| random.random_range(-10_000..10_000)),
        maybe(random).then(|| random.random_bool(0.5)),
        maybe(random).then(|| ["ab", "cd", "", "x,y"].choose(random).unwrap().to_string()),
    )
}

fn columns(rows: &[&Row]) -> Vec<ArrayRef> {
    vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|r| r.1))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|r| r.2))),
        Arc::new(
            Decimal128Array::from_iter(rows.iter().map(|r| r.3))
                .with_precision_and_scale(12, 2)
                .unwrap(),
        ),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|r| r.4))),
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.5.clone()))),
    ]
}

fn stream_batch(rows: &[Row]) -> RecordBatch {
    RecordBatch::try_new(rows_schema(false), columns(&rows.iter().collect::<Vec<_>>())).unwrap()
}

fn table_batch(rows: &[(i64, Row)]) -> RecordBatch {
    let mut all: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0)))];
    all.extend(columns(&rows.iter().map(|r| &r.1).collect::<Vec<_>>()));
    RecordBatch::try_new(rows_schema(true), all).unwrap()
}

fn label_batch(rows: &[(i64, String)]) -> RecordBatch {
    let k = Int64Array::from_iter_values(rows.iter().map(|r| r.0));
    let label = StringArray::from_iter_values(rows.iter().map(|r| r.1.as_str()));
    RecordBatch::try_new(label_schema(), vec![Arc::new(k), Arc::new(label)]).unwrap()
}

struct Fixture {
    runtime: Runtime,
    store: Store,
    _directory: tempfile::TempDir,
    context: SessionContext,
    relations: Relations,
    stream: Vec<Row>,
    table: BTreeMap<i64, Row>,
    labels: BTreeMap<i64, String>,
    views: Vec<(RelationId, String)>,
    next_view: u64,
    /// Of the views that are made from now on.
    options: ViewOptions,
    /// Plans views in other processes.
    plans: Arc<hosts::Plans>,
}

const S: RelationId = RelationId(1);
const T: RelationId = RelationId(2);
const U: RelationId = RelationId(3);

impl Fixture {
    async fn new() -> Fixture {
        Fixture::over(RuntimeOptions::new(2)).await
    }

    async fn over(options: RuntimeOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let runtime = Runtime::start(options, Arc::clone(store.logs())).unwrap();
        let sources = [
            (
                S,
                "s",
                rows_schema(false),
                SourceKind::Stream { event_time: None },
            ),
            (T, "t", rows_schema(true), SourceKind::Table { key: vec![0] }),
            (U, "u", label_schema(), SourceKind::Table { key: vec![0] }),
        ];
        let mut relations = BTreeMap::new();
        for (id, name, schema, kind) in sources {
            store.logs().create(id.0, Arc::clone(&schema)).unwrap();
            let is_stream = matches!(kind, SourceKind::Stream { .. });
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: Arc::clone(&schema),
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
                schema,
                key: (!is_stream).then(|| vec![0]),
                append_only: is_stream,
                watermarks: vec![],
            };
            relations.insert(name.to_owned(), info);
        }
        Fixture {
            runtime,
            store,
            _directory: directory,
            context: SessionContext::new_with_config(config()),
            plans: hosts::Plans::new(&relations),
            relations: Relations(relations),
            stream: vec![],
            table: BTreeMap::new(),
            labels: BTreeMap::new(),
            views: vec![],
            next_view: 100,
            options: ViewOptions::new(3),
        }
    }

    async fn create_view(&mut self, sql: &str) {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let state = self.context.state();
        let planned = Binder::new(&state, &self.relations)
            .statement(&statement)
            .map_err(PlanError::from)
            .and_then(|plan| plan_view(&state, plan, self.options));
        let graph = planned.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let id = RelationId(self.next_view);
        self.next_view += 1;
        self.runtime
            .create_view(ViewSpec {
                id,
                name: format!("v{id}"),
                graph,
                definition: Some(self.plans.define(sql, self.options)),
            })
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        self.views.push((id, sql.to_owned()));
    }

    /// A new runtime over the same log; the views are made again in the same order.
    async fn restart(&mut self) {
        self.runtime.shutdown().await;
        self.runtime = Runtime::start(RuntimeOptions::new(2), Arc::clone(self.store.logs())).unwrap();
        for (id, name, key) in [(S, "s", None), (T, "t", Some(vec![0])), (U, "u", Some(vec![0]))] {
            let schema = Arc::clone(&self.relations.0[name].schema);
            let kind = key.map_or(SourceKind::Stream { event_time: None }, |key| SourceKind::Table {
                key,
            });
            self.runtime
                .create_source(SourceSpec {
                    id,
                    name: name.into(),
                    schema,
                    kind,
                })
                .await
                .unwrap();
        }
        for (_, sql) in std::mem::take(&mut self.views) {
            self.create_view(&sql).await;
        }
    }

    async fn change(&mut self, random: &mut StdRng) -> millrace_engine::WriteToken {
        match random.random_range(0..4) {
            0 => {
                let rows: Vec<Row> = (0..random.random_range(1..20))
                    .map(|_| random_row(random))
                    .collect();
                let batch = ChangeBatch::insertions(stream_batch(&rows));
                self.stream.extend(rows);
                self.runtime.append(vec![(S, batch)], None).await.unwrap()
            }
            1 | 2 => {
                let (mut rows, mut weights) = (vec![], vec![]);
                for _ in 0..random.random_range(1..15) {
                    let id = random.random_range(0..40);
                    if rows.iter().any(|(seen, _)| *seen == id) {
                        continue;
                    }
                    if let Some(old) = self.table.remove(&id) {
                        rows.push((id, old));
                        weights.push(-1);
                    }
                    if random.random_bool(0.7) {
                        let row = random_row(random);
                        self.table.insert(id, row.clone());
                        rows.push((id, row));
                        weights.push(1);
                    }
                }
                let batch = ChangeBatch::new(table_batch(&rows), Some(Int64Array::from(weights))).unwrap();
                let locks = self.runtime.lock_tables(&[T]).await.unwrap();
                self.runtime.append(vec![(T, batch)], Some(&locks)).await.unwrap()
            }
            _ => {
                let k = random.random_range(0..5);
                let (mut rows, mut weights) = (vec![], vec![]);
                if let Some(old) = self.labels.remove(&k) {
                    rows.push((k, old));
                    weights.push(-1);
                }
                if random.random_bool(0.7) {
                    let label = format!("l{}", random.random_range(0..3));
                    self.labels.insert(k, label.clone());
                    rows.push((k, label));
                    weights.push(1);
                }
                let batch = ChangeBatch::new(label_batch(&rows), Some(Int64Array::from(weights))).unwrap();
                let locks = self.runtime.lock_tables(&[U]).await.unwrap();
                self.runtime.append(vec![(U, batch)], Some(&locks)).await.unwrap()
            }
        }
    }

    /// The rows of the model, by relation.
    fn rows(&self) -> [(&'static str, RecordBatch); 3] {
        let table: Vec<(i64, Row)> = self.table.iter().map(|(id, row)| (*id, row.clone())).collect();
        let labels: Vec<(i64, String)> = self.labels.iter().map(|(k, label)| (*k, label.clone())).collect();
        [
            ("s", stream_batch(&self.stream)),
            ("t", table_batch(&table)),
            ("u", label_batch(&labels)),
        ]
    }

    /// What plain DataFusion answers over the rows of the model, or its error.
    async fn answer(&self, sql: &str) -> DataFusionResult<Vec<RecordBatch>> {
        let state = SessionStateBuilder::new()
            .with_config(config())
            .with_default_features()
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build();
        let mut plain = Plain::with(state);
        for (name, batch) in self.rows() {
            plain.set_rows(name, batch.schema(), vec![batch])?;
        }
        plain.answer(sql).await
    }

    async fn expected(&self, sql: &str) -> Vec<RecordBatch> {
        self.answer(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn check(&self, after: &millrace_engine::WriteToken, what: &str) {
        let ids: Vec<RelationId> = self.views.iter().map(|view| view.0).collect();
        let snapshot = self.runtime.snapshot(&ids, Some(after)).await.unwrap();
        for (id, sql) in &self.views {
            let provider = snapshot
                .table_provider(*id)
                .unwrap_or_else(|e| panic!("{what}, {sql}: {e}"));
            let plan = provider
                .scan(&self.context.state(), None, &[], None)
                .await
                .unwrap();
            let options = QueryOptions {
                class: QueryClass::Interactive,
                tenant: Tenant::default(),
                context: self.context.task_ctx(),
            };
            let batches: Vec<RecordBatch> = self
                .runtime
                .execute(plan, options)
                .unwrap()
                .try_collect()
                .await
                .unwrap();
            assert_same(&batches, &self.expected(sql).await, &format!("{what}: {sql}"));
        }
    }
}

fn assert_same(shown: &[RecordBatch], expected: &[RecordBatch], what: &str) {
    if let Some(difference) = difference(shown, expected).unwrap() {
        panic!("{what}: {difference}");
    }
}

/// The first seed, and how many are tried from it on.
fn seeds() -> std::ops::Range<u64> {
    some_seeds(4)
}

/// The same where one takes long: fewer, if nobody says how many.
fn some_seeds(bounded: u64) -> std::ops::Range<u64> {
    let first = seed(0);
    first..first + cases(bounded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_after_random_changes() {
    for seed in seeds() {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::new().await;
        fixture.options = flow::options(&mut random);
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..25 {
            // Views are made in between, over rows that exist already.
            for _ in 0..2 {
                if !waiting.is_empty() {
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    fixture.create_view(next).await;
                }
            }
            for _ in 0..random.random_range(1..4) {
                after.merge(&fixture.change(&mut random).await);
            }
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        fixture.restart().await;
        fixture
            .check(
                &millrace_engine::WriteToken::default(),
                &format!("seed {seed}, after a restart"),
            )
            .await;
        after.merge(&fixture.change(&mut random).await);
        fixture
            .check(&after, &format!("seed {seed}, a change after a restart"))
            .await;
        fixture.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_over_a_view_follows_it() {
    let mut fixture = Fixture::new().await;
    fixture
        .create_view("SELECT k, count(*) AS n FROM t GROUP BY k")
        .await;
    let (id, _) = fixture.views[0].clone();
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("n", DataType::Int64, true),
    ]));
    fixture.relations.0.insert(
        "counts".into(),
        RelationInfo {
            id,
            name: "counts".into(),
            kind: RelationKind::View,
            schema,
            key: Some(vec![0]),
            append_only: false,
            watermarks: vec![],
        },
    );
    fixture
        .create_view("SELECT n, count(*) AS groups FROM counts GROUP BY n")
        .await;
    fixture.views[1].1 =
        "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM t GROUP BY k) AS c GROUP BY n"
            .into();
    let mut random = StdRng::seed_from_u64(7);
    for step in 0..30 {
        let after = fixture.change(&mut random).await;
        fixture.check(&after, &format!("step {step}")).await;
    }
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_rows_of_a_table_cannot_have_one_key() {
    let mut fixture = Fixture::new().await;
    let mut random = StdRng::seed_from_u64(1);
    let row = random_row(&mut random);
    let locks = fixture.runtime.lock_tables(&[T]).await.unwrap();
    let batch = ChangeBatch::insertions(table_batch(&[(1, row.clone())]));
    fixture
        .runtime
        .append(vec![(T, batch.clone())], Some(&locks))
        .await
        .unwrap();
    let error = fixture
        .runtime
        .append(vec![(T, batch)], Some(&locks))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "duplicate key value violates unique constraint: key (id)=(1) already exists"
    );
    fixture.table.insert(1, row);
    fixture.runtime.shutdown().await;
}
