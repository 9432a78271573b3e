//! Recursive views over graphs that change at random: after every change each view equals what plain DataFusion answers
//! for its query over the same rows. `MILLRACE_ORACLE_CASES` sets how many graphs are tried, `MILLRACE_SEED` the
//! first. (Larger numbers of graphs, against an evaluation without DataFusion, are the operator's own test.)

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Relations;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::TryStreamExt;
use millrace_engine::{QueryOptions, Runtime, RuntimeOptions, SourceKind, SourceSpec, ViewSpec, WriteToken};
use millrace_planner::relation::attach;
use millrace_planner::{Binder, RelationId, RelationInfo, RelationKind, ViewOptions, plan_view};
use millrace_schedule::cpu::QueryClass;
use millrace_schedule::cpu::shares::Tenant;
use millrace_storage::{ChangeBatch, Store, StoreOptions};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Over `edge (id, src, dst, w)`, whose ends may be NULL and which may have cycles, and `node (n, name)`.
const QUERIES: &[&str] = &[
    // Transitive closure.
    "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM edge UNION SELECT r.a, e.dst FROM r JOIN edge e ON r.b = e.src)
     SELECT * FROM r",
    // What is reached from named nodes, counted.
    "WITH RECURSIVE r AS (SELECT n, name AS root FROM node WHERE name LIKE 'a%'
       UNION SELECT e.dst, r.root FROM edge e JOIN r ON e.src = r.n)
     SELECT root, count(*) AS reached, max(n) AS last FROM r GROUP BY root",
    // Hops, bounded: shortest is the minimum.
    "WITH RECURSIVE r(n, hops) AS (SELECT 0 AS x, 0 AS y UNION SELECT e.dst, hops + 1 FROM r, edge e WHERE e.src = n AND hops < 4)
     SELECT n, min(hops) AS hops FROM r GROUP BY n",
    // Every path up to a length, with its nodes and its weight.
    "WITH RECURSIVE r AS (SELECT src AS n, CAST(src AS VARCHAR) AS path, w AS total, 1 AS hops FROM edge
       UNION ALL SELECT e.dst, r.path || '-' || CAST(e.dst AS VARCHAR), r.total + e.w, r.hops + 1
         FROM r JOIN edge e ON e.src = r.n WHERE r.hops < 4)
     SELECT * FROM r",
    // Without a bound, over edges that go up: a graph without cycles.
    "WITH RECURSIVE r(a, b, total) AS (SELECT src, dst, w FROM edge WHERE src < dst
       UNION ALL SELECT r.a, e.dst, total + e.w FROM edge e JOIN r ON e.src = r.b AND e.src < e.dst)
     SELECT a, b, count(*) AS paths, sum(total) AS total FROM r GROUP BY a, b",
    // Numbers up to a count that changes.
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT r.n + 1 FROM r, (SELECT count(*) AS c FROM node) x WHERE r.n < x.c)
     SELECT n FROM r",
    // Only through nodes that have a name; only where no heavy edge leads on.
    "WITH RECURSIVE r(n) AS (SELECT min(src) FROM edge
       UNION SELECT e.dst FROM r JOIN edge e ON e.src = r.n JOIN node ON node.n = e.dst
         WHERE NOT EXISTS (SELECT 1 FROM edge x WHERE x.src = e.dst AND x.w > 7))
     SELECT r.n, node.name FROM r LEFT JOIN node ON node.n = r.n",
    // With ends: the row that has no edge goes on once, with NULL.
    "WITH RECURSIVE r(n, hops) AS (SELECT n, 0 FROM node
       UNION SELECT e.dst, hops + 1 FROM r LEFT JOIN edge e ON e.src = r.n WHERE hops < 3 AND r.n IS NOT NULL)
     SELECT * FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION SELECT CASE WHEN e.w > 4 THEN e.dst ELSE e.src END
       FROM edge e RIGHT JOIN r ON e.src = r.n WHERE e.w IS NOT NULL) SELECT * FROM r",
    // The heaviest edge of each node only.
    "WITH RECURSIVE r(n) AS (SELECT 0 UNION SELECT h.dst FROM r JOIN
       (SELECT src, max(dst) AS dst FROM edge GROUP BY src) h ON h.src = r.n) SELECT * FROM r",
    // Grouping and DISTINCT within a step.
    "WITH RECURSIVE r(n, total, step) AS (SELECT n, 1, 0 FROM node
       UNION ALL SELECT dst, total, step + 1 FROM (SELECT e.dst, r.step, sum(r.total) AS total
         FROM r JOIN edge e ON e.src = r.n GROUP BY e.dst, r.step) x WHERE step < 3)
     SELECT * FROM r",
    "WITH RECURSIVE r(n, step) AS (SELECT 0 AS x, 0 AS y UNION ALL SELECT * FROM (SELECT DISTINCT e.dst, r.step + 1 AS step
       FROM r JOIN edge e ON e.src = r.n) x WHERE step < 5) SELECT * FROM r",
    "WITH RECURSIVE r(n, step) AS (SELECT 0 AS x, 0 AS y UNION ALL SELECT dst, step + 1 FROM (SELECT e.dst, r.step,
       row_number() OVER (PARTITION BY e.src ORDER BY e.id) AS place FROM r JOIN edge e ON e.src = r.n) x
       WHERE place <= 2 AND step < 4) SELECT * FROM r",
    // One recursive query over another, and one used twice.
    "WITH RECURSIVE up(n) AS (SELECT 0 UNION SELECT dst FROM up JOIN edge ON src = n),
       down(n, hops) AS (SELECT n, 0 FROM up UNION SELECT src, hops + 1 FROM down JOIN edge ON dst = n WHERE hops < 2)
     SELECT n, count(*) AS times FROM down GROUP BY n",
    "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM edge WHERE w > 2
       UNION SELECT r.a, e.dst FROM r JOIN edge e ON r.b = e.src AND e.w > 2)
     SELECT x.a, x.b FROM r x JOIN r y ON x.a = y.b AND x.b = y.a",
    "WITH RECURSIVE up(n) AS (SELECT 0 UNION SELECT dst FROM up JOIN edge ON src = n),
       r(n) AS (SELECT n FROM node UNION SELECT e.dst FROM r JOIN edge e ON e.src = r.n JOIN up ON up.n = e.dst)
     SELECT * FROM r EXCEPT SELECT n FROM up",
];

