//! Generic joins of queries against plain DataFusion, over random graphs.

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::MemTable;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use millrace_planner::query::generic_join::{CyclicJoinChoice, CyclicJoins};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::query::BatchPlanner;

/// Cycles over `e (a, b)`, `f (a, b, label)`: edges that may be there several times, between nodes that may be NULL.
const QUERIES: &[&str] = &[
    "SELECT x.a, x.b, y.b AS c FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b",
    "SELECT x.a, y.label, z.label AS other FROM e x JOIN f y ON x.b = y.a JOIN f z ON z.b = x.a AND y.b = z.a",
    "SELECT count(*) AS n, min(x.a) AS lo FROM e x, e y, e z WHERE x.b = y.a AND y.b = z.a AND z.b = x.a",
    "SELECT x.a, y.a AS b, z.a AS c, w.a AS d FROM e x, e y, e z, e w WHERE x.b = y.a AND y.b = z.a AND z.b = w.a AND w.b = x.a",
    "SELECT x.a, y.b, p.b AS d FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b
       JOIN e p ON p.a = x.a JOIN e q ON q.a = x.b AND q.b = p.b JOIN e r ON r.a = y.b AND r.b = p.b",
    "SELECT x.a, y.label FROM e x JOIN f y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b WHERE x.a > 2 AND y.label = 'p' AND z.b < 6",
    "SELECT x.a % 3 AS k, count(*) AS n FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b GROUP BY x.a % 3",
    "SELECT x.a, t.b FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b JOIN e t ON t.a = y.b",
    "SELECT x.a, y.b FROM (SELECT DISTINCT a, b FROM e) x JOIN f y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b",
    "SELECT x.a FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b LIMIT 0",
    // The third edge leads back to where it begins: what is left is no cycle.
    "SELECT x.a, y.b FROM e x JOIN e y ON x.b = y.a JOIN e z ON x.a = z.a AND y.b = z.b AND z.a = z.b",
];

fn table(columns: Vec<(&str, ArrayRef)>) -> Arc<MemTable> {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let half = rows.num_rows() / 2;
    let parts = vec![rows.slice(0, half), rows.slice(half, rows.num_rows() - half)];
    Arc::new(MemTable::try_new(rows.schema(), vec![parts]).unwrap())
}

fn nodes(random: &mut StdRng, rows: usize) -> ArrayRef {
    let node = |_| random.random_bool(0.95).then(|| random.random_range(0..9));
    Arc::new((0..rows).map(node).collect::<Int64Array>())
}

fn context(joins: Option<CyclicJoins>, tables: &[(&str, Arc<MemTable>)], memory: usize) -> SessionContext {
    let pool = Arc::new(GreedyMemoryPool::new(memory));
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .build_arc()
        .unwrap();
    // So few rows a batch that nearly every search stands still in the middle.
    let mut config = SessionConfig::new().with_target_partitions(2).with_batch_size(3);
    if let Some(joins) = joins {
        config.set_extension(Arc::new(CyclicJoinChoice::new(joins)));
    }
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features();
    let builder = match joins {
        Some(_) => builder.with_query_planner(Arc::new(BatchPlanner)),
        None => builder,
    };
    let context = SessionContext::new_with_state(builder.build());
    for (name, table) in tables {
        context.register_table(*name, Arc::clone(table) as _).unwrap();
    }
    context
}

/// The rows in order, as text.
async fn answer(context: &SessionContext, sql: &str) -> Result<Vec<String>> {
    let batches = context.sql(sql).await?.collect().await?;
    let text = pretty_format_batches(&batches)?.to_string();
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with('+'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    Ok(lines)
}

async fn plan(context: &SessionContext, sql: &str) -> String {
    let frame = context.sql(sql).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(false).to_string()
}

#[tokio::test]
async fn cycles_joined_at_once_equal_binary_joins() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let (edges, labelled) = (random.random_range(0..60), random.random_range(1..60));
        let labels = (0..labelled).map(|_| {
            random
                .random_bool(0.9)
                .then(|| ["p", "q"][random.random_range(0..2)])
        });
        let labels: ArrayRef = Arc::new(labels.collect::<StringArray>());
        let tables = [
            (
                "e",
                table(vec![
                    ("a", nodes(&mut random, edges)),
                    ("b", nodes(&mut random, edges)),
                ]),
            ),
            (
                "f",
                table(vec![
                    ("a", nodes(&mut random, labelled)),
                    ("b", nodes(&mut random, labelled)),
                    ("label", labels),
                ]),
            ),
        ];
        let generic = context(Some(CyclicJoins::Generic), &tables, 1 << 30);
        let plain = context(None, &tables, 1 << 30);
        for sql in QUERIES {
            if !sql.ends_with("LIMIT 0") && !sql.ends_with("z.a = z.b") {
                let plan = plan(&generic, sql).await;
                assert!(plan.contains("GenericJoinExec"), "{sql}\n{plan}");
            }
            let expected = answer(&plain, sql).await.unwrap();
            assert_eq!(
                answer(&generic, sql).await.unwrap(),
                expected,
                "seed {seed}: {sql}"
            );
        }
    }
}

#[tokio::test]
async fn how_many_rows_there_are_decides_and_memory_ends_it() {
    let mut random = StdRng::seed_from_u64(1);
    let rows = 20_000;
    let wide = |random: &mut StdRng| -> ArrayRef {
        Arc::new(
            (0..rows)
                .map(|_| Some(random.random_range(0..5_000)))
                .collect::<Int64Array>(),
        )
    };
    let edges = table(vec![("a", wide(&mut random)), ("b", wide(&mut random))]);
    let tables = [("e", edges)];
    let sql = QUERIES[2];
    // A table in memory does not say how many rows it has.
    let auto = Arc::new(CyclicJoinChoice::default());
    let context_auto = context(Some(CyclicJoins::Auto), &tables, 1 << 30);
    let state = context_auto.state_ref();
    state.write().config_mut().set_extension(Arc::clone(&auto));
    assert!(!plan(&context_auto, sql).await.contains("GenericJoinExec"));
    assert!(auto.binary()[0].contains("is not known"), "{:?}", auto.binary());
    let generic = context(Some(CyclicJoins::Generic), &tables, 64 << 20);
    answer(&generic, sql).await.unwrap();
    let small = context(Some(CyclicJoins::Generic), &tables, 1 << 20);
    let error = answer(&small, sql).await.unwrap_err();
    assert!(error.to_string().contains("GenericJoin"), "{error}");
}

#[test]
fn rows_that_are_there_often_come_a_few_at_a_time() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
    let weights = Int64Array::from(vec![2, 5, 1]);
    let mut copies = Copies::of(ChangeBatch::new(rows, Some(weights)).unwrap());
    let mut sizes = vec![];
    while let Some(batch) = copies.next(3).unwrap() {
        sizes.push(batch.num_rows());
    }
    assert_eq!(sizes, [3, 3, 2]);
}
