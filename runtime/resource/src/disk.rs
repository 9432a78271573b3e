//! The disk scheduler of a device: a bounded number of requests in flight, each a disk monotask.
//!
//! ```text
//!   tasks, writers --submit--> queue of reads    --\   in turn, as many at once    threads of the device
//!                              queue of writes   ---->  as the device is good for  --> work, flush --> answer
//!                              queue of rereads  --/
//!   the log's writer --at once, on its own thread---------------------------------> write, sync --> acknowledge
//! ```
//!
//! A monotask is a piece of work that uses the device and nothing else: a thread of the scheduler runs it from its beginning
//! to its end, so that the time is the device's, and no slot waits. Requests wait in a queue for each phase of the tasks
//! (reading input, writing, reading again what was written), which are served in turn, so that reads are not stuck behind
//! writes (Ousterhout 2017, section 5.3.2).
//!
//! A read that fills a buffer begins when the buffer fits into what memory there is; while memory is short, writes, which
//! free some, go first. With nothing in flight the next request begins in any case: it may be what frees memory.
//!
//! Groups of writes to the log (`log`) are monotasks too, of the class of streams: somebody waits for each, so that they begin
//! at once, whatever is in flight. They take one of the places meanwhile, so that less urgent requests begin later; one place
//! is left to these, or writes without end would be the end of queries.
//!
//! A rate, if one is set, stands for a slower device: requests then take, one after another, as long as their bytes would.

mod devices;
mod log;
mod store;
mod totals;
mod tuner;

use std::collections::VecDeque;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

pub use devices::Disks;
pub use log::LogWatch;
pub use store::DiskStore;
pub use totals::{DiskTotals, Totals};

use self::log::Watched;
use self::tuner::Tuner;
use crate::cpu::thread_cpu_time;
use crate::memory::Memory;
use crate::monotask::{DiskUse, Moved, Phase};

/// Requests in flight on a device without moving parts, until more is known of it.
pub const DISK_CONCURRENCY: usize = 4;

const PHASES: usize = 3;

/// What a thread of the device does for a request. `None`: nobody wanted it any more, or it panicked.
type Work = Box<dyn FnOnce(&Shared) -> Option<DiskUse> + Send>;

struct Request {
    /// Of the buffer that it fills.
    buffer_bytes: usize,
    work: Work,
}

struct State {
    queues: [VecDeque<Request>; PHASES],
    /// The phase that is looked at first the next time.
    turn: usize,
    in_flight: usize,
    /// Of the log's writers, beside these.
    log_in_flight: usize,
    /// Buffers of the requests in flight.
    buffers_bytes: usize,
    threads: usize,
    idle: usize,
    is_stopped: bool,
    tuner: Tuner,
    totals: DiskTotals,
    /// The last groups of writes to the log, while somebody watches.
    log: Watched,
}

/// What the threads share.
struct Shared {
    device: usize,
    state: Mutex<State>,
    work: Condvar,
    /// Requests in flight at most; changed under the lock.
    concurrency: AtomicUsize,
    /// Bytes a second; 0: as fast as it is.
    rate: AtomicU64,
    /// With a rate: when the device is done with what it has.
    free_at: Mutex<Option<Instant>>,
    memory: Arc<Memory>,
}

/// See the module. Dropping it ends its threads after what they do.
pub struct DiskScheduler {
    shared: Arc<Shared>,
    name: String,
}

impl Drop for DiskScheduler {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.work.notify_all();
    }
}

impl DiskScheduler {
    /// For a device with this name and place. `concurrency`: requests in flight at most, to begin with.
    pub fn new(name: &str, device: usize, concurrency: usize, memory: &Arc<Memory>) -> Arc<DiskScheduler> {
        let tuner = Tuner::new(concurrency);
        let concurrency = AtomicUsize::new(tuner.concurrency());
        Arc::new(DiskScheduler {
            shared: Arc::new(Shared {
                device,
                state: Mutex::new(State {
                    queues: Default::default(),
                    turn: 0,
                    in_flight: 0,
                    log_in_flight: 0,
                    buffers_bytes: 0,
                    threads: 0,
                    idle: 0,
                    is_stopped: false,
                    tuner,
                    totals: DiskTotals::default(),
                    log: Watched::default(),
                }),
                work: Condvar::new(),
                concurrency,
                rate: AtomicU64::new(0),
                free_at: Mutex::default(),
                memory: Arc::clone(memory),
            }),
            name: name.to_owned(),
        })
    }

    /// Of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requests in flight at most.
    pub fn concurrency(&self) -> usize {
        self.shared.concurrency.load(Ordering::Relaxed)
    }

    /// What that was chosen from: requests in flight, and bytes a second.
    pub fn measured(&self) -> Vec<(usize, f64)> {
        self.shared.state.lock().tuner.measured()
    }

    /// What was served since the start.
    pub fn totals(&self) -> DiskTotals {
        self.shared.state.lock().totals
    }

