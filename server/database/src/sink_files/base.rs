//! What a sink's files hold, told by a checkpoint: so that a start has to read only those that came since.
//!
//! ```text
//!  files below `next`  =  what the checkpoint has of the relation  -  `ahead`
//! ```
//! A base is written before its checkpoint counts. One that is missing or damaged costs time: all files are read then.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millrace_storage::{ObjectId, private};

/// What the bytes begin with, and the version of the form and of the keys in it ([`super::encode`]).
const MAGIC: [u8; 4] = *b"MLRS";
const VERSION: u32 = 1;
/// Magic, version, checksum.
const HEAD_BYTES: usize = 12;
/// The directory of all of them in the data directory.
const BASES: &str = "sinks";

/// How often each row is there, by its key; negative: it lacks so many.
pub type Counts = HashMap<Box<[u8]>, i64>;

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub struct Base {
    pub checkpoint: u64,
    pub next: u64,
    /// What the checkpoint has and the files have not.
    pub ahead: Counts,
}

impl Base {
    fn encode(&self) -> Vec<u8> {
        let mut body = vec![];
        body.extend_from_slice(&self.checkpoint.to_le_bytes());
        body.extend_from_slice(&self.next.to_le_bytes());
        for (key, count) in &self.ahead {
            body.extend_from_slice(&count.to_le_bytes());
            body.extend_from_slice(&(key.len() as u64).to_le_bytes());
            body.extend_from_slice(key);
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// None: it is damaged, or of another version.
    fn decode(mut bytes: &[u8]) -> Option<Base> {
        fn number(bytes: &mut &[u8]) -> Option<[u8; 8]> {
            let (number, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Some(*number)
        }
        let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
        let (known, crc) = head.split_at(8);
        let is_known = known[..4] == MAGIC && known[4..] == VERSION.to_le_bytes();
        if !is_known || crc != crc32c::crc32c(body).to_le_bytes() {
            return None;
        }
        bytes = body;
        let checkpoint = u64::from_le_bytes(number(&mut bytes)?);
        let next = u64::from_le_bytes(number(&mut bytes)?);
        let mut ahead = Counts::new();
        while !bytes.is_empty() {
            let count = i64::from_le_bytes(number(&mut bytes)?);
            let length = usize::try_from(u64::from_le_bytes(number(&mut bytes)?)).ok()?;
            let (key, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            ahead.insert(Box::from(key), count);
        }
        Some(Base {
            checkpoint,
            next,
            ahead,
        })
    }
}

/// The bases of one sink.
#[derive(Debug, Clone)]
pub(crate) struct Bases(PathBuf);

impl Bases {
    pub fn of(data: &Path, sink: ObjectId) -> Bases {
        Bases(data.join(BASES).join(sink.0.to_string()))
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Where one is.
    pub fn file(&self, checkpoint: u64) -> PathBuf {
        self.0.join(format!("{checkpoint}.base"))
    }

    /// The base of a checkpoint; none: there is none that can be used.
    pub fn read(&self, checkpoint: u64) -> Option<Base> {
        let base = Base::decode(&fs::read(self.file(checkpoint)).ok()?)?;
        (base.checkpoint == checkpoint).then_some(base)
    }

    /// Writes one, which is on the disk then, and removes those of checkpoints before `first`.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn write(&self, base: &Base, first: u64) -> io::Result<()> {
        private::create_directory_all(&self.0)?;
        let path = self.file(base.checkpoint);
        let hidden = path.with_extension("new");
        let written = private::create(&hidden).and_then(|mut file| {
            file.write_all(&base.encode())?;
            file.sync_all()
        });
        if let Err(error) = written.and_then(|()| fs::rename(&hidden, &path)) {
            // The room that it takes may be what is missing.
            let _ = fs::remove_file(&hidden);
            return Err(error);
        }
        File::open(&self.0)?.sync_all()?;
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            let number = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if number.is_some_and(|number| number < first) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Removes them, for a sink that is dropped.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps, of each sink, the base of one checkpoint, and none of those for which `kept` has none. To be done at a start before there are new
    /// checkpoints: those that did not come to count give their numbers to others.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn keep(data: &Path, kept: impl Fn(ObjectId) -> Option<u64>) -> io::Result<()> {
        let directory = data.join(BASES);
        if !directory.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // It may be somebody else's.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let sink = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(checkpoint) = sink.and_then(|id| kept(ObjectId(id))) else {
                fs::remove_dir_all(entry.path())?;
                continue;
            };
            let bases = Bases(entry.path());
            for file in fs::read_dir(entry.path())? {
                let path = file?.path();
                if path != bases.file(checkpoint) {
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(checkpoint: u64) -> Base {
        let counts = [(b"{\"a\":1}\n".as_slice(), 2), (b"".as_slice(), -1)];
        Base {
            checkpoint,
            next: 3,
            ahead: counts.map(|(key, count)| (Box::from(key), count)).into(),
        }
    }

    #[test]
    fn what_is_damaged_is_not_used() {
        let bytes = base(7).encode();
        assert_eq!(Base::decode(&bytes), Some(base(7)));
        for length in 0..bytes.len() {
            assert_eq!(Base::decode(&bytes[..length]), None, "{length}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 16;
            assert_eq!(Base::decode(&flipped), None, "{at}");
        }
    }

    #[test]
    fn a_length_that_is_too_large_is_no_allocation() {
        let mut bytes = base(7).encode();
        let body = HEAD_BYTES + 16;
        bytes.truncate(body);
        bytes.extend_from_slice(&1_i64.to_le_bytes());
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[HEAD_BYTES..]);
        bytes[8..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Base::decode(&bytes), None);
    }

    #[test]
    fn older_ones_go_and_those_of_sinks_that_are_gone() {
        let data = tempfile::tempdir().unwrap();
        let bases = Bases::of(data.path(), ObjectId(5));
        for (checkpoint, first) in [(1, 0), (2, 1), (3, 2)] {
            bases.write(&base(checkpoint), first).unwrap();
        }
        assert_eq!(bases.read(1), None);
        assert_eq!((bases.read(2), bases.read(3)), (Some(base(2)), Some(base(3))));
        // The third did not come to count.
        Bases::keep(data.path(), |id| (id == ObjectId(5)).then_some(2)).unwrap();
        assert_eq!((bases.read(2), bases.read(3)), (Some(base(2)), None));
        Bases::keep(data.path(), |_| None).unwrap();
        assert_eq!(bases.read(2), None);
        bases.remove().unwrap();
    }
}
