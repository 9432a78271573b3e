//! What the operating system says of memory: the resident size of the process, and what the machine has.

use std::fmt;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

/// Where the resident size comes from.
#[derive(Clone)]
pub enum Resident {
    /// From `/proc`; where there is none, only accounts count.
    Process,
    /// Only accounts count.
    Unknown,
    /// From elsewhere: for tests.
    Told(Arc<dyn Fn() -> usize + Send + Sync>),
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resident::Process => "Process",
            Resident::Unknown => "Unknown",
            Resident::Told(_) => "Told",
        })
    }
}

impl Resident {
    /// Bytes of the process that are in memory now and cannot go, as far as is known.
    pub fn bytes(&self) -> Option<usize> {
        match self {
            Resident::Process => {
                let status = std::fs::read_to_string("/proc/self/status").ok()?;
                resident_bytes(&status)
            }
            Resident::Unknown => None,
            Resident::Told(told) => Some(told()),
        }
    }
}

/// Without pages of files that are mapped (the program itself, above all): the system takes these back whenever it likes.
fn resident_bytes(status: &str) -> Option<usize> {
    let all = kilobytes(status, "VmRSS:")?;
    let of_files = kilobytes(status, "RssFile:").unwrap_or(0);
    Some(all.saturating_sub(of_files) << 10)
}

fn kilobytes(text: &str, name: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The memory that the process may have: the machine's, or what its control groups allow if that is less, or a third of what is left of
/// its address space if that is limited (`ulimit -v`). The rest is for what is mapped and not all in use: stacks of threads, what the
/// allocator keeps; and for moments, since there is no getting back from an allocation that fails.
pub fn machine_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| kilobytes(&text, "MemTotal:"));
    let machine = machine.map(|kilobytes| (kilobytes as u64) << 10);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = limit_files(&groups);
    let limits = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    // A group without a limit says "max", or a number that no machine has.
    let limits = limits.filter_map(|text| text.trim().parse::<u64>().ok());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mapped = kilobytes(&status, "VmSize:").map_or(0, |kilobytes| (kilobytes as u64) << 10);
    let address_space = getrlimit(Resource::As).current;
    let address_space = address_space.map(|bytes| bytes.saturating_sub(mapped) / 3);
    limits.chain(machine).chain(address_space).min()
}

/// The files that hold the limits of the control groups, up to the root, of either version.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = vec![];
    for line in groups.lines() {
        // hierarchy:controllers:path
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{name}"));
            match path.rfind('/') {
                Some(parent) => path = &path[..parent],
                None => break,
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_size_is_in_the_status_without_files() {
        let status = "VmHWM:\t   30000 kB\nVmRSS:\t   25600 kB\nRssAnon:\t   20480 kB\nRssFile:\t   5000 kB\nRssShmem:\t   120 kB\n";
        assert_eq!(resident_bytes(status), Some(20_600 << 10));
        assert_eq!(resident_bytes("VmRSS:\t   25600 kB\n"), Some(25_600 << 10));
        assert_eq!(resident_bytes("Name:\tmillrace\n"), None);
    }

    #[test]
    fn groups_of_either_version_are_asked_up_to_the_root() {
        assert_eq!(
            limit_files("0::/system.slice/millrace.service\n"),
            [
                "/sys/fs/cgroup/system.slice/millrace.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(
            limit_files("9:cpu,cpuacct:/a\n5:memory:/docker/x\n0::/\n"),
            [
                "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }
}
