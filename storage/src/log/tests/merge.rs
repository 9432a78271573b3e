//! Small blocks become large ones, and nothing else changes: rows, offsets, order, notes, and what retention and readers see.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{Faults as Gates, FaultyDisk};
use super::round_trip::{all_types, random_batch};
use super::*;
use crate::disk::simulated::{Fault, Faults, SimulatedDisk};
use crate::log::closed::{Closed, small_neighbours};
use crate::log::index::SegmentIndex;

/// Who has settled everything in front of an offset, and needs it all.
struct Settled(u64);

impl LogOwner for Settled {
    fn needed(&self, _: u64) -> u64 {
        0
    }

    fn settled(&self, _: u64) -> u64 {
        self.0
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }
}

const ALL: &Settled = &Settled(u64::MAX);

fn small(disk: Arc<dyn Disk>, directory: &Path, segment_bytes_max: u64) -> LogStore {
    let options = LogOptions {
        segment_bytes_max,
        ..options()
    };
    LogStore::open_with(&directory.join("log"), options, disk).unwrap()
}

fn in_memory(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, Path::new("/simulated"))
}

fn on(disk: &SimulatedDisk, segment_bytes_max: u64) -> LogStore {
    small(Arc::new(disk.clone()), Path::new("/simulated"), segment_bytes_max)
}

/// The rows of each block.
fn blocks(log: &LogStore, relation: u64) -> Vec<usize> {
    let blocks = log.read(relation, 0, u64::MAX).unwrap();
    blocks.map(|block| block.unwrap().changes.num_rows()).collect()
}

/// Appends values that are their offsets, one a write.
fn grow(log: &LogStore, rows: u64) {
    let receipts: Vec<_> = (log.head(1)..log.head(1) + rows)
        .map(|value| log.append(vec![write(1, &[value as i64])]))
        .collect();
    for receipt in receipts {
        receipt.wait().unwrap();
    }
}

fn settle(log: &LogStore) {
    (0..20).for_each(|_| log.maintain(0, ALL));
}

#[test]
fn many_small_writes_become_few_blocks_though_nothing_follows_them() {
    let disk = in_memory(1);
    let log = on(&disk, 64 << 20);
    log.create(1, one_column()).unwrap();
    grow(&log, 1_000);
    log.maintain(0, ALL);
    assert_eq!(blocks(&log, 1).len(), 1_000, "few enough to wait for more");
    grow(&log, 9_000);
    let directory = Path::new("/simulated/log/1");
    let segments = |disk: &SimulatedDisk| super::segment::list(disk, directory).unwrap().len();
    assert_eq!(
        segments(&disk),
        2,
        "the writer closes a segment of many small blocks too"
    );
    let last_id = || {
        let last = log.read(1, 0, u64::MAX).unwrap().last();
        last.unwrap().unwrap().write_id
    };
    let last = last_id();
    log.maintain(0, ALL);
    assert_eq!(blocks(&log, 1), [8_192, 1_808]);
    assert_eq!(
        last_id(),
        last,
        "the next write after a start must have a higher one"
    );
    assert_eq!(contents(&log, 1), (0..10_000).collect::<Vec<_>>());
    assert_eq!(segments(&disk), 3, "the last one is empty");
    grow(&log, 10);
    let log = on(&disk.crash(), 64 << 20);
    assert_eq!(contents(&log, 1), (0..10_010).collect::<Vec<_>>());
    assert_eq!(blocks(&log, 1)[..3], [8_192, 1_808, 1]);
}

#[test]
fn only_what_is_settled_is_merged() {
    let disk = in_memory(2);
    let log = on(&disk, 4_000);
    log.create(1, one_column()).unwrap();
    grow(&log, 100);
    (0..20).for_each(|_| log.maintain(0, &Settled(0)));
    assert_eq!(blocks(&log, 1), [1; 100]);
    (0..20).for_each(|_| log.maintain(0, &Settled(50)));
    let found = blocks(&log, 1);
    let settled = found.iter().take_while(|rows| **rows > 1).sum::<usize>();
    assert!((25..=50).contains(&settled), "{found:?}");
    assert!(
        found[found.len() - (100 - settled)..]
            .iter()
            .all(|rows| *rows == 1),
        "{found:?}"
    );
    settle(&log);
    assert!(blocks(&log, 1).len() < 30, "{:?}", blocks(&log, 1));
    assert_eq!(contents(&log, 1), (0..100).collect::<Vec<_>>());
}

