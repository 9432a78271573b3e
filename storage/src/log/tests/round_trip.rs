//! What goes in comes out: every type, with and without weights, nulls, slices, and reopening.

use std::ops::Range;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, Int32Type, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use rand::distr::{Distribution, StandardUniform};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

pub(super) fn all_types() -> SchemaRef {
    let item = || Arc::new(Field::new_list_field(DataType::Utf8, true));
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, 10),
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::BinaryView,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::FixedSizeBinary(16),
        DataType::List(item()),
        DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into()),
        DataType::Null,
    ];
    let fields = types.into_iter().enumerate().map(|(i, data_type)| {
        let field = Field::new(format!("c{i}"), data_type, true);
        field.with_metadata([("ARROW:extension:name".to_owned(), "x.y".to_owned())].into())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn text(random: &mut StdRng) -> Option<String> {
    let length = random.random_range(0..40);
    random
        .random_bool(0.8)
        .then(|| (0..length).map(|_| random.random_range('a'..'ÿ')).collect())
}

fn maybe<T>(random: &mut StdRng) -> Option<T>
where
    StandardUniform: Distribution<T>,
{
    random.random_bool(0.8).then(|| random.random())
}

fn random_column(data_type: &DataType, rows: usize, random: &mut StdRng) -> ArrayRef {
    let n = rows;
    macro_rules! numbers {
        ($array:ty) => {
            Arc::new(
                (0..n)
                    .map(|_| random.random_bool(0.8).then(|| random.random()))
                    .collect::<$array>(),
            )
        };
    }
    match data_type {
        DataType::Boolean => numbers!(BooleanArray),
        DataType::Int8 => numbers!(Int8Array),
        DataType::Int16 => numbers!(Int16Array),
        DataType::Int32 => numbers!(Int32Array),
        DataType::Int64 => numbers!(Int64Array),
        DataType::UInt8 => numbers!(UInt8Array),
        DataType::UInt16 => numbers!(UInt16Array),
        DataType::UInt32 => numbers!(UInt32Array),
        DataType::UInt64 => numbers!(UInt64Array),
        DataType::Float32 => numbers!(Float32Array),
        DataType::Float64 => numbers!(Float64Array),
        DataType::Date32 => numbers!(Date32Array),
        DataType::Time64(_) => numbers!(Time64MicrosecondArray),
        DataType::Timestamp(_, zone) => {
            let plain: TimestampMicrosecondArray = (0..n).map(|_| maybe::<i64>(random)).collect();
            Arc::new(plain.with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            let plain: Decimal128Array = (0..n).map(|_| maybe::<i64>(random).map(i128::from)).collect();
            Arc::new(plain.with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Interval(_) => Arc::new(IntervalMonthDayNanoArray::from_iter((0..n).map(|_| {
            let value = IntervalMonthDayNano::new(random.random(), random.random(), random.random());
            random.random_bool(0.8).then_some(value)
        }))),
        DataType::Utf8 => Arc::new((0..n).map(|_| text(random)).collect::<StringArray>()),
        DataType::LargeUtf8 => Arc::new((0..n).map(|_| text(random)).collect::<LargeStringArray>()),
        DataType::Utf8View => Arc::new((0..n).map(|_| text(random)).collect::<StringViewArray>()),
        DataType::Binary => Arc::new((0..n).map(|_| text(random)).collect::<BinaryArray>()),
        DataType::BinaryView => Arc::new((0..n).map(|_| text(random)).collect::<BinaryViewArray>()),
        DataType::FixedSizeBinary(_) => {
            let mut builder = FixedSizeBinaryBuilder::new(16);
            for _ in 0..n {
                match maybe::<[u8; 16]>(random) {
                    Some(value) => builder.append_value(value).unwrap(),
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::List(item) => {
            let lengths: Vec<usize> = (0..n).map(|_| random.random_range(0..4)).collect();
            let items = random_column(item.data_type(), lengths.iter().sum(), random);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(item.clone(), offsets, items, None))
        }
        DataType::Struct(fields) => {
            let columns = fields
                .iter()
                .map(|f| random_column(f.data_type(), n, random))
                .collect();
            Arc::new(StructArray::new(fields.clone(), columns, None))
        }
        DataType::Null => Arc::new(NullArray::new(n)),
        other => panic!("no generator for {other}"),
    }
}

/// Schemas with changes of them: every type with weights, and one plain column.
pub(super) fn shapes() -> Vec<(SchemaRef, ChangeBatch)> {
    let random = &mut StdRng::seed_from_u64(5);
    let all = random_batch(&all_types(), 9, random).rows;
    let weights = Int64Array::from(vec![1; all.num_rows()]);
    vec![
        (all_types(), ChangeBatch::new(all, Some(weights)).unwrap()),
        (one_column(), values(&[1, 2, 3])),
    ]
}

pub(super) fn random_batch(schema: &SchemaRef, rows: usize, random: &mut StdRng) -> ChangeBatch {
    // Slices of larger arrays, whose offsets do not start at zero.
    let (before, after) = (random.random_range(0..9), random.random_range(0..3));
    let all = before + rows + after;
    let columns = schema
        .fields()
        .iter()
        .map(|f| random_column(f.data_type(), all, random))
        .collect();
    let rows_all = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let weights = random
        .random_bool(0.5)
        .then(|| Int64Array::from_iter_values((0..all).map(|_| random.random_range(-3..=3))));
    ChangeBatch::new(rows_all, weights).unwrap().slice(before, rows)
}

fn read(log: &LogStore, relation: u64, range: Range<u64>) -> ChangeBatch {
    let mut blocks = vec![ChangeBatch::empty(log.schema(relation).unwrap())];
    for block in log.read(relation, range.start, range.end).unwrap() {
        blocks.push(block.unwrap().changes);
    }
    ChangeBatch::concat(&blocks).unwrap()
}

/// Weights spelled out, so that "none" equals "all one".
fn normal(batch: &ChangeBatch) -> (RecordBatch, Vec<i64>) {
    (
        batch.rows.clone(),
        (0..batch.num_rows()).map(|i| batch.weight(i)).collect(),
    )
}

#[test]
fn every_type_survives_in_any_shape() {
    for seed in 0..12 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let schema = all_types();
        let mut expected = vec![ChangeBatch::empty(schema.clone())];
        let log = open(dir.path());
        log.create(1, schema.clone()).unwrap();
        for _ in 0..8 {
            let rows = random.random_range(0..120);
            let changes = random_batch(&schema, rows, &mut random);
            append(
                &log,
                vec![LogWrite {
                    relation: 1,
                    changes: changes.clone(),
                }],
            )
            .unwrap();
            expected.push(changes);
        }
        let expected = ChangeBatch::concat(&expected).unwrap();
        let rows = expected.num_rows();
        assert_eq!(
            normal(&read(&log, 1, 0..u64::MAX)),
            normal(&expected),
            "seed {seed}"
        );
        drop(log);
        let log = open(dir.path());
        assert_eq!(log.schema(1).unwrap(), schema);
        assert_eq!(
            normal(&read(&log, 1, 0..u64::MAX)),
            normal(&expected),
            "seed {seed}"
        );
        let columns = 0..schema.fields().len();
        let wanted: Vec<usize> = columns.rev().filter(|_| random.random_bool(0.3)).collect();
        let reader = log.read(1, 0, u64::MAX).unwrap().with_columns(wanted.clone());
        let parts: Vec<ChangeBatch> = reader.map(|block| block.unwrap().changes).collect();
        if !parts.is_empty() {
            let some = ChangeBatch {
                rows: expected.rows.project(&wanted).unwrap(),
                weights: expected.weights.clone(),
            };
            let found = ChangeBatch::concat(&parts).unwrap();
            assert_eq!(normal(&found), normal(&some), "seed {seed}");
        }
        for _ in 0..20 {
            let from = random.random_range(0..=rows);
            let to = random.random_range(from..=rows);
            let part = expected.slice(from, to - from);
            assert_eq!(
                normal(&read(&log, 1, from as u64..to as u64)),
                normal(&part),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn weights_are_absent_where_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    let weighted = ChangeBatch::new(values(&[1, 2]).rows, Some(Int64Array::from(vec![-1, 1]))).unwrap();
    append(
        &log,
        vec![
            write(1, &[1]),
            LogWrite {
                relation: 1,
                changes: weighted.clone(),
            },
        ],
    )
    .unwrap();
    let blocks: Vec<_> = log.read(1, 0, 3).unwrap().map(Result::unwrap).collect();
    assert_eq!(blocks[0].changes, values(&[1]));
    assert_eq!((blocks[1].first_offset, &blocks[1].changes), (1, &weighted));
}

#[test]
fn a_large_batch_is_split_and_stays_one_write() {
    let dir = tempfile::tempdir().unwrap();
    let numbers: Vec<i64> = (0..200_000).collect();
    {
        let log = open(dir.path());
        log.create(1, one_column()).unwrap();
        let appended = append(&log, vec![write(1, &numbers)]).unwrap();
        assert_eq!(
            appended,
            [Appended {
                relation: 1,
                first_offset: 0,
                rows: 200_000
            }]
        );
        assert!(log.read(1, 0, u64::MAX).unwrap().count() > 1);
    }
    assert_eq!(contents(&open(dir.path()), 1), numbers);
}

#[test]
fn wide_rows_make_small_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let column: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..40).map(|_| "x".repeat(1 << 20)),
    ));
    let rows = RecordBatch::try_from_iter([("t", column)]).unwrap();
    log.create(1, rows.schema()).unwrap();
    append(
        &log,
        vec![LogWrite {
            relation: 1,
            changes: ChangeBatch::insertions(rows.clone()),
        }],
    )
    .unwrap();
    assert!(log.read(1, 0, u64::MAX).unwrap().count() >= 4);
    assert_eq!(read(&log, 1, 0..40).rows, rows);
}

#[test]
fn rows_without_columns_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let schema = Arc::new(Schema::empty());
    log.create(1, schema.clone()).unwrap();
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let rows = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    append(
        &log,
        vec![LogWrite {
            relation: 1,
            changes: ChangeBatch::insertions(rows),
        }],
    )
    .unwrap();
    assert_eq!(log.head(1), 7);
    assert_eq!(
        log.read(1, 2, 7)
            .unwrap()
            .map(|b| b.unwrap().changes.num_rows())
            .sum::<usize>(),
        5
    );
}

#[test]
fn rows_that_could_not_be_read_back_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let strict = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, false)]));
    log.create(1, strict).unwrap();
    append(&log, vec![write(1, &[1])]).unwrap();
    let bad: [ArrayRef; 2] = [
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(StringArray::from(vec!["text"])),
    ];
    for column in bad {
        let changes = ChangeBatch::insertions(RecordBatch::try_from_iter([("v", column)]).unwrap());
        let error = append(&log, vec![write(1, &[2]), LogWrite { relation: 1, changes }]).unwrap_err();
        assert!(
            matches!(error, StorageError::SchemaMismatch { relation: 1, .. }),
            "{error}"
        );
    }
    let short = ChangeBatch {
        rows: values(&[1, 2]).rows,
        weights: Some(Int64Array::from(vec![1])),
    };
    let error = append(
        &log,
        vec![LogWrite {
            relation: 1,
            changes: short,
        }],
    )
    .unwrap_err();
    assert!(matches!(error, StorageError::InvalidChange { .. }), "{error}");
    assert_eq!(contents(&log, 1), [1]);
}

