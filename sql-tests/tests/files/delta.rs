//! Tables of Delta Lake that sinks append to, read by the library of delta-rs.

use std::path::Path;
use std::process::Command;

use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{line, refused, rounds, until, write_before_a_kill};
use millrace_sql_tests::s3::{Bucket, KEY, S3};
use millrace_sql_tests::{Failure, connect, run, seed, start};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// What the other library answers; none: it is not installed.
fn ask(place: &str, query: &str, options: &Value) -> Result<Option<Vec<Value>>, Failure> {
    let read = Command::new("python3")
        .args([
            "-c",
            include_str!("../../src/outside/read_delta.py"),
            place,
            query,
        ])
        .arg(options.to_string())
        .output()?;
    let text = String::from_utf8(read.stdout)?;
    if !read.status.success() {
        return Err(format!("{query}: {text} {}", String::from_utf8_lossy(&read.stderr)).into());
    }
    if text.starts_with("skipped") {
        println!("{}", text.trim());
        return Ok(None);
    }
    Ok(Some(
        text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
    ))
}

fn expect(place: &str, query: &str, expected: Value) -> Result<(), Failure> {
    match ask(place, query, &json!({}))? {
        Some(found) if json!(found) != expected => {
            Err(format!("{query}: {} instead of {expected}", json!(found)).into())
        }
        _ => Ok(()),
    }
}

