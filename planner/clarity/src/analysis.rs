//! All that is said about a run, computed once; the renderers only print it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::{Ideal, Limit, Model, model, stage_ideal, usage_ideal};
use super::profile::{Blocked, Kind, Nanoseconds, Profile, Resource, StageProfile};
use super::replay::{Relief, without};
use super::scenario::Scenario;
use super::skew::{Skew, skew};
use super::verdict::verdict;
use super::what_if::{Prediction, what_ifs};

/// What is said of a run beside its profile. Times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Measured, planning included.
    pub elapsed: Nanoseconds,
    /// The time of a perfect schedule on this machine, and what limits it.
    pub modelled: Model,
    /// Over all stages, each resource once.
    pub resources: Vec<UsageAnalysis>,
    /// As the profile's.
    pub stages: Vec<StageAnalysis>,
    pub suspended: Nanoseconds,
    /// When the run would have ended without any waiting for a resource.
    pub without_blocking: WithoutBlocking,
    pub what_ifs: Vec<Prediction>,
    /// One line in plain words.
    pub verdict: String,
}

/// Blocked-time analysis; `None` for what no task ever waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WithoutBlocking {
    pub disk: Option<Nanoseconds>,
    pub network: Option<Nanoseconds>,
    pub suspension: Option<Nanoseconds>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageAnalysis {
    pub id: usize,
    /// From its first to its last task; 0 without one.
    pub start: Nanoseconds,
    pub end: Nanoseconds,
    pub ideal: Ideal,
    /// What holds this stage back; `None`: it used nothing.
    pub limit: Option<Limit>,
    /// Each resource and kind once.
    pub usage: Vec<UsageAnalysis>,
    pub skew: Option<Skew>,
    pub suspended: Nanoseconds,
    pub pauses: u64,
    /// Added up over its tasks.
    pub blocked: Blocked,
}

/// Monotasks of one resource, added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageAnalysis {
    pub resource: Resource,
    /// `None`: all kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    pub monotasks: u64,
    pub service: Nanoseconds,
    pub queue: Nanoseconds,
    pub bytes: u64,
    pub rows: u64,
    /// Bytes moved for each second of service.
    pub bytes_per_second: Option<f64>,
    /// Nanoseconds that a perfect schedule needs for them.
    pub ideal: f64,
    /// The ideal time's share of the time that the stage, or the run, took.
    pub utilisation: f64,
}

/// Analyses a run; `asked` is the user's what-if.
pub fn analyse(profile: &Profile, asked: Option<Scenario>) -> Analysis {
    let elapsed = profile.planning + profile.end;
    let modelled = model(profile, &Scenario::default());
    let stages: Vec<StageAnalysis> = profile
        .stages
        .iter()
        .map(|stage| analyse_stage(profile, stage))
        .collect();
    let all = profile.stages.iter().collect::<Vec<_>>();
    let waits = |of: fn(&Blocked) -> Nanoseconds| stages.iter().any(|stage| of(&stage.blocked) > 0);
    let suspended = stages.iter().map(|stage| stage.suspended).sum();
    let without_blocking = WithoutBlocking {
        disk: waits(|blocked| blocked.disk).then(|| without(profile, Relief::Disk)),
        network: waits(|blocked| blocked.network).then(|| without(profile, Relief::Network)),
        suspension: (suspended > 0).then(|| without(profile, Relief::Suspension)),
    };
    let what_ifs = what_ifs(std::slice::from_ref(profile), asked);
    Analysis {
        elapsed,
        resources: usages(profile, &all, profile.end, |_| None),
        verdict: verdict(profile, &modelled),
        modelled,
        stages,
        suspended,
        without_blocking,
        what_ifs,
    }
}

