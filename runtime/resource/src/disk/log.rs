//! The log's writer at the scheduler of its device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millrace_storage::{LogDevice, LogGroup};

use super::{DiskScheduler, Totals};

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
        let mut state = self.shared.state.lock();
        state.log_in_flight -= 1;
        state.totals.log += Totals {
            monotasks: 1,
            bytes: group.bytes,
            queue: group.started.saturating_duration_since(group.queued),
            service: group.started.elapsed(),
        };
        let may_begin = state.idle > 0
            && state.in_flight < self.shared.concurrency.load(Ordering::Relaxed)
            && state.queues.iter().any(|queue| !queue.is_empty());
        drop(state);
        if may_begin {
            self.shared.work.notify_one();
        }
    }
}
