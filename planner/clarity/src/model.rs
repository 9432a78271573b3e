//! The time model: how long a run would take if every resource were used perfectly (Ousterhout 2017, section 5.6.1).
//!
//! ```text
//! resource         ideal time
//! cpu              time of all cpu monotasks / cores, or the longest task if that is more; what copying took of cores too
//! disk, network    bytes / throughput
//!
//! modelled time of a stretch of the run = its longest ideal time          that resource is its limit
//! modelled time of the run              = the sum over the stretches
//! predicted time                        = modelled after the change + the rest of the measured time, which shrinks with it
//! ```
//! Cores share caches and memory: the same work takes each of them longer, the more of them there are (`crowding`).
//!
//! The thesis takes a stage for a stretch, because its stages run one after the other. Ours hand rows on while they run, so
//! a stretch lies between two instants at which a stage begins or ends, and the stages that run in it share its resources.
//! With stages one after the other both come to the same.
//!
//! The rest carries over what the model does not know: ramps, skew, waiting for the client. The thesis scales the whole measured
//! time by modelled after / modelled now. That is done here as well where things become faster; where they become slower the
//! rest stays as it is: what a run spends on beginning and ending does not grow with a slower disk. With fewer cores it shrinks
//! too: it is time in which cores had nothing to do, which a part 1 - 1/p of p cores can have, and none of one (Brent 1974).

mod stretch;

use serde::{Deserialize, Serialize};

use self::stretch::{Demand, stretches};
use super::memory::is_enough;
use super::profile::{Device, Nanoseconds, Profile, Resource, StageProfile, Usage};
use super::scenario::Scenario;

/// Ideal times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Ideal {
    /// All cpu monotasks over all cores.
    pub cpu: f64,
    /// The longest task, if all cores would be done with everything before it.
    pub one_task: f64,
    pub disk: f64,
    pub network: f64,
}

/// The resource that holds a run back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Cpu,
    /// A task that computes on one core while others stand idle.
    OneTask,
    Disk,
    Network,
}

impl Limit {
    pub const ALL: [Limit; 4] = [Limit::Cpu, Limit::OneTask, Limit::Disk, Limit::Network];

    /// As a word of a sentence: `disk`-bound.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Cpu => "cpu",
            Limit::OneTask => "one task",
            Limit::Disk => "disk",
            Limit::Network => "network",
        }
    }
}

impl Ideal {
    pub fn of(&self, limit: Limit) -> f64 {
        match limit {
            Limit::Cpu => self.cpu,
            Limit::OneTask => self.one_task,
            Limit::Disk => self.disk,
            Limit::Network => self.network,
        }
    }

    /// The longest, and what takes that long; the first of equals. `None`: nothing was used.
    pub fn limit(&self) -> Option<(Limit, f64)> {
        let mut longest = None;
        for limit in Limit::ALL {
            if self.of(limit) > longest.map_or(0.0, |(_, time)| time) {
                longest = Some((limit, self.of(limit)));
            }
        }
        longest
    }
}

/// How much longer the same work takes each of so many cores than one by itself: a tenth at most. Measured with TPC-H from
/// memory, whose queries took two cores 4 % more time (`-- monotasks` of the benches).
const CROWDING: f64 = 0.1;

fn crowding(cores: usize) -> f64 {
    1.0 + CROWDING * others(cores)
}

/// The part of a machine that is not its first core.
fn others(cores: usize) -> f64 {
    1.0 - 1.0 / cores.max(1) as f64
}

/// The modelled time of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Nanoseconds.
    pub total: f64,
    /// For each resource, the part of the total in which it is the limit; the largest first, without those that never are.
    pub limits: Vec<(Limit, f64)>,
}

/// Models a run as it was, or as it would be.
pub fn model(profile: &Profile, scenario: &Scenario) -> Model {
    let machine = Rates::new(profile);
    let mut limits: Vec<(Limit, f64)> = Limit::ALL.iter().map(|limit| (*limit, 0.0)).collect();
    let cores = scenario.cores.unwrap_or(profile.machine.cores);
    for demand in stretches(profile, cores, left(profile, scenario)) {
        if let Some((limit, time)) = machine.ideal(&demand, scenario).limit()
            && let Some((_, sum)) = limits.iter_mut().find(|(known, _)| *known == limit)
        {
            *sum += time;
        }
    }
    Model::of(limits)
}

impl Model {
    fn of(mut limits: Vec<(Limit, f64)>) -> Model {
        limits.retain(|(_, time)| *time > 0.0);
        limits.sort_by(|(_, left), (_, right)| right.total_cmp(left));
        Model {
            // Of nothing, a sum of floats is -0.
            total: limits.iter().fold(0.0, |sum, (_, time)| sum + time),
            limits,
        }
    }

    /// Of several runs the mean one.
    pub fn mean(runs: &[Model]) -> Model {
        let count = runs.len().max(1) as f64;
        let mean = |limit: Limit| {
            let times = runs.iter().flat_map(|run| &run.limits);
            let of_limit = times.filter(|(known, _)| *known == limit);
            of_limit.map(|(_, time)| time).sum::<f64>() / count
        };
        Model::of(Limit::ALL.iter().map(|limit| (*limit, mean(*limit))).collect())
    }
}

/// Ideal times of one stage by itself.
pub fn stage_ideal(profile: &Profile, stage: &StageProfile, scenario: &Scenario) -> Ideal {
    stages_ideal(profile, std::slice::from_ref(stage), scenario)
}

