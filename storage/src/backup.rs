//! Backups: a copy of everything that lasts as of one moment, made while writes go on, and checked on its way back.
//!
//! ```text
//! <backup>/BACKUP      what there is: the size and the checksum of each file; written last
//! <backup>/data/..     a data directory
//! ```
//!
//! The moment is one between two writes: all logs are cut there together, and the catalog is the one of then, which the
//! caller keeps from changing meanwhile. From then on rows only have to be kept until they are copied. The copy is made
//! block by block, each checked, into segments of the same format. The checkpoints of a moment just before go along, with what they say of
//! checksums: a view over a stream that has forgotten rows is in no log. What can be made again is left out.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::{CatalogCopy, ObjectId, ObjectKind};
use crate::checkpoint::CheckpointCopy;
use crate::disk::{Disk, DiskFile, OsDisk};
use crate::listing::{self, Listed};
use crate::log::LogCopy;
use crate::{StorageError, directory, disk};

const MANIFEST: &str = "BACKUP";
const DATA: &str = "data";
const FIRST_LINE: &str = "millrace backup, format 1";
/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A moment that is to be copied; see [`Store::begin_backup`](crate::Store::begin_backup).
#[derive(Debug)]
pub struct Backup {
    pub(crate) catalog: CatalogCopy,
    pub(crate) checkpoints: CheckpointCopy,
    pub(crate) logs: Vec<LogCopy>,
}

impl Backup {
    /// Leaves out objects of the catalog, and their rows.
    pub fn leave_out(&mut self, objects: &BTreeSet<ObjectId>) {
        self.catalog.leave_out(objects);
        self.logs
            .retain(|log| !objects.contains(&ObjectId(log.relation())));
    }

    /// Leaves out a property of all objects of a kind, which are there without it.
    pub fn leave_out_property(&mut self, kind: ObjectKind, property: &str) {
        self.catalog.leave_out_property(kind, property);
    }

    /// Copies it into a directory, which must be empty or not be there, and is again if this fails. Without the manifest,
    /// which comes last, what is there is no backup.
    ///
    /// # Errors
    /// The directory has something in it, cannot be written, or what is copied is damaged.
    pub fn write(self, target: &Path) -> Result<(), StorageError> {
        let disk = &OsDisk;
        fill(disk, target, || self.write_into(disk, target))
    }

    fn write_into(self, disk: &dyn Disk, target: &Path) -> Result<(), StorageError> {
        let data = target.join(DATA);
        make_empty(disk, &data)?;
        let log = data.join("log");
        make_empty(disk, &log)?;
        for copy in self.logs {
            copy.write(&log)?;
        }
        self.checkpoints.write(&data)?;
        self.catalog.write(&data)?;
        directory::write_format(&data)?;
        let listed = files(disk, &data)?.into_iter().map(|path| {
            let (crc, bytes) = copy_file(disk, &path, None)?;
            let relative = path.strip_prefix(&data).unwrap_or(&path).to_owned();
            Ok(Listed { crc, bytes, relative })
        });
        let manifest = listing::text(FIRST_LINE, &listed.collect::<Result<Vec<_>, StorageError>>()?);
        disk::replace(disk, &target.join(MANIFEST), manifest.as_bytes())?;
        disk::sync_parent(disk, target)
    }
}

/// Makes a data directory from a backup, checking every byte; `data` must be empty or not be there, and is again if this fails.
///
/// # Errors
/// There is no whole backup at `from`, `data` has something in it, or cannot be written.
pub fn restore(from: &Path, data: &Path) -> Result<(), StorageError> {
    let disk = &OsDisk;
    let path = from.join(MANIFEST);
    // A backup may lie where nothing can be written.
    let manifest = fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StorageError::NoBackup {
            directory: from.to_owned(),
        },
        _ => StorageError::io("read", &path, error),
    })?;
    let listed = listing::parse(&manifest, FIRST_LINE).map_err(|why| StorageError::damaged(&path, 0, why))?;
    fill(disk, data, || restore_files(disk, from, data, listed))
}

fn restore_files(disk: &dyn Disk, from: &Path, data: &Path, listed: Vec<Listed>) -> Result<(), StorageError> {
    for Listed { crc, bytes, relative } in listed {
        let (source, target) = (from.join(DATA).join(&relative), data.join(&relative));
        // Directories come as their files do.
        let parents: Vec<&Path> = relative.ancestors().skip(1).collect();
        for parent in parents.into_iter().rev() {
            let parent = data.join(parent);
            if !disk.exists(&parent) {
                make_empty(disk, &parent)?;
            }
        }
        let found = copy_file(disk, &source, Some(&target))?;
        if found != (crc, bytes) {
            let why = format!(
                "it has {} bytes with checksum {:08x}, not {bytes} with {crc:08x}",
                found.1, found.0
            );
            return Err(StorageError::damaged(&source, 0, why));
        }
        disk::sync_parent(disk, &target)?;
    }
    Ok(())
}

