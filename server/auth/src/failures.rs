//! How long whoever fails to log in waits for the answer, so that passwords cannot be tried by the thousand.
//!
//! Each failure from one address makes its next ones slower, up to a limit; after a while of peace all is forgotten. Who logs in
//! rightly never waits, wherever it comes from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// After one failure; it doubles with each more.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// An address that has not failed for so long begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Addresses that are remembered. When there are more, the one goes that has not failed for longest.
const ADDRESSES_MAX: usize = 4_096;

/// The failures of each address.
#[derive(Debug, Default)]
pub struct Failures {
    by_address: BTreeMap<IpAddr, (u32, Instant)>,
}

impl Failures {
    /// Notes a failure, and says how long its answer is to be held back.
    pub fn failed(&mut self, address: IpAddr, now: Instant) -> Duration {
        let known = self.by_address.get(&address);
        let recent = known.filter(|(_, last)| now.saturating_duration_since(*last) < FORGOTTEN_AFTER);
        let count = recent.map_or(0, |(count, _)| *count);
        if known.is_none() && self.by_address.len() >= ADDRESSES_MAX {
            let oldest = self.by_address.iter().min_by_key(|(_, (_, last))| *last);
            if let Some(address) = oldest.map(|(address, _)| *address) {
                self.by_address.remove(&address);
            }
        }
        self.by_address.insert(address, (count.saturating_add(1), now));
        FIRST.saturating_mul(1 << count.min(16)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_makes_the_next_slower_until_there_was_peace() {
        let mut failures = Failures::default();
        let (address, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let begin = Instant::now();
        let waits: Vec<u128> = (0..8)
            .map(|_| failures.failed(address, begin).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(failures.failed(other, begin), FIRST);
        assert_eq!(failures.failed(address, begin + FORGOTTEN_AFTER), FIRST);
    }

    #[test]
    fn so_many_addresses_are_remembered() {
        let mut failures = Failures::default();
        let begin = Instant::now();
        for number in 0..ADDRESSES_MAX as u32 + 10 {
            let address = IpAddr::from(number.to_be_bytes());
            failures.failed(address, begin + Duration::from_millis(u64::from(number)));
        }
        assert_eq!(failures.by_address.len(), ADDRESSES_MAX);
        assert!(!failures.by_address.contains_key(&IpAddr::from([0, 0, 0, 0])));
    }
}
