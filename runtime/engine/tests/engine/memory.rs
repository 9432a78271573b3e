//! What happens when memory is short, or a view is behind: writes wait, a view that cannot continue fails, and the others continue.

mod larger;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::Relations;
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use millrace_engine::testing::Testing;
use millrace_engine::{
    FeedLimits, FeedStatus, Lack, Runtime, RuntimeError, RuntimeOptions, SourceKind, SourceSpec, ViewSpec,
    WriteOptions, WriteToken,
};
use millrace_planner::query::physical_optimizer_rules;
use millrace_planner::{Binder, RelationId, RelationInfo, RelationKind, ViewOptions, plan_view};
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::spill::state::SpillOptions;
use millrace_storage::{ChangeBatch, Store, StoreOptions};

const MB: usize = 1 << 20;
/// Streams of pipelines of their own.
const A: RelationId = RelationId(1);
const B: RelationId = RelationId(2);
/// As many groups as `a` has rows.
const LARGE: RelationId = RelationId(11);
/// One group.
const SMALL: RelationId = RelationId(12);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]))
}

struct Fixture {
    runtime: Runtime,
    relations: Relations,
    context: SessionContext,
    _store: Store,
    _directory: tempfile::TempDir,
}

impl Fixture {
    /// The streams `a` and `b`, under a limit that only accounts count against.
    async fn new(limit: usize) -> Fixture {
        let memory = Memory::new(Some(limit), Resident::Unknown);
        Self::over(RuntimeOptions {
            memory,
            ..RuntimeOptions::new(2)
        })
        .await
    }

    /// The same, where state of views goes to the disk when memory is short.
    async fn spilling(limit: usize) -> (Fixture, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let options = RuntimeOptions {
            memory: Memory::new(Some(limit), Resident::Unknown),
            spill: Some(SpillOptions::new(directory.path().join("spill"))),
            ..RuntimeOptions::new(2)
        };
        (Self::over(options).await, directory)
    }

    async fn over(options: RuntimeOptions) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let runtime = Runtime::start(options, Arc::clone(store.logs())).unwrap();
        let mut relations = Relations::default();
        for (id, name) in [(A, "a"), (B, "b")] {
            store.logs().create(id.0, schema()).unwrap();
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: schema(),
                kind: SourceKind::Stream { event_time: None },
            };
            runtime.create_source(spec).await.unwrap();
            let info = RelationInfo {
                id,
                name: name.into(),
                kind: RelationKind::Stream,
                schema: schema(),
                key: None,
                append_only: true,
                watermarks: vec![],
            };
            relations.0.insert(name.into(), info);
        }
        let state = SessionStateBuilder::new()
            .with_config(SessionConfig::new().with_target_partitions(1))
            .with_default_features()
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build();
        Fixture {
            runtime,
            relations,
            context: SessionContext::new_with_state(state),
            _store: store,
            _directory: directory,
        }
    }

    async fn create(&self, id: RelationId, name: &str, sql: &str) -> Result<(), RuntimeError> {
        self.create_with(id, name, sql, ViewOptions::new(2)).await
    }

    async fn create_with(
        &self,
        id: RelationId,
        name: &str,
        sql: &str,
        options: ViewOptions,
    ) -> Result<(), RuntimeError> {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let state = self.context.state();
        let plan = Binder::new(&state, &self.relations)
            .statement(&statement)
            .unwrap();
        let spec = ViewSpec {
            id,
            name: name.into(),
            graph: plan_view(&state, plan, options).unwrap(),
            definition: None,
        };
        self.runtime.create_view(spec).await
    }

    async fn write(&self, id: RelationId, values: std::ops::Range<i64>) -> Result<(), RuntimeError> {
        let written = self.append(id, values, Some(Duration::from_millis(50))).await?;
        self.runtime.wait_for(&written).await
    }

    async fn append(
        &self,
        id: RelationId,
        values: std::ops::Range<i64>,
        wait: Option<Duration>,
    ) -> Result<WriteToken, RuntimeError> {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let rows = RecordBatch::try_new(schema(), vec![values]).unwrap();
        let changes = vec![(id, ChangeBatch::insertions(rows))];
        let options = WriteOptions {
            wait_max: wait,
            ..WriteOptions::default()
        };
        self.runtime.append_with(changes, &options).await
    }

    /// The queue before the epochs of a source.
    fn feed(&self, source: RelationId) -> FeedStatus {
        let feeds = self.runtime.feeds();
        feeds.into_iter().find(|feed| feed.sources == [source]).unwrap()
    }

    /// The sum over the second column of a view.
    async fn sum(&self, view: RelationId) -> Result<i64, RuntimeError> {
        Ok(self.seconds(view).await?.iter().sum())
    }

    /// The second column of a view.
    async fn seconds(&self, view: RelationId) -> Result<Vec<i64>, RuntimeError> {
        let snapshot = self.runtime.snapshot(&[view], None).await?;
        let provider = snapshot.table_provider(view)?;
        let frame = self.context.read_table(provider).unwrap();
        let batches = frame.collect().await.unwrap();
        Ok(batches
            .iter()
            .flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values().to_vec())
            .collect())
    }

    /// Bytes of a view's state that are on disk.
    fn on_disk(&self, view: RelationId) -> usize {
        let views = self.runtime.views();
        views
            .iter()
            .find(|status| status.relation == view)
            .unwrap()
            .on_disk_bytes
    }

    /// Writes so many values from 0 on, in steps that are waited for as long as it takes.
    async fn write_all(&self, id: RelationId, rows: i64, step: i64) {
        for first in (0..rows).step_by(step as usize) {
            self.write_range(id, first..rows.min(first + step)).await;
        }
    }

    /// Writes values, which are waited for as long as it takes.
    async fn write_range(&self, id: RelationId, values: std::ops::Range<i64>) {
        let written = self.append(id, values, None).await.unwrap();
        self.runtime.wait_for(&written).await.unwrap();
    }

    /// Resolves when so much of a view has left that it holds no more than this.
    async fn until_within(&self, view: RelationId, bytes: usize) {
        while self.held(view) > bytes {
            tokio::task::yield_now().await;
        }
    }

    fn held(&self, view: RelationId) -> usize {
        self.runtime.memory().held(view)
    }
}

