//! Keys of HTTP requests that write (`Idempotency-Key`): a request that is sent again gets the first answer.
//!
//! A key is part of the write that it came with, in the log, so that both are there or neither is, whatever crash comes in
//! between. In memory the newest are known; at the start they are read from the logs.

use std::collections::{HashMap, VecDeque};
use std::hash::Hasher;
use std::sync::Arc;

use millrace_storage::{LogNote, ObjectId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::clock::now_ms;

/// For how long a key is remembered, and how many of them.
const AGE_MS_MAX: i64 = 24 * 3_600_000;
const KEYS_MAX: usize = 100_000;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// A key, and the relation that the request writes to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IngestKey {
    relation: ObjectId,
    key: String,
}

/// What is written down with the rows.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    key: IngestKey,
    #[serde(flatten)]
    answered: Answered,
}

/// A row that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// Its place in the request, from 1.
    pub row: u64,
    /// Why not.
    pub reason: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a request was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Rows that were taken.
    pub rows: u64,
    /// Rows that were not, and the first of those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejected: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejections: Vec<Rejection>,
    /// A hash of what came with the key ([`BodyHash`]); `None`: it was written before there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<u64>,
}

/// Tells bodies apart: XXH3 of their bytes.
#[derive(Default)]
pub struct BodyHash(XxHash3_64);

impl BodyHash {
    /// Adds the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Of all bytes so far.
    pub fn get(&self) -> u64 {
        self.0.finish()
    }
}

impl IngestKey {
    /// `None`: the text is no key.
    pub fn new(relation: ObjectId, key: &str) -> Option<IngestKey> {
        let is_key = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
        is_key.then(|| IngestKey {
            relation,
            key: key.to_owned(),
        })
    }

