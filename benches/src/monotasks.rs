//! Monotasks: what performance clarity costs, and how right its predictions are (Ousterhout's thesis, chapters 3 to 5).
//!
//! TPC-H and some scans and a sort read Parquet files through servers of this process, over PostgreSQL's protocol, as a user
//! would: `EXPLAIN (ANALYZE, FORMAT JSON, WHAT IF (..))` predicts on one server what another one then takes.

pub mod cost;
pub mod prediction;
pub mod views;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use millrace_runtime::Runtime;
use millrace_server::{Config, Server};
use millrace_sql_tests::tpch::{TableFile, queries, write_parquet};
use serde_json::Value;
use tempfile::TempDir;

use crate::client::Client;
use crate::error::BenchError;
use crate::results::Run;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// TPC-H's scale factor.
    pub factor: f64,
    /// The queries that run, from the first on.
    pub queries: usize,
    /// How often each is run.
    pub repetitions: usize,
    /// Bytes a second of the disk that stands for a whole one.
    pub disk_rate: u64,
    /// For how long a view is watched, and pushed; events of a batch.
    pub watched: Duration,
    pub batch_events: usize,
    /// Probes of the disk.
    pub fsync_probes: usize,
}

impl Scale {
    /// What the issue asks for.
    pub fn real(factor: f64) -> Self {
        Scale {
            factor,
            queries: 22,
            repetitions: 3,
            disk_rate: 400_000_000,
            watched: Duration::from_secs(3),
            batch_events: 20_000,
            fsync_probes: 100,
        }
    }

    /// Enough to see that every experiment works.
    pub fn small() -> Self {
        Scale {
            factor: 0.01,
            queries: 3,
            repetitions: 1,
            disk_rate: 20_000_000,
            watched: Duration::from_millis(200),
            batch_events: 500,
            fsync_probes: 5,
        }
    }
}

/// All experiments; `only`: those whose name contains this.
///
/// # Errors
/// A server fails, or an answer is wrong.
pub async fn run(mut run: Run, scale: &Scale, only: Option<&str>) -> Result<Run, BenchError> {
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let workload = Workload::new(scale)?;
    if is_wanted(cost::NAME) {
        cost::run(&mut run, &workload, scale).await?;
    }
    if is_wanted(prediction::CHANGES) {
        prediction::run(&mut run, &workload, scale).await?;
    }
    if is_wanted(prediction::ATTRIBUTION) {
        prediction::attribution(&mut run, &workload, scale).await?;
    }
    if is_wanted(views::NAME) {
        views::run(&mut run, scale).await?;
    }
    Ok(run)
}

/// Queries and the files that they read.
pub struct Workload {
    pub files: Vec<TableFile>,
    /// Names and texts.
    pub queries: Vec<(String, String)>,
    /// Scans from light to heavy, and a sort.
    pub others: Vec<(String, String)>,
    _directory: TempDir,
}

impl Workload {
    fn new(scale: &Scale) -> Result<Workload, BenchError> {
        let broken = |error: millrace_sql_tests::Failure| BenchError::Server(error.to_string());
        let directory = tempfile::tempdir().map_err(BenchError::io("cannot make a directory for TPC-H"))?;
        eprintln!("writing TPC-H as Parquet ...");
        let files = write_parquet(directory.path(), scale.factor).map_err(broken)?;
        let queries = queries(scale.factor)
            .map_err(broken)?
            .into_iter()
            .take(scale.queries);
        let others = [
            ("scan, one column", "SELECT sum(l_quantity) FROM lineitem"),
            (
                "scan, arithmetic",
                "SELECT sum(sqrt(l_extendedprice::double precision) * ln(1 + l_quantity::double precision)) FROM lineitem",
            ),
            (
                "scan, texts",
                "SELECT count(*) FROM lineitem WHERE l_comment LIKE '%special%requests%'",
            ),
            (
                "sort",
                "SELECT l_orderkey, l_extendedprice FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey \
                 LIMIT 10 OFFSET 100000",
            ),
        ];
        Ok(Workload {
            files,
            queries: queries.map(|query| (query.name, query.sql)).collect(),
            others: others
                .map(|(name, sql)| (name.to_owned(), sql.to_owned()))
                .into_iter()
                .collect(),
            _directory: directory,
        })
    }
}

