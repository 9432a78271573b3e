//! The log of a table: versions, of which each is a file of actions, and checkpoints of what they come to.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions};
use serde_json::{Value, json};

use super::checkpoint;
use crate::files::store::Place;
use crate::source::ConnectorError;

/// The folder of the log within the table.
const FOLDER: &str = "_delta_log";
/// The file that says which checkpoint is the newest.
const LAST: &str = "_last_checkpoint";
/// Files that are read at once.
const READS: usize = 16;

/// What a sink needs to know of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    /// The newest version; none: there is no table.
    pub version: Option<u64>,
    pub protocol: Value,
    pub metadata: Value,
    /// The last step that is there of the sink.
    pub step: Option<u64>,
    /// Its checksum.
    pub sum: Option<u32>,
}

/// The name under which the checksum of a sink's last step stands.
pub(super) fn sum_of(id: &str) -> String {
    format!("{id}/sum")
}

impl State {
    /// Takes what a version says. `id`: that of the sink.
    ///
    /// # Errors
    /// It is not one.
    pub fn apply(&mut self, version: u64, content: &[u8], id: &str) -> Result<(), String> {
        for action in actions(content)? {
            self.take(&action, id);
        }
        self.version = Some(version);
        Ok(())
    }

    fn take(&mut self, action: &Value, id: &str) {
        for (name, member) in [("protocol", &mut self.protocol), ("metaData", &mut self.metadata)] {
            if let Some(new) = action.get(name).filter(|new| !new.is_null()) {
                *member = new.clone();
            }
        }
        let Some(transaction) = action.get("txn") else {
            return;
        };
        let version = transaction["version"].as_u64();
        match transaction["appId"].as_str() {
            Some(app) if app == id => self.step = version,
            Some(app) if app == sum_of(id) => self.sum = version.and_then(|sum| u32::try_from(sum).ok()),
            _ => {}
        }
    }
}

/// The actions of a version.
pub(super) fn actions(content: &[u8]) -> Result<Vec<Value>, String> {
    let lines = content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty());
    let read = |line: &[u8]| serde_json::from_slice(line).map_err(|error| error.to_string());
    lines.map(read).collect()
}

/// What there is of the log from the newest checkpoint on.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// The version of the checkpoint, and its files.
    checkpoint: Option<(u64, Vec<String>)>,
    /// Versions behind it.
    commits: Vec<u64>,
}

/// The log of the table at a place.
pub(super) struct Log<'p>(&'p Place);

