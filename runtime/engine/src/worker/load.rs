//! How busy a worker is: what its heartbeats say.

use std::time::Instant;

use millrace_schedule::cpu::QueryClass;
use millrace_schedule::id::Part;
use millrace_schedule::message::WorkerLoad;

use super::Worker;

/// Weight of the time since the last heartbeat in the smoothed share: at two a second, a change shows within seconds.
const SMOOTHING: f64 = 0.3;

/// Remembers what the last heartbeat said.
#[derive(Debug, Default)]
pub(super) struct LoadMeter {
    last: Option<(Instant, u64)>,
    busy: f64,
    query_bytes: f64,
    /// And of how many parts.
    state_bytes: (u64, usize),
    /// What would move with each partition.
    moved_bytes: Vec<u64>,
}

impl LoadMeter {
    /// Bytes that live on the worker or are held by tasks there, smoothed, as of the last time.
    pub fn memory(&self) -> u64 {
        self.state_bytes.0 + self.query_bytes as u64
    }

    /// Bytes of state that would move with each partition, as of the last time.
    pub fn moved_bytes(&self) -> &[u64] {
        &self.moved_bytes
    }

    /// The load since the last time; `parts` is what lives on the worker. State is asked for its size only if slots were
    /// busy since then: otherwise it is as it was.
    pub fn measure(&mut self, worker: &Worker, parts: &[Part]) -> WorkerLoad {
        let (now, busy_ns) = (Instant::now(), worker.cpu.busy_ns());
        let (since, before) = self.last.replace((now, busy_ns)).unwrap_or((worker.started, 0));
        let elapsed_ns = (now - since).as_nanos() as f64 * worker.cpu.slots() as f64;
        let share = (busy_ns - before) as f64 / elapsed_ns.max(1.0);
        self.busy += SMOOTHING * (share.min(1.0) - self.busy);
        if busy_ns > before || parts.len() != self.state_bytes.1 {
            let views = worker.views.read();
            let bytes = parts.iter().map(|part| {
                views
                    .get(&part.view)
                    .map_or(0, |view| view.part_bytes(part.stage, part.partition))
            });
            self.state_bytes = (bytes.sum::<usize>() as u64, parts.len());
            self.moved_bytes.clear();
            for part in parts {
                let bytes = views
                    .get(&part.view)
                    .map_or(0, |view| view.moved_bytes(part.stage, part.partition));
                if self.moved_bytes.len() <= part.partition {
                    self.moved_bytes.resize(part.partition + 1, 0);
                }
                self.moved_bytes[part.partition] += bytes as u64;
            }
        }
        self.query_bytes += SMOOTHING * (worker.cpu.held() as f64 - self.query_bytes);
        let all = [QueryClass::Stream, QueryClass::Interactive, QueryClass::Batch];
        WorkerLoad {
            busy_per_mille: (self.busy * 1000.0).round() as u32,
            tasks_waiting: all.iter().map(|class| worker.cpu.waiting(*class)).sum::<usize>() as u32,
            state_bytes: self.state_bytes.0,
            query_bytes: self.query_bytes as u64,
            in_flight_bytes: worker.in_flight_bytes() as u64,
            cpu_ns: busy_ns,
            memory_permille: worker.transport.memory_permille(),
        }
    }
}