/// A write as the model has it.
struct Write {
    values: Vec<i64>,
    /// It must stay a block of its own.
    is_alone: bool,
}

/// Who needs notes with this word, and no others.
struct Keeps(&'static str);

impl LogOwner for Keeps {
    fn needed(&self, _: u64) -> u64 {
        0
    }

    fn settled(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn forgetting(&self, _: u64) -> Result<(), StorageError> {
        Ok(())
    }

    fn needs_note(&self, note: &LogNote) -> bool {
        note.note.starts_with(self.0.as_bytes())
    }
}

#[test]
fn of_notes_that_nobody_needs_the_last_stays() {
    let disk = in_memory(1);
    let log = on(&disk, 1 << 20);
    log.create(1, one_column()).unwrap();
    let count = 40;
    for number in 0..count {
        let word = if number == 20 { "key" } else { "place" };
        let note = format!("{word} {number}").into_bytes();
        log.submit(log.prepare(vec![write(1, &[number])], &note).unwrap())
            .wait()
            .unwrap();
    }
    log.set_options(
        1,
        RelationOptions {
            retention_ms: Some(8_000),
            ..RelationOptions::default()
        },
    )
    .unwrap();
    log.maintain(3_600_000, ALL);
    let notes = |log: &LogStore| -> Vec<(u64, String)> {
        let blocks = log.read(1, 0, u64::MAX).unwrap().map(Result::unwrap);
        blocks
            .map(|block| (block.first_offset, String::from_utf8(block.note).unwrap()))
            .collect()
    };
    assert_eq!(notes(&log).len() as i64, count, "all notes are needed");
    // Looked at again after a while.
    log.maintain(3_600_000 + 1, &Keeps("key"));
    assert_eq!(notes(&log).len() as i64, count);
    log.maintain(2 * 3_600_000, &Keeps("key"));
    let expected = [(0, "place 19"), (20, "key 20"), (21, "place 39")];
    assert_eq!(
        notes(&log),
        expected.map(|(offset, note)| (offset, note.to_owned()))
    );
    assert_eq!(contents(&log, 1), (0..count).collect::<Vec<_>>());
    log.maintain(3 * 3_600_000, &Keeps("nothing"));
    drop(log);
    let log = on(&disk.crash(), 1 << 20);
    let found: Vec<_> = log.take_notes().into_iter().map(|note| note.note).collect();
    assert_eq!(
        found,
        [b"place 19".to_vec(), b"key 20".to_vec(), b"place 39".to_vec()]
    );
    assert_eq!(contents(&log, 1), (0..count).collect::<Vec<_>>());
}

#[test]
fn any_writes_keep_their_rows_and_their_notes() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut merged = 0;
    for seed in seed..seed + 40 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut disk = in_memory(seed);
        let mut log = on(&disk, random.random_range(2_000..20_000));
        for relation in [1, 2] {
            log.create(relation, one_column()).unwrap();
        }
        let (mut writes, mut notes): (Vec<Write>, Vec<Vec<u8>>) = (vec![], vec![]);
        let mut times: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        let (mut head, mut now) = (0, 1_000);
        for step in 0..random.random_range(20..150) {
            if random.random_bool(0.1) {
                now += random.random_range(0..100_000);
                log.maintain(now, &Settled(random.random_range(0..=head as u64 + 1)));
            }
            let rows = match random.random_range(0..10) {
                0 => random.random_range(1..3_000),
                _ => random.random_range(1..4),
            };
            let values: Vec<i64> = (head..head + rows).collect();
            head += rows;
            let mut parts = vec![write(1, &values)];
            let mut is_alone = true;
            let mut note = vec![];
            match random.random_range(0..8) {
                0 => parts.push(write(2, &[values[0]])),
                1 => {
                    note = format!("note {step}").into_bytes();
                    notes.push(note.clone());
                    times.insert(note.clone(), now);
                }
                2 => parts[0].changes.weights = Some(vec![1; values.len()].into()),
                _ => is_alone = false,
            }
            log.maintain(now, &Settled(0));
            log.submit(log.prepare(parts, &note).unwrap()).wait().unwrap();
            writes.push(Write { values, is_alone });
            if random.random_bool(0.03) {
                drop(log);
                disk = disk.crash();
                log = on(&disk, random.random_range(2_000..20_000));
            }
        }
        for _ in 0..random.random_range(1..30) {
            log.maintain(now, ALL);
        }
        for _ in 0..2 {
            assert_eq!(contents(&log, 1), (0..head).collect::<Vec<_>>(), "seed {seed}");
            let read: Vec<LogBlock> = (log.read(1, 0, u64::MAX).unwrap())
                .map(|block| block.unwrap())
                .collect();
            let is_growing = read.is_sorted_by(|a, b| a.write_id < b.write_id);
            assert!(is_growing, "seed {seed}: ids of writes grow");
            for write in writes.iter().filter(|write| write.is_alone) {
                let block = read
                    .iter()
                    .find(|block| block.first_offset == write.values[0] as u64);
                let rows = block.map(|block| block.changes.num_rows());
                assert_eq!(
                    rows,
                    Some(write.values.len()),
                    "seed {seed}, at {}",
                    write.values[0]
                );
            }
            merged += writes.len() - read.len();
            drop(log);
            disk = disk.crash();
            log = on(&disk, 20_000);
            let found = log.take_notes();
            let texts: Vec<_> = found.iter().map(|note| note.note.clone()).collect();
            assert_eq!(texts, notes, "seed {seed}");
            for note in found {
                assert_eq!(note.written_at_ms, times[&note.note], "seed {seed}");
            }
        }
    }
    assert!(merged > 200, "{merged} blocks went");
}

