//! The log on a simulated disk, against a model: a crash at every operation, an error at every operation, and chance.
//!
//! Each write has a number, which is its value in every relation that it goes to. The model knows of each whether it
//! was acknowledged, refused, or in doubt. Always: a relation's values grow; what was acknowledged is there once; what
//! was not is there in all relations of its write, or in none; and while the store runs, readers see what was
//! acknowledged and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::disk::simulated::{Fault, Faults, SimulatedDisk};

const RELATIONS: [u64; 3] = [1, 2, 3];
const ROOT: &str = "/simulated";

/// What is known of the writes, by number.
#[derive(Debug, Default, Clone)]
struct Model {
    relations: BTreeMap<i64, BTreeSet<u64>>,
    acknowledged: BTreeSet<i64>,
    /// Those that failed: a crash may still bring one back whole.
    in_doubt: BTreeSet<i64>,
    /// Relations that are not synced: a crash may take a write that goes to no others.
    loose: BTreeSet<u64>,
    next: i64,
}

impl Model {
    /// Some write: to some relations, perhaps twice to one, perhaps large.
    fn next_write(&mut self, random: &mut StdRng) -> (i64, Vec<LogWrite>) {
        let number = self.next;
        self.next += 1;
        let mut parts = Vec::new();
        let mut relations = BTreeSet::new();
        for relation in RELATIONS {
            if parts.is_empty() || random.random_bool(0.4) {
                let relation = if parts.is_empty() {
                    random.random_range(1..=3)
                } else {
                    relation
                };
                relations.insert(relation);
                let times = if random.random_bool(0.1) {
                    80
                } else {
                    random.random_range(1..4)
                };
                parts.push(write(relation, &vec![number; times]));
            }
        }
        self.relations.insert(number, relations);
        (number, parts)
    }

    fn outcome(&mut self, number: i64, outcome: &Result<Vec<Appended>, StorageError>) {
        match outcome {
            Ok(_) => self.acknowledged.insert(number),
            Err(_) => self.in_doubt.insert(number),
        };
    }

    /// After a crash of the machine.
    fn crashed(&mut self) {
        let (relations, loose) = (&self.relations, &self.loose);
        let lost: Vec<i64> = self
            .acknowledged
            .iter()
            .filter(|number| relations[number].is_subset(loose))
            .copied()
            .collect();
        for number in lost {
            self.acknowledged.remove(&number);
            self.in_doubt.insert(number);
        }
    }

    /// Compares with what is stored. After a restart what was in doubt may be there, and is known from then on.
    fn check(&mut self, log: &LogStore, restarted: bool) {
        let stored: BTreeMap<u64, BTreeSet<i64>> = RELATIONS
            .iter()
            .map(|relation| {
                let found = contents(log, *relation);
                assert!(found.is_sorted(), "relation {relation}: {found:?}");
                (*relation, found.into_iter().collect())
            })
            .collect();
        for (number, relations) in &self.relations {
            let there = relations.iter().filter(|id| stored[id].contains(number)).count();
            let acknowledged = self.acknowledged.contains(number);
            if acknowledged {
                assert_eq!(
                    there,
                    relations.len(),
                    "write {number} was acknowledged and is lost"
                );
            } else if there > 0 {
                assert!(restarted, "write {number} failed and is there");
                assert_eq!(there, relations.len(), "only a part of write {number} is there");
            }
        }
        if restarted {
            let back = std::mem::take(&mut self.in_doubt);
            self.acknowledged.extend(
                back.into_iter()
                    .filter(|number| stored.values().any(|found| found.contains(number))),
            );
        }
    }
}

fn options_of(durability: Durability) -> LogOptions {
    LogOptions {
        durability,
        segment_bytes_max: 4000,
        ..options()
    }
}

fn open_on(disk: &SimulatedDisk, durability: Durability) -> Result<LogStore, StorageError> {
    let directory = Path::new(ROOT).join("log");
    LogStore::open_with(&directory, options_of(durability), Arc::new(disk.clone())).and_then(whole)
}

