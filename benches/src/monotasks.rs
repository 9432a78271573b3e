//! Monotasks: what performance clarity costs, and how right its predictions are (Ousterhout's thesis, chapters 3 to 5).
//!
//! TPC-H and some scans and a sort read Parquet files through servers of this process, over PostgreSQL's protocol, as a user
//! would: `EXPLAIN (ANALYZE, FORMAT JSON)` on one machine gives the profile from which it is predicted what another one takes.

pub mod attribution;
pub mod cost;
pub mod layout;
pub mod measured;
pub mod prediction;
pub mod tasks;
pub mod views;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, ValueHint};
use millrace_clarity::model::predict;
use millrace_clarity::profile::Resource;
use millrace_clarity::{Profile, Scenario};
use millrace_sql_tests::tpch::{TableFile, queries, write_parquet};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::{self, Bed};
use crate::client::Client;
use crate::error::BenchError;
use crate::machine;
use crate::results::Run;
use crate::size::Size;
use crate::suite::Suite;

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// TPC-H's scale factor.
    pub factor: f64,
    /// The queries that run, from the first on.
    pub queries: usize,
    /// How often each is run.
    pub repetitions: usize,
    /// How often each is run where machines are compared: the processor time of one and the same run differs by a tenth and
    /// more where a machine is shared.
    pub turns: usize,
    /// Scale factor of each of the two files that one disk or two hold.
    pub half_factor: f64,
    /// Into how many tasks a stage is cut, to see what that brings.
    pub tasks: Vec<usize>,
    /// Bytes a second of the disk that stands for a whole one.
    pub disk_rate: u64,
    /// For how long a view is watched, and pushed; events of a batch.
    pub watched: Duration,
    pub batch_events: usize,
    /// Where the profiles are kept from which is predicted, if anywhere: they are what the model is fitted to.
    pub profiles: Option<PathBuf>,
}

impl Scale {
    /// What the issue asks for.
    pub fn real(factor: f64) -> Self {
        Scale {
            factor,
            queries: 22,
            repetitions: 5,
            turns: 15,
            half_factor: factor / 2.0,
            tasks: vec![1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
            disk_rate: 400_000_000,
            watched: Duration::from_secs(3),
            batch_events: 20_000,
            profiles: None,
        }
    }

    /// Enough to see that every experiment works.
    pub fn small() -> Self {
        Scale {
            factor: 0.01,
            queries: 3,
            repetitions: 1,
            turns: 2,
            half_factor: 0.01,
            tasks: vec![1, 2, 4],
            disk_rate: 20_000_000,
            watched: Duration::from_millis(200),
            batch_events: 500,
            profiles: None,
        }
    }
}

/// The suite, with its options.
#[derive(Debug, Args)]
pub struct Monotasks {
    /// TPC-H's scale factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Where TPC-H's tables are as Parquet, or are to be kept for later runs [default: made and removed]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    files: Option<PathBuf>,
    /// Keep the profiles there from which is predicted: hundreds of MB
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    profiles: Option<PathBuf>,
    /// Run nothing, and tell what the model makes of the profiles that an earlier run has kept there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["profiles", "files"])]
    again: Option<PathBuf>,
}

impl Suite for Monotasks {
    const NAME: &'static str = "monotasks";
    const ABOUT: &'static str =
        "Performance clarity: its cost against plain DataFusion, and how right its predictions are";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = Scale {
            profiles: self.profiles.clone(),
            ..match run.size() {
                Size::Real => Scale::real(self.scale),
                Size::Small => Scale::small(),
            }
        };
        if let Some(profiles) = &self.again {
            return again(run, &scale, profiles);
        }
        if run.begins(views::NAME) {
            views::run(run, &scale).await?;
        }
        if run.begins(layout::DISKS) {
            layout::disks(run, &scale).await?;
        }
        let of_tables = [cost::NAME, layout::MEMORY, attribution::NAME, tasks::NAME]
            .into_iter()
            .chain(prediction::PARTS.iter().map(|part| part.name));
        if !of_tables.into_iter().any(|name| run.wants(name)) {
            return Ok(());
        }
        let workload = Workload::new(&scale, self.files.as_deref())?;
        if run.begins(cost::NAME) {
            cost::run(run, &workload, &scale).await?;
        }
        for part in &prediction::PARTS {
            if run.begins(part.name) {
                prediction::run(run, part, &workload, &scale).await?;
            }
        }
        if run.begins(layout::MEMORY) {
            layout::memory(run, &workload, &scale).await?;
        }
        if run.begins(attribution::NAME) {
            attribution::run(run, &workload, &scale).await?;
        }
        if run.begins(tasks::NAME) {
            tasks::run(run, &workload, &scale).await?;
        }
        Ok(())
    }
}