#[test]
fn a_dictionary_is_refused_at_any_depth() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let dictionary: DictionaryArray<Int32Type> = vec!["a", "b"].into_iter().collect();
    let field = Field::new("d", dictionary.data_type().clone(), true);
    for field in [field.clone(), Field::new_list("l", field, true)] {
        let error = log.create(1, Arc::new(Schema::new(vec![field]))).unwrap_err();
        assert!(
            matches!(&error, StorageError::UnsupportedType { column, .. } if column == "d"),
            "{error}"
        );
    }
    assert!(!log.contains(1));
}

#[test]
fn empty_writes_are_answered_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    assert_eq!(append(&log, vec![]).unwrap(), []);
    append(&log, vec![write(1, &[5])]).unwrap();
    let appended = append(&log, vec![write(1, &[])]).unwrap();
    assert_eq!(
        appended,
        [Appended {
            relation: 1,
            first_offset: 1,
            rows: 0
        }]
    );
    assert_eq!(contents(&log, 1), [5]);
}

/// Many small writes are read in pieces, in their order, whole and from anywhere.
#[test]
fn small_blocks_are_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    log.create(1, one_column()).unwrap();
    for value in 0..250 {
        append(&log, vec![write(1, &[value])]).unwrap();
    }
    append(&log, vec![write(1, &(250..400).collect::<Vec<_>>())]).unwrap();
    let pieces = |from: u64, to: u64, rows_max: usize, bytes_max: usize| -> Vec<Vec<i64>> {
        let mut reader = log.read(1, from, to).unwrap();
        std::iter::from_fn(|| reader.next_rows(rows_max, bytes_max))
            .map(|rows| {
                let rows = rows.unwrap().rows;
                rows.column(0)
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .values()
                    .to_vec()
            })
            .collect()
    };
    let all: Vec<i64> = (0..400).collect();
    let lengths = |pieces: &[Vec<i64>]| pieces.iter().map(Vec::len).collect::<Vec<_>>();
    let by_rows = pieces(0, u64::MAX, 100, usize::MAX);
    assert_eq!(lengths(&by_rows), [100, 100, 200]);
    assert_eq!(by_rows.concat(), all);
    assert_eq!(pieces(0, u64::MAX, usize::MAX, 1).concat(), all);
    assert_eq!(pieces(0, u64::MAX, usize::MAX, usize::MAX).len(), 1);
    assert_eq!(pieces(120, 260, 1_000, usize::MAX).concat(), all[120..260]);
}

