//! How often each statement was executed, for how long and with how many rows: `pg_stat_statements`.
//!
//! A statement is counted for who executed it, in the database where, and without its constants. It is counted when it has ended without
//! an error. There is room for [`ENTRIES_MAX`] statements and `TEXTS_BYTES_MAX` of their texts: when either is short, those that were
//! executed least go, one in twenty, as in PostgreSQL.

mod text;

pub use text::normalized;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_resource::memory::{Charge, Holder, Memory, Use};
use millrace_storage::ObjectId;
use parking_lot::Mutex;

use crate::clock::now_ms;

/// How many statements are kept; the setting `pg_stat_statements.max` says it.
pub const ENTRIES_MAX: usize = 5_000;
/// How many bytes of texts.
const TEXTS_BYTES_MAX: usize = 4 << 20;
/// One of so many goes when there is no room.
const LEAVING_PART: usize = 20;
/// What a use counts for after each time that some went: the most used of yesterday are not kept for ever.
const USE_DECAY: f64 = 0.99;
/// An entry beside its text, in bytes.
const ENTRY_BYTES: usize = 2 * (size_of::<Key>() + size_of::<Entry>());

/// Who executed what, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The role.
    pub user: ObjectId,
    /// The database.
    pub database: ObjectId,
    /// The statement, without its constants.
    pub query: i64,
}

/// What is known of a statement. Times are in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// How often it was executed.
    pub calls: u64,
    /// Rows that it gave or changed.
    pub rows: u64,
    /// The sum of its times.
    pub total_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Their mean.
    pub mean_ms: f64,
    /// The sum of their squared distances from the mean.
    squares: f64,
}

impl Counts {
    /// The standard deviation of its times, all of them.
    pub fn stddev_ms(&self) -> f64 {
        match self.calls {
            0 | 1 => 0.0,
            calls => (self.squares / calls as f64).sqrt(),
        }
    }

    fn add(&mut self, rows: u64, took_ms: f64) {
        self.calls += 1;
        self.rows = self.rows.saturating_add(rows);
        self.total_ms += took_ms;
        self.min_ms = if self.calls == 1 {
            took_ms
        } else {
            self.min_ms.min(took_ms)
        };
        self.max_ms = self.max_ms.max(took_ms);
        // Welford's: no difference of large sums.
        let before = took_ms - self.mean_ms;
        self.mean_ms += before / self.calls as f64;
        self.squares += before * (took_ms - self.mean_ms);
    }
}

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    counts: Counts,
    uses: f64,
}

/// The statements that were executed.
#[derive(Debug, Default)]
pub struct Statements {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    entries: BTreeMap<Key, Entry>,
    text_bytes: usize,
    charge: Option<Charge>,
    /// How often some had to go.
    cleared: u64,
    /// In milliseconds since 1970-01-01 UTC.
    since_ms: i64,
}

impl Statements {
    /// From now on what they take is charged to the clients.
    pub fn charge_to(&self, memory: &Arc<Memory>) {
        let account = memory.account(Holder::Clients, "what clients send");
        let mut known = self.known.lock();
        known.charge = Some(account.charge(Use::Query, 0));
        known.since_ms = now_ms();
        known.settle();
    }

    /// What a statement is counted under. Its text is one that others may see; what it has of constants is not kept.
    pub fn key(&self, user: ObjectId, database: ObjectId, text: &str) -> Key {
        let query = text::query_id(text);
        let key = Key {
            user,
            database,
            query,
        };
        if !self.known.lock().entries.contains_key(&key) {
            let normalized = text::normalized(text).into_boxed_str();
            self.known.lock().insert(key, normalized);
        }
        key
    }

    /// Counts a statement that has ended. One that had to go in the meantime is not counted.
    pub fn count(&self, key: &Key, rows: u64, took: Duration) {
        if let Some(entry) = self.known.lock().entries.get_mut(key) {
            entry.counts.add(rows, took.as_secs_f64() * 1000.0);
            entry.uses += 1.0;
        }
    }

    /// All that were executed, those with the longest sum of times first.
    pub fn all(&self) -> Vec<(Key, String, Counts)> {
        let known = self.known.lock();
        let executed = known.entries.iter().filter(|(_, entry)| entry.counts.calls > 0);
        let mut all: Vec<_> = executed
            .map(|(key, entry)| (*key, entry.text.to_string(), entry.counts.clone()))
            .collect();
        drop(known);
        all.sort_by(|a, b| (b.2.total_ms.total_cmp(&a.2.total_ms)).then(a.0.query.cmp(&b.0.query)));
        all
    }

