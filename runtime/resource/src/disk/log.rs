//! The log's writer at the scheduler of its device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_storage::{LogDevice, LogGroup};

use super::{DiskScheduler, Totals};
use crate::monotask::{DiskUse, Moved, Phase};

/// Groups that are kept for those who watch: the last ones.
const GROUPS_MAX: usize = 4_096;

/// What is kept for them. Nothing while nobody watches.
#[derive(Default)]
pub(super) struct Watched {
    watchers: usize,
    groups: VecDeque<DiskUse>,
}

impl Watched {
    fn note(&mut self, used: DiskUse) {
        if self.watchers == 0 {
            return;
        }
        if self.groups.len() == GROUPS_MAX {
            self.groups.pop_front();
        }
        self.groups.push_back(used);
    }
}

/// Groups of writes to the log are kept as long as this lives.
pub struct LogWatch {
    disk: Arc<DiskScheduler>,
    since: Instant,
}

impl LogWatch {
    /// The last groups that have ended since it began, each a monotask.
    pub fn groups(&self) -> Vec<DiskUse> {
        let state = self.disk.shared.state.lock();
        let groups = state.log.groups.iter();
        let ended = |used: &&DiskUse| used.started + used.service >= self.since;
        groups.filter(ended).copied().collect()
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        let mut state = self.disk.shared.state.lock();
        state.log.watchers -= 1;
        if state.log.watchers == 0 {
            state.log.groups = VecDeque::new();
        }
    }
}

impl DiskScheduler {
    /// From now on groups of writes to the log are kept.
    pub fn watch_log(self: &Arc<Self>) -> LogWatch {
        self.shared.state.lock().log.watchers += 1;
        LogWatch {
            disk: Arc::clone(self),
            since: Instant::now(),
        }
    }
}

impl LogDevice for DiskScheduler {
    fn begin(&self) {
        self.shared.state.lock().log_in_flight += 1;
    }

    fn end(&self, group: LogGroup) {
        if let Some(rate) = self.shared.rate() {
            let takes = Duration::from_secs_f64(group.bytes as f64 / rate);
            {
                // It goes before what the device has been given already.
                let mut free_at = self.shared.free_at.lock();
                *free_at = Some(free_at.map_or(group.started, |free_at| free_at.max(group.started)) + takes);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a device of a given speed is made up by making its thread wait"
            )]
            std::thread::sleep((group.started + takes).saturating_duration_since(Instant::now()));
        }
        let used = DiskUse {
            device: self.shared.device,
            phase: Phase::Write,
            queued: group.queued,
            started: group.started,
            service: group.started.elapsed(),
            copying: Duration::ZERO,
            moved: Moved {
                bytes: group.bytes,
                rows: 0,
            },
        };
        let mut state = self.shared.state.lock();
        state.log_in_flight -= 1;
        state.totals.log += Totals::of(&used);
        state.log.note(used);
        let may_begin = state.idle > 0
            && state.in_flight < self.shared.concurrency.load(Ordering::Relaxed)
            && state.queues.iter().any(|queue| !queue.is_empty());
        drop(state);
        if may_begin {
            self.shared.work.notify_one();
        }
    }
}
