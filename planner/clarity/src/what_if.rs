//! The table of what-ifs: what the run would take with something changed (Ousterhout 2017, sections 5.6.2-5.6.4).

use serde::{Deserialize, Serialize};

use super::model::{Model, model, predict};
use super::profile::{Nanoseconds, Profile, Resource, Usage};
use super::scenario::{Scenario, Speed};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub scenario: Scenario,
    /// Modelled nanoseconds after the change.
    pub modelled: f64,
    /// What the run would take, planning included.
    pub elapsed: Nanoseconds,
}

/// What was asked, then what is worth knowing of these runs: changes of resources that they used. Of several runs on one machine,
/// such as the epochs of a view, the means.
pub fn what_ifs(runs: &[Profile], asked: Option<Scenario>) -> Vec<Prediction> {
    let mut scenarios: Vec<Scenario> = asked.into_iter().collect();
    for scenario in usual(runs) {
        if !scenarios.contains(&scenario) {
            scenarios.push(scenario);
        }
    }
    scenarios
        .into_iter()
        .map(|scenario| {
            let models: Vec<Model> = runs.iter().map(|run| model(run, &scenario)).collect();
            let elapsed: Nanoseconds = runs.iter().map(|run| predict(run, &scenario)).sum();
            Prediction {
                scenario,
                modelled: Model::mean(&models).total,
                elapsed: elapsed / runs.len().max(1) as Nanoseconds,
            }
        })
        .collect()
}

fn usual(runs: &[Profile]) -> Vec<Scenario> {
    let Some(profile) = runs.first() else {
        return vec![];
    };
    let uses = |counts: &dyn Fn(&Usage) -> bool| {
        runs.iter()
            .flat_map(|run| &run.stages)
            .flat_map(|stage| &stage.tasks)
            .flat_map(|task| &task.usage)
            .any(counts)
    };
    let unchanged = Scenario::default();
    let cores = profile.machine.cores;
    let mut scenarios = vec![];
    if cores > 1 {
        scenarios.push(Scenario {
            cores: Some(cores / 2),
            ..unchanged
        });
    }
    scenarios.push(twice_the_cores(profile));
    if uses(&|usage| matches!(usage.resource, Resource::Disk(_))) {
        scenarios.push(Scenario {
            disk: Speed::Times(2.0),
            ..unchanged
        });
        scenarios.push(Scenario {
            disk: Speed::Infinite,
            ..unchanged
        });
    }
    if uses(&|usage| usage.resource == Resource::Network) {
        scenarios.push(Scenario {
            network: Speed::Times(2.0),
            ..unchanged
        });
    }
    if let Some(memory) = profile.machine.memory.filter(|memory| memory.spilled > 0)
        && uses(&|usage| usage.kind.is_spilling())
    {
        scenarios.push(Scenario {
            memory: Some(memory.needed()),
            ..unchanged
        });
    }
    if uses(&|usage| usage.kind.is_input()) {
        scenarios.push(Scenario {
            input_in_memory: true,
            ..unchanged
        });
    }
    scenarios
}

pub(super) fn twice_the_cores(profile: &Profile) -> Scenario {
    Scenario {
        cores: Some(profile.machine.cores.max(1) * 2),
        ..Scenario::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, two_stages, usage};
    use crate::profile::{Kind, MemoryUse};

    #[test]
    fn only_what_the_run_used_is_changed() {
        let mut run = two_stages();
        let lines = |profile: &Profile| -> Vec<String> {
            what_ifs(std::slice::from_ref(profile), None)
                .iter()
                .map(|line| line.scenario.to_string())
                .collect()
        };
        assert_eq!(
            lines(&run),
            [
                "cores = 1",
                "cores = 4",
                "disk = x2",
                "disk = infinite",
                "input = memory"
            ]
        );
        run.stages.remove(0);
        assert_eq!(lines(&run), ["cores = 1", "cores = 4"]);
    }

    #[test]
    fn what_was_asked_comes_first_and_once() {
        let asked = Scenario {
            cores: Some(4),
            ..Scenario::default()
        };
        let lines = what_ifs(&[two_stages()], Some(asked));
        assert_eq!(lines[0].scenario, asked);
        assert_eq!(lines.iter().filter(|line| line.scenario == asked).count(), 1);
    }

    /// With enough memory the disk monotasks of spilling are gone; with too little to tell, nothing is.
    #[test]
    fn memory_that_is_enough_spills_nothing() {
        let mut run = two_stages();
        let spilling = [
            usage(Resource::Disk(0), Kind::Write, 400 * MS, 80_000_000),
            usage(Resource::Disk(0), Kind::Reread, 400 * MS, 80_000_000),
        ];
        run.stages[0].tasks[0].usage.extend(spilling);
        run.machine.memory = Some(MemoryUse {
            held: 10_000_000,
            spilled: 80_000_000,
        });
        let with = |memory: u64| Scenario {
            memory: Some(memory),
            ..Scenario::default()
        };
        let now = model(&run, &Scenario::default()).total;
        assert_eq!(model(&run, &with(89_999_999)).total, now);
        let without = model(&run, &with(90_000_000)).total;
        let mut never = run.clone();
        never.stages[0].tasks[0]
            .usage
            .retain(|usage| !usage.kind.is_spilling());
        assert!(without < now);
        assert_eq!(without, model(&never, &Scenario::default()).total);
        let lines = what_ifs(std::slice::from_ref(&run), None);
        let line = lines.iter().find(|line| line.scenario.memory.is_some()).unwrap();
        assert_eq!(line.scenario.to_string(), "memory = 90.0 MB");
        assert!(line.elapsed < run.planning + run.end);
        run.machine.memory = Some(MemoryUse {
            held: 10_000_000,
            spilled: 0,
        });
        let lines = what_ifs(std::slice::from_ref(&run), None);
        assert!(lines.iter().all(|line| line.scenario.memory.is_none()));
    }

    /// Of several runs the means are told.
    #[test]
    fn runs_are_averaged() {
        let (one, mut other) = (two_stages(), two_stages());
        other.end *= 3;
        let both = what_ifs(&[one.clone(), other.clone()], None);
        let apart = [what_ifs(&[one], None), what_ifs(&[other], None)];
        for ((both, one), other) in both.iter().zip(&apart[0]).zip(&apart[1]) {
            assert_eq!(both.elapsed, (one.elapsed + other.elapsed) / 2);
            assert!((both.modelled - (one.modelled + other.modelled) / 2.0).abs() < 1.0);
        }
    }

    /// A better machine never makes the prediction worse.
    #[test]
    fn more_is_never_slower() {
        let run = two_stages();
        let measured = run.planning + run.end;
        for line in what_ifs(std::slice::from_ref(&run), None) {
            if line.scenario.cores == Some(1) {
                assert!(line.elapsed >= measured, "{line:?}");
            } else {
                assert!(line.elapsed <= measured, "{line:?}");
            }
        }
    }
}
