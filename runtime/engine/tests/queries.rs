//! Queries cut into stages of tasks answer what plain DataFusion answers, over tables, views and logs of several partitions,
//! with many stages at once; nothing runs outside the schedulers; what is given up leaves nothing.

#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use millrace_clarity::profile::{Kind, Resource};
use millrace_engine::testing::Testing;
use millrace_engine::{QueryOptions, Runtime, RuntimeOptions, SourceKind, SourceSpec};
use millrace_planner::RelationId;
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::policy::SchedulerPolicy;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::{ChangeBatch, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Over the table `a (id, k, v, s)`, the table `b (id, k, v, s)` and the stream `c (id, k, v, s)`.
const QUERIES: &[&str] = &[
    "SELECT k, count(*), sum(v), min(s) FROM a GROUP BY k",
    "SELECT count(*), sum(v) FROM c WHERE v > 10",
    "SELECT id, count(*) FROM a GROUP BY id",
    "SELECT a.k, sum(b.v) FROM a JOIN b ON a.id = b.id GROUP BY a.k",
    "SELECT a.id, b.id, c.id FROM a JOIN b ON a.k = b.k JOIN c ON c.id = b.id WHERE a.v < 3 AND b.v < 5",
    "SELECT a.id, b.v FROM a LEFT JOIN b ON a.id = b.id AND b.v > 50",
    "SELECT a.id, b.id FROM a FULL JOIN b ON a.id = b.id + 100",
    "SELECT id FROM a WHERE k IN (SELECT k FROM b WHERE v = 7)",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.v > 20)",
    "SELECT id, v FROM a WHERE v > (SELECT avg(v) FROM b) AND k < (SELECT max(k) FROM c) - 3",
    "SELECT k, v, id FROM a UNION ALL SELECT k, v, id FROM b UNION ALL SELECT k, v, id FROM c",
    "SELECT s FROM a UNION SELECT s FROM c",
    "SELECT k, count(DISTINCT v), count(DISTINCT s) FROM c GROUP BY k",
    "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id) FROM a",
    "SELECT id, row_number() OVER (ORDER BY v, id) FROM b",
    "SELECT a.id FROM a CROSS JOIN (SELECT * FROM b WHERE id < 5) b WHERE a.v > b.v + 90",
    "SELECT count(*) FROM (SELECT * FROM a LIMIT 700)",
    "SELECT count(*) FROM (SELECT a.id FROM a JOIN b ON a.k = b.k LIMIT 5)",
    "SELECT s, k, sum(v) FROM a GROUP BY ROLLUP (s, k)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.id + 1 FROM r JOIN a ON a.id = r.n WHERE a.id < 20) SELECT n FROM r",
    "SELECT x.k, y.n FROM (SELECT k, max(id) AS id FROM a GROUP BY k) x JOIN (SELECT id, count(*) AS n FROM b GROUP BY id) y ON x.id = y.id",
    "SELECT a.id, a.s, b.s FROM a LEFT JOIN b ON a.id = b.k AND a.s < b.s",
    "SELECT a.s, b.id, b.s FROM a FULL JOIN b ON a.s = b.s AND a.k = b.id",
    "SELECT a.s, b.s FROM a CROSS JOIN (SELECT s FROM b WHERE id < 3) b WHERE a.id < 9",
    "SELECT a.s, b.s FROM (SELECT * FROM a WHERE id < 40) a JOIN b ON a.s || '1' > b.s AND b.id < 40",
    "SELECT s FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.id AND b.s <> a.s)",
    "SELECT 1 WHERE 1 = 0",
    "SELECT k, 1 / (v - v) FROM a WHERE v < 0",
];

