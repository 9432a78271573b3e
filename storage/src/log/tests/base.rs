//! The log of a table, whose changes are added up: the rows stay, whatever is read, held, cut off or failing meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::StringArray;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::disk::simulated::{Fault, Faults, SimulatedDisk};

const ROOT: &str = "/simulated";
const TABLE: u64 = 1;
const OTHER: u64 = 2;

/// Who needs nothing in front of an offset, and knows how many rows the table has.
struct Table {
    rows: u64,
    settled: u64,
    /// The note that is needed.
    note: Option<&'static [u8]>,
}

impl Table {
    fn of(rows: usize) -> Table {
        Table {
            rows: rows as u64,
            settled: u64::MAX,
            note: None,
        }
    }
}

impl LogOwner for Table {
    fn needed(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn settled(&self, _: u64) -> u64 {
        self.settled
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn rows(&self, relation: u64) -> Option<u64> {
        (relation == TABLE).then_some(self.rows)
    }

    fn spare_rows(&self) -> u64 {
        8
    }

    fn needs_note(&self, note: &LogNote) -> bool {
        self.note.is_some_and(|needed| note.note == needed)
    }
}

fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ]))
}

type Row = (i64, String);

fn changes(rows: &[(Row, i64)]) -> ChangeBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(
        rows.iter().map(|((key, _), _)| *key),
    ));
    let values = rows.iter().map(|((_, value), _)| value.as_str());
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(values));
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, weight)| *weight));
    let rows = RecordBatch::try_new(columns(), vec![keys, values]).unwrap();
    ChangeBatch::new(rows, Some(weights)).unwrap()
}

/// What the changes in a log add up to.
fn rows_of(log: &LogStore) -> BTreeMap<Row, i64> {
    let mut found = BTreeMap::new();
    let mut next = log.first(TABLE);
    for block in log.read(TABLE, 0, u64::MAX).unwrap() {
        let block = block.unwrap();
        assert_eq!(block.first_offset, next);
        next += block.changes.num_rows() as u64;
        let keys = block.changes.rows.column(0).as_primitive::<Int64Type>().clone();
        let values = block.changes.rows.column(1).as_string::<i32>().clone();
        for row in 0..keys.len() {
            let entry = (keys.value(row), values.value(row).to_owned());
            *found.entry(entry).or_default() += block.changes.weight(row);
        }
    }
    assert_eq!(log.head(TABLE), next);
    found.retain(|_, count| *count != 0);
    found
}

/// A table of a few keys, and what is to be in it.
#[derive(Default)]
struct Model {
    rows: BTreeMap<i64, String>,
    /// What there would be if the last write, which failed, had been done all the same.
    doubtful: Option<BTreeMap<i64, String>>,
    writes: u64,
}

impl Model {
    /// Changes some keys, also in a write to another log now and then.
    fn change(&mut self, log: &LogStore, random: &mut StdRng, keys: i64) -> bool {
        let mut after = self.rows.clone();
        let mut changed = vec![];
        for _ in 0..random.random_range(1..4) {
            let key = random.random_range(0..keys);
            self.writes += 1;
            if let Some(old) = after.remove(&key) {
                changed.push(((key, old), -1));
            }
            if random.random_bool(0.8) {
                let new = format!("v{}", self.writes % 5);
                changed.push(((key, new.clone()), 1));
                after.insert(key, new);
            }
        }
        if changed.is_empty() {
            return true;
        }
        let mut parts = vec![LogWrite {
            relation: TABLE,
            changes: changes(&changed),
        }];
        if random.random_bool(0.3) {
            parts.push(write(OTHER, &[self.writes as i64]));
        }
        match append(log, parts) {
            Ok(_) => self.rows = after,
            Err(_) => self.doubtful = Some(after),
        }
        self.doubtful.is_none()
    }

    /// Whether a log has the rows; what was in doubt is known then.
    fn check(&mut self, log: &LogStore) {
        let found = rows_of(log);
        let of = |rows: &BTreeMap<i64, String>| -> BTreeMap<Row, i64> {
            rows.iter()
                .map(|(key, value)| ((*key, value.clone()), 1))
                .collect()
        };
        if let Some(doubtful) = self.doubtful.take()
            && of(&doubtful) == found
        {
            self.rows = doubtful;
        }
        assert_eq!(found, of(&self.rows));
    }
}

fn open_on(disk: &SimulatedDisk) -> Result<LogStore, StorageError> {
    let options = LogOptions {
        segment_bytes_max: 3000,
        ..options()
    };
    let directory = Path::new(ROOT).join("log");
    LogStore::open_with(&directory, options, Arc::new(disk.clone())).and_then(whole)
}

