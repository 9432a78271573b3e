//! The two sizes that every suite has.

/// How much of everything a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// What results are taken from.
    Real,
    /// Enough to see that every experiment works; what the tests run.
    Small,
}
