//! Fixed queries over set-returning functions, LATERAL, set operations that count copies, subqueries in every place,
//! Top-N of partitions and joins, each with a query that says the same in the SQL that plain DataFusion answers rightly
//! (`None`: it is the query itself).
//!
//! Two things are held against that: the view, after every change, and the SELECT, planned with the planner's own rewrites.

use std::collections::HashMap;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::collect;
use millrace_oracle::base::Base;
use millrace_planner::query::{Wanted, logical_optimizer_rules};
use millrace_sql::CatalogReader;

use super::*;

/// A query, and the same for plain DataFusion.
type Case = (&'static str, Option<&'static str>);

const CASES: &[Case] = &[
    // UNNEST and set-returning functions.
    ("SELECT id, unnest(make_array(v, k, NULL)) AS x FROM t", None),
    (
        "SELECT id, unnest(string_to_array(name, ',')) AS part FROM t",
        None,
    ),
    (
        "SELECT t.id, u.x FROM t, unnest(make_array(t.v, t.k)) AS u(x)",
        Some("SELECT id, unnest(make_array(v, k)) AS x FROM t"),
    ),
    (
        "SELECT t.id, p.part, p.n FROM t CROSS JOIN LATERAL unnest(string_to_array(t.name, ',')) WITH ORDINALITY AS p(part, n)",
        Some(
            "SELECT id, unnest(string_to_array(name, ',')) AS part, \
             unnest(generate_series(1, array_length(string_to_array(name, ',')))) AS n FROM t",
        ),
    ),
    (
        "SELECT t.id, g.x FROM t, generate_series(1, t.k) AS g(x) WHERE g.x <> 2",
        Some("SELECT * FROM (SELECT id, unnest(generate_series(1, k)) AS x FROM t) y WHERE x <> 2"),
    ),
    (
        "SELECT t.id, g.x FROM t LEFT JOIN LATERAL generate_series(1, t.k) AS g(x) ON true",
        Some(
            "SELECT id, unnest(CASE WHEN k > 0 THEN generate_series(1, k) ELSE make_array(CAST(NULL AS BIGINT)) END) AS x FROM t",
        ),
    ),
    (
        "SELECT t.id, g.x FROM t LEFT JOIN LATERAL generate_series(1, t.k) AS g(x) ON g.x > 2",
        Some(
            "SELECT t.id, g.x FROM t LEFT JOIN (SELECT id, unnest(generate_series(1, k)) AS x FROM t) g ON t.id = g.id AND g.x > 2",
        ),
    ),
    (
        "SELECT x, count(*) AS n FROM s, unnest(make_array(s.k, s.v)) AS u(x) GROUP BY x",
        Some("SELECT x, count(*) AS n FROM (SELECT unnest(make_array(k, v)) AS x FROM s) y GROUP BY x"),
    ),
    (
        "SELECT g.x, count(t.id) AS n FROM generate_series(0, 6) AS g(x) LEFT JOIN t ON t.k = g.x GROUP BY g.x",
        None,
    ),
    (
        "SELECT a.x, b.y FROM generate_series(1, 3) AS a(x), generate_series(1, a.x) AS b(y)",
        Some("SELECT x, unnest(generate_series(1, x)) AS y FROM generate_series(1, 3) AS a(x)"),
    ),
    // LATERAL.
    (
        "SELECT t.id, l.w FROM t, LATERAL (SELECT t.v + t.k AS w) AS l WHERE l.w > 3",
        Some("SELECT id, v + k AS w FROM t WHERE v + k > 3"),
    ),
    (
        "SELECT t.id, l.label FROM t, LATERAL (SELECT label FROM u WHERE u.k = t.k) AS l",
        Some("SELECT t.id, u.label FROM t JOIN u ON u.k = t.k"),
    ),
    (
        "SELECT t.id, l.label FROM t LEFT JOIN LATERAL (SELECT label FROM u WHERE u.k < t.k AND u.k <> t.v) AS l ON true",
        Some("SELECT t.id, u.label FROM t LEFT JOIN u ON u.k < t.k AND u.k <> t.v"),
    ),
    (
        "SELECT u.k, l.id, l.v FROM u LEFT JOIN LATERAL (SELECT id, v FROM t WHERE t.k = u.k ORDER BY v DESC, id LIMIT 2) AS l ON true",
        Some(
            "SELECT u.k, l.id, l.v FROM u LEFT JOIN (SELECT id, v, k, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) l \
             ON l.k = u.k AND l.r <= 2",
        ),
    ),
    (
        "SELECT a.id, l.id AS next FROM t a, LATERAL (SELECT b.id FROM t b WHERE b.v > a.v ORDER BY b.v, b.id LIMIT 1 OFFSET 1) AS l",
        Some(
            "SELECT id, next FROM (SELECT a.id, b.id AS next, row_number() OVER (PARTITION BY a.id ORDER BY b.v, b.id) AS r \
             FROM t a JOIN t b ON b.v > a.v) x WHERE r = 2",
        ),
    ),
    (
        "SELECT t.id, l.n, l.total FROM t, LATERAL (SELECT count(*) AS n, sum(s.v) AS total FROM s WHERE s.k = t.k) AS l",
        Some(
            "SELECT t.id, coalesce(x.n, 0) AS n, x.total FROM t LEFT JOIN (SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k) x \
             ON x.k = t.k",
        ),
    ),
    (
        "SELECT t.id, l.n FROM t LEFT JOIN LATERAL (SELECT count(*) + 1 AS n FROM s WHERE s.k = t.k AND s.v > t.v) AS l ON l.n > 1",
        Some(
            "SELECT t.id, x.n FROM t LEFT JOIN (SELECT t.id, count(*) + 1 AS n FROM t JOIN s ON s.k = t.k AND s.v > t.v GROUP BY t.id) x \
             ON x.id = t.id",
        ),
    ),
    (
        "SELECT t.id, l.k, l.n FROM t, LATERAL (SELECT s.k, count(*) AS n FROM s WHERE s.v > t.v GROUP BY s.k HAVING count(*) > 1) AS l",
        Some(
            "SELECT t.id, s.k, count(*) AS n FROM t JOIN s ON s.v > t.v GROUP BY t.id, s.k HAVING count(*) > 1",
        ),
    ),
    (
        "SELECT t.id, l.x FROM t, LATERAL (SELECT DISTINCT s.v AS x FROM s WHERE s.k = t.k UNION ALL SELECT t.v) AS l",
        Some("SELECT DISTINCT t.id, s.v AS x FROM t JOIN s ON s.k = t.k UNION ALL SELECT id, v FROM t"),
    ),
    (
        "SELECT t.id, l.x FROM t, LATERAL (VALUES (t.v), (t.k + 100)) AS l(x)",
        Some("SELECT id, v AS x FROM t UNION ALL SELECT id, k + 100 FROM t"),
    ),
    (
        "SELECT u.k, l.id, l.r FROM u, LATERAL (SELECT id, rank() OVER (ORDER BY v) AS r FROM t WHERE t.k = u.k) AS l",
        Some(
            "SELECT u.k, t.id, t.r FROM u JOIN (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t) t ON t.k = u.k",
        ),
    ),
    (
        "SELECT u.k, l.id, m.x FROM u, LATERAL (SELECT t.id, t.v FROM t WHERE t.k = u.k) AS l, \
         LATERAL (SELECT max(s.v) AS x FROM s WHERE s.v < l.v + u.k) AS m",
        Some(
            "SELECT u.k, t.id, CAST(NULL AS BIGINT) AS x FROM u JOIN t ON t.k = u.k WHERE t.v IS NULL \
             UNION ALL SELECT u.k, t.id, max(s.v) FROM u JOIN t ON t.k = u.k LEFT JOIN s ON s.v < t.v + u.k WHERE t.v IS NOT NULL \
             GROUP BY u.k, t.id",
        ),
    ),
    (
        "SELECT t.id, l.w FROM t, LATERAL (SELECT u.k, x.w FROM u, LATERAL (SELECT s.v + t.v AS w FROM s WHERE s.k = u.k) x WHERE u.k = t.k) AS l",
        Some("SELECT t.id, s.v + t.v AS w FROM t JOIN u ON u.k = t.k JOIN s ON s.k = u.k"),
    ),
    // EXCEPT ALL, INTERSECT ALL.
    (
        "SELECT k, name FROM t EXCEPT ALL SELECT k, name FROM s",
        Some(
            "SELECT k, name FROM (SELECT k, name, row_number() OVER (PARTITION BY k, name) AS n FROM t \
             EXCEPT SELECT k, name, row_number() OVER (PARTITION BY k, name) AS n FROM s) x",
        ),
    ),
    (
        "SELECT v FROM s INTERSECT ALL SELECT v FROM t",
        Some(
            "SELECT v FROM (SELECT v, row_number() OVER (PARTITION BY v) AS n FROM s \
             INTERSECT SELECT v, row_number() OVER (PARTITION BY v) AS n FROM t) x",
        ),
    ),
    (
        "SELECT k FROM s EXCEPT ALL (SELECT k FROM t INTERSECT ALL SELECT k FROM u)",
        Some(
            "SELECT k FROM (SELECT k, row_number() OVER (PARTITION BY k) AS n FROM s EXCEPT \
             SELECT k, row_number() OVER (PARTITION BY k) AS n FROM \
             (SELECT k, row_number() OVER (PARTITION BY k) AS m FROM t INTERSECT \
              SELECT k, row_number() OVER (PARTITION BY k) AS m FROM u) y) x",
        ),
    ),
    // Subqueries as values and conditions.
    (
        "SELECT id FROM t WHERE k NOT IN (SELECT v FROM s)",
        Some(
            "SELECT id FROM t WHERE (SELECT count(*) FROM s) = 0 OR (k IS NOT NULL AND (SELECT count(*) FROM s WHERE v IS NULL) = 0 \
             AND NOT EXISTS (SELECT 1 FROM s WHERE s.v = t.k))",
        ),
    ),
    (
        "SELECT id, k IN (SELECT v FROM s WHERE s.v > 2) AS found FROM t",
        Some(
            "SELECT id, CASE WHEN n = 0 THEN false WHEN k IS NULL THEN NULL ELSE m.v IS NOT NULL END AS found FROM t \
             LEFT JOIN (SELECT DISTINCT v FROM s WHERE v > 2) m ON m.v = t.k CROSS JOIN (SELECT count(*) AS n FROM s WHERE v > 2) c",
        ),
    ),
    (
        "SELECT id, v NOT IN (SELECT s.v FROM s WHERE s.k = t.k) AS absent FROM t",
        Some(
            "SELECT id, CASE WHEN n IS NULL THEN true WHEN hits > 0 THEN false WHEN v IS NULL OR m < n THEN NULL ELSE true END AS absent \
             FROM (SELECT t.id, t.v, max(c.n) AS n, max(c.m) AS m, count(h.v) AS hits FROM t \
             LEFT JOIN (SELECT k, count(*) AS n, count(v) AS m FROM s GROUP BY k) c ON c.k = t.k \
             LEFT JOIN s h ON h.k = t.k AND h.v = t.v GROUP BY t.id, t.v) x",
        ),
    ),
    (
        "SELECT id FROM t WHERE v > ALL (SELECT s.v FROM s WHERE s.k = 3)",
        Some(
            "SELECT id FROM t CROSS JOIN (SELECT count(*) AS n, count(v) AS m, max(v) AS hi FROM s WHERE k = 3) c \
             WHERE n = 0 OR (m = n AND v > hi)",
        ),
    ),
    (
        "SELECT id FROM t WHERE v < ANY (SELECT s.v FROM s WHERE s.k = t.k)",
        Some(
            "SELECT t.id FROM t JOIN (SELECT k, max(v) AS hi FROM s GROUP BY k) c ON c.k = t.k WHERE t.v < c.hi",
        ),
    ),
    (
        "SELECT id, v <> ALL (SELECT u.k FROM u) AS other, v = ANY (SELECT u.k FROM u) AS same FROM t",
        Some(
            "SELECT id, CASE WHEN n = 0 THEN true WHEN v IS NULL THEN NULL ELSE u.k IS NULL END AS other, \
             CASE WHEN n = 0 THEN false WHEN v IS NULL THEN NULL ELSE u.k IS NOT NULL END AS same \
             FROM t LEFT JOIN u ON u.k = t.v CROSS JOIN (SELECT count(*) AS n FROM u) c",
        ),
    ),
    (
        "SELECT id, EXISTS (SELECT 1 FROM u WHERE u.k = t.k) AS known, EXISTS (SELECT 1 FROM s WHERE s.v > 8) AS high FROM t",
        Some(
            "SELECT t.id, u.k IS NOT NULL AS known, (SELECT count(*) FROM s WHERE v > 8) > 0 AS high FROM t LEFT JOIN u ON u.k = t.k",
        ),
    ),
    (
        "SELECT k, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.v)) AS n FROM t GROUP BY k",
        Some("SELECT t.k, count(u.k) AS n FROM t LEFT JOIN u ON u.k = t.v GROUP BY t.k"),
    ),
    (
        "SELECT id, (SELECT label FROM u WHERE u.k = t.k) AS label FROM t",
        Some("SELECT t.id, u.label FROM t LEFT JOIN u ON u.k = t.k"),
    ),
    (
        "SELECT id, (SELECT count(*) FROM s WHERE s.k = t.k AND s.v > t.v) AS above FROM t",
        Some("SELECT t.id, count(s.v) AS above FROM t LEFT JOIN s ON s.k = t.k AND s.v > t.v GROUP BY t.id"),
    ),
    (
        "SELECT id, (SELECT b.id FROM t b WHERE b.k = a.k AND b.id > a.id ORDER BY b.id LIMIT 1) AS next FROM t a",
        Some(
            "SELECT a.id, min(b.id) AS next FROM t a LEFT JOIN t b ON b.k = a.k AND b.id > a.id GROUP BY a.id",
        ),
    ),
    (
        "SELECT id FROM t WHERE v > 5 OR k NOT IN (SELECT s.v FROM s WHERE s.v < 3)",
        Some(
            "SELECT id FROM t CROSS JOIN (SELECT count(*) AS n FROM s WHERE v < 3) c WHERE v > 5 OR n = 0 OR \
             (k IS NOT NULL AND NOT EXISTS (SELECT 1 FROM s WHERE s.v < 3 AND s.v = t.k))",
        ),
    ),
    (
        "SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM s WHERE s.k = t.k HAVING count(*) > 2)",
        Some(
            "SELECT t.id FROM t JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) c ON c.k = t.k WHERE n > 2",
        ),
    ),
    // The first rows of partitions.
    (
        "SELECT id, k, v FROM (SELECT id, k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS r FROM t) x WHERE r <= 2",
        None,
    ),
    (
        "SELECT id, k, r FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM t) x WHERE r BETWEEN 2 AND 4",
        None,
    ),
    (
        "SELECT id, k, r FROM (SELECT id, k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t) x WHERE r < 3",
        None,
    ),
    (
        "SELECT id, r FROM (SELECT id, name, dense_rank() OVER (ORDER BY v DESC NULLS LAST) AS r FROM t) x WHERE r <= 3 AND name <> ''",
        None,
    ),
    (
        "SELECT k, v, name, r FROM (SELECT k, v, name, rank() OVER (PARTITION BY name ORDER BY v DESC) AS r FROM s) x WHERE 2 >= r",
        None,
    ),
    (
        "SELECT id, r FROM (SELECT id, row_number() OVER (PARTITION BY k % 2 ORDER BY v, id) AS r FROM t) x WHERE r = 1",
        None,
    ),
    (
        "SELECT id, sum(v) OVER (PARTITION BY k % 2, name || 'x' ORDER BY id) AS total FROM t",
        None,
    ),
    (
        "SELECT DISTINCT ON (k, b) k, b, id, name FROM t ORDER BY k, b, v DESC NULLS LAST, id",
        None,
    ),
    (
        "SELECT DISTINCT ON (k % 2) id, v FROM t ORDER BY k % 2, id DESC",
        None,
    ),
    ("SELECT id, v FROM t ORDER BY v, id LIMIT 3 OFFSET 4", None),
    (
        "SELECT k, v FROM s ORDER BY v DESC NULLS LAST, k, name OFFSET 5",
        None,
    ),
    (
        "SELECT k, count(*) AS n FROM (SELECT k, v FROM t ORDER BY v DESC, id LIMIT 8) x GROUP BY k",
        None,
    ),
    // Joins.
    ("SELECT count(*) AS n FROM t CROSS JOIN u", None),
    ("SELECT 1 AS one FROM t, u WHERE u.k < 3", None),
    ("SELECT u.k FROM u, (SELECT 1 FROM s WHERE v > 3) x", None),
    ("SELECT k, id, label FROM t JOIN u USING (k)", None),
    (
        "SELECT k, id, label FROM t FULL JOIN u USING (k)",
        Some("SELECT coalesce(t.k, u.k) AS k, id, label FROM t FULL JOIN u ON t.k = u.k"),
    ),
    (
        "SELECT * FROM (SELECT k, id FROM t) a RIGHT JOIN u USING (k) WHERE k > 1",
        Some(
            "SELECT u.k, a.id, u.label FROM (SELECT k, id FROM t) a RIGHT JOIN u ON a.k = u.k WHERE u.k > 1",
        ),
    ),
    (
        "SELECT * FROM (SELECT k, id FROM t) a NATURAL JOIN (SELECT k, label FROM u) b",
        None,
    ),
    (
        "SELECT * FROM (SELECT k, id FROM t) a NATURAL LEFT JOIN (SELECT k, label FROM u) b",
        None,
    ),
    (
        "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.k IS NOT DISTINCT FROM b.k WHERE a.v = b.v",
        Some(
            "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.v = b.v WHERE coalesce(a.k, -99) = coalesce(b.k, -99)",
        ),
    ),
    (
        "SELECT a.id, u.label FROM t a JOIN t b ON a.k IS NOT DISTINCT FROM b.k JOIN u ON b.v = u.k",
        Some(
            "SELECT a.id, u.label FROM t a JOIN t b ON coalesce(a.k, -99) = coalesce(b.k, -99) JOIN u ON b.v = u.k",
        ),
    ),
    (
        "SELECT count(*) AS n FROM t, s, u, t AS t2 WHERE t.k = u.k AND s.v = t2.v AND t2.k = u.k AND t.id < t2.id",
        None,
    ),
];

