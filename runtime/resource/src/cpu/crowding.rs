//! Whether other programs crowd out the threads that are idle ones to the operating system.

use std::time::Duration;

/// Whether other programs leave idle threads next to nothing, though this one does not use all cores: then batch work beside
/// more urgent work is only nicer for a while, or a query could stand still for as long as a build on the same machine takes.
#[derive(Debug, Default)]
pub(super) struct Crowding {
    /// Of idle threads' polls in this period: their length, and the processor time in it.
    held: Duration,
    cpu: Duration,
    /// When the period began, and the processor time of the process by then.
    since_ns: u64,
    process_cpu: Duration,
    /// Until then there are no idle threads.
    nicer_until_ns: u64,
}

impl Crowding {
    /// Least length of a period, and how long its outcome holds.
    const PERIOD_NS: u64 = 200_000_000;
    const HOLDS_NS: u64 = 5_000_000_000;

    /// Whether it is so now.
    pub fn is_crowded_out(&self, now_ns: u64) -> bool {
        now_ns < self.nicer_until_ns
    }

    /// An idle thread's poll has ended. `process_cpu`: the processor time of the process by now.
    pub fn polled(
        &mut self,
        held: Duration,
        cpu: Duration,
        now_ns: u64,
        slots: usize,
        process_cpu: impl FnOnce() -> Option<Duration>,
    ) {
        self.held += held;
        self.cpu += cpu;
        let period = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if period < Duration::from_nanos(Self::PERIOD_NS) {
            return;
        }
        let Some(process_cpu) = process_cpu() else { return };
        let used = process_cpu.saturating_sub(self.process_cpu);
        // A period in which nothing was polled for most of the time says nothing.
        if self.held * 2 > period && self.cpu * 4 < self.held && used * 10 < period * (slots as u32) * 7 {
            self.nicer_until_ns = now_ns + Self::HOLDS_NS;
        }
        (self.held, self.cpu) = (Duration::ZERO, Duration::ZERO);
        (self.since_ns, self.process_cpu) = (now_ns, process_cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_work_is_only_nicer_when_other_programs_crowd_it_out() {
        let millis = Duration::from_millis;
        let seen = |cpu: Duration, process: Duration| {
            let mut crowding = Crowding::default();
            crowding.polled(millis(150), cpu, 150_000_000, 2, || {
                unreachable!("the period is not over")
            });
            crowding.polled(millis(150), Duration::ZERO, 300_000_000, 2, || Some(process));
            crowding.is_crowded_out(300_000_001)
        };
        // It gets little, and the process does not have the rest.
        assert!(seen(millis(20), millis(60)));
        // The process has the rest: what is more urgent, and those who serve it.
        assert!(!seen(millis(20), millis(500)));
        // It gets its share.
        assert!(!seen(millis(200), millis(300)));
    }
}