fn started(seed: u64) -> (SimulatedDisk, LogStore) {
    let disk = SimulatedDisk::new(seed, Path::new(ROOT));
    let log = open_on(&disk).unwrap();
    log.create(TABLE, columns()).unwrap();
    log.create(OTHER, one_column()).unwrap();
    (disk, log)
}

fn files(disk: &SimulatedDisk, extension: &str) -> Vec<String> {
    let listed = disk.list(&Path::new(ROOT).join("log/1")).unwrap();
    let names = listed
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(extension)).collect();
    names.sort();
    names
}

/// So many writes with maintenance in between, until one fails.
fn load(log: &LogStore, model: &mut Model, random: &mut StdRng, writes: usize) {
    for _ in 0..writes {
        if !model.change(log, random, 6) {
            return;
        }
        if random.random_bool(0.15) {
            let owner = Table::of(model.rows.len());
            log.maintain(0, &owner);
            log.shrink(&owner);
        }
    }
}

#[test]
fn a_log_is_never_much_larger_than_its_rows() {
    for seed in 0..10 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut disk, mut log) = started(seed);
        let mut model = Model::default();
        for _ in 0..4 {
            load(&log, &mut model, &mut random, 120);
            let owner = Table::of(model.rows.len());
            (0..3).for_each(|_| log.shrink(&owner));
            let changes = log.head(TABLE) - log.first(TABLE);
            assert!(
                changes <= 2 * model.rows.len() as u64 + 8,
                "seed {seed}: {changes} changes"
            );
            assert!(files(&disk, ".base").len() <= 1, "seed {seed}");
            assert!(files(&disk, ".seg").len() <= 6, "seed {seed}");
            model.check(&log);
            // What was written is found again, and is a part of what comes.
            drop(log);
            disk = disk.kill();
            log = open_on(&disk).unwrap();
            model.check(&log);
        }
        assert!(log.first(TABLE) > 300, "seed {seed}: {}", log.first(TABLE));
    }
}

#[test]
fn a_table_without_rows_has_no_base() {
    let (disk, log) = started(1);
    for key in 0..20 {
        let row = |weight| ((key, "v".to_owned()), weight);
        append(
            &log,
            vec![LogWrite {
                relation: TABLE,
                changes: changes(&[row(1), row(-1)]),
            }],
        )
        .unwrap();
    }
    log.shrink(&Table::of(0));
    assert_eq!((log.first(TABLE), log.head(TABLE)), (40, 40));
    assert_eq!(files(&disk, ".base"), Vec::<String>::new());
    drop(log);
    let log = open_on(&disk.kill()).unwrap();
    assert_eq!((log.first(TABLE), log.head(TABLE)), (40, 40));
}

/// A table whose rows come often at once, of which some copies go.
#[test]
fn copies_are_counted() {
    let (disk, log) = started(1);
    let put = |rows: &[(&str, i64)]| {
        let rows: Vec<(Row, i64)> = rows
            .iter()
            .map(|(value, weight)| ((1, (*value).to_owned()), *weight))
            .collect();
        append(
            &log,
            vec![LogWrite {
                relation: TABLE,
                changes: changes(&rows),
            }],
        )
        .unwrap();
    };
    put(&[("a", 3), ("b", 1), ("a", 2)]);
    put(&[("a", -4), ("c", 0)]);
    (0..10).for_each(|_| put(&[("b", 1), ("b", -1)]));
    let before = rows_of(&log);
    assert_eq!(
        before,
        [((1, "a".to_owned()), 1), ((1, "b".to_owned()), 1)].into()
    );
    log.shrink(&Table::of(2));
    assert_eq!(log.head(TABLE) - log.first(TABLE), 2);
    assert_eq!(rows_of(&log), before);
    drop(log);
    assert_eq!(rows_of(&open_on(&disk.kill()).unwrap()), before);
}