/// The catalog of a batch query: tables in memory.
struct Tables(HashMap<&'static str, Arc<dyn TableProvider>>);

impl CatalogReader for Tables {
    fn table(&self, name: &TableReference) -> DataFusionResult<Arc<dyn TableProvider>> {
        match self.0.get(name.table()) {
            Some(table) => Ok(Arc::clone(table)),
            None => Err(DataFusionError::Plan(format!("no {name}"))),
        }
    }
}

impl Fixture {
    /// What the query answers as a SELECT, planned as the server plans it.
    async fn selected(&self, sql: &str) -> Vec<RecordBatch> {
        let tables = self.rows().map(|(name, batch)| {
            let base = Base::new(batch.schema(), None);
            base.set_rows(vec![batch]);
            (name, base.table(false, 1))
        });
        let state = SessionStateBuilder::new_from_existing(self.context.state())
            .with_optimizer_rules(logical_optimizer_rules(Wanted::default()))
            .with_physical_optimizer_rules(physical_optimizer_rules())
            .build();
        let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
        let plan = Binder::new(&state, &Tables(tables.into_iter().collect()))
            .statement(&statement)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let physical = state
            .create_physical_plan(&plan)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let batches = collect(physical, self.context.task_ctx()).await;
        batches.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relational_queries_equal_what_they_mean() {
    let seeds = seeds();
    for seed in seeds.start..seeds.start + (seeds.end - seeds.start).div_ceil(6) {
        let mut random = StdRng::seed_from_u64(2_000_000 + seed);
        let mut fixture = Fixture::new().await;
        let mut after = millrace_engine::WriteToken::default();
        let only = std::env::var("MILLRACE_ORACLE_ONLY").unwrap_or_default();
        let mut waiting: Vec<&Case> = CASES.iter().filter(|case| case.0.contains(&only)).collect();
        for step in 0..30 {
            for _ in 0..4 {
                if waiting.is_empty() {
                    break;
                }
                let (sql, plain) = waiting.remove(random.random_range(0..waiting.len()));
                fixture.create_view(sql).await;
                if let Some(view) = fixture.views.last_mut() {
                    view.1 = plain.unwrap_or(sql).to_owned();
                }
                assert_same(
                    &fixture.selected(sql).await,
                    &fixture.expected(plain.unwrap_or(sql)).await,
                    &format!("seed {seed}, step {step}, SELECT: {sql}"),
                );
            }
            for _ in 0..random.random_range(1..4) {
                after.merge(&fixture.change(&mut random).await);
            }
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        for (sql, plain) in CASES.iter().filter(|case| case.0.contains(&only)) {
            assert_same(
                &fixture.selected(sql).await,
                &fixture.expected(plain.unwrap_or(sql)).await,
                &format!("seed {seed}, SELECT: {sql}"),
            );
        }
        fixture.runtime.shutdown().await;
    }
}
