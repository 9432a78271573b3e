//! A table beside a model of it.

use std::collections::BTreeMap;

use arrow::array::{AsArray, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use millrace_resource::disk::DiskScheduler;
use millrace_resource::memory::{Memory, Resident};
use millrace_resource::spill::state::{Spill, SpillOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Handle;

use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ]))
}

fn change(rows: &[(i64, &str, i64)]) -> ChangeBatch {
    let k = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let v = StringArray::from_iter_values(rows.iter().map(|row| row.1));
    let weights = Int64Array::from_iter_values(rows.iter().map(|row| row.2));
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(v)]).unwrap();
    ChangeBatch::new(batch, Some(weights)).unwrap()
}

fn contents(view: &TableView) -> BTreeMap<(i64, String), usize> {
    let mut rows = BTreeMap::new();
    for batch in view.batches(None).unwrap() {
        let k = batch.column(0).as_primitive::<Int64Type>();
        let v = batch.column(1).as_string::<i32>();
        for row in 0..batch.num_rows() {
            *rows.entry((k.value(row), v.value(row).to_owned())).or_default() += 1;
        }
    }
    rows
}

/// What is added up of `view.changes(.., since)` to what was there at `since` is what is there at the view's version.
#[test]
fn changes_lead_from_one_version_to_another() {
    let mut random = StdRng::seed_from_u64(3);
    let mut table = RowTable::new(schema(), Some(vec![0, 1]));
    let mut views = vec![table.view(0)];
    let mut live: Vec<(i64, &str)> = vec![];
    for version in 1..200 {
        let mut rows = vec![];
        for _ in 0..random.random_range(0..20) {
            if live.is_empty() || random.random_bool(0.55) {
                let row = (random.random_range(0..9), ["a", "b"][random.random_range(0..2)]);
                live.push(row);
                rows.push((row.0, row.1, 1));
            } else {
                let row = live.swap_remove(random.random_range(0..live.len()));
                rows.push((row.0, row.1, -1));
            }
        }
        table.apply(&change(&rows), version, 0).unwrap();
        views.push(table.view(version));
    }
    for _ in 0..300 {
        let since = random.random_range(0..views.len() - 1);
        let until = random.random_range(since..views.len());
        let mut sum: BTreeMap<(i64, String), i64> = contents(&views[since])
            .into_iter()
            .map(|(row, count)| (row, count as i64))
            .collect();
        for chunk in 0..views[until].num_chunks() {
            let changes = views[until]
                .changes_in(&views[until].chunks()[chunk], since as u64)
                .unwrap();
            let k = changes.rows.column(0).as_primitive::<Int64Type>();
            let v = changes.rows.column(1).as_string::<i32>();
            for row in 0..changes.num_rows() {
                let count = sum.entry((k.value(row), v.value(row).to_owned())).or_default();
                *count += changes.weight(row);
            }
        }
        sum.retain(|_, count| *count != 0);
        let there: BTreeMap<(i64, String), i64> = contents(&views[until])
            .into_iter()
            .map(|(row, count)| (row, count as i64))
            .collect();
        assert_eq!(sum, there, "from {since} to {until}");
    }
}

#[test]
fn a_reader_keeps_its_version_while_the_writer_goes_on() {
    let mut table = RowTable::new(schema(), Some(vec![0]));
    table.apply(&change(&[(1, "a", 1), (2, "b", 1)]), 1, 0).unwrap();
    let first = table.view(1);
    table.apply(&change(&[(1, "a", -1), (1, "c", 1)]), 2, 0).unwrap();
    let second = table.view(2);
    assert_eq!(
        contents(&first),
        BTreeMap::from([((1, "a".into()), 1), ((2, "b".into()), 1)])
    );
    assert_eq!(
        contents(&second),
        BTreeMap::from([((1, "c".into()), 1), ((2, "b".into()), 1)])
    );
    assert_eq!(table.live_rows(), 2);
}

#[test]
fn a_deletion_of_nothing_is_an_error() {
    let mut table = RowTable::new(schema(), Some(vec![0]));
    table.apply(&change(&[(1, "a", 1)]), 1, 0).unwrap();
    assert!(table.apply(&change(&[(1, "b", -1)]), 2, 0).is_err());
}

