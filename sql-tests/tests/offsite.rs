//! The copy of all that is written in an object store: what is restored of it elsewhere is everything that was acknowledged before its last
//! moment, once, and views equal their queries; whatever is killed, fails or is damaged meanwhile.
//!
//! `OFFSITE_ROUNDS` is how often a server is killed and its directory burnt, `MILLRACE_SEED` when. The tests over a bucket need a server of S3
//! (`MILLRACE_S3_SERVER`), and run over a directory without one.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millrace_cli::test::throw_away;
use millrace_sql_tests::crash::{LOG_URL, Process, TAKE_OVER, serve_if_child};
use millrace_sql_tests::outside::{Suite, line, rounds, until, write_before_a_kill};
use millrace_sql_tests::s3::{Bucket, KEY, S3};
use millrace_sql_tests::{Failure, connect, run, seed};
use millrace_storage::offsite::{Place, restore};
use millrace_wire::Server;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;

const BUCKET: &str = "disaster";

fn main() -> ExitCode {
    if serve_if_child() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().unwrap();
    Suite::new(directory.path(), ())
        .unwrap()
        .test("directory", async |_, place| {
            std::fs::create_dir_all(place)?;
            let url = format!("file://{}", place.join("copy").display());
            burn(place, &|_| url.clone(), &[]).await
        })
        .test("bucket", async |_, place| bucket(place).await)
        .test("away", async |_, place| away(place).await)
        .test("fence", async |_, place| fence(place).await)
        .test("damage", async |_, place| damage(place).await)
        .outcome()
}

/// The same over a bucket of a real server of S3, whose key is in the environment.
async fn bucket(place: &Path) -> Result<(), Failure> {
    let Some(bucket) = Bucket::start(BUCKET).await? else {
        println!("skipped: {S3} does not say where a server of S3 is");
        return Ok(());
    };
    std::fs::create_dir_all(place)?;
    let environment = [
        ("AWS_ENDPOINT_URL", bucket.address()),
        ("AWS_ACCESS_KEY_ID", KEY.0),
        ("AWS_SECRET_ACCESS_KEY", KEY.1),
        ("AWS_REGION", "us-east-1"),
    ];
    burn(place, &|_| format!("s3://{BUCKET}/copies/1"), &environment).await
}

/// The relations of a round.
async fn create(client: &Client) -> Result<(), Failure> {
    run(
        client,
        "CREATE STREAM s (n BIGINT, t TEXT); CREATE TABLE k (id INT PRIMARY KEY, v BIGINT);
         CREATE MATERIALIZED VIEW sums AS SELECT n % 7 AS g, count(*) AS c, sum(n) AS s FROM s GROUP BY n % 7;
         CREATE MATERIALIZED VIEW joined AS SELECT k.id, k.v, s.t FROM k JOIN s ON s.n = k.v - 1",
    )
    .await
}

/// What a view has, and what its query answers.
async fn compare(client: &Client) -> Result<(), Failure> {
    for (view, query) in [
        (
            "sums",
            "SELECT n % 7 AS g, count(*) AS c, sum(n) AS s FROM s GROUP BY n % 7",
        ),
        ("joined", "SELECT k.id, k.v, s.t FROM k JOIN s ON s.n = k.v - 1"),
    ] {
        let found = line(client, &format!("SELECT * FROM {view} ORDER BY 1, 2, 3")).await?;
        let expected = line(client, &format!("SELECT * FROM ({query}) AS q ORDER BY 1, 2, 3")).await?;
        if found != expected {
            return Err(format!("{view} has {found}, its query answers {expected}").into());
        }
    }
    let twice = line(client, "SELECT n, count(*) FROM s GROUP BY n HAVING count(*) > 1").await?;
    match twice.is_empty() {
        true => Ok(()),
        false => Err(format!("rows are there twice: {twice}").into()),
    }
}

/// Waits until all that was acknowledged is in the copy.
async fn shipped(client: &Client) -> Result<(), Failure> {
    let covered = "SELECT covered_until > TIMESTAMPTZ";
    let now = line(client, "SELECT clock_timestamp()").await?;
    until(
        client,
        &format!("{covered} '{now}' FROM mr_catalog.shipping"),
        "t",
    )
    .await
}

