//! Views whose rows are far larger than those that they are made of: a few hundred short rows become gigabytes, in each operator that
//! may hold them. A view may fail, or its state go to disk; the server has to stay.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::shortened;
use crate::crash::Process;
use crate::{Failure, connect, run, words};

/// What the server may have besides its program.
const ADDRESS_SPACE: u64 = 4 << 30;

/// How long a view may take to be made.
const PATIENCE: Duration = Duration::from_secs(120);

/// Texts of about a megabyte, of a row with a number `id` up to 300 and a short text `v`.
const TEXTS: [&str; 6] = [
    "repeat(v, 1000000)",
    "repeat(v, id * 10000)",
    "upper(repeat(v, 1000000))",
    "repeat(v, 400000) || repeat(v, 400000)",
    "to_json(repeat(v, 300000))::text",
    "rpad(v, 2000000, v)",
];

/// `{}` is such a text.
const QUERIES: [&str; 24] = [
    "SELECT id, {} AS x FROM own",
    "SELECT max(id) AS id, {} AS x FROM own GROUP BY id, v",
    "SELECT {} AS x, count(*) AS n FROM own GROUP BY 1",
    "SELECT DISTINCT {} AS x FROM own",
    "SELECT id % 7 AS k, max({}) AS x FROM own GROUP BY 1",
    "SELECT id, min({}) AS x FROM own GROUP BY 1",
    "SELECT id % 7 AS k, string_agg({}, ',') AS x FROM own GROUP BY 1",
    "SELECT id % 7 AS k, array_agg({}) AS x FROM own GROUP BY 1",
    "SELECT count(DISTINCT {}) AS n FROM own",
    "SELECT a.id, a.x, b.id AS j FROM (SELECT id, {} x FROM own) a JOIN own b ON b.id % 20 = a.id % 20",
    "SELECT a.id, b.x FROM own a LEFT JOIN (SELECT id, {} x FROM own) b ON a.id = b.id",
    "SELECT a.id FROM (SELECT id, {} x FROM own) a JOIN (SELECT {} x FROM own) b ON a.x = b.x",
    "SELECT id, {} AS x FROM own UNION ALL SELECT id + 1, {} FROM own",
    "SELECT id, {} AS x FROM own UNION SELECT id + 1, {} FROM own",
    "SELECT id, {} AS x FROM own EXCEPT SELECT id, v FROM own",
    "SELECT id, lag({}) OVER (ORDER BY id) AS x FROM own",
    "SELECT id, max({}) OVER (PARTITION BY id % 3) AS x FROM own",
    "SELECT id, {} AS x FROM own ORDER BY 2 DESC LIMIT 200",
    "SELECT id, x FROM own, unnest(ARRAY[{}, {}]) AS u(x)",
    "SELECT id FROM own WHERE {} LIKE '%r3%'",
    "SELECT id, (SELECT max({}) FROM own b WHERE b.id % 10 = own.id % 10) AS x FROM own",
    "WITH RECURSIVE r(id, v) AS (SELECT id, v FROM own UNION ALL SELECT id, {} FROM r WHERE length(v) < 9) SELECT id, v FROM r",
    "SELECT GROUPING(id, v) AS g, id, {} AS x FROM own GROUP BY ROLLUP (id, v)",
    "SELECT id, {} AS x FROM own WHERE id % 3 > 0 ORDER BY id LIMIT 100",
];

/// Makes so many views one after the other, and changes what they are over. Now and then one stays.
///
/// # Errors
/// The view after which the server is gone or answers nobody; with the seed.
pub fn wide_rows(seed: u64, total: u64) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(views(seed, total));
    outcome.map_err(|error| format!("seed {seed}: {error}").into())
}

async fn views(seed: u64, total: u64) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let process = Process::start_confined(directory.path(), ADDRESS_SPACE)?;
    let witness = connect(process.pg).await?;
    run(&witness, "CREATE TABLE own (id INT, v TEXT)").await?;
    let rows = "INSERT INTO own SELECT g, 'r' || g FROM generate_series(1, 300) AS s(g)";
    run(&witness, rows).await?;
    let client = connect(process.pg).await?;
    run(&client, "SET statement_timeout = '10s'").await?;
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..total {
        let text = TEXTS.choose(&mut random).expect("there are some");
        let query = QUERIES.choose(&mut random).expect("there are some");
        let query = query.replace("{}", text);
        let keeps = random.random_ratio(1, 4);
        println!("{number}: {query}");
        let mut statements = vec![
            format!("CREATE MATERIALIZED VIEW wide{number} AS {query}"),
            format!("SELECT count(*) FROM wide{number}"),
            "UPDATE own SET v = 's' || id WHERE id % 3 = 0".to_owned(),
            format!("SELECT count(*) FROM wide{number}"),
        ];
        if !keeps {
            statements.push(format!("DROP MATERIALIZED VIEW wide{number}"));
        }
        for statement in statements {
            let outcome = timeout(PATIENCE, client.batch_execute(&statement)).await;
            match outcome.map_err(|_| format!("{query}\nno answer to {statement}"))? {
                Ok(()) => {}
                Err(error) if error.as_db_error().is_some() => println!("   {}", shortened(&words(&error))),
                Err(error) => return Err(format!("{query}\n{statement}: {error}").into()),
            }
        }
        let alive = timeout(PATIENCE, run(&witness, "SELECT count(*) FROM own")).await;
        alive.map_err(|_| format!("{query}\nthe other session is not answered"))??;
    }
    process.kill()
}