/// A disk with empty logs on it, and the store.
fn started(seed: u64, durability: Durability) -> (SimulatedDisk, LogStore) {
    let disk = SimulatedDisk::new(seed, Path::new(ROOT));
    let log = open_on(&disk, durability).unwrap();
    for relation in RELATIONS {
        log.create(relation, one_column()).unwrap();
    }
    (disk, log)
}

/// So many writes, several at a time now and then; each outcome goes to the model.
fn load(log: &LogStore, model: &mut Model, random: &mut StdRng, writes: usize) {
    let mut left = writes;
    while left > 0 {
        let at_once = if random.random_bool(0.3) { 3.min(left) } else { 1 };
        left -= at_once;
        let submitted: Vec<_> = (0..at_once)
            .map(|_| {
                let (number, parts) = model.next_write(random);
                (number, log.append(parts))
            })
            .collect();
        for (number, receipt) in submitted {
            model.outcome(number, &receipt.wait());
        }
        if random.random_bool(0.2) {
            // Closed segments are indexed, and what is there of indexes is believed at the next open.
            log.maintain(0, &Everything);
        }
    }
}

/// How many operations the load takes when nothing goes wrong.
fn operations(seed: u64, writes: usize) -> u64 {
    let (disk, log) = started(seed, Durability::Group);
    let before = disk.operations();
    load(
        &log,
        &mut Model::default(),
        &mut StdRng::seed_from_u64(seed),
        writes,
    );
    disk.operations() - before
}

#[test]
fn a_crash_at_every_operation_keeps_what_was_acknowledged() {
    for seed in 0..6 {
        let total = operations(seed, 25);
        for at in 1..=total {
            let mut random = StdRng::seed_from_u64(seed);
            let (disk, log) = started(seed * 1000 + at, Durability::Group);
            disk.set_faults(Faults {
                at: Some((disk.operations() + at, Fault::Off)),
                ..Faults::default()
            });
            let mut model = Model::default();
            load(&log, &mut model, &mut random, 25);
            drop(log);
            let disk = disk.crash();
            // The first start may be cut off too.
            disk.set_faults(Faults {
                at: Some((disk.operations() + random.random_range(1..20), Fault::Off)),
                ..Faults::default()
            });
            drop(open_on(&disk, Durability::Group));
            let disk = disk.crash();
            let log = open_on(&disk, Durability::Group)
                .unwrap_or_else(|error| panic!("seed {seed}, crash at {at}: {error}"));
            model.check(&log, true);
            load(&log, &mut model, &mut random, 5);
            assert!(model.in_doubt.is_empty(), "seed {seed}, crash at {at}");
            model.check(&log, false);
            drop(log);
            model.check(&open_on(&disk.crash(), Durability::Group).unwrap(), true);
        }
    }
}

#[test]
fn an_error_at_every_operation_leaves_nothing_half_done_and_writes_resume() {
    for (seed, fault) in [Fault::Device, Fault::Full]
        .into_iter()
        .cycle()
        .take(6)
        .enumerate()
    {
        let seed = seed as u64;
        let total = operations(seed, 25);
        for at in 1..=total {
            let mut random = StdRng::seed_from_u64(seed);
            let (disk, log) = started(seed * 1000 + at, Durability::Group);
            disk.set_faults(Faults {
                at: Some((disk.operations() + at, fault)),
                ..Faults::default()
            });
            let mut model = Model::default();
            load(&log, &mut model, &mut random, 25);
            // Writes that came together took fewer operations, so that it may not have happened yet.
            disk.set_faults(Faults::default());
            let failed = model.in_doubt.len();
            match fault {
                // One error of the device is never seen outside: there is another place to write to.
                Fault::Device => assert_eq!(failed, 0, "seed {seed}, {fault:?} at {at}"),
                _ => assert!(
                    failed <= 3,
                    "seed {seed}, {fault:?} at {at}: {failed} writes failed"
                ),
            }
            model.check(&log, false);
            load(&log, &mut model, &mut random, 3);
            assert_eq!(model.in_doubt.len(), failed, "seed {seed}, {fault:?} at {at}");
            model.check(&log, false);
            drop(log);
            let log = open_on(&disk.crash(), Durability::Group)
                .unwrap_or_else(|error| panic!("seed {seed}, {fault:?} at {at}: {error}"));
            model.check(&log, true);
        }
    }
}