/// Whether bytes are the list of a backup; for fuzzing.
#[cfg(any(test, feature = "decoders"))]
pub(crate) fn decode_manifest(bytes: &[u8]) -> Result<(), String> {
    listing::parse(bytes, FIRST_LINE).map(|_| ())
}

/// Fills a directory, which must be empty or not be there. If that fails it is so again.
fn fill(
    disk: &dyn Disk,
    directory: &Path,
    write: impl FnOnce() -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let was_there = disk.exists(directory);
    if was_there {
        make_empty(disk, directory)?;
    }
    let written = match was_there {
        true => write(),
        false => make_empty(disk, directory).and_then(|()| write()),
    };
    written.map_err(|error| {
        let (directory, error) = (directory.to_owned(), Box::new(error));
        match take_back(disk, &directory, was_there) {
            Ok(()) => StorageError::NotFilled { directory, error },
            Err(left) => StorageError::LeftBehind {
                directory,
                error,
                left: Box::new(left),
            },
        }
    })
}

/// Removes what is in a directory, and the directory itself unless it is to stay.
fn take_back(disk: &dyn Disk, directory: &Path, stays: bool) -> Result<(), StorageError> {
    if !disk.exists(directory) {
        return Ok(());
    }
    let remove = |path: &Path| {
        let removed = match disk.list(path) {
            Ok(_) => disk.remove_directory(path),
            Err(_) => disk.remove(path),
        };
        removed.map_err(|error| StorageError::io("remove", path, error))
    };
    if !stays {
        return remove(directory);
    }
    let listed = disk.list(directory);
    let listed = listed.map_err(|error| StorageError::io("list", directory, error))?;
    listed
        .iter()
        .filter(|path| !is_bystander(path))
        .try_for_each(|path| remove(path))
}

/// Whether an entry of a directory was there before, and is nobody's data.
fn is_bystander(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| directory::is_bystander(&name))
}

/// Makes a directory; one that is there must be empty.
fn make_empty(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    if !disk.exists(path) {
        disk.create_directory(path)
            .map_err(|e| StorageError::io("create", path, e))?;
        return disk::sync_parent(disk, path);
    }
    let listed = disk.list(path).map_err(|e| StorageError::io("list", path, e))?;
    match listed.iter().find(|path| !is_bystander(path)) {
        None => Ok(()),
        Some(found) => Err(StorageError::NotEmpty {
            directory: path.to_owned(),
            found: found
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        }),
    }
}

/// All files below a directory; `FORMAT`, which makes it a data directory, comes last.
fn files(disk: &dyn Disk, directory: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        match disk.list(&path) {
            Ok(listed) => open.extend(listed),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => found.push(path),
            Err(error) => return Err(StorageError::io("list", &path, error)),
        }
    }
    found.sort_by_key(|path| (path.ends_with(directory::FORMAT_FILE), path.clone()));
    Ok(found)
}

