//! The table of what-ifs: what the run would take with something changed (Ousterhout 2017, sections 5.6.2-5.6.4).

use serde::{Deserialize, Serialize};

use super::model::{model, predict};
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

/// What was asked, then what is worth knowing of this run: changes of resources that it used.
pub fn what_ifs(profile: &Profile, asked: Option<Scenario>) -> Vec<Prediction> {
    let mut scenarios: Vec<Scenario> = asked.into_iter().collect();
    for scenario in usual(profile) {
        if !scenarios.contains(&scenario) {
            scenarios.push(scenario);
        }
    }
    scenarios
        .into_iter()
        .map(|scenario| Prediction {
            scenario,
            modelled: model(profile, &scenario).total,
            elapsed: predict(profile, &scenario),
        })
        .collect()
}

fn usual(profile: &Profile) -> Vec<Scenario> {
    let uses = |counts: &dyn Fn(&Usage) -> bool| {
        profile
            .stages
            .iter()
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
    use crate::fixtures::two_stages;

    #[test]
    fn only_what_the_run_used_is_changed() {
        let mut run = two_stages();
        let lines = |profile: &Profile| -> Vec<String> {
            what_ifs(profile, None)
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
        let lines = what_ifs(&two_stages(), Some(asked));
        assert_eq!(lines[0].scenario, asked);
        assert_eq!(lines.iter().filter(|line| line.scenario == asked).count(), 1);
    }

    /// A better machine never makes the prediction worse.
    #[test]
    fn more_is_never_slower() {
        let run = two_stages();
        let measured = run.planning + run.end;
        for line in what_ifs(&run, None) {
            if line.scenario.cores == Some(1) {
                assert!(line.elapsed >= measured, "{line:?}");
            } else {
                assert!(line.elapsed <= measured, "{line:?}");
            }
        }
    }
}