const EDGE: RelationId = RelationId(1);
const NODE: RelationId = RelationId(2);

fn edge_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("src", DataType::Int64, true),
        Field::new("dst", DataType::Int64, true),
        Field::new("w", DataType::Int64, false),
    ]))
}

fn node_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
    ]))
}

type Edge = (i64, Option<i64>, Option<i64>, i64);
type Node = (i64, String);

fn edge_batch(edges: &[Edge]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(edges.iter().map(|edge| edge.0))),
        Arc::new(Int64Array::from_iter(edges.iter().map(|edge| edge.1))),
        Arc::new(Int64Array::from_iter(edges.iter().map(|edge| edge.2))),
        Arc::new(Int64Array::from_iter_values(edges.iter().map(|edge| edge.3))),
    ];
    RecordBatch::try_new(edge_schema(), columns).unwrap()
}

fn node_batch(nodes: &[Node]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(nodes.iter().map(|node| node.0))),
        Arc::new(StringArray::from_iter_values(nodes.iter().map(|node| &node.1))),
    ];
    RecordBatch::try_new(node_schema(), columns).unwrap()
}

struct Fixture {
    runtime: Runtime,
    _store: Store,
    _directory: tempfile::TempDir,
    context: SessionContext,
    relations: Relations,
    edges: BTreeMap<i64, Edge>,
    nodes: BTreeMap<i64, Node>,
    views: Vec<(RelationId, &'static str)>,
}

impl Fixture {
    async fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let runtime = Runtime::start(RuntimeOptions::new(2), Arc::clone(store.logs())).unwrap();
        let mut relations = BTreeMap::new();
        for (id, name, schema) in [(EDGE, "edge", edge_schema()), (NODE, "node", node_schema())] {
            store.logs().create(id.0, Arc::clone(&schema)).unwrap();
            let spec = SourceSpec {
                id,
                name: name.into(),
                schema: Arc::clone(&schema),
                kind: SourceKind::Table { key: vec![0] },
            };
            runtime.create_source(spec).await.unwrap();
            let info = RelationInfo {
                id,
                name: name.into(),
                kind: RelationKind::Table,
                schema,
                key: Some(vec![0]),
                append_only: false,
                watermarks: vec![],
            };
            relations.insert(name.to_owned(), info);
        }
        let config = SessionConfig::new()
            .with_target_partitions(1)
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        Fixture {
            runtime,
            _store: store,
            _directory: directory,
            context: SessionContext::new_with_config(config),
            relations: Relations(relations),
            edges: BTreeMap::new(),
            nodes: BTreeMap::new(),
            views: vec![],
        }
    }

