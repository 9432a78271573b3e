//! The same counts by DuckDB, where Python has it: in a process of its own, over the same edges.

use std::fmt::Write;
use std::process::{Command, Stdio};

use super::cell::{Cell, Measured};
use super::{BOUNDS, graph};
use crate::bed::Place;
use crate::error::BenchError;

/// Reads edges, counts, and prints seconds, bytes above what was resident before, and the count.
const PROGRAM: &str = "
import duckdb, resource, sys, time
edges, query = sys.argv[1:]
connection = duckdb.connect()
connection.execute('CREATE TABLE edge AS SELECT * FROM read_csv(?, columns = {\"a\": \"BIGINT\", \"b\": \"BIGINT\"}, header = false)', [edges])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.monotonic()
count = connection.execute(query).fetchone()[0]
seconds = time.monotonic() - begin
print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, int(count or 0))
";

/// Whether it is there.
pub(super) fn is_there() -> bool {
    let found = Command::new("python3")
        .args(["-c", "import duckdb"])
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// Counts what a cell counts.
///
/// # Errors
/// It does not end in time, needs too much memory, or is not there.
pub(super) fn measure(cell: &Cell) -> Result<Measured, BenchError> {
    let directory = Place::Disk.directory()?;
    let path = directory.path().join("edges.csv");
    let mut text = String::new();
    for (a, b) in graph::edges(cell.edges) {
        let _ = writeln!(text, "{a},{b}");
    }
    std::fs::write(&path, text).map_err(BenchError::io("cannot write edges"))?;
    let query = format!("SELECT sum(n) FROM ({}) AS answer", cell.view.sql(false));
    let mut command = BOUNDS.command("python3");
    command.args(["-c", PROGRAM]).arg(&path).arg(&query);
    let output = command.output().map_err(BenchError::io("cannot start python3"))?;
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = found
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    let [seconds, bytes, count] = numbers[..] else {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BenchError::Engine(format!(
            "DuckDB ended with {}: {said}",
            output.status
        )));
    };
    Ok(Measured {
        seconds,
        peak_bytes: bytes as u64,
        results: count as u64,
        changes_seconds: None,
        behind_ms: vec![],
    })
}