fn analyse_stage(profile: &Profile, stage: &StageProfile) -> StageAnalysis {
    let start = stage.tasks.iter().map(|task| task.start).min().unwrap_or(0);
    let end = stage.tasks.iter().map(|task| task.end).max().unwrap_or(0);
    let active = stage.active().map_or(0, |(start, end)| end - start);
    let ideal = stage_ideal(profile, stage, &Scenario::default());
    let mut blocked = Blocked::default();
    for task in &stage.tasks {
        blocked.disk += task.blocked.disk;
        blocked.network += task.blocked.network;
        blocked.input += task.blocked.input;
        blocked.output += task.blocked.output;
    }
    StageAnalysis {
        id: stage.id,
        start,
        end,
        limit: ideal.limit().map(|(limit, _)| limit),
        ideal,
        usage: usages(profile, &[stage], active, Some),
        skew: skew(stage),
        suspended: stage.tasks.iter().map(|task| task.suspended).sum(),
        pauses: stage.tasks.iter().map(|task| u64::from(task.pauses)).sum(),
        blocked,
    }
}

/// Sums by resource and by what `group` makes of the kind.
pub(super) fn usages(
    profile: &Profile,
    stages: &[&StageProfile],
    time: Nanoseconds,
    group: fn(Kind) -> Option<Kind>,
) -> Vec<UsageAnalysis> {
    let mut sums: BTreeMap<(Resource, Option<Kind>), UsageAnalysis> = BTreeMap::new();
    let usages = stages
        .iter()
        .flat_map(|stage| &stage.tasks)
        .flat_map(|task| &task.usage);
    for usage in usages {
        let kind = group(usage.kind);
        let sum = sums.entry((usage.resource, kind)).or_insert(UsageAnalysis {
            resource: usage.resource,
            kind,
            monotasks: 0,
            service: 0,
            queue: 0,
            bytes: 0,
            rows: 0,
            bytes_per_second: None,
            ideal: 0.0,
            utilisation: 0.0,
        });
        sum.monotasks += usage.monotasks;
        sum.service += usage.service;
        sum.queue += usage.queue;
        sum.bytes += usage.bytes;
        sum.rows += usage.rows;
    }
    let mut sums: Vec<UsageAnalysis> = sums.into_values().collect();
    for sum in &mut sums {
        sum.ideal = usage_ideal(profile, sum.resource, sum.service, sum.bytes);
        if time > 0 {
            sum.utilisation = sum.ideal / time as f64;
        }
        if sum.bytes > 0 && sum.service > 0 {
            sum.bytes_per_second = Some(sum.bytes as f64 / sum.service as f64 * 1e9);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{MS, two_stages};

    #[test]
    fn sums_are_those_of_the_tasks() {
        let run = two_stages();
        let found = analyse(&run, None);
        assert_eq!(found.elapsed, 1_603 * MS);
        let cpu: Nanoseconds = (run.stages.iter())
            .flat_map(|stage| &stage.tasks)
            .map(|task| task.cpu())
            .sum();
        assert_eq!(found.resources[0].resource, Resource::Cpu);
        assert_eq!(found.resources[0].service, cpu);
        assert_eq!(found.resources[1].service, 1_500 * MS);
        assert_eq!(found.stages[0].suspended, 40 * MS);
        assert_eq!(found.suspended, 40 * MS);
        assert_eq!(found.stages[0].limit, Some(Limit::Disk));
        assert_eq!(found.stages[1].limit, Some(Limit::OneTask));
    }

    #[test]
    fn decoding_is_apart_from_computing() {
        let found = analyse(&two_stages(), None);
        let kinds: Vec<Option<Kind>> = found.stages[0].usage.iter().map(|usage| usage.kind).collect();
        assert_eq!(kinds, [Some(Kind::Decode), Some(Kind::Compute), Some(Kind::Read)]);
        assert_eq!(found.resources[0].kind, None);
    }

    /// What holds for every run: nothing is used more than it can be, and the model is no longer than the run.
    #[test]
    fn no_resource_is_used_beyond_the_run() {
        let found = analyse(&two_stages(), None);
        for usage in &found.resources {
            assert!(usage.utilisation <= 1.0, "{usage:?}");
        }
        assert!(found.modelled.total <= found.elapsed as f64);
    }

    #[test]
    fn only_what_was_waited_for_is_taken_out() {
        let found = analyse(&two_stages(), None).without_blocking;
        assert!(found.disk.is_some_and(|elapsed| elapsed < 1_603 * MS));
        assert!(found.suspension.is_some());
        assert_eq!(found.network, None);
    }
}
