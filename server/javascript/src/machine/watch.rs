//! When a call is to end: the interrupt handler of the engine.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use millrace_resource::cpu;

/// Why the engine was stopped.
pub const RUNS: u8 = 0;
pub const TIMED_OUT: u8 = 1;
pub const UNWANTED: u8 = 2;

/// When the call that runs is to end.
#[derive(Debug, Default)]
pub struct Watch {
    /// Processor time of this thread, in nanoseconds; 0: nobody has looked yet.
    deadline_ns: AtomicU64,
    limit_ns: AtomicU64,
    pub stopped: AtomicU8,
}

impl Watch {
    /// A call begins. Most end before anybody looks, and then no clock was read.
    pub fn begin(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.limit_ns.store(limit_ns, Ordering::Relaxed);
        self.deadline_ns.store(0, Ordering::Relaxed);
        self.stopped.store(RUNS, Ordering::Relaxed);
    }

    /// Whether the engine is to stop. It asks every 10,000 branches and calls.
    pub fn is_over(&self) -> bool {
        if cpu::is_unwanted() {
            self.stopped.store(UNWANTED, Ordering::Relaxed);
            return true;
        }
        let now = now_ns();
        match self.deadline_ns.load(Ordering::Relaxed) {
            0 => {
                let limit = self.limit_ns.load(Ordering::Relaxed);
                self.deadline_ns
                    .store(now.saturating_add(limit), Ordering::Relaxed);
                false
            }
            deadline if now > deadline => {
                self.stopped.store(TIMED_OUT, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }
}

/// Processor time of this thread: what others do on the machine makes no call longer. Elsewhere than on Linux the time that passes.
fn now_ns() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let time = cpu::thread_cpu_time().unwrap_or_else(|| START.elapsed());
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}
