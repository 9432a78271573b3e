//! Predictions of where the input is: on two disks instead of one, in memory instead of in files.

use millrace_planner::performance::Scenario;

use super::prediction::{Case, report};
use super::{Bed, Layout, OTHERS, Place, Scale, Workload, by_turns, named, write_tables};
use crate::error::BenchError;
use crate::results::Run;

/// The experiments' names.
pub const DISKS: &str = "prediction: one disk, two disks";
pub const MEMORY: &str = "prediction: input in memory";

/// The disk of these experiments, as a share of the whole one: reading is to be felt.
const DISK_SHARE: f64 = 0.25;

/// The queries of TPC-H that read one table.
const SCANS: [(&str, &str); 2] = [
    (
        "q1",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), \
         sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), \
         avg(l_extendedprice), avg(l_discount), count(*) FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' \
         GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
    ),
    (
        "q6",
        "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' \
         AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
];

/// Writes by which the table is filled: each is held as a whole.
const PIECES: usize = 8;

fn queries() -> Vec<(String, String)> {
    let mut queries = named(&SCANS);
    queries.extend(named(&OTHERS));
    queries
}

/// The same two files on one disk and on two.
///
/// # Errors
/// A query fails.
pub async fn disks(run: &mut Run, scale: &Scale) -> Result<(), BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::io("cannot make a directory for TPC-H"))?;
    let places = ["first.parquet", "second.parquet"].map(|name| directory.path().join(name));
    for place in &places {
        let tables = tempfile::tempdir().map_err(BenchError::io("cannot make a directory for TPC-H"))?;
        let files = write_tables(tables.path(), scale.half_factor)?;
        for file in files.iter().filter(|file| file.table == "lineitem") {
            std::fs::rename(&file.path, place).map_err(BenchError::io("cannot move a table"))?;
        }
    }
    let table = format!(
        "CREATE EXTERNAL TABLE lineitem STORED AS PARQUET LOCATION '{}'",
        directory.path().display()
    );
    let rate = (DISK_SHARE * scale.disk_rate as f64) as u64;
    let mut beds = vec![];
    for disks in [vec![directory.path().to_owned()], places.to_vec()] {
        let layout = Layout {
            disks,
            ..Layout::cores(2)
        };
        let bed = Bed::new(std::slice::from_ref(&table), &layout).await?;
        bed.runtime.set_disk_rate(Some(rate));
        beds.push(bed);
    }
    // By query and bed.
    let mut runs = vec![];
    for (_, sql) in &queries() {
        let at = |bed| Place { bed, cores: 2, sql };
        let places: Vec<Place<'_>> = beds.iter().map(at).collect();
        runs.push(by_turns(&places, scale.repetitions).await?);
    }
    for bed in beds {
        bed.stop().await;
    }
    let mut cases = vec![];
    for (change, from, to, disks) in [("1 disk -> 2", 0, 1, 2), ("2 disks -> 1", 1, 0, 1)] {
        // Those that the query does not use count too, and hold nothing.
        let scenario = Scenario {
            disks: Some(disks),
            ..Scenario::default()
        };
        for (number, (query, _)) in queries().iter().enumerate() {
            let (before, after) = (&runs[number][from], &runs[number][to]);
            cases.push(Case::new(change, query, before, &scenario, after));
        }
    }
    let method = format!(
        "`lineitem` in two files of scale factor {}, on one disk or on a disk each: files that the server takes to be on \
         disks of their own, each of {} MB/s by a limit in its scheduler. Two cores, medians of {} runs.",
        scale.half_factor,
        rate / 1_000_000,
        scale.repetitions
    );
    report(run, DISKS, "prediction-disks", method, &cases);
    Ok(())
}

/// `lineitem` as a file, and as a table in memory with the same rows.
///
/// # Errors
/// A query fails.
pub async fn memory(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let rate = (DISK_SHARE * scale.disk_rate as f64) as u64;
    let of_files = Bed::new(&workload.tables(), &Layout::cores(2)).await?;
    of_files.runtime.set_disk_rate(Some(rate));
    let bed = Bed::new(&workload.tables(), &Layout::cores(2)).await?;
    eprintln!("taking lineitem into memory ...");
    bed.client
        .run(
            "CREATE TABLE lines (l_orderkey BIGINT, l_linenumber INT, l_quantity NUMERIC(15, 2), \
         l_extendedprice NUMERIC(15, 2), l_discount NUMERIC(15, 2), l_tax NUMERIC(15, 2), l_returnflag TEXT, \
         l_linestatus TEXT, l_shipdate DATE, l_comment TEXT, PRIMARY KEY (l_orderkey, l_linenumber)) \
         WITH (durability = 'off')",
        )
        .await?;
    for piece in 0..PIECES {
        let insert = format!(
            "INSERT INTO lines SELECT l_orderkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, \
             l_returnflag, l_linestatus, l_shipdate, l_comment FROM lineitem WHERE l_orderkey % {PIECES} = {piece}"
        );
        bed.client.run(&insert).await?;
    }
    // So that none is written while it is measured.
    bed.client.run("CHECKPOINT").await?;
    let scenario = Scenario {
        input_in_memory: true,
        ..Scenario::default()
    };
    let mut cases = vec![];
    for (query, sql) in queries() {
        let of_table = sql.replace("FROM lineitem", "FROM lines");
        let places = [(&of_files, &sql), (&bed, &of_table)].map(|(bed, sql)| Place { bed, cores: 2, sql });
        let runs = by_turns(&places, scale.repetitions).await?;
        cases.push(Case::new("file -> memory", &query, &runs[0], &scenario, &runs[1]));
    }
    bed.stop().await;
    of_files.stop().await;
    let method = format!(
        "`lineitem` as Parquet on a disk of {} MB/s, and as a table of the server, which has its rows in memory as columns. \
         Two cores, medians of {} runs.",
        rate / 1_000_000,
        scale.repetitions
    );
    report(run, MEMORY, "prediction-memory", method, &cases);
    Ok(())
}
