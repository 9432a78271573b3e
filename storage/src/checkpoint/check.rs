//! Reads every byte of the checkpoints that count: see [`crate::check`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{
    BLOCKS, BlockRef, EPOCHS, EpochRecord, FACT, MANIFEST, Manifest, Root, draft, epochs, file_name,
};
use crate::StorageError;
use crate::findings::{Checked, Finding, Heads, Severity, list};

/// Reads the manifests that the catalog names, the blocks that they refer to, and the epoch log. A checkpoint that has more of a log
/// than there is shows that rows are gone.
pub(crate) fn check(
    data: &Path,
    facts: &BTreeMap<String, Vec<u8>>,
    heads: &Heads,
    checked: &mut Checked,
) -> Result<(), StorageError> {
    let directory = data.join("checkpoints");
    let journal = data.join(crate::catalog::JOURNAL);
    let root = match facts.get(FACT).map(|value| serde_json::from_slice::<Root>(value)) {
        None => Root::default(),
        Some(Ok(root)) => root,
        Some(Err(error)) => {
            let why = format!("the list of checkpoints: {error}");
            checked
                .findings
                .push(Finding::new(&journal, 0, Severity::Mended, why));
            Root::default()
        }
    };
    let mut blocks: BTreeMap<u64, BTreeSet<BlockRef>> = BTreeMap::new();
    for entry in &root.manifests {
        let path = directory.join(file_name(entry.number, MANIFEST));
        let Some(bytes) = checked.read(&path, Severity::Mended) else {
            continue;
        };
        let damaged = |why: String| Finding::new(&path, 0, Severity::Mended, why);
        let crc = crc32c::crc32c(&bytes);
        if bytes.len() as u64 != entry.bytes || crc != entry.crc {
            let why = format!(
                "its {} bytes have the checksum {crc:08x}; the catalog says {} bytes and {:08x}",
                bytes.len(),
                entry.bytes,
                entry.crc
            );
            checked.findings.push(damaged(why));
            continue;
        }
        match Manifest::decode(&bytes) {
            Ok(manifest) => {
                manifest.visit(&mut |block| {
                    blocks.entry(block.file).or_default().insert(block);
                });
                rows_are_there(&manifest, data, heads, checked);
            }
            Err(why) => checked.findings.push(damaged(why)),
        }
    }
    for (file, blocks) in blocks {
        read_blocks(&directory, file, &blocks, checked);
    }
    if !directory.exists() {
        return Ok(());
    }
    for path in list(&directory)? {
        if path.extension().is_some_and(|extension| extension == EPOCHS) {
            read_epochs(&path, checked);
        }
    }
    Ok(())
}

fn rows_are_there(manifest: &Manifest, data: &Path, heads: &Heads, checked: &mut Checked) {
    for source in &manifest.sources {
        // A log that is not there was dropped.
        let Some(head) = heads.get(&source.relation).filter(|head| **head < source.end) else {
            continue;
        };
        let why = format!(
            "the log ends at offset {head}, and checkpoint {} has its rows up to {}",
            manifest.number, source.end
        );
        let path = data.join("log").join(source.relation.to_string());
        checked.findings.push(Finding::new(&path, 0, Severity::Lost, why));
    }
}

/// Reads the blocks of a file that something refers to. What nothing refers to has no checksum, and is read by nobody.
fn read_blocks(directory: &Path, number: u64, blocks: &BTreeSet<BlockRef>, checked: &mut Checked) {
    let path = &directory.join(file_name(number, BLOCKS));
    let Some(bytes) = checked.read(path, Severity::Mended) else {
        return;
    };
    if !bytes.starts_with(&draft::header(number)) {
        let why = format!("this is not the file of blocks number {number}");
        checked
            .findings
            .push(Finding::new(path, 0, Severity::Mended, why));
    }
    for block in blocks {
        let end = block.at.checked_add(block.bytes);
        let range = end.and_then(|end| Some(usize::try_from(block.at).ok()?..usize::try_from(end).ok()?));
        let why = match range.and_then(|range| bytes.get(range)) {
            None => format!("the file ends inside of a block of {} bytes", block.bytes),
            Some(bytes) if crc32c::crc32c(bytes) == block.crc => continue,
            Some(bytes) => format!(
                "the checksum of the block of {} bytes is {:08x}, its bytes give {:08x}",
                block.bytes,
                block.crc,
                crc32c::crc32c(bytes)
            ),
        };
        checked
            .findings
            .push(Finding::new(path, block.at, Severity::Mended, why));
    }
}

fn read_epochs(path: &Path, checked: &mut Checked) {
    let Some(bytes) = checked.read(path, Severity::Mended) else {
        return;
    };
    let mended = |at: usize, why: &str| Finding::new(path, at as u64, Severity::Mended, why);
    let header = epochs::header();
    if !bytes.starts_with(&header) {
        checked
            .findings
            .push(mended(0, "this is not a part of the epoch log"));
        return;
    }
    let mut at = header.len();
    while at < bytes.len() {
        match EpochRecord::decode(&bytes[at..]) {
            Some((_, length)) => at += length,
            None => {
                checked.findings.push(mended(
                    at,
                    "no valid record begins here: the epochs from here on are cut anew",
                ));
                return;
            }
        }
    }
}
