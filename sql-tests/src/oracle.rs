//! The oracle as a property test: random relations, random views over them, random changes; at random epochs every view
//! equals the batch answer of plain DataFusion over the base relations at that epoch.
//!
//! ```text
//!   grammar ── random queries over a random schema
//!   script ── an interleaving of changes, view creation and comparison, as data
//!   policy ── what a view does where its query fails
//!   run ── does what a script says, in an engine and in plain DataFusion, and compares
//!   shrink, reduce ── a script that fails, cut down
//!   slt ── the same as a file for `millrace test`
//! ```
//!
//! A case is one query that is kept as a view through one interleaving and compared at several epochs. A script has a
//! dozen or more of them, over the same relations. Script `n` of seed `s` is made by the random numbers of seed `s + n`,
//! so that each can be repeated alone.

mod grammar;
mod policy;
mod reduce;
mod run;
mod schema;
mod script;
mod shrink;
mod slt;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Failure;
use crate::engine::Engine;
use run::{Failed, FailureKind, Fate, Outcome};
use script::Script;

/// How much is tried.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cases to compare; the last script is run to its end.
    pub cases: u64,
    /// The seed of the first script.
    pub seed: u64,
    /// Scripts at once, each on an engine of its own.
    pub threads: usize,
    /// Where scripts of failures are written.
    pub out: Option<PathBuf>,
    /// After so many failures it ends.
    pub failures_max: usize,
    /// Whether to say on standard error how it goes.
    pub talk: bool,
}

/// A view that was wrong.
#[derive(Debug, Clone)]
pub struct Found {
    /// The seed of its script.
    pub seed: u64,
    pub kind: FailureKind,
    pub message: String,
    /// The script for `millrace test`, or why there is none.
    pub script: String,
}

/// What was tried and found.
#[derive(Debug, Default)]
pub struct Report {
    /// Views that were compared at least once.
    pub cases: u64,
    /// Comparisons.
    pub comparisons: u64,
    /// Views that the planner refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Queries that plain DataFusion does not plan either, by reason.
    pub not_queries: BTreeMap<String, u64>,
    /// Queries whose batch answer is an error or not definite, by reason.
    pub no_answer: BTreeMap<String, u64>,
    /// For each construct the views compared and the views refused that have it.
    pub constructs: BTreeMap<&'static str, (u64, u64)>,
    /// Queries that plain DataFusion answers otherwise when it binds them without the planner's rewrites, and where.
    /// One of both is wrong.
    pub contradictions: Vec<String>,
    /// Queries that were asked both ways.
    pub asked_twice: u64,
    /// Views that came back from a checkpoint after a restart, and those that one had and that were filled all the same.
    pub restored: u64,
    pub not_restored: Vec<String>,
    pub failures: Vec<Found>,
    pub scripts: u64,
    pub elapsed: Duration,
}

impl Report {
    /// Views that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.values().sum()
    }

    /// The share of the views that were refused.
    pub fn refused_share(&self) -> f64 {
        self.refused() as f64 / (self.cases + self.refused()).max(1) as f64
    }

    fn count(&mut self, seed: u64, script: &Script, outcome: &Outcome) {
        self.scripts += 1;
        self.asked_twice += outcome.asked_twice;
        self.restored += outcome.restored;
        let why = outcome.not_restored.iter();
        self.not_restored
            .extend(why.map(|why| format!("seed {seed}: {why}")));
        for (view, message) in &outcome.contradictions {
            let query = &script.views[*view].query;
            self.contradictions
                .push(format!("seed {seed}: {query}\n{message}"));
        }
        for (view, fate) in script.views.iter().zip(&outcome.fates) {
            match fate {
                Fate::Compared(0) => continue,
                Fate::Compared(times) => {
                    self.cases += 1;
                    self.comparisons += *times as u64;
                }
                Fate::Refused(why) => *self.refused.entry(why.clone()).or_default() += 1,
                Fate::NotAQuery(why) => {
                    *self.not_queries.entry(kind_of(why)).or_default() += 1;
                    continue;
                }
                Fate::NoAnswer(why) => {
                    *self.no_answer.entry(kind_of(why)).or_default() += 1;
                    continue;
                }
            }
            for construct in &view.constructs {
                let (compared, refused) = self.constructs.entry(construct).or_default();
                match fate {
                    Fate::Refused(_) => *refused += 1,
                    _ => *compared += 1,
                }
            }
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let seconds = self.elapsed.as_secs_f64();
        let _ = writeln!(
            text,
            "{} cases in {} scripts, {} comparisons, {seconds:.1} s: {:.0} cases/s",
            self.cases,
            self.scripts,
            self.comparisons,
            self.cases as f64 / seconds.max(1e-9)
        );
        let _ = writeln!(
            text,
            "refused: {} ({:.2} %); no query of DataFusion's: {}; no definite answer: {}",
            self.refused(),
            self.refused_share() * 100.0,
            self.not_queries.values().sum::<u64>(),
            self.no_answer.values().sum::<u64>()
        );
        let lists = [
            ("refused", &self.refused),
            ("not planned by plain DataFusion", &self.not_queries),
            ("without a definite answer", &self.no_answer),
        ];
        for (title, reasons) in lists {
            let mut reasons: Vec<_> = reasons.iter().collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (why, count) in reasons.into_iter().take(REASONS_SHOWN) {
                let _ = writeln!(text, "  {title}: {count} x {why}");
            }
        }
        let _ = writeln!(
            text,
            "{:<52} {:>9} {:>8} {:>8}",
            "construct", "cases", "share", "refused"
        );
        let mut constructs: Vec<_> = self.constructs.iter().collect();
        constructs.sort_by_key(|(_, (compared, _))| std::cmp::Reverse(*compared));
        for (construct, (compared, refused)) in constructs {
            let share = 100.0 * *compared as f64 / self.cases.max(1) as f64;
            let _ = writeln!(text, "{construct:<52} {compared:>9} {share:>6.1} % {refused:>8}");
        }
        let (both, otherwise) = (self.asked_twice, self.contradictions.len());
        let _ = writeln!(
            text,
            "asked without the planner's rewrites too: {both}, of which otherwise answered: {otherwise}"
        );
        for contradiction in self.contradictions.iter().take(REASONS_SHOWN) {
            let _ = writeln!(text, "  {contradiction}");
        }
        let (restored, not) = (self.restored, self.not_restored.len());
        let _ = writeln!(
            text,
            "restored from checkpoints: {restored}; filled although in one: {not}"
        );
        for why in self.not_restored.iter().take(REASONS_SHOWN) {
            let _ = writeln!(text, "  {why}");
        }
        let _ = writeln!(text, "failures: {}", self.failures.len());
        for found in &self.failures {
            let _ = writeln!(
                text,
                "\n==== seed {}: {:?}\n{}\n{}",
                found.seed, found.kind, found.message, found.script
            );
        }
        text
    }
}