/// A server that reads the workload's files.
pub struct Bed {
    pub client: Client,
    pub runtime: Runtime,
    pub server: Server,
    _directory: TempDir,
}

impl Bed {
    /// Starts it on so many cores.
    ///
    /// # Errors
    /// It does not start, or cannot read the files.
    pub async fn new(workload: &Workload, cores: usize) -> Result<Bed, BenchError> {
        let directory =
            tempfile::tempdir().map_err(BenchError::io("cannot make a directory for a server"))?;
        let config = Config {
            data: directory.path().join("data"),
            pg: (Ipv4Addr::LOCALHOST, 0).into(),
            http: (Ipv4Addr::LOCALHOST, 0).into(),
            cores: Some(cores),
            ..Config::default()
        };
        let broken = |error: &dyn std::fmt::Display| BenchError::Server(error.to_string());
        let server = Server::start(config).await.map_err(|error| broken(&error))?;
        let client = Client::connect(server.pg_addr()).await?;
        for file in &workload.files {
            client.run(&file.create()).await?;
        }
        let runtime = server
            .database()
            .map_err(|error| broken(&error))?
            .runtime()
            .clone();
        Ok(Bed {
            client,
            runtime,
            server,
            _directory: directory,
        })
    }

    /// Milliseconds of a query, answer included.
    ///
    /// # Errors
    /// It fails.
    pub async fn time(&self, sql: &str) -> Result<f64, BenchError> {
        let begin = Instant::now();
        self.client.rows(sql).await?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }

    /// A query with its profile, and one question about it.
    ///
    /// # Errors
    /// It fails, or the answer is not as documented.
    pub async fn analyze(&self, sql: &str, what_if: &str) -> Result<Analyzed, BenchError> {
        analyze(&self.client, sql, what_if).await
    }

    /// Ends the server.
    pub async fn stop(self) {
        drop(self.client);
        self.server.shutdown().await;
    }
}

/// See [`Bed::analyze`].
///
/// # Errors
/// It fails, or the answer is not as documented.
pub async fn analyze(client: &Client, sql: &str, what_if: &str) -> Result<Analyzed, BenchError> {
    let question = match what_if {
        "" => String::new(),
        what_if => format!(", WHAT IF ({what_if})"),
    };
    let rows = client
        .rows(&format!("EXPLAIN (ANALYZE, FORMAT JSON{question}) {sql}"))
        .await?;
    let text: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let json: Value = serde_json::from_str(&text.join("\n")).map_err(BenchError::engine)?;
    Analyzed::read(&json)
        .ok_or_else(|| BenchError::Wrong(format!("a profile without what was asked for: {sql}")))
}

/// What an analysis says, times in milliseconds.
#[derive(Debug, Clone)]
pub struct Analyzed {
    pub elapsed: f64,
    /// With the change that was asked about.
    pub predicted: f64,
    /// Service time, by resource.
    pub cpu: f64,
    pub disk: f64,
}

impl Analyzed {
    fn read(json: &Value) -> Option<Analyzed> {
        let analysis = json.get("analysis")?;
        let millis = |value: &Value| Some(value.as_f64()? / 1e6);
        let service = |is_wanted: fn(&Value) -> bool| -> Option<f64> {
            let resources = analysis.get("resources")?.as_array()?;
            let wanted = resources
                .iter()
                .filter(|resource| is_wanted(&resource["resource"]));
            Some(wanted.filter_map(|resource| millis(&resource["service"])).sum())
        };
        Some(Analyzed {
            elapsed: millis(analysis.get("elapsed")?)?,
            predicted: millis(&analysis["what_ifs"].as_array()?.first()?["elapsed"])?,
            cpu: service(|resource| resource == "cpu")?,
            disk: service(|resource| resource.get("disk").is_some())?,
        })
    }
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
