//! The log against its promises: what goes in comes out, in order, whatever is cut, flipped, full or failing.

mod base;
mod crash;
mod failure;
mod faults;
mod index;
mod maintenance;
mod merge;
mod notes;
mod order;
mod round_trip;
mod simulated;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};

use super::*;
use crate::disk::{Disk, OsDisk};
use crate::{ChangeBatch, Durability, StorageError};

fn options() -> LogOptions {
    LogOptions {
        durability: Durability::Group,
        segment_bytes_max: 64 << 20,
        group_commit_delay_ms_max: 0,
        queue_bytes_max: 64 << 20,
    }
}

fn open(dir: &Path) -> LogStore {
    LogStore::open(&dir.join("log"), options()).unwrap()
}

/// A log without damage, or the first damage.
fn whole(log: LogStore) -> Result<LogStore, StorageError> {
    let damage = log
        .relations()
        .into_iter()
        .find_map(|relation| log.damage(relation));
    damage.map_or(Ok(log), Err)
}

fn open_with(dir: &Path, disk: Arc<dyn Disk>) -> LogStore {
    LogStore::open_with(&dir.join("log"), options(), disk).unwrap()
}

fn one_column() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

fn values(values: &[i64]) -> ChangeBatch {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    ChangeBatch::insertions(RecordBatch::try_new(one_column(), vec![column]).unwrap())
}

fn write(relation: u64, content: &[i64]) -> LogWrite {
    LogWrite {
        relation,
        changes: values(content),
    }
}

/// Appends and waits.
fn append(log: &LogStore, writes: Vec<LogWrite>) -> Result<Vec<Appended>, StorageError> {
    log.append(writes).wait()
}

/// As if the last stop had been a crash: nothing says how far the logs were durable.
fn as_after_a_crash(dir: &Path) {
    let _ = std::fs::remove_file(heads::path(&dir.join("log")));
}

/// All values of a relation, checking that offsets have no gaps.
fn contents(log: &LogStore, relation: u64) -> Vec<i64> {
    let mut found = Vec::new();
    for block in log.read(relation, 0, u64::MAX).unwrap() {
        let block = block.unwrap();
        assert_eq!(block.first_offset, found.len() as u64);
        found.extend(block.changes.rows.column(0).as_primitive::<Int64Type>().values());
    }
    assert_eq!(log.head(relation), found.len() as u64);
    found
}

/// Who needs every row.
struct Everything;

impl LogOwner for Everything {
    fn needed(&self, _: u64) -> u64 {
        0
    }

    fn settled(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }
}

/// Valid bytes for the decoder of this name.
pub(crate) fn samples(decoder: &str) -> Vec<Vec<u8>> {
    if decoder == "log_index" {
        return vec![index::some_index()];
    }
    if decoder == "log_first" {
        let with_base = first::First {
            offset: 5,
            write_id: 7,
            base_end: 9,
        };
        return [first::First::default(), with_base]
            .map(|first| first.encode())
            .into();
    }
    round_trip::shapes()
        .into_iter()
        .map(|(schema, changes)| {
            let dir = tempfile::tempdir().unwrap();
            let log = open(dir.path());
            log.create(1, schema).unwrap();
            let changes = LogWrite { relation: 1, changes };
            let prepared = log.prepare(vec![changes], b"a note").unwrap();
            log.submit(prepared).wait().unwrap();
            std::fs::read(dir.path().join("log/1").join(segment::file_name(0))).unwrap()
        })
        .collect()
}
