//! How much may be made in one step on this thread, by whoever is called there: functions cannot know who will hold what they make.

use std::cell::Cell;

thread_local! {
    static BYTES_MAX: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Sets the limit back.
struct Reset(usize);

impl Drop for Reset {
    fn drop(&mut self) {
        BYTES_MAX.set(self.0);
    }
}

/// Runs a step in which what is made of several rows is to take so many bytes at most. A single row's value is not refused.
pub fn within<T>(bytes_max: usize, step: impl FnOnce() -> T) -> T {
    let _reset = Reset(BYTES_MAX.replace(bytes_max));
    step()
}

/// Whether so many bytes may be made of so many rows in this step.
pub fn allows(bytes: usize, rows: usize) -> bool {
    rows <= 1 || bytes <= BYTES_MAX.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_with_its_step() {
        assert!(allows(1_000, 2));
        let caught = std::panic::catch_unwind(|| {
            within(100, || {
                assert!(allows(100, 2) && !allows(101, 2) && allows(1_000, 1));
                within(10, || assert!(!allows(11, 2)));
                assert!(allows(100, 2));
                panic!("the step");
            })
        });
        assert!(caught.is_err());
        assert!(allows(1_000, 2));
    }
}
