//! The checksums of files that have none of their own, as an orderly stop has left them: so that [`crate::check`] finds each byte that is
//! another. Of those that have some, it lists the ones of which nothing else tells that they are gone, or end too early. The next start removes the list before it changes anything; after a crash there is none.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::backup::copy_file;
use crate::directory::{LOCK_FILE, is_bystander};
use crate::disk::OsDisk;
use crate::findings::{Checked, Finding, Severity, list};
use crate::listing::{self, Listed};
use crate::{StorageError, catalog, checkpoint, directory, disk, log};

const SUMS: &str = "SUMS";
const FIRST_LINE: &str = "millrace sums, format 1";
/// No stop reads more than that, in bytes: what would be more is not in the list.
const SUMMED_BYTES_MAX: u64 = 1 << 30;
/// What the next start makes again, or does without, at no loss.
const MENDED: [&str; 4] = [catalog::INDEX, "sinks", "RUNNING", "PROBE"];

/// Whether a file has checksums of its own, and nothing tells that it was there: how far the logs were, and the epochs of checkpoints.
fn is_alone(relative: &Path) -> bool {
    relative == Path::new("log").join(log::HEADS)
        || relative.starts_with("checkpoints")
            && relative
                .extension()
                .is_some_and(|name| name == checkpoint::EPOCHS)
}

/// Whether an entry of a data directory has checksums of its own, or is no data.
pub(crate) fn is_apart(name: &str) -> bool {
    [catalog::JOURNAL, "log", "checkpoints", LOCK_FILE, SUMS].contains(&name) || is_bystander(name)
}

/// Removes the list, for good: from now on the files change.
pub(crate) fn forget(directory: &Path) -> Result<(), StorageError> {
    let path = directory.join(SUMS);
    match fs::remove_file(&path) {
        Ok(()) => disk::sync_parent(&OsDisk, &path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StorageError::io("remove", &path, error)),
    }
}

/// Writes the list, of files that do not change any more.
pub(crate) fn write(directory: &Path) -> Result<(), StorageError> {
    let mut files = vec![];
    for entry in list(directory)? {
        if !is_apart(&entry.file_name().unwrap_or_default().to_string_lossy()) {
            all_files(&entry, &mut files)?;
        }
    }
    for folder in ["log", "checkpoints"].map(|name| directory.join(name)) {
        if folder.is_dir() {
            let inside = list(&folder)?.into_iter();
            files.extend(inside.filter(|path| path.strip_prefix(directory).is_ok_and(is_alone)));
        }
    }
    let (mut listed, mut total) = (vec![], 0);
    for path in files {
        let bytes = fs::metadata(&path)
            .map_err(|e| StorageError::io("read", &path, e))?
            .len();
        let relative = path.strip_prefix(directory).unwrap_or(&path).to_owned();
        // A line is one file.
        let is_line = relative.to_str().is_some_and(|name| !name.contains('\n'));
        if total + bytes > SUMMED_BYTES_MAX || !is_line {
            continue;
        }
        total += bytes;
        let (crc, bytes) = copy_file(&OsDisk, &path, None)?;
        listed.push(Listed { crc, bytes, relative });
    }
    directory::replace_file(
        &directory.join(SUMS),
        listing::text(FIRST_LINE, &listed).as_bytes(),
    )
}

fn all_files(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), StorageError> {
    if path.is_dir() {
        for entry in list(path)? {
            all_files(&entry, found)?;
        }
    } else if path.is_file() {
        found.push(path.to_owned());
    }
    Ok(())
}

/// Compares the files with the list, if there is one; returns those that were read. `counted`: what was counted before.
pub(crate) fn compare(
    directory: &Path,
    counted: &str,
    checked: &mut Checked,
) -> Result<BTreeSet<PathBuf>, StorageError> {
    let path = directory.join(SUMS);
    let mut read = BTreeSet::new();
    if !path.exists() {
        return Ok(read);
    }
    let Some(content) = checked.read(&path, Severity::Mended) else {
        return Ok(read);
    };
    let listed = match listing::parse(&content, FIRST_LINE) {
        Ok(listed) => listed,
        Err(why) => {
            let why = format!("{why}; the next stop writes another");
            checked
                .findings
                .push(Finding::new(&path, 0, Severity::Mended, why));
            return Ok(read);
        }
    };
    for Listed { crc, bytes, relative } in listed {
        let path = directory.join(&relative);
        let is_alone = is_alone(&relative);
        let severity = match is_alone || MENDED.iter().any(|name| relative.starts_with(name)) {
            true => Severity::Mended,
            false => Severity::Lost,
        };
        let finding = |why: String| Finding::new(&path, 0, severity, why);
        match copy_file(&OsDisk, &path, None) {
            Ok(found) => {
                if !is_alone && !relative.starts_with(counted) {
                    checked.count(found.1);
                }
                let is_told = is_alone && checked.findings.iter().any(|told| told.path == path);
                if found != (crc, bytes) && !is_told {
                    checked.findings.push(finding(format!(
                        "it has {} bytes with checksum {:08x}, and had {bytes} with {crc:08x} at the last stop",
                        found.1, found.0
                    )));
                }
            }
            Err(error) => checked
                .findings
                .push(finding(format!("{error}; it was there at the last stop"))),
        }
        read.insert(path);
    }
    Ok(read)
}