#[test]
fn random_faults_and_crashes_keep_what_was_acknowledged() {
    for seed in 0..150 {
        let mut random = StdRng::seed_from_u64(seed);
        let durability = [Durability::Group, Durability::Fsync, Durability::Off][random.random_range(0..3)];
        let (mut disk, mut log) = started(seed, durability);
        let mut model = Model::default();
        for round in 0..4 {
            disk.set_faults(Faults {
                room_bytes: random.random_bool(0.4).then(|| random.random_range(0..6000)),
                failing: [0.0, 0.02, 0.3][random.random_range(0..3)],
                failing_syncs: [0.0, 0.1, 0.7][random.random_range(0..3)],
                ..Faults::default()
            });
            let writes = random.random_range(5..40);
            load(&log, &mut model, &mut random, writes);
            disk.set_faults(Faults::default());
            if durability != Durability::Off {
                model.check(&log, false);
                // Nothing fails any more, so nothing is refused any more.
                let in_doubt = model.in_doubt.len();
                load(&log, &mut model, &mut random, 3);
                assert_eq!(model.in_doubt.len(), in_doubt, "seed {seed}, round {round}");
                model.check(&log, false);
            }
            // Without syncs only the death of the process is survived.
            let off = durability == Durability::Off;
            let next = if off { disk.kill() } else { disk.crash() };
            drop(log);
            disk = next;
            log = match open_on(&disk, durability) {
                Ok(log) => log,
                // What the disk has lost is found out.
                Err(StorageError::Corrupt { .. }) if durability == Durability::Off => break,
                Err(error) => panic!("seed {seed}, round {round}, {durability:?}: {error}"),
            };
            if durability == Durability::Off {
                // Nor is it promised here that nothing is lost.
                model = Model {
                    next: model.next,
                    ..Model::default()
                };
                for relation in RELATIONS {
                    assert!(contents(&log, relation).is_sorted(), "seed {seed}");
                }
                continue;
            }
            model.check(&log, true);
        }
    }
}

/// A write that failed, and whose blocks are in one log still, is not taken for whole because the other log has gone on and has
/// forgotten which writes it had.
#[test]
fn a_log_does_not_forget_its_writes_while_a_failed_one_may_come_back() {
    for (forgets, goes_on) in [
        (Forgets::Indexes, false),
        (Forgets::Indexes, true),
        (Forgets::Retention, false),
        (Forgets::Retention, true),
    ] {
        for seed in 0..40 {
            let (disk, log) = started(seed, Durability::Group);
            append(&log, vec![write(1, &[0]), write(2, &[0])]).unwrap();
            disk.set_faults(Faults {
                failing_syncs: 1.0,
                ..Faults::default()
            });
            append(&log, vec![write(1, &[1]), write(2, &[1])]).unwrap_err();
            disk.set_faults(Faults::default());
            for number in 2..60 {
                append(&log, vec![write(1, &[number; 20])]).unwrap();
            }
            if matches!(forgets, Forgets::Retention) {
                let options = RelationOptions {
                    retention_bytes: Some(1),
                    ..RelationOptions::default()
                };
                log.set_options(1, options).unwrap();
            }
            let has_forgotten = || {
                (0..30).for_each(|_| log.maintain(0, &Nothing));
                let files = disk.list(&Path::new(ROOT).join("log/1")).unwrap();
                let is_index = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "idx");
                log.first(1) > 0 || files.iter().any(is_index)
            };
            assert!(!has_forgotten(), "seed {seed}, {forgets:?}");
            let mut expected = vec![0];
            if goes_on {
                append(&log, vec![write(2, &[60])]).unwrap();
                expected.push(60);
                assert!(has_forgotten(), "seed {seed}, {forgets:?}");
            }
            // The old store cannot bring anything in order any more.
            let disk = disk.crash();
            drop(log);
            let log = open_on(&disk, Durability::Group).unwrap();
            assert_eq!(contents(&log, 2), expected, "seed {seed}, {forgets:?}");
        }
    }
}

