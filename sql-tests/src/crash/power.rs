//! The loss of power: what a server wrote and did not sync may be gone afterwards, in any part.
//!
//! `power.c` is preloaded into the server and writes down each operation on files. After the kill, [`Power::lose`] plays them again
//! from what was there before, and leaves a directory as a disk may have it then:
//!
//! * Of a file the bytes are there that were written before the beginning of its last sync. Of later writes each may be there, a part of
//!   it, or nothing; what is missing in the middle of a file is zeros.
//! * A name is there, or is gone, if its directory was synced after that. Of the later changes of names in a directory the first few have
//!   taken place, and the rest have not. A rename is one change, in both directories.
//!
//! That is less than ext4 and XFS promise, and what POSIX does. (The model of the simulated disk, under the whole server.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::Rng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use crate::Failure;

/// Of an operation: its kind, three numbers, the length of its bytes.
const HEAD_BYTES: usize = 1 + 3 * 8 + 4;
/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// What takes down operations on files, built for this machine.
pub struct Power {
    directory: TempDir,
}

/// One change of a file's bytes.
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

/// A file's bytes: those that are safe, and changes since, with their numbers.
#[derive(Default)]
struct Content {
    safe: Vec<u8>,
    since: Vec<(u64, Change)>,
}

/// One change of names.
enum Naming {
    File(PathBuf, usize),
    Directory(PathBuf),
    Rename(PathBuf, PathBuf),
    Gone(PathBuf),
}

/// What there was before the server, and what it has done.
#[derive(Default)]
struct Played {
    contents: Vec<Content>,
    /// The newest file or directory of an inode's number.
    files: HashMap<u64, usize>,
    directories: HashMap<u64, PathBuf>,
    names: Names,
    namings: Vec<(u64, Naming)>,
    /// Changes of names in a directory with smaller numbers are safe.
    synced: HashMap<PathBuf, u64>,
}

/// Files by their contents' place, and directories, by path.
#[derive(Default, Clone)]
struct Names {
    files: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
}

/// What was lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lost {
    pub writes: u64,
    pub names: u64,
}

impl Power {
    /// Builds it; `None`: there is no compiler of C.
    ///
    /// # Errors
    /// It cannot be built although there is one.
    pub fn new() -> Result<Option<Power>, Failure> {
        let directory = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/crash/power.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(directory.path().join("power.so"))
            .arg(source)
            .args(["-ldl", "-lpthread"])
            .output();
        match built {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(built) if !built.status.success() => {
                Err(format!("power.c: {}", String::from_utf8_lossy(&built.stderr)).into())
            }
            Ok(_) => Ok(Some(Power { directory })),
        }
    }

    /// What a server's environment has to have.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_PRELOAD", self.directory.path().join("power.so")),
            ("POWER_JOURNAL", self.journal()),
        ]
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// Remembers what there is below folders in which a server is about to be started.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn before(&self, roots: &[&Path]) -> Result<Before, Failure> {
        match fs::remove_file(self.journal()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut played = Played::default();
        for root in roots {
            played.remember(root)?;
        }
        Ok(Before {
            roots: roots.iter().map(|root| root.to_path_buf()).collect(),
            played,
        })
    }

    /// Leaves in the folders what a loss of power at the end of the server may have left.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn lose(&self, before: Before, random: &mut StdRng) -> Result<Lost, Failure> {
        let Before { roots, mut played } = before;
        played.play(&fs::read(self.journal())?, &roots);
        let mut lost = Lost::default();
        let names = played.surviving_names(random, &mut lost);
        for root in &roots {
            clear(root)?;
        }
        for directory in &names.directories {
            if !roots.contains(directory) {
                fs::create_dir(directory)?;
            }
        }
        for (path, file) in &names.files {
            fs::write(path, played.contents[*file].surviving(random, &mut lost))?;
        }
        Ok(lost)
    }
}

/// What there was in folders.
pub struct Before {
    roots: Vec<PathBuf>,
    played: Played,
}