#[test]
fn what_somebody_may_ask_for_stays() {
    let (_, log) = started(1);
    let mut model = Model::default();
    let mut random = StdRng::seed_from_u64(1);
    let noted = |log: &LogStore, note: &[u8]| {
        let rows = [((99, "n".to_owned()), 1), ((99, "n".to_owned()), -1)];
        let write = LogWrite {
            relation: TABLE,
            changes: changes(&rows),
        };
        log.submit(log.prepare(vec![write], note).unwrap())
            .wait()
            .unwrap();
    };
    (0..40).for_each(|_| assert!(model.change(&log, &mut random, 6)));
    let owner = Table {
        settled: 3,
        ..Table::of(6)
    };
    log.shrink(&owner);
    assert_eq!(log.first(TABLE), 0, "a checkpoint is not as far");
    let hold = log.hold(TABLE, 0).unwrap();
    log.shrink(&Table::of(6));
    assert_eq!(log.first(TABLE), 0, "it is held");
    drop(hold);
    let reader = log.read(TABLE, 0, u64::MAX).unwrap();
    log.shrink(&Table::of(6));
    assert_eq!(log.first(TABLE), 0, "it is read");
    let before = log.head(TABLE);
    assert_eq!(
        reader
            .map(|block| block.unwrap().changes.num_rows() as u64)
            .sum::<u64>(),
        before
    );
    noted(&log, b"needed");
    log.shrink(&Table {
        note: Some(b"needed"),
        ..Table::of(6)
    });
    let first = log.first(TABLE);
    assert!(first > 0 && first < before, "what is in front of the note goes");
    assert!(
        log.read(TABLE, 0, u64::MAX)
            .unwrap()
            .any(|block| block.unwrap().note == b"needed")
    );
    model.check(&log);
    (0..40).for_each(|_| assert!(model.change(&log, &mut random, 6)));
    log.shrink(&Table::of(6));
    assert!(log.first(TABLE) > before, "nobody needs the note");
    model.check(&log);
}

#[test]
fn a_log_that_does_not_add_up_stays_as_it_is() {
    let (disk, log) = started(1);
    for _ in 0..30 {
        let rows = [((1, "a".to_owned()), 1), ((1, "a".to_owned()), -1)];
        append(
            &log,
            vec![LogWrite {
                relation: TABLE,
                changes: changes(&rows),
            }],
        )
        .unwrap();
    }
    let missing = [((1, "never".to_owned()), -1)];
    append(
        &log,
        vec![LogWrite {
            relation: TABLE,
            changes: changes(&missing),
        }],
    )
    .unwrap();
    let before = rows_of(&log);
    log.shrink(&Table::of(0));
    assert_eq!(log.first(TABLE), 0);
    assert_eq!(rows_of(&log), before);
    assert_eq!(files(&disk, ".base"), Vec::<String>::new());
    assert_eq!(files(&disk, ".new"), Vec::<String>::new());
}

#[test]
fn with_little_memory_it_takes_several_rounds() {
    let (_, log) = started(1);
    let mut model = Model::default();
    let mut random = StdRng::seed_from_u64(7);
    (0..300).for_each(|_| assert!(model.change(&log, &mut random, 40)));
    let owner = Table::of(model.rows.len());
    let relation = log.log(TABLE).unwrap();
    relation.shrink(&owner, 0).unwrap();
    assert_eq!(log.first(TABLE), 0, "no number of rounds is enough");
    (0..60).for_each(|_| assert!(model.change(&log, &mut random, 40)));
    relation.shrink(&Table::of(model.rows.len()), 4).unwrap();
    assert!(log.first(TABLE) > 0);
    model.check(&log);
}

#[test]
fn columns_that_were_added_are_in_the_base() {
    struct Wider(Table);
    impl LogOwner for Wider {
        fn needed(&self, relation: u64) -> u64 {
            self.0.needed(relation)
        }
        fn settled(&self, relation: u64) -> u64 {
            self.0.settled(relation)
        }
        fn forgetting(&self, relation: u64) -> Result<(), StorageError> {
            self.0.forgetting(relation)
        }
        fn rows(&self, relation: u64) -> Option<u64> {
            self.0.rows(relation)
        }
        fn spare_rows(&self) -> u64 {
            self.0.spare_rows()
        }
        fn whole(&self, _: u64, changes: ChangeBatch) -> Result<ChangeBatch, StorageError> {
            Ok(wider(&changes))
        }
    }
    fn wide_columns() -> SchemaRef {
        let narrow = columns();
        let wide = Field::new("w", DataType::Int64, true);
        let fields = narrow.fields().iter().map(|field| field.as_ref().clone());
        Arc::new(Schema::new(fields.chain([wide]).collect::<Vec<_>>()))
    }
    fn wider(changes: &ChangeBatch) -> ChangeBatch {
        let mut columns = changes.rows.columns().to_vec();
        if columns.len() == 2 {
            columns.push(Arc::new(Int64Array::from(vec![5; changes.num_rows()])));
        }
        let rows = RecordBatch::try_new(wide_columns(), columns).unwrap();
        ChangeBatch::new(rows, changes.weights.clone()).unwrap()
    }
    let (disk, log) = started(1);
    let row = |value: &str, weight| ((1, value.to_owned()), weight);
    let narrow = changes(&[row("a", 1), row("b", 1)]);
    append(
        &log,
        vec![LogWrite {
            relation: TABLE,
            changes: narrow,
        }],
    )
    .unwrap();
    log.widen(TABLE, &wide_columns()).unwrap();
    // What was inserted without the column is deleted with it.
    let wide = wider(&changes(&[row("a", -1), row("c", 1)]));
    append(
        &log,
        vec![LogWrite {
            relation: TABLE,
            changes: wide,
        }],
    )
    .unwrap();
    for _ in 0..10 {
        let wide = wider(&changes(&[row("c", -1), row("c", 1)]));
        append(
            &log,
            vec![LogWrite {
                relation: TABLE,
                changes: wide,
            }],
        )
        .unwrap();
    }
    log.shrink(&Wider(Table::of(2)));
    assert_eq!(log.head(TABLE) - log.first(TABLE), 2);
    let check = |log: &LogStore| {
        let blocks: Vec<_> = log
            .read(TABLE, 0, u64::MAX)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(blocks.iter().all(|block| block.changes.rows.num_columns() == 3));
        let rows = rows_of(log);
        assert_eq!(rows, [((1, "b".to_owned()), 1), ((1, "c".to_owned()), 1)].into());
    };
    check(&log);
    drop(log);
    let log = open_on(&disk.kill()).unwrap();
    log.widen(TABLE, &wide_columns()).unwrap();
    check(&log);
}

