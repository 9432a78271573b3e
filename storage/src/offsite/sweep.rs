//! Removes objects that no restore could begin from, some time after nobody names them any more: somebody may be restoring just then.

use std::collections::{BTreeMap, BTreeSet};

use super::moment::{CHECKPOINTS, MOMENTS, PACKS, moment_number};
use super::place::Place;
use crate::StorageError;

/// Objects that are removed in one step.
const AT_ONCE: usize = 64;

/// What is there, and what is to go.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// All objects, with their bytes.
    known: BTreeMap<String, u64>,
    /// Those that are not named, each with the time from which it may go.
    doomed: BTreeMap<String, i64>,
}

impl Sweep {
    /// Finds out what is there.
    pub(super) async fn find(place: &Place) -> Result<Sweep, StorageError> {
        let mut known = BTreeMap::new();
        for folder in [MOMENTS, PACKS, CHECKPOINTS] {
            known.extend(place.list(folder).await?);
        }
        Ok(Sweep {
            known,
            doomed: BTreeMap::new(),
        })
    }

    /// The highest number of a moment, however damaged; 0: there is none.
    pub(super) fn last_moment(&self) -> u64 {
        self.known
            .keys()
            .filter_map(|name| moment_number(name))
            .max()
            .unwrap_or(0)
    }

    /// Hears of an object that was written.
    pub(super) fn add(&mut self, name: String, bytes: u64) {
        self.known.insert(name, bytes);
    }

    /// How many objects there are, and their bytes.
    pub(super) fn total(&self) -> (u64, u64) {
        (self.known.len() as u64, self.known.values().sum())
    }

    /// Hears which objects are named from now on; the others go at `at_ms`.
    pub(super) fn named(&mut self, names: &BTreeSet<String>, at_ms: i64) {
        self.doomed.retain(|name, _| !names.contains(name));
        for name in self.known.keys().filter(|name| !names.contains(*name)) {
            self.doomed.entry(name.clone()).or_insert(at_ms);
        }
    }

    /// Removes some of those whose time has come.
    pub(super) async fn remove_due(&mut self, place: &Place, now_ms: i64) -> Result<(), StorageError> {
        let due = self.doomed.iter().filter(|(_, at_ms)| **at_ms <= now_ms);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).take(AT_ONCE).collect();
        for name in due {
            place.remove(&name).await?;
            self.doomed.remove(&name);
            self.known.remove(&name);
        }
        Ok(())
    }
}
