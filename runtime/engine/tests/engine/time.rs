//! Operators in which time decides, after random changes and random moves of a clock that is set by hand: temporal filters
//! equal the batch query with `now()` = the clock, ASOF joins the search through all pairs, lookup joins what was there
//! when each row came. Seeds are printed with a failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::{Dialect, MsSqlDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::parser::Parser;
use futures::TryStreamExt;
use millrace_engine::clock::VirtualClock;
use millrace_engine::{QueryOptions, Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewSpec};
use millrace_planner::{
    Binder, RelationId, RelationInfo, RelationKind, RelationTable, ViewOptions, plan_view,
};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_schedule::driver::CheckpointPolicy;
use millrace_schedule::group_size::GroupSize;
use millrace_sql::CatalogReader;
use millrace_storage::{ChangeBatch, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// 2026-01-01 22:00 UTC: midnight is near.
const START: i64 = 1_767_304_800_000_000;
const MINUTE: i64 = 60_000_000;
const T: RelationId = RelationId(1);
const Q: RelationId = RelationId(2);

/// A row of `t` or `q`: x (the id of `t`), k, ts.
type Row = (i64, Option<i64>, Option<i64>);

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("k", DataType::Int64, true),
        Field::new("ts", time, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(TimestampMicrosecondArray::from_iter(rows.iter().map(|row| row.2)).with_timezone("UTC")),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

struct Catalog;

impl CatalogReader for Catalog {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        let id = match name.table() {
            "t" => T,
            "q" => Q,
            other => return Err(DataFusionError::Plan(format!("no {other}"))),
        };
        Ok(Arc::new(RelationTable::new(RelationInfo {
            id,
            name: name.table().to_owned(),
            kind: RelationKind::Table,
            schema: schema(),
            key: None,
            append_only: false,
            watermarks: vec![],
        })))
    }
}

struct Fixture {
    runtime: Runtime,
    clock: Arc<VirtualClock>,
    now: i64,
    _store: Store,
    _directory: tempfile::TempDir,
    context: SessionContext,
    t: Vec<Row>,
    q: Vec<Row>,
    next_view: u64,
    next_x: i64,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture::over(RuntimeOptions::new(2)).await
    }

    async fn over(options: RuntimeOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let clock = Arc::new(VirtualClock::new(START));
        let options = RuntimeOptions {
            clock: Arc::clone(&clock) as _,
            ..options
        };
        let runtime = Runtime::start(options, Arc::clone(store.logs())).unwrap();
        for (id, name) in [(T, "t"), (Q, "q")] {
            store.logs().create(id.0, schema()).unwrap();
            let kind = SourceKind::Table { key: vec![] };
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: schema(),
                kind,
            };
            runtime.create_source(spec).await.unwrap();
        }
        Fixture {
            runtime,
            clock,
            now: START,
            _store: store,
            _directory: directory,
            context: SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1)),
            t: vec![],
            q: vec![],
            next_view: 100,
            next_x: 0,
        }
    }

    async fn create_view(&mut self, sql: &str) -> RelationId {
        // PostgreSQL's dialect has no FOR SYSTEM_TIME.
        let dialect: &dyn Dialect = if sql.contains("SYSTEM_TIME") {
            &MsSqlDialect {}
        } else {
            &PostgreSqlDialect {}
        };
        let statement = Parser::parse_sql(dialect, sql).unwrap().remove(0);
        let state = self.context.state();
        let plan = Binder::new(&state, &Catalog).statement(&statement).unwrap();
        let graph =
            plan_view(&state, plan, ViewOptions::new(3)).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let id = RelationId(self.next_view);
        self.next_view += 1;
        let name = format!("v{id}");
        self.runtime
            .create_view(ViewSpec {
                id,
                name,
                graph,
                definition: None,
            })
            .await
            .unwrap();
        id
    }

    /// Some rows go, some come, on both sides, as one write. Returns what did in `t`.
    async fn change(&mut self, random: &mut StdRng) -> (Vec<Row>, Vec<Row>) {
        let mut of_t = (vec![], vec![]);
        let mut writes = vec![];
        for id in [T, Q] {
            let rows = if id == T { &mut self.t } else { &mut self.q };
            let (mut gone, mut come) = (vec![], vec![]);
            for _ in 0..random.random_range(0..4) {
                if !rows.is_empty() && random.random_bool(0.5) {
                    gone.push(rows.swap_remove(random.random_range(0..rows.len())));
                }
            }
            for _ in 0..random.random_range(0..5) {
                let maybe = |random: &mut StdRng| random.random_bool(0.93);
                let row = (
                    self.next_x,
                    maybe(random).then(|| random.random_range(0..3)),
                    maybe(random).then(|| self.now + random.random_range(-10..10) * MINUTE),
                );
                self.next_x += 1;
                // Equal rows come too.
                for _ in 0..random.random_range(1..3) {
                    come.push(row);
                }
            }
            rows.extend(&come);
            if gone.len() + come.len() > 0 {
                let weights = [vec![-1; gone.len()], vec![1; come.len()]].concat();
                let all: Vec<Row> = gone.iter().chain(&come).copied().collect();
                writes.push((
                    id,
                    ChangeBatch::new(batch(&all), Some(Int64Array::from(weights))).unwrap(),
                ));
            }
            if id == T {
                of_t = (gone, come);
            }
        }
        let locks = self.runtime.lock_tables(&[T, Q]).await.unwrap();
        let written = self.runtime.append(writes, Some(&locks)).await.unwrap();
        drop(locks);
        self.runtime.wait_for(&written).await.unwrap();
        of_t
    }

    async fn insert(&self, rows: &[Row]) {
        let locks = self.runtime.lock_tables(&[T]).await.unwrap();
        let changes = vec![(T, ChangeBatch::insertions(batch(rows)))];
        let written = self.runtime.append(changes, Some(&locks)).await.unwrap();
        self.runtime.wait_for(&written).await.unwrap();
    }

    async fn advance(&mut self, random: &mut StdRng) {
        // Often to the very moment at which rows change, sometimes past it, sometimes far.
        let step = match random.random_range(0..10) {
            0 => random.random_range(1..MINUTE),
            1 => 30 * MINUTE,
            _ => random.random_range(0..4) * MINUTE,
        };
        self.now = self.clock.advance_to(self.now + step);
        self.runtime.follow_clock().await.unwrap();
    }

    async fn view(&self, id: RelationId) -> Vec<String> {
        let snapshot = self.runtime.snapshot(&[id], None).await.unwrap();
        let provider = snapshot.table_provider(id).unwrap();
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
        render(&batches)
    }

    /// What plain DataFusion answers at the clock's time.
    async fn batch_answer(&self, sql: &str) -> Vec<String> {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        for (name, rows) in [("t", &self.t), ("q", &self.q)] {
            let provider = MemTable::try_new(schema(), vec![vec![batch(rows)]]).unwrap();
            context.register_table(name, Arc::new(provider)).unwrap();
        }
        let now = format!(
            "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')",
            self.now
        );
        let today = format!("CAST({now} AS DATE)");
        let sql = sql.replace("now()", &now).replace("current_date", &today);
        render(&context.sql(&sql).await.unwrap().collect().await.unwrap())
    }

    fn state_bytes(&self, id: RelationId) -> usize {
        let views = self.runtime.views();
        views.iter().find(|view| view.relation == id).unwrap().state_bytes
    }
}