/// The same, whose rows come in an order.
const ORDERED: &[&str] = &[
    "SELECT id, v FROM a ORDER BY v DESC, id",
    "SELECT id, s FROM c ORDER BY s, id LIMIT 50 OFFSET 10",
    "SELECT k, sum(v) AS t FROM a GROUP BY k ORDER BY t, k LIMIT 3",
    "SELECT a.id, b.v FROM a JOIN b ON a.id = b.id ORDER BY b.v, a.id",
    "SELECT a.s, b.s, b.id FROM b JOIN (SELECT * FROM a WHERE id < 30) a ON a.k = b.k ORDER BY a.s, b.s, b.id",
    "SELECT * FROM (SELECT id, v FROM a UNION ALL SELECT id, v FROM b) ORDER BY v, id",
];

/// Counts what DataFusion starts while it runs our plans. Only the slots' threads are looked at: the plain answers, which
/// the plans are compared with, are given on others.
struct Counting;

/// What the names of the slots' threads begin with.
const LANES: [&str; 4] = ["stream-", "interactive-", "batch-", "idle-"];

static SPAWNED: AtomicUsize = AtomicUsize::new(0);

fn note_spawn() {
    let thread = std::thread::current();
    if thread
        .name()
        .is_some_and(|name| name == "waits" || LANES.iter().any(|lane| name.starts_with(lane)))
    {
        SPAWNED.fetch_add(1, Ordering::Relaxed);
    }
}

impl JoinSetTracer for Counting {
    fn trace_future(
        &self,
        future: BoxFuture<'static, Box<dyn Any + Send>>,
    ) -> BoxFuture<'static, Box<dyn Any + Send>> {
        note_spawn();
        future
    }

    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        note_spawn();
        block
    }
}

struct Fixture {
    runtime: Runtime,
    _store: Store,
    _directory: tempfile::TempDir,
    rows: Vec<(&'static str, RecordBatch)>,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

fn rows(random: &mut StdRng, count: i64) -> RecordBatch {
    let mut some = |most: i64| {
        let values = (0..count).map(|_| random.random_bool(0.95).then(|| random.random_range(0..most)));
        Int64Array::from_iter(values.collect::<Vec<_>>())
    };
    let (k, v, s) = (some(30), some(100), some(12));
    let names = s.iter().map(|s| s.map(|s| format!("name {s}")));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..count)),
        Arc::new(k),
        Arc::new(v),
        Arc::new(StringArray::from_iter(names)),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

impl Fixture {
    async fn new(seed: u64, workers: usize) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let options = RuntimeOptions {
            workers,
            query_partition_rows: 250,
            ..RuntimeOptions::new(2)
        };
        let runtime = Runtime::start(options, Arc::clone(store.logs())).unwrap();
        let mut random = StdRng::seed_from_u64(seed);
        let mut all = vec![];
        for (number, (name, count)) in [("a", 2_000), ("b", 1_500), ("c", 40_000)]
            .into_iter()
            .enumerate()
        {
            let id = RelationId(number as u64 + 1);
            let kind = match name {
                "c" => SourceKind::Stream { event_time: None },
                _ => SourceKind::Table { key: vec![0] },
            };
            store.logs().create(id.0, schema()).unwrap();
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: schema(),
                kind,
            };
            runtime.create_source(spec).await.unwrap();
            let rows = rows(&mut random, count);
            // In pieces of a size that is not a power of two, so that there are several chunks.
            let pieces = (0..rows.num_rows()).step_by(777);
            for piece in pieces.map(|first| rows.slice(first, 777.min(rows.num_rows() - first))) {
                let locks = runtime.lock_tables(&[id]).await.unwrap();
                let changes = vec![(id, ChangeBatch::insertions(piece))];
                runtime.append(changes, Some(&locks)).await.unwrap();
            }
            all.push((name, rows));
        }
        Fixture {
            runtime,
            _store: store,
            _directory: directory,
            rows: all,
        }
    }

    /// A context whose relations are those of one epoch of the runtime, and one over the plain rows.
    async fn contexts(&self, memory: Option<usize>) -> (SessionContext, SessionContext) {
        let ids: Vec<RelationId> = (1..=3).map(RelationId).collect();
        let after = self.runtime.acknowledged();
        let snapshot = self.runtime.snapshot(&ids, Some(&after)).await.unwrap();
        let partitions = self.runtime.partitions_for(snapshot.rows_max());
        assert!(partitions > 8, "{partitions}");
        let config = SessionConfig::new()
            .with_target_partitions(partitions)
            .with_batch_size(128)
            .set_bool("datafusion.optimizer.prefer_hash_join", true);
        let mut environment = RuntimeEnvBuilder::new();
        if let Some(bytes) = memory {
            environment = environment.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
        }
        let cut = SessionContext::new_with_config_rt(config, environment.build_arc().unwrap());
        let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        for (id, (name, rows)) in ids.iter().zip(&self.rows) {
            cut.register_table(*name, snapshot.table_provider(*id).unwrap())
                .unwrap();
            let table = MemTable::try_new(rows.schema(), vec![vec![rows.clone()]]).unwrap();
            plain.register_table(*name, Arc::new(table)).unwrap();
        }
        (cut, plain)
    }

    fn execute(
        &self,
        context: &SessionContext,
        plan: Arc<dyn ExecutionPlan>,
        class: QueryClass,
    ) -> datafusion::execution::SendableRecordBatchStream {
        let context = context.task_ctx();
        self.runtime
            .execute(
                plan,
                QueryOptions {
                    class,
                    tenant: Tenant::default(),
                    context,
                },
            )
            .unwrap()
    }

    async fn check(&self, cut: &SessionContext, plain: &SessionContext, what: &str) {
        let all = QUERIES
            .iter()
            .map(|sql| (sql, false))
            .chain(ORDERED.iter().map(|sql| (sql, true)));
        for (sql, is_ordered) in all {
            let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            let stream = self.execute(cut, plan, QueryClass::Interactive);
            let found: Vec<RecordBatch> = stream
                .try_collect()
                .await
                .unwrap_or_else(|error| panic!("{what}: {sql}: {error}"));
            let expected = plain.sql(sql).await.unwrap().collect().await.unwrap();
            let (mut found, mut expected) = (render(&found), render(&expected));
            if !is_ordered {
                found.sort();
                expected.sort();
            }
            assert_eq!(found, expected, "{what}: {sql}");
        }
    }
}

