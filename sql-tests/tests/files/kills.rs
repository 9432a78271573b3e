//! Files come, and are written to, while the server is killed.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{rounds, until};
use millrace_sql_tests::{Failure, connect, run, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::{from, gzip, put};

pub async fn kills(place: &Path) -> Result<(), Failure> {
    let rounds = rounds("FILES_ROUNDS");
    let seed = seed();
    println!("kills: {rounds} rounds, SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (input, data) = (place.join("in"), place.join("data"));
    std::fs::create_dir_all(&input)?;
    let mut server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    let options = from(&input, "");
    run(
        &client,
        &format!("CREATE STREAM s (n BIGINT, pad TEXT) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT n % 7 AS g, count(*) AS c, sum(n) AS s FROM s GROUP BY 1",
    )
    .await?;
    drop(client);
    let mut log = std::fs::File::create(input.join("log.json"))?;
    let mut number = 0_u64;
    for round in 0..rounds {
        for file in 0..random.random_range(1..6) {
            let mut content = String::new();
            // Some are large enough to be killed in the middle of them.
            for _ in 0..[10, 1_000, 60_000][random.random_range(0..3)] {
                content += &format!(
                    "{{\"n\": {number}, \"pad\": \"{}\"}}\n",
                    "x".repeat((number % 90) as usize)
                );
                number += 1;
            }
            match random.random_range(0..3) {
                0 => put(&input, &format!("{round}-{file}.json"), content)?,
                1 => put(&input, &format!("{round}-{file}.json.gz"), gzip(&content))?,
                _ => {
                    // In pieces, of which some end within a line.
                    for piece in content.as_bytes().chunks(100_003) {
                        log.write_all(piece)?;
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(1..900))).await;
        server.kill()?;
        server = Process::start(&data, random.random_range(1..3), false)?;
    }
    let client = connect(server.pg).await?;
    until(
        &client,
        "SELECT count(*), count(DISTINCT n), min(n), max(n) FROM s",
        &format!("{number} {number} 0 {}", number - 1),
    )
    .await?;
    until(
        &client,
        "SELECT sum(c), sum(s) FROM v",
        &format!("{number} {}", number * (number - 1) / 2),
    )
    .await?;
    until(&client, "SELECT count(*) FROM \"s$errors\"", "0").await?;
    println!("kills: {number} rows");
    server.kill()
}