#[test]
fn random_changes_equal_a_model_at_every_version_that_is_still_readable() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = RowTable::new(schema(), Some(vec![0, 1]));
        let by_key = table.add_index(vec![0]).unwrap();
        let mut model: BTreeMap<(i64, String), usize> = BTreeMap::new();
        let mut kept = vec![];
        for version in 1..400 {
            let mut rows = vec![];
            for _ in 0..random.random_range(0..40) {
                let row = (
                    random.random_range(0..8),
                    format!("v{}", random.random_range(0..3)),
                );
                let count = model.entry(row.clone()).or_default();
                if *count > 0 && random.random_bool(0.5) {
                    *count -= 1;
                    rows.push((row.0, row.1, -1));
                } else {
                    *count += 1;
                    rows.push((row.0, row.1, 1));
                }
            }
            model.retain(|_, count| *count > 0);
            let rows: Vec<_> = rows.iter().map(|(k, v, w)| (*k, v.as_str(), *w)).collect();
            table.apply(&change(&rows), version, version - 1).unwrap();
            let view = table.view(version);
            assert_eq!(contents(&view), model, "seed {seed}, version {version}");
            assert_eq!(table.live_rows(), model.values().sum::<usize>());
            let key: ArrayRef = Arc::new(Int64Array::from(vec![3]));
            let found = table.probe(by_key, &[key], false).unwrap().rows.len();
            assert_eq!(
                found,
                model
                    .iter()
                    .filter(|((k, _), _)| *k == 3)
                    .map(|(_, n)| n)
                    .sum::<usize>()
            );
            if version % 37 == 0 {
                kept.push((view, model.clone()));
            }
        }
        for (view, model) in kept {
            assert_eq!(contents(&view), model, "seed {seed}, an old view");
        }
    }
}

/// Many versions of rows that left cannot be told apart by a few bits a row; when nobody reads the old ones any more, they are.
#[tokio::test]
async fn rows_on_disk_forget_versions_that_nobody_reads() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new(None, Resident::Unknown);
    let disk = DiskScheduler::new("data", 0, 1, &memory);
    let options = SpillOptions::new(directory.path().join("spill"));
    let spill = Spill::open(&options, &disk, &memory, Handle::current()).unwrap();
    let mut table = RowTable::new(schema(), Some(vec![0, 1]));
    let rows: Vec<(i64, &str, i64)> = (0..4_000).map(|k| (k, "a", 1)).collect();
    table.apply(&change(&rows), 1, 0).unwrap();
    let versions = 40;
    for version in 2..=versions {
        let went: Vec<(i64, &str, i64)> = (0..50).map(|k| (version as i64 * 50 + k, "a", -1)).collect();
        table.apply(&change(&went), version, 0).unwrap();
    }
    let (middle, newest) = (contents(&table.view(20)), contents(&table.view(versions)));
    let written = table.before_leaving(0).unwrap();
    let away = write_spilled(&mut spill.begin(), &written).await.unwrap();
    table.leave(&written, away).unwrap();
    let with_marks = table.memory_bytes();
    let reader = table.view(20);
    table.settle_spilled(versions).unwrap();
    let settled = table.memory_bytes();
    assert!(settled < with_marks / 8, "{with_marks} -> {settled}");
    let load = async |view: TableView| {
        let mut whole = TableView {
            chunks: Arc::default(),
            ..view.clone()
        };
        for chunk in 0..view.num_chunks() {
            Arc::make_mut(&mut whole.chunks).push(view.chunk(chunk).await.unwrap());
        }
        whole
    };
    // Who reads already reads on.
    assert_eq!(contents(&load(reader).await), middle);
    let whole = load(table.view(versions)).await;
    assert_eq!(contents(&whole), newest);
    table.come_back(whole.chunks().to_vec()).unwrap();
    assert_eq!(contents(&table.view(versions)), newest);
    table
        .apply(&change(&[(0, "a", -1)]), versions + 1, versions)
        .unwrap();
    assert_eq!(table.live_rows(), newest.len() - 1);
}