/// After so many cases it says that it goes on.
const TALK_CASES: u64 = 5_000;

/// Reasons of each list that a report names.
const REASONS_SHOWN: usize = 12;

/// A message without what differs from query to query.
fn kind_of(message: &str) -> String {
    let longest = message.lines().max_by_key(|line| line.len()).unwrap_or_default();
    longest
        .chars()
        .take(140)
        .collect::<String>()
        .replace(|c: char| c.is_ascii_digit(), "_")
}

/// Runs scripts until there were so many cases, or so many failures.
///
/// # Errors
/// An engine does not start or cannot write: nothing was found out.
pub fn run(options: &Options) -> Result<Report, Failure> {
    let started = Instant::now();
    let shared = Shared {
        next: AtomicU64::new(options.seed),
        is_over: AtomicBool::new(false),
        report: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads.max(1))
            .map(|_| scope.spawn(|| work(options, &shared)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| Failure::from("a thread of the oracle panicked"))?
        })
    })?;
    let mut report = shared.report.into_inner();
    report.elapsed = started.elapsed();
    Ok(report)
}

/// Longer than any script.
const PACE: Duration = Duration::from_secs(3_600);

struct Shared {
    next: AtomicU64,
    is_over: AtomicBool,
    report: Mutex<Report>,
}

fn work(options: &Options, shared: &Shared) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut place = Place::make()?;
        let mut said = 0;
        while !shared.is_over.load(Ordering::Relaxed) {
            let seed = shared.next.fetch_add(1, Ordering::Relaxed);
            let script = Script::random(&mut StdRng::seed_from_u64(seed));
            // Of every other script epochs are cut only for who reads, and take what there is by then.
            place.engine.pace((!seed.is_multiple_of(2)).then_some(PACE));
            let outcome = run::run(&mut place.engine, &script).await;
            let outcome = outcome.map_err(|error| format!("seed {seed}: {error}"))?;
            let cases = {
                let mut report = shared.report.lock();
                report.count(seed, &script, &outcome);
                report.cases
            };
            if options.talk && cases / TALK_CASES > said {
                said = cases / TALK_CASES;
                eprintln!("{cases} cases");
            }
            if let Some(failed) = outcome.failed {
                let is_stuck = failed.kind == FailureKind::Stuck;
                let found = found(options, &mut place.engine, seed, script, failed).await;
                shared.report.lock().failures.push(found);
                if is_stuck {
                    // What is stuck keeps its engine.
                    std::mem::forget(std::mem::replace(&mut place, Place::make()?));
                }
            }
            let report = shared.report.lock();
            if report.cases >= options.cases || report.failures.len() >= options.failures_max {
                shared.is_over.store(true, Ordering::Relaxed);
            }
        }
        place.engine.shutdown().await;
        Ok(())
    })
}

/// An engine in a directory of its own, in memory where the system has one there.
struct Place {
    engine: Engine,
    _directory: tempfile::TempDir,
}

impl Place {
    fn make() -> Result<Place, Failure> {
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        let mut engine = Engine::start(directory.path(), 1)?;
        engine.keep_checkpoints();
        Ok(Place {
            engine,
            _directory: directory,
        })
    }
}

/// Cuts a failure down and writes it as a file.
async fn found(options: &Options, engine: &mut Engine, seed: u64, script: Script, failed: Failed) -> Found {
    let (kind, message) = (failed.kind, failed.message.clone());
    if options.talk {
        eprintln!("seed {seed}: {kind:?}: {message}");
    }
    let query = script.views[failed.view].query.to_string();
    let (small, failed) = shrink::shrink(engine, script, failed).await;
    let title = format!(
        "Found by the random oracle (seed {seed}): {:?}.\n{}",
        failed.kind, failed.message
    );
    let script = match slt::render(&small, title.trim_end()).await {
        Ok(rendered) => {
            if let Some(out) = &options.out {
                let written = std::fs::create_dir_all(out)
                    .and_then(|()| std::fs::write(out.join(format!("seed_{seed}.slt")), &rendered.text));
                if let Err(error) = written {
                    return Found {
                        seed,
                        kind,
                        message: format!("{message}\ncannot be written to {}: {error}", out.display()),
                        script: rendered.text,
                    };
                }
            }
            let seen = if rendered.fails { "fails" } else { "does not fail" };
            format!("a server {seen} this script\n{}", rendered.text)
        }
        Err(error) => format!("no script: {error}\nthe view before it was cut down: {query}\n{small:#?}"),
    };
    Found {
        seed,
        kind,
        message: failed.message,
        script,
    }
}
