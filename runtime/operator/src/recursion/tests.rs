//! Random graphs: after every change the maintained rows are those of an evaluation from scratch, step by step as
//! PostgreSQL's manual describes it.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::executor::block_on;
use futures::future::BoxFuture;
use millrace_planner::stage::operator::Operator;
use millrace_planner::stage::{Output, Stage};
use millrace_planner::{
    Binder, RelationId, RelationInfo, RelationKind, RelationTable, StageGraph, ViewOptions, plan_view,
};
use millrace_sql::CatalogReader;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::consolidate::consolidate;

const EDGE: RelationId = RelationId(1);
const BLOCKED: RelationId = RelationId(2);

type Row = Vec<i64>;
type Bag = BTreeMap<Row, i64>;

struct Catalog;

#[async_trait]
impl CatalogReader for Catalog {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        let (id, columns): (_, &[&str]) = match name.table() {
            "edge" => (EDGE, &["src", "dst"]),
            "blocked" => (BLOCKED, &["n"]),
            other => return Err(DataFusionError::Plan(format!("no {other}"))),
        };
        Ok(Arc::new(RelationTable::new(RelationInfo {
            id,
            name: name.table().to_owned(),
            kind: RelationKind::Table,
            schema: integers(columns),
            key: None,
            append_only: false,
            watermarks: vec![],
        })))
    }
}

fn integers(columns: &[&str]) -> SchemaRef {
    let fields: Vec<Field> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Int64, false))
        .collect();
    Arc::new(Schema::new(fields))
}

struct Open;

impl Gate for Open {
    fn checkpoint(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

fn plan(sql: &str, limits: RecursionLimits) -> StageGraph {
    let config = SessionConfig::new().with_target_partitions(1);
    let state = SessionContext::new_with_config(config).state();
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
    let plan = Binder::new(&state, &Catalog).statement(&statement).unwrap();
    let options = ViewOptions {
        recursion: limits,
        ..ViewOptions::new(1)
    };
    plan_view(&state, plan, options).unwrap()
}

/// A view on one partition, its stages run one after the other.
struct View<'a> {
    graph: &'a StageGraph,
    stages: Vec<OperatorInstance>,
    contents: Bag,
    is_new: bool,
}

impl<'a> View<'a> {
    fn new(graph: &'a StageGraph) -> Self {
        let stages = graph
            .stages
            .iter()
            .map(|stage| OperatorInstance::new(&stage.root, 0));
        View {
            graph,
            stages: stages.collect::<Result<_>>().unwrap(),
            contents: Bag::new(),
            is_new: true,
        }
    }

    fn apply(&mut self, changes: &BTreeMap<RelationId, ChangeBatch>) -> Result<()> {
        let mut sent: BTreeMap<usize, Vec<ChangeBatch>> = BTreeMap::new();
        let errors = ErrorCounter::default();
        for (stage, operators) in self.graph.stages.iter().zip(&mut self.stages) {
            let source = stage.source().and_then(|source| changes.get(&source));
            let mut inputs = Inputs {
                source: source.cloned().into_iter().collect(),
                exchanges: std::mem::take(&mut sent),
                first: self.is_new,
                ..Inputs::default()
            };
            let output = block_on(operators.collect(&mut inputs, &Open, &errors))?;
            sent = inputs.exchanges;
            if stage.output == Output::Materialize {
                add(&mut self.contents, output);
            } else {
                sent.insert(stage.id, output);
            }
        }
        self.is_new = false;
        Ok(())
    }
}

fn add(contents: &mut Bag, output: Vec<ChangeBatch>) {
    let Some(changes) = consolidate(output).unwrap() else {
        return;
    };
    for row in 0..changes.num_rows() {
        let columns = changes.rows.columns().iter();
        let values: Row = columns
            .map(|column| column.as_primitive::<Int64Type>().value(row))
            .collect();
        *contents.entry(values).or_default() += changes.weight(row);
    }
    contents.retain(|_, count| *count != 0);
}

/// The relations as they are.
#[derive(Default)]
struct Graph {
    edges: Vec<(i64, i64)>,
    blocked: BTreeSet<i64>,
}

impl Graph {
    fn from(&self, node: i64) -> impl Iterator<Item = i64> {
        self.edges
            .iter()
            .filter(move |edge| edge.0 == node)
            .map(|edge| edge.1)
    }

