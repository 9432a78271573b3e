//! The data directory and the file system that it is on.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use millrace_storage::{StorageError, look as look_at_data};
use rustix::fs::{Access, access, statfs, statvfs};
use rustix::process::geteuid;

use super::Finding;

/// Less free space than this, and a server does not live long; less than that, and it will soon be time to act.
const FREE_BYTES_BAD: u64 = 256 << 20;
const FREE_BYTES_DOUBTFUL: u64 = 4 << 30;
const FREE_FILES_DOUBTFUL: u64 = 10_000;
/// Files of the data directory that nothing works without.
const OWN_FILES: [&str; 3] = ["FORMAT", "LOCK", "catalog.journal"];
/// How often a small write is synced, to see how long that takes.
const SYNCS: usize = 16;
/// No device that keeps its data without power is so quick, and none should be so slow.
const SYNC_QUICK: Duration = Duration::from_micros(20);
const SYNC_SLOW: Duration = Duration::from_millis(20);

/// Looks at it; also says whether a server uses it.
pub fn look(data: &Path) -> (Vec<Finding>, bool) {
    let mut findings = vec![];
    let mut is_in_use = false;
    if data.exists() {
        let (finding, in_use) = existing(data);
        is_in_use = in_use;
        findings.push(finding);
        findings.extend(permissions(data));
        findings.extend(files(data));
        findings.extend(clock(data));
    } else {
        findings.push(Finding::good(
            "data",
            format!("{} does not exist; it will be made", data.display()),
        ));
    }
    match existing_parent(data) {
        Some(place) => findings.extend(file_system(&place)),
        None => {
            let why = format!("{} cannot be made: no directory above it exists", data.display());
            findings.push(Finding::bad("data", why));
        }
    }
    (findings, is_in_use)
}

fn existing(data: &Path) -> (Finding, bool) {
    match look_at_data(data) {
        Ok(()) => (
            Finding::good("data", format!("{} can be opened", data.display())),
            false,
        ),
        Err(StorageError::NoData { .. }) => (
            Finding::good("data", format!("{} is empty", data.display())),
            false,
        ),
        Err(error @ StorageError::InUse { .. }) => (Finding::doubtful("data", error.to_string()), true),
        Err(error) => (Finding::bad("data", error.to_string()), false),
    }
}

fn permissions(data: &Path) -> Option<Finding> {
    let metadata = fs::metadata(data).ok()?;
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own {
        let why = format!(
            "{} belongs to user {owner}, and this is user {own}; run the server as its owner, or chown it",
            data.display()
        );
        return Some(if own == 0 {
            Finding::doubtful("permissions", why)
        } else {
            Finding::bad("permissions", why)
        });
    }
    let mode = metadata.mode() & 0o777;
    Some(match mode & 0o077 {
        0 => Finding::good("permissions", format!("mode {mode:o}")),
        _ => Finding::doubtful(
            "permissions",
            format!("mode {mode:o} lets others in; a server sets it to 700 when it starts"),
        ),
    })
}

/// Whether the server could read every file and write into every directory. Their content is what `millrace check` reads.
fn files(data: &Path) -> Vec<Finding> {
    let mut looked = Looked::default();
    looked.look(data);
    let shown = |(path, why): &(PathBuf, String)| format!("{}: {why}", path.display());
    match looked.refused.split_first() {
        None if looked.files == 0 => vec![],
        None => {
            let text = format!("{} can be read; millrace check reads every byte", looked.files);
            vec![Finding::good("files", text)]
        }
        Some((first, others)) => {
            let others = match others.len() {
                0 => String::new(),
                others => format!(" (and {others} more)"),
            };
            let text = format!(
                "{}{others}; run the server as the user that they belong to, or restore them from a backup",
                shown(first)
            );
            vec![Finding::bad("files", text)]
        }
    }
}

/// What was opened below a directory.
#[derive(Default)]
struct Looked {
    files: usize,
    refused: Vec<(PathBuf, String)>,
}

impl Looked {
    fn look(&mut self, directory: &Path) {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => return self.refuse(directory, format!("cannot be listed: {error}")),
        };
        if let Err(error) = access(directory, Access::WRITE_OK | Access::EXEC_OK) {
            self.refuse(
                directory,
                format!("cannot be written: {}", io::Error::from(error)),
            );
        }
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.refuse(directory, format!("cannot be listed: {error}")),
            };
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && is_file(&path) => {
                    self.refuse(&path, "is a directory where a file belongs".to_owned());
                }
                Ok(kind) if kind.is_dir() => self.look(&path),
                _ => {
                    self.files += 1;
                    // A server that runs may remove a file meanwhile.
                    if let Err(error) = fs::File::open(&path)
                        && error.kind() != io::ErrorKind::NotFound
                    {
                        self.refuse(&path, format!("cannot be read: {error}"));
                    }
                }
            }
        }
    }

    fn refuse(&mut self, path: &Path, why: String) {
        self.refused.push((path.to_owned(), why));
    }
}

/// Whether this is the name of one of the directory's own files.
fn is_file(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| OWN_FILES.iter().any(|own| name == *own))
}

/// The directory itself, or the nearest above it that exists.
pub fn existing_parent(data: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(data).ok()?;
    absolute
        .ancestors()
        .find(|path| path.is_dir())
        .map(Path::to_owned)
}