#[test]
fn all_types_and_columns_that_were_added_survive() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let disk = in_memory(seed);
    let wide = all_types();
    let narrow = Arc::new(Schema::new(wide.fields()[..20].to_vec()));
    let log = on(&disk, 40_000);
    log.create(1, Arc::clone(&narrow)).unwrap();
    log.widen(1, &wide).unwrap();
    let mut written = vec![];
    for _ in 0..80 {
        let schema = if random.random_bool(0.1) { &wide } else { &narrow };
        let rows = random.random_range(1..6);
        written.push(random_batch(schema, rows, &mut random).rows);
        let changes = ChangeBatch::insertions(written[written.len() - 1].clone());
        append(&log, vec![LogWrite { relation: 1, changes }]).unwrap();
    }
    let check = |log: &LogStore| {
        let mut written = written
            .iter()
            .flat_map(|rows| (0..rows.num_rows()).map(|i| rows.slice(i, 1)));
        let mut count = 0;
        for block in log.read(1, 0, u64::MAX).unwrap() {
            let rows = block.unwrap().changes.rows;
            for i in 0..rows.num_rows() {
                assert_eq!(rows.slice(i, 1), written.next().unwrap());
            }
            count += 1;
        }
        assert!(written.next().is_none());
        // The same, of some columns alone.
        for wanted in [vec![], vec![12], vec![3, 0], vec![wide.fields().len() - 1, 7, 21]] {
            let mut reader = log.read(1, 0, u64::MAX).unwrap().with_columns(wanted.clone());
            for block in log.read(1, 0, u64::MAX).unwrap() {
                let whole = block.unwrap().changes.rows;
                let has: Vec<usize> = wanted
                    .iter()
                    .copied()
                    .filter(|c| *c < whole.num_columns())
                    .collect();
                let rows = reader.next().unwrap().unwrap().changes.rows;
                assert_eq!(rows, whole.project(&has).unwrap());
            }
            assert!(reader.next().is_none());
        }
        count
    };
    assert_eq!(check(&log), 80);
    // The columns are said after each open: until then nobody can read the blocks that have more.
    settle(&log);
    let count = check(&log);
    assert!(count < 60, "{count}");
    drop(log);
    let log = on(&disk.crash(), 40_000);
    log.maintain(0, ALL);
    log.widen(1, &wide).unwrap();
    assert_eq!(check(&log), count);
}