    fn bind(&self, sql: &str) -> datafusion::logical_expr::LogicalPlan {
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let plan = Binder::new(&self.context.state(), &self.relations).statement(&statement);
        plan.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn create_view(&mut self, sql: &'static str) {
        // So little may be in flight that what is derived goes on in batches.
        let mut options = ViewOptions::new(3);
        options.flow.batches = 1 + self.views.len() % 2;
        options.flow.batch_rows = 2;
        let graph = plan_view(&self.context.state(), self.bind(sql), options);
        let graph = graph.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let id = RelationId(100 + self.views.len() as u64);
        let spec = ViewSpec {
            id,
            name: format!("v{id}"),
            graph,
            definition: None,
        };
        let made = self.runtime.create_view(spec).await;
        made.unwrap_or_else(|error| panic!("{sql}: {error}"));
        self.views.push((id, sql));
    }

    /// Changes some edges or nodes: they come, go, or become others.
    async fn change(&mut self, random: &mut StdRng, nodes: i64) -> WriteToken {
        if random.random_bool(0.2) {
            let n = random.random_range(0..nodes);
            let (mut rows, mut weights) = (vec![], vec![]);
            if let Some(old) = self.nodes.remove(&n) {
                rows.push(old);
                weights.push(-1);
            }
            if random.random_bool(0.7) {
                let node = (n, ["a", "ab", "b"].choose(random).unwrap().to_string());
                self.nodes.insert(n, node.clone());
                rows.push(node);
                weights.push(1);
            }
            return self.append(NODE, node_batch(&rows), weights).await;
        }
        let goes = if random.random_bool(0.15) { 0.8 } else { 0.15 };
        let (mut rows, mut weights) = (vec![], vec![]);
        for id in 0..14 {
            let old = self.edges.get(&id).copied();
            let changes = if old.is_some() { goes } else { 0.15 };
            if !random.random_bool(changes) {
                continue;
            }
            if let Some(old) = old {
                self.edges.remove(&id);
                rows.push(old);
                weights.push(-1);
            }
            if old.is_none() || (goes < 0.5 && random.random_bool(0.5)) {
                let mut end = || random.random_bool(0.95).then(|| random.random_range(0..nodes));
                let edge = (id, end(), end(), random.random_range(0..10));
                self.edges.insert(id, edge);
                rows.push(edge);
                weights.push(1);
            }
        }
        self.append(EDGE, edge_batch(&rows), weights).await
    }

    async fn append(&self, relation: RelationId, rows: RecordBatch, weights: Vec<i64>) -> WriteToken {
        let batch = ChangeBatch::new(rows, Some(weights.into())).unwrap();
        let locks = self.runtime.lock_tables(&[relation]).await.unwrap();
        self.runtime
            .append(vec![(relation, batch)], Some(&locks))
            .await
            .unwrap()
    }

    async fn expected(&self, sql: &str) -> Vec<String> {
        let edges: Vec<Edge> = self.edges.values().copied().collect();
        let nodes: Vec<Node> = self.nodes.values().cloned().collect();
        let plan = attach(self.bind(sql), &|relation| {
            let batch = if relation == EDGE {
                edge_batch(&edges)
            } else {
                node_batch(&nodes)
            };
            Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?) as Arc<dyn TableProvider>)
        });
        let plan = self
            .context
            .state()
            .create_physical_plan(&plan.unwrap())
            .await
            .unwrap();
        render(&collect(plan, self.context.task_ctx()).await.unwrap())
    }

    async fn check(&self, after: &WriteToken, what: &str) {
        let ids: Vec<RelationId> = self.views.iter().map(|view| view.0).collect();
        let snapshot = self.runtime.snapshot(&ids, Some(after)).await.unwrap();
        for (id, sql) in &self.views {
            let provider = snapshot.table_provider(*id);
            let provider = provider.unwrap_or_else(|error| panic!("{what}, {sql}: {error}"));
            let plan = provider
                .scan(&self.context.state(), None, &[], None)
                .await
                .unwrap();
            let options = QueryOptions {
                class: QueryClass::Interactive,
                tenant: Tenant::default(),
                context: self.context.task_ctx(),
            };
            let stream = self.runtime.execute(plan, options).unwrap();
            let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
            assert_eq!(render(&batches), self.expected(sql).await, "{what}: {sql}");
        }
    }
}

/// Rows as sorted text.
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
    rows.sort();
    rows
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap_or(default))
}

#[tokio::test(flavor = "multi_thread")]
async fn views_over_graphs_equal_batch_answers_after_every_change() {
    let first = environment("MILLRACE_SEED", 0);
    for seed in first..first + environment("MILLRACE_ORACLE_CASES", 60) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::new().await;
        let nodes = random.random_range(3..8);
        for _ in 0..random.random_range(0..6) {
            fixture.change(&mut random, nodes).await;
        }
        // Each query is in every eighth graph's turn, over what is there already.
        let turn = (seed % 8) as usize;
        for sql in QUERIES.iter().skip(turn).step_by(8) {
            fixture.create_view(sql).await;
        }
        for change in 0..8 {
            let token = fixture.change(&mut random, nodes).await;
            fixture
                .check(&token, &format!("seed {seed}, change {change}"))
                .await;
        }
        fixture.runtime.shutdown().await;
    }
}
