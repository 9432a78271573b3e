//! The same in a bucket of a real server of S3.

use std::collections::BTreeMap;
use std::path::Path;

use futures::TryStreamExt as _;
use millrace_sql_tests::crash::Process;
use millrace_sql_tests::outside::{line, refused, rounds, until, write_before_a_kill};
use millrace_sql_tests::s3::{Bucket, KEY, S3};
use millrace_sql_tests::{Failure, connect, run, seed, start};
use object_store::aws::AmazonS3;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::gzip;

pub async fn bucket(place: &Path) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start("things").await? else {
        println!("skipped: {S3} does not say where a server of S3 is");
        return Ok(());
    };
    let store = bucket.client("things")?;
    std::fs::create_dir_all(place)?;
    let (right, empty) = (place.join("right"), place.join("empty"));
    std::fs::write(&right, KEY.1)?;
    std::fs::write(&empty, "")?;
    for (name, content) in [
        ("in/2024/a.json", b"{\"a\": 1}\n{\"a\": 2}\n".to_vec()),
        ("in/2024/b.json.gz", gzip("{\"a\": 3}\n")),
        ("in/skip.txt", b"{\"a\": 100}\n".to_vec()),
        ("inside/c.json", b"{\"a\": 100}\n".to_vec()),
    ] {
        store.put(&name.into(), content.into()).await?;
    }
    let data = place.join("data");
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    let options = |bucket_name: &str, file: &Path| {
        format!(
            "WITH (connector = 's3', s3.bucket_name = '{bucket_name}', path = 'in', s3.endpoint_url = '{}', s3.region_name = 'us-east-1', \
             s3.credentials.access = '{}', s3.credentials.secret.file = '{}', match_pattern = '**/*.json*', \
             refresh.interval = '200 ms') FORMAT PLAIN ENCODE JSON",
            bucket.address(),
            KEY.0,
            file.display()
        )
    };
    for (name, file, expected) in [
        ("nothing", &right, "bucket \"nothing\""),
        ("things", &empty, "it is empty"),
    ] {
        let error = refused(
            &client,
            &format!("CREATE STREAM x (a INT) {}", options(name, file)),
        )
        .await?;
        assert!(error.contains(expected), "{error}");
    }
    run(
        &client,
        &format!(
            "CREATE STREAM s (a INT) INCLUDE file AS f {}",
            options("things", &right)
        ),
    )
    .await?;
    run(
        &client,
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(a) AS s FROM s",
    )
    .await?;
    until(
        &client,
        "SELECT a, f FROM s ORDER BY a",
        "1 s3://things/in/2024/a.json, 2 s3://things/in/2024/a.json, 3 s3://things/in/2024/b.json.gz",
    )
    .await?;
    drop(client);
    server.shutdown().await;
    // Many, more than there are on a page; and one that takes the place of another.
    for number in 0..1_100 {
        let name = format!("in/many/{number}.json");
        store
            .put(&name.into(), format!("{{\"a\": {number}}}").into_bytes().into())
            .await?;
    }
    store
        .put(&"in/2024/a.json".into(), b"{\"a\": 10}\n".to_vec().into())
        .await?;
    let server = start(&data).await?;
    let client = connect(server.pg_addr()).await?;
    until(
        &client,
        "SELECT * FROM v",
        &format!("1104 {}", 6 + 10 + 1_100 * 1_099 / 2),
    )
    .await?;
    until(
        &client,
        "SELECT count(*), sum(records) FROM \"s$files\"",
        "1103 1104",
    )
    .await?;
    server.shutdown().await;
    Ok(())
}

/// All lines of the files of a sink, by the names of the files.
async fn written(store: &AmazonS3, prefix: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    let prefix = (!prefix.is_empty()).then(|| prefix.into());
    let metas: Vec<_> = store.list(prefix.as_ref()).try_collect().await?;
    for meta in metas {
        let content = store.get(&meta.location).await?.bytes().await?;
        found.insert(
            meta.location.to_string(),
            String::from_utf8_lossy(&content).into_owned(),
        );
    }
    Ok(found)
}