/// Reads a file, and writes it to `target` and syncs it if there is one. The checksum and the size.
pub(crate) fn copy_file(
    disk: &dyn Disk,
    source: &Path,
    target: Option<&Path>,
) -> Result<(u32, u64), StorageError> {
    let read = |e| StorageError::io("read", source, e);
    let file = File::open(source).map_err(read)?;
    let size = DiskFile::size(&file).map_err(read)?;
    let copy = match target {
        Some(path) => Some((
            path,
            disk.create(path)
                .map_err(|e| StorageError::io("create", path, e))?,
        )),
        None => None,
    };
    let (mut crc, mut position) = (0, 0);
    let mut piece = vec![0; PIECE_BYTES];
    while position < size {
        let piece = &mut piece[..PIECE_BYTES.min((size - position) as usize)];
        DiskFile::read_exact_at(&file, piece, position).map_err(read)?;
        crc = crc32c::crc32c_append(crc, piece);
        if let Some((path, copy)) = &copy {
            copy.write_all_at(piece, position)
                .map_err(|e| StorageError::io("write", path, e))?;
        }
        position += piece.len() as u64;
    }
    if let Some((path, copy)) = &copy {
        copy.sync().map_err(|e| StorageError::io("sync", path, e))?;
    }
    Ok((crc, size))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use arrow::array::{AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::{CatalogChange, ChangeBatch, LogWrite, Store, StoreOptions};

    fn changes(value: i64) -> ChangeBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from(vec![value; 3]));
        ChangeBatch::insertions(RecordBatch::try_new(schema, vec![column]).unwrap())
    }

    fn both(value: i64) -> Vec<LogWrite> {
        let write = |relation| LogWrite {
            relation,
            changes: changes(value),
        };
        vec![write(1), write(2)]
    }

    fn open(directory: &Path) -> Store {
        let options = StoreOptions {
            segment_bytes_max: 20_000,
            ..StoreOptions::default()
        };
        Store::open(directory, options).unwrap()
    }

    fn last(store: &Store, relation: u64) -> i64 {
        let head = store.logs().head(relation);
        let block = store.logs().read(relation, head - 1, head).unwrap().next();
        let rows = block.unwrap().unwrap().changes.rows;
        assert_eq!(head % 3, 0, "a write is whole");
        rows.column(0).as_primitive::<Int64Type>().value(0)
    }

    #[test]
    fn a_backup_under_load_is_one_moment_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (backup, restored) = (dir.path().join("backup"), dir.path().join("restored"));
        let store = open(&dir.path().join("data"));
        for relation in [1, 2] {
            store.logs().create(relation, changes(0).rows.schema()).unwrap();
        }
        let object = crate::catalog::tests::object(7, "t");
        store
            .catalog()
            .apply(vec![CatalogChange::Put(object.clone())])
            .unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut value = 0;
                while !stop.load(Ordering::Acquire) || value < 300 {
                    store.logs().append(both(value)).wait().unwrap();
                    value += 1;
                }
            });
            while store.logs().head(2) < 300 {
                std::thread::yield_now();
            }
            let moment = store.begin_backup().unwrap();
            let acknowledged = store.logs().head(1);
            moment.write(&backup).unwrap();
            stop.store(true, Ordering::Release);
            writer.join().unwrap();
            restore(&backup, &restored).unwrap();
            let copy = open(&restored);
            assert_eq!(copy.catalog().objects(), vec![object]);
            assert_eq!(last(&copy, 1), last(&copy, 2));
            let head = copy.logs().head(1);
            assert!((300..=acknowledged).contains(&head), "{head} of {acknowledged}");
            copy.logs().append(both(-1)).wait().unwrap();
        });
        // Neither is written over.
        let error = restore(&backup, &restored).unwrap_err();
        assert!(matches!(error, StorageError::NotEmpty { .. }), "{error}");
        let error = store.begin_backup().unwrap().write(&backup).unwrap_err();
        assert!(matches!(error, StorageError::NotEmpty { .. }), "{error}");
    }

    #[test]
    fn a_damaged_or_unfinished_backup_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("data"));
        store.logs().create(1, changes(0).rows.schema()).unwrap();
        store.logs().create(2, changes(0).rows.schema()).unwrap();
        store.logs().append(both(1)).wait().unwrap();
        let backup = dir.path().join("backup");
        store.begin_backup().unwrap().write(&backup).unwrap();
        for (i, path) in files(&OsDisk, &backup).unwrap().into_iter().enumerate() {
            let whole = fs::read(&path).unwrap();
            for at in [0, whole.len() / 2, whole.len() - 1] {
                let mut bytes = whole.clone();
                bytes[at] ^= 4;
                fs::write(&path, bytes).unwrap();
                let target = dir.path().join(format!("restored{i}-{at}"));
                // One that is there stays, and is empty as before.
                let was_there = at > 0;
                if was_there {
                    fs::create_dir(&target).unwrap();
                }
                let error = restore(&backup, &target).unwrap_err();
                let why = match &error {
                    StorageError::NotFilled { directory, error } if *directory == target => error,
                    refused => refused,
                };
                assert!(matches!(why, StorageError::Damaged { .. }), "{error}");
                assert_eq!(target.exists(), was_there, "{error}");
                assert!(!was_there || fs::read_dir(&target).unwrap().next().is_none());
            }
            fs::write(&path, whole).unwrap();
        }
        restore(&backup, &dir.path().join("well")).unwrap();
        fs::remove_file(backup.join(MANIFEST)).unwrap();
        let error = restore(&backup, &dir.path().join("unfinished")).unwrap_err();
        assert!(matches!(error, StorageError::NoBackup { .. }), "{error}");
        assert!(!dir.path().join("unfinished").exists());
    }
}
