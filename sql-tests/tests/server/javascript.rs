//! Functions and reducers in JavaScript: views equal SELECTs over the same functions under random changes and over several workers, also
//! after a restart; a call can be cancelled.

use std::time::Duration;

use millrace_sql_tests::{Failure, connect, run, sorted_rows, start};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const DEFINITIONS: [&str; 5] = [
    "CREATE FUNCTION bucket(v bigint) RETURNS text LANGUAGE javascript AS $$
       if (v % 13n === 0n) throw new Error('unlucky');
       return v < 50n ? 'low' : `high ${v % 3n}`;
     $$",
    "CREATE FUNCTION parts(v bigint) RETURNS TABLE (part int, n bigint) LANGUAGE javascript AS $$
       for (let part = 0; part < Number(v % 4n); part++) yield { part, n: v + BigInt(part) };
     $$",
    "CREATE REDUCER squares(v bigint) RETURNS bigint LANGUAGE javascript AS $$
       function init() { return { sum: 0n, seen: new Map() }; }
       function process(state, v) { state.sum += v * v; }
       function retract(state, v) { state.sum -= v * v; }
       function merge(state, other) { state.sum += other.sum; }
       function value(state) { return state.sum; }
     $$",
    "CREATE REDUCER trail(id bigint, v bigint) RETURNS text LANGUAGE javascript AS $$
       function init() { return []; }
       function process(state, id, v) { if (v > 20n) state.push(`${id}:${v}`); }
       function value(state) { return state.join(' '); }
     $$",
    "CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)",
];

const VIEWS: [(&str, &str); 3] = [
    (
        "reduced",
        "SELECT k, squares(v) AS s, trail(id, v ORDER BY v DESC) AS t, count(*) AS n FROM t GROUP BY k",
    ),
    (
        "split",
        "SELECT k, p.part, sum(p.n) AS n FROM t, parts(v) AS p GROUP BY k, p.part",
    ),
    (
        "buckets",
        "SELECT bucket(v) AS b, count(*) AS n FROM t WHERE v % 13 <> 0 GROUP BY bucket(v)",
    ),
];

async fn compare(client: &tokio_postgres::Client, when: &str) -> Result<(), Failure> {
    for (view, query) in VIEWS {
        let shown = sorted_rows(client, &format!("SELECT * FROM {view}")).await?;
        assert_eq!(shown, sorted_rows(client, query).await?, "{when}: {view}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_equal_selects_over_the_same_functions() -> Result<(), Failure> {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    for definition in DEFINITIONS {
        run(&client, definition).await?;
    }
    for (view, query) in VIEWS {
        run(&client, &format!("CREATE MATERIALIZED VIEW {view} AS {query}")).await?;
    }
    for round in 0..12 {
        let (from, to) = (round * 40, round * 40 + random.random_range(1..80));
        let modulus = random.random_range(2..9);
        let change = match random.random_range(0..4) {
            0 => format!("DELETE FROM t WHERE id % {modulus} = 0"),
            1 => format!("UPDATE t SET v = v + {modulus}, k = (k + id) % 7 WHERE id % {modulus} = 1"),
            _ => format!(
                "INSERT INTO t SELECT i, i % {modulus}, (i * 37) % 101 FROM generate_series({from}, {to}) AS g (i) ON CONFLICT DO NOTHING"
            ),
        };
        run(&client, &change).await?;
        compare(&client, &format!("seed {seed}, round {round}, {change}")).await?;
    }
    drop(client);
    server.shutdown().await;

    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    compare(&client, &format!("seed {seed}, after a restart")).await?;
    run(&client, "UPDATE t SET v = v + 1").await?;
    compare(&client, &format!("seed {seed}, changed after a restart")).await?;
    server.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_with_its_statement() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let server = start(directory.path()).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "ALTER SYSTEM SET javascript_call_timeout = '1h'").await?;
    run(
        &client,
        "CREATE FUNCTION forever(v int) RETURNS int LANGUAGE javascript AS $$ for (;;) {} $$",
    )
    .await?;
    run(&client, "SET statement_timeout = '200ms'").await?;
    let query = client.simple_query("SELECT forever(i) FROM generate_series(1, 3) AS g (i)");
    let ended = tokio::time::timeout(Duration::from_secs(60), query).await?;
    let Err(error) = ended else {
        panic!("it does not end by itself");
    };
    assert_eq!(error.code().map(|code| code.code()), Some("57014"), "{error:?}");
    // The core is free again.
    run(&client, "RESET statement_timeout").await?;
    run(&client, "SELECT count(*) FROM generate_series(1, 1000)").await?;
    server.shutdown().await;
    Ok(())
}
