//! Chooses how many requests a device has in flight, from what it moves with so many.
//!
//! The model of a run takes bytes over throughput for a disk's ideal time. Throughput grows with the requests in flight until
//! the device is busy; what is handed to it beyond that waits in the device, where nothing more urgent can pass it. So the
//! least concurrency is taken with which throughput is as good as with any, for spinning disks one, as a rule.
//!
//! Pure: it is told of each request that has ended, and answers what is to be from now on. Only time counts in which requests
//! waited: otherwise it is the tasks that are slow.

use std::time::{Duration, Instant};

/// Requests in flight that are tried.
const LEVELS: [usize; 4] = [1, 2, 4, 8];
/// What is moved, and how long that takes at the least, before a concurrency is judged.
const WINDOW_BYTES: u64 = 64 << 20;
const WINDOW_TIME: Duration = Duration::from_millis(50);
/// Of the best throughput, what is as good.
const GOOD_SHARE: f64 = 0.95;
/// After so many windows all is measured again: disks and their users change.
const WINDOWS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Tuner {
    /// The place of the concurrency among the levels.
    at: usize,
    /// Bytes a second with each, as far as it is known.
    rates: [Option<f64>; LEVELS.len()],
    windows: usize,
    /// Since when requests have waited all the time, and what was moved since.
    window: Option<(Instant, u64)>,
}

impl Tuner {
    /// Begins with the level next to so many requests.
    pub fn new(concurrency: usize) -> Tuner {
        let at = LEVELS.iter().rposition(|level| *level <= concurrency);
        Tuner {
            at: at.unwrap_or_default(),
            rates: Default::default(),
            windows: 0,
            window: None,
        }
    }

    /// Requests to be in flight.
    pub fn concurrency(&self) -> usize {
        LEVELS[self.at]
    }

    /// What is known: requests in flight, and bytes a second.
    pub fn measured(&self) -> Vec<(usize, f64)> {
        let levels = LEVELS.iter().zip(&self.rates);
        levels
            .filter_map(|(level, rate)| Some((*level, (*rate)?)))
            .collect()
    }

    /// The device is another one now.
    pub fn forget(&mut self) {
        self.rates = Default::default();
        self.windows = 0;
        self.window = None;
    }

    /// A request has ended, at `now`; `is_saturated`: others wait. Returns what is to be in flight from now on.
    pub fn served(&mut self, now: Instant, bytes: u64, is_saturated: bool) -> usize {
        if !is_saturated {
            self.window = None;
            return self.concurrency();
        }
        // What ended at the window's beginning was moved before it.
        let Some((since, moved)) = &mut self.window else {
            self.window = Some((now, 0));
            return self.concurrency();
        };
        *moved += bytes;
        let elapsed = now.saturating_duration_since(*since);
        if *moved >= WINDOW_BYTES && elapsed >= WINDOW_TIME {
            let rate = *moved as f64 / elapsed.as_secs_f64();
            self.window = None;
            self.judge(rate);
        }
        self.concurrency()
    }

    fn judge(&mut self, rate: f64) {
        self.windows += 1;
        if self.windows > WINDOWS_MAX {
            self.forget();
        }
        let known = &mut self.rates[self.at];
        *known = Some(known.map_or(rate, |known| (known + rate) / 2.0));
        let best = self.rates.iter().flatten().copied().fold(0.0, f64::max);
        let good = |rate: &Option<f64>| rate.is_some_and(|rate| rate >= GOOD_SHARE * best);
        let Some(least) = self.rates.iter().position(good) else {
            return;
        };
        let most = self.rates.iter().rposition(good).unwrap_or(least);
        let is_unknown = |level: usize| self.rates.get(level) == Some(&None);
        // Fewer may be as good as well; more are only tried where more were better until now.
        self.at = if least > 0 && is_unknown(least - 1) {
            least - 1
        } else if is_unknown(most + 1) && (most == 0 || least == most) {
            most + 1
        } else {
            least
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device moves that is as fast as `rate` says, for so many windows.
    fn run(tuner: &mut Tuner, rate: impl Fn(usize) -> f64, windows: usize) {
        let mut now = Instant::now();
        for _ in 0..=windows * 64 {
            let bytes = 1 << 20;
            now += Duration::from_secs_f64(bytes as f64 / rate(tuner.concurrency()));
            tuner.served(now, bytes, true);
        }
    }

    #[test]
    fn the_least_is_taken_that_is_as_good_as_any() {
        type Rate = fn(usize) -> f64;
        let rates: [(Rate, usize); 4] = [
            // It has one arm: more make it worse.
            (|requests| 150e6 / requests as f64, 1),
            // It is as fast with any.
            (|_| 400e6, 1),
            // It does four things at once, or all.
            (|requests| 100e6 * requests.min(4) as f64, 4),
            (|requests| 100e6 * requests as f64, 8),
        ];
        for (rate, expected) in rates {
            for begin in [1, 4, 8] {
                let mut tuner = Tuner::new(begin);
                run(&mut tuner, rate, 20);
                assert_eq!(
                    tuner.concurrency(),
                    expected,
                    "from {begin}: {:?}",
                    tuner.measured()
                );
            }
        }
    }

    #[test]
    fn it_finds_out_when_the_device_has_changed() {
        let mut tuner = Tuner::new(4);
        run(&mut tuner, |requests| 100e6 * requests as f64, 20);
        assert_eq!(tuner.concurrency(), 8);
        run(&mut tuner, |_| 100e6, WINDOWS_MAX + 10);
        assert_eq!(tuner.concurrency(), 1);
    }

    #[test]
    fn slow_tasks_say_nothing_of_the_device() {
        let mut tuner = Tuner::new(4);
        let mut now = Instant::now();
        for request in 0..10_000 {
            now += Duration::from_millis(1);
            tuner.served(now, 1 << 20, request % 7 > 0);
        }
        assert_eq!((tuner.concurrency(), tuner.measured()), (4, vec![]));
    }
}