/// Ideal times of some stages together, whenever they ran.
pub fn stages_ideal(profile: &Profile, stages: &[StageProfile], scenario: &Scenario) -> Ideal {
    let mut demand = Demand::new(profile.machine.disks.len());
    let counts = left(profile, scenario);
    let tasks = stages
        .iter()
        .flat_map(|stage| stage.tasks.iter().map(move |task| (stage, task)));
    for (stage, task) in tasks {
        for usage in task.usage.iter().filter(|usage| counts(usage)) {
            demand.add(usage.resource, usage.service as f64, usage.bytes as f64);
            demand.cpu += usage.copying as f64;
        }
        let alone = task.service(|usage| usage.resource == Resource::Cpu && counts(usage));
        let part = stage.part_of_a_task(scenario.cores.unwrap_or(profile.machine.cores));
        demand.longest_task = demand.longest_task.max(alone as f64 * part);
    }
    Rates::new(profile).ideal(&demand, scenario)
}

/// Ideal nanoseconds of some monotasks of one resource, had they the machine to themselves.
pub fn usage_ideal(profile: &Profile, resource: Resource, service: Nanoseconds, bytes: u64) -> f64 {
    let mut demand = Demand::new(profile.machine.disks.len());
    demand.add(resource, service as f64, bytes as f64);
    let ideal = Rates::new(profile).ideal(&demand, &Scenario::default());
    ideal.cpu + ideal.disk + ideal.network
}

/// How long the run would take, planning included, in nanoseconds. Fewer cores are never faster.
pub fn predict(profile: &Profile, scenario: &Scenario) -> Nanoseconds {
    let predicted = scaled(profile, scenario);
    match scenario.cores {
        Some(fewer) if fewer < profile.machine.cores => {
            let with_all = Scenario {
                cores: None,
                ..*scenario
            };
            predicted.max(scaled(profile, &with_all))
        }
        _ => predicted,
    }
}

fn scaled(profile: &Profile, scenario: &Scenario) -> Nanoseconds {
    let now = model(profile, &Scenario::default()).total;
    let after = model(profile, scenario).total;
    let rest = (profile.end as f64 - now).max(0.0);
    let cores = profile.machine.cores;
    let shrinks = match scenario.cores {
        Some(fewer) if fewer < cores => others(fewer) / others(cores),
        _ if after < now => after / now,
        _ => 1.0,
    };
    // A run cannot have been shorter than its model, but for the clock's grain.
    let explained = if now > 0.0 {
        after / now * (profile.end as f64).min(now)
    } else {
        0.0
    };
    profile.planning + (explained + rest * shrinks).round() as Nanoseconds
}

/// Which monotasks are still there when things have changed.
fn left(profile: &Profile, scenario: &Scenario) -> impl Fn(&Usage) -> bool + use<> {
    let (has_input, has_memory) = (scenario.input_in_memory, is_enough(profile, scenario));
    move |usage| !(has_input && usage.kind.is_input() || has_memory && usage.kind.is_spilling())
}

/// What the machine's devices can do.
struct Rates<'a> {
    cores: usize,
    /// With each disk, its bytes per nanosecond.
    disks: Vec<(&'a Device, f64)>,
    network: Option<(&'a Device, f64)>,
}

impl Rates<'_> {
    fn new(profile: &Profile) -> Rates<'_> {
        let machine = &profile.machine;
        Rates {
            cores: machine.cores.max(1),
            disks: machine
                .disks
                .iter()
                .enumerate()
                .map(|(disk, device)| (device, throughput(profile, device, Resource::Disk(disk))))
                .collect(),
            network: machine
                .network
                .as_ref()
                .map(|device| (device, throughput(profile, device, Resource::Network))),
        }
    }

    fn ideal(&self, demand: &Demand, scenario: &Scenario) -> Ideal {
        let cores = scenario.cores.unwrap_or(self.cores).max(1);
        let disks: Vec<f64> = self
            .disks
            .iter()
            .zip(&demand.disks)
            .map(|((device, rate), flow)| flow.time(device, *rate))
            .collect();
        // Devices that hold nothing of the run would not be missed.
        let used = disks.iter().filter(|time| **time > 0.0).count();
        let disk = match scenario.disks {
            Some(count) if count != used => disks.iter().sum::<f64>() / count.max(1) as f64,
            _ => disks.into_iter().fold(0.0, f64::max),
        };
        let network = self
            .network
            .map_or(0.0, |(device, rate)| demand.network.time(device, rate));
        let cpu = demand.cpu / cores as f64 * (crowding(cores) / crowding(self.cores));
        Ideal {
            cpu,
            one_task: if demand.longest_task > cpu {
                demand.longest_task
            } else {
                0.0
            },
            disk: scenario.disk.of(disk),
            network: scenario.network.of(network),
        }
    }
}

/// Bytes per nanosecond of a device: as known, or what the run itself got out of it if that is more or nothing is known.
/// 0: it moved nothing.
pub fn throughput(profile: &Profile, device: &Device, resource: Resource) -> f64 {
    let bytes: u64 = profile
        .stages
        .iter()
        .flat_map(|stage| &stage.tasks)
        .flat_map(|task| &task.usage)
        .filter(|usage| usage.resource == resource)
        .map(|usage| usage.bytes)
        .sum();
    let seen = if device.busy == 0 {
        0.0
    } else {
        bytes as f64 / device.busy as f64
    };
    device
        .bytes_per_second
        .map_or(seen, |known| seen.max(known / 1e9))
}

#[cfg(test)]
mod tests;
