//! How long is waited after a failure that may go away by itself.

use std::time::{Duration, Instant};

use rand::Rng;

/// Twice as long each time, up to the second.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// What fails now and then, and is tried again.
#[derive(Debug)]
pub(crate) struct Backoff {
    wait: Duration,
    /// When the last wait was over.
    since: Instant,
}

impl Backoff {
    /// The first attempt begins.
    pub fn new() -> Self {
        Backoff {
            wait: WAIT.0,
            since: Instant::now(),
        }
    }

    /// An attempt has failed: waits until the next is to begin.
    pub async fn wait(&mut self) {
        self.wait_at_least(Duration::ZERO).await;
    }

    /// The same, but not before this is over.
    pub async fn wait_at_least(&mut self, least: Duration) {
        // What went well for a while begins anew.
        if self.since.elapsed() > WAIT.1 {
            self.wait = WAIT.0;
        }
        // Not everybody at once.
        let jitter = rand::rng().random_range(0.5..1.0);
        let wait = self.wait.mul_f64(jitter);
        tokio::time::sleep(wait.max(least.mul_f64(1.5 - 0.5 * jitter))).await;
        self.wait = (self.wait * 2).min(WAIT.1);
        self.since = Instant::now();
    }
}
