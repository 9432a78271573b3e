//! kill -9 in the middle of writes: after the restart every acknowledged row is there once, what was not acknowledged is
//! there whole or not at all, every view equals its query, and of a lookup join, whose rows depend on when they came, nothing
//! that was read before is gone. A request over HTTP whose answer was lost is sent again with its key, and counts once. Views that
//! were being made or dropped are there whole or not at all. The files of sinks say, added up, what the relations say that they
//! were written from, and none that was there is ever changed.
//!
//! There is a checkpoint every 200 ms or so, so that kills come before, in and after them. In some rounds checkpoint files
//! are damaged between the kill and the restart: then views may take longer to come up, and never have other rows. In others
//! the power is lost with the process: what was not synced of any file is gone in part (`power`). In others
//! the logs' ends are torn, as by a write that a crash of the machine let through in part. Some processes have parts of the views'
//! state on disk, as if memory were short, so that kills and checkpoints meet parts that are away.
//!
//! `tests/crash.rs` does a few rounds, `-- crash --rounds N` of the benches as many as are wanted.

mod check;
mod damage;
mod machines;
mod power;
mod process;
mod relations;
mod writers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;

use self::machines::Machines;
use self::power::{Before, Power};
pub use self::process::{LOG_URL, Process, TAKE_OVER, serve_if_child};
use self::writers::Known;
use crate::Failure;

/// After so many rounds a view has come back from a checkpoint.
const ROUNDS_RESTORED: u64 = 8;
/// How often on the same directory, before a new one is begun.
const ROUNDS_OF_A_DIRECTORY: u64 = 25;
/// The most writes of a round before the kill: most rounds are short, and some see several checkpoints.
const WRITES_MAX: u64 = 60;
const WRITES_MAX_LONG: u64 = 600;
/// The share of rounds after which a checkpoint file is damaged, and one that a sink noted, and after which logs are torn.
const DAMAGED: f64 = 0.25;
const TORN: f64 = 0.5;
/// The share of processes in which parts of the views' state go to disk and come back.
const SPILLING: f64 = 0.4;
/// The share of processes at whose end the power is lost, and not only the process killed.
const POWERLESS: f64 = 0.4;

/// What rounds have seen besides rows.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Views that came back from a checkpoint, and that were filled again.
    pub restored: u64,
    pub filled: u64,
    /// Views of which a part was on disk when all was compared.
    pub away: u64,
    pub damaged: u64,
    pub torn: u64,
    /// Requests whose answer was lost.
    pub posted_again: u64,
    /// Writes whose answer was lost: all of them are there, none is.
    pub kept: u64,
    pub lost: u64,
    /// Processes at whose end the power was lost, and what was lost with it: writes to files that were not synced, and changes of names.
    pub powerless: u64,
    pub lost_writes: u64,
    pub lost_names: u64,
    /// Workers in processes of their own that were killed, and that were stopped for a while.
    pub workers_killed: u64,
    pub workers_stopped: u64,
    /// The longest time from the start of a process until all was compared.
    pub slowest: Duration,
}

/// Kills a server so often and compares after each restart. `tell` hears after every directory how many rounds there were, and what
/// they have seen.
///
/// # Errors
/// The first row that is missing, twice or wrong, or a server that does not start; with the seed.
pub fn kill_and_compare(seed: u64, total: u64, mut tell: impl FnMut(u64, &Seen)) -> Result<Seen, Failure> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(all_rounds(seed, total, false, &mut tell));
    outcome.map_err(|error| format!("seed {seed}: {error}").into())
}

/// The same with workers in processes of their own, which are killed and stopped as well.
///
/// # Errors
/// As [`kill_and_compare`].
pub fn kill_machines_and_compare(
    seed: u64,
    total: u64,
    mut tell: impl FnMut(u64, &Seen),
) -> Result<Seen, Failure> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(all_rounds(seed, total, true, &mut tell));
    outcome.map_err(|error| format!("seed {seed}: {error}").into())
}

async fn all_rounds(
    seed: u64,
    total: u64,
    has_machines: bool,
    tell: &mut impl FnMut(u64, &Seen),
) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    let mut random = StdRng::seed_from_u64(seed);
    let mut done = 0;
    while done < total {
        let count = ROUNDS_OF_A_DIRECTORY.min(total - done);
        let outcome = rounds(count, has_machines, &mut random, &mut seen).await;
        outcome.map_err(|error| format!("after {done} rounds on other directories: {error}"))?;
        done += count;
        tell(done, &seen);
    }
    if seen.restored == 0 && total >= ROUNDS_RESTORED {
        return Err("no view ever came back from a checkpoint".into());
    }
    if seen.powerless > 0 && total >= ROUNDS_OF_A_DIRECTORY && seen.lost_writes == 0 {
        return Err("nothing was ever lost with the power".into());
    }
    if seen.away == 0 && total >= ROUNDS_OF_A_DIRECTORY {
        return Err("no part of a view was ever on disk".into());
    }
    Ok(seen)
}

