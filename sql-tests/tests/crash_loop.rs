//! A view that kills the process, whenever it meets a row, does not kill it at every start: after two deaths over the same row it
//! fails to load, and everything else runs. The server is a child process, whose reducer `explode` aborts on negative numbers.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use libtest_mimic::{Arguments, Failed, Trial};
use millrace_cli::test::throw_away;
use millrace_oracle::text::TextRow;
use millrace_planner::reducer::{Reducer, ReducerState};
use millrace_sql_tests::{Failure, connect, rows, run, words};
use millrace_wire::Server;
use tokio_postgres::Client;

/// The variable that makes this program the server, and says on which directory.
const CHILD: &str = "CRASH_LOOP_TEST_DATA";
/// The variable that is there if the server runs none of its materialized views.
const VIEWS_OFF: &str = "CRASH_LOOP_TEST_VIEWS_OFF";

#[derive(Debug)]
struct Explode;

#[derive(Debug, Default)]
struct Sum(i64);

impl Reducer for Explode {
    fn name(&self) -> &str {
        "explode"
    }

    fn return_type(&self, _: &[DataType]) -> datafusion::error::Result<DataType> {
        Ok(DataType::Int64)
    }

    fn init(&self) -> Box<dyn ReducerState> {
        Box::new(Sum::default())
    }
}

impl ReducerState for Sum {
    fn reduce(&mut self, values: &[ArrayRef]) -> datafusion::error::Result<()> {
        for value in values[0].as_primitive::<Int64Type>().iter().flatten() {
            if value < 0 {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the reducer that ends the process is the test"
                )]
                std::process::abort();
            }
            self.0 += value;
        }
        Ok(())
    }

    fn value(&self) -> datafusion::error::Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0)))
    }

    fn save(&self) -> datafusion::error::Result<Vec<u8>> {
        Ok(self.0.to_le_bytes().to_vec())
    }

    fn merge(&mut self, saved: &[u8]) -> datafusion::error::Result<()> {
        self.0 += i64::from_le_bytes(saved.try_into().unwrap());
        Ok(())
    }
}

/// The child: a server until a line comes, or standard input ends.
fn serve(directory: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut config = throw_away(directory);
    config.cores = Some(1);
    config.views = std::env::var_os(VIEWS_OFF).is_none();
    let server = runtime
        .block_on(Server::start_with(config, None, vec![Arc::new(Explode)]))
        .unwrap();
    println!("{}", server.pg_addr());
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    runtime.block_on(server.shutdown());
}

struct Process(Child);

impl Process {
    /// Starts a server; none if it died before it was ready.
    fn start(directory: &Path, views_off: bool) -> Result<(Process, Option<SocketAddr>), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(CHILD, directory)
            .envs(views_off.then_some((VIEWS_OFF, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the child has an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok((Process(child), line.trim().parse().ok()))
    }

    /// Waits for its end, which is no clean one.
    fn dies(mut self) -> Result<(), Failure> {
        let status = self.0.wait()?;
        match status.success() {
            true => Err("the server ended by itself".into()),
            false => Ok(()),
        }
    }

    /// A clean stop.
    fn stop(mut self) -> Result<(), Failure> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the server did not stop cleanly: {status}").into()),
        }
    }

