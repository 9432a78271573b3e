//! How often each row is there, of more rows than there is memory for: what a sink has delivered against what there is.
//!
//! ```text
//!  add: key, +1 or -1 --> counts in memory --(full)--> sorted, a run in a file --> differences: the runs merged, by key
//! ```
//! The file is scratch: it has no name any more when it is written.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_resource::memory::Charge;
use millrace_storage::private;

use super::base::Counts;

/// What a key takes in memory besides its bytes, about.
const KEY_BYTES: usize = 64;
/// Of a run so much is read at once; less where there are many runs, but so much at the least.
const READ_BYTES: usize = 64 << 10;
const READ_BYTES_MIN: usize = 1 << 10;
/// The head of an entry of a run: how often, and how long the key is.
const HEAD_BYTES: usize = 12;

/// A row by its key, and how often.
pub(crate) type Counted = (Box<[u8]>, i64);

/// See the module.
pub(crate) struct Tally {
    counts: Counts,
    bytes: usize,
    bytes_max: usize,
    /// For what is in memory.
    charge: Charge,
    directory: PathBuf,
    file: Option<Arc<File>>,
    runs: Vec<Range<u64>>,
}

impl Tally {
    /// An empty one, of so many bytes in memory. Its file, if it needs one, is made in the directory.
    pub fn new(directory: &Path, bytes_max: usize, charge: Charge) -> Tally {
        Tally {
            counts: Counts::new(),
            bytes: 0,
            bytes_max,
            charge,
            directory: directory.to_owned(),
            file: None,
            runs: vec![],
        }
    }

    /// A row is there so many times more.
    pub fn add(&mut self, key: &[u8], times: i64) {
        match self.counts.get_mut(key) {
            Some(count) => *count += times,
            None => {
                self.bytes += key.len() + KEY_BYTES;
                self.counts.insert(Box::from(key), times);
            }
        }
    }

    /// Nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.runs.is_empty()
    }

    /// If there is no room for more: what is in memory, for [`Tally::write`].
    pub fn take_full(&mut self) -> Option<Vec<u8>> {
        self.charge.resize(self.bytes);
        if self.bytes < self.bytes_max {
            return None;
        }
        let mut run = vec![];
        for (key, count) in self.take_sorted() {
            run.extend_from_slice(&count.to_le_bytes());
            run.extend_from_slice(&(key.len() as u32).to_le_bytes());
            run.extend_from_slice(&key);
        }
        Some(run)
    }

    /// Writes a run to the disk.
    ///
    /// # Errors
    /// The file system refuses.
    pub fn write(&mut self, run: &[u8]) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                private::create_directory_all(&self.directory)?;
                let path = self.directory.join("tally.tmp");
                let file = Arc::new(private::create(&path)?);
                fs::remove_file(&path)?;
                self.file = Some(Arc::clone(&file));
                file
            }
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        file.write_all_at(run, start)?;
        self.runs.push(start..start + run.len() as u64);
        Ok(())
    }

    /// What was added, by key: the rows that are not there zero times.
    pub fn differences(mut self) -> Arc<Differences> {
        let rest = self.take_sorted();
        let count = self.runs.len().max(1);
        let read_bytes = (self.bytes_max / count).clamp(READ_BYTES_MIN, READ_BYTES);
        Arc::new(Differences {
            file: self.file,
            runs: self.runs,
            rest: Arc::new(rest),
            read_bytes,
            _charge: self.charge,
        })
    }

    fn take_sorted(&mut self) -> Vec<Counted> {
        let mut counts: Vec<Counted> = std::mem::take(&mut self.counts).into_iter().collect();
        self.bytes = 0;
        counts.retain(|(_, count)| *count != 0);
        counts.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        counts
    }
}

/// What a tally came to. It can be gone through more than once.
pub(crate) struct Differences {
    file: Option<Arc<File>>,
    runs: Vec<Range<u64>>,
    rest: Arc<Vec<Counted>>,
    read_bytes: usize,
    _charge: Charge,
}

impl Differences {
    /// All of them from the first key on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn iter(&self) -> io::Result<Merge> {
        let mut readers = vec![Reader {
            file: None,
            rest: 0..0,
            buffer: vec![],
            at: 0,
            read_bytes: 0,
        }];
        for run in &self.runs {
            readers.push(Reader {
                file: self.file.clone(),
                rest: run.clone(),
                buffer: vec![],
                at: 0,
                read_bytes: self.read_bytes,
            });
        }
        let mut merge = Merge {
            readers,
            memory: Arc::clone(&self.rest),
            at: 0,
            next: BinaryHeap::new(),
        };
        for reader in 0..merge.readers.len() {
            merge.proceed(reader)?;
        }
        Ok(merge)
    }
}

/// A run, from where it is read.
struct Reader {
    file: Option<Arc<File>>,
    rest: Range<u64>,
    buffer: Vec<u8>,
    at: usize,
    read_bytes: usize,
}

