//! A list of files with their checksums, as text: what a backup has, and what an orderly stop has left.
//!
//! ```text
//! <what it is, and the version of its form>
//! 5f1b2c3d 33280 log/16384/00000000000000000000.seg
//! 0a9b8c7d end                                        the checksum of the lines above
//! ```

use std::path::{Component, PathBuf};

/// A file of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// CRC32C of its bytes.
    pub crc: u32,
    pub bytes: u64,
    /// From the directory that the list is of.
    pub relative: PathBuf,
}

/// The text of a list.
pub(crate) fn text(first_line: &str, listed: &[Listed]) -> String {
    let mut text = format!("{first_line}\n");
    for Listed { crc, bytes, relative } in listed {
        text.push_str(&format!("{crc:08x} {bytes} {}\n", relative.display()));
    }
    text.push_str(&format!("{:08x} end\n", crc32c::crc32c(text.as_bytes())));
    text
}

/// Reads such a text; an error says why it is none.
pub(crate) fn parse(content: &[u8], first_line: &str) -> Result<Vec<Listed>, String> {
    let text = std::str::from_utf8(content).map_err(|e| e.to_string())?;
    let body_end = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
    let (body, last) = text.split_at(body_end);
    let expected = format!("{:08x} end\n", crc32c::crc32c(body.as_bytes()));
    if last != expected {
        return Err("the list of files is incomplete: it was not finished, or is damaged".to_owned());
    }
    let mut lines = body.lines();
    if lines.next() != Some(first_line) {
        return Err("this version does not support the format".to_owned());
    }
    lines
        .map(|line| {
            let mut parts = line.splitn(3, ' ');
            let crc = parts.next().and_then(|crc| u32::from_str_radix(crc, 16).ok());
            let bytes = parts.next().and_then(|bytes| bytes.parse().ok());
            let relative = parts
                .next()
                .map(PathBuf::from)
                .filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))));
            match (crc, bytes, relative) {
                (Some(crc), Some(bytes), Some(relative)) => Ok(Listed { crc, bytes, relative }),
                _ => Err(format!("the list of files has an invalid line: {line:?}")),
            }
        })
        .collect()
}
