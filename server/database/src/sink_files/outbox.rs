//! What waits for another system, in the data directory: the steps of a sink as files, and what the steps before them add up to.
//!
//! ```text
//!  outbox/<sink>/   sum-0000000120.records     what the steps below 120 add up to: rows of the relation as of then
//!                   step-0000000120.records    delivered; they stay until the next sum
//!                   step-0000000121.records    the target does not have it yet
//! ```
//! A line is `+` or `-`, the key of the record, a tab, the row. All rows that go stand before those that come. For a bucket they are the files
//! themselves, in their own form.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use millrace_catalog::sink::{FileFormat, SinkType, Target};
use millrace_connectors::target::Message;
use millrace_postgres::error::SqlResult;
use millrace_storage::{ObjectId, private};

use super::decode::damaged;
use super::directory::Directory;
use super::draft::Limits;
use super::encode::Op;

/// The directory of all of them in the data directory.
const OUTBOX: &str = "outbox";
/// A step that has more is several, each of which is sent by itself.
const STEP_LIMITS: Limits = Limits {
    rows: 100_000,
    bytes: 64 << 20,
};
const ALL_LIMITS: Limits = Limits {
    rows: u64::MAX,
    bytes: u64::MAX,
};

/// The directory of the steps of a sink, and how much is in one.
pub(crate) fn steps(target: &Target, data: &Path, sink: ObjectId) -> (Directory, Limits) {
    match target {
        Target::Files(files) => {
            let limits = Limits {
                rows: files.rows_max,
                bytes: files.bytes_max,
            };
            (Directory::of(files), limits)
        }
        Target::Bucket(bucket) => {
            let limits = Limits {
                rows: bucket.rows_max,
                bytes: bucket.bytes_max,
            };
            (Directory::at(of(data, sink), "step", form(target)), limits)
        }
        Target::Delta(delta) => {
            let limits = Limits {
                rows: delta.rows_max,
                bytes: delta.bytes_max,
            };
            (Directory::at(of(data, sink), "step", form(target)), limits)
        }
        Target::Webhook(webhook) => {
            let limits = webhook.target().map_or(STEP_LIMITS, |target| Limits {
                rows: target.rows_max,
                bytes: target.bytes_max,
            });
            (Directory::at(of(data, sink), "step", form(target)), limits)
        }
        Target::Kafka(_) | Target::Postgres(_) | Target::Subscription(_) => {
            (Directory::at(of(data, sink), "step", form(target)), STEP_LIMITS)
        }
    }
}

/// The form of what waits: that of the files that it becomes, or records.
pub(crate) fn form(target: &Target) -> FileFormat {
    target.file_format().unwrap_or(FileFormat::Records)
}

/// The directory of the sums, of which one is all rows.
pub(crate) fn sums(target: &Target, data: &Path, sink: ObjectId) -> (Directory, Limits) {
    (Directory::at(of(data, sink), "sum", form(target)), ALL_LIMITS)
}

/// Where the outbox of a sink is.
pub(crate) fn of(data: &Path, sink: ObjectId) -> PathBuf {
    data.join(OUTBOX).join(sink.0.to_string())
}

/// Makes the directory unless it is there, for a sink that has one.
pub(crate) fn create(target: &Target, data: &Path, sink: ObjectId) -> io::Result<()> {
    match target {
        Target::Files(_) => Ok(()),
        Target::Kafka(_)
        | Target::Postgres(_)
        | Target::Bucket(_)
        | Target::Webhook(_)
        | Target::Delta(_)
        | Target::Subscription(_) => private::create_directory_all(&of(data, sink)),
    }
}