    /// The rate that stands for a slower device, if there is one.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.shared.rate()
    }

    /// Serves requests as a device with this rate would; `None`: as fast as it is.
    pub fn set_bytes_per_second(&self, rate: Option<u64>) {
        let rate = rate.unwrap_or(0);
        if self.shared.rate.swap(rate, Ordering::Relaxed) != rate {
            self.shared.state.lock().tuner.forget();
        }
    }

    /// Serves a request when its turn comes. `buffer_bytes`: what it will hold in memory. The work answers with its result
    /// and what it moved. Dropping the future cancels what has not begun.
    ///
    /// # Errors
    /// The work panicked, or the operating system refuses a thread.
    pub async fn serve<T: Send + 'static>(
        self: &Arc<Self>,
        phase: Phase,
        buffer_bytes: usize,
        work: impl FnOnce() -> (T, Moved) + Send + 'static,
    ) -> io::Result<(T, DiskUse)> {
        let (sender, receiver) = oneshot::channel();
        let queued = Instant::now();
        let work = move |shared: &Shared| {
            // Whoever has gone wants nothing, now or when it is done.
            if sender.is_closed() {
                return None;
            }
            let served = shared.run(phase, queued, work)?;
            let used = served.1;
            let _ = sender.send(served);
            Some(used)
        };
        self.submit(phase, buffer_bytes, Box::new(work))?;
        receiver
            .await
            .map_err(|_| io::Error::other("a disk monotask ended without an answer"))
    }

    /// The same for whoever is told by a call; `done` is dropped without a call if the work panics.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start<T: Send + 'static>(
        self: &Arc<Self>,
        phase: Phase,
        buffer_bytes: usize,
        work: impl FnOnce() -> (T, Moved) + Send + 'static,
        done: impl FnOnce(T, DiskUse) + Send + 'static,
    ) -> io::Result<()> {
        let queued = Instant::now();
        let work = move |shared: &Shared| {
            let (result, used) = shared.run(phase, queued, work)?;
            done(result, used);
            Some(used)
        };
        self.submit(phase, buffer_bytes, Box::new(work))
    }

    fn submit(&self, phase: Phase, buffer_bytes: usize, work: Work) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let waiting: usize = state.queues.iter().map(VecDeque::len).sum();
        if state.idle <= waiting && state.threads < self.concurrency() {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new()
                .name(format!("disk-{}-{}", self.name, state.threads))
                .spawn(move || shared.serve());
            match started {
                Ok(_) => state.threads += 1,
                // Those that there are will do.
                Err(_) if state.threads > 0 => {}
                Err(error) => return Err(error),
            }
        }
        state.queues[phase as usize].push_back(Request { buffer_bytes, work });
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }
}

impl Shared {
    fn rate(&self) -> Option<f64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(rate as f64),
        }
    }

    /// What a thread of the device does until it is stopped.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return;
            }
            let Some(request) = self.next(&mut state) else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            state.in_flight += 1;
            state.buffers_bytes += request.buffer_bytes;
            drop(state);
            let used = (request.work)(self);
            state = self.state.lock();
            if let Some(used) = &used {
                state.totals.add(used);
            }
            let bytes = used.map_or(0, |used| used.moved.bytes);
            let is_saturated = state.queues.iter().any(|queue| !queue.is_empty());
            let concurrency = state.tuner.served(Instant::now(), bytes, is_saturated);
            self.concurrency.store(concurrency, Ordering::Relaxed);
            state.in_flight -= 1;
            state.buffers_bytes -= request.buffer_bytes;
            // What waited for the buffer's room may fit now.
            if state.idle > 0 && is_saturated {
                self.work.notify_one();
            }
        }
    }

    /// The request whose turn it is and whose buffer fits.
    fn next(&self, state: &mut State) -> Option<Request> {
        let places = self.concurrency.load(Ordering::Relaxed);
        if state.in_flight >= places.saturating_sub(state.log_in_flight).max(1) {
            return None;
        }
        let is_short = self.memory.is_short();
        let in_turn = (0..PHASES).map(|step| (state.turn + step) % PHASES);
        // Writes free memory.
        let write = is_short.then_some(Phase::Write as usize);
        for phase in write.into_iter().chain(in_turn) {
            let Some(first) = state.queues[phase].front() else {
                continue;
            };
            let fits = || self.memory.fits(state.buffers_bytes + first.buffer_bytes);
            if state.in_flight == 0 || phase == Phase::Write as usize || fits() {
                state.turn = (phase + 1) % PHASES;
                return state.queues[phase].pop_front();
            }
        }
        None
    }

    /// Does the work and sees how long it took; `None`: it panicked.
    fn run<T>(
        &self,
        phase: Phase,
        queued: Instant,
        work: impl FnOnce() -> (T, Moved),
    ) -> Option<(T, DiskUse)> {
        let (mut started, on_processor) = (Instant::now(), thread_cpu_time());
        let (result, moved) = match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => done,
            Err(panic) => {
                let message = crate::cpu::panic_message(&*panic);
                tracing::error!(message, "a disk monotask panicked");
                return None;
            }
        };
        let on_processor = thread_cpu_time().zip(on_processor);
        let copying = on_processor.map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        if let Some(rate) = self.rate() {
            let takes = Duration::from_secs_f64(moved.bytes as f64 / rate);
            {
                let mut free_at = self.free_at.lock();
                // Until then it moves what others have asked for: that is no time of this request.
                started = free_at.map_or(started, |free_at| free_at.max(started));
                *free_at = Some(started + takes);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a device of a given speed is made up by making its thread wait"
            )]
            std::thread::sleep((started + takes).saturating_duration_since(Instant::now()));
        }
        let used = DiskUse {
            device: self.device,
            phase,
            queued,
            started,
            service: started.elapsed(),
            copying,
            moved,
        };
        Some((result, used))
    }
}

#[cfg(test)]
mod tests;