/// How a log comes to know no more which writes it had.
#[derive(Debug, Clone, Copy)]
enum Forgets {
    Indexes,
    Retention,
}

/// Who needs no row.
struct Nothing;

impl LogOwner for Nothing {
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

#[test]
fn relations_that_are_not_synced_take_nothing_from_those_that_are() {
    for seed in 0..80 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut disk, mut log) = started(seed, Durability::Group);
        let mut model = Model {
            loose: [2, 3].into(),
            ..Model::default()
        };
        for _ in 0..4 {
            for relation in &model.loose {
                let durability = Some(Durability::Off);
                let options = RelationOptions {
                    durability,
                    ..RelationOptions::default()
                };
                log.set_options(*relation, options).unwrap();
            }
            let at = disk.operations() + random.random_range(1..80);
            disk.set_faults(Faults {
                at: Some((at, Fault::Off)),
                ..Faults::default()
            });
            load(&log, &mut model, &mut random, 40);
            disk = disk.crash();
            model.crashed();
            drop(log);
            log = open_on(&disk, Durability::Group).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            model.check(&log, true);
        }
    }
}

#[test]
fn without_syncs_the_death_of_the_process_loses_nothing() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, log) = started(seed, Durability::Off);
        let mut model = Model::default();
        load(&log, &mut model, &mut random, 40);
        assert!(model.in_doubt.is_empty());
        // The old store goes only after the new one was opened: it cannot bring anything in order.
        let killed = disk.kill();
        model.check(&open_on(&killed, Durability::Off).unwrap(), true);
        drop(log);
    }
}

#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out_or_keeps_whole_writes() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, log) = started(seed, Durability::Group);
        let mut model = Model::default();
        load(&log, &mut model, &mut random, 10);
        disk.set_faults(Faults {
            lying: true,
            ..Faults::default()
        });
        load(&log, &mut model, &mut random, 20);
        let disk = disk.crash();
        drop(log);
        // Nothing that was promised since then can be kept.
        model.in_doubt.append(&mut model.acknowledged.split_off(&10));
        match open_on(&disk, Durability::Group) {
            Ok(log) => {
                opened += 1;
                model.check(&log, true);
            }
            Err(StorageError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
}

#[test]
fn a_read_that_fails_or_is_short_is_an_error_and_never_wrong_rows() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, log) = started(seed, Durability::Group);
        let mut model = Model::default();
        load(&log, &mut model, &mut random, 30);
        let right: Vec<Vec<i64>> = RELATIONS
            .iter()
            .map(|relation| contents(&log, *relation))
            .collect();
        disk.set_faults(Faults {
            failing_reads: 0.3,
            ..Faults::default()
        });
        let mut errors = 0;
        for _ in 0..20 {
            for (relation, right) in RELATIONS.iter().zip(&right) {
                for block in log.read(*relation, 0, u64::MAX).unwrap() {
                    match block {
                        Ok(block) => {
                            let rows = block.changes.rows.column(0).as_primitive::<Int64Type>();
                            let start = block.first_offset as usize;
                            assert_eq!(rows.values()[..], right[start..start + rows.len()], "seed {seed}");
                        }
                        Err(_) => errors += 1,
                    }
                }
            }
        }
        assert!(errors > 0, "seed {seed}");
        let refused = open_on(&disk, Durability::Group);
        drop(refused);
        disk.set_faults(Faults::default());
        model.check(&log, false);
    }
}
