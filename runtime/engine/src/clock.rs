//! The clock by which epochs are dated: the machine's, or one that tests set by hand.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::watch;

/// Moments that are due within so many microseconds of each other are reached together: a window of which rows leave all
/// the time costs at most a hundred epochs a second.
const SYSTEM_STEP_MICROS: i64 = 10_000;
/// The machine's clock may be set while one waits for it, so it is looked at again after so long.
const SYSTEM_WAIT_MAX: Duration = Duration::from_secs(60);

/// Tells the time, in microseconds since 1970-01-01 00:00 UTC.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> i64;

    /// Resolves when `now` has reached `time`. Polled on the tokio runtime on which the runtime was started.
    fn until(&self, time: i64) -> BoxFuture<'static, ()>;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        system_now()
    }

    fn until(&self, time: i64) -> BoxFuture<'static, ()> {
        async move {
            let time = time.saturating_add(SYSTEM_STEP_MICROS - 1) / SYSTEM_STEP_MICROS * SYSTEM_STEP_MICROS;
            loop {
                let left = time.saturating_sub(system_now());
                let Ok(left @ 1..) = u64::try_from(left) else {
                    return;
                };
                tokio::time::sleep(Duration::from_micros(left).min(SYSTEM_WAIT_MAX)).await;
            }
        }
        .boxed()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that all others are to ask"
)]
fn system_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A clock that stands still until it is set. For tests: what waits for a moment waits for an event.
#[derive(Debug)]
pub struct VirtualClock {
    now: watch::Sender<i64>,
}

impl VirtualClock {
    pub fn new(now: i64) -> Self {
        VirtualClock {
            now: watch::Sender::new(now),
        }
    }

    /// Goes forward to `time`; stays where it is if that has passed. Returns what it shows then.
    pub fn advance_to(&self, time: i64) -> i64 {
        self.now.send_if_modified(|now| {
            let passes = *now < time;
            *now = time.max(*now);
            passes
        });
        self.now()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> i64 {
        *self.now.borrow()
    }

    fn until(&self, time: i64) -> BoxFuture<'static, ()> {
        let mut shown = self.now.subscribe();
        async move {
            // A clock that is gone never reaches it.
            if shown.wait_for(|now| *now >= time).await.is_err() {
                futures::future::pending::<()>().await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_virtual_clock_goes_forward_only_and_wakes_who_waits() {
        let clock = VirtualClock::new(100);
        let mut due = clock.until(200);
        assert_eq!(clock.advance_to(199), 199);
        assert_eq!((&mut due).now_or_never(), None);
        assert_eq!(clock.advance_to(150), 199);
        assert_eq!(clock.advance_to(200), 200);
        due.await;
        clock.until(-5).await;
    }

    #[tokio::test]
    async fn the_past_is_reached_at_once() {
        let clock = SystemClock;
        assert!(clock.now() > 1_700_000_000_000_000);
        clock.until(clock.now() - SYSTEM_STEP_MICROS).await;
        clock.until(i64::MIN).await;
    }
}