fn render(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = vec![];
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter();
            let values =
                values.map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
            rows.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    rows
}

fn text(values: &[Option<i64>]) -> String {
    let values = values
        .iter()
        .map(|value| value.map_or(String::new(), |value| value.to_string()));
    values.collect::<Vec<_>>().join("|")
}

const TEMPORAL: &[&str] = &[
    "SELECT x, ts FROM t WHERE ts > now() - INTERVAL '5 minutes'",
    "SELECT x FROM t WHERE now() - INTERVAL '5 minutes' <= ts AND k <> 1",
    "SELECT x FROM t WHERE ts < now()",
    "SELECT x FROM t WHERE ts BETWEEN now() - INTERVAL '3 minutes' AND now() + INTERVAL '2 minutes'",
    "SELECT x FROM t WHERE ts + INTERVAL '2 minutes' > now() AND ts - INTERVAL '4 minutes' <= now()",
    "SELECT k, count(*) AS n, max(ts) AS last FROM t WHERE ts <= now() GROUP BY k",
    "SELECT count(*) AS n, min(x) AS least FROM t WHERE ts > now()",
    "SELECT t.x AS a, q.x AS b FROM t JOIN q ON t.k = q.k WHERE t.ts >= date_trunc('hour', now()) AND q.ts < now()",
    "SELECT t.x AS a, q.x AS b FROM t LEFT JOIN q ON t.k = q.k AND q.ts > now() - INTERVAL '2 minutes'",
    "SELECT t.x AS a, q.x AS b FROM t JOIN q ON t.k = q.k WHERE greatest(t.ts, q.ts) > now()",
    "SELECT k, max(ts) AS last FROM t GROUP BY k HAVING max(ts) > now() - INTERVAL '4 minutes'",
    "SELECT x FROM t WHERE CAST(ts AS DATE) = current_date",
    "SELECT x FROM t WHERE CAST(ts AS DATE) >= current_date",
    "SELECT DISTINCT k FROM t WHERE ts >= date_trunc('minute', now()) - INTERVAL '2 minutes'",
    "SELECT x FROM t WHERE k IN (SELECT k FROM q WHERE ts > now())",
    "SELECT x FROM t WHERE ts > now() UNION ALL SELECT x FROM q WHERE ts <= now()",
    "SELECT x, row_number() OVER (PARTITION BY k ORDER BY ts, x) AS n FROM (SELECT DISTINCT * FROM t WHERE ts > now() - INTERVAL '3 minutes') r",
    "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM t WHERE ts > now() GROUP BY k) g GROUP BY n",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporal_filters_equal_the_batch_query_at_the_clocks_time() {
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::new().await;
        let mut views = vec![];
        for step in 0..30 {
            if let Some(sql) = TEMPORAL.get(step) {
                views.push((fixture.create_view(sql).await, *sql));
            }
            fixture.change(&mut random).await;
            if random.random_bool(0.7) {
                fixture.advance(&mut random).await;
            }
            for (id, sql) in &views {
                let expected = fixture.batch_answer(sql).await;
                assert_eq!(
                    fixture.view(*id).await,
                    expected,
                    "seed {seed}, step {step}: {sql}"
                );
            }
        }
    }
}

