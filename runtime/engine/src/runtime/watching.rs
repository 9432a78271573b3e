//! Watching views: what the schedulers see of their epochs meanwhile, for EXPLAIN ANALYZE and the console. Nothing is noted while nobody
//! watches.

use std::sync::Arc;
use std::time::Duration;

use millrace_clarity::epochs::Trace;
use millrace_clarity::profile::{
    Blocked, Kind, MemoryUse, Monotask, Parallelism, Profile, Resource, StageProfile, TaskProfile, Usage,
};
use millrace_planner::RelationId;
use millrace_resource::cpu::TaskRecord;
use millrace_resource::disk::LogWatch;

use super::{Engine, Runtime};
use crate::monotasks::{Clock, machine_profile, nanoseconds};
use crate::relation::Relation;
use crate::worker::{ViewInstance, Watch};

/// Some views, watched until this is dropped.
pub struct EpochWatch {
    engine: Arc<Engine>,
    views: Vec<Arc<ViewInstance>>,
    watch: Arc<Watch>,
    log: LogWatch,
}

/// What was seen of them.
pub struct Watched {
    /// Its stages are without names and in the order of `stages`; the log, if it was written, is the last one.
    pub trace: Trace,
    /// Which stage of which view each of them is.
    pub stages: Vec<(RelationId, usize)>,
    /// Groups of writes to the log are the last stage.
    pub has_log: bool,
}

impl Runtime {
    /// From now on what the tasks of these views do is noted, and the writes of the log.
    pub fn watch(&self, views: &[RelationId]) -> EpochWatch {
        let watch = Watch::new();
        let views = views.iter().filter_map(|view| {
            let relation = self.engine.relation(*view).ok()?;
            match relation.as_ref() {
                Relation::View(view) => Some(Arc::clone(view)),
                Relation::Stream(_) | Relation::Table(_) => None,
            }
        });
        let views: Vec<Arc<ViewInstance>> = views.collect();
        for view in &views {
            view.watch(&watch);
        }
        EpochWatch {
            log: self.engine.machine.data().watch_log(),
            engine: Arc::clone(&self.engine),
            views,
            watch,
        }
    }
}

impl EpochWatch {
    /// What was seen so far; it was watched for so long.
    pub fn seen(&self, watched: Duration) -> Watched {
        let seen = self.watch.seen();
        let clock = self.watch.clock();
        let mut tasks = seen.tasks;
        let mut profiles = vec![];
        let mut stages = vec![];
        for view in &self.views {
            // Positions of a view's stages among those of all.
            let first = profiles.len();
            for (stage, planned) in view.graph.stages.iter().enumerate() {
                let of = (view.id, stage);
                profiles.push(StageProfile {
                    id: first + stage,
                    name: String::new(),
                    depends_on: planned
                        .upstream()
                        .into_iter()
                        .map(|upstream| first + upstream)
                        .collect(),
                    parallelism: Parallelism::Fixed,
                    operators: vec![],
                    tasks: tasks.remove(&of).unwrap_or_default(),
                });
                stages.push(of);
            }
        }
        let log = self.log_stage(profiles.len(), clock);
        let has_log = log.is_some();
        profiles.extend(log);
        let records: Vec<&TaskRecord> = seen.records.iter().map(Arc::as_ref).collect();
        let workers = self.engine.workers.all().len().max(1);
        let machine = &self.engine.machine;
        let mut machine = machine_profile(machine, workers, &records, Some(self.memory()), clock);
        // What workers of one process hand each other in an epoch crosses no network.
        machine.network = None;
        let run = Profile {
            planning: 0,
            end: nanoseconds(watched),
            machine,
            stages: profiles,
        };
        let busy = seen.busy_ns.into_iter().collect();
        Watched {
            trace: Trace { run, busy },
            stages,
            has_log,
        }
    }

    fn memory(&self) -> MemoryUse {
        let sum = |of: fn(&ViewInstance) -> usize| self.views.iter().map(|view| of(view) as u64).sum();
        MemoryUse {
            held: sum(ViewInstance::state_bytes),
            spilled: sum(ViewInstance::left_bytes),
        }
    }

    /// The log as a stage of one task.
    fn log_stage(&self, id: usize, clock: Clock) -> Option<StageProfile> {
        let groups = self.log.groups();
        let device = Resource::Disk(groups.first()?.device);
        let mut usage = Usage {
            resource: device,
            kind: Kind::Log,
            monotasks: 0,
            queue: 0,
            service: 0,
            copying: 0,
            bytes: 0,
            rows: 0,
        };
        let mut monotasks = vec![];
        for group in &groups {
            let (queue, service) = (nanoseconds(group.queue()), nanoseconds(group.service));
            usage.monotasks += 1;
            usage.queue += queue;
            usage.service += service;
            usage.bytes += group.moved.bytes;
            monotasks.push(Monotask {
                resource: device,
                kind: Kind::Log,
                queued_at: clock.at(group.queued),
                started_at: clock.at(group.started),
                service,
                bytes: group.moved.bytes,
                rows: 0,
            });
        }
        let start = monotasks.iter().map(|group| group.started_at).min()?;
        let end = monotasks
            .iter()
            .map(|group| group.started_at + group.service)
            .max()?;
        let task = TaskProfile {
            worker: 0,
            partition: 0,
            epoch: None,
            start,
            end,
            suspended: 0,
            pauses: 0,
            blocked: Blocked::default(),
            rows: 0,
            bytes: usage.bytes,
            usage: vec![usage],
            monotasks,
        };
        Some(StageProfile {
            id,
            name: String::new(),
            depends_on: vec![],
            parallelism: Parallelism::Fixed,
            operators: vec![],
            tasks: vec![task],
        })
    }
}
