//! What a crash of the machine, or a bad disk, does to files while nobody looks.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::Failure;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// How a block of a log begins, and where one may (docs/formats/log.md).
const BLOCK: &[u8] = b"MLRB";
const BLOCK_ALIGNMENT: usize = 64;
/// The most that a torn write leaves behind.
const TORN_BYTES_MAX: usize = 3_000;

/// Puts behind the end of some logs, and of the catalog's journal, what a write leaves of which only a part has come to the
/// disk. Returns how many were torn.
pub fn tear(directory: &Path, random: &mut StdRng) -> Result<u64, Failure> {
    let mut torn = 0;
    let mut logs: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(directory.join("log"))? {
        let path = entry?.path();
        // A file says how far they go.
        if path.is_dir() {
            logs.push(path);
        }
    }
    logs.sort();
    for log in logs {
        let mut segments: Vec<PathBuf> = vec![];
        for entry in std::fs::read_dir(&log)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "seg") {
                segments.push(path);
            }
        }
        if let Some(last) = segments.iter().max()
            && random.random()
        {
            let rest = rest_of_a_write(last, random)?;
            append(last, &rest)?;
            torn += 1;
        }
    }
    if random.random() {
        append(
            &directory.join("catalog.journal"),
            b"0badc0de {\"sequence\": 12, \"changes\": [{\"pu",
        )?;
        torn += 1;
    }
    if random.random() {
        // What sled leaves behind if it is killed while it opens.
        std::fs::write(
            directory.join("catalog.sled/snap.0000000000000042.generating"),
            [0; 100],
        )?;
        torn += 1;
    }
    Ok(torn)
}

/// The beginning of a block (the log's last one), zeros, or noise.
fn rest_of_a_write(segment: &Path, random: &mut StdRng) -> Result<Vec<u8>, Failure> {
    let length = random.random_range(1..TORN_BYTES_MAX);
    Ok(match random.random_range(0..3) {
        0 => vec![0; length],
        1 => (0..length).map(|_| random.random()).collect(),
        _ => {
            let bytes = std::fs::read(segment)?;
            let starts = (0..bytes.len()).step_by(BLOCK_ALIGNMENT);
            let last = starts.rev().find(|start| bytes[*start..].starts_with(BLOCK));
            match last.map(|start| &bytes[start..]) {
                Some(block) if block.len() > BLOCK_ALIGNMENT => {
                    let payload = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
                    let whole = block.len().min(BLOCK_ALIGNMENT + payload as usize);
                    block[..random.random_range(1..whole)].to_vec()
                }
                _ => vec![0; length],
            }
        }
    })
}

fn append(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut file = std::fs::OpenOptions::new().append(true).open(file)?;
    Ok(file.write_all(bytes)?)
}

/// Damages what one of the sinks noted with its checkpoints. Returns how many files.
pub fn base(directory: &Path, random: &mut StdRng) -> Result<u64, Failure> {
    let mut sinks: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        sinks.push(entry?.path());
    }
    sinks.sort();
    match sinks.choose(random) {
        Some(sink) => checkpoint(sink, random),
        None => Ok(0),
    }
}

/// Damages one of the checkpoints' files in one of the ways in which files are damaged. Returns how many.
pub fn checkpoint(directory: &Path, random: &mut StdRng) -> Result<u64, Failure> {
    let mut files: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(directory)? {
        files.push(entry?.path());
    }
    files.sort();
    let Some(file) = files.choose(random) else {
        return Ok(0);
    };
    let mut bytes = std::fs::read(file)?;
    match random.random_range(0..4) {
        0 => std::fs::remove_file(file)?,
        1 => {
            bytes.truncate(random.random_range(0..=bytes.len()));
            std::fs::write(file, bytes)?;
        }
        2 => {
            bytes.extend((0..random.random_range(1..2000)).map(|_| random.random::<u8>()));
            std::fs::write(file, bytes)?;
        }
        _ => {
            for _ in 0..random.random_range(1..20) {
                if !bytes.is_empty() {
                    let place = random.random_range(0..bytes.len());
                    bytes[place] ^= 1 << random.random_range(0..8);
                }
            }
            std::fs::write(file, bytes)?;
        }
    }
    Ok(1)
}