#[test]
fn a_reader_goes_on_in_the_middle_of_what_was_merged() {
    for read_before in 0..40 {
        let disk = in_memory(read_before);
        let log = on(&disk, 5_000);
        log.create(1, one_column()).unwrap();
        grow(&log, 60);
        let mut reader = log.read(1, 3, 45).unwrap();
        let mut found = vec![];
        let mut blocks = 0;
        let mut take = |reader: &mut LogReader, found: &mut Vec<i64>| {
            let block = reader.next()?.unwrap();
            assert_eq!(
                block.first_offset as usize,
                3 + found.len(),
                "after {read_before}"
            );
            found.extend(block.changes.rows.column(0).as_primitive::<Int64Type>().values());
            blocks += 1;
            Some(())
        };
        for _ in 0..read_before {
            take(&mut reader, &mut found);
        }
        settle(&log);
        while take(&mut reader, &mut found).is_some() {}
        assert_eq!(found, (3..45).collect::<Vec<_>>(), "after {read_before}");
        assert!(blocks <= read_before + 20, "it reads what was merged: {blocks}");
    }
}

#[test]
fn a_reader_that_meets_another_file_asks_where_its_block_is() {
    let dir = tempfile::tempdir().unwrap();
    let gates = Arc::new(Gates::default());
    let disk = Arc::new(FaultyDisk(Arc::clone(&gates)));
    let log = Arc::new(small(disk, dir.path(), 2 << 20));
    log.create(1, one_column()).unwrap();
    // Six rows become a block that is as long as that of the first. Large blocks behind them, so that the file does not end early.
    grow(&log, 6);
    let first = || {
        let hold = log.hold(1, 0).unwrap();
        hold.relation().index.read().blocks[0]
    };
    let before = first();
    for _ in 0..5 {
        let head = log.head(1) as i64;
        append(&log, vec![write(1, &(head..head + 60_000).collect::<Vec<_>>())]).unwrap();
    }
    let other = Arc::clone(&log);
    // The reader knows the block by then, and has not opened the file.
    gates.before_open(move || other.maintain(0, ALL));
    assert_eq!(contents(&log, 1), (0..300_006).collect::<Vec<_>>());
    let after = first();
    assert_eq!((before.rows, after.rows), (1, 6));
    assert_eq!((before.position, before.bytes), (after.position, after.bytes));
}

#[test]
fn what_was_merged_is_put_together_and_merged_again_and_has_an_index_again() {
    let disk = in_memory(3);
    let log = on(&disk, 4_000);
    log.create(1, one_column()).unwrap();
    grow(&log, 200);
    (0..40).for_each(|_| log.maintain(0, &Settled(0)));
    let directory = Path::new("/simulated/log/1");
    // How many blocks the indexes of closed segments tell of.
    let indexes = || {
        let listed = super::segment::list(&disk, directory).unwrap();
        let read = listed.iter().zip(&listed[1..]).map(|((first, path), (next, _))| {
            let bytes = disk.open(path).unwrap().size().unwrap();
            let index = SegmentIndex::read(&disk, directory, 1, (*first, *next), bytes);
            index.map(|index| index.blocks.len())
        });
        read.collect::<Vec<_>>()
    };
    assert!(indexes().iter().all(Option::is_some), "{:?}", indexes());
    (0..40).for_each(|_| log.maintain(0, ALL));
    assert_eq!(indexes(), [Some(1), Some(1)]);
    assert_eq!(blocks(&log, 1)[..2], [187, 11]);
    assert_eq!(contents(&log, 1), (0..200).collect::<Vec<_>>());
}