/// Removes that of a sink that is dropped.
pub(crate) fn remove(data: &Path, sink: ObjectId) -> io::Result<()> {
    match fs::remove_dir_all(of(data, sink)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes those of sinks that are not there any more.
pub(crate) fn keep(data: &Path, is_kept: impl Fn(ObjectId) -> bool) -> io::Result<()> {
    let directory = data.join(OUTBOX);
    if !directory.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let sink = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // Another entry is somebody else's.
        if sink.is_some_and(|id| !is_kept(ObjectId(id))) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The messages of a step, in the order in which they are sent: at most one for each key, besides the tombstone behind a deletion.
///
/// # Errors
/// The file is not what was written.
pub(crate) fn messages(sink_type: SinkType, path: &Path, content: Vec<u8>) -> SqlResult<Vec<Message>> {
    let content = Bytes::from(content);
    let mut rows = vec![];
    let mut at = 0;
    while at < content.len() {
        let line = &content[at..];
        let end = line.iter().position(|byte| *byte == b'\n');
        let tab = line.iter().position(|byte| *byte == b'\t');
        let (Some(end), Some(tab)) = (end, tab) else {
            return Err(damaged(path));
        };
        let op = [Op::Insert, Op::Delete]
            .into_iter()
            .find(|op| op.sign() == line[0]);
        let (Some(op), true) = (op, tab < end) else {
            return Err(damaged(path));
        };
        // An empty one is none: a key is an object at least.
        let key = (tab > 1).then(|| content.slice(at + 1..at + tab));
        rows.push((op, key, content.slice(at + tab + 1..at + end)));
        at += end + 1;
    }
    Ok(match sink_type {
        SinkType::AppendOnly | SinkType::ForcedAppendOnly | SinkType::Changelog => rows
            .into_iter()
            .map(|(_, key, value)| Message {
                key,
                value: Some(value),
            })
            .collect(),
        SinkType::Upsert => (pairs(rows).into_iter())
            .map(|(key, pair)| Message {
                key,
                value: pair.after,
            })
            .collect(),
        SinkType::Debezium => (pairs(rows).into_iter())
            .flat_map(|(key, pair)| envelope(key, &pair))
            .collect(),
    })
}

/// What became of a key.
#[derive(Default)]
struct Pair {
    before: Option<Bytes>,
    after: Option<Bytes>,
}

/// The keys that changed, in the order of their first rows.
fn pairs(rows: Vec<(Op, Option<Bytes>, Bytes)>) -> Vec<(Option<Bytes>, Pair)> {
    let mut places: HashMap<Option<Bytes>, usize> = HashMap::with_capacity(rows.len());
    let mut pairs: Vec<(Option<Bytes>, Pair)> = vec![];
    for (op, key, value) in rows {
        let place = match places.entry(key) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(free) => {
                pairs.push((free.key().clone(), Pair::default()));
                *free.insert(pairs.len() - 1)
            }
        };
        let pair = &mut pairs[place].1;
        match op {
            Op::Delete => pair.before = Some(value),
            Op::Insert => pair.after = Some(value),
        }
    }
    pairs.retain(|(_, pair)| pair.before != pair.after);
    pairs
}

/// A change as Debezium has it.
fn envelope(key: Option<Bytes>, pair: &Pair) -> impl Iterator<Item = Message> + use<> {
    let null = Bytes::from_static(b"null");
    let before = pair.before.as_ref().unwrap_or(&null);
    let after = pair.after.as_ref().unwrap_or(&null);
    let op = match (&pair.before, &pair.after) {
        (None, _) => 'c',
        (Some(_), Some(_)) => 'u',
        (Some(_), None) => 'd',
    };
    let mut value = BytesMut::with_capacity(before.len() + after.len() + 40);
    value.put_slice(b"{\"before\":");
    value.put_slice(before);
    value.put_slice(b",\"after\":");
    value.put_slice(after);
    value.put_slice(format!(",\"op\":\"{op}\"}}").as_bytes());
    let change = Message {
        key: key.clone(),
        value: Some(value.freeze()),
    };
    let tombstone = (op == 'd').then_some(Message { key, value: None });
    std::iter::once(change).chain(tombstone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sink_type: SinkType, step: &str) -> Vec<String> {
        let messages = messages(sink_type, Path::new("step"), step.as_bytes().to_vec()).unwrap();
        let text = |bytes: Option<Bytes>| match bytes {
            Some(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            None => "none".to_owned(),
        };
        messages
            .into_iter()
            .map(|message| format!("{} {}", text(message.key), text(message.value)))
            .collect()
    }

    const STEP: &str = "-1\ta\n-2\tb\n-3\tc\n+2\tB\n+3\tc\n+4\td\n";

    #[test]
    fn a_key_has_one_record_in_a_step() {
        assert_eq!(shown(SinkType::Upsert, STEP), ["1 none", "2 B", "4 d"]);
        assert_eq!(
            shown(SinkType::Debezium, STEP),
            [
                r#"1 {"before":a,"after":null,"op":"d"}"#,
                "1 none",
                r#"2 {"before":b,"after":B,"op":"u"}"#,
                r#"4 {"before":null,"after":d,"op":"c"}"#,
            ]
        );
    }

    #[test]
    fn rows_without_keys_are_all_there() {
        assert_eq!(
            shown(SinkType::AppendOnly, "+\ta\n+\ta\n+k\tb\n"),
            ["none a", "none a", "k b"]
        );
    }

    #[test]
    fn what_is_damaged_is_not_sent() {
        for cut in 1..STEP.len() {
            let step = STEP.as_bytes()[..cut].to_vec();
            let is_whole = step.ends_with(b"\n");
            let found = messages(SinkType::Upsert, Path::new("step"), step);
            assert_eq!(found.is_ok(), is_whole, "{cut}");
        }
        for step in ["a\tb\n", "\n", "+a\n"] {
            assert!(messages(SinkType::Upsert, Path::new("step"), step.into()).is_err());
        }
    }
}
