//! What another amount of memory would change of a run: what was on disk because there was no more (Ousterhout 2017, section 5.6.4, asks
//! the same of input that is kept in memory).
//!
//! ```text
//!                 held            needed = held + spilled
//! ----------------|---------------|--------------------------> memory
//!  not measured   |  not measured |  nothing is spilled: its disk monotasks are not there
//! ```
//!
//! A run that spilled nothing needs what it held: with more it is the same. With less it would spill, and has not told how
//! much; nor has one that spilled, of an amount in between. Such a question has no answer.

use thiserror::Error;

use super::profile::{MemoryUse, Profile};
use super::scenario::Scenario;
use super::units::bytes;

/// Why nothing can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotMeasured {
    #[error("what it held in memory was not measured")]
    Uncounted,
    #[error("it held {}: what it would do with less memory was not measured", bytes(*held as f64))]
    Less { held: u64 },
    #[error(
        "with less than {} it would still spill, and how much was not measured", bytes(*needed as f64)
    )]
    Between { needed: u64 },
}

/// Whether the model can tell what so many bytes of memory would change.
///
/// # Errors
/// It cannot.
pub fn check(used: Option<MemoryUse>, asked: u64) -> Result<(), NotMeasured> {
    let used = used.ok_or(NotMeasured::Uncounted)?;
    if asked >= used.needed() {
        return Ok(());
    }
    Err(match used.spilled {
        0 => NotMeasured::Less { held: used.held },
        _ => NotMeasured::Between {
            needed: used.needed(),
        },
    })
}

/// Whether what the run has spilled would stay in memory.
pub(super) fn is_enough(profile: &Profile, scenario: &Scenario) -> bool {
    let asked = scenario.memory;
    asked.is_some_and(|asked| check(profile.machine.memory, asked).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_measured_is_answered() {
        let held = |held, spilled| Some(MemoryUse { held, spilled });
        assert_eq!(check(held(100, 0), 100), Ok(()));
        assert_eq!(check(held(100, 0), u64::MAX), Ok(()));
        assert_eq!(check(held(100, 0), 99), Err(NotMeasured::Less { held: 100 }));
        assert_eq!(check(held(100, 50), 150), Ok(()));
        assert_eq!(
            check(held(100, 50), 149),
            Err(NotMeasured::Between { needed: 150 })
        );
        assert_eq!(check(None, 1), Err(NotMeasured::Uncounted));
    }
}
