//! Blocked-time analysis: when would the run have ended, had its tasks never waited for a resource (Ousterhout 2017, section
//! 3.3.2)?
//!
//! The schedule is played again with shorter tasks. A task takes the next free slot of its stage, of which there are as many
//! as the stage ever had tasks at once: so a second wave starts when a slot of the first is free, on whichever slot that is.
//! A stage begins when those that had ended before it began have ended. A stage that read another one while that ran ends no
//! sooner than it, plus the work that was left after it.
//!
//! The answer is a best case: what a task no longer waits for one resource it may wait for the next. It compares two replays,
//! so that what the replay itself gets wrong does not count as gain.

use super::profile::{Nanoseconds, Profile, StageProfile, TaskProfile};

/// What tasks are relieved of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relief {
    Nothing,
    Disk,
    Network,
    /// Pauses for more urgent work.
    Suspension,
}

/// When the run would have ended, planning included, in nanoseconds.
pub fn without(profile: &Profile, relief: Relief) -> Nanoseconds {
    let simulated = replay(profile, Relief::Nothing);
    if simulated == 0 {
        return profile.planning + profile.end;
    }
    let ratio = replay(profile, relief) as f64 / simulated as f64;
    profile.planning + (profile.end as f64 * ratio).round() as Nanoseconds
}

/// A stage that has been replayed.
struct Played<'a> {
    stage: &'a StageProfile,
    /// When its tasks began and ended in the run.
    seen: (Nanoseconds, Nanoseconds),
    end: Nanoseconds,
}

/// The end of the last stage.
fn replay(profile: &Profile, relief: Relief) -> Nanoseconds {
    let mut order: Vec<(&StageProfile, (Nanoseconds, Nanoseconds))> = profile
        .stages
        .iter()
        .filter_map(|stage| Some((stage, stage.active()?)))
        .collect();
    // Stable: a stage stays behind those that it depends on when both end at once.
    order.sort_by_key(|(_, (_, end))| *end);
    let mut played: Vec<Played<'_>> = vec![];
    for (stage, seen) in order {
        let end = play(stage, seen, &played, relief);
        played.push(Played { stage, seen, end });
    }
    played.iter().map(|played| played.end).max().unwrap_or(0)
}

fn play(
    stage: &StageProfile,
    seen: (Nanoseconds, Nanoseconds),
    before: &[Played<'_>],
    relief: Relief,
) -> Nanoseconds {
    let released = before
        .iter()
        .filter(|other| other.seen.1 <= seen.0)
        .map(|other| other.end)
        .max()
        .unwrap_or(0);
    // Those whose rows it read while they ran: each with its end in the run and in the replay.
    let feeding: Vec<(Nanoseconds, Nanoseconds)> = before
        .iter()
        .filter(|other| stage.depends_on.contains(&other.stage.id) && other.seen.1 > seen.0)
        .map(|other| (other.seen.1, other.end))
        .collect();
    let mut slots = vec![released; at_once(&stage.tasks)];
    let mut tasks: Vec<&TaskProfile> = stage.tasks.iter().collect();
    tasks.sort_by_key(|task| task.start);
    let mut last = released;
    for task in tasks {
        let work = work(task, relief);
        let slot = (slots.iter_mut())
            .min()
            .expect("a stage that was active has had a task");
        let fed = feeding
            .iter()
            .map(|(seen_end, end)| end + work.min(task.end.saturating_sub(*seen_end)))
            .max()
            .unwrap_or(0);
        *slot = (*slot + work).max(fed);
        last = last.max(*slot);
    }
    last
}

/// A task's length without what it waited for: for its input always, since the replay itself makes it wait.
fn work(task: &TaskProfile, relief: Relief) -> Nanoseconds {
    let relieved = match relief {
        Relief::Nothing => 0,
        Relief::Disk => task.blocked.disk,
        Relief::Network => task.blocked.network,
        Relief::Suspension => task.suspended,
    };
    task.end
        .saturating_sub(task.start)
        .saturating_sub(task.blocked.input)
        .saturating_sub(relieved)
}

/// The most tasks that ran at one time.
fn at_once(tasks: &[TaskProfile]) -> usize {
    let mut changes: Vec<(Nanoseconds, i64)> = tasks
        .iter()
        .flat_map(|task| [(task.start, 1), (task.end.max(task.start + 1), -1)])
        .collect();
    changes.sort_unstable();
    let mut running = 0;
    let most = changes
        .iter()
        .map(|(_, change)| {
            running += change;
            running
        })
        .max();
    usize::try_from(most.unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, machine, profile, stage, task};

    fn blocked(partition: usize, start: Nanoseconds, end: Nanoseconds, disk: Nanoseconds) -> TaskProfile {
        let mut task = task(partition, start * MS, end * MS, vec![]);
        task.blocked.disk = disk * MS;
        task
    }

    /// Three tasks on two slots (figure 3.2): the third starts on the slot that is free first, which is another one without the
    /// blocked times.
    #[test]
    fn waves_are_scheduled_anew() {
        let tasks = vec![blocked(0, 0, 4, 0), blocked(1, 0, 5, 4), blocked(2, 4, 8, 0)];
        let run = profile(machine(2, vec![]), 8 * MS, vec![stage(0, &[], tasks)]);
        assert_eq!(without(&run, Relief::Nothing), 8 * MS);
        // Slot 1 is free after 1 ms, so that the third ends after 5.
        assert_eq!(without(&run, Relief::Disk), 5 * MS);
        assert_eq!(without(&run, Relief::Network), 8 * MS);
    }

    #[test]
    fn a_stage_waits_for_those_that_had_ended_before_it() {
        let first = stage(0, &[], vec![blocked(0, 0, 6, 4)]);
        let second = stage(1, &[0], vec![blocked(0, 6, 10, 1)]);
        let run = profile(machine(1, vec![]), 10 * MS, vec![first, second]);
        assert_eq!(without(&run, Relief::Disk), 5 * MS);
    }

    /// The second stage takes rows of the first while that runs, and has 1 ms of work left after it.
    #[test]
    fn a_stage_ends_after_the_one_that_feeds_it() {
        let first = stage(0, &[], vec![blocked(0, 0, 8, 6)]);
        let mut reader = blocked(0, 0, 9, 0);
        reader.blocked.input = 5 * MS;
        let run = profile(
            machine(2, vec![]),
            9 * MS,
            vec![first, stage(1, &[0], vec![reader])],
        );
        assert_eq!(without(&run, Relief::Nothing), 9 * MS);
        // Its own 4 ms of work are now the longest.
        assert_eq!(without(&run, Relief::Disk), 4 * MS);
    }

    #[test]
    fn one_slow_task_of_many_holds_the_end() {
        let mut tasks: Vec<TaskProfile> = (0..4).map(|partition| blocked(partition, 0, 2, 1)).collect();
        tasks.push(blocked(4, 0, 9, 1));
        let run = profile(machine(5, vec![]), 9 * MS, vec![stage(0, &[], tasks)]);
        assert_eq!(without(&run, Relief::Disk), 8 * MS);
    }

    #[test]
    fn pauses_can_be_taken_out_and_planning_stays() {
        let mut paused = blocked(0, 0, 10, 0);
        paused.suspended = 3 * MS;
        let mut run = profile(machine(1, vec![]), 10 * MS, vec![stage(0, &[], vec![paused])]);
        run.planning = MS;
        assert_eq!(without(&run, Relief::Suspension), 8 * MS);
        run.stages.clear();
        assert_eq!(without(&run, Relief::Suspension), 11 * MS);
    }
}