/// What somebody reads of some columns is checked as what is read whole, and damage elsewhere does not concern him.
#[test]
fn many_rows_are_written_column_by_column() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let schema = all_types();
        let log = open(dir.path());
        log.create(1, schema.clone()).unwrap();
        let changes = random_batch(&schema, 5_000, &mut random);
        let note = vec![b'n'; [0, 5, 6_000][seed as usize % 3]];
        let write = LogWrite {
            relation: 1,
            changes: changes.clone(),
        };
        log.submit(log.prepare(vec![write], &note).unwrap())
            .wait()
            .unwrap();
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        let some = |wanted: &[usize]| ChangeBatch {
            rows: changes.rows.project(wanted).unwrap(),
            weights: changes.weights.clone(),
        };
        let read = |wanted: &[usize]| {
            log.read(1, 0, u64::MAX)
                .unwrap()
                .with_columns(wanted.to_vec())
                .next()
                .unwrap()
        };
        let whole = log.read(1, 0, u64::MAX).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (normal(&whole.changes), &whole.note),
            (normal(&changes), &note),
            "seed {seed}"
        );
        for wanted in [vec![], vec![7], vec![20, 0, 12], columns.clone()] {
            let mut reader = log.read(1, 0, u64::MAX).unwrap().with_columns(wanted.clone());
            let found = reader.next().unwrap().unwrap();
            assert_eq!(
                (normal(&found.changes), &found.note),
                (normal(&some(&wanted)), &note),
                "seed {seed}"
            );
            let is_apart = wanted.len() < columns.len();
            let all_bytes = std::fs::metadata(segment(dir.path())).unwrap().len();
            assert_eq!(
                reader.bytes_read() < all_bytes / 2,
                is_apart,
                "seed {seed}, {wanted:?}"
            );
        }
        // A byte of the block is another: some column does not read, or none does.
        let path = segment(dir.path());
        let sound = std::fs::read(&path).unwrap();
        let start = sound.windows(4).position(|bytes| bytes == b"MLRB").unwrap();
        for _ in 0..40 {
            let at = random.random_range(start + 64..sound.len());
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << random.random_range(0..8);
            std::fs::write(&path, &damaged).unwrap();
            assert!(
                log.read(1, 0, u64::MAX).unwrap().next().unwrap().is_err(),
                "seed {seed}, byte {at}"
            );
            let bad: Vec<usize> = columns
                .iter()
                .copied()
                .filter(|column| match read(&[*column]) {
                    Ok(found) => {
                        assert_eq!(
                            normal(&found.changes),
                            normal(&some(&[*column])),
                            "seed {seed}, byte {at}"
                        );
                        false
                    }
                    Err(_) => true,
                })
                .collect();
            // The weights and the directory are read with each.
            assert!(
                bad.len() <= 1 || bad.len() == columns.len(),
                "seed {seed}, byte {at}: {bad:?}"
            );
        }
        std::fs::write(&path, &sound).unwrap();
    }
}

fn segment(dir: &Path) -> std::path::PathBuf {
    dir.join("log/1").join(format!("{:020}.seg", 0))
}