/// What the model makes of profiles that an earlier run kept; see [`Scale::profiles`].
fn again(run: &mut Run, scale: &Scale, profiles: &Path) -> Result<(), BenchError> {
    for part in &prediction::PARTS {
        part.again(run, scale, profiles)?;
    }
    layout::again(run, scale, profiles)
}

/// The tables of the benchmark.
const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

/// Scans from light to heavy, and a sort.
const OTHERS: [(&str, &str); 4] = [
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
    /// With the tables that are in a directory, or are written there; `None`: written for this run alone.
    fn new(scale: &Scale, kept: Option<&Path>) -> Result<Workload, BenchError> {
        let directory = bed::Place::Disk.directory()?;
        let place = kept.unwrap_or(directory.path());
        let known = TABLES.map(|table| TableFile {
            table,
            path: place.join(format!("{table}.parquet")),
        });
        let files = match known.iter().all(|file| file.path.exists()) {
            true => known.to_vec(),
            false => write_tables(place, scale.factor)?,
        };
        let queries = queries(scale.factor)?;
        Ok(Workload {
            files,
            queries: (queries.into_iter().take(scale.queries))
                .map(|query| (query.name, query.sql))
                .collect(),
            others: named(&OTHERS),
            _directory: directory,
        })
    }

    /// The statements that make the tables.
    pub fn tables(&self) -> Vec<String> {
        self.files.iter().map(TableFile::create).collect()
    }

    /// All that is run: TPC-H, then the others.
    pub fn all(&self) -> impl Iterator<Item = &(String, String)> {
        self.queries.iter().chain(&self.others)
    }
}

/// Names and texts of queries.
pub fn named(queries: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, sql): &(&str, &str)| ((*name).to_owned(), (*sql).to_owned());
    queries.iter().map(owned).collect()
}

/// Writes the tables as files into a directory that is made if need be.
///
/// # Errors
/// They cannot be written.
pub fn write_tables(directory: &Path, factor: f64) -> Result<Vec<TableFile>, BenchError> {
    std::fs::create_dir_all(directory).map_err(BenchError::io("cannot make a directory for TPC-H"))?;
    eprintln!("writing TPC-H as Parquet, scale factor {factor} ...");
    Ok(write_parquet(directory, factor)?)
}

/// How a server is laid out.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    pub cores: usize,
    /// Rows that make one partition of a query; `None`: as it is.
    pub partition_rows: Option<usize>,
    /// Directories and files that count as disks of their own.
    pub disks: Vec<PathBuf>,
}

impl Layout {
    /// So many cores, and the rest as it is.
    pub fn cores(cores: usize) -> Layout {
        Layout {
            cores,
            ..Layout::default()
        }
    }
}

impl Layout {
    /// Starts a server so laid out, with these statements that make its tables.
    ///
    /// # Errors
    /// It does not start, or cannot read the files.
    pub async fn start(&self, tables: &[String]) -> Result<Bed, BenchError> {
        let bed = Bed::start(bed::Place::Disk, |config| {
            config.cores = Some(self.cores);
            if let Some(rows) = self.partition_rows {
                config.query_partition_rows = rows;
            }
        })
        .await?;
        for (number, disk) in self.disks.iter().enumerate() {
            bed.runtime.disks().declare(disk, &format!("disk {number}"));
        }
        for table in tables {
            bed.client.run(table).await?;
        }
        Ok(bed)
    }
}

/// A query's profiles: one run to warm up, then so many that count.
///
/// # Errors
/// It fails, or the answer is not as documented.
pub async fn profiles(client: &Client, sql: &str, repetitions: usize) -> Result<Vec<Analyzed>, BenchError> {
    // Plans, files and pages are there from the first run on.
    client.time(sql).await?;
    let mut analyzed = vec![];
    for _ in 0..repetitions {
        analyzed.push(analyze(client, sql).await?);
    }
    Ok(analyzed)
}

/// A query on a server, and the cores that the whole process has meanwhile.
pub struct Place<'a> {
    pub bed: &'a Bed,
    pub cores: usize,
    pub sql: &'a str,
}

