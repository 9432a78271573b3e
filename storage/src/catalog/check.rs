//! Reads every byte of the catalog: see [`crate::check`].

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::index;
use super::journal::{self, State};
use super::{INDEX, JOURNAL, open_index};
use crate::StorageError;
use crate::findings::{Checked, Finding, Severity, list};

/// Of the copy of the index that is read.
const CACHE_BYTES: u64 = 8 << 20;

/// Reads the journal and the index, and compares them; returns the facts.
pub(crate) fn check(
    directory: &Path,
    checked: &mut Checked,
) -> Result<BTreeMap<String, Vec<u8>>, StorageError> {
    let path = directory.join(JOURNAL);
    let indexed = read_index(&directory.join(INDEX), checked)?;
    let lost = |offset, why: String| Finding::new(&path, offset, Severity::Lost, why);
    if !path.exists() {
        let finding = match &indexed {
            Some(_) => Finding::new(
                &path,
                0,
                Severity::Mended,
                "it is missing: it is rebuilt from the index",
            ),
            None => lost(0, "it is missing, and so is the index".to_owned()),
        };
        checked.findings.push(finding);
        return Ok(indexed.unwrap_or_default().facts);
    }
    let Some(bytes) = checked.read(&path, Severity::Lost) else {
        return Ok(BTreeMap::new());
    };
    let replayed = match journal::replay_bytes(&bytes, &path) {
        Ok(replayed) => replayed,
        Err(StorageError::CorruptJournal { line, why, .. }) => {
            let at = line_start(&bytes, line);
            checked.findings.push(lost(at, format!("line {line}: {why}")));
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error),
    };
    let known = indexed.as_ref().map_or(0, |indexed| indexed.sequence);
    if let Some((line, why)) = replayed.torn {
        let finding = if known > replayed.state.sequence {
            lost(
                replayed.valid_bytes,
                format!("line {line}: {why}; the index knows that line"),
            )
        } else {
            let why = format!("line {line}: {why}; the next start cuts it off");
            Finding::new(&path, replayed.valid_bytes, Severity::Mended, why)
        };
        checked.findings.push(finding);
    } else if known > replayed.state.sequence {
        let why = format!(
            "it ends with step {}, and the index knows {known}",
            replayed.state.sequence
        );
        checked.findings.push(lost(replayed.valid_bytes, why));
    } else if indexed.is_some_and(|indexed| indexed != replayed.state) {
        let why = "it differs from the journal; it is rebuilt";
        let index = directory.join(INDEX);
        checked
            .findings
            .push(Finding::new(&index, 0, Severity::Mended, why));
    }
    Ok(replayed.state.facts)
}

/// The byte at which a line, counted from 1, begins.
fn line_start(bytes: &[u8], line: usize) -> u64 {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    line.checked_sub(2)
        .and_then(|ends_before| ends.map(|(at, _)| at as u64 + 1).nth(ends_before))
        .unwrap_or(0)
}

/// What a copy of the index says, because reading it writes.
fn read_index(path: &Path, checked: &mut Checked) -> Result<Option<State>, StorageError> {
    let mended = |why: String| Finding::new(path, 0, Severity::Mended, why);
    if !path.exists() {
        checked
            .findings
            .push(mended("it is missing: it is rebuilt from the journal".to_owned()));
        return Ok(None);
    }
    let copy = tempfile::tempdir().map_err(|e| StorageError::io("create a copy of", path, e))?;
    copy_files(path, copy.path(), checked)?;
    match index::guarded(path, || open_index(copy.path(), CACHE_BYTES)) {
        Ok((_, state)) => Ok(Some(state)),
        Err(error) => {
            checked
                .findings
                .push(mended(format!("{error}; it is rebuilt from the journal")));
            Ok(None)
        }
    }
}

fn copy_files(from: &Path, to: &Path, checked: &mut Checked) -> Result<(), StorageError> {
    for path in list(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            fs::create_dir(&target).map_err(|e| StorageError::io("create", &target, e))?;
            copy_files(&path, &target, checked)?;
        } else if let Some(bytes) = checked.read(&path, Severity::Mended) {
            fs::write(&target, bytes).map_err(|e| StorageError::io("write", &target, e))?;
        }
    }
    Ok(())
}