/// A program of this process reads a bucket by the same environment as the server.
async fn restored(url: &str, data: &Path, environment: &[(&'static str, &str)]) -> Result<(), Failure> {
    if environment.is_empty() {
        restore(&Place::open(url)?, data).await?;
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let binary = program
        .parent()
        .and_then(Path::parent)
        .map(|folder| folder.join("millrace"));
    let output = std::process::Command::new(binary.ok_or("the binary is beside the tests")?)
        .args(["restore", "--from", url, "--data"])
        .arg(data)
        .envs(environment.iter().copied())
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Kills a server that ships in rounds, and goes on with what is restored of its copy in another directory. Now and then its own
/// directory is used again instead, as after a crash.
async fn burn(
    place: &Path,
    url: &dyn Fn(u64) -> String,
    environment: &[(&'static str, &str)],
) -> Result<(), Failure> {
    let seed = seed();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let total = rounds("OFFSITE_ROUNDS");
    let mut data = place.join("data0");
    let mut number = 1;
    for round in 0..total {
        let failed = |error: Failure| format!("round {round}: {error}");
        let url = url(round);
        let mut variables: Vec<(&'static str, PathBuf)> = vec![(LOG_URL, PathBuf::from(&url))];
        variables.extend(
            environment
                .iter()
                .map(|(name, value)| (*name, PathBuf::from(value))),
        );
        let process =
            Process::start_in(&data, random.random_range(1..=2), false, variables).map_err(failed)?;
        let client = connect(process.pg).await?;
        if round == 0 {
            create(&client).await?;
        }
        compare(&client).await.map_err(failed)?;
        // What is there now, the next round does not write.
        let last = line(&client, "SELECT coalesce(max(n), 0) FROM s").await?;
        number = number.max(last.parse::<u64>()? + 1);
        write_before_a_kill(&client, &mut random, &mut number, 30, 40)
            .await
            .map_err(failed)?;
        shipped(&client).await.map_err(failed)?;
        let sum = "SELECT count(*), sum(n) FROM s";
        let (acknowledged, expected) = (number - 1, line(&client, sum).await?);
        let table = line(&client, "SELECT * FROM k ORDER BY id").await?;
        // These may be there or not, each statement as a whole.
        let is_quiet = random.random_bool(0.3);
        if !is_quiet {
            let first = number;
            let mut write = Box::pin(write_before_a_kill(&client, &mut random, &mut number, 20, 40));
            let until_kill = Duration::from_millis(200 + 37 * (first % 11));
            let _ = tokio::time::timeout(until_kill, &mut write).await;
            drop(write);
            number += 40;
        }
        drop(client);
        process.kill().map_err(failed)?;
        let burns = random.random_bool(0.7);
        if burns {
            std::fs::remove_dir_all(&data)?;
            data = place.join(format!("data{}", round + 1));
            let began = Instant::now();
            restored(&url, &data, environment).await.map_err(failed)?;
            println!("round {round}: restored in {} ms", began.elapsed().as_millis());
        }
        let mut variables: Vec<(&'static str, PathBuf)> = vec![(LOG_URL, PathBuf::from(&url))];
        variables.extend(
            environment
                .iter()
                .map(|(name, value)| (*name, PathBuf::from(value))),
        );
        let process = Process::start_in(&data, 1, false, variables).map_err(failed)?;
        let client = connect(process.pg).await?;
        compare(&client).await.map_err(failed)?;
        let there = line(&client, &format!("{sum} WHERE n <= {acknowledged}")).await?;
        if there != expected {
            return Err(format!(
                "round {round}: of the rows up to {acknowledged} there are {there} and not {expected}"
            )
            .into());
        }
        if is_quiet {
            let found = line(&client, "SELECT * FROM k ORDER BY id").await?;
            if found != table {
                return Err(format!("round {round}: k has {found} and not {table}").into());
            }
        }
        drop(client);
        process.kill().map_err(failed)?;
    }
    Ok(())
}

fn config(data: &Path, copy: &Path) -> millrace_wire::config::Config {
    let mut config = throw_away(data);
    config.log_url = Some(format!("file://{}", copy.display()));
    config.log_ship_interval = Duration::from_millis(100);
    config
}

/// While the store is away the server goes on, says so, and makes up for it.
async fn away(place: &Path) -> Result<(), Failure> {
    let (data, copy) = (place.join("data"), place.join("copy"));
    std::fs::create_dir_all(place)?;
    let server = Server::start(config(&data, &copy)).await?;
    let client = connect(server.pg_addr()).await?;
    create(&client).await?;
    run(&client, "INSERT INTO s VALUES (1, 'a')").await?;
    shipped(&client).await?;
    // In the place of the directories stand files.
    let moved = place.join("moved");
    std::fs::rename(&copy, &moved)?;
    std::fs::write(&copy, "")?;
    run(
        &client,
        "INSERT INTO s VALUES (2, 'b'); INSERT INTO k VALUES (1, 3)",
    )
    .await?;
    until(
        &client,
        "SELECT state, error IS NOT NULL FROM mr_catalog.shipping",
        "failing t",
    )
    .await?;
    run(&client, "INSERT INTO s VALUES (3, 'c')").await?;
    let metrics = reqwest::get(format!("http://{}/metrics", server.http_addr()))
        .await?
        .text()
        .await?;
    if !metrics.contains("millrace_shipping_failing 1") {
        return Err("no metric says that shipping fails".into());
    }
    std::fs::remove_file(&copy)?;
    std::fs::rename(&moved, &copy)?;
    shipped(&client).await?;
    until(
        &client,
        "SELECT state, error FROM mr_catalog.shipping",
        "shipping NULL",
    )
    .await?;
    drop(client);
    server.shutdown().await;
    let elsewhere = place.join("elsewhere");
    let said = restore(&Place::open(&format!("file://{}", copy.display()))?, &elsewhere).await?;
    assert!(said.is_last && said.has_checkpoints, "{said:?}");
    let server = Server::start(throw_away(&elsewhere)).await?;
    let client = connect(server.pg_addr()).await?;
    assert_eq!(
        line(&client, "SELECT n, t FROM s ORDER BY n").await?,
        "1 a, 2 b, 3 c"
    );
    compare(&client).await?;
    let restored = "SELECT count(*) FROM mr_catalog.recovery WHERE state = 'restored'";
    assert_eq!(line(&client, restored).await?, "2", "views come from checkpoints");
    drop(client);
    server.shutdown().await;
    Ok(())
}

/// An old server that comes back finds that it is not the one any more.
async fn fence(place: &Path) -> Result<(), Failure> {
    let (old, new, copy) = (place.join("old"), place.join("new"), place.join("copy"));
    std::fs::create_dir_all(place)?;
    let url = format!("file://{}", copy.display());
    let variables = |take_over: bool| {
        let mut variables = vec![(LOG_URL, PathBuf::from(&url))];
        variables.extend(take_over.then(|| (TAKE_OVER, PathBuf::from("1"))));
        variables
    };
    let first = Process::start_in(&old, 1, false, variables(false))?;
    let client = connect(first.pg).await?;
    create(&client).await?;
    run(&client, "INSERT INTO s VALUES (1, 'both')").await?;
    shipped(&client).await?;
    // It is believed to be lost, and is not. When it has nothing more to ship, another one may take its place.
    let moment = "SELECT moment FROM mr_catalog.shipping";
    loop {
        let before = line(&client, moment).await?;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        if line(&client, moment).await? == before {
            break;
        }
    }
    restore(&Place::open(&url)?, &new).await?;
    let second = Process::start_in(&new, 1, false, variables(false))?;
    let other = connect(second.pg).await?;
    run(&other, "INSERT INTO s VALUES (2, 'new')").await?;
    shipped(&other).await?;
    run(&client, "INSERT INTO s VALUES (3, 'old')").await?;
    until(&client, "SELECT state FROM mr_catalog.shipping", "fenced").await?;
    let error = line(&client, "SELECT error FROM mr_catalog.shipping").await?;
    assert!(error.contains("another server has taken over"), "{error}");
    drop(client);
    first.kill()?;
    // Neither does it start again, unless it is told that it is the one.
    if Process::start_in(&old, 1, false, variables(false)).is_ok() {
        return Err("a server started whose copy another one has taken over".into());
    }
    shipped(&other).await?;
    assert_eq!(
        line(&other, "SELECT state FROM mr_catalog.shipping").await?,
        "shipping"
    );
    let first = Process::start_in(&old, 1, false, variables(true))?;
    let client = connect(first.pg).await?;
    shipped(&client).await?;
    until(&other, "SELECT state FROM mr_catalog.shipping", "fenced").await?;
    assert_eq!(line(&client, "SELECT n FROM s ORDER BY n").await?, "1, 3");
    drop((client, other));
    first.kill()?;
    second.kill()
}

/// What is damaged is named by `millrace restore`, and nothing is made of it.
async fn damage(place: &Path) -> Result<(), Failure> {
    let (data, copy) = (place.join("data"), place.join("copy"));
    std::fs::create_dir_all(place)?;
    let server = Server::start(config(&data, &copy)).await?;
    let client = connect(server.pg_addr()).await?;
    create(&client).await?;
    run(
        &client,
        "INSERT INTO s SELECT i, repeat('x', 50) FROM generate_series(1, 30000) AS g(i)",
    )
    .await?;
    shipped(&client).await?;
    drop(client);
    server.shutdown().await;
    let url = format!("file://{}", copy.display());
    let mut named = 0;
    for folder in ["moments", "packs", "checkpoints"] {
        for entry in std::fs::read_dir(copy.join(folder))? {
            let path = entry?.path();
            let whole = std::fs::read(&path)?;
            let mut flipped = whole.clone();
            let middle = flipped.len() / 2;
            flipped[middle] ^= 1;
            std::fs::write(&path, flipped)?;
            let target = place.join("restored");
            match restore(&Place::open(&url)?, &target).await {
                // An object that no moment names any more.
                Ok(_) => {}
                Err(error) => {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    assert!(error.to_string().contains(&format!("{folder}/{name}")), "{error}");
                    named += 1;
                }
            }
            std::fs::write(&path, whole)?;
            if target.exists() {
                std::fs::remove_dir_all(&target)?;
            }
        }
    }
    match named {
        4.. => Ok(()),
        _ => Err(format!("only {named} objects were found to be damaged").into()),
    }
}
