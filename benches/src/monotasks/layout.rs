//! Predictions of where the input is: on two disks instead of one, in memory instead of in files.

use std::path::Path;

use millrace_clarity::Scenario;
use millrace_engine::testing::Testing;

use super::measured::{Change, Measured};
use super::prediction::report;
use super::{Layout, OTHERS, Place, Scale, Workload, by_turns, named, write_tables};
use crate::bed;
use crate::error::BenchError;
use crate::results::Run;

/// The experiments' names.
pub const DISKS: &str = "prediction: one disk, two disks";
pub const MEMORY: &str = "prediction: input in memory";
/// Those of their figures, and of their profiles.
const DISKS_CHART: &str = "prediction-disks";
const MEMORY_CHART: &str = "prediction-memory";

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
    let directory = bed::Place::Disk.directory()?;
    let places = ["first.parquet", "second.parquet"].map(|name| directory.path().join(name));
    for place in &places {
        let tables = bed::Place::Disk.directory()?;
        let files = write_tables(tables.path(), scale.half_factor)?;
        for file in files.iter().filter(|file| file.table == "lineitem") {
            std::fs::rename(&file.path, place).map_err(BenchError::io("cannot move a table"))?;
        }
    }
    let table = format!(
        "CREATE EXTERNAL TABLE lineitem STORED AS PARQUET LOCATION '{}'",
        directory.path().display()
    );
    let mut beds = vec![];
    for disks in [vec![directory.path().to_owned()], places.to_vec()] {
        let layout = Layout {
            disks,
            ..Layout::cores(2)
        };
        let bed = layout.start(std::slice::from_ref(&table)).await?;
        bed.runtime.set_disk_rate(Some(rate(scale)));
        beds.push(bed);
    }
    let mut measured = Measured::default();
    for (query, sql) in &queries() {
        let at = |bed| Place { bed, cores: 2, sql };
        let places: Vec<Place<'_>> = beds.iter().map(at).collect();
        let profiles = by_turns(&places, scale.turns).await?;
        for (machine, profiles) in ["1 disk", "2 disks"].into_iter().zip(profiles) {
            measured.add(machine, query, profiles);
        }
    }
    for bed in beds {
        bed.stop().await;
    }
    if let Some(directory) = &scale.profiles {
        measured.keep(directory, DISKS_CHART)?;
    }
    conclude_disks(run, scale, &measured);
    Ok(())
}

fn conclude_disks(run: &mut Run, scale: &Scale, measured: &Measured) {
    // Those that the query does not use count too, and hold nothing.
    let changes = [("1 disk", "2 disks", 2), ("2 disks", "1 disk", 1)].map(|(from, to, disks)| Change {
        name: format!("{from} -> {to}"),
        from: from.to_owned(),
        to: to.to_owned(),
        scenario: Scenario {
            disks: Some(disks),
            ..Scenario::default()
        },
    });
    let method = format!(
        "`lineitem` in two files of scale factor {}, on one disk or on a disk each: files that the server takes to be on \
         disks of their own, each of {} MB/s by a limit in its scheduler. Two cores, medians of {} runs.",
        scale.half_factor,
        rate(scale) / 1_000_000,
        scale.turns
    );
    report(run, DISKS, DISKS_CHART, method, &measured.cases(&changes));
}

/// `lineitem` as a file, and as a table in memory with the same rows.
///
/// # Errors
/// A query fails.
pub async fn memory(run: &mut Run, workload: &Workload, scale: &Scale) -> Result<(), BenchError> {
    let of_files = Layout::cores(2).start(&workload.tables()).await?;
    of_files.runtime.set_disk_rate(Some(rate(scale)));
    let bed = Layout::cores(2).start(&workload.tables()).await?;
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
    let mut measured = Measured::default();
    for (query, sql) in queries() {
        let of_table = sql.replace("FROM lineitem", "FROM lines");
        let places = [(&of_files, &sql), (&bed, &of_table)].map(|(bed, sql)| Place { bed, cores: 2, sql });
        let profiles = by_turns(&places, scale.turns).await?;
        for (machine, profiles) in ["file", "memory"].into_iter().zip(profiles) {
            measured.add(machine, &query, profiles);
        }
    }
    bed.stop().await;
    of_files.stop().await;
    if let Some(directory) = &scale.profiles {
        measured.keep(directory, MEMORY_CHART)?;
    }
    conclude_memory(run, scale, &measured);
    Ok(())
}

fn conclude_memory(run: &mut Run, scale: &Scale, measured: &Measured) {
    let change = Change {
        name: "file -> memory".to_owned(),
        from: "file".to_owned(),
        to: "memory".to_owned(),
        scenario: Scenario {
            input_in_memory: true,
            ..Scenario::default()
        },
    };
    let method = format!(
        "`lineitem` as Parquet on a disk of {} MB/s, and as a table of the server, which has its rows in memory as columns. \
         Two cores, medians of {} runs.",
        rate(scale) / 1_000_000,
        scale.turns
    );
    report(run, MEMORY, MEMORY_CHART, method, &measured.cases(&[change]));
}

/// Computes again what follows from profiles that were kept.
///
/// # Errors
/// They cannot be read.
pub fn again(run: &mut Run, scale: &Scale, profiles: &Path) -> Result<(), BenchError> {
    if let Some(measured) = Measured::kept(profiles, DISKS_CHART)? {
        conclude_disks(run, scale, &measured);
    }
    if let Some(measured) = Measured::kept(profiles, MEMORY_CHART)? {
        conclude_memory(run, scale, &measured);
    }
    Ok(())
}

/// Of each disk, in bytes a second.
fn rate(scale: &Scale) -> u64 {
    (DISK_SHARE * scale.disk_rate as f64) as u64
}