const LARGE_SQL: &str = "SELECT v, count(*) AS n FROM a GROUP BY v";
const SMALL_SQL: &str = "SELECT 1 AS one, count(*) AS n FROM b";

#[tokio::test(flavor = "multi_thread")]
async fn writes_wait_when_views_have_taken_the_memory_and_others_go_on() {
    // The tables of groups double at 114,688 groups, and at 229,376, which are more than there is room for: not between the mark from which
    // writes wait and the limit, where the view would fail.
    let fixture = Fixture::new(12 * MB).await;
    fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    let (mut rows, step) = (0, 2_000);
    let error = loop {
        match fixture.write(A, rows..rows + step).await {
            Ok(()) => rows += step,
            Err(error) => break error,
        }
        let status = fixture.runtime.memory().status();
        assert!(rows < 1_000_000, "it never waits: {status:?}");
    };
    let RuntimeError::WriteTimedOut { why, .. } = &error else {
        panic!("{error}");
    };
    assert!(why.contains("memory_limit is 12.0 MB; view \"large\""), "{why}");
    assert!(fixture.held(LARGE) > 9 * MB, "{}", fixture.held(LARGE));
    assert_eq!(fixture.sum(LARGE).await.unwrap(), rows);
    // The other pipeline holds little.
    for _ in 0..10 {
        fixture.write(B, 0..100).await.unwrap();
    }
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 1_000);
    // Who waits goes on when there is space.
    let waiting = fixture.runtime.wait_for_backpressure(A, None);
    let more = async {
        fixture.runtime.memory().set_limit(Some(64 * MB));
    };
    tokio::join!(waiting, more).0.unwrap();
    fixture.write(A, rows..rows + step).await.unwrap();
    assert_eq!(fixture.sum(LARGE).await.unwrap(), rows + step);
    let status = fixture.runtime.memory().status();
    assert!(
        status.writes_waited >= 1 && status.views_failed == 0,
        "{status:?}"
    );
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_cannot_go_on_fails_and_the_others_go_on() {
    let fixture = Fixture::new(16 * MB).await;
    fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    fixture.write(A, 0..1_000).await.unwrap();
    fixture.write(B, 0..1_000).await.unwrap();
    // One write that needs more than there is.
    fixture.write(A, 1_000..600_000).await.unwrap();
    let error = fixture.sum(LARGE).await.unwrap_err();
    let RuntimeError::ViewFailed { view, why } = &error else {
        panic!("{error}");
    };
    assert_eq!(view, "large");
    assert!(
        why.contains("out of memory: view \"large\" exceeded memory_limit: memory_limit is 16.0 MB"),
        "{why}"
    );
    // What it held is free again, and nobody else noticed.
    fixture.write(B, 0..1_000).await.unwrap();
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 2_000);
    assert!(fixture.held(LARGE) < MB, "{}", fixture.held(LARGE));
    assert_eq!(fixture.runtime.memory().status().views_failed, 1);
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_for_which_there_is_no_memory_is_not_made() {
    let fixture = Fixture::new(16 * MB).await;
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    for first in (0..600_000).step_by(100_000) {
        fixture.write(A, first..first + 100_000).await.unwrap();
    }
    let error = fixture.create(LARGE, "large", LARGE_SQL).await.unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    fixture.write(B, 0..1_000).await.unwrap();
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 1_000);
    // With more it is made.
    fixture.runtime.memory().set_limit(None);
    fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 600_000);
    assert!(fixture.held(LARGE) > 16 * MB, "{}", fixture.held(LARGE));
    fixture.runtime.shutdown().await;
}

