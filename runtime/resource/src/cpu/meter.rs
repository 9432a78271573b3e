//! The processor time of the polls of one thread, asked of the operating system seldom.
//!
//! A poll that holds a slot does not have the processor all that time: a thread that the kernel prefers may have it, another program, or
//! nobody, while it waits for a file. To ask costs 0.3 us, which a stream's polls of some microseconds would feel; but what keeps a
//! poll from the processor takes longer than they do. So of those only the long ones are asked about:
//!
//! ```text
//!   asked                 short polls                         asked
//!     |      [====]  [==]  [===]  (count as held)  [~~~~~~~~~~~~|
//!     `------------------- processor time of the thread -------'    less the short ones: that of the long poll
//! ```

use std::time::Duration;

/// A poll that holds its slot for less had the processor meanwhile.
const SHORT: Duration = Duration::from_micros(100);

/// After so many short polls it is asked anew, so that what the thread does between polls is not taken for a part of a long one.
const SHORT_POLLS_MAX: u32 = 32;

/// See the module.
#[derive(Debug, Default)]
pub struct Meter {
    /// What the operating system said last; `None`: it was not asked yet, or does not tell.
    asked: Option<Duration>,
    /// Of the polls since.
    counted: Duration,
    polls: u32,
    /// The poll under way is asked about however short it is.
    is_exact: bool,
}

impl Meter {
    /// A poll begins. `ask`: the processor time of the thread.
    pub fn begin(&mut self, is_exact: bool, ask: impl FnOnce() -> Option<Duration>) {
        self.is_exact = is_exact;
        if is_exact || self.asked.is_none() || self.polls >= SHORT_POLLS_MAX {
            self.answered(ask());
        }
    }

    fn answered(&mut self, answer: Option<Duration>) {
        (self.asked, self.counted, self.polls) = (answer, Duration::ZERO, 0);
    }

    /// Of the poll under way, which has held its slot for `held`.
    pub fn so_far(&self, held: Duration, ask: impl FnOnce() -> Option<Duration>) -> Duration {
        if held < SHORT && !self.is_exact {
            return held;
        }
        self.used(held, ask())
    }

    fn used(&self, held: Duration, answer: Option<Duration>) -> Duration {
        match (self.asked, answer) {
            (Some(before), Some(now)) => now.saturating_sub(before + self.counted).min(held),
            _ => held,
        }
    }

    /// The poll is over.
    pub fn end(&mut self, held: Duration, ask: impl FnOnce() -> Option<Duration>) -> Duration {
        if held < SHORT && !self.is_exact {
            self.counted += held;
            self.polls += 1;
            return held;
        }
        let answer = ask();
        let used = self.used(held, answer);
        self.answered(answer);
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(value: u64) -> Duration {
        Duration::from_micros(value)
    }

    #[test]
    fn a_long_poll_counts_what_it_had_of_the_processor() {
        let mut meter = Meter::default();
        meter.begin(false, || Some(micros(1_000)));
        assert_eq!(meter.end(micros(20), || unreachable!("it is short")), micros(20));
        meter.begin(false, || unreachable!("it was asked"));
        // It held its slot for 3 ms, and stood still for most of that.
        assert_eq!(meter.so_far(micros(2_000), || Some(micros(1_300))), micros(280));
        assert_eq!(meter.end(micros(3_000), || Some(micros(1_520))), micros(500));
        meter.begin(false, || unreachable!("it was asked"));
        assert_eq!(meter.end(micros(400), || Some(micros(1_920))), micros(400));
        // Never more than it held, whatever the thread does between polls.
        meter.begin(false, || unreachable!("it was asked"));
        assert_eq!(meter.end(micros(400), || Some(micros(9_000))), micros(400));
    }

    #[test]
    fn it_is_asked_seldom_where_polls_are_short() {
        let mut meter = Meter::default();
        let mut asked = 0;
        for _ in 0..10 * SHORT_POLLS_MAX {
            let mut ask = || {
                asked += 1;
                Some(micros(asked))
            };
            meter.begin(false, &mut ask);
            meter.end(micros(5), &mut ask);
        }
        assert_eq!(asked, 10);
        // Of what can be made to stand still every poll is asked about.
        meter.begin(true, || Some(micros(100)));
        assert_eq!(meter.end(micros(50), || Some(micros(110))), micros(10));
        // Where the operating system does not tell, it is what was held.
        let mut meter = Meter::default();
        meter.begin(true, || None);
        assert_eq!(meter.end(micros(700), || None), micros(700));
    }
}
