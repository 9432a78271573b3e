//! The disk scheduler: a bounded number of requests in flight, each a disk monotask.
//!
//! Requests wait in a queue for each phase of the tasks (reading input, writing, reading again what was written), which are
//! served in turn, so that reads are not stuck behind writes (Ousterhout 2017, section 5.3.2). A rate, if one is set, stands
//! for a slower device: a request then keeps its place until as much time has passed as its bytes would have taken.

mod store;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use store::DiskStore;

/// Requests in flight on a device without moving parts.
pub const DISK_CONCURRENCY: usize = 4;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Input of a query.
    Read,
    /// What a query writes.
    Write,
}

const PHASES: usize = 2;

/// A request that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// When the scheduler got it.
    pub queued: Instant,
    pub started: Instant,
    pub service: Duration,
    pub bytes: u64,
    pub rows: u64,
}

impl DiskUse {
    /// How long it waited to be served.
    pub fn queue(&self) -> Duration {
        self.started.saturating_duration_since(self.queued)
    }
}

#[derive(Default)]
struct State {
    in_flight: usize,
    queues: [VecDeque<oneshot::Sender<Place>>; PHASES],
    /// The phase that is looked at first the next time.
    turn: usize,
}

/// See the module.
pub struct DiskScheduler {
    state: Mutex<State>,
    concurrency: usize,
    /// Bytes a second; 0: as fast as it is.
    rate: AtomicU64,
}

/// The right to use the device; passed on when it is dropped.
struct Place(Option<Arc<DiskScheduler>>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(scheduler) = self.0.take() {
            scheduler.pass_on();
        }
    }
}

impl DiskScheduler {
    pub fn new(concurrency: usize) -> Arc<DiskScheduler> {
        Arc::new(DiskScheduler {
            state: Mutex::default(),
            concurrency: concurrency.max(1),
            rate: AtomicU64::new(0),
        })
    }

    /// Requests in flight at the most.
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// The rate that stands for a slower device, if there is one.
    pub fn bytes_per_second(&self) -> Option<f64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(rate as f64),
        }
    }

    /// Serves requests as a device with this rate would; `None`: as fast as it is.
    pub fn set_bytes_per_second(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Serves a request when its turn comes. It answers with its result, bytes and rows. Dropping the future gives it up.
    pub async fn serve<T>(
        self: &Arc<Self>,
        phase: Phase,
        request: impl Future<Output = (T, u64, u64)>,
    ) -> (T, DiskUse) {
        let queued = Instant::now();
        let place = self.place(phase).await;
        let started = Instant::now();
        let (result, bytes, rows) = request.await;
        if let Some(rate) = self.bytes_per_second() {
            // All places share the device.
            let share = rate / self.concurrency as f64;
            let takes = Duration::from_secs_f64(bytes as f64 / share);
            if let Some(left) = takes.checked_sub(started.elapsed()) {
                tokio::time::sleep(left).await;
            }
        }
        drop(place);
        let used = DiskUse {
            queued,
            started,
            service: started.elapsed(),
            bytes,
            rows,
        };
        (result, used)
    }

    async fn place(self: &Arc<Self>, phase: Phase) -> Place {
        let waiting = {
            let mut state = self.state.lock();
            if state.in_flight < self.concurrency {
                state.in_flight += 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                state.queues[phase as usize].push_back(sender);
                Some(receiver)
            }
        };
        match waiting {
            None => Place(Some(Arc::clone(self))),
            // A sender is dropped only with the scheduler, which this future holds.
            Some(waiting) => waiting.await.unwrap_or_else(|_| Place(Some(Arc::clone(self)))),
        }
    }

    /// A place has become free: the next of the phases gets it.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let order = [state.turn, (state.turn + 1) % PHASES];
                let phase = order.into_iter().find(|phase| !state.queues[*phase].is_empty());
                let Some(phase) = phase else {
                    state.in_flight -= 1;
                    return;
                };
                state.turn = (phase + 1) % PHASES;
                state.queues[phase].pop_front()
            };
            let Some(next) = next else { continue };
            match next.send(Place(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // Whoever waited has gone; the next one is asked, and this place is not passed on a second time.
                Err(mut place) => place.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_are_in_flight_than_fit_and_phases_take_turns() {
        let disk = DiskScheduler::new(1);
        let order = Arc::new(Mutex::new(vec![]));
        let (release, released) = oneshot::channel::<()>();
        let (begun, begins) = oneshot::channel::<()>();
        let first = tokio::spawn({
            let disk = Arc::clone(&disk);
            async move {
                disk.serve(Phase::Read, async {
                    begun.send(()).unwrap();
                    released.await.unwrap();
                    ((), 1, 1)
                })
                .await
            }
        });
        begins.await.unwrap();
        let requests = [
            ("read 1", Phase::Read),
            ("read 2", Phase::Read),
            ("write", Phase::Write),
        ];
        let mut waiting: Vec<_> = (requests.iter())
            .map(|(name, phase)| {
                let order = Arc::clone(&order);
                Box::pin(disk.serve(*phase, async move {
                    order.lock().push(*name);
                    ((), 1, 1)
                }))
            })
            .collect();
        // They are in the queue once they have been polled.
        for request in &mut waiting {
            assert!(futures::poll!(request).is_pending());
        }
        // One that has gone is passed over.
        let gone = waiting.remove(1);
        drop(gone);
        assert!(order.lock().is_empty());
        release.send(()).unwrap();
        let (_, used) = first.await.unwrap();
        assert!(used.service > Duration::ZERO && used.bytes == 1);
        futures::future::join_all(waiting).await;
        assert_eq!(*order.lock(), ["read 1", "write"]);
        assert_eq!(disk.state.lock().in_flight, 0);
    }

    #[tokio::test]
    async fn a_rate_stands_for_a_slower_device() {
        let disk = DiskScheduler::new(2);
        disk.set_bytes_per_second(Some(100_000));
        let begin = Instant::now();
        let requests = (0..4).map(|_| disk.serve(Phase::Read, async { ((), 500, 0) }));
        let served = futures::future::join_all(requests).await;
        // Two thousand bytes at a hundred thousand a second.
        assert!(
            begin.elapsed() >= Duration::from_millis(20),
            "{:?}",
            begin.elapsed()
        );
        assert!(
            served
                .iter()
                .all(|(_, used)| used.service >= Duration::from_millis(10))
        );
        assert!(
            served
                .iter()
                .any(|(_, used)| used.queue() >= Duration::from_millis(9))
        );
    }
}
