//! Cuts a run where stages begin and end, and says what each stretch asked of each resource.

use crate::profile::{Device, Nanoseconds, Parallelism, Profile, Resource, StageProfile, TaskProfile, Usage};

/// Part of a stage's service that may lie outside what counts as its time: a first poll that finds no input, a last one that
/// finds no more.
const EDGE_SHARE: f64 = 0.01;

/// Tasks of a stage that is cut by cores, for each core at the least.
const WAVES_MIN: usize = 3;

/// What is asked of each resource in a stretch of the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// Nanoseconds on cores, over all tasks.
    pub cpu: f64,
    /// The most that one task computes.
    pub longest_task: f64,
    pub disks: Vec<Flow>,
    pub network: Flow,
}

/// Bytes moved, and the sum of the times that this took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    pub bytes: f64,
    pub service: f64,
}

impl Flow {
    /// Ideal nanoseconds at so many bytes a nanosecond. Requests too small to be counted by their bytes take at least their
    /// own time, with as many in flight as there may be.
    pub fn time(&self, device: &Device, bytes_per_nanosecond: f64) -> f64 {
        let by_requests = self.service / device.concurrency.max(1) as f64;
        if bytes_per_nanosecond > 0.0 {
            by_requests.max(self.bytes / bytes_per_nanosecond)
        } else {
            by_requests
        }
    }
}

impl Demand {
    pub fn new(disks: usize) -> Demand {
        Demand {
            disks: vec![Flow::default(); disks],
            ..Demand::default()
        }
    }

    pub fn add(&mut self, resource: Resource, service: f64, bytes: f64) {
        let flow = match resource {
            Resource::Cpu => {
                self.cpu += service;
                return;
            }
            Resource::Disk(disk) => match self.disks.get_mut(disk) {
                Some(flow) => flow,
                None => return,
            },
            Resource::Network => &mut self.network,
        };
        flow.service += service;
        flow.bytes += bytes;
    }
}

/// The stretches of a run, in order, on a machine with so many cores. Only what `counts` is asked for.
pub fn stretches(profile: &Profile, cores: usize, counts: impl Fn(&Usage) -> bool) -> Vec<Demand> {
    let cuts = cuts(profile);
    let mut demands = vec![Demand::new(profile.machine.disks.len()); cuts.len() + 1];
    for stage in &profile.stages {
        let part = stage.part_of_a_task(cores);
        for task in &stage.tasks {
            let mut cpu = vec![0.0; demands.len()];
            for usage in task.usage.iter().filter(|usage| counts(usage)) {
                for (stretch, share) in shares(task, usage, &cuts) {
                    let service = usage.service as f64 * share;
                    demands[stretch].add(usage.resource, service, usage.bytes as f64 * share);
                    // A core of the disk's scheduler, but no part of the task's own work.
                    demands[stretch].cpu += usage.copying as f64 * share;
                    if usage.resource == Resource::Cpu {
                        cpu[stretch] += service;
                    }
                }
            }
            for (demand, cpu) in demands.iter_mut().zip(cpu) {
                demand.longest_task = demand.longest_task.max(cpu * part);
            }
        }
    }
    demands
}

/// The instants between two stretches.
fn cuts(profile: &Profile) -> Vec<Nanoseconds> {
    let mut cuts: Vec<Nanoseconds> = profile
        .stages
        .iter()
        .filter_map(StageProfile::active)
        .flat_map(|(start, end)| [start, end])
        .filter(|cut| *cut > 0 && *cut < profile.end)
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// How a usage divides over stretches: as its monotasks lie, or evenly over the task's life when they are not listed.
fn shares(task: &TaskProfile, usage: &Usage, cuts: &[Nanoseconds]) -> Vec<(usize, f64)> {
    let mut found: Vec<(usize, f64)> = vec![];
    let mut total = 0.0;
    let listed = task
        .monotasks
        .iter()
        .filter(|monotask| monotask.resource == usage.resource && monotask.kind == usage.kind);
    for monotask in listed {
        // Of length 1 at least, so that one too short for the clock still has a place.
        spread(monotask.started_at, monotask.service.max(1), cuts, &mut found);
        total += monotask.service.max(1) as f64;
    }
    if found.is_empty() {
        let life = task.end.saturating_sub(task.start).max(1);
        spread(task.start, life, cuts, &mut found);
        total = life as f64;
    }
    for (_, length) in &mut found {
        *length /= total;
    }
    found
}

/// Adds the lengths that an interval has in the stretches.
fn spread(start: Nanoseconds, length: Nanoseconds, cuts: &[Nanoseconds], into: &mut Vec<(usize, f64)>) {
    let end = start + length;
    let mut stretch = cuts.partition_point(|cut| *cut <= start);
    let mut from = start;
    while from < end {
        let to = cuts.get(stretch).map_or(end, |cut| end.min(*cut));
        into.push((stretch, (to - from) as f64));
        from = to;
        stretch += 1;
    }
}

impl StageProfile {
    /// What is left of its largest task on a machine with so many cores, which may cut it finer: into the waves that every core
    /// has at the least.
    pub fn part_of_a_task(&self, cores: usize) -> f64 {
        match self.parallelism {
            Parallelism::Fixed => 1.0,
            Parallelism::Cores => (self.tasks.len() as f64 / (WAVES_MIN * cores.max(1)) as f64).min(1.0),
        }
    }

    /// When the stage did its work: from its first monotasks until its last ones, without edges of next to no work. `None`: it
    /// had no task.
    pub fn active(&self) -> Option<(Nanoseconds, Nanoseconds)> {
        let whole = (
            self.tasks.iter().map(|task| task.start).min()?,
            self.tasks.iter().map(|task| task.end).max()?,
        );
        let is_unlisted = |task: &TaskProfile| task.monotasks.is_empty() && task.service(|_| true) > 0;
        if self.tasks.iter().any(is_unlisted) {
            return Some(whole);
        }
        let mut work: Vec<(Nanoseconds, Nanoseconds)> = self
            .tasks
            .iter()
            .flat_map(|task| &task.monotasks)
            .map(|monotask| (monotask.started_at, monotask.service))
            .collect();
        let edge = work.iter().map(|(_, service)| *service as f64).sum::<f64>() * EDGE_SHARE;
        work.sort_unstable();
        let start = passes(work.iter().copied(), edge).map_or(whole.0, |(start, _)| start);
        work.sort_unstable_by_key(|(start, service)| start + service);
        let end =
            passes(work.iter().rev().copied(), edge).map_or(whole.1, |(start, service)| start + service);
        Some((start, end.max(start)))
    }
}

/// The first with which the sum of the services is above a bound.
fn passes(
    mut work: impl Iterator<Item = (Nanoseconds, Nanoseconds)>,
    bound: f64,
) -> Option<(Nanoseconds, Nanoseconds)> {
    let mut sum = 0.0;
    work.find(|(_, service)| {
        sum += *service as f64;
        sum > bound
    })
}