fn render(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = vec![];
    for batch in batches {
        for row in 0..batch.num_rows() {
            let columns = batch.columns().iter();
            let values =
                columns.map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
            rows.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_in_stages_equal_plain_answers_and_start_nothing() {
    // Set once a process: this is the only test of the file that looks at it.
    set_join_set_tracer(&Counting).unwrap();
    for (seed, workers) in [(1, 1), (2, 3)] {
        println!("seed {seed}, {workers} workers");
        let fixture = Fixture::new(seed, workers).await;
        let (cut, plain) = fixture.contexts(None).await;
        fixture
            .check(&cut, &plain, &format!("seed {seed}, {workers} workers"))
            .await;
        assert!(fixture.runtime.query_tasks().is_empty(), "tasks are left");
        fixture.runtime.shutdown().await;
    }
    assert_eq!(
        SPAWNED.load(Ordering::Relaxed),
        0,
        "something ran outside the schedulers"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exchanges_that_find_no_memory_go_to_disk() {
    let fixture = Fixture::new(3, 1).await;
    let (cut, plain) = fixture.contexts(Some(3_000_000)).await;
    for sql in [
        "SELECT k, v, id FROM a UNION ALL SELECT k, v, id FROM c",
        "SELECT a.id, c.v FROM a JOIN c ON a.id = c.id",
    ] {
        let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let found: Vec<RecordBatch> = fixture
            .execute(&cut, plan, QueryClass::Interactive)
            .try_collect()
            .await
            .unwrap();
        let expected = plain.sql(sql).await.unwrap().collect().await.unwrap();
        let (mut found, mut expected) = (render(&found), render(&expected));
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{sql}");
    }
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_given_up_leaves_no_task() {
    let fixture = Fixture::new(4, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    let sql = "SELECT x.id, y.id FROM c x JOIN c y ON x.k = y.k";
    let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let mut stream = fixture.execute(&cut, plan, QueryClass::Batch);
    // It has millions of rows: after the first it is in the middle of them.
    assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
    let tasks = fixture.runtime.query_tasks();
    assert!(tasks.len() > 8, "{tasks:?}");
    assert!(tasks.iter().all(|task| task.class == QueryClass::Batch));
    drop(stream);
    assert!(fixture.runtime.query_tasks().is_empty());
    assert!(fixture.runtime.paused_tasks().is_empty());
    fixture.runtime.shutdown().await;
}

/// A function that notes that it was called, and is there as long as a task is that may call it.
#[derive(Debug, Clone)]
struct Tick {
    called: Arc<AtomicUsize>,
    signature: Signature,
}

impl PartialEq for Tick {
    fn eq(&self, other: &Tick) -> bool {
        Arc::ptr_eq(&self.called, &other.called)
    }
}

impl Eq for Tick {}

impl std::hash::Hash for Tick {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.called).hash(state);
    }
}

impl ScalarUDFImpl for Tick {
    fn name(&self) -> &str {
        "tick"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> datafusion::error::Result<ColumnarValue> {
        self.called.fetch_add(1, Ordering::Relaxed);
        Ok(args.args.swap_remove(0))
    }
}

/// Also where nothing else waits for the slots, and where one batch of the input goes on and on.
#[tokio::test(flavor = "multi_thread")]
async fn queries_without_an_end_that_are_given_up_end() {
    let fixture = Fixture::new(7, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    for from in [
        "c x, c y, c z",
        "c x JOIN c y ON x.k = y.k JOIN c z ON y.k = z.k",
        "(SELECT 1 AS id) z, c x JOIN c y ON x.id + y.id > 5",
        "(SELECT 1 AS id) y, (SELECT 1 AS id) z, (SELECT value AS id FROM generate_series(1, 100000000000)) x",
    ] {
        let called = Arc::new(AtomicUsize::new(0));
        let left = Arc::downgrade(&called);
        cut.register_udf(ScalarUDF::from(Tick {
            called,
            signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
        }));
        let sql = format!("SELECT sum(tick(x.id + y.id + z.id)) FROM {from}");
        let plan = cut.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        cut.deregister_udf("tick");
        let stream = fixture.execute(&cut, plan, QueryClass::Interactive);
        let is_called = || {
            left.upgrade()
                .is_some_and(|called| called.load(Ordering::Relaxed) > 0)
        };
        while !is_called() {
            tokio::task::yield_now().await;
        }
        drop(stream);
        let given_up = Instant::now();
        while left.upgrade().is_some() {
            assert!(given_up.elapsed() < Duration::from_secs(60), "{from}: it goes on");
            tokio::task::yield_now().await;
        }
    }
    fixture.runtime.shutdown().await;
}

/// What a join compares in vain brings it to no suspension point: it looks by itself, at each batch that it compares.
#[tokio::test(flavor = "multi_thread")]
async fn joins_that_find_nothing_end_when_they_are_given_up() {
    let fixture = Fixture::new(7, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    for join in [
        "c x JOIN c y ON tick(x.id + y.id) = -1",
        "c x LEFT JOIN c y ON tick(x.id + y.id) = -1",
        "c x JOIN c y ON x.id % 2 = y.id % 2 AND tick(x.id + y.id) = -1",
    ] {
        let called = Arc::new(AtomicUsize::new(0));
        let left = Arc::downgrade(&called);
        cut.register_udf(ScalarUDF::from(Tick {
            called: Arc::clone(&called),
            signature: Signature::exact(vec![DataType::Int64], Volatility::Volatile),
        }));
        let sql = format!("SELECT count(*) FROM {join}");
        let plan = cut.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        cut.deregister_udf("tick");
        let stream = fixture.execute(&cut, plan, QueryClass::Interactive);
        while called.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        drop(stream);
        let before = called.load(Ordering::Relaxed);
        // One reference is the test's own.
        while left.strong_count() > 1 {
            tokio::task::yield_now().await;
        }
        let after = called.load(Ordering::Relaxed) - before;
        assert!(after <= 8, "{join}: compared {after} batches more");
    }
    fixture.runtime.shutdown().await;
}

/// Of a recursion without an end every step is short, and none of them waits for anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_recursion_that_is_given_up_ends() {
    let fixture = Fixture::new(6, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    let sql = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r";
    // More than there are slots for.
    for _ in 0..20 {
        let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let stream = fixture.execute(&cut, plan, QueryClass::Interactive);
        while fixture
            .runtime
            .query_tasks()
            .iter()
            .all(|task| task.first_run.is_none())
        {
            tokio::task::yield_now().await;
        }
        drop(stream);
    }
    assert!(fixture.runtime.query_tasks().is_empty());
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_row_fails_its_query_in_every_stage() {
    let fixture = Fixture::new(5, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    for sql in [
        "SELECT k, 1 / (v - v) AS x FROM a WHERE v >= 0",
        "SELECT sum(1 / (v - v)) FROM c WHERE v >= 0",
        "SELECT x.k, count(*) FROM (SELECT k, 1 / (v - v) AS x FROM a WHERE v >= 0) x JOIN b ON b.k = x.x GROUP BY x.k",
    ] {
        let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let stream = fixture.execute(&cut, plan, QueryClass::Interactive);
        let error = stream.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(
            error.to_string().to_lowercase().contains("divide by zero"),
            "{sql}: {error}"
        );
    }
    assert!(fixture.runtime.query_tasks().is_empty());
    fixture.runtime.shutdown().await;
}

/// What is seen of a run adds up.
#[tokio::test(flavor = "multi_thread")]
async fn the_profile_of_a_run_adds_up() {
    let fixture = Fixture::new(7, 1).await;
    let (cut, _) = fixture.contexts(None).await;
    let sql = "SELECT c.k, count(*), sum(a.v) FROM c JOIN a ON c.k = a.k GROUP BY c.k";
    let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let options = QueryOptions {
        class: QueryClass::Interactive,
        tenant: Tenant::default(),
        context: cut.task_ctx(),
    };
    let (stream, handle) = fixture.runtime.execute_profiled(plan, options).unwrap();
    let found: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    let profile = handle.profile(std::time::Duration::from_millis(1));
    let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
    let last = profile.stages.last().unwrap();
    assert_eq!(last.tasks.iter().map(|task| task.rows).sum::<u64>(), rows as u64);
    assert!(profile.stages.len() >= 3, "{profile:?}");
    let cpu: u64 = (profile.stages.iter().flat_map(|stage| &stage.tasks))
        .map(|task| task.cpu())
        .sum();
    assert!(
        cpu > 0 && cpu <= profile.machine.cores as u64 * profile.end,
        "{cpu} of {}",
        profile.end
    );
    let mut read = 0;
    for stage in &profile.stages {
        assert!(
            stage.depends_on.iter().all(|other| *other < stage.id),
            "{stage:?}"
        );
        for task in &stage.tasks {
            let all =
                task.cpu() + task.suspended + task.blocked.disk + task.blocked.input + task.blocked.output;
            // What is left is waiting for a core.
            assert!(task.start <= task.end && all <= task.end, "{task:?}");
            let listed: u64 = task
                .monotasks
                .iter()
                .filter(|m| m.resource == Resource::Cpu)
                .map(|m| m.service)
                .sum();
            assert!(task.monotasks.is_empty() || listed == task.cpu(), "{task:?}");
            read += task
                .usage
                .iter()
                .filter(|usage| usage.kind == Kind::Read)
                .map(|usage| usage.rows)
                .sum::<u64>();
        }
    }
    assert_eq!(read, 40_000, "rows of the log");
    fixture.runtime.shutdown().await;
}

/// Workers that are as if they had links fetch each other's rows by network monotasks.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_other_workers_are_fetched() {
    let fixture = Fixture::new(8, 3).await;
    let (cut, plain) = fixture.contexts(None).await;
    let sql = "SELECT c.k, count(*), sum(a.v) FROM c JOIN a ON c.k = a.k GROUP BY c.k";
    let mut expected = render(&plain.sql(sql).await.unwrap().collect().await.unwrap());
    expected.sort();
    for rate in [Some(20_000_000), None] {
        fixture.runtime.set_network_rate(rate);
        let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let options = QueryOptions {
            class: QueryClass::Interactive,
            tenant: Tenant::default(),
            context: cut.task_ctx(),
        };
        let (stream, handle) = fixture.runtime.execute_profiled(plan, options).unwrap();
        let mut found = render(&stream.try_collect::<Vec<RecordBatch>>().await.unwrap());
        found.sort();
        assert_eq!(found, expected);
        let profile = handle.profile(std::time::Duration::ZERO);
        let tasks = || profile.stages.iter().flat_map(|stage| &stage.tasks);
        let fetched = tasks()
            .flat_map(|task| &task.usage)
            .filter(|usage| usage.kind == Kind::Fetch);
        let (bytes, service) =
            fetched.fold((0, 0), |sum, usage| (sum.0 + usage.bytes, sum.1 + usage.service));
        let blocked: u64 = tasks().map(|task| task.blocked.network).sum();
        if rate.is_none() {
            assert_eq!(
                (bytes, service, blocked, profile.machine.network),
                (0, 0, 0, None)
            );
            continue;
        }
        let network = profile.machine.network.as_ref().unwrap();
        assert_eq!(network.bytes_per_second, Some(60_000_000.0));
        // Over three links the rows take as long as their bytes at the least.
        let least = bytes as f64 / 60e6 * 1e9;
        println!("{bytes} bytes in {service} ns, blocked {blocked} ns, at the least {least}");
        assert!(bytes > 100_000 && service as f64 >= least && blocked > 0);
        assert!(network.busy as f64 >= least && network.busy <= profile.end);
    }
    fixture.runtime.shutdown().await;
}

/// Whatever the policy, batch queries end with the right rows while stream-class work comes and goes.
#[tokio::test(flavor = "multi_thread")]
async fn batch_queries_survive_being_paused_or_started_again() {
    let fixture = Fixture::new(6, 1).await;
    let (cut, plain) = fixture.contexts(None).await;
    let sql = "SELECT x.k, count(*), sum(y.v) FROM c x JOIN a y ON x.k = y.k GROUP BY x.k";
    let expected = {
        let mut rows = render(&plain.sql(sql).await.unwrap().collect().await.unwrap());
        rows.sort();
        rows
    };
    for policy in SchedulerPolicy::ALL {
        let (_, patience) = fixture.runtime.policy();
        fixture.runtime.set_policy(policy, patience);
        let plan = cut.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let mut batch = Box::pin(
            fixture
                .execute(&cut, plan, QueryClass::Batch)
                .try_collect::<Vec<RecordBatch>>(),
        );
        let disturb = async {
            loop {
                let work = fixture
                    .runtime
                    .compute(QueryClass::Stream, || std::hint::black_box(7));
                assert_eq!(work.unwrap().await.unwrap(), 7);
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::select! {
            found = &mut batch => found.unwrap(),
            () = disturb => unreachable!(),
        };
        let mut found = render(&found);
        found.sort();
        assert_eq!(found, expected, "{policy}");
    }
    assert!(fixture.runtime.cpu_times().wait[QueryClass::Stream as usize].count() > 0);
    fixture.runtime.shutdown().await;
}
