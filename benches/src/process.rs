//! What the kernel knows of a process: its CPU time, memory and wake-ups, from `/proc`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::BenchError;

/// The unit of CPU time in `/proc/<pid>/stat`: a hundredth of a second wherever Linux runs.
const TICK: Duration = Duration::from_millis(10);

/// CPU time that the process has used, all its threads together, those that ended too. In steps of 10 ms.
pub fn cpu_time(pid: u32) -> Result<Duration, BenchError> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses, which may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut times = fields.split_ascii_whitespace().skip(11);
    match (number(times.next()), number(times.next())) {
        (Some(user), Some(system)) => Ok(TICK * u32::try_from(user + system).unwrap_or(u32::MAX)),
        _ => Err(BenchError::Server(format!(
            "/proc/{pid}/stat has no CPU times: {stat}"
        ))),
    }
}

/// What the living threads of a process did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// How often a thread went to sleep, and so how often one was woken.
    pub sleeps: u64,
}

impl Activity {
    /// What was done since then. What threads did that have ended in between is not in it, nor is what they had done before: where
    /// they did more than all the others since, nothing is.
    pub fn since(self, before: Activity) -> Activity {
        Activity {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
        }
    }
}

/// What the living threads of a process did so far.
pub fn activity(pid: u32) -> Result<Activity, BenchError> {
    let tasks = format!("/proc/{pid}/task");
    let doing = || BenchError::io(format!("cannot list {tasks}"));
    let mut total = Activity::default();
    for task in fs::read_dir(&tasks).map_err(doing())? {
        let task = task.map_err(doing())?.path();
        // A thread may end between being listed and being read.
        let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
        total.cpu_ns += number(schedstat.split_ascii_whitespace().next()).unwrap_or(0);
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        total.sleeps += status_field(&status, "voluntary_ctxt_switches").unwrap_or(0);
    }
    Ok(total)
}

/// Bytes as megabytes of a million.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was ever resident.
    pub peak: u64,
}

/// Memory of a process.
pub fn memory(pid: u32) -> Result<Memory, BenchError> {
    let status = read(&format!("/proc/{pid}/status"))?;
    match (status_field(&status, "VmRSS"), status_field(&status, "VmHWM")) {
        (Some(resident), Some(peak)) => Ok(Memory {
            resident: resident * 1024,
            peak: peak * 1024,
        }),
        _ => Err(BenchError::Server(format!(
            "/proc/{pid}/status does not tell memory: has the process ended?"
        ))),
    }
}

/// How many threads a process has.
pub fn threads(pid: u32) -> Result<u64, BenchError> {
    let status = read(&format!("/proc/{pid}/status"))?;
    status_field(&status, "Threads")
        .ok_or_else(|| BenchError::Server(format!("/proc/{pid}/status does not tell threads")))
}

fn read(path: &str) -> Result<String, BenchError> {
    fs::read_to_string(Path::new(path)).map_err(BenchError::io(format!("cannot read {path}")))
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// The number behind `name:` in the form of `/proc/<pid>/status`.
fn status_field(status: &str, name: &str) -> Option<u64> {
    let mut values = status
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    number(values.next()?.split_ascii_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_uses_memory_and_time() {
        let pid = std::process::id();
        let memory = memory(pid).unwrap();
        assert!(memory.resident > 1 << 20 && memory.peak >= memory.resident);
        assert!(threads(pid).unwrap() >= 1);
        assert!(activity(pid).unwrap().cpu_ns > 0);
        let before = cpu_time(pid).unwrap();
        while cpu_time(pid).unwrap() == before {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t7\nVmRSS:\t  12 kB\n";
        assert_eq!(status_field(status, "voluntary_ctxt_switches"), Some(7));
        assert_eq!(status_field(status, "VmRSS"), Some(12));
        assert_eq!(status_field(status, "Vm"), None);
    }
}
