//! Which views run at this moment, in a file that outlives the process: from it the next start knows in which views a process
//! died.
//!
//! The file has a place for each thread that polls tasks of views. In it is the id of the view whose task the thread polls, or 0.
//! It is written without a sync: what the operating system's cache has is not lost with the process (after the loss of power
//! the file may tell of another moment, which costs nothing but a wrong suspicion). A write takes about a microsecond, and there
//! is one only when a thread comes to another view than the one before, and when it has nothing to do.
//!
//! ```text
//!  at  0: MLRR, then the version (1) as a 32-bit number      at 8 + 8n: the view of place n
//! ```

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_planner::RelationId;

const HEADER: [u8; 8] = *b"MLRR\x01\0\0\0";
const PLACE_BYTES: u64 = 8;
/// More places than any machine has threads; what follows in the file is not looked at.
const PLACES_MAX: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Running {
    file: File,
    next_place: AtomicU64,
    has_failed: AtomicBool,
}

impl Running {
    /// Opens the file, or makes it; returns with it the views that were running when the last process died. A file that is not
    /// one of these says nothing.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<(Running, BTreeSet<RelationId>)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let mut bytes = vec![];
        (&file)
            .take(HEADER.len() as u64 + PLACES_MAX * PLACE_BYTES)
            .read_to_end(&mut bytes)?;
        let places = bytes.strip_prefix(&HEADER).unwrap_or_default();
        let views = places
            .as_chunks()
            .0
            .iter()
            .map(|place| u64::from_le_bytes(*place));
        let views = views.filter(|view| *view != 0).map(RelationId).collect();
        let running = Running {
            file,
            next_place: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        };
        Ok((running, views))
    }

    /// From now on the file tells of this process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(&HEADER, 0)
    }

    /// A place for one thread.
    pub fn place(self: &Arc<Self>) -> Place {
        Place {
            running: Arc::clone(self),
            number: self.next_place.fetch_add(1, Ordering::Relaxed),
            view: 0,
        }
    }
}

/// What one thread runs. Nothing any more when it is dropped.
#[derive(Debug)]
pub struct Place {
    running: Arc<Running>,
    number: u64,
    view: u64,
}

impl Place {
    /// The thread begins with a task of this view, or (`None`) with something else.
    pub fn set(&mut self, view: Option<RelationId>) {
        let view = view.map_or(0, |view| view.0);
        if view == self.view || self.number >= PLACES_MAX {
            return;
        }
        self.view = view;
        let at = HEADER.len() as u64 + self.number * PLACE_BYTES;
        let written = self.running.file.write_all_at(&view.to_le_bytes(), at);
        if let Err(error) = written
            && !self.running.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "cannot record which views are running: if one crashes the process, the \
             next start will not know which");
        }
    }

    /// Whether a view is noted.
    pub fn is_set(&self) -> bool {
        self.view != 0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_tells_what_ran_when_nobody_cleared_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("RUNNING");
        let found = |path: &Path| Running::open(path).unwrap().1;
        let (running, before) = Running::open(&path).unwrap();
        assert!(before.is_empty());
        running.begin().unwrap();
        let running = Arc::new(running);
        let (mut first, mut second, _third) = (running.place(), running.place(), running.place());
        first.set(Some(RelationId(16400)));
        second.set(Some(RelationId(16401)));
        assert_eq!(found(&path), [RelationId(16400), RelationId(16401)].into());
        first.set(Some(RelationId(16402)));
        second.set(None);
        assert!(first.is_set() && !second.is_set());
        assert_eq!(found(&path), [RelationId(16402)].into());
        drop(first);
        assert!(found(&path).is_empty());
        second.set(Some(RelationId(7)));
        running.begin().unwrap();
        assert!(found(&path).is_empty());
    }

    #[test]
    fn a_file_of_something_else_says_nothing_and_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("RUNNING");
        for bytes in [
            &b"MLR"[..],
            b"something else altogether",
            b"MLRR\x02\0\0\0\x01\0\0\0\0\0\0\0",
        ] {
            std::fs::write(&path, bytes).unwrap();
            let (running, views) = Running::open(&path).unwrap();
            assert!(views.is_empty(), "{bytes:?}");
            running.begin().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), HEADER);
        }
    }
}