impl<'p> Log<'p> {
    pub fn new(place: &'p Place) -> Log<'p> {
        Log(place)
    }

    fn path(&self, name: &str) -> Path {
        self.0.at(&format!("{FOLDER}/{name}"))
    }

    fn failed(&self, error: &Error) -> ConnectorError {
        self.0.failed(error).into()
    }

    fn broken(&self, why: &str) -> ConnectorError {
        let log = self.0.shown(&self.0.at(FOLDER));
        ConnectorError::lasting(
            format!("the log of the table, {log}, cannot be read: {why}"),
            "Repair the table, or use another path.",
        )
    }

    /// A file of the log; none: there is none of that name.
    async fn file(&self, name: &str) -> Result<Option<Bytes>, ConnectorError> {
        match self.0.store.get(&self.path(name)).await {
            Ok(found) => found.bytes().await.map(Some).map_err(|error| self.failed(&error)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn needed(&self, name: String) -> Result<Bytes, ConnectorError> {
        let found = self.file(&name).await?;
        found.ok_or_else(|| ConnectorError::passing(format!("\"{name}\" is gone from the log of the table")))
    }

    /// What there is, up to a version.
    async fn find(&self, up_to: u64) -> Result<Found, ConnectorError> {
        let hint = self.file(LAST).await?;
        let hint: Option<Value> = hint.and_then(|hint| serde_json::from_slice(&hint).ok());
        let after = hint
            .and_then(|hint| hint["version"].as_u64())
            .filter(|version| *version <= up_to);
        let found = self.list(after, up_to).await?;
        match (after, &found.checkpoint) {
            // What it says is not there: everything is looked at.
            (Some(_), None) => self.list(None, up_to).await,
            _ => Ok(found),
        }
    }

    async fn list(&self, after: Option<u64>, up_to: u64) -> Result<Found, ConnectorError> {
        let folder = self.path("");
        let mut files = match after {
            Some(version) => {
                let offset = self.path(&format!("{version:020}"));
                self.0.store.list_with_offset(Some(&folder), &offset)
            }
            None => self.0.store.list(Some(&folder)),
        };
        let mut names = vec![];
        while let Some(meta) = files.try_next().await.map_err(|error| self.failed(&error))? {
            names.extend(meta.location.filename().map(str::to_owned));
        }
        found(names, up_to).map_err(|why| self.broken(&why))
    }

    /// What a sink needs to know, of the newest version.
    ///
    /// # Errors
    /// The log cannot be read, or has gaps.
    pub async fn read(&self, id: &str) -> Result<State, ConnectorError> {
        let found = self.find(u64::MAX).await?;
        let mut state = State::default();
        if let Some((version, parts)) = found.checkpoint {
            for part in parts {
                let content = self.needed(part).await?;
                let read = tokio::task::spawn_blocking(move || {
                    checkpoint::actions(content, &["protocol", "metaData", "txn"])
                });
                let actions = read
                    .await
                    .map_err(|error| ConnectorError::passing(error.to_string()))?;
                for action in actions.map_err(|why| self.broken(&why))? {
                    state.take(&action, id);
                }
            }
            state.version = Some(version);
        }
        let mut commits =
            stream::iter(found.commits)
                .map(|version| async move {
                    Ok::<_, ConnectorError>((version, self.needed(name(version)).await?))
                })
                .buffered(READS);
        while let Some((version, content)) = commits.try_next().await? {
            state
                .apply(version, &content, id)
                .map_err(|why| self.broken(&why))?;
        }
        Ok(state)
    }

    /// Takes the versions that have come since.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn read_on(&self, state: &mut State, id: &str) -> Result<(), ConnectorError> {
        loop {
            let next = state.version.map_or(0, |version| version + 1);
            let Some(content) = self.file(&name(next)).await? else {
                return Ok(());
            };
            state.apply(next, &content, id).map_err(|why| self.broken(&why))?;
        }
    }

    /// Makes a version. False: there is one already.
    ///
    /// # Errors
    /// The place does not answer, or refuses.
    pub async fn write(&self, version: u64, content: String) -> Result<bool, ConnectorError> {
        let path = self.path(&name(version));
        let create = PutOptions::from(PutMode::Create);
        match self.0.store.put_opts(&path, content.into(), create).await {
            Ok(_) => {
                self.0.persist(&path).await?;
                Ok(true)
            }
            Err(Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Makes a checkpoint of a version, so that nobody has to read all versions before.
    ///
    /// # Errors
    /// The log has what is not understood here, or the place does not answer.
    pub async fn write_checkpoint(&self, version: u64, now_ms: i64) -> Result<(), ConnectorError> {
        let found = self.find(version).await?;
        if found
            .checkpoint
            .as_ref()
            .is_some_and(|(last, _)| *last == version)
        {
            return Ok(());
        }
        let mut old = vec![];
        for part in found.checkpoint.into_iter().flat_map(|(_, parts)| parts) {
            old.push(self.needed(part).await?);
        }
        let commits: Vec<Bytes> = stream::iter(found.commits)
            .map(|version| self.needed(name(version)))
            .buffered(READS)
            .try_collect()
            .await?;
        let made = tokio::task::spawn_blocking(move || checkpoint::make(old, &commits, now_ms)).await;
        let (content, actions) = made
            .map_err(|error| ConnectorError::passing(error.to_string()))?
            .map_err(ConnectorError::passing)?;
        let put = |name: String, content: Bytes| async move {
            let written = self.0.store.put(&self.path(&name), content.into()).await;
            written.map_err(|error| self.failed(&error))
        };
        put(format!("{version:020}.checkpoint.parquet"), content.into()).await?;
        let last = json!({"version": version, "size": actions}).to_string();
        put(LAST.to_owned(), last.into()).await?;
        Ok(())
    }
}

fn name(version: u64) -> String {
    format!("{version:020}.json")
}

/// The newest complete checkpoint among files, and the versions behind it, up to one.
fn found(names: Vec<String>, up_to: u64) -> Result<Found, String> {
    let mut commits = vec![];
    // By version and number of parts.
    let mut checkpoints: BTreeMap<(u64, usize), Vec<String>> = BTreeMap::new();
    for name in names {
        let parts: Vec<&str> = name.split('.').collect();
        let version = parts[0].parse::<u64>().ok();
        let Some(version) = version.filter(|version| parts[0].len() == 20 && *version <= up_to) else {
            continue;
        };
        let of = match parts[1..] {
            ["json"] => {
                commits.push(version);
                continue;
            }
            ["checkpoint", "parquet"] => 1,
            ["checkpoint", _, of, "parquet"] => of
                .parse()
                .map_err(|_| format!("\"{name}\" is not a checkpoint"))?,
            // Of another kind, or another file.
            _ => continue,
        };
        checkpoints.entry((version, of)).or_default().push(name);
    }
    let complete = checkpoints
        .into_iter()
        .rfind(|((_, of), parts)| parts.len() == *of);
    let checkpoint = complete.map(|((version, _), mut parts)| {
        parts.sort_unstable();
        (version, parts)
    });
    let first = checkpoint.as_ref().map_or(0, |(version, _)| version + 1);
    commits.retain(|version| *version >= first);
    commits.sort_unstable();
    if let Some((expected, found)) = (first..)
        .zip(&commits)
        .find(|(expected, found)| expected != *found)
    {
        return Err(format!("version {expected} is missing, and {found} is there"));
    }
    Ok(Found { checkpoint, commits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_found() {
        let of =
            |names: &[&str], up_to: u64| found(names.iter().map(|name| (*name).to_owned()).collect(), up_to);
        let commit = |version: u64| name(version);
        let single = "00000000000000000002.checkpoint.parquet";
        let halves = [
            "00000000000000000003.checkpoint.0000000001.0000000002.parquet",
            "00000000000000000003.checkpoint.0000000002.0000000002.parquet",
        ];
        let commits: Vec<String> = (0..5).map(commit).collect();
        let mut all: Vec<&str> = commits.iter().map(String::as_str).rev().collect();
        assert_eq!(of(&[], 9), Ok(Found::default()));
        assert_eq!(of(&all, 9).unwrap().commits, [0, 1, 2, 3, 4]);
        all.extend([
            single,
            halves[1],
            "_last_checkpoint",
            "00000000000000000004.crc",
            "x.json",
        ]);
        let found = of(&all, 9).unwrap();
        assert_eq!(found.checkpoint, Some((2, vec![single.to_owned()])));
        assert_eq!(found.commits, [3, 4]);
        all.push(halves[0]);
        let found = of(&all, 9).unwrap();
        assert_eq!(found.checkpoint, Some((3, halves.map(str::to_owned).to_vec())));
        assert_eq!(found.commits, [4]);
        let found = of(&all, 2).unwrap();
        assert_eq!((found.checkpoint.unwrap().0, found.commits), (2, vec![]));
        assert!(of(&[&commit(0), &commit(2)], 9).is_err());
        assert!(of(&[&commit(1)], 9).is_err());
    }

    #[test]
    fn the_newest_word_counts() {
        let mut state = State::default();
        let first = r#"{"protocol": {"minReaderVersion": 1}}
            {"txn": {"appId": "a", "version": 3}}
            {"txn": {"appId": "a/sum", "version": 7}}
            {"txn": {"appId": "b", "version": 9}}"#;
        state.apply(0, first.as_bytes(), "a").unwrap();
        assert_eq!(
            (state.step, state.sum, state.version),
            (Some(3), Some(7), Some(0))
        );
        state
            .apply(1, b"{\"txn\": {\"appId\": \"a\", \"version\": 4}}\n", "a")
            .unwrap();
        assert_eq!((state.step, state.version), (Some(4), Some(1)));
        assert_eq!(state.protocol, json!({"minReaderVersion": 1}));
        assert!(state.apply(2, b"{", "a").is_err());
    }
}