impl Played {
    fn remember(&mut self, directory: &Path) -> Result<(), Failure> {
        self.directories
            .insert(directory.metadata()?.ino(), directory.to_owned());
        self.names.directories.insert(directory.to_owned());
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                self.remember(&entry.path())?;
            } else {
                self.files.insert(metadata.ino(), self.contents.len());
                self.names.files.insert(entry.path(), self.contents.len());
                self.contents.push(Content {
                    safe: fs::read(entry.path())?,
                    since: vec![],
                });
            }
        }
        Ok(())
    }

    /// Reads the journal, up to an operation that was not written down whole.
    fn play(&mut self, mut journal: &[u8], roots: &[PathBuf]) {
        let is_ours = |path: &Path| roots.iter().any(|root| path.starts_with(root));
        for number in 0.. {
            let Some((head, rest)) = journal.split_at_checked(HEAD_BYTES) else {
                return;
            };
            let field = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
            let length = u32::from_le_bytes(std::array::from_fn(|byte| head[25 + byte]));
            let Some((bytes, rest)) = rest.split_at_checked(length as usize) else {
                return;
            };
            journal = rest;
            let (inode, second) = (field(1), field(9));
            let path = || PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
            match head[0] {
                b'W' => self.change(number, inode, || Change::Write {
                    offset: second as usize,
                    bytes: bytes.to_vec(),
                }),
                b'T' => self.change(number, inode, || Change::Length(second as usize)),
                b'S' => {
                    if let Some(file) = self.files.get(&inode) {
                        self.contents[*file].sync(second);
                    } else if let Some(directory) = self.directories.get(&inode) {
                        self.synced.insert(directory.clone(), second);
                    }
                }
                b'C' if second == 1 => {
                    let path = path();
                    if is_ours(&path) {
                        self.files.remove(&inode);
                        self.directories.insert(inode, path.clone());
                        self.namings.push((number, Naming::Directory(path)));
                    }
                }
                b'C' => {
                    let path = path();
                    if is_ours(&path) {
                        self.directories.remove(&inode);
                        self.files.insert(inode, self.contents.len());
                        self.namings
                            .push((number, Naming::File(path, self.contents.len())));
                        self.contents.push(Content::default());
                    }
                }
                b'R' => {
                    let mut both = bytes.split(|byte| *byte == 0).map(|path| {
                        let path = String::from_utf8_lossy(path);
                        PathBuf::from(path.into_owned())
                    });
                    if let (Some(from), Some(to)) = (both.next(), both.next())
                        && is_ours(&to)
                    {
                        for directory in self.directories.values_mut() {
                            if let Ok(rest) = directory.strip_prefix(&from) {
                                *directory = to.join(rest);
                            }
                        }
                        self.namings.push((number, Naming::Rename(from, to)));
                    }
                }
                _ => self.namings.push((number, Naming::Gone(path()))),
            }
        }
    }

    fn change(&mut self, number: u64, inode: u64, change: impl FnOnce() -> Change) {
        if let Some(file) = self.files.get(&inode) {
            self.contents[*file].since.push((number, change()));
        }
    }

    /// The names that are there after all that is safe, and some of the rest.
    fn surviving_names(&self, random: &mut StdRng, lost: &mut Lost) -> Names {
        let end = self.namings.last().map_or(0, |(number, _)| number + 1);
        let mut reached: HashMap<PathBuf, u64> = HashMap::new();
        let mut is_there = |number: u64, path: &Path| {
            let directory = path.parent().unwrap_or(path);
            let safe = self.synced.get(directory).copied().unwrap_or(0);
            let reached =
                reached
                    .entry(directory.to_owned())
                    .or_insert_with(|| match random.random_range(0..3) {
                        0 => safe,
                        1 => end,
                        _ => random.random_range(safe.min(end)..=end),
                    });
            number < safe.max(*reached)
        };
        let mut names = self.names.clone();
        for (number, naming) in &self.namings {
            let happened = match naming {
                Naming::Rename(from, to) => is_there(*number, to) || is_there(*number, from),
                Naming::File(path, _) | Naming::Directory(path) | Naming::Gone(path) => {
                    is_there(*number, path)
                }
            };
            match happened {
                true => names.apply(naming),
                false => lost.names += 1,
            }
        }
        names
    }
}

impl Names {
    fn has(&self, directory: Option<&Path>) -> bool {
        directory.is_some_and(|directory| self.directories.contains(directory))
    }

    /// Makes a change, if what it is about is there.
    fn apply(&mut self, naming: &Naming) {
        match naming {
            Naming::File(path, file) if self.has(path.parent()) => {
                self.files.insert(path.clone(), *file);
            }
            Naming::Directory(path) if self.has(path.parent()) => {
                self.directories.insert(path.clone());
            }
            Naming::Rename(from, to) if self.has(to.parent()) => {
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to.clone(), file);
                } else if self.directories.contains(from) {
                    let moved = |path: &PathBuf| path.strip_prefix(from).ok().map(|rest| to.join(rest));
                    // A path joined with nothing ends with a slash.
                    let plain = |path: PathBuf| path.components().collect::<PathBuf>();
                    self.files = std::mem::take(&mut self.files)
                        .into_iter()
                        .map(|(path, file)| (moved(&path).map_or(path, plain), file))
                        .collect();
                    self.directories = std::mem::take(&mut self.directories)
                        .into_iter()
                        .map(|path| moved(&path).map_or(path, plain))
                        .collect();
                }
            }
            Naming::Gone(path) => {
                self.files.retain(|file, _| !file.starts_with(path));
                self.directories.retain(|directory| !directory.starts_with(path));
            }
            _ => {}
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => {
                content.resize(content.len().max(offset + bytes.len()), 0);
                content[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Change::Length(length) => content.resize(*length, 0),
        }
    }
}

