//! Removes objects that no restore could begin from, some time after nobody names them any more: somebody may be restoring just then.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _};

use super::moment::{CHECKPOINTS, MOMENTS, PACKS, moment_name, moment_number};
use super::place::Place;
use crate::StorageError;

/// Objects that are removed in one step, and at a time.
const IN_ONE_STEP: usize = 2_000;
const AT_ONCE: usize = 16;
/// Letters of the name of a writer, which all of its objects begin with.
const WRITER_LETTERS: usize = 32;

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
            let listed = place.list(folder).await?;
            known.extend(listed.into_iter().filter(|(name, _)| is_ours(name)));
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
        let due: Vec<String> = due.map(|(name, _)| name.clone()).take(IN_ONE_STEP).collect();
        let removals = due.into_iter().map(|name| async move {
            place.remove(&name).await?;
            Ok::<_, StorageError>(name)
        });
        let mut removals = futures::stream::iter(removals).buffer_unordered(AT_ONCE);
        while let Some(name) = removals.try_next().await? {
            self.doomed.remove(&name);
            self.known.remove(&name);
        }
        Ok(())
    }

    /// The bytes of an object; 0: it is not known.
    pub(super) fn bytes_of(&self, name: &str) -> u64 {
        self.known.get(name).copied().unwrap_or(0)
    }
}

/// Whether an object is one of a copy, by its name: what somebody else keeps beside them is left alone.
fn is_ours(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    let is_of_writer = file.split_once('-').is_some_and(|(writer, _)| {
        writer.len() == WRITER_LETTERS && writer.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    is_of_writer || moment_number(name).is_some_and(|number| moment_name(number) == name)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn what_others_keep_there_is_not_known() {
        let writer = format!("{:032x}", 7);
        for name in [
            moment_name(12),
            format!("packs/{writer}-0000000001"),
            format!("checkpoints/{writer}-9.blocks-1-2"),
        ] {
            assert!(is_ours(&name), "{name}");
        }
        for name in [
            "moments/12",
            "packs/pack-1.pack",
            "checkpoints/model.pt",
            "checkpoints/12.blocks",
            "moments/a",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