/// Fills the queue before the epochs of `a` while its view stands still; returns the rows that were taken.
async fn fill_up(fixture: &Fixture) -> (i64, RuntimeError) {
    let mut rows = 0;
    loop {
        let wait = Some(Duration::from_millis(20));
        match fixture.append(A, rows..rows + 100, wait).await {
            Ok(_) => rows += 100,
            Err(error) => return (rows, error),
        }
        assert!(rows < 1_000_000, "it never waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_behind_slows_its_sources_and_no_others() {
    for (limits, lack) in [
        (
            FeedLimits {
                rows: 1_000,
                bytes: usize::MAX,
            },
            Lack::FeedRows(1_000),
        ),
        (
            FeedLimits {
                rows: usize::MAX,
                bytes: 8_000,
            },
            Lack::FeedBytes(8_000),
        ),
    ] {
        let fixture = Fixture::over(RuntimeOptions {
            feed_limits: limits,
            ..RuntimeOptions::new(2)
        })
        .await;
        fixture.create(LARGE, "large", LARGE_SQL).await.unwrap();
        fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
        fixture.runtime.stall_worker(0, true).unwrap();
        let (rows, error) = fill_up(&fixture).await;
        let RuntimeError::WriteTimedOut { why, .. } = &error else {
            panic!("{error}");
        };
        assert!(why.contains("the next epochs"), "{why}");
        let feed = fixture.feed(A);
        assert_eq!((feed.size.rows, feed.size.bytes), (1_000, 8_000));
        // On a busy machine writes before the last one may have waited as well.
        let waited = feed.writes_waited;
        assert!(feed.writes_waiting == 0 && waited > 0);
        // The other source has a queue of its own.
        for _ in 0..5 {
            fixture.append(B, 0..100, Some(Duration::ZERO)).await.unwrap();
        }
        // Who waits says so, and goes on with the view.
        let waiting = fixture.append(A, rows..rows + 100, None);
        let let_go = async {
            loop {
                let feed = fixture.feed(A);
                if feed.writes_waiting == 1 {
                    assert_eq!(feed.lack, Some(lack));
                    assert!(feed.since.is_some());
                    assert_eq!(
                        feed.behind.map(|(view, stage, _)| (view, stage)),
                        Some((LARGE, 0))
                    );
                    break;
                }
                tokio::task::yield_now().await;
            }
            fixture.runtime.stall_worker(0, false).unwrap();
        };
        let (written, ()) = tokio::join!(waiting, let_go);
        fixture.runtime.wait_for(&written.unwrap()).await.unwrap();
        assert_eq!(fixture.sum(LARGE).await.unwrap(), rows + 100);
        fixture.write(B, 0..500).await.unwrap();
        assert_eq!(fixture.sum(SMALL).await.unwrap(), 1_000);
        let feed = fixture.feed(A);
        assert_eq!(
            (feed.size.rows, feed.writes_waiting, feed.writes_waited),
            (0, 0, waited + 1)
        );
        fixture.runtime.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_takes_what_no_account_sees_is_ended() {
    // Once it is told more than the limit, the resident size grows with each look.
    let told = Arc::new(AtomicUsize::new(0));
    let resident = {
        let told = Arc::clone(&told);
        Resident::Told(Arc::new(move || match told.load(Ordering::Relaxed) {
            0 => 0,
            _ => told.fetch_add(MB, Ordering::Relaxed),
        }))
    };
    let fixture = Fixture::over(RuntimeOptions {
        memory: Memory::new(Some(64 * MB), resident),
        ..RuntimeOptions::new(2)
    })
    .await;
    // Some 10^10 pairs: the epoch would take hours.
    let sql = "SELECT 1 AS one, count(*) AS n FROM a AS x, a AS y, a AS z";
    fixture.create(LARGE, "large", sql).await.unwrap();
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    let written = fixture.append(A, 0..3_000, None).await.unwrap();
    while fixture.feed(A).behind.is_none() {
        tokio::task::yield_now().await;
    }
    told.store(64 * MB, Ordering::Relaxed);
    fixture.runtime.wait_for(&written).await.unwrap();
    told.store(0, Ordering::Relaxed);
    let error = fixture.sum(LARGE).await.unwrap_err();
    let RuntimeError::ViewFailed { why, .. } = &error else {
        panic!("{error}");
    };
    assert!(why.contains("not accounted for"), "{why}");
    fixture.runtime.memory().look();
    fixture.write(B, 0..1_000).await.unwrap();
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 1_000);
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_unnest_makes_is_in_flight_a_few_batches_at_a_time() {
    const WHOLE: RelationId = RelationId(13);
    let fixture = Fixture::new(24 * MB).await;
    // Each of 200 rows makes 10,000, and three of all are kept.
    let sql = "SELECT x, x + 1 AS y FROM (SELECT unnest(generate_series(v * 10000, v * 10000 + 9999)) AS x FROM a) AS q
      ORDER BY x LIMIT 3";
    let sql_whole = sql.replace("FROM a)", "FROM b)");
    fixture.create(LARGE, "large", sql).await.unwrap();
    let mut options = ViewOptions::new(2);
    options.flow.batches = 0;
    fixture
        .create_with(WHOLE, "whole", &sql_whole, options)
        .await
        .unwrap();
    fixture.write(A, 0..200).await.unwrap();
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 6);
    let views = fixture.runtime.views();
    let large = views.iter().find(|view| view.relation == LARGE).unwrap();
    assert!(
        large.flows.iter().any(|flow| flow.counts.batches > 0),
        "{:?}",
        large.flows
    );
    // The same without flow control.
    fixture.write(B, 0..200).await.unwrap();
    let error = fixture.sum(WHOLE).await.unwrap_err();
    assert!(error.to_string().contains("exceeded memory_limit"), "{error}");
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wide_rows_are_in_flight_a_few_megabytes_at_a_time() {
    let fixture = Fixture::new(256 * MB).await;
    // 40 texts of 100 kB, each of them 200 times: 800 MB, though fewer rows than go on as a whole.
    let sql = "SELECT t, x FROM (SELECT t, unnest(generate_series(v * 200, v * 200 + 199)) AS x
      FROM (SELECT v, repeat('x', 100000) AS t FROM a) AS wide) AS q ORDER BY x LIMIT 3";
    fixture.create(LARGE, "large", sql).await.unwrap();
    fixture.write(A, 0..40).await.unwrap();
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 3);
    fixture.runtime.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_over_wide_rows_is_refused_before_its_values_are_made() {
    let fixture = Fixture::new(128 * MB).await;
    let sql = "SELECT v, length(first)::bigint AS n
      FROM (SELECT v, first_value(repeat('x', v::int)) OVER (ORDER BY v DESC) AS first FROM a) AS q";
    fixture.create(LARGE, "large", sql).await.unwrap();
    fixture.create(SMALL, "small", SMALL_SQL).await.unwrap();
    fixture.write(A, 100_000..100_050).await.unwrap();
    assert_eq!(fixture.sum(LARGE).await.unwrap(), 50 * 100_049);
    // 2,000 copies of 100 kB.
    fixture.write(A, 98_000..99_950).await.unwrap();
    let error = fixture.sum(LARGE).await.unwrap_err();
    assert!(error.to_string().contains("exceeded memory_limit"), "{error}");
    fixture.write(B, 0..10).await.unwrap();
    assert_eq!(fixture.sum(SMALL).await.unwrap(), 10);
    fixture.runtime.shutdown().await;
}
