//! Histories of transactions, and what is wrong with them: which isolation they cannot have had.
//!
//! Each write puts a value that no other puts, and each read tells the version that it saw. So it is known which transaction made a version,
//! which one replaced it, and who read it in between. That gives three kinds of edges among transactions, and an anomaly is a cycle of
//! them (Adya's generalised isolation levels; found from histories alone as Elle does, Kingsbury and Alvaro 2020):
//!
//! ```text
//!   ww   made a version -> made the next one               G0         a cycle of ww
//!   wr   made a version -> read it                         G1c        of ww and wr
//!   rw   read a version -> made the next one               G-single   with one rw
//!                                                          G2         with any number of rw
//! ```
//!
//! A key is read as a list of all values ever appended, which tells its whole past, or as a register, which tells its last value and how
//! often it was written. READ COMMITTED has no G0 and no G1; a transaction of one statement has none at all.

mod graph;

use std::collections::{BTreeMap, BTreeSet};

use graph::{Edge, Graph};

/// What a key is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    List,
    Register,
}

/// A key as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// All values, in the order in which they were appended.
    pub list: Vec<i64>,
    /// How often it was written.
    pub version: usize,
    /// The value that was written last; 0: none.
    pub last: i64,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Write { key: i64, value: i64 },
    Read { key: i64, seen: Seen },
}

/// How a transaction ended, as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Committed,
    Aborted,
    /// COMMIT was sent, and there was no answer.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub operations: Vec<Operation>,
    pub end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two reads of a list do not tell one past, or the versions of a register do not fit.
    Incompatible,
    /// A write that was acknowledged is not there, or one is there only in part.
    Lost,
    /// A transaction does not see what it has done itself.
    Internal,
    G0,
    /// A version of a transaction that was aborted was read.
    G1a,
    /// One that its transaction replaced itself was.
    G1b,
    G1c,
    GSingle,
    G2,
}

/// What READ COMMITTED rules out.
pub const READ_COMMITTED: [Anomaly; 7] = [
    Anomaly::Incompatible,
    Anomaly::Lost,
    Anomaly::Internal,
    Anomaly::G0,
    Anomaly::G1a,
    Anomaly::G1b,
    Anomaly::G1c,
];

/// The versions of a key, by number from 1, and who made each.
type Versions = BTreeMap<usize, i64>;

/// What is wrong with a history, one example of each kind. `last` is what was read when all was over.
pub fn check(history: &[Transaction], last: &BTreeMap<i64, Seen>, model: Model) -> BTreeMap<Anomaly, String> {
    let mut checking = Checking {
        history,
        model,
        versions: BTreeMap::new(),
        writers: BTreeMap::new(),
        found: BTreeMap::new(),
    };
    checking.collect(last);
    checking.writes(last);
    checking.reads();
    checking.cycles();
    checking.found
}

struct Checking<'a> {
    history: &'a [Transaction],
    model: Model,
    versions: BTreeMap<i64, Versions>,
    /// The transaction that wrote a value of a key.
    writers: BTreeMap<(i64, i64), usize>,
    found: BTreeMap<Anomaly, String>,
}