/// The files of sinks, while the server is killed.
pub async fn sinks(place: &Path) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start("out").await? else {
        println!("skipped: {S3} does not say where a server of S3 is");
        return Ok(());
    };
    let rounds = rounds("FILES_ROUNDS");
    let seed = seed();
    println!("sinks: {rounds} rounds, SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let store = bucket.client("out")?;
    std::fs::create_dir_all(place)?;
    let secret = place.join("secret");
    std::fs::write(&secret, KEY.1)?;
    let data = place.join("data");
    let mut server = Process::start(&data, 1, false)?;
    let client = connect(server.pg).await?;
    run(&client, "CREATE STREAM s (n BIGINT, t TEXT)").await?;
    run(&client, "CREATE TABLE k (id INT PRIMARY KEY, v BIGINT)").await?;
    let create = |name: &str, from: &str, format: &str, more: &str| {
        format!(
            "CREATE SINK {name} FROM {from} WITH (connector = 's3', s3.bucket_name = 'out', path = '{name}', s3.endpoint_url = '{}', \
             s3.region_name = 'us-east-1', s3.credentials.access = '{}', s3.credentials.secret.file = '{}', \
             rollover_seconds = 0.05{more}) FORMAT PLAIN ENCODE {format}",
            bucket.address(),
            KEY.0,
            secret.display()
        )
    };
    run(&client, &create("rows", "s", "JSON", "")).await?;
    // Nothing is left of having tried, in the prefix or beside it.
    assert!(written(&store, "").await?.is_empty());
    run(&client, &create("changes", "k", "CSV", ", type = 'changelog'")).await?;
    run(
        &client,
        &create("columns", "s", "PARQUET", ", max_row_count = 500"),
    )
    .await?;
    let mut number = 0_u64;
    for _ in 0..rounds {
        let client = connect(server.pg).await?;
        write_before_a_kill(&client, &mut random, &mut number, 40, 200).await?;
        drop(client);
        server.kill()?;
        server = Process::start(&data, random.random_range(1..3), false)?;
    }
    let client = connect(server.pg).await?;
    run(&client, "FLUSH").await?;
    let check = "SELECT name, state, error FROM mr_catalog.sinks ORDER BY name";
    until(
        &client,
        check,
        "changes running NULL, columns running NULL, rows running NULL",
    )
    .await?;
    // Each row once, in files without gaps.
    let files = written(&store, "rows").await?;
    for (at, name) in files.keys().enumerate() {
        assert_eq!(*name, format!("rows/rows-{at:010}.json"));
    }
    let mut found: Vec<u64> = vec![];
    for line in files.values().flat_map(|content| content.lines()) {
        let row: serde_json::Value = serde_json::from_str(line)?;
        found.push(row["n"].as_u64().unwrap());
    }
    found.sort_unstable();
    assert!(
        found.iter().copied().eq(0..number),
        "{} rows instead of {number}",
        found.len()
    );
    // What the changes come to.
    let mut kept: BTreeMap<String, i64> = BTreeMap::new();
    for line in written(&store, "changes")
        .await?
        .values()
        .flat_map(|content| content.lines().skip(1))
    {
        let (op, row) = line.split_once(',').unwrap();
        *kept.entry(row.replace(',', " ")).or_default() += if op == "insert" { 1 } else { -1 };
    }
    kept.retain(|_, count| *count != 0);
    assert!(kept.values().all(|count| *count == 1), "{kept:?}");
    let mut expected: Vec<String> = line(&client, "SELECT id, v FROM k")
        .await?
        .split(", ")
        .map(str::to_owned)
        .collect();
    expected.sort();
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), expected);
    // And back again.
    run(
        &client,
        &format!(
            "CREATE STREAM back (n BIGINT, t TEXT) WITH (connector = 's3', s3.bucket_name = 'out', path = 'columns', s3.endpoint_url = '{}', \
             s3.credentials.access = '{}', s3.credentials.secret.file = '{}', refresh.interval = '200 ms') FORMAT PLAIN ENCODE PARQUET",
            bucket.address(),
            KEY.0,
            secret.display()
        ),
    )
    .await?;
    let sums = "count(*), count(DISTINCT n), sum(n), sum(length(t))";
    let expected = line(&client, &format!("SELECT {sums} FROM s")).await?;
    until(&client, &format!("SELECT {sums} FROM back"), &expected).await?;
    // Readers take files away; another sink of the name may not come behind them.
    for name in written(&store, "rows").await?.into_keys().take(2) {
        store.delete(&name.as_str().into()).await?;
    }
    run(&client, "INSERT INTO s VALUES (-1, '')").await?;
    run(&client, "FLUSH").await?;
    let last = written(&store, "rows").await?.into_values().next_back();
    assert_eq!(last.as_deref(), Some("{\"n\":-1,\"t\":\"\"}\n"));
    // What somebody else has written is not written over.
    let next = written(&store, "changes").await?.len();
    let foreign = format!("changes/changes-{next:010}.csv");
    store
        .put(&foreign.as_str().into(), b"foreign".to_vec().into())
        .await?;
    run(&client, "UPDATE k SET v = v + 1").await?;
    until(
        &client,
        "SELECT state, error LIKE '%was not written by this sink%' FROM mr_catalog.sinks WHERE name = 'changes'",
        "failed t",
    )
    .await?;
    let kept = store.get(&foreign.as_str().into()).await?.bytes().await?;
    assert_eq!(kept, b"foreign".as_slice());
    run(&client, "DROP SINK rows").await?;
    let error = refused(&client, &create("rows", "s", "JSON", "")).await?;
    assert!(error.contains("already exists"), "{error}");
    for (from, format, more, expected) in [
        ("k", "JSON", "", "cannot be append-only"),
        ("s", "AVRO", "", "format AVRO is not supported"),
        (
            "s",
            "JSON",
            ", primary_key = 'n'",
            "has no option \"primary_key\"",
        ),
        (
            "s",
            "JSON",
            ", s3.credentials.secret = 'hidden'",
            "is not supported: everybody",
        ),
    ] {
        let error = refused(&client, &create("x", from, format, more)).await?;
        if !error.contains(expected) {
            return Err(format!("{format}{more}: {error}").into());
        }
    }
    println!("sinks: {number} rows");
    server.kill()
}