/// The profiles of a query at each place: one run to warm up, then so many that count, by turns, so that whatever else the machine
/// does meanwhile falls on all places alike. Runs during which the machine's host gave much of the processors to others are repeated,
/// up to `REPEATED_MAX` times as often in all; those count of which least was taken.
///
/// # Errors
/// It fails, or the answer is not as documented.
pub async fn by_turns(places: &[Place<'_>], repetitions: usize) -> Result<Vec<Vec<Analyzed>>, BenchError> {
    let mut profiles: Vec<Vec<Analyzed>> = places.iter().map(|_| vec![]).collect();
    for place in places {
        run_on(place.cores)?;
        place.bed.client.time(place.sql).await?;
    }
    let is_disturbed = |run: &&Analyzed| run.profile.stolen_share() > STOLEN_SHARE_MAX;
    for round in 0..repetitions * REPEATED_MAX {
        let lacks =
            |runs: &Vec<Analyzed>| runs.len() - runs.iter().filter(is_disturbed).count() < repetitions;
        if round >= repetitions && !profiles.iter().any(lacks) {
            break;
        }
        for (place, profiles) in places.iter().zip(&mut profiles) {
            run_on(place.cores)?;
            profiles.push(analyze(&place.bed.client, place.sql).await?);
        }
    }
    run_on(available_cores())?;
    for runs in &mut profiles {
        runs.sort_by(|left, right| {
            let shares = [left, right].map(|run| run.profile.stolen_share());
            shares[0].total_cmp(&shares[1])
        });
        runs.truncate(repetitions);
    }
    Ok(profiles)
}

/// See [`by_turns`].
const STOLEN_SHARE_MAX: f64 = 0.03;
const REPEATED_MAX: usize = 2;

/// Those that this program may run on.
fn available_cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // As it begins, before any of its threads is bound to fewer.
    *CORES.get_or_init(machine::cores)
}

/// Binds all threads of this process, and those that they will start, to so many processors: a server of one core would
/// otherwise have its files read and its answers sent by the others.
fn run_on(cores: usize) -> Result<(), BenchError> {
    let failed = || BenchError::io("cannot bind the process to processors");
    let mut processors = CpuSet::new();
    (0..cores.min(available_cores())).for_each(|processor| processors.set(processor));
    for thread in std::fs::read_dir("/proc/self/task").map_err(failed())? {
        let name = thread.map_err(failed())?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        // One that has ended meanwhile needs no processor.
        if let Some(id) = id.and_then(Pid::from_raw) {
            let _ = sched_setaffinity(Some(id), &processors);
        }
    }
    Ok(())
}

/// A query with its profile.
///
/// # Errors
/// It fails, or the answer is not as documented.
pub async fn analyze(client: &Client, sql: &str) -> Result<Analyzed, BenchError> {
    let rows = client
        .rows(&format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}"))
        .await?;
    let text: Vec<String> = rows.into_iter().flatten().flatten().collect();
    let json: Value = serde_json::from_str(&text.join("\n")).map_err(BenchError::engine)?;
    Analyzed::read(&json)
        .ok_or_else(|| BenchError::Wrong(format!("a profile without what was asked for: {sql}")))
}

/// What an analysis says, times in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Analyzed {
    pub elapsed: f64,
    /// Service time on cores.
    #[serde(default)]
    pub cpu: f64,
    /// Time of the disks for its bytes, whatever else they did meanwhile.
    #[serde(default)]
    pub disk: f64,
    pub profile: Profile,
}

impl Analyzed {
    fn read(json: &Value) -> Option<Analyzed> {
        let analysis = json.get("analysis")?;
        let millis = |value: &Value| Some(value.as_f64()? / 1e6);
        let sum = |time: &str, is_wanted: fn(&Value) -> bool| -> Option<f64> {
            let resources = analysis.get("resources")?.as_array()?;
            let wanted = resources
                .iter()
                .filter(|resource| is_wanted(&resource["resource"]));
            Some(wanted.filter_map(|resource| millis(&resource[time])).sum())
        };
        Some(Analyzed {
            elapsed: millis(analysis.get("elapsed")?)?,
            cpu: sum("service", |resource| resource == "cpu")?,
            disk: sum("ideal", |resource| resource.get("disk").is_some())?,
            profile: serde_json::from_value(json.get("profile")?.clone()).ok()?,
        })
    }

    /// Milliseconds under other circumstances, as a what-if says.
    pub fn predicted(&self, scenario: &Scenario) -> f64 {
        predict(&self.profile, scenario) as f64 / 1e6
    }

    /// Bytes that its disk monotasks moved.
    pub fn disk_bytes(&self) -> u64 {
        let tasks = self.profile.stages.iter().flat_map(|stage| &stage.tasks);
        let usage = tasks.flat_map(|task| &task.usage);
        let of_disks = usage.filter(|usage| matches!(usage.resource, Resource::Disk(_)));
        of_disks.map(|usage| usage.bytes).sum()
    }
}
