//! The machine that a run happened on: without it a number says nothing.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::Serialize;

use crate::error::BenchError;

/// What one probe of the disk writes: about what a small transaction's log record takes on the disk.
const PROBE_BYTES: usize = 4096;

/// A machine, as far as results depend on it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor, as it calls itself.
    pub cpu: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and version.
    pub kernel: String,
    /// The kind of file system under the servers' data.
    pub file_system: String,
    /// How many threads wanted to run, averaged over the minute before the run.
    pub load_before: f64,
    /// The source that was built: the commit, and whether there were changes beyond it.
    pub commit: String,
}

impl Machine {
    /// Describes this machine.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes =
            field(&meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Machine {
            cores: cores(),
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            kernel: format!(
                "{} {}",
                std::env::consts::OS,
                first_line("/proc/sys/kernel/osrelease")
            ),
            file_system: file_system(&std::env::temp_dir()),
            load_before: load_average(),
            commit: commit(),
        }
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How many threads wanted to run, averaged over the last minute.
pub fn load_average() -> f64 {
    let load = first_line("/proc/loadavg");
    load.split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.0)
}

/// The disk's own price of durability: milliseconds of each of `probes` appends of 4 KiB followed by fdatasync, on the
/// file system where the servers under test keep their data.
pub fn fsync_ms(probes: usize) -> Result<Vec<f64>, BenchError> {
    let failed = || BenchError::io("cannot probe the disk");
    let directory = tempfile::tempdir().map_err(failed())?;
    let mut file = File::create(directory.path().join("probe")).map_err(failed())?;
    let block = [0x5a; PROBE_BYTES];
    let mut times = Vec::with_capacity(probes);
    for _ in 0..probes {
        let start = Instant::now();
        file.write_all(&block).map_err(failed())?;
        file.sync_data().map_err(failed())?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The value behind `name` and a colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    });
    values.next()
}

/// The kind of file system that holds `directory`: that of the longest mount point above it.
fn file_system(directory: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(point, _)| directory.starts_with(point));
    above
        .max_by_key(|(point, _)| point.len())
        .map_or("unknown", |(_, kind)| kind)
        .to_owned()
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(args)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no", ":/", ":!results"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with changes that were not committed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described_and_its_disk_probed() {
        let machine = Machine::describe();
        assert!(
            machine.cores >= 1 && machine.memory_bytes > 1 << 26,
            "{machine:?}"
        );
        assert_ne!(machine.file_system, "unknown");
        assert_eq!(fsync_ms(3).unwrap().len(), 3);
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A Processor @ 2 GHz\n";
        assert_eq!(field(text, "model name"), Some("A Processor @ 2 GHz"));
        assert_eq!(field(text, "model"), None);
    }
}
