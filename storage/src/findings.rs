//! What reading a data directory has found: see [`crate::check`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::StorageError;

/// What it means that something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The next start makes it again, or cuts it, and nothing that was acknowledged is lost by that.
    Mended,
    /// It is the only copy: the next start refuses it, or does without.
    Lost,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// The byte of the file where it begins.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
    /// What it means.
    pub severity: Severity,
}

impl Finding {
    pub(crate) fn new(path: &Path, offset: u64, severity: Severity, why: impl Into<String>) -> Self {
        Finding {
            path: path.to_owned(),
            offset,
            why: why.into(),
            severity,
        }
    }

    /// An error of reading, at the place that it names.
    pub(crate) fn of(error: StorageError, path: &Path, severity: Severity) -> Self {
        match error {
            StorageError::Corrupt { path, offset, why } | StorageError::Damaged { path, offset, why } => {
                Finding::new(&path, offset, severity, why)
            }
            error => Finding::new(path, 0, severity, error.to_string()),
        }
    }
}

/// What was read, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, in the order of the files.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// A file is read, of so many bytes.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }

    /// Reads a whole file; none if it cannot be read, which is a finding.
    pub(crate) fn read(&mut self, path: &Path, severity: Severity) -> Option<Vec<u8>> {
        match fs::read(path) {
            Ok(bytes) => {
                self.count(bytes.len() as u64);
                Some(bytes)
            }
            Err(error) => {
                let why = format!("it cannot be read: {error}");
                self.findings.push(Finding::new(path, 0, severity, why));
                None
            }
        }
    }

    /// The worst of what is wrong.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// How far each log goes.
pub(crate) type Heads = BTreeMap<u64, u64>;

/// What is in a directory, in the order of the names.
pub(crate) fn list(directory: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let failed = |e| StorageError::io("list", directory, e);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}