    /// SIGKILL.
    fn kill(mut self) -> Result<(), Failure> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

async fn up(directory: &Path) -> Result<(Process, Client), Failure> {
    let (process, address) = Process::start(directory, false)?;
    let client = connect(address.ok_or("the server died while starting")?).await?;
    Ok((process, client))
}

/// A start that comes to nothing.
fn dies_while_starting(directory: &Path) -> Result<(), Failure> {
    match Process::start(directory, false)? {
        (process, None) => process.dies(),
        (process, Some(_)) => {
            process.kill()?;
            Err("the server was expected to die while starting".into())
        }
    }
}

const JOBS: &str = "SELECT view, state, error FROM mr_catalog.jobs ORDER BY view";

fn row(texts: &[&str]) -> TextRow {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

/// The view has failed to load, says why, and everything else runs.
async fn has_failed(client: &Client) -> Result<(), Failure> {
    let jobs = rows(client, JOBS).await?;
    let why = "the server crashed 2 times while it ran this view; the view is tried again at the start after the next clean stop";
    assert_eq!(jobs[0], row(&["bad", "failed", why]));
    assert_eq!(jobs[1][..2], row(&["over_bad", "failed"])[..]);
    assert_eq!(jobs.len(), 2);
    let error = client.simple_query("SELECT * FROM bad").await.unwrap_err();
    let error = words(&error);
    assert!(error.starts_with("55000") && error.contains(why), "{error}");
    run(client, "INSERT INTO s VALUES (1, 100)").await?;
    assert_eq!(
        rows(client, "SELECT (SELECT n FROM good) = (SELECT count(*) FROM s)").await?,
        [row(&["t"])]
    );
    Ok(())
}

async fn a_view_that_kills_fails_to_load() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let (process, client) = up(directory).await?;
    run(
        &client,
        "CREATE STREAM s (k BIGINT, v BIGINT);
         CREATE MATERIALIZED VIEW good AS SELECT count(*) AS n FROM s;
         CREATE MATERIALIZED VIEW bad AS SELECT k, explode(v) AS v FROM s GROUP BY k;
         CREATE MATERIALIZED VIEW over_bad AS SELECT sum(v) AS v FROM bad;
         INSERT INTO s VALUES (1, 1), (2, 2);",
    )
    .await?;
    assert_eq!(rows(&client, "SELECT v FROM over_bad").await?, [row(&["3"])]);
    // However often it is killed from outside, the views that were running are not to blame for it.
    process.kill()?;
    let (process, client) = up(directory).await?;
    process.kill()?;
    drop(client);
    let (process, client) = up(directory).await?;
    assert_eq!(rows(&client, JOBS).await?, Vec::<TextRow>::new());
    assert_eq!(rows(&client, "SELECT v FROM over_bad").await?, [row(&["3"])]);

    // The row is durable before the view meets it, so the answer may or may not come.
    let _ = client.simple_query("INSERT INTO s VALUES (1, -1)").await;
    process.dies()?;
    dies_while_starting(directory)?;
    let (process, client) = up(directory).await?;
    has_failed(&client).await?;
    process.kill()?;
    let (process, client) = up(directory).await?;
    has_failed(&client).await?;

    // After a clean stop it is tried again, as often as before.
    drop(client);
    process.stop()?;
    dies_while_starting(directory)?;
    dies_while_starting(directory)?;
    let (process, client) = up(directory).await?;
    has_failed(&client).await?;
    run(&client, "DROP MATERIALIZED VIEW bad CASCADE").await?;
    drop(client);
    process.stop()?;
    let (process, client) = up(directory).await?;
    assert_eq!(rows(&client, JOBS).await?, Vec::<TextRow>::new());
    assert_eq!(
        rows(&client, "SELECT n FROM good").await?,
        rows(&client, "SELECT count(*) FROM s").await?
    );
    drop(client);
    process.stop()
}

async fn without_its_views_the_server_starts() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let (process, client) = up(directory).await?;
    run(
        &client,
        "CREATE TABLE t (k BIGINT, v BIGINT);
         CREATE VIEW plain AS SELECT k FROM t;
         CREATE MATERIALIZED VIEW good AS SELECT count(*) AS n FROM t;
         CREATE MATERIALIZED VIEW bad AS SELECT explode(v) AS v FROM t;",
    )
    .await?;
    let _ = client.simple_query("INSERT INTO t VALUES (1, -1)").await;
    process.dies()?;
    let (process, address) = Process::start(directory, true)?;
    let client = connect(address.ok_or("the server died without its views")?).await?;
    let why = "the server was started without materialized views (views = off)";
    assert_eq!(
        rows(&client, JOBS).await?,
        [row(&["bad", "failed", why]), row(&["good", "failed", why])]
    );
    assert_eq!(rows(&client, "SELECT k FROM plain").await?, [row(&["1"])]);
    run(&client, "DROP MATERIALIZED VIEW bad; INSERT INTO t VALUES (2, 2)").await?;
    drop(client);
    process.stop()?;
    let (process, client) = up(directory).await?;
    assert_eq!(rows(&client, "SELECT n FROM good").await?, [row(&["2"])]);
    drop(client);
    process.stop()
}

fn main() {
    if let Some(directory) = std::env::var_os(CHILD) {
        serve(Path::new(&directory));
        return;
    }
    let arguments = Arguments::from_args();
    let trial = |name: &str, test: fn() -> Result<(), Failure>| {
        Trial::test(name, move || {
            test().map_err(|error| Failed::from(error.to_string()))
        })
    };
    fn wait(test: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        tokio::runtime::Runtime::new()?.block_on(test)
    }
    let trials = vec![
        trial("a_view_that_kills_fails_to_load", || {
            wait(a_view_that_kills_fails_to_load())
        }),
        trial("without_its_views_the_server_starts", || {
            wait(without_its_views_the_server_starts())
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}