    /// Changes at random: edges come, go, or are turned round; now and then many go at once.
    fn change(&mut self, random: &mut StdRng, nodes: i64) -> BTreeMap<RelationId, ChangeBatch> {
        let (mut rows, mut weights) = (vec![], vec![]);
        let mut note = |(src, dst): (i64, i64), weight: i64| {
            rows.push(vec![src, dst]);
            weights.push(weight);
        };
        let (goes, comes) = match random.random_range(0..8) {
            0 => (0.6, 0),
            1 | 2 => (0.0, 3),
            3 => (0.3, 2),
            _ => (0.1, 1),
        };
        self.edges.retain(|edge| {
            let goes = random.random_bool(goes);
            if goes {
                note(*edge, -1);
            }
            !goes
        });
        for _ in 0..comes {
            let edge = (random.random_range(0..nodes), random.random_range(0..nodes));
            self.edges.push(edge);
            note(edge, 1);
        }
        if let Some(edge) = self.edges.first_mut().filter(|_| random.random_bool(0.2)) {
            note(*edge, -1);
            *edge = (edge.1, edge.0);
            note(*edge, 1);
        }
        let mut changes = BTreeMap::from([(EDGE, batch(&["src", "dst"], &rows, weights))]);
        if random.random_bool(0.3) {
            let node = random.random_range(0..nodes);
            let weight = if self.blocked.remove(&node) { -1 } else { 1 };
            if weight == 1 {
                self.blocked.insert(node);
            }
            changes.insert(BLOCKED, batch(&["n"], &[vec![node]], vec![weight]));
        }
        changes
    }
}

fn batch(columns: &[&str], rows: &[Row], weights: Vec<i64>) -> ChangeBatch {
    let values = (0..columns.len()).map(|column| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[column])))
    });
    let rows = RecordBatch::try_new(integers(columns), values.collect()).unwrap();
    ChangeBatch::new(rows, Some(weights.into())).unwrap()
}

/// The rows of a recursive query, by the rules of PostgreSQL's manual.
fn evaluate(base: Vec<Row>, term: impl Fn(&Row) -> Vec<Row>, distinct: bool) -> Bag {
    let mut result = Bag::new();
    let mut working = base;
    while !working.is_empty() {
        let mut next = vec![];
        for row in working {
            let count = result.entry(row.clone()).or_default();
            if *count == 0 || !distinct {
                *count += 1;
                next.extend(term(&row));
            }
        }
        working = next;
    }
    result
}

type Model = fn(&Graph) -> Bag;

