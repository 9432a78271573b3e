//! The network scheduler of a worker, for what its tasks fetch from other workers: at the receiver, since that is whose link
//! is shared (Ousterhout 2017, section 5.3.2).
//!
//! Requests are outstanding for a few tasks at a time: for one alone the link would stand idle while a sender is slow, and
//! for all of them each task would have a part of its rows and none could begin. The others' wait in order.
//!
//! Workers of one process hand each other what is in memory, which is no use of a network. With a rate the workers are as if
//! they had a link of it each: what comes from another worker takes, one after the other, as long as its bytes would.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cpu::TaskLabel;
use crate::monotask::NetworkUse;

/// Tasks with requests outstanding.
pub const FETCHING_TASKS_MAX: usize = 4;

/// A task, by its query, stage and partition.
type Task = (u64, usize, usize);

#[derive(Default)]
struct State {
    /// Tasks with requests outstanding, and how many.
    fetching: BTreeMap<Task, usize>,
    waiting: VecDeque<(Task, oneshot::Sender<Outstanding>)>,
    /// When the link has brought what was asked for.
    free_at: Option<Instant>,
}

impl State {
    /// Counts a request, if the task may have one.
    fn admit(&mut self, task: Task) -> bool {
        let may = self.fetching.len() < FETCHING_TASKS_MAX || self.fetching.contains_key(&task);
        if may {
            *self.fetching.entry(task).or_default() += 1;
        }
        may
    }
}

/// What comes to one worker.
#[derive(Default)]
struct Link {
    state: Mutex<State>,
}

/// A request that is outstanding until this is dropped.
struct Outstanding {
    link: Arc<Link>,
    task: Task,
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if let Some(requests) = state.fetching.get_mut(&self.task) {
            *requests -= 1;
            if *requests == 0 {
                state.fetching.remove(&self.task);
            }
        }
        // Those are next that have waited for the longest, with all that they ask for.
        let mut admitted = vec![];
        for (task, sender) in std::mem::take(&mut state.waiting) {
            match state.admit(task) {
                true => admitted.push((task, sender)),
                false => state.waiting.push_back((task, sender)),
            }
        }
        drop(state);
        for (task, sender) in admitted {
            let link = Arc::clone(&self.link);
            // One that is not taken any more is dropped here, and others are admitted in its place.
            let _ = sender.send(Outstanding { link, task });
        }
    }
}

impl Link {
    async fn outstanding(self: &Arc<Self>, task: Task) -> Outstanding {
        let here = || Outstanding {
            link: Arc::clone(self),
            task,
        };
        let waiting = {
            let mut state = self.state.lock();
            if state.admit(task) {
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                state.waiting.push_back((task, sender));
                Some(receiver)
            }
        };
        match waiting {
            None => here(),
            // A sender is dropped only with the link, which is held here.
            Some(waiting) => waiting.await.unwrap_or_else(|_| here()),
        }
    }
}

/// The links of all workers; see the module.
#[derive(Default)]
pub struct Network {
    /// Bytes a second to each worker; 0: nothing takes time.
    rate: AtomicU64,
    links: Mutex<BTreeMap<u32, Arc<Link>>>,
}

impl Network {
    /// Bytes a second to each worker; `None`: what is fetched is there at once.
    pub fn bytes_per_second(&self) -> Option<f64> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(rate as f64),
        }
    }

    /// Has workers be as if they had links of this rate; `None`: as they are.
    pub fn set_bytes_per_second(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    /// Resolves when a task has so many bytes of another worker. Dropping the future gives them up.
    pub async fn fetch(self: Arc<Self>, task: TaskLabel, bytes: u64, rows: u64) -> NetworkUse {
        let queued = Instant::now();
        let link = Arc::clone(self.links.lock().entry(task.worker).or_default());
        let outstanding = link.outstanding((task.query, task.stage, task.partition)).await;
        let started = Instant::now();
        if let Some(rate) = self.bytes_per_second() {
            let takes = Duration::from_secs_f64(bytes as f64 / rate);
            let ends = {
                let mut state = link.state.lock();
                let ends = state.free_at.map_or(started, |free_at| free_at.max(started)) + takes;
                state.free_at = Some(ends);
                ends
            };
            tokio::time::sleep_until(ends.into()).await;
        }
        drop(outstanding);
        NetworkUse {
            queued,
            started,
            service: started.elapsed(),
            bytes,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    fn task(partition: usize, worker: u32) -> TaskLabel {
        TaskLabel {
            query: 1,
            stage: 2,
            partition,
            worker,
        }
    }

    #[tokio::test]
    async fn a_few_tasks_fetch_at_a_time() {
        let network = Arc::new(Network::default());
        network.set_bytes_per_second(Some(10_000_000));
        let fetch =
            |partition, worker| Box::pin(Arc::clone(&network).fetch(task(partition, worker), 100_000, 1));
        // Ten milliseconds each.
        let mut first: Vec<_> = (0..FETCHING_TASKS_MAX).map(|task| fetch(task, 0)).collect();
        for request in &mut first {
            assert!(poll!(request).is_pending());
        }
        let (mut fifth, mut given_up, mut again) = (fetch(9, 0), fetch(8, 0), fetch(0, 0));
        assert!(
            poll!(&mut fifth).is_pending()
                && poll!(&mut given_up).is_pending()
                && poll!(&mut again).is_pending()
        );
        let link = Arc::clone(&network.links.lock()[&0]);
        {
            let state = link.state.lock();
            assert_eq!(state.waiting.len(), 2, "a task that fetches already may go on");
            assert_eq!(state.fetching[&(1, 2, 0)], 2);
        }
        drop(given_up);
        // Another worker has a link of its own.
        let other = fetch(0, 1).await;
        assert!(other.queue() < Duration::from_millis(5), "{other:?}");
        let used = futures::future::join_all(first).await;
        let (fifth, again) = (fifth.await, again.await);
        assert!(fifth.queue() > Duration::ZERO && again.bytes == 100_000);
        let ended = |used: &NetworkUse| used.started + used.service;
        let took = ended(&fifth).max(ended(&again)) - used[0].started;
        assert!(
            took >= Duration::from_millis(60),
            "{took:?} for 600 kB at 10 MB/s"
        );
        let state = link.state.lock();
        assert!(state.fetching.is_empty() && state.waiting.is_empty());
    }

    #[tokio::test]
    async fn requests_that_are_given_up_hold_nothing() {
        let network = Arc::new(Network::default());
        network.set_bytes_per_second(Some(1_000));
        let fetch = |partition| Box::pin(Arc::clone(&network).fetch(task(partition, 0), 1_000_000, 1));
        let mut requests: Vec<_> = (0..3 * FETCHING_TASKS_MAX).map(fetch).collect();
        for request in &mut requests {
            assert!(poll!(request).is_pending());
        }
        // Some of these are admitted when others go, and go themselves without having looked.
        drop(requests);
        let link = Arc::clone(&network.links.lock()[&0]);
        let state = link.state.lock();
        assert!(state.fetching.is_empty() && state.waiting.is_empty());
    }
}