impl Content {
    /// Operations with a smaller number are safe.
    fn sync(&mut self, before: u64) {
        let later = self.since.partition_point(|(number, _)| *number < before);
        for (_, change) in self.since.drain(..later) {
            change.apply(&mut self.safe);
        }
    }

    /// What is safe, and some of the rest.
    fn surviving(&self, random: &mut StdRng, lost: &mut Lost) -> Vec<u8> {
        let mut content = self.safe.clone();
        // All of it, nothing, the first few, or any.
        let kind = random.random_range(0..4);
        let first = random.random_range(0..=self.since.len());
        for (place, (_, change)) in self.since.iter().enumerate() {
            let survives = match kind {
                0 => true,
                1 => false,
                2 => place < first,
                _ => random.random_bool(0.5),
            };
            match change {
                _ if survives => change.apply(&mut content),
                // A part of a write.
                Change::Write { offset, bytes } if bytes.len() > SECTOR && random.random_bool(0.3) => {
                    let sectors = random.random_range(0..bytes.len() / SECTOR);
                    let bytes = bytes[..sectors * SECTOR].to_vec();
                    let offset = *offset;
                    Change::Write { offset, bytes }.apply(&mut content);
                    lost.writes += 1;
                }
                _ => lost.writes += 1,
            }
        }
        content
    }
}

/// Removes all that is in a folder.
fn clear(directory: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    use rand::SeedableRng;

    use super::*;

    /// This test is run again with the library preloaded, and does then what is to be written down.
    #[test]
    fn what_was_synced_is_there_and_of_the_rest_some() {
        if let Some(root) = std::env::var_os("POWER_TEST") {
            work(Path::new(&root)).unwrap();
            return;
        }
        let Some(power) = Power::new().unwrap() else {
            println!("skipped: there is no compiler of C");
            return;
        };
        let mut seen = BTreeSet::new();
        for seed in 0..60 {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join("old"), "old").unwrap();
            fs::write(root.path().join("removed"), "removed").unwrap();
            let before = power.before(&[root.path()]).unwrap();
            let done = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "crash::power::tests::what_was_synced_is_there_and_of_the_rest_some",
                ])
                .env("POWER_TEST", root.path())
                .envs(power.environment())
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
            power.lose(before, &mut StdRng::seed_from_u64(seed)).unwrap();
            let text = |name: &str| fs::read_to_string(root.path().join(name)).ok();
            assert_eq!(text("a/kept").as_deref(), Some("0123456789"));
            assert_eq!(text("a/copied").as_deref(), Some("old"));
            assert_eq!(text("removed"), None);
            let old = text("old").unwrap();
            assert!(["old", "OLD", "old!", "OLD!"].contains(&old.as_str()), "{old}");
            // Either name, never both.
            let renamed = (text("before").is_some(), text("after").is_some());
            assert!(
                renamed == (true, false) || renamed == (false, true),
                "{renamed:?}"
            );
            seen.insert((old, renamed, text("new").is_some()));
        }
        assert!(seen.len() > 8, "{seen:?}");
    }

    fn work(root: &Path) -> std::io::Result<()> {
        let sync = |path: PathBuf| File::open(path)?.sync_all();
        fs::create_dir(root.join("a"))?;
        let mut kept = File::create(root.join("a/kept"))?;
        kept.write_all(b"01234")?;
        kept.write_all(b"56789")?;
        kept.sync_data()?;
        fs::copy(root.join("old"), root.join("a/copied"))?;
        sync(root.join("a/copied"))?;
        sync(root.join("a"))?;
        fs::write(root.join("before"), "x")?;
        fs::remove_file(root.join("removed"))?;
        sync(root.to_owned())?;
        // None of this is safe.
        fs::rename(root.join("before"), root.join("after"))?;
        fs::write(root.join("new"), "new")?;
        let mut old = OpenOptions::new().write(true).open(root.join("old"))?;
        old.write_all(b"OLD")?;
        old.write_all(b"!")
    }
}
