//! Every decoder of bytes that lie on disk, as one function each from bytes to whether they are valid: for fuzzing. None may
//! panic, or take memory that has nothing to do with the size of its input.

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::{self, EpochRecord, Manifest};
use crate::disk::DiskFile;
use crate::{backup, catalog, directory, log, offsite};

/// A decoder.
pub type Decoder = fn(&[u8]) -> Result<(), String>;

/// All of them, by name.
pub const ALL: [(&str, Decoder); 11] = [
    ("log_block", log_block),
    ("log_first", log_first),
    ("log_segment", log_segment),
    ("log_index", log_index),
    ("catalog_journal", catalog_journal),
    ("format_file", format_file),
    ("backup_list", backup_list),
    ("checkpoint_manifest", checkpoint_manifest),
    ("checkpoint_block", checkpoint_block),
    ("epoch_record", epoch_record),
    ("offsite_moment", offsite_moment),
];

/// A block of the log behind a segment's header. Its checksum is not asked for: what passes it may be wrong all the same.
pub fn log_block(bytes: &[u8]) -> Result<(), String> {
    log::decode_block(bytes)
}

/// The file that says where a log begins.
pub fn log_first(bytes: &[u8]) -> Result<(), String> {
    log::decode_first(bytes)
}

/// The header of a segment.
pub fn log_segment(bytes: &[u8]) -> Result<(), String> {
    let file: Arc<dyn DiskFile> = Arc::new(Content(bytes.to_vec()));
    log::decode_segment_header(&*file)
}

/// The index of a segment.
pub fn log_index(bytes: &[u8]) -> Result<(), String> {
    log::decode_index(bytes)
}

/// The catalog's journal.
pub fn catalog_journal(bytes: &[u8]) -> Result<(), String> {
    catalog::decode_journal(bytes)
}

/// `FORMAT`.
pub fn format_file(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    directory::read_format(text, Path::new("FORMAT")).map_err(|e| e.to_string())
}

/// The list of a backup's files.
pub fn backup_list(bytes: &[u8]) -> Result<(), String> {
    backup::decode_manifest(bytes)
}

/// A moment of a copy in an object store.
pub fn offsite_moment(bytes: &[u8]) -> Result<(), String> {
    offsite::check_moment(bytes)
}

/// The manifest of a checkpoint.
pub fn checkpoint_manifest(bytes: &[u8]) -> Result<(), String> {
    Manifest::decode(bytes).map(|manifest| {
        manifest.bytes();
    })
}

/// A block of a checkpoint with rows. Its checksum is in what refers to it, and not asked for.
pub fn checkpoint_block(bytes: &[u8]) -> Result<(), String> {
    checkpoint::decode_rows(bytes.to_vec().into())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// A record of the epoch log.
pub fn epoch_record(bytes: &[u8]) -> Result<(), String> {
    let decoded = EpochRecord::decode(bytes);
    decoded.map(|_| ()).ok_or_else(|| "it is torn".to_owned())
}

/// Bytes as a file that is only read.
#[derive(Debug)]
struct Content(Vec<u8>);

impl DiskFile for Content {
    fn write_all_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_exact_at(&self, bytes: &mut [u8], position: u64) -> std::io::Result<()> {
        let found = usize::try_from(position)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_size(&self, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::checkpoint::{BlockRef, StoredChunk, StoredSource, StoredTable};
    use crate::{CatalogChange, Store, StoreOptions};

    /// Valid bytes for each decoder, from a store that was used.
    fn samples() -> Vec<(&'static str, Decoder, Vec<Vec<u8>>)> {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
        for id in 1..20 {
            let object = catalog::tests::object(id, "t");
            store.catalog().apply(vec![CatalogChange::Put(object)]).unwrap();
        }
        let backup = dir.path().join("backup");
        store.begin_backup().unwrap().write(&backup).unwrap();
        store.close().unwrap();
        let read = |name: &str| vec![fs::read(dir.path().join(name)).unwrap()];
        ALL.into_iter()
            .map(|(name, decoder)| {
                let valid = match name {
                    "catalog_journal" => read("catalog.journal"),
                    "format_file" => read("FORMAT"),
                    "backup_list" => read("backup/BACKUP"),
                    "offsite_moment" => vec![offsite::moment_sample()],
                    "checkpoint_manifest" => vec![manifest()],
                    "checkpoint_block" => vec![checkpoint::encode_rows(&rows()).unwrap()],
                    "epoch_record" => vec![
                        EpochRecord {
                            now: 7,
                            ends: vec![(1, 2), (3, 4)],
                        }
                        .encode(),
                    ],
                    _ => log::tests::samples(name),
                };
                (name, decoder, valid)
            })
            .collect()
    }

    fn rows() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter([Some(1), None, Some(3)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["one", "two", "three"]));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    fn manifest() -> Vec<u8> {
        let mut manifest = Manifest::new(7, 1_200, 1_763_800_000_000_000, 3);
        let block = |at| BlockRef::from((5, at, 100, 9));
        let chunk = StoredChunk {
            rows: 3,
            data: block(64),
            alive: None,
        };
        manifest.sources.push(StoredSource {
            relation: 1,
            end: 10,
            watermark: Some(4),
            rows: Some(StoredTable {
                chunks: vec![chunk, chunk],
                tags: None,
            }),
        });
        serde_json::to_vec(&manifest).unwrap()
    }

    /// The same bytes with some of them changed, removed, doubled, or taken from elsewhere.
    fn mutated(bytes: &[u8], random: &mut StdRng) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..random.random_range(1..6) {
            if bytes.is_empty() {
                break;
            }
            let at = random.random_range(0..bytes.len());
            // Lengths and counts are in front.
            let at = if random.random() {
                at
            } else {
                at % 128.min(bytes.len())
            };
            let length = random.random_range(1..=16).min(bytes.len() - at);
            match random.random_range(0..6) {
                0 => bytes[at] ^= 1 << random.random_range(0..8),
                1 => bytes[at..at + length].fill([0, 1, 0x7f, 0x80, 0xff][random.random_range(0..5)]),
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..at + length)),
                4 => {
                    let piece = bytes[at..at + length].to_vec();
                    let to = random.random_range(0..=bytes.len());
                    bytes.splice(to..to, piece);
                }
                _ => bytes[at..at + length]
                    .iter_mut()
                    .for_each(|byte| *byte = random.random()),
            }
        }
        bytes
    }

    /// What panics inside of Arrow is caught, and not worth a line.
    fn silence_arrow() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |location| location.file());
            if !(file.contains("arrow") || file.contains("flatbuffers")) {
                before(panic);
            }
        }));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic() {
        silence_arrow();
        // The same always, or a number, or any word for another one each time.
        let given = std::env::var("MILLRACE_SEED").map_or(Some(20_261_122), |seed| seed.parse().ok());
        let seed: u64 = given.unwrap_or_else(|| rand::rng().random());
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        for (name, decoder, samples) in samples() {
            for (i, sample) in samples.iter().enumerate() {
                decoder(sample).unwrap_or_else(|error| panic!("{name} {i}: {error}"));
                let mut refused = 0;
                for _ in 0..1500 {
                    refused += usize::from(decoder(&mutated(sample, &mut random)).is_err());
                }
                assert!(refused > 300, "{name}: only {refused} were refused");
            }
        }
    }
}