/// What is run again after a loss is run at the times at which it ran before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporal_filters_outlive_their_worker() {
    for seed in 0..3 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: 2,
            checkpoints: CheckpointPolicy::Always { every_ns: 0 },
            group_size: GroupSize::Fixed(4),
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut views = vec![];
        for sql in TEMPORAL {
            views.push((fixture.create_view(sql).await, *sql));
        }
        for step in 0..20 {
            fixture.change(&mut random).await;
            if random.random_bool(0.7) {
                fixture.advance(&mut random).await;
            }
            let workers = fixture.runtime.workers();
            let lost = workers[random.random_range(0..workers.len())].id;
            fixture.runtime.kill_worker(lost).unwrap();
            fixture.runtime.add_worker().unwrap();
            for (id, sql) in &views {
                let expected = fixture.batch_answer(sql).await;
                assert_eq!(
                    fixture.view(*id).await,
                    expected,
                    "seed {seed}, step {step}: {sql}"
                );
            }
        }
        let (restored, refilled) = fixture.runtime.recoveries();
        println!("seed {seed}: {restored} restored, {refilled} filled again");
        assert!(restored > 0, "seed {seed}: nothing was restored");
        fixture.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_expired_is_forgotten() {
    let mut fixture = Fixture::new().await;
    let view = fixture
        .create_view("SELECT x, ts FROM t WHERE ts BETWEEN now() - INTERVAL '10 minutes' AND now()")
        .await;
    let empty = fixture.state_bytes(view);
    let rows: Vec<Row> = (0..20_000)
        .map(|x| (x, Some(1), Some(START + (x % 10) * MINUTE)))
        .collect();
    fixture.insert(&rows).await;
    let waiting = fixture.state_bytes(view);
    assert!(waiting > empty + 20_000 * 48, "{empty} -> {waiting}");
    fixture.clock.advance_to(START + 10 * MINUTE);
    fixture.runtime.follow_clock().await.unwrap();
    assert_eq!(fixture.view(view).await.len(), 20_000);
    // A row at the bound is there for the moment.
    fixture.clock.advance_to(START + 10 * MINUTE + 1);
    fixture.runtime.follow_clock().await.unwrap();
    assert_eq!(fixture.view(view).await.len(), 18_000);
    fixture.clock.advance_to(START + 60 * MINUTE);
    fixture.runtime.follow_clock().await.unwrap();
    assert_eq!(fixture.view(view).await.len(), 0);
    // Readers of the epoch before could still see them: the next change of the view frees them.
    let now = START + 60 * MINUTE;
    fixture
        .insert(&(0..30).map(|x| (x, Some(1), Some(now))).collect::<Vec<_>>())
        .await;
    assert_eq!(fixture.view(view).await.len(), 30);
    let after = fixture.state_bytes(view);
    assert!(after < waiting / 10, "{waiting} -> {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_wakes_by_itself_and_only_when_a_row_is_due() {
    let mut fixture = Fixture::new().await;
    let view = fixture.create_view("SELECT x FROM t WHERE ts > now()").await;
    fixture
        .insert(&[
            (1, Some(1), Some(START + 10 * MINUTE)),
            (2, Some(1), Some(START + 20 * MINUTE)),
        ])
        .await;
    let epochs = fixture.runtime.epochs_total();
    for minute in 1..10 {
        fixture.clock.advance_to(START + minute * MINUTE);
    }
    for (moment, left) in [(START + 10 * MINUTE, 1), (START + 25 * MINUTE, 0)] {
        fixture.clock.advance_to(moment);
        let followed = async {
            while fixture.view(view).await.len() > left {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), followed)
            .await
            .unwrap();
    }
    // The write's notice may have come after the cut that took its rows: then one more epoch looked, and found nothing.
    let woken = fixture.runtime.epochs_total() - epochs;
    assert!((2..=3).contains(&woken), "{woken} epochs for two moments");
}

/// Workers to lose, one after the other, all of whose state is in checkpoints.
fn with_workers_to_lose() -> RuntimeOptions {
    RuntimeOptions {
        workers: 8,
        checkpoints: CheckpointPolicy::Always { every_ns: 0 },
        group_size: GroupSize::Fixed(4),
        ..RuntimeOptions::new(1)
    }
}

impl Fixture {
    /// Loses a worker in every fifth step, while there is another.
    fn lose_worker(&self, step: usize, random: &mut StdRng) {
        let workers = self.runtime.workers();
        if step % 5 == 4 && workers.len() > 1 {
            let lost = workers[random.random_range(0..workers.len())].id;
            self.runtime.kill_worker(lost).unwrap();
        }
    }

    /// Views were restored from checkpoints, and none was filled again.
    fn assert_restored(&self) {
        let (restored, refilled) = self.runtime.recoveries();
        assert!(
            restored > 0 && refilled == 0,
            "{restored} restored, {refilled} filled again"
        );
    }
}

/// An ASOF join: its comparison, whether it is outer.
fn nearest(t: &[Row], q: &[Row], comparison: &str, is_outer: bool) -> Vec<String> {
    let mut pairs = vec![];
    for left in t {
        let matches = |right: &&Row| {
            let (Some(l), Some(r)) = (left.2, right.2) else {
                return false;
            };
            let in_order = match comparison {
                ">=" => l >= r,
                ">" => l > r,
                "<=" => l <= r,
                _ => l < r,
            };
            left.1.is_some() && left.1 == right.1 && in_order
        };
        // Of those at the nearest time the one with the greatest x, which comes first.
        let latest = comparison.starts_with('>');
        let best = q.iter().filter(matches).max_by_key(|right| {
            let time = right.2.unwrap_or_default();
            (if latest { time } else { -time }, right.0)
        });
        if best.is_some() || is_outer {
            pairs.push(text(&[Some(left.0), best.map(|right| right.0)]));
        }
    }
    pairs.sort();
    pairs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asof_joins_equal_the_search_through_all_pairs() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let is_lossy = seed % 2 == 1;
        let options = if is_lossy {
            with_workers_to_lose()
        } else {
            RuntimeOptions::new(2)
        };
        let mut fixture = Fixture::over(options).await;
        let mut views = vec![];
        let kinds: Vec<(&str, bool)> = [">=", ">", "<=", "<"]
            .into_iter()
            .flat_map(|comparison| [(comparison, false), (comparison, true)])
            .collect();
        for step in 0..40 {
            if let Some((comparison, is_outer)) = kinds.get(step) {
                let left = if *is_outer { " AND asof_left" } else { "" };
                let sql = format!(
                    "SELECT t.x AS a, q.x AS b FROM t ASOF JOIN q MATCH_CONDITION (t.ts {comparison} q.ts{left}) ON t.k = q.k"
                );
                views.push((fixture.create_view(&sql).await, *comparison, *is_outer));
            }
            fixture.change(&mut random).await;
            if is_lossy && step >= kinds.len() {
                fixture.lose_worker(step, &mut random);
            }
            for (id, comparison, is_outer) in &views {
                assert_eq!(
                    fixture.view(*id).await,
                    nearest(&fixture.t, &fixture.q, comparison, *is_outer),
                    "seed {seed}, step {step}: {comparison}, outer: {is_outer}"
                );
            }
        }
        if is_lossy {
            fixture.assert_restored();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookup_joins_keep_what_was_there_when_each_row_came() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let is_lossy = seed % 2 == 1;
        let options = if is_lossy {
            with_workers_to_lose()
        } else {
            RuntimeOptions::new(2)
        };
        let mut fixture = Fixture::over(options).await;
        fixture.change(&mut random).await;
        let join = |kind: &str| {
            format!(
                "SELECT t.x AS a, q.x AS b FROM t {kind} q FOR SYSTEM_TIME AS OF PROCTIME() ON t.k = q.k AND t.ts > q.ts"
            )
        };
        let (inner, outer) = (
            fixture.create_view(&join("JOIN")).await,
            fixture.create_view(&join("LEFT JOIN")).await,
        );
        let matches = |left: &Row, q: &[Row]| -> Vec<Option<i64>> {
            let met = q.iter().filter(|right| {
                left.1.is_some()
                    && left.1 == right.1
                    && left.2.is_some()
                    && right.2.is_some()
                    && left.2 > right.2
            });
            met.map(|right| Some(right.0)).collect()
        };
        // What each left row met; equal rows came together and met the same.
        let mut met: BTreeMap<Row, Vec<Option<i64>>> = BTreeMap::new();
        for row in &fixture.t {
            met.insert(*row, matches(row, &fixture.q));
        }
        for step in 0..40 {
            let (_, come) = fixture.change(&mut random).await;
            for row in come {
                met.insert(row, matches(&row, &fixture.q));
            }
            if is_lossy {
                fixture.lose_worker(step, &mut random);
            }
            for (id, is_outer) in [(inner, false), (outer, true)] {
                let mut expected = vec![];
                for row in &fixture.t {
                    let met = &met[row];
                    expected.extend(met.iter().map(|right| text(&[Some(row.0), *right])));
                    if met.is_empty() && is_outer {
                        expected.push(text(&[Some(row.0), None]));
                    }
                }
                expected.sort();
                assert_eq!(
                    fixture.view(id).await,
                    expected,
                    "seed {seed}, step {step}, outer: {is_outer}"
                );
            }
        }
        if is_lossy {
            fixture.assert_restored();
        }
    }
}