    /// How often some had to go, and since when all is counted, in milliseconds since 1970-01-01 UTC.
    pub fn info(&self) -> (u64, i64) {
        let known = self.known.lock();
        (known.cleared, known.since_ms)
    }

    /// Forgets some: those for which this holds. With `all` the count begins anew.
    pub fn reset(&self, all: bool, leaves: impl Fn(&Key) -> bool) {
        let mut known = self.known.lock();
        known.entries.retain(|key, _| !leaves(key));
        if all {
            known.cleared = 0;
            known.since_ms = now_ms();
        }
        known.settle();
    }
}

impl Known {
    fn insert(&mut self, key: Key, text: Box<str>) {
        if self.entries.contains_key(&key) {
            return;
        }
        if self.entries.len() >= ENTRIES_MAX || self.text_bytes + text.len() > TEXTS_BYTES_MAX {
            self.make_room();
        }
        self.text_bytes += text.len();
        let (counts, uses) = (Counts::default(), 1.0);
        self.entries.insert(key, Entry { text, counts, uses });
        self.charge();
    }

    fn make_room(&mut self) {
        let mut uses: Vec<f64> = self.entries.values().map(|entry| entry.uses).collect();
        let leaving = (uses.len() / LEAVING_PART).max(10).min(uses.len());
        if leaving == 0 {
            return;
        }
        let (_, limit, _) = uses.select_nth_unstable_by(leaving - 1, f64::total_cmp);
        let (limit, mut left) = (*limit, leaving);
        self.entries.retain(|_, entry| {
            let goes = entry.uses <= limit && left > 0;
            left -= usize::from(goes);
            entry.uses *= USE_DECAY;
            !goes
        });
        self.cleared += 1;
        self.settle();
    }

    fn charge(&mut self) {
        if let Some(charge) = &mut self.charge {
            charge.resize(self.text_bytes + self.entries.len() * ENTRY_BYTES);
        }
    }

    fn settle(&mut self) {
        self.text_bytes = self.entries.values().map(|entry| entry.text.len()).sum();
        self.charge();
    }
}

#[cfg(test)]
mod tests {
    use millrace_resource::memory::Resident;

    use super::*;

    fn statements() -> (Statements, Arc<Memory>) {
        let memory = Memory::new(None, Resident::Unknown);
        let statements = Statements::default();
        statements.charge_to(&memory);
        (statements, memory)
    }

    #[test]
    fn times_are_those_of_all_calls() {
        let (statements, _memory) = statements();
        for (constant, took_ms) in [(1, 2), (2, 4), (3, 9)] {
            let key = statements.key(ObjectId(1), ObjectId(2), &format!("SELECT {constant}"));
            statements.count(&key, 2, Duration::from_millis(took_ms));
        }
        let all = statements.all();
        let [(_, text, counts)] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!((text.as_str(), counts.calls, counts.rows), ("SELECT $1", 3, 6));
        let times = [counts.total_ms, counts.min_ms, counts.max_ms, counts.mean_ms];
        assert_eq!(times, [15.0, 2.0, 9.0, 5.0]);
        // (9 + 1 + 16) / 3
        assert!((counts.stddev_ms() - (26.0f64 / 3.0).sqrt()).abs() < 1e-9);
        statements.reset(true, |_| true);
        assert!(statements.all().is_empty());
    }

    #[test]
    fn however_many_there_are_memory_is_bounded_and_the_most_used_stay() {
        let (statements, memory) = statements();
        let often = statements.key(ObjectId(1), ObjectId(2), "SELECT often");
        for _ in 0..100 {
            statements.count(&often, 1, Duration::ZERO);
        }
        for number in 0..3 * ENTRIES_MAX {
            let text = format!("SELECT c{number} FROM {}", "t".repeat(3_000));
            let key = statements.key(ObjectId(1), ObjectId(2), &text);
            statements.count(&key, 1, Duration::ZERO);
        }
        let charged = memory.status().charged;
        assert!(
            charged > TEXTS_BYTES_MAX / 2 && charged < TEXTS_BYTES_MAX + ENTRIES_MAX * ENTRY_BYTES,
            "{charged}"
        );
        let all = statements.all();
        assert!(all.len() <= ENTRIES_MAX);
        assert!(
            all.iter()
                .any(|(key, _, counts)| *key == often && counts.calls == 100)
        );
        assert!(statements.info().0 > 0);
        statements.reset(true, |_| true);
        assert_eq!((memory.status().charged, statements.info().0), (0, 0));
    }
}
