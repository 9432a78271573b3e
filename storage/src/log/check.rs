//! Reads every byte of the logs: see [`crate::check`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::StorageError;
use crate::disk::{DiskFile, OsDisk};
use crate::findings::{Checked, Finding, Heads, Severity, list};
use crate::log::block::ALIGNMENT;
use crate::log::file::ReadAhead;
use crate::log::first::First;
use crate::log::heads;
use crate::log::index::{self, SegmentIndex};
use crate::log::recovery::{read_block, refuse_durable_damage};
use crate::log::relation::DROPPED_MARKER;
use crate::log::segment::{self, SegmentHeader};

/// Reads the logs of all relations; says how far each of them goes.
pub(crate) fn check(directory: &Path, checked: &mut Checked) -> Result<Heads, StorageError> {
    let mut heads = Heads::new();
    if !directory.exists() {
        return Ok(heads);
    }
    for path in list(directory)? {
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        // One without a number was being made when a crash came.
        if let Some(id) = id
            && !path.join(DROPPED_MARKER).exists()
        {
            heads.insert(id, relation(id, &path, checked)?);
        }
    }
    ends(directory, &heads, checked);
    Ok(heads)
}

/// Looks whether each log goes as far as it was durable.
fn ends(directory: &Path, found: &Heads, checked: &mut Checked) {
    let path = heads::path(directory);
    if !path.exists() {
        return;
    }
    if let Ok(metadata) = path.metadata() {
        checked.count(metadata.len());
    }
    let durable = match heads::read(&OsDisk, directory) {
        Ok(durable) => durable,
        Err(error) => {
            checked.findings.push(Finding::of(error, &path, Severity::Mended));
            return;
        }
    };
    for (id, durable) in durable {
        let Some(why) = heads::missing(found.get(&id).copied(), durable) else {
            continue;
        };
        let log = directory.join(id.to_string());
        checked.findings.push(Finding::new(&log, 0, Severity::Lost, why));
    }
}

/// Reads the log of a relation; returns the offset behind its last row.
fn relation(id: u64, directory: &Path, checked: &mut Checked) -> Result<u64, StorageError> {
    if let Ok(metadata) = First::path(directory).metadata() {
        checked.count(metadata.len());
    }
    let first = match First::read(&OsDisk, directory) {
        Ok(first) => first,
        Err(error) => {
            checked
                .findings
                .push(Finding::of(error, directory, Severity::Lost));
            return Ok(0);
        }
    };
    let files = files(directory, &first)?;
    let mut head = first.offset;
    if files.first().is_none_or(|(offset, _)| *offset != first.offset) {
        let path = directory.join(segment::file_name(first.offset));
        checked.findings.push(Finding::new(
            &path,
            0,
            Severity::Lost,
            "the first segment is missing",
        ));
    }
    if first.base().is_some() && files.len() == 1 {
        let path = directory.join(segment::file_name(first.base_end));
        let why = "the segment behind the base is missing";
        checked.findings.push(Finding::new(&path, 0, Severity::Lost, why));
    }
    let ends: Vec<u64> = files.iter().skip(1).map(|(offset, _)| *offset).collect();
    for (number, (offset, path)) in files.iter().enumerate() {
        let base_end = (first.base() == Some(*offset)).then_some(first.base_end);
        let end = base_end.or(ends.get(number).copied());
        head = segment(id, *offset, path, end, number > 0, checked)?;
    }
    for (offset, path) in
        index::list(&OsDisk, directory).map_err(|e| StorageError::io("list", directory, e))?
    {
        if files.iter().any(|(of, _)| *of == offset)
            && let Some(bytes) = checked.read(&path, Severity::Mended)
            && let Err(why) = SegmentIndex::decode(&bytes)
        {
            checked
                .findings
                .push(Finding::new(&path, 0, Severity::Mended, why));
        }
    }
    Ok(head)
}