    /// What is written down with the rows.
    pub fn note(&self, answered: Answered) -> Vec<u8> {
        let note = Note {
            key: self.clone(),
            answered,
        };
        serde_json::to_vec(&note).unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
enum State {
    Running,
    Done(Answered),
}

/// The keys that are known.
#[derive(Debug, Default)]
pub struct IngestKeys(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    states: HashMap<IngestKey, State>,
    /// Those that are done, the oldest first, each with its time in milliseconds.
    order: VecDeque<(i64, IngestKey)>,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Begin {
    /// It is new.
    Run(Running),
    /// It was answered before.
    Done(Answered),
    /// It is being worked on.
    Busy,
}

/// A request that is being worked on. If this is dropped it may be tried again.
#[derive(Debug)]
pub struct Running {
    keys: Arc<Mutex<Known>>,
    key: Option<IngestKey>,
}

impl IngestKeys {
    /// Enters what the logs know.
    pub fn restore(&self, notes: Vec<LogNote>) {
        let mut known = self.0.lock();
        for note in notes {
            // Other notes may come with later versions.
            if let Ok(found) = serde_json::from_slice::<Note>(&note.note) {
                known.finish(found.key, found.answered, note.written_at_ms);
            }
        }
        known.forget(now_ms());
    }

    /// Whether a note tells of no key, or of one that is remembered no more.
    pub fn is_over(&self, note: &LogNote, now_ms: i64) -> bool {
        let Ok(found) = serde_json::from_slice::<Note>(&note.note) else {
            return true;
        };
        let mut known = self.0.lock();
        known.forget(now_ms);
        !known.states.contains_key(&found.key)
    }

    /// Asks what to do with a request of this key.
    pub fn begin(&self, key: &IngestKey) -> Begin {
        let mut known = self.0.lock();
        known.forget(now_ms());
        match known.states.get(key) {
            Some(State::Running) => Begin::Busy,
            Some(State::Done(answered)) => Begin::Done(answered.clone()),
            None => {
                known.states.insert(key.clone(), State::Running);
                Begin::Run(Running {
                    keys: Arc::clone(&self.0),
                    key: Some(key.clone()),
                })
            }
        }
    }
}

impl Known {
    fn finish(&mut self, key: IngestKey, answered: Answered, at_ms: i64) {
        self.states.insert(key.clone(), State::Done(answered));
        self.order.push_back((at_ms, key));
    }

    fn forget(&mut self, now_ms: i64) {
        while let Some((at_ms, _)) = self.order.front()
            && (self.order.len() > KEYS_MAX || at_ms + AGE_MS_MAX < now_ms)
        {
            if let Some((_, key)) = self.order.pop_front() {
                self.states.remove(&key);
            }
        }
    }
}

impl Running {
    /// The request was answered.
    pub fn done(mut self, answered: Answered) {
        if let Some(key) = self.key.take() {
            self.keys.lock().finish(key, answered, now_ms());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.keys.lock().states.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> IngestKey {
        IngestKey::new(ObjectId(1), text).unwrap()
    }

    fn answered(rows: u64) -> Answered {
        Answered {
            rows,
            body: Some(9),
            ..Answered::default()
        }
    }

    #[test]
    fn notes_without_a_body_are_read() {
        let keys = IngestKeys::default();
        let note = |text: &str| LogNote {
            written_at_ms: now_ms(),
            write_id: 1,
            note: text.as_bytes().to_vec(),
        };
        keys.restore(vec![
            note(r#"{"relation": 1, "key": "a", "rows": 3}"#),
            note(r#"{"relation": 1, "key": "b", "rows": 4, "body": 18446744073709551615}"#),
        ]);
        let found = |text: &str| match keys.begin(&key(text)) {
            Begin::Done(answered) => (answered.rows, answered.rejected, answered.body),
            other => panic!("{other:?}"),
        };
        assert_eq!(found("a"), (3, 0, None));
        assert_eq!(found("b"), (4, 0, Some(u64::MAX)));
    }

    #[test]
    fn what_was_rejected_is_answered_again() {
        let keys = IngestKeys::default();
        let answered = Answered {
            rejected: 2,
            rejections: vec![Rejection {
                row: 5,
                reason: "late".to_owned(),
            }],
            ..answered(7)
        };
        keys.restore(vec![LogNote {
            written_at_ms: now_ms(),
            write_id: 1,
            note: key("a").note(answered.clone()),
        }]);
        assert!(matches!(keys.begin(&key("a")), Begin::Done(found) if found == answered));
    }

    #[test]
    fn a_request_runs_once_and_again_only_if_it_failed() {
        let keys = IngestKeys::default();
        let Begin::Run(first) = keys.begin(&key("a")) else {
            panic!("it is new");
        };
        assert!(matches!(keys.begin(&key("a")), Begin::Busy));
        drop(first);
        let Begin::Run(second) = keys.begin(&key("a")) else {
            panic!("it failed");
        };
        second.done(answered(7));
        assert!(matches!(keys.begin(&key("a")), Begin::Done(found) if found == answered(7)));
        let other = IngestKey::new(ObjectId(2), "a").unwrap();
        assert!(matches!(keys.begin(&other), Begin::Run(_)));
        assert_eq!(IngestKey::new(ObjectId(1), ""), None);
        assert_eq!(IngestKey::new(ObjectId(1), &"k".repeat(256)), None);
    }

    #[test]
    fn the_newest_are_remembered_and_no_more() {
        let keys = IngestKeys::default();
        let note = |number: usize, written_at_ms| LogNote {
            written_at_ms,
            write_id: number as u64,
            note: key(&number.to_string()).note(answered(3)),
        };
        let now = now_ms();
        let mut notes = vec![note(0, now - AGE_MS_MAX - 1000)];
        notes.extend((1..=KEYS_MAX + 5).map(|number| note(number, now)));
        notes.push(LogNote {
            written_at_ms: now,
            write_id: 0,
            note: b"something else".to_vec(),
        });
        keys.restore(notes);
        for (number, is_known) in [(0, false), (5, false), (6, true), (KEYS_MAX + 5, true)] {
            let found =
                matches!(keys.begin(&key(&number.to_string())), Begin::Done(found) if found == answered(3));
            assert_eq!(found, is_known, "{number}");
        }
    }
}