fn file_system(place: &Path) -> Vec<Finding> {
    let mut findings = vec![];
    match statvfs(place) {
        Ok(stat) => findings.push(space(stat.f_bavail * stat.f_frsize, stat.f_files, stat.f_favail)),
        Err(error) => findings.push(Finding::bad(
            "disk space",
            format!("{}: {error}", place.display()),
        )),
    }
    findings.extend(statfs(place).ok().and_then(|stat| kind(stat.f_type as u64)));
    findings.push(match sync_time(place) {
        Ok(time) => durability(time),
        Err(error) => Finding::bad(
            "durability",
            format!("cannot write to {}: {error}", place.display()),
        ),
    });
    findings
}

/// Of bytes that are free; of files that there can be, and how many more.
fn space(bytes: u64, files: u64, files_free: u64) -> Finding {
    let free = format!("{:.1} GB free", bytes as f64 / 1e9);
    if bytes < FREE_BYTES_BAD {
        Finding::bad(
            "disk space",
            format!("{free}: make room, or choose another directory with --data"),
        )
    } else if bytes < FREE_BYTES_DOUBTFUL {
        Finding::doubtful(
            "disk space",
            format!("{free}, which is little; streams grow until retention removes rows"),
        )
    } else if files > 0 && files_free < FREE_FILES_DOUBTFUL {
        // Some file systems have no limit, and say so with 0.
        Finding::doubtful(
            "disk space",
            format!("{free}, but only {files_free} more files can be made (df -i)"),
        )
    } else {
        Finding::good("disk space", free)
    }
}

/// File systems that do not keep what they are given, or not as others do, by their magic numbers.
fn kind(magic: u64) -> Option<Finding> {
    let doubtful = |text: &str| Some(Finding::doubtful("file system", text));
    match magic {
        0x0102_1994 | 0x8584_58f6 => {
            doubtful("tmpfs keeps its files in memory: all data is gone when the machine stops")
        }
        0x794c_7630 => {
            doubtful("an overlay, as containers have: the data is gone with the container; mount a volume")
        }
        0x6969 => doubtful(
            "NFS: locks and syncs are only as good as the server and the mount options (hard, no async)",
        ),
        0xff53_4d42 | 0xfe53_4d42 => {
            doubtful("SMB: locks and syncs are not to be relied on; use a local disk")
        }
        0x6573_5546 => doubtful("FUSE: syncs are only as good as the program behind it"),
        _ => None,
    }
}

/// The median time of making a small write durable.
fn sync_time(place: &Path) -> io::Result<Duration> {
    // The server takes names that begin so for those of others.
    let mut file = tempfile::Builder::new()
        .prefix(".millrace-doctor-")
        .tempfile_in(place)?;
    let mut times = vec![];
    for _ in 0..SYNCS {
        file.write_all(&[7; 512])?;
        let began = Instant::now();
        file.as_file().sync_data()?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[SYNCS / 2])
}

fn durability(time: Duration) -> Finding {
    let shown = format!(
        "a write is on the disk after {:.2} ms",
        time.as_secs_f64() * 1000.0
    );
    if time < SYNC_QUICK {
        let why = "which is too quick for a disk: syncs may be ignored, and a loss of power would take acknowledged rows";
        Finding::doubtful("durability", format!("{shown}, {why}"))
    } else if time > SYNC_SLOW {
        let why = "which is slow: every acknowledged write waits for it; use another disk, or SET durability";
        Finding::doubtful("durability", format!("{shown}, {why}"))
    } else {
        Finding::good("durability", shown)
    }
}

/// Files from the future say that the clock has gone back since, or was wrong when they were written.
fn clock(data: &Path) -> Option<Finding> {
    let newest = fs::metadata(data.join("catalog.journal")).ok()?.modified().ok()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "it is the machine's clock that is looked at"
    )]
    let now = SystemTime::now();
    Some(clock_of(newest, now))
}

fn clock_of(newest: SystemTime, now: SystemTime) -> Finding {
    match newest.duration_since(now) {
        Ok(ahead) if ahead > Duration::from_secs(5) => Finding::doubtful(
            "clock",
            format!(
                "the newest file is {} s from the future: the clock went back; retention and now() go by it",
                ahead.as_secs()
            ),
        ),
        _ => Finding::good("clock", "not behind the data"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn files_that_cannot_be_read_are_told() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path();
        assert!(files(data).is_empty());
        fs::create_dir_all(data.join("log/1")).unwrap();
        fs::write(data.join("log/1/first"), "").unwrap();
        fs::write(data.join("FORMAT"), "").unwrap();
        assert_eq!(files(data)[0].state, State::Good);
        // The user of a test may be one whom no permission stops.
        std::os::unix::fs::symlink(data.join("loop"), data.join("loop")).unwrap();
        fs::create_dir(data.join("catalog.journal")).unwrap();
        let found = files(data);
        assert_eq!(found[0].state, State::Bad);
        assert!(found[0].text.contains("(and 1 more)"), "{found:?}");
    }

    #[test]
    fn limits_decide() {
        assert_eq!(space(1 << 20, 0, 0).state, State::Bad);
        assert_eq!(space(1 << 30, 0, 0).state, State::Doubtful);
        assert_eq!(space(1 << 40, 0, 0).state, State::Good);
        assert_eq!(space(1 << 40, 20_000, 9_999).state, State::Doubtful);
        assert_eq!(durability(Duration::from_micros(1)).state, State::Doubtful);
        assert_eq!(durability(Duration::from_millis(1)).state, State::Good);
        assert_eq!(durability(Duration::from_millis(100)).state, State::Doubtful);
        assert!(kind(0x0102_1994).is_some() && kind(0xef53).is_none());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(
            clock_of(now + Duration::from_secs(60), now).state,
            State::Doubtful
        );
        assert_eq!(clock_of(now - Duration::from_secs(60), now).state, State::Good);
    }
}