#[test]
fn a_copy_ends_where_it_was_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = small(Arc::new(OsDisk), dir.path(), 4_000);
    log.create(1, one_column()).unwrap();
    for copied in [3, 50, 7] {
        grow(&log, 1);
        let mut copy = log.copies(|| Ok(())).unwrap().1.pop().unwrap();
        let rows = log.head(1) as i64;
        grow(&log, copied);
        let to = tempfile::tempdir().unwrap();
        std::fs::create_dir(to.path().join("log")).unwrap();
        let directory = copy.begin(&to.path().join("log")).unwrap();
        // A segment of the copy ends inside of what becomes one block.
        assert!(copy.write_segment(&directory, 1_000).unwrap() || rows < 4);
        grow(&log, 100);
        settle(&log);
        while copy.write_segment(&directory, 1_000).unwrap() {}
        assert_eq!(contents(&open(to.path()), 1), (0..rows).collect::<Vec<_>>());
    }
}

#[test]
fn retention_removes_no_row_before_its_time() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    for seed in seed..seed + 20 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = in_memory(seed);
        let log = on(&disk, random.random_range(1_000..50_000));
        log.create(1, one_column()).unwrap();
        let retention_ms = random.random_range(100..20_000);
        let options = RelationOptions {
            retention_ms: Some(retention_ms),
            ..RelationOptions::default()
        };
        log.set_options(1, options).unwrap();
        let (mut now, mut written_at) = (1_000, vec![]);
        // Who needs nothing: see `Settled`, which needs everything.
        struct Nobody;
        impl LogOwner for Nobody {
            fn needed(&self, _: u64) -> u64 {
                u64::MAX
            }
            fn settled(&self, _: u64) -> u64 {
                u64::MAX
            }
            fn forgetting(&self, _: u64) -> Result<(), StorageError> {
                Ok(())
            }
        }
        let mut latest = 0;
        for _ in 0..300 {
            now += random.random_range(0..200);
            log.maintain(now, &Nobody);
            let first = log.first(1) as usize;
            let too_early = written_at[..first].iter().find(|at| **at + retention_ms > now);
            assert_eq!(too_early, None, "seed {seed}: removed at {now}");
            let kept: &[i64] = &written_at[first..];
            latest = latest.max(kept.first().map_or(0, |at| now - *at));
            append(&log, vec![write(1, &[written_at.len() as i64])]).unwrap();
            written_at.push(now);
        }
        assert!(
            latest <= retention_ms + retention_ms / 8 * 2 + 1_000,
            "seed {seed}: a row was there for {latest} ms of {retention_ms}"
        );
    }
}

#[test]
fn a_crash_or_an_error_at_every_operation_leaves_the_old_segment_or_the_new_one() {
    let mut merged = 0;
    for (fault, at) in [Fault::Off, Fault::Device, Fault::Full]
        .into_iter()
        .flat_map(|fault| (1..120).map(move |at| (fault, at)))
    {
        let what = format!("{fault:?} at {at}");
        let disk = in_memory(at);
        let log = on(&disk, 1_500);
        log.create(1, one_column()).unwrap();
        grow(&log, 40);
        drop(log);
        let disk = disk.crash();
        // Larger segments are allowed now: they are merged, put together, indexed, and merged again.
        let log = on(&disk, 8_000);
        disk.set_faults(Faults {
            at: Some((disk.operations() + at, fault)),
            ..Faults::default()
        });
        for _ in 0..10 {
            log.maintain(0, ALL);
            if fault != Fault::Off {
                assert_eq!(contents(&log, 1), (0..40).collect::<Vec<_>>(), "{what}");
            }
        }
        let disk = disk.crash();
        let log = on(&disk, 8_000);
        assert_eq!(log.damage(1).map(|error| error.to_string()), None, "{what}");
        assert_eq!(contents(&log, 1), (0..40).collect::<Vec<_>>(), "{what}");
        grow(&log, 20);
        (0..10).for_each(|_| log.maintain(0, ALL));
        let found = blocks(&log, 1);
        merged += usize::from(found.len() < 40);
        assert_eq!(
            contents(&log, 1),
            (0..60).collect::<Vec<_>>(),
            "{what}: {found:?}"
        );
        let log = on(&disk.crash(), 8_000);
        assert_eq!(contents(&log, 1), (0..60).collect::<Vec<_>>(), "{what}");
        assert_eq!(blocks(&log, 1), found, "{what}");
    }
    assert_eq!(merged, 3 * 119);
}