/// How many operations the load takes when nothing goes wrong.
fn operations(seed: u64) -> u64 {
    let (disk, log) = started(seed);
    let before = disk.operations();
    load(&log, &mut Model::default(), &mut StdRng::seed_from_u64(seed), 60);
    assert!(log.first(TABLE) > 0, "seed {seed}: nothing was added up");
    disk.operations() - before
}

#[test]
fn a_crash_at_every_operation_keeps_the_rows() {
    for seed in 0..4 {
        for at in 1..=operations(seed) {
            let mut random = StdRng::seed_from_u64(seed);
            let (disk, log) = started(seed * 1000 + at);
            disk.set_faults(Faults {
                at: Some((disk.operations() + at, Fault::Off)),
                ..Faults::default()
            });
            let mut model = Model::default();
            load(&log, &mut model, &mut random, 60);
            drop(log);
            let disk = disk.crash();
            // The first start may be cut off too.
            disk.set_faults(Faults {
                at: Some((disk.operations() + random.random_range(1..20), Fault::Off)),
                ..Faults::default()
            });
            drop(open_on(&disk));
            let disk = disk.crash();
            let log = open_on(&disk).unwrap_or_else(|error| panic!("seed {seed}, crash at {at}: {error}"));
            model.check(&log);
            load(&log, &mut model, &mut random, 30);
            model.check(&log);
            drop(log);
            model.check(&open_on(&disk.crash()).unwrap());
        }
    }
}

#[test]
fn an_error_at_every_operation_keeps_the_rows() {
    for (seed, fault) in [
        (0, Fault::Device),
        (1, Fault::Full),
        (2, Fault::Device),
        (3, Fault::Full),
    ] {
        for at in 1..=operations(seed) {
            let mut random = StdRng::seed_from_u64(seed);
            let (disk, log) = started(seed * 1000 + at);
            disk.set_faults(Faults {
                at: Some((disk.operations() + at, fault)),
                ..Faults::default()
            });
            let mut model = Model::default();
            load(&log, &mut model, &mut random, 60);
            disk.set_faults(Faults::default());
            model.doubtful = None;
            model.check(&log);
            load(&log, &mut model, &mut random, 30);
            model.check(&log);
            drop(log);
            let log = open_on(&disk.crash())
                .unwrap_or_else(|error| panic!("seed {seed}, {fault:?} at {at}: {error}"));
            model.check(&log);
        }
    }
}

#[test]
fn a_base_that_was_damaged_is_found_out() {
    let (disk, log) = started(1);
    let mut model = Model::default();
    let mut random = StdRng::seed_from_u64(1);
    (0..60).for_each(|_| assert!(model.change(&log, &mut random, 6)));
    log.shrink(&Table::of(6));
    let base = files(&disk, ".base").pop().unwrap();
    drop(log);
    let path = Path::new(ROOT).join("log/1").join(base);
    let file = disk.open(&path).unwrap();
    let size = file.size().unwrap();
    file.set_size(size - 64).unwrap();
    assert!(matches!(open_on(&disk), Err(StorageError::Corrupt { .. })));
    disk.remove(&path).unwrap();
    assert!(matches!(open_on(&disk), Err(StorageError::Corrupt { .. })));
}