impl Checking<'_> {
    fn found(&mut self, anomaly: Anomaly, what: impl FnOnce() -> String) {
        self.found.entry(anomaly).or_insert_with(what);
    }

    /// Learns the versions of each key from all reads.
    fn collect(&mut self, last: &BTreeMap<i64, Seen>) {
        // What another has read may be its own, and gone with it.
        let committed = self
            .history
            .iter()
            .filter(|transaction| transaction.end == End::Committed);
        let reads = committed.flat_map(|transaction| &transaction.operations);
        let reads = reads.filter_map(|operation| match operation {
            Operation::Read { key, seen } => Some((*key, seen)),
            Operation::Write { .. } => None,
        });
        let all: Vec<(i64, &Seen)> = reads.chain(last.iter().map(|(key, seen)| (*key, seen))).collect();
        for (key, seen) in all {
            let told: Vec<(usize, i64)> = match self.model {
                Model::List => (1..).zip(seen.list.iter().copied()).collect(),
                Model::Register => Some((seen.version, seen.last))
                    .filter(|(version, _)| *version > 0)
                    .into_iter()
                    .collect(),
            };
            for (version, value) in told {
                let versions = self.versions.entry(key).or_default();
                let known = *versions.entry(version).or_insert(value);
                if known != value {
                    self.found(Anomaly::Incompatible, || {
                        format!("version {version} of key {key} was read as {known} and as {value}")
                    });
                }
            }
        }
        for (key, seen) in last {
            let end = self.version(seen);
            let known = self
                .versions
                .get(key)
                .and_then(|versions| versions.keys().next_back());
            if let Some(known) = known.copied().filter(|known| *known > end) {
                self.found(Anomaly::Lost, || {
                    format!("version {known} of key {key} was read, and there are {end}")
                });
            }
        }
        for (transaction, of) in self.history.iter().enumerate() {
            for operation in &of.operations {
                if let Operation::Write { key, value } = operation {
                    self.writers.insert((*key, *value), transaction);
                }
            }
        }
    }

    /// Whether each write is there that was acknowledged, and all of a transaction or nothing.
    fn writes(&mut self, last: &BTreeMap<i64, Seen>) {
        for (number, transaction) in self.history.iter().enumerate() {
            let writes = self.written(transaction);
            let is_there =
                |(key, value): &(i64, i64)| last.get(key).is_some_and(|seen| seen.list.contains(value));
            let there = writes.iter().filter(|write| is_there(write)).count();
            let is_whole = match (self.model, transaction.end) {
                // Of a register only those versions are known that were read.
                (Model::Register, _) | (_, End::Aborted) => true,
                (Model::List, End::Committed) => there == writes.len(),
                (Model::List, End::Unknown) => there == 0 || there == writes.len(),
            };
            if !is_whole {
                let count = writes.len();
                self.found(Anomaly::Lost, || {
                    format!("of the {count} writes of transaction {number} {there} are there")
                });
            }
        }
    }

    fn written(&self, transaction: &Transaction) -> Vec<(i64, i64)> {
        let writes = transaction
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Write { key, value } => Some((*key, *value)),
                Operation::Read { .. } => None,
            });
        writes.collect()
    }

    fn version(&self, seen: &Seen) -> usize {
        match self.model {
            Model::List => seen.list.len(),
            Model::Register => seen.version,
        }
    }

    fn reads(&mut self) {
        let history = self.history;
        let committed = history.iter().enumerate();
        for (number, transaction) in committed.filter(|(_, transaction)| transaction.end == End::Committed) {
            let mut own: BTreeMap<i64, i64> = BTreeMap::new();
            for operation in &transaction.operations {
                let (key, seen) = match operation {
                    Operation::Write { key, value } => {
                        own.insert(*key, *value);
                        continue;
                    }
                    Operation::Read { key, seen } => (*key, seen),
                };
                let value = match self.model {
                    Model::List => seen.list.last().copied().unwrap_or(0),
                    Model::Register => seen.last,
                };
                if let Some(own) = own.get(&key) {
                    if *own != value {
                        self.found(Anomaly::Internal, || {
                            format!("transaction {number} wrote {own} to key {key} and read {value}")
                        });
                    }
                    continue;
                }
                let Some(writer) = self.writers.get(&(key, value)).copied() else {
                    continue;
                };
                if history[writer].end == End::Aborted {
                    self.found(Anomaly::G1a, || {
                        format!("transaction {number} read {value} of key {key}, and transaction {writer} was aborted")
                    });
                }
                let writes = self.written(&history[writer]);
                let last = writes.iter().rev().find(|(of, _)| *of == key);
                if writer != number && last.is_some_and(|(_, last)| *last != value) {
                    self.found(Anomaly::G1b, || {
                        format!("transaction {number} read {value} of key {key}, which transaction {writer} replaced")
                    });
                }
            }
        }
    }

    /// The transactions that are there, each after what it stands on.
    fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.history.len());
        for (key, versions) in &self.versions {
            let made = |value: &i64| self.writers.get(&(*key, *value)).copied();
            let makers: Vec<(usize, usize)> = versions
                .iter()
                .filter_map(|(version, value)| Some((*version, made(value)?)))
                .collect();
            for pair in makers.windows(2) {
                graph.add(pair[0].1, pair[1].1, Edge::WriteWrite);
            }
            let readers = self.history.iter().enumerate();
            for (reader, transaction) in readers.filter(|(_, transaction)| transaction.end == End::Committed)
            {
                let mut has_written = false;
                for operation in &transaction.operations {
                    match operation {
                        Operation::Write { key: of, .. } => has_written |= of == key,
                        // What it has done itself tells nothing of others.
                        Operation::Read { key: of, seen } if of == key && !has_written => {
                            let version = self.version(seen);
                            let known = makers.iter().rev().find(|(known, _)| *known <= version);
                            let next = makers.iter().find(|(known, _)| *known > version);
                            if let Some((_, maker)) = known.filter(|(known, _)| *known == version) {
                                graph.add(*maker, reader, Edge::WriteRead);
                            }
                            if let Some((_, maker)) = next {
                                graph.add(reader, *maker, Edge::ReadWrite);
                            }
                        }
                        Operation::Read { .. } => {}
                    }
                }
            }
        }
        graph
    }

    fn cycles(&mut self) {
        let graph = self.graph();
        let told = |cycle: Vec<(usize, Edge)>| {
            let steps: Vec<String> = cycle
                .iter()
                .map(|(transaction, edge)| {
                    let of = &self.history[*transaction];
                    format!("{transaction} ({:?}) -{}-> ", of.operations, edge.name())
                })
                .collect();
            format!(
                "{}{}",
                steps.concat(),
                cycle.first().map_or(0, |(first, _)| *first)
            )
        };
        let writes = BTreeSet::from([Edge::WriteWrite]);
        let committed = BTreeSet::from([Edge::WriteWrite, Edge::WriteRead]);
        let all = BTreeSet::from([Edge::WriteWrite, Edge::WriteRead, Edge::ReadWrite]);
        let found = [
            (Anomaly::G0, graph.cycle(&writes)),
            (Anomaly::G1c, graph.cycle(&committed)),
            (
                Anomaly::GSingle,
                graph.cycle_through_one(Edge::ReadWrite, &committed),
            ),
            (Anomaly::G2, graph.cycle(&all)),
        ];
        let found: Vec<(Anomaly, String)> = found
            .into_iter()
            .filter_map(|(anomaly, cycle)| Some((anomaly, told(cycle?))))
            .collect();
        for (anomaly, what) in found {
            self.found(anomaly, || what);
        }
    }
}

#[cfg(test)]
mod tests;
