//! Columns that files have and their stream has not: passed over, told, or taken.

use std::path::Path;
use std::time::Duration;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{line, refused, rounds, until};
use millrace_sql_tests::{Failure, connect, run, seed, start};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::{from, put};

pub async fn changes(place: &Path) -> Result<(), Failure> {
    let data = place.join("data");
    let folder = |name: &str| {
        let path = place.join(name);
        std::fs::create_dir_all(&path).map(|()| path)
    };
    let (json, csv, parquet) = (folder("json")?, folder("csv")?, folder("parquet")?);
    put(&json, "1.json", "{\"a\": 1}\n")?;
    put(&csv, "1.csv", "a,b\n1,x\n")?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    for policy in ["ignore", "stop", "add"] {
        let options = from(&json, &format!(", schema_change = '{policy}'"));
        run(
            &client,
            &format!("CREATE STREAM {policy}_ (a BIGINT) {options} FORMAT PLAIN ENCODE JSON"),
        )
        .await?;
        run(
            &client,
            &format!(
                "CREATE MATERIALIZED VIEW {policy}_v AS SELECT count(*) AS n, sum(a) AS a FROM {policy}_"
            ),
        )
        .await?;
    }
    until(&client, "SELECT n, a FROM stop_v", "1 1").await?;
    put(
        &json,
        "2.json",
        "{\"a\": 2, \"b\": \"x\", \"Odd name\": true, \"n\": null}\n{\"a\": 3, \"b\": \"y\", \"c\": 1.5, \"d\": {\"k\": [1]}}\n\
         {\"a\": 4, \"b\": null, \"c\": 7, \"i\": -5}\n",
    )?;
    for policy in ["ignore", "add"] {
        until(&client, &format!("SELECT n, a FROM {policy}_v"), "4 10").await?;
    }
    until(&client, "SELECT * FROM ignore_ ORDER BY a", "1, 2, 3, 4").await?;
    until(
        &client,
        "SELECT a, b, c, d, i, \"Odd name\" FROM add_ ORDER BY a",
        "1 NULL NULL NULL NULL NULL, 2 x NULL NULL NULL t, 3 y 1.5 {\"k\": [1]} NULL NULL, 4 NULL 7 NULL -5 NULL",
    )
    .await?;
    assert_eq!(
        line(
            &client,
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'add_' ORDER BY column_name",
        )
        .await?,
        "Odd name boolean, a bigint, b text, c numeric, d jsonb, i bigint"
    );
    // What stopped says what is new, and goes on when it has a place.
    until(
        &client,
        "SELECT state FROM mr_catalog.sources WHERE name = 'stop_'",
        "failed",
    )
    .await?;
    let error = line(
        &client,
        "SELECT error FROM mr_catalog.sources WHERE name = 'stop_'",
    )
    .await?;
    for part in ["2.json", "\"b\" (text)", "\"c\" (numeric)", "\"n\"", "ADD COLUMN"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(line(&client, "SELECT n, a FROM stop_v").await?, "1 1");
    for (name, of) in [
        ("b", "TEXT"),
        ("c", "REAL"),
        ("d", "JSONB"),
        ("i", "INT"),
        ("n", "TEXT"),
        ("\"Odd name\"", "BOOLEAN"),
    ] {
        run(&client, &format!("ALTER STREAM stop_ ADD COLUMN {name} {of}")).await?;
    }
    until(&client, "SELECT n, a FROM stop_v", "4 10").await?;
    until(
        &client,
        "SELECT a, b, c FROM stop_ ORDER BY a",
        "1 NULL NULL, 2 x NULL, 3 y 1.5, 4 NULL 7",
    )
    .await?;
    // Files stay read when a column is added.
    assert_eq!(
        line(&client, "SELECT count(*), sum(records) FROM \"stop_$files\"").await?,
        "2 4"
    );
    assert_eq!(
        line(&client, "SELECT count(*), sum(records) FROM \"add_$files\"").await?,
        "2 4"
    );

    // Names in the first line of a file of CSV, and columns of Parquet.
    let options = from(&csv, ", csv.header = 'true', schema_change = 'add'");
    run(
        &client,
        &format!("CREATE STREAM c (a INT) {options} FORMAT PLAIN ENCODE CSV"),
    )
    .await?;
    until(&client, "SELECT count(*) FROM c", "1").await?;
    until(&client, "SELECT a, b FROM c", "1 x").await?;
    put(&csv, "2.csv", "c,a\nz,2\n")?;
    until(&client, "SELECT count(*), sum(a) FROM c", "2 3").await?;
    until(&client, "SELECT a, b, c FROM c ORDER BY a", "1 x NULL, 2 NULL z").await?;
    run(
        &client,
        "CREATE STREAM out (a INT, at TIMESTAMPTZ, n NUMERIC(9, 2), xs TEXT[])",
    )
    .await?;
    let sink = format!("WITH (connector = 'file', path = '{}')", parquet.display());
    run(
        &client,
        &format!("CREATE SINK k FROM out {sink} FORMAT PLAIN ENCODE PARQUET"),
    )
    .await?;
    run(
        &client,
        "INSERT INTO out VALUES (1, '2024-02-29 12:00:00+00', 1.5, '{x,NULL}')",
    )
    .await?;
    run(&client, "FLUSH").await?;
    let options = from(&parquet, ", match_pattern = '*.parquet', schema_change = 'add'");
    run(
        &client,
        &format!("CREATE STREAM p (a INT) {options} FORMAT PLAIN ENCODE PARQUET"),
    )
    .await?;
    until(&client, "SELECT count(*) FROM p", "1").await?;
    until(
        &client,
        "SELECT a, at = '2024-02-29 12:00:00+00', n, xs FROM p",
        "1 t 1.50 {x,NULL}",
    )
    .await?;
    for (more, format, expected) in [
        (", schema_change = 'maybe'", "JSON", "'ignore', 'stop', 'add'"),
        (
            ", schema_change = 'add'",
            "CSV",
            "for formats that name their columns",
        ),
    ] {
        let options = from(&json, more);
        let error = refused(
            &client,
            &format!("CREATE STREAM x (a INT) {options} FORMAT PLAIN ENCODE {format}"),
        )
        .await?;
        assert!(error.contains(expected), "{error}");
    }
    // After a restart all of that is as it was.
    drop(client);
    server.shutdown().await;
    put(&json, "3.json", "{\"a\": 5, \"b\": \"z\"}\n")?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    for policy in ["ignore", "stop", "add"] {
        until(&client, &format!("SELECT n, a FROM {policy}_v"), "5 15").await?;
    }
    until(&client, "SELECT b FROM add_ WHERE a = 5", "z").await?;
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// Each file brings a column of its own, while the server is killed.
pub async fn kills(place: &Path) -> Result<(), Failure> {
    let rounds = rounds("FILES_ROUNDS");
    let seed = seed();
    println!("changes: {rounds} rounds, MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (input, data) = (place.join("in"), place.join("data"));
    std::fs::create_dir_all(&input)?;
    let mut server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    let options = from(&input, ", schema_change = 'add'");
    run(
        &client,
        &format!("CREATE STREAM s (n BIGINT) {options} FORMAT PLAIN ENCODE JSON"),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c, sum(n) AS s FROM s",
    )
    .await?;
    drop(client);
    let (mut number, mut files) = (0_u64, vec![]);
    for round in 0..rounds {
        for _ in 0..random.random_range(1..4) {
            let rows = random.random_range(1..2_000);
            let name = format!("c{}", files.len());
            let content: String = (number..number + rows)
                .map(|n| format!("{{\"n\": {n}, \"{name}\": {n}}}\n"))
                .collect();
            put(&input, &format!("{round}-{name}.json"), content)?;
            files.push((name, (number..number + rows).sum::<u64>(), rows));
            number += rows;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(1..600))).await;
        server.kill()?;
        server = Process::start(&data, random.random_range(1..3), false)?;
    }
    let client = connect(server.pg).await?;
    let expected = format!("{number} {}", number * (number - 1) / 2);
    until(&client, "SELECT c, s FROM v", &expected).await?;
    until(&client, "SELECT count(DISTINCT n), sum(n) FROM s", &expected).await?;
    for (name, sum, rows) in &files {
        let found = line(&client, &format!("SELECT count({name}), sum({name}) FROM s")).await?;
        assert_eq!(found, format!("{rows} {sum}"), "{name}");
    }
    until(&client, "SELECT count(*) FROM \"s$errors\"", "0").await?;
    println!("changes: {number} rows, {} columns", files.len());
    server.kill()
}