impl Reader {
    /// So many bytes more; none at the end of the run.
    fn bytes(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        if self.buffer.len() - self.at < count {
            self.buffer.drain(..self.at);
            self.at = 0;
            let Some(file) = &self.file else { return Ok(None) };
            let left = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
            let missing = count - self.buffer.len();
            if left < missing {
                return Ok(None);
            }
            let read = self.read_bytes.max(missing).min(left);
            let filled = self.buffer.len();
            self.buffer.resize(filled + read, 0);
            file.read_exact_at(&mut self.buffer[filled..], self.rest.start)?;
            self.rest.start += read as u64;
        }
        let bytes = &self.buffer[self.at..self.at + count];
        self.at += count;
        Ok(Some(bytes))
    }

    fn next(&mut self) -> io::Result<Option<Counted>> {
        let Some(head) = self.bytes(HEAD_BYTES)? else {
            return Ok(None);
        };
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let (count, length) = head.split_at(8);
        let count = i64::from_le_bytes(count.try_into().map_err(|_| damaged())?);
        let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged())?);
        let key = self.bytes(length as usize)?.ok_or_else(damaged)?;
        Ok(Some((Box::from(key), count)))
    }
}

/// A row of a run, by its key: how often, and the run's number.
type Entry = (Box<[u8]>, i64, usize);

/// The runs, merged.
pub(crate) struct Merge {
    /// The first stands for what is in memory.
    readers: Vec<Reader>,
    memory: Arc<Vec<Counted>>,
    at: usize,
    /// The next entry of each.
    next: BinaryHeap<Reverse<Entry>>,
}

impl Merge {
    fn proceed(&mut self, reader: usize) -> io::Result<()> {
        let entry = match reader {
            0 => {
                let entry = self.memory.get(self.at).cloned();
                self.at += 1;
                entry
            }
            _ => self.readers[reader].next()?,
        };
        if let Some((key, count)) = entry {
            self.next.push(Reverse((key, count, reader)));
        }
        Ok(())
    }

    /// The next rows, at most so many; none at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn take(&mut self, rows_max: usize) -> io::Result<Vec<Counted>> {
        let mut rows: Vec<Counted> = vec![];
        while let Some(Reverse((key, ..))) = self.next.peek() {
            match rows.last() {
                Some((last, _)) if last == key => {}
                Some((_, 0)) => {
                    rows.pop();
                }
                _ if rows.len() >= rows_max => return Ok(rows),
                _ => {}
            }
            let Some(Reverse((key, count, reader))) = self.next.pop() else {
                break;
            };
            match rows.last_mut() {
                Some((last, sum)) if *last == key => *sum += count,
                _ => rows.push((key, count)),
            }
            self.proceed(reader)?;
        }
        rows.pop_if(|(_, sum)| *sum == 0);
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use millrace_resource::memory::{Holder, Memory, Resident, Use};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn rows(differences: &Differences, at_once: usize) -> Vec<Counted> {
        let mut merge = differences.iter().unwrap();
        let mut all = vec![];
        loop {
            let rows = merge.take(at_once).unwrap();
            assert!(rows.len() <= at_once);
            if rows.is_empty() {
                return all;
            }
            all.extend(rows);
        }
    }

    #[test]
    fn runs_on_the_disk_come_to_what_all_in_memory_would() {
        let directory = tempfile::tempdir().unwrap();
        let memory = Memory::new(None, Resident::Unknown);
        for seed in 0..40 {
            println!("seed {seed}");
            let mut random = StdRng::seed_from_u64(seed);
            let account = memory.account(Holder::Clients, "test");
            let bytes_max = [200, 2_000, 1 << 30][random.random_range(0..3)];
            let mut tally = Tally::new(directory.path(), bytes_max, account.charge(Use::Query, 0));
            let mut expected = std::collections::BTreeMap::new();
            let keys = random.random_range(1..200);
            for _ in 0..random.random_range(0..2_000) {
                let number: usize = random.random_range(0..keys);
                let key = format!("{number}{}", "x".repeat(number % 7 * 300));
                let times = random.random_range(-2..3);
                tally.add(key.as_bytes(), times);
                *expected
                    .entry(key.into_bytes().into_boxed_slice())
                    .or_insert(0_i64) += times;
                if let Some(run) = tally.take_full() {
                    tally.write(&run).unwrap();
                }
            }
            let runs = tally.runs.len();
            assert!(bytes_max > 2_000 || expected.len() < 30 || runs > 0, "{runs}");
            let differences = tally.differences();
            let expected: Vec<Counted> = expected.into_iter().filter(|(_, count)| *count != 0).collect();
            for at_once in [1, 7, 10_000] {
                assert_eq!(rows(&differences, at_once), expected);
            }
            // The file had no name.
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }
}
