//! The journal on a simulated disk, against a model: a crash and an error at every operation, and chance.

use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::object;
use crate::catalog::journal::{Journal, Line, State};
use crate::catalog::object::CatalogChange;
use crate::catalog::{ObjectId, open_journal};
use crate::disk::Disk;
use crate::disk::simulated::{Fault, Faults, SimulatedDisk};

const ROOT: &str = "/simulated";

/// A journal, the state that was acknowledged, and those that a failed step may have made of it since.
struct Run {
    journal: Journal,
    state: State,
    possible: Vec<State>,
}

impl Run {
    fn open(disk: &SimulatedDisk) -> Run {
        let path = Path::new(ROOT).join("catalog.journal");
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let (journal, state) = open_journal(disk, &path, None).unwrap();
        Run {
            journal,
            state,
            possible: Vec::new(),
        }
    }

    /// One step, or a compaction; whether it was made.
    fn step(&mut self, random: &mut StdRng) -> bool {
        if random.random_bool(0.1) {
            return self.journal.replace(&self.state).is_ok();
        }
        let id = random.random_range(1..6);
        let change = match random.random_range(0..3) {
            0 => CatalogChange::Remove(ObjectId(id)),
            1 => CatalogChange::Put(object(id, &"n".repeat(random.random_range(1..900)))),
            _ => CatalogChange::PutFact {
                key: format!("k{id}"),
                value: vec![random.random(); random.random_range(0..600)],
            },
        };
        let line = Line {
            sequence: self.state.sequence + 1,
            next_id: self.state.next_id + 1,
            base: false,
            changes: vec![change],
        };
        let mut after = self.state.clone();
        after.apply(&line);
        let made = self.journal.append(&self.state, &line).is_ok();
        if made {
            self.state = after;
            self.possible.clear();
        } else {
            self.possible.push(after);
        }
        made
    }

    /// The state after a restart is the one that was acknowledged, or one that was in doubt.
    fn check(&self, disk: &SimulatedDisk, what: &str) -> Run {
        let next = Run::open(disk);
        let known = next.state == self.state || self.possible.contains(&next.state);
        assert!(
            known,
            "{what}: {:?} instead of {:?}",
            next.state.sequence, self.state.sequence
        );
        next
    }
}

#[test]
fn a_crash_or_an_error_at_every_operation_keeps_what_was_acknowledged() {
    for (fault, seed) in [Fault::Off, Fault::Device, Fault::Full].into_iter().zip(0..) {
        for at in 1..60 {
            let what = format!("{fault:?} at {at}");
            let disk = SimulatedDisk::new(at, Path::new(ROOT));
            let mut random = StdRng::seed_from_u64(seed);
            let mut run = Run::open(&disk);
            disk.set_faults(Faults {
                at: Some((disk.operations() + at, fault)),
                ..Faults::default()
            });
            let failed = (0..20).filter(|_| !run.step(&mut random)).count();
            // One that fails is no reason to refuse the next.
            assert!(
                fault == Fault::Off || failed <= 1,
                "{what}: {failed} steps failed"
            );
            let mut next = run.check(&disk.crash(), &what);
            assert!((0..3).all(|_| next.step(&mut random)), "{what}");
        }
    }
}

#[test]
fn random_faults_and_crashes_keep_what_was_acknowledged() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut disk = SimulatedDisk::new(seed, Path::new(ROOT));
        let mut run = Run::open(&disk);
        for round in 0..4 {
            disk.set_faults(Faults {
                room_bytes: random.random_bool(0.4).then(|| random.random_range(0..4000)),
                failing: [0.0, 0.05, 0.3][random.random_range(0..3)],
                failing_syncs: [0.0, 0.1, 0.7][random.random_range(0..3)],
                ..Faults::default()
            });
            for _ in 0..random.random_range(0..20) {
                run.step(&mut random);
            }
            disk.set_faults(Faults::default());
            let what = format!("seed {seed}, round {round}");
            assert!(
                random.random_bool(0.5) || run.step(&mut random),
                "{what}: steps do not resume"
            );
            disk = disk.crash();
            run = run.check(&disk, &what);
        }
    }
}
