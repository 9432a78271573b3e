//! Views whose rows multiply, with so little in flight that nearly every epoch goes on in batches.

use millrace_planner::stage::flow::FlowLimits;

use super::*;

/// As views are made, with random limits: often so small that what little these tests emitted goes on in batches.
pub(super) fn options(random: &mut StdRng) -> ViewOptions {
    let flow = match random.random_range(0..4) {
        0 => FlowLimits::of_cores(3),
        _ => FlowLimits {
            batches: random.random_range(1..4),
            batch_rows: random.random_range(1..20),
        },
    };
    ViewOptions {
        flow,
        ..ViewOptions::new(3)
    }
}

/// Joins whose keys are unique on neither side, and what may be behind them.
const QUERIES: &[&str] = &[
    "SELECT a.k, a.v, b.id FROM s AS a JOIN t AS b ON a.k = b.k",
    "SELECT a.k, count(*) AS n, sum(a.v) AS total, min(b.v) AS lo FROM s AS a JOIN t AS b ON a.k = b.k GROUP BY a.k",
    "SELECT count(*) AS n, sum(a.v + b.v) AS total FROM t AS a, t AS b",
    "SELECT a.v, count(*) AS n, max(b.id) AS last FROM t AS a JOIN t AS b ON a.k = b.k GROUP BY a.v",
    "SELECT a.id AS x, b.id AS y, c.id AS z FROM t AS a JOIN t AS b ON a.k = b.k JOIN t AS c ON b.v = c.v",
    "SELECT c.v, count(*) AS n FROM t AS a JOIN t AS b ON a.k = b.k JOIN t AS c ON b.v = c.v GROUP BY c.v",
    "SELECT a.id, b.id AS other FROM t AS a LEFT JOIN t AS b ON a.k = b.v",
    "SELECT b.name, count(*) AS n FROM t AS a FULL JOIN t AS b ON a.k = b.v GROUP BY b.name",
    "SELECT DISTINCT a.v, b.v AS w FROM t AS a JOIN t AS b ON a.k = b.k",
    "SELECT a.id, b.id AS other FROM t AS a JOIN t AS b ON a.k = b.k ORDER BY a.id, b.id LIMIT 9",
    "SELECT a.k, count(DISTINCT b.name) AS n FROM s AS a JOIN t AS b ON a.k = b.k GROUP BY a.k",
    "SELECT a.v, b.v AS w FROM t AS a JOIN t AS b ON a.k = b.k UNION ALL SELECT a.v, b.v FROM t AS a, u AS c, t AS b WHERE b.k = c.k",
    "SELECT a.id, unnest(make_array(a.v, b.v)) AS x FROM t AS a JOIN t AS b ON a.k = b.k",
    // Lists, some of them made where they are unnested.
    "SELECT k, unnest(make_array(v, k, v + 1)) AS x FROM s",
    "SELECT x, count(*) AS n FROM (SELECT unnest(generate_series(0, v)) AS x FROM s) AS q GROUP BY x",
    "SELECT k, count(DISTINCT x) AS n FROM (SELECT k, unnest(generate_series(0, v)) AS x FROM s) AS q GROUP BY k",
    "SELECT q.x, u.label FROM (SELECT unnest(make_array(k, v)) AS x FROM s) AS q JOIN u ON u.k = q.x",
    "SELECT x, count(*) AS n FROM (SELECT unnest(generate_series(0, v)) AS x FROM t) AS q GROUP BY x",
    // One row of `u` meets many of `t`.
    "SELECT u.label, t.id, t.v FROM t JOIN u ON t.k = u.k",
    "SELECT u.label, count(*) AS n, min(t.v) AS lo FROM t LEFT JOIN u ON t.k = u.k GROUP BY u.label",
    // Cycles, which are joined all at once.
    "SELECT a.id AS x, b.id AS y, c.id AS z FROM t AS a JOIN t AS b ON a.v = b.k JOIN t AS c ON b.v = c.k AND c.v = a.k",
    "SELECT a.k, count(*) AS n, sum(b.id) AS total FROM t AS a JOIN t AS b ON a.v = b.k JOIN s AS c ON b.v = c.k AND c.v = a.k GROUP BY a.k",
    "SELECT count(*) AS n FROM s AS a, s AS b, s AS c, s AS d WHERE a.v = b.k AND b.v = c.k AND c.v = d.k AND d.v = a.k",
    "SELECT a.k, b.k AS l, c.k AS m FROM t AS a, t AS b, u AS c, t AS d WHERE a.v = b.k AND b.v = c.k AND a.k = c.k AND d.k = c.k AND d.v > 2",
    "SELECT a.k FROM t AS a, t AS b, t AS c WHERE a.v = b.k AND b.v = c.k AND c.v = a.k AND a.k = a.v",
    "SELECT x.k, count(*) AS n FROM (SELECT a.k, a.v, b.id FROM t AS a JOIN t AS b ON a.k = b.k) AS x JOIN s ON s.v = x.v GROUP BY x.k",
];

/// Batches that the views of a fixture emitted.
fn batches(fixture: &Fixture) -> u64 {
    let views = fixture.runtime.views();
    let flows = views.iter().flat_map(|view| &view.flows);
    flows.map(|flow| flow.counts.batches).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_the_batch_answer_batch_by_batch() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: random.random_range(1..4),
            ..RuntimeOptions::new(1)
        })
        .await;
        let mut after = millrace_engine::WriteToken::default();
        let mut waiting: Vec<&str> = QUERIES.to_vec();
        for step in 0..20 {
            for _ in 0..2 {
                if !waiting.is_empty() {
                    fixture.options = options(&mut random);
                    let next = waiting.remove(random.random_range(0..waiting.len()));
                    fixture.create_view(next).await;
                }
            }
            for _ in 0..random.random_range(1..4) {
                after.merge(&fixture.change(&mut random).await);
            }
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        assert!(batches(&fixture) > 0, "seed {seed}: nothing went on in batches");
        let waiting = fixture.runtime.views();
        let mut waiting = waiting.iter().flat_map(|view| &view.flows);
        assert!(waiting.all(|flow| flow.counts.waiting == 0 && flow.counts.since.is_none()));
        fixture.runtime.shutdown().await;
    }
}

/// A worker is killed while tasks on others send it batches, or wait for its own: nobody waits forever, and the views come
/// back right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_that_flow_survive_the_loss_of_workers() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut fixture = Fixture::over(RuntimeOptions {
            workers: 3,
            ..RuntimeOptions::new(1)
        })
        .await;
        fixture.options.flow = FlowLimits {
            batches: 1,
            batch_rows: 2,
        };
        for query in &QUERIES[..6] {
            fixture.create_view(query).await;
        }
        let mut after = millrace_engine::WriteToken::default();
        for step in 0..10 {
            for _ in 0..3 {
                after.merge(&fixture.change(&mut random).await);
            }
            let workers = fixture.runtime.workers();
            let worker = workers[random.random_range(0..workers.len())].id;
            fixture.runtime.kill_worker(worker).unwrap();
            fixture.runtime.add_worker().unwrap();
            after.merge(&fixture.change(&mut random).await);
            fixture.check(&after, &format!("seed {seed}, step {step}")).await;
        }
        fixture.runtime.shutdown().await;
    }
}