/// What a table is, and what is not written.
pub async fn tables(place: &Path) -> Result<(), Failure> {
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(
        &client,
        "CREATE STREAM s (n BIGINT, ok BOOLEAN, small SMALLINT, i INT, r REAL, d DOUBLE PRECISION, raw BYTEA, t TEXT, j JSONB, day DATE, \
         moment TIMESTAMPTZ, price NUMERIC(9, 2), u UUID, tags TEXT[])",
    )
    .await?;
    run(&client, "CREATE STREAM nz (n BIGINT, at TIMESTAMP)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY, v INT)").await?;
    let folder = |name: &str| -> Result<String, Failure> {
        let path = place.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path.display().to_string())
    };
    let (all, local, changes) = (folder("all")?, folder("local")?, folder("changes")?);
    let create = |name: &str, from: &str, path: &str, more: &str| {
        format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 'delta', path = '{path}', rollover_seconds = 0{more})"
        )
    };
    run(&client, &create("a", "s", &all, "")).await?;
    assert_eq!(
        std::fs::read_dir(&all)?.count(),
        0,
        "nothing is left of having looked"
    );
    run(&client, &create("b", "nz", &local, "")).await?;
    run(&client, &create("c", "k", &changes, ", type = 'changelog'")).await?;
    run(
        &client,
        "INSERT INTO s VALUES (1, true, -3, 7, 0.5, 'NaN', '\\x00ff', 'ü', '{\"a\": 1}', '1969-12-31', '2024-02-29 12:34:56.789+00', -1234567.89, \
         'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{x,NULL}'), \
         (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    .await?;
    run(&client, "INSERT INTO nz VALUES (1, '2024-02-29 12:34:56.789')").await?;
    run(&client, "INSERT INTO k VALUES (1, 1)").await?;
    run(&client, "FLUSH").await?;
    run(&client, "UPDATE k SET v = 2").await?;
    run(&client, "FLUSH").await?;
    expect(
        &all,
        "SELECT n, ok, small, i, r, t, j, day::text, moment::text, price::text, u, tags FROM t ORDER BY n",
        json!([
            [
                1,
                true,
                -3,
                7,
                0.5,
                "ü",
                "{\"a\": 1}",
                "1969-12-31",
                "2024-02-29T12:34:56.789Z",
                "-1234567.89",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                ["x", null]
            ],
            [
                2, null, null, null, null, null, null, null, null, null, null, null
            ],
        ]),
    )?;
    expect(
        &local,
        "SELECT n, at::text FROM t",
        json!([[1, "2024-02-29T12:34:56.789"]]),
    )?;
    expect(
        &changes,
        "SELECT op, id, v FROM t ORDER BY v, op DESC",
        json!([["insert", 1, 1], ["delete", 1, 1], ["insert", 1, 2]]),
    )?;
    until(
        &client,
        "SELECT name, connector, delivery, format, state, error FROM mr_catalog.sinks ORDER BY name",
        "a delta exactly_once parquet running NULL, b delta exactly_once parquet running NULL, c delta exactly_once parquet running NULL",
    )
    .await?;
    // Two sinks, and another writer, append to one table.
    run(&client, "CREATE STREAM n1 (n BIGINT)").await?;
    run(&client, "CREATE STREAM n2 (n BIGINT)").await?;
    let shared = folder("shared")?;
    run(&client, &create("d", "n1", &shared, "")).await?;
    run(&client, "INSERT INTO n1 VALUES (1)").await?;
    run(&client, "FLUSH").await?;
    run(&client, &create("e", "n2", &shared, "")).await?;
    let mut expected = 1;
    for n in 0..12 {
        run(&client, &format!("INSERT INTO n1 VALUES ({n})")).await?;
        run(&client, &format!("INSERT INTO n2 VALUES ({n})")).await?;
        run(&client, "FLUSH").await?;
        expected += 2;
        if n % 4 == 0 && ask(&shared, &format!("append {}", 100 + n), &json!({}))?.is_some() {
            expected += 1;
        }
    }
    expect(&shared, "SELECT count(*) FROM t", json!([[expected]]))?;
    // What does not fit is not written.
    for (sql, expected) in [
        (
            create("x", "k", &shared, ", type = 'changelog'"),
            "it has no column \"op\"",
        ),
        (create("x", "k", &changes, ""), "cannot be append-only"),
        (
            create("x", "k", &changes, ", type = 'upsert'"),
            "type = 'upsert' is not supported",
        ),
        (create("x", "s", "/nowhere/at/all", ""), "/nowhere/at/all"),
        (create("x", "s", "relative", ""), "absolute path"),
        (
            create("x", "s", &all, ", pth = 'x'"),
            "Perhaps you meant \"path\"",
        ),
        (
            create("x", "s", &all, "") + " FORMAT PLAIN ENCODE PARQUET",
            "Leave the clause out",
        ),
        (
            format!(
                "CREATE SINK x AS SELECT n, TIME '12:00' AS c FROM s WITH (connector = 'delta', path = '{all}')"
            ),
            "which Delta Lake does not support",
        ),
        (
            format!("CREATE SINK x AS SELECT n::int AS n FROM s WITH (connector = 'delta', path = '{all}')"),
            "is of type long, and that of the sink is integer",
        ),
    ] {
        let error = refused(&client, &sql).await?;
        if !error.contains(expected) {
            return Err(format!("{sql}: {error}").into());
        }
    }
    // A table that is gone is told, and not begun anew.
    drop(client);
    server.shutdown().await;
    std::fs::remove_dir_all(format!("{all}/_delta_log"))?;
    let server = start(&place.join("data")).await?;
    let client = connect(server.pg_addr()).await?;
    run(&client, "INSERT INTO s (n) VALUES (3)").await?;
    until(
        &client,
        "SELECT state, error LIKE '%no record of the%' FROM mr_catalog.sinks WHERE name = 'a'",
        "failed t",
    )
    .await?;
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// The server is killed while it appends, to a directory and a bucket.
pub async fn kills(place: &Path) -> Result<(), Failure> {
    let bucket = Bucket::start("lake").await?;
    if bucket.is_none() {
        println!("{S3} does not say where a server of S3 is: only a directory is written");
    }
    let rounds = rounds("FILES_ROUNDS");
    let seed = seed();
    println!("delta: {rounds} rounds, MILLRACE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = place.join("table");
    std::fs::create_dir_all(&folder)?;
    let secret = place.join("secret");
    std::fs::write(&secret, KEY.1)?;
    let data = place.join("data");
    let mut server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    run(&client, "CREATE STREAM s (n BIGINT, t TEXT)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY, v BIGINT)").await?;
    let mut tables = vec![(folder.display().to_string(), json!({}))];
    let mut options = vec![format!("path = '{}'", folder.display())];
    if let Some(bucket) = &bucket {
        tables.push((
            "s3://lake/in/table".to_owned(),
            json!({"AWS_ENDPOINT_URL": bucket.address(), "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": KEY.0,
                "AWS_SECRET_ACCESS_KEY": KEY.1}),
        ));
        options.push(format!(
            "path = 's3://lake/in/table', s3.endpoint_url = '{}', s3.region_name = 'us-east-1', s3.credentials.access = '{}', \
             s3.credentials.secret.file = '{}'",
            bucket.address(),
            KEY.0,
            secret.display()
        ));
    }
    for (at, options) in options.iter().enumerate() {
        let sql = format!(
            "CREATE SINK sink{at} FROM s WITH (connector = 'delta', {options}, rollover_seconds = 0.02, max_row_count = 500)"
        );
        run(&client, &sql).await?;
    }
    let changes = place.join("changes");
    std::fs::create_dir_all(&changes)?;
    run(
        &client,
        &format!(
            "CREATE SINK changes FROM k WITH (connector = 'delta', path = '{}', rollover_seconds = 0.02, type = 'changelog')",
            changes.display()
        ),
    )
    .await?;
    let mut number = 0_u64;
    for _ in 0..rounds {
        let client = connect(server.pg).await?;
        write_before_a_kill(&client, &mut random, &mut number, 60, 400).await?;
        drop(client);
        server.kill()?;
        server = Process::start(&data, random.random_range(1..3), false)?;
    }
    let client = connect(server.pg).await?;
    run(&client, "FLUSH").await?;
    until(
        &client,
        "SELECT count(*) FROM mr_catalog.sinks WHERE state = 'running' AND lag_rows = 0",
        &(options.len() + 1).to_string(),
    )
    .await?;
    let expected = line(
        &client,
        "SELECT coalesce(sum(id), 0), coalesce(sum(v), 0), count(*) FROM k",
    )
    .await?;
    for (table, options) in &tables {
        let query = "SELECT count(*), count(DISTINCT n), min(n), max(n) FROM t";
        let expected = json!([[number, number, 0, number - 1]]);
        if let Some(found) = ask(table, query, options)? {
            assert_eq!(json!(found), expected, "{table}");
        }
        if let Some(version) = ask(table, "version", options)? {
            println!("{table}: {number} rows, version {}", version[0]);
        }
    }
    let query = "SELECT sum(CASE op WHEN 'insert' THEN id ELSE -id END), sum(CASE op WHEN 'insert' THEN v ELSE -v END), \
                 sum(CASE op WHEN 'insert' THEN 1 ELSE -1 END) FROM t";
    if let Some(found) = ask(&changes.display().to_string(), query, &json!({}))? {
        let found = found[0].as_array().unwrap().iter().map(Value::to_string);
        assert_eq!(found.collect::<Vec<_>>().join(" "), expected);
    }
    // Whoever reads from a checkpoint reads the same: the versions before it are not needed.
    let log = folder.join("_delta_log");
    let checkpoints: Vec<String> = (std::fs::read_dir(&log)?)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".checkpoint.parquet"))
        .collect();
    assert!(
        !checkpoints.is_empty(),
        "there were not enough versions for a checkpoint"
    );
    let newest = checkpoints
        .iter()
        .max()
        .unwrap()
        .split('.')
        .next()
        .unwrap()
        .to_owned();
    for entry in std::fs::read_dir(&log)? {
        let path = entry?.path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".json") && !name.starts_with('_') && name[..20] < newest[..] {
            std::fs::remove_file(path)?;
        }
    }
    expect(
        &tables[0].0,
        "SELECT count(*), count(DISTINCT n) FROM t",
        json!([[number, number]]),
    )?;
    drop(client);
    server.kill()?;
    let server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    run(&client, &format!("INSERT INTO s VALUES ({number}, '')")).await?;
    run(&client, "FLUSH").await?;
    until(
        &client,
        "SELECT state, error FROM mr_catalog.sinks WHERE name = 'sink0'",
        "running NULL",
    )
    .await?;
    expect(
        &tables[0].0,
        "SELECT count(*), count(DISTINCT n) FROM t",
        json!([[number + 1, number + 1]]),
    )?;
    server.kill()
}