/// Rounds on a new directory.
async fn rounds(total: u64, has_machines: bool, random: &mut StdRng, seen: &mut Seen) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let sinks = tempfile::tempdir()?;
    let power = Power::new()?;
    let mut machines = has_machines.then(Machines::start).transpose()?;
    let place = Place {
        cluster: machines.as_ref().map(Machines::address),
        directory: directory.path(),
        sinks: sinks.path(),
        power: power.as_ref(),
    };
    let mut known = Known::default();
    let next_id = Arc::new(AtomicU64::new(1));

    relations::folders(place.sinks)?;
    let (mut process, mut before) = place.start(1, random)?;
    relations::create(process.pg, place.sinks).await?;
    for round in 0..total {
        let is_long = random.random_bool(0.3);
        let kill_after = random.random_range(1..=if is_long { WRITES_MAX_LONG } else { WRITES_MAX });
        let how = if before.is_some() { "power lost" } else { "killed" };
        let failed = |error: Failure| format!("round {round}, {how} after {kill_after} writes: {error}");
        if machines.is_some() {
            machines::until_they_take_part(process.pg).await.map_err(failed)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let seed = random.random();
        let disturbing = async {
            match &mut machines {
                Some(machines) => machines.disturb(seed, Arc::clone(&is_over)).await,
                None => Ok((0, 0)),
            }
        };
        let mut writers = StdRng::seed_from_u64(random.random());
        let writing = async {
            let written =
                writers::write_until_killed(process, kill_after, &next_id, &mut writers, &mut known).await;
            is_over.store(true, Ordering::Release);
            written
        };
        let (written, disturbed) = tokio::join!(writing, disturbing);
        written.map_err(failed)?;
        let (killed, stopped) = disturbed.map_err(failed)?;
        seen.workers_killed += killed;
        seen.workers_stopped += stopped;
        match (before.take(), place.power) {
            (Some(before), Some(power)) => {
                let lost = power.lose(before, random).map_err(failed)?;
                seen.powerless += 1;
                seen.lost_writes += lost.writes;
                seen.lost_names += lost.names;
                // The cuts of epochs may be lost, and a lookup join find others then.
                known.looked_up.clear();
            }
            _ => damage_some(place.directory, random, &mut known, seen)?,
        }
        let started = Instant::now();
        (process, before) = place.start(random.random_range(1..=3), random).map_err(failed)?;
        check::rows(&process, &mut known, seen).await.map_err(failed)?;
        check::sinks(process.pg, place.sinks, &mut known)
            .await
            .map_err(failed)?;
        seen.slowest = seen.slowest.max(started.elapsed());
    }
    process.kill()
}

/// Where servers run one after the other.
struct Place<'a> {
    directory: &'a Path,
    sinks: &'a Path,
    /// `None`: what takes down operations on files cannot be built here.
    power: Option<&'a Power>,
    /// Where workers of other processes join, if there are any.
    cluster: Option<SocketAddr>,
}

impl Place<'_> {
    /// Starts a server; if it is to lose its power, returns what there was before.
    fn start(&self, workers: u64, random: &mut StdRng) -> Result<(Process, Option<Before>), Failure> {
        let spills = random.random_bool(SPILLING);
        let power = self.power.filter(|_| random.random_bool(POWERLESS));
        let before = power
            .map(|power| power.before(&[self.directory, self.sinks]))
            .transpose()?;
        let environment = power.map(Power::environment).into_iter().flatten();
        let cluster = self
            .cluster
            .map(|address| (process::CLUSTER, PathBuf::from(address.to_string())));
        let environment = environment.chain(cluster);
        let process = Process::start_in(self.directory, workers, spills, environment)?;
        Ok((process, before))
    }
}

fn damage_some(
    directory: &Path,
    random: &mut StdRng,
    known: &mut Known,
    seen: &mut Seen,
) -> Result<(), Failure> {
    if random.random_bool(DAMAGED) {
        seen.damaged += damage::checkpoint(&directory.join("checkpoints"), random)?;
        // Without the epoch log rows are cut again, and a lookup join may find others.
        known.looked_up.clear();
    }
    if random.random_bool(DAMAGED) {
        seen.damaged += damage::base(&directory.join("sinks"), random)?;
    }
    if random.random_bool(TORN) {
        seen.torn += damage::tear(directory, random)?;
    }
    Ok(())
}