/// The files that a start would read, by the offset of their first row.
fn files(directory: &Path, first: &First) -> Result<Vec<(u64, PathBuf)>, StorageError> {
    let failed = |e| StorageError::io("list", directory, e);
    let mut files = segment::list(&OsDisk, directory).map_err(failed)?;
    let begin = if first.base().is_some() {
        first.base_end
    } else {
        first.offset
    };
    files.retain(|(offset, _)| *offset >= begin);
    if let Some(base) = first.base() {
        files.insert(0, (base, segment::base_path(directory, base)));
    }
    Ok(files)
}

/// Reads a segment, up to the offset `end` where the next one begins; returns the offset behind its last row.
fn segment(
    id: u64,
    first_offset: u64,
    path: &Path,
    end: Option<u64>,
    may_be_unborn: bool,
    checked: &mut Checked,
) -> Result<u64, StorageError> {
    let lost = |offset, why: String| Finding::new(path, offset, Severity::Lost, why);
    // What cannot be read is taken to be what the next segment says.
    let beyond = end.unwrap_or(first_offset);
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (size, file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            checked
                .findings
                .push(lost(0, format!("it cannot be read: {error}")));
            return Ok(beyond);
        }
    };
    checked.count(size);
    let file: Arc<dyn DiskFile> = Arc::new(file);
    let (header, mut position) = match SegmentHeader::read(&*file, path) {
        Ok(header) => header,
        Err(error) => {
            let has_blocks = has_blocks(&file, path, size)?;
            let is_unborn = may_be_unborn && end.is_none() && !has_blocks;
            let severity = if is_unborn {
                Severity::Mended
            } else {
                Severity::Lost
            };
            checked.findings.push(Finding::of(error, path, severity));
            return Ok(beyond);
        }
    };
    if header.relation != id || header.first_offset != first_offset {
        let (relation, offset) = (header.relation, header.first_offset);
        let why = format!("the segment says relation {relation} from offset {offset}: it belongs elsewhere");
        checked.findings.push(lost(0, why));
        return Ok(beyond);
    }
    let mut head = first_offset;
    let mut read_ahead = ReadAhead::new(file);
    while position < size && end.is_none_or(|end| head < end) {
        let found = read_block(&mut read_ahead, path, position, size)?;
        let found = found.and_then(|(header, ..)| match header.first_offset == head {
            true => Ok(header),
            false => Err(format!(
                "the block starts at offset {}, not {head}",
                header.first_offset
            )),
        });
        match found {
            Ok(header) => {
                head += u64::from(header.rows);
                position += header.block_bytes();
            }
            Err(why) => {
                let is_torn = end.is_none()
                    && refuse_durable_damage(&mut read_ahead, path, position, size, &why).is_ok();
                let finding = if is_torn {
                    let why = format!(
                        "{why}: a write was torn here, or its {} bytes are damaged; the next start cuts them off",
                        size - position
                    );
                    Finding::new(path, position, Severity::Mended, why)
                } else {
                    lost(position, why)
                };
                checked.findings.push(finding);
                if is_torn {
                    return Ok(head);
                }
                // The next block that is whole says where it belongs.
                match next_block(&mut read_ahead, path, position, size)? {
                    Some((next, offset)) if offset >= head => (position, head) = (next, offset),
                    _ => return Ok(end.unwrap_or(head)),
                }
            }
        }
    }
    if let Some(end) = end
        && head != end
    {
        checked.findings.push(lost(
            position,
            format!("it ends at offset {head}, and the next segment begins at {end}"),
        ));
    }
    Ok(head)
}

/// The place of the next whole block behind a damaged one, and the offset of its first row.
fn next_block(
    read_ahead: &mut ReadAhead,
    path: &Path,
    position: u64,
    size: u64,
) -> Result<Option<(u64, u64)>, StorageError> {
    for later in ((position + ALIGNMENT as u64)..size).step_by(ALIGNMENT) {
        if let Ok((header, ..)) = read_block(read_ahead, path, later, size)? {
            return Ok(Some((later, header.first_offset)));
        }
    }
    Ok(None)
}

fn has_blocks(file: &Arc<dyn DiskFile>, path: &Path, size: u64) -> Result<bool, StorageError> {
    Ok(next_block(&mut ReadAhead::new(Arc::clone(file)), path, 0, size)?.is_some())
}
