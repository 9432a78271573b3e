//! Of how many rows values are made at a time, where they may be far larger than what they are made of.

/// Rows of the first step are as few as the caller says; then as many as fit, and this many times those of the step before at most.
const GROWTH: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Steps {
    rows: usize,
    rows_max: usize,
    bytes: usize,
}

impl Steps {
    /// Steps of so many bytes, unless one row takes more, and of so many rows at most; the first one has `first`.
    pub fn new(first: usize, rows_max: usize, bytes: usize) -> Self {
        Steps {
            rows: first.clamp(1, rows_max.max(1)),
            rows_max: rows_max.max(1),
            bytes,
        }
    }

    /// The rows of the next step, of so many that are left.
    pub fn next(&self, left: usize) -> usize {
        self.rows.min(left)
    }

    /// So many bytes were made of a row, in a step of so many rows.
    pub fn made(&mut self, rows: usize, row_bytes: usize) {
        let fit = self.bytes / row_bytes.max(1);
        let grown = rows.max(1).saturating_mul(GROWTH);
        // A short step at the end of a batch says nothing against longer ones.
        self.rows = fit.min(grown.max(self.rows)).clamp(1, self.rows_max);
    }

    /// There was no memory for a step of so many rows. Returns whether a shorter one can be tried.
    pub fn was_refused(&mut self, rows: usize) -> bool {
        self.rows = (rows / 2).max(1);
        rows > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_while_rows_are_narrow() {
        let mut steps = Steps::new(1, 8_192, 1_000);
        assert_eq!(steps.next(100), 1);
        steps.made(1, 1);
        assert_eq!(steps.next(100), 8);
        steps.made(8, 100);
        assert_eq!(steps.next(100), 10);
        assert_eq!(steps.next(3), 3);
        steps.made(3, 1);
        assert_eq!(steps.next(100), 24);
        steps.made(2, 1);
        assert_eq!(steps.next(100), 24);
        steps.made(24, 5_000);
        assert_eq!(steps.next(100), 1);
    }

    #[test]
    fn refused_steps_are_halved() {
        let mut steps = Steps::new(64, 64, 1_000);
        assert!(steps.was_refused(64));
        assert_eq!(steps.next(100), 32);
        assert!(steps.was_refused(2));
        assert!(!steps.was_refused(1));
        assert_eq!(steps.next(100), 1);
    }
}