const QUERIES: &[(&str, Model)] = &[
    (
        "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM edge
           UNION SELECT r.a, e.dst FROM r JOIN edge e ON e.src = r.b) SELECT * FROM r",
        |graph| {
            let base = graph.edges.iter().map(|edge| vec![edge.0, edge.1]).collect();
            let term = |row: &Row| graph.from(row[1]).map(|dst| vec![row[0], dst]).collect();
            evaluate(base, term, true)
        },
    ),
    (
        "WITH RECURSIVE r(n) AS (SELECT 0::bigint
           UNION SELECT e.dst FROM edge e, r WHERE e.src = r.n AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.n = r.n))
         SELECT * FROM r",
        |graph| {
            let term = |row: &Row| {
                let is_open = !graph.blocked.contains(&row[0]);
                graph.from(row[0]).filter(|_| is_open).map(|dst| vec![dst]).collect()
            };
            evaluate(vec![vec![0]], term, true)
        },
    ),
    (
        "WITH RECURSIVE r(n, depth) AS (SELECT n, 0::bigint FROM blocked
           UNION ALL SELECT e.dst, depth + 1 FROM r JOIN edge e ON e.src = r.n WHERE depth < 4) SELECT * FROM r",
        |graph| {
            let base = graph.blocked.iter().map(|node| vec![*node, 0]).collect();
            let term = |row: &Row| {
                let is_near = row[1] < 4;
                graph.from(row[0]).filter(|_| is_near).map(|dst| vec![dst, row[1] + 1]).collect()
            };
            evaluate(base, term, false)
        },
    ),
    (
        "WITH RECURSIVE r(n, depth) AS (SELECT 0::bigint AS n, 0::bigint AS depth
           UNION SELECT coalesce(e.dst, -1), depth + 1 FROM r LEFT JOIN edge e ON e.src = r.n WHERE depth < 3 AND n >= 0)
         SELECT * FROM r",
        |graph| {
            let term = |row: &Row| {
                let mut next: Vec<Row> = vec![];
                if row[1] < 3 && row[0] >= 0 {
                    next.extend(graph.from(row[0]).map(|dst| vec![dst, row[1] + 1]));
                    if next.is_empty() {
                        next.push(vec![-1, row[1] + 1]);
                    }
                }
                next
            };
            evaluate(vec![vec![0, 0]], term, true)
        },
    ),
];

#[test]
fn random_graphs_equal_an_evaluation_from_scratch_after_every_change() {
    for (sql, model) in QUERIES {
        let planned = plan(sql, RecursionLimits::default());
        for seed in 0..150 {
            let mut random = StdRng::seed_from_u64(seed);
            let nodes = random.random_range(2..9);
            let mut graph = Graph::default();
            let mut view = View::new(&planned);
            view.apply(&BTreeMap::new()).unwrap();
            for change in 0..25 {
                view.apply(&graph.change(&mut random, nodes)).unwrap();
                assert_eq!(
                    view.contents,
                    model(&graph),
                    "{sql}: seed {seed}, change {change}"
                );
            }
        }
    }
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let planned = plan(QUERIES[0].0, RecursionLimits::default());
    let mut view = View::new(&planned);
    let edges: Vec<Row> = (0..30).map(|node| vec![node, (node + 1) % 30]).collect();
    for weight in [1, -1] {
        let changes = batch(&["src", "dst"], &edges, vec![weight; edges.len()]);
        view.apply(&BTreeMap::from([(EDGE, changes)])).unwrap();
        assert_eq!(view.contents.len(), if weight == 1 { 900 } else { 0 });
    }
    let is_recursion = |stage: &Stage| matches!(stage.root, Operator::Recursion(_));
    let recursion = planned.stages.iter().position(is_recursion).unwrap();
    let image = view.stages[recursion].image().unwrap();
    // What it kept is in front of what its body does.
    for kept in &image.parts()[..2] {
        let Part::Columns(columns) = kept else {
            panic!("{kept:?}")
        };
        assert!(columns.iter().all(|column| column.is_empty()));
    }
}

#[test]
fn an_endless_recursion_is_given_up_at_either_limit() {
    let cycle = [vec![0, 1], vec![1, 0], vec![0, 2], vec![2, 0]];
    let sql =
        "WITH RECURSIVE r(n) AS (SELECT 0::bigint UNION ALL SELECT e.dst FROM r JOIN edge e ON e.src = r.n)
               SELECT * FROM r";
    for (iterations, rows, said) in [
        (5, 1_000_000, "within 5 iterations"),
        (10_000, 1_000, "within 1000 rows"),
    ] {
        let planned = plan(sql, RecursionLimits { iterations, rows });
        let mut view = View::new(&planned);
        let insert =
            |edges: &[Row]| BTreeMap::from([(EDGE, batch(&["src", "dst"], edges, vec![1; edges.len()]))]);
        view.apply(&insert(&[vec![0, 3]])).unwrap();
        assert_eq!(view.contents.len(), 2);
        let error = view.apply(&insert(&cycle)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
