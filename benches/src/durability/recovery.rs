//! Recovery: how soon a server that was killed answers rightly again.

use clap::Args;

use super::{Back, Bank};
use crate::error::BenchError;
use crate::results::{Aim, Experiment, Run};
use crate::size::Size;
use crate::suite::Suite;
use crate::target::Target;

/// So many accounts, with the views over them, are a gigabyte in memory.
const ACCOUNTS_OF_A_GB: usize = 7_000_000;

/// The experiments' names.
const BY_STATE: &str = "restart by state";
const BY_HISTORY: &str = "restart by history";

/// How much of everything a run does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// Sizes of the bank, in accounts.
    pub accounts: Vec<usize>,
    /// Of the bank whose history grows: accounts, and changes of rows before the checkpoint.
    pub history_accounts: usize,
    pub histories: Vec<usize>,
    /// Changes of rows behind the checkpoint.
    pub tail: usize,
    /// How often each is killed.
    pub kills: usize,
}

impl Scale {
    /// About 0.1, 1 and 5 GB of state; a minute, ten and an hour of 1,000 changes a second.
    pub fn real() -> Self {
        Scale {
            accounts: vec![ACCOUNTS_OF_A_GB / 10, ACCOUNTS_OF_A_GB, 5 * ACCOUNTS_OF_A_GB],
            history_accounts: 100_000,
            histories: vec![60_000, 600_000, 3_600_000],
            tail: 10_000,
            kills: 5,
        }
    }

    /// Enough to see that it works.
    pub fn small() -> Self {
        Scale {
            accounts: vec![2_000, 8_000],
            history_accounts: 1_000,
            histories: vec![1_000, 4_000],
            tail: 100,
            kills: 1,
        }
    }
}

/// The suite; it has no options of its own.
#[derive(Debug, Args)]
pub struct Recovery;

impl Suite for Recovery {
    const NAME: &'static str = "recovery";
    const ABOUT: &'static str =
        "Recovery: time from exec to the first right answer after a kill, by state and by history";

    async fn run(&self, run: &mut Run) -> Result<(), BenchError> {
        let scale = match run.size() {
            Size::Real => Scale::real(),
            Size::Small => Scale::small(),
        };
        let target = Target::of(run.size())?;
        if target == Target::InProcess {
            run.note("The server was stopped, not killed.");
        }
        if run.begins(BY_STATE) {
            run.add(by_state(&scale, &target).await?);
        }
        if run.begins(BY_HISTORY) {
            run.add(by_history(&scale, &target).await?);
        }
        Ok(())
    }
}

/// Banks of several sizes.
async fn by_state(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        BY_STATE,
        format!(
            "A table of accounts with an aggregate and a join over it. Everything is in a checkpoint, then {} rows are \
             changed, then the server is killed (SIGKILL). Times from exec until the aggregate answers (with what the \
             checkpoint has, `recovery_reads = checkpoint`), and until these changes are in the answer.",
            scale.tail
        ),
    );
    for accounts in &scale.accounts {
        eprintln!("{accounts} accounts ...");
        let mut bank = Bank::open(target, *accounts).await?;
        let state = bank.state_mb().await?;
        let cost = bank.checkpoint().await?;
        let times = kills(bank, scale, target).await?;
        let name = |what: &str| format!("{accounts} accounts: {what}");
        experiment.add(name("state in memory"), "MB", vec![state], None);
        experiment.add(name("checkpoint"), "MB", vec![cost.total / 1e6], None);
        experiment.add(name("written in"), "ms", vec![cost.milliseconds], None);
        let aim = |milliseconds| (*accounts <= ACCOUNTS_OF_A_GB).then_some(Aim::MedianUnder(milliseconds));
        let of = |time: fn(&Back) -> f64| times.iter().map(time).collect();
        let first = of(|back| back.first_answer_ms);
        experiment.add(name("first answer"), "ms", first, aim(1_000.0));
        let caught_up = of(|back| back.caught_up_ms);
        experiment.add(name("caught up"), "ms", caught_up, aim(3_000.0));
    }
    Ok(experiment)
}

/// Banks of one size with more and more changes before the checkpoint.
async fn by_history(scale: &Scale, target: &Target) -> Result<Experiment, BenchError> {
    let mut experiment = Experiment::new(
        BY_HISTORY,
        format!(
            "{} accounts, so many changes of rows (as 1,000 a second would make in 1 minute, 10 minutes and 1 hour), a \
             checkpoint, {} changes behind it, SIGKILL. Time from exec to the first right answer; of a server that \
             has to start without checkpoints too.",
            scale.history_accounts, scale.tail
        ),
    );
    for changes in &scale.histories {
        eprintln!("{changes} changes ...");
        let mut bank = Bank::open(target, scale.history_accounts).await?;
        let mut left = *changes;
        while left > 0 {
            let count = left.min(scale.history_accounts / 10);
            bank.add(left % (scale.history_accounts - count), count).await?;
            left -= count;
        }
        let name = |what: &str| format!("{changes} changes: {what}");
        let (next, without) = bank.restart(target).await?;
        bank = next;
        bank.checkpoint().await?;
        let times = kills(bank, scale, target).await?;
        experiment.add(
            name("from the checkpoint"),
            "ms",
            times.iter().map(|back| back.caught_up_ms).collect(),
            Some(Aim::MedianUnder(1_000.0)),
        );
        experiment.add(name("without one"), "ms", vec![without.caught_up_ms], None);
    }
    Ok(experiment)
}

/// Changes rows and kills the server, again and again; returns how soon it was back each time.
async fn kills(mut bank: Bank, scale: &Scale, target: &Target) -> Result<Vec<Back>, BenchError> {
    let mut times = vec![];
    for _ in 0..scale.kills {
        bank.add(0, scale.tail).await?;
        let (next, time) = bank.restart(target).await?;
        bank = next;
        times.push(time);
    }
    bank.stop().await?;
    Ok(times)
}