#[test]
fn what_the_writer_has_not_shown_yet_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let gates = Arc::new(Gates::default());
    let log = small(Arc::new(FaultyDisk(Arc::clone(&gates))), dir.path(), 2_000);
    for relation in [1, 2] {
        log.create(relation, one_column()).unwrap();
    }
    grow(&log, 30);
    let last = || {
        let listed = super::segment::list(&OsDisk, &dir.path().join("log/1")).unwrap();
        let (first, path) = listed[listed.len() - 1].clone();
        (first, std::fs::metadata(path).unwrap().len())
    };
    // Until the last segment has room for exactly two more.
    loop {
        let before = last();
        grow(&log, 1);
        let after = last();
        let block = after.1.saturating_sub(before.1);
        if before.0 == after.0 && after.1 + 2 * block <= 2_000 && after.1 + 3 * block > 2_000 {
            break;
        }
    }
    let head = log.head(1) as i64;
    gates.close_gate();
    let mut receipts = vec![log.append(vec![write(1, &[head])])];
    gates.await_writer_at_gate();
    // These come as one group: the first fills the segment, the second begins the next, and waits in another log.
    receipts.push(log.append(vec![write(1, &[head + 1])]));
    receipts.push(log.append(vec![write(1, &[head + 2]), write(2, &[0])]));
    // A block, the head of the next segment, and a block.
    gates.let_pass(3);
    let hold = log.hold(1, 0).unwrap();
    for _ in 0..5 {
        let mut bytes_left = u64::MAX;
        hold.relation().maintain(0, ALL, 2_000, &mut bytes_left).unwrap();
    }
    gates.open_gate();
    for receipt in receipts {
        receipt.wait().unwrap();
    }
    assert_eq!(contents(&log, 1), (0..head + 3).collect::<Vec<_>>());
    settle(&log);
    assert_eq!(contents(&log, 1), (0..head + 3).collect::<Vec<_>>());
    drop((hold, log));
    assert_eq!(contents(&open(dir.path()), 1), (0..head + 3).collect::<Vec<_>>());
}

#[test]
fn rows_are_copied_a_few_times_only_until_their_segment_is_large() {
    let (mut segments, mut copied): (Vec<Closed>, u64) = (vec![], 0);
    for number in 0..4_000 {
        segments.push(Closed {
            first_offset: number,
            end_offset: number + 1,
            bytes: 1_000,
            oldest_ms: 0,
            newest_ms: 0,
            is_whole: true,
        });
        if let Some((from, to)) = small_neighbours(&segments, i64::MAX, 1_000_000) {
            let start = segments
                .iter()
                .position(|segment| segment.first_offset == from)
                .unwrap();
            let end = segments
                .iter()
                .position(|segment| segment.end_offset == to)
                .unwrap();
            assert!(end - start >= 3);
            let bytes = segments[start..=end].iter().map(|segment| segment.bytes).sum();
            assert!(bytes <= 1_000_000);
            copied += bytes;
            let together = Closed {
                end_offset: to,
                bytes,
                ..segments[start]
            };
            segments.splice(start..=end, [together]);
        }
    }
    assert!(segments.len() < 40, "{}", segments.len());
    assert!(copied < 4_000_000 * 12, "{copied} bytes were copied of 4000000");
}
