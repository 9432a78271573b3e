//! The closing line: what holds the run back, and what would help, in plain words.

use super::model::{Limit, Model, predict};
use super::profile::{Blocked, Nanoseconds, Profile};
use super::scenario::{Scenario, Speed};
use super::units::{duration, percent};
use super::what_if::twice_the_cores;

/// Below this share of the run that some resource accounts for, the waiting is told instead.
const MODELLED_SHARE_MIN: f64 = 0.5;

/// One line, such as `disk-bound: 71 % of 1.84 s; a disk twice as fast: 1.21 s`.
pub fn verdict(profile: &Profile, modelled: &Model) -> String {
    let elapsed = profile.planning + profile.end;
    let total = duration(elapsed as f64);
    let share = |time: f64| percent(if elapsed > 0 { time / elapsed as f64 } else { 0.0 });
    let Some((limit, time)) = modelled.limits.first() else {
        return format!("no resource was used in {total}");
    };
    if profile.planning as f64 > elapsed as f64 * MODELLED_SHARE_MIN {
        return format!("planning: {} of {total}", share(profile.planning as f64));
    }
    if modelled.total < profile.end as f64 * MODELLED_SHARE_MIN {
        let waited = share(profile.end as f64 - modelled.total);
        return match waiting(profile) {
            Some((what, time)) => format!(
                "no resource was the bottleneck for {waited} of {total}; {what}: {} over all tasks",
                duration(time as f64)
            ),
            None => format!("no resource was the bottleneck for {waited} of {total}"),
        };
    }
    let cure =
        |name: &str, scenario: Scenario| format!("{name}: {}", duration(predict(profile, &scenario) as f64));
    let cure = match limit {
        Limit::Cpu => cure("twice the cores", twice_the_cores(profile)),
        Limit::OneTask => "one task does it all, so more cores do not help".to_owned(),
        Limit::Disk => cure(
            "a disk twice as fast",
            Scenario {
                disk: Speed::Times(2.0),
                ..Scenario::default()
            },
        ),
        Limit::Network => cure(
            "a network twice as fast",
            Scenario {
                network: Speed::Times(2.0),
                ..Scenario::default()
            },
        ),
    };
    let name = match limit {
        Limit::OneTask => Limit::Cpu.name(),
        other => other.name(),
    };
    format!("{name}-bound: {} of {total}; {cure}", share(*time))
}

/// What the tasks waited for longest, apart from each other and the resources; added up over the tasks.
fn waiting(profile: &Profile) -> Option<(&'static str, Nanoseconds)> {
    let tasks = || profile.stages.iter().flat_map(|stage| &stage.tasks);
    let blocked =
        |of: fn(&Blocked) -> Nanoseconds| tasks().map(|task| of(&task.blocked)).sum::<Nanoseconds>();
    let queue = tasks()
        .flat_map(|task| &task.usage)
        .map(|usage| usage.queue)
        .sum::<Nanoseconds>();
    [
        ("tasks were suspended", tasks().map(|task| task.suspended).sum()),
        (
            "tasks waited for the receiver of their rows",
            blocked(|blocked| blocked.output),
        ),
        ("tasks waited in queues", queue),
        ("tasks waited for the disk", blocked(|blocked| blocked.disk)),
        ("tasks waited for the network", blocked(|blocked| blocked.network)),
    ]
    .into_iter()
    .rev()
    .max_by_key(|(_, time)| *time)
    .filter(|(_, time)| *time > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, SECOND, compute, disk, machine, profile, read, stage, task};
    use crate::model::model;

    fn line(profile: &Profile) -> String {
        verdict(profile, &model(profile, &Scenario::default()))
    }

    #[test]
    fn each_limit_has_its_cure() {
        let mut run = profile(
            machine(2, vec![disk(100e6)]),
            5 * SECOND,
            vec![stage(
                0,
                &[],
                vec![task(
                    0,
                    0,
                    5 * SECOND,
                    vec![read(4 * SECOND, 400_000_000), compute(2 * SECOND)],
                )],
            )],
        );
        assert_eq!(
            line(&run),
            "disk-bound: 80 % of 5.00 s; a disk twice as fast: 2.50 s"
        );
        run.stages[0].tasks[0].usage = vec![compute(10 * SECOND)];
        assert_eq!(line(&run), "cpu-bound: 100 % of 5.00 s; twice the cores: 2.56 s");
        run.stages[0].parallelism = crate::profile::Parallelism::Fixed;
        run.stages[0].tasks[0].usage = vec![compute(4 * SECOND)];
        assert_eq!(
            line(&run),
            "cpu-bound: 80 % of 5.00 s; one task does it all, so more cores do not help"
        );
    }

    #[test]
    fn waiting_is_told_when_nothing_was_busy() {
        let mut run = profile(
            machine(2, vec![]),
            5 * SECOND,
            vec![stage(0, &[], vec![task(0, 0, 5 * SECOND, vec![compute(SECOND)])])],
        );
        assert_eq!(line(&run), "no resource was the bottleneck for 90 % of 5.00 s");
        run.stages[0].tasks[0].blocked.output = 4 * SECOND;
        assert_eq!(
            line(&run),
            "no resource was the bottleneck for 90 % of 5.00 s; tasks waited for the receiver of their \
             rows: 4.00 s over all tasks"
        );
        run.planning = 7 * SECOND;
        assert_eq!(line(&run), "planning: 58 % of 12.0 s");
        run.stages.clear();
        run.end = MS;
        run.planning = 0;
        assert_eq!(line(&run), "no resource was used in 1.00 ms");
    }
}
